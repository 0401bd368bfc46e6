//! `bankfull gather --merge`: several sources into one tree, by rule and independent of timing.

use super::harness::{
    Daemon, Done, Proxy, Scratch, assert_same, remote_url, run, set_mode, set_mtime, write_file,
};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Daemons whose trees overlap.
struct Overlap {
    roots: [Scratch; 3],
    daemons: Vec<Daemon>,
    here: Scratch,
}

impl Overlap {
    fn new() -> Self {
        let roots = [(); 3].map(|()| Scratch::new());
        for (number, root) in roots.iter().enumerate() {
            write_file(&root.join(format!("data/own/{number}")), format!("{number}"));
            write_file(&root.join("data/shared/file"), format!("from {number}"));
            write_file(&root.join(format!("data/shared/{number}")), format!("{number}"));
            write_file(&root.join("data/large"), vec![number as u8; 3 << 20]);
        }
        // The newest file is in the middle source, and of equal ones the first wins.
        for (number, time) in [100, 300, 300].into_iter().enumerate() {
            set_mtime(&roots[number].join("data/shared/file"), time, 7);
            set_mtime(&roots[number].join("data/large"), time, 7);
        }
        let daemons = roots.iter().map(|root| Daemon::start(root.path(), &[])).collect();
        Self { roots, daemons, here: Scratch::new() }
    }

    fn command(&self, rule: &str, sources: &[String], into: &Path) -> Command {
        let mut command = super::harness::gather();
        command.args(["--merge", rule, "--accept-new", "--state-dir"]);
        command.arg(self.here.join("state")).args(sources).arg(into);
        command
    }

    fn sources(&self, path: &str) -> Vec<String> {
        self.daemons.iter().map(|daemon| daemon.url(path)).collect()
    }

    /// Merges all sources by a rule; returns the destination and the result.
    fn merge(&self, rule: &str, code: i32) -> (Scratch, Done) {
        let into = Scratch::new();
        let done = run(&mut self.command(rule, &self.sources("data"), into.path())).expect(code);
        for number in 0..3 {
            for name in [format!("own/{number}"), format!("shared/{number}")] {
                let copied_to = fs::read_to_string(into.join("data").join(name)).unwrap();
                assert_eq!(copied_to, number.to_string());
            }
        }
        (into, done)
    }
}

fn file(into: &Scratch) -> (String, u8) {
    let large = fs::read(into.join("data/large")).unwrap();
    assert!(large.len() == 3 << 20 && large.iter().all(|&byte| byte == large[0]));
    (fs::read_to_string(into.join("data/shared/file")).unwrap(), large[0])
}

#[test]
fn first_source_wins_and_others_fail_or_are_skipped() {
    let overlap = Overlap::new();
    let (into, done) = overlap.merge("first", 0);
    assert_eq!(file(&into), ("from 0".to_owned(), 0));
    assert_eq!(done.figures(["files", "failed_files"]), [8, 0]);
    let again = run(&mut overlap.command("first", &overlap.sources("data"), into.path()));
    assert_eq!(again.expect(0).figures(["files", "skipped_files", "bytes"]), [0, 8, 0]);

    let (into, done) = overlap.merge("refuse", 23);
    assert_eq!(file(&into), ("from 0".to_owned(), 0));
    assert_eq!(done.figures(["files", "failed_files", "sources_failed"]), [8, 4, 0]);
    let [first, second, _] = &overlap.sources("data")[..] else { panic!() };
    done.fails(&["data/shared/file", first, second, "rename one of them"]);
}

#[test]
fn newest_wins_and_first_of_equal_ones() {
    let overlap = Overlap::new();
    let (into, done) = overlap.merge("newest", 0);
    assert_eq!(file(&into), ("from 1".to_owned(), 1));
    assert_eq!(done.figures(["files", "failed_files"]), [8, 0]);
    let mut sources = overlap.sources("data");
    sources.reverse();
    let into = Scratch::new();
    run(&mut overlap.command("newest", &sources, into.path())).expect(0);
    assert_eq!(file(&into), ("from 2".to_owned(), 2));
}

#[test]
fn slow_first_source_still_wins() {
    let overlap = Overlap::new();
    let proxy = Proxy::start(overlap.daemons[0].port);
    proxy.slow_to(100_000);
    let mut sources = overlap.sources("data");
    sources[0] = proxy.url("data");
    fs::remove_file(overlap.roots[0].join("data/large")).unwrap();
    let into = Scratch::new();
    run(&mut overlap.command("first", &sources, into.path())).expect(0);
    assert_eq!(file(&into), ("from 0".to_owned(), 1));
}

#[test]
fn file_and_directory_conflict_is_decided_by_order() {
    let overlap = Overlap::new();
    write_file(&overlap.roots[0].join("data/x"), "a file");
    write_file(&overlap.roots[1].join("data/x/y"), "beneath a directory");
    write_file(&overlap.roots[2].join("data/x/z"), "beneath another");
    for (number, target) in ["elsewhere", "nowhere"].into_iter().enumerate() {
        let link = overlap.roots[number].join("data/link");
        symlink(target, &link).unwrap();
        set_mtime(&link, number as i64, 0);
    }
    for rule in ["first", "newest"] {
        let (into, done) = overlap.merge(rule, 23);
        assert_eq!(fs::read_to_string(into.join("data/x")).unwrap(), "a file");
        done.fails(&["data/x is a file from", "and a directory from"]);
        done.fails(&["its directory could not be created"]);
        let link = fs::read_link(into.join("data/link")).unwrap();
        // The second symlink is newer.
        assert_eq!(link.to_str(), Some(if rule == "first" { "elsewhere" } else { "nowhere" }));
    }
    let mut sources = overlap.sources("data");
    sources.rotate_left(1);
    let into = Scratch::new();
    let done = run(&mut overlap.command("newest", &sources, into.path())).expect(23);
    assert!(into.join("data/x/y").exists() && into.join("data/x/z").exists());
    assert_eq!(done.figure("failed_files"), 1);
}

#[test]
fn shared_directory_has_metadata_of_the_first_source() {
    let overlap = Overlap::new();
    let first = overlap.roots[0].join("data");
    for (number, root) in overlap.roots.iter().enumerate() {
        for dir in ["data/shared", "data"] {
            set_mode(&root.join(dir), if number == 0 { 0o555 } else { 0o750 });
            set_mtime(&root.join(dir), 1000 + number as i64, 5);
        }
    }
    let into = Scratch::new();
    let known = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.permissions().mode() & 0o777, found.mtime())
    };
    // In the second run they exist and are read-only.
    for (path, into) in [("data", into.join("in")), ("data/", into.join("in/data"))] {
        run(&mut overlap.command("first", &overlap.sources(path), &into)).expect(0);
    }
    for dir in ["data", "data/shared"] {
        assert_eq!(known(&into.join("in").join(dir)), known(&overlap.roots[0].join(dir)), "{dir}");
    }
    write_file(&overlap.roots[2].join("data/own/more"), "more");
    run(&mut overlap.command("first", &overlap.sources("data"), &into.join("in"))).expect(0);
    assert_eq!(known(&into.join("in/data")), known(&first));
    assert_same(&overlap.roots[0].join("data/large"), &into.join("in/data/large"));
}

#[test]
fn dead_source_is_skipped_as_in_a_dry_run() {
    let overlap = Overlap::new();
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut sources = overlap.sources("data");
    sources.insert(0, remote_url(free, "data"));
    let into = overlap.here.join("in");
    let mut dry = overlap.command("refuse", &sources, &into);
    let plan = run(dry.arg("-n")).expect(23);
    assert_eq!(plan.figures(["would_copy_entries", "failed_files"]), [8, 4]);
    assert!(!into.exists());
    let done = run(&mut overlap.command("refuse", &sources, &into)).expect(23);
    assert_eq!(done.figures(["files", "failed_files", "sources_failed"]), [8, 4, 1]);
}

#[test]
fn source_lost_while_listing_has_no_effect() {
    let overlap = Overlap::new();
    let proxy = Proxy::start(overlap.daemons[0].port);
    // It is lost during the greeting, before listing anything.
    proxy.cut_all_after(500);
    let mut sources = overlap.sources("data");
    sources[0] = proxy.url("data");
    let into = Scratch::new();
    run(&mut overlap.command("first", &sources, into.path())).expect(23);
    assert_eq!(file(&into), ("from 1".to_owned(), 1));
    proxy.mend();
    run(&mut overlap.command("first", &sources, into.path())).expect(0);
    assert_eq!(file(&into), ("from 0".to_owned(), 0));
}

#[test]
fn directories_of_a_source_without_files_keep_metadata() {
    let roots = [(); 2].map(|()| Scratch::new());
    for number in 0..40 {
        let dir = roots[0].join(format!("data/dir-{number}"));
        fs::create_dir_all(&dir).unwrap();
        set_mode(&dir, 0o710);
        set_mtime(&dir, 1000 + number, 5);
    }
    // Listed for much longer: meanwhile the sender of the first source has finished.
    for number in 0..5000 {
        write_file(&roots[1].join(format!("data/{}/{number}", number % 100)), "");
    }
    let daemons = roots.each_ref().map(|root| Daemon::start(root.path(), &[]));
    let (here, into) = (Scratch::new(), Scratch::new());
    let mut command = super::harness::gather();
    command.args(["--merge", "first", "--accept-new", "--state-dir"]).arg(here.join("state"));
    command.args(daemons.iter().map(|daemon| daemon.url("data"))).arg(into.path());
    run(&mut command).expect(0);
    for number in 0..40 {
        let found = fs::metadata(into.join(format!("data/dir-{number}"))).unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime()), (0o710, 1000 + number), "{number}");
    }
}
