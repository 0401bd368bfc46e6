//! `bankfull guard` with real sockets between two namespaces: following, holding, and its end.
//! [`super::guard_effects`] covers its effects on connections and on other programs.
//!
//! Uses the program built by the workspace's tests, and is skipped with a message without it, or
//! where BPF is not permitted.

use super::copies::program;
use bankfull_lab::base::notify;
use bankfull_lab::topology::hosts::{Hosts, HostsConfig};
use bankfull_lab::topology::network::Network;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) const PORT: u16 = 7800;

/// Timeout of a condition. (chosen: several times what it takes on a busy machine)
const LIMIT: Duration = Duration::from_secs(20);

/// Threshold of free windows: twice the share of the queue of one of four senders.
pub(super) const FREE_WINDOW: u32 = 100_000;

/// Directory of what a guard leaves.
const PINS: &str = "/sys/fs/bpf/bankfull-guard";

/// One guard runs on a host at a time.
static HOST: Mutex<()> = Mutex::new(());

/// Two hosts, joined by a cable or by a path of the emulator.
pub(super) enum Place {
    Cable(Hosts),
    Path(Network),
}

impl Deref for Place {
    type Target = Hosts;

    fn deref(&self) -> &Hosts {
        match self {
            Self::Cable(hosts) => hosts,
            Self::Path(network) => network.hosts(),
        }
    }
}

/// Two hosts, of which the second receives.
pub(super) struct Scene {
    pub(super) guard: Option<Child>,
    pub(super) hosts: Place,
    pub(super) program: PathBuf,
    pub(super) scratch: TempDir,
    _host: MutexGuard<'static, ()>,
}

/// Connections on which the first host sends without end.
pub(super) struct Flows {
    pub(super) receivers: Vec<TcpStream>,
    pub(super) received: Arc<AtomicU64>,
    pub(super) is_ended: Arc<AtomicBool>,
}

impl Scene {
    /// Creates the hosts; `None`, with a message, if they or BPF are not permitted.
    pub(super) fn new() -> Option<Self> {
        Self::at(|| match Hosts::create_pair(&HostsConfig::default()) {
            Ok(hosts) => Some(Place::Cable(hosts)),
            Err(error) => {
                notify(&format!("skipped: {error}"));
                None
            }
        })
    }

    /// Creates the scene at a place; `None`, with a message, if BPF is not permitted.
    pub(super) fn at(place: impl FnOnce() -> Option<Place>) -> Option<Self> {
        let host = HOST.lock().unwrap_or_else(PoisonError::into_inner);
        let program = program()?;
        let hosts = place()?;
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        if !mounts.lines().any(|line| line.contains(" /sys/fs/bpf bpf ")) {
            let mount = ["-t", "bpf", "bpf", "/sys/fs/bpf"];
            let _ = Command::new("mount").args(mount).stderr(Stdio::null()).status();
        }
        let scratch = TempDir::with_prefix("bankfull-lab-").unwrap();
        let released = Command::new(&program).args(["guard", "--release"]).output().unwrap();
        if String::from_utf8_lossy(&released.stderr).contains("the programs stay") {
            // Idle connections of an earlier test, whose namespace is gone.
            fs::remove_dir_all(PINS).unwrap();
        } else if !released.status.success() {
            notify(&format!("skipped: {}", String::from_utf8_lossy(&released.stderr).trim()));
            return None;
        }
        Some(Self { guard: None, hosts, program, scratch, _host: host })
    }

    fn output(&self) -> PathBuf {
        self.scratch.path().join("guard.out")
    }

    pub(super) fn command(&self, interface: &str, flags: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["guard", "--interface", interface, "--json", "--link-rate", "1gbit"]);
        command.args(flags).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    pub(super) fn start_guard(&mut self, flags: &[&str]) {
        self.start_guard_at("lab0", flags);
    }

    pub(super) fn start_guard_at(&mut self, interface: &str, flags: &[&str]) {
        let command = self.command(interface, flags);
        self.start(command);
    }

    /// Starts a guard by a command that shows JSON lines.
    pub(super) fn start(&mut self, mut command: Command) {
        command.stdout(File::create(self.output()).unwrap());
        let mut guard = self.hosts.spawn(1, &mut command).unwrap();
        wait_until("start", || {
            if guard.try_wait().unwrap().is_some() {
                let mut text = String::new();
                guard.stderr.take().unwrap().read_to_string(&mut text).unwrap();
                panic!("the guard has ended: {text}");
            }
            !self.events("start").is_empty()
        });
        self.guard = Some(guard);
    }

    /// Returns the events of a kind so far.
    pub(super) fn events(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.output()).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == kind).collect()
    }

    pub(super) fn wait_for(&self, kind: &str, is_one: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        wait_until(kind, || {
            found = self.events(kind).into_iter().find(|event| is_one(event));
            found.is_some()
        });
        found.unwrap()
    }

    pub(super) fn end_guard(&mut self, signal: Signal) -> bool {
        let mut guard = self.guard.take().unwrap();
        let id = Pid::from_raw(i32::try_from(guard.id()).unwrap()).unwrap();
        kill_process(id, signal).unwrap();
        guard.wait().unwrap().success()
    }

    /// Waits for the end of the guard; returns whether it succeeded, and its messages.
    pub(super) fn wait_for_end(&mut self) -> (bool, String) {
        let mut guard = self.guard.take().unwrap();
        let status = guard.wait().unwrap();
        let mut text = String::new();
        guard.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (status.success(), text)
    }

    /// True if no guard has left anything.
    pub(super) fn is_clean(&self) -> bool {
        let released = Command::new(&self.program).args(["guard", "--release"]).output().unwrap();
        String::from_utf8_lossy(&released.stderr).contains("no guard has left anything")
    }

    /// Connects the hosts, without data yet.
    pub(super) fn connect(&self, count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        self.connect_to(PORT, count)
    }

    pub(super) fn connect_to(&self, port: u16, count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let address = SocketAddr::from((Hosts::address(1), port));
        let listener = self.hosts.run_on(1, || TcpListener::bind(address)).unwrap();
        let pair = |_| {
            let sender = self.hosts.run_on(0, || TcpStream::connect(address)).unwrap();
            (sender, listener.accept().unwrap().0)
        };
        (0..count).map(pair).unzip()
    }

    /// Starts a guard that holds the windows of four connections, and waits until it does.
    pub(super) fn hold(&mut self) -> Flows {
        self.start_guard(&["--mode", "hold"]);
        let flows = self.send(self.connect(4));
        wait_until("windows fit the port", || {
            !self.events("window").is_empty() && flows.max_window() < FREE_WINDOW / 2
        });
        flows
    }

    /// Sends on connections until the flows are dropped.
    pub(super) fn send(&self, (senders, receivers): (Vec<TcpStream>, Vec<TcpStream>)) -> Flows {
        let received = Arc::new(AtomicU64::new(0));
        let is_ended = Arc::new(AtomicBool::new(false));
        for mut sender in senders {
            let is_ended = Arc::clone(&is_ended);
            thread::spawn(move || {
                let block = vec![1; 64 << 10];
                while !is_ended.load(Ordering::Relaxed) && sender.write_all(&block).is_ok() {}
            });
        }
        for receiver in &receivers {
            let (mut receiver, received) = (receiver.try_clone().unwrap(), Arc::clone(&received));
            thread::spawn(move || {
                let mut block = vec![0; 64 << 10];
                while let Ok(bytes @ 1..) = receiver.read(&mut block) {
                    received.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            });
        }
        Flows { receivers, received, is_ended }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        let _ = Command::new(&self.program).args(["guard", "--release"]).output();
    }
}

impl Flows {
    /// Returns the largest window that a receiver offers.
    pub(super) fn max_window(&self) -> u32 {
        let windows = self.receivers.iter().map(|one| bankfull_sys::tcp_info(one).unwrap().rcv_wnd);
        windows.map(Option::unwrap_or_default).max().unwrap_or_default()
    }

    pub(super) fn min_window(&self) -> u32 {
        let windows = self.receivers.iter().map(|one| bankfull_sys::tcp_info(one).unwrap().rcv_wnd);
        windows.map(Option::unwrap_or_default).min().unwrap_or_default()
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        for receiver in &self.receivers {
            let _ = receiver.shutdown(std::net::Shutdown::Both);
        }
    }
}

pub(super) fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_met() {
        assert!(Instant::now() < end, "timeout: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn guard_sees_connections_from_before_and_after() {
    let Some(mut scene) = Scene::new() else { return };
    let before = scene.connect(1);
    scene.start_guard(&[]);
    let after = scene.connect(1);
    let port = |stream: &TcpStream| u64::from(stream.local_addr().unwrap().port());
    for (senders, is_passive) in [(&before.0, false), (&after.0, true)] {
        let address = format!("{}:{}", Hosts::address(0), port(&senders[0]));
        let seen = scene.wait_for("connection", |event| event["remote"] == address.as_str());
        assert_eq!(seen["local"], format!("{}:{PORT}", Hosts::address(1)));
        assert_eq!(seen["standing"], "guarded");
        assert_eq!(seen["process"], u64::from(std::process::id()), "{seen}");
        assert_eq!(seen["passive"], is_passive, "an adopted connection's side is unknown");
        assert!(seen["rtt_seconds"].as_f64().unwrap() < 0.1, "{seen}");
    }
    let (mut senders, receivers) = after;
    senders[0].write_all(&[7; 5000]).unwrap();
    drop(senders);
    let mut content = Vec::new();
    (&receivers[0]).read_to_end(&mut content).unwrap();
    drop(receivers);
    // The kernel counts the end of the stream as a byte.
    let closed = scene.wait_for("closed", |event| event["bytes"] == 5001);
    assert!(closed["id"].as_u64().is_some(), "{closed}");
    assert!(scene.end_guard(Signal::TERM));
}

#[test]
fn guard_holds_windows_and_lifts_them_at_its_end() {
    let Some(mut scene) = Scene::new() else { return };
    let old = scene.connect(2);
    scene.start_guard(&["--mode", "hold"]);
    let flows = [scene.send(old), scene.send(scene.connect(2))];
    let max_window = || flows.iter().map(Flows::max_window).max().unwrap();
    wait_until("windows fit the port", || max_window() < FREE_WINDOW / 2);
    let reason = scene.wait_for("window", |event| event["window_bytes"].is_u64());
    assert!(reason["reason"].is_string(), "{reason}");
    let before = flows[0].received.load(Ordering::Relaxed);
    wait_until("data goes on", || flows[0].received.load(Ordering::Relaxed) > before + (1 << 20));
    assert!(scene.end_guard(Signal::TERM));
    let min_window = || flows.iter().map(Flows::min_window).min().unwrap();
    wait_until("windows are free", || min_window() > FREE_WINDOW);
}

#[test]
fn replaced_clamp_is_set_again_before_a_window_is_offered() {
    let Some(mut scene) = Scene::new() else { return };
    let flows = scene.hold();
    let stays_held = |_| {
        for receiver in &flows.receivers {
            bankfull_sys::set_window_clamp(receiver, 4 << 20).unwrap();
        }
        thread::sleep(Duration::from_micros(500));
        flows.max_window() < FREE_WINDOW / 2
    };
    // If a busy host stops the guard for a second, its programs lift the windows meanwhile.
    wait_until("windows stay held", || (0..500).all(stays_held));
}

#[test]
fn connections_that_start_together_share_the_port() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&["--mode", "hold"]);
    let first = scene.send(scene.connect(1));
    wait_until("a single connection is free", || first.min_window() > FREE_WINDOW);
    drop(first);
    let window = |one: &TcpStream| bankfull_sys::tcp_info(one).unwrap().rcv_wnd.unwrap_or_default();
    let mut streams = (Vec::new(), Vec::new());
    // The kernel offers 65 535 bytes, which the first connection of a tick keeps. On a busy
    // host, each connection may be the first of a tick.
    wait_until("first windows are small", || {
        streams = scene.connect(40);
        streams.1.iter().map(window).sum::<u32>() < 40 * 65_535 / 2
    });
    let flows = scene.send(streams);
    wait_until("windows fit the port", || flows.max_window() < FREE_WINDOW / 10);
}

#[test]
fn observing_guard_changes_no_window() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&[]);
    let flows = scene.send(scene.connect(4));
    scene.wait_for("window", |event| event["window_bytes"].is_u64());
    wait_until("windows are free", || flows.min_window() > FREE_WINDOW);
    scene.wait_for("status", |event| event["engaged"] == true);
    // Windows fall on their own while a busy host's readers wait; a guard's would not rise again.
    wait_until("windows stay free", || flows.min_window() > FREE_WINDOW);
}

#[test]
fn release_right_after_a_kill_frees_connections() {
    let Some(mut scene) = Scene::new() else { return };
    let flows = scene.hold();
    scene.end_guard(Signal::KILL);
    // Within the second in which the programs still apply orders.
    assert!(!scene.is_clean());
    wait_until("windows are free", || flows.min_window() > FREE_WINDOW);
}

#[test]
fn connections_of_other_cgroups_are_not_adopted() {
    let Some(mut scene) = Scene::new() else { return };
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" cgroup2 ")).unwrap();
    let mount = PathBuf::from(mount.split(' ').nth(1).unwrap());
    let cgroup = mount.join(format!("bankfull-other-{}", std::process::id()));
    fs::create_dir(&cgroup).unwrap();
    let _before = scene.connect(1);
    scene.start_guard(&["--cgroup", cgroup.to_str().unwrap()]);
    scene.wait_for("status", |_| true);
    let seen = scene.events("connection");
    assert!(scene.end_guard(Signal::TERM));
    fs::remove_dir(&cgroup).unwrap();
    assert!(seen.is_empty(), "{seen:?}");
}

#[test]
fn release_lifts_idle_connections_of_a_killed_guard() {
    let Some(mut scene) = Scene::new() else { return };
    let flows = scene.hold();
    scene.end_guard(Signal::KILL);
    // Idle within the second of the heartbeat.
    flows.is_ended.store(true, Ordering::Relaxed);
    // In the namespace of the connections, in which no process is left.
    let mut release = Command::new(&scene.program);
    release.args(["guard", "--release", "--json"]).stdout(Stdio::piped());
    let output = scene.hosts.spawn(1, &mut release).unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["windows"].as_u64().is_some_and(|windows| windows > 0), "{line}");
    assert!(scene.is_clean());
}

#[test]
fn guard_ends_with_its_interface_and_lifts_windows() {
    let Some(mut scene) = Scene::new() else { return };
    let host = scene.hosts.namespace(1);
    let ip = |words: &str| {
        let words = ["-n", &host].into_iter().chain(words.split(' '));
        assert!(Command::new("ip").args(words).status().unwrap().success());
    };
    ip("link add spare0 type veth peer name spare1");
    ip("link set spare0 up");
    scene.start_guard_at("spare0", &["--mode", "hold"]);
    ip("link del spare0");
    let (is_success, text) = scene.wait_for_end();
    assert!(!is_success && text.contains("the interface spare0 is gone"), "{text}");
    assert!(scene.is_clean());
}

#[test]
fn two_signals_at_once_leave_nothing() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&["--mode", "hold"]);
    let guard = scene.guard.as_ref().unwrap();
    let id = Pid::from_raw(i32::try_from(guard.id()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    // The same signal counts once while it is pending.
    assert!(scene.end_guard(Signal::TERM));
    assert!(scene.is_clean());
}

#[test]
fn second_guard_is_refused() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&[]);
    let mut command = scene.command("lab0", &[]);
    command.stdout(Stdio::null());
    let second = scene.hosts.spawn(1, &mut command).unwrap().wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && text.contains("another guard runs"), "{text}");
    scene.wait_for("status", |event| event["connections"].is_u64());
}

/// Fetches a page of the receiving host.
fn page(scene: &Scene, address: &str, path: &str) -> String {
    let mut stream = scene.hosts.run_on(1, || TcpStream::connect(address)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: guard\r\n\r\n").as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn guard_offers_metrics() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&["--mode", "hold", "--metrics", "127.0.0.1:0"]);
    let address = scene.events("start")[0]["metrics"].as_str().unwrap().to_owned();
    assert!(page(&scene, &address, "/healthz").starts_with("HTTP/1.1 200 OK"));
    let _flows = scene.send(scene.connect(4));
    let metrics = || page(&scene, &address, "/metrics");
    let value = |name: &str| -> f64 {
        let text = metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    wait_until("windows are limited", || value("bankfull_guard_limited_connections") >= 2.0);
    wait_until("connections receive", || value("bankfull_guard_receiving_connections") >= 4.0);
    assert!(value("bankfull_guard_received_bytes_total") > 0.0);
    assert!(metrics().contains("bankfull_guard_port_info{interface=\"lab0\",mode=\"hold\"} 1"));
    assert!(scene.end_guard(Signal::TERM));
}

/// Ends a connection when dropped.
struct ShutDown(TcpStream);

impl Drop for ShutDown {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// Sends without end and counts what arrives, beside three connections that are held.
fn goes_on_beside_held_ones(
    scene: &mut Scene,
    (mut sender, receiver): (TcpStream, TcpStream),
    receive: impl Fn(&TcpStream) -> usize + Send + 'static,
) {
    let _end = ShutDown(receiver.try_clone().unwrap());
    let others = scene.send(scene.connect(3));
    let received = Arc::new(AtomicU64::new(0));
    let (counter, socket) = (Arc::clone(&received), receiver.try_clone().unwrap());
    thread::spawn(move || while sender.write_all(&[7; 64 << 10]).is_ok() {});
    thread::spawn(move || {
        while let bytes @ 1.. = receive(&socket) {
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    });
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty() && others.max_window() < FREE_WINDOW
    });
    let before = received.load(Ordering::Relaxed);
    wait_until("data goes on", || received.load(Ordering::Relaxed) > before + (1 << 20));
    assert!(scene.end_guard(Signal::TERM));
    let at_end = received.load(Ordering::Relaxed);
    wait_until("data goes on", || received.load(Ordering::Relaxed) > at_end + (1 << 20));
}

#[test]
fn spliced_connection_goes_on() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&["--mode", "hold"]);
    let (mut senders, mut receivers) = scene.connect(1);
    let pair = (senders.remove(0), receivers.remove(0));
    let target = File::create(scene.scratch.path().join("spliced")).unwrap();
    let pipe = bankfull_sys::Pipe::new(256 << 10).unwrap();
    goes_on_beside_held_ones(&mut scene, pair, move |socket| {
        let spliced = pipe.splice_from_socket(socket, 256 << 10).unwrap_or(0);
        let mut left = spliced;
        while left > 0 {
            left -= pipe.splice_to_file(&target, 0, left).unwrap();
        }
        spliced
    });
}

#[test]
fn multipath_connection_goes_on() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&["--mode", "hold"]);
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    let address = SocketAddr::from((Hosts::address(1), PORT + 1));
    let listener = scene.hosts.run_on(1, || {
        let listener = socket()?;
        listener.bind(&address.into())?;
        listener.listen(1)?;
        Ok(listener)
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            notify(&format!("skipped: no MPTCP: {error}"));
            return;
        }
    };
    let sender = scene.hosts.run_on(0, || {
        let sender = socket()?;
        sender.connect(&address.into())?;
        Ok(sender)
    });
    let pair = (sender.unwrap().into(), listener.accept().unwrap().0.into());
    drop(listener);
    goes_on_beside_held_ones(&mut scene, pair, |mut socket| {
        socket.read(&mut [0; 64 << 10]).unwrap_or(0)
    });
}
