//! Who may connect, to whom, how often, and what for: tokens, fingerprints, limits, permissions.

use super::super::harness::{
    Daemon, Done, Peer, Proxy, Running, Scratch, Tree, assert_same, cp, far_address, far_host,
    hello, journals, open_push, run, set_mode, wait_until, write_file,
};
use super::check_alive;
use bankfull_proto::wire::control::{Cause, Message};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

fn token_file(scratch: &Scratch, name: &str, token: &str) -> PathBuf {
    let path = scratch.join(name);
    write_file(&path, token);
    set_mode(&path, 0o600);
    path
}

#[test]
fn a_daemon_with_a_token_serves_those_who_show_it_and_says_how_to() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let right = token_file(&here, "right", "open sesame\n");
    let wrong = token_file(&here, "wrong", "open barley\n");
    let daemon = Daemon::start(root.path(), &["--token-file", right.to_str().unwrap()]);
    let copy = |command: &mut Command| run(command.arg(&right).arg(daemon.url("file")));
    copy(&mut daemon.cp()).expect(5).says(&["token is needed", "--token-file", "BANKFULL_TOKEN"]);
    let refused = copy(daemon.cp().arg("--token-file").arg(&wrong)).expect(5);
    refused.says(&["token is wrong"]);
    // The connections that were begun with it are no news.
    wait_until("both are done", || daemon.clients_done() >= 2);
    let told = daemon.events();
    let told = told.iter().filter(|event| event["event"] == "client_done").count();
    assert_eq!((told, daemon.err().contains("handshake")), (2, false), "{}", daemon.err());
    assert!(!refused.err.contains("barley") && !refused.out.contains("barley"));
    assert!(!root.join("file").exists());
    copy(daemon.cp().arg("--token-file").arg(&right)).expect(0);
    copy(daemon.cp().env("BANKFULL_TOKEN", "open sesame")).expect(0);
    assert_same(&right, &root.join("file"));
    assert!(!daemon.err().contains("sesame"), "{}", daemon.err());
}

#[test]
fn an_unknown_daemon_is_refused_until_new_ones_are_accepted_and_then_remembered() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let daemon = Daemon::start(root.path(), &[]);
    let state = here.join("state");
    let copy = |flags: &[&str]| {
        let mut command = cp();
        command.arg("--state-dir").arg(&state).args(flags);
        run(command.arg(here.join("file")).arg(daemon.url("file")))
    };
    let address = far_address(daemon.port);
    let unknown = copy(&[]).expect(5);
    unknown.says(&[&address, &daemon.fingerprint, "--fingerprint", "--accept-new"]);
    assert!(!state.join("known_hosts").exists() && !root.join("file").exists());
    let notes = |done: &Done| -> Vec<String> {
        let notices = done.events().into_iter().filter(|event| event["event"] == "notice");
        notices.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    };
    let accepted = copy(&["--accept-new"]).expect(0);
    let note = format!(
        "trusting {address} with fingerprint {} from now on ({})",
        daemon.fingerprint,
        state.join("known_hosts").display()
    );
    assert_eq!(notes(&accepted), [note]);
    let known = fs::read_to_string(state.join("known_hosts")).unwrap();
    assert_eq!(known, format!("{address} {}\n", daemon.fingerprint));
    copy(&[]).expect(0);
    assert_eq!(notes(&copy(&["--accept-new"]).expect(0)), [""; 0]);
    assert_eq!(fs::read_to_string(state.join("known_hosts")).unwrap(), known);
}

#[test]
fn a_changed_fingerprint_is_refused_whatever_is_accepted() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let daemon = Daemon::start(root.path(), &[]);
    let state = here.join("state");
    let other = format!("sha256:{}", "ab".repeat(32));
    let line = format!("{} {other}\n", far_address(daemon.port));
    write_file(&state.join("known_hosts"), &line);
    for flags in [&[][..], &["--accept-new"]] {
        let mut command = cp();
        command.arg("--state-dir").arg(&state).args(flags);
        let done = run(command.arg(here.join("file")).arg(daemon.url("file"))).expect(5);
        let file = state.join("known_hosts");
        done.says(&["has changed", &other, &daemon.fingerprint, file.to_str().unwrap()]);
    }
    assert_eq!(fs::read_to_string(state.join("known_hosts")).unwrap(), line);
    let mut pinned = cp();
    pinned.args(["--accept-new", "--fingerprint", &other]).arg("--state-dir").arg(here.join("new"));
    let done = run(pinned.arg(here.join("file")).arg(daemon.url("file"))).expect(5);
    done.says(&["not the expected", &other, &daemon.fingerprint]);
    assert!(!root.join("file").exists());
}

#[test]
fn a_daemon_keeps_its_fingerprint_over_restarts() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let before = daemon.fingerprint.clone();
    daemon.kill();
    daemon.restart();
    assert_eq!(daemon.fingerprint, before);
}

#[test]
fn a_read_only_daemon_refuses_uploads_and_serves_downloads() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&root.join("file"), b"file");
    let daemon = Daemon::start(root.path(), &["--read-only"]);
    run(daemon.cp().arg(daemon.url("file")).arg(here.join("file"))).expect(0);
    let refused = run(daemon.cp().arg(here.join("file")).arg(daemon.url("new"))).expect(5);
    refused.says(&["read-only"]);
    assert!(!root.join("new").exists());
}

#[test]
fn data_without_encryption_is_refused_unless_the_daemon_allows_it() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut command = daemon.cp();
    command.arg("--no-encryption").arg(here.join("file")).arg(daemon.url("file"));
    run(&mut command).expect(5).says(&["without encryption", "--allow-no-encryption"]);
    assert!(!root.join("file").exists());
    check_alive(&mut daemon);
}

#[test]
fn a_daemon_that_is_full_says_so_and_has_room_again_when_others_leave() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let mut daemon = Daemon::start(root.path(), &["--max-connections", "3"]);
    let others = [Peer::welcomed(daemon.port), Peer::welcomed(daemon.port)];
    let mut command = daemon.cp();
    command.args(["--streams", "1"]).arg(here.join("file")).arg(daemon.url("file"));
    run(&mut command).expect(5).says(&["no room for more connections", "try again later"]);
    drop(others);
    wait_until("the others are gone", || daemon.clients_done() >= 3);
    check_alive(&mut daemon);
}

#[test]
fn copies_one_after_another_find_the_room_that_the_last_one_had() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let daemon = Daemon::start(root.path(), &["--max-connections", "2"]);
    for transport in ["tcp", "quic", "tcp"] {
        for n in 0..5 {
            let mut command = daemon.cp();
            command.args(["--transport", transport]).arg(here.join("file"));
            run(command.arg(daemon.url(&format!("{transport}-{n}")))).expect(0);
        }
    }
}

#[test]
fn a_client_gets_no_more_streams_than_a_daemon_has_room_for() {
    let tree = Tree::bulk(&[40 * (1 << 20)], 5);
    let root = tree.path.parent().unwrap();
    let daemon = Daemon::start(root, &["--max-connections", "4"]);
    let mut command = daemon.cp();
    command.args(["--streams", "16"]).arg(&tree.path).arg(daemon.url("landed"));
    let done = run(&mut command).expect(0);
    assert_eq!(done.figure("streams"), 3, "the fourth is for control");
    let told = "3 of 16 data connections are made: the far side has room for no more \
                (--max-connections there)";
    assert_eq!(done.notices().iter().filter(|notice| *notice == told).count(), 1, "{}", done.out);
    assert_same(&tree.path, &root.join("landed/bulk"));
}

#[test]
fn a_daemon_told_to_stop_lets_sessions_end_and_takes_no_new_ones() {
    let tree = Tree::bulk(&[300 * (1 << 20)], 5);
    let root = tree.path.parent().unwrap();
    let landed = root.join("landed/bulk");
    let mut daemon = Daemon::start(root, &[]);
    let client = Running::start(daemon.cp().arg(&tree.path).arg(daemon.url("landed")));
    wait_until("the session has begun", || landed.exists());
    daemon.running().signal(Signal::TERM);
    client.wait().expect(0);
    assert_same(&tree.path, &landed);
    assert_eq!(daemon.wait(), Some(0));
    let events = daemon.events();
    assert_eq!(events.last().unwrap()["event"], "stopped");
    let late = run(daemon.cp().arg(&tree.path).arg(daemon.url("late"))).expect(10);
    late.says(&[far_host(), "is `bankfull serve` running there?"]);
}

#[test]
fn a_daemon_told_to_stop_does_not_wait_for_clients_that_ask_for_nothing() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut idle = [Peer::connect(daemon.port), Peer::welcomed(daemon.port)];
    let started = Instant::now();
    daemon.running().signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    // Nor does it wait until their time to ask is over.
    assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
    for peer in &mut idle {
        peer.expect_refusal(Cause::Cancelled, "the server is shutting down");
    }
}

#[test]
fn a_client_that_was_greeted_before_the_daemon_was_told_to_stop_begins_nothing() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut running = Peer::welcomed(daemon.port);
    running.send(&open_push(false));
    assert!(matches!(running.receive(), Some(Message::Opened(_))));
    let mut late = Peer::welcomed(daemon.port);
    daemon.running().signal(Signal::TERM);
    wait_until("it takes no new clients", || drains(&daemon));
    late.send(&open_push(false));
    late.expect_refusal(Cause::Cancelled, "the server is shutting down");
    assert!(!daemon.is_over(), "it does not wait for sessions");
    drop(running);
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn a_daemon_told_to_stop_twice_ends_sessions() {
    let root = Scratch::new();
    let (mut daemon, mut peer) = stopped_twice(&root);
    peer.refusal();
    assert!(daemon.wait().is_some());
}

#[test]
fn a_client_whose_session_the_daemon_ends_hears_why() {
    let root = Scratch::new();
    let (_daemon, mut peer) = stopped_twice(&root);
    let failure = peer.refusal().expect("a reason");
    assert!(failure.text.contains("shut down"), "{failure:?}");
}

#[test]
fn a_daemon_told_to_stop_twice_ends_a_copy_which_the_next_run_continues() {
    let tree = Tree::bulk(&[16 << 20], 5);
    let root = tree.path.parent().unwrap();
    let landed = root.join("landed/bulk");
    let mut daemon = Daemon::start(root, &[]);
    let proxy = Proxy::start(daemon.port);
    proxy.slow_to(128 << 10);
    let client = Running::start(daemon.cp().arg(&tree.path).arg(proxy.url("landed")));
    wait_until("the copy has begun", || !journals(&landed).is_empty());
    let started = Instant::now();
    daemon.running().signal(Signal::TERM);
    wait_until("it takes no new clients", || drains(&daemon));
    daemon.running().signal(Signal::TERM);
    daemon.wait();
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    let done = client.wait();
    assert!(done.code.is_some_and(|code| code != 0), "{}", done.out);
    done.says(&["shut down"]);

    daemon.restart();
    run(daemon.cp().arg(&tree.path).arg(daemon.url("landed"))).expect(0);
    assert_same(&tree.path, &landed);
}

/// Whether a daemon turns new clients away because it was told to stop.
fn drains(daemon: &Daemon) -> bool {
    let mut peer = Peer::connect(daemon.port);
    peer.send(&hello(1, 1));
    let answer = peer.receive();
    matches!(answer, Some(Message::Error(failure)) if failure.text.contains("shutting down"))
}

/// A daemon that was told to stop twice during a session, and the client of that.
fn stopped_twice(root: &Scratch) -> (Daemon, Peer) {
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut peer = Peer::welcomed(daemon.port);
    peer.send(&open_push(false));
    assert!(peer.receive().is_some());
    daemon.running().signal(Signal::TERM);
    wait_until("it takes no new clients", || drains(&daemon));
    assert!(!daemon.is_over(), "it does not wait for sessions");
    daemon.running().signal(Signal::TERM);
    (daemon, peer)
}
