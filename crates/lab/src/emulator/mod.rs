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

/// Longest wait: when a packet came that should have ended it is not known. (as [`STALL_MIN`])
const LOOK: Duration = STALL_MIN;

/// Shortest wait worth a system call. (ours: what the calls take)
const WAIT_MIN: Duration = Duration::from_micros(5);

/// The thread looks at the clock more often than this, unless the machine keeps it from running.
/// (ours: ten times what a packet takes)
const STALL_MIN: Duration = Duration::from_micros(300);

/// Packets of a host that are read at once after that. (ours: 32 MiB of super-packets)
const BACKLOG_MAX: usize = 512;

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
    /// When it last looked at the clock, and since when it had been kept from running, if it was.
    looked: Duration,
    stalled_from: Option<Duration>,
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
        let (looked, beside) = Default::default();
        Ok(Self { fabric, tuns, epoll, started, looked, stalled_from: None, beside, buffer })
    }

    fn run(mut self, shared: &Shared) -> io::Result<Recording> {
        bankfull_sys::tun::run_promptly()?;
        let _awake = keep_awake();
        let mut is_cut = false;
        let mut events = Vec::with_capacity(64);
        self.looked = self.now();
        while !shared.stop.load(Ordering::SeqCst) {
            let cut = shared.cut.load(Ordering::SeqCst);
            if cut != is_cut {
                self.fabric.set_cut(cut);
                is_cut = cut;
            }
            self.catch_up()?;
            self.deliver_due()?;
            self.wait(&mut events)?;
            self.catch_up()?;
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

    /// Looks at the clock, and notes when that is later than it should be.
    fn look(&mut self) -> Duration {
        let now = self.now();
        if now.saturating_sub(self.looked) > STALL_MIN {
            self.stalled_from.get_or_insert(self.looked);
        }
        self.looked = now;
        now
    }

    /// What hosts sent while the thread was kept from running did not come all at once, which would
    /// overflow queues: it enters as if sent evenly over that time.
    fn catch_up(&mut self) -> io::Result<()> {
        let Some(from) = self.stalled_from.take() else { return Ok(()) };
        let until = self.now();
        for host in 0..self.tuns.len() {
            let mut backlog = Vec::new();
            while backlog.len() < BACKLOG_MAX
                && let Some(packet) = self.read(host)?
            {
                backlog.extend(packet);
            }
            let count = backlog.len() as u32;
            for (number, packet) in (1..).zip(backlog) {
                self.enter(from + (until - from) * number / count, until, host, packet);
            }
        }
        self.looked = self.now();
        Ok(())
    }

    /// Waits for packets, but not beyond what is due next. (In nanoseconds, for which rustix's
    /// feature `linux_5_11` stands: epoll_pwait2. Without it they are whole milliseconds.)
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let now = self.look();
        let until_next = match self.stalled_from {
            Some(_) => Duration::ZERO,
            None => self.fabric.next_at().map_or(LOOK, |at| at.saturating_sub(now).min(LOOK)),
        };
        let mut timeout = Timespec::default();
        if until_next >= WAIT_MIN {
            timeout.tv_nsec = until_next.subsec_nanos().into();
        }
        let waited = epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout));
        // Until then it need not run.
        self.looked = (now + until_next).min(self.now());
        self.look();
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn read_from(&mut self, host: usize) -> io::Result<()> {
        for _ in 0..READS_AT_ONCE {
            if !self.take_from(host)? {
                return Ok(());
            }
            self.deliver_due()?;
        }
        Ok(())
    }

    /// Takes a packet of a host in. False when there is none, and after a stall.
    fn take_from(&mut self, host: usize) -> io::Result<bool> {
        if self.stalled_from.is_some() {
            return Ok(false);
        }
        let Some(packet) = self.read(host)? else { return Ok(false) };
        let now = self.look();
        if let Some(packet) = packet {
            self.enter(now, now, host, packet);
        }
        Ok(true)
    }

    /// Reads a packet of a host: `None` when there is none, and nothing within when it was one of
    /// the emulator's own.
    fn read(&mut self, host: usize) -> io::Result<Option<Option<Vec<u8>>>> {
        self.buffer.clear();
        loop {
            match rustix::io::read(&self.tuns[host], spare_capacity(&mut self.buffer)) {
                Ok(_) => break,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        if let Some(sent) = probe::sent_at(&self.buffer) {
            let waited = self.now().saturating_sub(sent);
            self.fabric.recorder.probe(self.beside.counts(sent).then_some(waited));
            return Ok(Some(None));
        }
        Ok(Some(Some(if self.buffer.len() < COPY_BYTES_MAX {
            self.buffer.clone()
        } else {
            std::mem::replace(&mut self.buffer, Vec::with_capacity(PACKET_BYTES_MAX))
        })))
    }

    /// A packet enters the network.
    fn enter(&mut self, at: Duration, read: Duration, host: usize, packet: Vec<u8>) {
        self.beside.packet(at);
        let entered =
            Packet::parse(packet).is_some_and(|packet| self.fabric.enter(at, read, host, packet));
        if !entered {
            self.fabric.recorder.stray();
        }
    }

    fn deliver_due(&mut self) -> io::Result<()> {
        // After a stall, what hosts have sent meanwhile comes first.
        while self.stalled_from.is_none()
            && let Some(delivery) = self.fabric.next_due(self.looked)
        {
            let late = self.look().saturating_sub(delivery.planned);
            self.fabric.recorder.late(late);
            self.write(&delivery)?;
            self.look();
            // An acknowledgement has its receiver send at once, while this thread writes it: what
            // is due behind it would keep that from the queue.
            while self.take_from(delivery.station)? {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_control::{Bytes, Rate};
    use bankfull_sim::LinkConfig;
    use std::net::Ipv4Addr;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    /// Two hosts, a line of 12 Mbit/s between them with a queue of three packets, and the far ends
    /// of their interfaces: a packet of 1500 bytes takes a millisecond.
    fn at_work() -> (Loop, [UnixDatagram; 2]) {
        let pairs = [0, 1].map(|_| UnixDatagram::pair().unwrap());
        let tuns = pairs.each_ref().map(|(near, _)| {
            near.set_nonblocking(true).unwrap();
            File::from(OwnedFd::from(near.try_clone().unwrap()))
        });
        let station = |last: u8| Station {
            address: Ipv4Addr::new(10, 77, 0, last),
            uplink: LinkConfig::default(),
            port: LinkConfig {
                rate: Some(Rate::from_bits_per_sec(12e6)),
                buffer: Bytes(4500),
                ..LinkConfig::default()
            },
        };
        let fabric = Fabric::new(&[station(1), station(2)], 1, Duration::from_millis(10));
        (Loop::new(fabric, tuns.into(), Instant::now()).unwrap(), pairs.map(|(_, far)| far))
    }

    /// A packet of 1500 bytes from the first to the second host.
    fn packet() -> Vec<u8> {
        let mut packet = vec![0; bankfull_sys::tun::OFFLOAD_HEADER_BYTES + 1500];
        let ip = &mut packet[bankfull_sys::tun::OFFLOAD_HEADER_BYTES..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&1500u16.to_be_bytes());
        ip[9] = 17;
        ip[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        packet
    }

    #[test]
    fn what_came_while_the_thread_was_kept_from_running_did_not_come_at_once() {
        for (stalled, dropped) in [(Duration::from_millis(20), 0), (Duration::ZERO, 7)] {
            let (mut at_work, hosts) = at_work();
            let now = Duration::from_millis(50);
            at_work.started -= now;
            at_work.looked = at_work.now() - stalled;
            (0..10).for_each(|_| assert!(hosts[0].send(&packet()).is_ok()));
            at_work.look();
            at_work.catch_up().unwrap();
            (0..2).for_each(|_| at_work.read_from(0).unwrap());
            at_work.looked = at_work.now();
            at_work.deliver_due().unwrap();
            let recording = at_work.fabric.finish();
            let totals = recording.totals[1];
            assert_eq!((totals.offered, totals.overflowed), (10, dropped), "{stalled:?}");
        }
    }
}
