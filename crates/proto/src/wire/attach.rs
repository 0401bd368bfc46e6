//! Attach handshake of a data stream: a 96-byte request by the client, a 32-byte reply by the
//! server. Each proves knowledge of the session key, which was sent over the encrypted control
//! connection only.
//!
//! Request, big-endian: magic `"BKFLDATA"` (0..8), version (8..10), flags (10..12), stream number
//! (12..16), session (16..32), nonce (32..64), proof (64..96).

use crate::error::WireError;

/// Size of an attach request in bytes.
pub const REQUEST_BYTES: usize = 96;
/// Size of an attach reply in bytes.
pub const REPLY_BYTES: usize = 32;
/// First bytes of a data stream.
pub const DATA_MAGIC: [u8; 8] = *b"BKFLDATA";
/// First bytes of a control connection, in both directions.
pub const CONTROL_MAGIC: [u8; 8] = *b"BKFLCTRL";

/// Attach request: opens a data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attach {
    /// Protocol version of the session.
    pub version: u16,
    /// Number of the data stream, from 0; a repeated number is refused.
    pub stream: u32,
    /// Session to join.
    pub session: [u8; 16],
    /// Fresh random bytes of this stream.
    pub nonce: [u8; 32],
}

impl Attach {
    /// Encodes the request with its proof.
    #[must_use]
    pub fn encode(&self, session_key: &[u8; 32]) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        out[0..8].copy_from_slice(&DATA_MAGIC);
        out[8..10].copy_from_slice(&self.version.to_be_bytes());
        out[12..16].copy_from_slice(&self.stream.to_be_bytes());
        out[16..32].copy_from_slice(&self.session);
        out[32..64].copy_from_slice(&self.nonce);
        let proof = blake3::keyed_hash(session_key, &out[..64]);
        out[64..96].copy_from_slice(proof.as_bytes());
        out
    }

    /// Decodes a request without checking the proof; see [`verify`].
    ///
    /// # Errors
    /// [`WireError::BadMagic`].
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, WireError> {
        if bytes[0..8] != DATA_MAGIC {
            return Err(WireError::BadMagic);
        }
        let mut attach = Self {
            version: u16::from_be_bytes([bytes[8], bytes[9]]),
            stream: u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            session: [0; 16],
            nonce: [0; 32],
        };
        attach.session.copy_from_slice(&bytes[16..32]);
        attach.nonce.copy_from_slice(&bytes[32..64]);
        Ok(attach)
    }
}

/// True if the proof of a request matches the session key. Compares in constant time.
#[must_use]
pub fn verify(bytes: &[u8; REQUEST_BYTES], session_key: &[u8; 32]) -> bool {
    let mut proof = [0; 32];
    proof.copy_from_slice(&bytes[64..96]);
    blake3::keyed_hash(session_key, &bytes[..64]) == blake3::Hash::from_bytes(proof)
}

/// Returns the attach reply, the proof of the accepting side.
#[must_use]
pub fn reply(session_key: &[u8; 32], nonce: &[u8; 32]) -> [u8; REPLY_BYTES] {
    *labelled(session_key, b"attach reply", nonce).as_bytes()
}

/// True if an attach reply matches session key and nonce. Compares in constant time.
#[must_use]
pub fn verify_reply(reply: &[u8; REPLY_BYTES], session_key: &[u8; 32], nonce: &[u8; 32]) -> bool {
    labelled(session_key, b"attach reply", nonce) == blake3::Hash::from_bytes(*reply)
}

/// Returns the key of the frame tags on an unencrypted data stream.
#[must_use]
pub fn stream_key(session_key: &[u8; 32], nonce: &[u8; 32]) -> [u8; 32] {
    *labelled(session_key, b"stream tags", nonce).as_bytes()
}

fn labelled(key: &[u8; 32], label: &[u8], nonce: &[u8; 32]) -> blake3::Hash {
    blake3::Hasher::new_keyed(key).update(label).update(nonce).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach() -> Attach {
        Attach { version: 1, stream: 3, session: [7; 16], nonce: [9; 32] }
    }

    #[test]
    fn request_round_trips_and_verifies_with_its_key_only() {
        let bytes = attach().encode(&[5; 32]);
        assert_eq!(Attach::decode(&bytes), Ok(attach()));
        assert!(verify(&bytes, &[5; 32]));
        assert!(!verify(&bytes, &[6; 32]));
    }

    #[test]
    fn request_with_any_byte_changed_does_not_verify() {
        let bytes = attach().encode(&[5; 32]);
        for at in 0..REQUEST_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(!verify(&changed, &[5; 32]), "byte {at}");
        }
    }

    #[test]
    fn reply_verifies_for_its_own_nonce_only() {
        let answer = reply(&[5; 32], &[9; 32]);
        assert!(verify_reply(&answer, &[5; 32], &[9; 32]));
        assert!(!verify_reply(&answer, &[5; 32], &[8; 32]));
        assert_ne!(answer, stream_key(&[5; 32], &[9; 32]));
    }
}
