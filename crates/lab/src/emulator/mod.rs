//! The live emulator: one thread that reads what hosts send from their TUN interfaces, asks the
//! fabric of links what becomes of it, and writes it to the interface of its destination when it is
//! due.

mod fabric;
mod packet;
mod probe;
mod record;

pub use fabric::Station;
pub use packet::FlowKey;
pub use probe::NOWHERE;
pub use record::{Lateness, Recording, Sample};

use fabric::{Delivery, Fabric};
use packet::Packet;
use probe::{Beside, Probes};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest packet of an interface with its offload header. (RFC 791: a length of 16 bits)
const PACKET_BYTES_MAX: usize = bankfull_sys::tun::OFFLOAD_HEADER_BYTES + 65_535;

/// Packets read from one host before the others, and what is due, have their turn. (ours: a small
/// part of the lateness that is allowed)
const READS_AT_ONCE: usize = 8;

/// A packet that fills less than this of the read buffer is copied out of it. (ours: at most twice
/// the memory that packets on their way need)
const COPY_BYTES_MAX: usize = PACKET_BYTES_MAX / 2;

/// Longest wait before looking whether to stop or to cut.
const LOOK: Duration = Duration::from_millis(5);

/// Shortest wait worth a system call. (ours: what the calls take)
const WAIT_MIN: Duration = Duration::from_micros(5);

/// A running emulator. It ends when told to, or when dropped.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
    probes: Option<Probes>,
    thread: Option<JoinHandle<io::Result<Recording>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    cut: AtomicBool,
}

impl Emulator {
    /// Starts carrying packets between `stations`, whose interfaces are `tuns` in the same order.
    /// `probes` are sockets of the hosts that are connected with [`NOWHERE`].
    ///
    /// # Errors
    /// What the system says when the thread cannot be started or cannot wait for the interfaces.
    pub fn start(
        stations: Vec<Station>,
        tuns: Vec<File>,
        probes: Vec<UdpSocket>,
        seed: u64,
        interval: Duration,
    ) -> io::Result<Self> {
        let started = Instant::now();
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("emulator".to_owned());
        let thread = thread.spawn(move || {
            let fabric = Fabric::new(&stations, seed, interval);
            Loop::new(fabric, tuns, started)?.run(&seen)
        })?;
        let mut emulator = Self { shared, probes: None, thread: Some(thread) };
        emulator.probes = Some(Probes::start(probes, started)?);
        Ok(emulator)
    }

    /// Cuts all ways, or joins them again; packets on their way still arrive.
    pub fn set_cut(&self, is_cut: bool) {
        self.shared.cut.store(is_cut, Ordering::SeqCst);
    }

    /// Ends it and returns what it has recorded.
    ///
    /// # Errors
    /// What ended it before.
    pub fn stop(mut self) -> io::Result<Recording> {
        drop(self.probes.take());
        self.shared.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(io::Error::other("the emulator's thread has panicked")))
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Keeps processors from sleeping, from which they wake late: as long as the file is open.
/// (measured on a virtual machine: replies 0.35 ms earlier on a round trip of 20 ms)
fn keep_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    // Longest time to wake up, in microseconds (Documentation/power/pm_qos_interface.rst).
    file.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// The thread's state.
struct Loop {
    fabric: Fabric,
    tuns: Vec<File>,
    epoll: OwnedFd,
    started: Instant,
    beside: Beside,
    buffer: Vec<u8>,
}

impl Loop {
    fn new(fabric: Fabric, tuns: Vec<File>, started: Instant) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, tun) in tuns.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, tun, data, epoll::EventFlags::IN)?;
        }
        let buffer = Vec::with_capacity(PACKET_BYTES_MAX);
        Ok(Self { fabric, tuns, epoll, started, beside: Beside::default(), buffer })
    }

    fn run(mut self, shared: &Shared) -> io::Result<Recording> {
        bankfull_sys::tun::run_promptly()?;
        let _awake = keep_awake();
        let mut is_cut = false;
        let mut events = Vec::with_capacity(64);
        while !shared.stop.load(Ordering::SeqCst) {
            let cut = shared.cut.load(Ordering::SeqCst);
            if cut != is_cut {
                self.fabric.set_cut(cut);
                is_cut = cut;
            }
            self.deliver_due()?;
            self.wait(&mut events)?;
            for event in events.drain(..) {
                let event: epoll::Event = event;
                self.read_from(event.data.u64() as usize)?;
            }
        }
        Ok(self.fabric.finish())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for packets, but not beyond what is due next. (In nanoseconds, for which rustix's
    /// feature `linux_5_11` stands: epoll_pwait2. Without it they are whole milliseconds.)
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let until_next =
            self.fabric.next_at().map_or(LOOK, |at| at.saturating_sub(self.now()).min(LOOK));
        let mut timeout = Timespec::default();
        if until_next >= WAIT_MIN {
            timeout.tv_nsec = until_next.subsec_nanos().into();
        }
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn read_from(&mut self, host: usize) -> io::Result<()> {
        for _ in 0..READS_AT_ONCE {
            self.buffer.clear();
            match rustix::io::read(&self.tuns[host], spare_capacity(&mut self.buffer)) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            if let Some(sent) = probe::sent_at(&self.buffer) {
                let waited = self.now().saturating_sub(sent);
                self.fabric.recorder.probe(self.beside.counts(sent).then_some(waited));
                continue;
            }
            let bytes = if self.buffer.len() < COPY_BYTES_MAX {
                self.buffer.clone()
            } else {
                std::mem::replace(&mut self.buffer, Vec::with_capacity(PACKET_BYTES_MAX))
            };
            let now = self.now();
            self.beside.packet(now);
            let entered =
                Packet::parse(bytes).is_some_and(|packet| self.fabric.enter(now, host, packet));
            if !entered {
                self.fabric.recorder.stray();
            }
            self.deliver_due()?;
        }
        Ok(())
    }

    fn deliver_due(&mut self) -> io::Result<()> {
        while let Some(delivery) = self.fabric.next_due(self.now()) {
            let late = self.now().saturating_sub(delivery.planned);
            self.fabric.recorder.late(late);
            self.write(&delivery)?;
        }
        Ok(())
    }

    fn write(&mut self, delivery: &Delivery) -> io::Result<()> {
        let cut = delivery.packet.cut(delivery.first, delivery.count);
        let parts = [IoSlice::new(cut.header()), IoSlice::new(cut.payload())];
        loop {
            match (&self.tuns[delivery.station]).write_vectored(&parts) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A host that takes no more loses it; the record says so. EIO: it is down.
                Err(_) => {
                    self.fabric.recorder.refused();
                    return Ok(());
                }
            }
        }
    }
}
