//! Known daemons and their fingerprints, one per line: `HOST:PORT sha256:…`.

use crate::base::error::{Error, ErrorKind};
use crate::base::fs_names::create_private_dir;
use crate::base::fs_names::state_dir_error;
use crate::model::options::Fingerprint;
use std::fs;
use std::io::{ErrorKind as IoKind, Write};
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "known_hosts";

/// File of known daemons.
pub(crate) struct KnownHosts {
    dir: PathBuf,
}

impl KnownHosts {
    /// Names the file in a state directory; it need not exist.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    /// Returns the fingerprint recorded for `host`.
    pub(crate) fn find(&self, host: &str) -> Result<Option<Fingerprint>, Error> {
        let path = self.path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == IoKind::NotFound => return Ok(None),
            Err(e) => return Err(state_dir_error(format!("cannot read {}", path.display()), &e)),
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if words.next() == Some(host) {
                let word = words.next().unwrap_or_default();
                return word.parse().map(Some).map_err(|_| {
                    Error::new(
                        ErrorKind::Local,
                        format!(
                            "{}: the entry for {host} is damaged: fix or remove it",
                            path.display()
                        ),
                    )
                });
            }
        }
        Ok(None)
    }

    /// Records a daemon by one short append, which is safe with concurrent processes.
    pub(crate) fn remember(&self, host: &str, fingerprint: Fingerprint) -> Result<(), Error> {
        create_private_dir(&self.dir)?;
        let path = self.path();
        let failed = |e| state_dir_error(format!("cannot write {}", path.display()), &e);
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        file.write_all(format!("{host} {fingerprint}\n").as_bytes()).map_err(failed)
    }

    /// Checks the fingerprint that a daemon presented.
    ///
    /// Returns the file, if the daemon was unknown and is recorded now.
    pub(crate) fn check(
        &self,
        host: &str,
        presented: Fingerprint,
        accept_new: bool,
    ) -> Result<Option<PathBuf>, Error> {
        match self.find(host)? {
            Some(known) if known == presented => Ok(None),
            Some(known) => Err(changed_fingerprint_error(host, known, presented, &self.path())),
            None if accept_new => self.remember(host, presented).map(|()| Some(self.path())),
            None => Err(Error::unknown_daemon_refused(host, &presented.to_string())),
        }
    }
}

fn changed_fingerprint_error(
    host: &str,
    known: Fingerprint,
    presented: Fingerprint,
    path: &Path,
) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "the fingerprint of {host} has changed from {known} to {presented}: the connection \
             may be intercepted. If the server was reinstalled, remove its entry from {}",
            path.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fingerprint = Fingerprint([1; 32]);
    const B: Fingerprint = Fingerprint([2; 32]);

    #[test]
    fn unknown_daemon_needs_accept_new() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = KnownHosts::new(dir.path().join("state"));
        let error = hosts.check("h:1", A, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(&A.to_string()), "{error}");
        let file = dir.path().join("state/known_hosts");
        assert_eq!(hosts.check("h:1", A, true).unwrap(), Some(file));
        for accept_new in [false, true] {
            assert_eq!(hosts.check("h:1", A, accept_new).unwrap(), None, "nothing new");
        }
        assert!(hosts.check("h:2", A, false).is_err(), "another port is another daemon");
    }

    #[test]
    fn io_error_suggests_another_state_dir() {
        let dir = tempfile::tempdir().unwrap();
        // A directory can be neither read nor written as a file.
        fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
        let hosts = KnownHosts::new(dir.path().to_owned());
        for error in [hosts.find("h:1").unwrap_err(), hosts.remember("h:1", A).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Local);
            assert!(error.to_string().ends_with("another directory with --state-dir"), "{error}");
        }
    }

    #[test]
    fn changed_fingerprint_is_refused_with_accept_new() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = KnownHosts::new(dir.path().to_owned());
        hosts.remember("h:1", A).unwrap();
        for accept_new in [false, true] {
            let error = hosts.check("h:1", B, accept_new).unwrap_err();
            assert!(error.to_string().contains("has changed"), "{error}");
        }
        assert_eq!(hosts.find("h:1").unwrap(), Some(A));
    }
}
