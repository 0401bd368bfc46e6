//! Access of clients to a daemon: directories under names, and tokens with what they permit.

use super::client_key::ClientKey;
use crate::base::error::{Error, ErrorKind};
use crate::base::hex;
use bankfull_control::{Bytes, Rate};
use std::fmt;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

/// Start of a generated token, by which tools find secrets in texts. (chosen)
const TOKEN_PREFIX: &str = "bankfull-";

/// Size of a generated token and of its hash, in bytes. (SHA-256)
const TOKEN_BYTES: usize = 32;

/// SHA-256 of a token, which is all that a daemon keeps of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; TOKEN_BYTES]);

impl TokenHash {
    /// Hash of a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token);
        let mut hash = [0; TOKEN_BYTES];
        hash.copy_from_slice(digest.as_ref());
        Self(hash)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl FromStr for TokenHash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::new(ErrorKind::Usage, "a hash of a token has 64 hex digits");
        hex::parse(text).map(Self).ok_or_else(malformed)
    }
}

/// Credential of a client, as the daemon keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Credential {
    /// Hash of a token.
    Token(TokenHash),
    /// Public key, which the client proves.
    Key(ClientKey),
}

impl From<TokenHash> for Credential {
    fn from(hash: TokenHash) -> Self {
        Self::Token(hash)
    }
}

impl From<ClientKey> for Credential {
    fn from(key: ClientKey) -> Self {
        Self::Key(key)
    }
}

/// Returns a new token of 256 random bits, as text.
///
/// # Errors
/// [`ErrorKind::Local`] without random bytes.
pub fn new_token() -> Result<String, Error> {
    let mut bytes = [0; TOKEN_BYTES];
    bankfull_sys::random(&mut bytes).map_err(|e| Error::local("cannot read random bytes", &e))?;
    Ok(format!("{TOKEN_PREFIX}{}", TokenHash(bytes)))
}

/// Permissions of a token or of a client key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Name of the token, for messages and logs.
    pub name: String,
    /// Hash of the token, or the key.
    pub credential: Credential,
    /// The only share that it is valid for; `None`: all.
    pub share: Option<String>,
    /// Directory beneath the share, or beneath the served directory, that it is limited to.
    pub prefix: PathBuf,
    /// Permits downloads and listings.
    pub read: bool,
    /// Permits uploads, and removal of what has been downloaded.
    pub write: bool,
    /// Time from which it is refused.
    pub expires: Option<SystemTime>,
}

impl Grant {
    /// A token or a key with all permissions, for ever.
    #[must_use]
    pub fn new(name: impl Into<String>, credential: impl Into<Credential>) -> Self {
        let (name, credential) = (name.into(), credential.into());
        let (share, prefix, expires) = (None, PathBuf::new(), None);
        Self { name, credential, share, prefix, read: true, write: true, expires }
    }

    /// True from the time on at which it is refused.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

/// Checks the directory that a token is limited to.
///
/// # Errors
/// [`ErrorKind::Usage`] for an absolute path, and one with `..`, control characters or bytes that
/// are not UTF-8 in it.
pub fn check_prefix(prefix: &Path) -> Result<(), Error> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_text = prefix.to_str().is_some_and(|text| !text.contains(char::is_control));
    match is_text && prefix.components().all(is_plain) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Usage,
            format!(
                "the prefix {} is not allowed: name a directory beneath the share, as text without '..'",
                prefix.display()
            ),
        )),
    }
}

/// Directory that a daemon serves under a name, the first component of its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    /// Refuses uploads.
    pub read_only: bool,
    /// Networks whose clients may use it; empty: all.
    pub allow: Vec<Network>,
    /// Rate of all its sessions together, in each direction; `None`: no limit.
    pub max_rate: Option<Rate>,
    /// Limits of its content.
    pub quota: Quota,
}

/// Limits of what a directory may hold; `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Allocated space of files.
    pub bytes: Option<Bytes>,
    /// Files, directories and others.
    pub entries: Option<u64>,
}

impl Quota {
    /// True if there is no limit.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

impl Share {
    /// A share that all clients may read and write.
    #[must_use]
    pub fn new(name: impl Into<String>, path: PathBuf) -> Self {
        let (max_rate, quota) = (None, Quota::default());
        Self { name: name.into(), path, read_only: false, allow: Vec::new(), max_rate, quota }
    }

    /// True if the clients of an address may use it.
    #[must_use]
    pub fn admits(&self, address: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|network| network.contains(address))
    }
}

/// True for a name of a share or a token: letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

/// Network of clients, such as `10.0.0.0/8`; an address alone is a network of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    /// True if an address is in it. IPv4 in IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix_bits).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix_bits).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || {
            let text = format!("{text:?} is not a network: write ADDRESS/BITS, such as 10.0.0.0/8");
            Error::new(ErrorKind::Usage, text)
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let max: u32 = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits: u32 = match bits {
            Some(bits) => bits.parse().map_err(|_| malformed())?,
            None => max,
        };
        if prefix_bits > max {
            return Err(malformed());
        }
        let canonical = address.to_canonical();
        let mapped_bits = if canonical.is_ipv4() { max - 32 } else { 0 };
        let prefix_bits = prefix_bits.checked_sub(mapped_bits).ok_or_else(malformed)?;
        Ok(Self { address: canonical, prefix_bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_random_and_its_hash_parses() {
        let token = new_token().unwrap();
        assert_ne!(token, new_token().unwrap());
        assert_eq!(token.len(), TOKEN_PREFIX.len() + 64);
        let hash = TokenHash::of(token.as_bytes());
        assert_eq!(hash.to_string().parse::<TokenHash>().unwrap(), hash);
        // FIPS 180-4, example of "abc".
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of(b"abc").to_string(), abc);
        for bad in ["", "ba", &abc[1..], &abc.replace('b', "g"), &format!("{abc}0")] {
            assert!(bad.parse::<TokenHash>().is_err(), "{bad}");
        }
    }

    #[test]
    fn network_contains_its_addresses() {
        let contains = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        for (network, address, is_inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("2001:db8::/32", "2001:db8:1::5", true),
            ("2001:db8::/32", "2001:db9::5", false),
            ("::/0", "::1", true),
            ("::1", "::1", true),
            ("::ffff:10.0.0.0/104", "10.2.3.4", true),
            ("::ffff:10.0.0.0/104", "11.2.3.4", false),
            ("::ffff:192.0.2.7", "192.0.2.8", false),
        ] {
            assert_eq!(contains(network, address), is_inside, "{network} {address}");
        }
        for bad in [
            "",
            "::ffff:10.0.0.0/8",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "host",
            "10.0.0/8",
        ] {
            let error = bad.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains("write ADDRESS/BITS"), "{error}");
        }
    }

    #[test]
    fn prefix_stays_beneath_the_share() {
        for prefix in ["", "a", "a/b", "a/./b/"] {
            assert!(check_prefix(prefix.as_ref()).is_ok(), "{prefix}");
        }
        for prefix in ["/a", "..", "a/../b", "./a/..", "a\u{7f}", "a\n"] {
            assert!(check_prefix(prefix.as_ref()).is_err(), "{prefix}");
        }
    }

    #[test]
    fn grant_expires_at_its_time() {
        let mut grant = Grant::new("n", TokenHash::of(b"t"));
        let now = SystemTime::now();
        assert!(!grant.is_expired(now));
        grant.expires = Some(now);
        assert!(grant.is_expired(now) && !grant.is_expired(SystemTime::UNIX_EPOCH));
    }
}
