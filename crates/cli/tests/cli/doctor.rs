//! `bankfull doctor` on this host.

use super::harness::{Daemon, Rng, Scratch, fill, run};
use super::{command, err, out};
use serde_json::Value;
use std::fs;

fn doctor(state: &Scratch) -> std::process::Command {
    let mut command = command();
    command.arg("doctor").arg("--state-dir").arg(state.path());
    command
}

#[test]
fn findings_are_lines_and_objects() {
    let (state, dir) = (Scratch::new(), Scratch::new());
    let shown = doctor(&state).arg(dir.path()).output().unwrap();
    assert_eq!(shown.status.code(), Some(0), "{}", err(&shown));
    let text = out(&shown);
    for topic in ["TCP receive buffer", "UDP buffers", "congestion control", "MTU", "clock", "disk"]
    {
        assert!(text.contains(topic), "{topic}: {text}");
    }
    assert!(text.lines().last().unwrap().contains("problem") || text.contains("nothing slows"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let lines = out(&doctor(&state).arg("--json").output().unwrap());
    for line in lines.lines() {
        let finding: Value = serde_json::from_str(line).unwrap();
        assert!(["ok", "note", "problem"].contains(&finding["state"].as_str().unwrap()), "{line}");
        assert_eq!(finding["state"] == "ok", finding["setting"].is_null(), "{line}");
    }
    let refused = doctor(&state).arg("/nonexistent").output().unwrap();
    assert_eq!(refused.status.code(), Some(11));
    assert!(err(&refused).contains("cannot write a file of 256 MiB in /nonexistent"));
}

#[test]
fn remembered_path_is_compared_with_the_buffers() {
    let state = Scratch::new();
    let (there, here) = (Scratch::new(), Scratch::new());
    fill(&there.join("f"), 8 << 20, &mut Rng::new(1));
    let daemon = Daemon::start(there.path(), &[]);
    let mut copy = daemon.cp();
    copy.arg("--state-dir").arg(state.path()).arg(daemon.url("f"));
    run(copy.arg(here.join("f"))).expect(0);
    // A path as a copy over a long, fast one leaves it: 40 Gbit/s at 100 ms.
    let name = "from far.example:7440";
    let paths = state.dir("paths");
    let file = paths.join(&blake3::hash(name.as_bytes()).to_hex().as_str()[..16]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let numbers = format!("40000000000\n100000\n0\n0\n0\n0\n0\n{}\n", now.as_secs());
    fs::write(file, format!("bankfull path 4\n{name}\n{numbers}")).unwrap();
    let text = out(&doctor(&state).output().unwrap());
    let part = "the path from far.example:7440 (40.00 Gbit/s, 100 ms) holds 476.8 MiB";
    assert!(text.contains(part), "{text}");
    assert!(text.contains("connections fill it"), "{text}");
}
