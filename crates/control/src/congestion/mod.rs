//! Model-based congestion control for a sender that sees each acknowledgement, as QUIC does.
//!
//! Rate and window follow a model of the path, maximum delivery rate and minimum RTT, in the terms
//! of BBR (draft-ietf-ccwg-bbr-05). Loss counts only while a queue stands, so random loss does not
//! shrink the window.
//!
//! Out of scope: packets, timers and the pacing itself. The caller reports what was sent,
//! acknowledged and lost. The document is [quic.md](../../../../docs/algorithms/quic.md).

pub mod cubic;
mod extra_acked;
mod rate_sampler;
#[cfg(test)]
mod round_tests;
#[cfg(test)]
mod tests;

use crate::pacing::TSO_BURSTS_PER_SEC;
use crate::tcp::{
    BW_GROWTH, CUBIC_BETA, FAST_RETRANSMIT_SEGMENTS, LOSS_THRESH, MIN_RTT_FILTER_LEN, TSO_MAX_BYTES,
};
use crate::units::{Bytes, Rate};
use extra_acked::ExtraAcked;
use rate_sampler::{MaxFilter, RateSampler};
use std::time::Duration;

/// Initial window, in datagrams. (RFC 9002 §7.2: 10. Chosen: as much as three TCP connections,
/// paced)
const INITIAL_CWND_DATAGRAMS: u64 = 32;

/// Minimum growth tried by probes after lossy ones: a quarter of the initial growth. (chosen: the
/// excess fits into a queue of a tenth of the BDP)
const MIN_BW_GROWTH: f64 = 1.0 + (BW_GROWTH - 1.0) / 4.0;

/// Consecutive rounds without growth after which the path counts as full. (BBR: 3)
const MAX_FULL_BW_COUNT: u32 = 3;

/// RTT increase that indicates a standing queue, as a fraction of the minimum RTT. (HyStart++, RFC
/// 9406 §4.3: 1/8)
const STANDING_QUEUE_RTT_FRACTION: f64 = 0.125;

/// Smallest RTT increase that indicates a standing queue. (HyStart++, RFC 9406 §4.3: 4 ms)
const MIN_STANDING_QUEUE_DELAY: Duration = Duration::from_millis(4);

/// Rounds of a cycle: a probe, a round that drains its queue, and cruising. (CYCLE_LEN, 8,
/// tcp_bbr.c)
const CYCLE_ROUNDS: u64 = 8;

/// Bursts that the hosts may hold back: one being sent, one received, and one acknowledged.
/// (BBRQuantizationBudget)
const HOST_BURSTS: u64 = 3;

/// Rounds after a reduction in which growth does not trigger another probe: two cycles. (measured,
/// docs/algorithms/sensitivity-quic.md: with one cycle, more is retransmitted)
const REGROWTH_ROUNDS: u64 = 2 * CYCLE_ROUNDS;

/// Index of the first round: beyond those that follow the initial `last_reduction` of 0.
const FIRST_ROUND: u64 = REGROWTH_ROUNDS;

/// Cruising rounds after probes with loss, at most. (BBR's limit of rounds between probes: 63)
const MAX_CRUISE_ROUNDS: u64 = 63;

/// Length of the filters of bandwidth and aggregation, in rounds. (bbr_bw_rtts: CYCLE_LEN + 2,
/// tcp_bbr.c)
const FILTER_ROUNDS: u64 = CYCLE_ROUNDS + 2;

/// Window, in bandwidth-delay products. (BBR's DefaultCwndGain: 2)
const CWND_GAIN: f64 = 2.0;

/// Window in `ProbeRtt`, in bandwidth-delay products, for one round. (BBR's ProbeRTTCwndGain: 0.5)
const PROBE_RTT_CWND_GAIN: f64 = 0.5;

/// Fraction of the bandwidth at which data is paced. (BBR's PacingMarginPercent: 1)
const PACING_MARGIN: f64 = 0.99;

/// Loss rate of a round above which losses count even without a queue. (chosen: no path loses a
/// fifth at random; measured: otherwise a policer drops twice as much,
/// crates/lab/tests/virtual_kinds.rs)
const MAX_RANDOM_LOSS: f64 = 0.2;

/// Overflows within a cycle of a reduction that are attributed to this sender. (measured, beside
/// four CUBIC flows in congestion/tests.rs: with more, it takes 2.6 fair shares; with fewer, web
/// flows get less)
const MAX_LATER_OVERFLOWS: u32 = 2;

/// State of the controller, as in BBR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The window doubles in each round until the path is full.
    Startup,
    /// A window of one bandwidth-delay product, until the queue of `Startup` is drained.
    Drain,
    /// Sends at the estimated bandwidth for this many more rounds.
    Cruise(u64),
    /// Sends more than the bandwidth for a round.
    Up,
    /// Sends less than the bandwidth for a round, or until drained.
    Down { is_drained: bool },
    /// A smaller window for one round, to measure the minimum RTT.
    ProbeRtt,
}

/// Congestion controller of one path.
#[derive(Debug, Clone)]
pub struct ModelBased {
    datagram_size: u64,
    state: State,
    startup: Startup,
    /// Bytes acknowledged so far.
    delivered: u64,
    sampler: RateSampler,
    max_bw: MaxFilter,
    /// Bandwidth after excessive loss, overflows and marks, until the next probe.
    /// (BBR.bw_shortterm)
    bw_shortterm: f64,
    extra_acked: ExtraAcked,
    /// Minimum RTT and the time of its measurement.
    min_rtt: Option<(Duration, Duration)>,
    round: Round,
    probe: Probe,
    overflows: Overflows,
    /// Bandwidth at the last growth, and the number of rounds without growth since then.
    /// (BBR.full_bw, BBR.full_bw_count)
    full_bw: (f64, u32),
    /// Time at which pacing allows the next burst.
    next_send: Duration,
}

/// Window of `State::Startup`.
#[derive(Debug, Clone, Copy)]
struct Startup {
    cwnd: u64,
    /// RTT including the queue of other flows: maximum of the first two rounds and those before
    /// growth.
    rtt: Option<Duration>,
    /// RTT of the last round.
    prior_rtt: Option<Duration>,
    /// The last round has raised `rtt`; the rate follows a round later.
    has_raised_rtt: bool,
}

/// Probes for bandwidth.
#[derive(Debug, Clone, Copy)]
struct Probe {
    /// Growth of the delivery rate that it tries.
    growth: f64,
    /// Bandwidth when the last probe began.
    prior_bw: f64,
    /// Cruising rounds until the next one.
    cruise_rounds: u64,
    /// Bytes lost, and bytes lost or acknowledged, since the last one.
    prior_losses: (u64, u64),
    /// A queue stood after the last one.
    was_undrained: bool,
    /// Queueing delay that other flows cause.
    cross_traffic_delay: Duration,
    /// Earliest time of the next `ProbeRtt` that measures this delay.
    next_trial: Duration,
}

/// Losses while a queue stood.
#[derive(Debug, Clone, Copy, Default)]
struct Overflows {
    /// Round of the last reduction.
    last_reduction: u64,
    /// Rounds with an overflow since.
    later: u32,
    /// Bandwidth of the last round, if its loss was excessive.
    excessive_bw: Option<f64>,
}

/// Round trip: from the sending of a datagram to its acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    index: u64,
    started: Duration,
    min_rtt: Option<Duration>,
    acked_bytes: u64,
    lost_bytes: u64,
    /// Datagrams were marked instead of dropped (ECN-CE, RFC 3168).
    is_marked: bool,
    /// Highest delivery rate. (BBR.bw_latest)
    max_bw: f64,
    /// The sender lacked data at some moment.
    app_limited: bool,
}

impl Round {
    fn loss(&self) -> f64 {
        fraction(self.lost_bytes, self.lost_bytes + self.acked_bytes)
    }
}

fn fraction(part: u64, total: u64) -> f64 {
    part as f64 / total.max(1) as f64
}

/// True if an RTT indicates a standing queue, given the minimum RTT.
#[must_use]
pub fn has_standing_queue(rtt: Duration, min_rtt: Duration) -> bool {
    let delay = MIN_STANDING_QUEUE_DELAY.max(min_rtt.mul_f64(STANDING_QUEUE_RTT_FRACTION));
    rtt > min_rtt + delay
}

impl ModelBased {
    /// Creates a controller in `Startup`. All times, here and below, count from one origin and
    /// never decrease.
    #[must_use]
    pub fn new(now: Duration, datagram_size: Bytes) -> Self {
        Self {
            datagram_size: datagram_size.0,
            state: State::Startup,
            startup: Startup {
                cwnd: datagram_size.0 * INITIAL_CWND_DATAGRAMS,
                rtt: None,
                prior_rtt: None,
                has_raised_rtt: false,
            },
            delivered: 0,
            sampler: RateSampler::new(now),
            max_bw: MaxFilter::default(),
            bw_shortterm: f64::INFINITY,
            extra_acked: ExtraAcked::default(),
            min_rtt: None,
            round: Round { index: FIRST_ROUND, started: now, ..Round::default() },
            probe: Probe {
                growth: BW_GROWTH,
                prior_bw: 0.0,
                cruise_rounds: CYCLE_ROUNDS - 2,
                prior_losses: (0, 0),
                was_undrained: false,
                cross_traffic_delay: Duration::ZERO,
                next_trial: Duration::ZERO,
            },
            overflows: Overflows::default(),
            full_bw: (0.0, 0),
            next_send: now,
        }
    }

    /// Returns the congestion window.
    #[must_use]
    pub fn window(&self) -> Bytes {
        let bdp = self.bdp().unwrap_or_default();
        let window = match self.state {
            State::Startup => return Bytes(self.startup.cwnd),
            State::Drain => bdp as u64,
            State::ProbeRtt => (bdp * PROBE_RTT_CWND_GAIN) as u64,
            _ => {
                let bw = self.bw().unwrap_or_default();
                let queued = bw * self.probe.cross_traffic_delay.as_secs_f64();
                let window = (bdp * CWND_GAIN + queued) as u64 + self.extra_acked.bytes();
                window.max(self.host_held_bytes())
            }
        };
        Bytes(window.max(self.min_cwnd()))
    }

    /// Returns the pacing rate. `None`: the caller paces by the window, as in `Startup`.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<Rate> {
        let gain = match self.state {
            State::Startup => return None,
            State::Up => self.probe.growth,
            // Drains what `Up` has queued.
            State::Down { is_drained: false } => 2.0 - self.probe.growth.min(BW_GROWTH),
            _ => 1.0,
        };
        self.bw().map(|bw| Rate::from_bits_per_sec(bw * 8.0 * gain * PACING_MARGIN))
    }

    /// Returns the size of a burst.
    #[must_use]
    pub fn send_quantum(&self) -> Bytes {
        let bytes = self.bw().unwrap_or_default() / TSO_BURSTS_PER_SEC as f64;
        Bytes((bytes as u64).min(TSO_MAX_BYTES).max(2 * self.datagram_size))
    }

    /// Returns when pacing allows the next burst.
    #[must_use]
    pub fn next_send(&self) -> Duration {
        self.next_send
    }

    /// Returns the highest delivery rate of the last rounds; `None` before the first sample.
    #[must_use]
    pub fn max_bw(&self) -> Option<Rate> {
        self.max_bw.get().map(|bw| Rate::from_bits_per_sec(bw * 8.0))
    }

    /// Sets the size of a datagram after a change of the path MTU.
    ///
    /// A decrease follows a period in which most data was lost, so the model restarts.
    pub fn on_mtu_update(&mut self, datagram_size: Bytes) {
        let is_smaller = datagram_size.0 < self.datagram_size;
        self.datagram_size = datagram_size.0;
        if is_smaller {
            self.restart(self.datagram_size * INITIAL_CWND_DATAGRAMS);
        }
        self.startup.cwnd = self.startup.cwnd.max(self.min_cwnd());
    }

    /// Enters `Startup` with a window, and forgets the bandwidth.
    fn restart(&mut self, cwnd: u64) {
        self.startup.cwnd = cwnd;
        self.state = State::Startup;
        self.full_bw = (0.0, 0);
        (self.max_bw, self.bw_shortterm) = (MaxFilter::default(), f64::INFINITY);
        self.extra_acked = ExtraAcked::default();
        self.next_send = Duration::ZERO;
        // The losses of the current round belong to the previous path.
        self.round.app_limited = true;
    }

    /// Records that `bytes` are sent now; call before any of them is acknowledged.
    pub fn on_sent(&mut self, now: Duration, bytes: Bytes) {
        self.sampler.on_sent(now, self.delivered);
        let Some(rate) = self.pacing_rate() else { return };
        let time = |bytes: Bytes| {
            let bits_per_sec = rate.bits_per_sec().max(1) as f64;
            Duration::from_secs_f64(bytes.0 as f64 * 8.0 / bits_per_sec)
        };
        // Lateness is compensated, up to a burst.
        let earliest = now.saturating_sub(time(self.send_quantum()));
        // Upper bound: the time to send a full window. The estimated bandwidth may have fallen.
        let min_rtt = self.min_rtt.map_or(Duration::ZERO, |(min_rtt, _)| min_rtt);
        let latest = now + min_rtt.mul_f64(CWND_GAIN);
        self.next_send = (self.next_send.max(earliest) + time(bytes)).min(latest);
    }

    /// Records an acknowledgement of `bytes` that were sent at `sent_at`. Data sent at a time that
    /// [`on_sent`](Self::on_sent) did not record counts as delivered but gives no rate sample.
    /// `app_limited`: the sender lacked data to fill the window.
    pub fn on_ack(&mut self, now: Duration, sent_at: Duration, bytes: Bytes, app_limited: bool) {
        self.delivered += bytes.0;
        self.round.acked_bytes += bytes.0;
        self.round.app_limited |= app_limited;
        let rtt = now.saturating_sub(sent_at);
        self.round.min_rtt = Some(self.round.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
        if self.min_rtt.is_none_or(|(min_rtt, _)| rtt <= min_rtt) {
            self.min_rtt = Some((rtt, now));
        }
        let min_rtt = self.min_rtt.map_or(rtt, |(min_rtt, _)| min_rtt);
        if let Some((bw, was_app_limited)) =
            self.sampler.sample(now, sent_at, self.delivered, min_rtt)
        {
            self.round.app_limited |= was_app_limited;
            self.round.max_bw = self.round.max_bw.max(bw);
            self.max_bw.update(self.round.index, bw, app_limited || was_app_limited);
        }
        if let Some(bw) = self.bw() {
            let (round, cwnd) = (self.round.index, self.window());
            self.extra_acked.on_ack(now, round, bytes.0, bw, cwnd.0);
        }
        if self.state == State::Startup && !app_limited {
            let rtt = self.startup.rtt.unwrap_or(min_rtt).max(min_rtt).as_secs_f64();
            let max = self.bw().map_or(u64::MAX, |bw| (bw * rtt * CWND_GAIN) as u64);
            let max = max.max(self.datagram_size * INITIAL_CWND_DATAGRAMS);
            self.startup.cwnd = (self.startup.cwnd + bytes.0).min(max.max(self.startup.cwnd));
        }
        if sent_at >= self.round.started {
            self.on_round_end(now);
        }
    }

    /// Records the end of a batch of acknowledgements, with the bytes still in flight.
    pub fn on_end_acks(&mut self, in_flight: Bytes, app_limited: bool) {
        self.sampler.on_end_acks(self.delivered, in_flight.0, app_limited);
        if self.bdp().is_some_and(|bdp| in_flight.0 <= self.host_held_bytes().max(bdp as u64)) {
            // Beside other flows, or after an outage, more bandwidth may soon be available.
            let is_limited = self.bw_shortterm.is_finite() || self.has_queue(&self.round);
            self.state = match self.state {
                State::Drain if is_limited => State::Cruise(0),
                State::Drain => State::Cruise(self.probe.cruise_rounds),
                State::Down { .. } => State::Down { is_drained: true },
                state => state,
            };
        }
    }

    /// Records lost bytes. Persistent congestion (RFC 9002 §7.6) resets the model.
    pub fn on_lost(&mut self, bytes: Bytes, is_persistent_congestion: bool) {
        self.round.lost_bytes += bytes.0;
        if is_persistent_congestion {
            self.restart(self.min_cwnd());
        }
    }

    /// Records that datagrams arrived with a congestion mark (ECN-CE, RFC 9002 §7.1).
    pub fn on_marked(&mut self) {
        self.round.is_marked = true;
    }

    /// Returns the bytes that the hosts may hold back.
    fn host_held_bytes(&self) -> u64 {
        HOST_BURSTS * self.send_quantum().0
    }

    fn min_cwnd(&self) -> u64 {
        self.datagram_size * FAST_RETRANSMIT_SEGMENTS
    }

    /// Returns the estimated bandwidth, in bytes per second.
    fn bw(&self) -> Option<f64> {
        self.max_bw.get().map(|bw| bw.min(self.bw_shortterm))
    }

    /// Returns the bandwidth-delay product in bytes.
    fn bdp(&self) -> Option<f64> {
        Some(self.bw()? * self.min_rtt?.0.as_secs_f64())
    }

    fn on_round_end(&mut self, now: Duration) {
        let next = Round { index: self.round.index + 1, started: now, ..Round::default() };
        let round = std::mem::replace(&mut self.round, next);
        let oldest = round.index.saturating_sub(FILTER_ROUNDS);
        self.max_bw.expire_before(oldest);
        self.extra_acked.expire_before(oldest);
        // The windows of the first two rounds are too small for a queue.
        if self.state == State::Startup && round.index < FIRST_ROUND + 2 {
            self.startup.rtt = self.startup.rtt.max(round.min_rtt);
        }
        let queue_stands = self.has_queue(&round);
        let loss = round.loss();
        let prior_bw = self.overflows.excessive_bw.take();
        // An app-limited round of `Startup` has few datagrams, whose losses may be random.
        let is_sample = !round.app_limited || self.state != State::Startup;
        if loss > MAX_RANDOM_LOSS && is_sample {
            let bw = self.delivered_bw(&round);
            self.on_excessive_loss(round.index, bw, prior_bw);
            self.overflows.excessive_bw = queue_stands.then_some(bw);
        } else if queue_stands && (round.is_marked || round.lost_bytes > 0) {
            self.on_overflow(&round);
        }
        if !matches!(self.state, State::Down { .. }) {
            self.probe.prior_losses.0 += round.lost_bytes;
            self.probe.prior_losses.1 += round.lost_bytes + round.acked_bytes;
        }
        match self.state {
            State::Startup => self.check_full_bw(&round, queue_stands),
            State::Drain => {}
            State::Cruise(_) if self.is_min_rtt_expired(now) => self.state = State::ProbeRtt,
            State::Cruise(0) => self.begin_probe(),
            // A queue that marks packets does not drop any because of a probe.
            State::Cruise(rounds) if round.is_marked => {
                self.state = State::Cruise((rounds - 1).min(CYCLE_ROUNDS - 2));
            }
            State::Cruise(rounds) => self.state = State::Cruise(rounds - 1),
            State::Up => self.state = State::Down { is_drained: false },
            State::Down { is_drained } => {
                self.end_probe(loss);
                let is_undrained = !is_drained && queue_stands;
                let was_undrained = std::mem::replace(&mut self.probe.was_undrained, is_undrained);
                if is_undrained && was_undrained && now >= self.probe.next_trial {
                    self.state = State::ProbeRtt;
                }
            }
            State::ProbeRtt => self.end_probe_rtt(&round, queue_stands, now),
        }
    }

    /// Ends `ProbeRtt`. A queue that stands in spite of it is one of other flows.
    fn end_probe_rtt(&mut self, round: &Round, queue_stands: bool, now: Duration) {
        self.state = State::Cruise(0);
        self.probe.cross_traffic_delay = Duration::ZERO;
        self.probe.next_trial = now + MIN_RTT_FILTER_LEN;
        if self.is_min_rtt_expired(now) {
            self.min_rtt = round.min_rtt.map(|rtt| (rtt, now)).or(self.min_rtt);
        } else if queue_stands
            && let (Some(rtt), Some((min_rtt, _))) = (round.min_rtt, self.min_rtt)
        {
            self.probe.cross_traffic_delay = rtt.saturating_sub(min_rtt);
        }
    }

    fn begin_probe(&mut self) {
        self.probe.prior_bw = self.bw().unwrap_or_default();
        self.bw_shortterm = f64::INFINITY;
        self.state = State::Up;
    }

    /// Ends the round after a probe, which shows its loss and its effect.
    fn end_probe(&mut self, loss: f64) {
        let (lost, total) = std::mem::take(&mut self.probe.prior_losses);
        // Random loss occurs in all rounds.
        let is_lossy = loss > 2.0 * fraction(lost, total) + LOSS_THRESH;
        let tried = self.probe.growth;
        let rounds = if is_lossy { self.probe.cruise_rounds * 2 } else { CYCLE_ROUNDS - 2 };
        self.probe.cruise_rounds = rounds.min(MAX_CRUISE_ROUNDS);
        // Half of what the probe has tried.
        let has_grown = self.bw().is_some_and(|bw| bw > self.probe.prior_bw * (1.0 + tried) / 2.0);
        // After a reduction, other flows grow as well, but by less per cycle than a probe does.
        let was_reduced = self.round.index <= self.overflows.last_reduction + REGROWTH_ROUNDS
            && self.overflows.later <= MAX_LATER_OVERFLOWS;
        let has_grown = has_grown && !was_reduced;
        self.probe.growth = match (is_lossy, has_grown) {
            (true, _) => (1.0 + (tried - 1.0) / 2.0).max(MIN_BW_GROWTH),
            (false, true) => (1.0 + (tried - 1.0) * 2.0).min(2.0),
            (false, false) => tried.min(BW_GROWTH),
        };
        if has_grown {
            self.begin_probe();
        } else {
            self.state = State::Cruise(self.probe.cruise_rounds);
        }
    }

    fn is_min_rtt_expired(&self, now: Duration) -> bool {
        self.min_rtt
            .is_some_and(|(_, measured_at)| now.saturating_sub(measured_at) > MIN_RTT_FILTER_LEN)
    }

    /// True if a queue stood, by the minimum RTT of a round.
    fn has_queue(&self, round: &Round) -> bool {
        let (Some(rtt), Some((min_rtt, _))) = (round.min_rtt, self.min_rtt) else { return false };
        has_standing_queue(rtt, min_rtt)
    }

    /// Leaves `Startup` when the path is full. (BBRCheckFullBWReached)
    fn check_full_bw(&mut self, round: &Round, queue_stands: bool) {
        let prior_rtt = std::mem::replace(&mut self.startup.prior_rtt, round.min_rtt);
        if round.is_marked {
            self.state = State::Drain;
            return;
        }
        if round.app_limited {
            // The rate and RTT of such a round do not show the share of the path.
            return;
        }
        // Beside other flows, the RTT also rises without this sender, and the window allows less
        // growth.
        let growth = if queue_stands { MIN_BW_GROWTH } else { BW_GROWTH };
        let had_raised_rtt = std::mem::take(&mut self.startup.has_raised_rtt);
        if round.max_bw >= self.full_bw.0 * growth {
            // After a restart the first round has grown from nothing.
            let other_rtt = prior_rtt.filter(|_| self.full_bw.0 > 0.0);
            self.full_bw = (round.max_bw, 0);
            self.startup.has_raised_rtt = other_rtt > self.startup.rtt;
            self.startup.rtt = self.startup.rtt.max(other_rtt);
        } else if !had_raised_rtt {
            self.full_bw.1 += 1;
        }
        if (queue_stands && self.full_bw.1 > 0) || self.full_bw.1 >= MAX_FULL_BW_COUNT {
            self.state = State::Drain;
        }
    }

    /// Returns the bandwidth of the path, as shown by a round with losses.
    ///
    /// An app-limited round delivers less than the path can carry. The estimate, scaled by the
    /// delivered fraction, is then the lower bound.
    fn delivered_bw(&self, round: &Round) -> f64 {
        let bw = self.bw().filter(|_| round.app_limited).unwrap_or_default();
        round.max_bw.max(bw * (1.0 - round.loss()))
    }

    /// Limits the bandwidth to that of a round with excessive loss.
    ///
    /// `prior_bw` is the bandwidth of the previous round if its loss was excessive as well while a
    /// queue stood. Another flow's overflow lasts for one round; two such rounds show that the line
    /// has become slower.
    fn on_excessive_loss(&mut self, index: u64, bw: f64, prior_bw: Option<f64>) {
        let is_outage = self.bw().is_some_and(|before| bw < before / 2.0);
        if is_outage || self.state == State::Startup {
            self.state = State::Drain;
        }
        // The round after `Drain` was entered has few acknowledgements and understates the
        // bandwidth.
        self.bw_shortterm = bw.max(prior_bw.unwrap_or_default());
        if prior_bw.is_some() {
            self.max_bw = MaxFilter::default();
            self.max_bw.update(index, self.bw_shortterm, false);
        }
    }

    /// Reduces the bandwidth after an overflow or marks: the path is shared or has become slower.
    ///
    /// Marks and the first overflow of a cycle reduce by CUBIC's factor, later overflows to the
    /// delivered rate. Persistent overflows are due to flows that do not reduce.
    fn on_overflow(&mut self, round: &Round) {
        let is_later = round.index < self.overflows.last_reduction + CYCLE_ROUNDS;
        // Losses of the next round are of earlier data.
        if matches!(self.state, State::Startup | State::Drain)
            || is_later && round.index <= self.overflows.last_reduction + 1
        {
            return;
        }
        let bw = self.bw().unwrap_or(f64::INFINITY);
        // Flows that respond to marks reduce at each of them (RFC 3168 §6.1.2).
        if !is_later || round.is_marked {
            (self.overflows.last_reduction, self.overflows.later) = (round.index, 0);
            self.bw_shortterm = round.max_bw.min(bw * CUBIC_BETA);
            return;
        }
        self.overflows.later += 1;
        if self.overflows.later <= MAX_LATER_OVERFLOWS {
            self.bw_shortterm = round.max_bw.min(bw);
        } else {
            // Nothing is reduced until a cycle passes without overflows.
            self.overflows.last_reduction = round.index;
        }
    }
}
