//! Data headers and packs. A check value that a fuzzer would never guess is filled in, so that it
//! gets past it; what is accepted reads as the same header again.

#![no_main]

use bankfull_proto::wire::data::{HEADER_BYTES, Header, push_packed, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let _ = Header::decode(header);
    let mut checked = *header;
    checked[28..].copy_from_slice(&blake3::hash(&header[..28]).as_bytes()[..4]);
    let Ok(decoded) = Header::decode(&checked) else { return };
    assert_eq!(Header::decode(&decoded.encode()), Ok(decoded));
    let Header::Pack { count, .. } = decoded else { return };
    if let Ok(files) = unpack(payload, count) {
        let mut again = Vec::new();
        for file in &files {
            push_packed(&mut again, file.file, &file.hash, file.content);
        }
        assert_eq!(again, payload);
        assert_eq!(files.len(), count as usize);
    }
});
