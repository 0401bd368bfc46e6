//! What is held of a path: the window that a rate needs, the queue that may stand, and whether what
//! is held is taken.

use super::measure::Window;
use super::{RATE_ERROR, RATE_TIME, Sobas, scaled};
use crate::holder::Holder;
use crate::pacing;
use crate::units::{Bytes, Rate};
use std::time::Duration;

/// A connection's first window in segments (RFC 6928), and up to how many of these sent in a round
/// trip losses do not count: two rounds of slow start. (ours)
const FIRST_SEGMENTS: u64 = 10;
const FIRST_WINDOWS: f64 = 4.0;

/// Nor later than so many round trips, and this time, after the first data. (ours: two of them, and
/// what TCP needs to repair the losses)
const FIRST_TIME: (u32, Duration) = (8, Duration::from_millis(500));

/// What we hold is what limits when the rate is above this share of it. [algorithms: within 5 %]
const HELD_SHARE: f64 = 0.95;

/// Beyond rate × round trip the window has this share. (ours: with what TCP sends at once and the
/// step below it fits in a buffer of 0.1 round trips)
const HEADROOM: f64 = 0.02;

/// And what TCP sends at once, up to this share. (ours: the same)
const BURST_SHARE: f64 = 0.03;

/// On shorter paths than this nothing is held: what is waited for there are the hosts themselves,
/// whose delays look like queues. (ours: what a scheduler's tick and interrupts take, some 1 ms)
const SHORT_PATH: Duration = Duration::from_millis(2);

/// A queue counts that stands longer than this share of the round trip, and this time. (ours: half
/// of the queue that may be left, 10 % or 3 ms)
const QUEUE_SHARE: f64 = 0.04;
const QUEUE_MIN: Duration = Duration::from_micros(400);

/// And longer than so many of what TCP sends at once take on the line. (ours: a probe may come
/// behind one, and before the next)
const QUEUE_BURSTS: f64 = 1.5;

/// A queue that stands while we have less than this share of the line is not ours alone. (ours)
const OWN_SHARE: f64 = 0.3;

impl Sobas {
    /// What comes, over a time that is long enough to compare it.
    pub(super) fn rate_now(&self) -> Rate {
        self.measure.rate_over(self.measure.window_length().max(RATE_TIME))
    }

    /// Whether the path is too short to tell its queue from the hosts' delays.
    pub(super) fn is_short(&self) -> bool {
        (Duration::from_nanos(1)..SHORT_PATH).contains(&self.rtt_min())
    }

    /// What the connections send at first, at once.
    fn first_windows(&self) -> Bytes {
        Bytes(FIRST_SEGMENTS * pacing::SEGMENT_DATA.0 * u64::from(self.streams))
    }

    /// Whether a rate is of the first windows, whose queue and losses tell nothing of the path:
    /// they are not paced.
    pub(super) fn is_first_windows(&self, rate: Rate, now: Duration) -> bool {
        let (round_trips, least) = FIRST_TIME;
        let time = (self.rtt_min() * round_trips).max(least);
        let in_flight = rate.bytes_per_sec() as f64 * self.rtt_min().as_secs_f64();
        self.began_at.is_none_or(|began| now < began + time)
            && in_flight < FIRST_WINDOWS * self.first_windows().0 as f64
    }

    /// No transfer is held below what its first windows bring.
    pub(super) fn rate_min(&self) -> Rate {
        self.first_windows().per(self.rtt_min().max(SHORT_PATH))
    }

    /// Rate × round trip, with some room.
    pub(super) fn window_for(&self, rate: Rate) -> Bytes {
        let rtt = self.rtt_min();
        let bytes_per_sec = rate.bits_per_sec() as f64 / 8.0;
        let fills = bytes_per_sec * rtt.as_secs_f64();
        let least = pacing::SEGMENT_DATA.0 as f64 * f64::from(self.streams.max(2));
        let burst = (pacing::burst(rate).0 as f64).min(fills * BURST_SHARE).max(least);
        Bytes((fills * (1.0 + HEADROOM) + burst) as u64)
    }

    /// A queue of ours may stand so long.
    pub(super) fn queue_allowed(&self) -> Duration {
        let rtt = self.rtt_min();
        let burst = self.target.and_then(|rate| rate.time_for(pacing::burst(rate)));
        let bursts = burst.unwrap_or_default().mul_f64(QUEUE_BURSTS);
        QUEUE_MIN.max(rtt.mul_f64(QUEUE_SHARE)).max(bursts)
    }

    pub(super) fn is_held_by_us(&self, window: &Window) -> bool {
        let held = self.target.is_some_and(|target| window.rate >= scaled(target, HELD_SHARE));
        held && window.holder == Holder::Path
    }

    /// Whether what we allow comes, so that more may: TCP that repairs a loss takes less.
    pub(super) fn is_all_taken(&self) -> bool {
        let rate = self.rate_now();
        self.target.is_some_and(|target| rate >= scaled(target, 1.0 - 2.0 * RATE_ERROR))
    }

    /// Whether all is allowed that may ever be.
    pub(super) fn is_at_max(&self) -> bool {
        self.target.is_some() && self.target == self.config.rate_max
    }

    /// Whether a rate is all that may ever be: that it is even tells nothing of the path.
    pub(super) fn is_rate_max(&self, rate: Rate) -> bool {
        self.config.rate_max.is_some_and(|max| rate >= scaled(max, HELD_SHARE))
    }

    /// Whether we have so little of the line that a queue is hardly ours.
    pub(super) fn has_small_share(&self, rate: Rate) -> bool {
        self.capacity.is_some_and(|capacity| rate < scaled(capacity, OWN_SHARE))
    }
}
