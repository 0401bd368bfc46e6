//! One rich tree over every route and in both directions: it arrives identical, a second run finds
//! nothing to do, and flags have their documented effect.
//!
//! This module has the routes; [`destinations`] checks destinations, [`flags`] single flags,
//! [`overrides`] fixed rates and windows. Interruptions are in `resume`.

mod destinations;
mod flags;
mod overrides;

use crate::harness::{
    Daemon, Relay, Rng, Scratch, SshServer, Tree, assert_same, cp, fill, run, set_mode, set_mtime,
    write_file,
};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Allowed bytes per data stream of a run with nothing to send.
const IDLE_WIRE_BYTES: u64 = 4096;

/// Copies the tree, compares, and copies it again. Returns the number of streams of the summary.
fn check(tree: &Tree, copied_to: &Path, cp: impl Fn() -> Command) -> u64 {
    let first = run(&mut cp()).expect(0);
    assert_same(&tree.path, copied_to);
    let [files, failed, bytes, skipped] =
        first.figures(["files", "failed_files", "bytes", "skipped_files"]);
    assert_eq!((files, failed, skipped), (tree.files, 0, 0));
    let dense = tree.bytes - tree.sparse_bytes;
    assert!((dense..tree.bytes).contains(&bytes), "{bytes} of {dense} to {}", tree.bytes);

    let second = run(&mut cp()).expect(0);
    let figures = second.figures(["files", "bytes", "resumed_bytes", "skipped_files"]);
    assert_eq!(figures, [0, 0, 0, tree.files]);
    let [wire, streams] = second.figures(["wire_bytes", "streams"]);
    assert!(wire <= IDLE_WIRE_BYTES * streams.max(1), "{wire} bytes to send nothing");
    assert_same(&tree.path, copied_to);
    first.figure("streams")
}

/// Copies into a daemon's directory, in memory.
fn push_to_daemon(serve: &[&str], flags: &[&str]) -> u64 {
    push_into(&Scratch::bulk(), serve, flags)
}

fn push_into(root: &Scratch, serve: &[&str], flags: &[&str]) -> u64 {
    let tree = Tree::rich();
    let daemon = Daemon::start(root.path(), serve);
    check(&tree, &root.join("in/rich"), || {
        let mut command = daemon.cp();
        command.args(flags).arg(&tree.path).arg(daemon.url("in"));
        command
    })
}

/// Copies from a daemon, into memory.
fn pull_from_daemon(serve: &[&str], flags: &[&str]) -> u64 {
    pull_into(&Scratch::bulk(), serve, flags)
}

fn pull_into(here: &Scratch, serve: &[&str], flags: &[&str]) -> u64 {
    let tree = Tree::rich();
    let daemon = Daemon::start(tree.path.parent().unwrap(), serve);
    check(&tree, &here.join("in/rich"), || {
        let mut command = daemon.cp();
        command.args(flags).arg(daemon.url("rich")).arg(here.join("in"));
        command
    })
}

#[test]
fn push_over_one_stream() {
    assert_eq!(push_to_daemon(&[], &["--streams", "1"]), 1);
}

#[test]
fn push_over_eight_streams() {
    assert_eq!(push_to_daemon(&[], &["--streams", "8"]), 8);
}

#[test]
fn pull_over_one_stream() {
    assert_eq!(pull_from_daemon(&[], &["--streams", "1"]), 1);
}

#[test]
fn pull_over_eight_streams() {
    assert_eq!(pull_from_daemon(&["--read-only"], &["--streams", "8"]), 8);
}

#[test]
fn push_without_encryption() {
    push_to_daemon(&["--allow-no-encryption"], &["--no-encryption"]);
}

#[test]
fn pull_without_encryption() {
    pull_from_daemon(&["--allow-no-encryption"], &["--no-encryption"]);
}

/// Copies in both directions by an I/O method, and again if it can encrypt.
fn check_io_method(name: &str, can_encrypt: bool) {
    let flags = ["--no-encryption", "--io", name, "--block-size", "2MiB"];
    push_to_daemon(&["--allow-no-encryption"], &flags);
    pull_from_daemon(&["--allow-no-encryption"], &flags);
    if can_encrypt {
        pull_from_daemon(&[], &["--io", name]);
    }
}

#[test]
fn tree_arrives_by_buffered() {
    check_io_method("buffered", true);
}

#[test]
fn tree_arrives_by_mmap() {
    check_io_method("mmap", true);
}

#[test]
fn tree_arrives_by_io_uring() {
    if has_io_uring() {
        check_io_method("io_uring", true);
    }
}

#[test]
fn tree_arrives_by_zerobuffer() {
    check_io_method("zerobuffer", false);
}

#[test]
fn tree_arrives_by_sendfile() {
    check_io_method("sendfile", false);
}

#[test]
fn tree_arrives_by_splice() {
    check_io_method("splice", false);
}

/// True if this process may use io_uring; otherwise checks that the error names a way out.
fn has_io_uring() -> bool {
    let is_there = bankfull_sys::ReadRing::is_available();
    if !is_there {
        let (scratch, root) = (Scratch::new(), Scratch::new());
        let daemon = Daemon::start(root.path(), &[]);
        let mut command = daemon.cp();
        command.args(["--io", "io_uring"]).arg(scratch.path()).arg(daemon.url("x"));
        run(&mut command)
            .expect(1)
            .says(&["io_uring is unavailable on the sending host", "choose another"]);
        println!("skipped: io_uring is denied to this process");
    }
    is_there
}

/// On the disk, if the temporary directory is there.
fn check_direct_mode(how: &str) {
    push_into(&Scratch::new(), &[], &["--direct", how]);
    pull_into(&Scratch::new(), &[], &["--direct", how]);
}

#[test]
fn tree_arrives_with_direct_on() {
    check_direct_mode("on");
}

#[test]
fn tree_arrives_with_direct_off() {
    check_direct_mode("off");
}

/// The trees of other tests are in memory, without a page cache to bypass.
#[test]
fn direct_file_is_not_in_the_page_cache() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = dir.path().join("source");
    fill(&source, (20 << 20) + 777, &mut Rng::new(5));
    let file = fs::File::open(&source).unwrap();
    let can_be = bankfull_sys::open_direct(&file, false).unwrap().is_some();
    if !can_be {
        let why = "this disk, or this kernel, tells of nothing past the page cache";
        assert!(std::env::var_os("BANKFULL_MUST_DIRECT").is_none(), "{why}");
        return println!("skipped: {why}");
    }
    bankfull_sys::sync_all(&file).unwrap();
    bankfull_sys::advise_dont_need(&file, 0, 21 << 20).unwrap();
    let daemon = Daemon::start(dir.path(), &[]);
    let (pushed, pulled) = (dir.path().join("pushed"), dir.path().join("pulled"));
    let cp = || {
        let mut command = daemon.cp();
        command.args(["--direct", "on"]);
        command
    };
    run(cp().arg(&source).arg(daemon.url("pushed"))).expect(0);
    run(cp().arg(daemon.url("source")).arg(&pulled)).expect(0);
    for path in [&source, &pushed, &pulled] {
        let file = fs::File::open(path).unwrap();
        let cached = bankfull_sys::cached_bytes(&file, 0, 21 << 20);
        // The end of a file, an incomplete unit, goes through the cache.
        assert!(cached.is_none_or(|bytes| bytes < 4 << 20), "{path:?}: {cached:?}");
    }
    let content = fs::read(&source).unwrap();
    assert!(content == fs::read(&pushed).unwrap() && content == fs::read(&pulled).unwrap());
}

#[test]
fn kernel_io_method_is_refused_with_encryption() {
    let (scratch, root) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let mut command = daemon.cp();
    command.args(["--io", "splice"]).arg(scratch.path()).arg(daemon.url("x"));
    run(&mut command)
        .expect(1)
        .says(&["splice", "add --no-encryption, or choose buffered, mmap or io_uring"]);
}

#[test]
fn push_over_quic() {
    assert_eq!(push_to_daemon(&[], &["--transport", "quic", "--streams", "8"]), 8);
}

#[test]
fn pull_over_quic() {
    pull_from_daemon(&["--read-only"], &["--transport", "quic"]);
}

#[test]
fn auto_transport_falls_back_to_quic() {
    let (tree, root) = (Tree::rich(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let relay = Relay::start(daemon.port);
    let cp = |url: &str| {
        let mut command = daemon.cp();
        command.args(["--transport", "auto"]).arg(&tree.path).arg(url);
        command
    };
    check(&tree, &root.join("relayed/rich"), || cp(&relay.url("relayed")));
    for (url, route) in [(relay.url("relayed"), "quic"), (daemon.url("direct"), "daemon")] {
        let events = run(&mut cp(&url)).expect(0).events();
        let connected = events.iter().find(|event| event["event"] == "connected").unwrap();
        assert_eq!(connected["route"], route);
    }
}

const MIN_MEMORY: [&str; 2] = ["--max-memory", "1MiB"];

#[test]
fn minimum_memory_suffices_over_tcp() {
    push_to_daemon(&MIN_MEMORY, &[]);
    pull_from_daemon(&[], &[MIN_MEMORY, ["--streams", "16"]].concat());
}

#[test]
fn minimum_memory_suffices_over_quic() {
    let flags = ["--transport", "quic", "--streams", "16"];
    push_to_daemon(&MIN_MEMORY, &flags);
    pull_from_daemon(&[], &[&MIN_MEMORY[..], &flags].concat());
}

#[test]
fn minimum_memory_suffices_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let (tree, there) = (Tree::rich(), Scratch::new());
    check(&tree, &there.join("in/rich"), || {
        let mut command = ssh.cp();
        command.args(MIN_MEMORY).arg(&tree.path);
        command.arg(SshServer::place(&there.join("in")));
        command
    });
}

#[test]
fn push_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let (tree, there) = (Tree::rich(), Scratch::new());
    check(&tree, &there.join("in/rich"), || {
        let mut command = ssh.cp();
        command.arg(&tree.path).arg(SshServer::place(&there.join("in")));
        command
    });
}

#[test]
fn pull_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let (tree, here) = (Tree::rich(), Scratch::new());
    check(&tree, &here.join("in/rich"), || {
        let mut command = ssh.cp();
        command.args(["--streams", "8"]).arg(SshServer::place(&tree.path)).arg(here.join("in"));
        command
    });
}

/// Starts an ssh server behind a firewall that passes only ssh: the host as the client names it is
/// unreachable, and the agent does not know its address.
fn firewalled() -> Option<SshServer> {
    SshServer::with("ForceCommand env -u SSH_CONNECTION sh -c \"$SSH_ORIGINAL_COMMAND\"")
}

/// The broadcast address: TCP connections to it fail at once.
const UNREACHABLE: &str = "255.255.255.255";

fn cp_through_firewall(ssh: &SshServer) -> Command {
    let mut command = ssh.cp();
    command.arg("-o").arg(format!("ProxyCommand={}", ssh.pipe_command()));
    command
}

#[test]
fn unreachable_data_port_pushes_through_ssh() {
    let Some(ssh) = firewalled() else { return };
    let (tree, there) = (Tree::rich(), Scratch::new());
    let place = format!("{UNREACHABLE}:{}", there.join("in").display());
    let streams = check(&tree, &there.join("in/rich"), || {
        let mut command = cp_through_firewall(&ssh);
        command.arg(&tree.path).arg(&place);
        command
    });
    assert_eq!(streams, 1);
}

#[test]
fn unreachable_data_port_pulls_through_ssh() {
    let Some(ssh) = firewalled() else { return };
    let (tree, here) = (Tree::rich(), Scratch::new());
    let fetch = || {
        let mut command = cp_through_firewall(&ssh);
        command.arg(format!("{UNREACHABLE}:{}", tree.path.display())).arg(here.join("in"));
        command
    };
    check(&tree, &here.join("in/rich"), fetch);
    let events = run(&mut fetch()).expect(0).events();
    let warnings: Vec<_> = events.iter().filter(|e| e["event"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0]["message"].as_str().unwrap().contains("carrying the data over ssh"));
    let connected = events.iter().find(|e| e["event"] == "connected").unwrap();
    assert_eq!(connected["route"], "ssh-only");
    assert_eq!(connected["encrypted"], true);
}

#[test]
fn local_copy_of_a_tree() {
    for streams in ["1", "8"] {
        let (tree, here) = (Tree::rich(), Scratch::new());
        check(&tree, &here.join("in/rich"), || {
            let mut command = cp();
            command.args(["--streams", streams]).arg(&tree.path).arg(here.join("in"));
            command
        });
        let diff = Command::new("diff")
            .args(["-r", "--no-dereference"])
            .arg(&tree.path)
            .arg(here.join("in/rich"))
            .output()
            .unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    }
}

/// Makes a tree of many directories, each with a mode and time of its own.
fn make_many_directories(tree: &Path) {
    let path = |i: i64| tree.join(format!("{}/{}/{i}", i % 5, i % 11));
    for i in 0..800 {
        write_file(&path(i).join("file"), i.to_string());
    }
    for i in 0..800 {
        set_mode(&path(i), if i % 3 == 0 { 0o555 } else { 0o750 });
        set_mtime(&path(i), 1_000_000_000 + i, 5);
    }
    for i in 0..55 {
        set_mtime(path(i).parent().unwrap(), 1_100_000_000 + i, 6);
    }
}

#[test]
fn directories_completed_on_the_way_keep_mode_and_time() {
    let here = Scratch::new();
    make_many_directories(&here.join("tree"));
    let daemon = Daemon::start(here.path(), &[]);
    run(daemon.cp().arg(here.join("tree")).arg(daemon.url("pushed"))).expect(0);
    run(daemon.cp().arg(daemon.url("tree")).arg(here.join("pulled"))).expect(0);
    run(cp().arg(here.join("tree")).arg(here.join("copied"))).expect(0);
    for name in ["pushed", "pulled", "copied"] {
        assert_same(&here.join("tree"), &here.join(name).join("tree"));
    }
}
