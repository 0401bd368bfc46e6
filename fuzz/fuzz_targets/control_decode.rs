//! Control messages: what is accepted can be written, and reads as the same message again.

#![no_main]

use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{decode, encode};
use bankfull_proto::wire::frame::PREFIX_BYTES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(message) = decode(body) else { return };
    match encode(&message) {
        Ok(again) => assert_eq!(decode(&again[PREFIX_BYTES..]).as_ref(), Ok(&message)),
        // Lists without a length in front may be a few bytes longer with one.
        Err(error) => assert!(matches!(error, WireError::FrameTooLong { .. })),
    }
});
