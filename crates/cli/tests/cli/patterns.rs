//! Patterns and home directories in remote paths: matched there without a shell, checked here.

use super::harness::{
    Daemon, Done, FakeServer, Peer, Scratch, SshServer, cp, entry, ls, run, run_for, snapshot,
    welcome, write_file,
};
use bankfull_proto::limits::MAX_REQUEST_PATHS;
use bankfull_proto::wire::control::{Direction, Message, Open, Opened, PathBytes, Source};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn make_tree(here: &Scratch) {
    for name in ["a.txt", "b.txt", ".c.txt", "d.log", "run-1/x.log", "run-2/y.log", "run-2/z"] {
        write_file(&here.join("t").join(name), name.as_bytes());
    }
    // A literal name wins over its meaning as a pattern.
    write_file(&here.join("t/[ab].txt"), b"literal");
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = snapshot(dir).into_iter().map(|(path, ..)| path).collect();
    names.retain(|name| !name.as_os_str().is_empty());
    names.sort();
    names
}

/// Returns a copy from a daemon or over ssh of paths beneath `here`.
fn fetch(
    here: &Scratch,
    (daemon, ssh): (&Daemon, Option<&SshServer>),
    paths: &[&str],
    to: &Path,
) -> Done {
    let (mut command, place): (_, &dyn Fn(&&str) -> String) = match ssh {
        Some(ssh) => (ssh.cp(), &|path| SshServer::place(&here.join(path))),
        None => (daemon.cp(), &|path| daemon.url(path)),
    };
    run(command.args(paths.iter().map(place)).arg(to))
}

#[test]
fn patterns_are_matched_at_the_source() {
    let here = Scratch::new();
    make_tree(&here);
    let daemon = Daemon::start(here.path(), &["--read-only"]);
    let ssh = SshServer::start();
    for ssh in [None, ssh.as_ref()] {
        let route = if ssh.is_some() { "ssh" } else { "daemon" };
        let cases: [(&[&str], &[&str]); 6] = [
            (&["t/*.txt"], &["[ab].txt", "a.txt", "b.txt"]),
            (&["t/[ab].txt"], &["[ab].txt"]),
            (&["t/.*.txt", "t/d.*"], &[".c.txt", "d.log"]),
            (&["t/run-?/[xy].log"], &["x.log", "y.log"]),
            (&["t/run-[2-9]"], &["run-2", "run-2/y.log", "run-2/z"]),
            (&["t/run-*/z"], &["z"]),
        ];
        for (number, (patterns, expected)) in cases.into_iter().enumerate() {
            let to = here.dir(&format!("{route}-{number}"));
            fetch(&here, (&daemon, ssh), patterns, &to).expect(0);
            let expected: Vec<_> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(names(&to), expected, "{route} {patterns:?}");
        }
        let none = fetch(&here, (&daemon, ssh), &["t/*.none"], &here.join("out"));
        none.expect(3).says(&["*.none: no name matches this pattern"]);
        assert!(!here.join("out").exists());
    }
    // A stream takes one of them.
    let to_stream = |pattern: &str| run(daemon.cp().arg(daemon.url(pattern)).arg("-"));
    to_stream("t/*.txt").expect(1).says(&["3 files match, and the destination - takes one"]);
    assert_eq!(to_stream("t/d*").expect(0).out, "d.log");
    // A shell has expanded local operands.
    assert_eq!(run(cp().arg(here.join("t/*.log")).arg(here.join("out"))).code, Some(3));
    let listed = run(daemon.ls().arg(daemon.url("t/run-*"))).expect(0);
    assert_eq!(listed.out, "run-1/\nrun-1/x.log\nrun-2/\nrun-2/y.log\nrun-2/z\n");
    assert_eq!(run(ls().arg(here.join("t/*.none"))).code, Some(3));
}

#[test]
fn more_matches_than_descriptors_are_refused() {
    let here = Scratch::new();
    (0..1001).for_each(|n| write_file(&here.join("t").join(n.to_string()), b""));
    let daemon = Daemon::start(here.path(), &[]);
    let done = run(daemon.cp().arg(daemon.url("t/*")).arg(here.dir("out")));
    done.expect(3).says(&["t/* matches more than 1000 names", "--include"]);
}

/// Result of a request that a server answers with these sources.
fn answered(path: &str, sources: &[&str]) -> Done {
    let sources: Vec<_> = sources
        .iter()
        .map(|name| Source {
            name: name.as_bytes().to_vec(),
            is_dir: false,
            contents: false,
            open_ended: None,
        })
        .collect();
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        let Some(Message::Open(_)) = peer.receive() else { return };
        peer.send(&Message::Opened(Opened { sources: sources.clone(), ..Opened::default() }));
        peer.send(&Message::Entries(vec![entry(1, b".bashrc", 3)]));
        while peer.receive().is_some() {}
    });
    let here = Scratch::new();
    let mut command = cp();
    command.args(["--accept-new", "--streams", "1", "--state-dir"]).arg(here.join("state"));
    command.arg(format!("{}{path}", server.url())).arg(here.dir("in"));
    let done = run_for(&mut command, Duration::from_secs(30));
    assert_eq!(names(&here.join("in")), Vec::<PathBuf>::new());
    done
}

#[test]
fn names_that_do_not_match_end_the_session() {
    for sources in [&["a.txt", ".bashrc"][..], &["evil"], &[".a.txt"], &[]] {
        answered("*.txt", sources).expect(12);
    }
    // The entry was not announced as a source.
    answered("*.txt", &["a.txt"]).expect(12).says(&["the entry \".bashrc\""]);
}

#[test]
fn home_directories_of_users_are_found_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    let host = SshServer::place(Path::new(""));
    let unknown = run(ssh.cp().arg(format!("{host}~no-such-account/x")).arg(here.dir("out")));
    unknown.expect(3).says(&["there is no user \"no-such-account\""]);
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let mut command = ssh.ls();
    let listed = run(command.arg(format!("{host}~{user}")));
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    // At a daemon it is a name.
    write_file(&here.join("~root"), b"x");
    let daemon = Daemon::start(here.path(), &[]);
    run(daemon.cp().arg(daemon.url("~root")).arg(here.join("copy"))).expect(0);
}

#[test]
fn paths_beyond_the_limit_are_refused_before_connecting() {
    let here = Scratch::new();
    let paths = vec!["bankfull://127.0.0.1:1/f"; MAX_REQUEST_PATHS + 1];
    let refused = run(cp().args(paths).arg(here.join("to")));
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("16385 sources are too many"), "{}", refused.err);
}

#[test]
fn patterns_of_one_request_are_counted_together() {
    let here = Scratch::new();
    for number in 0..600 {
        write_file(&here.join(format!("t/f{number}")), b"");
    }
    let daemon = Daemon::start(&here.join("t"), &[]);
    let mut peer = Peer::welcomed(daemon.port);
    peer.send(&Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![PathBytes(b"*".to_vec()); MAX_REQUEST_PATHS],
        streams: 1,
        ..Open::default()
    }));
    let failure = peer.refusal().expect("a reason");
    assert!(failure.text.contains("more than 1000 names"), "{failure:?}");
}
