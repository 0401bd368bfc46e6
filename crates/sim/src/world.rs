//! Hosts, links and flows in virtual time: the order of events, and what a controller may see and
//! set while they run.
//!
//! What lives here: the queue of events, the way of packets over links, the registers of flows.
//! What never lives here: what TCP does ([`crate::tcp`]), what a link does ([`crate::link`]).
//!
//! A flow's way is a list of links in each direction. A host's uplink is a link that all flows of
//! the host begin with; a port is one that many flows share. Events of the same time happen in the
//! order in which they were planned, so a seed decides all.

mod flow;

pub use flow::{FlowConfig, FlowId, FlowStats, Report};

use crate::link::{Burst, Counts, Link, LinkConfig, Run};
use crate::presets::PathConfig;
use crate::tcp::{Ack, HEADER_BYTES, Segments};
use bankfull_control::{Bytes, Rate};
use fastrand::Rng;
use flow::Flow;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A link of a [`World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkId(usize);

/// The links of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// From the sender to the receiver, in this order.
    pub forward: Vec<LinkId>,
    /// From the receiver to the sender, in this order.
    pub reverse: Vec<LinkId>,
}

impl Route {
    /// The same with an uplink (the sender's own line) before it.
    #[must_use]
    pub fn behind(&self, uplink: LinkId) -> Self {
        let mut route = self.clone();
        route.forward.insert(0, uplink);
        route
    }
}

/// What may happen to a flow.
#[derive(Debug, Clone, Copy)]
enum Happening {
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
    Pace,
    Resend,
    Acknowledge,
}

impl Timer {
    /// When a flow wants this timer to run out.
    fn of(self, flow: &Flow, now: Duration) -> Option<Duration> {
        match self {
            Self::Pace => flow.sender.paced_until(now),
            Self::Resend => flow.sender.timer(),
            Self::Acknowledge => flow.receiver.ack_at(),
        }
    }
}

#[derive(Debug)]
struct Event {
    at: Duration,
    /// Events of the same time are taken in the order of this.
    order: u64,
    flow: FlowId,
    happening: Happening,
}

impl Ord for Event {
    /// The heap gives the greatest first: that is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
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

/// A network at work.
#[derive(Debug)]
pub struct World {
    now: Duration,
    rng: Rng,
    links: Vec<Link>,
    flows: Vec<Flow>,
    events: BinaryHeap<Event>,
    planned: u64,
    /// Flows that have an end and have not reached it.
    unfinished: usize,
    /// Kept, so that not every burst allocates.
    runs: Vec<Run>,
}

impl World {
    /// An empty world. The seed decides all chance in it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            rng: Rng::with_seed(seed),
            links: Vec::new(),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            planned: 0,
            unfinished: 0,
            runs: Vec::new(),
        }
    }

    /// The time since the beginning.
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

    /// Adds a flow. It starts at its time, or now if that has passed.
    pub fn add_flow(&mut self, config: FlowConfig) -> FlowId {
        let ways = [&config.route.forward, &config.route.reverse];
        let hops = ways.into_iter().flatten().map(|&LinkId(id)| self.links[id].config().delay);
        // As measured by the handshake, which is not modelled.
        let rtt = hops.sum::<Duration>();
        let id = FlowId(self.flows.len());
        self.plan(config.start.max(self.now), id, Happening::Start);
        let flow = Flow::new(config, rtt);
        self.unfinished += usize::from(flow.is_unfinished());
        self.flows.push(flow);
        id
    }

    /// The application of a flow writes so much more.
    pub fn write(&mut self, flow: FlowId, bytes: Bytes) {
        let register = &mut self.flows[flow.0];
        self.unfinished -= usize::from(register.is_unfinished());
        register.write(bytes);
        self.unfinished += usize::from(register.is_unfinished());
        self.send(flow);
    }

    /// The application of a flow writes no more: the flow ends with what it has sent so far.
    pub fn finish(&mut self, flow: FlowId) {
        let register = &mut self.flows[flow.0];
        self.unfinished -= usize::from(register.is_unfinished());
        register.finish();
        self.unfinished += usize::from(register.is_unfinished());
    }

    /// Sets the receive window. The next acknowledgement tells it; its right edge never moves
    /// left, so less takes effect as data arrives. At least one segment is granted.
    pub fn set_receive_window(&mut self, flow: FlowId, window: Bytes) {
        self.flows[flow.0].receiver.set_window(window);
    }

    /// Limits the rate of data (without headers, as SO_MAX_PACING_RATE does), or no longer.
    pub fn set_pacing(&mut self, flow: FlowId, rate: Option<Rate>) {
        self.flows[flow.0].sender.set_pacing(rate);
        self.send(flow);
    }

    /// What a flow has done so far, to be compared with what it had done before.
    #[must_use]
    pub fn stats(&self, flow: FlowId) -> FlowStats {
        self.flows[flow.0].stats()
    }

    /// How a flow went.
    #[must_use]
    pub fn report(&self, flow: FlowId) -> Report {
        self.flows[flow.0].report(self.now)
    }

    /// What became of everything that came to a link.
    #[must_use]
    pub fn counts(&self, link: LinkId) -> Counts {
        self.links[link.0].counts()
    }

    /// Bytes in the queue of a link, which no real controller could see.
    pub fn backlog(&mut self, link: LinkId) -> Bytes {
        self.links[link.0].backlog(self.now)
    }

    /// Cuts a link or joins it again.
    pub fn set_cut(&mut self, link: LinkId, is_cut: bool) {
        self.links[link.0].set_cut(is_cut);
    }

    /// Whether everything that was written has arrived, for all flows that have an end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// Lets all happen that happens up to a time.
    pub fn run_until(&mut self, end: Duration) {
        while self.events.peek().is_some_and(|event| event.at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Runs until everything that was written has arrived, or until a time. Whether it has.
    pub fn run_until_done(&mut self, end: Duration) -> bool {
        while !self.is_done() {
            if self.events.peek().is_none_or(|event| event.at > end) {
                return false;
            }
            self.step();
        }
        true
    }

    /// Runs until a time, and calls a controller at equal distances, the first time after one.
    /// A distance of zero counts as 1 ns.
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

    /// Lets the next thing happen.
    fn step(&mut self) {
        let Some(Event { at, flow: id, happening, .. }) = self.events.pop() else { return };
        self.now = at;
        let flow = &mut self.flows[id.0];
        match happening {
            Happening::Start => flow.start(),
            Happening::Data { hop, segments } if hop < flow.route.forward.len() => {
                return self.carry(id, hop, &segments);
            }
            Happening::Data { segments, .. } => {
                self.unfinished -= usize::from(flow.is_unfinished());
                let ack = flow.on_segments(at, &segments);
                self.unfinished += usize::from(flow.is_unfinished());
                if let Some(ack) = ack {
                    self.carry_ack(id, 0, ack);
                }
                return self.arm(id, Timer::Acknowledge);
            }
            Happening::Ack { hop, ack } if hop < flow.route.reverse.len() => {
                return self.carry_ack(id, hop, ack);
            }
            Happening::Ack { ack, .. } => flow.sender.on_ack(at, &ack, &mut flow.receiver),
            Happening::Timer(timer) => {
                let armed = &mut flow.armed[timer as usize];
                if *armed != Some(at) {
                    return;
                }
                *armed = None;
                if timer == Timer::Acknowledge {
                    if let Some(ack) = flow.receiver.on_time(at) {
                        self.carry_ack(id, 0, ack);
                    }
                    return self.arm(id, timer);
                }
                if timer == Timer::Resend
                    && let Some(probe) = flow.sender.on_time(at)
                {
                    self.carry(id, 0, &probe);
                }
            }
        }
        self.send(id);
    }

    /// A flow sends what it may.
    fn send(&mut self, id: FlowId) {
        if !self.flows[id.0].has_started {
            return;
        }
        while let Some(segments) = self.flows[id.0].sender.poll(self.now) {
            self.carry(id, 0, &segments);
        }
        self.arm(id, Timer::Pace);
        self.arm(id, Timer::Resend);
    }

    /// Segments come to the link `hop` of their way.
    fn carry(&mut self, id: FlowId, hop: usize, segments: &Segments) {
        let Some(&link) = self.flows[id.0].route.forward.get(hop) else {
            let happening = Happening::Data { hop, segments: *segments };
            return self.plan(self.now, id, happening);
        };
        let mut runs = std::mem::take(&mut self.runs);
        self.links[link.0].offer(self.now, &segments.burst(), &mut runs);
        for run in &runs {
            let happening = Happening::Data { hop: hop + 1, segments: segments.of_run(run) };
            self.plan(run.arrives, id, happening);
        }
        self.runs = runs;
    }

    /// An acknowledgement comes to the link `hop` of its way.
    fn carry_ack(&mut self, id: FlowId, hop: usize, ack: Ack) {
        let Some(&link) = self.flows[id.0].route.reverse.get(hop) else {
            return self.plan(self.now, id, Happening::Ack { hop, ack });
        };
        let mut runs = std::mem::take(&mut self.runs);
        self.links[link.0].offer(self.now, &Burst::packet(HEADER_BYTES), &mut runs);
        for run in &runs {
            self.plan(run.arrives, id, Happening::Ack { hop: hop + 1, ack });
        }
        self.runs = runs;
    }

    /// Plans a timer, unless it is planned for an earlier time: then it is planned again at that
    /// time.
    fn arm(&mut self, id: FlowId, timer: Timer) {
        let flow = &mut self.flows[id.0];
        let Some(at) = timer.of(flow, self.now) else { return };
        let at = at.max(self.now);
        let armed = &mut flow.armed[timer as usize];
        if armed.is_none_or(|armed| armed > at) {
            *armed = Some(at);
            self.plan(at, id, Happening::Timer(timer));
        }
    }

    fn plan(&mut self, at: Duration, flow: FlowId, happening: Happening) {
        self.planned += 1;
        self.events.push(Event { at, order: self.planned, flow, happening });
    }
}
