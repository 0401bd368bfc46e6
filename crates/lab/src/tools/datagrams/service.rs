//! The service: one socket, a thread that takes messages out of it, processes and answers them, and
//! one that looks after the socket's receive buffer, where that follows the load.
//!
//! What never lives here: the rule that the buffer follows (`bankfull_control::rrda`), and what it
//! is told (`bankfull::udp_receive_buffer`).

use super::NAME;
use super::duty::Duty;
use super::message::{self, Heading};
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::tools::sources::{failed, is_pause};
use bankfull::udp_receive_buffer::{MIN_BUFFER, ShortfallLog, UdpReceiveBuffer};
use bankfull_control::Bytes;
use bankfull_control::rrda::EPOCH_INTERVAL;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A wait for a message looks so often whether it must end. (ours: as short as nobody notices)
const LOOK: Duration = Duration::from_millis(20);

/// So long after its begin a service has its load, and what it discards is no beginning's. (ours:
/// twenty epochs)
const BEGINNING: Duration = Duration::from_secs(2);

/// The service's niceness: before all threads but those of real time. (setpriority(2): the least)
const NICE: i32 = -20;

/// A buffer is looked at so soon after it has grown, and after something has come to one of the
/// least size, in the midst of an epoch: there the first burst of a load finds it. (ours: at 1
/// Gbit/s the least is not full sooner) Where nothing has changed, or the handler has looked
/// meanwhile, half as often each time.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// So long after the clients have ended what they sent may be on its way. (ours: several times what
/// a path of the lab takes)
const LAST_WAIT: Duration = Duration::from_secs(1);

/// So long the service goes on after its clients, at most: to process what is left, and until its
/// buffer is back. (ours: twice what the buffer may take)
const AFTERWARDS: Duration = Duration::from_secs(10);

/// A buffer is back below so many times its least size. (the aim in docs/algorithms/rrda.md)
const BACK: u64 = 2;

/// What the service has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Books {
    /// Messages that were taken out of the socket.
    pub(super) taken: u64,
    /// Those of them that had been processed before.
    pub(super) repeated: u64,
    /// Bytes of those that were processed.
    pub(super) processed: Bytes,
    /// Those whose content was not what its sum says.
    pub(super) damaged: u64,
    /// Those that were discarded in the beginning, once it is over.
    pub(super) discarded_first: Option<u64>,
    /// Processor time of the handler, and of whoever looks after the buffer.
    pub(super) handler: Duration,
    pub(super) keeper: Duration,
}

/// What became of the buffer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Course {
    /// Its sizes, each with the moment since which it has it.
    pub(super) sizes: Vec<(Instant, Bytes)>,
    /// How long after the clients had ended it was back, where it is not always the same.
    pub(super) back: Option<Duration>,
}

/// A service at work.
#[derive(Debug)]
pub(super) struct Service {
    socket: UdpSocket,
    /// A part of a processor.
    cpu: f64,
    /// Where the buffer follows the load.
    room: Option<Mutex<UdpReceiveBuffer>>,
    books: Mutex<Books>,
    /// When the clients ended, and how many messages they had sent.
    ended: OnceLock<(Instant, u64)>,
}

impl Service {
    /// With a buffer of a size, or one that follows the load.
    pub(super) fn new(socket: UdpSocket, buffer: Option<Bytes>, cpu: f64) -> Result<Self> {
        socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
        let room = match buffer {
            Some(size) => {
                give(&socket, size)?;
                None
            }
            None => {
                let room =
                    UdpReceiveBuffer::new(&socket, ShortfallLog::default(), MIN_BUFFER, None);
                let remedy = "a kernel from 4.12 on tells how full a socket is";
                Some(room.ok_or(LabError::Missing("SO_MEMINFO", remedy))?)
            }
        };
        let (books, ended) = Default::default();
        Ok(Self { socket, cpu, room: room.map(Mutex::new), books, ended })
    }

    /// The clients have sent so many messages, and send no more.
    pub(super) fn end(&self, sent: u64) {
        // The first word holds.
        let _ = self.ended.set((Instant::now(), sent));
    }

    pub(super) fn books(&self) -> Books {
        *lock(&self.books)
    }

    /// Messages that the socket has discarded for want of room.
    pub(super) fn discarded(&self) -> Result<u64> {
        // The socket has had none before the service.
        bankfull_sys::receive_buffer(&self.socket).map(|b| b.dropped.into()).map_err(failed)
    }

    /// Whether messages stand in the socket.
    fn has_unread(&self) -> Result<bool> {
        bankfull_sys::receive_buffer(&self.socket).map(|b| b.used > 0).map_err(failed)
    }

    /// How many messages stand in the socket, which are taken out and not processed.
    pub(super) fn count_unread(&self) -> Result<u64> {
        self.socket.set_nonblocking(true).map_err(failed)?;
        let mut count = 0;
        loop {
            match self.socket.recv(&mut [0]) {
                Ok(_) => count += 1,
                Err(e) if is_pause(&e) => return Ok(count),
                Err(e) => return Err(failed(e)),
            }
        }
    }

    /// Takes messages out, until all that were sent have been or nothing comes any more.
    pub(super) fn handle(&self, clients: usize, deadline: &Deadline<'_>) -> Result<()> {
        go_before_clients();
        let mut buffer = vec![0; message::BYTES_MAX];
        // The last that was processed of each client.
        let mut last = vec![0; clients];
        let begun = Instant::now();
        let duty = Duty::new(self.cpu, begun);
        while !self.is_over()? {
            if begun.elapsed() >= BEGINNING && self.books().discarded_first.is_none() {
                lock(&self.books).discarded_first = Some(self.discarded()?);
            }
            if let Some(until) = duty.still_until(Instant::now()) {
                deadline.sleep_until(until, NAME)?;
                continue;
            }
            if let Some(room) = &self.room {
                lock(room).sample(&self.socket);
            }
            match self.socket.recv_from(&mut buffer) {
                Ok((bytes, from)) => self.take(&buffer[..bytes], from, &mut last)?,
                Err(e) if is_pause(&e) => deadline.check(NAME)?,
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(())
    }

    /// Processes a message, unless it was before, and answers it.
    fn take(&self, message: &[u8], from: SocketAddr, last: &mut [u64]) -> Result<()> {
        if let Some(room) = &self.room {
            lock(room).on_received(message.len());
        }
        let heading = Heading::read(message);
        let last = heading.and_then(|heading| last.get_mut(heading.client as usize));
        let (Some(heading), Some(last)) = (heading, last) else {
            lock(&self.books).damaged += 1;
            return Ok(());
        };
        let is_new = heading.number > *last;
        let is_whole = !is_new || message::is_whole(message);
        let mut books = lock(&self.books);
        books.handler = bankfull_sys::thread_cpu_time();
        books.taken += 1;
        match (is_new, is_whole) {
            (false, _) => books.repeated += 1,
            (true, false) => books.damaged += 1,
            (true, true) => {
                books.processed += Bytes(message.len() as u64);
                *last = heading.number;
            }
        }
        drop(books);
        match self.socket.send_to(&message[..Heading::BYTES], from) {
            // Where a client is gone, that is told the next who sends.
            Err(e) if !is_pause(&e) && e.kind() != std::io::ErrorKind::ConnectionRefused => {
                Err(failed(e))
            }
            _ => Ok(()),
        }
    }

    /// Whether all is done.
    fn is_over(&self) -> Result<bool> {
        let Some((at, sent)) = self.ended.get() else { return Ok(false) };
        let taken = self.books().taken;
        if taken + self.discarded()? >= *sent || at.elapsed() > AFTERWARDS {
            return Ok(true);
        }
        Ok(at.elapsed() > LAST_WAIT && !self.has_unread()?)
    }

    /// Sets the buffer's size in each epoch, until it is back after the clients have ended. A
    /// buffer of one size needs nobody.
    pub(super) fn keep(&self, deadline: &Deadline<'_>) -> Result<Course> {
        let now = Instant::now();
        let Some(room) = &self.room else {
            let size = bankfull_sys::receive_buffer(&self.socket).map_err(failed)?.size;
            return Ok(Course { sizes: vec![(now, Bytes(size))], back: None });
        };
        go_before_clients();
        let mut size = lock(room).size();
        let mut course = Course { sizes: vec![(now, size)], back: None };
        let (mut pause, mut standing, mut looks) = (FIRST_LOOK, Bytes(0), 0);
        loop {
            let is_above_min = lock(room).is_above_min();
            if !is_above_min && standing == Bytes(0) {
                let since = Instant::now();
                bankfull_sys::wait_readable(&self.socket, EPOCH_INTERVAL).map_err(failed)?;
                if since.elapsed() > FIRST_LOOK {
                    pause = FIRST_LOOK;
                }
            }
            thread::sleep(pause);
            deadline.check(NAME)?;
            let now = Instant::now();
            let mut room = lock(room);
            // Whoever takes something out looks first: then nobody else needs to.
            let mut has_changed = false;
            if room.sample_count() == looks {
                let before = (std::mem::replace(&mut standing, room.sample(&self.socket)), size);
                has_changed = room.size() > before.1 || !is_above_min && standing != before.0;
            }
            looks = room.sample_count();
            pause = if has_changed { FIRST_LOOK } else { (pause * 2).min(EPOCH_INTERVAL) };
            room.advance(&self.socket, now);
            size = room.size();
            drop(room);
            lock(&self.books).keeper = bankfull_sys::thread_cpu_time();
            if course.sizes.last().is_none_or(|(_, before)| *before != size) {
                course.sizes.push((now, size));
            }
            if let Some((at, _)) = self.ended.get() {
                let since = now.saturating_duration_since(*at);
                if size.0 <= MIN_BUFFER.0 * BACK {
                    course.back = Some(since);
                }
                if course.back.is_some() || since > AFTERWARDS {
                    return Ok(course);
                }
            }
        }
    }
}

/// A part of a processor is the service's own, before all clients; where it may not, they take some
/// of it. (For the calling thread alone. The emulator still goes before it, or runs would be void.)
fn go_before_clients() {
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Gives a socket a buffer of a size, and fails where the kernel grants less.
fn give(socket: &UdpSocket, size: Bytes) -> Result<()> {
    let granted = Bytes(bankfull_sys::set_receive_buffer(socket, size.0).map_err(failed)?);
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
