//! Daemons that violate the protocol: the client ends with a clear error and writes nothing outside
//! its destination.

use super::super::harness::{
    Done, FakeServer, Peer, Scratch, base, below, cp, entry, is_over_path, patience, run_for,
    snapshot, welcome, welcome_of_agent, write_file,
};
use crate::command;
use bankfull_proto::blocks::Run;
use bankfull_proto::wire::control::{
    self, Cause, Entry, EntryKind, Failure, FileRuns, MAGIC, Message, Opened, Source, Totals,
    Verdict, Want, Welcome,
};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Number of entries of 200 bytes. They exceed the default buffers of two sockets, 4 MiB for
/// sending and 6 MiB for receiving (tcp(7)), and are created quickly.
const ANNOUNCED: usize = 60_000;

/// Fetches into `work/in`; nothing beside it may change.
fn fetch_from(serve: impl Fn(&mut Peer) + Send + Sync + 'static) -> Done {
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        if matches!(peer.receive(), Some(Message::Open(_))) {
            serve(peer);
        }
    });
    let here = Scratch::new();
    fs::create_dir_all(here.join("work/in")).unwrap();
    let before = snapshot(here.path()).len();
    let mut command = cp();
    command.args(["--accept-new", "--streams", "1", "--state-dir"]).arg(here.join("state"));
    command.arg(server.url()).arg(here.join("work/in"));
    let done = run_for(&mut command, Duration::from_secs(30));
    assert!(!done.err.contains("panicked"), "{}", done.err);
    // Only the state directory with its one file and the destination are new.
    let after = snapshot(here.path()).into_iter().map(|(path, ..)| path);
    let outside = after.filter(|path| !path.starts_with("work/in"));
    assert!(outside.count() <= before + 1, "something was written outside the destination");
    done
}

/// Fetches from a server that sends these entries after a correct start.
fn fetch_entries(entries: Vec<Entry>) -> Done {
    fetch_from(move |peer| {
        peer.send(&opened());
        peer.send(&Message::Entries(vec![base()]));
        peer.send(&Message::Entries(entries.clone()));
        peer.send(&Message::EntriesEnd(Totals::default()));
    })
}

fn opened() -> Message {
    opened_with(vec![Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }])
}

fn opened_with(sources: Vec<Source>) -> Message {
    Message::Opened(Opened { sources, ..Opened::default() })
}

fn file_source(name: &str) -> Source {
    Source { name: name.into(), is_dir: false, contents: false, open_ended: None }
}

#[test]
fn invalid_names_are_refused() {
    for name in [&b".."[..], b"../../evil", b"/etc/evil", b"a/b", b"", b"a\0b"] {
        fetch_entries(vec![below(2, name, 10)]).expect(12).says(&["the name", "is not allowed"]);
    }
    let done = fetch_from(|peer| peer.send(&opened_with(vec![file_source("../evil")])));
    done.expect(12).says(&["the name", "is not allowed"]);
}

#[test]
fn invalid_tree_is_refused() {
    let orphan = Entry { parent: 77, ..entry(2, b"orphan", 10) };
    fetch_entries(vec![orphan]).expect(12).says(&["77"]);
    fetch_entries(vec![below(2, b"a", 1), below(2, b"b", 1)]).expect(12).says(&["2", "twice"]);
    fetch_entries(vec![below(0, b"a", 1)]).expect(12).says(&["0"]);
}

#[test]
fn symlink_then_directory_of_its_name_is_not_followed() {
    let outside = Scratch::new();
    let target = outside.path().as_os_str().as_encoded_bytes().to_vec();
    let link = Entry { kind: EntryKind::Symlink, target, ..below(2, b"way", 0) };
    let dir = Entry { kind: EntryKind::Dir, ..below(3, b"way", 0) };
    let file = Entry { parent: 3, ..entry(4, b"evil", 0) };
    let evil_dir = Entry { parent: 3, kind: EntryKind::Dir, ..entry(5, b"evil dir", 0) };
    let done = fetch_from(move |peer| {
        peer.send(&opened());
        let entries = vec![base(), link.clone(), dir.clone(), file.clone(), evil_dir.clone()];
        peer.send(&Message::Entries(entries));
        peer.send(&Message::EntriesEnd(Totals::default()));
        peer.send(&Message::Finish(Default::default()));
    });
    assert_ne!(done.code, Some(0), "{}", done.out);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

/// Ways of fetching a file, each of which receives from its peer by itself.
const FETCHES: [&[&str]; 4] = [&["cp"], &["gather"], &["gather", "--merge", "first"], &SSH];

/// A fetch from an agent over ssh.
const SSH: [&str; 3] = ["cp", "--streams", "1"];

/// Fetches the file `report.pdf` from a server that answers with `sources` and announces `entries`.
/// No file may be new in the destination.
fn fetch_report(way: &[&str], sources: Vec<Source>, entries: Vec<Entry>) -> Done {
    let agent = Arc::new(OnceLock::new());
    let (data_port, is_agent) = (Arc::clone(&agent), way == SSH);
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&match data_port.get().filter(|_| is_agent) {
            Some(&data) => welcome_of_agent(data),
            None => welcome(1),
        });
        peer.receive();
        peer.send(&opened_with(sources.clone()));
        peer.send(&Message::Entries(entries.clone()));
        peer.send(&Message::EntriesEnd(Totals::default()));
        peer.send(&Message::Finish(Default::default()));
    });
    let here = Scratch::new();
    fs::create_dir(here.join("home")).unwrap();
    fs::write(here.join("home/.bashrc"), "mine").unwrap();
    agent.set((server.port, server.fingerprint)).unwrap();
    let mut command = command();
    command.args(way).args(["--json", "--state-dir"]).arg(here.join("state"));
    if is_agent {
        command.args(["--ssh-command", &server.ssh_command(&here), "127.0.0.1:report.pdf"]);
    } else {
        command.arg("--accept-new").arg(server.url() + "report.pdf");
    }
    command.arg(here.join("home"));
    let done = run_for(&mut command, Duration::from_secs(30));
    assert_eq!(fs::read_to_string(here.join("home/.bashrc")).unwrap(), "mine");
    let found = snapshot(&here.join("home")).into_iter().map(|(path, ..)| path);
    let files = found.filter(|path| !here.join("home").join(path).is_dir());
    assert_eq!(files.collect::<Vec<_>>(), [Path::new(".bashrc")], "{}", done.err);
    done
}

#[test]
fn only_requested_sources_are_accepted() {
    let contents = Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None };
    let dir = |id, name| Entry { kind: EntryKind::Dir, ..entry(id, name, 0) };
    let report = || entry(1, b"report.pdf", 0);
    for (sources, entries) in [
        (vec![file_source(".bashrc")], vec![entry(1, b".bashrc", 0)]),
        (vec![file_source("report.pdf")], vec![entry(1, b".bashrc", 0)]),
        (vec![file_source("report.pdf")], vec![report(), entry(2, b".bashrc", 0)]),
        (vec![file_source("report.pdf")], vec![dir(1, b"report.pdf")]),
        (vec![file_source("report.pdf")], vec![dir(1, b""), below(2, b".bashrc", 0)]),
        (vec![file_source("report.pdf"), file_source(".bashrc")], vec![report()]),
        (vec![contents], vec![base(), below(2, b".bashrc", 0)]),
        (vec![], vec![]),
    ] {
        for way in FETCHES {
            let done = fetch_report(way, sources.clone(), entries.clone());
            done.expect(12).says(&["not requested"]);
        }
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let done = fetch_from(|peer| peer.send(&Message::Finished(vec![1])));
    done.expect(12).says(&["unexpected"]);
    let done = fetch_from(|peer| {
        peer.send(&opened());
        peer.send(&Message::Finish(Default::default()));
    });
    done.expect(12).says(&["unexpected"]);
    let done = fetch_from(|peer| {
        peer.send(&opened());
        let runs = vec![Run { first: 0, count: 1 }];
        peer.send(&Message::Holes(FileRuns { file: 9, runs }));
    });
    done.expect(12).says(&["9"]);
}

#[test]
fn finished_server_with_open_streams_times_out() {
    let server = FakeServer::holding(|peer, _| {
        peer.send(&welcome(1));
        peer.receive();
        peer.send(&opened());
        peer.send(&Message::EntriesEnd(Totals::default()));
        // The first one exists before the session, the second one is created by a thread that then
        // holds it.
        peer.wait_for_streams(2);
        peer.send(&Message::Finish(Default::default()));
        // The client is done without Finish; the connection stays open.
        peer.refusal();
    });
    let here = Scratch::new();
    let mut command = cp();
    command.args(["--accept-new", "--timeout", "4", "--state-dir"]).arg(here.join("state"));
    command.arg(server.url()).arg(here.join("in"));
    let done = run_for(&mut command, Duration::from_secs(12)).expect(30);
    done.says(&["left its data streams open"]);
}

/// Pause between single bytes or pings, far below the timeout of a read.
const TRICKLE_INTERVAL: Duration = Duration::from_millis(100);

/// Expects that a copy with a timeout of two seconds gives up in that time.
fn expect_timeout(mut command: Command, source: &str, words: &[&str]) {
    let here = Scratch::new();
    command.args(["--timeout", "2", "--state-dir"]).arg(here.join("state"));
    command.arg(source).arg(here.join("in"));
    let started = Instant::now();
    run_for(&mut command, Duration::from_secs(20)).expect(30).says(words);
    let elapsed = started.elapsed();
    assert!(elapsed < patience(Duration::from_secs(5)), "it took {elapsed:?}");
}

fn expect_timeout_from(server: &FakeServer, words: &str) {
    let mut command = cp();
    command.args(["--accept-new", "--transport", "tcp"]);
    let name = server.url().replace("bankfull://", "").replace('/', "");
    expect_timeout(command, &server.url(), &[&name, words]);
}

/// Sends `first` byte by byte, then pings, until the client gives up.
fn trickle(peer: &mut Peer, first: &[u8]) {
    let ping = control::encode(&Message::Ping).unwrap();
    for byte in first {
        peer.send_raw(&[*byte]);
        thread::sleep(TRICKLE_INTERVAL);
    }
    for _ in 0..100 {
        peer.send_raw(&ping);
        thread::sleep(TRICKLE_INTERVAL);
    }
}

#[test]
fn server_that_pings_after_the_end_does_not_hold_the_client() {
    let server = FakeServer::greeted(|peer, _| {
        peer.send(&welcome(1));
        peer.receive();
        peer.send(&opened());
        peer.send(&Message::EntriesEnd(Totals::default()));
        peer.send(&Message::Finish(Default::default()));
        let ping = control::encode(&Message::Ping).unwrap();
        for _ in 0..200 {
            peer.send_raw(&ping);
            thread::sleep(TRICKLE_INTERVAL);
        }
    });
    let here = Scratch::new();
    let mut command = cp();
    command.args(["--accept-new", "--streams", "1", "--timeout", "3", "--state-dir"]);
    command.arg(here.join("state")).arg(server.url()).arg(here.join("in"));
    let done = run_for(&mut command, Duration::from_secs(12)).expect(0);
    let (out, err) = (&done.out, &done.err);
    assert!([out, err].iter().any(|text| text.contains("did not end in time")), "{out} {err}");
}

#[test]
fn trickled_tls_handshake_times_out() {
    let server = FakeServer::raw(|mut socket| {
        let _ = socket.read(&mut [0; 4096]);
        // The header of a long record, and its beginning.
        let record = [&[0x16, 3, 3, 0x20, 0, 2, 0, 0x1f, 0][..], &[0; 200]].concat();
        for byte in record {
            if socket.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(TRICKLE_INTERVAL);
        }
    });
    expect_timeout_from(&server, "accepted the connection but did not answer");
}

#[test]
fn trickled_or_absent_welcome_times_out() {
    let first = control::encode(&welcome(1)).unwrap();
    for first in [first, Vec::new()] {
        let server = FakeServer::greeted(move |peer, _| trickle(peer, &first));
        expect_timeout_from(&server, "no response from");
    }
}

#[test]
fn trickled_or_absent_opened_times_out() {
    let first = control::encode(&opened()).unwrap();
    for first in [[first, vec![0; 100]].concat(), Vec::new()] {
        let server = FakeServer::greeted(move |peer, _| {
            thread::sleep(Duration::from_secs(1));
            peer.send(&welcome(1));
            peer.receive();
            trickle(peer, &first);
        });
        expect_timeout_from(&server, "no response from");
    }
}

#[test]
fn pinging_agent_without_welcome_times_out() {
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let (magic, ping) = (octal(&MAGIC), octal(&control::encode(&Message::Ping).unwrap()));
    // The time begins after the login, here of a second.
    let script =
        format!("sleep 1; printf '{magic}'; while sleep 0.1; do printf '{ping}' || exit; done");
    let here = Scratch::new();
    write_file(&here.join("ssh"), script);
    let mut command = cp();
    command.arg("--ssh-command").arg(format!("sh {}", here.join("ssh").display()));
    let started = Instant::now();
    expect_timeout(command, "there:dir", &["no response from there over ssh"]);
    assert!(started.elapsed() >= Duration::from_secs(3));
}

/// As with a program of `Match exec` that goes on in the background.
#[test]
fn hung_query_of_the_ssh_configuration_times_out() {
    let here = Scratch::new();
    let agent = Arc::new(OnceLock::new());
    let ours = Arc::clone(&agent);
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome_of_agent(*ours.get().expect("set below")));
        peer.receive();
        peer.send(&opened_with(Vec::new()));
    });
    agent.set((server.port, server.fingerprint)).unwrap();
    let relay = server.ssh_command(&here);
    write_file(
        &here.join("hung"),
        format!("for word; do [ \"$word\" != -G ] || {{ sleep 20 & exit; }}; done; exec {relay}"),
    );
    let mut command = cp();
    command.args(["--timeout", "2", "--ssh-command"]);
    command.arg(format!("bash {}", here.join("hung").display()));
    command.arg("127.0.0.1:report.pdf").arg(here.join("in"));
    run_for(&mut command, Duration::from_secs(10)).expect(12).says(&["not requested"]);
}

#[test]
fn error_before_a_reset_is_reported() {
    let here = Scratch::bulk();
    fs::create_dir(here.join("tree")).unwrap();
    // More announcements than the buffers of a peer that does not read.
    for n in 0..ANNOUNCED {
        fs::write(here.join("tree").join(format!("{n:0200}")), b"").unwrap();
    }
    let server = FakeServer::greeted(|peer, _| {
        peer.send(&welcome(1));
        peer.receive();
        let source =
            Source { name: b"tree".to_vec(), is_dir: true, contents: false, open_ended: None };
        peer.send(&Message::Opened(Opened { sources: vec![source], ..Opened::default() }));
        peer.wait_for_streams(1);
        // Until the buffers are full.
        thread::sleep(Duration::from_secs(1));
        let reason = Failure::new(Cause::Cancelled, "the server was shut down");
        peer.send(&Message::Error(reason));
        if is_over_path() {
            // Lost packets must be retransmitted before the reset.
            thread::sleep(Duration::from_secs(2));
        }
        peer.hang_up();
    });
    let mut command = cp();
    command.args(["--accept-new", "--streams", "1", "--state-dir"]).arg(here.join("state"));
    command.arg(here.join("tree")).arg(server.url());
    run_for(&mut command, Duration::from_secs(30)).expect(10).says(&["the server was shut down"]);
}

#[test]
fn malformed_message_is_refused() {
    fetch_from(|peer| peer.send_raw(&[0, 0, 0, 3, 0xff, 0xff, 0xff])).expect(12);
    fetch_from(|peer| peer.send_raw(&[0xff; 64])).expect(12).says(&["over the limit"]);
}

#[test]
fn hostile_texts_are_escaped_on_the_terminal() {
    const TEXT: &str = "fdp\u{202e}exe\u{2066}\u{9b}2J\u{1b}c\u{61c}";
    let server = FakeServer::greeted(move |peer, _| {
        let Message::Welcome(greeting) = welcome(1) else { panic!("no Welcome") };
        peer.send(&Message::Welcome(Welcome { software: TEXT.into(), ..greeting }));
        peer.receive();
        peer.send(&opened());
        peer.wait_for_streams(1);
        peer.send(&Message::Error(Failure::new(Cause::Other, TEXT)));
    });
    let mut text = command();
    text.args(["cp", "-v"]);
    for (mut command, software) in [(cp(), r#""software":"fdp\u202eexe"#), (text, "")] {
        let here = Scratch::new();
        command.args(["--accept-new", "--streams", "1", "--transport", "tcp", "--state-dir"]);
        command.arg(here.join("state")).arg(server.url()).arg(here.join("in"));
        let done = run_for(&mut command, Duration::from_secs(20));
        done.says(&[r" reported: fdp\u{202e}exe"]);
        assert!(done.out.contains(software), "{done:?}");
        let is_safe =
            |c: char| c == '\n' || !(c.is_control() || "\u{202e}\u{2066}\u{61c}".contains(c));
        assert!(format!("{}{}", done.out, done.err).chars().all(is_safe), "{done:?}");
    }
}

#[test]
fn oversized_file_is_refused() {
    let done = fetch_entries(vec![Entry { size: 1 << 62, ..below(2, b"huge", 1 << 40) }]);
    done.expect(12).says(&["is not allowed"]);
}

/// Pushes one file to a server that responds with `answer` to the announcements.
fn push_to(answer: &'static [Verdict]) -> (Done, bool) {
    let (finished_tx, finished_rx) = mpsc::channel();
    let finished_tx = Mutex::new(finished_tx);
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        peer.receive();
        peer.send(&Message::Opened(Opened::default()));
        while !matches!(peer.receive(), None | Some(Message::EntriesEnd(_))) {}
        for &verdict in answer {
            let have = Vec::new();
            let want = Want {
                file: 1,
                verdict,
                have,
                hash: None,
                failure: None,
                accepts_early_digest: None,
            };
            peer.send(&Message::Wants(vec![want]));
        }
        peer.send(&Message::Done(Default::default()));
        let finished = matches!(peer.receive(), Some(Message::Finish(_)));
        finished_tx.lock().unwrap().send(finished).unwrap();
    });
    let here = Scratch::new();
    fs::write(here.join("file"), "content").unwrap();
    let mut command = cp();
    command.args(["--accept-new", "--streams", "1", "--state-dir"]).arg(here.join("state"));
    command.arg(here.join("file")).arg(server.url());
    let done = run_for(&mut command, Duration::from_secs(30));
    (done, finished_rx.recv_timeout(Duration::from_secs(10)).unwrap())
}

#[test]
fn early_done_requires_all_files_completed() {
    let (done, finished) = push_to(&[Verdict::Skip]);
    done.expect(0);
    assert!(finished, "the session does not end in order");
    for too_early in [&[][..], &[Verdict::Send]] {
        let (done, finished) = push_to(too_early);
        done.expect(12).says(&["done too early"]);
        assert!(!finished);
    }
}
