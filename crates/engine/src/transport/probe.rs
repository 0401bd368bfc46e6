//! UDP measurement datagrams: RTT probes and packet trains.
//!
//! One socket serves all sessions of a process. Its thread answers registrations and probes at
//! once, and passes the rest to the session. It answers only peers that know the session key, and
//! never with more bytes than it received. The interpretation of probes is elsewhere (`tuning/`).

use crate::base::sync::lock;
use bankfull_control::path_control::capacity::TRAIN_PACKETS;
use bankfull_proto::wire::probe::{
    self, Kind, MAX_TRAIN_PACKET_BYTES, PROBE_BYTES, ProbePacket, udp_ip_header_bytes,
};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval at which the thread checks whether it was stopped.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Echoes per second and session. (chosen: twice the rate of probes 10 ms apart)
const MAX_ECHOES_PER_SEC: u32 = 200;

/// Packets of a train sent by one system call: the shortest train, and what the kernel segments at
/// once, 65 507 bytes (RFC 768 with an IPv4 header).
const PACKETS_PER_SEND: usize = TRAIN_PACKETS;

/// Received packets queued for a session; more are dropped. (chosen: five of the longest trains,
/// and probes beside them)
const MAX_QUEUED_ARRIVALS: usize = 4096;

/// Receive buffer of the socket; the kernel caps it at `net.core.rmem_max`. (chosen: the longest
/// train)
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;

/// Minimum timeout of an echo, and time that is left for the first trains. (chosen: one and a half
/// long RTTs with their queue)
pub(crate) const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(600);

/// UDP socket for the probes of all sessions.
pub(crate) struct ProbePort {
    socket: UdpSocket,
    is_stopped: AtomicBool,
    sessions: Mutex<HashMap<[u8; 16], ProbeSession>>,
}

/// Session registered at a port.
struct ProbeSession {
    key: [u8; 32],
    /// Address of its control connection; datagrams from elsewhere are dropped, if set.
    peer: Option<IpAddr>,
    /// Source of its datagrams, after the first authenticated one.
    address: Option<SocketAddr>,
    /// Highest numbers of registrations, probes and echoes; a replayed packet does not update the
    /// address.
    highest_numbers: [Option<u64>; 3],
    sink: mpsc::SyncSender<ProbeArrival>,
    /// Echoes sent so far.
    echo_count: u64,
    /// Start of the present second, and echoes in it.
    echo_second: (Instant, u32),
}

/// Packet received for a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProbeArrival {
    pub(crate) probe: ProbePacket,
    /// Arrival time stamped by the kernel, on the clock of [`clock`].
    pub(crate) at: Duration,
    /// Bytes on the wire, with IP and UDP headers.
    pub(crate) len: usize,
}

/// Returns the time of the clock that stamps arrivals; it may be stepped.
pub(crate) fn clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl ProbePort {
    /// Binds to an address.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Arc<Self>> {
        Self::from_socket(UdpSocket::bind(address)?)
    }

    /// Serves probes on a socket.
    pub(crate) fn from_socket(socket: UdpSocket) -> io::Result<Arc<Self>> {
        socket.set_read_timeout(Some(STOP_POLL_INTERVAL))?;
        bankfull_sys::enable_arrival_timestamps(&socket)?;
        // Long trains lose packets in a smaller buffer.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
        let is_stopped = AtomicBool::new(false);
        Ok(Arc::new(Self { socket, is_stopped, sessions: Mutex::default() }))
    }

    /// Registers a session; `peer` restricts the source of its datagrams.
    pub(crate) fn join(
        self: &Arc<Self>,
        session: [u8; 16],
        key: [u8; 32],
        peer: Option<IpAddr>,
    ) -> ProbeHandle {
        let (sink, arrivals) = mpsc::sync_channel(MAX_QUEUED_ARRIVALS);
        let echo_second = (Instant::now(), 0);
        let peer = peer.map(|ip| ip.to_canonical());
        let (address, highest_numbers) = (None, [None; 3]);
        let entry =
            ProbeSession { key, peer, address, highest_numbers, sink, echo_count: 0, echo_second };
        lock(&self.sessions).insert(session, entry);
        ProbeHandle { port: Arc::clone(self), session, key, sent: [0; 3], arrivals }
    }

    /// Ends [`run`](Self::run).
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the thread by a datagram to itself, if the host allows that; else it polls.
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

    /// Receives datagrams until stopped.
    pub(crate) fn run(&self) {
        let mut buffer = [0; MAX_TRAIN_PACKET_BYTES];
        while !self.is_stopped.load(Ordering::SeqCst) {
            // A failed receive counts as a lost datagram.
            let Ok(datagram) = bankfull_sys::receive_datagram(&self.socket, &mut buffer) else {
                continue;
            };
            if let Some(from) = datagram.from {
                let at = datagram.at.unwrap_or_else(clock);
                self.on_datagram(&buffer[..datagram.len], from, at);
            }
        }
    }

    fn on_datagram(&self, bytes: &[u8], from: SocketAddr, at: Duration) {
        let Ok(probe) = ProbePacket::decode(bytes) else { return };
        let mut sessions = lock(&self.sessions);
        let Some(entry) = sessions.get_mut(&probe.session) else { return };
        let is_other_host = entry.peer.is_some_and(|peer| peer != from.ip().to_canonical());
        if is_other_host || !probe::verify(bytes, &entry.key) {
            return;
        }
        entry.update_address(&probe, from);
        match probe.kind {
            Kind::Register | Kind::Probe => {
                let Some(number) = entry.next_echo_number() else { return };
                let echo = probe.echo(number, micros(clock())).encode(&entry.key);
                drop(sessions);
                let _ = self.socket.send_to(&echo, from);
            }
            // Dropped if the session is gone or its queue is full.
            Kind::Echo | Kind::Train => {
                let len = bytes.len() + udp_ip_header_bytes(is_ipv6(from));
                let _ = entry.sink.try_send(ProbeArrival { probe, at, len });
            }
        }
    }
}

/// True if packets to the address have IPv6 headers.
fn is_ipv6(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv6()
}

/// Returns the size of a train's packets: the path MTU if known, within the limits of a packet.
fn train_packet_bytes(to: SocketAddr) -> usize {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let mtu = bankfull_sys::path_mtu(to).map_or(usize::MAX, |mtu| mtu as usize);
    mtu.saturating_sub(udp_ip_header_bytes(is_ipv6(to))).clamp(PROBE_BYTES, MAX_TRAIN_PACKET_BYTES)
}

impl ProbeSession {
    /// Updates the peer's address from a packet that is not a replay: a captured one may come from
    /// anywhere.
    fn update_address(&mut self, probe: &ProbePacket, from: SocketAddr) {
        let kind = match probe.kind {
            Kind::Register => 0,
            Kind::Probe => 1,
            Kind::Echo => 2,
            Kind::Train => return,
        };
        if self.highest_numbers[kind].is_none_or(|highest| probe.number > highest) {
            self.highest_numbers[kind] = Some(probe.number);
            self.address = Some(from);
        }
    }

    /// Returns the number of the next echo, unless the rate limit is reached.
    fn next_echo_number(&mut self) -> Option<u64> {
        if self.echo_second.0.elapsed() >= Duration::from_secs(1) {
            self.echo_second = (Instant::now(), 0);
        }
        self.echo_second.1 += 1;
        if self.echo_second.1 > MAX_ECHOES_PER_SEC {
            return None;
        }
        self.echo_count += 1;
        Some(self.echo_count - 1)
    }
}

/// Handle of a session on a [`ProbePort`]; dropping it ends the session there.
pub(crate) struct ProbeHandle {
    port: Arc<ProbePort>,
    session: [u8; 16],
    key: [u8; 32],
    /// Registrations, probes and trains sent so far.
    sent: [u64; 3],
    arrivals: mpsc::Receiver<ProbeArrival>,
}

impl Drop for ProbeHandle {
    fn drop(&mut self) {
        lock(&self.port.sessions).remove(&self.session);
    }
}

impl ProbeHandle {
    /// Returns the address of the peer; `None` before its first datagram.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        lock(&self.port.sessions).get(&self.session)?.address
    }

    /// Returns the packets received since the last call.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = ProbeArrival> {
        self.arrivals.try_iter()
    }

    /// Sends a registration, which makes this side's address known to the peer.
    pub(crate) fn register(&mut self, at: SocketAddr) -> io::Result<()> {
        let number = self.next_number(0);
        self.send(&ProbePacket::new(Kind::Register, self.session, number, micros(clock())), at)
    }

    /// Sends an RTT probe, if the peer's address is known.
    pub(crate) fn send_probe(&mut self) -> io::Result<()> {
        let Some(to) = self.address() else { return Ok(()) };
        let number = self.next_number(1);
        self.send(&ProbePacket::new(Kind::Probe, self.session, number, micros(clock())), to)
    }

    /// Returns the number of echoes that the peer may send.
    pub(crate) fn expected_echoes(&self) -> u64 {
        self.sent[0] + self.sent[1]
    }

    /// Sends a train of `count` packets, back to back if the kernel can.
    pub(crate) fn send_train(&mut self, count: u32, to: SocketAddr) -> io::Result<()> {
        let train = self.next_number(2);
        let packet_len = train_packet_bytes(to);
        let mut bytes = vec![0; PACKETS_PER_SEND * packet_len];
        // Without segmentation offload the packets are sent one by one.
        let mut packets_per_send = PACKETS_PER_SEND;
        let mut first = 0;
        while first < count {
            let batch = (count - first).min(packets_per_send as u32);
            // Packets of one call share a timestamp, which shows the receiver whether they were
            // sent on time.
            let now = micros(clock());
            for (number, packet) in (first..first + batch).zip(bytes.chunks_exact_mut(packet_len)) {
                let probe = ProbePacket {
                    echoed_number: train,
                    echoed_timestamp_us: u64::from(count),
                    ..ProbePacket::new(Kind::Train, self.session, number.into(), now)
                };
                packet[..PROBE_BYTES].copy_from_slice(&probe.encode(&self.key));
            }
            let packets = &bytes[..batch as usize * packet_len];
            if batch == 1 {
                self.port.socket.send_to(packets, to)?;
            } else if bankfull_sys::send_gso(&self.port.socket, packets, packet_len as u16, to)
                .is_err()
            {
                packets_per_send = 1;
                continue;
            }
            first += batch;
        }
        Ok(())
    }

    fn next_number(&mut self, kind: usize) -> u64 {
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
    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Runs a test with two ports and a handle of one session at each. Passes the address of the
    /// first port, too.
    fn with_pair(test: impl FnOnce(ProbeHandle, ProbeHandle, SocketAddr)) {
        let ports = [0, 1].map(|_| ProbePort::bind((LOCALHOST, 0).into()).unwrap());
        let local = ports[0].socket.local_addr().unwrap();
        let [a, b] = [0, 1].map(|n| ports[n].join(SESSION, KEY, Some(LOCALHOST)));
        thread::scope(|scope| {
            for port in &ports {
                scope.spawn(|| port.run());
            }
            test(a, b, local);
            ports.iter().for_each(|port| port.stop());
        });
    }

    fn wait<T>(mut get: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(got) = get() {
                return got;
            }
            assert!(Instant::now() < until, "timed out");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn registration_reveals_addresses_and_probes_are_echoed() {
        with_pair(|local, mut remote, server| {
            assert_eq!(local.address(), None);
            remote.register(server).unwrap();
            wait(|| local.address());
            wait(|| remote.address());
            remote.arrivals().for_each(drop);
            remote.send_probe().unwrap();
            let arrived = wait(|| remote.arrivals().next());
            let probe = arrived.probe;
            assert_eq!((probe.kind, probe.number, probe.echoed_number), (Kind::Echo, 1, 0));
            let sent = Duration::from_micros(probe.echoed_timestamp_us);
            assert!(arrived.at >= sent && arrived.at - sent < Duration::from_secs(20));
        });
    }

    #[test]
    fn train_packets_are_numbered() {
        with_pair(|mut local, mut remote, server| {
            remote.register(server).unwrap();
            wait(|| local.address());
            wait(|| remote.address());
            remote.arrivals().for_each(drop);
            let to = local.address().unwrap();
            local.send_train(44, to).unwrap();
            let mut train = Vec::new();
            wait(|| {
                train.extend(remote.arrivals());
                (train.len() == 44).then_some(())
            });
            for (number, arrived) in (0..).zip(&train) {
                assert_eq!((arrived.probe.kind, arrived.probe.number), (Kind::Train, number));
                assert_eq!((arrived.probe.echoed_timestamp_us, arrived.len), (44, 1500));
            }
        });
    }

    #[test]
    fn train_packets_fit_the_path_mtu() {
        let Ok(port) = ProbePort::bind("[::1]:0".parse().unwrap()) else { return };
        let to = port.socket.local_addr().unwrap();
        // The MTU of the loopback device exceeds that of Ethernet.
        assert_eq!(train_packet_bytes(to), MAX_TRAIN_PACKET_BYTES);
        let mapped = "[::ffff:127.0.0.1]:9".parse().unwrap();
        assert!(!is_ipv6(mapped) && is_ipv6(to));
        assert_eq!(train_packet_bytes(mapped), MAX_TRAIN_PACKET_BYTES);
        let mut handle = port.join(SESSION, KEY, None);
        thread::scope(|scope| {
            scope.spawn(|| port.run());
            handle.send_train(3, to).unwrap();
            let arrived = wait(|| handle.arrivals().next());
            assert_eq!(arrived.len, MAX_TRAIN_PACKET_BYTES + 48);
            port.stop();
        });
    }

    #[test]
    fn replay_keeps_address_and_queue_is_bounded() {
        let port = ProbePort::bind((LOCALHOST, 0).into()).unwrap();
        let handle = port.join(SESSION, KEY, None);
        let [first, other]: [SocketAddr; 2] = [1, 2].map(|port| (LOCALHOST, port).into());
        let deliver = |kind, number, from| {
            let bytes = ProbePacket::new(kind, SESSION, number, 0).encode(&KEY);
            port.on_datagram(&bytes, from, Duration::ZERO);
        };
        deliver(Kind::Register, 3, first);
        deliver(Kind::Register, 3, other);
        deliver(Kind::Train, 9, other);
        assert_eq!(handle.address(), Some(first));
        deliver(Kind::Register, 4, other);
        assert_eq!(handle.address(), Some(other), "a NAT mapping may change");
        (0..2 * MAX_QUEUED_ARRIVALS as u64).for_each(|number| deliver(Kind::Echo, number, other));
        assert_eq!(handle.arrivals().count(), MAX_QUEUED_ARRIVALS);
        deliver(Kind::Echo, u64::MAX, other);
        assert_eq!(handle.arrivals().count(), 1);
    }

    #[test]
    fn unauthenticated_is_ignored_and_echoes_are_limited() {
        with_pair(|local, mut remote, server| {
            let unauthenticated = UdpSocket::bind((LOCALHOST, 0)).unwrap();
            unauthenticated.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let registration = ProbePacket::new(Kind::Register, SESSION, 0, 0);
            let other = ProbePacket::new(Kind::Register, [9; 16], 0, 0);
            for bytes in [registration.encode(&[3; 32]), other.encode(&KEY), [0; PROBE_BYTES]] {
                unauthenticated.send_to(&bytes, server).unwrap();
                assert!(unauthenticated.recv(&mut [0; 200]).is_err(), "answered");
            }
            assert_eq!(local.address(), None);
            for _ in 0..2 * MAX_ECHOES_PER_SEC {
                remote.register(server).unwrap();
            }
            wait(|| remote.address());
            thread::sleep(Duration::from_millis(200));
            assert!(remote.arrivals().count() <= MAX_ECHOES_PER_SEC as usize);
        });
    }
}
