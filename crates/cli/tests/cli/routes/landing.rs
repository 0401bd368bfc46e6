//! Where sources land: rsync's rule, the same by every route, and the same when the command is
//! repeated.

use super::super::harness::{Daemon, Done, Scratch, assert_same, cp, run, write_file};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

/// Sources, the destination, and what is there afterwards; all relative, with a slash at the end
/// where it is typed. `out` exists before, `new` does not.
struct Case {
    sources: &'static [&'static str],
    destination: &'static str,
    landed: &'static [(&'static str, &'static str)],
}

const CASES: [Case; 11] = [
    Case { sources: &["tree"], destination: "new", landed: &[("tree", "new/tree")] },
    Case { sources: &["tree"], destination: "new/", landed: &[("tree", "new/tree")] },
    Case { sources: &["tree"], destination: "out", landed: &[("tree", "out/tree")] },
    Case { sources: &["tree/"], destination: "new", landed: &[("tree", "new")] },
    Case { sources: &["tree/"], destination: "out/", landed: &[("tree", "out")] },
    Case { sources: &["tree/."], destination: "out", landed: &[("tree", "out")] },
    Case { sources: &["file"], destination: "new", landed: &[("file", "new")] },
    Case { sources: &["file"], destination: "new/", landed: &[("file", "new/file")] },
    Case { sources: &["file"], destination: "out", landed: &[("file", "out/file")] },
    Case {
        sources: &["file", "tree"],
        destination: "new",
        landed: &[("file", "new/file"), ("tree", "new/tree")],
    },
    Case {
        sources: &["tree/sub/leaf", "link", "tree"],
        destination: "out",
        landed: &[("tree/sub/leaf", "out/leaf"), ("link", "out/link"), ("tree", "out/tree")],
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

/// Runs each case twice by a route and looks where things are.
fn check(route: impl Fn(&Path, &Path, &Case) -> Done) {
    for case in &CASES {
        let (from, to) = (sources(), Scratch::new());
        fs::create_dir(to.join("out")).unwrap();
        let what = format!("{:?} to {}", case.sources, case.destination);
        let first = route(from.path(), to.path(), case).expect(0);
        for (source, landed) in case.landed {
            assert_same(&from.join(source), &to.join(landed));
        }
        let told = landings(&first);
        for (told, (_, landed)) in told.iter().zip(case.landed) {
            assert!(told.trim_end_matches('/').ends_with(landed), "{what}: {told}");
        }
        assert_eq!(told.len(), case.sources.len(), "{what}");

        let again = route(from.path(), to.path(), case).expect(0);
        assert_eq!(landings(&again), told, "{what}");
        assert_eq!(again.figure("files"), 0, "{what}");
        for (source, landed) in case.landed {
            assert_same(&from.join(source), &to.join(landed));
        }
    }
}

/// The paths of the landings; those at a daemon have its address, which each run has its own of.
fn landings(done: &Done) -> Vec<String> {
    let events = done.events();
    let landings = events.iter().filter(|event| event["event"] == "landing");
    let places = landings.map(|event| event["destination"].as_str().unwrap());
    let beneath =
        |place: &str| place.strip_prefix("bankfull://")?.split_once('/').map(|p| p.1.to_owned());
    places.map(|place| beneath(place).unwrap_or_else(|| place.to_owned())).collect()
}

#[test]
fn sources_land_as_with_rsync_within_the_host() {
    check(|from, to, case| {
        let mut command = cp();
        command.current_dir(from).args(case.sources).arg(to.join(case.destination));
        run(&mut command)
    });
}

#[test]
fn sources_land_as_with_rsync_at_a_daemon() {
    check(|from, to, case| {
        let daemon = Daemon::start(to, &[]);
        run(daemon.cp().current_dir(from).args(case.sources).arg(daemon.url(case.destination)))
    });
}

#[test]
fn sources_land_as_with_rsync_from_a_daemon() {
    check(|from, to, case| {
        let daemon = Daemon::start(from, &["--read-only"]);
        let sources = case.sources.iter().map(|source| daemon.url(source));
        run(daemon.cp().current_dir(to).args(sources).arg(case.destination))
    });
}

#[test]
fn a_file_takes_the_place_of_a_file_and_of_a_symlink_but_is_not_written_through_it() {
    let (from, to) = (sources(), Scratch::new());
    write_file(&to.join("old"), b"old content, longer than the new");
    write_file(&to.join("outside"), b"outside");
    fs::create_dir(to.join("out")).unwrap();
    std::os::unix::fs::symlink("../outside", to.join("out/file")).unwrap();
    for (destination, landed) in [("old", "old"), ("out", "out/file")] {
        run(cp().arg(from.join("file")).arg(to.join(destination))).expect(0);
        assert_same(&from.join("file"), &to.join(landed));
    }
    assert_eq!(fs::read(to.join("outside")).unwrap(), b"outside");
}

#[test]
fn the_whole_root_of_a_daemon_is_fetched_by_its_bare_address() {
    let (from, to) = (sources(), Scratch::new());
    let daemon = Daemon::start(from.path(), &[]);
    run(daemon.cp().arg(daemon.url("")).arg(to.join("all"))).expect(0);
    assert_same(from.path(), &to.join("all"));
}

#[test]
fn operands_need_not_be_text() {
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
fn sources_that_would_land_on_each_other_are_refused_before_anything_is_written() {
    let (from, to) = (sources(), Scratch::new());
    write_file(&from.join("other/file"), b"another file");
    let clash = run(cp().arg(from.join("file")).arg(from.join("other/file")).arg(to.join("out")));
    clash.expect(1).says(&["file", "land on each other"]);
    let mixed = run(cp().arg(from.join("tree/")).arg(from.join("other")).arg(to.join("out")));
    mixed.expect(1).says(&["trailing slash"]);
    assert!(!to.join("out").exists());
}

#[test]
fn a_fifo_where_a_file_would_go_is_kept_and_that_is_said() {
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
