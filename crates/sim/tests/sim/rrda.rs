//! RRDA in virtual time: a buffer between arrival and processing.
//!
//! The paper's three scenarios are snapshots for review; other tests apply random load.

use crate::snapshot::assert_snapshot;
use bankfull_control::Bytes;
use bankfull_control::rrda::{Bounds, Epoch, Reason, Rrda};

const BOUNDS: Bounds = Bounds { min: Bytes(131_072), max: Bytes(64 << 20) };

/// Buffer with its load.
pub(crate) struct Buffer {
    control: Rrda,
    queued: u64,
    pub(crate) discarded: u64,
    memory: f64,
}

/// Result of one epoch.
pub(crate) struct EpochResult {
    surplus: i64,
    discarded: u64,
    used: u64,
    pub(crate) size: u64,
    reason: Reason,
}

impl Buffer {
    pub(crate) fn new(bounds: Bounds, memory: f64) -> Self {
        Self { control: Rrda::new(bounds, None), queued: 0, discarded: 0, memory }
    }

    /// Runs without load for longer than the controller's memory.
    pub(crate) fn run_idle(&mut self) {
        (0..50).for_each(|_| {
            self.epoch(0, 1_000_000);
        });
    }

    /// Runs an epoch with this many bytes arriving and processable, evenly distributed.
    ///
    /// The controller samples the queue in each part.
    pub(crate) fn epoch(&mut self, arriving: u64, processable: u64) -> EpochResult {
        const PARTS: u64 = 100;
        let (mut used, mut processed, mut discarded) = (self.queued, 0, 0);
        let mut sampled_reason = Reason::Kept;
        for _ in 0..PARTS {
            let room = self.control.size().0.saturating_sub(self.queued);
            let accepted = (arriving / PARTS).min(room);
            discarded += arriving / PARTS - accepted;
            self.queued += accepted;
            used = used.max(self.queued);
            match self.control.on_sample(Bytes(self.queued), Bytes(discarded), self.memory).1 {
                Reason::Kept => {}
                reason => sampled_reason = reason,
            }
            let consumed = self.queued.min(processable / PARTS);
            self.queued -= consumed;
            processed += consumed;
        }
        self.discarded += discarded;
        let (arrived, memory) = (Bytes(arriving / PARTS * PARTS), self.memory);
        let epoch = Epoch {
            arrived,
            processed: Bytes(processed),
            discarded: Bytes(discarded),
            used: Bytes(used),
            memory,
        };
        let (size, reason) = self.control.on_epoch(&epoch);
        let reason = if reason == Reason::Kept { sampled_reason } else { reason };
        let surplus = arrived.0 as i64 - processed as i64;
        EpochResult { surplus, discarded, used, size: size.0, reason }
    }
}

/// Returns a table of epochs with these arriving and processable kB.
fn table(name: &str, epochs: impl Iterator<Item = (u64, u64)>) -> (Vec<EpochResult>, String) {
    let mut buffer = Buffer::new(BOUNDS, 0.25);
    buffer.run_idle();
    let mut text = format!("{name}\nepoch  kB: surplus  discarded   used    size  reason\n");
    let mut all = Vec::new();
    for (n, (arriving, processable)) in epochs.enumerate() {
        let result = buffer.epoch(arriving * 1000, processable * 1000);
        let [discarded, used, size] =
            [result.discarded, result.used, result.size].map(|b| b / 1000);
        let (surplus, why) = (result.surplus / 1000, result.reason.name());
        text += &format!("{n:5} {surplus:12} {discarded:10} {used:6} {size:7}  {why}\n");
        all.push(result);
    }
    (all, text)
}

#[test]
fn paper_scenarios_match_snapshot() {
    // 10 Mbit/s are 125 kB in an epoch, 100 Mbit/s 1 250.
    let alternating = (0..60).map(|n| (250, if n % 2 == 0 { 150 } else { 350 }));
    let (first, mut text) = table("scenario 1: alternating", alternating);
    // Nearly all of the minimum size is in use: it grows in the first swing, and stays there.
    assert!(first.iter().all(|result| result.discarded == 0), "{text}");
    assert!(first.iter().skip(2).all(|result| result.reason == Reason::Kept), "{text}");
    let rising = (0..70).map(|n| match n {
        0..5 => (125, 125),
        5..20 => (1250, 1150),
        20..40 => (125, 1150),
        _ => (125, 125),
    });
    let (second, table_text) = table("scenario 2: surplus, then deficit", rising);
    let most = second.iter().map(|result| result.size).max().unwrap_or_default();
    assert!(most > 8 * BOUNDS.min.0 && second[69].size < 2 * BOUNDS.min.0, "{table_text}");
    text += &table_text;
    let abrupt = (0..60).map(|n| match n % 8 {
        1 => (1250, 125),
        _ => (125, 300),
    });
    let (third, table_text) = table("scenario 3: bursts", abrupt);
    let later = third.iter().skip(20).map(|result| result.discarded).sum::<u64>();
    assert_eq!(later, 0, "{table_text}");
    text += &table_text;
    assert_snapshot(&text, include_str!("../snapshots/rrda-scenarios.txt"), "rrda-scenarios.txt");
}

#[test]
fn random_load_keeps_size_in_bounds() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let bounds =
            Bounds { min: Bytes(rng.u64(4096..1 << 20)), max: Bytes(rng.u64(1 << 20..1 << 28)) };
        let mut buffer = Buffer::new(bounds, rng.f64());
        for _ in 0..300 {
            let load = [0, 10_000, 1_000_000, 100_000_000][rng.usize(0..4)];
            let (arriving, processable) = (rng.u64(0..=load), rng.u64(0..=load));
            buffer.memory = (buffer.memory + rng.f64() * 0.2 - 0.1).clamp(0.0, 1.0);
            let result = buffer.epoch(arriving, processable);
            assert!(result.size >= bounds.min.0, "seed {seed}");
            assert!(result.size <= bounds.max.0.max(result.used), "seed {seed}");
            assert!(result.size >= result.used, "seed {seed}");
        }
        // The load falls: 5 s later the buffer is small.
        buffer.queued = 0;
        let last = (0..50).map(|_| buffer.epoch(1000, 1_000_000)).last();
        assert!(last.is_some_and(|result| result.size <= bounds.min.0 * 2), "seed {seed}");
    }
}

#[test]
fn alternating_load_keeps_size() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        // A multiple of the parts per epoch, otherwise rounding would cause a surplus.
        let swing = rng.u64(10..100_000) * 100;
        let mut buffer = Buffer::new(BOUNDS, rng.f64() * 0.9);
        let result: Vec<EpochResult> = (0..200)
            .map(|n| buffer.epoch(swing * 2, if n % 2 == 0 { swing } else { swing * 3 }))
            .collect();
        // The size is found within the first seconds, and stays.
        let sizes: Vec<u64> = result.iter().skip(100).map(|result| result.size).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: {sizes:?}");
        assert!(result.iter().skip(100).all(|result| result.discarded == 0), "seed {seed}");
    }
}

#[test]
fn adaptive_buffer_discards_a_tenth_of_fixed() {
    // A consumer that sometimes pauses for half a second.
    let load = |n: u64| (1_250_000, if n % 30 < 5 { 0 } else { 1_700_000 });
    let fixed = Bounds { min: Bytes(1 << 20), max: Bytes(1 << 20) };
    let discarded = |bounds| {
        let mut buffer = Buffer::new(bounds, 0.25);
        buffer.run_idle();
        (0..600).for_each(|n| {
            let (arriving, processable) = load(n);
            buffer.epoch(arriving, processable);
        });
        buffer.discarded
    };
    let (fixed, adaptive) = (discarded(fixed), discarded(BOUNDS));
    assert!(adaptive * 10 <= fixed, "{adaptive} of {fixed}");
}
