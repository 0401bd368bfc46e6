//! One-way delay from the sender, from the timestamps of echoes.
//!
//! The clocks of both hosts differ by an unknown offset, so the delay has an arbitrary origin.

use std::time::Duration;

/// Largest accepted RTT; longer ones come from a clock step. (chosen: more than paths take,
/// also with queues of seconds)
///
/// Added to all delays, so that later ones are not negative.
pub(super) const MAX_PLAUSIBLE_RTT: Duration = Duration::from_secs(10);

/// Change of a clock's offset that counts as a step. (chosen: the kernel slews a clock by 5 µs
/// between two ticks at most)
pub(super) const MIN_CLOCK_STEP: Duration = Duration::from_millis(1);

/// Computes the one-way delay in the direction of the data.
#[derive(Debug, Default)]
pub(super) struct ForwardDelay {
    origin: Option<Origin>,
    gap: Gap,
}

/// Interval without delays, which separates those of different origins.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Gap {
    #[default]
    Over,
    /// The next echo begins it.
    Due,
    /// Lasts until the next tick.
    Begun,
}

/// Origin of the delays, and what earlier echoes tell about it. In microseconds.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// Difference of the clocks that is subtracted.
    offset: i128,
    /// Largest lower bound, and smallest upper bound, of the difference of the clocks.
    bounds: (i128, i128),
}

impl Origin {
    /// Returns the origin that makes the first delay half of its RTT.
    fn new(difference: i128, rtt: i128) -> Self {
        let offset = difference - rtt / 2 - micros(MAX_PLAUSIBLE_RTT);
        Self { offset, bounds: (difference - rtt, difference) }
    }

    /// Returns false if no difference of the clocks suits this echo and the earlier ones.
    ///
    /// A delay is neither negative nor longer than the RTT.
    fn tighten(&mut self, difference: i128, rtt: i128) -> bool {
        let (least, most) = self.bounds;
        self.bounds = (least.max(difference - rtt), most.min(difference));
        self.bounds.0 <= self.bounds.1 + micros(MIN_CLOCK_STEP)
    }
}

impl ForwardDelay {
    /// Begins a tick, after which delays may have another origin.
    pub(super) fn begin_tick(&mut self) {
        if self.gap == Gap::Begun {
            self.gap = Gap::Over;
        }
    }

    /// Discards the origin, since a clock stepped.
    pub(super) fn reset(&mut self) {
        if self.origin.take().is_some() {
            self.gap = Gap::Due;
        }
    }

    /// Returns the delay of an echo, from the times of both clocks.
    ///
    /// `None` after a step of a clock, for one tick.
    pub(super) fn compute(
        &mut self,
        sent_us: u64,
        arrived: Duration,
        rtt: Duration,
    ) -> Option<Duration> {
        let (difference, rtt) = (micros(arrived) - i128::from(sent_us), micros(rtt));
        if self.origin.as_mut().is_some_and(|origin| !origin.tighten(difference, rtt)) {
            self.reset();
        }
        if self.gap != Gap::Over {
            self.gap = Gap::Begun;
            return None;
        }
        let origin = self.origin.get_or_insert_with(|| Origin::new(difference, rtt));
        u64::try_from(difference - origin.offset).ok().map(Duration::from_micros)
    }
}

fn micros(time: Duration) -> i128 {
    i128::try_from(time.as_micros()).unwrap_or(i128::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Time in an empty queue.
    const EMPTY: Duration = Duration::ZERO;

    /// A path of 20 ms: 12 ms in the direction of the data and 8 ms back.
    struct Path {
        delay: ForwardDelay,
        /// Time on the receiver's clock, and how far the sender's is ahead.
        now: Duration,
        sender_ahead: Duration,
    }

    impl Path {
        fn new() -> Self {
            let (now, sender_ahead) = (Duration::from_secs(1_000), Duration::from_secs(77_777));
            Self { delay: ForwardDelay::default(), now, sender_ahead }
        }

        /// Returns the delay of an echo that waited in queues of both directions.
        fn echo(&mut self, forward_queue: Duration, back_queue: Duration) -> Option<Duration> {
            let sent = self.now + self.sender_ahead + MS * 8 + back_queue;
            let rtt = MS * 20 + forward_queue + back_queue;
            self.delay.compute(sent.as_micros() as u64, self.now + rtt, rtt)
        }

        fn tick(&mut self) {
            self.delay.begin_tick();
            self.now += MS * 10;
        }
    }

    #[test]
    fn delay_starts_at_half_the_rtt_and_ignores_the_reverse_path() {
        let mut path = Path::new();
        assert_eq!(path.echo(EMPTY, EMPTY), Some(MAX_PLAUSIBLE_RTT + MS * 10));
        assert_eq!(path.echo(EMPTY, MS * 30), Some(MAX_PLAUSIBLE_RTT + MS * 10));
        assert_eq!(path.echo(MS * 5, MS * 30), Some(MAX_PLAUSIBLE_RTT + MS * 15));
        // The first echo met a queue, so that later ones are faster.
        let mut path = Path::new();
        assert_eq!(path.echo(MS * 100, EMPTY), Some(MAX_PLAUSIBLE_RTT + MS * 60));
        path.tick();
        assert_eq!(path.echo(EMPTY, EMPTY), Some(MAX_PLAUSIBLE_RTT - MS * 40));
        // The sender's clock may be behind.
        let first = ForwardDelay::default().compute(3, MS * 1_000_000, MS * 20);
        assert_eq!(first, Some(MAX_PLAUSIBLE_RTT + MS * 10));
        let extreme = ForwardDelay::default().compute(u64::MAX, Duration::ZERO, MS * 20);
        assert_eq!(extreme, Some(MAX_PLAUSIBLE_RTT + MS * 10));
    }

    #[test]
    fn step_of_this_clock_leaves_one_tick_without_delay() {
        let mut path = Path::new();
        path.delay.reset();
        assert!(path.echo(MS, MS).is_some(), "nothing to separate");
        path.now += Duration::from_secs(3600);
        path.delay.reset();
        path.tick();
        let same_tick = [path.echo(MS, MS), path.echo(MS * 2, MS)];
        assert_eq!(same_tick, [None; 2]);
        path.tick();
        assert_eq!(path.echo(EMPTY, EMPTY), Some(MAX_PLAUSIBLE_RTT + MS * 10));
        path.tick();
        assert_eq!(path.echo(MS * 3, EMPTY), Some(MAX_PLAUSIBLE_RTT + MS * 13));
    }

    #[test]
    fn step_of_the_senders_clock_is_detected() {
        for (ahead, queue) in [(MS * 40, EMPTY), (MS * 70_000, MS * 9)] {
            let mut path = Path::new();
            for step in [path.sender_ahead + ahead, path.sender_ahead - ahead] {
                assert!(path.echo(queue, queue).is_some());
                path.tick();
                path.sender_ahead = step;
                assert_eq!(path.echo(queue, queue), None);
                path.tick();
                assert!(path.echo(queue, queue).is_some());
                path.tick();
            }
        }
    }

    #[test]
    fn reordered_echoes_have_their_own_delays() {
        let mut path = Path::new();
        path.echo(EMPTY, EMPTY);
        path.now += MS * 10;
        let overtaken = path.now;
        path.now += MS * 10;
        let later = path.echo(MS, MS);
        path.now = overtaken;
        assert_eq!(
            [later, path.echo(MS * 15, MS)],
            [11, 25].map(|ms| Some(MAX_PLAUSIBLE_RTT + MS * ms))
        );
        path.now += MS * 20;
        assert_eq!(path.echo(MS, MS), Some(MAX_PLAUSIBLE_RTT + MS * 11));
    }
}
