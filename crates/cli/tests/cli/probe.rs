//! `bankfull probe`: measurement of a path over real connections, without writing anything.

use super::harness::{Daemon, Done, Scratch, SshServer, probe, remote_host, run, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;

/// Returns the result of a probe of one second: the last line, with data.
#[track_caller]
fn probe_result(command: &mut Command) -> Value {
    let done: Done = run(command.args(["--time", "1"])).expect(0);
    let events = done.events();
    let last = events.last().unwrap().clone();
    assert_eq!(last["event"], "probe_result", "{last}");
    assert_eq!(events[0]["event"], "start");
    assert!(last["rate_bps"].as_u64().unwrap() > 1_000_000, "{last}");
    assert!(last["rtt_min_seconds"].as_f64().unwrap() > 0.0, "{last}");
    assert!(last["rtt_min_seconds"].as_f64() <= last["rtt_p99_seconds"].as_f64(), "{last}");
    assert!(last["messages"].as_array().unwrap().len() >= 3, "{last}");
    last
}

#[test]
fn probe_of_a_daemon_writes_nothing() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &["--read-only"]);
    for flags in [&[][..], &["--reverse", "--streams", "2"]] {
        let found = probe_result(daemon.probe().args(flags).arg(daemon.url("")));
        assert!(found["probes"].as_u64().unwrap() > 10, "{found}");
        if !flags.is_empty() {
            assert_eq!(found["streams_used"], 2);
        }
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    assert!(!daemon.is_over());
}

#[test]
fn probe_is_tuned_as_selected() {
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    let controllers = |flags: &[&str]| {
        let mut probe = daemon.probe();
        probe.args(["--time", "1", "-v"]).args(flags);
        let events = run(probe.arg(daemon.url(""))).expect(0).events();
        let decisions = events.iter().filter(|event| event["event"] == "tuning");
        let names = decisions.map(|event| event["controller"].as_str().unwrap().to_owned());
        names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    for direction in [&[][..], &["--reverse"]] {
        let with = |flags: &[&'static str]| controllers(&[direction, flags].concat());
        assert_eq!(with(&["--streams", "2"]), ["delay"]);
        assert_eq!(with(&["--tune", "sobas"]), ["sobas"]);
        assert!(with(&["--streams", "2", "--tune", "off"]).is_empty());
    }
}

#[test]
fn occupied_udp_port_falls_back_to_tcp() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    daemon.kill();
    let port: u16 = daemon.url("").split([':', '/']).nth(4).unwrap().parse().unwrap();
    let taken = ["0.0.0.0", "127.0.0.1"].map(|address| UdpSocket::bind((address, port)));
    assert!(taken.iter().any(Result::is_ok), "{taken:?}");
    daemon.restart();
    let cannot = format!("UDP port {port} is unavailable (address already in use)");
    wait_until("the daemon reports it", || {
        let reported = daemon.events();
        reported.iter().any(|event| event["message"].as_str().is_some_and(|m| m.contains(&cannot)))
    });
    let done = run(daemon.probe().args(["--time", "2"]).arg(daemon.url(""))).expect(0);
    let events = done.events();
    let unheard = format!("no response over UDP from 127.0.0.1:{port}");
    let is_reported = |event: &&Value| {
        event["message"].as_str().is_some_and(|message| message.starts_with(&unheard))
    };
    assert_eq!(events.iter().filter(is_reported).count(), 1);
    let found = events.last().unwrap();
    assert_eq!(found["probes"], 0, "{found}");
    assert!(found["rtt_min_seconds"].as_f64().unwrap() > 0.0, "{found}");
}

#[test]
fn probe_over_ssh_works_both_ways() {
    let Some(ssh) = SshServer::start() else { return };
    probe_result(ssh.probe().arg(remote_host()));
    probe_result(ssh.probe().arg("--reverse").arg(remote_host()));
}

#[test]
fn unreachable_data_port_probes_through_ssh() {
    // A firewall that passes only ssh.
    let guarded = "ForceCommand env -u SSH_CONNECTION sh -c \"$SSH_ORIGINAL_COMMAND\"";
    let Some(ssh) = SshServer::with(guarded) else { return };
    let mut command = ssh.probe();
    command.arg("-o").arg(format!("ProxyCommand={}", ssh.pipe_command()));
    let done = run(command.args(["--time", "1", "255.255.255.255"])).expect(0);
    let last = done.events().pop().unwrap();
    assert!(last["rate_bps"].as_u64().unwrap() > 1_000_000, "{last}");
    assert_eq!((last["streams_used"].as_u64(), last["probes"].as_u64()), (Some(1), Some(0)));
}

#[test]
fn invalid_probe_is_refused_with_advice() {
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    let refused = |code: i32, words: &[&str], says: &[&str]| {
        run(probe().args(words)).expect(code).says(says);
    };
    refused(1, &["./here"], &["./here", "is a path", "bankfull://host"]);
    refused(1, &["--time", "0.5", "bankfull://localhost"], &["from 1 second to 1 hour"]);
    refused(1, &["-P", "22", "bankfull://localhost"], &["-P needs a host:path operand"]);
    refused(10, &["--accept-new", "bankfull://127.0.0.1:1"], &["bankfull serve"]);
    let quic = ["--transport", "quic", "bankfull://localhost", "--tune", "off"];
    refused(1, &quic, &["--tune", "QUIC"]);
    refused(1, &["--transport", "quic", "bankfull://localhost", "--no-encryption"], &["QUIC"]);
    let plain = run(daemon.probe().args(["--no-encryption"]).arg(daemon.url(""))).expect(5);
    plain.says(&["does not allow data without encryption"]);
}
