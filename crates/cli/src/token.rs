//! Reads the token or the client key from a file or the environment.
//!
//! The command line is excluded: other users can see it.

use crate::environment::Environment;
use bankfull::{ClientKeyPair, Error, ErrorKind};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum token size in bytes. (chosen: generous for a token, small enough to read a wrong file
/// without harm)
const MAX_TOKEN_BYTES: usize = 4096;

/// Permission bits that let group and others read.
const READABLE_BY_OTHERS: u32 = 0o044;
/// Permission bits that let group and others replace the token.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Token or client key, and a warning about its origin.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    /// Token without its trailing newline; `None` if none was given.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Private key, if that was given instead.
    pub(crate) key: Option<ClientKeyPair>,
    /// Warning, in one line.
    pub(crate) warning: Option<String>,
}

/// Reads the token from `file`, else from `BANKFULL_TOKEN`.
///
/// # Errors
/// [`ErrorKind::Local`] if the file cannot be read; [`ErrorKind::Usage`] if the token is empty or
/// too long, or a key of another kind.
pub(crate) fn read(file: Option<&Path>, environment: &Environment) -> Result<Token, Error> {
    match (file, &environment.token) {
        (Some(path), _) => from_file(path),
        (None, Some(text)) => of(text.as_bytes().to_vec(), "BANKFULL_TOKEN", None),
        (None, None) => Ok(Token::default()),
    }
}

fn from_file(path: &Path) -> Result<Token, Error> {
    let name = format!("the token file {}", crate::output::printable(path));
    let local = |e: std::io::Error| Error::local(format!("cannot read {name}"), &e);
    let file = File::open(path).map_err(local)?;
    let mode = file.metadata().map_err(local)?.mode() & 0o7777;
    let mut bytes = Vec::new();
    file.take(MAX_TOKEN_BYTES as u64 + 2).read_to_end(&mut bytes).map_err(local)?;
    let warning = others_may(mode)
        .map(|what| format!("{name} is {what} by other users (mode {mode:04o}): chmod 600 it"));
    let token = of(bytes, &name, warning)?;
    match &token {
        // A replaced key would authenticate another client.
        Token { key: Some(_), warning: Some(why), .. } => Err(Error::new(ErrorKind::Local, why)),
        _ => Ok(token),
    }
}

/// Tells a private key from a token.
fn of(bytes: Vec<u8>, name: &str, warning: Option<String>) -> Result<Token, Error> {
    let bytes = checked(bytes, name)?;
    if !ClientKeyPair::is_pem(&bytes) {
        return Ok(Token { bytes: Some(bytes), key: None, warning });
    }
    let key = ClientKeyPair::from_pem(&bytes)
        .map_err(|e| Error::new(e.kind(), format!("{name} has a private key, but {e}")))?;
    Ok(Token { bytes: None, key: Some(key), warning })
}

/// Returns what other users may do with a file of this mode.
fn others_may(mode: u32) -> Option<&'static str> {
    match (mode & READABLE_BY_OTHERS != 0, mode & WRITABLE_BY_OTHERS != 0) {
        (true, true) => Some("readable and writable"),
        (true, false) => Some("readable"),
        (false, true) => Some("writable"),
        (false, false) => None,
    }
}

/// Strips the newline that editors and `echo` add, and checks the length.
fn checked(mut bytes: Vec<u8>, name: &str) -> Result<Vec<u8>, Error> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    match bytes.len() {
        0 => Err(Error::new(ErrorKind::Usage, format!("{name} is empty: store a token there"))),
        1..=MAX_TOKEN_BYTES => Ok(bytes),
        _ => Err(Error::new(
            ErrorKind::Usage,
            format!(
                "{name} is longer than {MAX_TOKEN_BYTES} bytes: check that it is the right one"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(content: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        set_mode(file.path(), mode);
        file
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn from_environment(text: &str) -> Result<Token, Error> {
        let environment = Environment { token: Some(text.into()), ..Environment::default() };
        read(None, &environment)
    }

    #[test]
    fn one_trailing_newline_is_stripped() {
        for (content, token) in [("t", "t"), ("t\n", "t"), ("t\r\n", "t"), ("t\n\n", "t\n")] {
            let file = file(content.as_bytes(), 0o600);
            let read = read(Some(file.path()), &Environment::default()).unwrap();
            assert_eq!(read, Token { bytes: Some(token.into()), ..Token::default() });
        }
    }

    #[test]
    fn private_key_is_no_token() {
        let pair = ClientKeyPair::generate().unwrap();
        let file = file(pair.to_pem().unwrap().as_bytes(), 0o600);
        let read = read(Some(file.path()), &Environment::default()).unwrap();
        assert_eq!(read, Token { key: Some(pair), ..Token::default() });
        set_mode(file.path(), 0o640);
        let error = super::read(Some(file.path()), &Environment::default()).unwrap_err();
        assert!(error.to_string().ends_with("readable by other users (mode 0640): chmod 600 it"));
        let other = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----";
        let error = from_environment(other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        let text = error.to_string();
        assert!(text.starts_with("BANKFULL_TOKEN has a private key, but it is not"), "{text}");
        assert!(!text.contains("AAAA"), "{text}");
    }

    #[test]
    fn empty_token_is_an_error() {
        let file = file(b"\n", 0o600);
        let error = read(Some(file.path()), &Environment::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert_eq!(from_environment("").unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn open_token_file_gives_a_warning() {
        for (mode, what) in
            [(0o644, "readable"), (0o620, "writable"), (0o666, "readable and writable")]
        {
            let file = file(b"t", mode);
            let token = read(Some(file.path()), &Environment::default()).unwrap();
            let words = format!("is {what} by other users (mode {mode:04o}): chmod 600 it");
            assert!(token.warning.unwrap().ends_with(&words));
        }
    }

    #[test]
    fn file_overrides_the_environment() {
        let file = file(b"from the file", 0o600);
        let environment = Environment { token: Some("other".into()), ..Environment::default() };
        let token = read(Some(file.path()), &environment).unwrap();
        assert_eq!(token.bytes.unwrap(), b"from the file");
        assert_eq!(from_environment("x").unwrap().bytes.unwrap(), b"x");
    }

    #[test]
    fn missing_or_huge_file_is_an_error() {
        let missing = read(Some(Path::new("/nonexistent/token")), &Environment::default());
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::Local);
        let huge = file(&[b'x'; MAX_TOKEN_BYTES + 1], 0o600);
        let huge = read(Some(huge.path()), &Environment::default());
        assert_eq!(huge.unwrap_err().kind(), ErrorKind::Usage);
    }
}
