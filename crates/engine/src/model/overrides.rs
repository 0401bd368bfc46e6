//! User settings that override automatic choices: rate limit, windows, congestion control, I/O.
//!
//! Both sides of a session have them: the client from its caller, the server from the request.

use super::io_method::IoMethod;
use super::options::DirectIo;
use super::rate_schedule::RateSchedule;
use super::throttle::Throttle;
use bankfull_control::pacing::DEFAULT_MSS;
use bankfull_control::{Bytes, Rate};
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::{MAX_BLOCK_BYTES, MAX_STREAMS, MIN_BLOCK_BYTES};
use bankfull_proto::wire::control::{self, Cause, Direction, Failure, Open};
use std::fs;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

/// Smallest rate limit. Below it, 64 streams that take turns would appear dead. (chosen: one
/// segment of each takes 8 s)
pub const MIN_RATE_LIMIT: Rate = Rate::from_bytes_per_sec(12_500);

/// Smallest total of the receive windows: two segments. (RFC 5681 §4.2: with one, the receiver
/// delays its ACK)
pub const MIN_BUFFER: Bytes = Bytes(2 * DEFAULT_MSS.0);

/// Largest total of the receive windows: 1 GiB for each of the maximum number of streams. (RFC 7323
/// §2.3: a TCP window is at most 65 535 scaled by 14 bits)
pub const MAX_BUFFER: Bytes = Bytes(MAX_STREAMS as u64 * (1 << 30));

/// Smallest rate limit with probes: packet trains take 0.3 MB, and probes 80 kbit/s. (chosen: a
/// quarter of a second, and one percent)
const MIN_RATE_FOR_PROBES: Rate = Rate::from_bytes_per_sec(1_250_000);

/// User settings that override automatic choices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// Maximum data rate of all streams together.
    pub(crate) rate_max: Option<Rate>,
    /// Rate limits by the time of day, on the client; the lower limit applies.
    pub(crate) schedule: Option<RateSchedule>,
    /// The client may change the rate limit, on the server.
    pub(crate) rate_changes: bool,
    /// Total of the receive windows of all streams.
    pub(crate) window: Option<Bytes>,
    /// Congestion control of the streams, on the sending side.
    pub(crate) congestion: Option<String>,
    /// I/O method of the sending side.
    pub(crate) io_method: Option<IoMethod>,
    /// Block size that the sending side uses.
    pub(crate) block: Option<Bytes>,
    /// Bypass of the page cache on both sides.
    pub(crate) direct: DirectIo,
}

impl Overrides {
    /// Reads the settings from a client's request.
    ///
    /// # Errors
    /// [`Cause::Usage`] for an unknown I/O method, with the known ones.
    pub(crate) fn from_open(open: &Open) -> Result<Self, Failure> {
        let is_sender = open.direction == Direction::Pull;
        let method = open.io_method.as_deref().filter(|_| is_sender).map(str::parse).transpose();
        Ok(Self {
            rate_max: open.rate_max.map(Rate::from_bytes_per_sec),
            schedule: None,
            rate_changes: open.rate_changes == Some(true),
            window: open.window.map(Bytes),
            congestion: open.congestion.clone(),
            io_method: method.map_err(|text: String| Failure::new(Cause::Usage, text))?,
            block: open.block_bytes.map(|bytes| Bytes(bytes.into())),
            direct: match open.direct {
                None => DirectIo::Auto,
                Some(true) => DirectIo::On,
                Some(false) => DirectIo::Off,
            },
        })
    }

    /// Writes the settings into a request.
    pub(crate) fn write_to(&self, open: &mut Open) {
        open.rate_max = self.rate_limit().map(Rate::bytes_per_sec);
        open.rate_changes = self.schedule.is_some().then_some(true);
        open.window = self.window.map(|window| window.0);
        open.congestion.clone_from(&self.congestion);
        open.io_method = self.io_method.map(|method| method.name().to_owned());
        open.block_bytes = self.block.and_then(|block| u32::try_from(block.0).ok());
        open.direct = match self.direct {
            DirectIo::Auto => None,
            DirectIo::On => Some(true),
            DirectIo::Off => Some(false),
        };
    }

    /// True if the user set nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if a setting has no effect without TCP data connections.
    pub(crate) fn needs_tcp(&self) -> bool {
        self.window.is_some() || self.congestion.is_some()
    }

    /// Returns the I/O method if it works only on unencrypted streams.
    pub(crate) fn unencrypted_io_method(&self) -> Option<IoMethod> {
        self.io_method.filter(|method| method.stays_in_kernel())
    }

    /// Checks the I/O method against the encryption of the data.
    ///
    /// # Errors
    /// [`Cause::Usage`] if the I/O method needs unencrypted streams, with the alternatives.
    pub(crate) fn check_encryption(&self, is_encrypted: bool) -> Result<(), Failure> {
        let Some(method) = self.unencrypted_io_method().filter(|_| is_encrypted) else {
            return Ok(());
        };
        let text = format!(
            "I/O method {method} cannot encrypt: add --no-encryption, or choose buffered, mmap \
             or io_uring"
        );
        Err(Failure::new(Cause::Usage, text))
    }

    /// Returns the present rate limit: the lower one of the maximum and the schedule.
    pub(crate) fn rate_limit(&self) -> Option<Rate> {
        let scheduled = self.schedule.as_ref().and_then(RateSchedule::limit);
        self.rate_max.into_iter().chain(scheduled).min()
    }

    /// Returns the lowest rate limit of the day.
    pub(crate) fn lowest_rate_limit(&self) -> Option<Rate> {
        let scheduled = self.schedule.as_ref().and_then(RateSchedule::lowest_limit);
        self.rate_max.into_iter().chain(scheduled).min()
    }

    /// True if the rate limit leaves room for probes and packet trains.
    pub(crate) fn allows_probes(&self) -> bool {
        self.lowest_rate_limit().is_none_or(|rate| rate >= MIN_RATE_FOR_PROBES)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`Cause::Usage`] for an invalid value, with the valid ones.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check_rate_limit(self.lowest_rate_limit())?;
        if let Some(window) = self.window.filter(|&window| window < MIN_BUFFER) {
            let text = format!(
                "buffer {window} is smaller than two segments: choose {MIN_BUFFER} or more"
            );
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(window) = self.window.filter(|&window| window > MAX_BUFFER) {
            let text = format!("buffer {window} is too large: choose {MAX_BUFFER} or less");
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(method) = self.io_method.filter(|method| !method.is_for_copies()) {
            let text =
                format!("I/O method {method} is for measurements only, with bankfull-lab io");
            return Err(Failure::new(Cause::Usage, text));
        }
        let through_cache = self.io_method.filter(|&method| method != IoMethod::IoUring);
        if let Some(method) = through_cache.filter(|_| self.direct == DirectIo::On) {
            let text = format!(
                "I/O method {method} (--io) reads through the page cache, which --direct on \
                 forbids: leave out --io or --direct, or choose --io io_uring"
            );
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(block) = self.block.filter(|&block| !is_valid_block_size(block)) {
            let (min, max) = (Bytes(MIN_BLOCK_BYTES.into()), Bytes(MAX_BLOCK_BYTES.into()));
            let text =
                format!("block size {block} is invalid: choose a power of two from {min} to {max}");
            return Err(Failure::new(Cause::Usage, text));
        }
        let name = self.congestion.as_deref();
        let checked = name.map_or(Ok(()), control::check_congestion);
        checked.map_err(|bad| Failure::new(Cause::Usage, bad.to_string()))
    }

    /// Checks that this host, as the sender, supports the settings.
    ///
    /// # Errors
    /// [`Cause::Usage`] for an unsupported setting, with the alternatives and the way to enable it.
    pub(crate) fn check_sender(&self) -> Result<(), Failure> {
        if self.io_method == Some(IoMethod::IoUring) && !IoMethod::IoUring.is_available() {
            let text = "io_uring is unavailable on the sending host: choose another I/O method, \
                        or check there sysctl kernel.io_uring_disabled, the restrictions of its \
                        container, and whether bankfull was built with it";
            return Err(Failure::new(Cause::Usage, text));
        }
        let Some(name) = &self.congestion else { return Ok(()) };
        let socket = |domain| socket2::Socket::new(domain, socket2::Type::STREAM, None);
        let socket = socket(socket2::Domain::IPV4).or_else(|_| socket(socket2::Domain::IPV6));
        let tried = socket.and_then(|socket| bankfull_sys::set_congestion_control(&socket, name));
        tried.map_err(|error| {
            congestion_failure(
                name,
                &error,
                &congestion_controls("available"),
                &congestion_controls("allowed"),
            )
        })
    }

    /// Applies the congestion control to a stream that will send. Other sockets than TCP have none.
    pub(crate) fn apply_to_sender(&self, socket: Option<&TcpStream>) -> Result<(), Failure> {
        let (Some(name), Some(socket)) = (&self.congestion, socket) else { return Ok(()) };
        let set = bankfull_sys::set_congestion_control(socket, name);
        set.map_err(|error| {
            congestion_failure(
                name,
                &error,
                &congestion_controls("available"),
                &congestion_controls("allowed"),
            )
        })
    }

    /// True if nothing but the rate is set.
    pub(crate) fn fits_local_copy(&self) -> bool {
        Self { rate_max: None, schedule: None, ..self.clone() }.is_empty()
    }

    /// Returns the throttle of the sending side, unless the rate is never limited.
    pub(crate) fn throttle(&self) -> Option<Arc<Throttle>> {
        let (limit, may_change) = (self.rate_limit(), self.schedule.is_some() || self.rate_changes);
        (limit.is_some() || may_change).then(|| Arc::new(Throttle::new(limit)))
    }
}

/// Checks a rate limit, if there is one.
///
/// # Errors
/// [`Cause::Usage`] for one that is too low, with the lowest.
pub(crate) fn check_rate_limit(limit: Option<Rate>) -> Result<(), Failure> {
    let Some(rate) = limit.filter(|&rate| rate < MIN_RATE_LIMIT) else { return Ok(()) };
    let text = format!("rate limit {rate} is too low: choose {MIN_RATE_LIMIT} or more");
    Err(Failure::new(Cause::Usage, text))
}

/// True if files can be split into blocks of this size.
#[must_use]
pub fn is_valid_block_size(size: Bytes) -> bool {
    u32::try_from(size.0).is_ok_and(|bytes| Layout::new(0, bytes).is_ok())
}

/// Lists this host's congestion controls: all `available` ones, or those `allowed` to any user.
fn congestion_controls(which: &str) -> String {
    let file = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
    let names = fs::read_to_string(&file).unwrap_or_default();
    let names: Vec<&str> = names.split_whitespace().collect();
    if names.is_empty() { format!("those in {file}") } else { names.join(", ") }
}

/// Describes why a congestion control is unavailable on this host, with the alternatives.
fn congestion_failure(name: &str, error: &io::Error, available: &str, allowed: &str) -> Failure {
    let text = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "the sending host has no congestion control {name}: choose one of {available}, or load \
             it there as root with modprobe tcp_{name}"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "the sending host allows congestion control {name} only to root: choose one of \
             {allowed}, or add it there as root to sysctl net.ipv4.tcp_allowed_congestion_control"
        ),
        _ => format!(
            "the sending host cannot use congestion control {name} ({}): choose one of {allowed}",
            crate::base::error::os_message(error)
        ),
    };
    Failure::new(Cause::Usage, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_control::Schedule;
    use bankfull_proto::wire::control::Fsync;

    fn open() -> Open {
        Open {
            direction: Direction::Pull,
            paths: Vec::new(),
            sources: Vec::new(),
            fsync: Fsync::None,
            checksum: false,
            dry_run: false,
            unencrypted: false,
            streams: 1,
            timeout_ms: 0,
            ..Open::default()
        }
    }

    #[test]
    fn rate_limit_too_low_is_refused() {
        let check = |bytes| {
            let rate_max = Some(Rate::from_bytes_per_sec(bytes));
            Overrides { rate_max, ..Overrides::default() }.check()
        };
        assert_eq!((check(12_500), Overrides::default().check()), (Ok(()), Ok(())));
        let failure = check(125).unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert_eq!(failure.text, "rate limit 1.0 kbit/s is too low: choose 100.0 kbit/s or more");
    }

    #[test]
    fn schedule_and_maximum_limit_by_the_lower_one() {
        let parse = |rate: &str| rate.parse().map_err(|_| rate.to_owned());
        let at = |text: &str, minute| {
            let schedule = Schedule::parse(text, parse).unwrap();
            let schedule = Some(RateSchedule::at(schedule, minute));
            let rate_max = Some(Rate::from_bits_per_sec(20e6));
            Overrides { rate_max, schedule, ..Overrides::default() }
        };
        let text = "00:00-12:00=5mbit,12:00-18:00=80mbit,*=max";
        let limits = [0, 12, 18].map(|hour| at(text, hour * 60).rate_limit());
        assert_eq!(limits, [5e6, 20e6, 20e6].map(|bits| Some(Rate::from_bits_per_sec(bits))));
        let noon = at(text, 12 * 60);
        assert!(noon.fits_local_copy() && !noon.is_empty() && !noon.allows_probes());
        let mut open = open();
        noon.write_to(&mut open);
        assert_eq!((open.rate_max, open.rate_changes), (Some(2_500_000), Some(true)));
        let server = Overrides::from_open(&open).unwrap();
        assert!(server.rate_changes && server.throttle().is_some());
        // One that is too low at another time of the day is refused at once.
        let failure = at("00:00-12:00=1kbit,*=max", 18 * 60).check().unwrap_err();
        assert!(failure.text.contains("1.0 kbit/s is too low"), "{}", failure.text);
    }

    #[test]
    fn buffer_out_of_range_is_refused() {
        let check =
            |bytes| Overrides { window: Some(Bytes(bytes)), ..Overrides::default() }.check();
        assert_eq!(check(2_896), Ok(()));
        let failure = check(2_895).unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert_eq!(
            failure.text,
            "buffer 2.8 KiB is smaller than two segments: choose 2.8 KiB or more"
        );
        assert_eq!(check(MAX_BUFFER.0), Ok(()));
        let failure = check(MAX_BUFFER.0 + 1).unwrap_err();
        assert_eq!(failure.text, "buffer 64.0 GiB is too large: choose 64.0 GiB or less");
    }

    #[test]
    fn overrides_survive_the_request() {
        let set = Overrides {
            rate_max: Some(Rate::from_bits_per_sec(1e9)),
            schedule: None,
            rate_changes: false,
            window: Some(Bytes(4_000_000)),
            congestion: Some("reno".to_owned()),
            io_method: Some(IoMethod::IoUring),
            block: Some(Bytes::mib(4)),
            direct: DirectIo::Off,
        };
        let mut open = open();
        assert!(Overrides::from_open(&open).unwrap().is_empty());
        set.write_to(&mut open);
        assert_eq!(Overrides::from_open(&open), Ok(set));
        open.io_method = Some("floppy".to_owned());
        assert!(Overrides::from_open(&open).unwrap_err().text.contains("choose"));
    }

    #[test]
    fn invalid_block_sizes_and_io_methods_are_refused() {
        let check = |bytes| Overrides { block: Some(Bytes(bytes)), ..Overrides::default() }.check();
        assert_eq!(check(4 << 20), Ok(()));
        for bad in [0, 1000, 3 << 20, 1 << 33] {
            let text = check(bad).unwrap_err().text;
            assert!(text.contains("a power of two from 1.0 MiB to 16.0 MiB"), "{text}");
        }
        let with_method =
            |method| Overrides { io_method: Some(method), ..Overrides::default() }.check();
        assert_eq!(with_method(IoMethod::Mmap), Ok(()));
        let text = with_method(IoMethod::Stream).unwrap_err().text;
        assert!(text.contains("for measurements only"), "{text}");
        let both = Overrides {
            io_method: Some(IoMethod::Splice),
            direct: DirectIo::On,
            ..Overrides::default()
        };
        assert!(both.check().unwrap_err().text.contains("leave out --io or --direct"));
        let with_method = |method| Overrides { io_method: Some(method), ..both.clone() }.check();
        assert!(with_method(IoMethod::Mmap).is_err() && with_method(IoMethod::IoUring).is_ok());
    }

    fn with_congestion(name: &str) -> Overrides {
        Overrides { congestion: Some(name.to_owned()), ..Overrides::default() }
    }

    #[test]
    fn unknown_congestion_control_is_refused_with_alternatives() {
        assert_eq!(
            (with_congestion("reno").check(), with_congestion("reno").check_sender()),
            (Ok(()), Ok(()))
        );
        assert_eq!(with_congestion("no-such").check(), Ok(()));
        let failure = with_congestion("no-such").check_sender().unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        for part in ["the sending host has no congestion control no-such", "reno", "modprobe"] {
            assert!(failure.text.contains(part), "{part} is missing in {}", failure.text);
        }
        let failure = with_congestion("Reno!").check().unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert!(failure.text.contains("congestion control"), "{}", failure.text);
    }

    #[test]
    fn congestion_failure_names_the_allowed_ones() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            congestion_failure("bbr", &denied, "reno, bbr", "reno").text,
            "the sending host allows congestion control bbr only to root: choose one of reno, or \
             add it there as root to sysctl net.ipv4.tcp_allowed_congestion_control"
        );
        let other = io::Error::from_raw_os_error(12);
        let text = congestion_failure("bbr", &other, "reno, bbr", "reno").text;
        assert!(
            text.contains("cannot use congestion control bbr (cannot allocate memory)"),
            "{text}"
        );
    }

    #[test]
    fn congestion_control_applies_to_tcp_only() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        with_congestion("reno").apply_to_sender(Some(&near)).unwrap();
        assert_eq!(bankfull_sys::congestion_control(&near).unwrap(), "reno");
        assert_eq!(
            with_congestion("no-such").apply_to_sender(Some(&near)).unwrap_err().cause(),
            Cause::Usage
        );
        assert_eq!(with_congestion("no-such").apply_to_sender(None), Ok(()));
    }
}
