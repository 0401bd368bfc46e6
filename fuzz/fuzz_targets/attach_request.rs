//! Attach requests: only a request encoded with the session key verifies.

#![no_main]

use bankfull_proto::wire::attach::{Attach, REQUEST_BYTES, verify};
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];

fuzz_target!(|bytes: &[u8]| {
    let Some(request) = bytes.first_chunk::<REQUEST_BYTES>() else { return };
    assert!(!verify(request, &KEY), "a forged proof");
    let Ok(attach) = Attach::decode(request) else { return };
    let genuine = attach.encode(&KEY);
    assert!(verify(&genuine, &KEY));
    assert_eq!(Attach::decode(&genuine), Ok(attach));
});
