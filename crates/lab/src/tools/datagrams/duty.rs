//! A handler that has a part of a processor: it works for that part of each period, from its begin,
//! and stands still for the rest.
//!
//! So the kernel's `cpu.max` treats a busy service, which has other work whenever no message is
//! there: its time is used up at the same moment of each period, whatever came. (A service that has
//! nothing else to do keeps its time until something comes, and never stands still with time to
//! spare; what it processes then is what its time is worth, whatever room there is.) The other work
//! is not done here, since the network that is measured needs the processors.

use std::time::{Duration, Instant};

/// Length of a period. (Documentation/admin-guide/cgroup-v2.rst: `cpu.max`, 100 000 microseconds
/// unless said otherwise)
const PERIOD: Duration = Duration::from_millis(100);

/// When a handler works.
#[derive(Debug, Clone, Copy)]
pub(super) struct Duty {
    /// Of each period.
    works: Duration,
    begun: Instant,
}

impl Duty {
    /// A part of a processor; periods begin at a moment.
    pub(super) fn new(share: f64, begun: Instant) -> Self {
        Self { works: PERIOD.mul_f64(share), begun }
    }

    /// Until when the handler stands still; `None` as long as it works.
    pub(super) fn still_until(&self, now: Instant) -> Option<Instant> {
        let since = now.saturating_duration_since(self.begun);
        let periods = u32::try_from(since.as_nanos() / PERIOD.as_nanos()).unwrap_or(u32::MAX);
        let is_still = since - PERIOD * periods >= self.works;
        is_still.then(|| self.begun + PERIOD * (periods + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_handler_works_from_the_begin_of_each_period_and_stands_still_for_the_rest() {
        let begun = Instant::now();
        let duty = Duty::new(0.2, begun);
        for period in [0, 100, 1700] {
            let at = |ms: u32| begun + MS * period + MS * ms;
            assert_eq!(duty.still_until(at(0)), None);
            assert_eq!(duty.still_until(at(19)), None);
            assert_eq!(duty.still_until(at(20)), Some(at(100)));
            assert_eq!(duty.still_until(at(99)), Some(at(100)));
        }
    }

    #[test]
    fn a_whole_processor_never_stands_still() {
        let begun = Instant::now();
        let duty = Duty::new(1.0, begun);
        assert!((0..300).all(|ms| duty.still_until(begun + MS * ms).is_none()));
    }
}
