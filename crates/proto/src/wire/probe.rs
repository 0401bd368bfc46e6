//! What travels over UDP beside the data: probes of the round trip, and packet trains that tell the
//! capacity. Every packet begins with the same 100 bytes, and proves that its sender knows the
//! session key.
//!
//! Big-endian: magic `"BKFLPROB"` (0..8), kind (8), zeros (9..16), session (16..32), number
//! (32..40), clock (40..48), echoed number (48..56), echoed clock (56..64), zeros (64..84), proof
//! (84..100).
//!
//! Nobody answers with more bytes than came: an echo is as long as its probe. A server's trains go
//! only to an address from which a packet has come that proves the key and that nobody has sent
//! before, a client's to the port of its data connections.

use super::WireError;

/// Length of a packet. [SOBAS, section IV.B: 100 bytes each 10 ms]
pub const PROBE_BYTES: usize = 100;

/// Longest packet of a train, with zeros at its end: what fills 1500 bytes with the headers of IPv4
/// and UDP.
pub const TRAIN_BYTES: usize = 1472;

/// Headers of UDP and of IP of version 4 or 6, which a packet has on the line beside its bytes.
/// (RFC 768, RFC 791, RFC 8200)
#[must_use]
pub const fn header_bytes(is_ipv6: bool) -> usize {
    if is_ipv6 { 48 } else { 28 }
}

/// First bytes of a packet.
pub const PROBE_MAGIC: [u8; 8] = *b"BKFLPROB";

/// Where the proof begins.
const PROOF_AT: usize = 84;

/// Length of the proof.
const PROOF_BYTES: usize = PROBE_BYTES - PROOF_AT;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From the side that connects data connections: here I am. It is answered with an echo.
    Knock = 0,
    /// From the side that receives data: how long is a round trip?
    Probe = 1,
    /// The answer to a knock or a probe. Its own number counts what its sender has echoed.
    Echo = 2,
    /// From the side that sends data: one of many at once. Its own number counts within the train,
    /// the echoed number is the train's, the echoed clock is how many belong to it.
    Train = 3,
}

/// A packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// What it is.
    pub kind: Kind,
    /// The session that it belongs to.
    pub session: [u8; 16],
    /// Counts the packets of this kind and direction, from 0.
    pub number: u64,
    /// The sender's clock in microseconds, from any beginning.
    pub clock_us: u64,
    /// Number of what is answered.
    pub echoed_number: u64,
    /// Clock of what is answered, as it came.
    pub echoed_clock_us: u64,
}

impl Probe {
    /// One that answers nothing.
    #[must_use]
    pub fn new(kind: Kind, session: [u8; 16], number: u64, clock_us: u64) -> Self {
        Self { kind, session, number, clock_us, echoed_number: 0, echoed_clock_us: 0 }
    }

    /// The answer to this one, as number `number`.
    #[must_use]
    pub fn echo(&self, number: u64, clock_us: u64) -> Self {
        Self {
            kind: Kind::Echo,
            session: self.session,
            number,
            clock_us,
            echoed_number: self.number,
            echoed_clock_us: self.clock_us,
        }
    }

    /// Encodes it with its proof.
    #[must_use]
    pub fn encode(&self, session_key: &[u8; 32]) -> [u8; PROBE_BYTES] {
        let mut out = [0; PROBE_BYTES];
        out[0..8].copy_from_slice(&PROBE_MAGIC);
        out[8] = self.kind as u8;
        out[16..32].copy_from_slice(&self.session);
        out[32..40].copy_from_slice(&self.number.to_be_bytes());
        out[40..48].copy_from_slice(&self.clock_us.to_be_bytes());
        out[48..56].copy_from_slice(&self.echoed_number.to_be_bytes());
        out[56..64].copy_from_slice(&self.echoed_clock_us.to_be_bytes());
        let proof = proof(session_key, &out[..PROOF_AT]);
        out[PROOF_AT..].copy_from_slice(&proof);
        out
    }

    /// Decodes the beginning of a packet. The proof is not looked at: find the session's key, then
    /// [`verify`].
    ///
    /// # Errors
    /// [`WireError::BadMagic`] for what is no packet of ours, [`WireError::Unexpected`] for part of
    /// one, or a kind that nobody knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let Some(head) = bytes.first_chunk::<PROBE_BYTES>() else {
            return Err(WireError::Unexpected("a short probe"));
        };
        if head[0..8] != PROBE_MAGIC {
            return Err(WireError::BadMagic);
        }
        let kind = match head[8] {
            0 => Kind::Knock,
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
            clock_us: number(40),
            echoed_number: number(48),
            echoed_clock_us: number(56),
        })
    }
}

/// Whether a packet, which was decoded, was made by someone who knows the session key. Compares in
/// constant time.
#[must_use]
pub fn verify(bytes: &[u8], session_key: &[u8; 32]) -> bool {
    let Some(head) = bytes.first_chunk::<PROBE_BYTES>() else { return false };
    let mut shown = [0; 32];
    shown[..PROOF_BYTES].copy_from_slice(&head[PROOF_AT..]);
    let mut right = [0; 32];
    right[..PROOF_BYTES].copy_from_slice(&proof(session_key, &head[..PROOF_AT]));
    blake3::Hash::from_bytes(right) == blake3::Hash::from_bytes(shown)
}

/// The beginning of a hash with the session key: a guess succeeds once in 2^128.
fn proof(session_key: &[u8; 32], bytes: &[u8]) -> [u8; PROOF_BYTES] {
    let hash = blake3::Hasher::new_keyed(session_key).update(b"probe").update(bytes).finalize();
    let mut proof = [0; PROOF_BYTES];
    proof.copy_from_slice(&hash.as_bytes()[..PROOF_BYTES]);
    proof
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe { echoed_number: 3, echoed_clock_us: 4, ..Probe::new(Kind::Probe, [7; 16], 1, 2) }
    }

    #[test]
    fn a_packet_survives_the_wire_and_verifies_with_its_key_only() {
        for kind in [Kind::Knock, Kind::Probe, Kind::Echo, Kind::Train] {
            let probe = Probe { kind, ..probe() };
            let mut bytes = probe.encode(&[5; 32]).to_vec();
            bytes.resize(TRAIN_BYTES, 0);
            assert_eq!(Probe::decode(&bytes), Ok(probe));
            assert!(verify(&bytes, &[5; 32]));
            assert!(!verify(&bytes, &[6; 32]));
        }
    }

    #[test]
    fn a_packet_with_any_byte_changed_does_not_verify() {
        let bytes = probe().encode(&[5; 32]);
        for at in 0..PROBE_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(!verify(&changed, &[5; 32]), "byte {at}");
        }
        assert!(!verify(&bytes[..99], &[5; 32]));
    }

    #[test]
    fn what_is_no_packet_of_ours_is_refused() {
        let bytes = probe().encode(&[5; 32]);
        assert!(Probe::decode(&bytes[..99]).is_err());
        assert!(Probe::decode(&[]).is_err());
        let mut changed = bytes;
        changed[0] = b'X';
        assert_eq!(Probe::decode(&changed), Err(WireError::BadMagic));
        changed = bytes;
        changed[8] = 4;
        assert!(Probe::decode(&changed).is_err());
    }

    #[test]
    fn an_echo_tells_what_it_answers() {
        let echo = probe().echo(9, 8);
        assert_eq!((echo.kind, echo.number, echo.clock_us), (Kind::Echo, 9, 8));
        assert_eq!((echo.echoed_number, echo.echoed_clock_us), (1, 2));
    }
}
