//! Effects of single flags: `--checksum`, `--fsync`, `--dry-run`; and metadata updates without
//! content, set-id bits and leftovers.

use super::super::harness::{
    Daemon, Disk, Done, Rng, Scratch, SshServer, assert_same, cp, differences, fill, gather,
    litter, remote_host, run, set_mode, set_mtime, snapshot, write_file,
};
use super::IDLE_WIRE_BYTES;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

/// Creates a packed file, a file with blocks, a directory and a symlink.
fn source() -> Scratch {
    let scratch = Scratch::new();
    let mut rng = Rng::new(3);
    write_file(&scratch.join("tree/sub/small"), b"small content");
    fill(&scratch.join("tree/large"), 5 << 20, &mut rng);
    symlink("sub/small", scratch.join("tree/link")).unwrap();
    set_mtime(&scratch.join("tree/sub"), 1_000_000_000, 1);
    scratch
}

/// Changes a byte, but neither size nor modification time.
fn change_unseen(path: &Path, at: u64) {
    let before = fs::metadata(path).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    set_mtime(path, before.mtime(), before.mtime_nsec());
}

#[test]
fn data_port_over_ssh_is_one_of_the_range() {
    let (Some(ssh), Ok(taken)) = (SshServer::start(), TcpListener::bind("[::]:0")) else { return };
    if remote_host() != "127.0.0.1" {
        return println!("skipped: the ports are those of another host");
    }
    let (from, to) = (source(), Scratch::new());
    let port = taken.local_addr().unwrap().port();
    let copy = || {
        let mut command = ssh.cp();
        command.args(["--data-ports", &format!("{port}-{port}")]).arg(from.join("tree"));
        run(command.arg(SshServer::place(to.path())))
    };
    copy().expect(11).says(&[&format!("none of the ports {port}-{port} is free")]);
    drop(taken);
    copy().expect(0);
    assert_same(&from.join("tree"), &to.join("tree"));
}

#[test]
fn checksum_finds_a_hidden_change() {
    let (from, to) = (source(), Scratch::new());
    let daemon = Daemon::start(to.path(), &[]);
    let copy = |flags: &[&str]| {
        let mut command = daemon.cp();
        run(command.args(flags).arg(from.join("tree")).arg(daemon.url(""))).expect(0)
    };
    copy(&[]);
    change_unseen(&from.join("tree/sub/small"), 3);
    change_unseen(&from.join("tree/large"), 4_000_000);
    assert_eq!(copy(&[]).figures(["files", "skipped_files"]), [0, 2]);
    assert!(!differences(&from.join("tree"), &to.join("tree")).is_empty());

    assert_eq!(copy(&["--checksum"]).figures(["files", "skipped_files"]), [2, 0]);
    assert_same(&from.join("tree"), &to.join("tree"));
    let third = copy(&["--checksum"]);
    assert_eq!(third.figures(["files", "skipped_files", "bytes"]), [0, 2, 0]);
}

#[test]
fn checksum_works_for_pull_and_local_copy() {
    for is_local in [false, true] {
        let (from, to) = (source(), Scratch::new());
        let daemon = Daemon::start(from.path(), &[]);
        let copy = || {
            let mut command = if is_local { cp() } else { daemon.cp() };
            let tree = from.join("tree").to_str().unwrap().to_owned();
            let source = if is_local { tree } else { daemon.url("tree") };
            run(command.arg("--checksum").arg(source).arg(to.path())).expect(0)
        };
        copy();
        change_unseen(&from.join("tree/large"), 0);
        assert_eq!(copy().figures(["files", "skipped_files"]), [1, 1], "local: {is_local}");
        assert_same(&from.join("tree"), &to.join("tree"));
    }
}

#[test]
fn metadata_change_sends_no_content() {
    for push in [true, false] {
        let (from, to) = (source(), Scratch::new());
        let daemon = Daemon::start(if push { to.path() } else { from.path() }, &[]);
        let copy = |flags: &[&str]| {
            let mut command = daemon.cp();
            if push {
                command.arg(from.join("tree")).arg(daemon.url(""));
            } else {
                command.arg(daemon.url("tree")).arg(to.path());
            }
            run(command.args(flags)).expect(0)
        };
        copy(&[]);
        let path = |name: &str| from.join("tree").join(name);
        set_mode(&path("sub/small"), 0o751);
        set_mode(&path("large"), 0o400);
        set_mode(&path("sub"), 0o1750);
        set_mtime(&path("sub"), -77, 999_999_999);
        set_mtime(&path("link"), 1_200_000_000, 3);
        let done = copy(&[]);
        assert_eq!(done.figures(["files", "bytes", "skipped_files"]), [0, 0, 2]);
        assert_same(&from.join("tree"), &to.join("tree"));

        // A new time makes the content suspect, unless content is compared.
        set_mtime(&path("large"), 1_234_567_890, 1);
        set_mtime(&path("sub/small"), 1_234_567_890, 2);
        let done = copy(&["-c"]);
        assert_eq!(done.figures(["files", "bytes", "skipped_files"]), [0, 0, 2]);
        assert!(done.figure("wire_bytes") <= IDLE_WIRE_BYTES * done.figure("streams"));
        assert_same(&from.join("tree"), &to.join("tree"));
    }
}

/// Returns the mode of a set-id file after a copy.
fn mode_after(mut copy: Command, copied_to: &Path) -> u32 {
    run(&mut copy).expect(0);
    fs::metadata(copied_to).unwrap().mode() & 0o7777
}

#[test]
fn set_id_bits_are_kept_except_by_daemons() {
    let here = Scratch::new();
    let file = here.join("file");
    write_file(&file, b"runs as another user");
    set_mode(&file, 0o6755);
    let daemon = Daemon::start(here.path(), &[]);
    let mut local = cp();
    local.arg(&file).arg(here.join("local"));
    assert_eq!(mode_after(local, &here.join("local")), 0o6755);
    let mut push = daemon.cp();
    push.arg(&file).arg(daemon.url("pushed"));
    assert_eq!(mode_after(push, &here.join("pushed")), 0o755);
    let mut pull = daemon.cp();
    pull.arg(daemon.url("file")).arg(here.join("pulled"));
    assert_eq!(mode_after(pull, &here.join("pulled")), 0o755);
    let Some(ssh) = SshServer::start() else { return };
    let mut send = ssh.cp();
    send.arg(&file).arg(SshServer::place(&here.join("sent")));
    assert_eq!(mode_after(send, &here.join("sent")), 0o6755);
}

#[test]
fn set_id_bits_are_cleared_by_and_from_daemons() {
    for mode in [0o4755, 0o2755] {
        let here = Scratch::new();
        let names = ["small", "large"];
        write_file(&here.join("from/small"), b"runs as another user");
        fill(&here.join("from/large"), 2 << 20, &mut Rng::new(4));
        let daemon = Daemon::start(here.path(), &[]);
        // In the second run only modes differ.
        for first in [true, false] {
            let from = here.join("from");
            names.iter().for_each(|name| set_mode(&from.join(name), mode));
            let mut push = daemon.cp();
            push.arg(from).arg(daemon.url("pushed"));
            let mut pull = daemon.cp();
            pull.arg(daemon.url("from")).arg(here.join("pulled"));
            for (mut command, copied_to) in [(push, "pushed/from"), (pull, "pulled/from")] {
                let done = run(&mut command).expect(0);
                assert_eq!(done.figure("files"), if first { 2 } else { 0 });
                for name in names {
                    let path = here.join(copied_to).join(name);
                    let now = fs::metadata(&path).unwrap().mode() & 0o7777;
                    assert_eq!(now, 0o755, "{} of {mode:o}, first: {first}", path.display());
                    set_mode(&path, 0o700);
                }
            }
        }
    }
}

/// Copies a directory with its subdirectory `sub`, and checks the modes of both copies.
#[track_caller]
fn check_directory(mut copy: Command, copied_to: &Path, expected: u32) {
    run(&mut copy).expect(0);
    for dir in [copied_to.to_owned(), copied_to.join("sub")] {
        let mode = fs::metadata(&dir).unwrap().mode() & 0o7777;
        assert_eq!(mode, expected, "{} has {mode:o}", dir.display());
    }
}

#[test]
fn set_id_bits_of_directories_are_kept_except_by_daemons() {
    let here = Scratch::new();
    let tree = here.join("tree");
    write_file(&tree.join("sub/file"), b"file");
    [tree.join("sub"), tree.clone()].iter().for_each(|dir| set_mode(dir, 0o7750));
    let (daemon, ssh) = (Daemon::start(here.path(), &[]), SshServer::start());
    let contents = |dir: &Path| format!("{}/", dir.display());
    // In the second run the directories exist, and in the third they have a set-ID bit of their
    // own, as the kernel gives it to those in such a directory.
    for (own, from_strangers) in [(None, 0o1750), (Some(0o700), 0o1750), (Some(0o2700), 0o3750)] {
        let to = |name: &str| {
            let dir = here.join(name);
            let dirs = [dir.clone(), dir.join("sub")];
            own.iter().for_each(|mode| dirs.iter().for_each(|dir| set_mode(dir, *mode)));
            dir
        };
        let mut local = cp();
        local.arg(contents(&tree)).arg(to("local"));
        check_directory(local, &here.join("local"), 0o7750);
        let mut push = daemon.cp();
        to("pushed");
        push.arg(contents(&tree)).arg(daemon.url("pushed"));
        check_directory(push, &here.join("pushed"), from_strangers);
        let mut pull = daemon.cp();
        pull.arg(daemon.url("tree/")).arg(to("pulled"));
        check_directory(pull, &here.join("pulled"), from_strangers);
        let mut merge = gather();
        merge.args(["--merge", "first", "--fingerprint", &daemon.fingerprint]);
        merge.args([daemon.url("tree/"), daemon.url("tree/./")]).arg(to("merged"));
        check_directory(merge, &here.join("merged"), from_strangers);
        let Some(ssh) = &ssh else { continue };
        let mut send = ssh.cp();
        send.arg(contents(&tree)).arg(SshServer::place(&to("sent")));
        check_directory(send, &here.join("sent"), 0o7750);
    }
}

#[test]
fn inherited_set_group_id_is_kept() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("tree/sub/file"), b"file");
    set_mode(&here.join("tree"), 0o755);
    set_mode(&here.join("tree/sub"), 0o755);
    set_mode(root.path(), 0o2755);
    let daemon = Daemon::start(root.path(), &[]);
    let mut push = daemon.cp();
    push.arg(here.join("tree")).arg(daemon.url(""));
    check_directory(push, &root.join("tree"), 0o2755);
}

/// Copies a tree with leftovers of an interrupted copy.
fn copy_leftovers(push: bool) -> Done {
    let (from, to) = (source(), Scratch::new());
    for name in [".bankfull-0123456789abcdef.part", ".bankfull-0123456789abcdef.journal"] {
        write_file(&from.join("tree/sub").join(name), b"left over");
    }
    let daemon = Daemon::start(if push { to.path() } else { from.path() }, &[]);
    let mut command = daemon.cp();
    if push {
        command.arg(from.join("tree")).arg(daemon.url(""));
    } else {
        command.arg(daemon.url("tree")).arg(to.path());
    }
    let done = run(&mut command).expect(0);
    for path in litter(from.path()) {
        fs::remove_file(path).unwrap();
    }
    // Removing files changed the time of the directory.
    set_mtime(&from.join("tree/sub"), 1_000_000_000, 1);
    set_mtime(&to.join("tree/sub"), 1_000_000_000, 1);
    assert_same(&from.join("tree"), &to.join("tree"));
    done
}

#[track_caller]
fn check_leftovers_warning(done: &Done) {
    let events = done.events();
    let reported = events.iter().filter(|event| event["event"] == "warning");
    let reported: Vec<&str> = reported.map(|event| event["message"].as_str().unwrap()).collect();
    assert!(
        reported.iter().any(|text| text.contains("skipped ") && text.contains(".part")),
        "{reported:?}"
    );
}

#[test]
fn leftovers_are_not_pushed_with_a_message() {
    check_leftovers_warning(&copy_leftovers(true));
}

#[test]
fn leftovers_are_not_pulled_with_a_message() {
    check_leftovers_warning(&copy_leftovers(false));
}

#[test]
fn tree_arrives_with_every_fsync_mode() {
    for when in ["none", "file", "end"] {
        let (from, to) = (source(), Scratch::new());
        let daemon = Daemon::start(to.path(), &[]);
        let mut push = daemon.cp();
        push.args(["--fsync", when]).arg(from.join("tree")).arg(daemon.url("pushed"));
        run(&mut push).expect(0);
        let mut pull = daemon.cp();
        pull.args(["--fsync", when]).arg(daemon.url("pushed/tree")).arg(to.join("pulled"));
        run(&mut pull).expect(0);
        run(cp().args(["--fsync", when]).arg(from.join("tree")).arg(to.join("local"))).expect(0);
        for copied_to in ["pushed", "pulled", "local"] {
            assert_same(&from.join("tree"), &to.join(copied_to).join("tree"));
        }
    }
}

#[test]
fn dry_run_changes_nothing_and_lists_the_plan() {
    let (from, to) = (source(), Scratch::new());
    write_file(&to.join("out/tree/sub/small"), b"something else");
    fs::set_permissions(to.join("out"), fs::metadata(to.path()).unwrap().permissions()).unwrap();
    let daemon = Daemon::start(to.path(), &[]);
    let sources = Daemon::start(from.path(), &["--read-only"]);
    let before = (snapshot(from.path()), snapshot(to.path()));
    let tree = from.join("tree").to_str().unwrap().to_owned();
    let out = |name: &str| to.join(name).to_str().unwrap().to_owned();
    for (mut command, source, destination, copied_path, shown) in [
        (daemon.cp(), tree.clone(), daemon.url("out"), daemon.url("out/tree"), tree.clone()),
        (daemon.cp(), tree.clone(), daemon.url("new"), daemon.url("new/tree"), tree.clone()),
        (sources.cp(), sources.url("tree"), out("out"), out("out/tree"), out("out/tree")),
        (sources.cp(), sources.url("tree"), out("new"), out("new/tree"), out("new/tree")),
        (sources.cp(), sources.url("tree/"), out("new"), out("new"), out("new")),
        (cp(), tree.clone(), out("new"), out("new/tree"), out("new/tree")),
        (cp(), tree.clone(), out("out"), out("out/tree"), out("out/tree")),
    ] {
        let done = run(command.arg("-n").arg(&source).arg(&destination)).expect(0);
        let events = done.events();
        let copied_to = events.iter().find(|e| e["event"] == "destination").unwrap();
        assert_eq!(copied_to["destination"], copied_path, "{source} to {destination}");
        let planned: Vec<_> = events.iter().filter(|e| e["outcome"] == "would-copy").collect();
        let paths: Vec<_> = planned.iter().map(|e| e["path"].as_str().unwrap()).collect();
        for name in ["large", "sub/small"] {
            assert!(paths.contains(&&*format!("{shown}/{name}")), "{shown}/{name}: {paths:?}");
        }
        assert_eq!(done.figures(["files", "bytes"]), [0, 0]);
        let bytes = planned.iter().map(|e| e["bytes"].as_u64().unwrap()).sum();
        let figures = done.figures(["would_copy_entries", "would_copy_bytes"]);
        assert_eq!(figures, [planned.len() as u64, bytes]);
    }
    assert_eq!((snapshot(from.path()), snapshot(to.path())), before);
}

#[test]
fn dry_run_keeps_leftovers() {
    let (from, to) = (source(), Scratch::new());
    write_file(&to.join("tree/.bankfull-0000.part"), b"part");
    let before = snapshot(to.path());
    run(cp().arg("-n").arg(from.join("tree")).arg(to.path())).expect(0);
    assert_eq!(snapshot(to.path()), before);
}

#[test]
fn rounded_times_are_recognised_and_reported_once() {
    let scratch = Scratch::new();
    // Inodes of 128 bytes have no room for nanoseconds, nor for dates after 2038.
    let Some(disk) = Disk::made_with(&scratch, 64, &["-I", "128"]) else { return };
    let from = scratch.dir("from");
    let file = |name: &str, secs: i64| {
        write_file(&from.join(name), vec![7; 300 << 10]);
        set_mtime(&from.join(name), secs, 123_456_789);
    };
    file("a", 1_500_000_000);
    file("b", 1_500_000_001);
    let into = disk.path().join("in");
    let warnings = |done: &Done| {
        let events = done.events().into_iter().filter(|event| event["event"] == "warning");
        events.map(|event| event["message"].to_string()).collect::<Vec<_>>()
    };
    let copy = || run(cp().arg(&from).arg(&into)).expect(0);
    let first = warnings(&copy());
    assert!(first.len() == 1 && first[0].contains("rounds modification times"), "{first:?}");
    file("c", 4_000_000_000);
    for _ in 0..2 {
        let again = copy();
        assert_eq!(again.figures(["files", "skipped_files"]), [1, 2], "no room for the date of c");
        let told = warnings(&again);
        assert!(told.len() == 1 && told[0].contains("does not keep the modification"), "{told:?}");
    }
    assert_eq!(litter(disk.path()), Vec::<std::path::PathBuf>::new());
    // A change of the time beyond the rounding is a change.
    set_mtime(&from.join("a"), 1_500_000_001, 123_456_789);
    assert_eq!(copy().figures(["files", "skipped_files"]), [2, 1]);
}
