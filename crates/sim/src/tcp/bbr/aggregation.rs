//! Aggregation of acknowledgements: what arrives beyond the modelled rate.

use crate::tcp::delivery::Total;
use std::time::Duration;

/// Rounds after which the older maximum of aggregation is forgotten (bbr_extra_acked_win_rtts).
const ROUNDS: u32 = 5;

/// Longest silence between acknowledgements that the window covers (bbr_extra_acked_max_us).
const MAX_TIME: Duration = Duration::from_millis(100);

/// Segments after which an epoch ends (bbr_ack_epoch_acked_reset_thresh, tcp_bbr.c).
const MAX_SEGMENTS: u64 = 1 << 20;

/// Aggregation of acknowledgements: segments delivered beyond the modelled rate.
#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    epoch_at: Duration,
    /// Segments delivered since then.
    delivered: u64,
    /// Maxima of this and the previous window.
    extra: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    pub(super) fn begin_epoch(&mut self, now: Duration) {
        self.epoch_at = now;
        self.delivered = 0;
    }

    /// Updates the maxima (bbr_update_ack_aggregation, tcp_bbr.c).
    pub(super) fn update(
        &mut self,
        total: &Total,
        rate: f64,
        delivered: u64,
        window: u64,
        is_round_start: bool,
    ) {
        if is_round_start {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.extra = [0, self.extra[0]];
            }
        }
        let now = total.delivered_at;
        let mut expected = (rate * now.saturating_sub(self.epoch_at).as_secs_f64()) as u64;
        let is_long = self.delivered + delivered >= MAX_SEGMENTS;
        if self.delivered <= expected || is_long {
            self.begin_epoch(now);
            expected = 0;
        }
        self.delivered += delivered;
        let extra = self.delivered.saturating_sub(expected).min(window);
        self.extra[0] = self.extra[0].max(extra);
    }

    /// Returns the segments to add to the window (bbr_ack_aggregation_cwnd, tcp_bbr.c).
    pub(super) fn window(&self, rate: f64) -> u64 {
        let most = (rate * MAX_TIME.as_secs_f64()) as u64;
        self.extra[0].max(self.extra[1]).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_covers_the_largest_batch_of_five_to_ten_rounds() {
        let mut aggregation = Aggregation::default();
        let mut total = Total::default();
        // 1000 segments/s, acknowledged in batches of 30 every 30 ms.
        for _ in 0..10 {
            total.delivered_at += Duration::from_millis(30);
            aggregation.update(&total, 1000.0, 30, 500, false);
        }
        assert_eq!(aggregation.window(1000.0), 30);
        assert_eq!(aggregation.window(100.0), 10, "the rate of 100 ms");
        for round in 1..=10 {
            assert_eq!(aggregation.window(1000.0), 30, "{round}");
            total.delivered_at += Duration::from_millis(5);
            aggregation.update(&total, 1000.0, 1, 500, true);
        }
        assert!(aggregation.window(1000.0) < 30);
    }
}
