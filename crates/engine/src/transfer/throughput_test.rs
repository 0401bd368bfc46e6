//! Throughput test: a session that copies no files. The sender sends filler for a time, to measure
//! the path. Streams, encryption, windows, pacing and reports are those of a copy.

use crate::base::error::Error;
use crate::base::sync::lock;
use crate::session::Session;
use crate::stats::counters::add;
use crate::stats::session_stats::SessionStats;
use crate::stats::thread_meter::ThreadMeter;
use crate::transport::control::{ControlReader, Outbox};
use crate::transport::data_stream::DataStream;
use bankfull_control::Stage;
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Message, SideSummary, Totals};
use bankfull_proto::wire::data::Header;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of filler in a frame. (as the chunks of a copy, `sender/stream_thread.rs`)
const FRAME_BYTES: usize = 256 << 10;

/// Interval at which a resting stream checks whether to resume. (chosen: two samples)
const RESTING_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One side of a throughput test.
pub(crate) struct ThroughputTest<'a> {
    session: &'a Session,
    outbox: Outbox,
    stats: &'a SessionStats<'a>,
    duration: Duration,
    /// Start of the first stream's data.
    started: Mutex<Option<Instant>>,
    guard: Mutex<Guard>,
    is_finished: AtomicBool,
}

impl<'a> ThroughputTest<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        stats: &'a SessionStats<'a>,
        role: Role,
        duration: Duration,
    ) -> Self {
        let guard = Mutex::new(session.guard(role));
        let (started, is_finished) = Default::default();
        Self { session, outbox, stats, duration, started, guard, is_finished }
    }

    /// True if the test is over and needs no more streams.
    pub(crate) fn is_over(&self) -> bool {
        let is_expired =
            lock(&self.started).is_some_and(|started| started.elapsed() >= self.duration);
        is_expired || self.is_finished.load(Ordering::Relaxed)
    }

    /// Handles control messages on the sending side until the receiver is done.
    pub(crate) fn run_sender(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        loop {
            let message = reader.next()?;
            lock(&self.guard).admit(&message)?;
            match message {
                Message::Done(report) if self.is_over() => return Ok(report),
                Message::Done(_) => {
                    return Err(WireError::Unexpected(
                        "Done before the end of the throughput test",
                    )
                    .into());
                }
                Message::RateRequest(pace) => {
                    self.session.feedback.on_rate_request(pace);
                    pace.streams
                        .into_iter()
                        .for_each(|count| self.session.set_wanted_streams(count));
                }
                Message::RateLimit(limit) => self.session.on_rate_limit(limit)?,
                Message::TrainRequest(packets) => self.session.feedback.on_train_request(packets),
                Message::ReceiverReport(report) => self.session.feedback.on_receiver_report(report),
                Message::StreamEnded(number) => drop(self.session.close_stream(number)),
                _ => {}
            }
        }
    }

    /// Handles control messages on the receiving side until the sender is finished.
    pub(crate) fn run_receiver(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        loop {
            let message = reader.next()?;
            lock(&self.guard).admit(&message)?;
            match message {
                Message::Finish(report) => {
                    self.is_finished.store(true, Ordering::Relaxed);
                    return Ok(report);
                }
                Message::RateLimit(limit) => self.session.on_rate_limit(limit)?,
                Message::SenderReport(report) => self.session.feedback.on_sender_report(report),
                Message::StreamLost(number) => drop(self.session.close_stream(number)),
                _ => {}
            }
        }
    }

    /// Ends the test: joins the streams, then sends `Finish`.
    pub(crate) fn finish(&self, join_streams: impl FnOnce()) {
        self.outbox.post(&Message::EntriesEnd(Totals::default()));
        join_streams();
        self.outbox.wait_for_tunnels();
        if !self.session.is_stopped() {
            lock(&self.guard).on_finish_sent();
            self.outbox.post(&Message::Finish(self.stats.report()));
        }
    }

    /// Runs a stream of the sending side.
    pub(crate) fn send(&self, number: u32, mut stream: DataStream) -> io::Result<()> {
        if !self.session.prepare_sender(number, &mut stream) {
            return Ok(());
        }
        self.session.add_stream(number, stream.socket())?;
        lock(&self.started).get_or_insert_with(Instant::now);
        let result = self.send_on(number, &mut stream);
        add(&self.stats.counts.retransmits, stream.socket().retransmits());
        self.session.remove_stream(number);
        if result.is_err() && !self.session.is_stopped() {
            self.outbox.post(&Message::StreamLost(number));
        }
        result
    }

    fn send_on(&self, number: u32, stream: &mut DataStream) -> io::Result<()> {
        // Random, so that no middlebox can compress it.
        let mut filler = vec![0; FRAME_BYTES];
        bankfull_sys::random(&mut filler)?;
        let mut meter = ThreadMeter::start();
        while !self.is_over() && !self.session.is_stopped() {
            if self.session.is_paused(number) {
                thread::sleep(RESTING_POLL_INTERVAL);
                meter.mark(Stage::Idle);
                continue;
            }
            stream.begin_frame(&Header::Filler { len: FRAME_BYTES as u32 });
            stream.send(&filler)?;
            add(&self.stats.counts.bytes_moved, FRAME_BYTES as u64);
            self.record_times(stream, &mut meter);
        }
        stream.begin_frame(&Header::End);
        stream.flush()
    }

    /// Runs a stream of the receiving side.
    pub(crate) fn receive(&self, number: u32, mut stream: DataStream) -> io::Result<()> {
        self.session.add_stream(number, stream.socket())?;
        let result = self.receive_on(&mut stream);
        self.session.remove_stream(number);
        match result {
            Err(_) if self.session.is_stopped() => Ok(()),
            Err(e) => {
                self.outbox.post(&Message::StreamEnded(number));
                Err(e)
            }
            Ok(()) => Ok(()),
        }
    }

    fn receive_on(&self, stream: &mut DataStream) -> io::Result<()> {
        let mut buffer = vec![0; FRAME_BYTES];
        let mut meter = ThreadMeter::start();
        while !self.session.is_stopped() {
            let len = match stream.receive_header() {
                Ok(None) => return Ok(()),
                Ok(Some((_, Header::Filler { len }))) => len as usize,
                Ok(Some(_)) => return Err(io::ErrorKind::InvalidData.into()),
                // A read timeout alone is not an error: the control connection detects a dead peer.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e),
            };
            let mut left = len;
            while left > 0 {
                let chunk = left.min(buffer.len());
                stream.receive(&mut buffer[..chunk])?;
                left -= chunk;
            }
            add(&self.stats.counts.bytes_moved, len as u64);
            self.record_times(stream, &mut meter);
        }
        Ok(())
    }

    /// Adds the stream's stage times and wire bytes to the statistics.
    fn record_times(&self, stream: &mut DataStream, meter: &mut ThreadMeter) {
        meter.mark(Stage::Network);
        let mut times = meter.take();
        let crypto = stream.take_crypto_time().min(times.network);
        times.network -= crypto;
        times.compute += crypto;
        self.stats.add_times(&times, meter.take_cpu_time());
        add(&self.stats.counts.wire_bytes, stream.take_wire_bytes());
    }
}
