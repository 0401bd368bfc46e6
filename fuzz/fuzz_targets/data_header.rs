//! Data headers and packs: accepted ones round-trip. Check values are filled in, since a fuzzer
//! cannot guess them.

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
        let mut encoded = Vec::new();
        for file in &files {
            push_packed(&mut encoded, file.file, &file.hash, file.content);
        }
        assert_eq!(encoded, payload);
        assert_eq!(files.len(), count as usize);
    }
});
