//! Values of flags that need a check of their own: times, rates, addresses, commands, fingerprints.

use bankfull::{
    Bytes, DEFAULT_PORT, DirectIo, Fingerprint, Fsync, IoMethod, MAX_BUFFER, MIN_BUFFER,
    MIN_MEMORY_LIMIT, MIN_RATE_LIMIT, Merge, Rate, Transport, Tune, UnitError, is_valid_block_size,
};
use clap::ValueEnum;
use std::ffi::OsString;
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// `--fsync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsyncWhen {
    /// Leave it to the kernel.
    None,
    /// Each file before it gets its final name.
    File,
    /// The whole destination once, at the end.
    End,
}

impl From<FsyncWhen> for Fsync {
    fn from(when: FsyncWhen) -> Self {
        match when {
            FsyncWhen::None => Self::None,
            FsyncWhen::File => Self::File,
            FsyncWhen::End => Self::End,
        }
    }
}

/// `--tune`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TuneHow {
    /// They and the number of connections follow the path.
    Auto,
    /// They are left to the kernel.
    Off,
    /// They alone follow the path; the number of connections stays.
    Sobas,
}

impl From<TuneHow> for Tune {
    fn from(how: TuneHow) -> Self {
        match how {
            TuneHow::Auto => Self::Auto,
            TuneHow::Off => Self::Off,
            TuneHow::Sobas => Self::Sobas,
        }
    }
}

/// `--io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IoHow {
    /// What suits the file and the connection.
    Auto,
    /// Read into memory, and written from there.
    Buffered,
    /// Mapped into memory, and written from there.
    Mmap,
    /// Handed to the connection by the kernel, a block at a time (without encryption).
    Sendfile,
    /// The same in pieces of 256 KiB (without encryption).
    Zerobuffer,
    /// The same through a pipe (without encryption).
    Splice,
    /// Read into memory ahead by `io_uring`, and written from there.
    #[value(name = "io_uring")]
    IoUring,
}

impl IoHow {
    /// The engine that was chosen.
    pub(crate) fn io_method(self) -> Option<IoMethod> {
        match self {
            Self::Auto => None,
            Self::Buffered => Some(IoMethod::Buffered),
            Self::Mmap => Some(IoMethod::Mmap),
            Self::Sendfile => Some(IoMethod::SendFile),
            Self::Zerobuffer => Some(IoMethod::ZeroBuffer),
            Self::Splice => Some(IoMethod::Splice),
            Self::IoUring => Some(IoMethod::IoUring),
        }
    }
}

/// `--direct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectWhen {
    /// Where it is of use.
    Auto,
    /// Wherever a file system can.
    On,
    /// Nowhere.
    Off,
}

impl From<DirectWhen> for DirectIo {
    fn from(when: DirectWhen) -> Self {
        match when {
            DirectWhen::Auto => Self::Auto,
            DirectWhen::On => Self::On,
            DirectWhen::Off => Self::Off,
        }
    }
}

/// `--transport`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportHow {
    /// TCP connections.
    #[default]
    Tcp,
    /// QUIC, by UDP at the same port number.
    Quic,
    /// TCP connections, or QUIC where none can be made or where TCP has lost much at random.
    Auto,
}

impl From<TransportHow> for Transport {
    fn from(how: TransportHow) -> Self {
        match how {
            TransportHow::Tcp => Self::Tcp,
            TransportHow::Quic => Self::Quic,
            TransportHow::Auto => Self::Auto,
        }
    }
}

/// `--merge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeRule {
    /// That of the source named first; the others are failed files.
    Refuse,
    /// That of the source named first; the others are left out.
    First,
    /// The one that was modified last; the others are left out.
    Newest,
}

impl From<MergeRule> for Merge {
    fn from(rule: MergeRule) -> Self {
        match rule {
            MergeRule::Refuse => Self::Refuse,
            MergeRule::First => Self::First,
            MergeRule::Newest => Self::Newest,
        }
    }
}

/// `--ssh-command`: a program and its first arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshCommand(pub(crate) Vec<OsString>);

/// `--listen`: names are resolved later, because that may take time and fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    /// Name or address; empty for every address of this host.
    pub(crate) host: String,
    /// Port; 0 takes a free one.
    pub(crate) port: u16,
}

/// Reads a time in seconds, such as `60` or `2.5`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a time in seconds, such as 60 or 2.5");
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| bad())?;
    if time.is_zero() { Err("the time must be longer than 0 seconds".to_owned()) } else { Ok(time) }
}

/// Reads a rate, such as `100mbit`.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|e: UnitError| e.to_string())?;
    if rate < MIN_RATE_LIMIT {
        return Err(format!("a rate is at least {MIN_RATE_LIMIT}"));
    }
    Ok(rate)
}

/// Reads the size of windows, such as `4MB`.
pub(super) fn buffer(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    if bytes < MIN_BUFFER {
        return Err(format!("a buffer has two segments at least, {} bytes", MIN_BUFFER.0));
    }
    if bytes > MAX_BUFFER {
        return Err(format!("a buffer has {MAX_BUFFER} at most, the windows of 64 connections"));
    }
    Ok(bytes)
}

/// Reads the size of blocks, such as `4MiB`.
pub(super) fn block(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    let Bytes(count) = bytes;
    let bad = || format!("it is {count} bytes: choose a power of two, 1MiB to 16MiB, such as 4MiB");
    if is_valid_block_size(bytes) { Ok(bytes) } else { Err(bad()) }
}

/// Reads how much memory may be used, such as `256MiB`.
pub(super) fn memory(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    if bytes < MIN_MEMORY_LIMIT {
        Err(format!("it is {MIN_MEMORY_LIMIT} at least"))
    } else {
        Ok(bytes)
    }
}

/// `--streams`: how many data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamCount {
    /// As many as are found best.
    Auto,
    /// So many.
    Fixed(u32),
}

/// Reads a number of data connections, or that it is to be found.
pub(super) fn stream_count(text: &str) -> Result<StreamCount, String> {
    match text {
        "auto" => Ok(StreamCount::Auto),
        _ => number(text, 1..=64)
            .map(StreamCount::Fixed)
            .map_err(|wanted| format!("{wanted}, or auto")),
    }
}

/// Reads a port to connect to.
pub(super) fn port(text: &str) -> Result<u16, String> {
    number(text, 1..=u16::MAX)
}

/// Reads a number of connections that a daemon takes.
pub(super) fn connections(text: &str) -> Result<usize, String> {
    number(text, 2..=65_535)
}

/// Reads how many sources may fail.
pub(super) fn failures(text: &str) -> Result<u32, String> {
    number(text, 0..=u32::MAX)
}

/// Reads the size of a piece, such as `4MiB`.
pub(super) fn piece(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    if bytes.0 == 0 { Err("a piece has a byte at least".to_owned()) } else { Ok(bytes) }
}

/// Reads a whole number within limits, and says what is wanted where it is none.
fn number<N: FromStr + PartialOrd + Display>(
    text: &str,
    limits: RangeInclusive<N>,
) -> Result<N, String> {
    let found = text.parse().ok().filter(|number| limits.contains(number));
    found.ok_or_else(|| format!("write a number from {} to {}", limits.start(), limits.end()))
}

/// Reads a command line, see [`crate::shellsplit`].
pub(super) fn ssh_command(text: OsString) -> Result<SshCommand, String> {
    crate::shellsplit::split(&text).map(SshCommand)
}

/// Reads the name of a page, which is overwritten: whoever forgets it would name a source.
pub(super) fn page(name: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    let is_page = path.extension().is_some_and(|kind| kind == "html" || kind == "htm");
    if is_page { Ok(path) } else { Err("the name of a report must end in .html".to_owned()) }
}

/// Reads `sha256:` and 64 hexadecimal digits.
pub(super) fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|e: bankfull::Error| e.to_string())
}

/// Reads `HOST:PORT`, `:PORT` or `HOST`; IPv6 addresses with a port stand in brackets.
pub(super) fn listen(text: &str) -> Result<Listen, String> {
    if text.is_empty() {
        return Err("an address is missing; write HOST:PORT or :PORT".to_owned());
    }
    if text.parse::<IpAddr>().is_ok() {
        return Ok(Listen { host: text.to_owned(), port: DEFAULT_PORT });
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("a '[' without ']'")?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(number) => number
            .parse()
            .map_err(|_| format!("{number:?} is not a port (0 to 65535, 0 takes a free one)"))?,
        None if port.is_empty() => DEFAULT_PORT,
        None => return Err(format!("{port:?} follows the address; write [ADDRESS]:PORT")),
    };
    Ok(Listen { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_fractions_and_are_never_zero() {
        assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["0", "0.0", "-1", "nan", "inf", "1e99", "", "5s", "1e-30"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_has_a_unit_and_is_not_too_low() {
        assert_eq!(rate("1.5gbit"), Ok(Rate::from_bits_per_sec(1.5e9)));
        assert_eq!(rate("100kbit"), Ok(MIN_RATE_LIMIT));
        assert_eq!(rate("99kbit").unwrap_err(), "a rate is at least 100.0 kbit/s");
        assert_eq!(rate("10").unwrap_err(), "\"10\" is no rate: write 100mbit, 1.5gbit …");
    }

    #[test]
    fn a_buffer_is_in_bytes_and_holds_two_segments() {
        assert_eq!(buffer("4MB"), Ok(Bytes(4_000_000)));
        assert_eq!(buffer("256KiB"), Ok(Bytes::kib(256)));
        assert_eq!(buffer("2896"), Ok(MIN_BUFFER));
        assert_eq!(buffer("64GiB"), Ok(MAX_BUFFER));
        assert!(buffer("65GiB").unwrap_err().contains("at most"));
        assert!(buffer("2895").unwrap_err().contains("two segments at least, 2896 bytes"));
        assert!(buffer("4mbit").unwrap_err().contains("write 64KiB, 300kB, 1.5MB"));
    }

    #[test]
    fn what_is_no_number_within_the_limits_is_told_what_is_wanted() {
        assert_eq!((port("65535"), connections("2")), (Ok(65_535), Ok(2)));
        let streams = ["64", "1", "auto"].map(|text| stream_count(text).unwrap());
        assert_eq!(streams, [StreamCount::Fixed(64), StreamCount::Fixed(1), StreamCount::Auto]);
        for bad in ["0", "65", "four", "-1", "", "1e9", "99999999999"] {
            let wanted = "write a number from 1 to 64, or auto";
            assert_eq!(stream_count(bad).unwrap_err(), wanted, "{bad}");
        }
        assert_eq!(port("abc").unwrap_err(), "write a number from 1 to 65535");
        assert_eq!(connections("1").unwrap_err(), "write a number from 2 to 65535");
    }

    #[test]
    fn a_listen_address_may_leave_out_host_or_port() {
        let read = |text: &str| listen(text).map(|l| (l.host, l.port));
        assert_eq!(read(":99"), Ok((String::new(), 99)));
        assert_eq!(read("[::]:7440"), Ok(("::".to_owned(), 7440)));
        assert_eq!(read("127.0.0.1:0"), Ok(("127.0.0.1".to_owned(), 0)));
        assert_eq!(read("store.example:99"), Ok(("store.example".to_owned(), 99)));
        for host in ["store.example", "::1", "127.0.0.1"] {
            assert_eq!(read(host), Ok((host.to_owned(), DEFAULT_PORT)));
        }
        assert_eq!(read("[::1]"), Ok(("::1".to_owned(), DEFAULT_PORT)));
    }

    #[test]
    fn a_listen_address_that_makes_no_sense_is_refused() {
        for bad in ["", "host:", "host:x", "host:65536", "[::1", "[::1]99", "::1:99:x"] {
            assert!(listen(bad).is_err(), "{bad}");
        }
    }
}
