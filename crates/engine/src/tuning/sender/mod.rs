//! Tuning of the sending side: paces its streams at the requested rate, sends packet trains once
//! the receiver's UDP address is known, and reports the state of its connections.
//!
//! A tick runs in one direction: [`TrainSender`] probes, [`SenderSample`] observes,
//! [`PacingActuator`] applies the receiver's request, [`SampleReporter`] reports.

mod pacing_actuator;
mod sample_reporter;
mod sender_sample;
mod train_sender;

use super::telemetry::Telemetry;
use super::{ProbeChannel, SAMPLE_INTERVAL, SampleClock, available_cpus};
use crate::base::sync::{Latch, lock};
use crate::session::Session;
use crate::transport::control::Outbox;
use bankfull_control::path_control::SPARSE_SAMPLING_RTT;
use bankfull_control::{LimitSamples, Rate};
use bankfull_proto::wire::control::{Message, SenderReport, stage_nanos};
use bankfull_sys::name_thread;
use pacing_actuator::PacingActuator;
use sample_reporter::SampleReporter;
use sender_sample::SenderSample;
use std::time::{Duration, Instant};
use train_sender::TrainSender;

/// Interval of sender reports. (chosen: the controller's windows are longer on all but the shortest
/// paths)
const SENDER_REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of packet trains. (chosen: at 250 Mbit/s one has passed before the next)
const TRAIN_INTERVAL: Duration = Duration::from_millis(3);

/// Tunes the streams of a sending session.
pub(crate) struct SenderTuner<'a> {
    session: &'a Session,
    outbox: Outbox,
    trains: TrainSender,
    /// Samples, and how many of them were app-limited.
    samples: LimitSamples,
    /// Min RTT of the latest sample.
    min_rtt: Duration,
    /// Rate of all streams together that the receiver requested.
    requested_rate: Option<Rate>,
    /// Rate limit of the user at the last tick.
    rate_max: Option<Rate>,
    actuator: PacingActuator,
    reporter: SampleReporter<'a>,
}

impl<'a> SenderTuner<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        telemetry: Telemetry<'a>,
        probe_channel: Option<ProbeChannel>,
    ) -> Self {
        Self {
            session,
            outbox,
            trains: TrainSender::new(probe_channel),
            samples: LimitSamples::default(),
            min_rtt: Duration::ZERO,
            requested_rate: None,
            rate_max: session.rate_max(),
            actuator: PacingActuator::new(session),
            reporter: SampleReporter::new(telemetry),
        }
    }

    /// Runs until the session is over.
    pub(crate) fn run(mut self, over: &Latch) {
        name_thread(c"tuner");
        let started = Instant::now();
        let mut clock = SampleClock::default();
        let mut reported = Duration::ZERO;
        // The first train leaves with the first registration, before any data.
        let mut pause = Duration::ZERO;
        while !over.wait(pause) {
            let now = started.elapsed();
            self.trains.poll(self.session, now, self.reporter.telemetry());
            let is_between_trains = self.trains.is_between_trains();
            pause = if is_between_trains { TRAIN_INTERVAL } else { SAMPLE_INTERVAL };
            if self.poll_rate_request() | self.poll_rate_max() {
                clock.force_next();
            }
            if !clock.poll_due(now, self.min_rtt >= SPARSE_SAMPLING_RTT) {
                continue;
            }
            let sample = self.sample();
            self.apply(&sample, now);
            let report = self.build_report(&sample);
            if self.reporter.poll(self.session) {
                self.emit_sample(&sample, &report);
            }
            if now + SAMPLE_INTERVAL / 2 >= reported + SENDER_REPORT_INTERVAL && report.samples > 0
            {
                reported = now;
                self.outbox.try_post(&Message::SenderReport(report));
            }
        }
        if self.reporter.begin_last_sample(self.session) {
            let sample = self.sample();
            let report = self.build_report(&sample);
            self.emit_sample(&sample, &report);
        }
    }

    fn emit_sample(&mut self, sample: &SenderSample, report: &SenderReport) {
        let acked = sample.carried.acked;
        let rate = self.rate().map(Rate::bytes_per_sec);
        self.reporter.emit_sample(self.session, report, acked, rate);
    }

    /// Takes a rate request of the receiver. Returns false if there is none.
    fn poll_rate_request(&mut self) -> bool {
        let request = lock(&self.session.feedback.rate_request).take();
        if let Some(request) = request {
            self.requested_rate = request.bytes_per_sec.map(Rate::from_bytes_per_sec);
            self.actuator.request_bbr(request.use_bbr.unwrap_or_default());
            self.session.send.release_streams();
        }
        request.is_some()
    }

    /// Takes a change of the user's limit. Returns false if there is none.
    fn poll_rate_max(&mut self) -> bool {
        let rate_max = self.session.rate_max();
        std::mem::replace(&mut self.rate_max, rate_max) != rate_max
    }

    /// Returns the smaller of the requested rate and the user's limit.
    fn rate(&self) -> Option<Rate> {
        self.requested_rate.into_iter().chain(self.rate_max).min()
    }

    /// Samples all connections.
    fn sample(&mut self) -> SenderSample {
        let sample = SenderSample::new(self.session, &mut self.samples);
        self.min_rtt = sample.min_rtt.unwrap_or_default();
        sample
    }

    /// Applies the receiver's request.
    fn apply(&mut self, sample: &SenderSample, now: Duration) {
        self.actuator.apply(self.session, self.rate(), sample, now);
    }

    /// Builds the sender report.
    fn build_report(&self, sample: &SenderSample) -> SenderReport {
        let telemetry = self.reporter.telemetry();
        SenderReport {
            retransmits: sample.carried.retransmits,
            samples: self.samples.count,
            app_limited: self.samples.limited,
            rtt_us: sample.rtt.and_then(|rtt| u64::try_from(rtt.as_micros()).ok()),
            window: sample.granted,
            stage_nanos: Some(stage_nanos(&telemetry.stage_times())),
            cpus: Some(available_cpus()),
            max_inflight_bytes: Some(self.actuator.max_inflight().0),
            bbr_available: Some(self.actuator.is_bbr_available()),
            spurious_retransmits: Some(sample.carried.spurious_retransmits),
            cpu_nanos: u64::try_from(telemetry.cpu_busy().as_nanos()).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::NoEvents;
    use crate::model::overrides::Overrides;
    use crate::stats::session_stats::SessionStats;
    use crate::transport::socket::Socket;
    use bankfull_proto::wire::control::RateRequest;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

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
        // A limit that changes is applied without a new request.
        session.set_rate_max(Some(Rate::from_bytes_per_sec(50_000)));
        assert!(tuner.poll_rate_max() && !tuner.poll_rate_max());
        let sample = tuner.sample();
        tuner.apply(&sample, Duration::from_millis(20));
        let pacing = |socket: &Socket| socket.tcp_info()?.pacing_rate_bytes_per_sec;
        assert_eq!(sockets.iter().map(pacing).collect::<Vec<_>>(), [Some(50_000); 4]);
        let sample = tuner.sample();
        let is_paced_at = |rate| (0..4).all(|number| sample.is_paced_at(number, rate));
        assert_eq!([is_paced_at(50_000), is_paced_at(50_001)], [true, false], "no further call");
    }
}
