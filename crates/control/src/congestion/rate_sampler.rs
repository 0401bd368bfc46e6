//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation) and their windowed maximum.

use std::collections::VecDeque;
use std::time::Duration;

/// Delivery state at each time of sending whose data is in flight.
#[derive(Debug, Clone)]
pub(crate) struct RateSampler {
    sends: VecDeque<SendState>,
    /// Time of the last delivery. (C.delivered_time)
    delivered_at: Duration,
    /// The sender lacked data at the end of the last batch of acknowledgements.
    app_limited: bool,
}

/// Delivery state when data was sent.
#[derive(Debug, Clone, Copy)]
struct SendState {
    sent_at: Duration,
    /// Bytes delivered by then, and the time of the last delivery.
    delivered: u64,
    delivered_at: Duration,
    app_limited: bool,
}

impl RateSampler {
    pub(crate) fn new(now: Duration) -> Self {
        Self { sends: VecDeque::new(), delivered_at: now, app_limited: false }
    }

    /// Records the state of a send; several sends at one time share it.
    pub(crate) fn on_sent(&mut self, now: Duration, delivered: u64) {
        if self.sends.is_empty() {
            // The interval of a sample excludes the pause before it.
            self.delivered_at = now;
        }
        if self.sends.back().is_none_or(|send| send.sent_at < now) {
            let (delivered_at, app_limited) = (self.delivered_at, self.app_limited);
            self.sends.push_back(SendState { sent_at: now, delivered, delivered_at, app_limited });
        }
    }

    /// Records the end of a batch of acknowledgements.
    pub(crate) fn on_end_acks(&mut self, is_pipe_empty: bool, app_limited: bool) {
        self.app_limited = app_limited;
        if is_pipe_empty {
            self.sends.clear();
        }
    }

    /// Returns the delivery rate between sending and delivery, in bytes per second. Also returns
    /// whether the sender was app-limited when it sent. `None` if the send was not recorded.
    pub(crate) fn sample(
        &mut self,
        now: Duration,
        sent_at: Duration,
        delivered: u64,
        min_rtt: Duration,
    ) -> Option<(f64, bool)> {
        while self.sends.front().is_some_and(|send| send.sent_at < sent_at) {
            self.sends.pop_front();
        }
        self.delivered_at = now;
        let send = self.sends.front().filter(|send| send.sent_at == sent_at)?;
        // Aggregated ACKs would make the interval too short.
        let interval = now.saturating_sub(send.delivered_at).max(min_rtt).as_secs_f64();
        let bytes = (delivered - send.delivered) as f64;
        (interval > 0.0).then_some((bytes / interval, send.app_limited))
    }
}

/// Windowed maximum of delivery rates, in bytes per second.
#[derive(Debug, Clone, Default)]
pub(crate) struct MaxFilter {
    /// Round and rate, each rate lower than the one before.
    samples: VecDeque<(u64, f64)>,
}

impl MaxFilter {
    /// Adds a sample. An app-limited one counts only if it is at least the maximum.
    pub(crate) fn update(&mut self, round: u64, rate: f64, app_limited: bool) {
        if app_limited && self.get().is_some_and(|max| rate < max) {
            return;
        }
        while self.samples.back().is_some_and(|&(_, last)| last <= rate) {
            self.samples.pop_back();
        }
        self.samples.push_back((round, rate));
    }

    /// Drops samples of rounds before `round`, except for the last one.
    pub(crate) fn expire_before(&mut self, round: u64) {
        while self.samples.len() > 1 && self.samples.front().is_some_and(|&(at, _)| at < round) {
            self.samples.pop_front();
        }
    }

    /// Multiplies all samples by a factor.
    pub(crate) fn scale(&mut self, factor: f64) {
        for (_, rate) in &mut self.samples {
            *rate *= factor;
        }
    }

    /// Returns the maximum.
    pub(crate) fn get(&self) -> Option<f64> {
        self.samples.front().map(|&(_, rate)| rate)
    }
}
