//! Staggered start of a session's streams.
//!
//! TCP sends the ten segments of an initial window at once and paces only what follows
//! (tcp_update_skb_after_send, net/ipv4/tcp_output.c). The initial windows of many streams together
//! overflow a shallow queue, so the streams start as evenly as TCP's own pacing would send them.
//! Only a few of them start before the receiver has evaluated the packet trains.

use super::probe::MIN_PROBE_TIMEOUT;
use super::socket::Socket;
use crate::base::sync::{Latch, lock};
use bankfull_control::streams::MIN_INITIAL_STREAMS;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Fraction of an RTT within which all streams start: slow start is paced at two windows per RTT
/// (`tcp_pacing_ss_ratio`, ip-sysctl.rst).
const STAGGER_RTT_FRACTION: f64 = 0.5;

/// Staggers the start of streams.
pub(crate) struct StartStagger {
    /// Planned number of streams.
    planned: u32,
    /// Earliest start of the next stream.
    next: Mutex<Instant>,
    /// Set when all streams may start.
    released: Latch,
}

impl StartStagger {
    pub(crate) fn new(planned: u32) -> Self {
        Self { planned, next: Mutex::new(Instant::now()), released: Latch::default() }
    }

    /// Starts the streams that wait for the receiver's first request.
    pub(crate) fn release(&self) {
        self.released.set();
    }

    /// Enables TCP pacing on a stream that is about to send. Waits for its start time.
    ///
    /// Does nothing over short paths.
    pub(crate) fn wait(&self, number: u32, socket: &Socket) {
        let Socket::Tcp(tcp) = socket else { return };
        let rtt = socket.tcp_info().and_then(|info| info.min_rtt).unwrap_or_default();
        if rtt < MIN_PACING_RTT {
            return;
        }
        // If the kernel cannot pace, it sends as usual.
        let _ = bankfull_sys::set_pacing(tcp, Some(UNLIMITED_PACING_RATE));
        // The receiver waits as long for the capacity.
        self.hold(number, MIN_PROBE_TIMEOUT);
        let pause = self.reserve(Instant::now(), rtt.mul_f64(STAGGER_RTT_FRACTION));
        thread::sleep(pause);
    }

    /// Waits until a stream may start; returns false after `timeout`.
    fn hold(&self, number: u32, timeout: Duration) -> bool {
        number < MIN_INITIAL_STREAMS || self.released.wait(timeout)
    }

    /// Reserves the next start time, with all streams within `time`. Returns the delay until then.
    fn reserve(&self, now: Instant, time: Duration) -> Duration {
        let mut next = lock(&self.next);
        let begin = now.max(*next);
        *next = begin + time / self.planned.max(1);
        begin - now
    }
}

/// Minimum RTT for unrequested pacing. (chosen: handshakes of busy hosts take some milliseconds,
/// and on a local network pacing costs more than it saves)
pub(crate) const MIN_PACING_RTT: Duration = Duration::from_millis(5);

/// Non-limiting rate that still enables TCP pacing, in slow start too; `u64::MAX` disables it.
/// (sk_setsockopt, net/core/sock.c) Measured over 100 Mbit/s, 40 ms and a 50 kB queue: 16 CUBIC
/// connections retransmitted 85 and 119 segments with it, 181 without.
pub(crate) const UNLIMITED_PACING_RATE: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn stream_starts_are_staggered_and_late_ones_immediate() {
        let stagger = StartStagger::new(4);
        let now = Instant::now() + MS;
        let pauses = [0, 0, 5, 5, 100].map(|ms| stagger.reserve(now + MS * ms, MS * 80));
        assert_eq!(pauses, [0, 20, 35, 55, 0].map(|ms| MS * ms));
    }

    #[test]
    fn all_but_the_first_streams_wait_for_their_release() {
        let stagger = StartStagger::new(16);
        let may_start = |number| stagger.hold(number, Duration::ZERO);
        assert_eq!([0, 3, 4, 15].map(may_start), [true, true, false, false]);
        stagger.release();
        assert!([0, 3, 4, 15].map(may_start).iter().all(|&may| may));
    }
}
