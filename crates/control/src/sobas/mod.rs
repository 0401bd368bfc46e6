//! SOBAS: the receive window of a TCP transfer, sized while it runs (Prasad, Jain, Dovrolis 2003).
//!
//! The window becomes rate × RTT once the rate stops growing, and stays so. If probes were lost
//! before, the path is congested, and no window is set. The pacing rate is not in the paper: a
//! window alone does not keep slow start from sending bursts at twice the rate of the line.
//!
//! Contents: the controller ([`Sobas`]), and the time until a buffer overflows ([`overflow`]). No
//! sockets, no clock. `docs/algorithms/sobas.md` has the diagram and the constants.

mod interval;
pub mod overflow;
#[cfg(test)]
mod tests;

use crate::pacing;
use crate::path_control::{
    Config, Decision, Observation, PathState, Reason, SPARSE_SAMPLING_RTT, Start, State,
    is_short_path,
};
use crate::units::{Bytes, Rate};
use interval::{Interval, Intervals, RATE_SPREAD};
use std::time::Duration;

/// The controller of the window of a transfer.
#[derive(Debug, Clone)]
pub struct Sobas {
    config: Config,
    state: State,
    /// Reason of the last decision.
    reason: Option<Reason>,
    intervals: Intervals,
    /// Number of data streams.
    streams: u32,
    /// Payload of a full segment.
    mss: Bytes,
    /// True once data has arrived.
    has_data: bool,
    /// Capacity reported by packet trains.
    capacity: Option<Rate>,
    /// Rate for which the window is set, if any.
    rate: Option<Rate>,
}

impl Sobas {
    /// Returns a controller that limits nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Probing,
            reason: None,
            intervals: Intervals::default(),
            streams: 1,
            mss: pacing::DEFAULT_MSS,
            has_data: false,
            capacity: None,
            rate: None,
        }
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the min RTT; zero before the first sample.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        self.intervals.min_rtt()
    }

    /// Returns the findings about the path.
    #[must_use]
    pub fn path_state(&self) -> PathState {
        PathState {
            is_lossy: self.reason == Some(Reason::CongestedLoss),
            is_short: self.reason == Some(Reason::ShortPath),
            ..PathState::default()
        }
    }

    /// Returns true if every second tick suffices to sample the streams.
    #[must_use]
    pub fn allows_sparse_sampling(&self) -> bool {
        let is_start =
            matches!(self.state, State::Probing | State::StartBounded | State::StartOpen);
        !is_start && self.min_rtt() >= SPARSE_SAMPLING_RTT
    }

    /// Returns the capacity estimate: a payload rate.
    #[must_use]
    pub fn line_capacity(&self) -> Option<Rate> {
        self.capacity
    }

    /// Sets the capacity estimate: a payload rate.
    pub fn on_capacity(&mut self, now: Duration, rate: Rate) -> Option<Decision> {
        self.capacity = Some(rate);
        self.start_with_capacity(now)
    }

    /// Records the RTT of a probe at a tick without an observation.
    pub fn on_rtt_sample(&mut self, rtt: Duration) {
        self.intervals.on_rtt_sample(rtt);
    }

    /// Replaces the user's maximum rate and starts again, with what is known of the path.
    pub fn on_rate_max(&mut self, now: Duration, rate_max: Option<Rate>) -> Decision {
        (self.config.rate_max, self.config.capacity_timeout) = (rate_max, Duration::ZERO);
        self.state = State::Probing;
        let started = match self.start_with_capacity(now) {
            _ if is_short_path(self.min_rtt()) => self.disable(now, Reason::ShortPath),
            Some(started) => started,
            None => self.start_without_capacity(now),
        };
        Decision { reason: Reason::RateMaxChanged(rate_max), ..started }
    }

    /// Processes an observation; returns a decision if window or pacing rate change.
    pub fn observe(&mut self, latest: &Observation) -> Option<Decision> {
        let interval = self.intervals.observe(latest);
        self.streams = latest.streams.max(1);
        if latest.mss > Bytes(0) {
            self.mss = latest.mss;
        }
        self.has_data |= latest.received > Bytes(0);
        if is_short_path(self.min_rtt()) {
            let is_disabled = self.state == State::Disabled;
            return (!is_disabled).then(|| self.disable(latest.now, Reason::ShortPath));
        }
        // The capacity may arrive before the first stream has an RTT.
        if let Some(started) = self.start_with_capacity(latest.now) {
            return Some(started);
        }
        match self.state {
            State::Probing => {
                let is_early = !self.has_data && self.min_rtt().is_zero();
                let is_waiting = is_early || latest.now < self.config.capacity_timeout;
                (!is_waiting).then(|| self.start_without_capacity(latest.now))
            }
            State::StartBounded | State::StartOpen | State::Growing => self.size_window(interval?),
            State::Limited | State::Disabled => None,
        }
    }

    fn start_with_capacity(&mut self, now: Duration) -> Option<Decision> {
        let start = Start::with_capacity(self.state, self.capacity, self.min_rtt())?;
        Some(self.start(now, start))
    }

    fn start_without_capacity(&mut self, now: Duration) -> Decision {
        self.start(now, Start::without_capacity(&self.config, self.min_rtt()))
    }

    fn start(&mut self, now: Duration, start: Start) -> Decision {
        self.intervals.clear();
        self.enter(start.state, now, (start.rate, self.min_rtt()), start.reason)
    }

    /// Sets the window once the rate was constant; widens one that limits.
    fn size_window(&mut self, latest: Interval) -> Option<Decision> {
        let is_start = self.state != State::Growing;
        let share = |rate: Rate| latest.rate.bits_per_sec() as f64 / rate.bits_per_sec() as f64;
        if is_start && self.rate.is_some_and(|rate| share(rate) >= 1.0 - RATE_SPREAD) {
            self.intervals.clear();
            return Some(self.widen(latest));
        }
        let dropped = self.intervals.rate_before_drop();
        let Some(flat) = dropped.or_else(|| self.intervals.flat_rate(is_start)) else {
            return (!is_start).then(|| self.widen(latest));
        };
        let reason = match dropped {
            Some(flat) => Reason::Overflowed(flat.rate),
            None => Reason::FlatRate(flat.rate),
        };
        if flat.is_congested {
            return Some(self.disable(latest.at, Reason::CongestedLoss));
        }
        Some(self.enter(State::Limited, latest.at, (Some(flat.rate), latest.rtt), reason))
    }

    /// Widens the window by one segment per RTT and stream.
    fn widen(&mut self, latest: Interval) -> Decision {
        let rtt = self.min_rtt();
        let segments = f64::from(self.streams) * latest.time.div_duration_f64(rtt);
        let growth = Bytes((self.mss.0 as f64 * segments) as u64).per(rtt);
        let sum = |rate: Rate| rate.bits_per_sec().saturating_add(growth.bits_per_sec()) as f64;
        let rate = self.rate.map(|rate| Rate::from_bits_per_sec(sum(rate)));
        self.enter(State::Growing, latest.at, (rate, rtt), Reason::TargetReached(latest.rate))
    }

    /// Leaves the path to TCP.
    fn disable(&mut self, now: Duration, reason: Reason) -> Decision {
        self.enter(State::Disabled, now, (None, self.min_rtt()), reason)
    }

    /// Enters a state with the window for a rate and an RTT, or without one.
    fn enter(
        &mut self,
        state: State,
        now: Duration,
        (rate, rtt): (Option<Rate>, Duration),
        reason: Reason,
    ) -> Decision {
        (self.state, self.rate, self.reason) = (state, rate, Some(reason));
        let least = Bytes(pacing::MIN_WINDOW.0 * u64::from(self.streams));
        let window = rate.map_or(self.config.window_max, |rate| {
            let fills = rate.bytes_per_sec() as f64 * rtt.as_secs_f64();
            Bytes((fills * (1.0 + RATE_SPREAD)) as u64).max(least)
        });
        let rate_max = self.config.rate_max;
        let pacing = rate.map_or(rate_max, |rate| Some(rate_max.map_or(rate, |max| rate.min(max))));
        Decision { at: now, state, window: window.min(self.config.window_max), pacing, reason }
    }
}
