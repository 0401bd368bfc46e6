//! An invite: one line with the address and the fingerprint of a daemon, and a token, or the public
//! key of the client that it is for.

use bankfull::{ClientKey, Fingerprint, Location};
use std::fmt;

/// First word of the line.
const WORD: &str = "bankfull-invite";

/// Maximum length of a line, in bytes. (chosen: a long path beside the other words)
pub(super) const MAX_BYTES: u64 = 8192;

/// Third word of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InviteFor {
    /// Every client with this token.
    Token(String),
    /// The client with the private key to this one.
    Key(ClientKey),
}

impl fmt::Display for InviteFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(token) => f.write_str(token),
            Self::Key(key) => key.fmt(f),
        }
    }
}

/// Place and credentials of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invite {
    /// `bankfull://host[:port]/path`.
    pub(super) url: String,
    /// Fingerprint of the daemon.
    pub(super) fingerprint: Fingerprint,
    /// The token, or the client.
    pub(super) credential: InviteFor,
}

impl Invite {
    /// Formats the line.
    pub(super) fn line(&self) -> String {
        let Self { url, fingerprint, credential } = self;
        format!("{WORD} {url} {fingerprint} {credential}")
    }

    /// Parses a line; spaces around its words do not matter.
    ///
    /// # Errors
    /// A text about what it lacks, which never has the token.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_text = !text.trim().contains(char::is_control);
        let ([WORD, url, fingerprint, last], true) = (&words[..], is_text) else {
            return Err(format!(
                "this is no invite: paste the line of `bankfull token create NAME --invite`, which \
                 begins with {WORD}"
            ));
        };
        let fingerprint =
            fingerprint.parse().map_err(|e| format!("the fingerprint of the invite: {e}"))?;
        match Location::parse(url.as_ref()) {
            Ok(Location::Daemon { .. }) => {}
            _ => return Err("the invite names no daemon: it is incomplete".to_owned()),
        }
        let credential = match last.parse() {
            Ok(key) => InviteFor::Key(key),
            Err(_) => InviteFor::Token((*last).to_owned()),
        };
        Ok(Self { url: (*url).to_owned(), fingerprint, credential })
    }

    /// Returns the first label of the host's name; `None` for an address.
    pub(super) fn host_name(&self) -> Option<String> {
        let Ok(Location::Daemon { host, .. }) = Location::parse(self.url.as_ref()) else {
            return None;
        };
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let name = host.split('.').next().filter(|name| bankfull::is_plain_name(name));
        name.filter(|_| !is_address).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_parses_to_the_same_invite() {
        let invite = Invite {
            url: "bankfull://store.example:7441/data/a".to_owned(),
            fingerprint: Fingerprint([7; 32]),
            credential: InviteFor::Token("secret".to_owned()),
        };
        let keyed = Invite { credential: InviteFor::Key(ClientKey([7; 32])), ..invite.clone() };
        assert_eq!(Invite::parse(&keyed.line()), Ok(keyed));
        assert_eq!(Invite::parse(&format!("  {}\r\n", invite.line())), Ok(invite.clone()));
        assert_eq!(invite.host_name().as_deref(), Some("store"));
        let at = |url: &str| Invite { url: url.to_owned(), ..invite.clone() }.host_name();
        assert_eq!((at("bankfull://192.0.2.1/"), at("bankfull://[::1]/x")), (None, None));
        for (bad, says) in [
            (String::new(), "this is no invite"),
            ("secret".to_owned(), "this is no invite"),
            (invite.line().replace("sha256:", "md5:"), "the fingerprint of the invite"),
            (invite.line().replace("bankfull://", "http://"), "names no daemon"),
            (invite.line() + " more", "this is no invite"),
            (invite.line().replace("data", "da\u{7f}"), "this is no invite"),
        ] {
            let error = Invite::parse(&bad).unwrap_err();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
    }
}
