//! What may be in flight on a short path, where acknowledgements come late and many at once: more
//! than rate × shortest round trip, which would be sent before the next one comes.
//!
//! As far as the queue takes it. Losses tell that, beside those that there are without it.

use std::time::Duration;

/// As much as is delivered in so long. (ours: both processes sleep and wake within it; over a cable
/// of 1 Gbit/s acknowledgements took 120 µs where 38 µs were the shortest)
const AGGREGATION: Duration = Duration::from_micros(1500);

/// No more than this, whatever the rate. (ours: what is delivered in 1.5 ms at 1 Gbit/s; more
/// brought no more without a limit either, and is kept by fewer queues)
const MOST: u64 = 192 << 10;

/// What is delivered is measured in slices of so long. (ours: the most of a shorter time is that of
/// acknowledgements that come together)
const SLICE: Duration = Duration::from_millis(10);

/// It is judged by the losses of so many datagrams. (ours: 15 of them are 0.75 %)
const JUDGED: u64 = 2000;

/// After a change what became of so many does not count, which were sent before it. (ours: a window
/// of `MOST` is 160, and what it has lost is found after others were acknowledged)
const BEFORE: u64 = JUDGED / 4;

/// So much more may be lost with it, beside half as much again as without. (ours)
const LOST: f64 = 0.0075;
const BESIDE: f64 = 1.5;

/// What is lost without it is true for so long, and so long after it was too much twice as much is
/// tried again. (ours, as the shortest round trip is)
const KEPT: Duration = Duration::from_secs(10);

/// It is no less for good. (ours: two datagrams)
const LEAST: u64 = MOST / 64;

/// The part of a window that is for late acknowledgements.
#[derive(Debug, Clone)]
pub(super) struct Aggregation {
    /// What the queue takes.
    most: u64,
    /// Bytes per second, of the last slice that counts.
    mean: f64,
    slice: Slice,
    judging: Judging,
    /// The part that is lost without it, and when that was seen.
    usual: Option<(f64, Duration)>,
    /// When it was found too much last.
    cut: Duration,
}

/// What was delivered since a moment.
#[derive(Debug, Clone, Copy)]
struct Slice {
    since: Duration,
    bytes: u64,
    is_idle: bool,
}

/// What became of datagrams, but for those sent before; and whether they were sent without it.
#[derive(Debug, Clone, Copy, Default)]
struct Judging {
    before: u64,
    acked: u64,
    lost: u64,
    is_without: bool,
}

impl Aggregation {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            most: MOST,
            mean: 0.0,
            slice: Slice { since: now, bytes: 0, is_idle: false },
            judging: Judging::default(),
            usual: None,
            cut: now,
        }
    }

    /// The path is gone: what it has delivered says nothing any more.
    pub(super) fn forget(&mut self) {
        self.mean = 0.0;
        self.judging = Judging::default();
    }

    /// The window, in bytes, where it would be `window` without it.
    pub(super) fn window(&self, window: u64) -> u64 {
        if self.judging.is_without { window } else { window.max(self.allowed()) }
    }

    fn allowed(&self) -> u64 {
        self.most.min((self.mean * AGGREGATION.as_secs_f64()) as u64)
    }

    /// A datagram of so many bytes was acknowledged where the window would be `window` without it.
    pub(super) fn on_ack(&mut self, now: Duration, bytes: u64, window: u64, is_idle: bool) {
        self.slice.bytes += bytes;
        self.slice.is_idle |= is_idle;
        let time = now.saturating_sub(self.slice.since);
        if time >= SLICE {
            let mean = self.slice.bytes as f64 / time.as_secs_f64();
            if mean > self.mean || !self.slice.is_idle {
                self.mean = mean;
            }
            self.slice = Slice { since: now, bytes: 0, is_idle: false };
            if self.most < MOST && now.saturating_sub(self.cut) >= KEPT {
                (self.most, self.cut) = (self.most * 2, now);
            }
        }
        if self.allowed() > window && self.is_counted(1) {
            self.judging.acked += 1;
            self.judge(now);
        }
    }

    /// So many datagrams were lost.
    pub(super) fn on_lost(&mut self, datagrams: u64, window: u64) {
        if self.allowed() > window && self.is_counted(datagrams) {
            self.judging.lost += datagrams;
        }
    }

    /// Whether so many were sent after the last change.
    fn is_counted(&mut self, datagrams: u64) -> bool {
        let is_counted = self.judging.before == 0;
        self.judging.before = self.judging.before.saturating_sub(datagrams);
        is_counted
    }

    /// Judges, when there are enough datagrams, or too many of them were lost already.
    fn judge(&mut self, now: Duration) {
        let Judging { acked, lost, is_without, .. } = self.judging;
        let usual = self.usual.filter(|&(_, seen)| now.saturating_sub(seen) < KEPT);
        let may_lose = usual.map_or(0.0, |(usual, _)| usual * BESIDE) + LOST;
        let is_all = acked + lost >= JUDGED;
        let after = Judging { before: BEFORE, ..Judging::default() };
        if is_without {
            if is_all {
                self.usual = Some((lost as f64 / JUDGED as f64, now));
                self.judging = after;
            }
        } else if lost as f64 > may_lose * JUDGED as f64 {
            if usual.is_some() {
                (self.most, self.cut) = (LEAST.max(self.most / 2), now);
            }
            self.judging = Judging { is_without: usual.is_none(), ..after };
        } else if is_all {
            self.judging = Judging::default();
        }
    }
}
