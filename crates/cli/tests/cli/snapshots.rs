//! Snapshots (`--link-dest`) compared with the real rsync(1): the same content, metadata and
//! inodes, and an earlier copy that stays as it was.
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{Daemon, Rng, Scratch, cp, is_root, run, set_mode, unprivileged, write_file};
use super::rsync::{each_case, has_rsync};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Default number of generated cases.
const CASES: u64 = 60;

/// User and group without rights. (those of overflow, linux/highuid.h)
const OTHER: u32 = 65534;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e/a", "e/b", "e/f/a", "g"];

/// Seconds since 1970 of files; rsync compares whole ones.
const TIMES: [u64; 3] = [1_000_000_000, 1_000_000_001, 1_500_000_000];

const SIZES: [usize; 3] = [10, 1000, 300_000];

/// Content and metadata of each file of a tree by its path.
type Facts = BTreeMap<PathBuf, String>;

/// Paths of each inode with several.
type Groups = BTreeSet<BTreeSet<PathBuf>>;

fn touch(path: &Path, secs: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize]
}

fn make_file(path: &Path, rng: &mut Rng, owners: &[u32]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_file(path, vec![b'a' + rng.below(2) as u8; one_of(rng, &SIZES)]);
    set_mode(path, one_of(rng, &[0o644, 0o644, 0o600, 0o755]));
    touch(path, one_of(rng, &TIMES));
    if is_root() {
        lchown(path, Some(one_of(rng, owners)), Some(one_of(rng, owners))).unwrap();
    }
}

fn make_source(root: &Path, rng: &mut Rng) {
    for name in NAMES {
        let path = root.join(name);
        let first = root.join(one_of(rng, &NAMES));
        match rng.below(4) {
            0 => {}
            1 if first.exists() => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::hard_link(first, path).unwrap();
            }
            _ => make_file(&path, rng, &[0, 1, 2]),
        }
    }
}

/// Makes a copy of a source with files that are missing or differ.
fn make_copy(copy: &Path, source: &Path, earlier: Option<&Path>, rng: &mut Rng) {
    fs::create_dir_all(copy).unwrap();
    let mut rsync = Command::new("rsync");
    rsync.arg("-aH").args(earlier.map(|dir| format!("--link-dest={}", dir.display())));
    assert!(rsync.arg(format!("{}/", source.display())).arg(copy).status().unwrap().success());
    for path in NAMES.map(|name| copy.join(name)) {
        let Ok(metadata) = path.metadata() else { continue };
        let is_changed = rng.below(2) == 0;
        let how = rng.below(5);
        if is_changed {
            // Another inode, so that nothing else changes with it.
            let content = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            match how {
                0 => {}
                1 => make_file(&path, rng, &[0, 1, 2]),
                _ => {
                    write_file(&path, content);
                    let mode = if how == 2 { 0o640 } else { metadata.mode() };
                    set_mode(&path, mode);
                    let secs = if how == 3 { one_of(rng, &TIMES) } else { metadata.mtime() as u64 };
                    touch(&path, secs);
                    if is_root() {
                        chown(&path, Some(metadata.uid()), Some(metadata.gid())).unwrap();
                    }
                }
            }
        }
    }
}

/// Makes a source, an earlier copy, and often a copy to update.
fn make_trees(here: &Path, rng: &mut Rng, is_user: bool) {
    let [source, day1, day2] = ["s", "day1", "day2"].map(|name| here.join(name));
    make_source(&source, rng);
    fs::create_dir_all(&source).unwrap();
    make_copy(&day1, &source, None, rng);
    match rng.below(3) {
        0 => {}
        1 => make_copy(&day2, &source, None, rng),
        _ => make_copy(&day2, &source, Some(&day1), rng),
    }
    // Files of a snapshot that have changed since.
    for path in NAMES.map(|name| source.join(name)) {
        if path.exists() && rng.below(4) == 0 {
            touch(&path, one_of(rng, &TIMES));
        }
    }
    if is_user {
        for dir in [here, &day1, &day2] {
            let mut chown = Command::new("chown");
            chown.arg("-R").arg(format!("{OTHER}:{OTHER}")).arg(dir);
            assert!(!dir.exists() || chown.status().unwrap().success());
        }
        let mut chmod = Command::new("chmod");
        assert!(chmod.args(["-R", "a+rX"]).arg(&source).status().unwrap().success());
        let mut chown = Command::new("chown");
        assert!(chown.args(["-R", "1:2"]).arg(&source).status().unwrap().success());
    }
}

fn flags(rng: &mut Rng) -> Vec<&'static str> {
    let mut flags = vec![["-rlpt", "-a", "-a", "-rl"][rng.below(4) as usize]];
    let mut add = |flag, one_in| {
        if rng.below(one_in) == 0 {
            flags.push(flag);
        }
    };
    add("--link-dest=../day1", 1);
    add("-H", 2);
    add("-c", 3);
    add("--size-only", 4);
    add("--modify-window=1", 5);
    if flags.contains(&"-H") && rng.below(2) == 0 {
        flags.retain(|flag| !flag.starts_with("--link"));
        flags.push(["-u", "--existing", "--ignore-existing"][rng.below(3) as usize]);
    }
    flags
}

/// Returns facts and inodes of both copies.
fn facts(here: &Path, keeps_metadata: bool) -> (Facts, Groups) {
    let (mut facts, mut inodes) = (Facts::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for path in ["day1", "day2"].iter().flat_map(|day| NAMES.map(|name| Path::new(day).join(name)))
    {
        let Ok(metadata) = here.join(&path).metadata() else { continue };
        let content = fs::read(here.join(&path)).unwrap();
        let (first, size) = (content.first().copied().map(char::from), content.len());
        // A file that gets no mode has that of the umask here, and of an earlier copy in rsync.
        let kept = match keeps_metadata || path.starts_with("day1") {
            true => (metadata.mtime(), metadata.mode(), metadata.uid(), metadata.gid()),
            false => (0, 0, metadata.uid(), metadata.gid()),
        };
        facts.insert(path.clone(), format!("{size} {first:?} {kept:?}"));
        inodes.entry(metadata.ino()).or_default().insert(path);
    }
    (facts, inodes.into_values().filter(|paths| paths.len() > 1).collect())
}

fn of_day1(facts: &Facts) -> Vec<(PathBuf, String)> {
    let own = facts.iter().filter(|(path, _)| path.starts_with("day1"));
    own.map(|(path, fact)| (path.clone(), fact.clone())).collect()
}

/// Returns files of the second copy whose content alone differs from the first one's.
///
/// With `-c` one of both is compared with the source.
fn unclear_paths(here: &Path) -> BTreeSet<PathBuf> {
    let content = |path: &Path| fs::read(here.join(path)).ok();
    let is_unclear = |path: &PathBuf| {
        let [first, second] = ["day1", "day2"].map(|day| content(&Path::new(day).join(path)));
        first.zip(second).is_some_and(|(a, b)| a.len() == b.len() && a != b)
    };
    let paths = NAMES.map(PathBuf::from).into_iter().filter(is_unclear);
    paths.map(|path| Path::new("day2").join(path)).collect()
}

/// Returns groups without some paths; without those of the second copy alone unless `keeps_links`.
///
/// Names that are links there already stay so in rsync, even where their metadata change.
fn compared(groups: &Groups, unclear: &BTreeSet<PathBuf>, keeps_links: bool) -> Groups {
    let is_shared = |group: &BTreeSet<PathBuf>| group.iter().any(|path| path.starts_with("day1"));
    let rest = groups.iter().map(|group| group - unclear);
    rest.filter(|group| group.len() > 1 && (keeps_links || is_shared(group))).collect()
}

/// Way in which a case is copied.
struct Route<'r> {
    root: &'r Scratch,
    daemon: Option<&'r Daemon>,
    seed: u64,
    is_user: bool,
}

impl Route<'_> {
    /// Returns the command that updates the second copy.
    fn command(&self, flags: &[&str]) -> Command {
        let ours = self.root.join(format!("{}/ours", self.seed));
        let mut command = match (self.is_user, self.daemon) {
            (true, _) => unprivileged(self.root, &ours),
            (_, Some(daemon)) => daemon.cp(),
            _ => cp(),
        };
        command.args(self.is_user.then_some("cp"));
        // -rl is the default here, but -l limits the rate in scp.
        let own = flags.iter().map(|flag| match *flag {
            "-rlpt" => "-rpt",
            "-rl" => "--no-times",
            flag => flag,
        });
        command.args(own).args(flags.contains(&"-rl").then_some("--no-perms"));
        command.arg(format!("{}/", ours.join("s").display()));
        match self.daemon {
            Some(daemon) => command.arg(daemon.url(&format!("{}/ours/day2", self.seed))),
            None => command.arg(ours.join("day2")),
        };
        command
    }
}

/// Compares one case, which is copied twice; returns true if files of the earlier copy are shared.
fn compare(seed: u64, daemon: &Daemon, root: &Scratch) -> bool {
    let mut rng = Rng::new(seed);
    let is_user = is_root() && rng.below(3) == 0;
    let here = root.join(seed.to_string());
    for name in ["ours", "theirs"] {
        make_trees(&here.join(name), &mut rng.clone(), is_user);
    }
    for _ in 0..50 {
        let _ = rng.next();
    }
    let flags = flags(&mut rng);
    let daemon = Some(daemon).filter(|_| !is_user && rng.below(2) == 0);
    let route = Route { root, daemon, seed, is_user };
    let (ours, theirs) = (here.join("ours"), here.join("theirs"));
    let keeps_metadata = !flags.contains(&"-rl");
    let (before, _) = facts(&ours, keeps_metadata);
    assert_eq!(before, facts(&theirs, keeps_metadata).0, "{seed}");
    let unclear = if flags.contains(&"-c") { unclear_paths(&ours) } else { BTreeSet::new() };
    let mut is_shared = false;
    for turn in ["first", "second"] {
        let mut rsync = Command::new("rsync");
        if is_user {
            rsync.uid(OTHER).gid(OTHER);
        }
        rsync.args(&flags).arg(theirs.join("s/")).arg(theirs.join("day2"));
        let rsync = rsync.output().unwrap();
        let mut command = route.command(&flags);
        let done = run(&mut command);
        let rsync_err = String::from_utf8_lossy(&rsync.stderr).into_owned();
        let context =
            format!("BANKFULL_SEED={seed}, {turn}, {flags:?} {is_user}\n{}{rsync_err}", done.err);
        assert_eq!((done.code, rsync.status.code()), (Some(0), Some(0)), "{context}");
        let (found, groups) = facts(&ours, keeps_metadata);
        let (expected, expected_groups) = facts(&theirs, keeps_metadata);
        if flags.contains(&"--link-dest=../day1") {
            assert_eq!(of_day1(&found), of_day1(&before), "{context}");
            // Where a file of day2 is one of day1, rsync sets metadata on both.
            if of_day1(&expected) != of_day1(&before) {
                return true;
            }
        }
        let differs =
            |path: &&PathBuf| found.get(*path) != expected.get(*path) && !unclear.contains(*path);
        let paths: BTreeSet<_> = found.keys().chain(expected.keys()).filter(differs).collect();
        let shown: Vec<_> =
            paths.iter().map(|path| (path, found.get(*path), expected.get(*path))).collect();
        assert!(shown.is_empty(), "{context}{shown:#?}{before:#?}");
        let compared = |groups| compared(groups, &unclear, flags.contains(&"-H"));
        assert_eq!(compared(&groups), compared(&expected_groups), "{context}");
        is_shared |= groups.iter().any(|paths| {
            let in_day1 = paths.iter().filter(|path| path.starts_with("day1")).count();
            in_day1 > 0 && in_day1 < paths.len()
        });
    }
    is_shared
}

#[test]
fn snapshots_are_those_of_rsync() {
    if !has_rsync() {
        return;
    }
    let root = Scratch::new();
    root.open_to_all();
    // Root may set owners; the daemon has the permission of the user.
    let daemon = Daemon::start(root.path(), &["--allow-owner"]);
    each_case(CASES, |seed| compare(seed, &daemon, &root));
}

#[test]
fn what_a_daemon_may_not_set_does_not_hinder_links() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let here = Scratch::new();
    let (source, daemon) = (here.dir("s"), Daemon::start(here.path(), &[]));
    for name in ["a", "b"] {
        write_file(&source.join(name), b"content");
        chown(source.join(name), Some(1), Some(2)).unwrap();
    }
    set_mode(&source.join("b"), 0o4755);
    let copy = |to: &str, flags: &[&str]| {
        let mut command = daemon.cp();
        command.arg("-a").args(flags).arg(format!("{}/", source.display())).arg(daemon.url(to));
        run(&mut command).expect(0)
    };
    copy("day1", &[]);
    for (turn, skipped) in [("new", 2), ("again", 2)] {
        let done = copy("day2", &["--link-dest=../day1"]);
        assert_eq!(done.figures(["files", "skipped_files"]), [0, skipped], "{turn}");
        for (part, count) in [("owners", 2), ("groups", 2), ("set-id bits", 1)] {
            let text = format!("{part} that were not kept: {count}: ");
            let found = done.warnings().iter().filter(|warning| warning.starts_with(&text)).count();
            assert_eq!(found, 1, "{turn}: {:?}", done.warnings());
        }
    }
    let inode = |path: &str| here.join(path).metadata().unwrap().ino();
    assert_eq!(inode("day1/a"), inode("day2/a"));
    assert_eq!(inode("day1/b"), inode("day2/b"));
    let again = copy("day1", &["--itemize-changes"]);
    assert!(!again.out.contains("a\n") && !again.out.contains(".f"), "{}", again.out);
}

#[test]
fn earlier_copy_stays_as_it_was() {
    for flags in
        [&["--size-only"][..], &["-c"], &["-c", "--modify-window=5"], &["-c", "--no-times"], &[]]
    {
        let here = Scratch::new();
        let file = here.dir("s").join("f");
        write_file(&file, b"content");
        touch(&file, TIMES[0]);
        let copy = |to: &str, flags: &[&str]| {
            let mut command = cp();
            command.arg("-a").args(flags).arg(format!("{}/", here.join("s").display()));
            run(command.arg(here.join(to))).expect(0);
        };
        copy("day1", &[]);
        copy("day2", &["--link-dest=../day1"]);
        let [first, second] = ["day1/f", "day2/f"].map(|name| here.join(name));
        assert_eq!(first.metadata().unwrap().ino(), second.metadata().unwrap().ino());
        touch(&file, TIMES[1]);
        set_mode(&file, 0o600);
        for _ in 0..2 {
            copy("day2", &[&["--link-dest=../day1"], flags].concat());
            let found = first.metadata().unwrap();
            let found = (found.mtime() as u64, found.mode() & 0o777);
            assert_eq!(found, (TIMES[0], 0o644), "{flags:?}");
            assert_eq!(second.metadata().unwrap().mode() & 0o777, 0o600, "{flags:?}");
        }
    }
}
