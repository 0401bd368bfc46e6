//! The number of connections of a transfer, found while it runs: first the window
//! ([`crate::sobas`]), then the number. Every sample is a stretch of the real transfer.
//!
//! What it does not do: make or end connections, or know what a sample costs beside others.

use super::best::{Best, Why, best, fewest};
use super::rule::{Course, Ground, Situation};
use super::sampler::{SETTLE, Sampler, losses};
use super::select::{ExpSelection, Halving};
use super::trial::{Trial, Verdict};
use crate::holder::{Looks, holder};
use crate::losses::Losses;
use crate::pacing;
use crate::sobas::State;
use crate::units::{Bytes, Rate};
use std::fmt;
use std::time::Duration;

/// What comes has changed when it is so much more or less than was found. [design: ±15 %]
const CHANGED: f64 = 0.15;

/// A line is full when this share of what it carries comes, the first at least and less than the
/// second: more would bring next to nothing more. (ours: the design's 95 % of the best, and what
/// trains and samples err by)
const FULL_SHARE: (f64, f64) = (0.9, 1.1);

/// For so long, so that it is worth looking anew. [design: 10 s]
const LASTING: Duration = Duration::from_secs(10);

/// It is judged what limits, and what comes, after so long or so many round trips each. (ours:
/// looks at a few connections are chance)
const STRETCH: (Duration, u32) = (Duration::from_millis(300), 4);

/// What limits is believed when so many of these agree. (ours)
const AGREED: u32 = 2;

/// Where the path turns out to be of another kind, it is looked anew after so long; each time in
/// vain after twice as long, up to the second. (ours)
const AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// A search ends after so long, or so many round trips where that is longer. [issue: 10 s or 40
/// RTT]
const SEARCH_MAX: (Duration, u32) = (Duration::from_secs(10), 40);

/// There no more of them are kept than do, but so many at least. [measured,
/// docs/algorithms/sobas-measured.md: over 5 Gbit/s 8 carry a tenth more than 16 and 4; half as
/// many would start a round trip later]
const FAST_STREAMS: u32 = 8;

/// Whoever has begun with more than this remembers it. [start.rs: no path is begun with more]
const USUAL_MAX: u32 = super::start::STREAMS_MAX;

/// So often is BBR tried where a host holds up the trial. (ours: a trial costs what it takes to
/// come back)
const UNSEEN_MAX: u32 = 2;

/// Windows are full when this share of what they allow is in flight. (ours: they are never quite
/// full while acknowledgements are on their way)
const BOUND_SHARE: f64 = 0.8;

/// What is seen at a look, of all connections together. Counts are from the beginning.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// When.
    pub now: Duration,
    /// How many connections carry data.
    pub carrying: u32,
    /// Data received.
    pub received: Bytes,
    /// The round trip without a queue.
    pub rtt: Duration,
    /// Where the controller of window and pacing stands.
    pub state: State,
    /// It holds nothing because the path is too short.
    pub is_short: bool,
    /// It holds nothing because even the first windows of so many do not fit the path.
    pub is_crowded: bool,
    /// Losses go on without a queue.
    pub is_lossy: bool,
    /// The sender's connections may use BBR.
    pub offers_bbr: bool,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// Data in a full segment; zero where that is not known.
    pub segment: Bytes,
    /// What the line carries, if that is known, or what the user wants at most where that is less.
    pub capacity: Option<Rate>,
    /// What the user wants at most.
    pub rate_max: Option<Rate>,
    /// The fewest whose windows cover the path.
    pub least: u32,
    /// The most data that a connection can have in flight, as the hosts allow it.
    pub max_inflight_bytes: Bytes,
    /// Looks at the sender's sockets, and at the receiver's.
    pub samples: [Looks; 2],
    /// Time that the connections kept processors busy, at the sender and at the receiver.
    pub busy: [Duration; 2],
    /// Processors of the side that has fewer.
    pub cpus: u32,
}

/// How many connections there are to be from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// When it was made.
    pub at: Duration,
    /// So many.
    pub streams: u32,
    /// Under BBR, and not under what they began with.
    pub bbr: bool,
    /// Why.
    pub reason: Reason,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The windows that the hosts allow cover the path only together.
    Windows,
    /// So many fit the path.
    Fit(Ground),
    /// The line is fast, and more would take more of the processors.
    Fast,
    /// To see whether fewer carry as much.
    TryFewer(Ground),
    /// To see whether more carry more.
    TryMore(Ground),
    /// Of those that were tried.
    Found(Why),
    /// To see whether they carry more under BBR.
    TryBbr(Ground),
    /// What came of it.
    Bbr(Verdict),
    /// More is lost since BBR was kept.
    LossGrew,
    /// The search took too long, or another limit came in between: as before.
    GivenUp,
}

/// Samples that are being taken, of fewer or of more.
#[derive(Debug, Clone)]
enum Selection {
    Fewer(Halving),
    More(ExpSelection, u32),
    Bbr(Trial),
}

/// A search for a better number.
#[derive(Debug, Clone)]
struct Search {
    selection: Selection,
    ground: Ground,
    began: Duration,
    /// How many there were before.
    before: u32,
    sampler: Sampler,
}

/// What was found last.
#[derive(Debug, Clone, Copy)]
struct Found {
    ground: Ground,
    /// What comes with it; `None` until it was seen, in a stretch that began at this time or later.
    rate: Option<Rate>,
    settled_at: Duration,
    /// Since when another rate comes.
    changed_at: Option<Duration>,
    /// How long another ground has to last.
    again: Duration,
}

/// Finds the number of connections.
#[derive(Debug, Clone)]
pub struct Tuner {
    most: u32,
    streams: u32,
    /// It was seen whether fewer are enough for the line.
    is_sized: bool,
    /// What the path loses, where the connections are under BBR; it was tried.
    bbr: Option<Losses>,
    tried_bbr: bool,
    /// How often a trial of it ended without a sample of each.
    unseen: u32,
    /// Losses have gone on without a queue since the window is not held.
    was_lossy: bool,
    /// It was kept; in so many stretches more was lost since.
    kept: Option<u32>,
    /// What was seen when the stretch began.
    stretch: Option<Seen>,
    /// What limited in the last stretches, since when, and in how many.
    ground: (Ground, Duration, u32),
    search: Option<Search>,
    found: Option<Found>,
}

impl Tuner {
    /// For a transfer that begins with so many connections, and may have `most`.
    #[must_use]
    pub fn new(streams: u32, most: u32) -> Self {
        Self {
            most: most.max(streams),
            streams,
            is_sized: false,
            bbr: None,
            tried_bbr: false,
            unseen: 0,
            was_lossy: false,
            kept: None,
            stretch: None,
            ground: (Ground::Unknown, Duration::ZERO, 0),
            search: None,
            found: None,
        }
    }

    /// How many there are to be.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// What the path loses at random, where they are to be under BBR for that.
    #[must_use]
    pub fn bbr(&self) -> Option<Losses> {
        self.bbr
    }

    /// Takes what was seen at a look; how many there are to be from now on, if that changes.
    pub fn observe(&mut self, seen: &Seen) -> Option<Decision> {
        let least = seen.least.min(self.most);
        if self.streams < least {
            (self.search, self.bbr) = (None, self.bbr.filter(|_| self.kept.is_some()));
            return self.decide(least, seen.now, Reason::Windows);
        }
        if let Some(enough) = self.enough(seen) {
            return self.decide(enough.max(least), seen.now, Reason::Fast);
        }
        if seen.received == Bytes(0) {
            return None;
        }
        let course = self.judge(seen);
        if self.kept.is_some_and(|grown| grown >= AGREED) {
            (self.kept, self.bbr, self.found) = (None, None, None);
            let streams = self.search.take().map_or(self.streams, |search| search.before);
            return self.decide(streams, seen.now, Reason::LossGrew);
        }
        match self.search.take() {
            Some(search) => self.go_on(search, seen),
            None => course.and_then(|course| self.begin(course, seen)),
        }
    }

    /// How many are enough to begin with, once it is known that the line is fast.
    fn enough(&mut self, seen: &Seen) -> Option<u32> {
        let line = seen.capacity.filter(|_| !self.is_sized)?;
        self.is_sized = true;
        let whole = pacing::whole_bursts(line);
        let is_more = whole >= pacing::FAST && self.search.is_none() && self.found.is_none();
        let is_usual = self.streams <= USUAL_MAX;
        Some(whole.max(FAST_STREAMS)).filter(|&n| is_more && is_usual && n < self.streams)
    }

    /// At the end of a stretch, where to look for a better number, if it is time to look.
    fn judge(&mut self, seen: &Seen) -> Option<Course> {
        let before = *self.stretch.get_or_insert(*seen);
        let took = seen.now.saturating_sub(before.now);
        if took < longest(STRETCH, seen.rtt) {
            return None;
        }
        self.stretch = Some(*seen);
        self.was_lossy = is_aside(seen) && (self.was_lossy || seen.is_lossy);
        if let (Some(usual), Some(grown)) = (self.bbr, &mut self.kept) {
            *grown = if losses(&before, seen).exceed(usual) { *grown + 1 } else { 0 };
        }
        let situation = self.situation(&before, seen);
        let (course, ground) = situation.course();
        if ground == self.ground.0 {
            self.ground.2 += 1;
        } else {
            self.ground = (ground, before.now, 1);
        }
        if let Some(search) = &mut self.search {
            // What a host holds up tells nothing of the path.
            if ground.is_host() && !search.ground.is_host() {
                search.sampler.disturb();
            }
            return None;
        }
        self.is_due(&before, seen).then_some(course)
    }

    /// What is known about a stretch.
    fn situation(&self, before: &Seen, seen: &Seen) -> Situation {
        let [sends, reads] = [0, 1].map(|side| seen.samples[side].since(before.samples[side]));
        let took = seen.now.saturating_sub(before.now).as_secs_f64();
        let threads = took * f64::from(seen.carrying.max(1));
        let busy =
            |side: usize| seen.busy[side].saturating_sub(before.busy[side]).as_secs_f64() / threads;
        Situation {
            streams: self.streams,
            least: seen.least,
            whole_bursts: pacing::whole_bursts(rate_between(before, seen)),
            most: self.most,
            rtt: seen.rtt,
            state: seen.state,
            is_short: seen.is_short,
            is_crowded: seen.is_crowded,
            is_full: self.is_full(before, seen),
            is_all_wanted: fills(rate_between(before, seen), seen.rate_max),
            is_window_bound: is_window_bound(rate_between(before, seen), seen),
            is_lossy: self.was_lossy,
            offers_bbr: seen.offers_bbr && !self.tried_bbr,
            holder: holder(sends, reads),
            busy: busy(0).max(busy(1)),
            cpus: seen.cpus,
        }
    }

    /// Whether the line is full, and stays so with what is lost.
    fn is_full(&self, before: &Seen, seen: &Seen) -> bool {
        let rate = rate_between(before, seen);
        let sustained = losses(before, seen).sustained(self.streams, seen.rtt, seen.segment);
        fills(if self.bbr.is_some() { rate } else { rate.min(sustained) }, seen.capacity)
    }

    /// Whether it is time to look for a better number.
    fn is_due(&mut self, before: &Seen, seen: &Seen) -> bool {
        let (ground, since, stretches) = self.ground;
        if ground == Ground::Unknown || stretches < AGREED {
            return false;
        }
        let Some(found) = &mut self.found else { return true };
        let is_changed = before.now >= found.settled_at
            && found.has_changed(seen.now, rate_between(before, seen));
        is_changed || ground != found.ground && seen.now >= since + found.again
    }

    /// Begins a search. The first sample is of what there is.
    fn begin(&mut self, course: Course, seen: &Seen) -> Option<Decision> {
        let ground = self.ground.0;
        let selection = match course {
            Course::Stay => return None,
            Course::Take(streams) => {
                self.found = Some(self.found_at(ground, seen));
                return self.decide(streams, seen.now, Reason::Fit(ground));
            }
            Course::Fewer(least) => Selection::Fewer(Halving::new(self.streams, least)),
            Course::More(most) => Selection::More(ExpSelection::new(self.streams, most), most),
            Course::Bbr => Selection::Bbr(Trial::default()),
        };
        let sampler = Sampler::of_present(self.streams, seen);
        let (before, began) = (self.streams, seen.now);
        self.search = Some(Search { selection, ground, began, before, sampler });
        None
    }

    /// Takes the next look of a search.
    fn go_on(&mut self, mut search: Search, seen: &Seen) -> Option<Decision> {
        if seen.now >= search.began + longest(SEARCH_MAX, seen.rtt) {
            return self.end(&search, seen);
        }
        let Some((sample, losses)) = search.sampler.look(seen) else {
            self.search = Some(search);
            return None;
        };
        search.selection.take(sample, losses);
        let is_moot = matches!(search.selection, Selection::Bbr(_)) && !is_aside(seen);
        let next = search.selection.next(self.streams).filter(|_| !is_moot);
        let Some(next) = next else { return self.end(&search, seen) };
        search.sampler = Sampler::new(next, seen.now);
        let reason = match search.selection {
            Selection::Fewer(_) => Reason::TryFewer(search.ground),
            Selection::More(..) => Reason::TryMore(search.ground),
            Selection::Bbr(_) => Reason::TryBbr(search.ground),
        };
        if let Selection::Bbr(_) = search.selection {
            self.bbr = Some(losses);
        }
        self.search = Some(search);
        self.decide(next, seen.now, reason)
    }

    /// Ends a search with what its samples tell.
    fn end(&mut self, search: &Search, seen: &Seen) -> Option<Decision> {
        let now = seen.now;
        self.found = Some(self.found_at(search.ground, seen));
        if let Selection::Bbr(trial) = &search.selection {
            return self.end_trial(trial, seen);
        }
        match search.selection.best() {
            Some(best) => self.decide(best.streams, now, Reason::Found(best.why)),
            None => self.decide(search.before, now, Reason::GivenUp),
        }
    }

    /// Keeps BBR, or goes back to what there was; then the number of connections is next, or BBR
    /// again, where the line was full before and may not stay so.
    fn end_trial(&mut self, trial: &Trial, seen: &Seen) -> Option<Decision> {
        let (verdict, losses) = trial.verdict(seen.capacity);
        self.kept = matches!(verdict, Verdict::Keeps(..)).then_some(0);
        let was_full =
            matches!(verdict, Verdict::NoGain(before, _) if fills(before, seen.capacity));
        self.unseen += u32::from(verdict == Verdict::Unseen);
        let is_open = was_full || verdict == Verdict::Unseen && self.unseen < UNSEEN_MAX;
        self.tried_bbr = !is_open;
        if self.kept.is_none() && !was_full {
            self.found = None;
        }
        let was_on = std::mem::replace(&mut self.bbr, self.kept.map(|_| losses)).is_some();
        if was_on { self.decide(self.streams, seen.now, Reason::Bbr(verdict)) } else { None }
    }

    /// What is found now, where this is what limits.
    fn found_at(&self, ground: Ground, seen: &Seen) -> Found {
        let (first, most) = AGAIN;
        // A rate that changed is reason enough: that was no time in vain.
        let in_vain = self.found.filter(|found| !found.is_changed(seen.now));
        let again = in_vain.map_or(first, |found| (found.again * 2).min(most));
        let settled_at = seen.now + longest(SETTLE, seen.rtt);
        Found { ground, rate: None, settled_at, changed_at: None, again }
    }

    fn decide(&mut self, streams: u32, at: Duration, reason: Reason) -> Option<Decision> {
        let is_same = self.streams == streams && !reason.is_of_bbr();
        self.streams = streams;
        (!is_same).then_some(Decision { at, streams, bbr: self.bbr.is_some(), reason })
    }
}

impl Reason {
    /// Whether it is told of the congestion control, and not of the number.
    #[must_use]
    pub fn is_of_bbr(&self) -> bool {
        matches!(self, Self::TryBbr(_) | Self::Bbr(_) | Self::LossGrew)
    }
}

impl Found {
    /// Whether another rate has come for long than when this was found.
    fn has_changed(&mut self, now: Duration, rate: Rate) -> bool {
        let found = self.rate.get_or_insert(rate).bits_per_sec() as f64;
        let is_other = (rate.bits_per_sec() as f64 - found).abs() > found * CHANGED;
        self.changed_at = if is_other { self.changed_at.or(Some(now)) } else { None };
        self.is_changed(now)
    }

    fn is_changed(&self, now: Duration) -> bool {
        self.changed_at.is_some_and(|at| now >= at + LASTING)
    }
}

/// Whether no window is held for the path's sake.
fn is_aside(seen: &Seen) -> bool {
    matches!(seen.state, State::Avoidance | State::Disabled) && !seen.is_short
}

/// Whether what is in flight at this rate is about all that the windows of the connections allow,
/// where nobody knows what the path carries.
fn is_window_bound(rate: Rate, seen: &Seen) -> bool {
    let in_flight = rate.bytes_per_sec() as f64 * seen.rtt.as_secs_f64();
    let allowed = seen.max_inflight_bytes.0 as f64 * f64::from(seen.carrying.max(1));
    seen.capacity.is_none() && in_flight >= allowed * BOUND_SHARE
}

/// What came between two looks.
pub(super) fn rate_between(before: &Seen, seen: &Seen) -> Rate {
    let came = Bytes(seen.received.0.saturating_sub(before.received.0));
    came.per(seen.now.saturating_sub(before.now))
}

/// Whether a rate is about all that a line carries. Much more than that refutes what was told.
pub(super) fn fills(rate: Rate, capacity: Option<Rate>) -> bool {
    let share = |line: Rate| rate.bits_per_sec() as f64 / line.bits_per_sec().max(1) as f64;
    capacity.is_some_and(|line| (FULL_SHARE.0..FULL_SHARE.1).contains(&share(line)))
}

/// The time, or so many round trips where that is longer.
pub(super) fn longest((time, round_trips): (Duration, u32), rtt: Duration) -> Duration {
    time.max(rtt * round_trips)
}

impl Selection {
    fn take(&mut self, sample: super::Sample, losses: Losses) {
        match self {
            Self::Fewer(halving) => halving.take(sample),
            Self::More(selection, _) => selection.take(sample),
            Self::Bbr(trial) => trial.take(sample.rate, losses),
        }
    }

    /// How many connections the next sample is of, where there are so many now.
    fn next(&self, streams: u32) -> Option<u32> {
        match self {
            Self::Fewer(halving) => halving.next(),
            Self::More(selection, _) => selection.next(),
            Self::Bbr(trial) => trial.is_half().then_some(streams),
        }
    }

    /// What the samples tell.
    fn best(&self) -> Option<Best> {
        match self {
            Self::Fewer(halving) => fewest(halving.samples(), halving.first()),
            Self::More(selection, most) => best(selection.samples(), *most),
            Self::Bbr(_) => None,
        }
    }
}

/// One clause, for a trace or a report.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Windows => f.write_str("fewer have no windows that cover the path"),
            Self::Fit(ground) => write!(f, "{ground}"),
            Self::Fast => f.write_str("so many fill so fast a line with less of the processors"),
            Self::TryFewer(ground) => write!(f, "{ground}: fewer may carry as much"),
            Self::TryMore(ground) => write!(f, "{ground}: more may carry more"),
            Self::Found(why) => why.fmt(f),
            Self::TryBbr(ground) => write!(f, "{ground}: BBR may carry more"),
            Self::Bbr(verdict) => verdict.fmt(f),
            Self::LossGrew => f.write_str("more is lost than when BBR was kept: as before"),
            Self::GivenUp => f.write_str("the search found nothing better"),
        }
    }
}

#[cfg(test)]
mod tests;
