//! Model-based congestion control for a sender that sees each acknowledgement, as QUIC does.
//!
//! The window is the bandwidth-delay product: maximum delivery rate × minimum RTT, in the terms of
//! BBR (draft-ietf-ccwg-bbr). Loss counts only while a queue stands, so random loss does not shrink
//! the window. Beside loss-based cross traffic CUBIC's window is a lower bound (`cubic_floor`).
//!
//! Out of scope: packets, timers and pacing. The caller reports what was sent, acknowledged and
//! lost, and paces at about 1.25 windows per RTT. The document is
//! [quic.md](../../../../docs/algorithms/quic.md).

pub mod cubic;
mod cubic_floor;
mod extra_acked;
mod rate_sampler;
#[cfg(test)]
mod tests;

use crate::units::{Bytes, Rate};
use cubic_floor::CubicFloor;
use extra_acked::ExtraAcked;
use rate_sampler::{MaxFilter, RateSampler};
use std::time::Duration;

/// Minimum window, in datagrams. (BBR's MinPipeCwnd: 4; RFC 9002 §7.2: 2. Chosen: other datagrams
/// reveal the loss of one)
const MIN_PIPE_CWND_DATAGRAMS: u64 = 4;

/// Initial window, in datagrams. (RFC 9002 §7.2: 10. Chosen: as much as three TCP connections,
/// paced)
const INITIAL_CWND_DATAGRAMS: u64 = 32;

/// Growth of the delivery rate per round below which the path may be full. (BBR: 1.25,
/// draft-ietf-ccwg-bbr §5.3.1.2)
const FULL_BW_GROWTH: f64 = 1.25;

/// Rounds in a row without that growth after which the path is full. (BBR: 3)
const MAX_FULL_BW_COUNT: u32 = 3;

/// Maximum window in `Startup`, in bandwidth-delay products. (BBR's StartupCwndGain: 2, enough to
/// double the rate in each round; the excess is a queue of one RTT)
const STARTUP_CWND_GAIN: f64 = 2.0;

/// RTT increase that indicates a standing queue, as a fraction of the minimum RTT. (HyStart++, RFC
/// 9406: 1/8. Chosen: 1/4, as probing grows the window by a quarter)
const STANDING_QUEUE_RTT_FRACTION: f64 = 0.25;

/// Smallest RTT increase that indicates a standing queue. (HyStart++, RFC 9406: 4 ms)
const MIN_STANDING_QUEUE_DELAY: Duration = Duration::from_millis(4);

/// Length of the maximum-bandwidth filter, in rounds. (BBR version 1: 10; later: two cycles)
const MAX_BW_FILTER_LEN: u64 = 10;

/// Lifetime of the minimum RTT; then `ProbeRtt` measures it again. (BBR's MinRTTFilterLen: 10 s)
const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);

/// Window in `ProbeRtt`, in bandwidth-delay products, for one round. (BBR's ProbeRTTCwndGain: 0.5)
const PROBE_RTT_CWND_GAIN: f64 = 0.5;

/// Window while probing for bandwidth, in bandwidth-delay products. (BBR: 1.25)
const PROBE_BW_UP_GAIN: f64 = 1.25;

/// Window in each phase of the `ProbeBw` cycle: up, down, six times cruise. (BBR's pacing gains:
/// 1.25, 0.75, 1. Chosen: 0.05 more when cruising, as data in flight waits for aggregated ACKs)
const PROBE_BW_CWND_GAINS: [f64; 8] = [PROBE_BW_UP_GAIN, 0.9, 1.05, 1.05, 1.05, 1.05, 1.05, 1.05];

/// Loss beyond twice the baseline after which the next probe is half as large. (chosen)
const PROBE_UP_LOSS_MARGIN: f64 = 0.01;

/// Smallest gain above 1 of a probe for bandwidth. (chosen: a quarter of the first, and still more
/// than the 1.05 of cruising)
const MIN_PROBE_UP_EXCESS: f64 = 0.06;

/// Growth of the next probe after one without excessive loss. (chosen: two good probes undo a bad
/// one)
const PROBE_UP_EXCESS_GROWTH: f64 = 1.5;

/// Weight of a round in the smoothed baseline loss. (chosen: about a cycle and a half of memory)
const BASELINE_LOSS_WEIGHT: f64 = 0.1;

/// Loss per round that reduces the bandwidth while a queue stands. (BBR's LossThresh: 2 %)
const LOSS_THRESH: f64 = 0.02;

/// Loss per round that reduces the bandwidth even without a queue. (chosen: no path loses a fifth
/// at random)
const MAX_UNQUEUED_LOSS: f64 = 0.2;

/// Factor of a bandwidth reduction. (CUBIC, RFC 9438 §4.6; BBR's Beta: 0.7)
const BETA: f64 = 0.7;

/// Rounds with a standing queue, of the last eight, that suggest cross traffic. (chosen: without
/// cross traffic only probing rounds have a queue)
const CROSS_TRAFFIC_QUEUE_ROUNDS: u32 = 4;

/// Rounds between two checks for cross traffic. (chosen: a check costs half a round)
const CROSS_TRAFFIC_CHECK_ROUNDS: u64 = 32;

/// RTT above the minimum that still means an empty queue in a check. In fractions of the minimum
/// RTT. (chosen: halving the window drains a queue without cross traffic)
const EMPTY_QUEUE_RTT_FRACTION: f64 = 0.05;

/// Smallest such tolerance. (chosen)
const MIN_EMPTY_QUEUE_MARGIN: Duration = Duration::from_millis(1);

/// State of the controller, as in BBR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The window doubles in each round until the path is full.
    Startup,
    /// Cycles through [`PROBE_BW_CWND_GAINS`]; the value is the phase.
    ProbeBw(usize),
    /// A smaller window for one round, to measure the minimum RTT.
    ProbeRtt,
}

/// Congestion controller of one path.
#[derive(Debug, Clone)]
pub struct ModelBased {
    datagram_size: u64,
    state: State,
    cwnd: u64,
    /// Bytes acknowledged so far.
    delivered: u64,
    sampler: RateSampler,
    max_bw: MaxFilter,
    extra_acked: ExtraAcked,
    /// Minimum RTT and the time of its measurement.
    min_rtt: Option<(Duration, Duration)>,
    round: Round,
    /// Bit per round, the last one lowest: whether a queue stood.
    queue_history: u8,
    /// CUBIC window while cross traffic is present.
    cubic_floor: Option<CubicFloor>,
    /// CUBIC window to use if the next check confirms cross traffic.
    pending_floor: Option<CubicFloor>,
    /// Round of the last check for cross traffic.
    last_check: Option<u64>,
    /// Round of the last reduction. Losses of the next round are of earlier data.
    last_reduction: u64,
    /// Gain above 1 of the next probe for bandwidth.
    probe_up_excess: f64,
    /// Bytes lost of that probe, and bytes lost or acknowledged.
    probe_up_losses: (u64, u64),
    /// Smoothed loss outside of probes, as a fraction.
    baseline_loss: f64,
    /// Highest bandwidth before the path may be full, and rounds without growth since.
    /// (BBR.full_bw, BBR.full_bw_count)
    full_bw: (f64, u32),
}

/// Round trip: from the sending of a datagram to its acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    index: u64,
    started: Duration,
    min_rtt: Option<Duration>,
    acked_bytes: u64,
    lost_bytes: u64,
    /// The sender lacked data at some moment.
    app_limited: bool,
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
            cwnd: datagram_size.0 * INITIAL_CWND_DATAGRAMS,
            delivered: 0,
            sampler: RateSampler::new(now),
            max_bw: MaxFilter::default(),
            extra_acked: ExtraAcked::new(now),
            min_rtt: None,
            // The first index is more than one above the initial `last_reduction`.
            round: Round { index: 2, started: now, ..Round::default() },
            queue_history: 0,
            cubic_floor: None,
            pending_floor: None,
            last_check: None,
            last_reduction: 0,
            probe_up_excess: PROBE_BW_UP_GAIN - 1.0,
            probe_up_losses: (0, 0),
            baseline_loss: 0.0,
            full_bw: (0.0, 0),
        }
    }

    /// Returns the congestion window.
    #[must_use]
    pub fn window(&self) -> Bytes {
        let cwnd = self.target_cwnd();
        // In `ProbeRtt` the allowance for aggregated ACKs would keep the queue standing.
        Bytes(if self.state == State::ProbeRtt { cwnd } else { self.extra_acked.extend(cwnd) })
    }

    /// Returns the window without the allowance for aggregated ACKs.
    fn target_cwnd(&self) -> u64 {
        match (&self.cubic_floor, self.state) {
            (Some(floor), State::ProbeBw(_)) => floor.bytes(self.datagram_size).max(self.cwnd),
            _ => self.cwnd,
        }
    }

    /// Returns the estimated bandwidth of the path; `None` before the first sample.
    #[must_use]
    pub fn max_bw(&self) -> Option<Rate> {
        self.max_bw.get().map(|bw| Rate::from_bits_per_sec(bw * 8.0))
    }

    /// Sets the size of a datagram after a change of the path MTU.
    pub fn on_mtu_update(&mut self, datagram_size: Bytes) {
        self.datagram_size = datagram_size.0;
        self.cwnd = self.cwnd.max(self.min_cwnd());
    }

    /// Records that data is sent now; call before any of it is acknowledged.
    pub fn on_sent(&mut self, now: Duration) {
        self.sampler.on_sent(now, self.delivered);
    }

    /// Records an acknowledgement of `bytes` that were sent at `sent_at`. Data sent at a time that
    /// [`on_sent`](Self::on_sent) did not record counts as delivered but gives no rate sample.
    /// `app_limited`: the sender lacked data to fill the window.
    pub fn on_ack(&mut self, now: Duration, sent_at: Duration, bytes: Bytes, app_limited: bool) {
        self.delivered += bytes.0;
        self.round.acked_bytes += bytes.0;
        self.extra_acked.on_ack(now, bytes.0, self.target_cwnd(), app_limited);
        self.round.app_limited |= app_limited;
        let rtt = now.saturating_sub(sent_at);
        self.round.min_rtt = Some(self.round.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
        let is_new = self.min_rtt.is_none_or(|(min_rtt, _)| rtt <= min_rtt);
        if is_new {
            self.min_rtt = Some((rtt, now));
        }
        let min_rtt = self.min_rtt.map_or(rtt, |(min_rtt, _)| min_rtt);
        if let Some((bw, was_app_limited)) =
            self.sampler.sample(now, sent_at, self.delivered, min_rtt)
        {
            self.round.app_limited |= was_app_limited;
            self.max_bw.update(self.round.index, bw, app_limited || was_app_limited);
        }
        if let Some(floor) = self.cubic_floor.as_mut().filter(|_| !app_limited) {
            floor.on_ack(bytes.0 as f64 / self.datagram_size as f64, now, min_rtt);
        }
        if self.state == State::Startup && !app_limited {
            let max = self
                .max_bw
                .get()
                .map_or(f64::MAX, |bw| bw * min_rtt.as_secs_f64() * STARTUP_CWND_GAIN);
            let max = (max as u64).max(self.datagram_size * INITIAL_CWND_DATAGRAMS);
            self.cwnd = (self.cwnd + bytes.0).min(max.max(self.cwnd));
        }
        if sent_at >= self.round.started {
            self.on_round_end(now);
        }
    }

    /// Records the end of a batch of acknowledgements, with the bytes still in flight.
    pub fn on_end_acks(&mut self, in_flight: Bytes, app_limited: bool) {
        self.sampler.on_end_acks(in_flight.0 == 0, app_limited);
    }

    /// Records lost bytes. Persistent congestion (RFC 9002 §7.6) resets the model.
    pub fn on_lost(&mut self, bytes: Bytes, is_persistent_congestion: bool) {
        self.round.lost_bytes += bytes.0;
        self.extra_acked.on_lost(bytes.0.div_ceil(self.datagram_size), self.target_cwnd());
        if is_persistent_congestion {
            self.cwnd = self.min_cwnd();
            self.state = State::Startup;
            self.full_bw = (0.0, 0);
            self.max_bw = MaxFilter::default();
            (self.cubic_floor, self.pending_floor, self.queue_history) = (None, None, 0);
            self.extra_acked.reset();
        }
    }

    fn min_cwnd(&self) -> u64 {
        self.datagram_size * MIN_PIPE_CWND_DATAGRAMS
    }

    fn on_round_end(&mut self, now: Duration) {
        let next = Round { index: self.round.index + 1, started: now, ..Round::default() };
        let round = std::mem::replace(&mut self.round, next);
        self.max_bw.expire_before(round.index.saturating_sub(MAX_BW_FILTER_LEN));
        let loss = round.lost_bytes as f64 / (round.lost_bytes + round.acked_bytes).max(1) as f64;
        let queue_stands = self.has_queue(&round);
        self.detect_cross_traffic(&round, queue_stands, loss);
        if self.cubic_floor.is_none()
            && (loss > MAX_UNQUEUED_LOSS || (queue_stands && loss > LOSS_THRESH))
        {
            self.reduce_bw(round.index);
            return;
        }
        match self.state {
            State::Startup => self.check_full_bw(&round, queue_stands),
            State::ProbeBw(phase) => {
                self.record_losses(phase, &round);
                let is_recheck = self.cubic_floor.is_some() && self.is_check_due(round.index);
                let must_probe_rtt =
                    self.pending_floor.is_some() || is_recheck || self.is_min_rtt_expired(now);
                self.state = if must_probe_rtt {
                    State::ProbeRtt
                } else {
                    State::ProbeBw((phase + 1) % PROBE_BW_CWND_GAINS.len())
                };
            }
            State::ProbeRtt => {
                self.check_cross_traffic(&round);
                if self.is_min_rtt_expired(now) {
                    self.min_rtt = round.min_rtt.map(|rtt| (rtt, now)).or(self.min_rtt);
                }
                self.state = State::ProbeBw(0);
            }
        }
        self.set_cwnd();
    }

    /// Applies loss to the CUBIC window. Prepares a check when cross traffic may keep a queue full.
    fn detect_cross_traffic(&mut self, round: &Round, queue_stands: bool, loss: f64) {
        self.queue_history = self.queue_history << 1 | u8::from(queue_stands);
        let is_cruising = matches!(self.state, State::ProbeBw(_));
        let is_suspected = self.queue_history.count_ones() >= CROSS_TRAFFIC_QUEUE_ROUNDS
            && is_cruising
            && !round.app_limited;
        let is_due = self.is_check_due(round.index);
        match &mut self.cubic_floor {
            None if queue_stands && is_suspected && is_due => {
                // The amount in flight when the queue began to stand.
                let (Some(bw), Some(rtt)) = (self.max_bw.get(), round.min_rtt) else { return };
                let cwnd = bw * rtt.as_secs_f64() / self.datagram_size as f64;
                self.pending_floor = Some(CubicFloor::new(cwnd));
            }
            None => {}
            Some(floor)
                if loss > self.baseline_loss * 2.0 && round.index > self.last_reduction + 1 =>
            {
                floor.on_lost();
                self.last_reduction = round.index;
            }
            Some(_) => {}
        }
    }

    /// Decides whether cross traffic is present: its queue outlasts a smaller window.
    fn check_cross_traffic(&mut self, round: &Round) {
        let (Some(rtt), Some((min_rtt, _))) = (round.min_rtt, self.min_rtt) else { return };
        self.last_check = Some(round.index);
        let pending_floor = self.pending_floor.take();
        if rtt <= min_rtt + MIN_EMPTY_QUEUE_MARGIN.max(min_rtt.mul_f64(EMPTY_QUEUE_RTT_FRACTION)) {
            (self.cubic_floor, self.queue_history) = (None, 0);
        } else if self.cubic_floor.is_none() {
            self.cubic_floor = pending_floor;
        }
    }

    /// True if another check for cross traffic is due.
    fn is_check_due(&self, round: u64) -> bool {
        self.last_check.is_none_or(|checked| round >= checked + CROSS_TRAFFIC_CHECK_ROUNDS)
    }

    fn is_min_rtt_expired(&self, now: Duration) -> bool {
        self.min_rtt
            .is_some_and(|(_, measured_at)| now.saturating_sub(measured_at) > MIN_RTT_FILTER_LEN)
    }

    /// Records the loss of a round as baseline or probe loss. Sizes the next probe. Losses of a
    /// probe show in its own round or in the next.
    fn record_losses(&mut self, phase: usize, round: &Round) {
        let total = round.lost_bytes + round.acked_bytes;
        if phase > 1 {
            self.baseline_loss += BASELINE_LOSS_WEIGHT
                * (round.lost_bytes as f64 / total.max(1) as f64 - self.baseline_loss);
            return;
        }
        self.probe_up_losses =
            (self.probe_up_losses.0 + round.lost_bytes, self.probe_up_losses.1 + total);
        if phase == 1 {
            let (lost, total) = std::mem::take(&mut self.probe_up_losses);
            let is_excessive =
                lost as f64 > (self.baseline_loss * 2.0 + PROBE_UP_LOSS_MARGIN) * total as f64;
            let factor = if is_excessive { 0.5 } else { PROBE_UP_EXCESS_GROWTH };
            self.probe_up_excess =
                (self.probe_up_excess * factor).clamp(MIN_PROBE_UP_EXCESS, PROBE_BW_UP_GAIN - 1.0);
        }
    }

    /// True if a queue stood, by the minimum RTT of a round.
    fn has_queue(&self, round: &Round) -> bool {
        let (Some(rtt), Some((min_rtt, _))) = (round.min_rtt, self.min_rtt) else { return false };
        has_standing_queue(rtt, min_rtt)
    }

    /// Leaves `Startup` when the path is full. (BBRCheckFullBWReached)
    fn check_full_bw(&mut self, round: &Round, queue_stands: bool) {
        let bw = self.max_bw.get().unwrap_or_default();
        if bw >= self.full_bw.0 * FULL_BW_GROWTH {
            self.full_bw = (bw, 0);
        } else if !round.app_limited {
            self.full_bw.1 += 1;
        }
        if queue_stands || self.full_bw.1 >= MAX_FULL_BW_COUNT {
            // The down phase drains the queue of `Startup`.
            self.state = State::ProbeBw(1);
        }
    }

    /// Reduces the bandwidth estimate: the path is shared or has become slower.
    fn reduce_bw(&mut self, round: u64) {
        if round > self.last_reduction + 1 {
            self.max_bw.scale(BETA);
            self.last_reduction = round;
        }
        if self.state == State::Startup {
            self.state = State::ProbeBw(1);
        } else {
            // The start of cruising is farthest from the next probe.
            self.state = State::ProbeBw(2);
        }
        self.set_cwnd();
    }

    /// Sets the window to the bandwidth-delay product times the gain of the state.
    fn set_cwnd(&mut self) {
        let gain = match self.state {
            State::Startup => return,
            State::ProbeBw(0) => 1.0 + self.probe_up_excess,
            State::ProbeBw(phase) => PROBE_BW_CWND_GAINS[phase],
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
        };
        let (Some(bw), Some((min_rtt, _))) = (self.max_bw.get(), self.min_rtt) else { return };
        let cwnd = (bw * min_rtt.as_secs_f64() * gain) as u64;
        self.cwnd = (cwnd + 2 * self.datagram_size).max(self.min_cwnd());
    }
}
