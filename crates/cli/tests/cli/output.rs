//! Output of a transfer: documented JSON lines, text, and exit codes.
//!
//! At least one test produces each row of `docs/exit-codes.md`:
//!
//! | Code | Test |
//! |---|---|
//! | 0 | `routes`, all of them |
//! | 1 | `usage::bad_command_line_is_exit_code_1`, `faults::operands` |
//! | 2 | `faults::foreign_peers::newer_daemon_is_a_version_error` |
//! | 3 | `faults::operands::missing_source_is_named` |
//! | 5 | `faults::trust`, tokens, fingerprints, read-only, encryption, limits |
//! | 10 | `resume::network`, and the stopping daemon of `faults::trust` |
//! | 11 | `faults::operands::unusable_root_is_named` |
//! | 12 | `faults::servers`, and in `faults::foreign_peers` the web server |
//! | 14 | `faults::logins` |
//! | 20 | `resume::leftovers::signal_ends_the_copy_and_next_run_resumes` |
//! | 23 | `faults::files` |
//! | 24 | `faults::files::vanished_file_has_its_own_exit_code` |
//! | 30 | `faults::foreign_peers::silent_peer_is_a_timeout`, `resume::network` |

use super::command;
use super::harness::{
    Daemon, Done, Peer, Rng, Running, Scratch, Tree, cp, fill, open_push, run, set_mtime,
    wait_until, write_file,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the fields of an event as documented in `docs/cli.md`.
pub(crate) fn documented(event: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let text = fs::read_to_string(path).unwrap();
    let start = format!("| `{event}` | ");
    let row = text.lines().find_map(|line| line.strip_prefix(&start));
    let row = row.unwrap_or_else(|| panic!("{event} is not documented"));
    let fields = row.split(" | ").next().unwrap();
    let mut plain = String::new();
    let mut depth = 0;
    for letter in fields.chars() {
        match letter {
            // Text in parentheses lists values.
            '(' => depth += 1,
            ')' => depth -= 1,
            letter if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let names = plain.split('`').skip(1).step_by(2).map(str::to_owned);
    names.chain(["event".to_owned()]).collect()
}

pub(crate) fn fields(event: &Value) -> BTreeSet<String> {
    event.as_object().unwrap().keys().cloned().collect()
}

#[track_caller]
fn check_fields(events: &[Value]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for event in events {
        let name = event["event"].as_str().unwrap();
        let found: BTreeSet<String> =
            fields(event).into_iter().filter(|field| !field.ends_with("_hex")).collect();
        assert_eq!(found, documented(name), "{event}");
        seen.insert(name.to_owned());
    }
    seen
}

/// Creates a tree with one file per reported outcome.
fn sources() -> Scratch {
    let here = Scratch::new();
    fill(&here.dir("tree").join("large"), 3 << 20, &mut Rng::new(1));
    write_file(&here.join("tree").join(OsStr::from_bytes(b"odd \xff")), b"odd");
    write_file(&here.join("tree/in the way"), b"x");
    write_file(&here.join("out/tree/in the way/x"), b"x");
    let socket = here.join("tree/socket");
    drop(std::os::unix::net::UnixListener::bind(socket).unwrap());
    here
}

#[test]
fn json_events_have_the_documented_fields() {
    let here = sources();
    let daemon = Daemon::start(here.path(), &["-v"]);
    let done = run(daemon.cp().arg("-vv").arg(here.join("tree")).arg(daemon.url("out"))).expect(23);
    let events = done.events();
    let seen = check_fields(&events);
    for name in ["connected", "file", "file_failed", "destination", "warning", "start", "summary"] {
        assert!(seen.contains(name), "no {name} in {seen:?}");
    }
    assert_eq!(events[0]["event"], "start");
    assert_eq!(events[0]["schema"], 1);
    let last = events.last().unwrap();
    assert_eq!(last["event"], "summary");
    assert_eq!(last["exit_code"], 23);
    let odd =
        events.iter().find(|e| e["path"].as_str().is_some_and(|p| p.contains("odd"))).unwrap();
    assert!(odd["path_hex"].as_str().unwrap().ends_with("6f646420ff"), "{odd}");

    let failed = run(daemon.cp().arg(daemon.url("missing")).arg(here.join("x"))).expect(3);
    check_fields(&failed.events());
    let last = failed.events().pop().unwrap();
    assert_eq!((&last["event"], &last["kind"]), (&"error".into(), &"source".into()));
    assert_eq!(last["exit_code"], 3);
    assert_eq!(failed.err, format!("bankfull: {}\n", last["message"].as_str().unwrap()));
    check_served(daemon);
}

#[test]
fn json_progress_is_documented_and_monotonic() {
    let tree = Tree::bulk(&[500 << 20], 10);
    let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
    let mut command = daemon.cp();
    command.args(["--streams", "1"]).arg(daemon.url("bulk")).arg(tree.path.with_file_name("in"));
    let events = run(&mut command).expect(0).events();
    assert!(check_fields(&events).contains("progress"));
    let done = events.iter().filter(|e| e["event"] == "progress").map(|e| &e["bytes_done"]);
    let done: Vec<u64> = done.map(|bytes| bytes.as_u64().unwrap()).collect();
    assert!(done.is_sorted() && done.last() <= Some(&tree.bytes), "{done:?}");
}

/// Checks the events of the daemon about the two clients.
fn check_served(mut daemon: Daemon) {
    wait_until("both clients are done", || daemon.clients_done() >= 2);
    daemon.running().signal(rustix::process::Signal::TERM);
    daemon.wait();
    let (clients, others): (Vec<Value>, Vec<Value>) =
        daemon.events().into_iter().partition(|event| event["event"] == "client_done");
    let seen = check_fields(&others);
    assert!(seen.contains("listening") && seen.contains("client_connected"), "{seen:?}");
    assert_eq!(others.last().unwrap()["event"], "stopped");
    let mut good = documented("summary");
    good.remove("exit_code");
    good.extend(["peer", "ok"].map(str::to_owned));
    let bad = ["event", "peer", "ok", "message"].map(str::to_owned).into();
    for client in clients {
        let expected = if client["ok"] == true { &good } else { &bad };
        assert_eq!(&fields(&client), expected, "{client}");
    }
}

#[test]
fn summary_figures_are_consistent() {
    let (here, there) = (sources(), Scratch::new());
    let daemon = Daemon::start(there.path(), &[]);
    let mut command = daemon.cp();
    command.args(["--streams", "3"]).arg(here.join("tree")).arg(daemon.url(""));
    let done = run(&mut command).expect(0);
    let bytes = (3 << 20) + 4;
    assert_eq!(done.figures(["files", "dirs", "symlinks", "special_files_skipped"]), [3, 1, 0, 1]);
    assert_eq!(done.figures(["bytes", "streams", "resumed_bytes"]), [bytes, 3, 0]);
    assert!((bytes..bytes + 100_000).contains(&done.figure("wire_bytes")));
    let last = done.events().pop().unwrap();
    let seconds = last["seconds"].as_f64().unwrap();
    let goodput = last["goodput_bps"].as_f64().unwrap();
    // Seconds are rounded to milliseconds.
    let (least, most) = (seconds - 0.001, seconds + 0.001);
    let moved = goodput / 8.0;
    assert!((moved * least..=moved * most).contains(&(bytes as f64)), "{last}");
    assert!(last["limited_by"].is_string(), "{last}");
}

#[test]
fn redirected_stderr_has_no_progress_line() {
    let (here, there) = (sources(), Scratch::new());
    let text = run(command().arg("cp").arg(here.join("tree")).arg(there.path())).expect(0);
    assert_eq!(text.out, "");
    assert!(!text.err.contains(['\r', '\x1b']), "{:?}", text.err);
    assert!(text.err.contains("copied 3 files, 3.0 MiB in "), "{}", text.err);
    assert!(text.err.contains("skipped"), "{}", text.err);
    let json = run(cp().arg(here.join("tree")).arg(there.path())).expect(0);
    assert!(!json.out.contains('\x1b') && !json.err.contains(['\r', '\x1b']), "{:?}", json.err);
}

#[test]
fn quiet_shows_only_errors() {
    let (here, there) = (sources(), Scratch::new());
    let quiet = |from: &Path, to: &Path| run(command().args(["cp", "-q"]).arg(from).arg(to));
    let good = quiet(&here.join("tree/large"), there.path()).expect(0);
    assert_eq!((&*good.out, &*good.err), ("", ""));
    let bad = quiet(&here.join("missing"), there.path()).expect(3);
    assert_eq!((&*bad.out, bad.err.lines().count()), ("", 1));
    let partly = quiet(&here.join("tree"), &here.join("out")).expect(23);
    assert_eq!(partly.out, "");
    assert!(partly.err.contains("in the way"), "{}", partly.err);
}

#[test]
fn quiet_daemon_shows_its_address_and_warnings() {
    let here = Scratch::new();
    let mut serve = command();
    serve.args(["serve", "-q", "--listen", "127.0.0.1:0"]).arg(here.path());
    let daemon = Running::start(serve.arg("--state-dir").arg(here.join("state")));
    wait_until("the messages appear", || daemon.err().lines().count() == 2);
    let err = daemon.err();
    let (first, second) = err.split_once('\n').unwrap();
    let port = first.rsplit_once(" on 127.0.0.1:").map(|(_, port)| port.parse::<u16>());
    assert!(first.starts_with("serving ") && matches!(port, Some(Ok(1..))), "{err}");
    assert!(second.starts_with("warning: no token is set"), "{err}");
}

#[test]
fn text_summary_names_all_results() {
    let (here, there) = (sources(), Scratch::new());
    let daemon = Daemon::start(there.path(), &[]);
    let copy = |flags: &[&str]| -> Done {
        let mut command = command();
        command.args(["cp", "--fingerprint", &daemon.fingerprint]).args(flags);
        run(command.arg(here.join("tree")).arg(daemon.url(""))).expect(0)
    };
    let plan = copy(&["-n"]);
    let planned = format!("tree -> {}\n", daemon.url("tree"));
    assert!(plan.out.contains(&planned), "{}", plan.out);
    assert!(plan.out.contains("large (3.0 MiB)\n"), "{}", plan.out);
    let first = copy(&["-v"]).err;
    for words in ["connected to a daemon, encrypted", "copied 3 files, 3.0 MiB in "] {
        assert!(first.contains(words), "{words} is not in {first}");
    }
    set_mtime(&here.join("tree/in the way"), 1, 1);
    let second = copy(&[]).err;
    assert!(second.contains("copied 1 file"), "{second}");
    assert!(second.contains("skipped 2 unchanged files (3.0 MiB)"), "{second}");
    let third = copy(&["-vv"]).err;
    assert!(third.contains("nothing to copy") && third.contains("unchanged "), "{third}");
}

#[test]
fn file_names_are_escaped_on_the_terminal() {
    let (here, there) = (Scratch::new(), Scratch::new());
    write_file(&here.join("tree/\x1b[31mred\r\nfile"), b"x");
    let done = run(command().args(["cp", "-v"]).arg(here.join("tree")).arg(there.path())).expect(0);
    assert!(!done.err.contains(['\x1b', '\r']), "{:?}", done.err);
    assert!(done.err.contains("\\u{1b}[31mred\\r\\nfile"), "{}", done.err);
}

#[test]
fn peer_messages_are_escaped_in_the_daemon_log() {
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    let mut peer = Peer::welcomed(daemon.port);
    peer.send(&open_push(false));
    let text = "\x1b[2Jgone\nbankfull: all is well";
    let failure = bankfull_proto::wire::control::Failure { code: 0, text: text.to_owned() };
    peer.send(&bankfull_proto::wire::control::Message::Error(failure));
    peer.refusal();
    wait_until("the client is done", || daemon.clients_done() > 0);
    let out = daemon.running().out();
    assert!(!out.contains('\x1b') && !daemon.err().contains('\x1b'), "{out}");
}
