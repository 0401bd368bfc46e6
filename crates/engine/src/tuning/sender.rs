//! Tuning of the sending side: paces its streams at the requested rate, sends packet trains once
//! the receiver's UDP address is known, and reports the state of its connections.

use super::bbr_switch::BbrSwitch;
use super::notsent_lowat::NotSentLowat;
use super::socket_buffers::{BufferSide, SocketBuffers};
use super::telemetry::{Snapshot, Telemetry, buffered_at_receiver};
use super::{
    MAX_TRAIN_REQUESTS, MIN_SHARE_INTERVAL, ProbeChannel, ProbeRegistrar, SAMPLE_INTERVAL,
    SampleClock, available_cpus,
};
use crate::base::sync::Latch;
use crate::base::sync::lock;
use crate::session::Session;
use crate::stats::transport_stats::TransportStats;
use crate::transport::control::Outbox;
use crate::transport::socket::Socket;
use crate::transport::start_stagger::{MIN_PACING_RTT, UNLIMITED_PACING_RATE};
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

/// Interval of sender reports. (chosen: the controller's windows are longer on all but the shortest
/// paths)
const SENDER_REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of packet trains. (chosen: at 250 Mbit/s one has passed before the next)
const TRAIN_INTERVAL: Duration = Duration::from_millis(3);

/// Maximum growth of the data in flight within an RTT: slow start doubles it. (RFC 5681 §3.1)
const SLOW_START_GROWTH: u64 = 2;

/// Packet trains still to be sent.
struct TrainPlan {
    /// Number of packets in each train.
    packets: u32,
    remaining: usize,
    /// Number of requests for more trains.
    requests: u32,
}

impl TrainPlan {
    /// Plans the trains that the receiver requested, if any.
    fn on_request(&mut self, packets: Option<u32>) {
        if let Some(packets) = packets
            && self.requests < MAX_TRAIN_REQUESTS
        {
            *self = Self { packets, remaining: TRAIN_COUNT, requests: self.requests + 1 };
        }
    }
}

/// Sample of all connections.
#[derive(Default)]
struct ConnectionSample {
    /// Acknowledged bytes of each stream.
    acked: Vec<(u32, u64)>,
    /// Congestion window of each stream.
    cwnd: BTreeMap<u32, Bytes>,
    /// Smallest MSS of the streams.
    min_segment: Option<Bytes>,
    /// Smallest smoothed RTT of the streams.
    rtt: Option<Duration>,
    /// Smallest min RTT of the streams.
    min_rtt: Option<Duration>,
    /// Receive window granted to all streams together, in bytes.
    granted: Option<u64>,
    carried: TransportStats,
}

impl ConnectionSample {
    /// Returns the most data that a stream may have in flight an RTT later.
    ///
    /// A requested rate alone, without data in flight, justifies no larger buffer.
    fn max_next_inflight(&self, number: u32) -> Bytes {
        let cwnd = self.cwnd.get(&number).copied().unwrap_or_default();
        Bytes(cwnd.0 * SLOW_START_GROWTH)
    }
}

/// Tunes the streams of a sending session.
pub(crate) struct SenderTuner<'a> {
    session: &'a Session,
    outbox: Outbox,
    probe_channel: Option<ProbeChannel>,
    /// Samples, and how many of them were app-limited.
    samples: LimitSamples,
    /// Each stream's share of the rate.
    shares: StreamShares,
    buffers: SocketBuffers,
    lowat: NotSentLowat,
    bbr_switch: BbrSwitch,
    /// Requested rate of all streams together, in bytes/s.
    requested_rate: Option<u64>,
    /// TCP pacing is enabled.
    is_pacing: bool,
    /// Min RTT of the latest sample.
    min_rtt: Duration,
    /// Latest receiver report.
    receiver_report: ReceiverReport,
    /// RTT samples of the receiver reports since the last sample event.
    rtts: Vec<Duration>,
    telemetry: Telemetry<'a>,
}

impl<'a> SenderTuner<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        telemetry: Telemetry<'a>,
        probe_channel: Option<ProbeChannel>,
    ) -> Self {
        let (samples, shares, receiver_report, rtts) = Default::default();
        let requested_rate = session.overrides.rate_max.map(Rate::bytes_per_sec);
        Self {
            session,
            outbox,
            probe_channel,
            samples,
            shares,
            buffers: SocketBuffers::new(BufferSide::Send),
            lowat: NotSentLowat::new(),
            bbr_switch: BbrSwitch::new(session),
            requested_rate,
            is_pacing: false,
            min_rtt: Duration::ZERO,
            receiver_report,
            rtts,
            telemetry,
        }
    }

    /// Runs until the session is over.
    pub(crate) fn run(mut self, over: &Latch) {
        let started = Instant::now();
        let mut clock = SampleClock::default();
        let address = self.probe_channel.as_ref().and_then(|channel| channel.register_address);
        let mut registrar = ProbeRegistrar::new(address);
        let mut trains =
            TrainPlan { packets: TRAIN_PACKETS as u32, remaining: TRAIN_COUNT, requests: 0 };
        let mut reported = Duration::ZERO;
        // The first train leaves with the first registration, before any data.
        let mut pause = Duration::ZERO;
        while !over.wait(pause) {
            let now = started.elapsed();
            trains.on_request(lock(&self.session.feedback.train_request).take());
            self.send_train(&mut trains, &mut registrar, now);
            let is_between_trains = (1..TRAIN_COUNT).contains(&trains.remaining);
            pause = if is_between_trains { TRAIN_INTERVAL } else { SAMPLE_INTERVAL };
            if self.poll_rate_request() {
                clock.force_next();
            }
            if !clock.poll_due(now, self.min_rtt >= SPARSE_SAMPLING_RTT) {
                continue;
            }
            let sample = self.sample();
            self.apply(&sample, now);
            let report = self.build_report(&sample);
            self.emit_telemetry(&report, sample.carried.acked);
            if now + SAMPLE_INTERVAL / 2 >= reported + SENDER_REPORT_INTERVAL && report.samples > 0
            {
                reported = now;
                self.outbox.try_post(&Message::SenderReport(report));
            }
        }
    }

    /// Sends the next train, if any remains and the receiver's UDP address is known.
    fn send_train(
        &mut self,
        trains: &mut TrainPlan,
        registrar: &mut ProbeRegistrar,
        now: Duration,
    ) {
        let Some(ProbeChannel { line, register_address, .. }) = &mut self.probe_channel else {
            return;
        };
        let is_known = registrar.poll(line, now);
        if let Some(address) = registrar.poll_unanswered(is_known, now) {
            self.telemetry.warn_no_udp_response(address);
        }
        let address = line.address().or(*register_address).filter(|_| trains.remaining > 0);
        let Some(address) = address else { return };
        trains.remaining -= 1;
        // The estimate ignores packets that do not arrive.
        let _ = line.send_train(trains.packets, address);
        if let Some(throttle) = self.session.throttle() {
            throttle.charge(trains.packets as usize * MAX_TRAIN_PACKET_BYTES);
        }
    }

    /// Takes a rate request of the receiver. Returns false if there is none.
    fn poll_rate_request(&mut self) -> bool {
        let request = lock(&self.session.feedback.rate_request).take();
        if let Some(request) = request {
            self.requested_rate = self.cap_rate(request.bytes_per_sec);
            self.bbr_switch.request(request.use_bbr.unwrap_or_default());
        }
        request.is_some()
    }

    /// Samples all connections.
    fn sample(&mut self) -> ConnectionSample {
        let mut sample = ConnectionSample::default();
        let first_paused = self.session.first_paused().unwrap_or(u32::MAX);
        let min = |a: Option<Duration>, b| Some(a.map_or(b, |a: Duration| a.min(b)));
        sample.carried = self.session.sample_streams(|number, _, info| {
            if number < first_paused {
                self.samples.add(info.notsent_bytes == Some(0));
            }
            sample.acked.push((number, info.bytes_acked.unwrap_or_default()));
            let segment = Bytes(info.snd_mss.into());
            sample.min_segment = Some(sample.min_segment.map_or(segment, |min| min.min(segment)));
            sample.cwnd.insert(number, Bytes(segment.0 * u64::from(info.snd_cwnd)));
            if let Some(granted) = info.snd_wnd {
                *sample.granted.get_or_insert(0) += u64::from(granted);
            }
            if !info.rtt.is_zero() {
                sample.rtt = min(sample.rtt, info.rtt);
                sample.min_rtt = min(sample.min_rtt, info.min_rtt.unwrap_or(info.rtt));
            }
        });
        sample.rtt = sample.rtt.or(sample.carried.quic_smoothed_rtt);
        self.min_rtt = sample.min_rtt.unwrap_or_default();
        sample
    }

    /// Distributes the requested rate by what each stream sends, and applies rate and BBR.
    fn apply(&mut self, sample: &ConnectionSample, now: Duration) {
        let interval = MIN_SHARE_INTERVAL.max(self.min_rtt * 2);
        let rate = self.requested_rate.map(Rate::from_bytes_per_sec);
        self.shares.observe(now, interval, rate, &sample.acked);
        self.bbr_switch.apply(self.session);
        self.apply_pacing(rate, sample);
    }

    /// Builds the sender report.
    fn build_report(&self, sample: &ConnectionSample) -> SenderReport {
        SenderReport {
            retransmits: sample.carried.retransmits,
            samples: self.samples.count,
            app_limited: self.samples.limited,
            rtt_us: sample.rtt.and_then(|rtt| u64::try_from(rtt.as_micros()).ok()),
            window: sample.granted,
            stage_nanos: Some(stage_nanos(&self.telemetry.stage_times())),
            cpus: Some(available_cpus()),
            max_inflight_bytes: Some(self.buffers.max_inflight().0),
            bbr_available: Some(self.bbr_switch.is_available()),
            spurious_retransmits: Some(sample.carried.spurious_retransmits),
            cpu_nanos: u64::try_from(self.telemetry.cpu_busy().as_nanos()).ok(),
        }
    }

    /// Emits the receiver's decisions and, if due, a sample event. Does nothing on a server.
    fn emit_telemetry(&mut self, report: &SenderReport, carried: u64) {
        let receiver_reports = std::mem::take(&mut *lock(&self.session.feedback.receiver_reports));
        if !self.telemetry.is_client() {
            return;
        }
        for report in receiver_reports {
            self.telemetry.on_receiver_report(&report);
            let rtts = report.rtts_us.iter().map(|&us| Duration::from_micros(us.into()));
            // An honest receiver reports about ten per sample event.
            let room = MAX_REPORT_RTTS.saturating_sub(self.rtts.len());
            self.rtts.extend(rtts.take(room));
            self.receiver_report = report;
        }
        if self.telemetry.poll_due() {
            let received = &self.receiver_report;
            let mut rtts = std::mem::take(&mut self.rtts);
            if received.probes == 0 && rtts.is_empty() {
                rtts.extend(report.rtt_us.map(Duration::from_micros));
            }
            let receiver_stages =
                received.stage_nanos.map_or_else(StageTimes::default, stage_times);
            self.telemetry.emit_sample(&Snapshot {
                streams: self.session.stream_count() as u32,
                carried,
                rtts,
                probes: received.probes,
                probes_lost: received.probes_lost,
                capacity: received.capacity,
                window: received.window,
                granted: report.window,
                bytes_per_sec: self.requested_rate,
                retransmits: Some(report.retransmits),
                buffered: buffered_at_receiver(received),
                stages: [self.telemetry.stage_times(), receiver_stages],
                sender_samples: self.samples,
                receiver_samples: LimitSamples {
                    count: received.samples,
                    limited: received.receiver_limited,
                },
            });
        }
    }

    /// Returns the smaller of the requested rate and the user's limit.
    fn cap_rate(&self, requested: Option<u64>) -> Option<u64> {
        let limit = self.session.overrides.rate_max.map(Rate::bytes_per_sec);
        requested.into_iter().chain(limit).min()
    }

    /// Paces each stream at its share of the rate. Bursts fit in a shallow queue.
    ///
    /// Over a short path TCP stays unpaced until a rate is requested. Pacing cannot be disabled
    /// again, only raised to an unlimited rate.
    fn apply_pacing(&mut self, rate: Option<Rate>, sample: &ConnectionSample) {
        let min_rtt = sample.min_rtt;
        let is_short = min_rtt.is_none_or(|rtt| rtt < MIN_PACING_RTT);
        if rate.is_none() && !self.is_pacing && is_short {
            return;
        }
        self.is_pacing = true;
        let mut largest = Rate::default();
        let (shares, buffers, lowat) = (&self.shares, &mut self.buffers, &mut self.lowat);
        // The throttle limits all streams together: data it let pass must not wait again.
        let limit = self.session.overrides.rate_max.map(Rate::bytes_per_sec);
        let is_throttled = limit.is_some() && self.requested_rate == limit;
        self.session.for_each_stream(|number, socket| {
            let own = |rate| if is_throttled { rate } else { shares.rate(number, rate) };
            let share = rate.map(own);
            largest = largest.max(share.unwrap_or_default());
            lowat.update(number, socket, share);
            if let (Some(share), Some(rtt)) = (share, min_rtt) {
                let bdp = Bytes((share.bytes_per_sec() as f64 * rtt.as_secs_f64()) as u64);
                buffers.ensure(number, socket, bdp.min(sample.max_next_inflight(number)));
            }
            if let Socket::Tcp(tcp) = socket {
                // If the kernel cannot pace, it sends as usual.
                let pacing_rate = share.map_or(UNLIMITED_PACING_RATE, Rate::bytes_per_sec);
                let _ = bankfull_sys::set_pacing(tcp, Some(pacing_rate));
            }
        });
        let segment = sample.min_segment.unwrap_or(pacing::DEFAULT_MSS);
        let limit = rate.and_then(|rate| pacing::burst_limit(rate, largest, segment));
        self.session.send.burst_limit.set(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::NoEvents;
    use crate::model::overrides::Overrides;
    use crate::stats::session_stats::SessionStats;
    use bankfull_proto::wire::control::RateRequest;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn buffer_need_follows_the_congestion_window() {
        let mut sample = ConnectionSample::default();
        assert_eq!(sample.max_next_inflight(0), Bytes(0));
        sample.cwnd.insert(0, Bytes(14_480));
        let next = [sample.max_next_inflight(0), sample.max_next_inflight(1)];
        assert_eq!(next, [Bytes(28_960), Bytes(0)]);
    }

    #[test]
    fn rate_request_withdrawn_over_short_path_lifts_pacing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let mut writer = socket.try_clone().unwrap();
        let session = Session::new(Overrides::default(), 1);
        session.add_stream(0, &socket).unwrap();
        let stats = SessionStats::new(&NoEvents, Instant::now());
        let telemetry = Telemetry::new(&stats, false);
        let mut tuner = SenderTuner::new(&session, Outbox::default(), telemetry, None);
        let mut pacing_after = |ms, rate: Option<u64>| {
            session
                .feedback
                .on_rate_request(RateRequest { bytes_per_sec: rate, ..RateRequest::default() });
            tuner.poll_rate_request();
            let sample = tuner.sample();
            tuner.apply(&sample, Duration::from_millis(ms));
            // The kernel applies a higher rate with the next ACKs.
            for _ in 0..20 {
                writer.write_all(&[7; 1000]).unwrap();
                peer.read_exact(&mut [0; 1000]).unwrap();
            }
            socket.tcp_info().unwrap().pacing_rate_bytes_per_sec.unwrap_or(u64::MAX)
        };
        assert!(pacing_after(10, None) > 1_000_000, "left as it is");
        assert!(pacing_after(20, Some(1_000_000)) <= 1_000_000);
        assert!(pacing_after(30, None) > 1_000_000, "the request was withdrawn");
    }

    #[test]
    fn throttled_data_is_not_paced_again_by_shares() {
        let limit = Rate::from_bytes_per_sec(1_000_000);
        let overrides = Overrides { rate_max: Some(limit), ..Overrides::default() };
        let session = Session::new(overrides, 4);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |_| TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sockets: Vec<Socket> = (0..4).map(connect).map(Socket::Tcp).collect();
        for (number, socket) in (0..).zip(&sockets) {
            session.add_stream(number, socket).unwrap();
        }
        let stats = SessionStats::new(&NoEvents, Instant::now());
        let telemetry = Telemetry::new(&stats, false);
        let mut tuner = SenderTuner::new(&session, Outbox::default(), telemetry, None);
        let mut pacing_rates = |rate: Option<u64>| {
            session
                .feedback
                .on_rate_request(RateRequest { bytes_per_sec: rate, ..RateRequest::default() });
            tuner.poll_rate_request();
            let sample = tuner.sample();
            tuner.apply(&sample, Duration::from_millis(10));
            let rate = |socket: &Socket| socket.tcp_info()?.pacing_rate_bytes_per_sec;
            sockets.iter().map(rate).collect::<Vec<_>>()
        };
        assert_eq!(pacing_rates(None), [Some(1_000_000); 4]);
        assert_eq!(pacing_rates(Some(400_000)), [Some(100_000); 4], "the path is slower");
    }
}
