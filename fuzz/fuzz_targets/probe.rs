//! Measurement datagrams: only one encoded with the session key verifies, and decoded datagrams
//! round-trip.

#![no_main]

use bankfull_proto::wire::probe::{ProbePacket, verify};
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];

fuzz_target!(|bytes: &[u8]| {
    assert!(!verify(bytes, &KEY), "a forged proof");
    let Ok(probe) = ProbePacket::decode(bytes) else { return };
    let genuine = probe.encode(&KEY);
    assert!(verify(&genuine, &KEY));
    assert_eq!(ProbePacket::decode(&genuine), Ok(probe));
    let echo = probe.echo(probe.number, probe.timestamp_us).encode(&KEY);
    assert!(echo.len() <= bytes.len(), "an echo is longer than its probe");
});
