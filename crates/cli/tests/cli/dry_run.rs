//! Dry runs: with any flags, nothing is written at either side.

use super::harness::{
    Daemon, Mount, Running, Scratch, cp, is_root, journals, run, set_mode, snapshot, unprivileged,
    wait_until, write_file,
};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags of dry runs.
const FLAGS: [&[&str]; 14] = [
    &[],
    &["-c"],
    &["-aHAX", "-c", "--itemize-changes"],
    &["-a", "--size-only", "--fsync", "file"],
    &["-aH", "--delete", "--delete-excluded", "--exclude", "gone"],
    &["-a", "--delete", "--backup", "-c"],
    &["-a", "--delete", "--backup", "--backup-dir=../kept"],
    &["-aH", "--link-dest=../day1"],
    &["-aHc", "--link-dest=../day1"],
    &["-aH", "--existing", "-c"],
    &["-aH", "--update", "--no-times"],
    &["-aH", "--ignore-existing"],
    &["-a", "-c", "--remove-source-files"],
    &["-a", "-c", "--trust-journal", "--modify-window=1"],
];

#[test]
fn new_snapshot_is_compared_with_the_one_beside_it() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    ["s/same", "s/d/same", "s/changed"].iter().for_each(|name| write_file(&here.join(name), b"x"));
    let from = format!("{}/", here.join("s").display());
    run(cp().arg(&from).arg(here.join("day1"))).expect(0);
    write_file(&here.join("s/changed"), b"changed");
    for (mut command, to) in [
        (cp(), here.join("day2").display().to_string()),
        (daemon.cp(), daemon.url("day2")),
        (cp(), here.join("none/day2").display().to_string()),
    ] {
        let flags = ["-n", "--link-dest=../day1", "--link-dest=../day0"];
        let done = run(command.args(flags).arg(&from).arg(&to));
        if to.contains("none") {
            done.expect(1);
            continue;
        }
        let done = done.expect(0);
        assert_eq!(done.figure("skipped_files"), 2, "{to}");
        assert!(done.warnings().iter().any(|text| text.contains("../day0 does not exist")));
        assert!(!here.join("day2").exists());
    }
}

/// Metadata of all entries, hidden ones too, with the inodes.
fn state(here: &Path) -> Vec<(impl PartialEq + std::fmt::Debug, u64)> {
    let entries = snapshot(here).into_iter();
    let inode = |path: &PathBuf| here.join(path).symlink_metadata().unwrap().ino();
    entries.map(|entry| (entry.clone(), inode(&entry.0))).collect()
}

/// Makes a sparse file of some blocks.
fn make_sparse(path: &Path) {
    let file = fs::File::create(path).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(&[7; 1000], 3 << 20).unwrap();
}

fn make_source(source: &Path) {
    fs::create_dir_all(source.join("d/e")).unwrap();
    make_sparse(&source.join("sparse"));
    make_sparse(&source.join("d/sparse"));
    write_file(&source.join("small"), b"content");
    write_file(&source.join("large"), vec![1; 5 << 20]);
    write_file(&source.join("d/large"), vec![2; 700_000]);
    symlink("small", source.join("link")).unwrap();
    fs::hard_link(source.join("small"), source.join("d/e/hard")).unwrap();
    assert!(Command::new("mkfifo").arg(source.join("d/pipe")).status().unwrap().success());
}

/// Makes a destination with differences, and a part file beside an equal file.
fn make_destination(source: &Path, copy: &Path) {
    let whole = format!("{}/", source.display());
    let mut command = cp();
    command.args(["--max-rate", "8mbit"]).arg(&whole).arg(copy);
    let running = Running::start(&mut command);
    wait_until("a part file is there", || !journals(copy).is_empty());
    running.signal(Signal::INT);
    running.wait();
    let mut command = Command::new("cp");
    assert!(command.arg("-a").arg(source.join(".")).arg(copy).status().unwrap().success());
    assert!(!journals(copy).is_empty());
    write_file(&copy.join("d/large"), vec![3; 700_000]);
    write_file(&copy.join("gone"), b"x");
    write_file(&copy.join("d/e/hard"), b"old");
    set_mode(&copy.join("small"), 0o600);
    fs::remove_file(copy.join("link")).unwrap();
    symlink("elsewhere", copy.join("link")).unwrap();
}

#[test]
fn dry_run_writes_nothing_whatever_the_flags() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    let (source, copy, day1) = (here.join("s"), here.join("day2"), here.join("day1"));
    make_source(&source);
    make_destination(&source, &copy);
    run(cp().arg("-a").arg(format!("{}/", source.display())).arg(&day1)).expect(0);
    let before = state(here.path());
    for (flags, route) in FLAGS.iter().flat_map(|flags| (0..3).map(move |route| (flags, route))) {
        let mut command = if route == 0 { cp() } else { daemon.cp() };
        command.arg("-n").args(*flags);
        match route {
            0 => command.arg(format!("{}/", source.display())).arg(&copy),
            1 => command.arg(format!("{}/", source.display())).arg(daemon.url("day2")),
            _ => command.arg(daemon.url("s/")).arg(&copy),
        };
        let done = run(&mut command);
        assert_eq!(done.code, Some(0), "{flags:?} {route}: {}", done.err);
        assert_eq!(state(here.path()), before, "{flags:?} {route}: {}", done.err);
    }
    // A destination that does not exist is not created.
    let new = run(cp().args(["-n", "-ac", "--delete"]).arg(&source).arg(here.join("new")));
    new.expect(0);
    assert_eq!(state(here.path()), before);
}

#[test]
fn equal_files_need_no_permission_to_write() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let here = Scratch::new();
    let (source, own) = (here.dir("s"), here.dir("own"));
    make_sparse(&source.join("sparse"));
    write_file(&source.join("large"), vec![1; 700_000]);
    let copy = own.join("copy");
    let mut command = Command::new("cp");
    assert!(command.arg("-a").arg(&source).arg(&copy).status().unwrap().success());
    set_mode(&copy, 0o555);
    set_mode(&source, 0o555);
    let mut command = Command::new("chown");
    assert!(command.args(["-R", "65534:65534"]).arg(&own).status().unwrap().success());
    for flags in [&["-nc"][..], &["-c"]] {
        let mut command = unprivileged(&here, &own);
        command.arg("cp").args(flags).arg(format!("{}/", source.display())).arg(&copy);
        let done = run(&mut command).expect(0);
        assert!(!done.err.contains("cannot"), "{flags:?}: {}", done.err);
        assert_eq!(journals(&copy).len(), 0);
    }
}

#[test]
fn read_only_destination_is_named_as_such() {
    let here = Scratch::new();
    let Some(mount) = Mount::new(here.join("disk"), 16) else {
        return println!("skipped: needs the permission to mount");
    };
    let source = here.dir("s");
    write_file(&source.join("large"), vec![1; 700_000]);
    write_file(&source.join("small"), b"x");
    write_file(&mount.path().join("large"), b"other");
    mount.make_read_only();
    for flags in [&[][..], &["-a"], &["-c"], &["-b"]] {
        let mut command = cp();
        let from = format!("{}/", source.display());
        let done = run(command.args(flags).arg(from).arg(mount.path())).expect(23);
        done.fails(&["large", "read-only file system"]);
        done.fails(&["small", "read-only file system"]);
        assert!(!done.out.contains("earlier copy"), "{flags:?}: {}", done.out);
    }
}

#[test]
fn planned_deletions_are_counted_beside_itemized_changes() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    let (source, copy) = (here.dir("s"), here.dir("copy"));
    write_file(&source.join("new"), b"x");
    ["gone", "old"].iter().for_each(|name| write_file(&copy.join(name), b"x"));
    for (from, to) in [
        (format!("{}/", source.display()), copy.display().to_string()),
        (format!("{}/", source.display()), daemon.url("copy")),
        (daemon.url("s/"), copy.display().to_string()),
    ] {
        for flags in [&["--delete"][..], &["--delete", "--itemize-changes"]] {
            let is_here = !from.contains("://") && !to.contains("://");
            let mut command = if is_here { cp() } else { daemon.cp() };
            let done = run(command.arg("-n").args(flags).args([&from, &to])).expect(0);
            assert_eq!(done.figures(["would_copy_entries", "deleted"]), [1, 2], "{flags:?}");
        }
    }
}

#[test]
fn devices_that_are_left_out_are_not_planned() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let (here, root) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let (source, own) = (here.dir("s"), here.dir("own"));
    fs::create_dir(source.join("new")).unwrap();
    for device in ["null", "new/null", "dir"] {
        let mut mknod = Command::new("mknod");
        assert!(mknod.arg(source.join(device)).args(["c", "1", "3"]).status().unwrap().success());
    }
    // A directory in the place of a device that is not created stays, too.
    write_file(&own.join("copy/dir/kept"), b"x");
    write_file(&root.join("copy/dir/kept"), b"x");
    let from = format!("{}/", source.display());
    for dry_run in [true, false] {
        let commands = [
            (daemon.cp(), daemon.url("copy")),
            (unprivileged(&here, &own), own.join("copy").display().to_string()),
        ];
        for (mut command, to) in commands {
            if !to.contains("://") {
                chown(own.join("copy"), Some(65534), Some(65534)).unwrap();
                command.args(["cp", "--json"]);
            }
            command.args(["-rD", "--delete", "--itemize-changes"]).args(dry_run.then_some("-n"));
            let done = run(command.args([&from, &to])).expect(0);
            let warnings = done.warnings();
            let lost = |text: &String| text.starts_with("devices that were not kept: 3");
            assert!(warnings.iter().any(lost), "{to} {dry_run}: {warnings:?}");
            assert_eq!(done.figures(["would_copy_entries", "deleted"]), [0, 0], "{to} {dry_run}");
            assert!(!done.out.contains("null\""), "{to} {dry_run}: {}", done.out);
        }
    }
    assert!(own.join("copy/dir/kept").exists() && root.join("copy/dir/kept").exists());
}
