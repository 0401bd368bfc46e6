//! `bankfull probe`: what a path carries, over real connections; nothing is written anywhere.

use super::harness::{Daemon, Done, Scratch, SshServer, far_host, probe, run, wait_until};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;

/// The findings of a look of a second; they must be the last line, and of some data.
#[track_caller]
fn findings(command: &mut Command) -> Value {
    let done: Done = run(command.args(["--time", "1"])).expect(0);
    let events = done.events();
    let last = events.last().unwrap().clone();
    assert_eq!(last["event"], "findings", "{last}");
    assert_eq!(events[0]["event"], "start");
    assert!(last["rate_bps"].as_u64().unwrap() > 1_000_000, "{last}");
    assert!(last["rtt_min_seconds"].as_f64().unwrap() > 0.0, "{last}");
    assert!(last["rtt_min_seconds"].as_f64() <= last["rtt_p99_seconds"].as_f64(), "{last}");
    assert!(last["words"].as_array().unwrap().len() >= 3, "{last}");
    last
}

#[test]
fn the_path_to_a_daemon_and_back_is_filled_and_nothing_is_written() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &["--read-only"]);
    for flags in [&[][..], &["--reverse", "--streams", "2"]] {
        let found = findings(daemon.probe().args(flags).arg(daemon.url("")));
        assert!(found["probes"].as_u64().unwrap() > 10, "{found}");
        if !flags.is_empty() {
            assert_eq!(found["streams_used"], 2);
        }
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    assert!(!daemon.is_over());
}

#[test]
fn where_another_program_has_the_udp_port_both_sides_say_so_and_tcp_tells() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    daemon.kill();
    let port: u16 = daemon.url("").split([':', '/']).nth(4).unwrap().parse().unwrap();
    let taken = ["0.0.0.0", "127.0.0.1"].map(|address| UdpSocket::bind((address, port)));
    assert!(taken.iter().any(Result::is_ok), "{taken:?}");
    daemon.restart();
    let cannot = format!("UDP port {port} cannot be had (address already in use)");
    wait_until("the daemon says so", || {
        let told = daemon.events();
        told.iter().any(|event| event["message"].as_str().is_some_and(|m| m.contains(&cannot)))
    });
    let done = run(daemon.probe().args(["--time", "2"]).arg(daemon.url(""))).expect(0);
    let events = done.events();
    let unheard = format!("nothing comes back over UDP from 127.0.0.1:{port}");
    let is_told = |event: &&Value| {
        event["message"].as_str().is_some_and(|message| message.starts_with(&unheard))
    };
    assert_eq!(events.iter().filter(is_told).count(), 1);
    let found = events.last().unwrap();
    assert_eq!(found["probes"], 0, "{found}");
    assert!(found["rtt_min_seconds"].as_f64().unwrap() > 0.0, "{found}");
}

#[test]
fn the_path_over_ssh_is_filled_both_ways() {
    let Some(ssh) = SshServer::start() else { return };
    findings(ssh.probe().arg(far_host()));
    findings(ssh.probe().arg("--reverse").arg(far_host()));
}

#[test]
fn where_no_data_port_can_be_reached_the_path_through_ssh_itself_is_filled() {
    // Behind a firewall that lets nothing through but ssh.
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
fn a_probe_that_cannot_be_is_refused_with_the_way_out() {
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    let refused = |code: i32, words: &[&str], says: &[&str]| {
        run(probe().args(words)).expect(code).says(says);
    };
    refused(1, &["./here"], &["./here", "is a path", "bankfull://host"]);
    refused(1, &["--time", "0.5", "bankfull://localhost"], &["from 1 second to 1 hour"]);
    refused(1, &["-P", "22", "bankfull://localhost"], &["-P is for host:path places"]);
    refused(10, &["--accept-new", "bankfull://127.0.0.1:1"], &["bankfull serve"]);
    let plain = run(daemon.probe().args(["--no-encryption"]).arg(daemon.url(""))).expect(5);
    plain.says(&["does not allow data without encryption"]);
}
