//! The self-made certificate of a daemon (kept in the state directory) or agent (for one session).

use crate::error::{Error, ErrorKind};
use crate::options::Fingerprint;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs;
use std::io::{self, ErrorKind as IoKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// File within the state directory: length of the certificate (4 bytes, big-endian), certificate,
/// private key; both DER. One file, so that the two can never be of different generations.
const FILE_NAME: &str = "identity";

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Makes a fresh one.
    pub(crate) fn generate() -> Result<Self, Error> {
        let failed = |e: rcgen::Error| {
            Error::new(ErrorKind::Local, format!("cannot make a certificate: {e}"))
        };
        let made =
            rcgen::generate_simple_self_signed(vec!["bankfull".to_owned()]).map_err(failed)?;
        Ok(Self {
            certificate: made.cert.der().clone(),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        })
    }

    /// Loads the one kept in `dir`, or makes and keeps one.
    pub(crate) fn load_or_generate(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE_NAME);
        match fs::read(&path) {
            Ok(bytes) => Self::decode(&bytes).ok_or_else(|| {
                let hint = "move it away, and clients will have to trust the new fingerprint";
                Error::new(ErrorKind::Local, format!("{} is damaged: {hint}", path.display()))
            }),
            Err(e) if e.kind() == IoKind::NotFound => {
                let made = Self::generate()?;
                made.save(dir, &path)?;
                // Another daemon may have been first: what is on the disk counts.
                fs::read(&path).ok().and_then(|b| Self::decode(&b)).map_or(Ok(made), Ok)
            }
            Err(e) => Err(unusable(format!("cannot read {}", path.display()), &e)),
        }
    }

    fn save(&self, dir: &Path, path: &Path) -> Result<(), Error> {
        make_private_dir(dir)?;
        let failed = |e| unusable(format!("cannot write {}", path.display()), &e);
        let draft = dir.join(format!(".{FILE_NAME}-{}", std::process::id()));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)
            .map_err(failed)?;
        file.write_all(&(self.certificate.len() as u32).to_be_bytes()).map_err(failed)?;
        file.write_all(&self.certificate).map_err(failed)?;
        file.write_all(self.key.secret_der()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        // A link fails where a name exists: the first of two daemons wins.
        let linked = fs::hard_link(&draft, path);
        let _ = fs::remove_file(&draft);
        match linked {
            Err(e) if e.kind() != IoKind::AlreadyExists => Err(failed(e)),
            _ => Ok(()),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (certificate, key) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        if certificate.is_empty() || key.is_empty() {
            return None;
        }
        Some(Self {
            certificate: CertificateDer::from(certificate.to_vec()),
            key: PrivatePkcs8KeyDer::from(key.to_vec()).into(),
        })
    }

    /// What clients pin.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        fingerprint_of(&self.certificate)
    }
}

/// SHA-256 of a certificate.
pub(crate) fn fingerprint_of(certificate: &CertificateDer<'_>) -> Fingerprint {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    Fingerprint(out)
}

/// Makes a directory that only its owner can read.
pub(crate) fn make_private_dir(dir: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| unusable(format!("cannot make the state directory {}", dir.display()), &e))
}

/// A state directory that cannot be used, or a file in it.
pub(crate) fn unusable(what: String, error: &io::Error) -> Error {
    let error = Error::local(what, error);
    Error::new(error.kind(), format!("{error}: choose another directory with --state-dir"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_identity_is_made_once_kept_private_and_loaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let first = Identity::load_or_generate(&state).unwrap().fingerprint();
        let again = Identity::load_or_generate(&state).unwrap().fingerprint();
        assert_eq!(first, again);
        let mode = fs::metadata(state.join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_state_directory_that_cannot_be_made_has_a_way_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = make_private_dir(&file.path().join("state")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert!(
            error.to_string().ends_with("choose another directory with --state-dir"),
            "{error}"
        );
    }

    #[test]
    fn an_identity_that_cannot_be_read_or_written_has_the_same_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let way_out = |state: &Path| {
            let error = Identity::load_or_generate(state).err().unwrap();
            assert!(error.to_string().ends_with("another directory with --state-dir"), "{error}");
        };
        // What is a directory is no file to be read.
        fs::create_dir_all(dir.path().join("read").join(FILE_NAME)).unwrap();
        way_out(&dir.path().join("read"));
        let draft = format!(".{FILE_NAME}-{}", std::process::id());
        fs::create_dir_all(dir.path().join("written").join(draft)).unwrap();
        way_out(&dir.path().join("written"));
    }

    #[test]
    fn a_damaged_identity_is_an_error_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        fs::write(&path, b"rubbish").unwrap();
        let error = Identity::load_or_generate(dir.path()).err().unwrap();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"rubbish");
    }
}
