//! Earlier versions: backups, hard links to an earlier copy, and sources that are removed.

use super::harness::{
    Daemon, Scratch, cp, is_root, run, set_mode, snapshot, unprivileged, write_file,
};
use super::rsync::has_rsync;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn paths(dir: &Path) -> Vec<PathBuf> {
    snapshot(dir).into_iter().map(|(path, ..)| path).collect()
}

/// Source with some changes against the copy `name` that is made beside it.
fn changed_copy(here: &Path, name: &str) -> (String, PathBuf) {
    let (source, copy) = (here.join("s"), here.join(name));
    fs::create_dir_all(source.join("d")).unwrap();
    fs::create_dir_all(copy.join("d/gone")).unwrap();
    write_file(&source.join("same"), b"1");
    write_file(&source.join("d/new"), b"1");
    write_file(&source.join("d/file"), b"changed");
    let _ = symlink("elsewhere", source.join("link"));
    write_file(&copy.join("d/file"), b"old");
    write_file(&copy.join("d/file~"), b"older");
    write_file(&copy.join("d/gone/f"), b"gone");
    let _ = symlink("nowhere", copy.join("link"));
    set_mode(&copy.join("d"), 0o751);
    set_mode(&source.join("d"), 0o751);
    (format!("{}/", source.display()), copy)
}

#[test]
fn backups_are_those_of_rsync() {
    if !has_rsync() {
        return;
    }
    for (number, flags) in [
        &["-b"][..],
        &["--backup", "--delete"],
        &["-b", "--suffix=.old", "--delete"],
        &["-b", "--backup-dir=../kept"],
        &["-b", "--backup-dir=kept", "--delete", "--filter=P kept"],
        &["-b", "--backup-dir=../kept", "--suffix=.1", "--delete"],
        &["-b", "--backup-dir=../kept/2026/01", "--delete"],
    ]
    .into_iter()
    .enumerate()
    {
        let here = Scratch::new();
        let root = |name: &str| {
            let root = here.path().join(name);
            fs::create_dir(&root).unwrap();
            root
        };
        let (ours, theirs) = (root("ours"), root("theirs"));
        let (from, copy) = changed_copy(&theirs, "copy");
        let mut rsync = Command::new("rsync");
        let done = rsync.args(["-rlt"]).args(flags).arg(&from).arg(&copy).status().unwrap();
        assert!(done.success());
        let (from, copy) = changed_copy(&ours, "copy");
        let daemon = Daemon::start(&ours, &[]);
        let done = match number % 2 {
            0 => run(cp().args(flags).arg(&from).arg(&copy)),
            _ => run(daemon.cp().args(flags).arg(&from).arg(daemon.url("copy"))),
        };
        done.expect(0);
        assert_eq!(paths(&ours), paths(&theirs), "{flags:?}");
        let content = |root: &Path| -> Vec<_> {
            let files = paths(root).into_iter().map(|path| root.join(path));
            files.filter(|path| path.is_file()).map(|path| fs::read(path).unwrap()).collect()
        };
        assert_eq!(content(&ours), content(&theirs), "{flags:?}");
        let kept = ["kept/d", "kept/2026/01/d"].map(|dir| (ours.join(dir), theirs.join(dir)));
        for (own, other) in kept.iter().filter(|(own, _)| own.exists()) {
            let mode = |dir: &Path| fs::metadata(dir).unwrap().mode();
            assert_eq!(mode(own), mode(other), "{flags:?}");
        }
    }
}

/// Files with their content.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// Copies a new version over one file; returns exit code, message and all files.
fn replace_one(flags: &[&str]) -> (Option<i32>, String, Files) {
    let here = Scratch::new();
    write_file(&here.join("s/f"), b"new version");
    write_file(&here.join("d/f"), b"old");
    let mut command = cp();
    let done = run(command.current_dir(here.path()).args(flags));
    let files = paths(here.path()).into_iter().filter(|path| here.path().join(path).is_file());
    let content = files.map(|path| (path.clone(), fs::read(here.path().join(&path)).unwrap()));
    (done.code, done.err.clone(), content.collect())
}

#[test]
fn backup_that_would_be_the_file_itself_is_refused() {
    for (flags, text) in [
        (&["-b", "--backup-dir=.", "s/", "d"][..], "is the destination itself"),
        (&["-b", "--backup-dir=../d", "s/", "d"], "is the destination itself"),
        (&["-b", "--backup-dir=.", "--delete", "s/", "d"], "is the destination itself"),
    ] {
        let (code, error, files) = replace_one(flags);
        assert_eq!(code, Some(1), "{flags:?}: {error}");
        assert!(error.contains(text), "{error}");
        assert_eq!(files[0], ("d/f".into(), b"old".to_vec()), "{flags:?}");
    }
    let (code, _, files) = replace_one(&["-b", "--backup-dir=.", "--suffix=.old", "s/", "d"]);
    assert_eq!((code, &files[1]), (Some(0), &("d/f.old".into(), b"old".to_vec())));
    // Beside a file that is named, not beneath it.
    let (code, _, files) = replace_one(&["-b", "--backup-dir=kept", "s/f", "d/f"]);
    assert_eq!((code, &files[1]), (Some(0), &("d/kept/f".into(), b"old".to_vec())));
}

#[test]
fn file_of_another_user_is_renamed_to_its_backup() {
    let here = Scratch::new();
    let own = here.dir("own");
    write_file(&here.join("own/s/f"), b"new version");
    write_file(&here.join("own/d/f"), b"old");
    if !is_root() {
        return;
    }
    for path in ["own", "own/d", "own/s"] {
        chown(here.join(path), Some(65534), Some(65534)).unwrap();
    }
    set_mode(&here.join("own/d/f"), 0o600);
    set_mode(&here.join("own/s/f"), 0o644);
    let mut command = unprivileged(&here, &own);
    command.args(["cp", "-b"]).arg(here.join("own/s/")).arg(here.join("own/d"));
    run(&mut command).expect(0);
    assert_eq!(fs::read(here.join("own/d/f~")).unwrap(), b"old");
    assert_eq!(fs::read(here.join("own/d/f")).unwrap(), b"new version");
}

#[test]
fn unchanged_files_become_links_to_the_earlier_copy() {
    let here = Scratch::new();
    let source = here.path().join("s");
    fs::create_dir_all(source.join("d")).unwrap();
    for name in ["d/same", "mode", "content"] {
        write_file(&source.join(name), b"content");
    }
    write_file(&source.join("large"), vec![7; 600_000]);
    let from = format!("{}/", source.display());
    let daemon = Daemon::start(here.path(), &[]);
    run(cp().arg(&from).arg(here.path().join("day1"))).expect(0);
    set_mode(&source.join("mode"), 0o600);
    write_file(&source.join("content"), b"changed");
    let inode = |path: &str| fs::metadata(here.path().join(path)).unwrap().ino();
    for (copy, by_daemon) in [("day2", false), ("day3", true)] {
        let mut command = if by_daemon { daemon.cp() } else { cp() };
        command.args(["--link-dest", "../day0", "--link-dest", "../day1"]).arg(&from);
        let to = here.path().join(copy).display().to_string();
        let done = run(command.arg(if by_daemon { daemon.url(copy) } else { to })).expect(0);
        let missing = "--link-dest ../day0 does not exist: everything is copied";
        assert!(done.warnings().iter().any(|text| text == missing), "{:?}", done.warnings());
        for name in ["d/same", "large"] {
            assert_eq!(inode(&format!("{copy}/{name}")), inode(&format!("day1/{name}")), "{copy}");
        }
        for name in ["mode", "content"] {
            assert_ne!(inode(&format!("{copy}/{name}")), inode(&format!("day1/{name}")), "{copy}");
        }
        assert_eq!(done.figures(["files", "skipped_files"]), [2, 2]);
        assert_eq!(done.figures(["dirs_created", "linked_files"]), [2, 2]);
    }
    assert_eq!(fs::read(here.path().join("day1/content")).unwrap(), b"content");
    assert_eq!(fs::metadata(here.path().join("day1/mode")).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn sources_are_removed_once_the_destination_has_them() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    for route in ["local", "push", "pull"] {
        let source = here.path().join("s");
        fs::create_dir_all(source.join("d")).unwrap();
        write_file(&source.join("d/small"), b"x");
        write_file(&source.join("large"), vec![1; 700_000]);
        symlink("large", source.join("link")).unwrap();
        let at = |name: &str| here.path().join(name).display().to_string();
        let copy = format!("copy-{route}");
        let (mut command, from, to) = match route {
            "local" => (cp(), at("s/"), at(&copy)),
            "push" => (daemon.cp(), at("s/"), daemon.url(&copy)),
            _ => (daemon.cp(), daemon.url("s/"), at(&copy)),
        };
        run(command.args(["-n", "--remove-source-files"]).arg(&from).arg(&to)).expect(0);
        assert!(source.join("large").exists(), "{route}");
        let mut command = if route == "local" { cp() } else { daemon.cp() };
        run(command.arg("--remove-source-files").arg(&from).arg(&to)).expect(0);
        assert_eq!(paths(&source), ["", "d"].map(PathBuf::from), "{route}");
        assert!(here.path().join(&copy).join("d/small").exists(), "{route}");
        // Unchanged ones are removed, too.
        fs::hard_link(here.path().join(&copy).join("large"), source.join("large")).unwrap();
        let mut command = if route == "local" { cp() } else { daemon.cp() };
        run(command.arg("--remove-source-files").arg(&from).arg(&to)).expect(0);
        assert!(!source.join("large").exists(), "{route}");
        fs::remove_dir_all(&source).unwrap();
    }
}

#[test]
fn source_that_stays_is_reported_by_a_daemon() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    let source = here.path().join("s");
    fs::create_dir(&source).unwrap();
    write_file(&source.join("first"), b"x");
    fs::hard_link(source.join("first"), source.join("second")).unwrap();
    // Not even root may remove it.
    write_file(&source.join("fixed"), b"x");
    let chattr = |flag| {
        let done = Command::new("chattr").arg(flag).arg(source.join("fixed")).status();
        done.is_ok_and(|status| status.success())
    };
    let is_fixed = chattr("+i");
    let copy = here.path().join("copy");
    let with = |flags: &[&str]| {
        let mut command = daemon.cp();
        run(command.arg("-H").args(flags).arg(daemon.url("s/")).arg(&copy))
    };
    with(&[]).expect(0);
    // Unchanged further names are removed, too.
    let done = with(&["--remove-source-files"]);
    chattr("-i");
    assert!(!source.join("first").exists() && !source.join("second").exists());
    assert_eq!(source.join("fixed").exists(), is_fixed);
    if is_fixed {
        done.expect(23).fails(&["cannot remove s/fixed: "]);
    }
}

#[test]
fn source_that_is_its_own_copy_is_not_removed() {
    let here = Scratch::new();
    write_file(&here.join("p/d/f"), b"x");
    write_file(&here.join("p/list"), b"d/f");
    symlink("p", here.join("way")).unwrap();
    for operands in [
        &["p/d/f", "p/d"][..],
        &["p/d/f", "way/d/f"],
        &["p/d", "p"],
        &["p/d", "way"],
        &["p/d/", "p/d"],
        &["p/d/", "way/d"],
        &["--relative", "p/d/f", "."],
        &["--files-from=p/list", "p", "way"],
    ] {
        let mut command = cp();
        let done =
            run(command.current_dir(here.path()).arg("--remove-source-files").args(operands));
        assert_eq!(done.code, Some(1), "{operands:?}: {}", done.out);
        assert!(here.join("p/d/f").exists(), "{operands:?}");
    }
    // Another name of the same file is a copy.
    fs::hard_link(here.join("p/d/f"), here.join("f")).unwrap();
    let mut command = cp();
    command.current_dir(here.path()).args(["--remove-source-files", "p/d/f", "."]);
    run(&mut command).expect(0);
    assert!(!here.join("p/d/f").exists() && here.join("f").exists());
}

#[test]
fn referents_of_links_are_not_removed() {
    let here = Scratch::new();
    for path in ["real/dir/f", "real/file", "s/own"] {
        write_file(&here.join(path), b"x");
    }
    symlink("../real", here.join("s/dir")).unwrap();
    symlink("../real/file", here.join("s/link")).unwrap();
    for flag in ["-k", "-L"] {
        write_file(&here.join("s/own"), b"x");
        let mut command = cp();
        command.current_dir(here.path()).args([flag, "--remove-source-files", "s/", "copy"]);
        run(&mut command).expect(0);
        assert!(here.join("real/dir/f").exists() && here.join("real/file").exists(), "{flag}");
        assert!(here.join("copy/dir/dir/f").exists() && !here.join("s/own").exists(), "{flag}");
    }
}

#[test]
fn sources_named_through_links_are_removed() {
    let here = Scratch::new();
    symlink("real", here.join("in")).unwrap();
    write_file(&here.join("list"), b"in/f\nin/d/g\n");
    let daemon = Daemon::start(here.path(), &[]);
    let (local, to) = (here.path().display().to_string(), here.join("copy"));
    for (mut command, from) in [(cp(), local), (daemon.cp(), daemon.url(""))] {
        ["real/f", "real/d/g"].iter().for_each(|path| write_file(&here.join(path), b"x"));
        command.arg("--remove-source-files").arg("--files-from").arg(here.join("list"));
        run(command.arg(from).arg(&to)).expect(0);
        assert!(to.join("in/f").exists() && to.join("in/d/g").exists());
        assert!(!here.join("real/f").exists() && !here.join("real/d/g").exists());
        fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn backup_of_an_interrupted_run_is_no_obstacle() {
    let here = Scratch::new();
    write_file(&here.join("s/f"), b"new");
    write_file(&here.join("d/f"), b"earlier");
    fs::hard_link(here.join("d/f"), here.join("d/f~")).unwrap();
    run(cp().arg("--backup").arg(here.join("s/")).arg(here.join("d"))).expect(0);
    let content = |name: &str| fs::read(here.join(name)).unwrap();
    assert_eq!([content("d/f"), content("d/f~")], [&b"new"[..], b"earlier"]);
}

#[test]
fn removal_that_could_lose_something_is_refused() {
    let here = Scratch::new();
    write_file(&here.path().join("f"), b"x");
    let copy = here.path().join("copy");
    let mut command = cp();
    command.args(["--remove-source-files", "--existing"]).arg(here.path().join("f")).arg(&copy);
    run(&mut command).expect(1).says(&["--remove-source-files would remove what", "--existing"]);
    let mut command = cp();
    command.args(["--remove-source-files", "--size-only"]).arg(here.path().join("f")).arg(&copy);
    run(&mut command).expect(1).says(&["or --size-only leaves out"]);
    for (flag, why) in [("--delete", "would delete what"), ("--fsync=none", "leave out --fsync")] {
        let mut command = cp();
        command.args(["--remove-source-files", flag]).arg(here.path()).arg(&copy);
        run(&mut command).expect(1).says(&["--remove-source-files", why]);
    }
    let daemon = Daemon::start(here.path(), &["--read-only"]);
    let mut command = daemon.cp();
    let refused = run(command.arg("--remove-source-files").arg(daemon.url("f")).arg(&copy));
    refused.expect(5).says(&["this server is read-only: its files cannot be removed"]);
    assert!(here.path().join("f").exists());
    let idle = run(cp().args(["--suffix", "x"]).arg(here.path().join("f")).arg(&copy));
    idle.expect(1).says(&["--suffix has no effect without --backup"]);
    let outside = run(cp().arg("--link-dest=/proc").arg(here.path().join("f")).arg(&copy));
    outside.expect(1).says(&["--link-dest /proc is on another file system"]);
    let writable = Daemon::start(here.path(), &[]);
    let mut command = writable.cp();
    command.arg("--link-dest=../../etc").arg(here.path().join("f")).arg(writable.url("new/"));
    assert_ne!(run(&mut command).code, Some(0));
    let Ok(apart) = tempfile::tempdir_in("/dev/shm") else { return };
    if apart.path().metadata().unwrap().dev() == here.path().metadata().unwrap().dev() {
        return;
    }
    let backups = format!("--backup-dir={}", apart.path().join("a/b").display());
    let outside = run(cp().arg(backups).arg(here.path().join("f")).arg(&copy));
    outside.expect(1).says(&["is on another file system than the destination"]);
    assert_eq!(paths(apart.path()), [PathBuf::new()]);
}
