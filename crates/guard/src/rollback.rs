//! Roll-back: windows are lifted for a while if less arrives with them than before.

use bankfull_control::Rate;
use std::collections::VecDeque;
use std::time::Duration;

/// Fraction of the earlier rate below which held windows count as harmful. (chosen: rates of
/// programs vary by less from second to second; the controller loses at most a tenth)
const HARMFUL_FRACTION: f64 = 0.8;

/// Seconds in a row before windows are lifted. (chosen: one may be a pause of the programs)
const HARMFUL_SECONDS: u32 = 3;

/// First time without windows, which doubles with each repetition. (chosen)
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// Longest time without windows. (chosen)
const MAX_PAUSE: Duration = Duration::from_secs(640);

/// Number of seconds without windows that give the earlier rate. (chosen: only recent ones compare)
const FREE_SECONDS: usize = 5;

/// Age beyond which a second without windows is ignored. (chosen: twice [`FREE_SECONDS`])
const MAX_FREE_AGE: Duration = Duration::from_secs(10);

/// Seconds without harm after which the pause is [`FIRST_PAUSE`] again. (chosen: far more than
/// [`HARMFUL_SECONDS`])
const GOOD_SECONDS: u32 = 60;

/// Judge of the held windows.
#[derive(Debug)]
pub(crate) struct Rollback {
    /// Rates of the last seconds in which windows were free, with their times.
    free_rates: VecDeque<(Duration, Rate)>,
    harmful_seconds: u32,
    good_seconds: u32,
    was_held: bool,
    pause: Duration,
    paused_until: Duration,
}

impl Rollback {
    pub(crate) fn new() -> Self {
        Self {
            free_rates: VecDeque::new(),
            harmful_seconds: 0,
            good_seconds: 0,
            was_held: false,
            pause: FIRST_PAUSE,
            paused_until: Duration::ZERO,
        }
    }

    /// True while windows stay free.
    pub(crate) fn is_paused(&self, now: Duration) -> bool {
        now < self.paused_until
    }

    /// Returns the mean rate of the last free seconds, in bits per second.
    fn free_rate(&self) -> f64 {
        let sum: f64 = self.free_rates.iter().map(|(_, rate)| rate.bits_per_sec() as f64).sum();
        sum / self.free_rates.len().max(1) as f64
    }

    /// Records the rate of a second in which connections were receiving. Returns whether the
    /// windows are to be lifted.
    ///
    /// `may_harm`: windows are the only known limit of the connections.
    pub(crate) fn on_second(
        &mut self,
        now: Duration,
        rate: Rate,
        is_held: bool,
        may_harm: bool,
    ) -> bool {
        if !is_held {
            // The comparison is with what came just before.
            if self.was_held {
                self.free_rates.clear();
            }
            self.free_rates.push_back((now, rate));
            if self.free_rates.len() > FREE_SECONDS {
                self.free_rates.pop_front();
            }
            (self.was_held, self.harmful_seconds) = (false, 0);
            return false;
        }
        if !self.was_held {
            self.free_rates.retain(|&(at, _)| now <= at + MAX_FREE_AGE);
        }
        self.was_held = true;
        let is_harmful =
            may_harm && (rate.bits_per_sec() as f64) < self.free_rate() * HARMFUL_FRACTION;
        self.harmful_seconds = if is_harmful { self.harmful_seconds + 1 } else { 0 };
        self.good_seconds = if is_harmful { 0 } else { self.good_seconds + 1 };
        if self.good_seconds >= GOOD_SECONDS {
            self.pause = FIRST_PAUSE;
        }
        if self.harmful_seconds < HARMFUL_SECONDS {
            return false;
        }
        self.paused_until = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.harmful_seconds = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn mbit(rate: u64) -> Rate {
        Rate::from_bits_per_sec(rate as f64 * 1e6)
    }

    /// Records seconds of (rate, held); returns after how many windows were lifted.
    fn lifted_after(seconds: &[(u64, bool)], may_harm: bool) -> Option<usize> {
        let mut rollback = Rollback::new();
        seconds.iter().enumerate().find_map(|(at, &(rate, is_held))| {
            let now = SECOND * (at as u32 + 1);
            rollback.on_second(now, mbit(rate), is_held, may_harm).then_some(at + 1)
        })
    }

    #[test]
    fn lower_rate_with_windows_lifts_them() {
        let seconds = [(900, false), (700, true), (650, true), (700, true), (700, true)];
        assert_eq!(lifted_after(&seconds, true), Some(4));
        assert_eq!(lifted_after(&seconds, false), None, "losses or programs limit");
    }

    #[test]
    fn equal_rate_and_short_pauses_keep_windows() {
        let seconds =
            [(900, false), (880, true), (100, true), (900, true), (100, true), (100, true)];
        assert_eq!(lifted_after(&seconds, true), None);
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut rollback = Rollback::new();
        let mut now = SECOND;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            rollback.on_second(now, mbit(900), false, false);
            while !rollback.on_second(now, mbit(100), true, true) {
                now += SECOND;
            }
            assert!(rollback.is_paused(now));
            pauses.push((rollback.paused_until - now).as_secs());
            now = rollback.paused_until;
            assert!(!rollback.is_paused(now));
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
    }

    #[test]
    fn hours_old_rates_are_no_measure() {
        let free = [(900, false)].into_iter().chain([(100, false); FREE_SECONDS]);
        let seconds: Vec<(u64, bool)> = free.chain([(100, true); 10]).collect();
        assert_eq!(lifted_after(&seconds, true), None);
        // Idle seconds are not recorded.
        let mut rollback = Rollback::new();
        rollback.on_second(SECOND, mbit(900), false, false);
        let later = SECOND * 3600;
        let held = (0..10).map(|at| rollback.on_second(later + SECOND * at, mbit(1), true, true));
        assert!(held.filter(|&is_lifted| is_lifted).count() == 0);
    }

    #[test]
    fn good_minute_forgives_earlier_harm() {
        let mut rollback = Rollback::new();
        let mut now = SECOND;
        let mut harm = |rollback: &mut Rollback, good_seconds: u32| {
            rollback.on_second(now, mbit(900), false, false);
            for _ in 0..good_seconds {
                now += SECOND;
                assert!(!rollback.on_second(now, mbit(900), true, true));
            }
            while !rollback.on_second(now, mbit(100), true, true) {
                now += SECOND;
            }
            (rollback.paused_until - now).as_secs()
        };
        let pauses = [0, 0, GOOD_SECONDS - 1, GOOD_SECONDS].map(|good| harm(&mut rollback, good));
        assert_eq!(pauses, [10, 20, 40, 10]);
    }
}
