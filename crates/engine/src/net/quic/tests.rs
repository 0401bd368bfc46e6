use super::*;
use crate::net::identity::Identity;
use crate::net::socket::Socket;
use crate::net::tls;
use crate::session::Session;
use std::io::{Read, Write};
use std::time::Instant;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(5);

struct Pair {
    _port: QuicPort,
    streams: Streams,
    address: SocketAddr,
    fingerprint: Fingerprint,
    connection: QuicConnection,
    shown: Fingerprint,
}

fn server(identity: &Identity) -> QuicServer {
    QuicServer {
        tls: tls::server_config(identity).unwrap(),
        timeout: TIMEOUT,
        connections_max: 2,
        staging: Arc::default(),
        sibling: None,
    }
}

fn pair() -> Pair {
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (port, streams) = QuicPort::server(socket, server(&identity)).unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let (connection, shown) =
        client.connect(address, &config, (TIMEOUT, TIMEOUT), "there").unwrap();
    let fingerprint = identity.fingerprint();
    Pair { _port: port, streams, address, fingerprint, connection, shown }
}

#[test]
fn a_stream_carries_bytes_both_ways_to_whoever_has_the_certificate() {
    let pair = pair();
    assert_eq!(pair.shown, pair.fingerprint);
    let mut near = pair.connection.open(TIMEOUT).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7) as u8).collect();
    let sent = bytes.clone();
    let sender = thread::spawn(move || {
        near.write_all(&sent).unwrap();
        let mut answer = [0; 5];
        near.read_exact(&mut answer).unwrap();
        (near, answer)
    });
    let (mut far, from) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    assert!(from.ip().is_loopback() && from != pair.address);
    let mut came = vec![0; bytes.len()];
    far.read_exact(&mut came).unwrap();
    assert!(came == bytes);
    far.write_all(b"hello").unwrap();
    let (near, answer) = sender.join().unwrap();
    assert_eq!(&answer, b"hello");
    far.shutdown();
    drop(near);
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_session_sees_what_a_connection_carries_once_however_many_streams_it_has() {
    let pair = pair();
    let (near, far) = (Session::default(), Session::default());
    let data = vec![7; 8 << 20];
    let mut all = Vec::new();
    for number in 0..2 {
        let mut stream = pair.connection.open(TIMEOUT).unwrap();
        stream.write_all(b"x").unwrap();
        let (mut there, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
        there.read_exact(&mut [0]).unwrap();
        near.add_stream(number, &Socket::Quic(stream.clone())).unwrap();
        far.add_stream(number, &Socket::Quic(there.clone())).unwrap();
        all.push((stream, there));
    }
    let (stream, there) = &mut all[0];
    let (mut stream, mut there) = (stream.clone(), there.clone());
    thread::scope(|scope| {
        scope.spawn(|| stream.write_all(&data).unwrap());
        there.read_exact(&mut vec![0; data.len()]).unwrap();
    });
    let (sent, came) = (near.sample_streams(|_, _, _| {}), far.sample_streams(|_, _, _| {}));
    assert!(sent.quic_smoothed_rtt.is_some() && came.quic_smoothed_rtt.is_some());
    // With what the protocol says besides, and sends again or looks for larger datagrams with.
    let once = data.len() as u64..2 * data.len() as u64;
    assert!(once.contains(&sent.acked) && once.contains(&came.received), "{sent:?} {came:?}");
    assert_eq!(near.mss(), Bytes(0), "none is left");
    near.remove_stream(0);
    assert!(near.mss() >= Bytes(1200), "the least that QUIC allows");
    near.remove_stream(1);
    assert!(near.sample_streams(|_, _, _| {}).acked >= sent.acked, "what was carried stays");
}

#[test]
fn whoever_reads_waits_no_longer_than_its_time_out_and_is_woken_by_a_shutdown() {
    let pair = pair();
    let mut near = pair.connection.open(TIMEOUT).unwrap();
    near.write_all(b"x").unwrap();
    let (mut far, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    far.read_exact(&mut [0]).unwrap();
    far.set_read_timeout(Some(Duration::from_millis(30)));
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    far.set_read_timeout(None);
    let other = far.clone();
    let reader = thread::spawn(move || far.read(&mut [0]));
    thread::sleep(Duration::from_millis(30));
    other.shutdown();
    assert_eq!(reader.join().unwrap().unwrap(), 0);
}

#[test]
fn the_last_words_arrive_and_then_the_end() {
    let pair = pair();
    let mut near = pair.connection.open(TIMEOUT).unwrap();
    near.write_all(b"last words").unwrap();
    let (mut far, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    near.wait_until_heard(TIMEOUT);
    drop(near);
    let mut words = String::new();
    far.read_to_string(&mut words).unwrap();
    assert_eq!(words, "last words");
}

#[test]
fn a_connection_that_is_gone_ends_what_others_wait_for() {
    let pair = pair();
    let mut near = pair.connection.open(TIMEOUT).unwrap();
    near.write_all(b"x").unwrap();
    let (mut far, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    far.read_exact(&mut [0]).unwrap();
    let Pair { connection, .. } = pair;
    drop((near, connection));
    let start = Instant::now();
    // Its end has come in order, or the end of all.
    let end = far.read(&mut [0]);
    let is_end =
        end.as_ref().map_or_else(|e| e.kind() == io::ErrorKind::ConnectionReset, |n| *n == 0);
    assert!(is_end, "{end:?} after {:?}", start.elapsed());
    assert!(start.elapsed() < TIMEOUT, "not by the time-out");
}

#[test]
fn the_end_is_told_while_the_window_is_full() {
    let pair = pair();
    let mut near = pair.connection.open(TIMEOUT).unwrap();
    near.write_all(b"x").unwrap();
    let (mut far, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    far.trust();
    // As much as may be on its way while nobody reads.
    near.write_all(&[0; windows::LEAST.0 as usize - 1]).unwrap();
    let Pair { connection, .. } = pair;
    drop((near, connection));
    let start = Instant::now();
    let mut came = Vec::new();
    assert_eq!(far.read_to_end(&mut came).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
}

#[test]
fn nobody_there_is_said_in_time() {
    let unused = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = unused.local_addr().unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let timeout = Duration::from_millis(200);
    let error = client.connect(address, &config, (timeout, TIMEOUT), "there:1").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("there:1 does not answer by QUIC"), "{error}");
}

#[test]
fn a_port_that_nobody_has_is_said_at_once() {
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
fn where_there_is_no_room_the_oldest_stranger_goes_and_nobody_who_is_trusted() {
    let pair = pair();
    let client = QuicPort::client(pair.address, Arc::default()).unwrap();
    let config = tls::client_config().unwrap();
    let connect = || client.connect(pair.address, &config, (TIMEOUT, TIMEOUT), "there");
    let trusted = |connection: &QuicConnection| {
        let mut near = connection.open(TIMEOUT).unwrap();
        near.write_all(b"x").unwrap();
        let (far, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
        far.trust();
        (near, far)
    };
    let (first, mut far) = trusted(&pair.connection);
    let (stranger, _) = connect().unwrap();
    let mut lost = stranger.open(TIMEOUT).unwrap();
    lost.set_read_timeout(Some(TIMEOUT));
    let (third, _) = connect().unwrap();
    assert_eq!(lost.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let _kept = trusted(&third);
    let error = connect().err().unwrap();
    let text = "no room for more connections: try again later, or start it with more \
                --max-connections";
    assert!(error.to_string().ends_with(text) && !error.is_loss(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Network);
    drop(first);
    assert_eq!(far.read(&mut [0; 2]).unwrap(), 1);
}

#[test]
fn a_host_that_cannot_be_sent_to_is_not_waited_for() {
    // To all at once, which the socket has not asked for.
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
            let mut near = pair.connection.open(TIMEOUT).unwrap();
            thread::spawn(move || {
                near.write_all(&vec![n; 300_000]).unwrap();
                near.wait_until_heard(TIMEOUT);
            })
        })
        .collect();
    // All are read at the same time: what is unread of some takes room from others.
    let receivers: Vec<_> = (0..16)
        .map(|_| {
            let (mut far, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
            thread::spawn(move || {
                let mut came = Vec::new();
                far.read_to_end(&mut came).unwrap();
                assert!(came.len() == 300_000 && came.iter().all(|&b| b == came[0]));
                came[0]
            })
        })
        .collect();
    let mut sums: Vec<_> = receivers.into_iter().map(|one| one.join().unwrap()).collect();
    sums.sort_unstable();
    assert_eq!(sums, (0..16).collect::<Vec<_>>());
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn whoever_writes_waits_for_its_turn_while_others_of_the_connection_have_theirs() {
    const STREAMS: u8 = 16;
    const EACH: usize = 400_000;
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (_port, streams) = QuicPort::server(socket, server(&identity)).unwrap();
    let client = QuicPort::client(address, Arc::default()).unwrap();
    let (config, patience) = (tls::client_config().unwrap(), Duration::from_millis(1500));
    let (connection, _) = client.connect(address, &config, (TIMEOUT, patience), "there").unwrap();
    // Together they write more than is kept here for what the other side takes.
    assert!(usize::from(STREAMS) * EACH > windows::LEAST.0 as usize * 3 / 2);
    let writers: Vec<_> = (0..STREAMS)
        .map(|n| {
            let mut near = connection.open(TIMEOUT).unwrap();
            thread::spawn(move || near.write_all(&vec![n; EACH]).map(|()| near))
        })
        .collect();
    // A stranger takes 64 KiB at a time: 16 streams of as much wait some seconds for each other.
    let (mut fars, mut came, mut piece) = (Vec::new(), 0, vec![0; 8 << 10]);
    // Whoever has given up would be waited for without an end.
    let begun = Instant::now();
    while came < usize::from(STREAMS) * EACH {
        assert!(begun.elapsed() < TIMEOUT * 24, "only {came} bytes came");
        for (far, _) in streams.try_iter() {
            far.set_read_timeout(Some(Duration::from_millis(1)));
            fars.push(far);
        }
        for far in &mut fars {
            let read = far.read(&mut piece).unwrap_or(0);
            came += read;
            // Slow at first, until all that did not fit has been taken.
            if read > 0 && came < 2_400_000 {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let nears: Vec<_> = writers.into_iter().map(|w| w.join().unwrap().unwrap()).collect();
    drop(nears);
}

#[test]
fn an_open_gate_holds_nothing_back() {
    use quinn_proto::congestion::ControllerFactory;
    let gate = Gate::default();
    let control = Arc::new(Deliveries(gate.clone())).build(Instant::now(), DATAGRAM_MIN);
    assert!(control.window() < 1 << 20);
    gate.open();
    assert_eq!(control.window(), u64::MAX);
    assert_eq!(control.clone_box().window(), u64::MAX);
}

#[test]
fn what_networks_say_of_datagrams_is_taken_at_once() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    bankfull_sys::note_refusals(&socket, address).unwrap();
    let other = socket.try_clone().unwrap();
    // No datagram is as large, and the socket is told, too: nothing else stands in it.
    UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
    assert!(other.send_to(&[0; 65_515], address).is_err());
    let used = |socket: &UdpSocket| bankfull_sys::receive_buffer(socket).map_or(0, |b| b.used);
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    assert!(used(&other) > 0);
    let _serving = QuicPort::server(socket, server(&identity)).unwrap();
    let start = Instant::now();
    while used(&other) > 0 {
        assert!(start.elapsed() < TIMEOUT, "{} bytes stand there", used(&other));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends the first datagram of a connection, and answers with the first that comes back.
fn first_answer(server: SocketAddr) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut tls = (*tls::client_config().unwrap()).clone();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut endpoint = Endpoint::new(Arc::default(), None, true, None);
    let (_, mut begun) = endpoint.connect(Instant::now(), config, server, NAME).unwrap();
    let mut first = Vec::new();
    assert!(begun.poll_transmit(Instant::now(), 1, &mut first).is_some());
    socket.send_to(&first, server).unwrap();
    let mut answer = vec![0; 2000];
    let len = socket.recv(&mut answer).unwrap();
    answer.truncate(len);
    answer
}

#[test]
fn where_many_have_not_shown_where_they_are_others_have_to_and_may_connect() {
    /// A long header of the type Retry. (RFC 9000, §17.2.5)
    const RETRY: u8 = 0xf0;
    let state = TempDir::new().unwrap();
    let identity = Identity::load_or_generate(state.path()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let server = QuicServer { connections_max: 20, ..server(&identity) };
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
fn a_stranger_may_send_little_until_it_is_trusted_and_nobody_waits_for_ever_to_write() {
    let pair = pair();
    let mut near = pair.connection.open(TIMEOUT).unwrap();
    let (sender, written) = mpsc::channel();
    let writer = thread::spawn(move || {
        loop {
            match near.write(&[0; 16 << 10]) {
                Ok(bytes) => sender.send(bytes).unwrap(),
                Err(error) => return (near, error.kind()),
            }
        }
    });
    let (far, _) = pair.streams.recv_timeout(TIMEOUT).unwrap();
    let pause = Duration::from_millis(300);
    let all = || std::iter::from_fn(|| written.recv_timeout(pause).ok()).sum::<usize>() as u64;
    let (least, strange) = (windows::LEAST.0, windows::STRANGE.0);
    let before = all();
    // What is not sent yet is kept here.
    assert!(before <= least + strange, "{before}");
    far.trust();
    let after = before + all();
    assert!(after > before + least - 2 * strange && after <= 2 * least + strange, "{after}");
    let (_near, why) = writer.join().unwrap();
    assert_eq!(why, io::ErrorKind::TimedOut);
}
