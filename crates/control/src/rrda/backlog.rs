//! Admission of data into the backlog before a processor: more is admitted only during a stall.
//!
//! If receiving is faster than processing (when the CPU is the bottleneck), a single stall would
//! otherwise fill all available room for nothing, and data processed late has left the CPU caches.
//!
//! The ceiling after a stall is the backlog at that time. A receiver that is slower than the
//! processor is therefore never throttled while the backlog drains.

use super::{EPOCH_INTERVAL, TREND_EPOCHS};
use crate::path_control::TICK;
use crate::units::Bytes;
use std::time::Duration;

/// Time without progress after which processing is stalled: half a tick.
///
/// A disk of 50 MB/s needs as long for a chunk of 256 KiB.
const STALL_TIMEOUT: Duration = Duration::from_nanos(TICK.as_nanos() as u64 / 2);

/// Backlog of one processor, beyond guaranteed room. Times count from any fixed origin.
#[derive(Debug, Clone)]
pub struct Backlog {
    /// Guaranteed room, and slack of the ceiling above the last backlog.
    ///
    /// Receiving and processing alternate.
    guaranteed: Bytes,
    ceiling: Bytes,
    /// Time of the last progress, or of the first arrival at an idle processor.
    last_processed: Duration,
    epoch_start: Duration,
    /// Data was rejected in this epoch while processing ran.
    throttled: bool,
    /// Throttled epochs in a row before this one.
    throttled_epochs: usize,
}

impl Backlog {
    /// Creates an empty backlog of a processor with guaranteed room.
    #[must_use]
    pub fn new(now: Duration, guaranteed: Bytes) -> Self {
        Self {
            guaranteed,
            ceiling: Bytes(0),
            last_processed: now,
            epoch_start: now,
            throttled: false,
            throttled_epochs: 0,
        }
    }

    /// Records an arrival while nothing is queued.
    pub fn on_first_arrival(&mut self, now: Duration) {
        self.last_processed = now;
    }

    /// Records progress. `beyond`: what is still queued beyond guaranteed room.
    pub fn on_processed(&mut self, now: Duration, beyond: Bytes) {
        self.advance(now);
        self.last_processed = now;
        self.ceiling = self.ceiling.min(beyond + self.guaranteed);
    }

    /// True if the queue may grow to `beyond` bytes beyond guaranteed room.
    pub fn admits(&mut self, now: Duration, beyond: Bytes) -> bool {
        self.advance(now);
        if self.time_to_stall(now).is_zero() {
            self.ceiling = self.ceiling.max(beyond);
        }
        let admits = beyond <= self.ceiling;
        self.throttled |= !admits;
        admits
    }

    /// Returns the time until processing counts as stalled, without further progress.
    #[must_use]
    pub fn time_to_stall(&self, now: Duration) -> Duration {
        (self.last_processed + STALL_TIMEOUT).saturating_sub(now)
    }

    /// Halves the ceiling after each epoch of a throttling trend: processing is the slower side,
    /// and a smaller backlog serves it as well.
    fn advance(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.epoch_start);
        let epochs = (elapsed.as_nanos() / EPOCH_INTERVAL.as_nanos()) as u32;
        if epochs == 0 {
            return;
        }
        self.epoch_start += EPOCH_INTERVAL * epochs;
        let is_consecutive = self.throttled && epochs == 1;
        self.throttled_epochs = if is_consecutive { self.throttled_epochs + 1 } else { 0 };
        self.throttled = false;
        if self.throttled_epochs >= TREND_EPOCHS {
            self.ceiling = Bytes(self.ceiling.0 / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 256 << 10;
    /// Guaranteed room.
    const GUARANTEED: u64 = 6 * CHUNK;

    /// Network and disk in steps of 0.1 ms.
    struct Run {
        backlog: Backlog,
        queued: u64,
        /// Counters of the current run.
        rejected: u32,
        starved: u32,
        max_queued: u64,
    }

    impl Run {
        fn new() -> Self {
            let backlog = Backlog::new(Duration::ZERO, Bytes(GUARANTEED));
            Self { backlog, queued: 0, rejected: 0, starved: 0, max_queued: 0 }
        }

        /// Runs steps with bytes arriving and processable per step; resets the counters.
        fn run(
            &mut self,
            steps: std::ops::Range<u64>,
            arriving: u64,
            processable: impl Fn(u64) -> u64,
        ) {
            (self.rejected, self.starved, self.max_queued) = (0, 0, 0);
            let (mut arrived, mut done) = (0, 0);
            for step in steps {
                let now = Duration::from_micros(100) * step as u32;
                arrived = (arrived + arriving).min(4 * CHUNK);
                while arrived >= CHUNK {
                    let after = self.queued + CHUNK;
                    let beyond = after.saturating_sub(GUARANTEED);
                    if beyond > 0 && !self.backlog.admits(now, Bytes(beyond)) {
                        self.rejected += 1;
                        break;
                    }
                    if self.queued == 0 {
                        self.backlog.on_first_arrival(now);
                    }
                    (self.queued, arrived) = (after, arrived - CHUNK);
                }
                self.max_queued = self.max_queued.max(self.queued);
                done = (done + processable(step)).min(CHUNK);
                if processable(step) > 0 && self.queued == 0 {
                    self.starved += 1;
                } else if done == CHUNK && self.queued > 0 {
                    (self.queued, done) = (self.queued - CHUNK, 0);
                    self.backlog.on_processed(now, Bytes(self.queued.saturating_sub(GUARANTEED)));
                }
            }
        }
    }

    /// 1 Gbit/s.
    const PATH: u64 = 12_500;
    const SECOND: u64 = 10_000;

    /// Disk that stalls for the first half second of every three.
    fn stalling(rate: u64) -> impl Fn(u64) -> u64 {
        move |step| if step % (3 * SECOND) < SECOND / 2 { 0 } else { rate }
    }

    #[test]
    fn slower_processor_gets_guaranteed_room_only() {
        let mut run = Run::new();
        run.run(0..3 * SECOND, 2 * PATH, |_| PATH);
        assert_eq!((run.max_queued, run.starved < 100), (GUARANTEED, true), "{}", run.starved);
    }

    #[test]
    fn stall_gets_room_which_throttling_reclaims() {
        let mut run = Run::new();
        // A stall of 200 ms, then processing at a constant rate below arrival.
        run.run(0..SECOND, 4 * PATH, |step| if step < SECOND / 5 { 0 } else { 3 * PATH });
        assert!(run.max_queued > 4 * PATH * SECOND / 6, "{}", run.max_queued);
        run.run(SECOND..4 * SECOND, 4 * PATH, |_| 3 * PATH);
        assert_eq!(run.starved, 0, "a lower ceiling must not starve processing");
        run.run(4 * SECOND..5 * SECOND, 4 * PATH, |_| 3 * PATH);
        assert!(run.max_queued <= GUARANTEED + CHUNK, "{}", run.max_queued);
    }

    #[test]
    fn faster_processor_is_not_throttled_after_stall() {
        for disk in [2 * PATH, PATH * 5 / 4, PATH * 11 / 10] {
            let mut run = Run::new();
            run.run(0..30 * SECOND, PATH, stalling(disk));
            // The first 5 ms of each stall may reject.
            assert!(run.rejected < 10 * 60, "{disk}: {}", run.rejected);
        }
    }
}
