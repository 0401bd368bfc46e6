//! Single files that fail, change or vanish while all others are copied.

use super::super::harness::{
    Daemon, Done, Mount, Rng, Running, Scratch, Tree, assert_same, cp, fill, is_root, journals,
    litter, run, set_mode, unprivileged, wait_until, write_file,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn unreadable_entries_fail_and_others_are_copied() {
    let here = Scratch::new();
    write_file(&here.join("tree/public"), b"public");
    write_file(&here.join("tree/private file"), b"private");
    write_file(&here.join("tree/private dir/file"), b"private");
    fill(&here.join("tree/private large"), MIB, &mut Rng::new(1));
    let mut command = unprivileged(&here, &here.dir("out"));
    for private in ["tree/private file", "tree/private dir", "tree/private large"] {
        set_mode(&here.join(private), 0);
    }
    command.args(["cp", "--json"]).arg(here.join("tree")).arg(here.join("out"));
    let done = run(&mut command).expect(23);
    assert_eq!(done.figures(["files", "failed_files", "vanished_files"]), [1, 3, 0]);
    assert_eq!(fs::read(here.join("out/tree/public")).unwrap(), b"public");
    let failed = done.failed();
    for private in ["private file", "private dir", "private large"] {
        let text = failed.iter().find(|(path, _)| path.ends_with(private));
        let (_, message) = text.unwrap_or_else(|| panic!("{private} is not in {failed:?}"));
        assert!(message.contains(private) && message.contains("permission denied"), "{message}");
    }
}

#[test]
fn entry_in_the_way_stays_and_is_named() {
    for push in [true, false] {
        let here = Scratch::new();
        write_file(&here.join("tree/a file"), b"file");
        write_file(&here.join("tree/a dir/leaf"), b"leaf");
        write_file(&here.join("tree/fine"), b"fine");
        symlink("fine", here.join("tree/a link")).unwrap();
        write_file(&here.join("out/tree/a file/in the way"), b"keep");
        write_file(&here.join("out/tree/a dir"), b"keep");
        write_file(&here.join("out/tree/a link/in the way"), b"keep");
        let daemon = Daemon::start(here.path(), &[]);
        let mut command = daemon.cp();
        if push {
            command.arg(here.join("tree")).arg(daemon.url("out"));
        } else {
            command.arg(daemon.url("tree")).arg(here.join("out"));
        }
        let done = run(&mut command).expect(23);
        let failed = done.failed();
        for (name, words) in [
            ("a file", "a directory is in the way of the file"),
            ("a file", "out/tree/a file: remove or rename it"),
            ("a link", "in the way of the link"),
            ("a link", "out/tree/a link: remove or rename it"),
            ("a dir/leaf", "its directory could not be created"),
        ] {
            let found = failed.iter().any(|(p, m)| p.ends_with(name) && m.contains(words));
            assert!(found, "push: {push}: no {words:?} of {name:?} in {failed:?}");
        }
        assert_eq!(fs::read(here.join("out/tree/fine")).unwrap(), b"fine");
        assert_eq!(fs::read(here.join("out/tree/a dir")).unwrap(), b"keep");
        assert!(here.join("out/tree/a file/in the way").exists());
        assert!(litter(&here.join("out")).is_empty());
    }
}

/// Pushes a directory whose destination is a file, then a symlink.
fn push_onto_non_directory() -> [Done; 2] {
    [false, true].map(|is_link| {
        let here = Scratch::new();
        here.dir("tree/sub");
        let out = here.dir("out/tree");
        if is_link {
            symlink("/nonexistent", out.join("sub")).unwrap();
        } else {
            write_file(&out.join("sub"), b"in the way");
        }
        let daemon = Daemon::start(here.path(), &[]);
        run(daemon.cp().arg(here.join("tree")).arg(daemon.url("out")))
    })
}

#[test]
fn remote_mkdir_failure_is_reported() {
    for done in push_onto_non_directory() {
        done.expect(23).fails(&["sub", "must be a directory"]);
    }
}

#[test]
fn symlink_in_place_of_directory_is_not_followed() {
    let scratch = Scratch::new();
    write_file(&scratch.join("tree/sub/leaf"), b"leaf");
    write_file(&scratch.join("tree/fine"), b"fine");
    fill(&scratch.join("tree/sub/large"), 2 * MIB, &mut Rng::new(2));
    let outside = scratch.dir("outside");
    let daemon = Daemon::start(scratch.path(), &[]);
    for (n, mut command) in [daemon.cp(), daemon.cp(), cp()].into_iter().enumerate() {
        let out = scratch.dir(&format!("out-{n}/tree"));
        symlink(&outside, out.join("sub")).unwrap();
        match n {
            0 => command.arg(scratch.join("tree")).arg(daemon.url("out-0")),
            1 => command.arg(daemon.url("tree")).arg(scratch.join("out-1")),
            _ => command.arg(scratch.join("tree")).arg(scratch.join("out-2")),
        };
        let done = run(&mut command).expect(23);
        if n == 0 {
            // Another test covers the directory itself.
            done.fails(&["its directory could not be created"]);
        } else {
            done.fails(&["sub", "must be a directory", "symlink"]);
        }
        assert_eq!(fs::read(out.join("fine")).unwrap(), b"fine");
        assert!(out.join("sub").is_symlink());
    }
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn directory_swapped_for_symlink_is_not_followed() {
    let tree = Tree::bulk(&[], 0);
    let mut rng = Rng::new(5);
    fs::create_dir(tree.path.join("sub")).unwrap();
    for n in 0..3 {
        fill(&tree.path.join(format!("sub/{n}")), 100 * MIB, &mut rng);
    }
    let root = tree.path.parent().unwrap();
    let (copied_to, outside) = (root.join("copied_to/bulk"), root.join("outside"));
    fs::create_dir(&outside).unwrap();
    let daemon = Daemon::start(root, &[]);
    let client = Running::start(daemon.cp().arg(&tree.path).arg(daemon.url("copied_to")));
    wait_until("it has begun", || !journals(&copied_to).is_empty());
    fs::rename(copied_to.join("sub"), copied_to.join("moved")).unwrap();
    symlink(&outside, copied_to.join("sub")).unwrap();
    let done = client.wait();
    assert!(matches!(done.code, Some(0 | 23)), "{:?} {}", done.code, done.err);
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn full_disk_keeps_data_and_resumes() {
    let tree = Tree::bulk(&[50 * MIB], 20);
    let root = tree.path.parent().unwrap();
    for route in ["push", "pull", "local"] {
        let Some(disk) = Mount::new(root.join(format!("disk-{route}")), 24) else {
            println!("skipped: no mount without root");
            return;
        };
        let daemon = Daemon::start(root, &[]);
        let command = || {
            let mut command = if route == "local" { cp() } else { daemon.cp() };
            match route {
                "push" => command.arg(&tree.path).arg(daemon.url("disk-push")),
                "pull" => command.arg(daemon.url("bulk")).arg(disk.path()),
                _ => command.arg(&tree.path).arg(disk.path()),
            };
            command
        };
        let first = run(&mut command()).expect(23);
        first.fails(&["big-0", "no space left", "free some space", "to resume"]);
        assert!(first.figure("failed_files") >= 1);
        let copied_to = disk.path().join("bulk");
        let kept: u64 = journals(&copied_to).iter().map(|journal| journal.bytes()).sum();
        disk.resize(100);
        let done = run(&mut command()).expect(0);
        assert_same(&tree.path, &copied_to);
        assert!(litter(&copied_to).is_empty());
        if route != "local" {
            assert!(kept > 10 * MIB, "{route} kept only {kept} bytes");
            assert_eq!(done.figure("resumed_bytes"), kept, "{route}");
        }
    }
}

#[test]
fn file_size_limit_fails_only_larger_files() {
    let (here, root) = (Scratch::new(), Scratch::new());
    write_file(&here.join("tree/large"), vec![1; 4 << 20]);
    write_file(&here.join("tree/small"), "small");
    let daemon = Daemon::start(here.path(), &[]);
    let cp = daemon.cp();
    let mut limited = Command::new("sh");
    // In units of 512 bytes.
    limited.args(["-c", "ulimit -f 2048; exec \"$0\" \"$@\""]).arg(cp.get_program());
    limited.args(cp.get_args()).arg(daemon.url("tree")).arg(root.path());
    let done = run(&mut limited).expect(23);
    done.fails(&["large", "file too large", "ulimit -f"]);
    assert!(root.join("tree/small").exists());
}

#[test]
fn equal_failures_are_limited_except_in_json() {
    const FILES: usize = 60;
    let scratch = Scratch::new();
    for n in 0..FILES {
        write_file(&scratch.join(format!("tree/{n}")), b"small");
    }
    let out = scratch.dir("out/tree");
    let copy = |form: &[&str]| {
        let mut command = unprivileged(&scratch, &scratch.join("tree"));
        set_mode(&out, 0o555);
        command.arg("cp").args(form).arg(scratch.join("tree")).arg(scratch.join("out"));
        run(&mut command).expect(23)
    };
    let reported = copy(&[]).err;
    let shown = reported.lines().filter(|line| line.contains("permission denied (check")).count();
    assert_eq!(shown, 5 + 1, "{reported}");
    let rest = reported.lines().find(|line| line.starts_with("and ")).unwrap_or_default();
    let hidden = FILES - 5;
    assert!(
        rest.starts_with(&format!(
            "and {hidden} more failed files with the same reason (permission denied (check"
        )),
        "{reported}"
    );
    assert!(rest.ends_with("; -v shows all"), "{reported}");
    assert!(copy(&["--json"]).failed().len() >= FILES);
}

/// Writes to a file repeatedly until `stop` is set.
fn keep_changing(path: &Path, stop: &AtomicBool) {
    let file = File::options().write(true).open(path).unwrap();
    for n in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        file.write_all_at(&n.to_le_bytes(), 0).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn constantly_changing_file_fails_alone() {
    for name in ["large", "small"] {
        let here = Scratch::new();
        let size = if name == "large" { 30 * MIB } else { 100_000 };
        write_file(&here.join("tree/fine"), b"fine");
        fill(&here.join("tree").join(name), size, &mut Rng::new(1));
        let daemon = Daemon::start(here.path(), &[]);
        let stop = AtomicBool::new(false);
        let path = here.join("tree").join(name);
        let done = thread::scope(|scope| {
            scope.spawn(|| keep_changing(&path, &stop));
            let done = run(daemon.cp().arg(here.join("tree")).arg(daemon.url("out")));
            stop.store(true, Ordering::Relaxed);
            done
        });
        if name == "small" && done.code == Some(0) {
            // The file was read between two changes.
            continue;
        }
        let done = done.expect(23);
        done.fails(&[name, "changed while it was read"]);
        assert_eq!(done.figures(["files", "failed_files"]), [1, 1]);
        assert!(!here.join("out/tree").join(name).exists(), "a mixture of contents is in place");
    }
}

/// Appends to a file until `stop` is set.
fn keep_growing(path: &Path, stop: &AtomicBool) {
    let mut file = File::options().append(true).open(path).unwrap();
    while !stop.load(Ordering::Relaxed) {
        file.write_all(b"a line of the log\n").unwrap();
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn growing_file_is_copied_as_far_as_it_was() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    for (name, size) in [("large", 30 * MIB), ("small", 100_000)] {
        for route in ["local", "push", "pull"] {
            let log = here.dir("tree").join(name);
            fill(&log, size, &mut Rng::new(1));
            let copy_with = |flags: &[&str], to: &str| {
                let (tree, local) = (here.join("tree"), here.join(to));
                let mut command = if route == "local" { cp() } else { daemon.cp() };
                match route {
                    "push" => command.arg(&tree).arg(daemon.url(to)),
                    "pull" => command.arg(daemon.url("tree")).arg(&local),
                    _ => command.arg(&tree).arg(&local),
                };
                run(command.args(flags))
            };
            let stop = AtomicBool::new(false);
            let (followed, other) = thread::scope(|scope| {
                scope.spawn(|| keep_growing(&log, &stop));
                let done = copy_with(&["--follow-growth"], &format!("{route}-{name}"));
                let other = copy_with(&[], &format!("{route}-{name}-other"));
                stop.store(true, Ordering::Relaxed);
                (done, other)
            });
            followed.expect(0);
            let copy = fs::read(here.join(format!("{route}-{name}/tree/{name}"))).unwrap();
            assert!(copy.len() as u64 >= size && fs::read(&log).unwrap().starts_with(&copy));
            if name == "large" && route != "local" {
                other.expect(23).fails(&["grew while it was read", "--follow-growth"]);
            }
            fs::remove_file(log).unwrap();
        }
    }
}

#[test]
fn shrunk_or_replaced_file_is_no_growth() {
    let here = Scratch::bulk();
    for change in ["shrink", "replace"] {
        let log = here.dir("tree").join("log");
        fill(&log, 60 * MIB, &mut Rng::new(1));
        let daemon = Daemon::start(here.path(), &[]);
        let mut command = daemon.cp();
        command.args(["--follow-growth", "--max-rate", "200mbit"]);
        let client = Running::start(command.arg(&log).arg(daemon.url(change)));
        wait_until("it has begun", || !journals(here.path()).is_empty());
        match change {
            "shrink" => File::options().write(true).open(&log).unwrap().set_len(MIB).unwrap(),
            _ => {
                fill(&here.join("tree/new"), 61 * MIB, &mut Rng::new(2));
                fs::rename(here.join("tree/new"), &log).unwrap();
            }
        }
        client.wait().expect(0);
        assert!(fs::read(&log).unwrap() == fs::read(here.join(change)).unwrap(), "{change}");
    }
}

#[test]
fn files_without_a_size_have_their_content() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    // A file of /proc, whose size is 0, and one of /sys, whose size is a page.
    let files = ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/kallsyms"];
    for file in files {
        let Ok(content) = fs::read(file) else { continue };
        let name = Path::new(file).file_name().unwrap();
        run(cp().arg(file).arg(here.path())).expect(0);
        assert!(fs::read(here.path().join(name)).unwrap() == content, "{file}");
        run(daemon.cp().arg(file).arg(daemon.url("pushed/"))).expect(0);
        assert!(fs::read(here.join("pushed").join(name)).unwrap() == content, "{file}");
    }
    let endless = run(cp().arg("/proc/kcore").arg(here.path()));
    if is_root() && Path::new("/proc/kcore").exists() {
        endless.expect(23).fails(&["cannot read /proc/kcore", "its size is unknown"]);
    }
    // A reader of this one would wait for the next message of the kernel.
    if is_root() && Path::new("/proc/kmsg").exists() {
        run(cp().arg("/proc/kmsg").arg(here.path())).expect(0);
    }
}

#[test]
fn changed_file_is_sent_again() {
    for push in [true, false] {
        let tree = Tree::bulk(&[200 * MIB], 3);
        let root = tree.path.parent().unwrap();
        let copied_to = root.join("copied_to/bulk");
        let daemon = Daemon::start(root, &[]);
        let mut command = daemon.cp();
        if push {
            command.arg(&tree.path).arg(daemon.url("copied_to"));
        } else {
            command.arg(daemon.url("bulk")).arg(root.join("copied_to"));
        }
        let client = Running::start(command.args(["--streams", "1"]));
        wait_until("it has begun", || !journals(&copied_to).is_empty());
        let file = File::options().write(true).open(tree.path.join("big-0")).unwrap();
        file.write_all_at(b"changed", MIB / 2).unwrap();
        let done = client.wait().expect(0);
        assert_same(&tree.path, &copied_to);
        assert_eq!(done.figures(["files", "failed_files"]), [tree.files, 0], "push: {push}");
        assert!(litter(&copied_to).is_empty());
    }
}

#[test]
fn truncated_file_is_sent_again() {
    let plain = ["mmap", "zerobuffer", "sendfile", "splice", "io_uring"];
    let is_there = |method: &&str| *method != "io_uring" || bankfull_sys::ReadRing::is_available();
    let plain = plain.into_iter().filter(is_there);
    let plain: Vec<_> = plain.map(|method| ["--no-encryption", "--io", method]).collect();
    let encrypted = [["--io", "buffered"], ["--io", "mmap"], ["--transport", "quic"]];
    let ways = encrypted.iter().map(|flags| &flags[..]).chain(plain.iter().map(|flags| &flags[..]));
    for flags in ways {
        let tree = Tree::bulk(&[300 * MIB], 3);
        let root = tree.path.parent().unwrap();
        let copied_to = root.join("copied_to/bulk");
        let daemon = Daemon::start(root, &["--allow-no-encryption"]);
        let mut command = daemon.cp();
        command.args(["--max-rate", "400mbit"]).args(flags);
        let client = Running::start(command.arg(&tree.path).arg(daemon.url("copied_to")));
        wait_until("a part has data", || journals(&copied_to).iter().any(|j| j.bytes() > 0));
        let file = File::options().write(true).open(tree.path.join("big-0")).unwrap();
        file.set_len(MIB).unwrap();
        let done = client.wait().expect(0);
        assert_same(&tree.path, &copied_to);
        // The first attempt is reported as void, and not counted.
        let again =
            |warning: &String| warning.ends_with("changed while it was read: it is read again");
        assert_eq!(done.warnings().iter().filter(|warning| again(warning)).count(), 1);
        let [files, failed, bytes] = done.figures(["files", "failed_files", "bytes"]);
        assert_eq!([files, failed], [tree.files, 0], "{flags:?}");
        assert!((MIB..2 * MIB).contains(&bytes), "{bytes}, {flags:?}");
        assert!(litter(&copied_to).is_empty());
    }
}

#[test]
fn shrinking_file_over_ssh_arrives_consistent() {
    let tree = Tree::bulk(&[400 * MIB], 3);
    let root = tree.path.parent().unwrap();
    let copied_to = root.join("copied_to/bulk");
    // No data port is reachable, so all data goes through ssh.
    let program = env!("CARGO_BIN_EXE_bankfull");
    let script = format!(
        "case \" $* \" in *' -G '*) echo hostname 255.255.255.255; exit ;; esac\n\
         unset SSH_CONNECTION; exec {program} agent"
    );
    write_file(&root.join("ssh"), script);
    for push in [true, false] {
        let mut command = cp();
        command.args(["--timeout", "20", "--ssh-command"]);
        command.arg(format!("sh {}", root.join("ssh").display()));
        let far = |path: &Path| format!("there:{}", path.display());
        if push {
            command.arg(&tree.path).arg(far(&root.join("copied_to")));
        } else {
            command.arg(far(&tree.path)).arg(root.join("copied_to"));
        }
        let client = Running::start(&mut command);
        wait_until("it has begun", || !journals(&copied_to).is_empty());
        let file = File::options().write(true).open(tree.path.join("big-0")).unwrap();
        file.set_len((if push { 200 } else { 100 }) * MIB).unwrap();
        let done = client.wait().expect(0);
        assert_same(&tree.path, &copied_to);
        assert_eq!(done.figures(["files", "failed_files"]), [tree.files, 0], "push: {push}");
        assert!(litter(&copied_to).is_empty());
        fs::remove_dir_all(&copied_to).unwrap();
    }
}

#[test]
fn vanished_file_has_its_own_exit_code() {
    let tree = Tree::bulk(&[300 * MIB, 2 * MIB], 3);
    let root = tree.path.parent().unwrap();
    let copied_to = root.join("copied_to/bulk");
    let daemon = Daemon::start(root, &[]);
    let mut command = daemon.cp();
    command.args(["--streams", "1"]).arg(&tree.path).arg(daemon.url("copied_to"));
    let client = Running::start(&mut command);
    // Blocks are sent in order, so the second file waits for the first one.
    wait_until("the first file is on its way", || !journals(&copied_to).is_empty());
    fs::remove_file(tree.path.join("big-1")).unwrap();
    let done = client.wait().expect(24);
    done.fails(&["big-1", "vanished"]);
    assert_eq!(done.figures(["failed_files", "vanished_files"]), [1, 1]);
    // The time of the directory is that of before.
    assert!(!copied_to.join("big-1").exists() && copied_to.join("big-0").exists());
}

#[test]
fn vanished_directory_does_not_prevent_deletion() {
    let here = Scratch::new();
    // More than the walk may be ahead of the copy.
    (0..6000).for_each(|at| write_file(&here.join(format!("s/a/{at}")), [b'x'; 512]));
    write_file(&here.join("s/z/f"), b"x");
    ["a", "z"].iter().for_each(|dir| write_file(&here.join("to/s").join(dir).join("old"), b"x"));
    let mut command = cp();
    command.args(["--delete", "--max-rate", "1MB/s"]).arg(here.join("s")).arg(here.join("to"));
    let client = Running::start(&mut command);
    wait_until("the first directory is walked", || here.join("to/s/a/0").exists());
    fs::remove_dir_all(here.join("s/z")).unwrap();
    let done = client.wait().expect(24);
    done.fails(&["s/z vanished before it was read"]);
    assert_eq!(done.figures(["failed_files", "vanished_files", "deleted"]), [1, 1, 1]);
    assert!(!here.join("to/s/a/old").exists() && here.join("to/s/z/old").exists());
}

#[test]
fn unwritable_files_fail_individually() {
    let here = Scratch::new();
    write_file(&here.join("tree/locked/a"), b"a");
    write_file(&here.join("tree/fine"), b"fine");
    write_file(&here.join("out/tree/locked/b"), b"b");
    let mut command = unprivileged(&here, &here.join("out/tree"));
    set_mode(&here.join("out/tree/locked"), 0o555);
    command.args(["cp", "--json"]).arg(here.join("tree")).arg(here.join("out"));
    let done = run(&mut command);
    set_mode(&here.join("out/tree/locked"), 0o755);
    let done = done.expect(23);
    done.fails(&["locked/a", "permission denied", "check the permissions"]);
    assert_eq!(fs::read(here.join("out/tree/fine")).unwrap(), b"fine");
    if is_root() {
        // It belongs to root and stays unchanged; only root could change it.
        assert!(here.join("out/tree/locked/b").exists());
    }
}

/// Copies a read-only directory as an unprivileged user, then again after a change.
fn copy_read_only_dir_twice() -> [Done; 2] {
    let here = Scratch::new();
    write_file(&here.join("tree/locked/below/file"), b"file");
    set_mode(&here.join("tree/locked/below"), 0o555);
    set_mode(&here.join("tree/locked"), 0o555);
    let (own, out) = (here.dir("own"), here.join("own/out"));
    let copy = || {
        let mut command = unprivileged(&here, &own);
        run(command.args(["cp", "--json"]).arg(here.join("tree")).arg(&out))
    };
    let first = copy();
    assert_same(&here.join("tree"), &out.join("tree"));
    let file = here.join("tree/locked/below/file");
    fs::write(&file, b"changed").unwrap();
    let second = copy();
    assert_same(&here.join("tree"), &out.join("tree"));
    [first, second]
}

#[test]
fn read_only_directories_are_copied_by_a_user() {
    let [first, _] = copy_read_only_dir_twice();
    first.expect(0);
}

#[test]
fn change_in_a_read_only_directory_is_copied() {
    let [_, second] = copy_read_only_dir_twice();
    second.expect(0);
}
