//! Client keys: ed25519 keys (RFC 8032), by which a client authenticates without a token.

use crate::base::error::{Error, ErrorKind};
use crate::base::hex;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use bankfull_proto::wire::control::{KEY_PROOF_CONTEXT, KeyProof};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Start of a public key as text.
const PREFIX: &str = "ed25519:";

/// Public ed25519 key of a client; as text `ed25519:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientKey(pub [u8; 32]);

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        hex::write(&self.0, f)
    }
}

impl FromStr for ClientKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || {
            let text = "write a public key as ed25519: and 64 hexadecimal digits, as bankfull \
                        login --key prints it";
            Error::new(ErrorKind::Usage, text)
        };
        let digits = text.strip_prefix(PREFIX).ok_or_else(malformed)?;
        hex::parse(digits).map(Self).ok_or_else(malformed)
    }
}

/// Private key of a client.
#[derive(Debug, Clone)]
pub struct ClientKeyPair(Arc<Ed25519KeyPair>);

impl PartialEq for ClientKeyPair {
    fn eq(&self, other: &Self) -> bool {
        self.public() == other.public()
    }
}

impl Eq for ClientKeyPair {}

impl ClientKeyPair {
    /// Returns a new key.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] without random bytes.
    pub fn generate() -> Result<Self, Error> {
        let failed = |_| Error::new(ErrorKind::Local, "cannot generate a key: no random bytes");
        Ed25519KeyPair::generate().map(|pair| Self(Arc::new(pair))).map_err(failed)
    }

    /// True if a text is meant to be a private key in PEM.
    #[must_use]
    pub fn is_pem(text: &[u8]) -> bool {
        let start = text.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
        text.get(start..).is_some_and(|text| text.starts_with(b"-----BEGIN "))
    }

    /// Reads a private key in PEM (PKCS#8, RFC 8410).
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for other texts and other kinds of key.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let other = || {
            let text = "it is not an unencrypted ed25519 key in PKCS#8: create one with \
                        bankfull login --key";
            Error::new(ErrorKind::Usage, text)
        };
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| other())?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        pair.map(|pair| Self(Arc::new(pair))).map_err(|_| other())
    }

    /// Formats the private key in PEM.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] without memory for it.
    pub fn to_pem(&self) -> Result<String, Error> {
        let failed = |_| Error::new(ErrorKind::Local, "cannot encode the key");
        let der = self.0.to_pkcs8v1().map_err(failed)?;
        let text = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der.as_ref());
        // 48 bytes are 64 digits, which is one line. (RFC 7468 §2)
        Ok(format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n"))
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> ClientKey {
        let mut public = [0; 32];
        public.copy_from_slice(self.0.public_key().as_ref());
        ClientKey(public)
    }

    /// Signs the channel binding of a connection.
    pub(crate) fn prove(&self, binding: &[u8; 32]) -> KeyProof {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.0.sign(&signed_text(binding)).as_ref());
        KeyProof { public: self.public().0, signature }
    }
}

/// True if a proof was made with its key, for this connection.
pub(crate) fn is_proven(proof: &KeyProof, binding: &[u8; 32]) -> bool {
    let public = UnparsedPublicKey::new(&ED25519, proof.public);
    public.verify(&signed_text(binding), &proof.signature).is_ok()
}

fn signed_text(binding: &[u8; 32]) -> Vec<u8> {
    [KEY_PROOF_CONTEXT, &binding[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8410 §10.3, the private key of the example.
    const EXAMPLE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";

    #[test]
    fn key_is_read_as_written() {
        let example = ClientKeyPair::from_pem(EXAMPLE.as_bytes()).unwrap();
        // RFC 8410 §10.1, the public key of the example.
        let public = "ed25519:19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";
        assert_eq!(example.public().to_string(), public);
        assert_eq!(public.parse::<ClientKey>().unwrap(), example.public());
        assert_eq!(example.to_pem().unwrap(), EXAMPLE);
        let new = ClientKeyPair::generate().unwrap();
        let pem = new.to_pem().unwrap();
        assert!(ClientKeyPair::is_pem(pem.as_bytes()) && !ClientKeyPair::is_pem(b"bankfull-ab"));
        assert_eq!(ClientKeyPair::from_pem(pem.as_bytes()).unwrap().public(), new.public());
        assert!(!format!("{new:?}").contains(pem.lines().nth(1).unwrap()));
    }

    #[test]
    fn other_keys_are_refused() {
        for text in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let error = ClientKeyPair::from_pem(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("bankfull login --key"), "{error}");
        }
        for text in ["", "ed25519:", "ed25519:00", &format!("ed25519:{}", "g".repeat(64))] {
            assert!(text.parse::<ClientKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn proof_is_for_one_connection() {
        let pair = ClientKeyPair::generate().unwrap();
        let (own, other) = ([7; 32], [8; 32]);
        let proof = pair.prove(&own);
        assert!(is_proven(&proof, &own) && !is_proven(&proof, &other));
        let stolen = KeyProof { public: ClientKeyPair::generate().unwrap().public().0, ..proof };
        assert!(!is_proven(&stolen, &own));
    }
}
