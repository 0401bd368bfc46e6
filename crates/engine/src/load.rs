//! A session that copies nothing: the sending side sends filler for a while, to see what the path
//! carries. Everything around the data is as in a copy: connections, encryption, windows, pacing,
//! and what both sides tell of them.

use crate::counts::add;
use crate::error::Error;
use crate::net::control::{ControlReader, Outbox, lock};
use crate::net::stream::DataStream;
use crate::session::{Session, SessionStats, ThreadMeter};
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

/// Bytes of filler in a frame. [as the pieces of a copy, see `sender/work.rs`]
const FRAME_BYTES: usize = 256 << 10;

/// How often a connection that rests looks whether it still is to. (ours: two looks at the path)
const REST: Duration = Duration::from_millis(20);

/// One side of such a session.
pub(crate) struct Load<'a> {
    session: &'a Session,
    outbox: Outbox,
    stats: &'a SessionStats<'a>,
    time: Duration,
    /// When the first connection began to carry it.
    began: Mutex<Option<Instant>>,
    guard: Mutex<Guard>,
    is_finished: AtomicBool,
}

impl<'a> Load<'a> {
    pub(crate) fn new(
        session: &'a Session,
        outbox: Outbox,
        stats: &'a SessionStats<'a>,
        role: Role,
        time: Duration,
    ) -> Self {
        let guard = Mutex::new(Guard::new(role));
        let (began, is_finished) = Default::default();
        Self { session, outbox, stats, time, began, guard, is_finished }
    }

    /// Whether no connection is needed any more.
    pub(crate) fn is_over(&self) -> bool {
        let is_late = lock(&self.began).is_some_and(|began| began.elapsed() >= self.time);
        is_late || self.is_finished.load(Ordering::Relaxed)
    }

    /// The sending side's control thread: until the receiver has had all of it.
    pub(crate) fn run_sender(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        loop {
            let message = reader.next()?;
            lock(&self.guard).admit(&message)?;
            match message {
                Message::Done(report) if self.is_over() => return Ok(report),
                Message::Done(_) => {
                    return Err(WireError::Unexpected("the receiver is done too early").into());
                }
                Message::RateRequest(pace) => {
                    self.session.feedback.on_pace(pace);
                    pace.streams
                        .into_iter()
                        .for_each(|count| self.session.set_wanted_streams(count));
                }
                Message::TrainRequest(packets) => self.session.feedback.on_trains(packets),
                Message::ReceiverReport(course) => self.session.feedback.on_course(course),
                Message::StreamEnded(number) => drop(self.session.close_stream(number)),
                _ => {}
            }
        }
    }

    /// The receiving side's control thread: until the sender has said that it is finished.
    pub(crate) fn run_receiver(&self, reader: &mut ControlReader) -> Result<SideSummary, Error> {
        loop {
            let message = reader.next()?;
            lock(&self.guard).admit(&message)?;
            match message {
                Message::Finish(report) => {
                    self.is_finished.store(true, Ordering::Relaxed);
                    return Ok(report);
                }
                Message::SenderReport(sight) => self.session.feedback.on_sight(sight),
                Message::StreamLost(number) => drop(self.session.close_stream(number)),
                _ => {}
            }
        }
    }

    /// Says that nothing more comes, once the connections have ended.
    pub(crate) fn finish(&self, join_streams: impl FnOnce()) {
        self.outbox.post(&Message::EntriesEnd(Totals::default()));
        join_streams();
        self.outbox.wait_for_tunnels();
        if !self.session.is_stopped() {
            lock(&self.guard).on_finish_sent();
            self.outbox.post(&Message::Finish(self.stats.report()));
        }
    }

    /// A connection of the sending side.
    pub(crate) fn send(&self, number: u32, mut stream: DataStream) -> io::Result<()> {
        if !self.session.prepare_sender(number, &mut stream) {
            return Ok(());
        }
        self.session.add_stream(number, stream.socket())?;
        lock(&self.began).get_or_insert_with(Instant::now);
        let result = self.send_on(number, &mut stream);
        add(&self.stats.counts.retransmits, stream.socket().retransmits());
        self.session.remove_stream(number);
        if result.is_err() && !self.session.is_stopped() {
            self.outbox.post(&Message::StreamLost(number));
        }
        result
    }

    fn send_on(&self, number: u32, stream: &mut DataStream) -> io::Result<()> {
        // Nothing on the way may make it smaller.
        let mut filler = vec![0; FRAME_BYTES];
        bankfull_sys::random(&mut filler)?;
        let mut meter = ThreadMeter::start();
        while !self.is_over() && !self.session.is_stopped() {
            if self.session.is_paused(number) {
                thread::sleep(REST);
                meter.mark(Stage::Idle);
                continue;
            }
            stream.begin_frame(&Header::Filler { len: FRAME_BYTES as u32 });
            stream.send(&filler)?;
            add(&self.stats.counts.bytes_moved, FRAME_BYTES as u64);
            self.account(stream, &mut meter);
        }
        stream.begin_frame(&Header::End);
        stream.flush()
    }

    /// A connection of the receiving side.
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
                // Nothing for a while; the control connection tells whether that is bad.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e),
            };
            let mut left = len;
            while left > 0 {
                let part = left.min(buffer.len());
                stream.receive(&mut buffer[..part])?;
                left -= part;
            }
            add(&self.stats.counts.bytes_moved, len as u64);
            self.account(stream, &mut meter);
        }
        Ok(())
    }

    fn account(&self, stream: &mut DataStream, meter: &mut ThreadMeter) {
        meter.mark(Stage::Network);
        let mut times = meter.take();
        let crypto = stream.take_crypto_time().min(times.network);
        times.network -= crypto;
        times.compute += crypto;
        self.stats.add_times(&times, meter.take_cpu_time());
        add(&self.stats.counts.wire_bytes, stream.take_wire_bytes());
    }
}
