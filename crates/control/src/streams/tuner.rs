//! Adjusts the number of streams of a transfer while it runs: first the window ([`crate::delay`]),
//! then the number. Every sample is an interval of the real transfer. Opening and closing streams
//! is the caller's task.

#[cfg(test)]
mod tests;

use super::model_fit::{ChoiceReason, StreamChoice, best_streams, fewest_streams};
use super::observation::{
    INTERVAL, MAX_SEARCH_TIME, Observation, Sample, fills_line, interval_for, rate_between,
    settle_time,
};
use super::policy::{LimitingFactor, PathConditions, SearchDirection};
use super::sampler::{Sampler, losses, sample_time};
use super::select::{ExpSelection, Halving};
use super::start::MAX_INITIAL_STREAMS;
use super::trial::{Trial, TrialOutcome};
use crate::bottleneck::bottleneck;
use crate::loss::LossSample;
use crate::pacing;
use crate::path_control::{PathState, RATE_DEVIATION, State};
use crate::units::{Bytes, Rate};
use std::fmt;
use std::time::Duration;

/// Evaluations in a row that must agree on the limiting factor. (chosen: one may be chance)
const MIN_AGREEING_INTERVALS: u32 = 2;

/// A new number of streams, or a new congestion control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Time of the decision.
    pub at: Duration,
    /// Number of streams from now on.
    pub streams: u32,
    /// True for BBR, false for the original congestion control.
    pub bbr: bool,
    /// Subject of the decision.
    pub change: Change,
    /// Cause of the decision.
    pub reason: Reason,
}

/// The subject of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// The number of streams.
    Streams,
    /// The congestion control.
    CongestionControl,
    /// The congestion control, and the number if a search was under way.
    Both,
}

/// The cause of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The windows of fewer streams do not cover the path.
    WindowLimit,
    /// This number fits the path, without a search.
    KnownFit(LimitingFactor),
    /// The line is fast; more streams take more CPU time.
    FastLine,
    /// Sampling fewer streams.
    TryFewer(LimitingFactor),
    /// Sampling more streams.
    TryMore(LimitingFactor),
    /// Result of a search.
    SearchResult(ChoiceReason),
    /// Sampling the same streams under BBR.
    TryBbr(LimitingFactor),
    /// Result of a BBR trial.
    BbrTrial(TrialOutcome),
    /// Losses have increased since BBR was kept.
    LossIncreased,
    /// The search took too long or the limiting factor changed: back to the previous number.
    SearchAbandoned,
}

/// The sampling method of a search.
#[derive(Debug, Clone)]
enum Selection {
    Fewer(Halving),
    More(ExpSelection, u32),
    Bbr(Trial),
}

/// A search in progress.
#[derive(Debug, Clone)]
struct Search {
    selection: Selection,
    factor: LimitingFactor,
    started_at: Duration,
    /// Number of streams before the search.
    previous_streams: u32,
    sampler: Sampler,
}

/// Intervals in a row with the same limiting factor.
#[derive(Debug, Clone, Copy)]
struct Agreement {
    factor: LimitingFactor,
    since: Duration,
    intervals: u32,
    /// Observations at the start of the last two.
    starts: [Observation; 2],
}

/// The result of the last search.
#[derive(Debug, Clone, Copy)]
struct SearchOutcome {
    factor: LimitingFactor,
    /// Rate with this result; `None` until an interval after `settled_at` has ended.
    rate: Option<Rate>,
    settled_at: Duration,
    /// Start of a lasting change of the rate.
    changed_at: Option<Duration>,
    /// Time for which another limiting factor must last.
    retry_after: Duration,
}

/// The tuner of the number of streams.
#[derive(Debug, Clone)]
pub struct StreamTuner {
    max_streams: u32,
    streams: u32,
    /// True once the reduction on a fast line was considered.
    is_fast_line_checked: bool,
    /// Loss of the path while the streams run BBR; `None` without BBR.
    bbr_baseline: Option<LossSample>,
    has_tried_bbr: bool,
    has_tried_bbr_for_queue: bool,
    /// True if a BBR trial ended without both samples; it is repeated once.
    had_inconclusive_trial: bool,
    /// True if losses continued without a queue since the window limit was removed.
    was_lossy: bool,
    /// Intervals in a row with more loss since BBR was kept; `None` if it is not kept.
    bbr_loss_intervals: Option<u32>,
    /// Observation at the start of the interval.
    interval_start: Option<Observation>,
    agreement: Option<Agreement>,
    search: Option<Search>,
    result: Option<SearchOutcome>,
    /// Rate limit of the user at the last observation.
    rate_max: Option<Rate>,
    /// End of the settle time after its last change.
    settled_at: Duration,
}

impl StreamTuner {
    /// Returns a tuner for a transfer that starts with `streams` and may have `max_streams`.
    #[must_use]
    pub fn new(streams: u32, max_streams: u32) -> Self {
        Self {
            max_streams: max_streams.max(streams),
            streams,
            is_fast_line_checked: false,
            bbr_baseline: None,
            has_tried_bbr: false,
            has_tried_bbr_for_queue: false,
            had_inconclusive_trial: false,
            was_lossy: false,
            bbr_loss_intervals: None,
            interval_start: None,
            agreement: None,
            search: None,
            result: None,
            rate_max: None,
            settled_at: Duration::ZERO,
        }
    }

    /// Returns the number of streams.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// Returns the random loss of the path while the streams run BBR because of it.
    #[must_use]
    pub fn bbr(&self) -> Option<LossSample> {
        self.bbr_baseline
    }

    /// Processes an observation; returns a decision if the number or congestion control changes.
    pub fn observe(&mut self, latest: &Observation) -> Option<Decision> {
        if std::mem::replace(&mut self.rate_max, latest.rate_max) != latest.rate_max
            && let Some(abandoned) = self.on_rate_max_change(latest)
        {
            return Some(abandoned);
        }
        let least = latest.min_streams.min(self.max_streams);
        if self.streams < least {
            self.drop_search();
            return self.decide(least, latest.now, Reason::WindowLimit);
        }
        if let Some(initial_reduction) = self.initial_reduction(latest) {
            return self.decide(initial_reduction.max(least), latest.now, Reason::FastLine);
        }
        if latest.received == Bytes(0) {
            return None;
        }
        if let Some((streams, factor)) = self.fitting_streams(latest) {
            self.drop_search();
            return self.decide(streams, latest.now, Reason::KnownFit(factor));
        }
        let direction = self.evaluate(latest);
        if self.bbr_loss_intervals.is_some_and(|count| count >= MIN_AGREEING_INTERVALS) {
            (self.bbr_loss_intervals, self.bbr_baseline, self.result) = (None, None, None);
            let streams = self.search.take().map_or(self.streams, |search| search.previous_streams);
            return self.decide(streams, latest.now, Reason::LossIncreased);
        }
        match self.search.take() {
            Some(search) => self.continue_search(search, latest),
            None => direction.and_then(|direction| self.begin_search(direction, latest)),
        }
    }

    /// Drops a search without a result, and BBR with it unless that is kept.
    fn drop_search(&mut self) {
        self.search = None;
        self.bbr_baseline = self.bbr_baseline.filter(|_| self.bbr_loss_intervals.is_some());
    }

    /// Forgets what was measured under another rate limit, and ends a search.
    fn on_rate_max_change(&mut self, latest: &Observation) -> Option<Decision> {
        (self.agreement, self.result, self.interval_start) = (None, None, None);
        self.settled_at = latest.now + settle_time(latest.min_rtt);
        let search = self.search.take()?;
        if let Selection::Bbr(_) = search.selection
            && self.bbr_baseline.take().is_some()
        {
            return self.decide(
                self.streams,
                latest.now,
                Reason::BbrTrial(TrialOutcome::Inconclusive),
            );
        }
        self.decide(search.previous_streams, latest.now, Reason::SearchAbandoned)
    }

    /// Returns a smaller initial number once the line is known to be fast.
    fn initial_reduction(&mut self, latest: &Observation) -> Option<u32> {
        let line = latest.capacity.filter(|_| !self.is_fast_line_checked)?;
        self.is_fast_line_checked = true;
        let is_idle = self.search.is_none() && self.result.is_none();
        let is_usual = self.streams <= MAX_INITIAL_STREAMS;
        let streams = pacing::full_tso_streams(line).max(pacing::FAST_LINE_STREAMS);
        let is_fewer = streams < self.streams;
        (pacing::is_fast_line(line) && is_idle && is_usual && is_fewer).then_some(streams)
    }

    /// Returns a smaller number that the findings about the path require at once.
    fn fitting_streams(&self, latest: &Observation) -> Option<(u32, LimitingFactor)> {
        let factor = match latest.path {
            PathState { is_oversubscribed: true, .. } => LimitingFactor::FewSegments,
            PathState { is_ack_limited: true, .. } => LimitingFactor::Acknowledgements,
            _ => return None,
        };
        let fewest = factor.fewest_streams(self.streams).max(latest.min_streams);
        (self.streams > fewest).then_some((fewest, factor))
    }

    /// Evaluates a completed interval; returns the direction of a search that is due.
    fn evaluate(&mut self, latest: &Observation) -> Option<SearchDirection> {
        if latest.now < self.settled_at {
            return None;
        }
        let earlier = *self.interval_start.get_or_insert(*latest);
        let elapsed = latest.now.saturating_sub(earlier.now);
        if elapsed < interval_for(INTERVAL, latest.min_rtt) {
            return None;
        }
        self.interval_start = Some(*latest);
        self.was_lossy = is_unconstrained(latest) && (self.was_lossy || latest.path.is_lossy);
        if let (Some(baseline), Some(count)) = (self.bbr_baseline, &mut self.bbr_loss_intervals) {
            *count = if losses(&earlier, latest).exceeds(baseline) { *count + 1 } else { 0 };
        }
        let conditions = self.conditions(&earlier, latest);
        let (direction, factor) = conditions.search_direction();
        self.agreement = Some(match self.agreement.filter(|agreed| agreed.factor == factor) {
            Some(agreed) => {
                let starts = [agreed.starts[1], earlier];
                Agreement { intervals: agreed.intervals + 1, starts, ..agreed }
            }
            None => Agreement { factor, since: earlier.now, intervals: 1, starts: [earlier; 2] },
        });
        if let Some(search) = &mut self.search {
            // A host bottleneck says nothing about the path.
            if factor.is_host() && !search.factor.is_host() {
                search.sampler.restart();
            }
            return None;
        }
        self.is_due(&earlier, latest).then_some(direction)
    }

    /// Returns the state of the transfer over an interval.
    fn conditions(&self, earlier: &Observation, latest: &Observation) -> PathConditions {
        let [sender, receiver] =
            [0, 1].map(|side| latest.hosts.samples[side].since(earlier.hosts.samples[side]));
        let elapsed = latest.now.saturating_sub(earlier.now).as_secs_f64();
        let threads = elapsed * f64::from(latest.active_streams.max(1));
        let busy = |side: usize| {
            let spent = latest.hosts.busy[side].saturating_sub(earlier.hosts.busy[side]);
            spent.as_secs_f64() / threads
        };
        let may_try_bbr = latest.has_bbr && self.bbr_baseline.is_none();
        PathConditions {
            streams: self.streams,
            min_streams: latest.min_streams,
            full_tso_streams: pacing::full_tso_streams(rate_between(earlier, latest)),
            max_streams: self.max_streams,
            min_rtt: latest.min_rtt,
            state: latest.state,
            path: PathState { is_lossy: self.was_lossy, ..latest.path },
            is_path_full: self.is_path_full(earlier, latest),
            is_at_rate_max: fills_line(rate_between(earlier, latest), latest.rate_max),
            is_window_limited: is_window_limited(rate_between(earlier, latest), latest),
            has_bbr: may_try_bbr && !self.has_tried_bbr,
            has_bbr_for_queue: may_try_bbr && !self.has_tried_bbr_for_queue,
            bottleneck: bottleneck(sender, receiver),
            busy: busy(0).max(busy(1)),
            cpus: latest.hosts.cpus,
        }
    }

    /// Returns true if the line is full and stays so with the present loss.
    fn is_path_full(&self, earlier: &Observation, latest: &Observation) -> bool {
        let rate = rate_between(earlier, latest);
        let sustainable_rate =
            losses(earlier, latest).sustainable_rate(self.streams, latest.min_rtt, latest.mss);
        fills_line(
            if self.bbr_baseline.is_some() { rate } else { rate.min(sustainable_rate) },
            latest.capacity,
        )
    }

    /// Returns true if a search is due.
    fn is_due(&mut self, earlier: &Observation, latest: &Observation) -> bool {
        let Some(Agreement { factor, since, intervals, .. }) = self.agreement else {
            return false;
        };
        if factor == LimitingFactor::Unknown || intervals < MIN_AGREEING_INTERVALS {
            return false;
        }
        let Some(found) = &mut self.result else { return true };
        let is_changed = earlier.now >= found.settled_at
            && found.has_changed(latest.now, rate_between(earlier, latest));
        is_changed || factor != found.factor && latest.now >= since + found.retry_after
    }

    /// Starts a search; its first sample is of the current streams, over the intervals that agree.
    fn begin_search(
        &mut self,
        direction: SearchDirection,
        latest: &Observation,
    ) -> Option<Decision> {
        let Agreement { factor, starts, .. } = self.agreement?;
        let selection = match direction {
            SearchDirection::Keep => return None,
            SearchDirection::JumpTo(streams) => {
                return self.decide(streams, latest.now, Reason::KnownFit(factor));
            }
            SearchDirection::Fewer(min) => Selection::Fewer(Halving::new(self.streams, min)),
            SearchDirection::More(max) => {
                Selection::More(ExpSelection::new(self.streams, max), max)
            }
            SearchDirection::TryBbr if factor == LimitingFactor::LongQueue => {
                Selection::Bbr(Trial::of_long_queue())
            }
            SearchDirection::TryBbr => Selection::Bbr(Trial::of_losses()),
        };
        let is_bbr = matches!(selection, Selection::Bbr(_));
        let is_same = |start: &&Observation| {
            let is_steady = start.active_streams == self.streams || is_bbr;
            is_steady && start.state == latest.state
        };
        let start = starts.iter().find(is_same).unwrap_or(latest);
        let sampler = Sampler::of_current(self.streams, start);
        let (previous_streams, started_at) = (self.streams, latest.now);
        self.search = Some(Search { selection, factor, started_at, previous_streams, sampler });
        None
    }

    /// Continues a search with the next observation.
    fn continue_search(&mut self, mut search: Search, latest: &Observation) -> Option<Decision> {
        if latest.now >= search.started_at + interval_for(MAX_SEARCH_TIME, latest.min_rtt) {
            return self.end_search(&search, latest);
        }
        let Some((sample, losses)) = search.sampler.observe(latest) else {
            self.search = Some(search);
            return None;
        };
        search.selection.record(sample, losses);
        let is_void = matches!(search.selection, Selection::Bbr(_)) && !is_unconstrained(latest);
        let next = search.selection.next(self.streams).filter(|_| !is_void);
        let Some(next) = next else { return self.end_search(&search, latest) };
        search.sampler = Sampler::new(next, latest.now);
        let reason = match search.selection {
            Selection::Fewer(_) => Reason::TryFewer(search.factor),
            Selection::More(..) => Reason::TryMore(search.factor),
            Selection::Bbr(_) => Reason::TryBbr(search.factor),
        };
        if let Selection::Bbr(_) = search.selection {
            self.bbr_baseline = Some(losses);
        }
        self.search = Some(search);
        self.decide(next, latest.now, reason)
    }

    /// Ends a search with the number that its samples suggest.
    fn end_search(&mut self, search: &Search, latest: &Observation) -> Option<Decision> {
        let now = latest.now;
        self.result = Some(self.new_result(search.factor, latest));
        if let Selection::Bbr(trial) = &search.selection {
            return self.end_trial(trial, search.factor, latest);
        }
        match search.selection.best_streams() {
            Some(best) => self.decide(best.streams, now, Reason::SearchResult(best.reason)),
            None => self.decide(search.previous_streams, now, Reason::SearchAbandoned),
        }
    }

    /// Ends a BBR trial: keeps BBR or restores the original congestion control.
    ///
    /// Without BBR, the number of streams is searched next; BBR may be tried again if the line was
    /// full before.
    fn end_trial(
        &mut self,
        trial: &Trial,
        factor: LimitingFactor,
        latest: &Observation,
    ) -> Option<Decision> {
        let (outcome, losses) = trial.outcome(latest.capacity, latest.path);
        self.bbr_loss_intervals = matches!(outcome, TrialOutcome::Kept(..)).then_some(0);
        let was_full = match outcome {
            TrialOutcome::NoGain(earlier, _) => fills_line(earlier, latest.capacity),
            _ => false,
        };
        let is_inconclusive = outcome == TrialOutcome::Inconclusive;
        let is_retried = was_full || is_inconclusive && !self.had_inconclusive_trial;
        self.had_inconclusive_trial |= is_inconclusive;
        match factor {
            LimitingFactor::LongQueue => self.has_tried_bbr_for_queue = !is_retried,
            _ => self.has_tried_bbr = !is_retried,
        }
        if self.bbr_loss_intervals.is_none() && !was_full {
            self.result = None;
        }
        let was_on =
            std::mem::replace(&mut self.bbr_baseline, self.bbr_loss_intervals.map(|_| losses))
                .is_some();
        if was_on { self.decide(self.streams, latest.now, Reason::BbrTrial(outcome)) } else { None }
    }

    /// Returns a new search result for a limiting factor.
    fn new_result(&self, factor: LimitingFactor, latest: &Observation) -> SearchOutcome {
        // After a rate change the search was worthwhile, so the retry delay is reset.
        let unchanged = self.result.filter(|found| !found.is_changed(latest.now));
        let retry_after = unchanged.map_or(MAX_SEARCH_TIME.1, |found| found.retry_after * 2);
        let settled_at = latest.now + sample_time(latest.min_rtt);
        SearchOutcome { factor, rate: None, settled_at, changed_at: None, retry_after }
    }

    fn decide(&mut self, streams: u32, at: Duration, reason: Reason) -> Option<Decision> {
        let change = reason.change();
        let is_same = self.streams == streams && change == Change::Streams;
        self.streams = streams;
        // No interval spans a change.
        self.interval_start = None;
        let bbr = self.bbr_baseline.is_some();
        (!is_same).then_some(Decision { at, streams, bbr, change, reason })
    }
}

impl Reason {
    /// Returns the subject of a decision with this cause.
    fn change(&self) -> Change {
        match self {
            Self::TryBbr(_) | Self::BbrTrial(_) => Change::CongestionControl,
            Self::LossIncreased => Change::Both,
            Self::WindowLimit
            | Self::KnownFit(_)
            | Self::FastLine
            | Self::TryFewer(_)
            | Self::TryMore(_)
            | Self::SearchResult(_)
            | Self::SearchAbandoned => Change::Streams,
        }
    }
}

impl SearchOutcome {
    /// Records the rate; returns true if it has differed from the result's for long enough.
    fn has_changed(&mut self, now: Duration, rate: Rate) -> bool {
        let found = self.rate.get_or_insert(rate).bits_per_sec() as f64;
        let is_other = (rate.bits_per_sec() as f64 - found).abs() > found * RATE_DEVIATION;
        self.changed_at = if is_other { self.changed_at.or(Some(now)) } else { None };
        self.is_changed(now)
    }

    fn is_changed(&self, now: Duration) -> bool {
        self.changed_at.is_some_and(|at| now >= at + MAX_SEARCH_TIME.1)
    }
}

/// Returns true if the controller sets no window because of the path.
fn is_unconstrained(latest: &Observation) -> bool {
    latest.state == State::Disabled && !latest.path.is_short
}

/// Returns true if all windows are nearly full and the capacity is unknown.
fn is_window_limited(rate: Rate, latest: &Observation) -> bool {
    let in_flight = rate.bytes_per_sec() as f64 * latest.min_rtt.as_secs_f64();
    let allowed = latest.max_inflight_bytes.0 as f64 * f64::from(latest.active_streams.max(1));
    latest.capacity.is_none() && in_flight >= allowed * (1.0 - RATE_DEVIATION)
}

impl Selection {
    fn record(&mut self, sample: Sample, losses: LossSample) {
        match self {
            Self::Fewer(halving) => halving.record(sample),
            Self::More(selection, _) => selection.record(sample),
            Self::Bbr(trial) => trial.record(sample.rate, losses),
        }
    }

    /// Returns the number of streams of the next sample; `streams` is the current one.
    fn next(&self, streams: u32) -> Option<u32> {
        match self {
            Self::Fewer(halving) => halving.next(),
            Self::More(selection, _) => selection.next(),
            Self::Bbr(trial) => trial.needs_bbr_sample().then_some(streams),
        }
    }

    /// Returns the choice that the samples suggest.
    fn best_streams(&self) -> Option<StreamChoice> {
        match self {
            Self::Fewer(halving) => fewest_streams(halving.samples(), halving.first()),
            Self::More(selection, max_streams) => best_streams(selection.samples(), *max_streams),
            Self::Bbr(_) => None,
        }
    }
}

/// One clause for traces and reports.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowLimit => f.write_str("the windows of fewer streams do not cover the path"),
            Self::KnownFit(factor) => write!(f, "{factor}"),
            Self::FastLine => {
                f.write_str("this many streams fill the fast line with less CPU time")
            }
            Self::TryFewer(factor) => write!(f, "{factor}: fewer streams may carry as much"),
            Self::TryMore(factor) => write!(f, "{factor}: more streams may carry more"),
            Self::SearchResult(reason) => reason.fmt(f),
            Self::TryBbr(LimitingFactor::LongQueue) => {
                write!(f, "{}: BBR may keep a shorter one", LimitingFactor::LongQueue)
            }
            Self::TryBbr(factor) => write!(f, "{factor}: BBR may carry more"),
            Self::BbrTrial(outcome) => outcome.fmt(f),
            Self::LossIncreased => {
                f.write_str("losses have increased since BBR was kept: not kept")
            }
            Self::SearchAbandoned => f.write_str("the search found no better number"),
        }
    }
}
