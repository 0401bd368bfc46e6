//! Discrete-event simulation: hosts, links and flows in virtual time.
//!
//! The module has the event queue, the forwarding of packets over links, and the interface for a
//! controller. TCP is in [`crate::tcp`], links are in [`crate::link`].
//!
//! The route of a flow is a list of links per direction. A host's uplink is the first link of all
//! flows of the host; a port is shared by many flows. Simultaneous events run in the order in which
//! they were scheduled, so that a seed determines everything.

mod background;
mod external;
mod flow;

pub use external::{ExternalArrival, ExternalPackets};
pub use flow::{FlowConfig, FlowId, FlowReport, FlowStats};

use crate::link::{Arrival, Burst, Ecn, Link, LinkConfig, LinkCounts, Packets};
use crate::presets::PathConfig;
use crate::tcp::{Ack, Algorithm, HEADER_BYTES, Segments};
use background::Source;
use bankfull_control::{Bytes, Rate};
use fastrand::Rng;
use flow::Flow;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Bytes of a report of the MTU: IPv4 header (20), ICMP header (8), and 28 bytes of the dropped
/// packet (RFC 792).
const TOO_LONG_BYTES: u32 = 56;

/// Identifier of a link in a [`World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkId(usize);

impl LinkId {
    /// Returns the number of links that were added before.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

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

/// Packets on their way.
#[derive(Debug, Clone)]
enum Payload<F> {
    Segments(FlowId, Segments),
    Ack(FlowId, Ack),
    /// Report that a link takes packets of so many bytes at most (RFC 1191).
    TooLong(FlowId, u32),
    ExternalPackets(ExternalPackets<F>),
}

/// Event.
#[derive(Debug, Clone)]
enum EventKind<F> {
    Start(FlowId),
    /// Packets reach the end of the link before `hop`, or enter their first.
    Packets {
        hop: usize,
        payload: Payload<F>,
        is_marked: bool,
    },
    Timer(FlowId, Timer),
    /// A link sends the next packets that it holds.
    Link(LinkId),
    /// Cross traffic starts its next flows.
    Background(usize),
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
struct Event<F> {
    at: Duration,
    /// Sequence number; orders simultaneous events.
    sequence: u64,
    kind: EventKind<F>,
}

impl<F> Ord for Event<F> {
    /// Reversed, because the heap returns the greatest first, which must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<F> PartialOrd for Event<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> PartialEq for Event<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for Event<F> {}

/// Simulated network; `F` is the content of packets from outside.
#[derive(Debug)]
pub struct World<F = ()> {
    now: Duration,
    rng: Rng,
    links: Vec<Link<(usize, Payload<F>)>>,
    /// Scheduled event of each link.
    link_events: Vec<Option<Duration>>,
    flows: Vec<Flow>,
    sources: Vec<Source>,
    events: BinaryHeap<Event<F>>,
    scheduled_events: u64,
    /// Finite flows that are not complete.
    unfinished: usize,
    /// Latest link to which packets were offered.
    offered: Option<LinkId>,
    /// Packets from outside that arrived while the world ran until a time.
    external_arrivals: Vec<ExternalArrival<F>>,
    /// Flows of packets from outside.
    external_flows: usize,
    /// Reused buffer, so that bursts do not allocate.
    arrivals: Vec<Arrival<(usize, Payload<F>)>>,
}

impl World {
    /// Creates an empty world. The seed determines all random numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_external(seed)
    }
}

impl<F: Clone> World<F> {
    /// Creates an empty world into which packets come from outside as well.
    #[must_use]
    pub fn with_external(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            rng: Rng::with_seed(seed),
            links: Vec::new(),
            link_events: Vec::new(),
            flows: Vec::new(),
            sources: Vec::new(),
            events: BinaryHeap::new(),
            scheduled_events: 0,
            unfinished: 0,
            offered: None,
            external_arrivals: Vec::new(),
            external_flows: 0,
            arrivals: Vec::new(),
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
        self.link_events.push(None);
        LinkId(self.links.len() - 1)
    }

    /// Adds the links and the cross traffic of a path.
    pub fn add_path(&mut self, path: &PathConfig) -> Route {
        let forward = self.add_link(path.forward.clone());
        let reverse = self.add_link(path.reverse.clone());
        let route = Route { forward: vec![forward], reverse: vec![reverse] };
        for &background in &path.background {
            self.add_background(&route, background, self.now);
        }
        match &path.first_hop {
            Some(first_hop) => route.with_uplink(self.add_link(first_hop.clone())),
            None => route,
        }
    }

    /// Adds a flow. It starts at its configured time, or now if that has passed.
    pub fn add_flow(&mut self, config: FlowConfig) -> FlowId {
        let ways = [&config.route.forward, &config.route.reverse];
        let hops = ways.into_iter().flatten().map(|&LinkId(id)| self.links[id].config().delay);
        // Initial RTT, as measured by the handshake, which is not modelled.
        let rtt = hops.sum::<Duration>();
        let id = FlowId(self.flows.len());
        self.schedule(config.start.max(self.now), EventKind::Start(id));
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

    /// Replaces the congestion control of a flow (as TCP_CONGESTION).
    pub fn set_algorithm(&mut self, flow: FlowId, algorithm: Algorithm) {
        self.flows[flow.0].sender.set_algorithm(self.now, algorithm);
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
        self.backlog_at(link, self.now)
    }

    /// Returns the bytes in the queue of a link before the next event.
    pub fn backlog_at(&mut self, link: LinkId, now: Duration) -> Bytes {
        let backlog = self.links[link.0].backlog(now);
        self.collect_arrivals(link);
        backlog
    }

    /// Returns how long a packet would wait in the queue of a link.
    pub fn queueing_delay_at(&mut self, link: LinkId, now: Duration) -> Duration {
        let delay = self.links[link.0].queueing_delay(now);
        self.collect_arrivals(link);
        delay
    }

    /// Returns the parameters of a link.
    #[must_use]
    pub fn link_config(&self, link: LinkId) -> &LinkConfig {
        self.links[link.0].config()
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

    /// Runs all events up to a time; [`Self::take_external_arrivals`] returns what arrived.
    pub fn run_until(&mut self, end: Duration) {
        while self.events.peek().is_some_and(|event| event.at <= end) {
            let arrival = self.run_next_event();
            self.external_arrivals.extend(arrival);
        }
        self.now = self.now.max(end);
    }

    /// Runs until all written data is delivered, or until a time; returns whether all is delivered.
    pub fn run_until_done(&mut self, end: Duration) -> bool {
        while !self.is_done() {
            if self.events.peek().is_none_or(|event| event.at > end) {
                return false;
            }
            let arrival = self.run_next_event();
            self.external_arrivals.extend(arrival);
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

    /// Returns the time of the next event.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Duration> {
        self.events.peek().map(|event| event.at)
    }

    /// Runs the next event; returns packets from outside that have arrived.
    pub fn run_next_event(&mut self) -> Option<ExternalArrival<F>> {
        let Event { at, kind, .. } = self.events.pop()?;
        self.now = at;
        match kind {
            EventKind::Start(id) => {
                self.flows[id.0].start();
                self.send(id);
            }
            EventKind::Packets { hop, payload, is_marked } => match self.link_of(hop, &payload) {
                Some(link) => self.offer(link, hop, payload, is_marked),
                None => return self.deliver(payload, is_marked),
            },
            EventKind::Timer(id, timer) => self.on_timer(id, timer),
            EventKind::Background(id) => self.run_background(id),
            EventKind::Link(link) => {
                self.link_events[link.0] = None;
                self.links[link.0].advance(at);
                self.collect_arrivals(link);
            }
        }
        None
    }

    /// Returns the latest link to which packets were offered, once.
    pub fn take_offered(&mut self) -> Option<LinkId> {
        self.offered.take()
    }

    /// Passes packets to the host at the end of their route.
    fn deliver(&mut self, payload: Payload<F>, is_marked: bool) -> Option<ExternalArrival<F>> {
        let now = self.now;
        match payload {
            Payload::Segments(id, segments) => {
                let flow = &mut self.flows[id.0];
                self.unfinished -= usize::from(flow.is_unfinished());
                let ack = flow.on_segments(now, &segments, is_marked);
                self.unfinished += usize::from(flow.is_unfinished());
                if let Some(ack) = ack {
                    self.forward(0, Payload::Ack(id, ack));
                }
                self.arm(id, Timer::DelayedAck);
            }
            Payload::Ack(id, ack) => {
                let flow = &mut self.flows[id.0];
                flow.sender.on_ack(now, &ack, &mut flow.receiver);
                self.send(id);
            }
            Payload::TooLong(id, mtu) => {
                self.flows[id.0].sender.on_packet_too_long(now, mtu);
                self.send(id);
            }
            Payload::ExternalPackets(external) => return Some(external.arrive(now, is_marked)),
        }
        None
    }

    fn on_timer(&mut self, id: FlowId, timer: Timer) {
        let now = self.now;
        let flow = &mut self.flows[id.0];
        let scheduled = &mut flow.scheduled[timer as usize];
        if *scheduled != Some(now) {
            return;
        }
        *scheduled = None;
        if timer == Timer::DelayedAck {
            if let Some(ack) = flow.receiver.on_time(now) {
                self.forward(0, Payload::Ack(id, ack));
            }
            return self.arm(id, timer);
        }
        if timer == Timer::Retransmit
            && let Some(probe) = flow.sender.on_time(now)
        {
            self.forward(0, Payload::Segments(id, probe));
        }
        self.send(id);
    }

    /// Sends all segments that a flow may send now.
    fn send(&mut self, id: FlowId) {
        if !self.flows[id.0].has_started {
            return;
        }
        while let Some(segments) = self.flows[id.0].sender.poll(self.now) {
            self.forward(0, Payload::Segments(id, segments));
        }
        self.arm(id, Timer::Pacing);
        self.arm(id, Timer::Retransmit);
    }

    /// Passes packets of a host to a link of their route.
    fn forward(&mut self, hop: usize, payload: Payload<F>) {
        match self.link_of(hop, &payload) {
            Some(link) => self.offer(link, hop, payload, false),
            None => self.schedule(self.now, EventKind::Packets { hop, payload, is_marked: false }),
        }
    }

    /// Returns a link of the route of packets; `None` behind its end.
    fn link_of(&self, hop: usize, payload: &Payload<F>) -> Option<LinkId> {
        match payload {
            Payload::Segments(id, _) => self.flows[id.0].route.forward.get(hop).copied(),
            Payload::Ack(id, _) | Payload::TooLong(id, _) => {
                self.flows[id.0].route.reverse.get(hop).copied()
            }
            Payload::ExternalPackets(external) => external.route.get(hop).copied(),
        }
    }

    /// Offers packets to a link.
    ///
    /// If they are too long, the MTU is reported to their sender over the whole reverse path, as by
    /// the lab's emulator.
    fn offer(&mut self, link: LinkId, hop: usize, payload: Payload<F>, is_marked: bool) {
        let mut packets = match &payload {
            Payload::Segments(id, segments) => {
                let mtu = self.links[link.0].config().mtu_at(self.now);
                if let Some(mtu) = mtu.filter(|mtu| segments.burst().bytes_of(0) > *mtu) {
                    self.forward(0, Payload::TooLong(*id, mtu));
                }
                let flow = flow_hash(id.0, false);
                let is_capable = self.flows[id.0].is_ect();
                let ecn = if is_capable { Ecn::Capable } else { Ecn::NotCapable };
                Packets { ecn, ..Packets::new(segments.burst(), flow, (hop, payload)) }
            }
            Payload::Ack(id, _) => {
                let burst = Burst::packet(HEADER_BYTES);
                let packets = Packets::new(burst, flow_hash(id.0, true), (hop, payload));
                Packets { is_pure_ack: true, ..packets }
            }
            Payload::TooLong(id, _) => {
                let burst = Burst::packet(TOO_LONG_BYTES);
                Packets::new(burst, flow_hash(id.0, true), (hop, payload))
            }
            Payload::ExternalPackets(external) => {
                external.clone().packets(|external| (hop, Payload::ExternalPackets(external)))
            }
        };
        if is_marked {
            packets.ecn = Ecn::Marked;
        }
        self.links[link.0].offer(self.now, packets);
        self.offered = Some(link);
        self.collect_arrivals(link);
    }

    /// Schedules the arrivals of a link, and its next event.
    fn collect_arrivals(&mut self, link: LinkId) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        self.links[link.0].take_arrivals(&mut arrivals);
        for Arrival { payload: (hop, payload), first, count, at, is_marked } in arrivals.drain(..) {
            let hop = hop + 1;
            let (payload, at) = match payload {
                Payload::Segments(id, segments) => {
                    (Payload::Segments(id, segments.in_run(first, count)), at)
                }
                Payload::Ack(..) | Payload::TooLong(..) => (payload, at),
                Payload::ExternalPackets(external) => {
                    let at =
                        if hop == external.route.len() { at.max(external.not_before) } else { at };
                    let mut external = external.in_run(first, count);
                    if external.echo_hop == Some(hop) {
                        external.echoed_at = Some(at);
                    }
                    (Payload::ExternalPackets(external), at)
                }
            };
            self.schedule(at, EventKind::Packets { hop, payload, is_marked });
        }
        self.arrivals = arrivals;
        let Some(at) = self.links[link.0].next_event_at() else { return };
        let scheduled = &mut self.link_events[link.0];
        if scheduled.is_none_or(|scheduled| scheduled > at) {
            *scheduled = Some(at);
            self.schedule(at, EventKind::Link(link));
        }
    }

    /// Schedules a timer, unless an earlier expiry is scheduled, which then schedules it again.
    fn arm(&mut self, id: FlowId, timer: Timer) {
        let flow = &mut self.flows[id.0];
        let Some(at) = timer.expiry(flow, self.now) else { return };
        let at = at.max(self.now);
        let scheduled = &mut flow.scheduled[timer as usize];
        if scheduled.is_none_or(|scheduled| scheduled > at) {
            *scheduled = Some(at);
            self.schedule(at, EventKind::Timer(id, timer));
        }
    }

    fn schedule(&mut self, at: Duration, kind: EventKind<F>) {
        self.scheduled_events += 1;
        self.events.push(Event { at, sequence: self.scheduled_events, kind });
    }
}

/// Returns the hash of a flow in one direction.
fn flow_hash(flow: usize, is_reverse: bool) -> u64 {
    // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
    (2 * flow as u64 + u64::from(is_reverse)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}
