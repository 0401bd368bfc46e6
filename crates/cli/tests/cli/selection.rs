//! Comparison with the real rsync(1): the same selection flags leave the same destination.
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{Daemon, Rng, Scratch, cp, run, write_file};
use super::rsync::{each_case, has_rsync, pick};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Default number of generated cases.
const CASES: u64 = 180;

const NAMES: [&str; 8] = ["a", "b", "c", "d.o", "e.txt", "f", "g", "h"];

/// Seconds since 1970 of files; some are one second apart.
const TIMES: [u64; 5] = [1_000_000_000, 1_000_000_001, 1_500_000_000, 1_600_000_000, 1_600_000_003];

const SIZES: [usize; 5] = [0, 1, 10, 1000, 5000];

const TARGETS: [&str; 14] = [
    "a",
    "b",
    "c",
    "../a",
    "../b",
    "a/b",
    "../../f",
    "../../../x",
    "/etc/hostname",
    "gone",
    "a/../../b",
    "./f",
    "../../../../../h",
    "g/",
];

fn touch(path: &Path, secs: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Makes a tree of files of several sizes and times, with symlinks in and out.
fn make_tree(root: &Path, rng: &mut Rng) {
    fs::create_dir_all(root).unwrap();
    let mut dirs = vec![PathBuf::new()];
    for _ in 0..30 {
        let path = dirs[rng.below(dirs.len() as u64) as usize].join(pick(rng, &NAMES));
        let full = root.join(&path);
        if full.symlink_metadata().is_ok() {
            continue;
        }
        match rng.below(10) {
            0..4 if path.components().count() < 5 => {
                fs::create_dir(full).unwrap();
                dirs.push(path);
            }
            0..6 => symlink(pick(rng, &TARGETS), full).unwrap(),
            _ => {
                let size = SIZES[rng.below(SIZES.len() as u64) as usize];
                write_file(&full, vec![b'a' + rng.below(2) as u8; size]);
                touch(&full, TIMES[rng.below(TIMES.len() as u64) as usize]);
            }
        }
    }
}

/// Makes a destination with some entries of a source, others changed.
fn make_destination(root: &Path, source: &Path, rng: &mut Rng) {
    fs::create_dir_all(root).unwrap();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        let mut names: Vec<_> =
            fs::read_dir(source.join(&dir)).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        for path in names.into_iter().map(|name| dir.join(name)) {
            let kind = source.join(&path).symlink_metadata().unwrap();
            let to = root.join(&path);
            match rng.below(3) {
                0 => {}
                _ if kind.is_dir() => {
                    fs::create_dir(to).unwrap();
                    todo.push(path);
                }
                _ if kind.is_symlink() => symlink("elsewhere", to).unwrap(),
                1 => {
                    fs::copy(source.join(&path), &to).unwrap();
                    touch(&to, TIMES[rng.below(TIMES.len() as u64) as usize]);
                }
                _ => {
                    let size = SIZES[rng.below(SIZES.len() as u64) as usize];
                    write_file(&to, vec![b'z'; size]);
                    touch(&to, TIMES[rng.below(TIMES.len() as u64) as usize]);
                }
            }
        }
    }
}

/// Flags of a case for `bankfull`, and for `rsync` where they differ.
#[derive(Default)]
struct Flags {
    ours: Vec<String>,
    theirs: Vec<String>,
}

impl Flags {
    fn add(&mut self, flag: &str) {
        self.ours.push(flag.into());
        self.theirs.push(flag.into());
    }
}

fn flags(rng: &mut Rng) -> Flags {
    let mut flags = Flags::default();
    for flag in ["--update", "--existing", "--ignore-existing", "--size-only"] {
        if rng.below(3) == 0 {
            flags.add(flag);
        }
    }
    if rng.below(4) == 0 {
        flags.add(&format!("--modify-window={}", rng.below(5)));
    }
    flags
}

/// Kind, content or target, and time of each entry by its path.
fn facts(root: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            let full = root.join(&path);
            let metadata = full.symlink_metadata().unwrap();
            let fact = if metadata.is_dir() {
                todo.push(path.clone());
                "directory".to_owned()
            } else if metadata.is_symlink() {
                format!("link to {}", fs::read_link(&full).unwrap().display())
            } else {
                let content = fs::read(&full).unwrap();
                let (first, size) = (content.first().copied().map(char::from), content.len());
                format!("file of {size} {first:?} at {}", metadata.mtime())
            };
            found.insert(path, fact);
        }
    }
    found
}

/// Compares one case by a route; returns true if the flags change the result.
fn compare(seed: u64, daemon: &Daemon, root: &Path) -> bool {
    let mut rng = Rng::new(seed);
    let here = root.join(seed.to_string());
    let source = here.join("s");
    make_tree(&source, &mut rng);
    let mut starts = rng.clone();
    // The directory itself is an entry, or its content alone is copied.
    let (slash, beneath) = if starts.below(2) == 0 { ("/", "") } else { ("", "s") };
    for name in ["ours", "theirs", "plain"] {
        make_destination(&here.join(name).join(beneath), &source, &mut starts.clone());
    }
    let flags = flags(&mut starts);
    let from = format!("{}{slash}", source.display());
    let rsync = |flags: &[String], to: &str| {
        let mut rsync = Command::new("rsync");
        rsync.args(["-rlt"]).args(flags).arg(&from).arg(here.join(to)).output().unwrap()
    };
    let rsync_err = String::from_utf8_lossy(&rsync(&flags.theirs, "theirs").stderr).into_owned();
    rsync(&[], "plain");
    let (url, ours) = (daemon.url(&seed.to_string()), here.join("ours"));
    let mut command = if seed.is_multiple_of(3) { cp() } else { daemon.cp() };
    command.args(["-r"]).args(&flags.ours);
    match seed % 3 {
        0 => command.arg(&from).arg(&ours),
        1 => command.arg(format!("{url}/s{slash}")).arg(&ours),
        _ => command.arg(&from).arg(format!("{url}/ours")),
    };
    let done = run(&mut command);
    let context = format!("BANKFULL_SEED={seed}: {:?}\n{}{rsync_err}", flags.ours, done.err);
    assert!(matches!(done.code, Some(0 | 3)), "{context}");
    let [found, expected, plain] = ["ours", "theirs", "plain"].map(|name| facts(&here.join(name)));
    assert_eq!(found, expected, "{context}");
    expected != plain
}

#[test]
fn selection_flags_leave_the_same_as_in_rsync() {
    if !has_rsync() {
        return;
    }
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    each_case(CASES, |seed| compare(seed, &daemon, root.path()));
}
