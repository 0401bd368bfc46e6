//! Takes one sample: what so many connections carry, over a stretch of the real transfer.

use super::Sample;
use super::tuner::{Seen, longest, rate_between};
use crate::losses::Losses;
use crate::units::Bytes;
use std::time::Duration;

/// Connections that were added have left slow start after so many round trips. (ours: three to be
/// made, and seven doublings of ten segments are 1.8 MB)
pub(super) const SETTLE: (Duration, u32) = (Duration::from_millis(300), 10);

/// And what they carry is counted for so long. [design: 4 RTT or 300 ms at least; ours: 600 ms,
/// for a window of CUBIC that was cut grows back over seconds]
const COUNT: (Duration, u32) = (Duration::from_millis(600), 4);

/// So long is waited for connections that come or go. (ours: one goes when its block is sent, which
/// takes long on a slow line)
const PATIENCE: Duration = Duration::from_secs(4);

/// A sample that is being taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampler {
    streams: u32,
    /// When so many were asked for.
    asked_at: Duration,
    /// From when on there were so many.
    there_at: Option<Duration>,
    /// What was seen when counting began.
    from: Option<Seen>,
}

/// What came and was lost since.
pub(super) fn losses(before: &Seen, seen: &Seen) -> Losses {
    let came = Bytes(seen.received.0.saturating_sub(before.received.0));
    Losses::of(seen.retransmits.saturating_sub(before.retransmits), came, seen.segment)
}

impl Sampler {
    /// Of so many connections, which are asked for now.
    pub(super) fn new(streams: u32, now: Duration) -> Self {
        Self { streams, asked_at: now, there_at: None, from: None }
    }

    /// Of those that there have been for a while.
    pub(super) fn of_present(streams: u32, seen: &Seen) -> Self {
        Self { streams, asked_at: seen.now, there_at: Some(seen.now), from: Some(*seen) }
    }

    /// Something else than these connections told what came: it is counted anew.
    pub(super) fn disturb(&mut self) {
        self.from = None;
    }

    /// Takes what was seen; the sample, and what was lost meanwhile, when it is whole.
    pub(super) fn look(&mut self, seen: &Seen) -> Option<(Sample, Losses)> {
        let Seen { now, rtt, .. } = *seen;
        let is_there = seen.carrying == self.streams || now >= self.asked_at + PATIENCE;
        if self.there_at.is_none() && is_there {
            self.there_at = Some(now);
            // Where they do not come to be as many, the sample is of those that are.
            self.streams = seen.carrying.max(1);
        }
        let there_at = self.there_at?;
        let Some(from) = self.from else {
            if now >= there_at + longest(SETTLE, rtt) {
                self.from = Some(*seen);
            }
            return None;
        };
        if now < from.now + longest(COUNT, rtt) {
            return None;
        }
        let sample = Sample { streams: self.streams, rate: rate_between(&from, seen) };
        Some((sample, losses(&from, seen)))
    }
}
