//! How a data connection joins a session: a fixed 96-byte request by the side that connected, and
//! a 32-byte proof in answer. Both prove that they know the session key, which only ever travelled
//! over the encrypted control connection.
//!
//! Request, big-endian: magic `"BKFLDATA"` (0..8), version (8..10), flags (10..12), stream number
//! (12..16), session (16..32), nonce (32..64), proof (64..96).

use super::WireError;

/// Length of an attach request in bytes.
pub const REQUEST_BYTES: usize = 96;
/// Length of the answer in bytes.
pub const REPLY_BYTES: usize = 32;
/// First bytes of a data connection.
pub const DATA_MAGIC: [u8; 8] = *b"BKFLDATA";
/// First bytes of a control connection, in both directions.
pub const CONTROL_MAGIC: [u8; 8] = *b"BKFLCTRL";

/// The request that opens a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attach {
    /// Protocol version of the session.
    pub version: u16,
    /// Number of the stream, from 0.
    pub stream: u32,
    /// The session to join.
    pub session: [u8; 16],
    /// Fresh randomness of this connection; the far side refuses one it has seen.
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

    /// Decodes a request. The proof is not looked at: find the session's key, then [`verify`].
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

/// Whether the request was made by someone who knows the session key. Compares in constant time.
#[must_use]
pub fn verify(bytes: &[u8; REQUEST_BYTES], session_key: &[u8; 32]) -> bool {
    let mut proof = [0; 32];
    proof.copy_from_slice(&bytes[64..96]);
    blake3::keyed_hash(session_key, &bytes[..64]) == blake3::Hash::from_bytes(proof)
}

/// The answer: proof that the accepting side knows the key too.
#[must_use]
pub fn reply(session_key: &[u8; 32], nonce: &[u8; 32]) -> [u8; REPLY_BYTES] {
    *labelled(session_key, b"attach reply", nonce).as_bytes()
}

/// Whether the answer is right. Compares in constant time.
#[must_use]
pub fn verify_reply(answer: &[u8; REPLY_BYTES], session_key: &[u8; 32], nonce: &[u8; 32]) -> bool {
    labelled(session_key, b"attach reply", nonce) == blake3::Hash::from_bytes(*answer)
}

/// The key of the frame tags on a plain data connection.
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
    fn a_request_survives_the_wire_and_verifies_with_its_key_only() {
        let bytes = attach().encode(&[5; 32]);
        assert_eq!(Attach::decode(&bytes), Ok(attach()));
        assert!(verify(&bytes, &[5; 32]));
        assert!(!verify(&bytes, &[6; 32]));
    }

    #[test]
    fn a_request_with_any_byte_changed_does_not_verify() {
        let bytes = attach().encode(&[5; 32]);
        for at in 0..REQUEST_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(!verify(&changed, &[5; 32]), "byte {at}");
        }
    }

    #[test]
    fn the_answer_fits_its_request_only() {
        let answer = reply(&[5; 32], &[9; 32]);
        assert!(verify_reply(&answer, &[5; 32], &[9; 32]));
        assert!(!verify_reply(&answer, &[5; 32], &[8; 32]));
        assert_ne!(answer, stream_key(&[5; 32], &[9; 32]));
    }
}
