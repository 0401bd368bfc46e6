//! Scenarios from the command line: program, files, tables, JSON and HTML report.

use super::{MACHINE, is_forbidden, too_busy};
use bankfull::IoMethod;
use bankfull_lab::base::notify;
use bankfull_lab::scenario;
use bankfull_lab::topology::hosts::{Hosts, HostsConfig};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_bankfull-lab");

/// Results of a scenario run in its own directory.
struct Ran {
    done: Output,
    json: Value,
    page: String,
}

impl Ran {
    /// Runs a scenario; `None`, with a message, if networks are not allowed.
    fn of(text: &str, flags: &[&str]) -> Option<Self> {
        let setup = HostsConfig { count: 1, ..HostsConfig::default() };
        if let Err(error) = Hosts::create(&setup) {
            assert!(is_forbidden(&error), "{error}");
            notify_skipped(&error.to_string());
            return None;
        }
        let _alone = MACHINE.alone();
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("small.toml"), text).unwrap();
        let done = Command::new(LAB)
            .arg("run")
            .arg(at("small.toml"))
            .args(flags)
            .arg("--work")
            .arg(dir.path())
            .arg("--json")
            .arg(at("out.json"))
            .arg("--report")
            .arg(at("out.html"))
            .output()
            .unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
        let json = serde_json::from_str(&read("out.json")).unwrap_or_default();
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 3, "only the requested files are left: {left:?}");
        Some(Self { done, json, page: read("out.html") })
    }

    fn out(&self) -> String {
        String::from_utf8_lossy(&self.done.stdout).into_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.done.stderr).into_owned()
    }

    fn contender(&self, condition: usize, contender: usize) -> &Value {
        &self.json["scenarios"][0]["conditions"][condition]["contenders"][contender]
    }
}

#[test]
fn contenders_run_in_turn_and_appear_in_all_reports() {
    let text = "title = 'small & <quick>'\n\
        [path]\nrate = '50mbit'\nrtt = '10ms'\n\
        [run]\nduration = '600ms'\nrepetitions = 2\n\
        [[cross-tcp]]\nflows = 1\nwindow = '16kB'\n\
        [[sweep]]\nkey = 'path.buffer'\nvalues = ['0.5bdp']\n\
        [[contender]]\ntool = 'tcp'\nstreams = 2\n\
        [[contender]]\nname = 'too much'\ntool = 'udp'\nload = 2.0\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let conditions = ran.json["scenarios"][0]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "{}", ran.err());
    // The order of the messages is the order of the runs.
    let err = ran.err();
    let lines = err.lines().filter(|line| line.starts_with("small 0.5bdp: "));
    let names: Vec<&str> =
        lines.map(|line| if line.contains("tcp") { "tcp" } else { "udp" }).collect();
    assert_eq!(names, ["tcp", "udp", "tcp", "udp"], "{err}");
    let (tcp, udp) = (ran.contender(0, 0), ran.contender(0, 1));
    for run in counting(tcp) {
        let goodput = run["metrics"]["goodput_bps"].as_f64().unwrap();
        assert!((5e6..49e6).contains(&goodput), "{goodput}");
        assert!(!run["series"]["arrived_bps"].as_array().unwrap().is_empty());
    }
    for run in counting(udp) {
        let lost = run["metrics"]["lost_share"].as_f64().unwrap();
        assert!(lost > 0.3, "half of it does not fit: {lost}");
    }
    assert!(ran.out().contains("| buffer | contender | runs"), "{}", ran.out());
    assert!(ran.page.contains("small &amp; &lt;quick&gt;") && ran.page.contains("<svg"));
}

/// Window-limited flows reach the same rate in the kernel, in the simulator and in ns-3.
#[test]
#[ignore = "measurement: make campaign"]
fn kernel_simulator_and_ns3_agree_on_windows() {
    let text = "title = 'windows'\n[path]\nrate = '100mbit'\nrtt = '58ms'\nbuffer = '75kB'\n\
        [run]\nduration = '4s'\nrepetitions = 1\ncongestion = 'reno'\nwindow = '64KiB'\n\
        [[cross-tcp]]\nflows = 3\nwindow = '16KiB'\n\
        [[sweep]]\nkey = 'run.streams'\nvalues = [1, 4]\n\
        [[contender]]\ntool = 'tcp'\n[[contender]]\ntool = 'model'\n[[contender]]\ntool = 'ns3'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let window = |kib: f64| kib * 1024.0 * 8.0 / 0.058;
    for (condition, streams) in [1.0, 4.0].into_iter().enumerate() {
        for contender in 0..3 {
            let found = ran.contender(condition, contender);
            for run in counting(found) {
                let metric = |name: &str| run["metrics"][name].as_f64().unwrap();
                let shares = [
                    metric("goodput_bps") / (streams * window(64.0)),
                    metric("cross_bps") / (3.0 * window(16.0)),
                ];
                // Slow start, and windows that are not a multiple of the segment size.
                let is_near = shares.iter().all(|share| (0.85..1.1).contains(share));
                assert!(is_near, "{streams} of {}: {shares:?}", found["tool"]);
            }
        }
    }
}

/// bankfull pushes, aria2 pulls.
#[test]
fn file_is_pushed_by_sender_or_pulled_by_receiver() {
    let text = "title = 'both'\n[path]\nrate = '100mbit'\nrtt = '10ms'\n\
        [senders]\ncount = 2\n[data]\nsize = '5MB'\n[run]\nrepetitions = 1\n\
        [[contender]]\ntool = 'bankfull'\n[[contender]]\ntool = 'aria2'\nstreams = 4\n";
    let logs = tempfile::tempdir().unwrap();
    let logs = logs.path();
    let Some(ran) = Ran::of(text, &["--logs", logs.to_str().unwrap()]) else { return };
    let events = fs::read_to_string(logs.join("small-bankfull-1-1.out")).unwrap();
    assert!(events.lines().last().unwrap().contains("\"summary\""), "{events}");
    for contender in [0, 1] {
        for run in counting(ran.contender(0, contender)) {
            let goodput = run["metrics"]["goodput_bps"].as_f64().unwrap();
            // Over the senders' links, not past them.
            assert!((1e6..100e6).contains(&goodput), "{run}");
            assert!(run["series"]["flows"].as_array().is_some_and(|flows| !flows.is_empty()));
        }
    }
}

#[test]
fn missing_tool_is_skipped_and_failure_has_reason() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [data]\nsize = '1kB'\n[run]\nrepetitions = 1\ntimeout = '5s'\n\
        [[contender]]\ntool = 'udt'\n[[contender]]\ntool = 'ping'\nflags = ['--no-such-flag']\n";
    let Some(ran) = Ran::of(text, &["--repeat", "2"]) else { return };
    let udt = ran.contender(0, 0);
    let lines = match udt["skipped"].as_str() {
        Some(why) => why.contains("is missing"),
        None => udt["runs"][0]["failed"].is_null(),
    };
    assert!(lines, "{udt}");
    let ping = ran.contender(0, 1);
    if let Some(why) = ping["skipped"].as_str() {
        notify_skipped(&format!("ping: {why}"));
    } else {
        assert_eq!(ping["runs"].as_array().unwrap().len(), 2);
        assert!(ping["runs"][0]["failed"].as_str().unwrap().contains("ping"), "{ping}");
        assert_eq!(ran.done.status.code(), Some(1));
    }
}

/// Each I/O method moves a whole file in both directions.
#[test]
fn io_methods_are_measured_over_veth() {
    let setup = HostsConfig { count: 1, ..HostsConfig::default() };
    if let Err(error) = Hosts::create(&setup) {
        assert!(is_forbidden(&error), "{error}");
        return notify_skipped(&error.to_string());
    }
    let _alone = MACHINE.alone();
    let dir = tempfile::tempdir().unwrap();
    // The default choice is one more method; two methods and byte-by-byte transfer can receive.
    let senders = IoMethod::ALL.into_iter().filter(|method| method.is_available()).count() + 1;
    for (flag, methods) in [(None, senders), (Some("--receive"), 4)] {
        let json = dir.path().join("io.json");
        let done = Command::new(LAB)
            .args(["io", "--size", "20kB", "--chunk", "4KiB", "--socket-buffer", "auto"])
            .args(["--repeat", "2", "--work"])
            .arg(dir.path())
            .arg("--json")
            .arg(&json)
            .arg("--svg")
            .arg(dir.path().join("svg"))
            .args(flag)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let lines: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let cells = lines["cells"].as_array().unwrap();
        assert_eq!(cells.len(), methods);
        for cell in cells {
            let runs = cell["runs"].as_array().unwrap();
            assert_eq!(runs.len(), 2, "{cell}");
            assert!(runs.iter().all(|run| run["seconds"].as_f64().unwrap() > 0.0));
        }
        assert_eq!(fs::read_dir(dir.path().join("svg")).unwrap().count(), 1);
    }
}

#[test]
fn invalid_scenario_is_refused_before_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.toml");
    fs::write(&file, "title = 'x'\n[path]\nrate = '1gbit'\n[[contender]]\ntool = 'tcp'").unwrap();
    let done = Command::new(LAB).arg("run").arg(&file).output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1));
    assert!(err.contains("wrong.toml") && err.contains("rtt") && err.lines().count() == 1, "{err}");
}

/// Valid runs of a contender; empty, with a message, if its tool is missing or all runs are void.
#[track_caller]
fn counting(contender: &Value) -> Vec<&Value> {
    let runs = contender["runs"].as_array().unwrap();
    if let Some(run) = runs.iter().find(|run| !run["failed"].is_null()) {
        panic!("{}: {}", contender["name"], run["failed"]);
    }
    if let Some(why) = contender["skipped"].as_str() {
        notify_skipped(&format!("{}: {why}", contender["name"]));
        return Vec::new();
    }
    assert!(!runs.is_empty(), "{contender}");
    let counting: Vec<&Value> = runs.iter().filter(|run| run["void"].is_null()).collect();
    if counting.is_empty() {
        too_busy();
    }
    counting
}

/// Reports what a test skips, and which test.
fn notify_skipped(what: &str) {
    let thread = thread::current();
    notify(&format!("skipped, in {}: {what}", thread.name().unwrap_or("a test")));
}

#[test]
#[ignore = "measurement: make campaign"]
fn tiny_queues_hold_requested_bytes() {
    let text = "title = 'small'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n\
        [run]\nduration = '1s'\nrepetitions = 1\n\
        [[sweep]]\nkey = 'path.buffer'\nvalues = ['0.1bdp', '3000B', '4500B']\n\
        [[contender]]\ntool = 'tcp'\n[[contender]]\ntool = 'model'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for (at, bytes) in [2500, 3000, 4500].into_iter().enumerate() {
        assert_eq!(ran.json["scenarios"][0]["conditions"][at]["buffer_bytes"], bytes);
        for contender in 0..2 {
            for run in counting(ran.contender(at, contender)) {
                let goodput = run["metrics"]["goodput_bps"].as_f64().unwrap();
                // A burst of two packets overflows a queue of one: little goodput, but not zero.
                assert!((1e5..9.7e6).contains(&goodput), "{bytes}: {goodput}");
                let queue = run["series"]["queue_bytes"].as_array().unwrap();
                let deepest = queue.iter().filter_map(Value::as_u64).max().unwrap_or_default();
                assert!(deepest <= bytes, "{bytes}: {deepest}");
            }
        }
    }
}

#[test]
fn missing_congestion_control_fails_its_contender_only() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\nduration = '200ms'\nrepetitions = 2\n\
        [[contender]]\nname = 'odd'\ntool = 'tcp'\ncongestion = 'nosuch'\n\
        [[contender]]\ntool = 'model'\n[[contender]]\ntool = 'tcp'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let odd = ran.contender(0, 0)["runs"].as_array().unwrap();
    assert_eq!(odd.len(), 2, "{}", ran.err());
    for run in odd {
        assert!(run["failed"].as_str().unwrap().contains("nosuch"), "{run}");
        assert_eq!((&run["network"], &run["attempts"]), (&Value::Null, &1.into()));
    }
    for other in [1, 2] {
        for run in counting(ran.contender(0, other)) {
            assert!(run["metrics"]["goodput_bps"].as_f64().unwrap() > 1e6, "{run}");
            assert!((1..=3).contains(&run["attempts"].as_u64().unwrap()));
        }
    }
    assert_eq!(ran.done.status.code(), Some(1));
    assert!(ran.out().contains("2 failed") && ran.page.contains("nosuch"), "{}", ran.out());
}

#[test]
#[ignore = "measurement: make campaign"]
fn incast_does_not_fill_port_with_shallow_queue() {
    let text = "title = 'small'\n[path]\nrate = '1gbit'\nrtt = '200us'\nbuffer = '64kB'\n\
        [senders]\ncount = 24\nrate = '1gbit'\n[run]\nrepetitions = 1\n\
        [[contender]]\ntool = 'incast'\nrounds = 10\nblock = '64KiB'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for run in counting(ran.contender(0, 0)) {
        let goodput = run["metrics"]["goodput_bps"].as_f64().unwrap();
        let retransmits = run["network"]["retransmits"].as_u64().unwrap();
        assert!((1e6..8e8).contains(&goodput), "{goodput} of 1 Gbit/s, {retransmits} retransmits");
        assert!(retransmits > 0, "no retransmits, at {goodput} bit/s");
    }
}

#[test]
fn only_named_contenders_run() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\nduration = '200ms'\nrepetitions = 1\n\
        [[contender]]\ntool = 'tcp'\n[[contender]]\nname = 'mine'\ntool = 'udp'\n";
    let Some(ran) = Ran::of(text, &["--only", "mine"]) else { return };
    let contenders = ran.json["scenarios"][0]["conditions"][0]["contenders"].as_array().unwrap();
    let names: Vec<&str> = contenders.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mine"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("small.toml");
    fs::write(&file, text).unwrap();
    let missing =
        Command::new(LAB).arg("run").arg(file).args(["--only", "missing"]).output().unwrap();
    let err = String::from_utf8_lossy(&missing.stderr);
    assert!(err.contains("no contender has the name \"missing\""), "{err}");
}

#[test]
fn generators_time_out() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\nduration = '500s'\ntimeout = '700ms'\nrepetitions = 1\n[[contender]]\ntool = 'tcp'\n\
        [[contender]]\ntool = 'udp'\n[[contender]]\ntool = 'incast'\nrounds = 100000000\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for at in 0..3 {
        let run = &ran.contender(0, at)["runs"][0];
        let why = run["failed"].as_str().unwrap();
        assert!(why.ends_with("timed out after 700ms"), "{why}");
    }
    assert_eq!(ran.done.status.code(), Some(1));
}

#[test]
fn ctrl_c_ends_run_and_keeps_results() {
    let setup = HostsConfig { count: 1, ..HostsConfig::default() };
    if let Err(error) = Hosts::create(&setup) {
        assert!(is_forbidden(&error), "{error}");
        return notify_skipped(&error.to_string());
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\ntimeout = '600s'\nrepetitions = 1\n\
        [[sweep]]\nkey = 'run.duration'\nvalues = ['300ms', '500s']\n[[contender]]\ntool = 'tcp'\n";
    fs::write(at("small.toml"), text).unwrap();
    let mut command = Command::new(LAB);
    command.arg("run").arg(at("small.toml")).arg("--work").arg(dir.path());
    command.arg("--json").arg(at("out.json")).stdout(Stdio::null()).stderr(Stdio::piped());
    let _alone = MACHINE.alone();
    let mut lab = command.spawn().unwrap();
    let mut lines = BufReader::new(lab.stderr.take().unwrap()).lines();
    let first = lines.find(|line| line.as_ref().unwrap().starts_with("small 300ms: tcp 1/1"));
    assert!(first.is_some(), "the short one was measured");
    // In the middle of the long run.
    thread::sleep(Duration::from_secs(1));
    let since = Instant::now();
    let sent = Command::new("kill").args(["-INT", &lab.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(lab.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(since.elapsed() < Duration::from_secs(30), "it took {:?}", since.elapsed());
    let json: Value = serde_json::from_str(&fs::read_to_string(at("out.json")).unwrap()).unwrap();
    let conditions = json["scenarios"][0]["conditions"].as_array().unwrap();
    let runs = |at: usize| conditions[at]["contenders"][0]["runs"].as_array().unwrap().len();
    assert_eq!((runs(0), runs(1)), (1, 0), "an interrupted attempt is not a run");
}

#[test]
#[ignore = "measurement: make campaign"]
fn several_senders_are_combined_for_each_tool() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '4ms'\nbuffer = '100kB'\n\
        [senders]\ncount = 3\nrate = '10mbit'\n\
        [run]\nduration = '2s'\nrepetitions = 1\n[[contender]]\ntool = 'tcp'\n\
        [[contender]]\ntool = 'iperf3'\nstreams = 2\n\
        [[contender]]\ntool = 'nuttcp'\nstreams = 2\n[[contender]]\ntool = 'ping'\n\
        [[contender]]\ntool = 'udp'\nload = 0.4\n[[contender]]\ntool = 'incast'\nrounds = 3\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let capacity = ran.json["scenarios"][0]["conditions"][0]["capacity_bps"].as_f64().unwrap();
    assert!((capacity - 30e6 * 1448.0 / 1500.0).abs() < 1.0, "three lines of 10: {capacity}");
    for (at, tool) in ["tcp", "iperf3", "nuttcp"].into_iter().enumerate() {
        for run in counting(ran.contender(0, at)) {
            let goodput = run["metrics"]["goodput_bps"].as_f64().unwrap();
            assert!((21e6..30e6).contains(&goodput), "{tool}: {goodput} of all three");
            let flows = run["series"]["flows"].as_array().unwrap();
            let from =
                |flow: &Value| flow["from"].as_str().unwrap().split(':').next().map(str::to_owned);
            let mut hosts: Vec<_> = flows.iter().map(from).collect();
            hosts.sort();
            hosts.dedup();
            assert_eq!(hosts.len(), 3, "{tool}: {hosts:?}");
        }
    }
    for run in counting(ran.contender(0, 3)) {
        let rtt: Vec<f64> = serde_json::from_value(run["metrics"]["rtt_seconds"].clone()).unwrap();
        assert!(rtt[0] <= rtt[1] && rtt[1] <= rtt[2] && rtt[0] >= 0.004, "{rtt:?}");
    }
    for run in counting(ran.contender(0, 4)) {
        // 20 Mbit/s from all three, each below the rate of its link.
        let arrived = run["series"]["arrived_bps"].as_array().unwrap();
        let most: f64 = arrived.iter().filter_map(Value::as_f64).sum::<f64>() / 200.0;
        assert!((17e6..22e6).contains(&most), "{most} bit/s over 2 s");
        assert!(run["metrics"]["lost_share"].as_f64().unwrap() < 0.01);
    }
    for run in counting(ran.contender(0, 5)) {
        assert_eq!(run["metrics"]["rounds"].as_array().unwrap().len(), 3);
    }
}

#[test]
#[ignore = "measurement: make campaign"]
fn datagrams_after_cut_are_counted_against_theory() {
    let text = "title = 'small'\n[path]\nrate = '20mbit'\nrtt = '2ms'\n\
        [run]\nduration = '4s'\nrepetitions = 1\n\
        [[sweep]]\nkey = 'path.cut'\nvalues = ['2s@1s']\n\
        [[contender]]\ntool = 'udp'\nload = 0.5\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for run in counting(ran.contender(0, 0)) {
        let lost = run["metrics"]["lost_share"].as_f64().unwrap();
        assert!((0.4..0.6).contains(&lost), "the path was cut for half of the time: {lost}");
    }
    let text = "title = 'small'\n[path]\nrate = '20mbit'\nrtt = '2ms'\n\
        [run]\nduration = '1s'\nrepetitions = 1\n[[contender]]\ntool = 'udp'\nload = 2.0\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for run in counting(ran.contender(0, 0)) {
        let metric = |name: &str| run["metrics"][name].as_f64().unwrap();
        let (lost, expected) = (metric("lost_share"), metric("expected_lost_share"));
        assert!((0.45..0.51).contains(&expected), "{expected}");
        assert!((lost - expected).abs() < 0.05, "{lost}, not {expected}");
    }
}

/// Messages discarded while a handler is idle for most of the time: with a small buffer, with a
/// tuned buffer, and with stop-and-wait clients. In 80 ms of idle time, 3.2 MB arrive, more than
/// the lower bound of the grown buffer; its upper bound depends on free memory.
#[test]
#[ignore = "measurement: make campaign"]
fn service_discards_on_full_buffer_and_tuned_buffer_recovers() {
    let text = "title = 'small'\n[path]\nrate = '400mbit'\nrtt = '2ms'\nbuffer = '4MB'\n\
        [senders]\ncount = 4\n\
        [run]\nduration = '1500ms'\nrepetitions = 1\ncpu = 0.2\n\
        [[contender]]\nname = 'small'\ntool = 'datagrams'\nload = 0.8\nreceive-buffer = '100kB'\n\
        [[contender]]\nname = 'follows'\ntool = 'datagrams'\nload = 0.8\n\
        [[contender]]\nname = 'waits'\ntool = 'datagrams'\nreceive-buffer = '100kB'\nmessage = '20kB'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let metric = |run: &Value, name: &str| run["metrics"]["service"][name].as_f64().unwrap();
    for contender in 0..3 {
        for run in counting(ran.contender(0, contender)) {
            let of = |name| metric(run, name);
            assert!(
                of("received") > 0.0 && of("received") + of("discarded") == of("sent"),
                "{run}"
            );
            let share = of("discarded") / of("sent");
            assert!((of("discarded_share") - share).abs() < 1e-9, "{run}");
            assert!(of("cpu_seconds_per_gbit") > 0.0, "{run}");
            assert_eq!(run["network"]["socket_drops"].as_f64(), Some(of("discarded")), "{run}");
            assert!(run["metrics"]["goodput_bps"].as_f64().unwrap() > 1e6, "{run}");
        }
    }
    for run in counting(ran.contender(0, 0)) {
        assert!(metric(run, "discarded_share") > 0.2, "{run}");
        assert!(metric(run, "retransmits") == 0.0 && metric(run, "duplicates") == 0.0, "{run}");
        assert!(run["metrics"]["service"]["shrink_seconds"].is_null(), "it has one size: {run}");
    }
    for run in counting(ran.contender(0, 1)) {
        let least = 1024.0 * 1024.0;
        assert!(metric(run, "buffer_max_bytes") > 2.0 * least, "{run}");
        assert!(metric(run, "buffer_last_bytes") <= 2.0 * least, "{run}");
        assert!(metric(run, "shrink_seconds") < 10.0, "{run}");
    }
    for run in counting(ran.contender(0, 2)) {
        assert!(metric(run, "sent") >= metric(run, "retransmits") + 4.0, "{run}");
    }
    assert!(ran.out().contains("| discarded |"), "{}", ran.out());
    assert!(ran.page.contains("Receive buffer of the service"));
}

#[test]
fn list_with_broken_file_continues_then_fails() {
    let dir = tempfile::tempdir().unwrap();
    let good = "title = 'fine'\n[path]\npreset = 'lan'\n[[contender]]\ntool = 'tcp'\n";
    for (name, text) in [("a.toml", good), ("b.toml", "title = 3"), ("c.toml", good)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let done = Command::new(LAB).arg("list").arg(dir.path()).output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(out.contains("a.toml") && out.contains("c.toml") && !out.contains("b.toml"), "{out}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("b.toml"));
    assert_eq!(done.status.code(), Some(1));
}

/// All scenarios of the repository are valid and have titles.
#[test]
fn all_experiments_are_valid_and_listed() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let done = Command::new(LAB).arg("list").arg(&dir).output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let listed: Vec<PathBuf> =
        out.lines().filter(|line| line.ends_with(".toml")).map(PathBuf::from).collect();
    assert!(listed.len() >= 15, "{out}");
    for file in listed {
        let scenario = scenario::read(&file).unwrap();
        assert_ne!(scenario.title, "conformance", "{}", scenario.name);
        assert!(!scenario.title.starts_with("a scenario"), "{}", scenario.name);
    }
}
