//! Datagram service: one socket, a thread that receives, processes and answers messages, and one
//! that tunes the receive buffer.
//!
//! The rule of the buffer lives in `bankfull_control::rrda`, its observations in
//! `bankfull::udp_receive_buffer`.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::tools::builtin::datagrams::duty_cycle::DutyCycle;
use crate::tools::builtin::datagrams::message;
use crate::tools::builtin::datagrams::message::{Header, NAME};
use crate::tools::builtin::generators::{generator_error, is_transient};
use bankfull::udp_receive_buffer::{MIN_BUFFER, ReceiveBufferLog, UdpReceiveBuffer};
use bankfull_control::Bytes;
use bankfull_control::rrda::EPOCH_INTERVAL;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of deadline checks while waiting for a message. (chosen: not noticeable)
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time after its start in which the service warms up, whose discards are counted apart. (chosen:
/// twenty epochs)
const WARMUP: Duration = Duration::from_secs(2);

/// Niceness of the service: before all threads without real-time priority. (setpriority(2): the
/// lowest value)
const NICENESS: i32 = -20;

/// Shortest interval of buffer checks. Applies after the buffer has grown, and after an arrival at
/// the minimum size, since the first burst of a load may arrive in mid-epoch. Doubled, up to an
/// epoch, while nothing changes. (chosen: at 1 Gbit/s the minimum size is not full sooner)
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Time for sent messages to arrive after the clients have ended. (chosen: several times the RTT of
/// the lab's paths)
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time of the service after its clients. The service then processes the rest and shrinks
/// its buffer. (chosen: twice the buffer's limit)
const MAX_DRAIN_TIME: Duration = Duration::from_secs(10);

/// Multiple of the minimum size below which the buffer has shrunk. (aim in docs/algorithms/rrda.md)
const SHRUNK_FACTOR: u64 = 2;

/// Counters of the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Messages received from the socket.
    pub(crate) received: u64,
    /// Received messages that had been processed before.
    pub(crate) duplicates: u64,
    /// Bytes of processed messages.
    pub(crate) processed: Bytes,
    /// Messages whose content does not match its hash.
    pub(crate) damaged: u64,
    /// Messages discarded during warm-up; `None` until it is over.
    pub(crate) discarded_in_warmup: Option<u64>,
    /// CPU time of the handler, and of the buffer tuner.
    pub(crate) handler_cpu: Duration,
    pub(crate) tuner_cpu: Duration,
}

/// History of the receive buffer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BufferHistory {
    /// Sizes, each with its start.
    pub(crate) sizes: Vec<(Instant, Bytes)>,
    /// Time from the end of the clients until a tuned buffer had shrunk.
    pub(crate) shrink_time: Option<Duration>,
}

/// Running service.
#[derive(Debug)]
pub(crate) struct Service {
    socket: UdpSocket,
    /// CPU share.
    cpu: f64,
    /// Tuned buffer; `None` if fixed.
    buffer: Option<Mutex<UdpReceiveBuffer>>,
    counters: Mutex<Counters>,
    /// End of the clients, and the number of messages sent.
    ended: OnceLock<(Instant, u64)>,
}

impl Service {
    /// Service with a fixed buffer, or a tuned one.
    pub(crate) fn new(socket: UdpSocket, buffer: Option<Bytes>, cpu: f64) -> Result<Self> {
        socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(generator_error)?;
        let room = match buffer {
            Some(size) => {
                set_fixed_buffer(&socket, size)?;
                None
            }
            None => {
                let room =
                    UdpReceiveBuffer::new(&socket, ReceiveBufferLog::default(), MIN_BUFFER, None);
                let remedy = "use Linux 4.12 or newer, which reports the fill level of a socket";
                Some(room.ok_or(LabError::Missing("SO_MEMINFO", remedy))?)
            }
        };
        let (counters, ended) = Default::default();
        Ok(Self { socket, cpu, buffer: room.map(Mutex::new), counters, ended })
    }

    /// Records the end of the clients, and the number of messages sent.
    pub(crate) fn on_clients_finished(&self, sent: u64) {
        // Only the first call counts.
        let _ = self.ended.set((Instant::now(), sent));
    }

    pub(crate) fn counters(&self) -> Counters {
        *lock(&self.counters)
    }

    /// Messages discarded by the socket for lack of buffer.
    pub(crate) fn discarded(&self) -> Result<u64> {
        // The socket is new, so its counter started at zero.
        bankfull_sys::receive_buffer(&self.socket)
            .map(|b| b.dropped.into())
            .map_err(generator_error)
    }

    /// True if messages are queued in the socket.
    fn has_unread(&self) -> Result<bool> {
        bankfull_sys::receive_buffer(&self.socket).map(|b| b.used > 0).map_err(generator_error)
    }

    /// Counts and drains the messages queued in the socket.
    pub(crate) fn count_unread(&self) -> Result<u64> {
        self.socket.set_nonblocking(true).map_err(generator_error)?;
        let mut count = 0;
        loop {
            match self.socket.recv(&mut [0]) {
                Ok(_) => count += 1,
                Err(e) if is_transient(&e) => return Ok(count),
                Err(e) => return Err(generator_error(e)),
            }
        }
    }

    /// Processes messages until all sent ones are accounted for, or none arrives any more.
    pub(crate) fn serve(&self, clients: usize, deadline: &Deadline<'_>) -> Result<()> {
        raise_priority();
        let mut buffer = vec![0; message::MAX_MESSAGE_BYTES];
        // Number of the last processed message of each client.
        let mut last = vec![0; clients];
        let start = Instant::now();
        let duty_cycle = DutyCycle::new(self.cpu, start);
        while !self.is_done()? {
            if start.elapsed() >= WARMUP && self.counters().discarded_in_warmup.is_none() {
                lock(&self.counters).discarded_in_warmup = Some(self.discarded()?);
            }
            if let Some(until) = duty_cycle.idle_until(Instant::now()) {
                deadline.sleep_until(until, NAME)?;
                continue;
            }
            if let Some(room) = &self.buffer {
                lock(room).sample(&self.socket);
            }
            match self.socket.recv_from(&mut buffer) {
                Ok((bytes, from)) => self.process(&buffer[..bytes], from, &mut last)?,
                Err(e) if is_transient(&e) => deadline.check(NAME)?,
                Err(e) => return Err(generator_error(e)),
            }
        }
        Ok(())
    }

    /// Processes a new message, and sends a response.
    fn process(&self, message: &[u8], from: SocketAddr, last: &mut [u64]) -> Result<()> {
        if let Some(room) = &self.buffer {
            lock(room).on_received(message.len());
        }
        let header = Header::read(message);
        let last = header.and_then(|header| last.get_mut(header.client as usize));
        let (Some(header), Some(last)) = (header, last) else {
            lock(&self.counters).damaged += 1;
            return Ok(());
        };
        let is_new = header.number > *last;
        let is_intact = !is_new || message::is_intact(message);
        let mut counters = lock(&self.counters);
        counters.handler_cpu = bankfull_sys::thread_cpu_time();
        counters.received += 1;
        match (is_new, is_intact) {
            (false, _) => counters.duplicates += 1,
            (true, false) => counters.damaged += 1,
            (true, true) => {
                counters.processed += Bytes(message.len() as u64);
                *last = header.number;
            }
        }
        drop(counters);
        match self.socket.send_to(&message[..Header::BYTES], from) {
            // A closed client socket is reported at the next send.
            Err(e) if !is_transient(&e) && e.kind() != std::io::ErrorKind::ConnectionRefused => {
                Err(generator_error(e))
            }
            _ => Ok(()),
        }
    }

    /// True once the service is done.
    fn is_done(&self) -> Result<bool> {
        let Some((at, sent)) = self.ended.get() else { return Ok(false) };
        let received = self.counters().received;
        if received + self.discarded()? >= *sent || at.elapsed() > MAX_DRAIN_TIME {
            return Ok(true);
        }
        Ok(at.elapsed() > ARRIVAL_TIMEOUT && !self.has_unread()?)
    }

    /// Tunes the buffer in each epoch until it has shrunk after the clients' end. Returns at once
    /// for a fixed buffer.
    pub(crate) fn tune_buffer(&self, deadline: &Deadline<'_>) -> Result<BufferHistory> {
        let now = Instant::now();
        let Some(room) = &self.buffer else {
            let size = bankfull_sys::receive_buffer(&self.socket).map_err(generator_error)?.size;
            return Ok(BufferHistory { sizes: vec![(now, Bytes(size))], shrink_time: None });
        };
        raise_priority();
        let mut size = lock(room).size();
        let mut history = BufferHistory { sizes: vec![(now, size)], shrink_time: None };
        let (mut pause, mut queued, mut sample_count) = (MIN_CHECK_INTERVAL, Bytes(0), 0);
        loop {
            let is_above_min = lock(room).is_above_min();
            if !is_above_min && queued == Bytes(0) {
                let since = Instant::now();
                bankfull_sys::wait_readable(&self.socket, EPOCH_INTERVAL)
                    .map_err(generator_error)?;
                if since.elapsed() > MIN_CHECK_INTERVAL {
                    pause = MIN_CHECK_INTERVAL;
                }
            }
            thread::sleep(pause);
            deadline.check(NAME)?;
            let now = Instant::now();
            let mut room = lock(room);
            // Skipped if the handler has sampled meanwhile.
            let mut has_changed = false;
            if room.sample_count() == sample_count {
                let before = (std::mem::replace(&mut queued, room.sample(&self.socket)), size);
                has_changed = room.size() > before.1 || !is_above_min && queued != before.0;
            }
            sample_count = room.sample_count();
            pause = if has_changed { MIN_CHECK_INTERVAL } else { (pause * 2).min(EPOCH_INTERVAL) };
            room.advance(&self.socket, now);
            size = room.size();
            drop(room);
            lock(&self.counters).tuner_cpu = bankfull_sys::thread_cpu_time();
            if history.sizes.last().is_none_or(|(_, before)| *before != size) {
                history.sizes.push((now, size));
            }
            if let Some((at, _)) = self.ended.get() {
                let since = now.saturating_duration_since(*at);
                if size.0 <= MIN_BUFFER.0 * SHRUNK_FACTOR {
                    history.shrink_time = Some(since);
                }
                if history.shrink_time.is_some() || since > MAX_DRAIN_TIME {
                    return Ok(history);
                }
            }
        }
    }
}

/// Raises the priority of the calling thread over the clients, if permitted: the CPU share belongs
/// to the service. The emulator keeps real-time priority, or runs would be void.
fn raise_priority() {
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// Sets a fixed buffer; fails if the kernel grants less.
fn set_fixed_buffer(socket: &UdpSocket, size: Bytes) -> Result<()> {
    let granted = Bytes(bankfull_sys::set_receive_buffer(socket, size.0).map_err(generator_error)?);
    if granted >= size {
        return Ok(());
    }
    let what = format!(
        "the kernel grants a receive buffer of {granted} for {size}: raise net.core.rmem_max"
    );
    Err(LabError::Command(NAME.to_owned(), what))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
