//! `-` as the destination: one file, verified and in order, on standard output.

use crate::harness::{
    Daemon, Done, Rng, Running, Scratch, SshServer, cp, fill, run, script, wait_until, write_file,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Returns a directory with files of each kind.
fn files() -> Scratch {
    let here = Scratch::bulk();
    fill(&here.join("large"), 30 * MIB + 7, &mut Rng::new(1));
    write_file(&here.join("small"), b"hello");
    write_file(&here.join("empty"), b"");
    symlink("large", here.join("link")).unwrap();
    let sparse = fs::File::create(here.join("sparse")).unwrap();
    sparse.set_len(40 * MIB).unwrap();
    sparse.write_all_at(b"data", 20 * MIB).unwrap();
    here.dir("dir");
    here
}

/// Returns a script that copies to standard output, with the directory of the part file.
fn to_output(text: &str, command: &Command, spool: &Path) -> Command {
    let mut shell = script(text, command);
    shell.env("TMPDIR", spool).current_dir(spool.parent().unwrap());
    shell
}

/// Returns the last event of a kind, which are on standard error.
fn event(done: &Done, kind: &str) -> Value {
    let mut lines = done.err.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.rfind(|event| event["event"] == kind).unwrap_or_else(|| panic!("{}", done.err))
}

/// Copies each file to standard output and compares it.
fn check(here: &Scratch, cp: impl Fn() -> Command, place: impl Fn(&str) -> String) {
    let spool = here.dir("spool");
    for name in ["large", "small", "empty", "link", "sparse"] {
        let mut command = cp();
        command.args([&place(name), "-"]);
        let done = run(&mut to_output("\"$@\" >out", &command, &spool)).expect(0);
        assert!(fs::read(here.join("out")).unwrap() == fs::read(here.join(name)).unwrap());
        assert_eq!((event(&done, "summary")["files"].as_u64(), &*done.out), (Some(1), ""));
        let piped =
            run(to_output("\"$@\" | cmp - \"$OTHER\"", &command, &spool)
                .env("OTHER", here.join(name)));
        piped.expect(0);
    }
    let mut command = cp();
    command.args([&place("dir"), "-"]);
    run(&mut to_output("\"$@\"", &command, &spool)).expect(1).says(&["takes one file"]);
    let mut command = cp();
    command.args(["--exclude", "large", &place("large"), "-"]);
    run(&mut to_output("\"$@\"", &command, &spool)).expect(3).says(&["a filter excludes"]);
    assert_eq!(fs::read_dir(spool).unwrap().count(), 0);
}

#[test]
fn file_goes_to_standard_output_on_each_route() {
    let here = files();
    check(&here, cp, |name| here.join(name).to_str().unwrap().to_owned());
    let daemon = Daemon::start(here.path(), &[]);
    check(&here, || daemon.cp(), |name| daemon.url(name));
    let quic = || {
        let mut command = daemon.cp();
        command.args(["--transport", "quic"]);
        command
    };
    check(&here, quic, |name| daemon.url(name));
    if let Some(server) = SshServer::start() {
        check(&here, || server.cp(), |name| SshServer::place(&here.join(name)));
    }
}

#[test]
fn paths_of_open_pipes_are_outputs() {
    let here = files();
    let spool = here.dir("spool");
    let mut command = cp();
    command.args([here.join("small"), "/dev/stdout".into()]);
    run(&mut to_output("\"$@\" | cat >out", &command, &spool)).expect(0);
    assert_eq!(fs::read(here.join("out")).unwrap(), fs::read(here.join("small")).unwrap());
    // The shell's own name of a pipe, as `>(command)` has.
    let mut command = cp();
    command.args([here.join("small"), "/dev/fd/7".into()]);
    run(&mut to_output("\"$@\" 7>&1 >other | cat >out2", &command, &spool)).expect(0);
    assert_eq!(fs::read(here.join("out2")).unwrap(), fs::read(here.join("small")).unwrap());
    // Another link to an open file stays.
    symlink("/proc/self/fd/1", here.join("fd")).unwrap();
    let done = run(cp().args([here.join("small"), here.join("fd")]));
    done.expect(1).says(&["fd is an open file of a process: write - for standard output"]);
    assert!(here.join("fd").is_symlink());
}

#[test]
fn options_for_destinations_are_refused() {
    let here = files();
    for flag in [
        "--delete",
        "--dry-run",
        "--backup",
        "--remove-source-files",
        "--relative",
        "--trust-journal",
        "--checksum",
        "--update",
        "small",
    ] {
        let done = run(cp().current_dir(here.path()).args([flag, "large", "-"]));
        let error = event(&done.expect(1), "error");
        let text = "cannot be used with the destination -: leave it out";
        assert!(error["message"].as_str().unwrap().ends_with(text), "{error}");
    }
    write_file(&here.join("-"), b"dash");
    run(cp().current_dir(here.path()).args(["./-", "out"])).expect(0);
    assert_eq!(fs::read(here.join("out")).unwrap(), b"dash");
}

#[test]
fn output_that_cannot_be_written_ends_the_copy() {
    let here = files();
    let spool = here.dir("spool");
    let daemon = Daemon::start(here.path(), &[]);
    for name in ["large", "small"] {
        let mut command = daemon.cp();
        command.args([&daemon.url(name), "-"]);
        let full = run(&mut to_output("\"$@\" >/dev/full", &command, &spool)).expect(11);
        full.says(&["cannot write to the output", "no space left"]);
    }
    let mut command = daemon.cp();
    command.args([&daemon.url("large"), "-"]);
    let ended = run(&mut to_output("\"$@\" | head -c 5 >out", &command, &spool)).expect(11);
    ended.says(&["the program that reads it has ended"]);
    assert_eq!(fs::read(here.join("out")).unwrap().len(), 5);
    if let Some(server) = SshServer::start() {
        let mut command = server.cp();
        command.args([&SshServer::place(&here.join("large")), "-"]);
        let ended = run(&mut to_output("\"$@\" | head -c 5 >out", &command, &spool)).expect(11);
        ended.says(&["the program that reads it has ended"]);
    }
    command.args(["--state-dir", "/nonexistent"]);
    let missing = to_output("\"$@\"", &command, &here.join("missing/spool"))
        .current_dir(here.path())
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(11));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("TMPDIR"));
    assert_eq!(fs::read_dir(spool).unwrap().count(), 0);
}

/// Starts a slow copy to the file `out`, and waits for a part of it.
fn underway(here: &Scratch, daemon: &Daemon) -> Running {
    let mut command = daemon.cp();
    command.args(["--max-rate", "100mbit", "--retry-for", "60", "--timeout", "3"]);
    command.args([&daemon.url("large"), "-"]);
    write_file(&here.join("out"), b"");
    let client = Running::start(&mut to_output("exec \"$@\" >out", &command, &here.dir("spool")));
    let written = || fs::metadata(here.join("out")).map_or(0, |out| out.len());
    wait_until("a part is written", || written() > 3 * MIB);
    client
}

#[test]
fn lost_session_continues_behind_what_is_written() {
    let here = files();
    let mut daemon = Daemon::start(here.path(), &["--timeout", "2"]);
    let client = underway(&here, &daemon);
    daemon.kill();
    daemon.restart();
    let done = client.wait().expect(0);
    event(&done, "reconnecting");
    assert!(fs::read(here.join("out")).unwrap() == fs::read(here.join("large")).unwrap());
    assert_eq!(fs::read_dir(here.join("spool")).unwrap().count(), 0);
}

#[test]
fn source_that_changes_midway_fails_the_copy() {
    let here = files();
    let mut daemon = Daemon::start(here.path(), &["--timeout", "2"]);
    for changed_while in ["served", "away"] {
        let client = underway(&here, &daemon);
        if changed_while == "away" {
            daemon.kill();
        }
        let source = fs::File::options().write(true).open(here.join("large")).unwrap();
        source.write_all_at(changed_while.as_bytes(), 0).unwrap();
        if changed_while == "away" {
            daemon.restart();
        }
        let done = client.wait().expect(3);
        let error = event(&done, "error");
        assert!(error["message"].as_str().unwrap().contains("discard that"), "{error}");
        assert_eq!(fs::read_dir(here.join("spool")).unwrap().count(), 0);
    }
}

#[test]
fn signal_ends_a_copy_whose_reader_waits() {
    let here = files();
    let spool = here.dir("spool");
    let daemon = Daemon::start(here.path(), &[]);
    let mut command = daemon.cp();
    command.args([&daemon.url("large"), "-"]);
    // The reader holds the pipe open and reads nothing.
    let text = "exec 3> >(sleep 1000 & echo $! >reader; wait); exec \"$@\" >&3";
    let client = Running::start(&mut to_output(text, &command, &spool));
    wait_until("blocks wait", || fs::read_dir(&spool).is_ok_and(|found| found.count() > 0));
    wait_until("the reader has started", || {
        fs::read_to_string(here.join("reader")).is_ok_and(|id| id.ends_with('\n'))
    });
    client.signal(Signal::INT);
    client.wait().expect(20);
    let reader = fs::read_to_string(here.join("reader")).unwrap();
    run(Command::new("kill").arg(reader.trim())).expect(0);
    assert_eq!(fs::read_dir(spool).unwrap().count(), 0);
}
