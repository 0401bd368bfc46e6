//! Packets from outside that use the links of a world: those of real hosts.

use super::{EventKind, LinkId, Payload, World, flow_hash};
use crate::link::{Burst, Ecn, Packets};
use std::rc::Rc;
use std::time::Duration;

/// Packets from outside.
#[derive(Debug, Clone)]
pub struct ExternalPackets<F> {
    /// Content.
    pub content: F,
    /// Sizes.
    pub burst: Burst,
    /// Index of the first segment in the content.
    pub first: u32,
    /// Hash of the flow.
    pub flow: u64,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// An acknowledgement that a later one of its flow may replace.
    pub is_pure_ack: bool,
    /// Maximum number of segments that arrive together.
    pub max_run: u32,
    /// Links to pass, in order.
    pub route: Rc<[LinkId]>,
    /// Earliest arrival time.
    pub not_before: Duration,
    /// Hop before which a host echoes the packets, if any.
    pub echo_hop: Option<usize>,
    /// Time of the echo.
    pub echoed_at: Option<Duration>,
}

/// Packets from outside that have passed their route.
#[derive(Debug, Clone)]
pub struct ExternalArrival<F> {
    /// Content.
    pub content: F,
    /// Index of the first segment in the content.
    pub first: u32,
    /// Number of segments.
    pub count: u32,
    /// Arrival time.
    pub at: Duration,
    /// Congestion experienced on the way.
    pub is_marked: bool,
    /// Time of the echo on the way.
    pub echoed_at: Option<Duration>,
}

impl<F: Clone> ExternalPackets<F> {
    /// Returns the packets as a link takes them.
    pub(super) fn packets<T>(self, payload: impl FnOnce(Self) -> T) -> Packets<T> {
        let Self { burst, flow, ecn, is_pure_ack, max_run, .. } = self;
        Packets { burst, payload: payload(self), flow, ecn, is_pure_ack, max_run }
    }

    /// Returns the segments of a run.
    pub(super) fn in_run(self, first: u32, count: u32) -> Self {
        let last_bytes = self.burst.bytes_of(first + count - 1);
        let burst = Burst { segments: count, last_bytes, ..self.burst };
        Self { burst, first: self.first + first, ..self }
    }

    pub(super) fn arrive(self, at: Duration, is_marked: bool) -> ExternalArrival<F> {
        let Self { content, first, burst, ecn, echoed_at, .. } = self;
        let is_marked = is_marked || ecn == Ecn::Marked;
        ExternalArrival { content, first, count: burst.segments, at, is_marked, echoed_at }
    }
}

impl<F: Clone> World<F> {
    /// Lets packets from outside enter the first link of their route at a time.
    pub fn inject(&mut self, at: Duration, external: ExternalPackets<F>) {
        let is_marked = external.ecn == Ecn::Marked;
        let payload = Payload::ExternalPackets(external);
        self.schedule(at, EventKind::Packets { hop: 0, payload, is_marked });
    }

    /// Returns packets from outside that arrived while the world ran until a time, in order.
    ///
    /// Arrivals of other owners stay.
    pub fn take_external_arrivals(
        &mut self,
        is_own: impl Fn(&F) -> bool,
    ) -> Vec<ExternalArrival<F>> {
        let arrivals = std::mem::take(&mut self.external_arrivals);
        let (own, others) = arrivals.into_iter().partition(|arrival| is_own(&arrival.content));
        self.external_arrivals = others;
        own
    }

    /// Returns the hash of a new flow of packets from outside.
    pub fn new_flow_hash(&mut self) -> u64 {
        self.external_flows += 1;
        // From the top, so that they differ from those of the world's flows.
        flow_hash(usize::MAX / 2 - self.external_flows, false)
    }
}
