//! Hosts, processes and files are removed however a lab ends.

use super::start;
use bankfull_control::{Bytes, Rate};
use bankfull_lab::model::plan::Plan;
use bankfull_lab::topology::hosts::remove_stale;
use bankfull_sim::PathConfig;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn plan() -> Plan {
    let rate = Rate::from_bits_per_sec(1e8);
    Plan::path(&PathConfig::new(rate, Duration::from_millis(2), Bytes(50_000)))
}

/// True if this machine allows networks.
fn works() -> bool {
    start(&plan()).is_some()
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn runs(id: &str) -> bool {
    let state = fs::read_to_string(PathBuf::from("/proc").join(id).join("stat"));
    state.is_ok_and(|state| !state.contains(") Z "))
}

/// `bankfull-lab path` with a command that prints its process number and namespace, then sleeps.
fn sleeping() -> (Child, String, String) {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_bankfull-lab"))
        .args(["path", "--rate", "100mbit", "--rtt", "2ms", "--", "sh", "-c"])
        .arg("echo $$; ip netns identify $$; exec sleep 600")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(lab.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let (id, namespace) = (line(), line());
    assert!(exists(&namespace) && runs(&id));
    (lab, id, namespace)
}

fn signal(lab: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &lab.id().to_string()]).status().unwrap().success());
}

#[test]
fn dropped_hosts_end_their_processes() {
    let Some(network) = start(&plan()) else { return };
    let namespace = network.hosts().namespace(0);
    let mut sleeper = network.hosts().spawn(0, Command::new("sleep").arg("600")).unwrap();
    assert!(exists(&namespace));
    drop(network);
    assert!(!exists(&namespace));
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn sigterm_removes_hosts_and_processes() {
    if !works() {
        return;
    }
    let (mut lab, id, namespace) = sleeping();
    signal(&lab, "-TERM");
    wait_until("the lab ends", || lab.try_wait().unwrap().is_some());
    assert!(!exists(&namespace) && !runs(&id));
}

#[test]
fn leftovers_of_killed_lab_are_removed() {
    if !works() {
        return;
    }
    let (mut lab, id, namespace) = sleeping();
    signal(&lab, "-KILL");
    lab.wait().unwrap();
    // Another test's lab may be removing them: it holds their lock meanwhile.
    wait_until("the namespace is removed", || {
        remove_stale();
        !exists(&namespace)
    });
    wait_until("the process has ended", || !runs(&id));
}

#[test]
fn interrupt_before_command_prevents_its_start() {
    if !works() {
        return;
    }
    let mut lab = Command::new(env!("CARGO_BIN_EXE_bankfull-lab"))
        .args(["path", "--preset", "lan", "--at-receiver", "echo up; exec sleep 600"])
        .args(["--", "sh", "-c", "echo ran"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(lab.stderr.take().unwrap()).lines();
    // Waits for the receiver's command to listen, which this one never does.
    assert!(lines.any(|line| line.unwrap() == "up"));
    let since = Instant::now();
    signal(&lab, "-INT");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let done = lab.wait_with_output().unwrap();
    assert_eq!((done.status.code(), done.stdout), (Some(130), Vec::new()), "{rest:?}");
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
}

#[test]
fn command_runs_with_warning_if_nothing_listens() {
    if !works() {
        return;
    }
    let done = Command::new(env!("CARGO_BIN_EXE_bankfull-lab"))
        .args(["path", "--preset", "lan", "--at-receiver", "exec sleep 600", "--", "echo", "ran"])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!((out.as_ref(), done.status.code()), ("ran\n", Some(0)), "{err}");
    assert!(err.contains("no listening socket at the receiver after 10 s"), "{err}");
    assert!(!err.contains("reached no host"), "none went astray: {err}");
}

#[test]
fn packets_to_unknown_address_are_reported() {
    if !works() {
        return;
    }
    let script = "ping -c 2 -W 1 10.77.9.9; ping -V >/dev/null";
    let done = Command::new(env!("CARGO_BIN_EXE_bankfull-lab"))
        .args(["path", "--preset", "lan", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    if done.status.success() {
        assert!(err.contains(" packets reached no host: unknown address"), "{err}");
    } else {
        bankfull_lab::base::notify("skipped: ping is missing");
    }
}

#[test]
fn exit_code_is_that_of_command() {
    if !works() {
        return;
    }
    let code = |script: &str| {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_bankfull-lab"));
        lab.args(["path", "--preset", "lan", "--", "sh", "-c", script]).stderr(Stdio::null());
        lab.status().unwrap().code()
    };
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("[ $RECEIVER = 10.77.0.2 ] && [ $SENDER = 10.77.0.1 ]"), Some(0));
    assert_eq!(code("ip netns exec $RECEIVER_NAMESPACE ip address | grep -q 10.77.0.2/"), Some(0));
    assert_eq!(code("[ {receiver} = 10.77.0.2 ]"), Some(0));
}

#[test]
fn missing_congestion_control_is_named() {
    let mut plan = plan();
    plan.congestion = Some("nosuch".to_owned());
    if works() {
        let error = bankfull_lab::topology::network::Network::start(&plan).unwrap_err().to_string();
        assert!(error.contains("nosuch"), "{error}");
    }
}
