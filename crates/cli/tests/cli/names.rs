//! Names with their paths (`--files-from`, `--relative`), compared with those of rsync(1).
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{
    Daemon, FakeServer, Rng, Scratch, base, below, cp, run, run_for, welcome, write_file,
};
use super::rsync::{each_case, has_rsync};
use super::selection::{facts, make_tree};
use bankfull_proto::wire::control::{
    Direction, Fsync, Message, Open, Opened, PathBytes, Source, WalkRules,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Default number of generated cases.
const CASES: u64 = 120;

/// Returns some names of a tree, a few of which do not exist.
fn some_names(rng: &mut Rng, source: &Path) -> Vec<String> {
    let all: Vec<PathBuf> = facts(source).into_keys().collect();
    let count = 1 + rng.below(8);
    let name = |rng: &mut Rng| {
        if all.is_empty() || rng.below(12) == 0 {
            return "missing/name".to_owned();
        }
        let path = &all[rng.below(all.len() as u64) as usize];
        let full = source.join(path);
        let is_dir = full.symlink_metadata().unwrap().is_dir();
        let slash = if is_dir && rng.below(3) == 0 { "/" } else { "" };
        let start = ["", "", "/", "./"][rng.below(4) as usize];
        format!("{start}{}{slash}", path.display())
    };
    (0..count).map(|_| name(rng)).collect()
}

/// Compares one case by a route; returns true if something was left out.
fn compare(seed: u64, daemon: &Daemon, root: &Path) -> bool {
    let mut rng = Rng::new(seed);
    let here = root.join(seed.to_string());
    let source = here.join("s");
    make_tree(&source, &mut rng, false);
    ["ours", "theirs"].iter().for_each(|name| fs::create_dir(here.join(name)).unwrap());
    let mut names = some_names(&mut rng, &source);
    let is_list = rng.below(2) == 0;
    let mut flags: Vec<String> = Vec::new();
    if rng.below(3) == 0 {
        flags.push("--safe-links".into());
    }
    if rng.below(4) == 0 {
        flags.push("--exclude=a".into());
    }
    let (local, url) = (source.display().to_string(), daemon.url(&format!("{seed}/s")));
    let mut rsync = Command::new("rsync");
    let mut command = if seed.is_multiple_of(3) { cp() } else { daemon.cp() };
    rsync.arg("-lt").args(&flags);
    command.args(&flags);
    let from = if seed % 3 == 1 { &url } else { &local };
    if is_list {
        let end = if rng.below(2) == 0 { "\n" } else { "\0" };
        write_file(&here.join("list"), names.join(end));
        let mut shared = vec![format!("--files-from={}", here.join("list").display())];
        if end == "\0" {
            shared.push("--from0".into());
        }
        if rng.below(2) == 0 {
            shared.push("-r".into());
        }
        let slash = if rng.below(2) == 0 { "/" } else { "" };
        rsync.args(&shared).arg(format!("{local}{slash}"));
        command.args(&shared).arg(format!("{from}{slash}"));
    } else {
        // The whole path is kept if the marker is missing.
        let marked = |from: &str, name: &str| format!("{from}/./{name}");
        names.retain(|name| !name.starts_with("missing") && !name.starts_with('/'));
        names.push(".".repeat(names.is_empty().into()));
        names.retain(|name| !name.is_empty());
        rsync.args(["-r", "--relative"]).args(names.iter().map(|name| marked(&local, name)));
        command.arg("--relative").args(names.iter().map(|name| marked(from, name)));
    }
    let theirs = rsync.arg(here.join("theirs")).output().unwrap();
    match seed % 3 {
        2 => command.arg(daemon.url(&format!("{seed}/ours"))),
        _ => command.arg(here.join("ours")),
    };
    let done = run(&mut command);
    let rsync_err = String::from_utf8_lossy(&theirs.stderr);
    let context = format!("BANKFULL_SEED={seed}: {command:?} {names:?}\n{}{rsync_err}", done.err);
    let [found, expected] = ["ours", "theirs"].map(|name| facts(&here.join(name)));
    let differs = |path: &&PathBuf| found.get(*path) != expected.get(*path);
    let different: Vec<_> = found.keys().chain(expected.keys()).filter(differs).collect();
    assert!(different.is_empty(), "{context}{different:?}");
    assert_eq!(done.code, theirs.status.code(), "{context}");
    expected.len() < facts(&source).len()
}

#[test]
fn names_leave_the_same_as_in_rsync() {
    if !has_rsync() {
        return;
    }
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    each_case(CASES, |seed| compare(seed, &daemon, root.path()));
}

/// Twenty thousand names, more than two messages carry.
#[test]
fn long_list_is_copied_from_a_daemon() {
    let here = Scratch::new();
    let (count, listed) = (6_000, 20_000);
    fs::create_dir(here.dir("s").join("d")).unwrap();
    (0..count).for_each(|at| write_file(&here.join(format!("s/d/{at}")), b"x"));
    let names = (0..listed).map(|at| format!("d/{at}\n")).collect::<String>();
    write_file(&here.join("list"), names);
    let daemon = Daemon::start(here.path(), &[]);
    let mut command = daemon.cp();
    command.arg("--files-from").arg(here.join("list")).arg(daemon.url("s")).arg(here.join("to"));
    let done = run(&mut command).expect(23);
    assert_eq!(done.failed().len(), listed - count);
    assert_eq!(facts(&here.join("to")).len(), count + 1);
}

#[test]
fn destination_keeps_its_metadata_and_directories_get_theirs() {
    use std::os::unix::fs::PermissionsExt;
    let here = Scratch::new();
    fs::create_dir_all(here.join("s/a/b")).unwrap();
    write_file(&here.join("s/a/b/f"), b"x");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for (name, bits) in [("s", 0o711), ("s/a", 0o750), ("s/a/b", 0o700)] {
        fs::set_permissions(here.join(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    let to = here.dir("to");
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    run(cp().arg("--relative").arg(here.join("s/./a/b/f")).arg(&to)).expect(0);
    assert_eq!([&to, &to.join("a"), &to.join("a/b")].map(|path| mode(path)), [0o755, 0o750, 0o700]);
}

#[test]
fn bad_list_is_refused_by_name() {
    let here = Scratch::new();
    fs::create_dir(here.join("s")).unwrap();
    write_file(&here.join("list"), "a\n# a comment\n../b\n");
    write_file(&here.join("long"), "x".repeat(5000));
    write_file(&here.join("marked"), "./a\n/./b\ndeep/./x\n");
    let (source, to) = (here.join("s"), here.join("to"));
    let list = here.join("list");
    let (long, marked) = (here.join("long"), here.join("marked"));
    let missing = here.join("none");
    for (list, code, text) in [
        (&list, 1, "list:3: the name \"../b\" leaves the source"),
        (&long, 1, "long:1: the name \"xxx"),
        (&marked, 1, "marked:3: the name \"deep/./x\" has /./ in it"),
        (&missing, 1, "cannot read the list"),
    ] {
        let done = run(cp().arg("--files-from").arg(list).arg(&source).arg(&to));
        done.expect(code).says(&[text]);
    }
    let done = run(cp().arg("--files-from").arg(&list).args([&source, &source, &to]));
    done.expect(1);
    let done = run(cp().args(["--relative", "/a/../b"]).arg(&to)).expect(1);
    done.says(&["'..'"]);
    ["a/d/f", "b/d/f", "b/d/g"].iter().for_each(|name| write_file(&here.join(name), b"x"));
    for names in [["a/./d/f", "b/./d/f"], ["a/./", "b/./d/g"], ["a/./d", "b/./d/g"]] {
        let done = run(cp().arg("--relative").args(names.map(|name| here.join(name))).arg(&to));
        done.expect(1).says(&["two sources have", "would overwrite each other"]);
    }
    run(cp().args(["-0", "a", "b"])).expect(1);
    let patterns = ["--from0", "--files-from=-", "--exclude-from=x"];
    run(cp().args(patterns).arg(&source).arg(&to)).expect(1).says(&["for --files-from alone"]);
    let merged = ["--from0", "--files-from=-", "--filter=. x"];
    run(cp().args(merged).arg(&source).arg(&to)).expect(1).says(&["for --files-from alone"]);
    for second in ["--include-from=-", "--filter=. -", "--filter=merge,-_-"] {
        let twice = ["--files-from=-", second];
        run(cp().args(twice).arg(&source).arg(&to)).expect(1).says(&["can be read once"]);
    }
    assert!(!to.exists());
    let names = ["a/./d/f", "b/./d/g"].map(|name| here.join(name));
    run(cp().arg("--relative").args(names).arg(&to)).expect(0);
    assert_eq!(facts(&to).len(), 3);
}

#[test]
fn names_that_the_request_lacks_end_the_session() {
    let here = Scratch::new();
    write_file(&here.join("list"), "a\nx/b\n");
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        let Some(Message::Open(_)) = peer.receive() else { return };
        let sources =
            vec![Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }];
        peer.send(&Message::Opened(Opened { sources, ..Opened::default() }));
        peer.send(&Message::Entries(vec![base(), below(2, b"a", 1), below(3, b".bashrc", 1)]));
    });
    let mut command = cp();
    command.args(["--accept-new", "--streams", "1", "--state-dir"]).arg(here.join("state"));
    command.arg("--files-from").arg(here.join("list")).arg(server.url()).arg(here.join("in"));
    let done = run_for(&mut command, Duration::from_secs(30)).expect(12);
    done.says(&["not requested: .bashrc, which the requested names exclude"]);
}

#[test]
fn parts_of_a_list_without_a_request_end_the_session() {
    let here = Scratch::new();
    fs::create_dir(here.join("s")).unwrap();
    let daemon = Daemon::start(here.path(), &[]);
    let mut peer = super::harness::Peer::welcomed(daemon.port);
    let walk = WalkRules { listed: true, ..WalkRules::default() };
    peer.send(&Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![PathBytes(b"s".to_vec())],
        fsync: Fsync::None,
        streams: 1,
        timeout_ms: 60_000,
        walk: Some(walk),
        ..Open::default()
    }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    let part = || Message::ListPart(vec![PathBytes(b"gone".to_vec()); 10]);
    // The first one is an answer, the others are not.
    (0..5).for_each(|_| peer.send(&part()));
    let refusal = peer.refusal().expect("a refusal");
    assert!(refusal.text.contains("must not send now"), "{refusal:?}");
}
