//! `bankfull gather`: many hosts send to one through the shallow queue of its port, with a source
//! that dies and a source without data.

use super::copies::{
    OUR_VARIABLES, Running, blocks_in, figure, finished_in, plant, program, wait_until,
};
use super::{MACHINE, start};
use bankfull_control::{Bytes, Rate};
use bankfull_lab::base::notify;
use bankfull_lab::model::plan::Plan;
use bankfull_lab::model::settings::Data;
use bankfull_lab::topology::hosts::Hosts;
use bankfull_lab::topology::network::Network;
use bankfull_sim::{LinkConfig, PathConfig};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PORT: u16 = 7700;

/// Killed source, and source without a tree.
const KILLED: usize = 3;
const EMPTY: usize = 5;

/// Size of each source's large file in MiB: at 1 Gbit/s, all eight take a second.
const LARGE_MIB: usize = 16;

/// Starts hosts with 1 Gbit/s each, behind a port of the same rate. The port has a queue of 256 kB.
fn network(sources: usize) -> Option<Network> {
    let gigabit = Rate::from_bits_per_sec(1e9);
    let path = PathConfig::new(gigabit, Duration::from_micros(100), Bytes(256_000));
    let line = LinkConfig { rate: Some(gigabit), ..LinkConfig::default() };
    let mut plan = Plan::fan_in(&vec![line; sources], &path);
    plan.congestion = Some("cubic".to_owned());
    start(&plan)
}

fn bankfull(program: &Path, sub: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(sub).stdin(Stdio::null()).env("XDG_STATE_HOME", home);
    for name in OUR_VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Starts a daemon at each source, and waits until all listen.
fn serve(network: &Network, program: &Path, dir: &Path, sources: usize) -> Vec<Running> {
    let start = |source: usize| {
        let name = dir.join(format!("daemon{source}"));
        let mut command = bankfull(program, "serve", &name.join("home"));
        let listen = format!("{}:{PORT}", Hosts::address(source));
        fs::create_dir_all(name.join("root")).unwrap();
        command.arg(name.join("root")).args(["--json", "--listen", &listen]);
        Running::start(network.hosts(), source, &mut command, &name)
    };
    let daemons: Vec<Running> = (0..sources).map(start).collect();
    for daemon in &daemons {
        wait_until("a daemon listens", || daemon.out().contains('\n'));
    }
    daemons
}

fn same(one: &Path, other: &Path) -> bool {
    Command::new("diff").arg("-rq").args([one, other]).status().unwrap().success()
}

/// Gathers from daemons and kills one in the middle; all others must arrive intact. The daemons
/// have the same tree each, except one. Prints the goodput. `is_underway` returns whether enough of
/// the killed source has arrived.
fn gather(sources: usize, plant: impl Fn(&Path) -> u64, is_underway: impl Fn(&Path) -> bool) {
    let Some(program) = program() else { return };
    let _busy = MACHINE.share();
    let Some(network) = network(sources) else { return };
    let scratch = TempDir::with_prefix("bankfull-lab-").unwrap();
    let dir = scratch.path();
    let tree = |source: usize| dir.join(format!("daemon{source}/root/tree"));
    let bytes = plant(&dir.join("tree"));
    let mut daemons = serve(&network, &program, dir, sources);
    for source in (0..sources).filter(|&source| source != EMPTY) {
        let copied = Command::new("cp").arg("-r").arg(dir.join("tree")).arg(tree(source)).status();
        assert!(copied.unwrap().success());
    }
    let landed = |source| dir.join(format!("to/{}_{PORT}/tree", Hosts::address(source)));
    let from = |source| format!("bankfull://{}:{PORT}/tree", Hosts::address(source));
    let mut command = bankfull(&program, "gather", &dir.join("home"));
    command.args(["--json", "--accept-new", "--retry-for", "0", "--link-rate", "1gbit"]);
    command.args((0..sources).map(from));
    let start = Instant::now();
    let mut gather =
        Running::start(network.hosts(), sources, command.arg(dir.join("to")), &dir.join("gather"));
    wait_until("some of it has arrived", || {
        assert!(gather.child.try_wait().unwrap().is_none(), "{}", gather.output());
        is_underway(&landed(KILLED))
    });
    daemons[KILLED].child.kill().unwrap();
    daemons[KILLED].child.wait().unwrap();

    let out = gather.out.clone();
    let done = gather.ends_with(23);
    let goodput = Bytes(figure(&done, "bytes")).per(start.elapsed());
    let out = fs::read_to_string(out).unwrap();
    assert_eq!(figure(&done, "sources_failed"), 2, "{out}");
    for source in (0..sources).filter(|source| ![KILLED, EMPTY].contains(source)) {
        assert!(same(&dir.join("tree"), &landed(source)), "{source}\n{out}");
    }
    let whole = (sources - 2) as u64 * bytes;
    assert!((whole..whole + bytes).contains(&figure(&done, "bytes")), "{out}");
    notify(&format!("{} of {sources} sources whole, {goodput} in all", sources - 2));
    for mut daemon in daemons {
        let _ = daemon.child.kill();
        let _ = daemon.child.wait();
    }
}

#[test]
fn failed_sources_do_not_affect_other_sources() {
    gather(8, |dir| plant(dir, LARGE_MIB), |landed| blocks_in(landed) > 0);
}

/// For a meaningful goodput: `cargo test --release -p bankfull-lab --test lab -- --ignored
/// --nocapture thirty_two`, with the program built for release, too.
#[test]
#[ignore = "4 GB of files"]
fn thirty_two_trees_arrive_intact_except_two() {
    let data = Data { files: 1000, size: Bytes::kib(64), mixed: true };
    let plant = |dir: &Path| {
        let mut random = fastrand::Rng::with_seed(7);
        for number in 0..data.files {
            let mut content = vec![0; data.size_of(number).0 as usize];
            random.fill(&mut content);
            fs::create_dir_all(dir.join(format!("{}", number % 7))).unwrap();
            fs::write(dir.join(format!("{}/{number}", number % 7)), content).unwrap();
        }
        data.bytes().0
    };
    // Half of the files of one directory.
    gather(32, plant, |landed| finished_in(&landed.join("0")) > 70);
}
