//! RRDA in virtual time: a buffer between what arrives and what processes it, in the paper's three
//! scenarios as tables that a person can review, and under any load.

use crate::sobas::same_as_committed;
use bankfull_control::Bytes;
use bankfull_control::rrda::{Bounds, Epoch, Reason, Rrda};

const BOUNDS: Bounds = Bounds { min: Bytes(131_072), max: Bytes(64 << 20) };

/// A buffer, and what goes through it.
struct Buffer {
    control: Rrda,
    queued: u64,
    discarded: u64,
    memory: f64,
}

/// An epoch of it.
struct Went {
    surplus: i64,
    discarded: u64,
    used: u64,
    size: u64,
    reason: Reason,
}

impl Buffer {
    fn new(bounds: Bounds, memory: f64) -> Self {
        Self { control: Rrda::new(bounds, None), queued: 0, discarded: 0, memory }
    }

    /// Nothing comes for longer than anything is remembered.
    fn rest(&mut self) {
        (0..50).for_each(|_| {
            self.epoch(0, 1_000_000);
        });
    }

    /// An epoch in which so much arrives and so much could be processed, evenly. Whoever processes
    /// looks at what stands there each time.
    fn epoch(&mut self, arriving: u64, processable: u64) -> Went {
        const PARTS: u64 = 100;
        let (mut used, mut processed, mut discarded) = (self.queued, 0, 0);
        let mut looked = Reason::Kept;
        for _ in 0..PARTS {
            let room = self.control.size().0.saturating_sub(self.queued);
            let taken = (arriving / PARTS).min(room);
            discarded += arriving / PARTS - taken;
            self.queued += taken;
            used = used.max(self.queued);
            match self.control.on_sample(Bytes(self.queued), Bytes(discarded), self.memory).1 {
                Reason::Kept => {}
                reason => looked = reason,
            }
            let done = self.queued.min(processable / PARTS);
            self.queued -= done;
            processed += done;
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
        let reason = if reason == Reason::Kept { looked } else { reason };
        let surplus = arrived.0 as i64 - processed as i64;
        Went { surplus, discarded, used, size: size.0, reason }
    }
}

/// A table of epochs in which so much arrives and could be processed, in kB.
fn table(name: &str, epochs: impl Iterator<Item = (u64, u64)>) -> (Vec<Went>, String) {
    let mut buffer = Buffer::new(BOUNDS, 0.25);
    buffer.rest();
    let mut text = format!("{name}\nepoch  kB: surplus  discarded   used    size  why\n");
    let mut all = Vec::new();
    for (n, (arriving, processable)) in epochs.enumerate() {
        let went = buffer.epoch(arriving * 1000, processable * 1000);
        let [discarded, used, size] = [went.discarded, went.used, went.size].map(|b| b / 1000);
        let (surplus, why) = (went.surplus / 1000, went.reason.name());
        text += &format!("{n:5} {surplus:12} {discarded:10} {used:6} {size:7}  {why}\n");
        all.push(went);
    }
    (all, text)
}

#[test]
fn the_papers_three_scenarios() {
    // 10 Mbit/s are 125 kB in an epoch, 100 Mbit/s 1 250.
    let alternating = (0..60).map(|n| (250, if n % 2 == 0 { 150 } else { 350 }));
    let (first, mut text) = table("scenario 1: to and fro", alternating);
    // Nearly all of the least size is in use: it grows in the first swing, and keeps that.
    assert!(first.iter().all(|went| went.discarded == 0), "{text}");
    assert!(first.iter().skip(2).all(|went| went.reason == Reason::Kept), "{text}");
    let rising = (0..70).map(|n| match n {
        0..5 => (125, 125),
        5..20 => (1250, 1150),
        20..40 => (125, 1150),
        _ => (125, 125),
    });
    let (second, told) = table("scenario 2: more comes than is processed, then less", rising);
    let most = second.iter().map(|went| went.size).max().unwrap_or_default();
    assert!(most > 8 * BOUNDS.min.0 && second[69].size < 2 * BOUNDS.min.0, "{told}");
    text += &told;
    let abrupt = (0..60).map(|n| match n % 8 {
        1 => (1250, 125),
        _ => (125, 300),
    });
    let (third, told) = table("scenario 3: bursts", abrupt);
    let later = third.iter().skip(20).map(|went| went.discarded).sum::<u64>();
    assert_eq!(later, 0, "{told}");
    text += &told;
    same_as_committed(&text, include_str!("../snapshots/rrda-scenarios.txt"), "rrda-scenarios.txt");
}

#[test]
fn under_any_load_it_stays_within_its_bounds_and_comes_back() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let bounds =
            Bounds { min: Bytes(rng.u64(4096..1 << 20)), max: Bytes(rng.u64(1 << 20..1 << 28)) };
        let mut buffer = Buffer::new(bounds, rng.f64());
        for _ in 0..300 {
            let load = [0, 10_000, 1_000_000, 100_000_000][rng.usize(0..4)];
            let (arriving, processable) = (rng.u64(0..=load), rng.u64(0..=load));
            buffer.memory = (buffer.memory + rng.f64() * 0.2 - 0.1).clamp(0.0, 1.0);
            let went = buffer.epoch(arriving, processable);
            assert!(went.size >= bounds.min.0, "seed {seed}");
            assert!(went.size <= bounds.max.0.max(went.used), "seed {seed}");
            assert!(went.size >= went.used, "seed {seed}");
        }
        // The load falls: 5 s later it is small.
        buffer.queued = 0;
        let last = (0..50).map(|_| buffer.epoch(1000, 1_000_000)).last();
        assert!(last.is_some_and(|went| went.size <= bounds.min.0 * 2), "seed {seed}");
    }
}

#[test]
fn to_and_fro_is_no_reason_to_change_however_large() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        // In whole hundredths, or what is lost by that would be a surplus.
        let swing = rng.u64(10..100_000) * 100;
        let mut buffer = Buffer::new(BOUNDS, rng.f64() * 0.9);
        let went: Vec<Went> = (0..200)
            .map(|n| buffer.epoch(swing * 2, if n % 2 == 0 { swing } else { swing * 3 }))
            .collect();
        // It has found its size within the first seconds, and keeps it.
        let sizes: Vec<u64> = went.iter().skip(100).map(|went| went.size).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: {sizes:?}");
        assert!(went.iter().skip(100).all(|went| went.discarded == 0), "seed {seed}");
    }
}

#[test]
fn it_discards_a_tenth_of_what_a_fixed_buffer_does() {
    // A handler that pauses for half a second now and then.
    let load = |n: u64| (1_250_000, if n % 30 < 5 { 0 } else { 1_700_000 });
    let fixed = Bounds { min: Bytes(1 << 20), max: Bytes(1 << 20) };
    let discarded = |bounds| {
        let mut buffer = Buffer::new(bounds, 0.25);
        buffer.rest();
        (0..600).for_each(|n| {
            let (arriving, processable) = load(n);
            buffer.epoch(arriving, processable);
        });
        buffer.discarded
    };
    let (fixed, ours) = (discarded(fixed), discarded(BOUNDS));
    assert!(ours * 10 <= fixed, "{ours} of {fixed}");
}
