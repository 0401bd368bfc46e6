//! Frames of a data stream: a 32-byte header, the payload, a 32-byte tag.
//!
//! Header, big-endian: magic `"BK"` (0..2), kind (2), zero (3), count (4..8), file (8..16), offset
//! (16..24), length (24..28), check (28..32: the first four bytes of BLAKE3 of bytes 0..28, which
//! detects a stream out of step before its length is used).

use super::bounds::at_most;
use crate::error::WireError;
use crate::limits::{MAX_BLOCK_BYTES, MAX_FILE_BYTES, MAX_PACK_BYTES, MAX_PACK_FILES};

/// Size of an encoded header in bytes.
pub const HEADER_BYTES: usize = 32;
/// Size of the tag after a payload in bytes.
pub const TAG_BYTES: usize = 32;

const MAGIC: [u8; 2] = *b"BK";
const KIND_BLOCK: u8 = 1;
const KIND_PACK: u8 = 2;
const KIND_END: u8 = 3;
const KIND_FILLER: u8 = 4;

/// Header of a frame on a data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A block: `len` bytes of file number `file` from `offset`, then the tag.
    Block {
        /// File number of the entry.
        file: u64,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Payload length in bytes.
        len: u32,
    },
    /// A pack: `count` whole files in `len` bytes of payload, then the tag.
    Pack {
        /// Number of files.
        count: u32,
        /// Payload length in bytes.
        len: u32,
    },
    /// End of the stream. No payload, no tag.
    End,
    /// Filler of a throughput test: `len` meaningless bytes. No tag.
    Filler {
        /// Payload length in bytes.
        len: u32,
    },
}

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, count, file, offset, len) = match *self {
            Self::Block { file, offset, len } => (KIND_BLOCK, 0, file, offset, len),
            Self::Pack { count, len } => (KIND_PACK, count, 0, 0, len),
            Self::End => (KIND_END, 0, 0, 0, 0),
            Self::Filler { len } => (KIND_FILLER, 0, 0, 0, len),
        };
        let mut out = [0; HEADER_BYTES];
        out[0..2].copy_from_slice(&MAGIC);
        out[2] = kind;
        out[4..8].copy_from_slice(&count.to_be_bytes());
        out[8..16].copy_from_slice(&file.to_be_bytes());
        out[16..24].copy_from_slice(&offset.to_be_bytes());
        out[24..28].copy_from_slice(&len.to_be_bytes());
        let check = check_of(&out);
        out[28..32].copy_from_slice(&check);
        out
    }

    /// Decodes a header and checks its bounds.
    ///
    /// # Errors
    /// [`WireError::BadHeader`] for damaged bytes, [`WireError::UnknownDataKind`],
    /// [`WireError::OverLimit`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        if bytes[0..2] != MAGIC || bytes[28..32] != check_of(bytes) || bytes[3] != 0 {
            return Err(WireError::BadHeader);
        }
        let u32_at = |at: usize| u32::from_be_bytes(array(&bytes[at..at + 4]));
        let u64_at = |at: usize| u64::from_be_bytes(array(&bytes[at..at + 8]));
        let (count, file, offset, len) = (u32_at(4), u64_at(8), u64_at(16), u32_at(24));
        match bytes[2] {
            KIND_BLOCK => {
                at_most("a block", len as usize, MAX_BLOCK_BYTES as usize)?;
                if offset.checked_add(u64::from(len)).is_none_or(|end| end > MAX_FILE_BYTES) {
                    return Err(WireError::BadBlock { offset, len, size: MAX_FILE_BYTES });
                }
                Ok(Self::Block { file, offset, len })
            }
            KIND_PACK => {
                at_most("a pack", len as usize, MAX_PACK_BYTES)?;
                at_most("the number of files in a pack", count as usize, MAX_PACK_FILES)?;
                Ok(Self::Pack { count, len })
            }
            KIND_END => Ok(Self::End),
            KIND_FILLER => {
                at_most("filler", len as usize, MAX_BLOCK_BYTES as usize)?;
                Ok(Self::Filler { len })
            }
            kind => Err(WireError::UnknownDataKind(kind)),
        }
    }
}

fn check_of(header: &[u8; HEADER_BYTES]) -> [u8; 4] {
    array(&blake3::hash(&header[..28]).as_bytes()[..4])
}

/// Returns the first `N` bytes; callers pass slices of exactly that length.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}

/// Size of a record in a pack before the content: file number, length, BLAKE3 of the content.
pub const PACK_RECORD_BYTES: usize = 8 + 4 + 32;

/// Appends a file to the payload of a pack.
pub fn push_packed(payload: &mut Vec<u8>, file: u64, hash: &[u8; 32], content: &[u8]) {
    payload.extend_from_slice(&file.to_be_bytes());
    payload.extend_from_slice(&(content.len() as u32).to_be_bytes());
    payload.extend_from_slice(hash);
    payload.extend_from_slice(content);
}

/// A file in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedFile<'a> {
    /// File number of the entry.
    pub file: u64,
    /// BLAKE3 of the content.
    pub hash: [u8; 32],
    /// Whole content.
    pub content: &'a [u8],
}

/// Splits the payload of a pack into its files.
///
/// # Errors
/// [`WireError::Truncated`] unless `count` records fill the payload exactly.
pub fn unpack(payload: &[u8], count: u32) -> Result<Vec<PackedFile<'_>>, WireError> {
    const TRUNCATED: WireError = WireError::Truncated("a pack of small files");
    at_most("the number of files in a pack", count as usize, MAX_PACK_FILES)?;
    let mut files = Vec::with_capacity(count as usize);
    let mut rest = payload;
    for _ in 0..count {
        let (record, after) = rest.split_at_checked(PACK_RECORD_BYTES).ok_or(TRUNCATED)?;
        let len = u32::from_be_bytes(array(&record[8..12])) as usize;
        let (content, after) = after.split_at_checked(len).ok_or(TRUNCATED)?;
        let file = u64::from_be_bytes(array(&record[..8]));
        files.push(PackedFile { file, hash: array(&record[12..44]), content });
        rest = after;
    }
    if rest.is_empty() { Ok(files) } else { Err(TRUNCATED) }
}

/// Computes the tag after each payload.
///
/// On an encrypted stream the tag is the BLAKE3 value of the payload; TLS authenticates its origin.
/// On an unencrypted stream it is keyed and counts frames, which detects frames that were changed,
/// replayed, dropped or reordered on the path.
#[derive(Debug, Clone)]
pub struct Tagger {
    key: Option<[u8; 32]>,
    sequence: u64,
}

impl Tagger {
    /// Creates the tagger of an encrypted stream.
    #[must_use]
    pub fn unkeyed() -> Self {
        Self { key: None, sequence: 0 }
    }

    /// Creates the tagger of an unencrypted stream, with the key from `attach::stream_key`.
    #[must_use]
    pub fn keyed(key: [u8; 32]) -> Self {
        Self { key: Some(key), sequence: 0 }
    }

    /// Returns the tag of the next frame. Derived from its header and the BLAKE3 value of its
    /// payload.
    pub fn next(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload_hash: &[u8; 32],
    ) -> [u8; TAG_BYTES] {
        let Some(key) = &self.key else { return *payload_hash };
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&self.sequence.to_be_bytes()).update(header).update(payload_hash);
        self.sequence += 1;
        *hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = Header> {
        prop_oneof![
            (any::<u64>(), 0..1u64 << 40, 0..=MAX_BLOCK_BYTES)
                .prop_map(|(file, offset, len)| Header::Block { file, offset, len }),
            (0..=MAX_PACK_FILES as u32, 0..=MAX_PACK_BYTES as u32)
                .prop_map(|(count, len)| Header::Pack { count, len }),
            Just(Header::End),
        ]
    }

    proptest! {
        #[test]
        fn header_round_trips(header in headers()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn header_with_any_bit_flipped_is_refused(header in headers(), bit in 0usize..256) {
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes).is_err());
        }

        #[test]
        fn pack_round_trips(files in prop::collection::vec(
            (any::<u64>(), any::<[u8; 32]>(), prop::collection::vec(any::<u8>(), 0..50)), 0..20,
        )) {
            let mut payload = Vec::new();
            for (file, hash, content) in &files {
                push_packed(&mut payload, *file, hash, content);
            }
            let unpacked = unpack(&payload, files.len() as u32).unwrap();
            prop_assert_eq!(unpacked.len(), files.len());
            for (got, (file, hash, content)) in unpacked.iter().zip(&files) {
                prop_assert_eq!((got.file, got.hash, got.content), (*file, *hash, &content[..]));
            }
            prop_assert!(unpack(&payload, files.len() as u32 + 1).is_err());
            payload.push(0);
            prop_assert!(unpack(&payload, files.len() as u32).is_err());
        }

        #[test]
        fn unpack_random_bytes_never_panics(
            payload in prop::collection::vec(any::<u8>(), 0..300), count: u32,
        ) {
            let _ = unpack(&payload, count);
        }
    }

    #[test]
    fn header_length_over_limit_is_refused_despite_valid_check() {
        let block = Header::Block { file: 1, offset: 0, len: MAX_BLOCK_BYTES + 1 };
        assert!(matches!(Header::decode(&block.encode()), Err(WireError::OverLimit { .. })));
        let pack = Header::Pack { count: 1, len: MAX_PACK_BYTES as u32 + 1 };
        assert!(matches!(Header::decode(&pack.encode()), Err(WireError::OverLimit { .. })));
        let past = Header::Block { file: 1, offset: u64::MAX, len: 1 };
        assert!(matches!(Header::decode(&past.encode()), Err(WireError::BadBlock { .. })));
    }

    #[test]
    fn keyed_tag_depends_on_key_header_payload_and_position() {
        let header = Header::Block { file: 1, offset: 0, len: 5 }.encode();
        let other = Header::Block { file: 2, offset: 0, len: 5 }.encode();
        let mut tagger = Tagger::keyed([1; 32]);
        let first = tagger.next(&header, &[9; 32]);
        let tags = [
            first,
            tagger.next(&header, &[9; 32]),
            Tagger::keyed([2; 32]).next(&header, &[9; 32]),
            Tagger::keyed([1; 32]).next(&other, &[9; 32]),
            Tagger::keyed([1; 32]).next(&header, &[8; 32]),
        ];
        for (i, a) in tags.iter().enumerate() {
            assert!(tags[i + 1..].iter().all(|b| a != b), "tag {i} is not unique");
        }
        assert_eq!(Tagger::keyed([1; 32]).next(&header, &[9; 32]), first);
    }
}
