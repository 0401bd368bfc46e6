//! `bankfull` sizes window and pacing to a path with a shallow queue: what it loses there with
//! `--tune off` and without, and that it says what it does.

use super::{believed, copies::program};
use bankfull_control::{Bytes, Rate};
use bankfull_lab::hosts::Hosts;
use bankfull_lab::network::{Network, Plan};
use bankfull_lab::say;
use bankfull_sim::PathConfig;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use tempfile::TempDir;

/// Bytes that are copied: some three seconds.
const CONTENT_BYTES: usize = 30_000_000;

/// Copies of each kind, in turns: one stall of the machine for 20 ms fills the queue six times,
/// which is too short to make a run void.
const COPIES: usize = 3;

/// What takes longer hangs. (ours)
const LIMIT: Duration = Duration::from_secs(60);

/// A process that ends with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(Instant::now() < until, "{what} did not come in {LIMIT:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The segments that copies which are not tuned had to send again, and those which are, and what
/// the daemon said.
fn copies(network: &Network, program: &Path) -> ([Vec<u64>; 2], Vec<Value>) {
    let scratch = TempDir::with_prefix("bankfull-lab-").unwrap();
    let at = |name: &str| scratch.path().join(name);
    let mut content = vec![0; CONTENT_BYTES];
    fastrand::Rng::with_seed(7).fill(&mut content);
    fs::write(at("content"), content).unwrap();
    fs::create_dir(at("root")).unwrap();
    let run = |host: usize, out: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).arg("--json").arg("--state-dir").arg(at("state"));
        command.stdin(Stdio::null()).stdout(fs::File::create(at(out)).unwrap());
        Running(network.hosts().spawn(host, &mut command).unwrap())
    };
    let receiver = network.receiver();
    let listen = format!("{}:0", Hosts::address(receiver));
    let _daemon =
        run(receiver, "daemon", &["serve", at("root").to_str().unwrap(), "--listen", &listen]);
    let port = wait_for("the port", || lines(&at("daemon")).first()?["port"].as_u64());
    let source = at("content");
    let mut lost = [const { Vec::new() }; 2];
    for copy in 0..2 * COPIES {
        let tune = ["off", "auto"][copy % 2];
        let name = format!("{tune}-{copy}");
        let place = format!("bankfull://{}:{port}/{name}", Hosts::address(receiver));
        let source = source.to_str().unwrap();
        let tuned = ["cp", "--accept-new", "--streams", "4", "--tune", tune, source, &place];
        let running = run(0, &name, &tuned);
        let summary = wait_for("the summary", || {
            lines(&at(&name)).into_iter().find(|line| line["event"] == "summary")
        });
        drop(running);
        lost[copy % 2].push(summary["retransmits"].as_u64().unwrap());
        let there = fs::metadata(at("root").join(&name)).unwrap().len();
        assert_eq!(there, CONTENT_BYTES as u64);
    }
    (lost, lines(&at("daemon")))
}

#[test]
fn a_copy_does_not_overflow_the_queue_that_it_would_overflow_untuned() {
    let Some(program) = program() else { return };
    // 100 Mbit/s, 40 ms, and a tenth of what is in flight as queue.
    let rate = Rate::from_bits_per_sec(1e8);
    let path = PathConfig::new(rate, Duration::from_millis(40), Bytes(50_000));
    let plan = Plan { congestion: Some("cubic".to_owned()), ..Plan::path(&path) };
    let measured = believed(&plan, |network| copies(network, &program));
    let Some((([mut untuned, mut tuned], said), _)) = measured else { return };
    say(&format!("segments sent again: untuned {untuned:?}, tuned {tuned:?}"));
    untuned.sort_unstable();
    tuned.sort_unstable();
    let (untuned, tuned) = (untuned[COPIES / 2], tuned[COPIES / 2]);
    assert!(untuned > 50, "untuned it overflows: {untuned}");
    // The first windows of all connections come at once, and may not fit.
    assert!(tuned < untuned / 3, "{untuned} {tuned}");
    let tuned: Vec<&Value> = said.iter().filter(|line| line["event"] == "tuned").collect();
    let bounded = tuned.iter().find(|line| line["state"] == "start-bounded");
    let pacing = bounded.and_then(|line| line["pacing_bps"].as_f64());
    assert!(pacing.is_some_and(|rate| rate > 5e7 && rate < 1.2e8), "{tuned:?}");
}
