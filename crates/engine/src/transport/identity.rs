//! Certificates of daemons, generated or the administrator's, and of agents for one session.

use crate::base::fs_names::{create_private_dir, state_dir_error};

use crate::base::error::{Error, ErrorKind};
use crate::model::options::{CertificateFiles, Fingerprint};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs;
use std::io::{self, ErrorKind as IoKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use tracing::info;

/// File in the state directory: length of the certificate (4 bytes, big-endian), certificate,
/// private key; both DER. A single file keeps the two consistent.
const FILE_NAME: &str = "identity";

/// Permission bits of the file that let others have the private key, or replace it.
const OPEN_TO_OTHERS: u32 = 0o077;

/// Permission bits of a key that let everyone read or its group replace it.
const KEY_OPEN_TO_OTHERS: u32 = 0o027;

/// Certificate and private key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    /// Certificates of those that signed it, in order.
    pub(crate) signers: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Generates a new certificate.
    pub(crate) fn generate() -> Result<Self, Error> {
        let failed = |e: rcgen::Error| {
            Error::new(ErrorKind::Local, format!("cannot generate a certificate: {e}"))
        };
        let generated =
            rcgen::generate_simple_self_signed(vec!["bankfull".to_owned()]).map_err(failed)?;
        Ok(Self {
            certificate: generated.cert.der().clone(),
            signers: Vec::new(),
            key: PrivatePkcs8KeyDer::from(generated.signing_key.serialize_der()).into(),
        })
    }

    /// Returns a key for another purpose, which lasts as long as the certificate.
    pub(crate) fn derived_key(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, self.key.secret_der())
    }

    /// Loads the certificate kept in `dir`, or generates and saves one.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] if the file is damaged, unreadable, or open to other users.
    pub(crate) fn load_or_generate(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE_NAME);
        match read_with_mode(&path) {
            Ok((_, mode)) if mode & OPEN_TO_OTHERS != 0 => Err(open_to_others(&path, mode)),
            Ok((bytes, _)) => Self::decode(&bytes).ok_or_else(|| {
                let hint = "move it away; clients then have to trust a new fingerprint";
                Error::new(ErrorKind::Local, format!("{} is damaged: {hint}", path.display()))
            }),
            Err(e) if e.kind() == IoKind::NotFound => {
                let generated = Self::generate()?;
                generated.save(dir, &path)?;
                info!(file = ?path, "certificate generated");
                // If another daemon has saved one first, that one is used.
                fs::read(&path).ok().and_then(|b| Self::decode(&b)).map_or(Ok(generated), Ok)
            }
            Err(e) => Err(state_dir_error(format!("cannot read {}", path.display()), &e)),
        }
    }

    /// Loads a certificate and its key from files.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] for a file without one, and a key that is open to other users.
    pub(crate) fn load_files(files: &CertificateFiles) -> Result<Self, Error> {
        let path = files.private_key.display();
        let cannot_read = |e| Error::local(format!("cannot read the private key {path}"), &e);
        let (bytes, mode) = read_with_mode(&files.private_key).map_err(cannot_read)?;
        if mode & KEY_OPEN_TO_OTHERS != 0 {
            let text = format!(
                "the private key {path} is open to other users (mode {mode:04o}): chmod 600 it"
            );
            return Err(Error::new(ErrorKind::Local, text));
        }
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
            let text = format!("{path} has no private key in PEM: give the file of the key");
            Error::new(ErrorKind::Local, text)
        })?;
        let mut chain = read_certificates(&files.certificate)?.into_iter();
        let certificate = chain.next().ok_or_else(|| no_certificate(&files.certificate))?;
        Ok(Self { certificate, signers: chain.collect(), key })
    }

    fn save(&self, dir: &Path, path: &Path) -> Result<(), Error> {
        create_private_dir(dir)?;
        let failed = |e| state_dir_error(format!("cannot write {}", path.display()), &e);
        let temp = dir.join(format!(".{FILE_NAME}-{}", std::process::id()));
        // Left by an earlier process with the same ID. Links are not followed.
        let _ = fs::remove_file(&temp);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temp)
            .map_err(failed)?;
        file.write_all(&(self.certificate.len() as u32).to_be_bytes()).map_err(failed)?;
        file.write_all(&self.certificate).map_err(failed)?;
        file.write_all(self.key.secret_der()).map_err(failed)?;
        if let (Ok(owner), Ok(own)) = (fs::metadata(dir), file.metadata())
            && owner.uid() != own.uid()
        {
            // Root prepares it for the daemon; others may not.
            let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
        }
        file.sync_all().map_err(failed)?;
        // The link fails if the name exists: the first of two daemons wins.
        let linked = fs::hard_link(&temp, path);
        let _ = fs::remove_file(&temp);
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
            signers: Vec::new(),
            key: PrivatePkcs8KeyDer::from(key.to_vec()).into(),
        })
    }

    /// Returns the fingerprint that clients pin.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        fingerprint_of(&self.certificate)
    }
}

/// Returns the fingerprint of the daemon whose state is in a directory.
///
/// Its certificate is generated if there is none yet.
///
/// # Errors
/// [`ErrorKind::Local`] if the certificate cannot be used.
pub fn server_fingerprint(state_dir: &Path) -> Result<Fingerprint, Error> {
    Identity::load_or_generate(state_dir).map(|identity| identity.fingerprint())
}

/// Returns the fingerprint of the certificate in a PEM file.
///
/// # Errors
/// [`ErrorKind::Local`] for a file that cannot be read, or has none.
pub fn certificate_fingerprint(path: &Path) -> Result<Fingerprint, Error> {
    let first = read_certificates(path)?.into_iter().next();
    first.map(|certificate| fingerprint_of(&certificate)).ok_or_else(|| no_certificate(path))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let cannot_read =
        |e| Error::local(format!("cannot read the certificate {}", path.display()), &e);
    let bytes = fs::read(path).map_err(cannot_read)?;
    CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|_| no_certificate(path))
}

fn no_certificate(path: &Path) -> Error {
    let path = path.display();
    let text = format!("{path} has no certificate in PEM: give the file of the certificate");
    Error::new(ErrorKind::Local, text)
}

/// Reads a file; also returns its permission bits.
fn read_with_mode(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    let mut file = fs::File::open(path)?;
    let mode = file.metadata()?.mode() & 0o7777;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((bytes, mode))
}

fn open_to_others(path: &Path, mode: u32) -> Error {
    let text = format!(
        "{} holds the private key but is open to other users (mode {mode:04o}): chmod 600 it, or \
         move it away if they may have read it; clients then have to trust a new fingerprint",
        path.display()
    );
    Error::new(ErrorKind::Local, text)
}

/// Returns the SHA-256 of a certificate.
pub(crate) fn fingerprint_of(certificate: &CertificateDer<'_>) -> Fingerprint {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    Fingerprint(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn link_at_the_temporary_name_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "kept").unwrap();
        let temp = dir.path().join(format!(".{FILE_NAME}-{}", std::process::id()));
        std::os::unix::fs::symlink(&target, temp).unwrap();
        Identity::load_or_generate(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(target).unwrap(), "kept");
    }

    #[test]
    fn identity_is_created_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let first = Identity::load_or_generate(&state).unwrap().fingerprint();
        let again = Identity::load_or_generate(&state).unwrap().fingerprint();
        assert_eq!(first, again);
        let mode = fs::metadata(state.join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "no temp is left");
    }

    #[test]
    fn state_dir_creation_error_suggests_another() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = create_private_dir(&file.path().join("state")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert!(
            error.to_string().ends_with("choose another directory with --state-dir"),
            "{error}"
        );
    }

    #[test]
    fn identity_io_error_suggests_another_state_dir() {
        let dir = tempfile::tempdir().unwrap();
        let expect_hint = |state: &Path| {
            let error = Identity::load_or_generate(state).err().unwrap();
            assert!(error.to_string().ends_with("another directory with --state-dir"), "{error}");
        };
        // A directory cannot be read as a file.
        fs::create_dir_all(dir.path().join("read").join(FILE_NAME)).unwrap();
        expect_hint(&dir.path().join("read"));
        let temp = format!(".{FILE_NAME}-{}", std::process::id());
        fs::create_dir_all(dir.path().join("written").join(temp)).unwrap();
        expect_hint(&dir.path().join("written"));
    }

    #[test]
    fn identity_open_to_others_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        let first = Identity::load_or_generate(dir.path()).unwrap().fingerprint();
        for mode in [0o644, 0o640, 0o620, 0o602] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = Identity::load_or_generate(dir.path()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Local);
            let text = error.to_string();
            let parts = [path.to_str().unwrap(), &format!("(mode {mode:04o}): chmod 600 it")];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(text.lines().count(), 1);
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(Identity::load_or_generate(dir.path()).unwrap().fingerprint(), first);
        }
    }

    #[test]
    fn damaged_identity_is_reported_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        fs::write(&path, b"rubbish").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let error = Identity::load_or_generate(dir.path()).err().unwrap();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"rubbish");
    }
}
