//! Vectors of data streams (attach handshake, frames) and of datagrams.

use super::Vector;
use super::control::counting;
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHasher, FileHash};
use bankfull_proto::wire::attach::{self, Attach};
use bankfull_proto::wire::data::{HEADER_BYTES, Header, TAG_BYTES, Tagger, push_packed, unpack};
use bankfull_proto::wire::probe::{self, Kind, ProbePacket};

/// Session key of all vectors.
const SESSION_KEY: fn() -> [u8; 32] = || counting(0x20);
/// Nonce of the data stream in all vectors.
const NONCE: fn() -> [u8; 32] = || counting(0x40);

pub(super) fn vectors() -> Vec<Vector> {
    [attach(), headers(), frames(), probes()].into_iter().flatten().collect()
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap()
}

fn attach() -> Vec<Vector> {
    let request = Attach { version: 1, stream: 3, session: counting(0x00), nonce: NONCE() };
    let keys = "session key 20 21 .. 3f, nonce 40 41 .. 5f.";
    vec![
        Vector::new(
            "attach-request",
            format!("Attach request: version 1, stream 3, session 00 01 .. 0f,\n{keys}"),
            request.encode(&SESSION_KEY()),
            move |bytes| {
                let bytes = fixed(bytes);
                assert!(attach::verify(&bytes, &SESSION_KEY()));
                assert_eq!(Attach::decode(&bytes), Ok(request));
                Attach::decode(&bytes).unwrap().encode(&SESSION_KEY()).to_vec()
            },
        ),
        Vector::new(
            "attach-reply",
            format!("Attach reply to attach-request: {keys}"),
            attach::reply(&SESSION_KEY(), &NONCE()),
            |bytes| {
                assert!(attach::verify_reply(&fixed(bytes), &SESSION_KEY(), &NONCE()));
                attach::reply(&SESSION_KEY(), &NONCE()).to_vec()
            },
        ),
        Vector::new(
            "stream-key",
            format!("Key of the tags on an unencrypted data stream: {keys}"),
            attach::stream_key(&SESSION_KEY(), &NONCE()),
            |_| attach::stream_key(&SESSION_KEY(), &NONCE()).to_vec(),
        ),
    ]
}

fn probes() -> Vec<Vector> {
    let probe = ProbePacket::new(Kind::Probe, counting(0x00), 5, 1_000_000);
    let echo = probe.echo(4, 999_000);
    let one = |name: &'static str, about: &str, probe: ProbePacket| {
        let about = format!("{about}, session 00 01 .. 0f, session key 20 21 .. 3f.");
        Vector::new(name, about, probe.encode(&SESSION_KEY()), move |bytes| {
            assert!(probe::verify(bytes, &SESSION_KEY()));
            let decoded = ProbePacket::decode(bytes).unwrap();
            assert_eq!(decoded, probe);
            decoded.encode(&SESSION_KEY()).to_vec()
        })
    };
    vec![
        one("probe", "Datagram: probe 5 at 1 s", probe),
        one("probe-echo", "Datagram: echo 4 at 0.999 s of probe 5", echo),
    ]
}

fn header(name: &'static str, about: &str, header: Header) -> Vector {
    Vector::new(name, about, header.encode(), move |bytes| {
        let decoded = Header::decode(&fixed(bytes)).unwrap();
        assert_eq!(decoded, header);
        decoded.encode().to_vec()
    })
}

fn headers() -> Vec<Vector> {
    let block = Header::Block { file: 6, offset: 3 << 30, len: 8 << 20 };
    vec![
        header("data-block", "Header: 8 MiB of file 6 at offset 3 GiB.", block),
        header("data-pack", "Header: 2 files in a pack of 101 bytes.", pack_header()),
        header("data-end", "Header: end of the data stream.", Header::End),
        header("data-filler", "Header: 256 KiB of filler.", Header::Filler { len: 256 << 10 }),
    ]
}

fn pack_header() -> Header {
    Header::Pack { count: 2, len: pack().len() as u32 }
}

/// Returns a pack of an empty file and a file with "hello, world\n".
fn pack() -> Vec<u8> {
    let mut payload = Vec::new();
    for (file, content) in [(3, &b""[..]), (5, b"hello, world\n")] {
        push_packed(&mut payload, file, &FileHash::of(content).0, content);
    }
    payload
}

fn frames() -> Vec<Vector> {
    let packed = "file 3, empty, and file 5, with the content \"hello, world\\n\"";
    vec![
        Vector::new("pack-payload", format!("Payload of a pack: {packed}."), pack(), |bytes| {
            let files = unpack(bytes, 2).unwrap();
            assert_eq!((files[0].file, files[0].content), (3, &b""[..]));
            assert_eq!((files[1].file, files[1].content), (5, &b"hello, world\n"[..]));
            let mut will_retry = Vec::new();
            for file in files {
                assert_eq!(file.hash, FileHash::of(file.content).0);
                push_packed(&mut will_retry, file.file, &file.hash, file.content);
            }
            will_retry
        }),
        frames_of(
            "frames-encrypted",
            format!("{FRAMES}\nEncrypted data stream: each tag is the hash of the payload."),
            Tagger::unkeyed,
        ),
        frames_of(
            "frames-unencrypted",
            format!(
                "{FRAMES}\nUnencrypted data stream with the key stream-key: tags are keyed\n\
                 and count frames."
            ),
            || Tagger::keyed(attach::stream_key(&SESSION_KEY(), &NONCE())),
        ),
    ]
}

/// Description of the frames of both streams.
const FRAMES: &str = "Three frames and the end: a pack (pack-payload); the five bytes \"hello\",\n\
    which are all of file 8; the five bytes \"world\", the last block of file 9 of 1048581 bytes.";

/// Returns the frames without their tags.
fn sent() -> [(Header, Vec<u8>); 3] {
    let hello = Header::Block { file: 8, offset: 0, len: 5 };
    let world = Header::Block { file: 9, offset: 1 << 20, len: 5 };
    [(pack_header(), pack()), (hello, b"hello".to_vec()), (world, b"world".to_vec())]
}

/// Returns the hash of a payload; for a block, the hash at its position in the file.
fn payload_hash(header: &Header, payload: &[u8]) -> [u8; 32] {
    let Header::Block { offset, len, .. } = *header else { return FileHash::of(payload).0 };
    let layout = Layout::new(offset + u64::from(len), 1 << 20).unwrap();
    let mut hasher = BlockHasher::new(&layout, offset);
    hasher.update(payload);
    hasher.finish().0
}

/// Encodes frames with their tags, and the end.
fn write(frames: &[(Header, Vec<u8>)], mut tags: Tagger) -> Vec<u8> {
    let mut out = Vec::new();
    for (header, payload) in frames {
        let bytes = header.encode();
        out.extend_from_slice(&bytes);
        out.extend_from_slice(payload);
        out.extend_from_slice(&tags.next(&bytes, &payload_hash(header, payload)));
    }
    out.extend_from_slice(&Header::End.encode());
    out
}

fn frames_of(name: &'static str, about: String, tagger: fn() -> Tagger) -> Vector {
    Vector::new(name, about, write(&sent(), tagger()), move |bytes| {
        let mut tags = tagger();
        let mut rest = bytes;
        let mut read = Vec::new();
        for (expected, _) in sent() {
            let (bytes, after) = rest.split_first_chunk::<HEADER_BYTES>().unwrap();
            let header = Header::decode(bytes).unwrap();
            assert_eq!(header, expected);
            let (Header::Block { len, .. } | Header::Pack { len, .. }) = header else { panic!() };
            let (payload, after) = after.split_at(len as usize);
            let (tag, after) = after.split_at(TAG_BYTES);
            assert_eq!(tag, tags.next(bytes, &payload_hash(&header, payload)));
            read.push((header, payload.to_vec()));
            rest = after;
        }
        assert_eq!(Header::decode(&fixed(rest)), Ok(Header::End));
        write(&read, tagger())
    })
}
