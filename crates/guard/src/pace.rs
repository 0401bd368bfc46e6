//! Interval of ticks, as their CPU time allows.

use bankfull_control::path_control::TICK;
use std::time::Duration;

/// Interval per CPU time of a tick: ticks take at most 1/200 of a core. (chosen: about 1/100 with
/// the BPF program)
const INTERVAL_PER_COST: u32 = 200;

/// Weight of the present tick's cost. (chosen: that of `THROUGHPUT_SMOOTHING`)
const COST_WEIGHT: u32 = 4;

/// Longest interval: a quarter of the heartbeat's timeout. (`HEARTBEAT_TIMEOUT_NS` in
/// `bpf/state.h`)
const MAX_INTERVAL: Duration = Duration::from_millis(250);

/// CPU time of ticks.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    cost: Duration,
}

impl Pace {
    /// Records the CPU time of a tick.
    pub(crate) fn on_tick(&mut self, cost: Duration) {
        self.cost = (self.cost * (COST_WEIGHT - 1) + cost) / COST_WEIGHT;
    }

    /// Returns the time until the next tick.
    pub(crate) fn interval(&self) -> Duration {
        (self.cost * INTERVAL_PER_COST).clamp(TICK, MAX_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(cost: Duration) -> Duration {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.on_tick(cost));
        pace.interval()
    }

    #[test]
    fn interval_grows_with_the_cost_of_ticks() {
        assert_eq!(after(Duration::from_micros(20)), TICK);
        let millis = after(Duration::from_micros(300)).as_millis();
        assert!((59..=60).contains(&millis), "{millis}");
        assert_eq!(after(Duration::from_millis(30)), MAX_INTERVAL);
    }

    #[test]
    fn single_long_tick_does_not_stop_the_guard() {
        let mut pace = Pace::default();
        pace.on_tick(Duration::from_secs(5));
        assert_eq!(pace.interval(), MAX_INTERVAL);
        (0..40).for_each(|_| pace.on_tick(Duration::from_micros(20)));
        assert_eq!(pace.interval(), TICK);
    }
}
