//! Connections that break or stall while both sides live, through a proxy.

use super::super::harness::{
    Daemon, Proxy, Tree, assert_same, is_over_path, litter, remote_host, run, wait_until,
};
use super::{Left, check_resumed};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A daemon behind a proxy, and a tree.
pub(super) struct Scene {
    pub(super) tree: Tree,
    pub(super) daemon: Daemon,
    pub(super) proxy: Proxy,
    pub(super) copied_to: PathBuf,
}

impl Scene {
    pub(super) fn new(big: &[u64]) -> Self {
        Self::with(Tree::bulk(big, 100), &[])
    }

    /// Starts a daemon with flags.
    fn with(tree: Tree, serve: &[&str]) -> Self {
        let daemon = Daemon::start(tree.path.parent().unwrap(), serve);
        let proxy = Proxy::start(daemon.port);
        let copied_to = tree.path.parent().unwrap().join("copied_to/bulk");
        Self { tree, daemon, proxy, copied_to }
    }

    pub(super) fn command(&self, push: bool) -> Command {
        self.by(push, |path| self.proxy.url(path))
    }

    /// Returns the same copy without the proxy.
    pub(super) fn directly(&self, push: bool) -> Command {
        self.by(push, |path| self.daemon.url(path))
    }

    fn by(&self, push: bool, url: impl Fn(&str) -> String) -> Command {
        let mut command = self.daemon.cp();
        if push {
            command.arg(&self.tree.path).arg(url("copied_to"));
        } else {
            command.arg(url("bulk")).arg(self.copied_to.parent().unwrap());
        }
        command
    }
}

/// Bytes that a connection may have in flight beyond the loopback case: across a path, the maximum
/// send buffer of the host.
fn max_send_buffer() -> u64 {
    if !is_over_path() {
        return 0;
    }
    let sizes = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    sizes.split_whitespace().next_back().unwrap().parse().unwrap()
}

#[test]
fn lost_stream_is_reconnected() {
    for push in [true, false] {
        let scene = Scene::new(&[200 * MIB]);
        scene.proxy.cut_one_after(10 * MIB);
        // A tuner that pauses this stream would not replace it.
        let done = run(scene.command(push).args(["--tune", "off"])).expect(0);
        assert_eq!(scene.proxy.cuts(), 1, "push: {push}");
        let [bytes, resumed, failed] = done.figures(["bytes", "resumed_bytes", "failed_files"]);
        assert_eq!((bytes, resumed, failed), (scene.tree.bytes, 0, 0), "push: {push}");
        assert_same(&scene.tree.path, &scene.copied_to);
        assert!(litter(&scene.copied_to).is_empty());
        let reported = done.warnings();
        let is_clear = |text: &String| text.contains("stream") && !text.contains("http");
        assert!(!reported.is_empty() && reported.iter().all(is_clear), "{reported:?}");
        // Data in flight on that stream is sent again: at most the buffers of sockets and proxy,
        // and no acknowledged block.
        wait_until("the daemon ended the session", || scene.daemon.clients_done() > 0);
        let [here, there] = [done.events().pop(), scene.daemon.events().pop()]
            .map(|summary| summary.unwrap()["wire_bytes"].as_u64().unwrap());
        let (sent, received) = if push { (here, there) } else { (there, here) };
        let most = scene.tree.bytes + scene.tree.bytes / 100 + 24 * MIB;
        assert!(received <= most, "push: {push}: {received} bytes for {}", scene.tree.bytes);
        let most = most + max_send_buffer();
        assert!(sent <= most, "push: {push}: {sent} bytes for {}", scene.tree.bytes);
    }
}

#[test]
fn stream_lost_while_connecting_is_reconnected() {
    for number in [1, 2, 4] {
        let scene = Scene::new(&[300 * MIB]);
        scene.proxy.cut_at_start(number);
        let done = run(&mut scene.command(true)).expect(0);
        assert_eq!(scene.proxy.cuts(), 1, "number {number}");
        assert_eq!(done.figure("bytes"), scene.tree.bytes);
        assert_same(&scene.tree.path, &scene.copied_to);
    }
}

#[test]
fn network_cut_is_resumed_by_the_same_command() {
    for push in [true, false] {
        let scene = Scene::new(&[60 * MIB, 70 * MIB]);
        scene.proxy.cut_all_after(50 * MIB);
        run(&mut scene.command(push)).expect(10).says(&["connection", "lost"]);
        wait_until("the daemon noticed", || scene.daemon.clients_done() > 0);
        let left = Left::find(&scene.tree.path, &scene.copied_to);
        assert!(left.journalled > 0, "push: {push}");

        scene.proxy.mend();
        let done = run(&mut scene.command(push)).expect(0);
        check_resumed(&done, &scene.tree, &scene.copied_to, left);
    }
}

#[test]
fn silent_peer_is_a_timeout_and_resumes() {
    for push in [true, false] {
        let scene = Scene::new(&[60 * MIB, 70 * MIB]);
        scene.proxy.stall_after(40 * MIB);
        let started = Instant::now();
        let done = run(scene.command(push).args(["--timeout", "4"])).expect(30);
        assert!(started.elapsed() < Duration::from_secs(15), "it took {:?}", started.elapsed());
        done.says(&[remote_host(), "run the same command again"]);

        scene.proxy.mend();
        let done = run(&mut scene.command(push)).expect(0);
        assert_same(&scene.tree.path, &scene.copied_to);
        let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
        assert_eq!(bytes + resumed + skipped, scene.tree.bytes, "push: {push}");
        assert!(resumed > 0, "push: {push}");
        assert!(litter(&scene.copied_to).is_empty());
    }
}

fn expect_timeout_from_the_start(seconds: &str) {
    let scene = Scene::new(&[]);
    scene.proxy.stall_after(0);
    let started = Instant::now();
    run(scene.command(true).args(["--timeout", seconds])).expect(30).says(&[remote_host()]);
    assert!(started.elapsed() < Duration::from_secs(12), "it took {:?}", started.elapsed());
}

#[test]
fn silent_connection_is_a_timeout() {
    expect_timeout_from_the_start("4");
}

#[test]
fn short_timeout_is_respected() {
    expect_timeout_from_the_start("1");
}

/// Copies through a network so slow that a block takes several timeouts.
fn outlast_a_short_timeout(push: bool, serve: &[&str], flags: &[&str]) {
    let scene = Scene::with(Tree::bulk(&[MIB], 3), serve);
    scene.proxy.slow_to(MIB / 7);
    let started = Instant::now();
    let done = run(scene.command(push).args(flags)).expect(0);
    let what = format!("push: {push}, {serve:?}, {flags:?}");
    // Otherwise the timeout was not tested.
    assert!(started.elapsed() > Duration::from_secs(6), "{what}: {:?}", started.elapsed());
    assert_same(&scene.tree.path, &scene.copied_to);
    assert_eq!(done.figures(["files", "failed_files"]), [scene.tree.files, 0], "{what}");
    assert_eq!(done.warnings(), Vec::<String>::new(), "{what}");
}

#[test]
fn slow_transfer_outlasts_a_short_timeout() {
    let short = ["--timeout", "3"];
    thread::scope(|scope| {
        for push in [true, false] {
            scope.spawn(move || outlast_a_short_timeout(push, &[], &short));
            scope.spawn(move || outlast_a_short_timeout(push, &short, &[]));
        }
    });
}
