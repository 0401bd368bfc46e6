//! Operands that are missing, of the wrong type, without permission, or outside the root.

use super::super::harness::{
    Daemon, Peer, Scratch, SshServer, cp, is_root, remote_address, run, run_there, script,
    set_mode, snapshot, unprivileged, write_file,
};
use super::check_alive;
use crate::command;
use bankfull_proto::wire::control::{Cause, Direction, Message, Open, PathBytes, Source};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

#[test]
fn missing_source_is_named() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let mut daemon = Daemon::start(there.path(), &[]);
    let missing = here.join("missing");
    for (mut command, source, destination) in [
        (cp(), missing.to_str().unwrap().to_owned(), here.join("out").to_str().unwrap().to_owned()),
        (daemon.cp(), missing.to_str().unwrap().to_owned(), daemon.url("out")),
        (daemon.cp(), daemon.url("missing"), here.join("out").to_str().unwrap().to_owned()),
    ] {
        let done = run(command.arg(&source).arg(destination)).expect(3);
        done.says(&["cannot read", "missing", "no such file"]);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
    assert!(!here.join("out").exists() && !there.join("out").exists());
    check_alive(&mut daemon);
}

#[test]
fn open_file_of_a_process_is_no_source() {
    let here = Scratch::new();
    write_file(&here.join("file"), b"x");
    let daemon = Daemon::start(here.path(), &[]);
    for source in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        let destinations = [here.join("out").into_os_string(), daemon.url("out").into()];
        for (mut command, destination) in [cp(), daemon.cp()].into_iter().zip(destinations) {
            command.args([source, "file"]).arg(destination);
            let done = run(script("printf x | \"$@\"", &command).current_dir(here.path()));
            done.expect(1).says(&[source, "open file of a process", "the only source"]);
        }
    }
    assert!(!here.join("out").exists());
    // Other links in that file system stay links.
    run(cp().arg("/proc/self/cwd").arg(here.path())).expect(0);
    assert!(fs::read_link(here.join("cwd")).is_ok());
}

#[test]
fn one_missing_source_stops_the_copy_at_the_start() {
    let here = Scratch::new();
    write_file(&here.join("there"), b"x");
    let mut command = cp();
    command.arg(here.join("there")).arg(here.join("missing")).arg(here.join("out"));
    run(&mut command).expect(3).says(&["missing"]);
    assert!(!here.join("out").exists());
}

#[test]
fn file_and_directory_conflicts_are_refused() {
    let here = Scratch::new();
    write_file(&here.join("tree/sub/leaf"), b"leaf");
    write_file(&here.join("file"), b"file");
    let before = snapshot(here.path());
    for (source, destination, code, words) in [
        ("tree", "file", 1, "the destination is not a directory"),
        ("tree/", "file", 1, "the destination is not a directory"),
        ("file", "tree/sub/leaf/", 1, "the destination is not a directory"),
        ("file", "tree/sub/leaf/deeper", 1, "directory"),
        ("file/", "out", 3, "directory"),
    ] {
        let done = run(cp().current_dir(here.path()).args([source, destination]));
        done.expect(code).says(&[words]);
    }
    assert_eq!(snapshot(here.path()), before);
}

#[test]
fn missing_parent_is_not_created() {
    let here = Scratch::new();
    write_file(&here.join("file"), b"file");
    let done = run(cp().arg(here.join("file")).arg(here.join("no/such/place")));
    done.expect(1).says(&["no/such", "create it first"]);
}

#[test]
fn directory_is_not_copied_into_itself() {
    let here = Scratch::new();
    write_file(&here.join("tree/leaf"), b"leaf");
    let done = run(cp().arg(here.join("tree")).arg(here.join("tree/copy")));
    done.expect(1).says(&["into itself"]);
}

#[test]
fn destination_in_a_source_is_left_out_by_rules() {
    for (flag, is_left_out) in
        [("--exclude=/copy/", true), ("--max-depth=1", true), ("--exclude=x", false), ("-x", false)]
    {
        let here = Scratch::new();
        write_file(&here.join("tree/leaf"), b"leaf");
        let contents = format!("{}/", here.join("tree").display());
        // The destination is created, then exists.
        for _ in 0..2 {
            let done = run(cp().arg(flag).arg(&contents).arg(here.join("tree/copy")));
            match is_left_out {
                true => drop(done.expect(0)),
                false => done.expect(23).fails(&["tree/copy: it is the destination of this copy"]),
            }
            assert!(here.join("tree/copy/leaf").exists(), "{flag}");
            assert!(!here.join("tree/copy/copy/leaf").exists(), "{flag}");
        }
        let done = run(cp().arg(flag).arg(&contents).arg(here.join("tree")));
        done.expect(1).says(&["into itself"]);
    }
}

#[test]
fn unwritable_destination_is_named_with_advice() {
    let here = Scratch::new();
    let locked = here.dir("locked");
    write_file(&here.join("file"), b"file");
    let mut command = unprivileged(&here, &here.dir("own"));
    set_mode(&locked, 0o555);
    command.args(["cp", "--json"]).arg(here.join("file")).arg(locked.join("new/"));
    let done = run(&mut command).expect(11);
    done.says(&["locked/new", "permission denied", "check the permissions of the user"]);
}

#[test]
fn unusable_root_is_named() {
    let here = Scratch::new();
    write_file(&here.join("file"), b"file");
    for root in ["missing", "file"] {
        let mut serve = command();
        serve.args(["serve", "--listen", "127.0.0.1:0"]).arg(here.join(root));
        run(serve.arg("--state-dir").arg(here.join("state"))).expect(11).says(&[root]);
    }
}

#[test]
fn port_in_use_is_named_with_the_flag() {
    let here = Scratch::new();
    let mut daemon = Daemon::start(here.path(), &[]);
    let mut serve = command();
    serve.arg("serve").arg(here.path()).arg("--listen").arg(remote_address(daemon.port));
    let done = run_there(serve.arg("--state-dir").arg(here.join("state"))).expect(10);
    done.says(&[&daemon.port.to_string(), "in use", "--listen"]);
    check_alive(&mut daemon);
}

#[test]
fn paths_outside_the_root_are_refused() {
    let scratch = Scratch::new();
    write_file(&scratch.join("outside/secret"), b"secret");
    write_file(&scratch.join("root/file"), b"file");
    symlink("../outside", scratch.join("root/link")).unwrap();
    symlink(scratch.join("outside"), scratch.join("root/absolute link")).unwrap();
    symlink("../outside/secret", scratch.join("root/file link")).unwrap();
    let mut daemon = Daemon::start(&scratch.join("root"), &[]);
    let before = snapshot(&scratch.join("outside"));
    let here = Scratch::new();
    write_file(&here.join("evil"), b"evil");
    let evil = here.join("evil");
    for path in ["../outside", "../../etc", "a/../../outside", "..", "link/../../outside"] {
        let push = run(daemon.cp().arg(&evil).arg(daemon.url(path))).expect(5);
        push.says(&["not allowed", ".."]);
        let pull = run(daemon.cp().arg(daemon.url(path)).arg(here.join("in"))).expect(5);
        pull.says(&["not allowed", ".."]);
    }
    for path in ["link/", "absolute link/", "link/secret", "absolute link/secret"] {
        let push = run(daemon.cp().arg(&evil).arg(daemon.url(path)));
        assert_ne!(push.code, Some(0), "{path}: {}", push.err);
        let pull = run(daemon.cp().arg(daemon.url(path)).arg(here.join("in")));
        assert_ne!(pull.code, Some(0), "{path}: {}", pull.err);
    }
    // A symlink operand is copied as a symlink.
    run(daemon.cp().arg(daemon.url("file link")).arg(here.join("as link"))).expect(0);
    assert!(here.join("as link").is_symlink() && !here.join("in/secret").exists());
    // An absolute path starts at the root.
    run(daemon.cp().arg(daemon.url("//file")).arg(here.join("rooted"))).expect(0);
    assert_eq!(snapshot(&scratch.join("outside")), before);
    check_alive(&mut daemon);
}

/// Creates a file under the name of another one's part file, and returns its name.
fn write_part_file(dir: &Path) -> &'static str {
    let name = ".bankfull-0123456789abcdef.part";
    write_file(&dir.join(name), b"unfinished");
    name
}

/// Checks that a copy ends with one line about the reserved name.
#[track_caller]
fn expect_reserved(command: &mut Command, source: impl AsRef<OsStr>, to: impl AsRef<OsStr>) {
    let done = run(command.arg(source).arg(to)).expect(1);
    done.says(&["bankfull-0123456789abcdef.", "reserved for unfinished files"]);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn reserved_names_are_refused_by_daemons() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let name = write_part_file(root.path());
    write_file(&here.join("evil"), b"evil");
    write_file(&root.join("dir").join(name).join("file"), b"file");
    let before = snapshot(root.path());
    let daemon = Daemon::start(root.path(), &[]);
    let journal = name.replace(".part", ".journal");
    let rewritten = name.replace(".part", ".journal.new");
    for path in [name, &journal, &rewritten, &format!("dir/{name}"), &format!("dir/{name}/new")] {
        expect_reserved(&mut daemon.cp(), here.join("evil"), daemon.url(path));
        expect_reserved(&mut daemon.cp(), here.join("evil"), daemon.url(&format!("{path}/")));
        expect_reserved(&mut daemon.cp(), daemon.url(path), here.join("in"));
        let mut copy = daemon.cp();
        copy.arg(format!("--backup-dir={path}"));
        expect_reserved(copy.arg("--backup"), here.join("evil"), daemon.url(""));
    }
    expect_reserved(&mut daemon.cp(), daemon.url(&format!("dir/{name}/file")), here.join("in"));
    // The client refuses such names of its own, too.
    let own = here.join(write_part_file(here.path()));
    expect_reserved(&mut daemon.cp(), &own, daemon.url("new"));
    expect_reserved(&mut daemon.cp(), daemon.url("dir"), &own);
    assert_eq!(snapshot(root.path()), before);
    assert!(!here.join("in").exists());
}

#[test]
fn answer_beyond_a_frame_is_refused_before_it_is_built() {
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    let mut peer = Peer::welcomed(daemon.port);
    let name = |number: usize| format!("{number}").into_bytes();
    let source =
        |number| Source { name: name(number), is_dir: false, contents: false, open_ended: None };
    peer.send(&Message::Open(Open {
        direction: Direction::Push,
        paths: vec![PathBytes(b"./".repeat(2000))],
        sources: (0..1000).map(source).collect(),
        streams: 1,
        timeout_ms: 60_000,
        ..Open::default()
    }));
    let Some(Message::Error(failure)) = peer.receive() else { panic!("accepted") };
    assert_eq!(failure.cause(), Cause::Usage);
    assert!(failure.text.contains("1000 sources are too many"), "{}", failure.text);
}

#[test]
fn reserved_names_are_refused_within_a_host() {
    let here = Scratch::new();
    let name = write_part_file(here.path());
    write_file(&here.join("file"), b"file");
    let before = snapshot(here.path());
    expect_reserved(&mut cp(), here.join(name), here.join("rescued"));
    expect_reserved(&mut cp(), here.join("file"), here.join(name));
    expect_reserved(&mut cp(), here.join("file"), here.join(name.replace("part", "journal/")));
    if let Some(ssh) = SshServer::start() {
        expect_reserved(&mut ssh.cp(), here.join("file"), SshServer::place(&here.join(name)));
        expect_reserved(&mut ssh.cp(), SshServer::place(&here.join(name)), here.join("rescued"));
    }
    assert_eq!(snapshot(here.path()), before);
}

#[test]
fn unprivileged_daemon_reports_denied_access() {
    let scratch = Scratch::new();
    let root = scratch.dir("root");
    write_file(&root.join("private/file"), b"private");
    write_file(&root.join("public"), b"public");
    let mut serve = unprivileged(&scratch, &root);
    set_mode(&root.join("private"), if is_root() { 0o700 } else { 0 });
    set_mode(&root, 0o777);
    let state = scratch.dir("state");
    set_mode(&state, 0o777);
    serve.args(["serve", "--json", "--listen", &remote_address(0)]).arg(&root).arg("--state-dir");
    let daemon = Daemon::from_command(serve.arg(state.join("own")));
    let here = Scratch::new();
    let whole = run(daemon.cp().arg(daemon.url("")).arg(here.join("in"))).expect(23);
    whole.fails(&["private", "permission denied"]);
    assert_eq!(fs::read(here.join("in/public")).unwrap(), b"public");
    let one = run(daemon.cp().arg(daemon.url("private/file")).arg(here.join("one"))).expect(3);
    one.says(&["private/file", "permission denied"]);
    set_mode(&root, 0o555);
    let push = run(daemon.cp().arg(here.join("in/public")).arg(daemon.url("new/"))).expect(5);
    push.says(&["127.0.0.1 reported: ", "new", "permission denied"]);
}

#[test]
fn special_file_is_copied_with_its_flag_alone() {
    let here = Scratch::new();
    let pipe = here.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let daemon = Daemon::start(here.path(), &[]);
    let commands = || {
        [
            (cp(), pipe.display().to_string(), here.join("local").display().to_string()),
            (daemon.cp(), pipe.display().to_string(), daemon.url("pushed")),
            (daemon.cp(), daemon.url("pipe"), here.join("pulled").display().to_string()),
        ]
    };
    for (mut command, from, to) in commands() {
        let refused = run(command.args([&from, &to])).expect(3);
        refused.says(&["pipe is neither a file, a directory nor a symlink", "--specials"]);
    }
    for (mut command, from, to) in commands() {
        run(command.args(["--specials", &from, &to])).expect(0);
    }
    for copy in ["local", "pushed", "pulled"] {
        let kind = fs::symlink_metadata(here.join(copy)).unwrap().file_type();
        assert!(kind.is_fifo(), "{copy}");
    }
}
