//! Journals: recorded blocks lie within the file, ascend, and come from intact records. Check
//! values are filled in, since a fuzzer cannot guess them.

#![no_main]

use bankfull_proto::journal::{HEADER_BYTES, RECORD_BYTES, Record, replay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = replay(bytes, &[0; 16]);
    let Some((boot, journal)) = bytes.split_first_chunk::<16>() else { return };
    let Ok(replayed) = replay(&checked(journal), boot) else { return };
    let valid = replayed.valid_bytes as usize;
    assert!(valid >= HEADER_BYTES && valid <= journal.len());
    let blocks = replayed.header.layout.count();
    let recorded = &replayed.recorded;
    assert!(recorded.blocks.iter().all(|block| block.index < blocks));
    assert!(recorded.blocks.is_sorted_by(|a, b| a.index < b.index));
    let records = (valid - HEADER_BYTES) / RECORD_BYTES;
    assert!(recorded.blocks.len() + recorded.holes.len() <= records);
});

/// Returns the journal with a valid magic and valid check values. Records whose last byte is odd
/// keep their check values.
fn checked(journal: &[u8]) -> Vec<u8> {
    let mut out = journal.to_vec();
    let Some((header, records)) = out.split_first_chunk_mut::<HEADER_BYTES>() else { return out };
    header[..8].copy_from_slice(b"BKFLJRN1");
    let check = blake3::hash(&header[..56]);
    header[56..].copy_from_slice(&check.as_bytes()[..8]);
    for record in records.as_chunks_mut::<RECORD_BYTES>().0 {
        if record[47] % 2 == 0 {
            let check = blake3::hash(&record[..44]);
            record[44..].copy_from_slice(&check.as_bytes()[..4]);
        }
        if let Some(decoded) = Record::decode(record) {
            assert_eq!(Record::decode(&decoded.encode()), Some(decoded));
        }
    }
    out
}
