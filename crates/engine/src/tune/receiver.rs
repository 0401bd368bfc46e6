//! The receiving side: looks at what comes, has the controller decide, holds the windows and asks
//! the sender for a rate.

use super::course::{Seen, Teller, post};
use super::room::{Room, Side};
use super::{
    COURSES_MAX, Glances, Knocker, LOOK, Probing, SHARING_TIME, TRAINS_ASKED_MAX, set_window,
};
use crate::driver::Latch;
use crate::net::control::{Outbox, lock};
use crate::net::probe::{Arrived, clock};
use crate::session::Session;
use bankfull_control::sobas::capacity::{self, Arrival, Dispersion, TRAIN_PACKETS, TRAINS};
use bankfull_control::sobas::{Config, Decision, Observation, Sobas};
use bankfull_control::{Bytes, Looks, Rate, Shares, StageTimes, holder, pacing};
use bankfull_proto::wire::control::{Message, Pace, Sight, stage_times};
use bankfull_proto::wire::probe::Kind;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The widest window of TCP: 65 535 bytes, scaled by 14 (RFC 7323 §2.3).
const WINDOW_MAX: Bytes = Bytes(65_535 << 14);

/// How long to wait for more of the trains after what came last. (ours: a whole one at 20 Mbit/s)
const TRAINS_WAIT: Duration = Duration::from_millis(30);

/// How long to wait for the first one. (ours: a long round trip and a half, and its queue)
const PROBE_WAIT: Duration = Duration::from_millis(600);

/// Where a train came more slowly, no others are asked for. (ours: at 50 Mbit/s five take 53 ms
/// of the line, which is as much as they may cost)
const AGAIN_RATE_MIN: Rate = Rate::from_bytes_per_sec(6_250_000);

/// Longer round trips are a clock that was set. (ours)
const RTT_MAX: Duration = Duration::from_secs(10);

/// The clock was set when it moves by more than this between two ticks, as far as they are read
/// within so much of each other. (ours: the kernel slews a clock by 5 µs in that time at most)
const CLOCK_STEP: Duration = Duration::from_millis(1);
const CLOCK_READING: Duration = Duration::from_micros(500);

/// Steers the connections of a session that receives.
pub(crate) struct Steering<'a> {
    session: &'a Session,
    outbox: Outbox,
    teller: Teller<'a>,
    probing: Option<Probing>,
    sobas: Sobas,
    began: Instant,
    trains: Trains,
    /// Echoes that came, the highest number among them, and when the last one did.
    echoes: u64,
    echo_max: Option<u64>,
    heard_at: Duration,
    /// What the clock of probes is ahead of ours, and when it was set last.
    clock_ahead: Option<Duration>,
    clock_set_at: Option<Duration>,
    reads: Looks,
    /// What each connection has of the window.
    shares: Shares,
    room: Room,
    /// Round trips since the last report.
    rtts: Vec<Duration>,
    /// What the trains told.
    capacity: Option<Rate>,
    /// What is held, of all connections together.
    held: Option<Decision>,
    /// The sender has been asked for its rate.
    is_told: bool,
    /// Decisions that whoever runs the transfer on the far side has not been told.
    news: VecDeque<Decision>,
    /// Windows are not held, nor were they since.
    is_open: bool,
    /// The largest segment of a connection.
    segment: u32,
    /// The counts at the end of the last look.
    sight: Sight,
    last: (Looks, Looks),
}

/// The packet trains of a session.
struct Trains {
    /// How many packets each has, and the number of the first.
    packets: usize,
    first: u64,
    arrivals: [Vec<Arrival>; TRAINS],
    /// When the last packet came.
    latest: Option<Duration>,
    /// The last packet of the last train has come.
    is_whole: bool,
    is_over: bool,
    /// How often others were asked for.
    asked: u32,
}

/// What trains tell together.
enum Told {
    /// The rate of data.
    Rate(Rate),
    /// Nothing: others are needed, of so many packets.
    Others(u32),
}

impl<'a> Steering<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        teller: Teller<'a>,
        probing: Option<Probing>,
    ) -> Self {
        // Without a way for datagrams there is nothing to wait for.
        let probe_time = if probing.is_some() { PROBE_WAIT } else { Duration::ZERO };
        let rate_max = session.overrides.rate_max;
        let remembered = session.remembered;
        let config = Config { window_max: WINDOW_MAX, probe_time, rate_max, remembered };
        Self {
            session,
            outbox,
            teller,
            probing,
            sobas: Sobas::new(config),
            began: Instant::now(),
            trains: Trains::new(0, TRAIN_PACKETS),
            echoes: 0,
            echo_max: None,
            heard_at: Duration::ZERO,
            clock_ahead: None,
            clock_set_at: None,
            reads: Looks::default(),
            shares: Shares::default(),
            room: Room::new(Side::Receive),
            rtts: Vec::new(),
            capacity: None,
            held: None,
            is_told: false,
            news: VecDeque::new(),
            is_open: true,
            segment: 0,
            sight: Sight::default(),
            last: Default::default(),
        }
    }

    /// Runs until the session is over.
    pub(crate) fn run(mut self, over: &Latch) {
        let mut knocker = Knocker::new(self.probing.as_ref().and_then(|probing| probing.door));
        let mut glances = Glances::default();
        while !over.wait(LOOK) {
            let now = self.began.elapsed();
            self.watch_clock(now);
            let rtt = self.listen(&mut knocker, now);
            if self.has_learnt(now) {
                glances.hurry();
            }
            if !glances.is_due(now, self.sobas.looks_seldom() && !self.is_deaf(now)) {
                if let Some(rtt) = rtt {
                    self.sobas.on_round_trip(rtt);
                    self.rtts.push(rtt);
                }
                continue;
            }
            let seen = self.look(now, rtt);
            let decision = self.sobas.observe(&seen);
            self.decided(decision);
            self.hold();
            self.rtts.extend(seen.rtt);
            self.tell(&seen);
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
        PROBE_WAIT.max(self.sobas.rtt_min() * 4)
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
            let _ = line.probe();
        }
        if let Some(door) = knocker.unheard(is_known, now) {
            self.teller.unheard(door);
        }
        let arrived: Vec<Arrived> = line.arrivals().collect();
        arrived.iter().fold(None, |rtt, arrived| self.take(arrived, now).or(rtt))
    }

    /// Whether the trains have just told the capacity.
    fn has_learnt(&mut self, now: Duration) -> bool {
        match self.trains.told(now) {
            Some(Told::Rate(rate)) => {
                self.capacity = Some(rate);
                let decision = self.sobas.on_capacity(now, rate);
                self.decided(decision);
                return true;
            }
            // Trains count as data: no more of them than the user wants.
            Some(Told::Others(packets)) if self.session.overrides.rate_max.is_none() => {
                self.outbox.post_if_room(&Message::Trains(packets));
            }
            Some(Told::Others(_)) | None => {}
        }
        false
    }

    /// A packet that came; the round trip that it tells.
    fn take(&mut self, arrived: &Arrived, now: Duration) -> Option<Duration> {
        let probe = &arrived.probe;
        match probe.kind {
            Kind::Echo => {
                self.echoes += 1;
                self.echo_max = self.echo_max.max(Some(probe.number));
                self.heard_at = now;
                let sent = Duration::from_micros(probe.echoed_clock_us);
                let rtt = arrived.at.checked_sub(sent)?;
                let is_set = self.clock_set_at.is_some_and(|at| now < at + self.patience());
                (!is_set && !rtt.is_zero() && rtt < RTT_MAX).then_some(rtt)
            }
            Kind::Train => {
                self.trains.take(arrived, now);
                None
            }
            Kind::Knock | Kind::Probe => None,
        }
    }

    fn look(&mut self, now: Duration, rtt: Option<Duration>) -> Observation {
        let count = self.session.stream_count();
        let (shares, held) = (&self.shares, self.window());
        let (mut received, mut rtt_tcp) = (Vec::new(), None::<Duration>);
        self.segment = 0;
        let carried = self.session.look(|number, socket, info| {
            self.segment = self.segment.max(info.snd_mss);
            received.push((number, info.bytes_received.unwrap_or_default()));
            let window = held.map(|held| shares.window(number, held));
            let most = window.unwrap_or(Bytes(info.rcv_space.into())).0 / 2;
            self.reads.add(socket.unread() > most);
            let shortest = info.min_rtt.filter(|rtt| !rtt.is_zero());
            rtt_tcp = rtt_tcp.into_iter().chain(shortest).min();
        });
        let stretch = SHARING_TIME.max(self.sobas.rtt_min() * 2);
        let rate = self.held.and_then(|held| held.pacing);
        self.shares.look(now, stretch, rate, &received);
        if let Some(sight) = lock(&self.session.steered.sight).take() {
            self.sight = sight;
        }
        let sends = Looks { count: self.sight.looks, held: self.sight.idle };
        let rtt_there = self.sight.rtt_us.map(Duration::from_micros);
        let rtt_there = rtt_there.filter(|&rtt| self.is_deaf(now) && rtt < RTT_MAX);
        let seen = Observation {
            now,
            streams: count as u32,
            received: Bytes(carried.received),
            // Where no datagrams get through, TCP's round trip is the next best.
            rtt: rtt.or(rtt_there),
            rtt_tcp,
            probes_lost: self.echo_max.map_or(0, |max| max.saturating_sub(self.echoes - 1)),
            retransmits: self.sight.retransmits,
            holder: holder(sends.since(self.last.0), self.reads.since(self.last.1)),
        };
        self.last = (sends, self.reads);
        seen
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
        self.held.map(|held| held.window).filter(|window| *window < WINDOW_MAX)
    }

    /// Tells how it goes, now and then, and decisions at once.
    fn tell(&mut self, look: &Observation) {
        let is_due = self.teller.is_due();
        if !is_due && self.news.is_empty() {
            return;
        }
        let mut seen = Seen {
            streams: self.session.stream_count() as u32,
            carried: look.received.0,
            rtts: std::mem::take(&mut self.rtts),
            probes: self.echoes + look.probes_lost,
            probes_lost: look.probes_lost,
            capacity: self.capacity.map(Rate::bytes_per_sec),
            window: self.window().map(|window| window.0),
            granted: self.sight.window,
            bytes_per_sec: self.held.and_then(|held| held.pacing).map(Rate::bytes_per_sec),
            retransmits: Some(self.sight.retransmits),
            stages: [
                self.sight.stage_nanos.map_or_else(StageTimes::default, stage_times),
                self.teller.stages(),
            ],
            sends: self.last.0,
            reads: self.reads,
        };
        if self.teller.is_near() {
            return self.teller.sample(&seen);
        }
        if self.news.is_empty() {
            post(&self.outbox, &seen, self.held.as_ref(), false);
        }
        while let Some(decision) = self.news.front() {
            seen.window = Some(decision.window).filter(|window| *window < WINDOW_MAX).map(|w| w.0);
            seen.bytes_per_sec = decision.pacing.map(Rate::bytes_per_sec);
            if !post(&self.outbox, &seen, Some(decision), true) {
                return;
            }
            self.news.pop_front();
            seen.rtts.clear();
        }
    }

    /// Asks for the rate, and sets the windows: again at every look, for the kernel raises them by
    /// itself.
    fn hold(&mut self) {
        let Some(held) = self.held else { return };
        if !self.is_told {
            let bytes_per_sec = held.pacing.map(Rate::bytes_per_sec);
            self.is_told = self.outbox.post_if_room(&Message::Pace(Pace { bytes_per_sec }));
        }
        // Once they are open they stay so.
        let is_open = held.window >= WINDOW_MAX;
        if is_open && self.is_open {
            return;
        }
        self.is_open = is_open;
        let (shares, room) = (&self.shares, &mut self.room);
        self.session.each_stream(|number, socket| {
            let mut window = held.window;
            if !is_open {
                window = shares.window(number, held.window);
                room.give(number, socket, window);
            }
            set_window(socket, window, self.segment);
        });
    }
}

impl Trains {
    fn new(first: u64, packets: usize) -> Self {
        let arrivals = Default::default();
        Self { packets, first, arrivals, latest: None, is_whole: false, is_over: false, asked: 0 }
    }

    fn take(&mut self, arrived: &Arrived, now: Duration) {
        let train = arrived.probe.echoed_number.checked_sub(self.first);
        let train = train.and_then(|train| usize::try_from(train).ok());
        let is_last = arrived.probe.number.checked_add(1) == Some(arrived.probe.echoed_clock_us);
        let is_whole = is_last && train == Some(TRAINS - 1);
        let Some(train) = train.and_then(|train| self.arrivals.get_mut(train)) else { return };
        if train.len() < self.packets {
            let bytes = Bytes(arrived.len as u64);
            let sent = Duration::from_micros(arrived.probe.clock_us);
            train.push(Arrival { at: arrived.at, sent, bytes });
            self.latest = Some(now);
            self.is_whole |= is_whole;
        }
    }

    /// What they tell, once.
    fn told(&mut self, now: Duration) -> Option<Told> {
        let latest = self.latest.filter(|_| !self.is_over)?;
        if !self.is_whole && now < latest + TRAINS_WAIT {
            return None;
        }
        self.is_over = true;
        let (mut rates, mut too_short) = (Vec::new(), Vec::new());
        for train in &self.arrivals {
            match capacity::dispersion(train) {
                Dispersion::Rate(rate) => rates.push(rate),
                Dispersion::TooShort(took) => too_short.push(took),
                Dispersion::TooFew => {}
            }
        }
        let told = capacity::capacity(&rates).map(pacing::data_rate).map(Told::Rate);
        if too_short.len() > rates.len() {
            return capacity::longer(self.packets, &too_short).and_then(|n| self.again(n));
        }
        let is_slow = rates.iter().any(|rate| *rate < AGAIN_RATE_MIN);
        if told.is_some() || is_slow { told } else { self.again(self.packets) }
    }

    /// Others take their place, if they may.
    fn again(&mut self, packets: usize) -> Option<Told> {
        let asked = self.asked + 1;
        if asked > TRAINS_ASKED_MAX {
            return None;
        }
        *self = Self { asked, ..Self::new(self.first + TRAINS as u64, packets) };
        u32::try_from(packets).ok().map(Told::Others)
    }
}
