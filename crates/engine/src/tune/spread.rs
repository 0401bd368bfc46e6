//! The first windows of a session's connections. Of each, TCP sends ten segments at once and paces
//! only what follows (tcp_update_skb_after_send, net/ipv4/tcp_output.c): of many connections
//! together that is more than a shallow queue takes. So they begin in turns, as evenly as TCP's own
//! pacing would send them.

use super::{FREE, FREE_RTT};
use crate::net::control::lock;
use crate::net::socket::Socket;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// All have begun after this share of a round trip: slow start is paced at twice the window in a
/// round trip (`tcp_pacing_ss_ratio`, ip-sysctl.rst).
const SPREAD_SHARE: f64 = 0.5;

/// Lets connections begin in turns.
pub(crate) struct Spread {
    /// How many there are to be.
    planned: u32,
    /// When the next one may begin.
    next: Mutex<Instant>,
}

impl Spread {
    /// For so many connections.
    pub(crate) fn new(planned: u32) -> Self {
        Self { planned, next: Mutex::new(Instant::now()) }
    }

    /// Has TCP pace a connection that is about to send, and waits for its turn. Over a short path
    /// nothing is done.
    pub(crate) fn wait(&self, socket: &Socket) {
        let Socket::Tcp(tcp) = socket else { return };
        let rtt = socket.tcp_info().and_then(|info| info.min_rtt).unwrap_or_default();
        if rtt < FREE_RTT {
            return;
        }
        // Where the kernel cannot, it sends as without us.
        let _ = bankfull_sys::set_pacing(tcp, Some(FREE));
        let pause = self.turn(Instant::now(), rtt.mul_f64(SPREAD_SHARE));
        thread::sleep(pause);
    }

    /// How long to wait, where all begin within `time`.
    fn turn(&self, now: Instant, time: Duration) -> Duration {
        let mut next = lock(&self.next);
        let begin = now.max(*next);
        *next = begin + time / self.planned.max(1);
        begin - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn connections_begin_in_turns_within_the_time_and_later_ones_at_once() {
        let spread = Spread::new(4);
        let now = Instant::now() + MS;
        let pauses = [0, 0, 5, 5, 100].map(|ms| spread.turn(now + MS * ms, MS * 80));
        assert_eq!(pauses, [0, 20, 35, 55, 0].map(|ms| MS * ms));
    }
}
