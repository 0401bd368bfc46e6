//! Access control: tokens, fingerprints, limits, permissions.

use super::super::harness::{
    Daemon, Done, Peer, Proxy, Running, Scratch, Tree, assert_same, cp, hello, journals, open_push,
    remote_address, remote_host, run, set_mode, wait_until, write_file,
};
use super::check_alive;
use crate::command;
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
fn token_is_required_with_advice() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let right = token_file(&here, "right", "open sesame\n");
    let wrong = token_file(&here, "wrong", "open barley\n");
    let daemon = Daemon::start(root.path(), &["--token-file", right.to_str().unwrap()]);
    let copy = |command: &mut Command| run(command.arg(&right).arg(daemon.url("file")));
    copy(&mut daemon.cp()).expect(5).says(&["token is needed", "--token-file", "BANKFULL_TOKEN"]);
    let refused = copy(daemon.cp().arg("--token-file").arg(&wrong)).expect(5);
    refused.says(&["token is wrong"]);
    // Connections opened with it are not reported.
    wait_until("both are done", || daemon.clients_done() >= 2);
    let reported = daemon.events();
    let reported = reported.iter().filter(|event| event["event"] == "client_done").count();
    assert_eq!((reported, daemon.err().contains("handshake")), (2, false), "{}", daemon.err());
    assert!(!refused.err.contains("barley") && !refused.out.contains("barley"));
    assert!(!root.join("file").exists());
    copy(daemon.cp().arg("--token-file").arg(&right)).expect(0);
    copy(daemon.cp().env("BANKFULL_TOKEN", "open sesame")).expect(0);
    assert_same(&right, &root.join("file"));
    assert!(!daemon.err().contains("sesame"), "{}", daemon.err());
}

#[test]
fn token_file_open_to_other_users_gives_a_warning() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let token = token_file(&here, "token", "open sesame\n");
    let daemon = Daemon::start(root.path(), &["--token-file", token.to_str().unwrap()]);
    let warnings = |mode| {
        set_mode(&token, mode);
        let mut command = daemon.cp();
        command.arg("--token-file").arg(&token).arg(&token).arg(daemon.url("file"));
        run(&mut command).expect(0).warnings()
    };
    assert_eq!(warnings(0o600), [""; 0]);
    for (mode, what) in [(0o640, "readable"), (0o602, "writable")] {
        let name = token.display();
        let text = format!(
            "the token file {name} is {what} by other users (mode {mode:04o}): chmod 600 it"
        );
        assert_eq!(warnings(mode), [text]);
    }
}

#[test]
fn unknown_daemon_is_refused_until_accepted() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let daemon = Daemon::start(root.path(), &[]);
    let state = here.join("state");
    let copy = |flags: &[&str]| {
        let mut command = cp();
        command.arg("--state-dir").arg(&state).args(flags);
        run(command.arg(here.join("file")).arg(daemon.url("file")))
    };
    let address = remote_address(daemon.port);
    let unknown = copy(&[]).expect(5);
    unknown.says(&[&address, &daemon.fingerprint, "--fingerprint", "--accept-new"]);
    assert!(!state.join("known_hosts").exists() && !root.join("file").exists());
    let notes = |done: &Done| -> Vec<String> {
        let warnings = done.events().into_iter().filter(|event| event["event"] == "warning");
        warnings.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
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
fn changed_fingerprint_is_always_refused() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let daemon = Daemon::start(root.path(), &[]);
    let state = here.join("state");
    let other = format!("sha256:{}", "ab".repeat(32));
    let line = format!("{} {other}\n", remote_address(daemon.port));
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
fn identity_open_to_other_users_is_refused() {
    let (root, state) = (Scratch::new(), Scratch::new());
    let serve = || {
        let mut command = command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--json", "--state-dir"]);
        command.arg(state.path()).arg(root.path());
        command
    };
    Daemon::from_command(&mut serve()).kill();
    let identity = state.join("identity");
    set_mode(&identity, 0o644);
    let done = run(&mut serve());
    let words = format!("{} holds the private key but is open to other users", identity.display());
    done.says(&[&words, "(mode 0644): chmod 600 it"]);
    assert!(done.code != Some(0) && done.err.lines().count() == 1, "{done:?}");
    set_mode(&identity, 0o600);
    Daemon::from_command(&mut serve()).kill();
}

#[test]
fn daemon_keeps_its_fingerprint_over_restarts() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let before = daemon.fingerprint.clone();
    daemon.kill();
    daemon.restart();
    assert_eq!(daemon.fingerprint, before);
}

#[test]
fn read_only_daemon_refuses_uploads() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&root.join("file"), b"file");
    let daemon = Daemon::start(root.path(), &["--read-only"]);
    run(daemon.cp().arg(daemon.url("file")).arg(here.join("file"))).expect(0);
    let refused = run(daemon.cp().arg(here.join("file")).arg(daemon.url("new"))).expect(5);
    refused.says(&["read-only"]);
    assert!(!root.join("new").exists());
}

#[test]
fn unencrypted_data_needs_permission_of_the_daemon() {
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
fn sequential_copies_reuse_connections_of_the_limit() {
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
fn stream_count_respects_max_connections() {
    let tree = Tree::bulk(&[40 * (1 << 20)], 5);
    let root = tree.path.parent().unwrap();
    let daemon = Daemon::start(root, &["--max-connections", "4"]);
    let mut command = daemon.cp();
    command.args(["--streams", "16"]).arg(&tree.path).arg(daemon.url("copied_to"));
    let done = run(&mut command).expect(0);
    assert_eq!(done.figure("streams"), 3, "the fourth is for control");
    let reported =
        "3 of 16 data streams are used: the peer allows no more (--max-connections there)";
    assert_eq!(
        done.warnings().iter().filter(|warning| *warning == reported).count(),
        1,
        "{}",
        done.out
    );
    assert_same(&tree.path, &root.join("copied_to/bulk"));
}

#[test]
fn stopping_daemon_drains_sessions() {
    let tree = Tree::bulk(&[300 * (1 << 20)], 5);
    let root = tree.path.parent().unwrap();
    let copied_to = root.join("copied_to/bulk");
    let mut daemon = Daemon::start(root, &[]);
    let client = Running::start(daemon.cp().arg(&tree.path).arg(daemon.url("copied_to")));
    wait_until("the session has begun", || copied_to.exists());
    daemon.running().signal(Signal::TERM);
    client.wait().expect(0);
    assert_same(&tree.path, &copied_to);
    assert_eq!(daemon.wait(), Some(0));
    let events = daemon.events();
    assert_eq!(events.last().unwrap()["event"], "stopped");
    let late = run(daemon.cp().arg(&tree.path).arg(daemon.url("late"))).expect(10);
    late.says(&[remote_host(), "is `bankfull serve` running there?"]);
}

#[test]
fn stopping_daemon_drops_idle_clients() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut idle = [Peer::connect(daemon.port), Peer::welcomed(daemon.port)];
    let started = Instant::now();
    daemon.running().signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    // The daemon does not wait for the deadline of these clients either.
    assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
    for peer in &mut idle {
        peer.expect_refusal(Cause::Cancelled, "the server is shutting down");
    }
}

#[test]
fn stopping_daemon_refuses_greeted_clients() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut running = Peer::welcomed(daemon.port);
    running.send(&open_push(false));
    assert!(matches!(running.receive(), Some(Message::Opened(_))));
    let mut late = Peer::welcomed(daemon.port);
    daemon.running().signal(Signal::TERM);
    wait_until("the daemon refuses new clients", || drains(&daemon));
    late.send(&open_push(false));
    late.expect_refusal(Cause::Cancelled, "the server is shutting down");
    assert!(!daemon.is_over(), "the daemon stops without waiting");
    drop(running);
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn second_signal_ends_sessions() {
    let root = Scratch::new();
    let (mut daemon, mut peer) = stopped_twice(&root);
    peer.refusal();
    assert!(daemon.wait().is_some());
}

#[test]
fn session_ends_at_the_drain_timeout() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &["--drain-timeout", "0.5"]);
    let mut peer = Peer::welcomed(daemon.port);
    peer.send(&open_push(false));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    let started = Instant::now();
    daemon.running().signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(15), "it took {:?}", started.elapsed());
    peer.expect_refusal(Cause::Cancelled, "shut down");
}

#[test]
fn ended_session_reports_the_reason() {
    let root = Scratch::new();
    let (_daemon, mut peer) = stopped_twice(&root);
    let failure = peer.refusal().expect("a reason");
    assert!(failure.text.contains("shut down"), "{failure:?}");
}

#[test]
fn second_signal_ends_a_copy_that_resumes() {
    let tree = Tree::bulk(&[16 << 20], 5);
    let root = tree.path.parent().unwrap();
    let copied_to = root.join("copied_to/bulk");
    let mut daemon = Daemon::start(root, &[]);
    let proxy = Proxy::start(daemon.port);
    proxy.slow_to(128 << 10);
    let client = Running::start(daemon.cp().arg(&tree.path).arg(proxy.url("copied_to")));
    wait_until("the copy has begun", || !journals(&copied_to).is_empty());
    let started = Instant::now();
    daemon.running().signal(Signal::TERM);
    wait_until("the daemon refuses new clients", || drains(&daemon));
    daemon.running().signal(Signal::TERM);
    daemon.wait();
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    let done = client.wait();
    assert!(done.code.is_some_and(|code| code != 0), "{}", done.out);
    done.says(&["shut down"]);

    daemon.restart();
    run(daemon.cp().arg(&tree.path).arg(daemon.url("copied_to"))).expect(0);
    assert_same(&tree.path, &copied_to);
}

/// True if a daemon refuses new clients because it is stopping.
fn drains(daemon: &Daemon) -> bool {
    let mut peer = Peer::connect(daemon.port);
    peer.send(&hello(1, 1));
    let answer = peer.receive();
    matches!(answer, Some(Message::Error(failure)) if failure.text.contains("shutting down"))
}

/// Stops a daemon twice during a session; returns it with the client.
fn stopped_twice(root: &Scratch) -> (Daemon, Peer) {
    let mut daemon = Daemon::start(root.path(), &[]);
    let mut peer = Peer::welcomed(daemon.port);
    peer.send(&open_push(false));
    assert!(peer.receive().is_some());
    daemon.running().signal(Signal::TERM);
    wait_until("the daemon refuses new clients", || drains(&daemon));
    assert!(!daemon.is_over(), "the daemon stops without waiting");
    daemon.running().signal(Signal::TERM);
    (daemon, peer)
}
