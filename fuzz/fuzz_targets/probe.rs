//! Datagrams beside the data, which come without any connection: no bytes verify but those of one
//! made with the key, and what decodes reads the same again.

#![no_main]

use bankfull_proto::wire::probe::{Probe, verify};
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];

fuzz_target!(|bytes: &[u8]| {
    assert!(!verify(bytes, &KEY), "a guessed proof");
    let Ok(probe) = Probe::decode(bytes) else { return };
    let genuine = probe.encode(&KEY);
    assert!(verify(&genuine, &KEY));
    assert_eq!(Probe::decode(&genuine), Ok(probe));
    let echo = probe.echo(probe.number, probe.clock_us).encode(&KEY);
    assert!(echo.len() <= bytes.len(), "an answer is no longer than what it answers");
});
