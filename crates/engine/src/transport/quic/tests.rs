use super::*;
use crate::base::strangers::GREETING_GRACE;
use crate::transport::identity::Identity;
use crate::transport::tls;
use quinn_udp::EcnCodepoint;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Pair {
    _port: QuicPort,
    pub(crate) streams: IncomingStreams,
    address: SocketAddr,
    fingerprint: Fingerprint,
    pub(crate) connection: QuicConnection,
    presented: Fingerprint,
}

fn server(identity: &Identity) -> QuicServer {
    QuicServer {
        tls: tls::server_config(Arc::new(tls::ServerCertificate::new(identity).unwrap())).unwrap(),
        timeout: TIMEOUT,
        connections_max: 2,
        strangers_max: 1,
        buffer_pool: Arc::default(),
        sibling: None,
        reset_key: [7; 32],
    }
}

pub(crate) fn pair() -> Pair {
    pair_through(|server| server)
}

/// Connects to the address that a relay in front of the server has.
fn pair_through(relay: impl FnOnce(SocketAddr) -> SocketAddr) -> Pair {
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = relay(socket.local_addr().unwrap());
    let (port, streams) = QuicPort::server(socket, server(&identity)).unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let (connection, presented) =
        client.connect(address, &config, (TIMEOUT, TIMEOUT), "there").unwrap();
    let fingerprint = identity.fingerprint();
    Pair { _port: port, streams, address, fingerprint, connection, presented }
}

#[test]
fn stream_carries_data_both_ways() {
    let pair = pair();
    assert_eq!(pair.presented, pair.fingerprint);
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7) as u8).collect();
    let sent = bytes.clone();
    let sender = thread::spawn(move || {
        local.write_all(&sent).unwrap();
        let mut answer = [0; 5];
        local.read_exact(&mut answer).unwrap();
        (local, answer)
    });
    let (mut remote, from) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    assert!(from.ip().is_loopback() && from != pair.address);
    let mut received = vec![0; bytes.len()];
    remote.read_exact(&mut received).unwrap();
    assert!(received == bytes);
    remote.write_all(b"hello").unwrap();
    let (local, answer) = sender.join().unwrap();
    assert_eq!(&answer, b"hello");
    remote.shutdown();
    drop(local);
    assert_eq!(remote.read(&mut [0]).unwrap(), 0);
}

/// Relays datagrams to `target`, from another address while `is_moved`; returns its own.
fn moving_relay(target: SocketAddr, is_moved: Arc<AtomicBool>) -> SocketAddr {
    let bind = |address: &str| {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let near = bind("127.0.0.1:0");
    let far = [bind("127.0.0.1:0"), bind("127.0.0.2:0")];
    let address = near.local_addr().unwrap();
    thread::spawn(move || {
        let (mut client, mut bytes) = (target, vec![0; 1 << 16]);
        loop {
            while let Ok((len, from)) = near.recv_from(&mut bytes) {
                client = from;
                let place = usize::from(is_moved.load(Ordering::SeqCst));
                let _ = far[place].send_to(&bytes[..len], target);
            }
            for socket in &far {
                while let Ok((len, _)) = socket.recv_from(&mut bytes) {
                    let _ = near.send_to(&bytes[..len], client);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    address
}

#[test]
fn connection_stays_with_the_address_of_its_handshake() {
    let is_moved = Arc::new(AtomicBool::new(false));
    let pair = pair_through(|server| moving_relay(server, Arc::clone(&is_moved)));
    is_moved.store(true, Ordering::SeqCst);
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    local.write_all(b"x").unwrap();
    assert!(pair.streams.recv_timeout(Duration::from_millis(300)).is_err(), "from elsewhere");
    is_moved.store(false, Ordering::SeqCst);
    let (mut remote, from) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(from.ip(), IpAddr::from([127, 0, 0, 1]));
    remote.read_exact(&mut [0]).unwrap();
}

/// Marks datagrams to `target` (CE); returns its address and the codepoints they had.
fn marking_relay(target: SocketAddr) -> (SocketAddr, Receiver<Option<EcnCodepoint>>) {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (near, far) = (near.unwrap(), far.unwrap());
    let address = near.local_addr().unwrap();
    let (seen, marks) = mpsc::channel();
    thread::spawn(move || {
        let states =
            [&near, &far].map(|socket| UdpSocketState::new(UdpSockRef::from(socket)).unwrap());
        let mut client = target;
        let mut bytes = vec![0; 1 << 16];
        loop {
            thread::sleep(Duration::from_micros(100));
            for (from, to) in [(0, 1), (1, 0)] {
                let sockets = [&near, &far];
                let mut meta = [quinn_udp::RecvMeta::default()];
                let mut buffers = [io::IoSliceMut::new(&mut bytes)];
                let socket = UdpSockRef::from(sockets[from]);
                if states[from].recv(socket, &mut buffers, &mut meta).is_err() {
                    continue;
                }
                let [meta] = meta;
                let is_outgoing = from == 0;
                if is_outgoing {
                    client = meta.addr;
                    if seen.send(meta.ecn).is_err() {
                        return;
                    }
                }
                let datagrams = quinn_udp::Transmit {
                    destination: if is_outgoing { target } else { client },
                    // Marks only ECN-capable datagrams, as a router does.
                    ecn: meta.ecn.filter(|_| is_outgoing).map(|_| EcnCodepoint::Ce),
                    contents: &bytes[..meta.len],
                    segment_size: Some(meta.stride).filter(|&stride| stride < meta.len),
                    src_ip: None,
                };
                let _ = states[to].try_send(UdpSockRef::from(sockets[to]), &datagrams);
            }
        }
    });
    (address, marks)
}

#[test]
fn datagrams_are_ecn_capable_and_marks_reach_the_sender() {
    let mut marks = None;
    let pair = pair_through(|server| {
        let (address, seen) = marking_relay(server);
        marks = Some(seen);
        address
    });
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    let sender = thread::spawn(move || {
        local.write_all(&vec![7; 300_000]).unwrap();
        local.wait_until_acked(TIMEOUT);
    });
    let (mut remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    remote.read_exact(&mut vec![0; 300_000]).unwrap();
    sender.join().unwrap();
    let seen: Vec<_> = marks.unwrap().try_iter().collect();
    // Probes of the path MTU are not capable.
    let capable = seen.iter().filter(|ecn| **ecn == Some(EcnCodepoint::Ect0)).count();
    assert!(capable > 5 && 2 * capable > seen.len(), "{seen:?}");
    let path = pair.connection.conn.state().connection.stats().path;
    assert!(path.congestion_events > 0, "{path:?}");
}

#[test]
fn read_times_out_and_is_woken_by_shutdown() {
    let pair = pair();
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    local.write_all(b"x").unwrap();
    let (mut remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    remote.read_exact(&mut [0]).unwrap();
    remote.set_read_timeout(Some(Duration::from_millis(30)));
    assert_eq!(remote.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    remote.set_read_timeout(None);
    let other = remote.clone();
    let reader = thread::spawn(move || remote.read(&mut [0]));
    thread::sleep(Duration::from_millis(30));
    other.shutdown();
    assert_eq!(reader.join().unwrap().unwrap(), 0);
}

#[test]
fn final_data_arrives_before_the_end() {
    let pair = pair();
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    local.write_all(b"last bytes").unwrap();
    let (mut remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    local.wait_until_acked(TIMEOUT);
    drop(local);
    let mut received = String::new();
    remote.read_to_string(&mut received).unwrap();
    assert_eq!(received, "last bytes");
}

#[test]
fn dropped_connection_ends_pending_reads() {
    let pair = pair();
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    local.write_all(b"x").unwrap();
    let (mut remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    remote.read_exact(&mut [0]).unwrap();
    let Pair { connection, .. } = pair;
    drop((local, connection));
    let start = Instant::now();
    // Either the end of the stream or of the connection is seen first.
    let end = remote.read(&mut [0]);
    let is_end =
        end.as_ref().map_or_else(|e| e.kind() == io::ErrorKind::ConnectionReset, |n| *n == 0);
    assert!(is_end, "{end:?} after {:?}", start.elapsed());
    assert!(start.elapsed() < TIMEOUT, "the read timed out");
}

#[test]
fn close_is_sent_while_the_window_is_full() {
    let pair = pair();
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    local.write_all(b"x").unwrap();
    let (mut remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    remote.set_authenticated();
    // As much as may be in flight while the peer does not read.
    local.write_all(&[0; windows::MIN_WINDOW.0 as usize - 1]).unwrap();
    let Pair { connection, .. } = pair;
    drop((local, connection));
    let start = Instant::now();
    let mut received = Vec::new();
    assert_eq!(
        remote.read_to_end(&mut received).unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
    assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
}

#[test]
fn silent_peer_times_out() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let timeout = Duration::from_millis(200);
    let error = client.connect(address, &config, (timeout, TIMEOUT), "there:1").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("there:1 does not answer over QUIC"), "{error}");
}

#[test]
fn closed_port_is_reported_at_once() {
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let start = Instant::now();
    let error =
        client.connect(address, &config, (TIMEOUT * 10, TIMEOUT * 10), "there:1").err().unwrap();
    assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    assert!(error.to_string().contains("is `bankfull serve` running there?"), "{error}");
}

#[test]
fn crowd_evicts_its_oldest_stranger() {
    let pair = pair();
    let client = QuicPort::client(pair.address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let connect = || client.connect(pair.address, &config, (TIMEOUT, TIMEOUT), "there");
    let authenticated = |connection: &QuicConnection| {
        let mut local = connection.open(TIMEOUT).unwrap();
        local.write_all(b"x").unwrap();
        let (remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
        remote.set_authenticated();
        (local, remote)
    };
    let (first, mut remote) = authenticated(&pair.connection);
    let (unauthenticated, _) = connect().unwrap();
    let mut lost = unauthenticated.open(TIMEOUT).unwrap();
    lost.set_read_timeout(Some(TIMEOUT));
    thread::sleep(GREETING_GRACE);
    let (third, _) = connect().unwrap();
    assert_eq!(lost.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let _kept = authenticated(&third);
    let error = connect().err().unwrap();
    let text = "no room for more connections: try again later, or start it with more \
                --max-connections";
    assert!(error.to_string().ends_with(text) && !error.is_connection_loss(), "{error}");
    assert!(error.is_busy());
    drop(first);
    assert_eq!(remote.read(&mut [0; 2]).unwrap(), 1);
}

#[test]
fn unreachable_peer_fails_at_once() {
    // Broadcast, which the socket has not enabled.
    let address = "255.255.255.255:9".parse().unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let limits = (TIMEOUT, TIMEOUT);
    let error = client.connect(address, &config, limits, "there").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Network, "{error}");
    assert!(error.to_string().contains("permission denied"), "{error}");
}

#[test]
fn many_streams_share_a_connection() {
    let pair = pair();
    let senders: Vec<_> = (0..16_u8)
        .map(|n| {
            let mut local = pair.connection.open(TIMEOUT).unwrap();
            thread::spawn(move || {
                local.write_all(&vec![n; 300_000]).unwrap();
                local.wait_until_acked(TIMEOUT);
            })
        })
        .collect();
    // All are read concurrently: unread data of one takes window from the others.
    let receivers: Vec<_> = (0..16)
        .map(|_| {
            let (mut remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
            thread::spawn(move || {
                let mut received = Vec::new();
                remote.read_to_end(&mut received).unwrap();
                assert!(received.len() == 300_000 && received.iter().all(|&b| b == received[0]));
                received[0]
            })
        })
        .collect();
    let mut sums: Vec<_> = receivers.into_iter().map(|one| one.join().unwrap()).collect();
    sums.sort_unstable();
    assert_eq!(sums, (0..16).collect::<Vec<_>>());
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn writer_waits_while_other_streams_progress() {
    const STREAMS: u8 = 16;
    const EACH: usize = 400_000;
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (_port, streams) = QuicPort::server(socket, server(&identity)).unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let (config, write_timeout) = (tls::client_config().unwrap(), Duration::from_millis(1500));
    let (connection, _) =
        client.connect(address, &config, (TIMEOUT, write_timeout), "there").unwrap();
    // Together they write more than the send window.
    assert!(usize::from(STREAMS) * EACH > windows::MIN_WINDOW.0 as usize * 3 / 2);
    let writers: Vec<_> = (0..STREAMS)
        .map(|n| {
            let mut local = connection.open(TIMEOUT).unwrap();
            thread::spawn(move || local.write_all(&vec![n; EACH]).map(|()| local))
        })
        .collect();
    // An unauthenticated peer reads 64 KiB at a time: 16 streams wait seconds for each other.
    let (mut remotes, mut received, mut chunk) = (Vec::new(), 0, vec![0; 8 << 10]);
    // A writer that gave up would be waited for forever.
    let start = Instant::now();
    while received < usize::from(STREAMS) * EACH {
        assert!(start.elapsed() < TIMEOUT * 24, "only {received} bytes received");
        for (remote, _) in streams.try_iter() {
            remote.set_read_timeout(Some(Duration::from_millis(1)));
            remotes.push(remote);
        }
        for remote in &mut remotes {
            let read = remote.read(&mut chunk).unwrap_or(0);
            received += read;
            // Slow at first, until all data beyond the window was read.
            if read > 0 && received < 2_400_000 {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let locals: Vec<_> = writers.into_iter().map(|w| w.join().unwrap().unwrap()).collect();
    drop(locals);
}

#[test]
fn closing_connection_lifts_the_window() {
    use quinn_proto::congestion::ControllerFactory;
    let gate = SendGate::default();
    let control =
        Arc::new(PathControllerFactory(gate.clone())).build(Instant::now(), MIN_DATAGRAM_BYTES);
    assert!(control.window() < 1 << 20);
    gate.close_connection();
    assert_eq!(control.window(), u64::MAX);
    assert_eq!(control.clone_box().window(), u64::MAX);
}

#[test]
fn socket_error_queue_is_drained() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    bankfull_sys::enable_error_queue(&socket, address).unwrap();
    let other = socket.try_clone().unwrap();
    // The datagram is too large; its error is queued to the socket.
    UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
    assert!(other.send_to(&[0; 65_515], address).is_err());
    let used = |socket: &UdpSocket| bankfull_sys::receive_buffer(socket).map_or(0, |b| b.used);
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    assert!(used(&other) > 0);
    let _serving = QuicPort::server(socket, server(&identity)).unwrap();
    let start = Instant::now();
    while used(&other) > 0 {
        assert!(start.elapsed() < TIMEOUT, "{} bytes queued", used(&other));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends the first datagram of a connection and returns the first response.
fn first_answer(server: SocketAddr) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut tls = (*tls::client_config().unwrap()).clone();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut endpoint = Endpoint::new(Arc::default(), None, true, None);
    let (_, mut start) = endpoint.connect(Instant::now(), config, server, SERVER_NAME).unwrap();
    let mut first = Vec::new();
    assert!(start.poll_transmit(Instant::now(), 1, &mut first).is_some());
    socket.send_to(&first, server).unwrap();
    let mut answer = vec![0; 2000];
    let len = socket.recv(&mut answer).unwrap();
    answer.truncate(len);
    answer
}

#[test]
fn many_unvalidated_connections_cause_retry() {
    /// Long header of a Retry packet (RFC 9000 §17.2.5).
    const RETRY: u8 = 0xf0;
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let server = QuicServer { strangers_max: 20, ..server(&identity) };
    let (_port, streams) = QuicPort::server(socket, server).unwrap();
    let kinds: Vec<_> = (0..12).map(|_| first_answer(address)[0] & 0xf0).collect();
    assert!(kinds[..8].iter().all(|&kind| kind != RETRY), "{kinds:x?}");
    assert!(kinds[8..].iter().all(|&kind| kind == RETRY), "{kinds:x?}");
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let (connection, _) = client.connect(address, &config, (TIMEOUT, TIMEOUT), "there").unwrap();
    connection.open(TIMEOUT).unwrap().write_all(b"x").unwrap();
    streams.recv_timeout(TIMEOUT).unwrap();
}

#[test]
fn window_widens_on_authentication_and_writes_time_out() {
    let pair = pair();
    let mut local = pair.connection.open(TIMEOUT).unwrap();
    let (sender, written) = mpsc::channel();
    let writer = thread::spawn(move || {
        loop {
            match local.write(&[0; 16 << 10]) {
                Ok(bytes) => sender.send(bytes).unwrap(),
                Err(error) => return (local, error.kind()),
            }
        }
    });
    let (remote, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    let pause = Duration::from_millis(300);
    let all = || std::iter::from_fn(|| written.recv_timeout(pause).ok()).sum::<usize>() as u64;
    let (min, initial) = (windows::MIN_WINDOW.0, windows::UNAUTHENTICATED_WINDOW.0);
    let before = all();
    // Unsent data waits in the send window.
    assert!(before <= min + initial, "{before}");
    remote.set_authenticated();
    let after = before + all();
    assert!(after > before + min - 2 * initial && after <= 2 * min + initial, "{after}");
    let (_local, kind) = writer.join().unwrap();
    assert_eq!(kind, io::ErrorKind::TimedOut);
}
