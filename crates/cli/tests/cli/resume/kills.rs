//! `kill -9` of a random side at a random moment, many times, by every remote route.
//!
//! `BANKFULL_KILLS` says how often, `BANKFULL_SEED` replays a run's choices (moments are fractions
//! of a run's time, so not its exact course).

use super::super::harness::{
    Daemon, Rng, Running, SshServer, Tree, far_address, run, seed, wait_until,
};
use super::{Left, check_resumed, within_the_host};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Kills where nobody says how many.
const KILLS: u64 = 12;

/// Every so many rounds the route is ssh.
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

/// Both sides work in one directory: the tree is in it, and everything lands beside it.
struct Arena {
    tree: Tree,
    daemon: Daemon,
    ssh: Option<SshServer>,
    /// How long an uninterrupted run takes by each route, as far as is known.
    spans: [Duration; 4],
}

impl Arena {
    fn new() -> Self {
        let tree = Tree::bulk(&[150 * MIB, 149 * MIB + 3, 151 * MIB + 70_000], 300);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let mut arena = Self { tree, daemon, ssh: SshServer::start(), spans: [Duration::ZERO; 4] };
        let started = Instant::now();
        let landed = arena.landed(0);
        run(&mut arena.command(Route::DaemonPush, &landed)).expect(0);
        arena.spans = [started.elapsed(); 4];
        fs::remove_dir_all(landed.parent().unwrap()).unwrap();
        arena
    }

    fn landed(&self, round: u64) -> PathBuf {
        self.tree.path.parent().unwrap().join(format!("landed-{round}")).join("bulk")
    }

    fn command(&self, route: Route, landed: &Path) -> Command {
        let into = landed.parent().unwrap();
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

    /// Kills a side, unless the client has ended by itself.
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
            // Killed before it said a word: for all one can see, ssh failed, or it is no bankfull.
            (Route::SshPush | Route::SshPull, Some(14)) => {}
            (Route::DaemonPush | Route::DaemonPull, Some(12)) => {
                done.says(&["closed the connection during the handshake"]);
            }
            _ => done.expect(10).says(&["connection"]),
        }
    }

    /// Waits until nobody writes any more.
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

    /// One interruption and the run after it. True when there was something to interrupt.
    fn round(&mut self, round: u64, rng: &mut Rng) -> bool {
        let route = self.route(round);
        let victim = if rng.below(2) == 0 { Victim::Client } else { Victim::FarSide };
        let landed = self.landed(round);
        let span = self.spans[route as usize];
        let moment = span.mul_f64(0.1 + 0.85 * rng.fraction());
        let mut client = Running::start(&mut self.command(route, &landed));
        if matches!(route, Route::SshPush | Route::SshPull) {
            // Logging in takes its time, in which there is nothing to interrupt.
            wait_until("it has begun", || landed.exists() || client.is_over());
        }
        std::thread::sleep(moment);
        self.kill(route, victim, client);
        self.settle();
        let left = Left::find(&self.tree.path, &landed);
        println!("round {round}: {route:?}, {victim:?} killed after {moment:?}, left {left:?}");
        let done = run(&mut self.command(route, &landed)).expect(0);
        check_resumed(&done, &self.tree, &landed, left);
        fs::remove_dir_all(landed.parent().unwrap()).unwrap();
        // Other tests take their share of the machine, more or less of it.
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
fn killed_at_any_moment_the_same_command_continues_and_sends_nothing_twice() {
    let kills = std::env::var("BANKFULL_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let seed = seed();
    println!("BANKFULL_SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut arena = Arena::new();
    let (mut rounds, mut interrupted) = (0, 0);
    // On a busy machine some moments are badly guessed: then others are tried.
    while rounds < kills || (interrupted * 2 < kills && rounds < 3 * kills) {
        interrupted += u64::from(arena.round(rounds, &mut rng));
        rounds += 1;
    }
    println!("{interrupted} of {rounds} kills came in the middle");
    assert!(interrupted * 2 >= kills, "only {interrupted} of {rounds} kills interrupted anything");
}

#[test]
fn whoever_loses_the_far_side_is_told_which_and_what_to_do() {
    let mut arena = Arena::new();
    for round in 0..8 {
        let landed = arena.landed(round);
        let client = Running::start(&mut arena.command(Route::DaemonPush, &landed));
        wait_until("it has begun", || landed.join("small-0").exists());
        arena.daemon.kill();
        let host = far_address(arena.daemon.port);
        client.wait().expect(10).says(&[&host, "run the same command again"]);
        arena.daemon.restart();
    }
}

#[test]
fn a_client_that_comes_back_at_once_takes_over_from_its_own_dead_session() {
    let tree = Tree::bulk(&[100 * MIB], 20);
    let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
    let landed = tree.path.parent().unwrap().join("landed/bulk");
    for _ in 0..3 {
        let command = || {
            let mut command = daemon.cp();
            command.arg(&tree.path).arg(daemon.url("landed"));
            command
        };
        let mut client = Running::start(&mut command());
        wait_until("something is journalled", || {
            Left::find(&tree.path, &landed).journalled > 0 || client.is_over()
        });
        client.kill();
        let done = run(&mut command()).expect(0);
        let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
        assert_eq!(bytes + resumed + skipped, tree.bytes);
        super::assert_same(&tree.path, &landed);
        fs::remove_dir_all(landed.parent().unwrap()).unwrap();
    }
}

#[test]
fn a_copy_within_the_host_that_is_killed_continues_and_copies_nothing_twice() {
    let tree = Tree::bulk(&[300 * MIB, 100 * MIB + 5], 100);
    let into = tree.path.with_file_name("landed");
    let landed = into.join("bulk");
    let command = || within_the_host(&tree, &into);
    for round in 1..=6 {
        let mut copy = Running::start(&mut command());
        wait_until("some of it is journalled", || {
            Left::find(&tree.path, &landed).journalled >= round * 20 * MIB || copy.is_over()
        });
        copy.kill();
        let left = Left::find(&tree.path, &landed);
        println!("round {round}: left {left:?}");
        let done = run(&mut command()).expect(0);
        check_resumed(&done, &tree, &landed, left);
        fs::remove_dir_all(&into).unwrap();
    }
}
