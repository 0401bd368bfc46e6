//! Connections that break or go silent while both sides live, by a proxy between them.

use super::super::harness::{
    Daemon, Proxy, Tree, assert_same, far_host, is_over_path, litter, run, wait_until,
};
use super::{Left, check_resumed};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A daemon behind a proxy, beside a tree.
pub(super) struct Scene {
    pub(super) tree: Tree,
    pub(super) daemon: Daemon,
    pub(super) proxy: Proxy,
    pub(super) landed: PathBuf,
}

impl Scene {
    pub(super) fn new(big: &[u64]) -> Self {
        Self::with(Tree::bulk(big, 100), &[])
    }

    /// One whose daemon is given flags.
    fn with(tree: Tree, serve: &[&str]) -> Self {
        let daemon = Daemon::start(tree.path.parent().unwrap(), serve);
        let proxy = Proxy::start(daemon.port);
        let landed = tree.path.parent().unwrap().join("landed/bulk");
        Self { tree, daemon, proxy, landed }
    }

    pub(super) fn command(&self, push: bool) -> Command {
        self.by(push, |path| self.proxy.url(path))
    }

    /// The same copy, not through the proxy.
    pub(super) fn directly(&self, push: bool) -> Command {
        self.by(push, |path| self.daemon.url(path))
    }

    fn by(&self, push: bool, url: impl Fn(&str) -> String) -> Command {
        let mut command = self.daemon.cp();
        if push {
            command.arg(&self.tree.path).arg(url("landed"));
        } else {
            command.arg(url("bulk")).arg(self.landed.parent().unwrap());
        }
        command
    }
}

/// What a connection may hold on its way beyond what it does on the loopback interface: across a
/// path, as much as the host lets its send buffer grow to.
fn send_buffer_max() -> u64 {
    if !is_over_path() {
        return 0;
    }
    let sizes = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    sizes.split_whitespace().next_back().unwrap().parse().unwrap()
}

#[test]
fn a_transfer_survives_a_lost_data_connection_by_itself() {
    for push in [true, false] {
        let scene = Scene::new(&[200 * MIB]);
        scene.proxy.cut_one_after(10 * MIB);
        let done = run(&mut scene.command(push)).expect(0);
        assert_eq!(scene.proxy.cuts(), 1, "push: {push}");
        let [bytes, resumed, failed] = done.figures(["bytes", "resumed_bytes", "failed_files"]);
        assert_eq!((bytes, resumed, failed), (scene.tree.bytes, 0, 0), "push: {push}");
        assert_same(&scene.tree.path, &scene.landed);
        assert!(litter(&scene.landed).is_empty());
        let told = done.notices();
        let is_clear = |text: &String| text.contains("connection") && !text.contains("http");
        assert!(!told.is_empty() && told.iter().all(is_clear), "{told:?}");
        // What was on its way on that one connection is sent again: at most what sockets and the
        // proxy hold, and no block that was acknowledged.
        wait_until("the daemon ended the session", || scene.daemon.clients_done() > 0);
        let [here, there] = [done.events().pop(), scene.daemon.events().pop()]
            .map(|summary| summary.unwrap()["wire_bytes"].as_u64().unwrap());
        let (sent, received) = if push { (here, there) } else { (there, here) };
        let most = scene.tree.bytes + scene.tree.bytes / 100 + 24 * MIB;
        assert!(received <= most, "push: {push}: {received} bytes for {}", scene.tree.bytes);
        let most = most + send_buffer_max();
        assert!(sent <= most, "push: {push}: {sent} bytes for {}", scene.tree.bytes);
    }
}

#[test]
fn a_transfer_survives_a_data_connection_that_breaks_as_it_is_made() {
    for number in [1, 2, 4] {
        let scene = Scene::new(&[300 * MIB]);
        scene.proxy.cut_at_start(number);
        let done = run(&mut scene.command(true)).expect(0);
        assert_eq!(scene.proxy.cuts(), 1, "number {number}");
        assert_eq!(done.figure("bytes"), scene.tree.bytes);
        assert_same(&scene.tree.path, &scene.landed);
    }
}

#[test]
fn when_the_network_is_cut_the_same_command_continues() {
    for push in [true, false] {
        let scene = Scene::new(&[60 * MIB, 70 * MIB]);
        scene.proxy.cut_all_after(50 * MIB);
        run(&mut scene.command(push)).expect(10).says(&["connection", "lost"]);
        wait_until("the daemon noticed", || scene.daemon.clients_done() > 0);
        let left = Left::find(&scene.tree.path, &scene.landed);
        assert!(left.journalled > 0, "push: {push}");

        scene.proxy.mend();
        let done = run(&mut scene.command(push)).expect(0);
        check_resumed(&done, &scene.tree, &scene.landed, left);
    }
}

#[test]
fn silence_is_a_timeout_and_the_same_command_continues() {
    for push in [true, false] {
        let scene = Scene::new(&[60 * MIB, 70 * MIB]);
        scene.proxy.stall_after(40 * MIB);
        let started = Instant::now();
        let done = run(scene.command(push).args(["--timeout", "4"])).expect(30);
        assert!(started.elapsed() < Duration::from_secs(15), "it took {:?}", started.elapsed());
        done.says(&[far_host(), "run the same command again"]);

        scene.proxy.mend();
        let done = run(&mut scene.command(push)).expect(0);
        assert_same(&scene.tree.path, &scene.landed);
        let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
        assert_eq!(bytes + resumed + skipped, scene.tree.bytes, "push: {push}");
        assert!(resumed > 0, "push: {push}");
        assert!(litter(&scene.landed).is_empty());
    }
}

fn expect_timeout_from_the_start(seconds: &str) {
    let scene = Scene::new(&[]);
    scene.proxy.stall_after(0);
    let started = Instant::now();
    run(scene.command(true).args(["--timeout", seconds])).expect(30).says(&[far_host()]);
    assert!(started.elapsed() < Duration::from_secs(12), "it took {:?}", started.elapsed());
}

#[test]
fn a_connection_that_is_silent_from_the_start_is_a_timeout() {
    expect_timeout_from_the_start("4");
}

#[test]
fn a_short_timeout_works_as_a_long_one_does() {
    expect_timeout_from_the_start("1");
}

/// A copy by way of a network so slow that a block takes several times the time-out.
fn outlast_a_short_timeout(push: bool, serve: &[&str], flags: &[&str]) {
    let scene = Scene::with(Tree::bulk(&[MIB], 3), serve);
    scene.proxy.slow_to(MIB / 7);
    let started = Instant::now();
    let done = run(scene.command(push).args(flags)).expect(0);
    let what = format!("push: {push}, {serve:?}, {flags:?}");
    // Else nothing was put to the test.
    assert!(started.elapsed() > Duration::from_secs(6), "{what}: {:?}", started.elapsed());
    assert_same(&scene.tree.path, &scene.landed);
    assert_eq!(done.figures(["files", "failed_files"]), [scene.tree.files, 0], "{what}");
    assert_eq!(done.notices(), Vec::<String>::new(), "{what}");
}

#[test]
fn a_slow_transfer_outlasts_a_short_timeout_of_either_side_because_both_show_that_they_live() {
    let short = ["--timeout", "3"];
    thread::scope(|scope| {
        for push in [true, false] {
            scope.spawn(move || outlast_a_short_timeout(push, &[], &short));
            scope.spawn(move || outlast_a_short_timeout(push, &short, &[]));
        }
    });
}
