//! Long-term rate of a path with a policer (bbr_lt_bw_sampling, net/ipv4/tcp_bbr.c).
//!
//! A policer is presumed if two intervals have the same rate and lose a fifth of the segments.

use super::bytes_per_sec;
use crate::tcp::MSS;
use crate::tcp::delivery::Total;
use std::time::Duration;

/// Minimum rounds of an interval of long-term sampling (bbr_lt_intvl_min_rtts, tcp_bbr.c).
const MIN_ROUNDS: u32 = 4;

/// Maximum rounds of such an interval (bbr_lt_bw_sampling, tcp_bbr.c).
const MAX_ROUNDS: u32 = 4 * MIN_ROUNDS;

/// Loss per delivered segment above which a policer may be the cause (bbr_lt_loss_thresh: 50 of
/// 256, tcp_bbr.c).
const MIN_LOSS: f64 = 50.0 / 256.0;

/// Ratio by which the rates of two intervals may differ (bbr_lt_bw_ratio, tcp_bbr.c).
const RATE_RATIO: f64 = 1.0 / 8.0;

/// Difference of these rates that is always small, in bytes per second (bbr_lt_bw_diff, tcp_bbr.c).
const RATE_DIFFERENCE: f64 = 4000.0 / 8.0;

/// Rounds for which the long-term rate is used (bbr_lt_bw_max_rtts, tcp_bbr.c).
const USE_ROUNDS: u32 = 48;

/// Shortest interval of long-term sampling (bbr_lt_bw_sampling, tcp_bbr.c).
const MIN_TIME: Duration = Duration::from_millis(1);

/// Long-term rate of a path with a policer.
#[derive(Debug, Clone, Default)]
pub(super) struct Policer {
    is_sampling: bool,
    pub(super) is_used: bool,
    /// Rate of the latest interval; zero before the first.
    pub(super) rate: f64,
    /// Rounds of the interval, or of its use.
    rounds: u32,
    /// Totals at the start of the interval.
    delivered: u64,
    lost: u64,
    start: Duration,
}

impl Policer {
    pub(super) fn reset(&mut self, total: &Total) {
        *self = Self::default();
        self.begin_interval(total);
    }

    fn begin_interval(&mut self, total: &Total) {
        self.start = total.delivered_at;
        self.delivered = total.delivered;
        self.lost = total.lost;
        self.rounds = 0;
    }

    /// Counts a round in which the long-term rate was used; returns whether it was the last.
    pub(super) fn has_expired(&mut self) -> bool {
        self.rounds += 1;
        self.rounds >= USE_ROUNDS
    }

    pub(super) fn sample(
        &mut self,
        lost: u64,
        is_app_limited: bool,
        is_round_start: bool,
        total: &Total,
    ) {
        if !self.is_sampling {
            if lost == 0 {
                return;
            }
            self.begin_interval(total);
            self.is_sampling = true;
        }
        self.rounds += u32::from(is_round_start && !is_app_limited);
        if is_app_limited || self.rounds > MAX_ROUNDS {
            return self.reset(total);
        }
        // An interval ends with a loss, when the tokens of the policer are exhausted.
        if self.rounds < MIN_ROUNDS || lost == 0 {
            return;
        }
        let delivered = (total.delivered - self.delivered) as f64;
        let time = total.delivered_at.saturating_sub(self.start);
        let has_lost_much = (total.lost - self.lost) as f64 >= MIN_LOSS * delivered;
        if delivered > 0.0 && has_lost_much && time >= MIN_TIME {
            self.end_interval(delivered / time.as_secs_f64(), total);
        }
    }

    /// Uses the rate if those of two intervals are equal (bbr_lt_bw_interval_done, tcp_bbr.c).
    fn end_interval(&mut self, rate: f64, total: &Total) {
        let difference = (rate - self.rate).abs();
        let is_equal = difference <= RATE_RATIO * self.rate
            || bytes_per_sec(difference, MSS) <= RATE_DIFFERENCE;
        if self.rate > 0.0 && is_equal {
            self.rate = f64::midpoint(rate, self.rate);
            self.is_used = true;
            self.rounds = 0;
            return;
        }
        self.rate = rate;
        self.begin_interval(total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rates_of_two_lossy_intervals_are_used_for_48_rounds() {
        let mut policer = Policer::default();
        let mut total = Total::default();
        // 100 of 130 segments arrive in each round of 20 ms.
        for round in 0..8 {
            assert!(!policer.is_used, "{round}");
            total.delivered += 100;
            total.lost += 30;
            total.delivered_at += Duration::from_millis(20);
            policer.sample(30, false, true, &total);
        }
        assert!(policer.is_used && (policer.rate - 5000.0).abs() < 1.0, "{policer:?}");
        let rounds = (1..100).find(|_| policer.has_expired());
        assert_eq!(rounds, Some(48));
    }

    #[test]
    fn little_loss_is_no_policer() {
        let mut policer = Policer::default();
        let mut total = Total::default();
        for _ in 0..100 {
            total.delivered += 100;
            total.lost += 10;
            total.delivered_at += Duration::from_millis(20);
            policer.sample(10, false, true, &total);
        }
        assert!(!policer.is_used && policer.rate == 0.0, "{policer:?}");
    }
}
