//! Entries in the place of those of another kind: what is replaced, what stays, and what a dry run
//! says of it, compared with rsync(1).

use super::harness::{Daemon, Scratch, cp, is_root, run, snapshot, write_file};
use super::rsync::has_rsync;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes an entry of a kind in a directory.
fn make(kind: &str, path: &Path) {
    match kind {
        "file" => write_file(path, b"small"),
        "large" => write_file(path, vec![7; 600_000]),
        "dir" => write_file(&path.join("sub/f"), b"x"),
        "empty" => fs::create_dir_all(path).unwrap(),
        "link" => symlink("elsewhere", path).unwrap(),
        _ => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
    }
}

/// Returns paths with their kinds and content.
pub(super) fn described(dir: &Path) -> Vec<String> {
    let describe = |path: PathBuf| {
        let full = dir.join(&path);
        let kind = full.symlink_metadata().unwrap().file_type();
        let content = if kind.is_file() { fs::read(&full).unwrap().len() } else { 0 };
        format!("{} {kind:?} {content}", path.display())
    };
    snapshot(dir).into_iter().map(|(path, ..)| describe(path)).collect()
}

/// Makes a source and three copies with each pair of kinds under one name.
fn make_pairs(here: &Scratch, kinds: &[&str]) {
    for (from, to) in kinds.iter().flat_map(|from| kinds.iter().map(move |to| (from, to))) {
        let name = format!("{from}-{to}");
        make(from, &here.join("s").join(&name));
        for copy in ["theirs", "local", "pushed"] {
            make(to, &here.join(copy).join(&name));
        }
    }
}

#[test]
fn entries_of_other_kinds_are_replaced_as_by_rsync() {
    const KINDS: [&str; 6] = ["file", "large", "dir", "empty", "link", "fifo"];
    if !has_rsync() {
        return println!("skipped: needs rsync");
    }
    for flags in [
        &[][..],
        &["-n"],
        // An entry counts as existing if one of another kind is in its place.
        &["--existing"],
        &["--ignore-existing", "--ignore-errors"],
        &["--ignore-existing", "--ignore-errors", "-n"],
    ] {
        let here = Scratch::new();
        let daemon = Daemon::start(here.path(), &[]);
        make_pairs(&here, &KINDS);
        // Two names of one inode, one of them in the place of a directory.
        write_file(&here.join("s/linked"), b"two names");
        fs::hard_link(here.join("s/linked"), here.join("s/name")).unwrap();
        for copy in ["theirs", "local", "pushed"] {
            make("dir", &here.join(copy).join("name"));
        }
        let from = format!("{}/", here.join("s").display());
        let mut rsync = Command::new("timeout");
        rsync
            .args(["60", "rsync", "-rlptDH", "--delete"])
            .args(flags)
            .arg(&from)
            .arg(here.join("theirs"));
        let theirs = rsync.stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap();
        let shared = ["--specials", "-H", "--delete"];
        let local = run(cp().args(shared).args(flags).arg(&from).arg(here.join("local")));
        let mut command = daemon.cp();
        command.args(shared).args(flags).arg(&from).arg(daemon.url("pushed"));
        let pushed = run(&mut command);
        // Rsync fails beneath a file in the place of a directory that it leaves out.
        let is_beneath_left_out = flags.first() == Some(&"--ignore-existing");
        let code = if is_beneath_left_out { Some(0) } else { theirs.code() };
        for (copy, done) in [("local", local), ("pushed", pushed)] {
            assert_eq!(done.code, code, "{flags:?} {copy}: {}", done.out);
            let (found, expected) = (described(&here.join(copy)), described(&here.join("theirs")));
            assert_eq!(found, expected, "{flags:?} {copy}");
        }
    }
}

#[test]
fn pipes_are_replaced_without_deletion_and_devices_stay() {
    const KINDS: [&str; 4] = ["file", "large", "link", "fifo"];
    if !has_rsync() {
        return println!("skipped: needs rsync");
    }
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    make_pairs(&here, &KINDS);
    // A further name of a file, too.
    fs::hard_link(here.join("s/file-fifo"), here.join("s/name")).unwrap();
    ["theirs", "local", "pushed"]
        .iter()
        .for_each(|copy| make("fifo", &here.join(copy).join("name")));
    let from = format!("{}/", here.join("s").display());
    let mut rsync = Command::new("timeout");
    rsync.args(["60", "rsync", "-rlptDH"]).arg(&from).arg(here.join("theirs"));
    assert!(rsync.status().unwrap().success());
    for (copy, to) in
        [("local", here.join("local").display().to_string()), ("pushed", daemon.url("pushed"))]
    {
        let mut command = if copy == "local" { cp() } else { daemon.cp() };
        run(command.args(["--specials", "-H", &from, &to])).expect(0);
        assert_eq!(described(&here.join(copy)), described(&here.join("theirs")), "{copy}");
    }
    if is_root() {
        for name in ["file-file", "link-file", "name"] {
            fs::remove_file(here.join("local").join(name)).unwrap();
            let mut mknod = Command::new("mknod");
            mknod.arg(here.join("local").join(name)).args(["c", "1", "3"]);
            assert!(mknod.status().unwrap().success());
        }
        // Not even with a deletion if it is DST itself, as `/dev/null` may be.
        let device = here.join("local/name");
        let mut command = cp();
        command.args(["--delete".into(), here.join("s/file-file"), device.clone()]);
        run(&mut command).expect(23).fails(&["is in the way", "local/name: remove"]);
        assert!(device.metadata().unwrap().file_type().is_char_device());
        let mut command = cp();
        let done = run(command.args(["--specials", "-H", &from]).arg(here.join("local")));
        for name in ["file-file", "link-file", "name"] {
            done.fails(&[
                "a device, FIFO or socket is in the way",
                &format!("local/{name}: remove"),
            ]);
        }
    }
}

#[test]
fn protected_directory_is_not_replaced() {
    for (flags, kept) in [
        (&["--filter=P f"][..], "f"),
        (&["--filter=P sub/"], "f"),
        (&["--max-delete=9"], "f"),
        // Its backups are beside the originals; rsync waits for ever.
        (&["-b"], "f~"),
        (&[], ""),
    ] {
        let here = Scratch::new();
        make("file", &here.join("s/name"));
        make("dir", &here.join("copy/name"));
        let from = format!("{}/", here.join("s").display());
        let mut command = cp();
        let done = run(command.args(["--delete"]).args(flags).arg(from).arg(here.join("copy")));
        let stays = here.join("copy/name/sub").join(kept).exists();
        assert_eq!(
            (done.code, stays),
            (Some(if kept.is_empty() { 0 } else { 23 }), !kept.is_empty())
        );
        assert_eq!(here.join("copy/name").is_file(), kept.is_empty(), "{flags:?}");
    }
}

/// Trees in which a directory is in the place of entries of each other kind; `keep` is in each.
fn trees_with_dirs_in_the_way(here: &Scratch) -> (String, PathBuf) {
    let kinds = ["file", "large", "link", "fifo"];
    for kind in kinds {
        make(kind, &here.join("s/sub").join(kind));
    }
    fs::hard_link(here.join("s/sub/file"), here.join("s/sub/name")).unwrap();
    for name in kinds.iter().chain(&["name"]) {
        write_file(&here.join("d/sub").join(name).join("keep"), b"x");
    }
    (format!("{}/", here.join("s").display()), here.join("d"))
}

#[test]
fn dry_run_reports_directories_that_are_replaced() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    let (from, to) = trees_with_dirs_in_the_way(&here);
    write_file(&here.join("s/new/f"), b"x");
    let copy = |dry_run: bool, to: &str| {
        let mut command = if to.contains("://") { daemon.cp() } else { cp() };
        command.args(["-aH", "--delete", "--itemize-changes"]).args(dry_run.then_some("-n"));
        let done = run(command.args([&from, to])).expect(0);
        let lines = done.events();
        let deleted = lines.iter().filter(|event| event["event"] == "change");
        let mut deleted: Vec<_> = deleted.map(ToString::to_string).collect();
        deleted.retain(|line| line.contains("*deleting"));
        deleted.sort();
        (done.figure("deleted"), deleted)
    };
    let planned = copy(true, &daemon.url("d"));
    assert_eq!((planned.0, planned.1.len()), (10, 10), "{planned:?}");
    let to = to.to_str().unwrap();
    assert_eq!(copy(true, to), planned);
    assert_eq!(copy(false, to), planned);
}

#[test]
fn directory_that_stays_is_named_and_no_part_is_left() {
    for flags in [&["--filter=P keep"][..], &["--max-delete=99"], &["-b"]] {
        for dry_run in [true, false] {
            let here = Scratch::new();
            let (from, to) = trees_with_dirs_in_the_way(&here);
            // Its blocks are kept for the next run.
            fs::remove_file(here.join("s/sub/large")).unwrap();
            let mut command = cp();
            command.args(["-aH", "--delete"]).args(flags).args(dry_run.then_some("-n"));
            let done = run(command.arg(&from).arg(&to)).expect(23);
            for name in ["link", "fifo", "file", "name"] {
                let path = to.join("sub").join(name);
                done.fails(&[path.to_str().unwrap()]);
                assert!(path.is_dir(), "{flags:?} {name}");
            }
            let names: Vec<_> = fs::read_dir(to.join("sub")).unwrap().collect();
            assert_eq!(names.len(), 5, "{flags:?} {dry_run}: {names:?}");
        }
    }
}

#[test]
fn refusal_after_replaced_directories_is_true() {
    let here = Scratch::new();
    let (from, to) = trees_with_dirs_in_the_way(&here);
    write_file(&here.join("d/sub/large/held"), b"x");
    write_file(&here.join("d/extra"), b"x");
    let mut command = cp();
    command.args(["-aH", "--delete", "--filter=P held"]).arg(&from).arg(&to);
    let done = run(&mut command).expect(23);
    let warnings = done.warnings();
    let says = |text: &str| warnings.iter().any(|warning| warning.contains(text));
    assert!(says("nothing else is deleted") && says("--ignore-errors"), "{warnings:?}");
    assert_eq!(done.figure("failed_files"), 1);
    assert!(done.figure("deleted") > 0 && to.join("extra").exists());
}
