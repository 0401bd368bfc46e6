//! Sessions that have ended, and daemons that are stopping: no thread keeps working for them.

use super::super::harness::{
    Daemon, Peer, Running, Scratch, Wire, entry, hello, is_over_path, open_push, wait_until,
    write_file,
};
use super::check_alive;
use super::injection::{can_trace, child_of, traced};
use crate::command;
use bankfull_proto::wire::control::{Direction, Entry, Message, Open, PathBytes, Verdict, Want};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Size of a sparse file that takes minutes to hash.
const HUGE: u64 = 100 << 30;

/// Time limit of an end, which takes 0.1 s, or 2 s after a signal. Tests share their machine.
const SOON: Duration = Duration::from_secs(5);

/// Pause in which the daemon begins with what a client has just asked for.
const MOMENT: Duration = Duration::from_millis(300);

fn make_huge(path: &Path) {
    File::create(path).unwrap().set_len(HUGE).unwrap();
}

/// Returns the announcement of the huge file.
fn huge() -> Entry {
    Entry { sparse: true, ..entry(1, b"huge", HUGE) }
}

/// Connects a client for which the daemon hashes its own huge file.
fn receiving(daemon: &Daemon) -> Peer {
    let mut peer = Peer::welcomed(daemon.port);
    let Message::Open(open) = open_push(false) else { unreachable!() };
    peer.send(&Message::Open(Open { checksum: true, ..open }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    peer.send(&Message::Entries(vec![huge()]));
    peer
}

/// Connects a client that asks for a file with this verdict.
fn taking(daemon: &Daemon, name: &str, verdict: Verdict) -> (Peer, Wire) {
    let mut peer = Peer::welcomed(daemon.port);
    peer.send(&Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![PathBytes(name.into())],
        streams: 1,
        timeout_ms: 60_000,
        ..Open::default()
    }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    let stream = peer.attach(1);
    let file = loop {
        match peer.receive() {
            Some(Message::Entries(entries)) => break entries[0].id,
            Some(_) => {}
            None => panic!("no entry"),
        }
    };
    let hash = (verdict == Verdict::IfDiffers).then_some([1; 32]);
    let (have, failure, accepts_early_digest) = (Vec::new(), None, None);
    peer.send(&Message::Wants(vec![Want {
        file,
        verdict,
        have,
        hash,
        failure,
        accepts_early_digest,
    }]));
    (peer, stream)
}

#[test]
fn hashing_ends_with_its_client() {
    let root = Scratch::new();
    make_huge(&root.join("huge"));
    let mut daemon = Daemon::start(root.path(), &[]);
    let (mut receiver, (mut sender, stream)) =
        (receiving(&daemon), taking(&daemon, "huge", Verdict::IfDiffers));
    thread::sleep(MOMENT);
    assert_eq!(daemon.clients_done(), 0);
    drop(stream);
    let hung_up = Instant::now();
    receiver.hang_up();
    sender.hang_up();
    wait_until("both sessions have ended", || daemon.clients_done() == 2);
    assert!(hung_up.elapsed() < SOON, "{:?}", hung_up.elapsed());
    check_alive(&mut daemon);
}

#[test]
fn local_copy_of_a_huge_file_ends_with_a_signal() {
    let here = Scratch::new();
    make_huge(&here.join("huge"));
    let into = here.dir("into");
    make_huge(&into.join("huge"));
    let mut command = command();
    command.args(["cp", "--checksum", "--dry-run"]).arg(here.join("huge")).arg(&into);
    let copy = Running::start(&mut command);
    wait_until("it catches signals", || catches(copy.id(), Signal::TERM));
    thread::sleep(MOMENT);
    copy.signal(Signal::TERM);
    copy.wait_for(SOON).expect(20);
}

/// True if a process has a handler for a signal. (proc(5))
fn catches(id: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

/// Clients in all states in which a daemon waits or works for them.
struct Clients {
    _hashed: Peer,
    _compared: (Peer, Wire),
    _stalled: (Peer, Wire),
    _waiting: Vec<Peer>,
    _half_greeted: TcpStream,
    quic: Running,
}

impl Clients {
    fn of(daemon: &Daemon, into: &Path) -> Self {
        // A record of a handshake that is announced, and does not arrive.
        let mut half_greeted = TcpStream::connect((Ipv4Addr::LOCALHOST, daemon.port)).unwrap();
        half_greeted.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
        let mut command = daemon.cp();
        command.args(["--transport", "quic", "--streams", "1"]).arg(daemon.url("bulk")).arg(into);
        let quic = Running::start(&mut command);
        wait_until("QUIC carries data", || quic.out().contains("\"progress\""));
        quic.signal(Signal::STOP);
        let clients = Self {
            _hashed: receiving(daemon),
            _compared: taking(daemon, "huge", Verdict::IfDiffers),
            _stalled: taking(daemon, "bulk", Verdict::Send),
            _waiting: Vec::new(),
            _half_greeted: half_greeted,
            quic,
        };
        thread::sleep(MOMENT);
        clients
    }

    /// Lets further clients wait for slots, of which there are none.
    fn with_waiting(mut self, daemon: &Daemon) -> Self {
        let port = daemon.port;
        self._waiting = (0..2)
            .map(|_| {
                let mut peer = Peer::connect(port);
                peer.send(&hello(1, 1));
                peer
            })
            .collect();
        thread::sleep(MOMENT);
        self
    }
}

#[test]
fn daemon_ends_soon_after_its_drain_in_every_state() {
    if is_over_path() {
        return;
    }
    let root = Scratch::new();
    make_huge(&root.join("huge"));
    write_file(&root.join("bulk"), vec![7; 64 << 20]);
    for drain in [Some("0.2"), None] {
        let here = Scratch::new();
        let mut flags = vec!["--max-connections", "8"];
        flags.extend(drain.iter().flat_map(|time| ["--drain-timeout", time]));
        let mut daemon = Daemon::start(root.path(), &flags);
        let clients = Clients::of(&daemon, here.path()).with_waiting(&daemon);
        let signalled = Instant::now();
        // Without a timeout of the drain, the second signal ends the sessions.
        for _ in 0..=u32::from(drain.is_none()) {
            daemon.running().signal(Signal::TERM);
            thread::sleep(Duration::from_millis(100));
        }
        let code = daemon.wait();
        assert!(signalled.elapsed() < SOON, "{:?}", signalled.elapsed());
        assert_eq!(code, Some(0), "{}", daemon.err());
        clients.quic.signal(Signal::CONT);
    }
}

#[test]
fn daemon_with_a_stalled_disk_ends_soon() {
    if is_over_path() || !can_trace() {
        eprintln!("skipped: strace is missing, or may not trace here");
        return;
    }
    let (root, here, state) = (Scratch::new(), Scratch::new(), Scratch::new());
    write_file(&here.join("file"), vec![7; 8 << 20]);
    let mut serve = command();
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0", "--drain-timeout", "0.2"]);
    serve.arg("--state-dir").arg(state.path()).arg(root.path());
    // Each write takes a minute.
    let daemon = Daemon::from_command(&mut traced(&serve, "pwrite64", "delay_enter=60s"));
    let mut command = daemon.cp();
    let _client = Running::start(command.arg(here.join("file")).arg(daemon.url("")));
    wait_until("it is written", || root.path().read_dir().unwrap().count() > 0);
    thread::sleep(MOMENT);
    let signalled = Instant::now();
    // strace(1) passes no signal on, and keeps the writing threads until their time is over.
    let id = child_of(daemon.id());
    kill_process(id, Signal::TERM).unwrap();
    wait_until("its main thread has ended", || state_of(id).is_none_or(|state| state == 'Z'));
    assert!(signalled.elapsed() < SOON, "{:?}", signalled.elapsed());
}

#[test]
fn interrupt_during_the_flush_is_no_success() {
    if is_over_path() || !can_trace() {
        eprintln!("skipped: strace is missing, or may not trace here");
        return;
    }
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&root.join("f"), b"content");
    let daemon = Daemon::start(root.path(), &[]);
    let mut copy = daemon.cp();
    copy.arg(daemon.url("f")).arg(here.join("f"));
    let client = Running::start(&mut traced(&copy, "syncfs", "delay_enter=2s"));
    wait_until("the file is in its place", || here.join("f").exists());
    thread::sleep(MOMENT);
    kill_process(child_of(client.id()), Signal::INT).unwrap();
    client.wait().expect(20);
}

/// Returns the state of a process's main thread.
fn state_of(id: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn agent_ends_with_a_signal_while_it_hashes() {
    let here = Scratch::new();
    make_huge(&here.join("huge"));
    let (mut peer, id) = Peer::of_agent();
    let Message::Open(open) = open_push(false) else { unreachable!() };
    let paths = vec![PathBytes(here.path().as_os_str().as_encoded_bytes().to_vec())];
    peer.send(&Message::Open(Open { checksum: true, paths, ..open }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    peer.send(&Message::Entries(vec![huge()]));
    thread::sleep(MOMENT);
    let signalled = Instant::now();
    kill_process(Pid::from_raw(id.try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    while peer.receive().is_some() {}
    assert!(signalled.elapsed() < SOON, "{:?}", signalled.elapsed());
}
