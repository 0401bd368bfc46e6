//! Comparison with the real rsync(1): the same rules leave the same entries.
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{Daemon, Rng, Scratch, cp, run, snapshot, write_file};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Default number of generated cases.
const CASES: u64 = 300;

/// Threads that compare at the same time.
const THREADS: u64 = 4;

const NAMES: [&str; 10] = ["a", "b", "ab", "foo", "bar", "x.o", "y.o", ".h", "a[b", "c d"];

/// Parts of patterns, joined without a separator.
const PARTS: [&str; 20] = [
    "a",
    "b",
    "foo",
    "bar",
    "*",
    "**",
    "?",
    "/",
    "/",
    ".o",
    "*.o",
    "[ab]",
    "[!a]",
    "***",
    "/**/",
    "x",
    "\\",
    "[a-f]oo",
    "c d",
    "[[:alpha:]]",
];

/// True if the program is here.
pub(super) fn has_rsync() -> bool {
    let found = Command::new("rsync").arg("--version").stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: rsync is missing");
    }
    is_there
}

pub(super) fn pick<'p>(rng: &mut Rng, parts: &[&'p str]) -> &'p str {
    parts[rng.below(parts.len() as u64) as usize]
}

/// Makes a tree with some hundred entries, and files of rules in it.
fn make_tree(root: &Path, rng: &mut Rng) {
    let mut dirs = vec![PathBuf::new()];
    for _ in 0..40 {
        let dir = dirs[rng.below(dirs.len() as u64) as usize].clone();
        let name = pick(rng, &NAMES);
        let path = dir.join(name);
        if root.join(&path).exists() {
            continue;
        }
        // In the name of a directory with rules, rsync takes a bracket for a wildcard.
        if rng.below(2) == 0 && path.components().count() < 5 && !name.contains('[') {
            fs::create_dir(root.join(&path)).unwrap();
            dirs.push(path);
        } else {
            write_file(&root.join(&path), b"content");
        }
    }
    for dir in dirs.iter().filter(|dir| !dir.as_os_str().is_empty()) {
        if rng.below(3) == 0 {
            let rules: Vec<_> = (0..=rng.below(3)).map(|_| rule(rng)).collect();
            write_file(&root.join(dir).join(".rules"), rules.join("\n") + "\n");
        }
    }
}

fn pattern(rng: &mut Rng) -> String {
    let mut pattern: String = (0..=rng.below(4)).map(|_| pick(rng, &PARTS)).collect();
    if rng.below(5) == 0 {
        pattern.insert(0, '/');
    }
    if rng.below(5) == 0 {
        pattern.push('/');
    }
    pattern
}

/// Returns a rule with its name.
fn rule(rng: &mut Rng) -> String {
    let name =
        pick(rng, &["-", "+", "-", "+", "hide", "show", "exclude", "include", "-!", "+s", "P"]);
    format!("{name} {}", pattern(rng))
}

/// Returns the filter flags of a case.
fn flags(rng: &mut Rng) -> Vec<String> {
    let count = 1 + rng.below(4);
    let mut flags: Vec<String> = Vec::new();
    for _ in 0..count {
        match rng.below(5) {
            0 => flags.extend(["--exclude".into(), pattern(rng)]),
            1 => flags.extend(["--include".into(), pattern(rng)]),
            2 => flags.push(format!("--filter={}", rule(rng))),
            3 => flags.extend(["-f".into(), rule(rng)]),
            _ => {
                let name = pick(rng, &[": .rules", "dir-merge .rules", ":e .rules", ":n .rules"]);
                flags.push(format!("--filter={name}"));
            }
        }
    }
    flags
}

/// Compares one case by a route; returns true if something was left out.
fn compare(seed: u64, daemon: &Daemon, root: &Path) -> bool {
    let mut rng = Rng::new(seed);
    let source = root.join(seed.to_string());
    fs::create_dir(&source).unwrap();
    make_tree(&source, &mut rng);
    let flags = flags(&mut rng);
    let (ours, theirs) = (Scratch::new(), Scratch::new());
    // The directory itself is an entry, or its content alone is copied.
    let slash = if rng.below(2) == 0 { "/" } else { "" };
    let from = format!("{}{slash}", source.display());
    let mut rsync = Command::new("rsync");
    let rsync = rsync.arg("-r").args(&flags).arg(&from).arg(theirs.path()).output().unwrap();
    let rsync_err = String::from_utf8_lossy(&rsync.stderr).into_owned();
    let mut command = match seed % 2 {
        0 => cp(),
        _ => daemon.cp(),
    };
    command.args(&flags);
    match seed % 2 {
        0 => command.arg(&from),
        _ => command.arg(daemon.url(&format!("{seed}{slash}"))),
    };
    let done = run(command.arg(ours.path()));
    let context = format!("BANKFULL_SEED={seed}: {flags:?}\n{}{rsync_err}", done.err);
    assert_eq!(done.code, Some(0), "{context}");
    assert!(rsync.status.success(), "{context}");
    let paths =
        |dir: &Path| -> Vec<_> { snapshot(dir).into_iter().map(|(path, ..)| path).collect() };
    let (all, expected) = (paths(&source), paths(theirs.path()));
    assert_eq!(paths(ours.path()), expected, "{context}");
    expected.len() < all.len()
}

/// Runs generated cases, or the one of `BANKFULL_SEED`; most must have an effect.
pub(super) fn each_case(default_count: u64, compare: impl Fn(u64) -> bool + Sync) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("BANKFULL_SEED") {
        compare(seed);
        return;
    }
    let count = number("BANKFULL_CASES").unwrap_or(default_count);
    let (next, effective) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    effective.fetch_add(u64::from(compare(seed)), Ordering::Relaxed);
                }
            });
        }
    });
    let effective = effective.into_inner();
    assert!(effective * 2 > count, "only {effective} of {count} cases have an effect");
}

#[test]
fn filter_rules_leave_the_same_entries_as_in_rsync() {
    if !has_rsync() {
        return;
    }
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    each_case(CASES, |seed| compare(seed, &daemon, root.path()));
}

/// Copies with flags into new directories by both programs, which must leave the same paths.
fn copied(flags: &[&str], from: &str) -> Vec<PathBuf> {
    let (ours, theirs) = (Scratch::new(), Scratch::new());
    let paths =
        |dir: &Path| -> Vec<_> { snapshot(dir).into_iter().map(|(path, ..)| path).collect() };
    run(cp().args(flags).arg(from).arg(ours.path())).expect(0);
    let found = paths(ours.path());
    if has_rsync() {
        let mut rsync = Command::new("rsync");
        rsync.arg("-r").args(flags).arg(from).arg(theirs.path());
        assert!(rsync.status().unwrap().success(), "{flags:?} {from}");
        assert_eq!(found, paths(theirs.path()), "{flags:?} {from}");
    }
    found
}

#[test]
fn merge_file_is_read_again_after_a_clear_rule() {
    let here = Scratch::new();
    ["s/f.o", "s/d/f.o", "s/d/g"].iter().for_each(|name| write_file(&here.join(name), b"x"));
    write_file(&here.join("s/.rules"), "- g\n");
    let from = here.join("s/").display().to_string();
    let expected = [".", ".rules", "d", "d/f.o", "f.o"].map(PathBuf::from);
    let found = copied(&["-f", ": .rules", "-f", "!", "-f", ": .rules"], &from);
    assert_eq!(found[1..], expected[1..]);
    let found = copied(&["-f", ": .rules", "-f", "- *.o", "-f", "!"], &from);
    assert_eq!(found.len(), expected.len() + 1);
}

#[test]
fn symlink_as_a_merge_file_fails_its_directory_alone() {
    let here = Scratch::new();
    ["s/f", "s/d/f"].iter().for_each(|name| write_file(&here.join(name), b"x"));
    write_file(&here.join("rules"), b"- f\n");
    symlink("../../rules", here.join("s/d/.rules")).unwrap();
    for (flag, rule) in [("-f", ": .rules"), ("--ignore-file", ".rules")] {
        let to = Scratch::new();
        let done = run(cp().args([flag, rule]).arg(here.join("s")).arg(to.path())).expect(23);
        done.fails(&["s/d", "the file of rules .rules is a symlink, which is not followed"]);
        assert!(to.join("s/f").exists() && !to.join("s/d/f").exists());
    }
}

#[test]
fn empty_rules_leave_out_nothing() {
    let here = Scratch::new();
    write_file(&here.join("s/f"), b"x");
    let from = here.join("s").display().to_string();
    assert_eq!(copied(&["--exclude=", "--include=", "--filter="], &from).len(), 3);
}

#[test]
fn absolute_rules_in_merge_files_compare_whole_paths() {
    let here = Scratch::new();
    ["s/f", "s/d/f", "s/d/g"].iter().for_each(|name| write_file(&here.join(name), b"x"));
    let rule = format!("-/ {}\n", here.join("s/d/f").display());
    write_file(&here.join("s/d/.rules"), rule);
    for (from, left_out, kept) in [("s", "s/d/f", "s/d/g"), ("s/", "d/f", "d/g")] {
        let found = copied(&["-f", ": .rules"], here.join(from).to_str().unwrap());
        assert!(found.contains(&kept.into()) && !found.contains(&left_out.into()), "{found:?}");
    }
}
