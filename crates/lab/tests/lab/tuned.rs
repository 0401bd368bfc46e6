//! `bankfull` sizes window and pacing to a path with a shallow queue: what it loses there with
//! `--tune off` and without, and that it says what it does.

use super::{believed, copies::program};
use bankfull_control::{Bytes, Rate};
use bankfull_lab::hosts::Hosts;
use bankfull_lab::network::{Network, Plan};
use bankfull_lab::say;
use bankfull_sim::{Loss, PathConfig};
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

/// A daemon on a host of a network, and what is copied to it or from it.
struct Scene<'n> {
    network: &'n Network,
    program: &'n Path,
    scratch: TempDir,
    host: usize,
    port: u64,
    _daemon: Running,
}

impl<'n> Scene<'n> {
    fn start(network: &'n Network, program: &'n Path, host: usize, bytes: usize) -> Self {
        let scratch = TempDir::with_prefix("bankfull-lab-").unwrap();
        let mut content = vec![0; bytes];
        fastrand::Rng::with_seed(7).fill(&mut content);
        fs::create_dir(scratch.path().join("root")).unwrap();
        fs::write(scratch.path().join("root/content"), content).unwrap();
        let listen = format!("{}:0", Hosts::address(host));
        let root = scratch.path().join("root");
        let words = ["serve", root.to_str().unwrap(), "--listen", &listen];
        let daemon = spawn(network, program, scratch.path(), host, "daemon", &words);
        let port = wait_for("the port", || {
            lines(&scratch.path().join("daemon")).first()?["port"].as_u64()
        });
        Self { network, program, scratch, host, port, _daemon: daemon }
    }

    /// What a copy from another host to it, or from it to there, said.
    fn copy(&self, other: usize, name: &str, is_push: bool, flags: &[&str]) -> Vec<Value> {
        let url = |name| format!("bankfull://{}:{}/{name}", Hosts::address(self.host), self.port);
        let at = |name: &str| self.scratch.path().join(name).to_str().unwrap().to_owned();
        let (from, to, there) = match is_push {
            true => (at("root/content"), url(name), at(&format!("root/{name}"))),
            false => (url("content"), at(name), at(name)),
        };
        let said = format!("{name}.json");
        let words = [&["cp", "--accept-new"], flags, &[&from, &to]].concat();
        let running = spawn(self.network, self.program, self.scratch.path(), other, &said, &words);
        let said = wait_for("the summary", || {
            let lines = lines(&self.scratch.path().join(&said));
            lines.iter().any(|line| line["event"] == "summary").then_some(lines)
        });
        drop(running);
        let all = fs::metadata(at("root/content")).unwrap().len();
        assert_eq!(fs::metadata(there).unwrap().len(), all);
        said
    }

    /// What the daemon said.
    fn said(&self) -> Vec<Value> {
        lines(&self.scratch.path().join("daemon"))
    }
}

/// Runs the program on a host; what it says goes to a file.
fn spawn(
    network: &Network,
    program: &Path,
    dir: &Path,
    host: usize,
    out: &str,
    words: &[&str],
) -> Running {
    let mut command = Command::new(program);
    command.args(words).arg("--json").arg("--state-dir").arg(dir.join("state"));
    command.stdin(Stdio::null()).stdout(fs::File::create(dir.join(out)).unwrap());
    Running(network.hosts().spawn(host, &mut command).unwrap())
}

/// The segments that copies which are not tuned had to send again, and those which are, and what
/// the daemon said.
fn copies(network: &Network, program: &Path) -> ([Vec<u64>; 2], Vec<Value>) {
    let scene = Scene::start(network, program, network.receiver(), CONTENT_BYTES);
    let mut lost = [const { Vec::new() }; 2];
    for copy in 0..2 * COPIES {
        let tune = ["off", "auto"][copy % 2];
        let flags = ["--streams", "4", "--tune", tune];
        let said = scene.copy(0, &format!("{tune}-{copy}"), true, &flags);
        let summary = said.iter().find(|line| line["event"] == "summary").unwrap();
        lost[copy % 2].push(summary["retransmits"].as_u64().unwrap());
    }
    (lost, scene.said())
}

/// What a copy tuned of its connections.
#[derive(Debug)]
struct Course {
    /// How many were asked for, one after another.
    asked: Vec<u64>,
    /// How many it had in all.
    had: u64,
    reasons: Vec<String>,
}

/// What copies tune, up and down a path.
fn courses(network: &Network, program: &Path, bytes: usize, flags: &[&str]) -> Vec<Course> {
    let receiver = network.receiver();
    // Data goes the same way both times; whoever connects is on the one side and on the other.
    let ways = [(receiver, 0, true), (0, receiver, false)];
    let of = |(daemon, other, is_push)| {
        let scene = Scene::start(network, program, daemon, bytes);
        let said = scene.copy(other, "copy", is_push, flags);
        let tuned = || said.iter().filter(|line| line["event"] == "tuned");
        let summary = said.iter().find(|line| line["event"] == "summary").unwrap();
        Course {
            asked: tuned().filter_map(|line| line["streams"].as_u64()).collect(),
            had: summary["streams"].as_u64().unwrap(),
            reasons: tuned().map(|line| line["reason"].as_str().unwrap().to_owned()).collect(),
        }
    };
    ways.into_iter().map(of).collect()
}

/// The same over such a path with CUBIC; `None` where it cannot be tried.
fn courses_over(path: &PathConfig, bytes: usize, flags: &[&str]) -> Option<Vec<Course>> {
    let program = program()?;
    let plan = Plan { congestion: Some("cubic".to_owned()), ..Plan::path(path) };
    let (courses, _) = believed(&plan, |network| courses(network, &program, bytes, flags))?;
    say(&format!("what was tuned: {courses:?}"));
    Some(courses)
}

/// 100 Mbit/s and 30 ms, of which one segment in a hundred is lost.
fn lossy() -> PathConfig {
    let rate = Rate::from_bits_per_sec(1e8);
    let mut path = PathConfig::new(rate, Duration::from_millis(30), Bytes(400_000));
    path.forward.loss = Loss::Random { probability: 0.01 };
    path
}

#[test]
fn connections_are_added_on_a_path_that_loses_at_random_whoever_makes_them() {
    // What the user chooses stays, so that BBR is not tried.
    let chosen = ["--congestion", "cubic"];
    let Some(courses) = courses_over(&lossy(), 50_000_000, &chosen) else { return };
    for Course { asked, had, .. } in courses {
        // It begins with 8.
        assert!(asked.iter().any(|&count| count > 8) && had > 8, "{asked:?} {had}");
    }
}

#[test]
fn on_a_path_that_loses_at_random_bbr_is_tried_and_kept_whoever_connects() {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !known.is_ok_and(|known| known.split_whitespace().any(|name| name == "bbr")) {
        return println!("skipped: this host gives no BBR");
    }
    let Some(courses) = courses_over(&lossy(), 50_000_000, &[]) else { return };
    for Course { reasons, .. } in courses {
        let has = |words: &str| reasons.iter().any(|reason| reason.contains(words));
        assert!(has("BBR may carry more") && has("BBR carries"), "{reasons:?}");
    }
}

#[test]
fn connections_rest_where_their_first_windows_are_more_than_the_path_whoever_made_them() {
    let rate = Rate::from_bits_per_sec(1e7);
    let path = PathConfig::new(rate, Duration::from_millis(30), Bytes(20_000));
    let Some(courses) = courses_over(&path, 12_000_000, &[]) else { return };
    for Course { asked, had, .. } in courses {
        assert_eq!((asked.first(), had), (Some(&2), 8), "{asked:?}");
    }
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
