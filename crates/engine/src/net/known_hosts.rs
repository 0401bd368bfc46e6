//! Daemons met before and the fingerprint each showed: one per line, `HOST:PORT sha256:…`.

use super::identity::{make_private_dir, unusable};
use crate::error::{Error, ErrorKind};
use crate::options::Fingerprint;
use std::fs;
use std::io::{ErrorKind as IoKind, Write};
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "known_hosts";

/// The file of met daemons.
pub(crate) struct KnownHosts {
    dir: PathBuf,
}

impl KnownHosts {
    /// The file within a state directory; it need not exist.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    /// The fingerprint remembered for `host`.
    pub(crate) fn find(&self, host: &str) -> Result<Option<Fingerprint>, Error> {
        let path = self.path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == IoKind::NotFound => return Ok(None),
            Err(e) => return Err(unusable(format!("cannot read {}", path.display()), &e)),
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if words.next() == Some(host) {
                let word = words.next().unwrap_or_default();
                return word.parse().map(Some).map_err(|_| {
                    Error::new(
                        ErrorKind::Local,
                        format!(
                            "{}: the line of {host} is damaged: mend or remove it",
                            path.display()
                        ),
                    )
                });
            }
        }
        Ok(None)
    }

    /// Remembers a daemon. One short appended line: safe with several processes at once.
    pub(crate) fn remember(&self, host: &str, fingerprint: Fingerprint) -> Result<(), Error> {
        make_private_dir(&self.dir)?;
        let path = self.path();
        let failed = |e| unusable(format!("cannot write {}", path.display()), &e);
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        file.write_all(format!("{host} {fingerprint}\n").as_bytes()).map_err(failed)
    }

    /// Decides whether a daemon that showed `shown` is trusted. The file that remembers it from now
    /// on, where it was not known before.
    pub(crate) fn check(
        &self,
        host: &str,
        shown: Fingerprint,
        accept_new: bool,
    ) -> Result<Option<PathBuf>, Error> {
        match self.find(host)? {
            Some(known) if known == shown => Ok(None),
            Some(known) => Err(changed(host, known, shown, &self.path())),
            None if accept_new => self.remember(host, shown).map(|()| Some(self.path())),
            None => Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "{host} is not known yet; its fingerprint is {shown}: compare it with what the \
                     server printed, then add --fingerprint {shown}, or --accept-new to remember it"
                ),
            )),
        }
    }
}

fn changed(host: &str, known: Fingerprint, shown: Fingerprint, path: &Path) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "the fingerprint of {host} has changed from {known} to {shown}: somebody may be in \
             between. If the server was set up anew, remove its line from {}",
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
    fn an_unknown_daemon_is_refused_unless_new_ones_are_accepted() {
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
    fn a_file_that_cannot_be_used_has_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        // What is a directory is no file to be read or written.
        fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
        let hosts = KnownHosts::new(dir.path().to_owned());
        for error in [hosts.find("h:1").unwrap_err(), hosts.remember("h:1", A).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Local);
            assert!(error.to_string().ends_with("another directory with --state-dir"), "{error}");
        }
    }

    #[test]
    fn a_changed_fingerprint_is_refused_even_if_new_ones_are_accepted() {
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
