//! Recorded events of a transfer, in bounded memory.

use bankfull::{BufferLimit, Event, Progress, ReceiveBufferKind, Route, Sample, TuningDecision};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

/// Number of samples kept. At twice the number, every other one is dropped, so that the page stays
/// small for a copy of days. (chosen: half an hour at ten per second)
pub(super) const MAX_SAMPLES: usize = 18_000;

/// Number of latest decisions and warnings kept. (chosen: one hour with a decision every 2 s)
pub(super) const MAX_DECISIONS: usize = 2_000;

/// The same for each of many transfers at a time. (chosen: a curve over a screen)
const MIN_SAMPLES: usize = 100;
const MIN_DECISIONS: usize = 50;

/// Recorded events of a transfer.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Start of the transfer since the start of the command.
    pub(super) offset: Duration,
    pub(super) route: Option<Route>,
    pub(super) software: String,
    pub(super) encrypted: bool,
    pub(super) samples: Thinned<Sample>,
    pub(super) progress: Thinned<Progress>,
    pub(super) decisions: Latest<TuningDecision>,
    pub(super) buffer_limits: Latest<BufferLimit>,
    pub(super) warnings: Latest<String>,
    /// Failed files with their reasons.
    pub(super) failed: Latest<(PathBuf, String)>,
}

/// The latest items of many.
#[derive(Debug)]
pub(super) struct Latest<T> {
    pub(super) kept: VecDeque<T>,
    /// Number of earlier items dropped.
    pub(super) dropped: u64,
    limit: usize,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), dropped: 0, limit: MAX_DECISIONS }
    }
}

impl<T> Latest<T> {
    fn push(&mut self, item: T) {
        if self.kept.len() >= self.limit {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(item);
    }
}

/// An item that can also represent earlier ones.
pub(super) trait Absorb {
    fn absorb(&mut self, earlier: &Self);
}

impl Absorb for Sample {
    /// Merges the RTTs; the other figures are counters, of which the last value suffices.
    fn absorb(&mut self, earlier: &Self) {
        let both = || self.rtts.iter().chain(&earlier.rtts).copied();
        self.rtts = both().min().into_iter().chain(both().max()).collect();
    }
}

impl Absorb for Progress {
    fn absorb(&mut self, _earlier: &Self) {}
}

/// A list of bounded length with equal distances.
#[derive(Debug)]
pub(super) struct Thinned<T> {
    pub(super) kept: Vec<T>,
    /// Distance between kept items.
    every: usize,
    skipped: usize,
    /// Half the number of items at which the distance doubles.
    limit: usize,
    /// Dropped item that the next kept one also represents.
    pending: Option<T>,
}

impl<T> Default for Thinned<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), every: 1, skipped: 0, limit: MAX_SAMPLES, pending: None }
    }
}

impl<T: Absorb> Thinned<T> {
    fn push(&mut self, mut item: T) {
        if let Some(earlier) = self.pending.take() {
            item.absorb(&earlier);
        }
        self.skipped += 1;
        if self.skipped < self.every {
            self.pending = Some(item);
            return;
        }
        self.skipped = 0;
        self.kept.push(item);
        if self.kept.len() >= 2 * self.limit {
            self.halve();
        }
    }

    /// Drops every other item.
    fn halve(&mut self) {
        let mut earlier = None;
        for mut item in std::mem::take(&mut self.kept) {
            match earlier.take() {
                None => earlier = Some(item),
                Some(before) => {
                    item.absorb(&before);
                    self.kept.push(item);
                }
            }
        }
        self.every *= 2;
    }
}

impl Record {
    /// Creates the record of one of several transfers, which share the memory.
    pub(super) fn of_one(count: usize) -> Self {
        let mut record = Self::default();
        let limit = (MAX_SAMPLES / count.max(1)).max(MIN_SAMPLES);
        (record.samples.limit, record.progress.limit) = (limit, limit);
        let limit = (MAX_DECISIONS / count.max(1)).max(MIN_DECISIONS);
        (record.decisions.limit, record.buffer_limits.limit) = (limit, limit);
        (record.warnings.limit, record.failed.limit) = (limit, limit);
        record
    }

    /// Records an event.
    pub(super) fn add(&mut self, event: &Event) {
        match event {
            Event::Connected { route, software, encrypted, .. } => {
                self.route = Some(*route);
                self.software.clone_from(software);
                self.encrypted = *encrypted;
            }
            Event::Sample(sample) => self.samples.push(sample.clone()),
            Event::Progress(progress) => self.progress.push(*progress),
            Event::Tuning(decision) => self.decisions.push(decision.clone()),
            Event::BufferLimit(limit) if limit.buffer == ReceiveBufferKind::Staging => {
                self.buffer_limits.push(limit.clone());
            }
            Event::Warning { message } => self.warnings.push(message.clone()),
            Event::Reconnecting { message, .. } => {
                self.warnings.push(format!("{message}; reconnected"));
            }
            Event::FileFailed { path, message, .. } => {
                self.failed.push((path.clone(), message.clone()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::Bytes;

    #[test]
    fn thinned_list_is_bounded_and_keeps_peaks() {
        let mut list = Thinned::default();
        let (many, peak) = (10 * MAX_SAMPLES as u64, Duration::from_secs(1));
        for n in 1..=many {
            let mut sample = Sample::default();
            sample.carried = Bytes(n);
            sample.rtts = vec![if n == 4321 { peak } else { Duration::from_millis(20) }];
            list.push(sample);
        }
        assert!((MAX_SAMPLES..2 * MAX_SAMPLES).contains(&list.kept.len()), "{}", list.kept.len());
        let steps: Vec<u64> =
            list.kept.windows(2).map(|pair| pair[1].carried.0 - pair[0].carried.0).collect();
        assert!(steps.iter().all(|step| *step == steps[0]));
        let peaks = list.kept.iter().filter(|sample| sample.rtts.contains(&peak));
        assert_eq!(peaks.count(), 1);
    }

    #[test]
    fn latest_decisions_are_kept() {
        let mut latest = Latest::default();
        (0..MAX_DECISIONS + 10).for_each(|n| latest.push(n));
        assert_eq!((latest.kept.len(), latest.kept[0], latest.dropped), (MAX_DECISIONS, 10, 10));
    }
}
