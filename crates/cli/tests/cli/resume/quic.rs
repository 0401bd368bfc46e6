//! Copies by QUIC that are interrupted: what TCP's resets tell at once has to come by other ways.

use super::super::harness::{
    Daemon, Running, Scratch, Tree, assert_same, far_host, litter, run, wait_until,
};
use super::{Left, check_resumed};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

struct Scene {
    tree: Tree,
    daemon: Daemon,
    landed: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let tree = Tree::bulk(&[150 * MIB, 170 * MIB], 100);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let landed = tree.path.parent().unwrap().join("landed/bulk");
        Self { tree, daemon, landed }
    }

    /// Slow enough to be interrupted.
    fn slowly(&self, push: bool) -> Command {
        let mut command = self.command(push);
        command.args(["--max-rate", "400mbit"]);
        command
    }

    fn command(&self, push: bool) -> Command {
        let mut command = self.daemon.cp();
        command.args(["--transport", "quic"]);
        if push {
            command.arg(&self.tree.path).arg(self.daemon.url("landed"));
        } else {
            command.arg(self.daemon.url("bulk")).arg(self.landed.parent().unwrap());
        }
        command
    }

    /// Starts a copy, and waits until some of it is there.
    fn underway(&self, push: bool) -> Running {
        let client = Running::start(&mut self.slowly(push));
        wait_until("a part has grown", || Left::find(&self.tree.path, &self.landed).journalled > 0);
        client
    }
}

#[test]
fn a_client_that_is_killed_is_missed_and_the_same_command_continues() {
    for push in [true, false] {
        let scene = Scene::new();
        scene.underway(push).kill();
        let start = Instant::now();
        wait_until("the daemon ended the session", || scene.daemon.clients_done() > 0);
        assert!(start.elapsed() < Duration::from_secs(25), "push: {push}: {:?}", start.elapsed());
        let left = Left::find(&scene.tree.path, &scene.landed);
        assert!(left.journalled > 0, "push: {push}");
        let done = run(&mut scene.command(push)).expect(0);
        check_resumed(&done, &scene.tree, &scene.landed, left);
    }
}

#[test]
fn a_daemon_that_is_killed_is_noticed_long_before_the_time_out() {
    for push in [true, false] {
        let mut scene = Scene::new();
        let client = scene.underway(push);
        scene.daemon.kill();
        let start = Instant::now();
        let done = client.wait_for(Duration::from_secs(50));
        assert!(start.elapsed() < Duration::from_secs(25), "push: {push}: {:?}", start.elapsed());
        done.expect(10).says(&[far_host(), "run the same command again"]);
        scene.daemon.restart();
        let left = Left::find(&scene.tree.path, &scene.landed);
        let done = run(&mut scene.command(push)).expect(0);
        check_resumed(&done, &scene.tree, &scene.landed, left);
        assert!(litter(&scene.landed).is_empty());
    }
}

#[test]
fn nobody_at_the_port_is_said_at_once() {
    let scratch = Scratch::new();
    let mut daemon = Daemon::start(scratch.path(), &[]);
    daemon.kill();
    let mut command = daemon.cp();
    command.args(["--transport", "quic"]).arg(daemon.url("x")).arg(scratch.path());
    let start = Instant::now();
    run(&mut command).expect(10).says(&["is `bankfull serve` running there?"]);
    assert!(start.elapsed() < Duration::from_secs(20));
    // Where both were tried, the way out is told once.
    let mut command = daemon.cp();
    command.args(["--transport", "auto"]).arg(daemon.url("x")).arg(scratch.path());
    let done = run(&mut command).expect(10);
    done.says(&["is `bankfull serve` running there?", "; nobody answers by QUIC either"]);
    assert_eq!(done.err.matches("bankfull serve").count(), 1, "{}", done.err);
    assert_eq!(done.err.matches("connection refused").count(), 1, "{}", done.err);
}

#[test]
fn a_copy_that_is_complete_has_nothing_left_to_do() {
    let scene = Scene::new();
    run(&mut scene.command(true)).expect(0);
    assert_same(&scene.tree.path, &scene.landed);
    assert_eq!(run(&mut scene.command(true)).expect(0).figure("bytes"), 0);
}
