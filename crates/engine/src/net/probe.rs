//! Datagrams beside the data: probes of the round trip, and packet trains.
//!
//! One socket serves all sessions of a process: a thread answers knocks and probes at once, and
//! hands the rest to the session that it belongs to. It answers nobody who does not know the
//! session's key, and with no more bytes than came. What probes mean is decided elsewhere.

use crate::net::control::lock;
use bankfull_control::sobas::capacity::TRAIN_PACKETS;
use bankfull_proto::wire::probe::{
    self, Kind, MAX_TRAIN_PACKET_BYTES, PROBE_BYTES, ProbePacket, udp_ip_header_bytes,
};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the thread looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(100);

/// Echoes for a session in a second: what 10 ms apart makes, and as much again. (ours)
const ECHOES_PER_SEC: u32 = 200;

/// Packets of a train that leave in one call: the shortest train, which is what the kernel cuts up
/// in one, 65 507 bytes (RFC 768 with the header of IPv4).
const PACKETS_AT_ONCE: usize = TRAIN_PACKETS;

/// What a session has not taken of what came for it; more is dropped, as any datagram may be.
/// (ours: five of the longest trains, and what comes beside them)
const ARRIVALS_MAX: usize = 4096;

/// Room for datagrams that have come and are not taken yet; the kernel gives as much as
/// `net.core.rmem_max` allows. (ours: the longest train)
const ROOM_BYTES: usize = 2 << 20;

/// A socket for datagrams of any number of sessions.
pub(crate) struct ProbePort {
    socket: UdpSocket,
    stopped: AtomicBool,
    sessions: Mutex<HashMap<[u8; 16], Guest>>,
}

/// A session that takes part.
struct Guest {
    key: [u8; 32],
    /// Where its control connection comes from, if datagrams from elsewhere are none of its.
    peer: Option<IpAddr>,
    /// Where its datagrams come from, once one with a proof has come.
    address: Option<SocketAddr>,
    /// The highest numbers of knocks, probes and echoes: what comes again tells no address.
    highest: [Option<u64>; 3],
    sink: mpsc::SyncSender<Arrived>,
    /// Echoes so far: their number.
    echoed: u64,
    /// Echoes in the second that began then.
    second: (Instant, u32),
}

/// A packet that a session waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrived {
    pub(crate) probe: ProbePacket,
    /// When the kernel took it, on the clock of [`clock`].
    pub(crate) at: Duration,
    /// Its bytes on the line, with the headers of IP and UDP.
    pub(crate) len: usize,
}

/// The clock of probes: the kernel's, which notes arrivals, too. It may be set while we run.
pub(crate) fn clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl ProbePort {
    /// Binds to an address.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Arc<Self>> {
        Self::on(UdpSocket::bind(address)?)
    }

    /// Takes what comes to a socket.
    pub(crate) fn on(socket: UdpSocket) -> io::Result<Arc<Self>> {
        socket.set_read_timeout(Some(TICK))?;
        bankfull_sys::note_arrivals(&socket)?;
        // With less room, long trains may lose some.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(ROOM_BYTES);
        let stopped = AtomicBool::new(false);
        Ok(Arc::new(Self { socket, stopped, sessions: Mutex::default() }))
    }

    /// A session takes part, whose other side is at `peer`, where that matters.
    pub(crate) fn join(
        self: &Arc<Self>,
        session: [u8; 16],
        key: [u8; 32],
        peer: Option<IpAddr>,
    ) -> ProbeLine {
        let (sink, arrivals) = mpsc::sync_channel(ARRIVALS_MAX);
        let second = (Instant::now(), 0);
        let peer = peer.map(|ip| ip.to_canonical());
        let (address, highest) = (None, [None; 3]);
        let guest = Guest { key, peer, address, highest, sink, echoed: 0, second };
        lock(&self.sessions).insert(session, guest);
        ProbeLine { port: Arc::clone(self), session, key, sent: [0; 3], arrivals }
    }

    /// Ends [`run`](Self::run).
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes it, where the host talks to itself; else it looks again soon.
        if let Ok(mut own) = self.socket.local_addr() {
            if own.ip().is_unspecified() {
                own.set_ip(match own {
                    SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                });
            }
            let _ = self.socket.send_to(&[], own);
        }
    }

    /// Takes what comes, until it is stopped.
    pub(crate) fn run(&self) {
        let mut buffer = [0; MAX_TRAIN_PACKET_BYTES];
        while !self.stopped.load(Ordering::SeqCst) {
            // What cannot be received is lost, as any datagram may be.
            let Ok(datagram) = bankfull_sys::receive_datagram(&self.socket, &mut buffer) else {
                continue;
            };
            if let Some(from) = datagram.from {
                let at = datagram.at.unwrap_or_else(clock);
                self.take(&buffer[..datagram.len], from, at);
            }
        }
    }

    fn take(&self, bytes: &[u8], from: SocketAddr, at: Duration) {
        let Ok(probe) = ProbePacket::decode(bytes) else { return };
        let mut sessions = lock(&self.sessions);
        let Some(guest) = sessions.get_mut(&probe.session) else { return };
        let is_elsewhere = guest.peer.is_some_and(|peer| peer != from.ip().to_canonical());
        if is_elsewhere || !probe::verify(bytes, &guest.key) {
            return;
        }
        guest.learn(&probe, from);
        match probe.kind {
            Kind::Register | Kind::Probe => {
                let Some(number) = guest.next_echo() else { return };
                let echo = probe.echo(number, micros(clock())).encode(&guest.key);
                drop(sessions);
                let _ = self.socket.send_to(&echo, from);
            }
            // A session that is gone waits for nothing, and one that is behind for no more.
            Kind::Echo | Kind::Train => {
                let len = bytes.len() + udp_ip_header_bytes(is_ipv6(from));
                let _ = guest.sink.try_send(Arrived { probe, at, len });
            }
        }
    }
}

/// Whether packets to it have headers of IPv6.
fn is_ipv6(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv6()
}

/// How many bytes a packet of a train to an address may have: what fits the path, as far as that is
/// known, in whole.
fn packet_bytes(to: SocketAddr) -> usize {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let mtu = bankfull_sys::path_mtu(to).map_or(usize::MAX, |mtu| mtu as usize);
    mtu.saturating_sub(udp_ip_header_bytes(is_ipv6(to))).clamp(PROBE_BYTES, MAX_TRAIN_PACKET_BYTES)
}

impl Guest {
    /// A datagram that nobody has sent before tells where the other side is: one that was caught on
    /// the way, and comes again from elsewhere, does not.
    fn learn(&mut self, probe: &ProbePacket, from: SocketAddr) {
        let kind = match probe.kind {
            Kind::Register => 0,
            Kind::Probe => 1,
            Kind::Echo => 2,
            Kind::Train => return,
        };
        if self.highest[kind].is_none_or(|highest| probe.number > highest) {
            self.highest[kind] = Some(probe.number);
            self.address = Some(from);
        }
    }

    /// The number of an echo that may be sent now.
    fn next_echo(&mut self) -> Option<u64> {
        if self.second.0.elapsed() >= Duration::from_secs(1) {
            self.second = (Instant::now(), 0);
        }
        self.second.1 += 1;
        if self.second.1 > ECHOES_PER_SEC {
            return None;
        }
        self.echoed += 1;
        Some(self.echoed - 1)
    }
}

/// A session's part in a [`ProbePort`]; dropping it ends that.
pub(crate) struct ProbeLine {
    port: Arc<ProbePort>,
    session: [u8; 16],
    key: [u8; 32],
    /// Knocks, probes and trains so far.
    sent: [u64; 3],
    arrivals: mpsc::Receiver<Arrived>,
}

impl Drop for ProbeLine {
    fn drop(&mut self) {
        lock(&self.port.sessions).remove(&self.session);
    }
}

impl ProbeLine {
    /// Where the other side is; `None` until a datagram of it has come.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        lock(&self.port.sessions).get(&self.session)?.address
    }

    /// What has come since the last time.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = Arrived> {
        self.arrivals.try_iter()
    }

    /// Tells the other side where we are.
    pub(crate) fn knock(&mut self, at: SocketAddr) -> io::Result<()> {
        let number = self.next(0);
        self.send(&ProbePacket::new(Kind::Register, self.session, number, micros(clock())), at)
    }

    /// Asks how long a round trip is. Nothing is sent while the other side is not known.
    pub(crate) fn probe(&mut self) -> io::Result<()> {
        let Some(to) = self.address() else { return Ok(()) };
        let number = self.next(1);
        self.send(&ProbePacket::new(Kind::Probe, self.session, number, micros(clock())), to)
    }

    /// Sends a train of `count` packets, back to back as far as the kernel can.
    pub(crate) fn train(&mut self, count: u32, to: SocketAddr) -> io::Result<()> {
        let train = self.next(2);
        let each = packet_bytes(to);
        let mut bytes = vec![0; PACKETS_AT_ONCE * each];
        // Where the kernel cannot send many at once, they are only close.
        let mut at_once = PACKETS_AT_ONCE;
        let mut first = 0;
        while first < count {
            let here = (count - first).min(at_once as u32);
            // Those that leave at once have one moment, by which the receiver sees whether they
            // left in time.
            let now = micros(clock());
            for (number, packet) in (first..first + here).zip(bytes.chunks_exact_mut(each)) {
                let probe = ProbePacket {
                    echoed_number: train,
                    echoed_timestamp_us: u64::from(count),
                    ..ProbePacket::new(Kind::Train, self.session, number.into(), now)
                };
                packet[..PROBE_BYTES].copy_from_slice(&probe.encode(&self.key));
            }
            let packets = &bytes[..here as usize * each];
            if here == 1 {
                self.port.socket.send_to(packets, to)?;
            } else if bankfull_sys::send_cut(&self.port.socket, packets, each as u16, to).is_err() {
                at_once = 1;
                continue;
            }
            first += here;
        }
        Ok(())
    }

    fn next(&mut self, kind: usize) -> u64 {
        self.sent[kind] += 1;
        self.sent[kind] - 1
    }

    fn send(&self, probe: &ProbePacket, to: SocketAddr) -> io::Result<()> {
        self.port.socket.send_to(&probe.encode(&self.key), to).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SESSION: [u8; 16] = [1; 16];
    const KEY: [u8; 32] = [2; 32];
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Two ports at work, the lines of a session at both, and where the first one is.
    fn with_pair(test: impl FnOnce(ProbeLine, ProbeLine, SocketAddr)) {
        let ports = [0, 1].map(|_| ProbePort::bind((HERE, 0).into()).unwrap());
        let near = ports[0].socket.local_addr().unwrap();
        let [a, b] = [0, 1].map(|n| ports[n].join(SESSION, KEY, Some(HERE)));
        thread::scope(|scope| {
            for port in &ports {
                scope.spawn(|| port.run());
            }
            test(a, b, near);
            ports.iter().for_each(|port| port.stop());
        });
    }

    fn wait<T>(mut get: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(got) = get() {
                return got;
            }
            assert!(Instant::now() < until, "it does not come");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_knock_makes_both_sides_known_and_probes_are_echoed() {
        with_pair(|near, mut far, door| {
            assert_eq!(near.address(), None);
            far.knock(door).unwrap();
            wait(|| near.address());
            wait(|| far.address());
            far.arrivals().for_each(drop);
            far.probe().unwrap();
            let arrived = wait(|| far.arrivals().next());
            let probe = arrived.probe;
            assert_eq!((probe.kind, probe.number, probe.echoed_number), (Kind::Echo, 1, 0));
            let sent = Duration::from_micros(probe.echoed_timestamp_us);
            assert!(arrived.at >= sent && arrived.at - sent < Duration::from_secs(20));
        });
    }

    #[test]
    fn a_train_arrives_as_packets_that_say_which_they_are() {
        with_pair(|mut near, mut far, door| {
            far.knock(door).unwrap();
            wait(|| near.address());
            wait(|| far.address());
            far.arrivals().for_each(drop);
            let to = near.address().unwrap();
            near.train(44, to).unwrap();
            let mut train = Vec::new();
            wait(|| {
                train.extend(far.arrivals());
                (train.len() == 44).then_some(())
            });
            for (number, arrived) in (0..).zip(&train) {
                assert_eq!((arrived.probe.kind, arrived.probe.number), (Kind::Train, number));
                assert_eq!((arrived.probe.echoed_timestamp_us, arrived.len), (44, 1500));
            }
        });
    }

    #[test]
    fn packets_of_trains_fit_the_path_over_ipv6_too() {
        let Ok(port) = ProbePort::bind("[::1]:0".parse().unwrap()) else { return };
        let to = port.socket.local_addr().unwrap();
        // The loopback device takes more than a packet of Ethernet.
        assert_eq!(packet_bytes(to), MAX_TRAIN_PACKET_BYTES);
        let mapped = "[::ffff:127.0.0.1]:9".parse().unwrap();
        assert!(!is_ipv6(mapped) && is_ipv6(to));
        assert_eq!(packet_bytes(mapped), MAX_TRAIN_PACKET_BYTES);
        let mut line = port.join(SESSION, KEY, None);
        thread::scope(|scope| {
            scope.spawn(|| port.run());
            line.train(3, to).unwrap();
            let arrived = wait(|| line.arrivals().next());
            assert_eq!(arrived.len, MAX_TRAIN_PACKET_BYTES + 48);
            port.stop();
        });
    }

    #[test]
    fn what_comes_again_from_elsewhere_tells_no_address_and_no_flood_is_kept() {
        let port = ProbePort::bind((HERE, 0).into()).unwrap();
        let line = port.join(SESSION, KEY, None);
        let [first, other]: [SocketAddr; 2] = [1, 2].map(|port| (HERE, port).into());
        let take = |kind, number, from| {
            let bytes = ProbePacket::new(kind, SESSION, number, 0).encode(&KEY);
            port.take(&bytes, from, Duration::ZERO);
        };
        take(Kind::Register, 3, first);
        take(Kind::Register, 3, other);
        take(Kind::Train, 9, other);
        assert_eq!(line.address(), Some(first));
        take(Kind::Register, 4, other);
        assert_eq!(line.address(), Some(other), "the mapping of a router may change");
        (0..2 * ARRIVALS_MAX as u64).for_each(|number| take(Kind::Echo, number, other));
        assert_eq!(line.arrivals().count(), ARRIVALS_MAX);
        take(Kind::Echo, u64::MAX, other);
        assert_eq!(line.arrivals().count(), 1);
    }

    #[test]
    fn strangers_are_not_answered_and_nobody_too_often() {
        with_pair(|near, mut far, door| {
            let stranger = UdpSocket::bind((HERE, 0)).unwrap();
            stranger.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let knock = ProbePacket::new(Kind::Register, SESSION, 0, 0);
            let other = ProbePacket::new(Kind::Register, [9; 16], 0, 0);
            for bytes in [knock.encode(&[3; 32]), other.encode(&KEY), [0; PROBE_BYTES]] {
                stranger.send_to(&bytes, door).unwrap();
                assert!(stranger.recv(&mut [0; 200]).is_err(), "answered");
            }
            assert_eq!(near.address(), None);
            for _ in 0..2 * ECHOES_PER_SEC {
                far.knock(door).unwrap();
            }
            wait(|| far.address());
            thread::sleep(Duration::from_millis(200));
            assert!(far.arrivals().count() <= ECHOES_PER_SEC as usize);
        });
    }
}
