//! A flow: a sender and a receiver, and the register of what they did.

use super::Route;
use crate::tcp::{Ack, Algorithm, Receiver, Segments, Sender, SenderCounts, WINDOW_MAX};
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// How long a sample of goodput is unless said otherwise: steps of a curve that a person looks at.
/// (ours)
const SAMPLE: Duration = Duration::from_millis(100);

/// A flow of a [`super::World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId(pub(super) usize);

/// What a flow is like.
#[derive(Debug, Clone)]
pub struct FlowConfig {
    /// Its way.
    pub route: Route,
    /// When it starts to send.
    pub start: Duration,
    /// How much it sends; `None`: without end. More can be written later.
    pub bytes: Option<Bytes>,
    /// The receive window at first.
    pub receive_window: Bytes,
    /// The largest rate of data at first; `None`: not paced.
    pub pacing: Option<Rate>,
    /// Its congestion control.
    pub algorithm: Algorithm,
    /// Length of a sample of [`Report::samples`]; zero for none.
    pub sample: Duration,
}

impl FlowConfig {
    /// An endless CUBIC flow that only congestion control limits.
    #[must_use]
    pub fn new(route: &Route) -> Self {
        Self {
            route: route.clone(),
            start: Duration::ZERO,
            bytes: None,
            receive_window: Bytes(WINDOW_MAX),
            pacing: None,
            algorithm: Algorithm::default(),
            sample: SAMPLE,
        }
    }
}

/// What a flow has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowStats {
    /// Bytes that the receiving application has.
    pub delivered: Bytes,
    /// Bytes of which the sender knows that they arrived.
    pub acked: Bytes,
    /// What the sender has counted.
    pub sender: SenderCounts,
    /// The round trip as the sender smooths it.
    pub rtt_smoothed: Duration,
    /// The latest round trip that was measured.
    pub rtt_latest: Duration,
    /// The least one.
    pub rtt_min: Duration,
    /// The congestion window.
    pub congestion_window: Bytes,
    /// First byte that the sender may not send, as the receiver told it last.
    pub window_edge: Bytes,
}

/// How a flow went.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What it did.
    pub stats: FlowStats,
    /// Mean rate of data at the receiving application, from the start to the last byte or to now.
    pub goodput: Rate,
    /// The mean rate of data, sample by sample, from time zero of the world.
    pub samples: Vec<Rate>,
    /// Mean of the round trips, and the longest; zero when none was measured.
    pub rtt_mean: Duration,
    /// Longest of the round trips.
    pub rtt_max: Duration,
    /// From the start until everything that was written was delivered; `None`: it was not.
    pub completion: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) route: Route,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) has_started: bool,
    /// For which time each timer is planned.
    pub(super) armed: [Option<Duration>; 3],
    start: Duration,
    /// Bytes written; `None`: without end.
    written: Option<u64>,
    /// When the last byte so far was delivered.
    delivered_at: Duration,
    sample: Duration,
    samples: Vec<u64>,
}

impl Flow {
    /// A flow whose round trip takes `rtt` without queues.
    pub(super) fn new(config: FlowConfig, rtt: Duration) -> Self {
        let receiver = Receiver::new(config.receive_window);
        let mut sender = Sender::new(config.algorithm, receiver.edge(), rtt);
        sender.set_pacing(config.pacing);
        sender.write(config.bytes.map_or(u64::MAX, |bytes| bytes.0));
        Self {
            route: config.route,
            sender,
            receiver,
            has_started: false,
            armed: [None; 3],
            start: config.start,
            written: config.bytes.map(|bytes| bytes.0),
            delivered_at: config.start,
            sample: config.sample,
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

    /// Whether everything that was written has been delivered.
    fn is_done(&self) -> bool {
        self.written == Some(self.receiver.next())
    }

    /// Whether it has an end, and has not reached it.
    pub(super) fn is_unfinished(&self) -> bool {
        self.written.is_some_and(|written| written > self.receiver.next())
    }

    pub(super) fn on_segments(&mut self, now: Duration, segments: &Segments) -> Option<Ack> {
        let before = self.receiver.next();
        let ack = self.receiver.on_segments(now, segments);
        let delivered = self.receiver.next() - before;
        if delivered > 0 {
            self.delivered_at = now;
            self.add_sample(now, delivered);
        }
        ack
    }

    fn add_sample(&mut self, now: Duration, bytes: u64) {
        if self.sample.is_zero() {
            return;
        }
        let index = (now.as_nanos() / self.sample.as_nanos()) as usize;
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
            congestion_window: Bytes(self.sender.window() * crate::tcp::MSS),
            window_edge: Bytes(self.receiver.edge()),
        }
    }

    pub(super) fn report(&self, now: Duration) -> Report {
        let stats = self.stats();
        let end = if self.is_done() { self.delivered_at } else { now };
        let took = end.saturating_sub(self.start);
        let measured = u32::try_from(stats.sender.rtt_samples.max(1)).unwrap_or(u32::MAX);
        Report {
            stats,
            goodput: stats.delivered.per(took),
            samples: self.samples.iter().map(|&bytes| Bytes(bytes).per(self.sample)).collect(),
            rtt_mean: stats.sender.rtt_sum / measured,
            rtt_max: stats.sender.rtt_max,
            completion: self.is_done().then_some(took),
        }
    }
}
