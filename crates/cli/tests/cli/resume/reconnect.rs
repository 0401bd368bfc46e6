//! Sessions that are lost while the command runs: it connects again and resumes.

use super::super::harness::{
    Daemon, Done, Running, SshServer, Tree, assert_same, litter, run, wait_until,
};
use super::Left;
use super::network::Scene;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Returns the number of attempts that a run reports.
fn attempts(done: &Done) -> usize {
    done.events().iter().filter(|event| event["event"] == "reconnecting").count()
}

/// Checks a copy that went on after a loss: no byte is counted twice, and none is missing.
#[track_caller]
fn check(done: Done, tree: &Tree, copied_to: &Path) {
    let done = done.expect(0);
    assert!(attempts(&done) > 0, "{}", done.out);
    assert_same(&tree.path, copied_to);
    let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
    assert_eq!(bytes + resumed + skipped, tree.bytes, "{}", done.out);
    let [files, skipped_files] = done.figures(["files", "skipped_files"]);
    assert_eq!(files + skipped_files, tree.files, "{}", done.out);
    // Only data that the other side did not acknowledge in time counts as unchanged or resumed.
    assert!(resumed + skipped <= tree.bytes / 2, "{}", done.out);
    assert!(litter(copied_to).is_empty());
}

#[test]
fn lost_network_is_reconnected_in_both_directions() {
    for push in [true, false] {
        let scene = Scene::new(&[60 * MIB, 20 * MIB]);
        scene.proxy.cut_all_after(40 * MIB);
        let client = Running::start(scene.command(push).args(["--retry-for", "60"]));
        wait_until("the network is cut", || scene.proxy.is_down());
        scene.proxy.mend();
        check(client.wait(), &scene.tree, &scene.copied_to);
    }
}

/// Starts a slow copy, and waits until the receiver has verified some of it.
fn underway(command: &mut Command, tree: &Path, copied_to: &Path) -> Running {
    let client = Running::start(command.args(["--max-rate", "200mbit", "--retry-for", "60"]));
    wait_until("a journal has records", || Left::find(tree, copied_to).journalled > 0);
    client
}

fn scene(size: u64) -> (Tree, Daemon, PathBuf) {
    let tree = Tree::bulk(&[size], 30);
    let daemon = Daemon::start(tree.path.parent().unwrap(), &["--timeout", "2"]);
    let copied_to = tree.path.parent().unwrap().join("copied_to/bulk");
    (tree, daemon, copied_to)
}

#[test]
fn restarted_daemon_is_reconnected_over_tcp_and_quic() {
    for (transport, push) in [("tcp", true), ("tcp", false), ("quic", true)] {
        let (tree, mut daemon, copied_to) = scene(100 * MIB);
        let mut command = daemon.cp();
        // Over QUIC the daemon itself ends connections of its earlier run.
        let timeout = if transport == "quic" { "120" } else { "3" };
        command.args(["--timeout", timeout, "--transport", transport]);
        match push {
            true => command.arg(&tree.path).arg(daemon.url("copied_to")),
            false => command.arg(daemon.url("bulk")).arg(copied_to.parent().unwrap()),
        };
        let client = underway(&mut command, &tree.path, &copied_to);
        daemon.kill();
        std::thread::sleep(Duration::from_millis(500));
        daemon.restart();
        println!("{transport}, push: {push}");
        let restarted = Instant::now();
        check(client.wait(), &tree, &copied_to);
        assert!(restarted.elapsed() < Duration::from_secs(100), "{:?}", restarted.elapsed());
    }
}

#[test]
fn killed_agent_is_started_again() {
    let Some(ssh) = SshServer::start() else { return };
    for push in [true, false] {
        let tree = Tree::bulk(&[100 * MIB], 30);
        let into = tree.path.with_file_name("copied_to");
        let copied_to = into.join("bulk");
        let mut command = ssh.cp();
        match push {
            true => command.arg(&tree.path).arg(SshServer::place(&into)),
            false => command.arg(SshServer::place(&tree.path)).arg(&into),
        };
        let client = underway(&mut command, &tree.path, &copied_to);
        ssh.kill_agents();
        println!("push: {push}");
        check(client.wait(), &tree, &copied_to);
    }
}

#[test]
fn suspended_client_reconnects_when_it_wakes() {
    let (tree, daemon, copied_to) = scene(100 * MIB);
    let mut command = daemon.cp();
    command.arg(&tree.path).arg(daemon.url("copied_to"));
    let client = underway(&mut command, &tree.path, &copied_to);
    client.signal(Signal::STOP);
    wait_until("the daemon has given it up", || daemon.clients_done() > 0);
    client.signal(Signal::CONT);
    check(client.wait(), &tree, &copied_to);
}

#[test]
fn daemon_that_stays_away_is_given_up_in_time() {
    let (tree, mut daemon, copied_to) = scene(100 * MIB);
    let mut command = daemon.cp();
    command.arg(&tree.path).arg(daemon.url("copied_to"));
    let mut client = underway(&mut command, &tree.path, &copied_to);
    daemon.kill();
    wait_until("it connects again", || client.out().contains("reconnecting"));
    assert!(!client.is_over());
    let since = Instant::now();
    client.signal(Signal::INT);
    client.wait().expect(20).says(&["interrupted"]);
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());

    daemon.restart();
    let client = underway(command.args(["--retry-for", "60"]), &tree.path, &copied_to);
    client.signal(Signal::KILL);
    drop(client);
    let mut command = daemon.cp();
    command.args(["--max-rate", "100mbit", "--retry-for", "2"]).arg(&tree.path);
    let client = Running::start(command.arg(daemon.url("copied_to")));
    wait_until("it has begun", || client.out().contains("connected"));
    daemon.kill();
    let since = Instant::now();
    let done = client.wait().expect(10);
    done.says(&["run the same command again"]);
    assert!(attempts(&done) > 0 && since.elapsed() < Duration::from_secs(20));
}

#[test]
fn first_connection_is_not_retried() {
    let (tree, mut daemon, _) = scene(MIB);
    daemon.kill();
    let mut command = daemon.cp();
    command.args(["--retry-for", "60"]).arg(&tree.path).arg(daemon.url("copied_to"));
    let since = Instant::now();
    let done = run(&mut command).expect(10);
    assert_eq!(attempts(&done), 0);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}
