//! Link in operation.

use super::config::LinkConfig;
use super::line::{Line, Transmission};
use super::packets::{Arrival, Ecn, LinkCounts, Packets};
use super::propagation::Propagation;
use super::queue::{HoldingQueue, Item, Pie, QueueConfig, QueuedSegment, Verdict};
use super::rate::TokenBucket;
use super::time::{PICOS_PER_SEC, Picos, duration, picos};
use crate::cross_traffic::{CROSS_PACKET_BYTES, CrossPackets};
use crate::loss::LossProcess;
use bankfull_control::Bytes;
use std::time::Duration;

/// Run that the next segment may extend.
#[derive(Debug, Clone, Copy)]
struct OpenRun {
    /// Number of the offered packets.
    item: u64,
    /// Start of the transmission of its first segment.
    start: Picos,
    /// Arrival of its last segment.
    arrival: Picos,
}

/// Link in operation. Times must not decrease.
#[derive(Debug, Clone)]
pub struct Link<T> {
    config: LinkConfig,
    policer: Option<TokenBucket>,
    pie: Option<Pie>,
    /// Packets that wait; `None` if all is decided at arrival.
    queue: Option<HoldingQueue<T>>,
    line: Option<Line>,
    loss_process: LossProcess,
    propagation: Propagation,
    cross_packets: CrossPackets,
    is_cut: bool,
    counts: LinkCounts,
    /// Time at which the first of the held packets arrived.
    busy_since: Picos,
    /// Packets that were offered.
    items: u64,
    open_run: Option<OpenRun>,
    arrivals: Vec<Arrival<T>>,
}

impl<T: Clone> Link<T> {
    /// Creates a link with an empty queue. The seed determines all that is random.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        // Separate random sequences, so that cross traffic does not change which segments are
        // lost.
        let pie = match config.queue {
            QueueConfig::Pie(pie) => Some(Pie::new(pie, seed ^ 0x0b1e)),
            _ => None,
        };
        Self {
            policer: config.policer.as_ref().map(TokenBucket::new),
            pie,
            queue: HoldingQueue::new(config.queue, config.ecn, config.thins_acks),
            line: Line::new(&config, seed),
            loss_process: LossProcess::new(config.loss, seed),
            propagation: Propagation::new(seed ^ 0x1abe1),
            cross_packets: CrossPackets::new(config.cross, seed ^ 0x5eed),
            config,
            is_cut: false,
            counts: LinkCounts::default(),
            busy_since: 0,
            items: 0,
            open_run: None,
            arrivals: Vec::new(),
        }
    }

    /// Returns the parameters of the link.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the counters of the link.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Cuts or restores the link. A cut link loses all segments.
    pub fn set_cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// Returns whether the link is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the bytes in the queue.
    pub fn backlog(&mut self, now: Duration) -> Bytes {
        let now = picos(now);
        self.run_to(now);
        self.backlog_at(now)
    }

    /// Returns the waiting time of a packet that arrives now, at the present rate.
    pub fn queueing_delay(&mut self, now: Duration) -> Duration {
        let now = picos(now);
        self.run_to(now);
        let held = self.queue.as_ref().map_or(0, HoldingQueue::bytes);
        let Some(line) = &mut self.line else { return Duration::ZERO };
        duration(line.idle_at().saturating_sub(now)) + line.time_for(now, held)
    }

    /// Offers packets to the port. Later, [`Self::take_arrivals`] returns those that arrive; others
    /// were dropped or lost.
    pub fn offer(&mut self, now: Duration, packets: Packets<T>) {
        let now = picos(now);
        self.run_to(now);
        self.items += 1;
        self.counts.offered += u64::from(packets.burst.segments);
        let mut kept = 0;
        for segment in 0..packets.burst.segments {
            let bytes = packets.burst.bytes_of(segment);
            if !self.is_admitted(now, bytes) {
                continue;
            }
            kept += 1;
            if self.queue.is_none() {
                self.decide_at_arrival(now, &packets, segment, bytes);
            }
        }
        if kept > 0 && self.queue.is_some() {
            let end = packets.burst.segments;
            // Segments of a burst are alike, so that it does not matter which ones were dropped.
            let (number, first, cross_bytes) = (self.items, end - kept, 0);
            let packets = Some(packets);
            self.hold(Item { number, packets, cross_bytes, arrived: now, first, end });
            self.run_to(now);
        }
    }

    /// Returns when [`Self::advance`] must be called.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Duration> {
        let has_packets = self.queue.as_ref().is_some_and(|queue| queue.bytes() > 0);
        let idle_at = self.line.as_ref().map_or(0, Line::idle_at);
        has_packets.then(|| duration(idle_at))
    }

    /// Sends the segments whose transmission begins by now.
    pub fn advance(&mut self, now: Duration) {
        self.run_to(picos(now));
    }

    /// Moves arrivals out, in the order of transmission.
    pub fn take_arrivals(&mut self, arrivals: &mut Vec<Arrival<T>>) {
        arrivals.append(&mut self.arrivals);
    }

    /// Returns whether a packet passes the MTU and the policer.
    fn is_admitted(&mut self, now: Picos, bytes: u32) -> bool {
        if self.config.mtu_at(duration(now)).is_some_and(|mtu| bytes > mtu) {
            self.counts.too_long += 1;
            return false;
        }
        let conforms = self.policer.as_mut().is_none_or(|policer| policer.take(now, bytes));
        self.counts.policed += u64::from(!conforms);
        conforms
    }

    /// Sends or drops an arriving segment.
    fn decide_at_arrival(&mut self, now: Picos, packets: &Packets<T>, segment: u32, bytes: u32) {
        let mut is_marked = packets.ecn == Ecn::Marked;
        let can_be_marked = self.config.ecn && packets.ecn != Ecn::NotCapable;
        match self.judge(now, can_be_marked) {
            Verdict::Pass => {}
            Verdict::Mark => is_marked = true,
            Verdict::Drop => return self.counts.early_dropped += 1,
        }
        let Some(sent) = self.enqueue(now, bytes) else {
            self.counts.overflowed += 1;
            return;
        };
        self.counts.marked += u64::from(is_marked && packets.ecn != Ecn::Marked);
        self.send(packets, self.items, segment, sent, is_marked);
    }

    /// Returns the verdict of the active queue management at arrival.
    fn judge(&mut self, now: Picos, can_be_marked: bool) -> Verdict {
        let Some(pie) = &mut self.pie else { return Verdict::Pass };
        let Some(line) = &mut self.line else { return Verdict::Pass };
        while pie.next_update() <= now {
            pie.update();
        }
        pie.judge(line.backlog(now).0, can_be_marked)
    }

    /// Queues a segment; returns its transmission, or `None` if the queue is full.
    fn enqueue(&mut self, now: Picos, bytes: u32) -> Option<Transmission> {
        let Some(line) = &mut self.line else { return Some(Transmission { start: now, end: now }) };
        if line.backlog(now).0 + u64::from(bytes) > self.config.buffer.0 {
            return None;
        }
        let sent = line.transmit(now, bytes);
        if let Some(pie) = &mut self.pie {
            pie.on_queued(now, sent.start);
        }
        Some(sent)
    }

    /// Returns the bytes in the queue, including the packet in transmission.
    fn backlog_at(&mut self, now: Picos) -> Bytes {
        let held = self.queue.as_ref().map_or(0, HoldingQueue::bytes);
        Bytes(held) + self.line.as_mut().map_or(Bytes(0), |line| line.backlog(now))
    }

    /// Passes a transmitted segment to the line, which may lose it.
    fn send(
        &mut self,
        packets: &Packets<T>,
        item: u64,
        segment: u32,
        sent: Transmission,
        is_marked: bool,
    ) {
        if self.is_cut || self.loss_process.is_next_lost() {
            self.counts.lost += 1;
            return;
        }
        self.counts.delivered += 1;
        self.counts.delivered_bytes += Bytes(u64::from(packets.burst.bytes_of(segment)));
        let arrival = self.propagation.arrival(&self.config, sent.end);
        self.arrive(packets, item, segment, sent, arrival, is_marked);
        if self.propagation.is_next_duplicated(&self.config.impairments) {
            self.counts.duplicated += 1;
            let (payload, at) = (packets.payload.clone(), duration(arrival));
            self.arrivals.push(Arrival { payload, first: segment, count: 1, at, is_marked });
            self.open_run = None;
        }
    }

    /// Adds an arrival, or extends the last one.
    fn arrive(
        &mut self,
        packets: &Packets<T>,
        item: u64,
        segment: u32,
        sent: Transmission,
        arrival: Picos,
        is_marked: bool,
    ) {
        let quantum = picos(self.config.quantum);
        if let (Some(open), Some(run)) = (&mut self.open_run, self.arrivals.last_mut())
            && open.item == item
            && run.first + run.count == segment
            && run.count < packets.max_run
            && run.is_marked == is_marked
            && sent.end.saturating_sub(open.start) <= quantum
            && (open.arrival..=open.arrival.saturating_add(quantum)).contains(&arrival)
        {
            run.count += 1;
            run.at = duration(arrival);
            open.arrival = arrival;
            return;
        }
        self.open_run = Some(OpenRun { item, start: sent.start, arrival });
        let (payload, at) = (packets.payload.clone(), duration(arrival));
        self.arrivals.push(Arrival { payload, first: segment, count: 1, at, is_marked });
    }

    /// Processes cross traffic and transmissions that begin by now.
    fn run_to(&mut self, now: Picos) {
        loop {
            let cross = self.cross_packets.next_before(now as f64 / PICOS_PER_SEC);
            let cross = cross.map(|at| (at * PICOS_PER_SEC) as Picos);
            self.send_held(cross.unwrap_or(now));
            let Some(at) = cross else { return };
            self.offer_cross_packet(at);
        }
    }

    fn offer_cross_packet(&mut self, at: Picos) {
        if self.queue.is_some() {
            let (number, cross_bytes) = (u64::MAX, CROSS_PACKET_BYTES);
            let (first, end, arrived) = (0, 1, at);
            return self.hold(Item { number, packets: None, cross_bytes, arrived, first, end });
        }
        let is_dropped = self.judge(at, false) == Verdict::Drop;
        match is_dropped || self.enqueue(at, CROSS_PACKET_BYTES).is_none() {
            false => self.counts.cross_sent += 1,
            true => self.counts.cross_overflowed += 1,
        }
    }

    fn hold(&mut self, item: Item<T>) {
        let now = item.arrived;
        let in_transmission = self.line.as_mut().map_or(0, |line| line.backlog(now).0);
        let buffer = self.config.buffer.0.saturating_sub(in_transmission);
        if let Some(queue) = &mut self.queue {
            if queue.bytes() == 0 {
                self.busy_since = now;
            }
            queue.enqueue(item, buffer, &mut self.counts);
        }
    }

    /// Sends held segments when the line becomes idle by now.
    ///
    /// Segments that arrived together follow each other without a pause, for up to a quantum.
    fn send_held(&mut self, now: Picos) {
        let quantum = picos(self.config.quantum);
        let mut batch: Option<(u64, Picos)> = None;
        while let Some(queue) = &mut self.queue
            && queue.bytes() > 0
        {
            let at = self.line.as_ref().map_or(0, Line::idle_at).max(self.busy_since);
            let is_in_batch =
                batch.is_some_and(|(item, end)| queue.next_item() == Some(item) && at <= end);
            if at > now && !is_in_batch {
                return;
            }
            let Some(segment) = queue.dequeue(at, &mut self.counts) else { return };
            if batch.is_none_or(|(item, end)| item != segment.item || at > end) {
                batch = Some((segment.item, at + quantum));
            }
            self.transmit_held(at, &segment);
        }
    }

    fn transmit_held(&mut self, at: Picos, segment: &QueuedSegment<T>) {
        let sent = match &mut self.line {
            Some(line) => line.transmit(at, segment.bytes),
            None => Transmission { start: at, end: at },
        };
        let Some(packets) = &segment.packets else { return self.counts.cross_sent += 1 };
        self.counts.marked += u64::from(segment.is_marked && packets.ecn != Ecn::Marked);
        self.send(packets, segment.item, segment.segment, sent, segment.is_marked);
    }
}
