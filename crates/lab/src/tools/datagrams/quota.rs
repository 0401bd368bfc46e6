//! A handler that has a part of a processor, as a control group with `cpu.max` has it: so much
//! processor time in each period, and when that is used up it stands still until the next begins.

use std::time::{Duration, Instant};

/// Length of a period. (Documentation/admin-guide/cgroup-v2.rst: `cpu.max`, "100000" microseconds
/// unless said otherwise)
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// What is left of processor time in the periods since a moment.
#[derive(Debug)]
pub(super) struct Quota {
    /// Of each period.
    allowed: Duration,
    begun: Instant,
    /// Number of the period, and the thread's processor time when it began.
    period: u32,
    before: Duration,
}

impl Quota {
    /// `used` is the processor time of the thread, of all its life.
    pub(super) fn new(share: f64, now: Instant, used: Duration) -> Self {
        Self { allowed: PERIOD.mul_f64(share), begun: now, period: 0, before: used }
    }

    /// Until when the thread has to stand still; `None` as long as it may work.
    pub(super) fn used_up_until(&mut self, now: Instant, used: Duration) -> Option<Instant> {
        let since = now.saturating_duration_since(self.begun);
        let period = u32::try_from(since.as_nanos() / PERIOD.as_nanos()).unwrap_or(u32::MAX);
        if period != self.period {
            (self.period, self.before) = (period, used);
        }
        // A whole processor is never used up, whatever the clocks say.
        let is_used_up = self.allowed < PERIOD && used.saturating_sub(self.before) >= self.allowed;
        is_used_up.then(|| self.begun + PERIOD * (self.period + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn so_much_is_worked_in_each_period_and_nothing_is_kept_for_the_next() {
        let begun = Instant::now();
        let mut quota = Quota::new(0.2, begun, MS * 500);
        assert_eq!(quota.used_up_until(begun + MS * 40, MS * 519), None);
        assert_eq!(quota.used_up_until(begun + MS * 41, MS * 520), Some(begun + MS * 100));
        // It has waited for work in the second period, and has no more than usual in the third.
        assert_eq!(quota.used_up_until(begun + MS * 101, MS * 520), None);
        assert_eq!(quota.used_up_until(begun + MS * 199, MS * 521), None);
        assert_eq!(quota.used_up_until(begun + MS * 210, MS * 522), None);
        assert_eq!(quota.used_up_until(begun + MS * 240, MS * 541), None);
        assert_eq!(quota.used_up_until(begun + MS * 241, MS * 542), Some(begun + MS * 300));
    }

    #[test]
    fn a_whole_processor_is_never_used_up() {
        let begun = Instant::now();
        let mut quota = Quota::new(1.0, begun, Duration::ZERO);
        assert_eq!(quota.used_up_until(begun + MS * 99, MS * 150), None);
    }
}
