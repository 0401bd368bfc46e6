//! Destinations of sources: the rule of rsync, equal over every route and in repeated runs.

use super::super::harness::{Daemon, Done, Scratch, assert_same, cp, run, write_file};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

/// Sources, destination and result, as relative paths, with a trailing slash if typed. `out` exists
/// before, `new` does not.
struct Case {
    sources: &'static [&'static str],
    destination: &'static str,
    copied_to: &'static [(&'static str, &'static str)],
}

const CASES: [Case; 11] = [
    Case { sources: &["tree"], destination: "new", copied_to: &[("tree", "new/tree")] },
    Case { sources: &["tree"], destination: "new/", copied_to: &[("tree", "new/tree")] },
    Case { sources: &["tree"], destination: "out", copied_to: &[("tree", "out/tree")] },
    Case { sources: &["tree/"], destination: "new", copied_to: &[("tree", "new")] },
    Case { sources: &["tree/"], destination: "out/", copied_to: &[("tree", "out")] },
    Case { sources: &["tree/."], destination: "out", copied_to: &[("tree", "out")] },
    Case { sources: &["file"], destination: "new", copied_to: &[("file", "new")] },
    Case { sources: &["file"], destination: "new/", copied_to: &[("file", "new/file")] },
    Case { sources: &["file"], destination: "out", copied_to: &[("file", "out/file")] },
    Case {
        sources: &["file", "tree"],
        destination: "new",
        copied_to: &[("file", "new/file"), ("tree", "new/tree")],
    },
    Case {
        sources: &["tree/sub/leaf", "link", "tree"],
        destination: "out",
        copied_to: &[("tree/sub/leaf", "out/leaf"), ("link", "out/link"), ("tree", "out/tree")],
    },
];

fn sources() -> Scratch {
    let scratch = Scratch::new();
    write_file(&scratch.join("tree/sub/leaf"), b"leaf");
    write_file(&scratch.join("tree/.hidden"), b"hidden");
    write_file(&scratch.join("file"), b"file");
    std::os::unix::fs::symlink("file", scratch.join("link")).unwrap();
    scratch
}

/// Runs each case twice over a route and checks the result.
fn check(route: impl Fn(&Path, &Path, &Case) -> Done) {
    for case in &CASES {
        let (from, to) = (sources(), Scratch::new());
        fs::create_dir(to.join("out")).unwrap();
        let what = format!("{:?} to {}", case.sources, case.destination);
        let first = route(from.path(), to.path(), case).expect(0);
        for (source, copied_to) in case.copied_to {
            assert_same(&from.join(source), &to.join(copied_to));
        }
        let reported = destinations(&first);
        for (reported, (_, copied_to)) in reported.iter().zip(case.copied_to) {
            assert!(reported.trim_end_matches('/').ends_with(copied_to), "{what}: {reported}");
        }
        assert_eq!(reported.len(), case.sources.len(), "{what}");

        let again = route(from.path(), to.path(), case).expect(0);
        assert_eq!(destinations(&again), reported, "{what}");
        assert_eq!(again.figure("files"), 0, "{what}");
        for (source, copied_to) in case.copied_to {
            assert_same(&from.join(source), &to.join(copied_to));
        }
    }
}

/// Returns the reported destinations; those at a daemon without its address, which differs per run.
fn destinations(done: &Done) -> Vec<String> {
    let events = done.events();
    let destinations = events.iter().filter(|event| event["event"] == "destination");
    let places = destinations.map(|event| event["destination"].as_str().unwrap());
    let beneath =
        |place: &str| place.strip_prefix("bankfull://")?.split_once('/').map(|p| p.1.to_owned());
    places.map(|place| beneath(place).unwrap_or_else(|| place.to_owned())).collect()
}

#[test]
fn destinations_follow_rsync_for_local_copies() {
    check(|from, to, case| {
        let mut command = cp();
        command.current_dir(from).args(case.sources).arg(to.join(case.destination));
        run(&mut command)
    });
}

#[test]
fn destinations_follow_rsync_for_push() {
    check(|from, to, case| {
        let daemon = Daemon::start(to, &[]);
        run(daemon.cp().current_dir(from).args(case.sources).arg(daemon.url(case.destination)))
    });
}

#[test]
fn destinations_follow_rsync_for_pull() {
    check(|from, to, case| {
        let daemon = Daemon::start(from, &["--read-only"]);
        let sources = case.sources.iter().map(|source| daemon.url(source));
        run(daemon.cp().current_dir(to).args(sources).arg(case.destination))
    });
}

#[test]
fn file_replaces_file_and_symlink_without_following() {
    let (from, to) = (sources(), Scratch::new());
    write_file(&to.join("old"), b"old content, longer than the new");
    write_file(&to.join("outside"), b"outside");
    fs::create_dir(to.join("out")).unwrap();
    std::os::unix::fs::symlink("../outside", to.join("out/file")).unwrap();
    for (destination, copied_to) in [("old", "old"), ("out", "out/file")] {
        run(cp().arg(from.join("file")).arg(to.join(destination))).expect(0);
        assert_same(&from.join("file"), &to.join(copied_to));
    }
    assert_eq!(fs::read(to.join("outside")).unwrap(), b"outside");
}

#[test]
fn bare_daemon_address_fetches_the_root() {
    let (from, to) = (sources(), Scratch::new());
    let daemon = Daemon::start(from.path(), &[]);
    run(daemon.cp().arg(daemon.url("")).arg(to.join("all"))).expect(0);
    assert_same(from.path(), &to.join("all"));
}

#[test]
fn operands_may_be_invalid_utf8() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let name = OsStr::from_bytes(b"odd \xff\nname");
    write_file(&from.join(name), b"odd");
    let daemon = Daemon::start(to.path(), &[]);
    let mut url = OsString::from(daemon.url(""));
    url.push(name);
    run(daemon.cp().arg(from.join(name)).arg(&url)).expect(0);
    run(daemon.cp().arg(&url).arg(to.join("back"))).expect(0);
    run(cp().arg(to.join("back")).arg(from.join(OsStr::from_bytes(b"\xfe")))).expect(0);
    for copy in [to.join(name), to.join("back"), from.join(OsStr::from_bytes(b"\xfe"))] {
        assert_same(&from.join(name), &copy);
    }
}

#[test]
fn equal_destinations_are_refused_at_the_start() {
    let (from, to) = (sources(), Scratch::new());
    write_file(&from.join("other/file"), b"another file");
    let clash = run(cp().arg(from.join("file")).arg(from.join("other/file")).arg(to.join("out")));
    clash.expect(1).says(&["file", "would overwrite each other"]);
    let mixed = run(cp().arg(from.join("tree/")).arg(from.join("other")).arg(to.join("out")));
    mixed.expect(1).says(&["trailing slash"]);
    assert!(!to.join("out").exists());
}

#[test]
fn fifo_in_the_way_is_kept_with_a_message() {
    let (from, to) = (Scratch::new(), Scratch::new());
    write_file(&from.join("file"), b"content");
    let fifo = to.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let daemon = Daemon::start(to.path(), &[]);
    let copies = [
        run(cp().arg(from.join("file")).arg(&fifo)),
        run(daemon.cp().arg(from.join("file")).arg(daemon.url("fifo"))),
        run(daemon.cp().arg("--checksum").arg(from.join("file")).arg(daemon.url("fifo"))),
    ];
    for done in copies {
        done.expect(23).fails(&["device, FIFO or socket", "remove or rename it"]);
    }
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
}
