//! Autotuning of a session's streams: the receiver sets windows and requests a rate, the sender
//! paces and reports the state of its connections.
//!
//! `bankfull_control::Controller` decides; this module samples sockets, exchanges reports and
//! probes, and applies the decisions.

mod bbr_switch;
mod buffer_advice;
pub(crate) mod incast;
pub(crate) mod monitor;
mod notsent_lowat;
mod probe_loss;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod socket_buffers;
pub(crate) mod telemetry;
mod trains;

use crate::base::sync::Latch;
use crate::session::Session;
use crate::transport::probe::{ProbeHandle, ProbePort};
use crate::transport::socket::clamp_window;
use bankfull_control::Bytes;
use bankfull_control::path_control::TICK as SAMPLE_INTERVAL;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Largest TCP window: 65 535 bytes scaled by 14 bits (RFC 7323 §2.3). As a target it limits
/// nothing.
const MAX_TCP_WINDOW: Bytes = Bytes(65_535 << 14);

/// Minimum interval for measuring each stream's use of its share; otherwise two RTTs. (chosen:
/// shorter pauses come from TCP itself)
const MIN_SHARE_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of the first registrations of a UDP address. (chosen: an RTT around the earth)
const REGISTER_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Number of registrations sent before the keepalive interval applies. (chosen: three retries)
const REGISTER_INITIAL_ATTEMPTS: u32 = 4;

/// Interval of later registrations, which refresh NAT bindings and report a changed address.
/// (chosen: a sixth of 30 s, after which Linux forgets a UDP binding, nf_conntrack_udp_timeout)
const REGISTER_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of times a receiver requests more packet trains. (spec/wire.md, section 16)
const MAX_TRAIN_REQUESTS: u32 = 2;

/// UDP channel of a session, for probes and packet trains.
pub(crate) struct ProbeChannel {
    pub(crate) line: ProbeHandle,
    /// Peer address to register at. Set on the connecting side only.
    pub(crate) register_address: Option<SocketAddr>,
    /// The UDP port, if it serves only this session, which then runs it.
    pub(crate) own_port: Option<Arc<ProbePort>>,
}

/// Autotuning of a session's streams.
#[derive(Default)]
pub(crate) enum Autotune {
    /// The kernel alone controls the streams.
    #[default]
    Off,
    /// Tuned, with UDP probes if there is a channel for them.
    On(Option<Box<ProbeChannel>>),
}

/// Interval of receiver reports and of sample events.
const TELEMETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum interval between reported windows that change every few RTTs. (chosen: a line a second)
const WINDOW_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Factor between reported windows of one reason. (chosen: a step of slow start)
const WINDOW_REPORT_FACTOR: u64 = 2;

/// True if one window is at least [`WINDOW_REPORT_FACTOR`] times the other.
fn is_factor_apart(a: Bytes, b: Bytes) -> bool {
    a.max(b).0 >= WINDOW_REPORT_FACTOR * a.min(b).0
}

/// Returns the number of CPUs available to this process. Read once: it takes a dozen system calls.
fn available_cpus() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let count = std::thread::available_parallelism();
        count.map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
    })
}

/// Clamps the receive windows to the user's setting until the session is over.
///
/// The clamp is repeated at each sample because the kernel raises windows by itself.
pub(crate) fn clamp_windows(session: &Session, over: &Latch) {
    while let Some(share) = session.window_share() {
        session.for_each_stream(|_, socket| {
            clamp_window(socket, share);
        });
        if over.wait(SAMPLE_INTERVAL) {
            return;
        }
    }
}

/// Selects the ticks at which connections are sampled.
#[derive(Default)]
struct SampleClock {
    next: Duration,
}

impl SampleClock {
    /// Makes the next tick due.
    fn force_next(&mut self) {
        self.next = Duration::ZERO;
    }

    /// True if this tick is due. `is_halved` selects every second tick. Called at every tick.
    fn poll_due(&mut self, now: Duration, is_halved: bool) -> bool {
        // Half an interval of tolerance, because ticks may be late.
        let is_due = now + SAMPLE_INTERVAL / 2 >= self.next;
        if is_due {
            self.next = now + if is_halved { SAMPLE_INTERVAL * 2 } else { SAMPLE_INTERVAL };
        }
        is_due
    }
}

/// Registers this side's UDP address at the peer and keeps the registration alive.
struct ProbeRegistrar {
    address: Option<SocketAddr>,
    next: Duration,
    attempts: u32,
    /// The missing response was returned by `poll_unanswered`.
    is_reported: bool,
}

impl ProbeRegistrar {
    fn new(address: Option<SocketAddr>) -> Self {
        Self { address, next: Duration::ZERO, attempts: 0, is_reported: false }
    }

    /// Registers if due. Returns whether the peer's UDP address is known.
    fn poll(&mut self, line: &mut ProbeHandle, now: Duration) -> bool {
        let is_known = line.address().is_some();
        if let Some(address) = self.address
            && now >= self.next
        {
            self.attempts += 1;
            let is_initial = self.attempts < REGISTER_INITIAL_ATTEMPTS && !is_known;
            let interval =
                if is_initial { REGISTER_RETRY_INTERVAL } else { REGISTER_KEEPALIVE_INTERVAL };
            self.next = now + interval;
            // A failure shows as a missing response.
            let _ = line.register(address);
        }
        is_known
    }

    /// Returns the address that did not respond to the initial registrations, once.
    fn poll_unanswered(&mut self, is_known: bool, now: Duration) -> Option<SocketAddr> {
        let deadline = REGISTER_RETRY_INTERVAL * (REGISTER_INITIAL_ATTEMPTS + 1);
        let is_unanswered = !is_known && !self.is_reported && now > deadline;
        self.is_reported |= is_unanswered;
        self.address.filter(|_| is_unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::overrides::Overrides;
    use crate::transport::socket::Socket;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread;

    #[test]
    fn sample_clock_halves_the_ticks_unless_forced() {
        let due_ticks = |is_halved| {
            let mut clock = SampleClock::default();
            // Every second tick is 2 ms late.
            let ticks =
                (0..100).map(|tick| SAMPLE_INTERVAL * tick + Duration::from_millis(2) * (tick % 2));
            ticks.filter(|&now| clock.poll_due(now, is_halved)).count()
        };
        assert_eq!((due_ticks(false), due_ticks(true)), (100, 50));
        let mut clock = SampleClock::default();
        let tick = SAMPLE_INTERVAL;
        assert!(clock.poll_due(tick, true) && !clock.poll_due(tick * 2, true));
        clock.force_next();
        assert!(clock.poll_due(tick * 2, true));
    }

    #[test]
    fn user_window_stays_clamped_while_data_flows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = Socket::Tcp(listener.accept().unwrap().0);
        let overrides = Overrides { window: Some(Bytes::kib(256)), ..Overrides::default() };
        let session = Session::new(overrides, 1);
        session.add_stream(0, &receiver).unwrap();
        let over = Latch::default();
        let mut windows = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| clamp_windows(&session, &over));
            scope.spawn(|| {
                let mut buffer = vec![0; 1 << 20];
                while receiver.read(&mut buffer).is_ok_and(|n| n > 0) {}
            });
            for _ in 0..200 {
                sender.write_all(&[0; 1 << 18]).unwrap();
                windows.extend(bankfull_sys::tcp_info(&sender).unwrap().snd_wnd);
                thread::sleep(Duration::from_millis(1));
            }
            sender.shutdown(Shutdown::Both).unwrap();
            over.set();
        });
        // The kernel may raise the window between two samples, so only the median is tested.
        windows.sort_unstable();
        let median = windows.get(windows.len() / 2).copied().unwrap_or_default();
        assert!(((128 << 10)..=(256 << 10) + (16 << 10)).contains(&median), "{median}");
    }
}
