//! Live emulator: one thread reads packets from the hosts' TUN interfaces, passes them through the
//! fabric of links, and writes each to its destination's interface when due.

mod fabric;
mod packet;
mod probe;
mod record;

pub use fabric::Endpoint;
pub use packet::FlowKey;
pub use probe::BLACKHOLE;
pub use record::{Lateness, Recording, Sample};

use fabric::{Delivery, Fabric};
use packet::Packet;
use probe::{BusyPeriod, ProbeSender};

use bankfull_sim::Background;
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

/// Largest packet with its offload header, in bytes. (RFC 791: a 16-bit length)
const MAX_PACKET_BYTES: usize = bankfull_sys::tun::OFFLOAD_HEADER_BYTES + 65_535;

/// Packets read from one host before other hosts and due deliveries. (chosen: a small part of the
/// allowed lateness)
const READS_PER_HOST: usize = 8;

/// A shorter packet is copied out of the read buffer. (chosen: packets in flight need at most twice
/// their size)
const MAX_COPY_BYTES: usize = MAX_PACKET_BYTES / 2;

/// Longest wait: the arrival time of a packet that should have ended it is unknown. (as
/// [`MIN_STALL`])
const MAX_WAIT: Duration = MIN_STALL;

/// Shortest wait worth a system call. (chosen: the cost of the calls)
const MIN_WAIT: Duration = Duration::from_micros(5);

/// Gap between clock readings that counts as a stall of the thread. (chosen: ten times the cost of
/// a packet)
const MIN_STALL: Duration = Duration::from_micros(300);

/// Packets of a host read at once after a stall. (chosen: 32 MiB of super-packets)
const MAX_STALL_PACKETS: usize = 512;

/// Running emulator; ends when stopped or dropped.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
    probes: Option<ProbeSender>,
    thread: Option<JoinHandle<io::Result<Recording>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    cut: AtomicBool,
}

impl Emulator {
    /// Starts carrying packets between `endpoints`, whose interfaces are `tuns` in the same order.
    /// `probes` are sockets of the hosts, connected to [`BLACKHOLE`].
    ///
    /// # Errors
    /// The system's error if a thread cannot be started or the interfaces cannot be polled.
    pub fn start(
        endpoints: Vec<Endpoint>,
        tuns: Vec<File>,
        probes: Vec<UdpSocket>,
        background: Vec<Background>,
        seed: u64,
        interval: Duration,
    ) -> io::Result<Self> {
        let started = Instant::now();
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("emulator".to_owned());
        let thread = thread.spawn(move || {
            let fabric = Fabric::new(&endpoints, &background, seed, interval);
            EventLoop::new(fabric, tuns, started)?.run(&thread_shared)
        })?;
        let mut emulator = Self { shared, probes: None, thread: Some(thread) };
        emulator.probes = Some(ProbeSender::start(probes, started)?);
        Ok(emulator)
    }

    /// Cuts all paths, or restores them; packets in flight still arrive.
    pub fn set_cut(&self, is_cut: bool) {
        self.shared.cut.store(is_cut, Ordering::SeqCst);
    }

    /// Stops and returns the recording.
    ///
    /// # Errors
    /// The error that ended the emulator before.
    pub fn stop(mut self) -> io::Result<Recording> {
        drop(self.probes.take());
        self.shared.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        ended
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(io::Error::other("the emulator's thread has panicked")))
    }

    /// True while the thread runs.
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

/// Keeps CPUs out of deep sleep states while the file is open. (measured in a virtual machine:
/// replies 0.35 ms earlier at an RTT of 20 ms)
fn keep_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    // Longest wake-up latency in microseconds. (Documentation/power/pm_qos_interface.rst)
    file.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// State of the emulator thread.
struct EventLoop {
    fabric: Fabric,
    tuns: Vec<File>,
    epoll: OwnedFd,
    started: Instant,
    /// Last clock reading, and the start of a detected stall.
    last_clock: Duration,
    stall_start: Option<Duration>,
    busy: BusyPeriod,
    buffer: Vec<u8>,
}

impl EventLoop {
    fn new(fabric: Fabric, tuns: Vec<File>, started: Instant) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, tun) in tuns.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, tun, data, epoll::EventFlags::IN)?;
        }
        let buffer = Vec::with_capacity(MAX_PACKET_BYTES);
        let (last_clock, busy) = Default::default();
        Ok(Self { fabric, tuns, epoll, started, last_clock, stall_start: None, busy, buffer })
    }

    fn run(mut self, shared: &Shared) -> io::Result<Recording> {
        bankfull_sys::tun::set_realtime_priority()?;
        let _awake = keep_awake();
        let mut is_cut = false;
        let mut events = Vec::with_capacity(64);
        self.last_clock = self.now();
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

    /// Reads the clock, and detects a stall.
    fn read_clock(&mut self) -> Duration {
        let now = self.now();
        if now.saturating_sub(self.last_clock) > MIN_STALL {
            self.stall_start.get_or_insert(self.last_clock);
        }
        self.last_clock = now;
        now
    }

    /// Spreads the packets sent during a stall evenly over it: entering all at once, they would
    /// overflow queues.
    fn catch_up(&mut self) -> io::Result<()> {
        let Some(from) = self.stall_start.take() else { return Ok(()) };
        let until = self.now();
        for host in 0..self.tuns.len() {
            let mut backlog = Vec::new();
            while backlog.len() < MAX_STALL_PACKETS
                && let Some(packet) = self.read(host)?
            {
                backlog.extend(packet);
            }
            let count = backlog.len() as u32;
            for (number, packet) in (1..).zip(backlog) {
                self.enter(from + (until - from) * number / count, until, host, packet);
            }
        }
        self.last_clock = self.now();
        Ok(())
    }

    /// Waits for packets until the next event. Uses epoll_pwait2 for nanosecond timeouts, which
    /// rustix offers with its feature `linux_5_11`; without it they are whole milliseconds.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let now = self.read_clock();
        let until_next = match self.stall_start {
            Some(_) => Duration::ZERO,
            None => self
                .fabric
                .next_event_at()
                .map_or(MAX_WAIT, |at| at.saturating_sub(now).min(MAX_WAIT)),
        };
        let mut timeout = Timespec::default();
        if until_next >= MIN_WAIT {
            timeout.tv_nsec = until_next.subsec_nanos().into();
        }
        let waited = epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout));
        // Time before the timeout is no stall.
        self.last_clock = (now + until_next).min(self.now());
        self.read_clock();
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn read_from(&mut self, host: usize) -> io::Result<()> {
        for _ in 0..READS_PER_HOST {
            if !self.ingest(host)? {
                return Ok(());
            }
            self.deliver_due()?;
        }
        Ok(())
    }

    /// Reads a packet of a host into the network. Returns false if there is none, and after a
    /// stall.
    fn ingest(&mut self, host: usize) -> io::Result<bool> {
        if self.stall_start.is_some() {
            return Ok(false);
        }
        let Some(packet) = self.read(host)? else { return Ok(false) };
        let now = self.read_clock();
        if let Some(packet) = packet {
            self.enter(now, now, host, packet);
        }
        Ok(true)
    }

    /// Reads a packet of a host: `None` if there is none, `Some(None)` for a probe.
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
            self.fabric.recorder.record_probe(self.busy.contains(sent).then_some(waited));
            return Ok(Some(None));
        }
        Ok(Some(Some(if self.buffer.len() < MAX_COPY_BYTES {
            self.buffer.clone()
        } else {
            std::mem::replace(&mut self.buffer, Vec::with_capacity(MAX_PACKET_BYTES))
        })))
    }

    /// Enters a packet into the network, or counts it as stray.
    fn enter(&mut self, at: Duration, read: Duration, host: usize, packet: Vec<u8>) {
        self.busy.on_packet(at);
        let entered =
            Packet::parse(packet).is_some_and(|packet| self.fabric.enter(at, read, host, packet));
        if !entered {
            self.fabric.recorder.count_stray();
        }
    }

    fn deliver_due(&mut self) -> io::Result<()> {
        // After a stall, packets sent meanwhile come first.
        while self.stall_start.is_none()
            && let Some(delivery) = self.fabric.next_delivery(self.last_clock)
        {
            let late = self.read_clock().saturating_sub(delivery.scheduled);
            self.fabric.recorder.record_lateness(late);
            self.write(&delivery);
            self.read_clock();
            // A delivered ACK makes its receiver send while this thread writes; segments due later
            // must not overtake those in the queue.
            while self.ingest(delivery.endpoint)? {}
        }
        Ok(())
    }

    /// Writes the segments of a delivery to its endpoint; a failure is counted.
    fn write(&mut self, delivery: &Delivery) {
        let Delivery { packet, first, count, is_marked, .. } = delivery;
        let segments = packet.extract(*first, *count, *is_marked);
        let parts = [IoSlice::new(segments.header()), IoSlice::new(segments.payload())];
        loop {
            match (&self.tuns[delivery.endpoint]).write_vectored(&parts) {
                Ok(_) => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A full interface loses the packet. EIO: the interface is down.
                Err(_) => return self.fabric.recorder.count_write_error(),
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

    /// Returns two hosts, a link of 12 Mbit/s, and the far ends of their interfaces. The link's
    /// queue has three packets. A packet of 1500 bytes takes 1 ms.
    fn at_work() -> (EventLoop, [UnixDatagram; 2]) {
        let pairs = [0, 1].map(|_| UnixDatagram::pair().unwrap());
        let tuns = pairs.each_ref().map(|(near_end, _)| {
            near_end.set_nonblocking(true).unwrap();
            File::from(OwnedFd::from(near_end.try_clone().unwrap()))
        });
        let endpoint = |last: u8| Endpoint {
            address: Ipv4Addr::new(10, 77, 0, last),
            uplink: LinkConfig::default(),
            port: LinkConfig {
                rate: Some(Rate::from_bits_per_sec(12e6)),
                buffer: Bytes(4500),
                ..LinkConfig::default()
            },
            has_first_hop: false,
        };
        let fabric = Fabric::new(&[endpoint(1), endpoint(2)], &[], 1, Duration::from_millis(10));
        (
            EventLoop::new(fabric, tuns.into(), Instant::now()).unwrap(),
            pairs.map(|(_, far_end)| far_end),
        )
    }

    /// Packet of 1500 bytes from the first to the second host.
    fn on_packet() -> Vec<u8> {
        let mut packet = vec![0; bankfull_sys::tun::OFFLOAD_HEADER_BYTES + 1500];
        let ip = &mut packet[bankfull_sys::tun::OFFLOAD_HEADER_BYTES..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&1500u16.to_be_bytes());
        ip[9] = 17;
        ip[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        packet
    }

    /// Offered and overflowed packets of a burst of ten after a stall.
    ///
    /// `None` if the machine stalled meanwhile.
    fn burst_after_stall(stalled: Duration) -> Option<(u64, u64)> {
        let (mut at_work, hosts) = at_work();
        (0..10).for_each(|_| assert!(hosts[0].send(&on_packet()).is_ok()));
        at_work.started -= Duration::from_millis(50);
        at_work.last_clock = at_work.now() - stalled;
        at_work.read_clock();
        let is_as_intended = at_work.stall_start.is_some() != stalled.is_zero();
        at_work.catch_up().unwrap();
        (0..2).for_each(|_| at_work.read_from(0).unwrap());
        if at_work.stall_start.is_some() || !is_as_intended {
            return None;
        }
        while at_work.fabric.next_delivery(at_work.now()).is_some() {}
        let totals = at_work.fabric.finish().totals[1];
        Some((totals.offered, totals.overflowed))
    }

    #[test]
    fn packets_during_stall_are_spread_over_it() {
        for (stalled, dropped) in [(Duration::from_millis(20), 0), (Duration::ZERO, 7)] {
            let found = (0..100).find_map(|_| burst_after_stall(stalled));
            assert_eq!(found, Some((10, dropped)), "{stalled:?}");
        }
    }
}
