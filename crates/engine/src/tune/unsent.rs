//! What waits in the kernel to be sent: little, so that each block goes to the connection that is
//! the next to be free, and all of them end at about the same time.

use crate::net::socket::Socket;
use bankfull_control::Rate;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// What a connection sends in this time may wait, and this many bytes at least. (measured: with
/// 7 ms, threads that wake more often cost a tenth of what 5 Gbit/s over 50 ms carry, with 28 ms 2
/// to 7 %; over 500 Mbit/s that lose segments, 70 ms and 300 ms end copies equally soon)
const UNSENT_TIME: Duration = Duration::from_millis(100);
const UNSENT_MIN: u32 = 128 << 10;

/// It is set anew when it would be so much more or less. (ours: shares change all the time)
const UNSENT_OTHER: f64 = 0.25;

/// Limits it.
pub(super) struct Unsent {
    /// What this host limits it to by itself. (tcp_notsent_lowat, ip-sysctl.rst)
    most: u32,
    /// What was set for each connection.
    set: BTreeMap<u32, u32>,
}

impl Unsent {
    pub(super) fn new() -> Self {
        let told = fs::read_to_string("/proc/sys/net/ipv4/tcp_notsent_lowat");
        let most = told.ok().and_then(|most| most.trim().parse().ok()).unwrap_or(u32::MAX);
        Self { most, set: BTreeMap::new() }
    }

    /// Sees to it that not more waits on a connection with this rate; `None`: nobody holds it.
    pub(super) fn limit(&mut self, number: u32, socket: &Socket, rate: Option<Rate>) {
        if let (Some(bytes), Socket::Tcp(tcp)) = (self.needed(number, rate), socket) {
            // Where the kernel cannot, as much waits as fits into its buffer.
            let _ = bankfull_sys::set_unsent_max(tcp, bytes);
            self.set.insert(number, bytes);
        }
    }

    /// What is to be set, if it is something else than before.
    fn needed(&self, number: u32, rate: Option<Rate>) -> Option<u32> {
        let waits = |rate: Rate| rate.bytes_per_sec() as f64 * UNSENT_TIME.as_secs_f64();
        // `as` saturates.
        let wanted = rate.map_or(u32::MAX, |rate| (waits(rate) as u32).max(UNSENT_MIN));
        let wanted = wanted.min(self.most);
        let has = self.set.get(&number).copied().unwrap_or(self.most);
        (has.abs_diff(wanted) > (f64::from(has) * UNSENT_OTHER) as u32).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_follows_the_rate_and_not_every_change_of_it() {
        let mut unsent = Unsent { most: u32::MAX, set: BTreeMap::new() };
        let rate = |mbit: f64| Some(Rate::from_bits_per_sec(mbit * 1e6));
        assert_eq!(unsent.needed(0, None), None);
        assert_eq!(unsent.needed(0, rate(80.0)), Some(1_000_000));
        unsent.set.insert(0, 1_000_000);
        assert_eq!([unsent.needed(0, rate(90.0)), unsent.needed(0, rate(70.0))], [None; 2]);
        assert_eq!(unsent.needed(0, rate(160.0)), Some(2_000_000));
        assert_eq!(unsent.needed(0, rate(1.0)), Some(UNSENT_MIN));
        assert_eq!(unsent.needed(0, None), Some(u32::MAX));
        unsent.most = 64 << 10;
        assert_eq!(unsent.needed(1, rate(80.0)), None, "the host wants less");
    }
}
