//! `bankfull guard`: its effects on connections, and beside other programs of the cgroup.

use super::copies::{Running, plant};
use super::guard::{FREE_WINDOW, Flows, PORT, Place, Scene, wait_until};
use super::guard_requirements::cgroup_mount;
use super::{MACHINE, start};
use bankfull_control::{Bytes, Rate};
use bankfull_lab::base::notify;
use bankfull_lab::model::plan::Plan;
use bankfull_lab::topology::hosts::Hosts;
use bankfull_sim::PathConfig;
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Time within which windows are free after a kill. (docs/guard.md)
const FREE_TIME: Duration = Duration::from_secs(2);

fn window(stream: &TcpStream) -> u32 {
    bankfull_sys::tcp_info(stream).unwrap().rcv_wnd.unwrap_or_default()
}

/// Returns hosts with a path of 100 Mbit/s and 4 ms between them.
fn path(duplication: f64) -> Option<Place> {
    let (rate, rtt) = (Rate::from_bits_per_sec(1e8), Duration::from_millis(4));
    let mut path = PathConfig::new(rate, rtt, Bytes(0));
    path.forward.buffer = path.bdp().unwrap();
    path.forward.impairments.duplication = duplication;
    let mut plan = Plan::path(&path);
    plan.congestion = Some("cubic".to_owned());
    start(&plan).map(Place::Path)
}

#[test]
fn windows_are_free_two_seconds_after_a_kill() {
    // A busy host may stop the receiver for longer, but hardly three times.
    let mut times = Vec::new();
    for _ in 0..3 {
        let Some(mut scene) = Scene::new() else { return };
        let flows = scene.hold();
        scene.end_guard(Signal::KILL);
        let killed = Instant::now();
        wait_until("windows are free", || flows.min_window() > FREE_WINDOW);
        times.push(killed.elapsed());
        let received = || flows.received.load(Ordering::Relaxed);
        let before = received();
        wait_until("data goes on", || received() > before + (1 << 20));
        if times.last().is_some_and(|&time| time <= FREE_TIME) {
            return;
        }
    }
    panic!("{times:?}");
}

/// With a low link rate, windows carry less than half of the path.
#[test]
fn windows_that_harm_are_lifted() {
    // Other tests' connections are in the same cgroup.
    let _alone = MACHINE.alone();
    let Some(mut scene) = Scene::at(|| path(0.0)) else { return };
    let mut command = Command::new(&scene.program);
    command.args(["guard", "--interface", "lab0", "--mode", "hold", "--json"]);
    command.args(["--link-rate", "1mbit", "--max-rtt", "100"]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    scene.start(command);
    let received = |event: &Value| event["received_bytes"].as_u64().unwrap_or_default();
    let first = scene.send(scene.connect(1));
    // A second in which one connection has the path.
    scene.wait_for("status", |event| event["engaged"] == false && received(event) > 10_000_000);
    let more = scene.send(scene.connect(3));
    scene.wait_for("status", |event| event["rolled_back"] == true);
    scene.wait_for("window", |event| event["reason"] == "lifted");
    // More than the windows carried.
    let sum = || [&first, &more].map(|flows| flows.received.load(Ordering::Relaxed)).iter().sum();
    wait_until("the path is full again", || {
        let before: u64 = sum();
        thread::sleep(Duration::from_secs(1));
        sum() - before > 8_000_000
    });
    assert!(scene.end_guard(Signal::TERM));
}

#[test]
fn windows_of_one_segment_are_possible() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&["--mode", "hold", "--min-window-segments", "1"]);
    let flows = scene.send(scene.connect(60));
    // Two segments are 2896 bytes; the scale rounds one up to 2048.
    wait_until("windows of a segment", || flows.min_window() < 2500);
    assert!(scene.end_guard(Signal::TERM));
}

#[test]
fn needless_retransmissions_are_counted() {
    let _alone = MACHINE.alone();
    let Some(mut scene) = Scene::at(|| path(0.02)) else { return };
    scene.start_guard(&["--max-rtt", "100"]);
    let streams = scene.connect(1);
    let remote = streams.0[0].local_addr().unwrap().to_string();
    let opened = scene.wait_for("connection", |event| event["remote"] == remote.as_str());
    let flows = scene.send(streams);
    wait_until("data arrives", || flows.received.load(Ordering::Relaxed) > 10 << 20);
    drop(flows);
    // A packet that arrives twice is acknowledged by a DSACK. Of 7000 packets, 140 do.
    let closed = scene.wait_for("closed", |event| event["id"] == opened["id"]);
    assert!(closed["dsacks"].as_u64() > Some(20), "{closed}");
}

#[test]
fn connections_of_bankfull_are_left_alone() {
    let Some(mut scene) = Scene::new() else { return };
    let directory = scene.scratch.path().to_owned();
    plant(&directory.join("tree"), 32);
    let serve = || {
        let mut command = Command::new(&scene.program);
        command.args(["serve", "--json", "--listen", &format!("{}:0", Hosts::address(1))]);
        command.arg("--state-dir").arg(directory.join("state")).arg(&directory);
        Running::start(&scene.hosts, 1, &mut command, &directory.join("daemon"))
    };
    let mut daemon = serve();
    wait_until("the daemon listens", || daemon.out().contains('\n'));
    let listening: Value = serde_json::from_str(daemon.out().lines().next().unwrap()).unwrap();
    // The listening socket is from before the guard.
    scene.start_guard(&["--mode", "hold"]);
    let address = format!("{}:{}", Hosts::address(1), listening["port"]);
    let mut copy = Command::new(&scene.program);
    copy.args(["cp", "--json", "--fingerprint", listening["fingerprint"].as_str().unwrap()]);
    copy.env("XDG_STATE_HOME", directory.join("home"));
    copy.arg(directory.join("tree")).arg(format!("bankfull://{address}/copied"));
    Running::start(&scene.hosts, 0, &mut copy, &directory.join("copy")).ends_with(0);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    // All events are there then.
    assert!(scene.end_guard(Signal::TERM));
    let own = scene.events("connection");
    let own: Vec<&Value> = own.iter().filter(|event| event["local"] == address.as_str()).collect();
    assert!(own.len() >= 2, "{own:?}");
    assert!(own.iter().all(|event| event["standing"] == "own"), "{own:?}");
    let changes = scene.events("window");
    let is_own = |event: &&Value| own.iter().any(|one| one["id"] == event["id"]);
    assert_eq!(changes.iter().filter(is_own).count(), 0, "{changes:?}");
}

#[test]
fn new_connections_of_a_held_service_start_small() {
    let Some(mut scene) = Scene::new() else { return };
    scene.start_guard(&["--mode", "hold"]);
    wait_until("the service is remembered", || {
        let held = scene.send(scene.connect(40));
        wait_until("windows fit the port", || held.max_window() < FREE_WINDOW / 10);
        let seconds = scene.events("status").len();
        wait_until("windows are remembered", || scene.events("status").len() > seconds + 1);
        // Pauses, with windows that stay held: those of others may be large at first.
        held.is_ended.store(true, Ordering::Relaxed);
        let mut received = 0;
        wait_until("the send buffers are empty", || {
            let before = std::mem::replace(&mut received, held.received.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(50));
            received == before
        });
        thread::sleep(Duration::from_millis(300));
        let first = |port| {
            // Both sides of a connection use up what is left of the queue until the next tick.
            thread::sleep(Duration::from_millis(100));
            scene.connect_to(port, 1).1.iter().map(window).sum::<u32>()
        };
        let (known, other) = (first(PORT), first(PORT + 1));
        known > 0 && other >= 3 * known
    });
    assert!(scene.end_guard(Signal::TERM));
}

/// Another program of the cgroup, which acts in a callback of its own.
struct Other {
    cgroup: PathBuf,
    pin: PathBuf,
}

fn bpftool(words: &[&dyn AsRef<OsStr>]) -> io::Result<Output> {
    Command::new("bpftool").args(words.iter().map(|word| word.as_ref())).output()
}

impl Other {
    /// Attaches it; `None`, with a message, without the compiler or the loader.
    fn attach(scene: &Scene) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/other_program.bpf.c");
        let object = scene.scratch.path().join("other.o");
        let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let mut clang = Command::new("clang-14");
        clang.args(["-target", "bpf", "-O2", "-g", "-idirafter", &headers, "-c"]);
        let compiled = clang.arg(&source).arg("-o").arg(&object).output();
        if !compiled.as_ref().is_ok_and(|output| output.status.success()) {
            notify(&format!("skipped: clang-14 and libbpf-dev are needed: {compiled:?}"));
            return None;
        }
        let pin = Path::new("/sys/fs/bpf").join(scene.hosts.namespace(1));
        let loaded = bpftool(&[&"prog", &"load", &object, &pin]);
        if !loaded.as_ref().is_ok_and(|output| output.status.success()) {
            notify(&format!("skipped: bpftool cannot load a program: {loaded:?}"));
            return None;
        }
        let other = Self { cgroup: cgroup_mount(), pin };
        let attached = other.change("attach", &[&"multi"]).unwrap();
        assert!(attached.status.success(), "{attached:?}");
        Some(other)
    }

    fn change(&self, verb: &str, flags: &[&dyn AsRef<OsStr>]) -> io::Result<Output> {
        let words: [&dyn AsRef<OsStr>; 6] =
            [&"cgroup", &verb, &self.cgroup, &"sock_ops", &"pinned", &self.pin];
        bpftool(&[&words[..], flags].concat())
    }

    /// True once it has acted on a connection: its callback has the receiver use Reno.
    fn has_acted(flows: &Flows) -> bool {
        flows.receivers.iter().all(|receiver| {
            // The callback runs when an RTT is measured, which takes data.
            let _ = (&mut &*receiver).write_all(&[1]);
            bankfull_sys::congestion_control(receiver).unwrap() == "reno"
        })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.change("detach", &[]);
        let _ = fs::remove_file(&self.pin);
    }
}

#[test]
fn guard_and_another_program_both_act() {
    for is_first in [true, false] {
        let Some(mut scene) = Scene::new() else { return };
        let other = if is_first { Other::attach(&scene) } else { None };
        if is_first && other.is_none() {
            return;
        }
        let held = scene.hold();
        let is_reno = |one| bankfull_sys::congestion_control(one).unwrap() == "reno";
        if !is_first && held.receivers.iter().any(is_reno) {
            return notify("skipped: Reno is the default of this host");
        }
        let other = other.or_else(|| Other::attach(&scene)).unwrap();
        let flows = if is_first { held } else { scene.send(scene.connect(4)) };
        wait_until("the other program has acted", || Other::has_acted(&flows));
        wait_until("windows fit the port", || flows.max_window() < FREE_WINDOW);
        assert!(scene.end_guard(Signal::TERM));
        wait_until("windows are free", || flows.min_window() > FREE_WINDOW);
        // The other program continues to act without the guard.
        let later = scene.send(scene.connect(1));
        wait_until("the other program has acted", || Other::has_acted(&later));
        drop(other);
    }
}
