//! Interrupted copies over QUIC, which has no resets as TCP does.

use super::super::harness::{
    Daemon, Running, Scratch, Tree, assert_same, litter, remote_host, run, wait_until,
};
use super::{Left, check_resumed};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

struct Scene {
    tree: Tree,
    daemon: Daemon,
    copied_to: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let tree = Tree::bulk(&[80 * MIB, 90 * MIB], 100);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let copied_to = tree.path.parent().unwrap().join("copied_to/bulk");
        Self { tree, daemon, copied_to }
    }

    /// Returns a copy that is slow enough to be interrupted.
    fn slowly(&self, push: bool) -> Command {
        let mut command = self.command(push);
        command.args(["--max-rate", "400mbit"]);
        command
    }

    fn command(&self, push: bool) -> Command {
        let mut command = self.daemon.cp();
        command.args(["--transport", "quic"]);
        if push {
            command.arg(&self.tree.path).arg(self.daemon.url("copied_to"));
        } else {
            command.arg(self.daemon.url("bulk")).arg(self.copied_to.parent().unwrap());
        }
        command
    }

    /// Starts a copy and waits for its first data.
    fn underway(&self, push: bool) -> Running {
        let client = Running::start(&mut self.slowly(push));
        wait_until("a part has grown", || {
            Left::find(&self.tree.path, &self.copied_to).journalled > 0
        });
        client
    }
}

#[test]
fn killed_client_is_detected_and_resumes() {
    for push in [true, false] {
        let scene = Scene::new();
        scene.underway(push).kill();
        let start = Instant::now();
        wait_until("the daemon ended the session", || scene.daemon.clients_done() > 0);
        assert!(start.elapsed() < Duration::from_secs(25), "push: {push}: {:?}", start.elapsed());
        let left = Left::find(&scene.tree.path, &scene.copied_to);
        assert!(left.journalled > 0, "push: {push}");
        let done = run(&mut scene.command(push)).expect(0);
        check_resumed(&done, &scene.tree, &scene.copied_to, left);
    }
}

#[test]
fn killed_daemon_is_detected_before_the_timeout() {
    for push in [true, false] {
        let mut scene = Scene::new();
        let client = scene.underway(push);
        scene.daemon.kill();
        let start = Instant::now();
        let done = client.wait_for(Duration::from_secs(50));
        assert!(start.elapsed() < Duration::from_secs(25), "push: {push}: {:?}", start.elapsed());
        done.expect(10).says(&[remote_host(), "run the same command again"]);
        scene.daemon.restart();
        let left = Left::find(&scene.tree.path, &scene.copied_to);
        let done = run(&mut scene.command(push)).expect(0);
        check_resumed(&done, &scene.tree, &scene.copied_to, left);
        assert!(litter(&scene.copied_to).is_empty());
    }
}

#[test]
fn closed_port_is_reported_at_once() {
    let scratch = Scratch::new();
    let mut daemon = Daemon::start(scratch.path(), &[]);
    daemon.kill();
    let mut command = daemon.cp();
    command.args(["--transport", "quic"]).arg(daemon.url("x")).arg(scratch.path());
    let start = Instant::now();
    run(&mut command).expect(10).says(&["is `bankfull serve` running there?"]);
    assert!(start.elapsed() < Duration::from_secs(20));
    // After both transports failed, the way out is shown once.
    let mut command = daemon.cp();
    command.args(["--transport", "auto"]).arg(daemon.url("x")).arg(scratch.path());
    let done = run(&mut command).expect(10);
    done.says(&["is `bankfull serve` running there?", "; QUIC also failed: no response"]);
    assert_eq!(done.err.matches("bankfull serve").count(), 1, "{}", done.err);
    assert_eq!(done.err.matches("connection refused").count(), 1, "{}", done.err);
}

#[test]
fn complete_copy_has_nothing_to_do() {
    let scene = Scene::new();
    run(&mut scene.command(true)).expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
    assert_eq!(run(&mut scene.command(true)).expect(0).figure("bytes"), 0);
}
