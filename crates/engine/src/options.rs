//! What a caller may set, with the defaults and where they come from.

use crate::error::{Error, ErrorKind};
use bankfull_control::{Bytes, Rate};
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Data connections where none are asked for and the path is short, or its round trip not known;
/// over long ones they are up to 16. [DESIGN.md; GridFTP, bbcp and FDT recommend 4]
pub const DEFAULT_STREAMS: u32 = 4;

/// Silence after which the far side is given up. [as long as rsync users set `--timeout`]
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The least limit of memory for what is received and not written yet. (ours: some pieces; less
/// would have connections wait for each other)
pub const MEMORY_LEAST: Bytes = Bytes::mib(1);

/// When received files are flushed to the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Left to the kernel.
    None,
    /// Each file before it is renamed into place, and its directory after.
    File,
    /// The destination file system once, at the end.
    #[default]
    End,
}

/// Whether windows and pacing of the data connections are tuned while a copy runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tune {
    /// All that can be tuned: window, pacing and, where it is not set, the number of data
    /// connections.
    #[default]
    Auto,
    /// Left to the kernel.
    Off,
    /// Window and pacing alone, as the path shows itself.
    Sobas,
}

/// Whether files are read and written past the page cache (`O_DIRECT`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direct {
    /// Files of 16 MiB and more on disks that do not rotate; to read those that are in the cache
    /// for the most part, through it. Only where the kernel tells all that: to write from Linux 6.1
    /// on, to read from 6.5 on, and of file systems on one disk.
    #[default]
    Auto,
    /// Wherever the file system can.
    On,
    /// Nowhere.
    Off,
}

/// How the far side is started over ssh. The user's own ssh, with its configuration, agent and
/// known hosts.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SshOptions {
    /// Program and leading arguments in place of `ssh`.
    pub command: Vec<OsString>,
    /// Path of `bankfull` on the far side, in place of the one on its `PATH`.
    pub remote_program: Option<String>,
    /// Put this very binary there when there is none.
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
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::new(
                ErrorKind::Usage,
                format!("{text:?} is not a fingerprint: write sha256: and 64 hexadecimal digits"),
            )
        };
        let digits = text.strip_prefix("sha256:").ok_or_else(bad)?;
        let mut out = [0; 32];
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(bad());
        }
        for (byte, pair) in out.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        Ok(Self(out))
    }
}

/// What carries a copy to or from a daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// TCP connections.
    #[default]
    Tcp,
    /// Streams of a QUIC connection, by UDP: always encrypted.
    Quic,
    /// TCP connections; QUIC where none can be made, or where an earlier copy by TCP lost much
    /// without a queue and none by QUIC was slower.
    Auto,
}

/// How a daemon is trusted and told who we are.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DaemonOptions {
    /// Its access token.
    pub token: Option<Vec<u8>>,
    /// The fingerprint it must show.
    pub fingerprint: Option<Fingerprint>,
    /// Trust a daemon that was never met, and remember it.
    pub accept_new: bool,
    /// Where met daemons are remembered, in place of [`default_state_dir`].
    pub state_dir: Option<PathBuf>,
    /// What carries control and data.
    pub transport: Transport,
}

/// How a daemon serves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The directory that is served; nothing outside it is touched.
    pub root: PathBuf,
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Clients must show this token.
    pub token: Option<Vec<u8>>,
    /// Refuse uploads.
    pub read_only: bool,
    /// Allow clients to ask for data connections without encryption.
    pub allow_plain: bool,
    /// Where the certificate is kept, in place of [`default_state_dir`].
    pub state_dir: Option<PathBuf>,
    /// Most connections at a time, control and data together.
    pub connections_max: usize,
    /// Silence after which a client is given up.
    pub timeout: Duration,
    /// What the link carries by which clients send, in packets: while several do, their windows and
    /// turns fit it together. `None`: what the interface tells, else what turns out.
    pub link_rate: Option<Rate>,
    /// What may wait in memory until it is written, of all clients together. `None`: a quarter of
    /// the memory that is free, and no more than 1 GiB. What is beside it is told with
    /// [`Transfer::memory_max`](crate::Transfer::memory_max).
    pub memory_max: Option<Bytes>,
}

impl ServeOptions {
    /// Most connections at a time where nothing is said: 32 sessions of the default size. (ours)
    pub const CONNECTIONS_MAX: usize = 160;

    /// Serves `root` on `listen` with the defaults: no token, uploads allowed, encryption required.
    #[must_use]
    pub fn new(root: PathBuf, listen: SocketAddr) -> Self {
        Self {
            root,
            listen,
            token: None,
            read_only: false,
            allow_plain: false,
            state_dir: None,
            connections_max: Self::CONNECTIONS_MAX,
            timeout: DEFAULT_TIMEOUT,
            link_rate: None,
            memory_max: None,
        }
    }
}

/// Where bankfull keeps what it must remember: `$XDG_STATE_HOME/bankfull`, else
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
            "no place to remember things: set HOME or XDG_STATE_HOME, or give --state-dir",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_back_as_it_prints() {
        let fingerprint = Fingerprint(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);
    }

    #[test]
    fn what_is_no_fingerprint_is_refused_with_the_form_it_should_have() {
        for bad in ["", "sha256:", "sha256:12", &format!("sha1:{}", "0".repeat(64)), "sha256:zz"] {
            assert!(bad.parse::<Fingerprint>().unwrap_err().to_string().contains("64 hex"));
        }
        assert!(format!("sha256:{}", "é".repeat(32)).parse::<Fingerprint>().is_err());
    }
}
