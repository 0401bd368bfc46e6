//! Discrete-event simulation: hosts, links and flows in virtual time.
//!
//! The module has the event queue, the forwarding of packets over links, and the interface for a
//! controller. TCP is in [`crate::tcp`], links are in [`crate::link`].
//!
//! The route of a flow is a list of links per direction. A host's uplink is the first link of all
//! flows of the host; a port is shared by many flows. Simultaneous events run in the order in which
//! they were scheduled, so that a seed determines everything.

mod flow;

pub use flow::{FlowConfig, FlowId, FlowReport, FlowStats};

use crate::link::{Burst, Link, LinkConfig, LinkCounts, SegmentRun};
use crate::presets::PathConfig;
use crate::tcp::{Ack, HEADER_BYTES, Segments};
use bankfull_control::{Bytes, Rate};
use fastrand::Rng;
use flow::Flow;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Identifier of a link in a [`World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkId(usize);

/// Links of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Links from the sender to the receiver, in order.
    pub forward: Vec<LinkId>,
    /// Links from the receiver to the sender, in order.
    pub reverse: Vec<LinkId>,
}

impl Route {
    /// Returns the same route with an uplink (the sender's own line) in front.
    #[must_use]
    pub fn with_uplink(&self, uplink: LinkId) -> Self {
        let mut route = self.clone();
        route.forward.insert(0, uplink);
        route
    }
}

/// Event of a flow.
#[derive(Debug, Clone, Copy)]
enum EventKind {
    Start,
    /// Segments reach the end of the link before `hop`.
    Data {
        hop: usize,
        segments: Segments,
    },
    /// An acknowledgement reaches the end of the link before `hop`.
    Ack {
        hop: usize,
        ack: Ack,
    },
    Timer(Timer),
}

/// Timers of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    Pacing,
    Retransmit,
    DelayedAck,
}

impl Timer {
    /// Returns the time at which the timer expires.
    fn expiry(self, flow: &Flow, now: Duration) -> Option<Duration> {
        match self {
            Self::Pacing => flow.sender.paced_until(now),
            Self::Retransmit => flow.sender.timer(),
            Self::DelayedAck => flow.receiver.ack_at(),
        }
    }
}

#[derive(Debug)]
struct Event {
    at: Duration,
    /// Sequence number; orders simultaneous events.
    sequence: u64,
    flow: FlowId,
    kind: EventKind,
}

impl Ord for Event {
    /// Reversed, because the heap returns the greatest first, which must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

/// Simulated network.
#[derive(Debug)]
pub struct World {
    now: Duration,
    rng: Rng,
    links: Vec<Link>,
    flows: Vec<Flow>,
    events: BinaryHeap<Event>,
    scheduled_events: u64,
    /// Finite flows that are not complete.
    unfinished: usize,
    /// Reused buffer, so that bursts do not allocate.
    runs: Vec<SegmentRun>,
}

impl World {
    /// Creates an empty world. The seed determines all random numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            rng: Rng::with_seed(seed),
            links: Vec::new(),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            scheduled_events: 0,
            unfinished: 0,
            runs: Vec::new(),
        }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Adds a link that any number of flows may use.
    pub fn add_link(&mut self, config: LinkConfig) -> LinkId {
        self.links.push(Link::new(config, self.rng.u64(..)));
        LinkId(self.links.len() - 1)
    }

    /// Adds the two links of a path.
    pub fn add_path(&mut self, path: &PathConfig) -> Route {
        let forward = self.add_link(path.forward.clone());
        let reverse = self.add_link(path.reverse.clone());
        Route { forward: vec![forward], reverse: vec![reverse] }
    }

    /// Adds a flow. It starts at its configured time, or now if that has passed.
    pub fn add_flow(&mut self, config: FlowConfig) -> FlowId {
        let ways = [&config.route.forward, &config.route.reverse];
        let hops = ways.into_iter().flatten().map(|&LinkId(id)| self.links[id].config().delay);
        // Initial RTT, as measured by the handshake, which is not modelled.
        let rtt = hops.sum::<Duration>();
        let id = FlowId(self.flows.len());
        self.schedule(config.start.max(self.now), id, EventKind::Start);
        let flow = Flow::new(config, rtt);
        self.unfinished += usize::from(flow.is_unfinished());
        self.flows.push(flow);
        id
    }

    /// Writes data to a flow as its application.
    pub fn write(&mut self, flow: FlowId, bytes: Bytes) {
        let register = &mut self.flows[flow.0];
        self.unfinished -= usize::from(register.is_unfinished());
        register.write(bytes);
        self.unfinished += usize::from(register.is_unfinished());
        self.send(flow);
    }

    /// Ends a flow with the data that it has sent so far.
    pub fn finish(&mut self, flow: FlowId) {
        let register = &mut self.flows[flow.0];
        self.unfinished -= usize::from(register.is_unfinished());
        register.finish();
        self.unfinished += usize::from(register.is_unfinished());
    }

    /// Sets the receive window, which takes effect with the next acknowledgement.
    ///
    /// Its right edge never moves left, so a smaller window takes effect as data arrives. The
    /// minimum is one segment.
    pub fn set_receive_window(&mut self, flow: FlowId, window: Bytes) {
        self.flows[flow.0].receiver.set_window(window);
    }

    /// Sets the maximum pacing rate of payload (as SO_MAX_PACING_RATE); `None` removes it.
    pub fn set_pacing(&mut self, flow: FlowId, rate: Option<Rate>) {
        self.flows[flow.0].sender.set_pacing(rate);
        self.send(flow);
    }

    /// Returns the statistics of a flow so far.
    #[must_use]
    pub fn stats(&self, flow: FlowId) -> FlowStats {
        self.flows[flow.0].stats()
    }

    /// Returns the report of a flow.
    #[must_use]
    pub fn report(&self, flow: FlowId) -> FlowReport {
        self.flows[flow.0].report(self.now)
    }

    /// Returns the counters of a link.
    #[must_use]
    pub fn counts(&self, link: LinkId) -> LinkCounts {
        self.links[link.0].counts()
    }

    /// Returns the bytes in the queue of a link, which no real controller could observe.
    pub fn backlog(&mut self, link: LinkId) -> Bytes {
        self.links[link.0].backlog(self.now)
    }

    /// Cuts or restores a link.
    pub fn set_cut(&mut self, link: LinkId, is_cut: bool) {
        self.links[link.0].set_cut(is_cut);
    }

    /// Returns whether all finite flows have delivered all written data.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// Runs all events up to a time.
    pub fn run_until(&mut self, end: Duration) {
        while self.events.peek().is_some_and(|event| event.at <= end) {
            self.run_next_event();
        }
        self.now = self.now.max(end);
    }

    /// Runs until all written data is delivered, or until a time; returns whether all is delivered.
    pub fn run_until_done(&mut self, end: Duration) -> bool {
        while !self.is_done() {
            if self.events.peek().is_none_or(|event| event.at > end) {
                return false;
            }
            self.run_next_event();
        }
        true
    }

    /// Runs until a time, and calls a controller at each tick, first after one tick.
    ///
    /// A tick of zero counts as 1 ns.
    pub fn run_with(
        &mut self,
        end: Duration,
        tick: Duration,
        mut controller: impl FnMut(&mut Self),
    ) {
        let tick = tick.max(Duration::from_nanos(1));
        while self.now + tick <= end {
            self.run_until(self.now + tick);
            controller(self);
        }
        self.run_until(end);
    }

    /// Runs the next event.
    fn run_next_event(&mut self) {
        let Some(Event { at, flow: id, kind, .. }) = self.events.pop() else { return };
        self.now = at;
        let flow = &mut self.flows[id.0];
        match kind {
            EventKind::Start => flow.start(),
            EventKind::Data { hop, segments } if hop < flow.route.forward.len() => {
                return self.forward_segments(id, hop, &segments);
            }
            EventKind::Data { segments, .. } => {
                self.unfinished -= usize::from(flow.is_unfinished());
                let ack = flow.on_segments(at, &segments, false);
                self.unfinished += usize::from(flow.is_unfinished());
                if let Some(ack) = ack {
                    self.forward_ack(id, 0, ack);
                }
                return self.arm(id, Timer::DelayedAck);
            }
            EventKind::Ack { hop, ack } if hop < flow.route.reverse.len() => {
                return self.forward_ack(id, hop, ack);
            }
            EventKind::Ack { ack, .. } => flow.sender.on_ack(at, &ack, &mut flow.receiver),
            EventKind::Timer(timer) => {
                let scheduled = &mut flow.scheduled[timer as usize];
                if *scheduled != Some(at) {
                    return;
                }
                *scheduled = None;
                if timer == Timer::DelayedAck {
                    if let Some(ack) = flow.receiver.on_time(at) {
                        self.forward_ack(id, 0, ack);
                    }
                    return self.arm(id, timer);
                }
                if timer == Timer::Retransmit
                    && let Some(probe) = flow.sender.on_time(at)
                {
                    self.forward_segments(id, 0, &probe);
                }
            }
        }
        self.send(id);
    }

    /// Sends all segments that a flow may send now.
    fn send(&mut self, id: FlowId) {
        if !self.flows[id.0].has_started {
            return;
        }
        while let Some(segments) = self.flows[id.0].sender.poll(self.now) {
            self.forward_segments(id, 0, &segments);
        }
        self.arm(id, Timer::Pacing);
        self.arm(id, Timer::Retransmit);
    }

    /// Passes segments to the link `hop` of the route.
    fn forward_segments(&mut self, id: FlowId, hop: usize, segments: &Segments) {
        let Some(&link) = self.flows[id.0].route.forward.get(hop) else {
            let kind = EventKind::Data { hop, segments: *segments };
            return self.schedule(self.now, id, kind);
        };
        let mut runs = std::mem::take(&mut self.runs);
        self.links[link.0].offer(self.now, &segments.burst(), &mut runs);
        for run in &runs {
            let kind = EventKind::Data { hop: hop + 1, segments: segments.in_run(run) };
            self.schedule(run.arrives, id, kind);
        }
        self.runs = runs;
    }

    /// Passes an acknowledgement to the link `hop` of the route.
    fn forward_ack(&mut self, id: FlowId, hop: usize, ack: Ack) {
        let Some(&link) = self.flows[id.0].route.reverse.get(hop) else {
            return self.schedule(self.now, id, EventKind::Ack { hop, ack });
        };
        let mut runs = std::mem::take(&mut self.runs);
        self.links[link.0].offer(self.now, &Burst::packet(HEADER_BYTES), &mut runs);
        for run in &runs {
            self.schedule(run.arrives, id, EventKind::Ack { hop: hop + 1, ack });
        }
        self.runs = runs;
    }

    /// Schedules a timer, unless an earlier expiry is scheduled, which then schedules it again.
    fn arm(&mut self, id: FlowId, timer: Timer) {
        let flow = &mut self.flows[id.0];
        let Some(at) = timer.expiry(flow, self.now) else { return };
        let at = at.max(self.now);
        let scheduled = &mut flow.scheduled[timer as usize];
        if scheduled.is_none_or(|scheduled| scheduled > at) {
            *scheduled = Some(at);
            self.schedule(at, id, EventKind::Timer(timer));
        }
    }

    fn schedule(&mut self, at: Duration, flow: FlowId, kind: EventKind) {
        self.scheduled_events += 1;
        self.events.push(Event { at, sequence: self.scheduled_events, flow, kind });
    }
}
