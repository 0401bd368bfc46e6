//! The rule for a buffer whose sender waits while it is full: what comes off a network before it is
//! written to a disk. Nothing is discarded there; what a lack of room costs is time in which nobody
//! takes in what could have come.
//!
//! More room helps only where what is processed comes to a halt and is the faster of the two at
//! other times. Where it is the slower one all the time, a buffer of any size is full, and the more
//! there is in it the worse.

use super::{Bounds, EPOCH, Epoch, REMEMBERED, Reason, Rrda, remember};
use crate::units::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// Processing has come to a halt where less than this part of its most is done. (ours: what is busy
/// with other things for a while does half as much, and needs no more room)
const HALT: f64 = 0.25;

/// What is left of the most that was done in an epoch, an epoch later. (ours: forgotten within two
/// seconds or so)
const FADE: f64 = 0.95;

/// What a while was like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// How long it was.
    pub elapsed: Duration,
    /// What was taken in.
    pub arrived: Bytes,
    /// What was processed.
    pub processed: Bytes,
    /// The most and the least that was in the buffer.
    pub most: Bytes,
    /// See `most`.
    pub least: Bytes,
    /// How long somebody waited for room.
    pub kept_out: Duration,
    /// Whether somebody waited for something to process.
    pub was_starved: bool,
    /// Memory in use, as part of all there is.
    pub memory: f64,
}

/// The size of a buffer that holds its sender back.
#[derive(Debug, Clone)]
pub struct Staging {
    rrda: Rrda,
    /// Of each of the last epochs: the least that was in it, and whether somebody was starved.
    last: VecDeque<(u64, bool)>,
    /// The most that came and was processed in an epoch.
    arrival: f64,
    processing: f64,
}

impl Staging {
    /// A buffer of the least size.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let last = VecDeque::new();
        Self { rrda: Rrda::new(bounds, None), last, arrival: 0.0, processing: 0.0 }
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.rrda.size()
    }

    /// Other bounds, since there is more memory or less, or there are more connections or fewer.
    /// They hold at once.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.rrda.set_bounds(bounds);
        let size = self.rrda.size().clamp(bounds.min, bounds.max.max(bounds.min));
        self.rrda.on_granted(size);
    }

    /// An epoch is over. The size that the buffer is to have now, and why.
    pub fn on_epoch(&mut self, interval: &Interval) -> (Bytes, Reason) {
        let scale = EPOCH.as_secs_f64() / interval.elapsed.max(EPOCH / 2).as_secs_f64();
        let per_epoch = |bytes: Bytes| bytes.0 as f64 * scale;
        let (arrived, processed) = (per_epoch(interval.arrived), per_epoch(interval.processed));
        let kept_out = interval.kept_out.as_secs_f64() / interval.elapsed.as_secs_f64().max(1e-9);
        let kept_out = kept_out.clamp(0.0, 1.0);
        remember(&mut self.last, (interval.least.0, interval.was_starved), REMEMBERED);
        let has_halted = processed < HALT * self.processing;
        // What could have come, had there been room: as much as came before.
        self.arrival = if kept_out > 0.0 { self.arrival } else { FADE * self.arrival }.max(arrived);
        self.processing = (FADE * self.processing).max(processed);
        let was_starved = self.last.iter().any(|&(_, was_starved)| was_starved);
        let missed = if has_halted && was_starved { kept_out * self.arrival } else { 0.0 };
        // What was never needed in all that time is in the buffer for nothing.
        let standing = self.last.iter().map(|&(least, _)| least).min().unwrap_or_default();
        // What others were let in with beyond the size asks for no more.
        let used = interval.most.0.saturating_sub(standing).min(self.rrda.size().0);
        let epoch = Epoch {
            // Nor is a trend of its own that more comes than is processed: it ends when it is full.
            arrived: Bytes((arrived.min(processed) + missed) as u64),
            processed: Bytes(processed as u64),
            discarded: Bytes(missed as u64),
            used: Bytes(used),
            memory: interval.memory,
        };
        self.rrda.on_epoch(&epoch)
    }
}

/// Why the size is what it is, as a clause for people: nothing is discarded here.
#[must_use]
pub fn clause(reason: Reason) -> &'static str {
    match reason {
        Reason::Kept => "nothing asks for another size",
        Reason::Surplus => "writing stood still a moment ago, and goes on",
        Reason::Discarded => "writing stands still, and senders wait for room",
        Reason::Draining => "more is written than arrives",
        Reason::Unused => "less waited for seconds",
        Reason::Bound => "connections came or ended, or the free memory has changed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: Bounds = Bounds { min: Bytes(4 * MIB), max: Bytes(256 * MIB) };

    /// What a path brings and a disk takes in a millisecond, and the buffer between them.
    struct Model {
        control: Staging,
        stands: u64,
        done: u64,
        most_size: u64,
    }

    impl Model {
        fn new(bounds: Bounds) -> Self {
            Self { control: Staging::new(bounds), stands: 0, done: 0, most_size: 0 }
        }

        /// Lets so many epochs go by; the disk's rate is a matter of the millisecond.
        fn run(&mut self, epochs: u64, path: u64, disk: impl Fn(u64) -> u64) {
            for epoch in 0..epochs {
                let mut interval = Interval {
                    elapsed: EPOCH,
                    arrived: Bytes(0),
                    processed: Bytes(0),
                    most: Bytes(self.stands),
                    least: Bytes(self.stands),
                    kept_out: Duration::ZERO,
                    was_starved: false,
                    memory: 0.2,
                };
                for ms in epoch * 100..(epoch + 1) * 100 {
                    let come = path.min(self.control.size().0.saturating_sub(self.stands));
                    if come < path {
                        interval.kept_out += Duration::from_millis(1);
                    }
                    self.stands += come;
                    let goes = disk(ms).min(self.stands);
                    interval.was_starved |= goes < disk(ms);
                    self.stands -= goes;
                    self.done += goes;
                    interval.arrived += Bytes(come);
                    interval.processed += Bytes(goes);
                    interval.most = interval.most.max(Bytes(self.stands));
                    interval.least = interval.least.min(Bytes(self.stands));
                }
                self.most_size = self.most_size.max(self.control.size().0);
                self.control.on_epoch(&interval);
            }
        }
    }

    /// A disk that does nothing for 500 ms every 3 s.
    fn stalling(rate: u64) -> impl Fn(u64) -> u64 {
        move |ms| if ms % 3000 >= 2500 { 0 } else { rate }
    }

    /// 1 Gbit/s.
    const PATH: u64 = 125_000;

    #[test]
    fn a_disk_that_stalls_costs_the_path_next_to_nothing() {
        // Twice as fast as the path, a little faster, and in the mean slower than it.
        for disk in [2 * PATH, PATH * 5 / 4, PATH * 11 / 10] {
            let mut model = Model::new(BOUNDS);
            model.run(300, PATH, stalling(disk));
            let best = PATH.min(disk * 5 / 6) * 30_000;
            assert!(model.done * 100 >= best * 95, "{disk}: {} of {best}", model.done);
            let mut small = Model::new(Bounds { max: BOUNDS.min, ..BOUNDS });
            small.run(300, PATH, stalling(disk));
            assert!(small.done < model.done, "{disk}: {} and {}", small.done, model.done);
            // Given back when that is over.
            model.run(100, PATH, |_| 2 * PATH);
            assert_eq!(model.control.size(), BOUNDS.min);
        }
    }

    #[test]
    fn a_disk_that_is_slower_all_the_time_is_given_no_more_than_the_least() {
        for disk in [PATH / 10, PATH / 2, PATH * 9 / 10] {
            let mut model = Model::new(BOUNDS);
            model.run(300, PATH, |_| disk);
            assert_eq!(model.most_size, BOUNDS.min.0, "{disk}");
        }
    }

    #[test]
    fn a_disk_that_became_slower_for_good_gets_its_room_back_taken() {
        let mut model = Model::new(BOUNDS);
        model.run(50, PATH, |_| 2 * PATH);
        model.run(600, PATH, |_| PATH / 5);
        assert!(model.most_size > BOUNDS.min.0);
        assert!(model.control.size().0 <= 2 * BOUNDS.min.0, "{}", model.control.size());
    }

    #[test]
    fn new_bounds_hold_at_once() {
        let mut model = Model::new(BOUNDS);
        model.run(60, PATH, stalling(2 * PATH));
        assert!(model.control.size() > Bytes(32 * MIB));
        model.control.set_bounds(Bounds { min: Bytes(MIB), max: Bytes(32 * MIB) });
        assert_eq!(model.control.size(), Bytes(32 * MIB));
    }

    #[test]
    fn whatever_happens_it_stays_within_its_bounds() {
        for seed in 0..200_u64 {
            let mut model = Model::new(BOUNDS);
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for _ in 0..20 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let (path, disk, pause) = (random % 1_000_000, random >> 44, random >> 32 & 1023);
                model.run(5, path, move |ms| if ms % 700 < pause { 0 } else { disk });
                let size = model.control.size();
                assert!(size >= BOUNDS.min && size <= BOUNDS.max, "{seed}: {size}");
            }
            model.run(100, 0, |_| 1_000_000);
            assert_eq!(model.control.size(), BOUNDS.min, "{seed}");
        }
    }
}
