//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation) and their windowed maximum.

use std::collections::VecDeque;
use std::time::Duration;

/// Delivery state at each send time that still has data in flight.
#[derive(Debug, Clone)]
pub(crate) struct RateSampler {
    sends: VecDeque<SendState>,
    /// Time of the last delivery. (C.delivered_time)
    delivered_at: Duration,
    /// Send time of the data delivered last. (C.first_send_time)
    first_sent_at: Duration,
    /// Sends are app-limited until more than this is delivered. (C.app_limited)
    app_limited_until: Option<u64>,
}

/// Delivery state when data was sent.
#[derive(Debug, Clone, Copy)]
struct SendState {
    sent_at: Duration,
    /// Bytes delivered by then, and the time of the last delivery.
    delivered: u64,
    delivered_at: Duration,
    /// Send time of the data delivered last by then.
    first_sent_at: Duration,
    app_limited: bool,
}

impl RateSampler {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            sends: VecDeque::new(),
            delivered_at: now,
            first_sent_at: now,
            app_limited_until: None,
        }
    }

    /// Records the state of a send; several sends at one time share it.
    pub(crate) fn on_sent(&mut self, now: Duration, delivered: u64) {
        if self.sends.is_empty() {
            // The interval of a sample excludes the pause before it.
            (self.delivered_at, self.first_sent_at) = (now, now);
        }
        if self.sends.back().is_none_or(|send| send.sent_at < now) {
            let app_limited = self.app_limited_until.is_some_and(|until| delivered <= until);
            let delivered_at = self.delivered_at;
            let first_sent_at = self.first_sent_at;
            let send =
                SendState { sent_at: now, delivered, delivered_at, first_sent_at, app_limited };
            self.sends.push_back(send);
        }
    }

    /// Records the end of a batch of acknowledgements, with the bytes delivered and in flight.
    pub(crate) fn on_end_acks(&mut self, delivered: u64, in_flight: u64, app_limited: bool) {
        if app_limited {
            self.app_limited_until = Some(delivered + in_flight);
        }
        if in_flight == 0 {
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
        self.first_sent_at = sent_at;
        // Aggregated ACKs would make the interval too short.
        let interval = now.saturating_sub(send.delivered_at);
        let sending = sent_at.saturating_sub(send.first_sent_at);
        let interval = interval.max(sending).max(min_rtt).as_secs_f64();
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

    /// Returns the maximum.
    pub(crate) fn get(&self) -> Option<f64> {
        self.samples.front().map(|&(_, rate)| rate)
    }
}
