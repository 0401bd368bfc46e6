//! Limit of a buffer pool with back-pressure: senders wait while the pool is full.
//!
//! The pool holds data between a network and a disk. Nothing is discarded; a lack of room costs
//! time in which receiving is blocked. More room helps only if processing stalls and is faster than
//! arrival at other times. If processing is always slower, a pool of any size is full, and a larger
//! one only adds delay.

use super::{Bounds, EPOCH_INTERVAL, Epoch, Reason, Rrda, USAGE_HISTORY_EPOCHS, push_bounded};
use crate::units::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// Fraction of peak processing below which processing is stalled. (chosen: other load halves the
/// rate for a while, which needs no more room)
const STALL_FRACTION: f64 = 0.5;

/// Observation of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Length of the interval.
    pub elapsed: Duration,
    /// Bytes received into the pool.
    pub arrived: Bytes,
    /// Bytes processed.
    pub processed: Bytes,
    /// Maximum usage of the pool.
    pub max_used: Bytes,
    /// Minimum usage of the pool.
    pub min_used: Bytes,
    /// Time in which a receiver waited for room.
    pub blocked_time: Duration,
    /// A processor waited for data.
    pub was_starved: bool,
    /// Memory utilization: used / total, 0 to 1.
    pub memory: f64,
}

/// Controller of a pool's limit.
#[derive(Debug, Clone)]
pub struct PoolLimit {
    rrda: Rrda,
    /// Minimum usage and starvation in each of the last epochs.
    history: VecDeque<(u64, bool)>,
    /// Peak bytes received per epoch, decayed.
    peak_arrival: f64,
    /// Peak bytes processed per epoch, decayed.
    peak_processing: f64,
}

impl PoolLimit {
    /// Creates a controller at the minimum.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let history = VecDeque::new();
        let rrda = Rrda::new(bounds, None);
        Self { rrda, history, peak_arrival: 0.0, peak_processing: 0.0 }
    }

    /// Returns the current limit.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.rrda.size()
    }

    /// Sets the bounds and applies them immediately.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.rrda.set_bounds(bounds);
        let size = self.rrda.size().clamp(bounds.min, bounds.max.max(bounds.min));
        self.rrda.on_granted(size);
    }

    /// Applies an interval of about an epoch. Returns the limit to set and the reason.
    pub fn on_epoch(&mut self, interval: &Interval) -> (Bytes, Reason) {
        let elapsed = interval.elapsed.max(EPOCH_INTERVAL / 2);
        let scale = EPOCH_INTERVAL.as_secs_f64() / elapsed.as_secs_f64();
        let per_epoch = |bytes: Bytes| bytes.0 as f64 * scale;
        let (arrived, processed) = (per_epoch(interval.arrived), per_epoch(interval.processed));
        let blocked =
            interval.blocked_time.as_secs_f64() / interval.elapsed.as_secs_f64().max(1e-9);
        let blocked = blocked.clamp(0.0, 1.0);
        let minimum = (interval.min_used.0, interval.was_starved);
        push_bounded(&mut self.history, minimum, USAGE_HISTORY_EPOCHS);
        let is_stalled = processed < STALL_FRACTION * self.peak_processing;
        // Peaks decay over the usage history.
        let decay = 1.0 - 1.0 / USAGE_HISTORY_EPOCHS as f64;
        // Without blocking, arrival would have continued at its peak.
        let peak_arrival =
            if blocked > 0.0 { self.peak_arrival } else { decay * self.peak_arrival };
        self.peak_arrival = peak_arrival.max(arrived);
        self.peak_processing = (decay * self.peak_processing).max(processed);
        let was_starved = self.history.iter().any(|&(_, was_starved)| was_starved);
        let missed = if is_stalled && was_starved { blocked * self.peak_arrival } else { 0.0 };
        // Data that stayed in the pool throughout the history makes room useless.
        let persistent = self.history.iter().map(|&(min, _)| min).min().unwrap_or_default();
        // Guaranteed room beyond the limit does not count as usage.
        let used = interval.max_used.0.saturating_sub(persistent).min(self.rrda.size().0);
        let epoch = Epoch {
            // A surplus alone does not count: it ends when the pool is full.
            arrived: Bytes((arrived.min(processed) + missed) as u64),
            processed: Bytes(processed as u64),
            discarded: Bytes(missed as u64),
            used: Bytes(used),
            memory: interval.memory,
        };
        self.rrda.on_epoch(&epoch)
    }
}

/// Returns the reason for a pool's limit as a clause for people.
#[must_use]
pub fn reason_clause(reason: Reason) -> &'static str {
    match reason {
        Reason::Kept => "no reason to change",
        Reason::Surplus => "writing resumed after a stall",
        Reason::Discarded => "writing is stalled and senders wait for room",
        Reason::Draining => "more is written than arrives",
        Reason::Unused => "less was buffered for seconds",
        Reason::Bound => "follows the number of connections and the free memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: Bounds = Bounds { min: Bytes(4 * MIB), max: Bytes(256 * MIB) };

    /// Path and disk in steps of a millisecond, with a pool between them.
    struct Model {
        control: PoolLimit,
        queued: u64,
        done: u64,
        max_size: u64,
    }

    impl Model {
        fn new(bounds: Bounds) -> Self {
            Self { control: PoolLimit::new(bounds), queued: 0, done: 0, max_size: 0 }
        }

        /// Runs for some epochs, with bytes per millisecond of the path and of the disk.
        fn run(&mut self, epochs: u64, path: u64, disk: impl Fn(u64) -> u64) {
            for epoch in 0..epochs {
                let mut interval = Interval {
                    elapsed: EPOCH_INTERVAL,
                    arrived: Bytes(0),
                    processed: Bytes(0),
                    max_used: Bytes(self.queued),
                    min_used: Bytes(self.queued),
                    blocked_time: Duration::ZERO,
                    was_starved: false,
                    memory: 0.2,
                };
                for ms in epoch * 100..(epoch + 1) * 100 {
                    let taken = path.min(self.control.size().0.saturating_sub(self.queued));
                    if taken < path {
                        interval.blocked_time += Duration::from_millis(1);
                    }
                    self.queued += taken;
                    let written = disk(ms).min(self.queued);
                    interval.was_starved |= written < disk(ms);
                    self.queued -= written;
                    self.done += written;
                    interval.arrived += Bytes(taken);
                    interval.processed += Bytes(written);
                    interval.max_used = interval.max_used.max(Bytes(self.queued));
                    interval.min_used = interval.min_used.min(Bytes(self.queued));
                }
                self.max_size = self.max_size.max(self.control.size().0);
                self.control.on_epoch(&interval);
            }
        }
    }

    /// Disk that stalls for 500 ms every 3 s.
    fn stalling(rate: u64) -> impl Fn(u64) -> u64 {
        move |ms| if ms % 3000 >= 2500 { 0 } else { rate }
    }

    /// 1 Gbit/s.
    const PATH: u64 = 125_000;

    #[test]
    fn stalling_disk_costs_under_five_percent() {
        // Twice as fast as the path, a little faster, and slower on average.
        for disk in [2 * PATH, PATH * 5 / 4, PATH * 11 / 10] {
            let mut model = Model::new(BOUNDS);
            model.run(300, PATH, stalling(disk));
            let best = PATH.min(disk * 5 / 6) * 30_000;
            assert!(model.done * 100 >= best * 95, "{disk}: {} of {best}", model.done);
            let mut small = Model::new(Bounds { max: BOUNDS.min, ..BOUNDS });
            small.run(300, PATH, stalling(disk));
            assert!(small.done < model.done, "{disk}: {} and {}", small.done, model.done);
            // The limit returns to the minimum after the last stall.
            model.run(100, PATH, |_| 2 * PATH);
            assert_eq!(model.control.size(), BOUNDS.min);
        }
    }

    #[test]
    fn slower_disk_stays_at_min_size() {
        for disk in [PATH / 10, PATH / 2, PATH * 9 / 10] {
            let mut model = Model::new(BOUNDS);
            model.run(300, PATH, |_| disk);
            assert_eq!(model.max_size, BOUNDS.min.0, "{disk}");
        }
    }

    #[test]
    fn permanently_slowed_disk_loses_its_room() {
        let mut model = Model::new(BOUNDS);
        model.run(50, PATH, |_| 2 * PATH);
        model.run(600, PATH, |_| PATH / 5);
        assert!(model.max_size > BOUNDS.min.0);
        assert!(model.control.size().0 <= 2 * BOUNDS.min.0, "{}", model.control.size());
    }

    #[test]
    fn new_bounds_apply_immediately() {
        let mut model = Model::new(BOUNDS);
        model.run(60, PATH, stalling(2 * PATH));
        assert!(model.control.size() > Bytes(32 * MIB));
        model.control.set_bounds(Bounds { min: Bytes(MIB), max: Bytes(32 * MIB) });
        assert_eq!(model.control.size(), Bytes(32 * MIB));
    }

    #[test]
    fn random_load_stays_within_bounds() {
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
