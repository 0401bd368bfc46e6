//! Peers that do not speak bankfull, speak a newer version, or never respond.

use super::super::harness::{
    Daemon, Done, FakeServer, Peer, Scratch, connect_remote, cp, hello, open_push, run_for,
    wait_until, welcome,
};
use super::check_alive;
use bankfull_proto::limits::MAX_HELLO_FRAME_BYTES;
use bankfull_proto::wire::attach::REPLY_BYTES;
use bankfull_proto::wire::control::{Cause, Failure, Message, Open, PathBytes};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Fetches everything from a server that is not a daemon.
fn fetch(server: &FakeServer) -> Done {
    let here = Scratch::new();
    let mut command = cp();
    command.args(["--accept-new", "--timeout", "4", "--state-dir"]).arg(here.join("state"));
    let done = run_for(command.arg(server.url()).arg(here.join("in")), Duration::from_secs(20));
    assert!(!done.err.contains("panicked"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    done
}

/// Starts a server that reads the first bytes, responds with `bytes`, and keeps the connection.
fn answering(bytes: &'static [u8]) -> FakeServer {
    FakeServer::raw(move |mut socket| {
        let mut first = [0; 512];
        let _ = socket.read(&mut first);
        let _ = socket.write_all(bytes);
        let _ = socket.read(&mut first);
    })
}

#[test]
fn web_or_ssh_server_is_detected() {
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"220 mail.example ESMTP\r\n",
        &[0; 100],
        &[0xff; 20_000],
    ] {
        let server = answering(answer);
        let port = server.port.to_string();
        fetch(&server).expect(12).says(&[&port, "bankfull"]);
    }
}

#[test]
fn peer_that_closes_at_once_is_named() {
    let server = FakeServer::raw(drop);
    let port = server.port.to_string();
    let done = fetch(&server);
    assert!(matches!(done.code, Some(10 | 12)), "{:?}", done.code);
    done.says(&[&port]);
}

#[test]
fn silent_peer_is_a_timeout() {
    let server = FakeServer::raw(|mut socket| {
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let started = Instant::now();
    let port = server.port.to_string();
    fetch(&server).expect(30).says(&[&port]);
    assert!(started.elapsed() < Duration::from_secs(12), "it took {:?}", started.elapsed());
}

#[test]
fn daemon_silent_after_greeting_is_a_timeout() {
    let server = FakeServer::greeted(|peer, _| peer.send(&welcome(1)));
    let port = server.port.to_string();
    fetch(&server).expect(30).says(&[&port, "no response from"]);
}

#[test]
fn newer_daemon_is_a_version_error() {
    let refusing = FakeServer::greeted(|peer, hello| {
        assert_eq!((hello.min_version, hello.max_version), (1, 1));
        let text = "the peer speaks protocol versions 1 to 1, this side 7 to 9";
        peer.send(&Message::Error(Failure::new(Cause::NoCommonVersion, text)));
    });
    fetch(&refusing).expect(2).says(&["versions", "7 to 9"]);
    let stubborn = FakeServer::greeted(|peer, _| peer.send(&welcome(7)));
    fetch(&stubborn).expect(2).says(&["version", "7", "install matching"]);
}

#[test]
fn newer_client_is_refused_unless_versions_overlap() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut new = Peer::connect(daemon.port);
    new.send(&hello(7, 9));
    new.expect_refusal(Cause::NoCommonVersion, "install matching");
    let mut wide = Peer::connect(daemon.port);
    wide.send(&hello(1, 9));
    assert!(matches!(wide.receive(), Some(Message::Welcome(w)) if w.version == 1));
    drop(wide);
    check_alive(&mut daemon);
}

#[test]
fn http_request_gets_an_http_response() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    for request in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST /x HTTP/1.0\r\n\r\nbody"] {
        let answer = say(daemon.port, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
        assert!(answer.contains("bankfull"), "{answer:?}");
    }
    check_alive(&mut daemon);
}

/// Returns the response of a daemon to bytes that are not TLS.
fn say(port: u16, bytes: &[u8]) -> String {
    let mut socket = connect_remote(port);
    socket.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn garbage_on_the_port_is_ignored() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let magic_and_rubbish = [&b"BKFLDATA"[..], &[7; 88]].concat();
    let handshake_and_rubbish = [&[0x16, 3, 1, 0xff, 0xff][..], &[9; 300]].concat();
    for rubbish in
        [&b"\0\0\0\0"[..], &[0xff; 100], &magic_and_rubbish, &handshake_and_rubbish, b"B"]
    {
        let answer = say_and_leave(daemon.port, rubbish);
        assert!(answer.len() < 100, "{answer:?}");
    }
    // A port scanner.
    drop(connect_remote(daemon.port));
    check_alive(&mut daemon);
}

fn say_and_leave(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut socket = connect_remote(port);
    socket.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let _ = socket.write_all(bytes);
    // The daemon may have closed it already.
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

#[test]
fn unauthenticated_client_has_a_small_limit() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut peer = Peer::connect(daemon.port);
    let len = u32::try_from(MAX_HELLO_FRAME_BYTES + 1).unwrap();
    peer.send_raw(&len.to_be_bytes());
    peer.expect_refusal(Cause::Protocol, "over the limit");
    check_alive(&mut daemon);
}

#[test]
fn unauthenticated_client_has_a_deadline() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut silent = connect_remote(daemon.port);
    let mut slow = connect_remote(daemon.port);
    let mut drip = slow.try_clone().unwrap();
    let dripping = thread::spawn(move || {
        // A TLS record that takes hours to arrive.
        let _ = drip.write_all(&[0x16, 3, 1, 0x0f, 0xff]);
        while drip.write_all(&[1]).is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    let started = Instant::now();
    for socket in [&mut silent, &mut slow] {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
        assert!(started.elapsed() < Duration::from_secs(45), "it took {:?}", started.elapsed());
    }
    dripping.join().unwrap();
    check_alive(&mut daemon);
}

/// Returns the numbers of threads and descriptors of a process.
fn threads_and_files(id: u32) -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{id}/{what}")).unwrap().count();
    (count("task"), count("fd"))
}

#[test]
fn strangers_cannot_exhaust_the_data_port_of_an_agent() {
    let here = Scratch::new();
    let (mut peer, id) = Peer::of_agent();
    let port = peer.welcome.data_port.unwrap();
    let Message::Open(open) = open_push(true) else { unreachable!() };
    let paths = vec![PathBytes(here.path().as_os_str().as_encoded_bytes().to_vec())];
    peer.send(&Message::Open(Open { paths, ..open }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    // Three times the limit, all connected at the same time. Each sends the first byte of a TLS
    // handshake, without which the kernel would keep it.
    let stranger = |_| {
        let mut socket = connect_remote(port);
        let _ = socket.write_all(&[0x16]);
        socket
    };
    let group = || (0..25).map(stranger).collect::<Vec<_>>();
    let strangers: Vec<_> = thread::scope(|scope| {
        let groups: Vec<_> = (0..10).map(|_| scope.spawn(group)).collect();
        groups.into_iter().flat_map(|group| group.join().unwrap()).collect()
    });
    // From their address, a client gets in as soon as the first of them are 2 s old.
    thread::sleep(Duration::from_millis(2500));
    for (stream, encrypted) in [(0, true), (1, false)] {
        let started = Instant::now();
        let mut wire = peer.attach_with(stream, &peer.welcome.session_key, encrypted);
        wire.read_exact(&mut [0; REPLY_BYTES]).expect("the client is accepted");
        assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
    }
    // One thread and two descriptors per connection, and those of the session.
    wait_until("only strangers within the limit are left", || {
        let (threads, files) = threads_and_files(id);
        threads < 120 && files < 240
    });
    // All of them end long before the timeout of the session.
    for mut stranger in strangers {
        stranger.set_read_timeout(Some(Duration::from_secs(45))).unwrap();
        assert!(!matches!(stranger.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock));
    }
    wait_until("their threads are gone", || threads_and_files(id).0 < 20);
}
