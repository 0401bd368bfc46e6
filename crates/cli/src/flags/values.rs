//! Flag values with checks of their own: times, rates, addresses, commands, fingerprints.

use bankfull::{
    Bytes, ClientKey, DEFAULT_PORT, DirectIo, Fingerprint, Fsync, IoMethod, MAX_BUFFER, MIN_BUFFER,
    MIN_MEMORY_LIMIT, MIN_RATE_LIMIT, Merge, Rate, Schedule, Transport, Tune, UnitError,
    is_plain_name, is_valid_block_size,
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
    /// Leave flushing to the kernel
    None,
    /// Each file before it gets its final name
    File,
    /// The whole destination once, at the end
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
    /// Window and pacing follow the path's delay; in `cp` the stream count follows it, too
    Auto,
    /// Window and pacing are left to the kernel, and the stream count stays
    Off,
    /// Window and pacing are set once, by SOBAS as in its paper; the stream count stays
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
    /// The method that suits the file and the connection
    Auto,
    /// Read into memory and write from there
    Buffered,
    /// Map into memory and write from there
    Mmap,
    /// Sent by the kernel, a block at a time (without encryption)
    Sendfile,
    /// Sent by the kernel in chunks of 256 KiB (without encryption)
    Zerobuffer,
    /// Sent by the kernel through a pipe (without encryption)
    Splice,
    /// Read ahead into memory with io_uring and write from there
    #[value(name = "io_uring")]
    IoUring,
}

impl IoHow {
    /// Returns the chosen I/O method; `None`: chosen automatically.
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
    /// On files and disks that gain from it
    Auto,
    /// On every file system that supports it
    On,
    /// Never
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
    /// TCP connections
    #[default]
    Tcp,
    /// QUIC, over UDP to the same port number
    Quic,
    /// TCP, or QUIC if TCP cannot connect or had many random losses
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
    /// Keep the file of the source named first; the others are failed files
    Refuse,
    /// Keep the file of the source named first; the others are skipped
    First,
    /// Keep the file modified last; the others are skipped
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

/// `--listen`: names are resolved later, as that may take time and fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    /// Name or address; empty for every address of this host.
    pub(crate) host: String,
    /// Port; 0 chooses a free one.
    pub(crate) port: u16,
}

/// Parses a time in seconds, such as `60` or `2.5`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a time in seconds, such as 60 or 2.5");
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| bad())?;
    if time.is_zero() { Err("the time must be longer than 0 seconds".to_owned()) } else { Ok(time) }
}

/// Parses a time in seconds, or 0 for none.
pub(super) fn seconds_or_none(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0.0) => Ok(Duration::ZERO),
        _ => seconds(text),
    }
}

/// Parses a time in milliseconds, such as `2` or `0.5`.
pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a time in milliseconds, such as 2 or 0.5");
    let ms: f64 = text.parse().map_err(|_| bad())?;
    let time = Duration::try_from_secs_f64(ms / 1000.0).map_err(|_| bad())?;
    if time.is_zero() { Err("the time must be longer than 0".to_owned()) } else { Ok(time) }
}

/// Parses the least window of a guarded connection in segments.
pub(super) fn window_segments(text: &str) -> Result<u64, String> {
    number(text, 1..=2)
}

/// Parses a rate, such as `100mbit` or `10MB/s`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let bytes = text.strip_suffix("/s").filter(|bytes| bytes.ends_with('B'));
    let rate = match bytes.and_then(|bytes| bytes.parse::<Bytes>().ok()) {
        Some(Bytes(bytes)) => Rate::from_bits_per_sec(bytes as f64 * 8.0),
        None => bit_rate(text)?,
    };
    if rate < MIN_RATE_LIMIT {
        return Err(format!("the rate is too low: the minimum is {MIN_RATE_LIMIT}"));
    }
    Ok(rate)
}

/// Parses rates by the time of day, such as `08:00-18:00=50mbit,*=max`.
pub(super) fn schedule(text: &str) -> Result<Schedule, String> {
    Schedule::parse(text, |limit| match is_zero(limit) {
        true => Err(format!(
            "{limit:?} would pause the copy, which a schedule cannot: the minimum is \
             {MIN_RATE_LIMIT}"
        )),
        false => rate(limit),
    })
}

/// True for the number 0, with a unit or without.
fn is_zero(text: &str) -> bool {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    number.parse::<f64>().is_ok_and(|number| number == 0.0)
}

/// Parses a rate in bits per second.
fn bit_rate(text: &str) -> Result<Rate, String> {
    if let Some((number, prefix)) = ambiguous_rate(text) {
        let bytes = number * 8.0;
        let byte_prefix = if prefix == 'k' { 'k' } else { prefix.to_ascii_uppercase() };
        return Err(format!(
            "{text:?} is ambiguous: write {number}{prefix}bit for bits per second, or \
             {number}{byte_prefix}B/s ({bytes}{prefix}bit) for bytes per second"
        ));
    }
    text.parse().map_err(|e: UnitError| e.to_string())
}

/// Number and prefix of a rate such as `10M` or `10Mb/s`: bits or bytes per second.
fn ambiguous_rate(text: &str) -> Option<(f64, char)> {
    let bare = text.trim_end_matches("/s").trim_end_matches(['B', 'b']);
    let prefix = bare.chars().last()?.to_ascii_lowercase();
    let number = bare[..bare.len() - prefix.len_utf8()].trim().parse::<f64>().ok()?;
    (matches!(prefix, 'k' | 'm' | 'g') && number.is_finite()).then_some((number, prefix))
}

/// Parses the total size of the receive windows, such as `4MB`.
pub(super) fn buffer(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    if bytes < MIN_BUFFER {
        return Err(format!(
            "the size is too small: the minimum is two segments, {} bytes",
            MIN_BUFFER.0
        ));
    }
    if bytes > MAX_BUFFER {
        return Err(format!(
            "the size is too large: the maximum is {MAX_BUFFER}, the windows of 64 streams"
        ));
    }
    Ok(bytes)
}

/// Parses a block size, such as `4MiB`.
pub(super) fn block(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    let Bytes(count) = bytes;
    let bad =
        || format!("{count} bytes is invalid: choose a power of two, 1MiB to 16MiB, such as 4MiB");
    if is_valid_block_size(bytes) { Ok(bytes) } else { Err(bad()) }
}

/// Parses the size of a file, such as `10MB` or `10MiB`.
pub(super) fn file_size(text: &str) -> Result<Bytes, String> {
    if let Some(letter) = text.chars().last().filter(|last| "kKmMgGtT".contains(*last)) {
        let (number, letter) = (&text[..text.len() - 1], letter.to_ascii_uppercase());
        return Err(format!(
            "{text:?} is ambiguous: write {number}{letter}B for powers of 1000, or {number}{letter}iB \
             for powers of 1024"
        ));
    }
    text.parse().map_err(|e: UnitError| e.to_string())
}

/// Parses a memory limit, such as `256MiB`.
pub(super) fn memory(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    if bytes < MIN_MEMORY_LIMIT {
        Err(format!("the limit is too small: the minimum is {MIN_MEMORY_LIMIT}"))
    } else {
        Ok(bytes)
    }
}

/// `--streams`: the number of data streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamCount {
    /// Tuned by the receiver.
    Auto,
    /// A fixed number.
    Fixed(u32),
}

/// Parses a number of data streams, or `auto`.
pub(super) fn stream_count(text: &str) -> Result<StreamCount, String> {
    match text {
        "auto" => Ok(StreamCount::Auto),
        _ => number(text, 1..=64)
            .map(StreamCount::Fixed)
            .map_err(|expected| format!("{expected}, or auto")),
    }
}

/// Parses a port to connect to.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    number(text, 1..=u16::MAX)
}

/// Parses a port, or a range of ports such as `7450-7459`.
pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports = port(first)?..=port(last)?;
    match ports.is_empty() {
        true => Err(format!("the range is empty: write {last}-{first}")),
        false => Ok(ports),
    }
}

/// Parses the connection limit of a daemon.
pub(super) fn connections(text: &str) -> Result<usize, String> {
    number(text, 2..=65_535)
}

/// Parses the number of sources that may fail.
pub(super) fn failures(text: &str) -> Result<u32, String> {
    number(text, 0..=u32::MAX)
}

/// Parses a number of entries, or of directories.
pub(super) fn count<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "write a whole number, 0 or more".to_owned())
}

/// Parses a difference between times in seconds.
pub(super) fn time_window(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(..=-1) => {
            Err("times are compared to the nanosecond without it: leave it out".to_owned())
        }
        _ => count(text),
    }
}

/// Parses the size of a round, such as `4MiB`.
pub(super) fn round_size(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: UnitError| e.to_string())?;
    if bytes.0 == 0 { Err("the size must be larger than 0".to_owned()) } else { Ok(bytes) }
}

/// Parses a whole number within limits; the error names the limits.
fn number<N: FromStr + PartialOrd + Display>(
    text: &str,
    limits: RangeInclusive<N>,
) -> Result<N, String> {
    let found = text.parse().ok().filter(|number| limits.contains(number));
    found.ok_or_else(|| format!("write a number from {} to {}", limits.start(), limits.end()))
}

/// Parses a command line, see [`crate::shellsplit`].
pub(super) fn ssh_command(text: OsString) -> Result<SshCommand, String> {
    crate::shellsplit::split(&text).map(SshCommand)
}

/// Parses the file name of a report. The required ending protects a source that is named by
/// mistake, as the report overwrites its file.
pub(super) fn page(name: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    let is_page = path.extension().is_some_and(|kind| kind == "html" || kind == "htm");
    if is_page { Ok(path) } else { Err("the name of a report must end in .html".to_owned()) }
}

/// Parses `sha256:` and 64 hexadecimal digits.
pub(super) fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|e: bankfull::Error| e.to_string())
}

/// Parses `HOST:PORT`, `:PORT`, `PORT` or `HOST`; IPv6 addresses with a port are in brackets.
pub(crate) fn listen(text: &str) -> Result<Listen, String> {
    if text.is_empty() {
        return Err("the address is missing: write HOST:PORT, :PORT or PORT".to_owned());
    }
    if let Ok(port) = text.parse() {
        return Ok(Listen { host: String::new(), port });
    }
    if text.parse::<IpAddr>().is_ok() {
        return Ok(Listen { host: text.to_owned(), port: DEFAULT_PORT });
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("'[' without ']'")?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(number) => number.parse().map_err(|_| {
            format!("{number:?} is not a port: write 0 to 65535, where 0 chooses a free one")
        })?,
        None if port.is_empty() => DEFAULT_PORT,
        None => return Err(format!("unexpected {port:?} after the address: write [ADDRESS]:PORT")),
    };
    Ok(Listen { host: host.to_owned(), port })
}

/// Parses `HOST:PORT` or `:PORT`, where metrics are offered.
///
/// A port alone would leave open who may read them.
pub(super) fn metrics_address(text: &str) -> Result<Listen, String> {
    if text.parse::<u16>().is_ok() {
        return Err(format!(
            "the address is missing: write 127.0.0.1:{text} for this host alone, or :{text} for \
             every address"
        ));
    }
    if text.parse::<IpAddr>().is_ok() || !text.contains(':') || text.ends_with(']') {
        return Err("the port is missing: write HOST:PORT".to_owned());
    }
    listen(text)
}

/// Parses a public key of a client.
pub(super) fn client_key(text: &str) -> Result<ClientKey, String> {
    text.parse().map_err(|e: bankfull::Error| e.to_string())
}

/// Parses a name of a token, a share or a remote.
pub(super) fn plain_name(text: &str) -> Result<String, String> {
    match is_plain_name(text) {
        true => Ok(text.to_owned()),
        false => Err("write letters, digits, -, _ and . only, without a dot in front".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_accept_fractions_but_not_zero() {
        assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["0", "0.0", "-1", "nan", "inf", "1e99", "", "5s", "1e-30"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_accept_zero_where_it_has_a_meaning() {
        assert_eq!(seconds_or_none("0"), Ok(Duration::ZERO));
        assert_eq!(seconds_or_none("2.5"), Ok(Duration::from_millis(2500)));
        assert!(seconds_or_none("-1").is_err() && seconds_or_none("never").is_err());
    }

    #[test]
    fn rate_needs_a_unit_and_the_minimum() {
        assert_eq!(rate("1.5gbit"), Ok(Rate::from_bits_per_sec(1.5e9)));
        assert_eq!(rate("100kbit"), Ok(MIN_RATE_LIMIT));
        assert_eq!(rate("99kbit").unwrap_err(), "the rate is too low: the minimum is 100.0 kbit/s");
        assert_eq!(
            rate("10M").unwrap_err(),
            "\"10M\" is ambiguous: write 10mbit for bits per second, or 10MB/s \
             (80mbit) for bytes per second"
        );
        assert!(rate("12MB").unwrap_err().contains("12MB/s (96mbit) for bytes"));
        assert!(rate("12Mb/s").is_err() && rate("1kB/s").is_err());
        assert_eq!(rate("12MB/s"), rate("96mbit"));
        assert_eq!(rate("100kB/s"), rate("800kbit"));
        assert_eq!(rate("10MiB/s"), Ok(Rate::from_bits_per_sec(83_886_080.0)));
        assert_eq!(rate("10").unwrap_err(), "\"10\" is not a rate: write 100mbit, 1.5gbit …");
    }

    #[test]
    fn schedule_has_rates_of_the_usual_units() {
        let day = schedule("08:00-18:00=10MB/s,*=max").unwrap();
        assert_eq!(day.limit_at(8 * 60), Some(Rate::from_bits_per_sec(80e6)));
        assert_eq!(day.limit_at(0), None);
        for zero in ["0", "0mbit", "0.0", "0MB/s"] {
            let refused = schedule(&format!("08:00-18:00={zero},*=max")).unwrap_err();
            assert!(refused.contains("would pause the copy"), "{refused}");
            assert!(refused.ends_with("the minimum is 100.0 kbit/s"), "{refused}");
        }
        for (text, part) in [
            ("08:00-18:00=50mbit", "00:00 has no rate: add a range, or *=max"),
            ("*=10M", "\"10M\" is ambiguous"),
            ("*=1kbit", "the rate is too low"),
            ("*=fast", "\"fast\" is not a rate"),
        ] {
            let refused = schedule(text).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn buffer_is_in_bytes_with_two_segments_at_least() {
        assert_eq!(buffer("4MB"), Ok(Bytes(4_000_000)));
        assert_eq!(buffer("256KiB"), Ok(Bytes::kib(256)));
        assert_eq!(buffer("2896"), Ok(MIN_BUFFER));
        assert_eq!(buffer("64GiB"), Ok(MAX_BUFFER));
        assert!(buffer("65GiB").unwrap_err().contains("the maximum is"));
        assert!(buffer("2895").unwrap_err().contains("the minimum is two segments, 2896 bytes"));
        assert!(buffer("4mbit").unwrap_err().contains("write 64KiB, 300kB, 1.5MB"));
    }

    #[test]
    fn file_size_needs_an_unambiguous_unit() {
        assert_eq!(file_size("10MB"), Ok(Bytes(10_000_000)));
        assert_eq!(file_size("10MiB"), Ok(Bytes::mib(10)));
        assert_eq!((file_size("0"), file_size("4096")), (Ok(Bytes(0)), Ok(Bytes(4096))));
        let refused = file_size("10m").unwrap_err();
        assert!(refused.contains("10MB for powers of 1000, or 10MiB for powers"), "{refused}");
        for bad in ["", "big", "-1", "1.5.2MB", "10mbit"] {
            assert!(file_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn number_outside_the_limits_names_them() {
        assert_eq!((port("65535"), connections("2")), (Ok(65_535), Ok(2)));
        let streams = ["64", "1", "auto"].map(|text| stream_count(text).unwrap());
        assert_eq!(streams, [StreamCount::Fixed(64), StreamCount::Fixed(1), StreamCount::Auto]);
        for bad in ["0", "65", "four", "-1", "", "1e9", "99999999999"] {
            let wanted = "write a number from 1 to 64, or auto";
            assert_eq!(stream_count(bad).unwrap_err(), wanted, "{bad}");
        }
        for bad in ["-1", "many", "1.5", "", "99999999999999999999"] {
            assert_eq!(count::<u64>(bad).unwrap_err(), "write a whole number, 0 or more", "{bad}");
        }
        assert_eq!((count::<u64>("0"), time_window("2")), (Ok(0), Ok(2)));
        assert!(time_window("-1").unwrap_err().contains("to the nanosecond without it"));
        assert!(time_window("99999999999").unwrap_err().contains("a whole number"));
        assert_eq!(port("abc").unwrap_err(), "write a number from 1 to 65535");
        assert_eq!(connections("1").unwrap_err(), "write a number from 2 to 65535");
    }

    #[test]
    fn listen_address_may_omit_host_or_port() {
        let read = |text: &str| listen(text).map(|l| (l.host, l.port));
        assert_eq!(read(":99"), Ok((String::new(), 99)));
        assert_eq!(read("18250"), Ok((String::new(), 18_250)));
        assert_eq!(read("[::]:7440"), Ok(("::".to_owned(), 7440)));
        assert_eq!(read("127.0.0.1:0"), Ok(("127.0.0.1".to_owned(), 0)));
        assert_eq!(read("store.example:99"), Ok(("store.example".to_owned(), 99)));
        for host in ["store.example", "::1", "127.0.0.1"] {
            assert_eq!(read(host), Ok((host.to_owned(), DEFAULT_PORT)));
        }
        assert_eq!(read("[::1]"), Ok(("::1".to_owned(), DEFAULT_PORT)));
    }

    #[test]
    fn invalid_listen_address_is_refused() {
        for bad in ["", "host:", "host:x", "host:65536", "[::1", "[::1]99", "::1:99:x"] {
            assert!(listen(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn metrics_address_needs_host_and_port() {
        let address = |host: &str, port| Ok(Listen { host: host.to_owned(), port });
        assert_eq!(metrics_address("127.0.0.1:9440"), address("127.0.0.1", 9440));
        assert_eq!(metrics_address("[::1]:9440"), address("::1", 9440));
        assert_eq!(metrics_address(":9440"), address("", 9440));
        assert_eq!(metrics_address("localhost:0"), address("localhost", 0));
        let error = |text: &str| metrics_address(text).unwrap_err();
        assert_eq!(
            error("9440"),
            "the address is missing: write 127.0.0.1:9440 for this host alone, or :9440 for every \
             address"
        );
        for no_port in ["127.0.0.1", "::1", "[::1]", "host", ""] {
            assert_eq!(error(no_port), "the port is missing: write HOST:PORT", "{no_port}");
        }
    }
}
