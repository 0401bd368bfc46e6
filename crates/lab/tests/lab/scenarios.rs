//! Scenarios as a user runs them: the program, files, tables, JSON and the page.

use super::is_forbidden;
use bankfull_lab::hosts::Hosts;
use bankfull_lab::{say, scenario};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
        let setup =
            bankfull_lab::hosts::Setup { count: 1, congestion: None, tcp_buffer_bytes: None };
        if let Err(error) = Hosts::create(&setup) {
            assert!(is_forbidden(&error), "{error}");
            say(&format!("skipped: {error}"));
            return None;
        }
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
        for run in tcp["runs"].as_array().unwrap().iter().filter(|run| run["void"].is_null()) {
            let goodput = run["figures"]["goodput_bps"].as_f64().unwrap();
            assert!((5e6..49e6).contains(&goodput), "{goodput}");
            assert!(!run["series"]["arrived_bps"].as_array().unwrap().is_empty());
        }
        for run in udp["runs"].as_array().unwrap().iter().filter(|run| run["void"].is_null()) {
            let lost = run["figures"]["lost_share"].as_f64().unwrap();
            assert!(lost > 0.3, "half of it does not fit: {lost}");
        }
    }
    assert!(ran.out().contains("| buffer | contender | runs"), "{}", ran.out());
    assert!(ran.page.contains("small &amp; &lt;quick&gt;") && ran.page.contains("<svg"));
}

#[test]
fn what_is_missing_is_skipped_and_what_fails_is_told_with_its_reason() {
    let text = "title = 'small'\n[path]\nrate = '50mbit'\nrtt = '2ms'\n\
        [data]\nfiles = 2\nsize = '1kB'\n[run]\nrepetitions = 1\nlimit = '5s'\n\
        [[contender]]\ntool = 'udt'\n[[contender]]\ntool = 'ping'\nflags = ['--no-such-flag']\n";
    let Some(ran) = Ran::of(text, &["--repeat", "2"]) else { return };
    let udt = ran.contender(0, 0);
    let told = match udt["skipped"].as_str() {
        Some(why) => why.contains("is missing"),
        // Where its library is there, it says what it cannot do.
        None => udt["runs"][0]["failed"].as_str().unwrap().contains("one file"),
    };
    assert!(told, "{udt}");
    let ping = ran.contender(0, 1);
    if ping["skipped"].is_null() {
        assert_eq!(ping["runs"].as_array().unwrap().len(), 2);
        assert!(ping["runs"][0]["failed"].as_str().unwrap().contains("ping"), "{ping}");
        assert_eq!(ran.done.status.code(), Some(1));
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
