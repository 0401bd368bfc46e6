//! Packets of a guest, one by one: `bankfull guard --guest` rewrites some, and leaves others alone.
//!
//! A bridge joins the guest's tap to that of the network. The test is the guest and its peers: it
//! writes and reads frames.

use super::guard::{Scene, wait_until};
use bankfull_sys::tun::open_tap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::{Duration, Instant};

const GUEST_PORT: u16 = 7900;
const SCALE: u8 = 7;
const MSS: usize = 1000;

/// Window field of the guest's acknowledgements: 256 KiB.
const WINDOW: u16 = 2048;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// Framing of a connection's packets.
#[derive(Debug, Clone, Copy)]
struct Framing {
    is_ipv6: bool,
    tags: usize,
}

/// Bridge of a host between a guest and its network.
struct Bridge {
    guest: File,
    network: File,
    cgroup: std::path::PathBuf,
}

/// Options of a SYN with a window scale.
const SCALED: [u8; 4] = [3, 3, SCALE, 1];

/// Connection of the guest, which a peer has opened.
struct Connection {
    framing: Framing,
    port: u16,
    /// Sequence number of the peer's next byte.
    next: u32,
    /// Largest sequence number that the peer was allowed.
    right_edge: u32,
}

/// Fields of a captured packet.
#[derive(Debug, Clone, Copy)]
struct Seen {
    port: u16,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    is_valid: bool,
}

impl Bridge {
    fn new(scene: &Scene) -> Self {
        let open = |name: &str| scene.hosts.run_on(1, || open_tap(name)).unwrap();
        let (guest, network) = (open("tapg"), open("tapn"));
        let host = scene.hosts.namespace(1);
        let enable = || fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0");
        scene.hosts.run_on(1, enable).unwrap();
        for line in [
            "link add br0 type bridge",
            "link set tapg master br0 up",
            "link set tapn master br0 up",
            "link set br0 up",
            "addr add 10.81.0.1/24 dev br0",
            "addr add fd81::1/64 dev br0 nodad",
        ] {
            let words = ["-n", &host].into_iter().chain(line.split(' '));
            assert!(Command::new("ip").args(words).status().unwrap().success(), "ip {line}");
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" cgroup2 ")).unwrap();
        let cgroup = std::path::PathBuf::from(mount.split(' ').nth(1).unwrap()).join(&host);
        fs::create_dir(&cgroup).unwrap();
        Self { guest, network, cgroup }
    }

    /// Sends a packet of the guest; returns it as the network sees it.
    fn send(&mut self, packet: &[u8], port: u16) -> Seen {
        (&self.guest).write_all(packet).unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        let mut frame = vec![0; 4096];
        loop {
            assert!(Instant::now() < end, "the bridge forwards nothing");
            match (&self.network).read(&mut frame) {
                Ok(len) => match parse(&frame[..len]) {
                    Some(seen) if seen.port == port => return seen,
                    _ => {}
                },
                Err(_) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    /// Sends a packet of a peer, and waits until the guest has it.
    fn receive(&mut self, packet: &[u8]) {
        (&self.network).write_all(packet).unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        let mut frame = vec![0; 4096];
        while !(&self.guest).read(&mut frame).is_ok_and(|len| frame[..len] == *packet) {
            assert!(Instant::now() < end, "the bridge forwards nothing");
        }
    }

    fn open(&mut self, framing: Framing, port: u16, options: &[u8]) -> Connection {
        let syn = framing.of_peer(port, [1000, 0], SYN, 65_535, options, 0);
        self.receive(&syn);
        let answer = framing.of_guest(port, [5000, 1001], SYN | ACK, 65_535, options, 0);
        let seen = self.send(&answer, port);
        assert!(seen.is_valid, "{seen:?}");
        let right_edge = 1001 + u32::from(seen.window);
        let mut connection = Connection { framing, port, next: 1001, right_edge };
        let last = framing.of_peer(port, [1001, 5001], ACK, 512, &[], 0);
        self.receive(&last);
        connection.acknowledge(self, WINDOW);
        connection
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.cgroup);
    }
}

impl Connection {
    /// Receives a segment, and acknowledges it with a window; returns what the peer sees.
    fn step(&mut self, bridge: &mut Bridge, window: u16) -> Seen {
        let data = self.framing.of_peer(self.port, [self.next, 5001], ACK | PSH, 512, &[], MSS);
        bridge.receive(&data);
        self.next += MSS as u32;
        self.acknowledge(bridge, window)
    }

    /// Acknowledges what was received; checks what holds for each acknowledgement.
    fn acknowledge(&mut self, bridge: &mut Bridge, window: u16) -> Seen {
        let packet = self.framing.of_guest(self.port, [5001, self.next], ACK, window, &[], 0);
        let seen = bridge.send(&packet, self.port);
        assert!(seen.is_valid, "the checksum is wrong: {seen:?}");
        assert!(seen.window <= window, "the window was enlarged: {seen:?}");
        let edge = self.next + (u32::from(seen.window) << SCALE);
        let is_whole = seen.window == window;
        assert!(is_whole || edge >= self.right_edge, "the right edge went back: {seen:?}");
        self.right_edge = self.right_edge.max(edge);
        seen
    }
}

impl Framing {
    fn addresses(self) -> [IpAddr; 2] {
        match self.is_ipv6 {
            true => [
                Ipv6Addr::new(0xfd81, 0, 0, 0, 0, 0, 0, 2),
                Ipv6Addr::new(0xfd81, 0, 0, 0, 0, 0, 0, 9),
            ]
            .map(IpAddr::V6),
            false => [Ipv4Addr::new(10, 81, 0, 2), Ipv4Addr::new(10, 81, 0, 9)].map(IpAddr::V4),
        }
    }

    fn of_guest(
        self,
        port: u16,
        numbers: [u32; 2],
        flags: u8,
        window: u16,
        options: &[u8],
        payload: usize,
    ) -> Vec<u8> {
        let [guest, peer] = self.addresses();
        let tcp = segment([GUEST_PORT, port], numbers, flags, window, options, payload);
        self.frame([2, 1], guest, peer, tcp)
    }

    fn of_peer(
        self,
        port: u16,
        numbers: [u32; 2],
        flags: u8,
        window: u16,
        options: &[u8],
        payload: usize,
    ) -> Vec<u8> {
        let [guest, peer] = self.addresses();
        let tcp = segment([port, GUEST_PORT], numbers, flags, window, options, payload);
        self.frame([1, 2], peer, guest, tcp)
    }

    /// Returns a frame between two hosts, with the last bytes of their hardware addresses.
    fn frame(
        self,
        [source, destination]: [u8; 2],
        from: IpAddr,
        to: IpAddr,
        mut tcp: Vec<u8>,
    ) -> Vec<u8> {
        let sum = checksum(&pseudo_header(from, to, tcp.len()), &tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source];
        for _ in 0..self.tags {
            frame.extend([0x81, 0, 0, 7]);
        }
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let len = (20 + tcp.len()) as u16;
                let mut ip = vec![0x45, 0];
                ip.extend(len.to_be_bytes());
                ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                let sum = checksum(&[], &ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(ip);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((tcp.len() as u16).to_be_bytes());
                frame.extend([6, 64]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => unreachable!("both are of one family"),
        }
        frame.extend(tcp);
        frame
    }
}

/// Returns a TCP segment without its checksum.
fn segment(
    [source, destination]: [u16; 2],
    [sequence, acknowledgement]: [u32; 2],
    flags: u8,
    window: u16,
    options: &[u8],
    payload: usize,
) -> Vec<u8> {
    let mut tcp = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(acknowledgement.to_be_bytes());
    tcp.extend([(5 + options.len() as u8 / 4) << 4, flags]);
    tcp.extend(window.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend(options);
    tcp.extend(vec![0x5a; payload]);
    tcp
}

fn pseudo_header(from: IpAddr, to: IpAddr, len: usize) -> Vec<u8> {
    let mut header = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
        _ => unreachable!("both are of one family"),
    };
    header.extend([0, 6]);
    header.extend((len as u16).to_be_bytes());
    header
}

/// Returns the Internet checksum. (RFC 1071)
fn checksum(first: &[u8], second: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        let pairs = bytes.chunks(2);
        pairs.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(first) + words(second);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Parses a frame of the guest; `None` if it is another.
fn parse(frame: &[u8]) -> Option<Seen> {
    let mut at = 12;
    while frame.get(at..at + 2)? == [0x81, 0] {
        at += 4;
    }
    let (tcp, from, to) = match frame.get(at..at + 2)? {
        [8, 0] => {
            let ip = frame.get(at + 2..)?;
            let address = |at: usize| <[u8; 4]>::try_from(ip.get(at..at + 4)?).ok();
            (ip.get(20..)?, IpAddr::from(address(12)?), IpAddr::from(address(16)?))
        }
        [0x86, 0xdd] => {
            let ip = frame.get(at + 2..)?;
            let address = |at: usize| <[u8; 16]>::try_from(ip.get(at..at + 16)?).ok();
            (ip.get(40..)?, IpAddr::from(address(8)?), IpAddr::from(address(24)?))
        }
        _ => return None,
    };
    let half = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    (half(0)? == GUEST_PORT).then_some(())?;
    Some(Seen {
        port: half(2)?,
        acknowledgement: word(8)?,
        flags: *tcp.get(13)?,
        window: half(14)?,
        is_valid: checksum(&pseudo_header(from, to, tcp.len()), tcp) == 0,
    })
}

/// Returns a bridge whose guest is guarded; `None` if that is not possible here.
fn held_bridge() -> Option<(Scene, Bridge)> {
    let mut scene = Scene::new()?;
    if bankfull_sys::kernel_version().is_some_and(|version| version < (6, 6)) {
        return None;
    }
    let bridge = Bridge::new(&scene);
    let cgroup = bridge.cgroup.to_str().unwrap().to_owned();
    scene.start_guard_at(
        "br0",
        &["--mode", "hold", "--guest", "tapg", "--cgroup", &cgroup, "--max-rtt", "100"],
    );
    Some((scene, bridge))
}

#[test]
fn windows_in_packets_of_guests_are_lowered_within_the_rules() {
    let Some((scene, mut bridge)) = held_bridge() else { return };
    let framings = [(false, 0), (true, 0), (false, 1), (true, 2)];
    let framings = framings.map(|(is_ipv6, tags)| Framing { is_ipv6, tags });
    let mut connections: Vec<Connection> = framings
        .iter()
        .zip(40_000..)
        .map(|(&framing, port)| bridge.open(framing, port, &SCALED))
        .collect();
    let mut lowest = [u16::MAX; 4];
    wait_until("windows are lowered", || {
        for (connection, lowest) in connections.iter_mut().zip(&mut lowest) {
            *lowest = connection.step(&mut bridge, WINDOW).window.min(*lowest);
        }
        lowest.iter().all(|&window| window <= WINDOW / 4)
    });
    for connection in &mut connections {
        // A closed window, and one that is smaller than the order, are left unchanged.
        assert_eq!(connection.acknowledge(&mut bridge, 0).window, 0);
        assert_eq!(connection.acknowledge(&mut bridge, 3).window, 3);
        connection.acknowledge(&mut bridge, WINDOW);
    }
    let seen = connections[0].step(&mut bridge, WINDOW);
    assert_eq!((seen.acknowledgement, seen.flags), (connections[0].next, ACK));
    // Data beyond the right edge does not count; the peer resets its connection below.
    let forged = framings[0].of_peer(40_000, [connections[0].right_edge, 5001], ACK, 512, &[], MSS);
    bridge.receive(&forged);
    // Neither does an RST or FIN with a wrong sequence number, or a SYN.
    let (next, edge) = (connections[0].next, connections[0].right_edge);
    for (sequence, flags) in [(next + 1, RST | ACK), (edge + 9, FIN | ACK), (1, SYN)] {
        bridge.receive(&framings[0].of_peer(40_000, [sequence, 5001], flags, 512, &[], 0));
    }
    wait_until("windows stay lowered", || {
        connections[0].step(&mut bridge, WINDOW).window <= WINDOW / 4
    });
    // A handshake that is reset opens no connection.
    bridge.receive(&framings[0].of_peer(41_000, [1000, 0], SYN, 65_535, &SCALED, 0));
    let answer = framings[0].of_guest(41_000, [5000, 1001], SYN | ACK, 65_535, &SCALED, 0);
    bridge.send(&answer, 41_000);
    bridge.receive(&framings[0].of_peer(41_000, [1001, 5001], RST | ACK, 0, &[], 0));
    let bytes = u64::from(connections[0].next - 1001);
    let reset = framings[0].of_peer(40_000, [connections[0].next, 0], RST, 0, &[], 0);
    bridge.receive(&reset);
    let opened = scene.wait_for("connection", |event| event["remote"] == "10.81.0.9:40000");
    let closed = scene.wait_for("closed", |event| event["id"] == opened["id"]);
    assert_eq!(closed["bytes"], bytes);
    let opened = scene.events("connection");
    assert!(opened.iter().all(|event| event["remote"] != "10.81.0.9:41000"), "{opened:?}");
    // Without a known scale the field would be misread.
    let unknown = framings[0].of_guest(50_000, [1, 1], ACK | FIN, WINDOW, &[], 0);
    assert_eq!(bridge.send(&unknown, 50_000).window, WINDOW, "no SYN was seen");
}

/// A digest of the header is in each packet. (RFC 2385, RFC 5925)
#[test]
fn signed_packets_of_guests_are_left_alone() {
    let Some((_scene, mut bridge)) = held_bridge() else { return };
    let framing = Framing { is_ipv6: false, tags: 0 };
    let with = |option: &[u8]| [&SCALED[..], option, &[0; 14], &[1, 1]].concat();
    let mut plain =
        [40_000, 40_001, 40_002, 40_003].map(|port| bridge.open(framing, port, &SCALED));
    let mut signed = [
        bridge.open(framing, 40_010, &with(&[19, 18, 0, 0])),
        bridge.open(framing, 40_011, &with(&[29, 16, 7, 7])),
    ];
    wait_until("windows are lowered", || {
        for connection in &mut signed {
            assert_eq!(connection.step(&mut bridge, WINDOW).window, WINDOW);
        }
        let lowered = plain.iter_mut().map(|one| one.step(&mut bridge, WINDOW).window);
        lowered.max().is_some_and(|window| window <= WINDOW / 4)
    });
}

#[test]
fn handshake_does_not_widen_first_window_of_guest() {
    let Some((_scene, mut bridge)) = held_bridge() else { return };
    let framing = Framing { is_ipv6: false, tags: 0 };
    let options = [3, 3, SCALE, 1];
    let mut ports = (42_000..).step_by(8);
    // Those that open within a tick share the port; the first is not limited.
    wait_until("a first window is limited", || {
        let first = ports.next().unwrap();
        let opened = (first..first + 8).map(|port| {
            let syn = framing.of_guest(port, [5000, 0], SYN, 65_535, &options, 0);
            (port, bridge.send(&syn, port).window)
        });
        let opened: Vec<(u16, u16)> = opened.collect();
        for &(port, offered) in opened.iter().filter(|(_, offered)| *offered < 14_600) {
            let answer = framing.of_peer(port, [1000, 5001], SYN | ACK, 65_535, &options, 0);
            bridge.receive(&answer);
            let last = framing.of_guest(port, [5001, 1001], ACK, WINDOW, &[], 0);
            let window = u32::from(bridge.send(&last, port).window) << SCALE;
            assert!(window < u32::from(offered) + (1 << SCALE), "{window} instead of {offered}");
        }
        opened.iter().any(|(_, offered)| *offered < 14_600)
    });
}

#[test]
fn guests_of_two_vlans_may_use_the_same_addresses() {
    let Some((scene, mut bridge)) = held_bridge() else { return };
    let framings = [0, 1].map(|tags| Framing { is_ipv6: false, tags });
    let mut connections = framings.map(|framing| bridge.open(framing, 43_000, &SCALED));
    wait_until("windows are lowered", || {
        let windows = connections.each_mut().map(|one| one.step(&mut bridge, WINDOW).window);
        windows.iter().all(|&window| window <= WINDOW / 4)
    });
    assert_eq!(scene.events("connection").len(), 2);
    assert_eq!(scene.events("closed").len(), 0, "the two connections were confused");
}
