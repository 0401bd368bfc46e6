//! `bankfull ls`: the entries of a place, here, at a daemon and over ssh.

use super::harness::{
    Daemon, FakeServer, Scratch, SshServer, base, cp, ls, run, run_for, set_mode, snapshot,
    welcome, write_file,
};
use bankfull_proto::wire::control::{Entry, Message, Opened, Source};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn make_tree(here: &Scratch) {
    write_file(&here.join("t/b/deep/file"), b"12345");
    write_file(&here.join("t/a file"), b"123");
    write_file(&here.join("t/.hidden"), b"");
    set_mode(&here.join("t/a file"), 0o640);
    symlink("a file", here.join("t/link")).unwrap();
}

fn lines(command: &mut Command) -> Vec<String> {
    let done = run(command).expect(0);
    let mut lines: Vec<_> = done.out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn entries_are_listed_on_every_route() {
    let here = Scratch::new();
    make_tree(&here);
    let daemon = Daemon::start(here.path(), &["--read-only"]);
    let ssh = SshServer::start();
    let before = snapshot(here.path());
    let commands = || {
        let at_path = (ls(), here.join("t").display().to_string());
        let at_daemon = (daemon.ls(), daemon.url("t"));
        let over_ssh = ssh.as_ref().map(|ssh| (ssh.ls(), SshServer::place(&here.join("t"))));
        [Some(at_path), Some(at_daemon), over_ssh].into_iter().flatten()
    };
    for (mut command, place) in commands() {
        assert_eq!(lines(command.arg(&place)), [".hidden", "a file", "b/", "link"], "{place}");
    }
    for (mut command, place) in commands() {
        let deep = [".hidden", "a file", "b/", "b/deep/", "b/deep/file", "link"];
        assert_eq!(lines(command.args(["-R", &place])), deep, "{place}");
    }
    for (mut command, place) in commands() {
        let shown = lines(command.args(["-l", &place]));
        assert!(shown[0].starts_with("-rw-r--r--") || shown[0].starts_with("-rw-r-----"));
        let file = shown.iter().find(|line| line.ends_with(" a file")).unwrap();
        assert!(file.starts_with("-rw-r----- ") && file.contains(" 3 20"), "{file}");
        assert!(
            shown.iter().any(|line| line.starts_with("lrwx") && line.ends_with("link -> a file"))
        );
    }
    for (mut command, place) in commands() {
        assert_eq!(lines(command.arg(format!("{place}/a file"))), ["a file"]);
    }
    assert_eq!(snapshot(here.path()), before, "nothing is written");
}

#[test]
fn listing_has_json_lines() {
    let here = Scratch::new();
    make_tree(&here);
    let done = run(ls().args(["--json", "-R"]).arg(here.join("t"))).expect(0);
    let entries = done.events().into_iter().filter(|event| event["event"] == "entry");
    let file = entries.into_iter().find(|event| event["path"] == "b/deep/file").unwrap();
    assert_eq!((&file["kind"], &file["bytes"]), (&"file".into(), &5.into()));
    assert!(file["modified"].as_u64().unwrap() > 1_700_000_000);
}

#[test]
fn missing_place_fails_as_for_a_copy() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    let copied = run(cp().arg(here.join("none")).arg(here.join("to"))).code;
    let listed = run(ls().arg(here.join("none")));
    assert_eq!(listed.code, copied);
    listed.says(&["none: no such file or directory"]);
    let remote = run(daemon.ls().arg(daemon.url("none")));
    assert_eq!(remote.code, copied, "{}", remote.err);
}

#[test]
fn reader_that_has_seen_enough_ends_the_listing() {
    let here = Scratch::new();
    (0..3000).for_each(|n| write_file(&here.join(format!("t/{n}")), b""));
    let mut child = ls().arg("-R").arg(here.join("t")).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn entries_of_unknown_directories_end_the_listing() {
    // The second one would be beneath itself.
    let dir = |id, parent| Entry { id, parent, name: b"x".to_vec(), ..base() };
    for (entries, reason) in [
        (vec![base(), dir(9, 7)], "file number 7 is unknown"),
        (vec![base(), dir(9, 1), dir(9, 9)], "file number 9"),
    ] {
        check_refused_listing(entries, reason);
    }
}

fn check_refused_listing(entries: Vec<Entry>, reason: &str) {
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        let Some(Message::Open(open)) = peer.receive() else { return };
        assert!(open.dry_run);
        let sources =
            vec![Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }];
        peer.send(&Message::Opened(Opened { sources, ..Opened::default() }));
        peer.send(&Message::Entries(entries.clone()));
        // The client has ended the session.
        while peer.receive().is_some() {}
    });
    let here = Scratch::new();
    let mut command = ls();
    command.args(["--accept-new", "--state-dir"]).arg(here.join("state")).arg(server.url());
    let done = run_for(&mut command, Duration::from_secs(30));
    done.expect(12).says(&[reason]);
    assert!(fs::metadata(Path::new("x")).is_err());
}
