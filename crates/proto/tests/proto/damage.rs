//! Damaged vectors, thousands for each decoder. No decoder may panic or allocate without bound, and
//! an accepted value must round-trip. A short version of the fuzz targets in `fuzz/`.

use crate::support::Random;
use crate::vectors;
use bankfull_proto::journal::{self, HEADER_BYTES, RECORD_BYTES, Record};
use bankfull_proto::limits::MAX_CONTROL_FRAME_BYTES;
use bankfull_proto::wire::attach::{Attach, REQUEST_BYTES};
use bankfull_proto::wire::control;
use bankfull_proto::wire::data::{Header, unpack};
use bankfull_proto::wire::frame::{FrameReader, PREFIX_BYTES};
use bankfull_proto::wire::probe::{ProbePacket, verify};

/// Number of damaged copies of each vector.
const COPIES: usize = 1500;

/// Damages bytes: flips bits, truncates, repeats, inserts extreme values, removes.
fn damage(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            4 => {
                let end = at + random.below(bytes.len() - at) + 1;
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => drop(bytes.remove(at)),
        }
    }
    bytes
}

/// Runs a decoder over all vectors and their damaged copies.
fn feed(mut decode: impl FnMut(&[u8], &mut Random)) {
    let mut random = Random(1);
    for vector in vectors::all() {
        decode(&vector.bytes, &mut random);
        for _ in 0..COPIES {
            let bytes = damage(&vector.bytes, &mut random);
            decode(&bytes, &mut random);
        }
    }
}

#[test]
fn damaged_control_message_is_refused_or_round_trips() {
    let mut accepted = 0;
    feed(|bytes, _| {
        let body = bytes.get(PREFIX_BYTES..).unwrap_or_default();
        if let Ok(message) = control::decode(body) {
            accepted += 1;
            let encoded = control::encode(&message).unwrap();
            assert_eq!(control::decode(&encoded[PREFIX_BYTES..]), Ok(message));
        }
    });
    assert!(accepted > 1000, "too few are accepted: {accepted}");
}

#[test]
fn damaged_datagram_never_verifies() {
    let (mut decoded, mut verified) = (0, 0);
    feed(|bytes, _| {
        verified += u32::from(verify(bytes, &[9; 32]));
        if let Ok(probe) = ProbePacket::decode(bytes) {
            decoded += 1;
            assert_eq!(ProbePacket::decode(&probe.encode(&[9; 32])), Ok(probe));
        }
    });
    assert_eq!(verified, 0, "the vectors have another key");
    assert!(decoded > 1000, "too few are accepted: {decoded}");
}

#[test]
fn damaged_frames_are_the_same_for_any_split() {
    feed(|bytes, random| {
        let whole = frames(&[bytes]);
        let cut = random.below(bytes.len() + 1);
        assert_eq!(frames(&[&bytes[..cut], &bytes[cut..]]), whole);
    });
}

/// Reads frames from chunks of a stream. Returns them, and whether the stream was refused.
fn frames(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let mut reader = FrameReader::new(MAX_CONTROL_FRAME_BYTES);
    let mut frames = Vec::new();
    for chunk in chunks {
        reader.push(chunk);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

#[test]
fn damaged_data_header_or_pack_never_panics() {
    feed(|bytes, random| {
        if let Some(header) = bytes.first_chunk()
            && let Ok(decoded) = Header::decode(header)
        {
            assert_eq!(Header::decode(&decoded.encode()), Ok(decoded));
        }
        for count in [0, 1, 2, random.below(2000) as u32] {
            if let Ok(files) = unpack(bytes, count) {
                assert_eq!(files.len(), count as usize);
            }
        }
    });
}

#[test]
fn damaged_attach_request_never_verifies() {
    let mut key = [0; 32];
    key.iter_mut().zip(0x20..).for_each(|(byte, value)| *byte = value);
    let genuine = vectors::all().into_iter().find(|vector| vector.bytes.len() == REQUEST_BYTES);
    let genuine = genuine.unwrap().bytes;
    feed(|bytes, _| {
        if let Some(request) = bytes.first_chunk::<REQUEST_BYTES>() {
            let _ = Attach::decode(request);
            let verified = bankfull_proto::wire::attach::verify(request, &key);
            assert_eq!(verified, request[..] == genuine);
        }
    });
}

#[test]
fn damaged_journal_is_trusted_up_to_the_damage() {
    feed(|bytes, _| {
        for boot in [[0; 16], [1; 16]] {
            let Ok(replay) = journal::replay(bytes, &boot) else { continue };
            let valid = replay.valid_bytes as usize;
            assert!(valid >= HEADER_BYTES && valid <= bytes.len());
            let (records, _) = bytes[HEADER_BYTES..valid].as_chunks::<RECORD_BYTES>();
            assert!(records.iter().all(|record| Record::decode(record).is_some()));
            let blocks = replay.header.layout.count();
            assert!(replay.recorded.blocks.iter().all(|block| block.index < blocks));
        }
    });
}
