//! `kill -9` of a random side at random moments, over every remote route.
//!
//! `BANKFULL_KILLS` sets the number; `BANKFULL_SEED` replays the choices (moments are fractions of
//! a run's time, so the exact course differs).

use super::super::harness::{
    Daemon, Rng, Running, SshServer, Tree, remote_address, run, seed, wait_until,
};
use super::{Left, check_resumed, local_copy};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Default number of kills: enough for every route. `make campaign` has more.
const KILLS: u64 = 6;

/// Interval of rounds over ssh.
const SSH_EVERY: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    DaemonPush,
    DaemonPull,
    SshPush,
    SshPull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Client,
    FarSide,
}

/// Directory of both sides: the tree, with everything copied beside it.
struct Arena {
    tree: Tree,
    daemon: Daemon,
    ssh: Option<SshServer>,
    /// Duration of an uninterrupted run per route, as far as known.
    spans: [Duration; 4],
}

impl Arena {
    fn new() -> Self {
        let tree = Tree::bulk(&[80 * MIB, 79 * MIB + 3, 81 * MIB + 70_000], 300);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let mut arena = Self { tree, daemon, ssh: SshServer::start(), spans: [Duration::ZERO; 4] };
        let started = Instant::now();
        let copied_to = arena.copied_to(0);
        run(&mut arena.command(Route::DaemonPush, &copied_to)).expect(0);
        arena.spans = [started.elapsed(); 4];
        fs::remove_dir_all(copied_to.parent().unwrap()).unwrap();
        arena
    }

    fn copied_to(&self, round: u64) -> PathBuf {
        self.tree.path.parent().unwrap().join(format!("copied_to-{round}")).join("bulk")
    }

    fn command(&self, route: Route, copied_to: &Path) -> Command {
        let into = copied_to.parent().unwrap();
        let name = into.file_name().unwrap().to_str().unwrap();
        let mut command = match (&self.ssh, route) {
            (Some(ssh), Route::SshPush | Route::SshPull) => ssh.cp(),
            _ => self.daemon.cp(),
        };
        match route {
            Route::DaemonPush => command.arg(&self.tree.path).arg(self.daemon.url(name)),
            Route::DaemonPull => command.arg(self.daemon.url("bulk")).arg(into),
            Route::SshPush => command.arg(&self.tree.path).arg(SshServer::place(into)),
            Route::SshPull => command.arg(SshServer::place(&self.tree.path)).arg(into),
        };
        command
    }

    fn route(&self, round: u64) -> Route {
        let is_push = (round / SSH_EVERY).is_multiple_of(2);
        match (round % SSH_EVERY == SSH_EVERY - 1 && self.ssh.is_some(), is_push) {
            (false, _) if round.is_multiple_of(2) => Route::DaemonPush,
            (false, _) => Route::DaemonPull,
            (true, true) => Route::SshPush,
            (true, false) => Route::SshPull,
        }
    }

    /// Kills a side, unless the client has ended.
    fn kill(&mut self, route: Route, victim: Victim, mut client: Running) {
        if client.is_over() {
            client.wait().expect(0);
            return;
        }
        match (victim, route) {
            (Victim::Client, _) => return client.kill(),
            (Victim::FarSide, Route::DaemonPush | Route::DaemonPull) => self.daemon.kill(),
            (Victim::FarSide, _) => self.ssh.iter().for_each(SshServer::kill_agents),
        }
        let done = client.wait_for(Duration::from_secs(30));
        if self.daemon.is_over() {
            self.daemon.restart();
        }
        match (route, done.code) {
            (_, Some(0)) => {}
            // Killed before its first message: to the client, ssh failed or another program
            // answered.
            (Route::SshPush | Route::SshPull, Some(14)) => {}
            (Route::DaemonPush | Route::DaemonPull, Some(12)) => {
                done.says(&["closed the connection during the handshake"]);
            }
            _ => done.expect(10).says(&["connection"]),
        }
    }

    /// Waits until all writers have ended.
    fn settle(&self) {
        let daemon = &self.daemon;
        wait_until("the daemon ended the session", || {
            let events = daemon.events();
            let peers = |name: &str| {
                let named = events.iter().filter(|event| event["event"] == name);
                named.map(|event| event["peer"].to_string()).collect::<Vec<_>>()
            };
            let ended = peers("client_done");
            peers("client_connected").iter().all(|peer| ended.contains(peer))
        });
        if let Some(ssh) = &self.ssh {
            wait_until("the agents ended", || ssh.agents().is_empty());
        }
    }

    /// Runs one interruption and the run after it. Returns true if a copy was interrupted.
    fn round(&mut self, round: u64, rng: &mut Rng) -> bool {
        let route = self.route(round);
        let victim = if rng.below(2) == 0 { Victim::Client } else { Victim::FarSide };
        let copied_to = self.copied_to(round);
        let span = self.spans[route as usize];
        let moment = span.mul_f64(0.1 + 0.85 * rng.fraction());
        let mut client = Running::start(&mut self.command(route, &copied_to));
        if matches!(route, Route::SshPush | Route::SshPull) {
            // There is nothing to interrupt during the login.
            wait_until("it has begun", || copied_to.exists() || client.is_over());
        }
        std::thread::sleep(moment);
        self.kill(route, victim, client);
        self.settle();
        let left = Left::find(&self.tree.path, &copied_to);
        println!("round {round}: {route:?}, {victim:?} killed after {moment:?}, left {left:?}");
        let done = run(&mut self.command(route, &copied_to)).expect(0);
        check_resumed(&done, &self.tree, &copied_to, left);
        fs::remove_dir_all(copied_to.parent().unwrap()).unwrap();
        // Other tests use a varying share of the machine.
        let interrupted = left.in_place < self.tree.files;
        let factor = match (interrupted, left.journalled) {
            (false, _) => 0.7,
            (true, 0) => 1.2,
            _ => 1.0,
        };
        self.spans[route as usize] = span.mul_f64(factor);
        interrupted
    }
}

#[test]
fn killed_copy_resumes_without_sending_twice() {
    let kills = std::env::var("BANKFULL_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let seed = seed();
    println!("BANKFULL_SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut arena = Arena::new();
    let (mut rounds, mut interrupted) = (0, 0);
    // On a busy machine some moments miss; others are tried.
    while rounds < kills || (interrupted * 2 < kills && rounds < 3 * kills) {
        interrupted += u64::from(arena.round(rounds, &mut rng));
        rounds += 1;
    }
    println!("{interrupted} of {rounds} kills came in the middle");
    assert!(interrupted * 2 >= kills, "only {interrupted} of {rounds} kills interrupted anything");
}

#[test]
fn lost_peer_is_named_with_the_way_out() {
    let mut arena = Arena::new();
    for round in 0..4 {
        let copied_to = arena.copied_to(round);
        let client = Running::start(&mut arena.command(Route::DaemonPush, &copied_to));
        wait_until("it has begun", || copied_to.join("small-0").exists());
        arena.daemon.kill();
        let host = remote_address(arena.daemon.port);
        client.wait().expect(10).says(&[&host, "run the same command again"]);
        arena.daemon.restart();
    }
}

#[test]
fn returning_client_replaces_its_dead_session() {
    let tree = Tree::bulk(&[100 * MIB], 20);
    let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
    let copied_to = tree.path.parent().unwrap().join("copied_to/bulk");
    for _ in 0..3 {
        let command = || {
            let mut command = daemon.cp();
            command.arg(&tree.path).arg(daemon.url("copied_to"));
            command
        };
        let mut client = Running::start(&mut command());
        wait_until("a journal has records", || {
            Left::find(&tree.path, &copied_to).journalled > 0 || client.is_over()
        });
        client.kill();
        let done = run(&mut command()).expect(0);
        let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
        assert_eq!(bytes + resumed + skipped, tree.bytes);
        super::assert_same(&tree.path, &copied_to);
        fs::remove_dir_all(copied_to.parent().unwrap()).unwrap();
    }
}

#[test]
fn killed_local_copy_resumes_without_copying_twice() {
    let tree = Tree::bulk(&[300 * MIB, 100 * MIB + 5], 100);
    let into = tree.path.with_file_name("copied_to");
    let copied_to = into.join("bulk");
    let command = || local_copy(&tree, &into);
    for round in 1..=3 {
        let mut copy = Running::start(&mut command());
        wait_until("a journal has records", || {
            Left::find(&tree.path, &copied_to).journalled >= round * 40 * MIB || copy.is_over()
        });
        copy.kill();
        let left = Left::find(&tree.path, &copied_to);
        println!("round {round}: left {left:?}");
        let done = run(&mut command()).expect(0);
        check_resumed(&done, &tree, &copied_to, left);
        fs::remove_dir_all(&into).unwrap();
    }
}
