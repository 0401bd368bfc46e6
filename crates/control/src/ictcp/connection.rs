//! A connection: what it was asked for and has brought, its window, and the rules by which that
//! grows and shrinks. (paper, §IV-C and §IV-D)

use super::busy::Busy;
use super::reason::Reason;
use super::slots::HALF_MIN;
use super::{Joining, Seen};
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// How much of the measured rate is kept where less comes. (paper, §IV-C: β)
const SMOOTHING: f64 = 0.75;

/// Up to this difference between what may come and what comes, the window is what limits. (paper,
/// §IV-C: γ₁)
const USED: f64 = 0.1;

/// Beyond this, it is more than is needed. (paper, §IV-C: γ₂)
const UNUSED: f64 = 0.5;

/// So often in a row. (paper, §IV-C: three round trips; ours look at two at least)
const UNUSED_TIMES: u32 = 2;

/// Windows grow and shrink by a segment (paper, §IV-C), or by this part of them. (ours: on fast
/// lines a segment is nothing)
const STEP_PART: u64 = 64;

/// A connection that was not asked for so long begins anew. (ours: longer than the pauses between
/// rounds; TCP's own idle time is a retransmission time-out, 0.2 s at least)
const IDLE: Duration = Duration::from_secs(1);

/// And one that was not for so long leaves its share to the others. (ours: much shorter than the
/// second in which shares are to be even, and longer than a pause between rounds)
const LATELY: Duration = Duration::from_millis(200);

/// Whoever brings nothing for so long, and for so many round trips, although it was asked, has
/// nothing to send, or lost it all: its turn is the others' meanwhile. (ours: two looks, and a
/// sender that waits for its disk is soon there again)
const SILENT: (Duration, u32) = (Duration::from_millis(20), 4);

/// What a connection that was sending before it joined is found to have lost within so long, it had
/// lost before. (ours: TCP's least retransmission time-out on Linux, 0.2 s, and some looks)
const LOST_BEFORE: Duration = Duration::from_millis(250);

/// As long as no round trip is known. (ours: a local network with its hosts)
const RTT_UNKNOWN: Duration = Duration::from_millis(1);

/// A connection is asked again before it has brought this many windows. (ours: the request is there
/// before the last data has left)
pub(super) const AHEAD: u64 = 2;

/// A queue stands elsewhere when a round trip is longer than the least one by so much, and by this
/// part of it. (ours: ten times what hosts delay, and what no port's queue of ours is)
const ELSEWHERE: (Duration, f64) = (Duration::from_millis(5), 0.25);

/// A sender with such a round trip is paced, at its window in each round trip and so much more.
/// (TCP's own ratio in congestion avoidance, tcp_pacing_ca_ratio: 1.2; below, a window is too small
/// to be a burst) It is told again when that changes by this part.
pub(super) const PACED: (Duration, f64) = (Duration::from_millis(2), 1.2);
const PACED_ANEW: f64 = 0.1;

/// What a connection's window should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Grow,
    Shrink,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) window: u64,
    segment: u64,
    least: u64,
    obeys: bool,
    /// Its sender may have sent up to here, by what it was offered.
    edge: u64,
    asked: u64,
    received: u64,
    /// What more is wanted than was asked for.
    wanted: u64,
    pub(super) is_waiting: bool,
    is_counted: bool,
    paced: Rate,
    rtt: Option<Duration>,
    rtt_least: Option<Duration>,
    lost: u64,
    is_lossy: bool,
    /// What it is found to have lost until then was lost before it joined.
    lost_before: Duration,
    /// When it brought something last, or was asked after a pause.
    heard: Duration,
    busy: Busy,
    measured: Rate,
    is_slow_start: bool,
    unused: u32,
    is_used: bool,
    /// It has not been asked for anything, or not for long: since then.
    rests_since: Option<Duration>,
    is_new: bool,
    /// It has more than its own window, as long as nobody else wants it: that is this.
    own: Option<u64>,
}

impl Connection {
    pub(super) fn new(now: Duration, joining: &Joining, segments_min: u64) -> Self {
        let segment = joining.segment.0.max(1);
        let least = segment * segments_min.max(1);
        Self {
            window: least,
            segment,
            least,
            obeys: joining.obeys,
            edge: joining.offered.0,
            asked: 0,
            received: 0,
            wanted: 0,
            is_waiting: false,
            is_counted: false,
            paced: Rate::default(),
            rtt: joining.rtt,
            rtt_least: joining.rtt,
            lost: joining.lost,
            is_lossy: false,
            lost_before: if joining.obeys { now } else { now + LOST_BEFORE },
            heard: Duration::ZERO,
            busy: Busy::default(),
            measured: Rate::default(),
            is_slow_start: true,
            unused: 0,
            is_used: false,
            rests_since: None,
            is_new: true,
            own: None,
        }
    }

    /// So much more is wanted. Whether it did not count until now.
    pub(super) fn want(&mut self, bytes: Bytes) -> bool {
        self.wanted = self.wanted.saturating_add(bytes.0);
        !std::mem::replace(&mut self.is_counted, true)
    }

    pub(super) fn unwant(&mut self) {
        self.wanted = 0;
        self.is_waiting = false;
    }

    pub(super) fn wanted(&self) -> u64 {
        self.wanted
    }

    /// What it was asked for and has not brought.
    pub(super) fn outstanding(&self) -> u64 {
        if self.obeys { self.asked.saturating_sub(self.received) } else { u64::MAX }
    }

    /// Data in a full segment of it.
    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// Whether it sends what it is asked for, and no more.
    pub(super) fn obeys(&self) -> bool {
        self.obeys
    }

    /// Where it might be asked again, has brought all, or has no more on its way than its window.
    pub(super) fn next_look(&self, ahead: [u64; 2]) -> Option<u64> {
        let again = ahead.into_iter().chain([0]).filter_map(|left| self.asked.checked_sub(left));
        let looks = again.chain([self.edge.saturating_sub(self.window)]);
        looks.filter(|&at| at > self.received).min()
    }

    pub(super) fn is_active(&self) -> bool {
        self.outstanding() > 0
    }

    /// Whether something is wanted of it, or was lately.
    pub(super) fn count(&mut self, now: Duration) -> bool {
        self.is_counted = match self.rests_since {
            Some(since) => self.is_waiting || now < since + LATELY,
            None => self.is_waiting || self.is_active(),
        };
        self.is_counted
    }

    /// It was asked for something, and has brought nothing for long.
    pub(super) fn is_silent(&self, now: Duration) -> bool {
        now >= self.heard + SILENT.0.max(self.rtt() * SILENT.1)
    }

    /// It has brought nothing for long: that is no time in which anything could come.
    pub(super) fn fall_silent(&mut self, now: Duration) {
        self.busy.pause(now, self.received);
        self.rests_since = Some(now);
    }

    /// Whether it was counted as one that something is wanted of.
    pub(super) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// What could be on its way at once, where its window is held.
    pub(super) fn exposure(&self) -> u64 {
        self.window.max(self.edge.saturating_sub(self.received))
    }

    /// The most to ask for at once, as far as that depends on the connection: little of one that
    /// has brought nothing yet. Linux widens a window by itself when the first full segment comes,
    /// and it can be held only then. Until what was offered at first has come, requests are what
    /// holds the sender.
    pub(super) fn ask_max(&self) -> u64 {
        match self.received {
            0 => self.least.saturating_sub(self.outstanding()),
            _ if self.has_offered_more() => self.window.saturating_sub(self.outstanding()),
            _ => u64::MAX,
        }
    }

    /// Its sender was offered more than its window, and has not sent all of that.
    pub(super) fn has_offered_more(&self) -> bool {
        self.edge.saturating_sub(self.received) > self.window
    }

    /// It is to be asked again when no more than this of what it was asked for is missing.
    pub(super) fn ahead(&self, is_crowded: bool) -> u64 {
        match is_crowded {
            _ if self.has_offered_more() => self.window / 2,
            true => self.window,
            false => self.window * AHEAD,
        }
    }

    /// Asks for so much more.
    pub(super) fn ask(&mut self, bytes: u64) {
        self.asked += bytes;
        if self.wanted != u64::MAX {
            self.wanted -= bytes;
        }
    }

    /// Something is asked for again. Whether that is the first time, or the first for long.
    pub(super) fn begin(&mut self, now: Duration) -> bool {
        if self.busy.is_paused() {
            self.heard = now;
        }
        self.busy.begin(now + self.rtt(), self.received);
        let rested = self.rests_since.take().is_some_and(|since| now >= since + IDLE);
        self.is_slow_start |= rested;
        std::mem::take(&mut self.is_new) || rested
    }

    /// So much has come in all; how much that is more.
    pub(super) fn receive(&mut self, now: Duration, received: u64) -> u64 {
        let more = received.saturating_sub(self.received);
        if more > 0 {
            self.heard = now;
        }
        if self.received == 0 {
            // As much as in the beginning, as long as nobody knows better.
            self.edge += more;
        }
        self.received += more;
        self.edge = self.edge.max(self.received + self.window);
        self.busy.advance(now, self.received);
        if more > 0 && !self.is_active() {
            self.busy.pause(now, self.received);
            self.rests_since = Some(now);
        }
        more
    }

    /// So much is offered to its sender now.
    pub(super) fn on_offered(&mut self, window: u64) {
        self.edge = self.edge.max(self.received + window);
    }

    pub(super) fn on_rtt(&mut self, rtt: Option<Duration>) {
        let Some(rtt) = rtt.filter(|rtt| !rtt.is_zero()) else { return };
        self.rtt = Some(rtt);
        self.rtt_least = Some(self.rtt_least.map_or(rtt, |least| least.min(rtt)));
    }

    /// So many segments were lost so far. Whether that is more.
    pub(super) fn on_lost(&mut self, now: Duration, lost: u64) -> bool {
        let is_more = lost > self.lost && now >= self.lost_before;
        self.lost = self.lost.max(lost);
        self.is_lossy |= is_more;
        is_more
    }

    /// Its round trip now.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt.unwrap_or(RTT_UNKNOWN)
    }

    /// Its shortest one.
    pub(super) fn rtt_least(&self) -> Duration {
        self.rtt_least.unwrap_or(RTT_UNKNOWN)
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// What it brings while it is asked for something. (paper, §IV-C: the measured throughput)
    pub(super) fn rate(&self) -> Rate {
        self.measured
    }

    /// Whether its window is what limited it when that was looked at last.
    pub(super) fn is_held(&self) -> bool {
        self.unused == 0 && self.difference() <= self.used()
    }

    /// What may come and does not, as part of what may. (paper, §IV-C)
    fn difference(&self) -> f64 {
        let measured = self.measured.bits_per_sec() as f64;
        let expected = Bytes(self.window).per(self.rtt()).bits_per_sec() as f64;
        let expected = expected.max(measured);
        if expected > 0.0 { (expected - measured) / expected } else { 0.0 }
    }

    fn used(&self) -> f64 {
        USED.max(self.segment as f64 / self.window as f64)
    }

    /// What its window should do, when it is time to look.
    pub(super) fn judge(&mut self) -> Option<Verdict> {
        let verdict = self.look();
        if let Some(verdict) = verdict {
            self.is_used = verdict == Verdict::Grow;
        }
        verdict
    }

    fn look(&mut self) -> Option<Verdict> {
        if self.busy.time() < HALF_MIN.max(self.rtt()) {
            return None;
        }
        let sample = self.busy.take().bits_per_sec() as f64;
        let smoothed = SMOOTHING * self.measured.bits_per_sec() as f64 + (1.0 - SMOOTHING) * sample;
        self.measured = Rate::from_bits_per_sec(smoothed.max(sample));
        let is_lossy = std::mem::take(&mut self.is_lossy);
        let difference = self.difference();
        if difference > UNUSED || is_lossy || self.queues_elsewhere() {
            self.is_slow_start = false;
            self.unused += 1;
            if self.unused >= UNUSED_TIMES {
                self.unused = 0;
                return Some(Verdict::Shrink);
            }
            return Some(Verdict::Keep);
        }
        self.unused = 0;
        if difference > self.used() {
            self.is_slow_start = false;
            return Some(Verdict::Keep);
        }
        Some(Verdict::Grow)
    }

    /// By how much its round trip is longer than the shortest one.
    pub(super) fn waits(&self) -> Option<Duration> {
        Some(self.rtt?.saturating_sub(self.rtt_least?))
    }

    /// Whether a queue stands that is not the port's.
    fn queues_elsewhere(&self) -> bool {
        let least = self.rtt_least();
        self.rtt() > least + ELSEWHERE.0.max(least.mul_f64(ELSEWHERE.1))
    }

    /// The rate at which its sender is to be paced, when that is news.
    pub(super) fn pace(&mut self, ratio: f64) -> Option<Rate> {
        let rtt = self.rtt_least.filter(|&rtt| rtt >= PACED.0)?;
        let pace = Bytes(self.window).per(rtt).bits_per_sec() as f64 * ratio;
        let change = (pace - self.paced.bits_per_sec() as f64).abs();
        let is_news = change > self.paced.bits_per_sec() as f64 * PACED_ANEW;
        is_news.then(|| {
            self.paced = Rate::from_bits_per_sec(pace);
            self.paced
        })
    }

    /// What its window grows and shrinks by, but in slow start.
    pub(super) fn step(&self) -> u64 {
        self.segment.max(self.window / STEP_PART)
    }

    /// Its window is this now, in whole segments; whether it was another.
    pub(super) fn set_window(&mut self, window: u64) -> bool {
        let window = (window - window % self.segment).max(self.least);
        std::mem::replace(&mut self.window, window) != window
    }

    /// By how much its window is to grow, since all of it was used when it was judged last.
    pub(super) fn wants_more(&self) -> Option<u64> {
        let by = if self.is_slow_start { self.window } else { self.step() };
        self.is_used.then_some(by)
    }

    /// Its window grows. What comes in the next round trip was sent by the smaller one.
    pub(super) fn grow(&mut self, now: Duration, by: u64, reason: Reason) -> Reason {
        self.is_used = false;
        self.set_window(self.window + by);
        self.busy.restart(now + self.rtt(), self.received);
        reason
    }

    /// Its window grows if the port has room, and slow start ends where it has not.
    pub(super) fn grow_if(&mut self, may: bool, now: Duration, by: u64) -> Option<Reason> {
        let reason = if self.is_slow_start { Reason::Doubled } else { Reason::Grew };
        self.is_slow_start &= may;
        may.then(|| self.grow(now, by, reason))
    }

    /// Its window is that large for as long as nobody else wants it, if that is more and of use;
    /// whether it is another now.
    pub(super) fn borrow(&mut self, now: Duration, window: u64) -> bool {
        let is_of_use = self.outstanding() > self.window && window >= self.window + self.segment;
        if is_of_use {
            self.own.get_or_insert(self.window);
            self.set_window(window);
            self.busy.restart(now + self.rtt(), self.received);
        }
        is_of_use
    }

    /// Its window is its own again, or its share if that is more; whether it is another now.
    pub(super) fn give_back(&mut self, now: Duration, share: u64) -> bool {
        let Some(own) = self.own.take() else { return false };
        let is_other = self.set_window(self.window.min(own.max(share)));
        self.busy.restart(now + self.rtt(), self.received);
        is_other
    }

    /// Its window shrinks by a step; whether it did.
    pub(super) fn step_down(&mut self) -> bool {
        self.set_window(self.window.saturating_sub(self.step()))
    }

    /// Its window shrinks to this part; whether it did.
    pub(super) fn shrink_to(&mut self, part: f64) -> bool {
        self.is_slow_start = false;
        self.set_window((self.window as f64 * part) as u64)
    }
}

/// What a connection is seen as, for those who have nothing else to say.
impl Seen {
    /// One that brought so much, and nothing else is known.
    #[must_use]
    pub fn new(id: super::Id, received: Bytes) -> Self {
        Self { id, received, rtt: None, lost: 0 }
    }
}
