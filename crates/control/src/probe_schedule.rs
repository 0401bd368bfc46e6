//! Times at which probes are sent: often, but as a small part of the traffic.

use crate::tcp::MIN_RTO;
use crate::units::Bytes;
use std::time::Duration;

/// Data received for each probe. (chosen: probes of 128 bytes with their headers then take 1 % of
/// the path; from 10 Mbit/s on, each tick of 10 ms sends one)
const DATA_PER_PROBE: Bytes = Bytes(12_800);

/// Probes that may be sent in a row for data received before. (chosen: data is counted at every
/// second tick at least)
const MAX_CREDIT_PROBES: u64 = 2;

/// Schedule of the probes of one transfer.
///
/// Without records of received data, a probe is due at every tick.
#[derive(Debug, Clone, Default)]
pub struct ProbeSchedule {
    received: Bytes,
    /// Data received that no probe was sent for.
    credit: Bytes,
    sent_at: Duration,
}

impl ProbeSchedule {
    /// Records the data received since the start of the transfer.
    pub fn on_received(&mut self, received: Bytes) {
        let new = received.0.saturating_sub(self.received.0);
        self.received = received;
        self.credit.0 = (self.credit.0 + new).min(DATA_PER_PROBE.0 * MAX_CREDIT_PROBES);
    }

    /// Returns true if a probe is due, which then counts as sent.
    ///
    /// Before the first data, one is due at every tick.
    pub fn poll_due(&mut self, now: Duration) -> bool {
        let has_credit = self.received == Bytes(0) || self.credit >= DATA_PER_PROBE;
        // Without credit, probes are sent at this interval.
        let is_due = has_credit || now >= self.sent_at + MIN_RTO;
        if is_due {
            self.credit.0 = self.credit.0.saturating_sub(DATA_PER_PROBE.0);
            self.sent_at = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the probes sent in ten seconds at a rate in Mbit/s.
    ///
    /// Data is counted every `ticks` of 10 ms.
    fn probes(mbit: u64, ticks: u64) -> usize {
        let mut schedule = ProbeSchedule::default();
        let tick = |&n: &u64| {
            if n % ticks == 0 {
                schedule.on_received(Bytes((n + 1) * mbit * 1_250));
            }
            schedule.poll_due(MS * 10 * n as u32)
        };
        (0..1_000).filter(tick).count()
    }

    #[test]
    fn probes_are_a_hundredth_of_the_data() {
        assert_eq!(probes(1_000, 1), 1_000);
        assert_eq!(probes(1_000, 2), 1_000);
        assert!((960..=980).contains(&probes(10, 1)), "{}", probes(10, 1));
        assert!((95..=99).contains(&probes(1, 1)), "{}", probes(1, 1));
        assert_eq!(probes(0, 1), 1_000, "before the first data");
    }

    #[test]
    fn probes_go_on_without_data() {
        let mut schedule = ProbeSchedule::default();
        schedule.on_received(Bytes(1));
        let due = (0..100).filter(|n| schedule.poll_due(MS * 10 * *n));
        assert_eq!(due.collect::<Vec<_>>(), [20, 40, 60, 80]);
    }
}
