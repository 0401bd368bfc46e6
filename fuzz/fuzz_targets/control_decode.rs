//! Control messages: an accepted message round-trips.

#![no_main]

use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{decode, encode};
use bankfull_proto::wire::frame::PREFIX_BYTES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(message) = decode(body) else { return };
    match encode(&message) {
        Ok(encoded) => assert_eq!(decode(&encoded[PREFIX_BYTES..]).as_ref(), Ok(&message)),
        // A list of indefinite length may be a few bytes longer with a definite one.
        Err(error) => assert!(matches!(error, WireError::FrameTooLong { .. })),
    }
});
