//! Telemetry of untuned streams, which the kernel or QUIC controls: nothing is requested or set,
//! and the client still receives samples.

use super::telemetry::{Snapshot, Telemetry, buffered_at_receiver};
use super::{SAMPLE_INTERVAL, WINDOW_REPORT_INTERVAL, is_factor_apart};
use crate::base::sync::Latch;
use crate::base::sync::lock;
use crate::session::Session;
use crate::stats::transport_stats::TransportStats;
use crate::transport::control::Outbox;
use crate::transport::udp_receive_buffer::BufferAdvice;
use bankfull_control::{Bytes, LimitSamples, StageTimes};
use bankfull_proto::wire::control::{ReceiverReport, stage_times};
use std::time::{Duration, Instant};

/// Samples the streams and reports to the client until the session is over.
///
/// A sending server has nothing to report; it only emits the windows of QUIC.
pub(crate) fn watch(
    session: &Session,
    mut telemetry: Telemetry<'_>,
    outbox: &Outbox,
    receives: bool,
    over: &Latch,
) {
    let is_client = telemetry.is_client();
    let reports = is_client || receives;
    let mut monitor = Monitor::new(session, receives);
    while !over.wait(if reports { SAMPLE_INTERVAL } else { WINDOW_REPORT_INTERVAL }) {
        let (mut snapshot, transport) = monitor.sample();
        monitor.emit_quic(&transport, &telemetry);
        if !reports || !telemetry.poll_due() {
            continue;
        }
        monitor.complete(&mut snapshot, &telemetry);
        if is_client {
            telemetry.emit_sample(&snapshot);
        } else {
            // The sender's RTT samples are better.
            snapshot.rtts.clear();
            telemetry.send_report(outbox, &mut snapshot, "", None);
        }
    }
    if is_client {
        let (mut snapshot, _) = monitor.sample();
        monitor.complete(&mut snapshot, &telemetry);
        telemetry.set_due();
        telemetry.emit_sample(&snapshot);
    }
}

/// Samples a session's untuned streams.
struct Monitor<'a> {
    session: &'a Session,
    receives: bool,
    samples: LimitSamples,
    /// Latest receiver report.
    receiver_report: ReceiverReport,
    /// Time and size of the last emitted QUIC window.
    emitted_window: Option<(Instant, Bytes)>,
    /// Time of the last emitted change of the UDP socket's buffer.
    emitted_buffer_change: Option<Instant>,
}

impl<'a> Monitor<'a> {
    fn new(session: &'a Session, receives: bool) -> Self {
        let (samples, receiver_report, emitted_window, emitted_buffer_change) = Default::default();
        Self { session, receives, samples, receiver_report, emitted_window, emitted_buffer_change }
    }

    /// Emits the QUIC window and the UDP socket's buffer if they have changed.
    fn emit_quic(&mut self, transport: &TransportStats, telemetry: &Telemetry<'_>) {
        let Some((receive, send)) = transport.quic_windows else { return };
        let (direction, window, reason) = match self.receives {
            true => ("receive", receive, "follows the bytes read per RTT"),
            false => ("send", send, "follows the congestion window"),
        };
        let is_due = |(at, before): (Instant, Bytes)| {
            is_factor_apart(window, before) && at.elapsed() >= WINDOW_REPORT_INTERVAL
        };
        if self.emitted_window.is_none_or(is_due) {
            self.emitted_window = Some((Instant::now(), window));
            telemetry.emit_quic_window(direction, window, reason);
        }
        let change = transport.udp_buffer_change.filter(|_| self.receives);
        if let Some(change) = change.filter(|change| self.emitted_buffer_change != Some(change.at))
        {
            self.emitted_buffer_change = Some(change.at);
            telemetry.emit_udp_buffer(change);
        }
    }

    /// Samples all streams. Returns the statistics of their transport as well.
    fn sample(&mut self) -> (Snapshot, TransportStats) {
        let (receives, samples) = (self.receives, &mut self.samples);
        let mut snapshot = Snapshot::default();
        let mut min_rtt: Option<Duration> = None;
        let carried = self.session.sample_streams(|_, socket, info| {
            let rtt = if receives { info.rcv_rtt } else { Some(info.rtt) };
            min_rtt = min_rtt.into_iter().chain(rtt).filter(|rtt| !rtt.is_zero()).min();
            if receives {
                let is_full = socket.unread_bytes() > u64::from(info.rcv_space) / 2;
                samples.add(is_full && !self.session.is_receiving_limited());
            } else {
                samples.add(info.notsent_bytes == Some(0));
                if let Some(window) = info.snd_wnd {
                    *snapshot.granted.get_or_insert(0) += u64::from(window);
                }
            }
        });
        snapshot.streams = self.session.stream_count() as u32;
        snapshot.rtts.extend(min_rtt.or(carried.quic_smoothed_rtt));
        if receives {
            snapshot.carried = carried.received;
            snapshot.receiver_samples = *samples;
        } else {
            snapshot.carried = carried.acked;
            snapshot.retransmits = Some(carried.retransmits);
            snapshot.sender_samples = *samples;
        }
        (snapshot, carried)
    }

    /// Adds the stage times, and the state of the receiver's buffer.
    fn complete(&mut self, snapshot: &mut Snapshot, telemetry: &Telemetry<'_>) {
        snapshot.stages[usize::from(self.receives)] = telemetry.stage_times();
        if self.receives {
            snapshot.buffered = self.session.buffer_pool.status();
        } else {
            self.take_receiver_reports(telemetry, snapshot);
        }
    }

    /// Takes the queued receiver reports, and adds the latest one to the snapshot.
    fn take_receiver_reports(&mut self, telemetry: &Telemetry<'_>, snapshot: &mut Snapshot) {
        // Releases the lock before the events, whose handler may block.
        let reports = std::mem::take(&mut *lock(&self.session.feedback.receiver_reports));
        for report in reports {
            telemetry.on_receiver_report(&report);
            self.receiver_report = report;
        }
        let report = &self.receiver_report;
        snapshot.buffered = buffered_at_receiver(report);
        snapshot.stages[1] = report.stage_nanos.map_or_else(StageTimes::default, stage_times);
        snapshot.receiver_samples =
            LimitSamples { count: report.samples, limited: report.receiver_limited };
    }
}

/// Warns a remote client as soon as this host's UDP receive buffer drops packets. The warning names
/// the setting that avoids it.
pub(crate) fn watch_udp_buffer(
    advice: &mut BufferAdvice,
    telemetry: &Telemetry<'_>,
    outbox: &Outbox,
    over: &Latch,
) {
    while !telemetry.is_client() && !over.wait(SAMPLE_INTERVAL) {
        if let Some(message) = advice.next_advice() {
            telemetry.warn(outbox, &message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::{Event, EventSink};
    use crate::stats::session_stats::SessionStats;
    use crate::transport::control::tests::sent;
    use crate::transport::socket::Socket;
    use bankfull_control::Bytes;
    use bankfull_proto::wire::control::Message;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;
    use std::thread;
    use std::time::Instant;

    #[derive(Default)]
    struct RecordedEvents(Mutex<Vec<Event>>);

    impl EventSink for RecordedEvents {
        fn event(&self, event: Event) {
            lock(&self.0).push(event);
        }
    }

    /// Waits for the next messages, which are all receiver reports.
    fn next_reports(outbox: &Outbox) -> Vec<ReceiverReport> {
        let report = |message| match message {
            Message::ReceiverReport(report) => report,
            other => panic!("{other:?}"),
        };
        sent(outbox).into_iter().map(report).collect()
    }

    fn is_sample(event: &Event) -> bool {
        matches!(event, Event::Sample(_))
    }

    impl RecordedEvents {
        /// Waits for a sample. Returns all events until then.
        fn until_sample(&self) -> Vec<Event> {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let events = lock(&self.0).clone();
                if events.iter().any(is_sample) || Instant::now() > deadline {
                    return events;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }

        fn buffer_limits(&self) -> Vec<(Bytes, String)> {
            let limit = |event: &Event| match event {
                Event::BufferLimit(limit) => Some((limit.size, limit.reason.clone())),
                _ => None,
            };
            lock(&self.0).iter().filter_map(limit).collect()
        }
    }

    #[test]
    fn receiving_side_reports_to_the_client_on_either_side() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let session = Session::default();
        session.add_stream(0, &Socket::Tcp(listener.accept().unwrap().0)).unwrap();
        let _share = session.buffer_pool.share();
        let size = 6 << 18;
        sender.write_all(&[7; 1000]).unwrap();
        for is_client in [true, false] {
            let (log, over, outbox) =
                (RecordedEvents::default(), Latch::default(), Outbox::default());
            let stats = SessionStats::new(&log, Instant::now());
            thread::scope(|scope| {
                let telemetry = Telemetry::new(&stats, is_client);
                scope.spawn(|| watch(&session, telemetry, &outbox, true, &over));
                if is_client {
                    let events = log.until_sample();
                    over.set();
                    let Some(Event::Sample(sample)) = events.iter().find(|e| is_sample(e)) else {
                        panic!("{events:?}")
                    };
                    assert_eq!((sample.streams, sample.carried.0), (1, 1000));
                    let tuned = (sample.window, sample.pacing, sample.retransmits);
                    assert_eq!(tuned, (None, None, None));
                    assert_eq!(log.buffer_limits().iter().map(|b| b.0.0).max(), Some(size));
                    return;
                }
                let reports = [next_reports(&outbox), next_reports(&outbox)].concat();
                over.set();
                for (at, report) in reports.iter().enumerate() {
                    assert_eq!((report.buffered_peak, report.buffer_limit), (Some(0), Some(size)));
                    assert_eq!(report.buffer_reason.is_some(), at == 0, "{report:?}");
                }
                assert!(lock(&log.0).is_empty(), "a server emits no events");
            });
        }
    }

    #[test]
    fn sending_client_emits_the_receivers_buffer_limit() {
        let session = Session::default();
        let (log, over, outbox) = (RecordedEvents::default(), Latch::default(), Outbox::default());
        let stats = SessionStats::new(&log, Instant::now());
        for reason in [Some("because\n"), None] {
            session.feedback.on_receiver_report(ReceiverReport {
                buffered_peak: Some(5),
                buffer_limit: Some(7),
                buffer_reason: reason.map(str::to_owned),
                stage_nanos: Some([0, 0, 0, 9, 0]),
                ..ReceiverReport::default()
            });
        }
        thread::scope(|scope| {
            let telemetry = Telemetry::new(&stats, true);
            scope.spawn(|| watch(&session, telemetry, &outbox, false, &over));
            let events = log.until_sample();
            over.set();
            assert_eq!(log.buffer_limits(), [(Bytes(7), "because\\n".to_owned())]);
            let Some(Event::Sample(sample)) = events.iter().find(|e| is_sample(e)) else {
                panic!("{events:?}")
            };
            assert_eq!(
                (sample.buffered_peak, sample.buffer_limit),
                (Some(Bytes(5)), Some(Bytes(7)))
            );
            assert_eq!(sample.receiver.write, Duration::from_nanos(9));
        });
    }
}
