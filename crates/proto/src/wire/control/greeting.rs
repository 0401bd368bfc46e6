//! First messages of a session: [`Hello`] and [`Welcome`].

use crate::error::WireError;
use crate::limits::{MAX_STREAMS, MAX_TEXT_BYTES};
use crate::wire::bounds::at_most;
use minicbor::{Decode, Encode};

/// First message of the client.
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// Lowest protocol version of the client.
    #[n(0)]
    pub min_version: u16,
    /// Highest protocol version of the client.
    #[n(1)]
    pub max_version: u16,
    /// Name and version of the software, for people.
    #[n(2)]
    pub software: String,
    /// Access token of the daemon.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub token: Option<Vec<u8>>,
    /// Proof of a client key, instead of a token.
    #[n(4)]
    pub key: Option<KeyProof>,
}

/// Client key, and the signature by which the client proves it on this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct KeyProof {
    /// Public ed25519 key (RFC 8032 §5.1.5).
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub public: [u8; 32],
    /// Signature of [`KEY_PROOF_CONTEXT`] and the channel binding of the connection.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub signature: [u8; 64],
}

/// Label of the channel binding, exported from TLS without context (RFC 8446 §7.5).
///
/// Labels that begin with this word need no registration (RFC 5705 §4).
pub const KEY_PROOF_LABEL: &[u8] = b"EXPERIMENTAL bankfull client key";

/// Bytes before the channel binding in the signed text, for this use alone.
pub const KEY_PROOF_CONTEXT: &[u8] = b"bankfull client key\0";

/// Answer to [`Hello`].
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// Protocol version of the session.
    #[n(0)]
    pub version: u16,
    /// Name and version of the software, for people.
    #[n(1)]
    pub software: String,
    /// Identifier of the session on data streams.
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub session: [u8; 16],
    /// Key of the proofs and tags of the session.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub session_key: [u8; 32],
    /// Maximum number of data streams.
    #[n(4)]
    pub max_streams: u32,
    /// True if unencrypted data streams are allowed.
    #[n(5)]
    pub unencrypted_allowed: bool,
    /// Data port of an agent; absent: the port of the control connection.
    #[n(6)]
    pub data_port: Option<u16>,
    /// Addresses at which an agent may be reachable, best first.
    #[n(7)]
    pub data_hosts: Vec<String>,
    /// SHA-256 of the agent's certificate.
    #[n(8)]
    #[cbor(with = "minicbor::bytes")]
    pub fingerprint: Option<[u8; 32]>,
    /// Timeout of the server in milliseconds of silence; absent: not stated. The client pings
    /// often enough for it.
    #[n(9)]
    pub timeout_ms: Option<u64>,
}

impl Hello {
    pub(super) fn check(&self) -> Result<(), WireError> {
        at_most("the software name", self.software.len(), MAX_TEXT_BYTES)
    }
}

impl Welcome {
    pub(super) fn check(&self) -> Result<(), WireError> {
        at_most("the software name", self.software.len(), MAX_TEXT_BYTES)?;
        at_most("the number of streams", self.max_streams as usize, MAX_STREAMS as usize)?;
        at_most("the number of addresses", self.data_hosts.len(), 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::{Message, decode};

    #[test]
    fn hello_unknown_keys_are_skipped() {
        let mut body = Vec::new();
        let mut e = minicbor::Encoder::new(&mut body);
        e.array(2).unwrap().u8(0).unwrap().array(1).unwrap();
        e.map(4).unwrap().u8(0).unwrap().u16(1).unwrap().u8(1).unwrap().u16(3).unwrap();
        e.u8(2).unwrap().str("future").unwrap().u8(200).unwrap().array(1).unwrap().u8(9).unwrap();
        let hello =
            Hello { min_version: 1, max_version: 3, software: "future".into(), ..Hello::default() };
        assert_eq!(decode(&body), Ok(Message::Hello(hello)));
    }
}
