//! Options of transfers and servers, with their defaults and sources.

use super::access::{Grant, Share};
use super::client_key::ClientKeyPair;
use crate::base::error::{Error, ErrorKind};
use crate::base::hex;
use bankfull_control::{Bytes, Rate};
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Initial data streams of a short path, or of one whose RTT is unknown; up to 16 on a long path.
/// (GridFTP, bbcp and FDT recommend 4)
pub const DEFAULT_STREAMS: u32 = 4;

/// Silence after which the peer is given up. (chosen: common value of rsync's `--timeout`)
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which a lost session is connected again. (chosen: a router restarts within it)
pub const DEFAULT_RETRY_FOR: Duration = Duration::from_secs(300);

/// Smallest limit of memory for received data that waits for the disk. (chosen: a few chunks; with
/// less, streams would wait for each other)
pub const MIN_MEMORY_LIMIT: Bytes = Bytes::mib(1);

/// Time at which received files are flushed to the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Nothing: left to the kernel.
    None,
    /// Each file before its rename into place, and its directory afterwards.
    File,
    /// The destination's file system once, at the end.
    #[default]
    End,
}

/// Parameters that are tuned while a copy runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tune {
    /// Window and pacing by delay-based control and, unless set, the number of data streams.
    #[default]
    Auto,
    /// Left to the kernel.
    Off,
    /// Window and pacing only, by SOBAS as in its paper.
    Sobas,
}

/// Use of direct I/O (`O_DIRECT`), which bypasses the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Files of at least 16 MiB on non-rotating disks. Excludes reads of ranges that are mostly
    /// cached. Requires a file system on one disk and Linux 6.1 for writes, 6.5 for reads.
    #[default]
    Auto,
    /// Every file whose file system supports it.
    On,
    /// No file.
    Off,
}

/// Options to start the agent over ssh: the user's own ssh, with its configuration, agent and
/// known hosts.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SshOptions {
    /// Program and leading arguments that replace `ssh`.
    pub command: Vec<OsString>,
    /// Path of `bankfull` on the remote host, instead of the one on its `PATH`.
    pub remote_program: Option<String>,
    /// Ports on the remote host of which one receives the data streams; `None`: any free one.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// Copies this binary to the remote host if it has none.
    pub deploy: bool,
    /// Port of the ssh server (`-p` of ssh).
    pub port: Option<u16>,
    /// Identity files (`-i`).
    pub identities: Vec<PathBuf>,
    /// Configuration file (`-F`).
    pub config: Option<PathBuf>,
    /// Jump hosts (`-J`).
    pub jump: Option<String>,
    /// Further options (`-o`).
    pub options: Vec<String>,
}

/// SHA-256 of a certificate, written `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        hex::write(&self.0, f)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::new(
                ErrorKind::Usage,
                format!(
                    "{text:?} is not a fingerprint: write sha256: followed by 64 hexadecimal digits"
                ),
            )
        };
        text.strip_prefix("sha256:").and_then(hex::parse).map(Self).ok_or_else(bad)
    }
}

/// Transport protocol of a copy to or from a daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// TCP connections.
    #[default]
    Tcp,
    /// Streams of a QUIC connection over UDP; always encrypted.
    Quic,
    /// TCP, or QUIC in two cases: no TCP connection can be made; or an earlier copy over TCP had
    /// many losses without a queue, and no copy over QUIC was slower.
    Auto,
}

/// Mutual authentication of client and daemon, and their transport.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DaemonOptions {
    /// Access token of the daemon.
    pub token: Option<Vec<u8>>,
    /// Private key that proves this client, instead of a token.
    pub key: Option<ClientKeyPair>,
    /// Fingerprint that the daemon must present.
    pub fingerprint: Option<Fingerprint>,
    /// Trusts an unknown daemon and remembers it.
    pub accept_new: bool,
    /// Directory that remembers known daemons, instead of [`default_state_dir`].
    pub state_dir: Option<PathBuf>,
    /// Transport of control and data.
    pub transport: Transport,
}

/// Directories that a daemon serves; nothing outside them is accessible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// One directory, which paths are relative to.
    Root(PathBuf),
    /// Directories by names, the first components of paths.
    Shares(Vec<Share>),
}

/// Rules of a daemon for its clients, which may change while it runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Access {
    /// Directories.
    pub served: Served,
    /// Token with all permissions.
    pub token: Option<Vec<u8>>,
    /// Tokens and keys with individual permissions. `None`, and no `token`: clients need none.
    pub grants: Option<Vec<Grant>>,
    /// Refuses uploads.
    pub read_only: bool,
}

impl Access {
    /// Access to some directories, without a token.
    #[must_use]
    pub fn new(served: Served) -> Self {
        Self { served, token: None, grants: None, read_only: false }
    }

    /// True if clients need a token.
    #[must_use]
    pub fn needs_token(&self) -> bool {
        self.token.is_some() || self.grants.is_some()
    }
}

/// Certificate and private key in files, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate; those that it is signed by may follow.
    pub certificate: PathBuf,
    /// Its private key, which other users must not be able to read.
    pub private_key: PathBuf,
}

/// Options of a daemon.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Rules for clients.
    pub access: Access,
    /// Address and port to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Lets clients set owners, groups and set-id bits.
    pub allow_owner: bool,
    /// Lets clients create devices.
    pub allow_devices: bool,
    /// Lets clients set extended attributes outside the `user` namespace.
    pub allow_privileged_xattrs: bool,
    /// Allows clients to request data streams without encryption.
    pub allow_unencrypted: bool,
    /// Certificate to present. `None`: one that the daemon generates once.
    pub certificate: Option<CertificateFiles>,
    /// Directory of the generated certificate, instead of [`default_state_dir`].
    pub state_dir: Option<PathBuf>,
    /// Maximum number of connections, control and data together.
    pub max_connections: usize,
    /// Silence after which a client is given up.
    pub timeout: Duration,
    /// Packet rate of the link by which clients send. While several do, their windows and time
    /// slots fit it together. `None`: the interface's speed, else a measurement.
    pub link_rate: Option<Rate>,
    /// Limit of memory for received data that waits for the disk, of all clients together. `None`:
    /// a quarter of the free memory, at most 1 GiB.
    /// [`Transfer::max_memory`](crate::Transfer::max_memory) lists what is not counted.
    pub max_memory: Option<Bytes>,
}

impl ServeOptions {
    /// Default maximum of connections. (chosen: 32 sessions of the default size)
    pub const DEFAULT_MAX_CONNECTIONS: usize = 160;

    /// Options to serve `root` on `listen` with the defaults: no token, uploads allowed, encryption
    /// required.
    #[must_use]
    pub fn new(root: PathBuf, listen: SocketAddr) -> Self {
        Self::with_access(Access::new(Served::Root(root)), listen)
    }

    /// Options to serve on `listen` with these rules for clients, and the defaults.
    #[must_use]
    pub fn with_access(access: Access, listen: SocketAddr) -> Self {
        Self {
            access,
            listen,
            allow_owner: false,
            allow_devices: false,
            allow_privileged_xattrs: false,
            allow_unencrypted: false,
            certificate: None,
            state_dir: None,
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            timeout: DEFAULT_TIMEOUT,
            link_rate: None,
            max_memory: None,
        }
    }
}

/// Default directory of persistent state: `$XDG_STATE_HOME/bankfull`, else
/// `~/.local/state/bankfull`.
///
/// # Errors
/// [`ErrorKind::Local`] when neither `XDG_STATE_HOME` nor `HOME` is set.
pub fn default_state_dir() -> Result<PathBuf, Error> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(base) = from("XDG_STATE_HOME").filter(|p| p.is_absolute()) {
        return Ok(base.join("bankfull"));
    }
    match from("HOME") {
        Some(home) => Ok(home.join(".local/state/bankfull")),
        None => Err(Error::new(
            ErrorKind::Local,
            "no state directory: set HOME or XDG_STATE_HOME, or use --state-dir",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_parses_its_own_display() {
        let fingerprint = Fingerprint(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);
    }

    #[test]
    fn fingerprint_malformed_is_refused_with_the_form() {
        for bad in ["", "sha256:", "sha256:12", &format!("sha1:{}", "0".repeat(64)), "sha256:zz"] {
            assert!(bad.parse::<Fingerprint>().unwrap_err().to_string().contains("64 hex"));
        }
        assert!(format!("sha256:{}", "é".repeat(32)).parse::<Fingerprint>().is_err());
    }
}
