//! Operands of the command, parsed. No file system access.

use super::error::{Error, ErrorKind};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Default port of `bankfull serve`. (chosen: unassigned by IANA)
pub const DEFAULT_PORT: u16 = 7440;

/// A source or destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path on this host.
    Local(PathBuf),
    /// `[user@]host:path`, reached over the user's own ssh.
    Ssh {
        /// Login name, if given.
        user: Option<String>,
        /// Host name, address, or alias in ssh's configuration.
        host: String,
        /// Path there; relative paths start in the user's home directory.
        path: PathBuf,
    },
    /// `bankfull://host[:port]/path`, a daemon.
    Daemon {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
        /// Path beneath the daemon's root, without leading slash.
        path: PathBuf,
    },
}

const SCHEME: &[u8] = b"bankfull://";

impl Location {
    /// Parses an operand. A colon before the first slash makes it `host:path`; a local name with a
    /// colon is written `./name:with:colon`. IPv6 addresses are in brackets.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an empty operand, a missing host, a bad port, an unknown scheme,
    /// rsync's `host::module`, and an IPv6 address without brackets.
    pub fn parse(text: &OsStr) -> Result<Self, Error> {
        let bytes = text.as_bytes();
        let usage = |why: &str| {
            Error::new(ErrorKind::Usage, format!("{:?}: {why}", text.to_string_lossy()))
        };
        if bytes.is_empty() {
            return Err(usage("the path is empty: write . for the current directory"));
        }
        if let Some(rest) = bytes.strip_prefix(SCHEME) {
            return Self::parse_daemon(rest).map_err(|why| usage(&why));
        }
        if let Some(scheme) = scheme_of(bytes) {
            return Err(usage(&format!(
                "unknown scheme {scheme}://: write host:path or bankfull://host/path"
            )));
        }
        if let Some(why) = misread_colons(bytes) {
            return Err(usage(&why));
        }
        match split_host(bytes) {
            Some((host, path)) => Self::parse_ssh(host, path).map_err(|why| usage(&why)),
            None => Ok(Self::Local(PathBuf::from(text))),
        }
    }

    fn parse_daemon(rest: &[u8]) -> Result<Self, String> {
        let end = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority =
            std::str::from_utf8(authority).map_err(|_| "the host is not valid UTF-8")?;
        let (host, port) = split_port(authority)?;
        if host.is_empty() {
            return Err("the host is missing: write bankfull://HOST[:PORT]/PATH".to_owned());
        }
        let path = path.strip_prefix(b"/").unwrap_or(path);
        Ok(Self::Daemon { host: host.to_owned(), port, path: path_from(path) })
    }

    fn parse_ssh(login: &[u8], path: &[u8]) -> Result<Self, String> {
        let login = std::str::from_utf8(login).map_err(|_| "the host is not valid UTF-8")?;
        let (user, host) = match login.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, login),
        };
        // The brackets are around the address, or around the login, as scp takes them both.
        let user = user.map(|user| match user.strip_prefix('[') {
            Some(user) if host.ends_with(']') && !host.starts_with('[') => user.to_owned(),
            _ => user,
        });
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // ssh would read a host or user that starts with '-' as an option.
        let unsafe_text =
            |s: &str| s.is_empty() || s.starts_with('-') || s.contains(char::is_control);
        if unsafe_text(host) || user.as_deref().is_some_and(unsafe_text) {
            return Err(
                "invalid host: write [user@]host:path, or ./name for a local file".to_owned()
            );
        }
        let path = if path.is_empty() { path_from(b".") } else { path_from(path) };
        Ok(Self::Ssh { user, host: host.to_owned(), path })
    }

    /// True if it is on this host.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// The operand as typed, byte for byte.
    pub(crate) fn to_path(&self) -> PathBuf {
        let typed = self.to_string();
        // Only the path may be other than UTF-8, which `Display` replaces.
        let shown = self.path().display().to_string();
        let mut bytes = typed.as_bytes()[..typed.len() - shown.len()].to_vec();
        bytes.extend_from_slice(self.path().as_os_str().as_bytes());
        path_from(&bytes)
    }

    /// Another path on the same host.
    pub(crate) fn with_path(&self, path: PathBuf) -> Self {
        let mut location = self.clone();
        match &mut location {
            Self::Local(old) | Self::Ssh { path: old, .. } | Self::Daemon { path: old, .. } => {
                *old = path;
            }
        }
        location
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        match self {
            Self::Local(path) | Self::Ssh { path, .. } | Self::Daemon { path, .. } => path,
        }
    }
}

/// Shows the operand as typed; bytes that are not UTF-8 are replaced.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Ssh { user: Some(user), host, path } => {
                write!(f, "{user}@{host}:{}", path.display())
            }
            Self::Ssh { user: None, host, path } => write!(f, "{host}:{}", path.display()),
            Self::Daemon { host, port, path } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "bankfull://{open}{host}{close}:{port}/{}", path.display())
            }
        }
    }
}

fn path_from(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// Text before `://`, if it could be a scheme.
fn scheme_of(bytes: &[u8]) -> Option<&str> {
    let end = bytes.windows(3).position(|three| three == b"://")?;
    let scheme = std::str::from_utf8(&bytes[..end]).ok()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(fits))
        .then_some(scheme)
}

/// Explains an operand with a second colon, which ssh would read as a path.
fn misread_colons(bytes: &[u8]) -> Option<String> {
    let (login, path) = split_host(bytes)?;
    let login = std::str::from_utf8(login).ok()?;
    // The address is all but the last colon in front of the first slash, and may have a user.
    let end = bytes.iter().position(|&b| b == b'/').unwrap_or(bytes.len());
    let whole = std::str::from_utf8(&bytes[..end]).ok()?;
    let host = whole.rsplit_once('@').map_or(whole, |(_, host)| host);
    let is_address = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    if is_address(host) || host.rsplit_once(':').is_some_and(|(host, _)| is_address(host)) {
        return Some("an IPv6 address is written in brackets: write [ADDRESS]:PATH".to_owned());
    }
    let module = path.strip_prefix(b":").filter(|_| !login.is_empty())?;
    let module = String::from_utf8_lossy(module);
    let host = login.rsplit_once('@').map_or(login, |(_, host)| host);
    Some(format!(
        "host::module is for the daemon of rsync, which bankfull does not use: write \
         bankfull://{host}/{module} for a bankfull daemon, or {login}:./:{module} for a name that \
         begins with a colon"
    ))
}

/// Splits `host:path` at the colon; `None` for a local path.
fn split_host(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let bracket = bytes
        .iter()
        .position(|&b| b == b'[')
        .filter(|&at| !bytes[..at].iter().any(|&b| b == b'/' || b == b':'))
        .and_then(|open| Some(open + bytes[open..].iter().position(|&b| b == b']')?));
    let from = bracket.unwrap_or(0);
    let colon = from + bytes[from..].iter().position(|&b| b == b':')?;
    if bytes[..colon].contains(&b'/') {
        return None;
    }
    Some((&bytes[..colon], &bytes[colon + 1..]))
}

fn split_port(authority: &str) -> Result<(&str, u16), String> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("'[' without ']' in the host")?;
        (host, after.strip_prefix(':'))
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("{text:?} is not a port (1 to 65535)")),
        },
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, String> {
        Location::parse(OsStr::new(text)).map_err(|e| e.to_string())
    }

    fn ssh(user: Option<&str>, host: &str, path: &str) -> Location {
        Location::Ssh { user: user.map(str::to_owned), host: host.into(), path: path.into() }
    }

    fn daemon(host: &str, port: u16, path: &str) -> Location {
        Location::Daemon { host: host.into(), port, path: path.into() }
    }

    #[test]
    fn operand_parses_as_in_scp() {
        assert_eq!(parse("dir/a"), Ok(Location::Local("dir/a".into())));
        assert_eq!(parse("./a:b"), Ok(Location::Local("./a:b".into())));
        assert_eq!(parse("/x/a:b"), Ok(Location::Local("/x/a:b".into())));
        assert_eq!(parse("host:a/b"), Ok(ssh(None, "host", "a/b")));
        assert_eq!(parse("me@host:/a:b"), Ok(ssh(Some("me"), "host", "/a:b")));
        assert_eq!(parse("host:"), Ok(ssh(None, "host", ".")));
        for brackets in ["me@[fe80::1]:x", "[me@fe80::1]:x"] {
            assert_eq!(parse(brackets), Ok(ssh(Some("me"), "fe80::1", "x")));
        }
    }

    #[test]
    fn daemon_operand_has_default_port_and_relative_path() {
        assert_eq!(parse("bankfull://h/a/b"), Ok(daemon("h", DEFAULT_PORT, "a/b")));
        assert_eq!(parse("bankfull://h:99"), Ok(daemon("h", 99, "")));
        assert_eq!(parse("bankfull://[::1]:99/"), Ok(daemon("::1", 99, "")));
    }

    #[test]
    fn operand_with_unknown_scheme_is_refused() {
        for location in ["bankful://h/a", "http://h/", "BANKFULL://h/a"] {
            let message = parse(location).unwrap_err();
            assert!(message.contains("unknown scheme"), "{message}");
            assert!(message.ends_with("write host:path or bankfull://host/path"), "{message}");
        }
        assert_eq!(parse("./a://b"), Ok(Location::Local("./a://b".into())));
        assert_eq!(parse("me@host://b"), Ok(ssh(Some("me"), "host", "//b")));
    }

    #[test]
    fn module_of_an_rsync_daemon_is_refused() {
        for (text, daemon, name) in [
            ("host::module/a", "bankfull://host/module/a", "host:./:module/a"),
            ("me@host::", "bankfull://host/", "me@host:./:"),
            ("[::1]::m", "bankfull://[::1]/m", "[::1]:./:m"),
        ] {
            let message = parse(text).unwrap_err();
            let ways = format!("write {daemon} for a bankfull daemon, or {name} for a name that");
            assert!(message.starts_with(&format!("{text:?}: host::module is for")), "{message}");
            assert!(message.contains(&ways), "{message}");
        }
        assert_eq!(parse("host:./::a"), Ok(ssh(None, "host", "./::a")));
        assert_eq!(parse("./a::b"), Ok(Location::Local("./a::b".into())));
        assert_eq!(parse("[me@fe80::1]:x"), Ok(ssh(Some("me"), "fe80::1", "x")));
    }

    #[test]
    fn ipv6_address_without_brackets_is_refused() {
        for text in ["fe80::1:/a", "me@2001:db8::7:a", "::1:a", "::1"] {
            let message = parse(text).unwrap_err();
            assert!(message.ends_with("in brackets: write [ADDRESS]:PATH"), "{message}");
        }
        assert_eq!(parse("host:1:2"), Ok(ssh(None, "host", "1:2")));
        assert_eq!(parse("host:a::b"), Ok(ssh(None, "host", "a::b")));
    }

    #[test]
    fn ssh_operand_like_an_option_is_refused() {
        assert!(parse("-oProxyCommand=x:y").is_err());
        assert!(parse("me@-host:y").is_err());
        assert!(parse("-me@host:y").is_err());
        assert!(parse(":y").is_err());
    }

    #[test]
    fn malformed_operand_is_named_in_the_error() {
        for bad in ["", "bankfull:///x", "bankfull://h:0/x", "bankfull://h:x/", "bankfull://[::1/x"]
        {
            let message = parse(bad).unwrap_err();
            assert!(message.contains(bad), "{message}");
        }
    }

    #[test]
    fn location_displays_as_typed() {
        for text in ["dir/a", "me@host:/a", "host:a", "bankfull://h:99/a", "bankfull://[::1]:9/a"] {
            assert_eq!(parse(text).map(|l| l.to_string()), Ok(text.to_owned()));
        }
    }
}
