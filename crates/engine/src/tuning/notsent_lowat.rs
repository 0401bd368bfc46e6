//! Limit of unsent data in the kernel (`TCP_NOTSENT_LOWAT`). A low limit gives each block to the
//! stream that is free next, so that all streams end at about the same time.

use crate::transport::socket::Socket;
use bankfull_control::Rate;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Unsent data of a stream, as sending time at its rate. (measured: with 7 ms, threads that wake
/// more often cost a tenth of the throughput of 5 Gbit/s over 50 ms, with 28 ms 2 to 7 %; over 500
/// Mbit/s with losses, copies with 70 ms and with 300 ms end equally soon)
const NOTSENT_LOWAT_TIME: Duration = Duration::from_millis(100);

/// Minimum of the limit in bytes. (measured as above)
const MIN_NOTSENT_LOWAT: u32 = 128 << 10;

/// Relative change below which the limit stays. (chosen: shares change all the time)
const LOWAT_CHANGE_FRACTION: f64 = 0.25;

/// Limits the unsent data of a session's streams.
pub(crate) struct NotSentLowat {
    /// This host's default limit in bytes. (tcp_notsent_lowat, ip-sysctl.rst)
    system_limit: u32,
    /// Limit set for each stream.
    applied: BTreeMap<u32, u32>,
}

impl NotSentLowat {
    pub(crate) fn new() -> Self {
        let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_notsent_lowat");
        let limit = text.ok().and_then(|text| text.trim().parse().ok());
        Self { system_limit: limit.unwrap_or(u32::MAX), applied: BTreeMap::new() }
    }

    /// Sets the limit of a stream with this rate; `None` means unlimited.
    pub(crate) fn update(&mut self, number: u32, socket: &Socket, rate: Option<Rate>) {
        if let (Some(bytes), Socket::Tcp(tcp)) = (self.required(number, rate), socket) {
            // If the kernel cannot, the send buffer is the limit.
            let _ = bankfull_sys::set_notsent_lowat(tcp, bytes);
            self.applied.insert(number, bytes);
        }
    }

    /// Returns the limit to set, if it differs enough from the current one.
    fn required(&self, number: u32, rate: Option<Rate>) -> Option<u32> {
        let unsent = |rate: Rate| rate.bytes_per_sec() as f64 * NOTSENT_LOWAT_TIME.as_secs_f64();
        // `as` saturates.
        let wanted = rate.map_or(u32::MAX, |rate| (unsent(rate) as u32).max(MIN_NOTSENT_LOWAT));
        let wanted = wanted.min(self.system_limit);
        let current = self.applied.get(&number).copied().unwrap_or(self.system_limit);
        let tolerance = (f64::from(current) * LOWAT_CHANGE_FRACTION) as u32;
        (current.abs_diff(wanted) > tolerance).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowat_follows_the_rate_but_not_small_changes() {
        let mut lowat = NotSentLowat { system_limit: u32::MAX, applied: BTreeMap::new() };
        let rate = |mbit: f64| Some(Rate::from_bits_per_sec(mbit * 1e6));
        assert_eq!(lowat.required(0, None), None);
        assert_eq!(lowat.required(0, rate(80.0)), Some(1_000_000));
        lowat.applied.insert(0, 1_000_000);
        assert_eq!([lowat.required(0, rate(90.0)), lowat.required(0, rate(70.0))], [None; 2]);
        assert_eq!(lowat.required(0, rate(160.0)), Some(2_000_000));
        assert_eq!(lowat.required(0, rate(1.0)), Some(MIN_NOTSENT_LOWAT));
        assert_eq!(lowat.required(0, None), Some(u32::MAX));
        lowat.system_limit = 64 << 10;
        assert_eq!(lowat.required(1, rate(80.0)), None, "the host's limit is lower");
    }
}
