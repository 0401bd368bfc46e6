//! The sending side: paces its connections as it is asked to, sends packet trains when it knows
//! where to, and tells how its connections do.

use super::congestion::Congestion;
use super::course::{Seen, Teller, staged_there};
use super::room::{Room, Side};
use super::unsent::Unsent;
use super::{
    FREE, FREE_RTT, Glances, Knocker, LOOK, Probing, SHARING_TIME, TRAINS_ASKED_MAX, cpus,
};
use crate::driver::Latch;
use crate::net::control::{Outbox, lock};
use crate::net::socket::Socket;
use crate::session::{Session, TransportStats};
use bankfull_control::sobas::SPARSE_SAMPLING_RTT;
use bankfull_control::sobas::capacity::{TRAIN_COUNT, TRAIN_PACKETS};
use bankfull_control::{Bytes, LimitSamples, Rate, StageTimes, StreamShares, pacing};
use bankfull_proto::limits::MAX_REPORT_RTTS;
use bankfull_proto::wire::control::{
    Message, ReceiverReport, SenderReport, stage_nanos, stage_times,
};
use bankfull_proto::wire::probe::MAX_TRAIN_PACKET_BYTES;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the receiver is told how the connections do. (ours: a window of the controller is
/// longer on all but the shortest paths)
const TELL: Duration = Duration::from_millis(20);

/// Distance of packet trains. (ours: at 250 Mbit/s one has passed when the next comes)
const TRAIN_DISTANCE: Duration = Duration::from_millis(3);

/// A connection may have this multiple in flight a round trip later: slow start doubles. (RFC 5681
/// §3.1)
const GROWS: u64 = 2;

/// The packet trains that are still to be sent.
struct TrainPlan {
    packets: u32,
    left: usize,
    asked: u32,
}

impl TrainPlan {
    /// The receiver may have asked for more.
    fn ask(&mut self, packets: Option<u32>) {
        if let Some(packets) = packets
            && self.asked < TRAINS_ASKED_MAX
        {
            *self = Self { packets, left: TRAIN_COUNT, asked: self.asked + 1 };
        }
    }
}

/// What a look sees of the connections.
#[derive(Default)]
struct View {
    /// Data of each that the far side has acknowledged.
    acked: Vec<(u32, u64)>,
    /// What TCP would have each send in a round trip.
    in_flight: BTreeMap<u32, Bytes>,
    /// The least of them.
    segment: Option<Bytes>,
    rtt: Option<Duration>,
    rtt_min: Option<Duration>,
    /// What the far side grants them together.
    window: Option<u64>,
    carried: TransportStats,
}

impl View {
    /// What a connection may need a buffer for. A rate alone, which the far side asks for, is no
    /// reason for one: it has to take it, too.
    fn could_take(&self, number: u32) -> Bytes {
        let in_flight = self.in_flight.get(&number).copied().unwrap_or_default();
        Bytes(in_flight.0 * GROWS)
    }
}

/// Paces the connections of a session that sends.
pub(crate) struct Pacer<'a> {
    session: &'a Session,
    outbox: Outbox,
    probing: Option<Probing>,
    samples: LimitSamples,
    /// What each connection has of the rate.
    shares: StreamShares,
    room: Room,
    unsent: Unsent,
    congestion: Congestion,
    /// What the receiver has asked for, of all connections together.
    wanted: Option<u64>,
    /// TCP has been made to pace itself.
    paces: bool,
    /// The shortest round trip of a connection, at the last look.
    rtt_min: Duration,
    /// What the receiver has told last of what it holds and sees.
    course: ReceiverReport,
    /// Round trips that it has told since the last sample.
    rtts: Vec<Duration>,
    teller: Teller<'a>,
}

impl<'a> Pacer<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        teller: Teller<'a>,
        probing: Option<Probing>,
    ) -> Self {
        let (samples, shares, course, rtts) = Default::default();
        let wanted = session.overrides.rate_max.map(Rate::bytes_per_sec);
        Self {
            session,
            outbox,
            probing,
            samples,
            shares,
            room: Room::new(Side::Send),
            unsent: Unsent::new(),
            congestion: Congestion::new(session),
            wanted,
            paces: false,
            rtt_min: Duration::ZERO,
            course,
            rtts,
            teller,
        }
    }

    /// Runs until the session is over.
    pub(crate) fn run(mut self, over: &Latch) {
        let began = Instant::now();
        let mut glances = Glances::default();
        let mut knocker = Knocker::new(self.probing.as_ref().and_then(|probing| probing.door));
        let mut trains = TrainPlan { packets: TRAIN_PACKETS as u32, left: TRAIN_COUNT, asked: 0 };
        let mut told = Duration::ZERO;
        // The first trains leave with the first knock, before there is any data.
        let mut pause = Duration::ZERO;
        while !over.wait(pause) {
            let now = began.elapsed();
            trains.ask(lock(&self.session.feedback.trains).take());
            self.send_train(&mut trains, &mut knocker, now);
            pause = if (1..TRAIN_COUNT).contains(&trains.left) { TRAIN_DISTANCE } else { LOOK };
            if self.is_asked() {
                glances.hurry();
            }
            if !glances.is_due(now, self.rtt_min >= SPARSE_SAMPLING_RTT) {
                continue;
            }
            let view = self.look();
            self.share(&view, now);
            let sight = self.sight(&view);
            self.tell(&sight, view.carried.acked);
            if now + LOOK / 2 >= told + TELL && sight.samples > 0 {
                told = now;
                self.outbox.try_post(&Message::SenderReport(sight));
            }
        }
    }

    /// Sends the next train, if there is one and it is known where to.
    fn send_train(&mut self, trains: &mut TrainPlan, knocker: &mut Knocker, now: Duration) {
        let Some(Probing { line, door, .. }) = &mut self.probing else { return };
        let is_known = knocker.look(line, now);
        if let Some(door) = knocker.unheard(is_known, now) {
            self.teller.unheard(door);
        }
        let Some(to) = line.address().or(*door).filter(|_| trains.left > 0) else { return };
        trains.left -= 1;
        // Whatever does not arrive is left out of the estimate.
        let _ = line.send_train(trains.packets, to);
        if let Some(throttle) = self.session.throttle() {
            throttle.charge(trains.packets as usize * MAX_TRAIN_PACKET_BYTES);
        }
    }

    /// Whether the receiver has asked for another rate.
    fn is_asked(&mut self) -> bool {
        let pace = lock(&self.session.feedback.pace).take();
        if let Some(pace) = pace {
            self.wanted = self.capped(pace.bytes_per_sec);
            self.congestion.want(pace.use_bbr.unwrap_or_default());
        }
        pace.is_some()
    }

    /// Looks at all connections.
    fn look(&mut self) -> View {
        let mut view = View::default();
        let first_paused = self.session.first_paused().unwrap_or(u32::MAX);
        let least = |a: Option<Duration>, b| Some(a.map_or(b, |a: Duration| a.min(b)));
        view.carried = self.session.sample_streams(|number, _, info| {
            if number < first_paused {
                self.samples.add(info.notsent_bytes == Some(0));
            }
            view.acked.push((number, info.bytes_acked.unwrap_or_default()));
            let segment = Bytes(info.snd_mss.into());
            view.segment = Some(view.segment.map_or(segment, |least| least.min(segment)));
            view.in_flight.insert(number, Bytes(segment.0 * u64::from(info.snd_cwnd)));
            if let Some(granted) = info.snd_wnd {
                *view.window.get_or_insert(0) += u64::from(granted);
            }
            if !info.rtt.is_zero() {
                view.rtt = least(view.rtt, info.rtt);
                view.rtt_min = least(view.rtt_min, info.min_rtt.unwrap_or(info.rtt));
            }
        });
        view.rtt = view.rtt.or(view.carried.quic_smoothed_rtt);
        self.rtt_min = view.rtt_min.unwrap_or_default();
        view
    }

    /// Shares the rate that is wanted, by what each connection takes, and has them send it as is
    /// wanted.
    fn share(&mut self, view: &View, now: Duration) {
        let stretch = SHARING_TIME.max(self.rtt_min * 2);
        let rate = self.wanted.map(Rate::from_bytes_per_sec);
        self.shares.observe(now, stretch, rate, &view.acked);
        self.congestion.set(self.session);
        self.pace(rate, view);
    }

    /// What the receiver is to know of it.
    fn sight(&self, view: &View) -> SenderReport {
        SenderReport {
            retransmits: view.carried.retransmits,
            samples: self.samples.count,
            app_limited: self.samples.limited,
            rtt_us: view.rtt.and_then(|rtt| u64::try_from(rtt.as_micros()).ok()),
            window: view.window,
            stage_nanos: Some(stage_nanos(&self.teller.stages())),
            cpus: Some(cpus()),
            max_inflight_bytes: Some(self.room.max_inflight_bytes().0),
            bbr_available: Some(self.congestion.offers()),
            spurious_retransmits: Some(view.carried.spurious_retransmits),
            cpu_nanos: u64::try_from(self.teller.busy().as_nanos()).ok(),
        }
    }

    /// Tells what the receiver has decided, and how the connections do.
    fn tell(&mut self, sight: &SenderReport, carried: u64) {
        let courses = std::mem::take(&mut *lock(&self.session.feedback.courses));
        if !self.teller.is_near() {
            return;
        }
        for course in courses {
            self.teller.decided_there(&course);
            let rtts = course.rtts_us.iter().map(|&us| Duration::from_micros(us.into()));
            // An honest receiver tells about ten for each sample.
            let room = MAX_REPORT_RTTS.saturating_sub(self.rtts.len());
            self.rtts.extend(rtts.take(room));
            self.course = course;
        }
        if self.teller.is_due() {
            let course = &self.course;
            let mut rtts = std::mem::take(&mut self.rtts);
            if course.probes == 0 && rtts.is_empty() {
                rtts.extend(sight.rtt_us.map(Duration::from_micros));
            }
            let there = course.stage_nanos.map_or_else(StageTimes::default, stage_times);
            self.teller.sample(&Seen {
                streams: self.session.stream_count() as u32,
                carried,
                rtts,
                probes: course.probes,
                probes_lost: course.probes_lost,
                capacity: course.capacity,
                window: course.window,
                granted: sight.window,
                bytes_per_sec: self.wanted,
                retransmits: Some(sight.retransmits),
                buffered_peak: staged_there(course),
                stages: [self.teller.stages(), there],
                sends: self.samples,
                reads: LimitSamples { count: course.samples, limited: course.receiver_limited },
            });
        }
    }

    /// What is asked for, or what the user wants at most.
    fn capped(&self, pace: Option<u64>) -> Option<u64> {
        let most = self.session.overrides.rate_max.map(Rate::bytes_per_sec);
        pace.into_iter().chain(most).min()
    }

    /// Shares the rate among the connections, by what each takes, and has none send more at once
    /// than a shallow queue takes. Over a short path TCP is left as it is until it is asked for a
    /// rate: once it paces itself, it does so for good, and is only let go.
    fn pace(&mut self, rate: Option<Rate>, view: &View) {
        let rtt_min = view.rtt_min;
        if rate.is_none() && !self.paces && rtt_min.is_none_or(|rtt| rtt < FREE_RTT) {
            return;
        }
        self.paces = true;
        let mut largest = Rate::default();
        let (shares, room, unsent) = (&self.shares, &mut self.room, &mut self.unsent);
        // Where turns hold all of them together, what one has let through is not to wait again.
        let most = self.session.overrides.rate_max.map(Rate::bytes_per_sec);
        let has_turns = most.is_some() && self.wanted == most;
        self.session.for_each_stream(|number, socket| {
            let own = |rate| if has_turns { rate } else { shares.rate(number, rate) };
            let share = rate.map(own);
            largest = largest.max(share.unwrap_or_default());
            unsent.limit(number, socket, share);
            if let (Some(share), Some(rtt)) = (share, rtt_min) {
                let fills = Bytes((share.bytes_per_sec() as f64 * rtt.as_secs_f64()) as u64);
                room.give(number, socket, fills.min(view.could_take(number)));
            }
            if let Socket::Tcp(tcp) = socket {
                // Where the kernel cannot, it sends as without us.
                let paced = share.map_or(FREE, Rate::bytes_per_sec);
                let _ = bankfull_sys::set_pacing(tcp, Some(paced));
            }
        });
        let segment = view.segment.unwrap_or(pacing::DEFAULT_MSS);
        let limit = rate.and_then(|rate| pacing::burst_limit(rate, largest, segment));
        self.session.burst_limit.set(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventSink};
    use crate::overrides::Overrides;
    use crate::session::SessionStats;
    use bankfull_proto::wire::control::RateRequest;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    struct Deaf;

    impl EventSink for Deaf {
        fn event(&self, _: Event) {}
    }

    #[test]
    fn what_the_far_side_asks_for_is_no_reason_for_a_buffer_before_it_takes_it() {
        let mut view = View::default();
        assert_eq!(view.could_take(0), Bytes(0));
        view.in_flight.insert(0, Bytes(14_480));
        assert_eq!((view.could_take(0), view.could_take(1)), (Bytes(28_960), Bytes(0)));
    }

    #[test]
    fn a_rate_is_let_go_over_a_short_path_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = Socket::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        let mut writer = near.try_clone().unwrap();
        let session = Session::new(Overrides::default(), 1);
        session.add_stream(0, &near).unwrap();
        let stats = SessionStats::new(&Deaf, Instant::now());
        let teller = Teller::new(&stats, false);
        let mut pacer = Pacer::new(&session, Outbox::default(), teller, None);
        let mut paced_after = |ms, pace: Option<u64>| {
            session.feedback.on_pace(RateRequest { bytes_per_sec: pace, ..RateRequest::default() });
            pacer.is_asked();
            let view = pacer.look();
            pacer.share(&view, Duration::from_millis(ms));
            // The kernel takes a higher rate with the next acknowledgements.
            for _ in 0..20 {
                writer.write_all(&[7; 1000]).unwrap();
                far.read_exact(&mut [0; 1000]).unwrap();
            }
            near.tcp_info().unwrap().pacing_rate_bytes_per_sec.unwrap_or(u64::MAX)
        };
        assert!(paced_after(10, None) > 1_000_000, "left as it is");
        assert!(paced_after(20, Some(1_000_000)) <= 1_000_000);
        assert!(paced_after(30, None) > 1_000_000, "nothing is asked for any more");
    }

    #[test]
    fn what_turns_let_through_does_not_wait_again_for_a_share_of_the_rate() {
        let most = Rate::from_bytes_per_sec(1_000_000);
        let set = Overrides { rate_max: Some(most), ..Overrides::default() };
        let session = Session::new(set, 4);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |_| TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near: Vec<Socket> = (0..4).map(connect).map(Socket::Tcp).collect();
        for (number, socket) in (0..).zip(&near) {
            session.add_stream(number, socket).unwrap();
        }
        let stats = SessionStats::new(&Deaf, Instant::now());
        let mut pacer = Pacer::new(&session, Outbox::default(), Teller::new(&stats, false), None);
        let mut paced = |pace: Option<u64>| {
            session.feedback.on_pace(RateRequest { bytes_per_sec: pace, ..RateRequest::default() });
            pacer.is_asked();
            let view = pacer.look();
            pacer.share(&view, Duration::from_millis(10));
            let rate = |socket: &Socket| socket.tcp_info()?.pacing_rate_bytes_per_sec;
            near.iter().map(rate).collect::<Vec<_>>()
        };
        assert_eq!(paced(None), [Some(1_000_000); 4]);
        assert_eq!(paced(Some(400_000)), [Some(100_000); 4], "the path is slower");
    }
}
