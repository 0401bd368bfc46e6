//! `bankfull` sizes window and pacing for a path with a shallow queue: losses with and without
//! `--tune off`, and the reported decisions.

use super::{copies::program, measure_valid};
use bankfull_control::{Bytes, Rate};
use bankfull_lab::base::notify;
use bankfull_lab::model::plan::Plan;
use bankfull_lab::topology::hosts::Hosts;
use bankfull_lab::topology::network::Network;
use bankfull_sim::{Loss, PathConfig};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use tempfile::TempDir;

/// Size of the copied file in bytes: some three seconds.
const CONTENT_BYTES: usize = 30_000_000;

/// Copies of each kind, in turn: a stall of the machine for 20 ms fills the queue six times, and is
/// too short to void a run.
const COPIES: usize = 3;

/// Timeout. (chosen: no result depends on it)
const LIMIT: Duration = Duration::from_secs(60);

/// Process that is killed when dropped.
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

/// Daemon on a host, and its files.
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

    /// Output of a copy from another host to the daemon, or from it.
    fn copy(&self, other: usize, name: &str, is_push: bool, flags: &[&str]) -> Vec<Value> {
        let url = |name| format!("bankfull://{}:{}/{name}", Hosts::address(self.host), self.port);
        let at = |name: &str| self.scratch.path().join(name).to_str().unwrap().to_owned();
        let (from, to, there) = match is_push {
            true => (at("root/content"), url(name), at(&format!("root/{name}"))),
            false => (url("content"), at(name), at(name)),
        };
        let file = format!("{name}.json");
        let words = [&["cp", "--accept-new"], flags, &[&from, &to]].concat();
        let running = spawn(self.network, self.program, self.scratch.path(), other, &file, &words);
        let output = wait_for("the summary", || {
            let lines = lines(&self.scratch.path().join(&file));
            lines.iter().any(|line| line["event"] == "summary").then_some(lines)
        });
        drop(running);
        let all = fs::metadata(at("root/content")).unwrap().len();
        assert_eq!(fs::metadata(there).unwrap().len(), all);
        output
    }

    /// Output of the daemon.
    fn output(&self) -> Vec<Value> {
        lines(&self.scratch.path().join("daemon"))
    }
}

/// Starts the program on a host, with its output in a file.
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

/// Retransmitted segments of copies without and with tuning, and the daemon's output.
fn copies(network: &Network, program: &Path) -> ([Vec<u64>; 2], Vec<Value>) {
    let scene = Scene::start(network, program, network.receiver(), CONTENT_BYTES);
    let mut lost = [const { Vec::new() }; 2];
    for copy in 0..2 * COPIES {
        let tune = ["off", "auto"][copy % 2];
        let flags = ["--streams", "4", "--tune", tune];
        let output = scene.copy(0, &format!("{tune}-{copy}"), true, &flags);
        let summary = output.iter().find(|line| line["event"] == "summary").unwrap();
        lost[copy % 2].push(summary["retransmits"].as_u64().unwrap());
    }
    (lost, scene.output())
}

/// Tuning decisions of a copy.
#[derive(Debug)]
struct TuningHistory {
    /// Requested numbers of streams, in order.
    requested: Vec<u64>,
    /// Number of streams in total.
    total: u64,
    reasons: Vec<String>,
    /// Decided windows in bytes, in order.
    windows: Vec<u64>,
}

/// Tuning of copies with either side as the client.
fn histories(
    network: &Network,
    program: &Path,
    bytes: usize,
    flags: &[&str],
) -> Vec<TuningHistory> {
    let receiver = network.receiver();
    // Data flows in the same direction both times, pushed and pulled.
    let ways = [(receiver, 0, true), (0, receiver, false)];
    let of = |(daemon, other, is_push)| {
        let scene = Scene::start(network, program, daemon, bytes);
        let output = scene.copy(other, "copy", is_push, flags);
        let tuned = || output.iter().filter(|line| line["event"] == "tuning");
        let summary = output.iter().find(|line| line["event"] == "summary").unwrap();
        TuningHistory {
            requested: tuned().filter_map(|line| line["streams"].as_u64()).collect(),
            total: summary["streams"].as_u64().unwrap(),
            reasons: tuned().map(|line| line["reason"].as_str().unwrap().to_owned()).collect(),
            windows: tuned().filter_map(|line| line["window_bytes"].as_u64()).collect(),
        }
    };
    ways.into_iter().map(of).collect()
}

/// Tuning over a path with CUBIC; `None` if networks are not allowed.
fn histories_over(path: &PathConfig, bytes: usize, flags: &[&str]) -> Option<Vec<TuningHistory>> {
    let program = program()?;
    let plan = Plan { congestion: Some("cubic".to_owned()), ..Plan::path(path) };
    let (histories, _) =
        measure_valid(&plan, |network| histories(network, &program, bytes, flags))?;
    notify(&format!("tuning: {histories:?}"));
    Some(histories)
}

/// 100 Mbit/s and 30 ms with 1 % random loss.
fn lossy() -> PathConfig {
    let rate = Rate::from_bits_per_sec(1e8);
    let mut path = PathConfig::new(rate, Duration::from_millis(30), Bytes(400_000));
    path.forward.loss = Loss::Random { probability: 0.01 };
    path
}

#[test]
fn random_loss_adds_streams_from_either_client() {
    // An explicit congestion control is kept, so that BBR is not tried.
    let chosen = ["--congestion", "cubic"];
    let Some(histories) = histories_over(&lossy(), 50_000_000, &chosen) else { return };
    for TuningHistory { requested, total, .. } in histories {
        // The initial number is 8.
        assert!(requested.iter().any(|&count| count > 8) && total > 8, "{requested:?} {total}");
    }
}

#[test]
#[ignore = "measurement: make campaign"]
fn random_loss_switches_to_bbr_from_either_client() {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !known.is_ok_and(|known| known.split_whitespace().any(|name| name == "bbr")) {
        return println!("skipped: this host has no BBR");
    }
    let Some(histories) = histories_over(&lossy(), 50_000_000, &[]) else { return };
    for TuningHistory { reasons, .. } in histories {
        let has = |words: &str| reasons.iter().any(|reason| reason.contains(words));
        assert!(has("BBR may carry more") && has("BBR carries"), "{reasons:?}");
    }
}

#[test]
#[ignore = "measurement: make campaign"]
fn streams_rest_if_initial_windows_exceed_bdp() {
    let rate = Rate::from_bits_per_sec(1e7);
    let path = PathConfig::new(rate, Duration::from_millis(30), Bytes(20_000));
    let Some(histories) = histories_over(&path, 12_000_000, &[]) else { return };
    for TuningHistory { requested, total, .. } in histories {
        assert_eq!((requested.first(), total), (Some(&2), 8), "{requested:?}");
    }
}

#[test]
fn short_path_has_a_limit() {
    // 100 Mbit/s, 1 ms, and a queue of ten BDPs.
    let rate = Rate::from_bits_per_sec(1e8);
    let path = PathConfig::new(rate, Duration::from_millis(1), Bytes(125_000));
    let Some(histories) = histories_over(&path, 20_000_000, &[]) else { return };
    for TuningHistory { windows, reasons, .. } in histories {
        // BDP and queue together would be 137 500.
        assert!(windows.iter().any(|&window| window < 100_000), "{windows:?} {reasons:?}");
    }
}

#[test]
fn tuned_copy_does_not_overflow_shallow_queue() {
    let Some(program) = program() else { return };
    // 100 Mbit/s, 40 ms, and a queue of a tenth of the BDP.
    let rate = Rate::from_bits_per_sec(1e8);
    let path = PathConfig::new(rate, Duration::from_millis(40), Bytes(50_000));
    let plan = Plan { congestion: Some("cubic".to_owned()), ..Plan::path(&path) };
    let measured = measure_valid(&plan, |network| copies(network, &program));
    let Some((([mut untuned, mut tuned], output), _)) = measured else { return };
    notify(&format!("retransmitted segments: untuned {untuned:?}, tuned {tuned:?}"));
    untuned.sort_unstable();
    tuned.sort_unstable();
    let (untuned, tuned) = (untuned[COPIES / 2], tuned[COPIES / 2]);
    assert!(untuned > 50, "untuned it overflows: {untuned}");
    // The initial windows of all connections arrive at once, and may not fit.
    assert!(tuned < untuned / 3, "{untuned} {tuned}");
    let tuned: Vec<&Value> = output.iter().filter(|line| line["event"] == "tuning").collect();
    let bounded = tuned.iter().find(|line| line["state"] == "start-bounded");
    let pacing = bounded.and_then(|line| line["pacing_bps"].as_f64());
    assert!(pacing.is_some_and(|rate| rate > 5e7 && rate < 1.2e8), "{tuned:?}");
}
