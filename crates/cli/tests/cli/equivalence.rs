//! Flags and rules together: after rsync(1) and after bankfull, two equal destinations are equal.
//!
//! Content, kind, mode, owner, times, links, attributes, ACLs and holes are compared, and whether
//! anything failed. `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{
    Daemon, Done, Rng, Scratch, is_root, run, set_mode, unprivileged, write_file,
};
use super::metadata::{Routes, below, change, flags as metadata_flags, make_tree, shuffle};
use super::rsync::{each_case, has_rsync};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Default number of generated cases.
const CASES: u64 = 60;

/// Filter rules about the names of the trees.
const RULES: [&str; 14] = [
    "- a", "- b/", "+ /a/**", "P c", "R d d", "- /b/a", "+ */", "- f*", "-s e", "-r é", "-! */",
    "P b/", "- **/c/*", "hide -g",
];

/// Flags about what exists and what is chosen, with the same meaning in both programs.
const CHOICES: [&str; 13] = [
    "--update",
    "--existing",
    "--ignore-existing",
    "--size-only",
    "--checksum",
    "--max-size=1000",
    "--min-size=1",
    "--safe-links",
    "--chmod=Dg+w,Fo-r",
    "--backup-dir=../BACKUP",
    "--modify-window=1",
    "--executability",
    "--one-file-system",
];

/// Time limit of rsync, which hangs in rare cases, in seconds.
const RSYNC_TIMEOUT: &str = "20";

/// Returns the flags of a case.
fn flags(rng: &mut Rng) -> Vec<String> {
    // Rules for attributes differ on purpose, see docs/rsync.md.
    let kept = metadata_flags(rng).into_iter().filter(|flag| !flag.contains("-x "));
    let mut flags: Vec<String> = kept.map(str::to_owned).collect();
    let deletes = rng.below(3) > 0;
    if deletes {
        flags.push("--delete".to_owned());
    }
    if deletes && rng.below(4) == 0 {
        flags.push("--delete-excluded".to_owned());
    }
    if rng.below(2) == 0 {
        flags.push(CHOICES[below(rng, CHOICES.len())].to_owned());
    }
    for _ in 0..rng.below(3) {
        flags.push(format!("--filter={}", RULES[below(rng, RULES.len())]));
    }
    flags
}

/// Sets a time of its own for each file and directory: a second is not shared by two versions.
fn spread_times(root: &Path, rng: &mut Rng) {
    for path in facts(root).keys().rev() {
        let seconds = format!("@{}", 1_000_000_000 + rng.below(500_000_000));
        change("touch", &["-h", "-d", &seconds], &root.join(path));
    }
}

/// Changes a tree as a user would between two copies.
fn alter(root: &Path, rng: &mut Rng, changes_kinds: bool) {
    let paths: Vec<PathBuf> =
        facts(root).into_keys().filter(|p| !p.as_os_str().is_empty()).collect();
    for path in paths {
        let path = root.join(path);
        let Ok(found) = path.symlink_metadata() else { continue };
        match rng.below(12) {
            0 if found.is_dir() => fs::remove_dir_all(&path).unwrap(),
            0 => fs::remove_file(&path).unwrap(),
            1 if found.is_file() => {
                fs::remove_file(&path).unwrap();
                let length = [0, 5, 7, 300_000][below(rng, 4)];
                write_file(&path, rng.bytes(length));
            }
            2 if found.is_dir() => write_file(&path.join("new"), b"new"),
            3 if found.is_file() => {
                // A hole in the middle.
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(b"end", 2_000_000).unwrap();
            }
            4 if changes_kinds && found.is_dir() => {
                fs::remove_dir_all(&path).unwrap();
                write_file(&path, b"now a file");
            }
            4 if changes_kinds => {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
                write_file(&path.join("a"), b"beneath");
            }
            _ => {}
        }
    }
}

/// Returns what is compared of each entry, by path.
fn facts(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut groups = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    let mut all = Vec::new();
    while let Some(relative) = todo.pop() {
        let path = root.join(&relative);
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() {
            let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
            todo.extend(names.map(|name| relative.join(name)));
        }
        all.push((relative, metadata));
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (relative, metadata) in all {
        let path = root.join(&relative);
        let kind = metadata.file_type();
        let content = match () {
            () if kind.is_file() => blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string(),
            () if kind.is_symlink() => fs::read_link(&path).unwrap().display().to_string(),
            () if kind.is_char_device() || kind.is_block_device() => metadata.rdev().to_string(),
            () => String::new(),
        };
        let group = match metadata.is_dir() {
            true => relative.clone(),
            false => {
                let inode = (metadata.dev(), metadata.ino());
                groups.entry(inode).or_insert_with(|| relative.clone()).clone()
            }
        };
        let text = format!(
            "{:o} {}:{} {} {} {content} first name {}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
            if kind.is_dir() { 0 } else { metadata.size() },
            group.display(),
        );
        found.insert(relative, text);
    }
    for (path, attributes) in attributes(root) {
        let text = found.get_mut(&path);
        text.unwrap_or_else(|| panic!("{path:?} is unknown")).push_str(&attributes);
    }
    found
}

/// Returns extended attributes, ACLs among them, by path.
fn attributes(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut command = Command::new("getfattr");
    command.args(["-R", "-P", "-h", "-d", "-m", "-", "-e", "hex", "."]).current_dir(root);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let entries = text.split("\n\n").filter_map(|entry| entry.trim().split_once('\n'));
    let path = |line: &str| {
        // Other bytes are written in octal.
        let name = line.trim_start_matches("# file: ").replace("\\303\\251", "é");
        PathBuf::from(name.trim_start_matches("./").trim_start_matches('.'))
    };
    entries
        .map(|(first, rest)| {
            let mut lines: Vec<&str> = rest.lines().collect();
            lines.sort_unstable();
            (path(first), format!(" {}", lines.join(" ")))
        })
        .collect()
}

/// A copy by each program, to compare.
struct Case<'c> {
    seed: u64,
    flags: &'c [String],
    source: &'c Path,
    ours: &'c Path,
    theirs: &'c Path,
}

impl Case<'_> {
    /// Compares what the programs left; `rsync` is the one command, `done` the other's end.
    fn check(&self, rsync: &mut Command, done: &Done) -> bool {
        let before = facts(self.theirs);
        let output = rsync.output().unwrap();
        if output.status.code() == Some(124) {
            // It hangs where kinds change beneath a protected entry.
            return false;
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let context = format!(
            "BANKFULL_SEED={} {:?}\nrsync {:?}: {text}\nbankfull {:?}: {}{}",
            self.seed,
            self.flags,
            output.status.code(),
            done.code,
            done.err,
            done.out
        );
        // Beneath a directory that is left out, rsync fails.
        let leaves_out = self.flags.iter().any(|flag| flag == "--ignore-existing");
        let is_same_end = (done.code == Some(0)) == output.status.success();
        assert!(is_same_end || leaves_out && done.code == Some(0), "{context}");
        if !output.status.success() {
            // The obstacle stays; the programs may differ in what else they have copied.
            return false;
        }
        let [source, ours, theirs] = [self.source, self.ours, self.theirs].map(facts);
        let differing: Vec<String> = ours
            .keys()
            .chain(theirs.keys())
            .filter(|path| ours.get(*path) != theirs.get(*path))
            .map(|path| {
                let of = |facts: &BTreeMap<PathBuf, String>| facts.get(path).cloned();
                let [before, theirs] = [&before, &theirs].map(of);
                let [ours, source] = [&ours, &source].map(of);
                format!(
                    "{path:?}\n  source {source:?}\n  before {before:?}\n  rsync  {theirs:?}\n  \
                     ours   {ours:?}"
                )
            })
            .collect();
        assert!(differing.is_empty(), "{context}\n{}", differing.join("\n"));
        self.check_holes();
        before != theirs
    }

    /// Checks that copies with holes have them, too.
    fn check_holes(&self) {
        for path in facts(self.source).keys() {
            let [source, copy] = [self.source, self.ours].map(|root| root.join(path));
            let (Ok(source), Ok(copy)) = (source.symlink_metadata(), copy.symlink_metadata())
            else {
                continue;
            };
            if source.is_file() && source.size() == 2_000_003 && copy.size() == 2_000_003 {
                assert!(copy.blocks() <= 2 * source.blocks(), "{path:?} lost its hole");
            }
        }
    }
}

/// Makes a source and two equal, older copies of it.
fn make_places(root: &Path, seed: u64, rng: &mut Rng, flags: &[String]) -> [PathBuf; 3] {
    let places = ["", "o/copy", "t/copy"].map(|name| root.join(format!("{seed}{name}")));
    places.iter().for_each(|place| fs::create_dir_all(place).unwrap());
    let keeps_owners = flags.iter().any(|flag| flag == "-a")
        && !flags.iter().any(|flag| ["--no-owner", "--no-group"].contains(&flag.as_str()));
    let entries = make_tree(&places[0], rng);
    shuffle(&entries, rng, keeps_owners);
    spread_times(&places[0], rng);
    for place in &places[1..] {
        let mut rsync = Command::new("rsync");
        rsync.args(["-aHAX"]).arg(places[0].join("")).arg(place);
        assert!(rsync.output().unwrap().status.success());
    }
    let deletes = flags.iter().any(|flag| flag == "--delete");
    alter(&places[0], rng, deletes);
    let entries: Vec<_> = facts(&places[0]).into_keys().map(|path| places[0].join(path)).collect();
    shuffle(&entries, rng, keeps_owners);
    // Half of the entries keep the time of the copy, by which they are unchanged.
    for path in entries.iter().rev().filter(|path| !path.is_symlink()) {
        let copy = places[1].join(path.strip_prefix(&places[0]).unwrap());
        let content = |path: &Path| path.is_file().then(|| fs::read(path).unwrap());
        let is_same = copy.exists() && content(&copy) == content(path);
        match is_same && rng.below(2) == 0 {
            true => drop(change("touch", &["-r", copy.to_str().unwrap()], path)),
            // Directories must not have the present time, which rsync gives to those of the copy.
            false if path.is_file() || path.is_dir() => {
                let seconds = format!("@{}", 1_500_000_001 + rng.below(100_000_000));
                change("touch", &["-d", &seconds], path);
            }
            false => {}
        }
    }
    places
}

fn rsync(flags: &[String], source: &Path, to: &Path) -> Command {
    let mut rsync = Command::new("timeout");
    rsync.args([RSYNC_TIMEOUT, "rsync", "-rl"]).args(flags);
    // Deletions are at the end here, too.
    rsync.args(flags.iter().any(|flag| flag == "--delete").then_some("--delete-after"));
    rsync.arg(source.join("")).arg(to);
    rsync
}

/// True if rsync and the programs that show and set attributes are here.
fn has_programs() -> bool {
    let is_here = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let missing = ["getfattr", "setfattr", "setfacl"].into_iter().find(|program| !is_here(program));
    missing.inspect(|program| println!("skipped: {program} is missing"));
    missing.is_none() && has_rsync()
}

#[test]
fn copies_are_equal_to_those_of_rsync() {
    if !has_programs() {
        return;
    }
    let routes = Routes::start();
    each_case(CASES, |seed| {
        let mut rng = Rng::new(seed);
        let flags = flags(&mut rng);
        let [source, ours, theirs] = make_places(routes.root.path(), seed, &mut rng, &flags);
        let mut words: Vec<&str> = flags.iter().map(String::as_str).collect();
        // Rsync has no such care.
        words.extend(flags.iter().any(|flag| flag == "--delete").then_some("--allow-empty-source"));
        let done =
            run(&mut routes.copy(seed, &format!("{seed}/"), &format!("{seed}o/copy"), &words));
        let case = Case { seed, flags: &flags, source: &source, ours: &ours, theirs: &theirs };
        case.check(&mut rsync(&flags, &source, &theirs), &done)
    });
}

#[test]
fn copies_of_an_ordinary_user_are_equal_to_those_of_rsync() {
    if !has_programs() || !is_root() {
        return println!("skipped: needs root");
    }
    let here = Scratch::new();
    let daemon = {
        let mut command = unprivileged(&here, &here.dir("state"));
        // Where set-id bits are not permitted, those of directories stay, unlike in rsync.
        command.args([
            "serve",
            "--json",
            "--allow-owner",
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
        ]);
        Daemon::from_command(command.arg(here.path().join("state")).arg(here.path()))
    };
    each_case(CASES / 3, |seed| {
        let mut rng = Rng::new(seed);
        let mut flags = flags(&mut rng);
        // Rsync fails to create devices; here they are left out.
        flags.push("--no-D".to_owned());
        let root = here.dir(&format!("u{seed}"));
        let [source, ours, theirs] = make_places(&root, seed, &mut rng, &flags);
        for path in facts(&source).keys().map(|path| source.join(path)) {
            let mode = path.symlink_metadata().unwrap().mode() & 0o777;
            if !path.is_symlink() {
                set_mode(&path, mode | if path.is_dir() { 0o755 } else { 0o444 });
            }
        }
        let owned = |path: &Path| change("chown", &["-Rh", "65534:65534"], path);
        assert!(owned(ours.parent().unwrap()) && owned(theirs.parent().unwrap()));
        let mut command = unprivileged(&here, &here.dir("own"));
        command.args(["cp", "--json"]).args(flags.iter().filter(|flag| *flag != "-rlpt"));
        command.args(flags.iter().any(|flag| flag == "-rlpt").then_some("-rpt"));
        command.args(flags.iter().any(|flag| flag == "--delete").then_some("--allow-empty-source"));
        let beneath = ours.strip_prefix(here.path()).unwrap().to_str().unwrap();
        command.arg(source.join(""));
        let done = match seed % 2 {
            0 => run(command.arg(&ours)),
            _ => run(command.args(["--fingerprint", &daemon.fingerprint]).arg(daemon.url(beneath))),
        };
        let mut as_user = Command::new("setpriv");
        as_user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        let rsync = rsync(&flags, &source, &theirs);
        as_user.arg(rsync.get_program()).args(rsync.get_args());
        let case = Case { seed, flags: &flags, source: &source, ours: &ours, theirs: &theirs };
        case.check(&mut as_user, &done)
    });
}
