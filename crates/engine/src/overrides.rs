//! What a user has set that the path or the system would else decide: the most data per second,
//! windows, the congestion control, how files are read and sent.
//!
//! Both sides of a session know it: the client from its caller, the server from the request.

use crate::block_io::IoMethod;
use crate::net::socket::Socket;
use crate::options::DirectIo;
use crate::throttle::Throttle;
use bankfull_control::pacing::DEFAULT_MSS;
use bankfull_control::{Bytes, Rate};
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::{MAX_BLOCK_BYTES, MAX_STREAMS, MIN_BLOCK_BYTES};
use bankfull_proto::wire::control::{self, Cause, Direction, Failure, Open};
use std::fs;
use std::io;
use std::sync::Arc;

/// The least that may be chosen as the most data per second: at less, 64 connections that take
/// turns would look dead. (ours: a segment of each then takes 8 s)
pub const RATE_MAX_LEAST: Rate = Rate::from_bytes_per_sec(12_500);

/// The least that may be chosen for the receive windows: two segments. (RFC 5681 §4.2: with one,
/// the receiver holds back its acknowledgement)
pub const BUFFER_LEAST: Bytes = Bytes(2 * DEFAULT_MSS.0);

/// The most: 1 GiB for each of as many connections as there may be. (RFC 7323 §2.3: TCP can tell
/// no larger window than that, 65 535 scaled by 14 bits)
pub const BUFFER_MOST: Bytes = Bytes(MAX_STREAMS as u64 * (1 << 30));

/// Where less is allowed per second, no datagrams measure the path: packet trains are 0.3 MB, and
/// probes 80 kbit/s. (ours: a quarter of a second, and one percent)
const DATAGRAMS_LEAST: Rate = Rate::from_bytes_per_sec(1_250_000);

/// What a user has set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// The most data per second, of all data connections together.
    pub(crate) rate_max: Option<Rate>,
    /// The receive windows of all data connections together.
    pub(crate) window: Option<Bytes>,
    /// The congestion control of the data connections, on the side that sends.
    pub(crate) congestion: Option<String>,
    /// The engine that takes bytes from files to connections, on the side that sends.
    pub(crate) engine: Option<IoMethod>,
    /// The blocks into which that side cuts files.
    pub(crate) block: Option<Bytes>,
    /// Whether both sides pass their page caches by.
    pub(crate) direct: DirectIo,
}

impl Overrides {
    /// What a client asks for.
    ///
    /// # Errors
    /// [`Cause::Usage`] for an engine that is not known here, with those that are.
    pub(crate) fn of(open: &Open) -> Result<Self, Failure> {
        let is_sender = open.direction == Direction::Pull;
        let engine = open.engine.as_deref().filter(|_| is_sender).map(str::parse).transpose();
        Ok(Self {
            rate_max: open.rate_max.map(Rate::from_bytes_per_sec),
            window: open.window.map(Bytes),
            congestion: open.congestion.clone(),
            engine: engine.map_err(|text: String| Failure::new(Cause::Usage, text))?,
            block: open.block_bytes.map(|bytes| Bytes(bytes.into())),
            direct: match open.direct {
                None => DirectIo::Auto,
                Some(true) => DirectIo::On,
                Some(false) => DirectIo::Off,
            },
        })
    }

    /// Writes it into a request.
    pub(crate) fn write(&self, open: &mut Open) {
        open.rate_max = self.rate_max.map(Rate::bytes_per_sec);
        open.window = self.window.map(|window| window.0);
        open.congestion.clone_from(&self.congestion);
        open.engine = self.engine.map(|engine| engine.name().to_owned());
        open.block_bytes = self.block.and_then(|block| u32::try_from(block.0).ok());
        open.direct = match self.direct {
            DirectIo::Auto => None,
            DirectIo::On => Some(true),
            DirectIo::Off => Some(false),
        };
    }

    /// Whether all is left to the path.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether something of it is lost where data has no TCP connections of its own.
    pub(crate) fn need_tcp(&self) -> bool {
        self.window.is_some() || self.congestion.is_some()
    }

    /// The engine, where it has no effect on data connections that are encrypted.
    pub(crate) fn need_plain(&self) -> Option<IoMethod> {
        self.engine.filter(|engine| engine.stays_in_kernel())
    }

    /// Whether it can be done where data is encrypted, or not.
    ///
    /// # Errors
    /// [`Cause::Usage`], with what can be done about it.
    pub(crate) fn check_encryption(&self, is_encrypted: bool) -> Result<(), Failure> {
        let Some(engine) = self.need_plain().filter(|_| is_encrypted) else { return Ok(()) };
        let text = format!(
            "engine {engine} sends bytes as they are in the file: add --no-encryption, or choose \
             buffered, mmap or io_uring"
        );
        Err(Failure::new(Cause::Usage, text))
    }

    /// Whether there is room for datagrams beside the data.
    pub(crate) fn allow_datagrams(&self) -> bool {
        self.rate_max.is_none_or(|rate| rate >= DATAGRAMS_LEAST)
    }

    /// Whether it can be done at all.
    ///
    /// # Errors
    /// [`Cause::Usage`], with what can be chosen.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if let Some(rate) = self.rate_max.filter(|&rate| rate < RATE_MAX_LEAST) {
            let text = format!("at most {rate}: choose {RATE_MAX_LEAST} or more");
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(window) = self.window.filter(|&window| window < BUFFER_LEAST) {
            let text = format!("a buffer of {window}: choose two segments or more, {BUFFER_LEAST}");
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(window) = self.window.filter(|&window| window > BUFFER_MOST) {
            let text = format!("a buffer of {window}: choose no more than {BUFFER_MOST}");
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(engine) = self.engine.filter(|engine| !engine.is_for_copies()) {
            let text = format!("engine {engine} is only to be measured, with bankfull-lab io");
            return Err(Failure::new(Cause::Usage, text));
        }
        let through_cache = self.engine.filter(|&engine| engine != IoMethod::IoUring);
        if let Some(engine) = through_cache.filter(|_| self.direct == DirectIo::On) {
            let text = format!(
                "engine {engine} (--io) reads through the page cache, which --direct on forbids: \
                 leave out --io or --direct, or choose --io io_uring"
            );
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(block) = self.block.filter(|&block| !is_block(block)) {
            let (least, most) = (Bytes(MIN_BLOCK_BYTES.into()), Bytes(MAX_BLOCK_BYTES.into()));
            let text = format!("blocks of {block}: choose a power of two, {least} to {most}");
            return Err(Failure::new(Cause::Usage, text));
        }
        let name = self.congestion.as_deref();
        let checked = name.map_or(Ok(()), control::check_congestion);
        checked.map_err(|bad| Failure::new(Cause::Usage, bad.to_string()))
    }

    /// Whether this host, which will send, can do it.
    ///
    /// # Errors
    /// [`Cause::Usage`], with what can be chosen and how to have more.
    pub(crate) fn check_sender(&self) -> Result<(), Failure> {
        if self.engine == Some(IoMethod::IoUring) && !IoMethod::IoUring.is_available() {
            let text = "the sending host does not let us have io_uring (see there sysctl \
                        kernel.io_uring_disabled, what its container forbids, and whether bankfull \
                        was built with it): choose another engine";
            return Err(Failure::new(Cause::Usage, text));
        }
        let Some(name) = &self.congestion else { return Ok(()) };
        let socket = |domain| socket2::Socket::new(domain, socket2::Type::STREAM, None);
        let socket = socket(socket2::Domain::IPV4).or_else(|_| socket(socket2::Domain::IPV6));
        let tried = socket.and_then(|socket| bankfull_sys::set_congestion_control(&socket, name));
        tried.map_err(|error| unusable(name, &error, &listed("available"), &listed("allowed")))
    }

    /// Readies a connection to send. What goes through ssh has no congestion control of its own.
    pub(crate) fn ready_sender(&self, socket: &Socket) -> Result<(), Failure> {
        let (Some(name), Socket::Tcp(socket)) = (&self.congestion, socket) else { return Ok(()) };
        let set = bankfull_sys::set_congestion_control(socket, name);
        set.map_err(|error| unusable(name, &error, &listed("available"), &listed("allowed")))
    }

    /// What holds the connections of a side that sends.
    pub(crate) fn throttle(&self) -> Option<Arc<Throttle>> {
        self.rate_max.map(|rate| Arc::new(Throttle::new(rate)))
    }
}

/// Whether files can be cut into blocks of this size.
#[must_use]
pub fn is_block(size: Bytes) -> bool {
    u32::try_from(size.0).is_ok_and(|bytes| Layout::new(0, bytes).is_ok())
}

/// The congestion controls that this host has, or allows to everybody.
fn listed(which: &str) -> String {
    let file = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
    let names = fs::read_to_string(&file).unwrap_or_default();
    let names: Vec<&str> = names.split_whitespace().collect();
    if names.is_empty() { format!("those in {file}") } else { names.join(", ") }
}

/// Why a congestion control cannot be had on this host, and what can be done.
fn unusable(name: &str, error: &io::Error, available: &str, allowed: &str) -> Failure {
    let text = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "the sending host has no congestion control {name}: choose one of {available}, or load \
             it there as root with modprobe tcp_{name}"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "the sending host allows congestion control {name} to root alone: choose one of \
             {allowed}, or add it there as root to sysctl net.ipv4.tcp_allowed_congestion_control"
        ),
        _ => format!(
            "the sending host cannot use congestion control {name} ({}): choose one of {allowed}",
            crate::error::os_message(error)
        ),
    };
    Failure::new(Cause::Usage, text)
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_rate_that_is_too_low_is_refused_with_the_least_one() {
        let of = |bytes| {
            let rate_max = Some(Rate::from_bytes_per_sec(bytes));
            Overrides { rate_max, ..Overrides::default() }.check()
        };
        assert_eq!((of(12_500), Overrides::default().check()), (Ok(()), Ok(())));
        let failure = of(125).unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert_eq!(failure.text, "at most 1.0 kbit/s: choose 100.0 kbit/s or more");
    }

    #[test]
    fn a_buffer_that_holds_no_two_segments_or_more_than_tcp_can_tell_is_refused() {
        let of = |bytes| Overrides { window: Some(Bytes(bytes)), ..Overrides::default() }.check();
        assert_eq!(of(2_896), Ok(()));
        let failure = of(2_895).unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert_eq!(failure.text, "a buffer of 2.8 KiB: choose two segments or more, 2.8 KiB");
        assert_eq!(of(BUFFER_MOST.0), Ok(()));
        let failure = of(BUFFER_MOST.0 + 1).unwrap_err();
        assert_eq!(failure.text, "a buffer of 64.0 GiB: choose no more than 64.0 GiB");
    }

    #[test]
    fn a_request_carries_all_of_it() {
        let set = Overrides {
            rate_max: Some(Rate::from_bits_per_sec(1e9)),
            window: Some(Bytes(4_000_000)),
            congestion: Some("reno".to_owned()),
            engine: Some(IoMethod::IoUring),
            block: Some(Bytes::mib(4)),
            direct: DirectIo::Off,
        };
        let mut open = open();
        assert!(Overrides::of(&open).unwrap().is_empty());
        set.write(&mut open);
        assert_eq!(Overrides::of(&open), Ok(set));
        open.engine = Some("floppy".to_owned());
        assert!(Overrides::of(&open).unwrap_err().text.contains("choose"));
    }

    #[test]
    fn blocks_and_engines_that_cannot_be_are_refused_with_those_that_can() {
        let of = |bytes| Overrides { block: Some(Bytes(bytes)), ..Overrides::default() }.check();
        assert_eq!(of(4 << 20), Ok(()));
        for bad in [0, 1000, 3 << 20, 1 << 33] {
            let text = of(bad).unwrap_err().text;
            assert!(text.contains("a power of two, 1.0 MiB to 16.0 MiB"), "{text}");
        }
        let by = |engine| Overrides { engine: Some(engine), ..Overrides::default() }.check();
        assert_eq!(by(IoMethod::Mmap), Ok(()));
        let text = by(IoMethod::Stream).unwrap_err().text;
        assert!(text.contains("only to be measured"), "{text}");
        let both = Overrides { engine: Some(IoMethod::Splice), direct: DirectIo::On, ..by_nothing() };
        assert!(both.check().unwrap_err().text.contains("leave out --io or --direct"));
        let by = |engine| Overrides { engine: Some(engine), ..both.clone() }.check();
        assert!(by(IoMethod::Mmap).is_err() && by(IoMethod::IoUring).is_ok());
    }

    fn by_nothing() -> Overrides {
        Overrides::default()
    }

    fn by(name: &str) -> Overrides {
        Overrides { congestion: Some(name.to_owned()), ..Overrides::default() }
    }

    #[test]
    fn a_congestion_control_that_is_not_there_is_refused_with_those_that_are() {
        assert_eq!((by("reno").check(), by("reno").check_sender()), (Ok(()), Ok(())));
        assert_eq!(by("no-such").check(), Ok(()));
        let failure = by("no-such").check_sender().unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        for part in ["the sending host has no congestion control no-such", "reno", "modprobe"] {
            assert!(failure.text.contains(part), "{part} is missing in {}", failure.text);
        }
        let failure = by("Reno!").check().unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert!(failure.text.contains("is no name of a congestion control"), "{}", failure.text);
    }

    #[test]
    fn what_users_may_not_have_is_told_with_what_they_may() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            unusable("bbr", &denied, "reno, bbr", "reno").text,
            "the sending host allows congestion control bbr to root alone: choose one of reno, or \
             add it there as root to sysctl net.ipv4.tcp_allowed_congestion_control"
        );
        let other = io::Error::from_raw_os_error(12);
        let text = unusable("bbr", &other, "reno, bbr", "reno").text;
        assert!(
            text.contains("cannot use congestion control bbr (cannot allocate memory)"),
            "{text}"
        );
    }

    #[test]
    fn a_connection_gets_it_and_one_through_ssh_needs_none() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::Tcp(near.try_clone().unwrap());
        by("reno").ready_sender(&socket).unwrap();
        assert_eq!(bankfull_sys::congestion_control(&near).unwrap(), "reno");
        assert_eq!(by("no-such").ready_sender(&socket).unwrap_err().cause(), Cause::Usage);
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(by("no-such").ready_sender(&Socket::Unix(one)), Ok(()));
    }
}
