//! One rich tree by every route and in both directions: it arrives identical, a second run finds
//! nothing to do, and what the flags promise about it holds.
//!
//! Here are the routes themselves; [`landing`] says where sources land, [`flags`] what single flags
//! do, [`overrides`] those that stand in for what the path would decide. What an interruption
//! leaves is the subject of `resume`.

mod flags;
mod landing;
mod overrides;

use crate::harness::{Daemon, Relay, Rng, Scratch, SshServer, Tree, assert_same, cp, fill, run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes of the data connections that a run with nothing to send may need, per stream.
const IDLE_WIRE_BYTES: u64 = 4096;

/// Copies the tree, compares, and copies it again. Returns the summary's number of streams.
fn check(tree: &Tree, landed: &Path, cp: impl Fn() -> Command) -> u64 {
    let first = run(&mut cp()).expect(0);
    assert_same(&tree.path, landed);
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
    assert_same(&tree.path, landed);
    first.figure("streams")
}

fn push_to_daemon(serve: &[&str], flags: &[&str]) -> u64 {
    let (tree, root) = (Tree::rich(), Scratch::new());
    let daemon = Daemon::start(root.path(), serve);
    check(&tree, &root.join("in/rich"), || {
        let mut command = daemon.cp();
        command.args(flags).arg(&tree.path).arg(daemon.url("in"));
        command
    })
}

fn pull_from_daemon(serve: &[&str], flags: &[&str]) -> u64 {
    let (tree, here) = (Tree::rich(), Scratch::new());
    let daemon = Daemon::start(tree.path.parent().unwrap(), serve);
    check(&tree, &here.join("in/rich"), || {
        let mut command = daemon.cp();
        command.args(flags).arg(daemon.url("rich")).arg(here.join("in"));
        command
    })
}

#[test]
fn a_rich_tree_arrives_at_a_daemon_over_one_stream() {
    assert_eq!(push_to_daemon(&[], &["--streams", "1"]), 1);
}

#[test]
fn a_rich_tree_arrives_at_a_daemon_over_eight_streams() {
    assert_eq!(push_to_daemon(&[], &["--streams", "8"]), 8);
}

#[test]
fn a_rich_tree_arrives_from_a_daemon_over_one_stream() {
    assert_eq!(pull_from_daemon(&[], &["--streams", "1"]), 1);
}

#[test]
fn a_rich_tree_arrives_from_a_daemon_over_eight_streams() {
    assert_eq!(pull_from_daemon(&["--read-only"], &["--streams", "8"]), 8);
}

#[test]
fn a_rich_tree_arrives_at_a_daemon_without_encryption() {
    push_to_daemon(&["--allow-no-encryption"], &["--no-encryption"]);
}

#[test]
fn a_rich_tree_arrives_from_a_daemon_without_encryption() {
    pull_from_daemon(&["--allow-no-encryption"], &["--no-encryption"]);
}

#[test]
fn a_rich_tree_arrives_by_every_engine_encrypted_or_not() {
    let plain = ["zerobuffer", "sendfile", "splice"];
    for engine in ["buffered", "mmap", "io_uring"].iter().chain(&plain) {
        if *engine == "io_uring" && !has_io_uring() {
            continue;
        }
        let flags = ["--no-encryption", "--io", engine, "--block-size", "2MiB"];
        push_to_daemon(&["--allow-no-encryption"], &flags);
        pull_from_daemon(&["--allow-no-encryption"], &flags);
        if plain.contains(engine) {
            continue;
        }
        pull_from_daemon(&[], &["--io", engine]);
    }
}

/// Whether this host lets us have it; where not, that is refused with a way out.
fn has_io_uring() -> bool {
    let is_there = bankfull_sys::ReadRing::is_available();
    if !is_there {
        let (scratch, root) = (Scratch::new(), Scratch::new());
        let daemon = Daemon::start(root.path(), &[]);
        let mut command = daemon.cp();
        command.args(["--io", "io_uring"]).arg(scratch.path()).arg(daemon.url("x"));
        run(&mut command).expect(1).says(&["does not let us have io_uring", "another engine"]);
        println!("skipped: io_uring, which this process may not have");
    }
    is_there
}

#[test]
fn a_rich_tree_arrives_whatever_is_said_of_the_page_cache() {
    for how in ["on", "off"] {
        push_to_daemon(&[], &["--direct", how]);
        pull_from_daemon(&[], &["--direct", how]);
    }
}

/// The trees of other tests are in memory, where there is no cache to pass by.
#[test]
fn a_file_on_a_disk_arrives_past_the_page_cache_which_has_nothing_of_it_then() {
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
        // The end of a file, which is no whole unit, goes through it.
        assert!(cached.is_none_or(|bytes| bytes < 4 << 20), "{path:?}: {cached:?}");
    }
    let content = fs::read(&source).unwrap();
    assert!(content == fs::read(&pushed).unwrap() && content == fs::read(&pulled).unwrap());
}

#[test]
fn an_engine_that_stays_in_the_kernel_is_refused_where_data_is_encrypted() {
    let (scratch, root) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let mut command = daemon.cp();
    command.args(["--io", "splice"]).arg(scratch.path()).arg(daemon.url("x"));
    run(&mut command)
        .expect(1)
        .says(&["engine splice", "add --no-encryption, or choose buffered, mmap or io_uring"]);
}

#[test]
fn a_rich_tree_arrives_at_a_daemon_by_quic() {
    assert_eq!(push_to_daemon(&[], &["--transport", "quic", "--streams", "8"]), 8);
}

#[test]
fn a_rich_tree_arrives_from_a_daemon_by_quic() {
    pull_from_daemon(&["--read-only"], &["--transport", "quic"]);
}

#[test]
fn where_tcp_does_not_get_through_auto_goes_by_quic_and_else_by_tcp() {
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

#[test]
fn next_to_no_memory_is_enough_for_a_rich_tree_by_every_transport() {
    let limit = ["--max-memory", "1MiB"];
    push_to_daemon(&limit, &[]);
    push_to_daemon(&limit, &["--transport", "quic", "--streams", "32"]);
    pull_from_daemon(&[], &[limit, ["--streams", "16"]].concat());
    pull_from_daemon(&[], &[&limit[..], &["--transport", "quic", "--streams", "32"]].concat());
}

#[test]
fn next_to_no_memory_is_enough_for_a_rich_tree_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let (tree, there) = (Tree::rich(), Scratch::new());
    check(&tree, &there.join("in/rich"), || {
        let mut command = ssh.cp();
        command.args(["--max-memory", "1MiB"]).arg(&tree.path);
        command.arg(SshServer::place(&there.join("in")));
        command
    });
}

#[test]
fn a_rich_tree_arrives_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let (tree, there) = (Tree::rich(), Scratch::new());
    check(&tree, &there.join("in/rich"), || {
        let mut command = ssh.cp();
        command.arg(&tree.path).arg(SshServer::place(&there.join("in")));
        command
    });
}

#[test]
fn a_rich_tree_is_fetched_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let (tree, here) = (Tree::rich(), Scratch::new());
    check(&tree, &here.join("in/rich"), || {
        let mut command = ssh.cp();
        command.args(["--streams", "8"]).arg(SshServer::place(&tree.path)).arg(here.join("in"));
        command
    });
}

/// An ssh server behind a firewall that lets nothing through but ssh: the client's own idea of the
/// host leads nowhere, and the agent does not know under which address it was reached.
fn firewalled() -> Option<SshServer> {
    SshServer::with("ForceCommand env -u SSH_CONNECTION sh -c \"$SSH_ORIGINAL_COMMAND\"")
}

/// The broadcast address, to which no TCP connection can be made: that fails at once, everywhere.
const UNREACHABLE: &str = "255.255.255.255";

fn cp_through_firewall(ssh: &SshServer) -> Command {
    let mut command = ssh.cp();
    command.arg("-o").arg(format!("ProxyCommand={}", ssh.pipe_command()));
    command
}

#[test]
fn where_the_data_port_cannot_be_reached_the_tree_goes_through_ssh_itself() {
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
fn a_tree_is_fetched_through_ssh_itself_and_that_is_said_once() {
    let Some(ssh) = firewalled() else { return };
    let (tree, here) = (Tree::rich(), Scratch::new());
    let fetch = || {
        let mut command = cp_through_firewall(&ssh);
        command.arg(format!("{UNREACHABLE}:{}", tree.path.display())).arg(here.join("in"));
        command
    };
    check(&tree, &here.join("in/rich"), fetch);
    let events = run(&mut fetch()).expect(0).events();
    let notices: Vec<_> = events.iter().filter(|e| e["event"] == "notice").collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0]["message"].as_str().unwrap().contains("carrying the data over ssh"));
    let connected = events.iter().find(|e| e["event"] == "connected").unwrap();
    assert_eq!(connected["route"], "ssh-only");
    assert_eq!(connected["encrypted"], true);
}

#[test]
fn a_rich_tree_is_copied_within_the_host() {
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
