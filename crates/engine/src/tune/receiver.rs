//! The receiving side: looks at what comes, has the controller decide, holds the windows and asks
//! the sender for a rate.

use super::course::{News, SHARED, Seen, Teller};
use super::echoes::Echoes;
use super::incast::holds_windows;
use super::room::{Room, Side};
use super::streams::Known;
use super::trains::{Told, Trains};
use super::{
    COURSES_MAX, Glances, Knocker, LOOK, OPEN, Probing, SHARING_TIME, TELL_COURSE, set_window,
};
use crate::driver::Latch;
use crate::net::control::{Outbox, lock};
use crate::net::probe::{ProbeArrival, clock};
use crate::session::Session;
use bankfull_control::sobas::{Config, Decision, Observation, Sobas};
use bankfull_control::streams::{self, StreamTuner};
use bankfull_control::{Bytes, LimitSamples, Rate, StageTimes, StreamShares, bottleneck, pacing};
use bankfull_proto::wire::control::{Message, RateRequest, SenderReport, stage_times};
use bankfull_proto::wire::probe::Kind;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long to wait for the first one. (ours: a long round trip and a half, and its queue)
const PROBE_WAIT: Duration = Duration::from_millis(600);

/// Longer round trips are a clock that was set. (ours)
const RTT_MAX: Duration = Duration::from_secs(10);

/// Where datagrams end and so much data comes all the same, the path is not cut. (ours: more than
/// was on its way)
const CARRIED_DEAF: Bytes = Bytes::mib(64);

/// The clock was set when it moves by more than this between two ticks, as far as they are read
/// within so much of each other. (ours: the kernel slews a clock by 5 µs in that time at most)
const CLOCK_STEP: Duration = Duration::from_millis(1);
const CLOCK_READING: Duration = Duration::from_micros(500);

/// Where windows of running connections cannot be changed.
const OLD_KERNEL: &str = "this host's kernel, older than Linux 5.15, does not change the windows of \
                          running connections: many senders only take turns";

/// Steers the connections of a session that receives.
pub(crate) struct Steering<'a> {
    session: &'a Session,
    outbox: Outbox,
    teller: Teller<'a>,
    probing: Option<Probing>,
    sobas: Sobas,
    began: Instant,
    trains: Trains,
    /// Echoes that came, and when the last one did.
    echoes: Echoes,
    heard_at: Duration,
    /// Data that had come by then; `None` once it was told that none come any more.
    carried_then: Option<Bytes>,
    /// What the clock of probes is ahead of ours, and when it was set last.
    clock_ahead: Option<Duration>,
    clock_set_at: Option<Duration>,
    /// Looks at the sender's sockets between the last two reports of it, and at ours.
    sends: LimitSamples,
    reads: LimitSamples,
    reads_before: LimitSamples,
    /// What each connection has of the window.
    shares: StreamShares,
    room: Room,
    /// What finds the number of connections, where it may change.
    tuner: Option<StreamTuner>,
    /// It was told how fewer would do.
    is_advised: bool,
    /// Round trips since the last report.
    rtts: Vec<Duration>,
    /// What the trains told.
    capacity: Option<Rate>,
    /// What is held, of all connections together.
    held: Option<Decision>,
    /// The sender has been asked for its rate, and for as many connections.
    is_told: bool,
    /// Decisions that whoever runs the transfer on the far side has not been told.
    news: VecDeque<Decision>,
    counts: VecDeque<streams::Decision>,
    /// Windows are not held, nor were they since.
    is_open: bool,
    /// They are steered with those of other sessions for now.
    is_aside: bool,
    /// Whoever runs the transfer on the far side has not been told.
    aside_news: Option<News>,
    /// The largest segment of a connection.
    mss: u32,
    /// What the sender has told last.
    sight: SenderReport,
}

impl<'a> Steering<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        teller: Teller<'a>,
        probing: Option<Probing>,
    ) -> Self {
        // Without a way for datagrams there is nothing to wait for.
        let capacity_timeout = if probing.is_some() { PROBE_WAIT } else { Duration::ZERO };
        let rate_max = session.overrides.rate_max;
        let remembered = session.remembered;
        let config = Config { window_max: OPEN, capacity_timeout, rate_max, remembered };
        Self {
            session,
            outbox,
            teller,
            probing,
            sobas: Sobas::new(config),
            began: Instant::now(),
            trains: Trains::new(),
            echoes: Echoes::default(),
            heard_at: Duration::ZERO,
            carried_then: Some(Bytes(0)),
            clock_ahead: None,
            clock_set_at: None,
            sends: LimitSamples::default(),
            reads: LimitSamples::default(),
            reads_before: LimitSamples::default(),
            shares: StreamShares::default(),
            tuner: session.max_streams.map(|most| StreamTuner::new(session.wanted_streams(), most)),
            is_advised: false,
            room: Room::new(Side::Receive),
            rtts: Vec::new(),
            capacity: None,
            held: None,
            is_told: true,
            news: VecDeque::new(),
            counts: VecDeque::new(),
            is_open: true,
            is_aside: false,
            aside_news: None,
            mss: 0,
            sight: SenderReport::default(),
        }
    }

    /// Runs until the session is over.
    pub(crate) fn run(mut self, over: &Latch) {
        let mut knocker = Knocker::new(self.probing.as_ref().and_then(|probing| probing.door));
        let mut glances = Glances::default();
        while !over.wait(if self.is_aside { TELL_COURSE } else { LOOK }) {
            let now = self.began.elapsed();
            if self.stands_aside(now) {
                continue;
            }
            self.watch_clock(now);
            let rtt = self.listen(&mut knocker, now);
            if let Some(told) = self.trains.told(now, self.segment_data()) {
                self.learn(&told, now);
                glances.hurry();
            }
            if !glances.is_due(now, self.sobas.allows_sparse_sampling() && !self.is_deaf(now)) {
                if let Some(rtt) = rtt {
                    self.sobas.on_rtt_sample(rtt);
                    self.rtts.push(rtt);
                }
                continue;
            }
            let seen = self.look(now, rtt);
            self.notice_deafness(&seen);
            let decision = self.sobas.observe(&seen);
            self.decided(decision);
            self.count_streams(&seen);
            self.hold();
            self.rtts.extend(seen.rtt);
            self.tell(&seen);
        }
    }

    /// Whether the connections are steered with those of other sessions. Then nothing is decided
    /// here, but told how they do.
    fn stands_aside(&mut self, now: Duration) -> bool {
        let held = self.session.sharing.held();
        if held.is_some() != self.is_aside {
            self.is_aside = held.is_some();
            self.turn_aside(held.map(|(_, connections)| connections));
        }
        if self.is_aside {
            let seen = self.look(now, None);
            self.tell(&seen);
        }
        self.is_aside
    }

    /// Stands aside for so many connections together, or begins anew after that.
    fn turn_aside(&mut self, connections: Option<usize>) {
        self.held = None;
        self.news.clear();
        self.counts.clear();
        self.is_told = true;
        match connections {
            Some(connections) => {
                let reason =
                    format!("several copies share the interface: {connections} connections in all");
                if self.teller.is_near() {
                    self.teller.shared(reason, self.window());
                } else {
                    self.aside_news = Some(News { reason, streams: None });
                }
                if !holds_windows() {
                    self.teller.remark(&self.outbox, OLD_KERNEL);
                }
            }
            None => {
                let rate_max = self.session.overrides.rate_max;
                let (window_max, capacity_timeout) = (OPEN, Duration::ZERO);
                self.sobas =
                    Sobas::new(Config { window_max, capacity_timeout, rate_max, remembered: None });
            }
        }
    }

    /// Notices when the clock of probes is set: round trips that began before would be wrong.
    fn watch_clock(&mut self, now: Duration) {
        let from = self.began.elapsed();
        let clock = clock();
        let to = self.began.elapsed();
        // Else we were not running in between.
        if to - from < CLOCK_READING {
            let ahead = clock.saturating_sub(to);
            let before = self.clock_ahead.replace(ahead).unwrap_or(ahead);
            if ahead.abs_diff(before) > CLOCK_STEP {
                self.clock_set_at = Some(now);
            }
        }
    }

    /// How long an echo may take.
    fn patience(&self) -> Duration {
        PROBE_WAIT.max(self.sobas.min_rtt() * 4)
    }

    /// Whether no datagrams get through, or no longer.
    fn is_deaf(&self, now: Duration) -> bool {
        self.probing.is_none() || now > self.heard_at + self.patience()
    }

    /// Sends the next datagram, and takes those that came: the round trip that the last one tells.
    fn listen(&mut self, knocker: &mut Knocker, now: Duration) -> Option<Duration> {
        let Probing { line, .. } = self.probing.as_mut()?;
        let is_known = knocker.look(line, now);
        if is_known {
            let _ = line.send_probe();
        }
        if let Some(door) = knocker.unheard(is_known, now) {
            self.teller.unheard(door);
        }
        let arrived: Vec<ProbeArrival> = line.arrivals().collect();
        arrived.iter().fold(None, |rtt, arrived| self.take(arrived, now).or(rtt))
    }

    /// Tells once when datagrams do not get through any more, but data does.
    fn notice_deafness(&mut self, seen: &Observation) {
        let Some(then) = self.carried_then else { return };
        if !self.is_deaf(seen.now) {
            self.carried_then = Some(seen.received);
        } else if self.echoes.count() > 0 && seen.received.0 > then.0 + CARRIED_DEAF.0 {
            self.carried_then = None;
            let line = self.probing.as_ref().and_then(|probing| probing.line.address());
            let from = line.map(|address| format!(" from {address}")).unwrap_or_default();
            let deaf = format!(
                "nothing comes back over UDP{from} any more: the path is judged by TCP alone; to \
                 have it measured, let UDP through for as long as a copy takes"
            );
            self.teller.remark(&self.outbox, &deaf);
        }
    }

    /// What a full segment of the path carries.
    fn segment_data(&self) -> Bytes {
        let address = self.probing.as_ref().and_then(|probing| probing.line.address());
        match address.map(|address| address.ip().to_canonical()) {
            Some(IpAddr::V6(_)) => pacing::DEFAULT_MSS_V6,
            _ => pacing::DEFAULT_MSS,
        }
    }

    /// Takes what the trains have told.
    fn learn(&mut self, told: &Told, now: Duration) {
        match *told {
            Told::Rate(rate) => {
                self.capacity = Some(rate);
                let decision = self.sobas.on_capacity(now, rate);
                self.decided(decision);
            }
            // Trains count as data: no more of them than the user wants.
            Told::Others(packets) if self.session.overrides.rate_max.is_none() => {
                let wanted = Message::TrainRequest(u32::try_from(packets).unwrap_or(u32::MAX));
                let is_asked = self.outbox.try_post(&wanted);
                self.trains.asked_for(packets, is_asked);
            }
            Told::Others(_) => {}
        }
    }

    /// A packet that came; the round trip that it tells.
    fn take(&mut self, arrived: &ProbeArrival, now: Duration) -> Option<Duration> {
        let probe = &arrived.probe;
        match probe.kind {
            Kind::Echo => {
                self.echoes.take(probe.number);
                self.heard_at = now;
                let sent = Duration::from_micros(probe.echoed_timestamp_us);
                let rtt = arrived.at.checked_sub(sent)?;
                let is_set = self.clock_set_at.is_some_and(|at| now < at + self.patience());
                (!is_set && !rtt.is_zero() && rtt < RTT_MAX).then_some(rtt)
            }
            Kind::Train => {
                self.trains.take(arrived, now);
                None
            }
            Kind::Register | Kind::Probe => None,
        }
    }

    fn look(&mut self, now: Duration, rtt: Option<Duration>) -> Observation {
        let first_paused = self.session.first_paused().unwrap_or(u32::MAX);
        let (shares, held) = (&self.shares, self.window());
        let (mut received, mut tcp_min_rtt) = (Vec::new(), None::<Duration>);
        self.mss = 0;
        let carried = self.session.sample_streams(|number, socket, info| {
            self.mss = self.mss.max(info.snd_mss);
            received.push((number, info.bytes_received.unwrap_or_default()));
            let window = held.map(|held| shares.window(number, held));
            let most = window.unwrap_or(Bytes(info.rcv_space.into())).0 / 2;
            if number < first_paused {
                self.reads.add(socket.unread_bytes() > most);
            }
            let shortest = info.min_rtt.filter(|rtt| !rtt.is_zero());
            tcp_min_rtt = tcp_min_rtt.into_iter().chain(shortest).min();
        });
        let stretch = SHARING_TIME.max(self.sobas.min_rtt() * 2);
        let rate = self.held.and_then(|held| held.pacing);
        self.shares.observe(now, stretch, rate, &received);
        let reads_before = self.reads_before;
        self.reads_before = self.reads;
        if let Some(sight) = lock(&self.session.feedback.sight).take() {
            // It comes at every other look only.
            self.sends = looks_of(&sight).since(looks_of(&self.sight));
            self.sight = sight;
        }
        let rtt_there = self.sight.rtt_us.map(Duration::from_micros);
        let rtt_there = rtt_there.filter(|&rtt| self.is_deaf(now) && rtt < RTT_MAX);
        Observation {
            now,
            streams: self.session.active_stream_count(),
            received: Bytes(carried.received),
            // Where no datagrams get through, TCP's round trip is the next best.
            rtt: rtt.or(rtt_there),
            tcp_min_rtt,
            probes_lost: self.echoes.lost(),
            retransmits: self.sight.retransmits,
            mss: Bytes(self.mss.into()),
            bottleneck: bottleneck(self.sends, self.reads.since(reads_before)),
        }
    }

    /// Asks how many connections are to carry data, and tells once if their windows are too small.
    fn count_streams(&mut self, seen: &Observation) {
        let known = Known {
            sobas: &self.sobas,
            seen,
            held: self.held.as_ref(),
            capacity: self.capacity,
            rate_max: self.session.overrides.rate_max,
            active_streams: self.shares.active_count(),
            sight: &self.sight,
            samples: [looks_of(&self.sight), self.reads],
            busy: self.teller.busy(),
            max_inflight_bytes: self.room.max_inflight_bytes(),
        };
        let is_new = self.session.remembered.is_none();
        if !self.is_advised
            && let Some(advice) = known.advice(self.session.wanted_streams(), is_new)
        {
            self.is_advised = true;
            self.teller.remark(&self.outbox, &advice);
        }
        let Some(tuner) = &mut self.tuner else { return };
        let decision = known.ask(tuner);
        let usual = tuner.bbr();
        if let Some(decision) = decision {
            self.session.set_wanted_streams(decision.streams);
            self.is_told = false;
            self.teller.counted(&decision, self.held.as_ref(), self.window());
            if !self.teller.is_near() && self.counts.len() < COURSES_MAX {
                self.counts.push_back(decision);
            }
            let held = self.sobas.on_loss_tolerant_cc(seen.now, usual);
            self.decided(held);
        }
    }

    fn decided(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        self.held = Some(decision);
        self.is_told = false;
        self.teller.decided(&decision, self.window());
        if !self.teller.is_near() && self.news.len() < COURSES_MAX {
            self.news.push_back(decision);
        }
    }

    /// The window that is held, if any is.
    fn window(&self) -> Option<Bytes> {
        let shared = self.session.sharing.held().map(|(window, _)| Bytes(window));
        shared.or(self.held.map(|held| held.window).filter(|window| *window < OPEN))
    }

    /// Where the controller stands.
    fn state(&self) -> &'static str {
        let own = self.held.map_or("", |held| held.state.name());
        if self.is_aside { SHARED } else { own }
    }

    /// Tells how it goes, now and then, and decisions at once.
    fn tell(&mut self, look: &Observation) {
        let is_due = self.teller.is_due();
        if !is_due && self.news.is_empty() && self.counts.is_empty() {
            return;
        }
        let mut seen = Seen {
            streams: self.session.active_stream_count(),
            carried: look.received.0,
            rtts: std::mem::take(&mut self.rtts),
            probes: self.echoes.count(),
            probes_lost: look.probes_lost,
            capacity: self.capacity.map(Rate::bytes_per_sec),
            window: self.window().map(|window| window.0),
            granted: self.sight.window,
            bytes_per_sec: self.held.and_then(|held| held.pacing).map(Rate::bytes_per_sec),
            retransmits: Some(self.sight.retransmits),
            buffered_peak: self.session.buffer_pool.status(),
            stages: [
                self.sight.stage_nanos.map_or_else(StageTimes::default, stage_times),
                self.teller.stages(),
            ],
            sends: looks_of(&self.sight),
            reads: self.reads,
        };
        if self.teller.is_near() {
            return self.teller.sample(&seen);
        }
        if self.news.is_empty() && self.counts.is_empty() {
            let (state, news) = (self.state(), self.aside_news.take());
            self.teller.post(&self.outbox, &mut seen, state, news);
        }
        while let Some(decision) = self.counts.front() {
            let (state, news) = (self.state(), News::of(decision));
            if !self.teller.post(&self.outbox, &mut seen, state, Some(news)) {
                return;
            }
            self.counts.pop_front();
        }
        while let Some(decision) = self.news.front() {
            seen.window = Some(decision.window).filter(|window| *window < OPEN).map(|w| w.0);
            seen.bytes_per_sec = decision.pacing.map(Rate::bytes_per_sec);
            let why = News { reason: decision.reason.to_string(), streams: None };
            let state = decision.state.name();
            if !self.teller.post(&self.outbox, &mut seen, state, Some(why)) {
                return;
            }
            self.news.pop_front();
        }
    }

    /// The rate to ask for. Where windows hold the path, it need not.
    fn pace(&self) -> Option<Rate> {
        let rate = self.held?.pacing?;
        let is_wanted = self.session.overrides.rate_max.is_some();
        let by_windows = self.window().is_some() && !is_wanted;
        let count = self.session.wanted_streams();
        Some(if by_windows { pacing::window_limited_pacing(rate, count) } else { rate })
    }

    /// Asks for the rate, and sets the windows: again at every look, for the kernel raises them by
    /// itself.
    fn hold(&mut self) {
        if self.session.sharing.held().is_some() {
            // Since this look began.
            return;
        }
        if !self.is_told {
            let tuner = self.tuner.as_ref();
            let bytes_per_sec = self.pace().map(Rate::bytes_per_sec);
            let streams = tuner.map(StreamTuner::streams);
            let use_bbr = tuner.map(|tuner| tuner.bbr().is_some());
            let pace = Message::RateRequest(RateRequest { bytes_per_sec, streams, use_bbr });
            self.is_told = self.outbox.try_post(&pace);
        }
        let Some(held) = self.held else { return };
        // Once they are open they stay so.
        let is_open = held.window >= OPEN;
        if is_open && self.is_open {
            return;
        }
        self.is_open = is_open;
        let (shares, room) = (&self.shares, &mut self.room);
        self.session.for_each_stream(|number, socket| {
            let mut window = held.window;
            if !is_open {
                window = shares.window(number, held.window);
                room.give(number, socket, window);
            }
            set_window(socket, window, self.mss);
        });
    }
}

/// How often the sender has looked, and how often it had nothing to send.
fn looks_of(sight: &SenderReport) -> LimitSamples {
    LimitSamples { count: sight.samples, limited: sight.app_limited }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NoEvents;
    use crate::overrides::Overrides;
    use crate::session::SessionStats;
    use bankfull_control::Bottleneck;

    #[test]
    fn who_holds_it_up_is_known_between_two_reports_of_the_sender_too() {
        let session = Session::new(Overrides::default(), 1);
        let stats = SessionStats::new(&NoEvents, Instant::now());
        let teller = Teller::new(&stats, true);
        let mut steering = Steering::new(&session, Outbox::default(), teller, None);
        let mut held = |sight: Option<(u64, u64)>| {
            if let Some((samples, app_limited)) = sight {
                session.feedback.on_sight(SenderReport {
                    samples,
                    app_limited,
                    ..SenderReport::default()
                });
            }
            steering.look(Duration::from_millis(10), None).bottleneck
        };
        assert_eq!(held(None), Bottleneck::Path);
        assert_eq!([held(Some((8, 8))), held(None), held(None)], [Bottleneck::Sender; 3]);
        assert_eq!([held(Some((16, 8))), held(None)], [Bottleneck::Path; 2]);
    }
}
