//! UDP measurement datagrams: registrations, RTT probes with their echoes, packet trains.
//!
//! Every datagram begins with the same 100 bytes and proves knowledge of the session key.
//! Layout, big-endian: magic `"BKFLPROB"` (0..8), kind (8), zeros (9..16), session (16..32), number
//! (32..40), timestamp (40..48), echoed number (48..56), echoed timestamp (56..64), zeros (64..84),
//! proof (84..100).
//!
//! A response is never longer than its request. A server sends trains only to an address from which
//! a datagram with a valid proof and a new number arrived; a client sends them to the port of its
//! data streams.

use crate::error::WireError;

/// Size of a datagram in bytes. (SOBAS paper §IV.B: 100 bytes every 10 ms)
pub const PROBE_BYTES: usize = 100;

/// Largest packet of a train in bytes, padded with zeros: 1500 bytes less the IPv4 and UDP headers.
pub const MAX_TRAIN_PACKET_BYTES: usize = 1472;

/// Returns the size of the UDP and IP headers in bytes. (RFC 768, RFC 791, RFC 8200)
#[must_use]
pub const fn udp_ip_header_bytes(is_ipv6: bool) -> usize {
    if is_ipv6 { 48 } else { 28 }
}

/// First bytes of a datagram.
pub const PROBE_MAGIC: [u8; 8] = *b"BKFLPROB";

/// Offset of the proof.
const PROOF_OFFSET: usize = 84;

/// Size of the proof in bytes.
const PROOF_BYTES: usize = PROBE_BYTES - PROOF_OFFSET;

/// Kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Registration of the client's UDP address (like a STUN binding). Answered with an echo.
    Register = 0,
    /// RTT probe by the receiver of files. Answered with an echo.
    Probe = 1,
    /// Response to a registration or probe. Its number counts the echoes of its sender.
    Echo = 2,
    /// Packet of a train by the sender of files. Its number counts within the train; the echoed
    /// number is the number of the train, the echoed timestamp the number of packets in it.
    Train = 3,
}

/// A measurement datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbePacket {
    /// Kind of the datagram.
    pub kind: Kind,
    /// Session of the datagram.
    pub session: [u8; 16],
    /// Count of datagrams of this kind and direction, from 0.
    pub number: u64,
    /// Clock of its sender in microseconds; the origin is arbitrary.
    pub timestamp_us: u64,
    /// Number of the datagram that is echoed.
    pub echoed_number: u64,
    /// Timestamp of the datagram that is echoed, unchanged.
    pub echoed_timestamp_us: u64,
}

impl ProbePacket {
    /// Creates a datagram that echoes nothing.
    #[must_use]
    pub fn new(kind: Kind, session: [u8; 16], number: u64, timestamp_us: u64) -> Self {
        Self { kind, session, number, timestamp_us, echoed_number: 0, echoed_timestamp_us: 0 }
    }

    /// Returns the echo of this datagram, with its own number and timestamp.
    #[must_use]
    pub fn echo(&self, number: u64, timestamp_us: u64) -> Self {
        Self {
            kind: Kind::Echo,
            session: self.session,
            number,
            timestamp_us,
            echoed_number: self.number,
            echoed_timestamp_us: self.timestamp_us,
        }
    }

    /// Encodes the datagram with its proof.
    #[must_use]
    pub fn encode(&self, session_key: &[u8; 32]) -> [u8; PROBE_BYTES] {
        let mut out = [0; PROBE_BYTES];
        out[0..8].copy_from_slice(&PROBE_MAGIC);
        out[8] = self.kind as u8;
        out[16..32].copy_from_slice(&self.session);
        out[32..40].copy_from_slice(&self.number.to_be_bytes());
        out[40..48].copy_from_slice(&self.timestamp_us.to_be_bytes());
        out[48..56].copy_from_slice(&self.echoed_number.to_be_bytes());
        out[56..64].copy_from_slice(&self.echoed_timestamp_us.to_be_bytes());
        let proof = proof(session_key, &out[..PROOF_OFFSET]);
        out[PROOF_OFFSET..].copy_from_slice(&proof);
        out
    }

    /// Decodes the first 100 bytes of a datagram without checking the proof; see [`verify`].
    ///
    /// # Errors
    /// [`WireError::BadMagic`] for foreign datagrams, [`WireError::Unexpected`] for short ones and
    /// unknown kinds.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let Some(head) = bytes.first_chunk::<PROBE_BYTES>() else {
            return Err(WireError::Unexpected("a short probe"));
        };
        if head[0..8] != PROBE_MAGIC {
            return Err(WireError::BadMagic);
        }
        let kind = match head[8] {
            0 => Kind::Register,
            1 => Kind::Probe,
            2 => Kind::Echo,
            3 => Kind::Train,
            _ => return Err(WireError::Unexpected("a probe of an unknown kind")),
        };
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let mut session = [0; 16];
        session.copy_from_slice(&head[16..32]);
        Ok(Self {
            kind,
            session,
            number: number(32),
            timestamp_us: number(40),
            echoed_number: number(48),
            echoed_timestamp_us: number(56),
        })
    }
}

/// True if the proof of a datagram matches the session key. Compares in constant time.
#[must_use]
pub fn verify(bytes: &[u8], session_key: &[u8; 32]) -> bool {
    let Some(head) = bytes.first_chunk::<PROBE_BYTES>() else { return false };
    let mut received = [0; 32];
    received[..PROOF_BYTES].copy_from_slice(&head[PROOF_OFFSET..]);
    let mut expected = [0; 32];
    expected[..PROOF_BYTES].copy_from_slice(&proof(session_key, &head[..PROOF_OFFSET]));
    blake3::Hash::from_bytes(expected) == blake3::Hash::from_bytes(received)
}

/// Returns the first 16 bytes of a keyed hash: a guess succeeds with probability 2^-128.
fn proof(session_key: &[u8; 32], bytes: &[u8]) -> [u8; PROOF_BYTES] {
    let hash = blake3::Hasher::new_keyed(session_key).update(b"probe").update(bytes).finalize();
    let mut proof = [0; PROOF_BYTES];
    proof.copy_from_slice(&hash.as_bytes()[..PROOF_BYTES]);
    proof
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> ProbePacket {
        ProbePacket {
            echoed_number: 3,
            echoed_timestamp_us: 4,
            ..ProbePacket::new(Kind::Probe, [7; 16], 1, 2)
        }
    }

    #[test]
    fn datagram_round_trips_and_verifies_with_its_key_only() {
        for kind in [Kind::Register, Kind::Probe, Kind::Echo, Kind::Train] {
            let probe = ProbePacket { kind, ..probe() };
            let mut bytes = probe.encode(&[5; 32]).to_vec();
            bytes.resize(MAX_TRAIN_PACKET_BYTES, 0);
            assert_eq!(ProbePacket::decode(&bytes), Ok(probe));
            assert!(verify(&bytes, &[5; 32]));
            assert!(!verify(&bytes, &[6; 32]));
        }
    }

    #[test]
    fn datagram_with_any_byte_changed_does_not_verify() {
        let bytes = probe().encode(&[5; 32]);
        for at in 0..PROBE_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(!verify(&changed, &[5; 32]), "byte {at}");
        }
        assert!(!verify(&bytes[..99], &[5; 32]));
    }

    #[test]
    fn datagram_short_foreign_or_unknown_is_refused() {
        let bytes = probe().encode(&[5; 32]);
        assert!(ProbePacket::decode(&bytes[..99]).is_err());
        assert!(ProbePacket::decode(&[]).is_err());
        let mut changed = bytes;
        changed[0] = b'X';
        assert_eq!(ProbePacket::decode(&changed), Err(WireError::BadMagic));
        changed = bytes;
        changed[8] = 4;
        assert!(ProbePacket::decode(&changed).is_err());
    }

    #[test]
    fn echo_carries_number_and_timestamp_of_its_probe() {
        let echo = probe().echo(9, 8);
        assert_eq!((echo.kind, echo.number, echo.timestamp_us), (Kind::Echo, 9, 8));
        assert_eq!((echo.echoed_number, echo.echoed_timestamp_us), (1, 2));
    }
}
