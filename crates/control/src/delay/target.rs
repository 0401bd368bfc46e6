//! Target of the queueing delay: short at first, and wider on a path whose rate varies.

use super::round::Round;
use super::samples::LIFETIME;
use crate::path_control::capacity::MIN_TRAIN_TIME;
use crate::units::Rate;
use std::time::Duration;

/// Share of the RTT that is the target. (chosen: a quarter of a shallow buffer)
const RTT_SHARE: f64 = 0.025;

/// Shortest target of a path: below it, the batching of receivers dominates, as in trains.
const MIN_TARGET: Duration = MIN_TRAIN_TIME;

/// Longest target of a path of constant rate. (chosen: half of an acceptable standing queue, 5 ms)
const MAX_TARGET: Duration = Duration::from_micros(2500);

/// Shortest target in segments at the present rate. (chosen: half of an acceptable standing queue,
/// four)
const LEAST_SEGMENTS: u32 = 2;

/// Rounds in which changes between short and long queues are counted. (measured, kinds in virtual
/// time: with 12 and two changes, a square wave is taken for a varying path)
const HUNTING_ROUNDS: u32 = 16;

/// Changes within [`HUNTING_ROUNDS`] that show a hunting window. (measured: as above)
const HUNTING_CHANGES: u32 = 3;

/// Growth of the target of a hunting window. (chosen: doubling)
const TARGET_GROWTH: f64 = 2.0;

/// Class of a round by its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// The path may carry more.
    Low,
    /// The queue is near its target.
    Near,
    /// The path is too full.
    High,
}

/// Target of the queueing delay.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueTarget {
    /// Target that an overflow allows, if there was one.
    allowed: Option<Duration>,
    /// Longest queue without losses, and the end of its lifetime.
    held: Option<(Duration, Duration)>,
    /// Target that a varying rate requires.
    widened: Duration,
    /// Time of a segment at the present rate.
    segment: Duration,
    hunting: Hunting,
}

/// Rounds since the last evaluation.
#[derive(Debug, Clone, Default)]
struct Hunting {
    rounds: u32,
    /// Rounds with a queue above its target, and the sum of their queues.
    high_rounds: u32,
    high_queues: Duration,
    /// Changes from a short queue to a long one, or back.
    changes: u32,
    /// Level of the last round that was not near the target.
    last: Option<Level>,
    /// Lowest rate.
    lowest_rate: Option<Rate>,
}

impl QueueTarget {
    /// Returns the target on a path of an RTT.
    pub(super) fn queue(&self, rtt: Duration) -> Duration {
        let target = rtt.mul_f64(RTT_SHARE).clamp(MIN_TARGET, MAX_TARGET).max(self.widened);
        let target = self.allowed.map_or(target, |allowed| target.min(allowed));
        // A pause in the data does not count as a long segment.
        target.max((self.segment * LEAST_SEGMENTS).min(rtt))
    }

    /// Returns the level of a queue.
    pub(super) fn level(&self, queue: Duration, rtt: Duration) -> Level {
        let target = self.queue(rtt);
        match queue {
            queue if queue < target / 2 => Level::Low,
            queue if queue > target + target / 2 => Level::High,
            _ => Level::Near,
        }
    }

    /// Sets the time of a segment at the present rate.
    pub(super) fn set_segment(&mut self, time: Duration) {
        self.segment = time;
    }

    /// Records a round; widens the target if the window hunts at rates below `full`.
    ///
    /// Returns false if even the longest target does not suffice.
    pub(super) fn on_round(
        &mut self,
        level: Level,
        round: &Round,
        rtt: Duration,
        full: Option<Rate>,
    ) -> bool {
        self.hunting.record(level, round);
        if self.hunting.rounds < HUNTING_ROUNDS {
            return true;
        }
        let is_full = self.hunting.lowest_rate.zip(full).is_some_and(|(rate, full)| rate >= full);
        let Hunting { high_rounds, high_queues, changes, last, .. } = self.hunting;
        self.hunting = Hunting { last, ..Hunting::default() };
        if changes < HUNTING_CHANGES || is_full {
            self.widened = self.widened.div_f64(TARGET_GROWTH);
            return true;
        }
        let before = self.queue(rtt);
        let longest = rtt.max(MAX_TARGET);
        let excursion = high_queues / high_rounds.max(1) / 2;
        let wanted = excursion
            .clamp(before.mul_f64(TARGET_GROWTH), before.mul_f64(TARGET_GROWTH * TARGET_GROWTH));
        self.widened = wanted.min(longest);
        before < longest
    }

    /// Records the queue of a round without losses.
    pub(super) fn on_held(&mut self, queue: Duration, now: Duration) {
        if self.held.is_none_or(|(longest, until)| queue >= longest || now > until) {
            self.held = Some((queue, now + LIFETIME));
        }
    }

    /// Lowers the target below a queue that overflowed.
    ///
    /// Losses at a shorter queue than the path has held without losses are random.
    pub(super) fn on_overflow(&mut self, queue: Duration) {
        let queue = self.held.map_or(queue, |(longest, _)| queue.max(longest));
        // A queue may double between two rounds.
        let target = (queue / 2).max(MIN_TARGET / 2);
        self.allowed = Some(self.allowed.map_or(target, |allowed| allowed.min(target)));
    }
}

impl Hunting {
    fn record(&mut self, level: Level, round: &Round) {
        self.rounds += 1;
        self.lowest_rate = Some(self.lowest_rate.map_or(round.rate, |rate| rate.min(round.rate)));
        if level == Level::High {
            self.high_rounds += 1;
            self.high_queues += round.queue;
        }
        if level != Level::Near {
            let last = self.last.replace(level);
            self.changes += u32::from(last.is_some_and(|last| last != level));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn target_is_a_share_of_the_rtt_within_bounds() {
        let target = QueueTarget::default();
        let of = |ms: u32| target.queue(MS * ms).as_micros();
        assert_eq!([2, 40, 100, 300].map(of), [400, 1000, 2500, 2500]);
        assert_eq!(target.level(MS * 499 / 1000, MS * 40), Level::Low);
        assert_eq!(target.level(MS * 501 / 1000, MS * 40), Level::Near);
        assert_eq!(target.level(MS * 1501 / 1000, MS * 40), Level::High);
    }

    #[test]
    fn target_holds_two_segments() {
        let mut target = QueueTarget::default();
        target.set_segment(MS);
        target.on_overflow(MS);
        assert_eq!(target.queue(MS * 40), MS * 2);
        target.set_segment(MS * 500);
        assert_eq!(target.queue(MS * 40), MS * 40, "a pause is no segment");
    }

    #[test]
    fn overflow_lowers_the_target_for_good() {
        let mut target = QueueTarget::default();
        target.on_overflow(MS);
        target.on_overflow(MS * 5);
        assert_eq!(target.queue(MS * 40), MS / 2);
    }

    #[test]
    fn loss_in_a_shorter_queue_than_was_held_is_no_overflow_of_it() {
        let mut target = QueueTarget::default();
        target.on_held(MS * 4, MS * 100);
        target.on_held(MS * 2, MS * 200);
        target.on_overflow(MS);
        assert_eq!(target.queue(MS * 80), MS * 2, "half of the longest");
        target.on_held(MS, MS * 100 + LIFETIME * 2);
        target.on_overflow(MS);
        assert_eq!(target.queue(MS * 80), MS / 2, "it has expired");
    }

    /// Runs as many rounds as are evaluated; false if no target suffices.
    fn run(target: &mut QueueTarget, levels: &[Level]) -> bool {
        run_below(target, levels, None)
    }

    /// The same at 100 Mbit/s on a path that is full at a rate.
    fn run_below(target: &mut QueueTarget, levels: &[Level], full: Option<Rate>) -> bool {
        let rate = Rate::from_bits_per_sec(100e6);
        let round = Round { now: MS, rate, queue: MS * 6, retransmits: 0 };
        let rounds = levels.iter().cycle().take(HUNTING_ROUNDS as usize);
        rounds.fold(true, |_, &level| target.on_round(level, &round, MS * 40, full))
    }

    #[test]
    fn hunting_window_of_a_full_path_keeps_the_target() {
        let mut target = QueueTarget::default();
        let hunting = [Level::Low, Level::Low, Level::High];
        let full = |mbit: f64| Some(Rate::from_bits_per_sec(mbit * 1e6));
        assert!(run_below(&mut target, &hunting, full(99.0)));
        assert_eq!(target.queue(MS * 40), MS);
        assert!(run_below(&mut target, &hunting, full(101.0)));
        assert_eq!(target.queue(MS * 40), MS * 3);
    }

    #[test]
    fn hunting_window_widens_the_target_up_to_the_rtt() {
        let mut target = QueueTarget::default();
        let hunting = [Level::Low, Level::Low, Level::High];
        let widened: Vec<_> = (0..6)
            .map(|_| (run(&mut target, &hunting), target.queue(MS * 40).as_millis()))
            .collect();
        let expected = [(true, 3), (true, 6), (true, 12), (true, 24), (true, 40), (false, 40)];
        assert_eq!(widened, expected, "first to half of the long queues");
        for _ in 0..20 {
            assert!(run(&mut target, &[Level::Near]));
        }
        assert_eq!(target.queue(MS * 40), MS, "a steady queue narrows it again");
    }

    #[test]
    fn single_change_of_the_rate_is_no_hunting() {
        let mut target = QueueTarget::default();
        let mut levels = [Level::Near; 16];
        levels[..4].fill(Level::High);
        levels[8..12].fill(Level::Low);
        assert!(run(&mut target, &levels));
        assert_eq!(target.queue(MS * 40), MS);
    }
}
