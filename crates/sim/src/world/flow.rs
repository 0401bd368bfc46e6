//! Flow: a sender, a receiver and their statistics.

use super::Route;
use crate::tcp::{Ack, Algorithm, MAX_WINDOW, Receiver, Segments, Sender, SenderCounts};
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// Default interval of goodput samples. (chosen: resolution of a plotted curve)
const DEFAULT_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Identifier of a flow in a [`super::World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId(pub(super) usize);

/// Parameters of a flow.
#[derive(Debug, Clone)]
pub struct FlowConfig {
    /// Route.
    pub route: Route,
    /// Start time.
    pub start: Duration,
    /// Bytes to send; `None`: unlimited. More can be written later.
    pub bytes: Option<Bytes>,
    /// Initial receive window.
    pub receive_window: Bytes,
    /// Initial maximum pacing rate of payload; `None`: not paced.
    pub pacing: Option<Rate>,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// The flow negotiates ECN: marks instead of losses report congestion (RFC 3168).
    pub ecn: bool,
    /// Interval of [`FlowReport::samples`]; zero for none.
    pub sample_interval: Duration,
}

impl FlowConfig {
    /// Returns an unlimited CUBIC flow that only congestion control limits.
    #[must_use]
    pub fn new(route: &Route) -> Self {
        Self {
            route: route.clone(),
            start: Duration::ZERO,
            bytes: None,
            receive_window: Bytes(MAX_WINDOW),
            pacing: None,
            algorithm: Algorithm::default(),
            ecn: false,
            sample_interval: DEFAULT_SAMPLE_INTERVAL,
        }
    }
}

/// Statistics of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowStats {
    /// Bytes that the receiving application has.
    pub delivered: Bytes,
    /// Bytes that the sender knows to be delivered.
    pub acked: Bytes,
    /// Counters of the sender.
    pub sender: SenderCounts,
    /// Smoothed RTT of the sender.
    pub rtt_smoothed: Duration,
    /// Latest RTT sample.
    pub rtt_latest: Duration,
    /// Min RTT.
    pub rtt_min: Duration,
    /// Congestion window.
    pub congestion_window: Bytes,
    /// Right edge of the receive window: the first byte that the sender may not send.
    pub right_window_edge: Bytes,
}

/// Report of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowReport {
    /// Statistics.
    pub stats: FlowStats,
    /// Mean goodput at the receiving application. Measured from the start to the last byte or to
    /// now.
    pub goodput: Rate,
    /// Mean goodput per sample interval, from time zero of the world.
    pub samples: Vec<Rate>,
    /// Mean RTT; zero if none was measured.
    pub rtt_mean: Duration,
    /// Maximum RTT.
    pub rtt_max: Duration,
    /// Time from the start until all written data was delivered; `None` if it is not complete.
    pub completion: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) route: Route,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) has_started: bool,
    /// Scheduled expiry of each timer.
    pub(super) scheduled: [Option<Duration>; 3],
    start: Duration,
    /// Bytes written; `None`: unlimited.
    written: Option<u64>,
    is_ect: bool,
    /// Time of the latest delivery.
    delivered_at: Duration,
    sample_interval: Duration,
    samples: Vec<u64>,
}

impl Flow {
    /// Creates a flow whose path has the given RTT without queues.
    pub(super) fn new(config: FlowConfig, rtt: Duration) -> Self {
        let receiver = Receiver::new(config.receive_window);
        let mut sender = Sender::new(config.algorithm, receiver.right_edge(), rtt);
        sender.set_pacing(config.pacing);
        sender.write(config.bytes.map_or(u64::MAX, |bytes| bytes.0));
        Self {
            route: config.route,
            sender,
            receiver,
            has_started: false,
            scheduled: [None; 3],
            start: config.start,
            written: config.bytes.map(|bytes| bytes.0),
            is_ect: config.ecn,
            delivered_at: config.start,
            sample_interval: config.sample_interval,
            samples: Vec::new(),
        }
    }

    pub(super) fn start(&mut self) {
        self.has_started = true;
    }

    pub(super) fn write(&mut self, bytes: Bytes) {
        self.sender.write(bytes.0);
        self.written = self.written.map(|written| written.saturating_add(bytes.0));
    }

    pub(super) fn finish(&mut self) {
        self.written = Some(self.sender.finish());
    }

    /// Returns whether all written data has been delivered.
    fn is_done(&self) -> bool {
        self.written == Some(self.receiver.next())
    }

    /// Returns whether the flow is finite and not complete.
    pub(super) fn is_unfinished(&self) -> bool {
        self.written.is_some_and(|written| written > self.receiver.next())
    }

    /// Returns whether links mark its segments instead of dropping them (ECT, RFC 3168 §5).
    pub(super) fn is_ect(&self) -> bool {
        self.is_ect
    }

    /// Processes segments that arrive together, all with or without a congestion mark (CE).
    pub(super) fn on_segments(
        &mut self,
        now: Duration,
        segments: &Segments,
        is_marked: bool,
    ) -> Option<Ack> {
        let before = self.receiver.next();
        let ack = self.receiver.on_segments(now, segments, is_marked);
        let delivered = self.receiver.next() - before;
        if delivered > 0 {
            self.delivered_at = now;
            self.add_sample(now, delivered);
        }
        ack
    }

    fn add_sample(&mut self, now: Duration, bytes: u64) {
        if self.sample_interval.is_zero() {
            return;
        }
        let index = (now.as_nanos() / self.sample_interval.as_nanos()) as usize;
        if self.samples.len() <= index {
            self.samples.resize(index + 1, 0);
        }
        self.samples[index] += bytes;
    }

    pub(super) fn stats(&self) -> FlowStats {
        let rtt = self.sender.rtt();
        FlowStats {
            delivered: Bytes(self.receiver.next()),
            acked: Bytes(self.sender.acked()),
            sender: self.sender.counts(),
            rtt_smoothed: rtt.smoothed().unwrap_or_default(),
            rtt_latest: rtt.latest(),
            rtt_min: rtt.min().unwrap_or_default(),
            congestion_window: Bytes(self.sender.window_bytes()),
            right_window_edge: Bytes(self.receiver.right_edge()),
        }
    }

    pub(super) fn report(&self, now: Duration) -> FlowReport {
        let stats = self.stats();
        let end = if self.is_done() { self.delivered_at } else { now };
        let duration = end.saturating_sub(self.start);
        let sample_count = u32::try_from(stats.sender.rtt_samples.max(1)).unwrap_or(u32::MAX);
        FlowReport {
            stats,
            goodput: stats.delivered.per(duration),
            samples: self
                .samples
                .iter()
                .map(|&bytes| Bytes(bytes).per(self.sample_interval))
                .collect(),
            rtt_mean: stats.sender.rtt_sum / sample_count,
            rtt_max: stats.sender.rtt_max,
            completion: self.is_done().then_some(duration),
        }
    }
}
