//! Scenarios as a user runs them: the program, files, tables, JSON and the page.

use super::{MACHINE, is_forbidden, too_busy};
use bankfull::IoMethod;
use bankfull_lab::hosts::{Hosts, Setup};
use bankfull_lab::{say, scenario};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_bankfull-lab");

/// A scenario in a directory of its own, and what came of running it.
struct Ran {
    done: Output,
    json: Value,
    page: String,
}

impl Ran {
    /// `None`, with a word, where nobody may make networks.
    fn of(text: &str, flags: &[&str]) -> Option<Self> {
        let setup = Setup { count: 1, ..Setup::default() };
        if let Err(error) = Hosts::create(&setup) {
            assert!(is_forbidden(&error), "{error}");
            say_skipped(&error.to_string());
            return None;
        }
        let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
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
        assert_eq!(left.len(), 3, "only what was asked for is left: {left:?}");
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
fn contenders_run_in_turn_and_are_told_in_tables_json_and_a_page() {
    let text = "title = 'small & <quick>'\n\
        [path]\nrate = '50mbit'\nrtt = '10ms'\n\
        [run]\ntime = '600ms'\nrepetitions = 2\n\
        [[cross-tcp]]\nflows = 1\nwindow = '16kB'\n\
        [[sweep]]\nkey = 'path.buffer'\nvalues = ['0.5bdp', '1bdp']\n\
        [[contender]]\ntool = 'tcp'\nstreams = 2\n\
        [[contender]]\nname = 'too much'\ntool = 'udp'\nload = 2.0\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let conditions = ran.json["scenarios"][0]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2, "{}", ran.err());
    // The order of the words to the user is the order of running: in turn.
    let err = ran.err();
    let told = err.lines().filter(|line| line.starts_with("small 0.5bdp: "));
    let names: Vec<&str> =
        told.map(|line| if line.contains("tcp") { "tcp" } else { "udp" }).collect();
    assert_eq!(names, ["tcp", "udp", "tcp", "udp"], "{err}");
    for condition in 0..2 {
        let (tcp, udp) = (ran.contender(condition, 0), ran.contender(condition, 1));
        for run in counting(tcp) {
            let goodput = run["figures"]["goodput_bps"].as_f64().unwrap();
            assert!((5e6..49e6).contains(&goodput), "{goodput}");
            assert!(!run["series"]["arrived_bps"].as_array().unwrap().is_empty());
        }
        for run in counting(udp) {
            let lost = run["figures"]["lost_share"].as_f64().unwrap();
            assert!(lost > 0.3, "half of it does not fit: {lost}");
        }
    }
    assert!(ran.out().contains("| buffer | contender | runs"), "{}", ran.out());
    assert!(ran.page.contains("small &amp; &lt;quick&gt;") && ran.page.contains("<svg"));
}

/// Flows that only their windows limit, whoever lets them flow: the kernel, our model, or ns-3.
#[test]
fn the_kernel_the_model_and_ns3_agree_on_windows_and_what_flows_beside() {
    let text = "title = 'windows'\n[path]\nrate = '100mbit'\nrtt = '58ms'\nbuffer = '75kB'\n\
        [run]\ntime = '4s'\nrepetitions = 1\ncongestion = 'reno'\nwindow = '64KiB'\n\
        [[cross-tcp]]\nflows = 3\nwindow = '16KiB'\n\
        [[sweep]]\nkey = 'run.streams'\nvalues = [1, 4]\n\
        [[contender]]\ntool = 'tcp'\n[[contender]]\ntool = 'model'\n[[contender]]\ntool = 'ns3'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let window = |kib: f64| kib * 1024.0 * 8.0 / 0.058;
    for (condition, streams) in [1.0, 4.0].into_iter().enumerate() {
        for contender in 0..3 {
            let found = ran.contender(condition, contender);
            for run in counting(found) {
                let figure = |name: &str| run["figures"][name].as_f64().unwrap();
                let shares = [
                    figure("goodput_bps") / (streams * window(64.0)),
                    figure("beside_bps") / (3.0 * window(16.0)),
                ];
                // Slow start, and windows that are no whole segments.
                let is_near = shares.iter().all(|share| (0.85..1.1).contains(share));
                assert!(is_near, "{streams} of {}: {shares:?}", found["tool"]);
            }
        }
    }
}

/// Whoever begins it: bankfull gives, aria2 fetches.
#[test]
fn a_file_is_given_by_its_sender_or_fetched_by_its_receiver() {
    let text = "title = 'both'\n[path]\nrate = '100mbit'\nrtt = '10ms'\n\
        [senders]\ncount = 2\n[data]\nsize = '5MB'\n[run]\nrepetitions = 1\n\
        [[contender]]\ntool = 'bankfull'\n[[contender]]\ntool = 'aria2'\nstreams = 4\n";
    let said = tempfile::tempdir().unwrap();
    let said = said.path();
    let Some(ran) = Ran::of(text, &["--said", said.to_str().unwrap()]) else { return };
    let events = fs::read_to_string(said.join("small-bankfull-1-1.out")).unwrap();
    assert!(events.lines().last().unwrap().contains("\"summary\""), "{events}");
    for contender in [0, 1] {
        for run in counting(ran.contender(0, contender)) {
            let goodput = run["figures"]["goodput_bps"].as_f64().unwrap();
            // Through the line from the senders, not beside it.
            assert!((1e6..100e6).contains(&goodput), "{run}");
            assert!(run["series"]["flows"].as_array().is_some_and(|flows| !flows.is_empty()));
        }
    }
}

#[test]
fn what_is_missing_is_skipped_and_what_fails_is_told_with_its_reason() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [data]\nsize = '1kB'\n[run]\nrepetitions = 1\nlimit = '5s'\n\
        [[contender]]\ntool = 'udt'\n[[contender]]\ntool = 'ping'\nflags = ['--no-such-flag']\n";
    let Some(ran) = Ran::of(text, &["--repeat", "2"]) else { return };
    let udt = ran.contender(0, 0);
    let told = match udt["skipped"].as_str() {
        Some(why) => why.contains("is missing"),
        None => udt["runs"][0]["failed"].is_null(),
    };
    assert!(told, "{udt}");
    let ping = ran.contender(0, 1);
    if let Some(why) = ping["skipped"].as_str() {
        say_skipped(&format!("ping: {why}"));
    } else {
        assert_eq!(ping["runs"].as_array().unwrap().len(), 2);
        assert!(ping["runs"][0]["failed"].as_str().unwrap().contains("ping"), "{ping}");
        assert_eq!(ran.done.status.code(), Some(1));
    }
}

/// Every engine moves all of a file, in both directions.
#[test]
fn block_engines_are_measured_over_a_cable() {
    let setup = Setup { count: 1, ..Setup::default() };
    if let Err(error) = Hosts::create(&setup) {
        assert!(is_forbidden(&error), "{error}");
        return say_skipped(&error.to_string());
    }
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    // What is chosen of them is one more; two of them receive, and byte by byte does.
    let senders = IoMethod::ALL.into_iter().filter(|engine| engine.is_available()).count() + 1;
    for (flag, engines) in [(None, senders), (Some("--receive"), 4)] {
        let json = dir.path().join("io.json");
        let done = Command::new(LAB)
            .args(["io", "--size", "20kB", "--block", "4KiB", "--socket-buffer", "auto"])
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
        let told: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let cells = told["cells"].as_array().unwrap();
        assert_eq!(cells.len(), engines);
        for cell in cells {
            let runs = cell["runs"].as_array().unwrap();
            assert_eq!(runs.len(), 2, "{cell}");
            assert!(runs.iter().all(|run| run["seconds"].as_f64().unwrap() > 0.0));
        }
        assert_eq!(fs::read_dir(dir.path().join("svg")).unwrap().count(), 1);
    }
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.toml");
    fs::write(&file, "title = 'x'\n[path]\nrate = '1gbit'\n[[contender]]\ntool = 'tcp'").unwrap();
    let done = Command::new(LAB).arg("run").arg(&file).output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1));
    assert!(err.contains("wrong.toml") && err.contains("rtt") && err.lines().count() == 1, "{err}");
}

/// Runs of a contender that count; none, with a word, where its tool is missing or all are void.
#[track_caller]
fn counting(contender: &Value) -> Vec<&Value> {
    let runs = contender["runs"].as_array().unwrap();
    if let Some(run) = runs.iter().find(|run| !run["failed"].is_null()) {
        panic!("{}: {}", contender["name"], run["failed"]);
    }
    if let Some(why) = contender["skipped"].as_str() {
        say_skipped(&format!("{}: {why}", contender["name"]));
        return Vec::new();
    }
    assert!(!runs.is_empty(), "{contender}");
    let counting: Vec<&Value> = runs.iter().filter(|run| run["void"].is_null()).collect();
    if counting.is_empty() {
        too_busy();
    }
    counting
}

/// Says what a test does not look at here, and which test.
fn say_skipped(what: &str) {
    let thread = thread::current();
    say(&format!("skipped, in {}: {what}", thread.name().unwrap_or("a test")));
}

#[test]
fn queues_of_very_few_packets_are_as_shallow_as_they_were_asked_for() {
    let text = "title = 'small'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n\
        [run]\ntime = '1s'\nrepetitions = 1\n\
        [[sweep]]\nkey = 'path.buffer'\nvalues = ['0.1bdp', '3000B', '4500B']\n\
        [[contender]]\ntool = 'tcp'\n[[contender]]\ntool = 'model'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for (at, bytes) in [2500, 3000, 4500].into_iter().enumerate() {
        assert_eq!(ran.json["scenarios"][0]["conditions"][at]["buffer_bytes"], bytes);
        for contender in 0..2 {
            for run in counting(ran.contender(at, contender)) {
                let goodput = run["figures"]["goodput_bps"].as_f64().unwrap();
                // A burst of two does not fit into the queue of one: there is little, not nothing.
                assert!((1e5..9.7e6).contains(&goodput), "{bytes}: {goodput}");
                let queue = run["series"]["queue_bytes"].as_array().unwrap();
                let deepest = queue.iter().filter_map(Value::as_u64).max().unwrap_or_default();
                assert!(deepest <= bytes, "{bytes}: {deepest}");
            }
        }
    }
}

#[test]
fn a_congestion_control_that_is_not_there_fails_its_contender_only() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\ntime = '200ms'\nrepetitions = 2\n\
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
            assert!(run["figures"]["goodput_bps"].as_f64().unwrap() > 1e6, "{run}");
            assert!((1..=3).contains(&run["attempts"].as_u64().unwrap()));
        }
    }
    assert_eq!(ran.done.status.code(), Some(1));
    assert!(ran.out().contains("2 failed") && ran.page.contains("nosuch"), "{}", ran.out());
}

#[test]
fn many_senders_at_once_do_not_fill_a_port_with_a_shallow_queue() {
    let text = "title = 'small'\n[path]\nrate = '1gbit'\nrtt = '200us'\nbuffer = '64kB'\n\
        [senders]\ncount = 24\nrate = '1gbit'\n[run]\nrepetitions = 1\n\
        [[contender]]\ntool = 'incast'\nrounds = 10\nblock = '64KiB'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for run in counting(ran.contender(0, 0)) {
        let goodput = run["figures"]["goodput_bps"].as_f64().unwrap();
        let again = run["network"]["retransmitted"].as_u64().unwrap();
        assert!((1e6..8e8).contains(&goodput), "{goodput} of 1 Gbit/s, {again} sent again");
        assert!(again > 0, "none was sent again, at {goodput} bit/s");
    }
}

#[test]
fn only_those_run_that_are_named() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\ntime = '200ms'\nrepetitions = 1\n\
        [[contender]]\ntool = 'tcp'\n[[contender]]\nname = 'mine'\ntool = 'udp'\n";
    let Some(ran) = Ran::of(text, &["--only", "mine"]) else { return };
    let contenders = ran.json["scenarios"][0]["conditions"][0]["contenders"].as_array().unwrap();
    let names: Vec<&str> = contenders.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mine"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("small.toml");
    fs::write(&file, text).unwrap();
    let nobody =
        Command::new(LAB).arg("run").arg(file).args(["--only", "nobody"]).output().unwrap();
    let err = String::from_utf8_lossy(&nobody.stderr);
    assert!(err.contains("no contender is called \"nobody\""), "{err}");
}

#[test]
fn sources_are_given_up_at_the_limit() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\ntime = '500s'\nlimit = '700ms'\nrepetitions = 1\n[[contender]]\ntool = 'tcp'\n\
        [[contender]]\ntool = 'udp'\n[[contender]]\ntool = 'incast'\nrounds = 100000000\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for at in 0..3 {
        let run = &ran.contender(0, at)["runs"][0];
        let why = run["failed"].as_str().unwrap();
        assert!(why.ends_with("given up after 700ms"), "{why}");
    }
    assert_eq!(ran.done.status.code(), Some(1));
}

#[test]
fn ctrl_c_ends_a_run_soon_and_keeps_what_was_measured() {
    let setup = Setup { count: 1, ..Setup::default() };
    if let Err(error) = Hosts::create(&setup) {
        assert!(is_forbidden(&error), "{error}");
        return say_skipped(&error.to_string());
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [run]\nlimit = '600s'\nrepetitions = 1\n\
        [[sweep]]\nkey = 'run.time'\nvalues = ['300ms', '500s']\n[[contender]]\ntool = 'tcp'\n";
    fs::write(at("small.toml"), text).unwrap();
    let mut command = Command::new(LAB);
    command.arg("run").arg(at("small.toml")).arg("--work").arg(dir.path());
    command.arg("--json").arg(at("out.json")).stdout(Stdio::null()).stderr(Stdio::piped());
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let mut lab = command.spawn().unwrap();
    let mut lines = BufReader::new(lab.stderr.take().unwrap()).lines();
    let first = lines.find(|line| line.as_ref().unwrap().starts_with("small 300ms: tcp 1/1"));
    assert!(first.is_some(), "the short one was measured");
    // Into the middle of the long one.
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
    assert_eq!((runs(0), runs(1)), (1, 0), "what was cut short is no run");
}

#[test]
fn several_senders_are_measured_together_with_every_tool() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '4ms'\nbuffer = '100kB'\n\
        [senders]\ncount = 3\nrate = '10mbit'\n\
        [run]\ntime = '2s'\nrepetitions = 1\n[[contender]]\ntool = 'tcp'\n\
        [[contender]]\ntool = 'iperf3'\nstreams = 2\n\
        [[contender]]\ntool = 'nuttcp'\nstreams = 2\n[[contender]]\ntool = 'ping'\n\
        [[contender]]\ntool = 'udp'\nload = 0.4\n[[contender]]\ntool = 'incast'\nrounds = 3\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let capacity = ran.json["scenarios"][0]["conditions"][0]["capacity_bps"].as_f64().unwrap();
    assert!((capacity - 30e6 * 1448.0 / 1500.0).abs() < 1.0, "three lines of 10: {capacity}");
    for (at, tool) in ["tcp", "iperf3", "nuttcp"].into_iter().enumerate() {
        for run in counting(ran.contender(0, at)) {
            let goodput = run["figures"]["goodput_bps"].as_f64().unwrap();
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
        let rtt: Vec<f64> = serde_json::from_value(run["figures"]["rtt_seconds"].clone()).unwrap();
        assert!(rtt[0] <= rtt[1] && rtt[1] <= rtt[2] && rtt[0] >= 0.004, "{rtt:?}");
    }
    for run in counting(ran.contender(0, 4)) {
        // 20 Mbit/s of all three, each with less than its line carries.
        let arrived = run["series"]["arrived_bps"].as_array().unwrap();
        let most: f64 = arrived.iter().filter_map(Value::as_f64).sum::<f64>() / 200.0;
        assert!((17e6..22e6).contains(&most), "{most} bit/s over 2 s");
        assert!(run["figures"]["lost_share"].as_f64().unwrap() < 0.01);
    }
    for run in counting(ran.contender(0, 5)) {
        assert_eq!(run["figures"]["rounds"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn datagrams_behind_a_cut_are_counted_and_what_must_be_lost_is_told() {
    let text = "title = 'small'\n[path]\nrate = '20mbit'\nrtt = '2ms'\n\
        [run]\ntime = '4s'\nrepetitions = 1\n\
        [[sweep]]\nkey = 'path.cut'\nvalues = ['2s@1s']\n\
        [[contender]]\ntool = 'udp'\nload = 0.5\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for run in counting(ran.contender(0, 0)) {
        let lost = run["figures"]["lost_share"].as_f64().unwrap();
        assert!((0.4..0.6).contains(&lost), "the path was cut for half of the time: {lost}");
    }
    let text = "title = 'small'\n[path]\nrate = '20mbit'\nrtt = '2ms'\n\
        [run]\ntime = '1s'\nrepetitions = 1\n[[contender]]\ntool = 'udp'\nload = 2.0\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    for run in counting(ran.contender(0, 0)) {
        let figure = |name: &str| run["figures"][name].as_f64().unwrap();
        let (lost, expected) = (figure("lost_share"), figure("expected_lost_share"));
        assert!((0.45..0.51).contains(&expected), "{expected}");
        assert!((lost - expected).abs() < 0.05, "{lost}, not {expected}");
    }
}

/// What a handler that stands still for most of the time misses: with little room, with as much as
/// it asks for, and of clients that wait for their answers. While it stands still for 80 ms, 3.2 MB
/// come, more than the buffer is to grow to at least, however little of the memory is free: what
/// there is room for beside them depends on that.
#[test]
fn a_service_discards_what_finds_no_room_and_its_buffer_grows_with_the_load_and_comes_back() {
    let text = "title = 'small'\n[path]\nrate = '400mbit'\nrtt = '2ms'\nbuffer = '4MB'\n\
        [senders]\ncount = 4\n\
        [run]\ntime = '1500ms'\nrepetitions = 1\ncpu = 0.2\n\
        [[contender]]\nname = 'small'\ntool = 'datagrams'\nload = 0.8\nreceive-buffer = '100kB'\n\
        [[contender]]\nname = 'follows'\ntool = 'datagrams'\nload = 0.8\n\
        [[contender]]\nname = 'waits'\ntool = 'datagrams'\nreceive-buffer = '100kB'\nmessage = '20kB'\n";
    let Some(ran) = Ran::of(text, &[]) else { return };
    let figure = |run: &Value, name: &str| run["figures"]["service"][name].as_f64().unwrap();
    for contender in 0..3 {
        for run in counting(ran.contender(0, contender)) {
            let of = |name| figure(run, name);
            assert!(of("taken") > 0.0 && of("taken") + of("discarded") == of("sent"), "{run}");
            let share = of("discarded") / of("sent");
            assert!((of("discarded_share") - share).abs() < 1e-9, "{run}");
            assert!(of("cpu_seconds_per_gbit") > 0.0, "{run}");
            assert_eq!(run["network"]["socket_drops"].as_f64(), Some(of("discarded")), "{run}");
            assert!(run["figures"]["goodput_bps"].as_f64().unwrap() > 1e6, "{run}");
        }
    }
    for run in counting(ran.contender(0, 0)) {
        assert!(figure(run, "discarded_share") > 0.2, "{run}");
        assert!(figure(run, "again") == 0.0 && figure(run, "repeated") == 0.0, "{run}");
        assert!(run["figures"]["service"]["back_seconds"].is_null(), "it has one size: {run}");
    }
    for run in counting(ran.contender(0, 1)) {
        let least = 1024.0 * 1024.0;
        assert!(figure(run, "buffer_max_bytes") > 2.0 * least, "{run}");
        assert!(figure(run, "buffer_end_bytes") <= 2.0 * least, "{run}");
        assert!(figure(run, "back_seconds") < 10.0, "{run}");
    }
    for run in counting(ran.contender(0, 2)) {
        assert!(figure(run, "sent") >= figure(run, "again") + 4.0, "{run}");
    }
    assert!(ran.out().contains("| discarded |"), "{}", ran.out());
    assert!(ran.page.contains("Receive buffer of the service"));
}

#[test]
fn a_list_goes_on_past_a_broken_file_and_fails_at_its_end() {
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

/// The scenarios of the repository can be read, and their names say what they are.
#[test]
fn all_experiments_can_be_read_and_are_listed() {
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
