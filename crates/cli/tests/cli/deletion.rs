//! Deletion at the destination: the same entries stay as with rsync(1), and nothing is deleted if a
//! safety check fails.
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{
    Daemon, Rng, Scratch, cp, is_root, run, set_mode, snapshot, unprivileged, write_file,
};
use super::other_kinds::described;
use super::rsync::{each_case, has_rsync};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Default number of generated cases.
const CASES: u64 = 150;

/// Files, and directories: no name is both.
const FILES: [&str; 7] = ["f", "g", "x.o", "y.o", ".h", "l[", "m n"];
const DIRS: [&str; 4] = ["a", "b", "build", "keep"];

/// Rules that leave out or protect some of them.
const RULES: [&str; 15] = [
    "- *.o",
    "- build/",
    "P .h",
    "protect keep/",
    "R x.o",
    "-p y.o",
    "- /a/",
    "-s g",
    "-r f",
    "-sr m n",
    "-rs x.o",
    "+ f",
    ": .rules",
    "hide m n",
    "-sC",
];

fn pick<'p>(rng: &mut Rng, parts: &[&'p str]) -> &'p str {
    parts[rng.below(parts.len() as u64) as usize]
}

/// Adds some entries to a tree.
fn grow(root: &Path, rng: &mut Rng, count: u64) {
    let mut dirs = vec![root.to_owned()];
    for _ in 0..count {
        let dir = dirs[rng.below(dirs.len() as u64) as usize].clone();
        if rng.below(3) == 0 && dir.components().count() < root.components().count() + 4 {
            let path = dir.join(pick(rng, &DIRS));
            let _ = fs::create_dir(&path);
            dirs.push(path);
        } else if rng.below(12) == 0 {
            let _ = symlink("f", dir.join("link"));
        } else if rng.below(8) == 0 {
            write_file(&dir.join(".rules"), format!("{}\n", pick(rng, &RULES[..12])));
        } else {
            write_file(&dir.join(pick(rng, &FILES)), b"content");
        }
    }
}

/// Replaces some entries at the top of a copy by ones of another kind.
fn put_other_kinds(source: &Path, copy: &Path, rng: &mut Rng) {
    let mut names: Vec<_> =
        fs::read_dir(source).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    // Rules are read from a file.
    for name in names.into_iter().filter(|name| name != ".rules") {
        let to = copy.join(&name);
        if rng.below(2) == 0 {
            let _ = fs::remove_dir_all(&to).or_else(|_| fs::remove_file(&to));
            match source.join(&name).symlink_metadata().unwrap().is_dir() {
                true => write_file(&to, b"a file"),
                false => write_file(&to.join("kept"), b"x"),
            }
        }
    }
}

fn paths(dir: &Path) -> Vec<PathBuf> {
    snapshot(dir).into_iter().map(|(path, ..)| path).collect()
}

/// Returns the flags of a case.
fn flags(rng: &mut Rng) -> Vec<String> {
    // Rsync compares times to the second: content decides.
    let mut flags = vec!["--delete".to_owned(), "-c".to_owned()];
    for _ in 0..rng.below(4) {
        flags.push(format!("--filter={}", pick(rng, &RULES)));
    }
    if rng.below(4) == 0 {
        flags.push("--delete-excluded".to_owned());
    }
    if rng.below(6) == 0 {
        flags.push("--max-size=3".to_owned());
    }
    flags
}

/// Compares one case; returns true if something was deleted.
fn compare(seed: u64, daemon: &Daemon, root: &Path) -> bool {
    let mut rng = Rng::new(seed);
    let (source, ours, theirs) = (
        root.join(format!("{seed}")),
        root.join(format!("{seed}o")),
        root.join(format!("{seed}t")),
    );
    fs::create_dir(&source).unwrap();
    grow(&source, &mut rng, 25);
    let slash = if rng.below(2) == 0 { "/" } else { "" };
    for copy in [&ours, &theirs] {
        let mut rng = Rng::new(seed ^ 0x5eed);
        fs::create_dir(copy).unwrap();
        let top = if slash.is_empty() { copy.join(seed.to_string()) } else { copy.clone() };
        let _ = fs::create_dir(&top);
        grow(&top, &mut rng, 30);
        write_file(&copy.join("beside"), b"x");
    }
    let mut flags = flags(&mut rng);
    // Rsync fails beneath a file in the place of a directory.
    let leaves_existing = rng.below(4) == 0;
    if leaves_existing {
        flags.extend(["--ignore-existing", "--ignore-errors"].map(str::to_owned));
        for copy in [&ours, &theirs] {
            let top = if slash.is_empty() { copy.join(seed.to_string()) } else { copy.clone() };
            put_other_kinds(&source, &top, &mut Rng::new(seed ^ 0x0dd));
        }
    }
    let before = paths(&ours);
    let from = format!("{}{slash}", source.display());
    let mut rsync = Command::new("timeout");
    let rsync =
        rsync.args(["60", "rsync", "-rlt", "--delete-after"]).args(&flags).arg(&from).arg(&theirs);
    let rsync = rsync.output().unwrap();
    let copy = |dry_run: bool| {
        let (mut command, from, to) = match seed % 3 {
            0 => (cp(), from.clone(), ours.to_str().unwrap().to_owned()),
            1 => (daemon.cp(), from.clone(), daemon.url(&format!("{seed}o"))),
            _ => {
                (daemon.cp(), daemon.url(&format!("{seed}{slash}")), ours.to_str().unwrap().into())
            }
        };
        command.args(&flags).arg(from).arg(to);
        run(command.args(dry_run.then_some("-n")))
    };
    let planned = copy(true);
    assert_eq!(paths(&ours), before, "BANKFULL_SEED={seed}: a dry run deletes nothing");
    let done = copy(false);
    let context = format!(
        "BANKFULL_SEED={seed}: {flags:?}\n{}{}{}",
        done.out,
        done.err,
        String::from_utf8_lossy(&rsync.stderr)
    );
    assert_eq!(done.code, Some(0), "{context}");
    assert!(matches!(rsync.status.code(), Some(0 | 23)), "{context}");
    assert_eq!(described(&ours), described(&theirs), "{context}");
    // A dry run does not know the rules in merge files that the copy itself brings.
    let has_rules = flags.iter().any(|flag| flag.contains(".rules"));
    assert!(has_rules || planned.figure("deleted") == done.figure("deleted"), "{context}");
    done.figure("deleted") > 0
}

#[test]
fn what_stays_is_what_rsync_leaves() {
    if !has_rsync() {
        return;
    }
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    each_case(CASES, |seed| compare(seed, &daemon, root.path()));
}

/// Source `s` with one file, and destination `d` with two others.
fn two_trees(here: &Scratch) -> (PathBuf, PathBuf) {
    let (source, copy) = (here.path().join("s"), here.path().join("d"));
    fs::create_dir(&source).unwrap();
    fs::create_dir_all(copy.join("old")).unwrap();
    write_file(&source.join("new"), b"x");
    write_file(&copy.join("old/f"), b"x");
    write_file(&copy.join("old/g"), b"x");
    (source, copy)
}

fn contents(source: &Path) -> String {
    format!("{}/", source.display())
}

#[test]
fn many_directories_are_deleted_by_several_threads() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    let source = here.path().join("s");
    fs::create_dir(&source).unwrap();
    write_file(&source.join("f"), b"x");
    for route in ["local", "push", "pull"] {
        let copy = here.path().join(route);
        let mut expected = vec![PathBuf::new(), PathBuf::from("f")];
        let mut extraneous = 0;
        // Some at the top, and as many beneath one of them.
        for number in 0..120 {
            let name = if number < 60 { format!("{number}") } else { format!("deep/{number}") };
            for file in ["a", "b", "sub/c"] {
                write_file(&copy.join(&name).join(file), b"x");
            }
            extraneous += 5;
            if number % 10 == 0 {
                write_file(&copy.join(&name).join("sub/keep"), b"x");
                extraneous -= 2;
                let kept = PathBuf::from(&name);
                expected.extend(["", "sub", "sub/keep"].map(|beneath| kept.join(beneath)));
            }
        }
        expected.push("deep".into());
        let (mut command, from, to) = match route {
            "local" => (cp(), contents(&source), contents(&copy)),
            "push" => (daemon.cp(), contents(&source), daemon.url("push/")),
            _ => (daemon.cp(), daemon.url("s/"), contents(&copy)),
        };
        let done = run(command.args(["--delete", "-f", "P keep"]).arg(from).arg(to)).expect(0);
        let mut left = paths(&copy);
        // A trailing slash is no part of a path.
        expected = expected.iter().map(|path| path.components().collect()).collect();
        expected.sort();
        left.sort();
        assert_eq!(left, expected, "{route}");
        assert_eq!(done.figure("deleted"), extraneous, "{route}");
    }
}

#[test]
fn nothing_is_deleted_beyond_the_limit() {
    let here = Scratch::new();
    let (source, copy) = two_trees(&here);
    let with = |limit: &str| {
        run(cp().args(["--delete", "--max-delete", limit]).arg(contents(&source)).arg(&copy))
    };
    let refused = with("2");
    assert_eq!(refused.code, Some(25), "{}", refused.err);
    refused.fails(&["more than 2 entries would be deleted: nothing is deleted", "--max-delete"]);
    assert!(copy.join("old/f").exists() && copy.join("new").exists());
    let done = with("3").expect(0);
    assert_eq!(done.figure("deleted"), 3);
    assert!(!copy.join("old").exists());
}

#[test]
fn nothing_is_deleted_after_a_failure() {
    let here = Scratch::new();
    let (source, copy) = two_trees(&here);
    // A directory is in the way of a file, and a rule protects what is in it.
    write_file(&copy.join("new/keep"), b"x");
    let mut command = cp();
    command.args(["--delete", "--filter=P keep"]);
    let refused = run(command.arg(contents(&source)).arg(&copy)).expect(23);
    let warnings = refused.warnings();
    let says = |text: &str| warnings.iter().any(|warning| warning.contains(text));
    assert!(says("nothing is deleted at the destination, as entries failed"), "{warnings:?}");
    assert!(says("--ignore-errors"), "{warnings:?}");
    // The refusal is no failure of its own.
    assert_eq!(refused.figure("failed_files"), 1);
    refused.fails(&["d/new: a directory with entries that stay", "remove or rename it"]);
    assert!(copy.join("old/f").exists());
    let mut command = cp();
    command.args(["--delete", "--ignore-errors", "--filter=P keep"]);
    run(command.arg(contents(&source)).arg(&copy)).expect(23);
    assert!(!copy.join("old").exists() && copy.join("new").is_dir());
}

#[test]
fn empty_source_deletes_nothing_unless_told() {
    let here = Scratch::new();
    let (source, copy) = two_trees(&here);
    fs::remove_file(source.join("new")).unwrap();
    let mut command = cp();
    let refused = run(command.arg("--delete").arg(contents(&source)).arg(&copy)).expect(23);
    refused.fails(&["a source is empty", "--allow-empty-source"]);
    assert!(copy.join("old/f").exists());
    let mut command = cp();
    command.args(["--delete", "--allow-empty-source"]).arg(contents(&source)).arg(&copy);
    assert_eq!(run(&mut command).expect(0).figure("deleted"), 3);
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 0);
}

#[test]
fn root_of_the_host_is_refused() {
    let here = Scratch::new();
    let (source, _) = two_trees(&here);
    let done = run(cp().args(["--delete", "-n"]).arg(contents(&source)).arg("/"));
    assert_eq!(done.code, Some(1), "{}", done.out);
    done.expect(1).says(&["--delete into / would delete the system"]);
    let idle = run(cp().args(["--max-delete", "3"]).arg(contents(&source)).arg("/tmp/none"));
    idle.expect(1).says(&["--max-delete has no effect without --delete"]);
}

#[test]
fn directories_keep_modes_and_times_and_mounts_stay() {
    let here = Scratch::new();
    let (source, copy) = two_trees(&here);
    fs::create_dir(source.join("dir")).unwrap();
    let mut touch = Command::new("touch");
    assert!(touch.args(["-d", "@1000000000"]).arg(source.join("dir")).status().unwrap().success());
    set_mode(&source.join("dir"), 0o555);
    fs::create_dir(copy.join("dir")).unwrap();
    write_file(&copy.join("dir/extra"), b"x");
    let mounted = is_root().then(|| {
        fs::create_dir(copy.join("old/mount")).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "none"]).arg(copy.join("old/mount"));
        mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    let done = run(cp().arg("--delete").arg(contents(&source)).arg(&copy));
    let is_mounted = mounted == Some(true);
    if is_mounted {
        let mut umount = Command::new("umount");
        assert!(umount.arg(copy.join("old/mount")).status().unwrap().success());
        done.fails(&["cannot delete", "old/mount", "a file system is mounted there"]);
    }
    assert_eq!(done.code, Some(if is_mounted { 23 } else { 0 }), "{}", done.out);
    assert!(!copy.join("dir/extra").exists() && !copy.join("old/f").exists());
    let found = snapshot(&copy).into_iter().find(|(path, ..)| path.ends_with("dir")).unwrap();
    assert_eq!(found.1 & 0o777, 0o555);
    let modified = fs::metadata(copy.join("dir")).unwrap().modified().unwrap();
    let seconds = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(seconds, 1_000_000_000);
}

#[test]
fn lists_delete_in_their_directories_alone() {
    let here = Scratch::new();
    let (source, copy) = (here.path().join("s"), here.path().join("d"));
    for (root, name) in [(&source, "f"), (&copy, "extra")] {
        for dir in ["a", "b/c"] {
            fs::create_dir_all(root.join(dir)).unwrap();
            write_file(&root.join(dir).join(name), b"x");
        }
    }
    write_file(&copy.join("b/beside"), b"x");
    write_file(&copy.join("top"), b"x");
    write_file(&here.path().join("list"), b"a\nb/c\n");
    let mut command = cp();
    command.args(["-r", "--delete", "--files-from"]).arg(here.path().join("list"));
    run(command.arg(&source).arg(&copy)).expect(0);
    let left = paths(&copy);
    let expected = ["", "a", "a/f", "b", "b/beside", "b/c", "b/c/f", "top"].map(PathBuf::from);
    assert_eq!(left, expected);
}

#[test]
fn whole_source_with_its_path_deletes_at_the_top() {
    for (flags, from) in
        [(&["--relative"][..], "s/./"), (&["--relative"], "."), (&["--files-from=../list"], "s")]
    {
        let here = Scratch::new();
        write_file(&here.join("list"), b".\n");
        ["s/f", "s/d/g"].iter().for_each(|name| write_file(&here.join(name), b"x"));
        let daemon = Daemon::start(here.path(), &[]);
        for route in ["rsync", "local", "pull", "push"] {
            if route == "rsync" && !has_rsync() {
                continue;
            }
            let copy = here.join(route);
            let old = ["old", "d/old", "olddir/old"];
            old.iter().for_each(|name| write_file(&copy.join(name), b"x"));
            let (mut command, to) = match route {
                "rsync" => (Command::new("rsync"), copy.display().to_string()),
                "local" => (cp(), copy.display().to_string()),
                "push" => (daemon.cp(), daemon.url("push")),
                _ => (daemon.cp(), copy.display().to_string()),
            };
            let from = match (from, route) {
                (".", "pull") => daemon.url("s/./"),
                (".", _) => ".".to_owned(),
                (name, "pull") => daemon.url(name),
                (name, _) => here.join(name).display().to_string(),
            };
            command.current_dir(here.join("s")).args(["-rlt", "--delete"]).args(flags);
            let done = command.arg(from).arg(to).output().unwrap();
            assert!(done.status.success(), "{flags:?} {route}: {done:?}");
            let expected = ["", "d", "d/g", "f"].map(PathBuf::from);
            assert_eq!(paths(&copy), expected, "{flags:?} {route}");
        }
    }
}

#[test]
fn source_left_out_as_another_entry_has_its_name_is_no_failure() {
    for is_link in [false, true] {
        let here = Scratch::new();
        ["s/f", "outside/old"].iter().for_each(|name| write_file(&here.join(name), b"x"));
        let in_the_way = here.dir("d").join("s");
        match is_link {
            true => symlink(here.join("outside"), &in_the_way).unwrap(),
            false => write_file(&in_the_way, b"x"),
        }
        let mut command = cp();
        command.args(["--ignore-existing", "--delete"]).arg(here.join("s")).arg(here.join("d"));
        run(&mut command).expect(0);
        assert_eq!(in_the_way.is_symlink(), is_link);
        assert!(here.join("outside/old").exists() && !here.join("outside/f").exists());
    }
}

#[test]
fn absolute_rules_protect_paths_of_the_destination() {
    for (rules, expected) in [
        ("P/ COPY/www/local.conf", &["local.conf"][..]),
        ("P/ /local.conf", &[]),
        ("-/ www/cache", &["cache/old"]),
        ("+/ /etc\n- etc", &["etc/old"]),
        ("+/ COPY/www/etc\n- etc", &[]),
    ] {
        let here = Scratch::new();
        let daemon = Daemon::start(here.path(), &[]);
        let source = here.join("www");
        ["f", "cache/f", "etc/f"].iter().for_each(|name| write_file(&source.join(name), b"x"));
        for route in ["rsync", "local", "pull", "push"] {
            if route == "rsync" && !has_rsync() {
                continue;
            }
            let copy = here.join(route).join("www");
            let old = ["cache/old", "etc/old", "local.conf"];
            old.iter().for_each(|name| write_file(&copy.join(name), b"x"));
            let above = here.join(route).display().to_string();
            let (mut command, from, to, above) = match route {
                "rsync" => (Command::new("rsync"), contents(&source), contents(&copy), above),
                "local" => (cp(), contents(&source), contents(&copy), above),
                "pull" => (daemon.cp(), daemon.url("www/"), contents(&copy), above),
                // The paths of a daemon begin at its root.
                _ => (daemon.cp(), contents(&source), daemon.url("push/www"), "/push".to_owned()),
            };
            let rules = rules.replace("COPY", &above);
            command.args(["-rlt", "--delete"]);
            command.args(rules.lines().map(|rule| format!("--filter={rule}")));
            let done = command.arg(from).arg(to).output().unwrap();
            assert!(done.status.success(), "{rules} {route}: {done:?}");
            let is_left = |name: &&str| copy.join(name).exists();
            let left: Vec<_> = old.into_iter().filter(is_left).collect();
            assert_eq!(left, expected, "{rules} {route}");
        }
    }
}

#[test]
fn ignored_entries_stay_unless_excluded_ones_are_deleted() {
    let here = Scratch::new();
    let (source, copy) = two_trees(&here);
    write_file(&source.join(".gitignore"), b"*.o\n");
    for root in [&source, &copy] {
        write_file(&root.join("x.o"), b"x");
    }
    let with = |flag: &str| {
        let mut command = cp();
        command.args([flag, "--ignore-file", ".gitignore"]).arg(contents(&source)).arg(&copy);
        run(&mut command).expect(0)
    };
    with("--delete");
    assert!(copy.join("x.o").exists() && !copy.join("old").exists());
    with("--delete-excluded");
    assert!(!copy.join("x.o").exists() && copy.join("new").exists());
}

#[test]
fn each_empty_source_is_refused_if_something_would_go() {
    let here = Scratch::new();
    here.dir("unmounted");
    write_file(&here.join("full/f"), b"x");
    write_file(&here.join("copy/unmounted/kept"), b"x");
    write_file(&here.join("copy/full/gone"), b"x");
    let with = |flags: &[&str]| {
        let mut command = cp();
        run(command.current_dir(here.path()).arg("--delete").args(flags))
    };
    with(&["unmounted", "full", "copy"]).expect(23).fails(&["a source is empty"]);
    assert!(here.join("copy/full/gone").exists() && here.join("copy/unmounted/kept").exists());
    with(&["--allow-empty-source", "unmounted", "full", "copy"]).expect(0);
    assert!(!here.join("copy/full/gone").exists() && !here.join("copy/unmounted/kept").exists());
    // Where nothing would go, nothing is refused: a file, a new destination, an empty list.
    write_file(&here.join("list"), b"");
    for flags in [
        &["full/f", "copy/full"][..],
        &["unmounted", "new"],
        &["unmounted/", "new2"],
        &["--files-from=list", "full", "copy"],
    ] {
        with(flags).expect(0);
    }
}

#[test]
fn source_in_what_is_deleted_is_refused() {
    let here = Scratch::new();
    write_file(&here.join("a/b/f"), b"x");
    symlink("a", here.join("way")).unwrap();
    for operands in [["a/b/", "a"], ["a/b/", "way"], ["way/b/", "a/."]] {
        let mut command = cp();
        let done = run(command.current_dir(here.path()).arg("--delete").args(operands));
        done.expect(1).says(&["is in the destination, where --delete would delete it"]);
        assert!(here.join("a/b/f").exists());
    }
    let mut command = cp();
    run(command.current_dir(here.path()).args(["--delete", "a/b/", "a/b"])).expect(1);
    assert!(here.join("a/b/f").exists());
}

#[test]
fn directory_without_write_permission_is_deleted_by_its_owner() {
    let here = Scratch::new();
    let own = here.dir("own");
    write_file(&here.join("own/s/f"), b"x");
    write_file(&here.join("own/d/x/y/z"), b"x");
    for path in ["own/d/x/y", "own/d/x"] {
        set_mode(&here.join(path), 0o555);
    }
    let mut command = unprivileged(&here, &own);
    if is_root() {
        for path in ["own", "own/s", "own/d", "own/d/x", "own/d/x/y"] {
            chown(here.join(path), Some(65534), Some(65534)).unwrap();
        }
        for path in ["own/d/x/y", "own/d/x"] {
            set_mode(&here.join(path), 0o555);
        }
    }
    command.args(["cp", "--delete"]).arg(here.join("own/s/")).arg(here.join("own/d"));
    run(&mut command).expect(0);
    assert!(!here.join("own/d/x").exists());
}
