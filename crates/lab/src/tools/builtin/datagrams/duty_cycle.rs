//! Duty cycle of a handler with a CPU share: it works for that share of each period from its start,
//! and is idle for the rest.
//!
//! The kernel's `cpu.max` throttles a service the same way if it has other work while no message
//! waits: its quota runs out at the same point of each period, whatever arrives. A service
//! without other work would keep its quota until a message arrives, and would never be throttled
//! with quota left; its throughput would equal its quota, whatever the buffer. The other work is
//! not simulated, since the emulated network needs the CPUs.

use std::time::{Duration, Instant};

/// Length of a period. (Documentation/admin-guide/cgroup-v2.rst: the default of `cpu.max`, 100 000
/// µs)
const PERIOD: Duration = Duration::from_millis(100);

/// Duty cycle of a handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct DutyCycle {
    /// Working time per period.
    busy_time: Duration,
    start: Instant,
}

impl DutyCycle {
    /// Duty cycle of a CPU share, with periods from `start` on.
    pub(super) fn new(share: f64, start: Instant) -> Self {
        Self { busy_time: PERIOD.mul_f64(share), start }
    }

    /// End of the current idle time; `None` while the handler works.
    pub(super) fn idle_until(&self, now: Instant) -> Option<Instant> {
        let since = now.saturating_duration_since(self.start);
        let periods = u32::try_from(since.as_nanos() / PERIOD.as_nanos()).unwrap_or(u32::MAX);
        let is_idle = since - PERIOD * periods >= self.busy_time;
        is_idle.then(|| self.start + PERIOD * (periods + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn handler_works_at_start_of_each_period() {
        let start = Instant::now();
        let duty_cycle = DutyCycle::new(0.2, start);
        for period in [0, 100, 1700] {
            let at = |ms: u32| start + MS * period + MS * ms;
            assert_eq!(duty_cycle.idle_until(at(0)), None);
            assert_eq!(duty_cycle.idle_until(at(19)), None);
            assert_eq!(duty_cycle.idle_until(at(20)), Some(at(100)));
            assert_eq!(duty_cycle.idle_until(at(99)), Some(at(100)));
        }
    }

    #[test]
    fn full_cpu_share_is_never_idle() {
        let start = Instant::now();
        let duty_cycle = DutyCycle::new(1.0, start);
        assert!((0..300).all(|ms| duty_cycle.idle_until(start + MS * ms).is_none()));
    }
}
