//! The window of a sender that sees each acknowledgement: rate × round trip, where the rate is what
//! is delivered, and losses count only where a queue stands. So it fills a path that loses at
//! random. Beside others who keep a queue full it has CUBIC's window, if that is more, or it would
//! make room for them until it has nothing.
//!
//! It knows no packets and no timers; whoever uses it tells what was sent, acknowledged and lost,
//! and sends at a rate of about 1.25 windows in a round trip. How it works is told in
//! [quic.md](../../../../docs/algorithms/quic.md).

mod aggregation;
mod rival;
mod samples;
#[cfg(test)]
mod tests;

use crate::units::{Bytes, Rate};
use aggregation::Aggregation;
use rival::Rival;
use samples::{Most, Sent};
use std::time::Duration;

/// A window is no smaller than so many datagrams. (RFC 9002, §7.2: 2; ours, as BBR: so that one
/// that is lost is noticed by others)
const LEAST: u64 = 4;

/// And begins with so many. (RFC 9002, §7.2: 10; ours: as many as three connections of TCP, paced)
const FIRST: u64 = 32;

/// The path is full where more in flight has not brought more by this factor, for so many rounds.
/// (BBR, draft-ietf-ccwg-bbr §5.3.1.2)
const GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;

/// Until then no more than this multiple of what is delivered in a round trip is in flight. (twice
/// as much in each round needs that, and a queue of one round trip takes it)
const STARTUP: f64 = 2.0;

/// A queue stands where the shortest round trip of a round is longer than the shortest of all by
/// this part, and by so much. (HyStart++, RFC 9406: an eighth, 4 ms; ours: a quarter, since windows
/// are to grow a quarter beyond)
const STANDING: f64 = 0.25;
const STANDING_LEAST: Duration = Duration::from_millis(4);

/// The most that was delivered is that of so many rounds. (BBR: 10, two cycles)
const ROUNDS: u64 = 10;

/// The shortest round trip is that of so long, and then it is looked for with this part of the
/// window for a round. (BBR: 10 s, one half)
const RTT_KEPT: Duration = Duration::from_secs(10);
const RTT_LOOK: f64 = 0.5;

/// In flight, in turn: more, to see whether more is delivered; less, for the queue that this has
/// left; and as much as is delivered. (BBR: 1.25, 0.75, 1 for the rate; ours: 0.05 more, since what
/// is sent waits for acknowledgements that come together)
const MORE: f64 = 1.25;
const CYCLE: [f64; 8] = [MORE, 0.9, 1.05, 1.05, 1.05, 1.05, 1.05, 1.05];

/// Where more in flight has lost more than twice the usual part and this beside, half as much more
/// is tried the next time, and this at least; else by this factor more again. (ours)
const MORE_LOST: f64 = 0.01;
const MORE_LEAST: f64 = 0.06;
const MORE_AGAIN: f64 = 1.5;

/// The usual part is smoothed: a round has this weight. (ours)
const USUAL_WEIGHT: f64 = 0.1;

/// Losses count where a queue stands and more than this part was lost in a round; and without,
/// where more than the second was. (BBR: 2 %; ours: more than a fifth is no chance anywhere)
const LOST_QUEUED: f64 = 0.02;
const LOST: f64 = 0.2;

/// Then so much of the window and of the rate is kept. (CUBIC's, RFC 9438 §4.6)
const KEPT: f64 = 0.7;

/// Others may keep a queue full that stands in so many of the last eight rounds: alone it does so
/// in those in which more is tried. (ours)
const OTHERS_ROUNDS: u32 = 4;

/// That is looked into, as the shortest round trip is, and again after so many rounds as long as it
/// is so. (ours: a look costs half a round)
const OTHERS_KEPT: u64 = 32;

/// They do not, where the round trip of a look is the shortest but for this part, and so much.
/// (ours: half a window less empties a queue that nobody else fills)
const EMPTY: f64 = 0.05;
const EMPTY_LEAST: Duration = Duration::from_millis(1);

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Twice the window in a round, until the path is full.
    Startup,
    /// By the cycle, at this place of it.
    Cruise(usize),
    /// Less for a round, to see the shortest round trip.
    Look,
}

/// The controller of one path.
#[derive(Debug, Clone)]
pub struct Delivery {
    datagram: u64,
    phase: Phase,
    window: u64,
    /// What was acknowledged.
    delivered: u64,
    sent: Sent,
    rate: Most,
    /// What may be in flight for acknowledgements that come late.
    late: Aggregation,
    /// The shortest round trip, and when it was seen.
    rtt: Option<(Duration, Duration)>,
    round: Round,
    /// In which of the last rounds a queue stood, the last one first.
    stood: u8,
    /// The window beside others, while there are others; or the one with which that would begin, if
    /// a look showed that there are; and the round of that look.
    rival: Option<Rival>,
    doubt: Option<Rival>,
    looked: Option<u64>,
    /// The round in which losses were heeded last: what the next one loses was sent before.
    heeded: u64,
    /// How much more is tried; what was lost of it, and of how much; and the part that is lost
    /// usually.
    more: f64,
    tried: (u64, u64),
    usual: f64,
    /// The most that was delivered before the path could be full, and for how many rounds no more.
    full: (f64, u32),
}

/// A round: from the sending of a datagram to its acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    number: u64,
    since: Duration,
    rtt: Option<Duration>,
    acked: u64,
    lost: u64,
    /// Nothing was there to be sent at a moment.
    is_idle: bool,
}

/// Whether a queue stands, where a round trip takes so long and the shortest took so long.
#[must_use]
pub fn is_queued(rtt: Duration, least: Duration) -> bool {
    rtt > least + STANDING_LEAST.max(least.mul_f64(STANDING))
}

impl Delivery {
    /// Begins, with datagrams of so many bytes. Every moment told to it, here and below, is the
    /// time since one and the same beginning, and none is earlier than one that was told before.
    #[must_use]
    pub fn new(now: Duration, datagram: Bytes) -> Self {
        Self {
            datagram: datagram.0,
            phase: Phase::Startup,
            window: datagram.0 * FIRST,
            delivered: 0,
            sent: Sent::new(now),
            rate: Most::default(),
            late: Aggregation::new(now),
            rtt: None,
            // The first has a number that the round of no losses is not beside.
            round: Round { number: 2, since: now, ..Round::default() },
            stood: 0,
            rival: None,
            doubt: None,
            looked: None,
            heeded: 0,
            more: MORE - 1.0,
            tried: (0, 0),
            usual: 0.0,
            full: (0.0, 0),
        }
    }

    /// How many bytes may be in flight.
    #[must_use]
    pub fn window(&self) -> Bytes {
        let window = self.needed();
        // In a look it would be the queue that is looked for.
        Bytes(if self.phase == Phase::Look { window } else { self.late.window(window) })
    }

    /// The window, if acknowledgements came at once.
    fn needed(&self) -> u64 {
        match (&self.rival, self.phase) {
            (Some(rival), Phase::Cruise(_)) => rival.window(self.datagram).max(self.window),
            _ => self.window,
        }
    }

    /// What the path is believed to deliver, once something has been.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.rate.get().map(|rate| Rate::from_bits_per_sec(rate * 8.0))
    }

    /// Datagrams have so many bytes from now on.
    pub fn on_datagram(&mut self, bytes: Bytes) {
        self.datagram = bytes.0;
        self.window = self.window.max(self.least());
    }

    /// Something was sent, now: told of each moment of sending before what was sent in it is
    /// acknowledged.
    pub fn on_sent(&mut self, now: Duration) {
        self.sent.on_sent(now, self.delivered);
    }

    /// So much was acknowledged, sent at `sent`, which [`on_sent`](Self::on_sent) was told of; what
    /// it was not told of counts as delivered and gives no rate. `is_idle`: more could have been in
    /// flight, had there been more to send.
    pub fn on_ack(&mut self, now: Duration, sent: Duration, bytes: Bytes, is_idle: bool) {
        self.delivered += bytes.0;
        self.round.acked += bytes.0;
        self.late.on_ack(now, bytes.0, self.needed(), is_idle);
        self.round.is_idle |= is_idle;
        let rtt = now.saturating_sub(sent);
        self.round.rtt = Some(self.round.rtt.map_or(rtt, |least| least.min(rtt)));
        let is_new = self.rtt.is_none_or(|(least, _)| rtt <= least);
        if is_new {
            self.rtt = Some((rtt, now));
        }
        let least = self.rtt.map_or(rtt, |(least, _)| least);
        if let Some((rate, was_idle)) = self.sent.rate(now, sent, self.delivered, least) {
            self.round.is_idle |= was_idle;
            self.rate.add(self.round.number, rate, is_idle || was_idle);
        }
        if let Some(rival) = self.rival.as_mut().filter(|_| !is_idle) {
            rival.grow(bytes.0 as f64 / self.datagram as f64, now, least);
        }
        if self.phase == Phase::Startup && !is_idle {
            let most =
                self.rate.get().map_or(f64::MAX, |rate| rate * least.as_secs_f64() * STARTUP);
            let most = (most as u64).max(self.datagram * FIRST);
            self.window = (self.window + bytes.0).min(most.max(self.window));
        }
        if sent >= self.round.since {
            self.end_round(now);
        }
    }

    /// Of what has come at once, all was told: so much is in flight still. `is_idle`: as above.
    pub fn on_acks_end(&mut self, in_flight: Bytes, is_idle: bool) {
        self.sent.on_acks_end(in_flight.0 == 0, is_idle);
    }

    /// So much was lost; `is_all`: everything, for as long as that tells that the path is gone.
    pub fn on_lost(&mut self, bytes: Bytes, is_all: bool) {
        self.round.lost += bytes.0;
        self.late.on_lost(bytes.0.div_ceil(self.datagram), self.needed());
        if is_all {
            self.window = self.least();
            self.phase = Phase::Startup;
            self.full = (0.0, 0);
            self.rate = Most::default();
            (self.rival, self.doubt, self.stood) = (None, None, 0);
            self.late.forget();
        }
    }

    fn least(&self) -> u64 {
        self.datagram * LEAST
    }

    fn end_round(&mut self, now: Duration) {
        let next = Round { number: self.round.number + 1, since: now, ..Round::default() };
        let round = std::mem::replace(&mut self.round, next);
        self.rate.forget(round.number.saturating_sub(ROUNDS));
        let lost = round.lost as f64 / (round.lost + round.acked).max(1) as f64;
        let stands = self.stands(&round);
        self.look_for_others(&round, stands, lost);
        if self.rival.is_none() && (lost > LOST || (stands && lost > LOST_QUEUED)) {
            self.give_way(round.number);
            return;
        }
        match self.phase {
            Phase::Startup => self.see_whether_full(&round, stands),
            Phase::Cruise(at) => {
                self.learn(at, &round);
                let is_again = self.rival.is_some() && self.has_not_looked(round.number);
                let looks = self.doubt.is_some() || is_again || self.is_old(now);
                self.phase =
                    if looks { Phase::Look } else { Phase::Cruise((at + 1) % CYCLE.len()) };
            }
            Phase::Look => {
                self.look_whether_alone(&round);
                if self.is_old(now) {
                    self.rtt = round.rtt.map(|rtt| (rtt, now)).or(self.rtt);
                }
                self.phase = Phase::Cruise(0);
            }
        }
        self.set_window();
    }

    /// Whether others keep a queue full, and what of it is ours then.
    fn look_for_others(&mut self, round: &Round, stands: bool, lost: f64) {
        self.stood = self.stood << 1 | u8::from(stands);
        let is_cruising = matches!(self.phase, Phase::Cruise(_));
        let is_likely = self.stood.count_ones() >= OTHERS_ROUNDS && is_cruising && !round.is_idle;
        let is_unknown = self.has_not_looked(round.number);
        match &mut self.rival {
            None if stands && is_likely && is_unknown => {
                // As much as it had when the queue began to stand.
                let (Some(rate), Some(rtt)) = (self.rate.get(), round.rtt) else { return };
                let window = rate * rtt.as_secs_f64() / self.datagram as f64;
                self.doubt = Some(Rival::new(window));
            }
            None => {}
            Some(rival) if lost > self.usual * 2.0 && round.number > self.heeded + 1 => {
                rival.on_lost();
                self.heeded = round.number;
            }
            Some(_) => {}
        }
    }

    /// The queue that stood was ours, where it is gone as soon as there is less of ours.
    fn look_whether_alone(&mut self, round: &Round) {
        let (Some(rtt), Some((least, _))) = (round.rtt, self.rtt) else { return };
        self.looked = Some(round.number);
        let doubt = self.doubt.take();
        if rtt <= least + EMPTY_LEAST.max(least.mul_f64(EMPTY)) {
            (self.rival, self.stood) = (None, 0);
        } else if self.rival.is_none() {
            self.rival = doubt;
        }
    }

    /// Whether there has been no look for long.
    fn has_not_looked(&self, round: u64) -> bool {
        self.looked.is_none_or(|looked| round >= looked + OTHERS_KEPT)
    }

    /// Whether the shortest round trip was seen too long ago.
    fn is_old(&self, now: Duration) -> bool {
        self.rtt.is_some_and(|(_, seen)| now.saturating_sub(seen) > RTT_KEPT)
    }

    /// What was lost of more than usual, and usually. What is lost of a round is known in the next.
    fn learn(&mut self, at: usize, round: &Round) {
        let sum = round.lost + round.acked;
        if at > 1 {
            self.usual += USUAL_WEIGHT * (round.lost as f64 / sum.max(1) as f64 - self.usual);
            return;
        }
        self.tried = (self.tried.0 + round.lost, self.tried.1 + sum);
        if at == 1 {
            let (lost, sum) = std::mem::take(&mut self.tried);
            let is_much = lost as f64 > (self.usual * 2.0 + MORE_LOST) * sum as f64;
            let factor = if is_much { 0.5 } else { MORE_AGAIN };
            self.more = (self.more * factor).clamp(MORE_LEAST, MORE - 1.0);
        }
    }

    /// Whether a queue stands, by the shortest round trip of a round.
    fn stands(&self, round: &Round) -> bool {
        let (Some(rtt), Some((least, _))) = (round.rtt, self.rtt) else { return false };
        is_queued(rtt, least)
    }

    fn see_whether_full(&mut self, round: &Round, stands: bool) {
        let rate = self.rate.get().unwrap_or_default();
        if rate >= self.full.0 * GROWTH {
            self.full = (rate, 0);
        } else if !round.is_idle {
            self.full.1 += 1;
        }
        if stands || self.full.1 >= FULL_ROUNDS {
            // A round with less, for the queue that the search has left.
            self.phase = Phase::Cruise(1);
        }
    }

    /// Others fill the path, too, or it has become narrower.
    fn give_way(&mut self, round: u64) {
        if round > self.heeded + 1 {
            self.rate.shrink(KEPT);
            self.heeded = round;
        }
        if self.phase == Phase::Startup {
            self.phase = Phase::Cruise(1);
        } else {
            // As long as possible no more than is delivered.
            self.phase = Phase::Cruise(2);
        }
        self.set_window();
    }

    /// What is delivered in the shortest round trip, as often as it is the turn of.
    fn set_window(&mut self) {
        let factor = match self.phase {
            Phase::Startup => return,
            Phase::Cruise(0) => 1.0 + self.more,
            Phase::Cruise(at) => CYCLE[at],
            Phase::Look => RTT_LOOK,
        };
        let (Some(rate), Some((rtt, _))) = (self.rate.get(), self.rtt) else { return };
        let window = (rate * rtt.as_secs_f64() * factor) as u64;
        self.window = (window + 2 * self.datagram).max(self.least());
    }
}
