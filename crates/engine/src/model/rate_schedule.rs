//! Rate limit by the local time of day, as the user schedules it.

use bankfull_control::{Rate, Schedule, time_of};
use std::sync::Arc;

/// Schedule of rate limits with the clock that it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateSchedule {
    schedule: Arc<Schedule>,
    clock: LocalClock,
}

/// Source of the minute of the local day.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LocalClock {
    /// Clock and time zone of this host.
    Host,
    /// A minute that does not pass.
    #[cfg(test)]
    Stopped(usize),
}

impl RateSchedule {
    /// Creates a schedule that follows the host's clock.
    pub(crate) fn new(schedule: Schedule) -> Self {
        Self { schedule: Arc::new(schedule), clock: LocalClock::Host }
    }

    /// Creates a schedule at a minute of the day.
    #[cfg(test)]
    pub(crate) fn at(schedule: Schedule, minute: usize) -> Self {
        Self { schedule: Arc::new(schedule), clock: LocalClock::Stopped(minute) }
    }

    fn minute(&self) -> usize {
        match self.clock {
            LocalClock::Host => bankfull_sys::local_minute(),
            #[cfg(test)]
            LocalClock::Stopped(minute) => minute,
        }
    }

    /// Returns the present limit; `None`: no limit.
    pub(crate) fn limit(&self) -> Option<Rate> {
        self.schedule.limit_at(self.minute())
    }

    /// Returns the lowest limit of the day, if there is one.
    pub(crate) fn lowest_limit(&self) -> Option<Rate> {
        self.schedule.lowest_limit()
    }

    /// Returns the time of the next change, such as `18:00`; `None`: there is none.
    pub(crate) fn next_change(&self) -> Option<String> {
        let minute = self.minute();
        self.schedule.minutes_until_change(minute).map(|after| time_of(minute + after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_that_of_the_minute() {
        let parse = |rate: &str| rate.parse().map_err(|_| rate.to_owned());
        let schedule = Schedule::parse("08:00-18:00=50mbit,*=max", parse).unwrap();
        let at = |minute| RateSchedule::at(schedule.clone(), minute);
        let mbit = Some(Rate::from_bits_per_sec(50e6));
        assert_eq!((at(8 * 60).limit(), at(18 * 60).limit()), (mbit, None));
        assert_eq!(at(0).lowest_limit(), mbit);
        assert_eq!(at(17 * 60).next_change().as_deref(), Some("18:00"));
        assert_eq!(at(18 * 60).next_change().as_deref(), Some("08:00"));
        assert_eq!(RateSchedule::new(schedule).next_change().map(|time| time.len()), Some(5));
    }
}
