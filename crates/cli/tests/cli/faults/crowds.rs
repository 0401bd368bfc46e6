//! Crowds at one daemon: strangers that hold connections, and more clients than it admits.

use super::super::harness::{
    Daemon, Done, Peer, Running, Scratch, Wire, assert_same, entry, is_over_path, journals, litter,
    open_push, run, run_for, set_mtime, wait_until, write_file,
};
use super::check_alive;
use super::clients::{block, send};
use crate::command;
use bankfull_proto::wire::control::Message;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Files of each client.
const FILES: usize = 5;

/// Starts `count` clients at once that each send a tree; all must succeed.
fn send_from_many(daemon: &Daemon, root: &Scratch, count: usize) -> Vec<Done> {
    let here = Scratch::new();
    let trees: Vec<_> = (0..count).map(|number| here.join(format!("tree-{number}"))).collect();
    for tree in &trees {
        for file in 0..FILES {
            write_file(&tree.join(format!("file-{file}")), tree.to_str().unwrap());
        }
    }
    let start = |tree| Running::start(daemon.cp().arg(tree).arg(daemon.url("")));
    let clients: Vec<_> = trees.iter().map(start).collect();
    let done = clients.into_iter().map(|client| client.wait().expect(0)).collect();
    for tree in &trees {
        assert_same(tree, &root.join(tree.file_name().unwrap()));
    }
    done
}

#[test]
fn clients_beyond_the_limit_wait_and_succeed() {
    let root = Scratch::new();
    let mut daemon = Daemon::start(root.path(), &["--max-connections", "4"]);
    let done = send_from_many(&daemon, &root, 24);
    // Each client that was turned away says so, once.
    for client in done {
        let is_busy = |warning: &&String| warning.contains("reached its connection limit");
        assert!(client.warnings().iter().filter(is_busy).count() <= 1, "{}", client.out);
    }
    check_alive(&mut daemon);
}

#[test]
fn daemon_with_few_descriptors_serves_all_clients() {
    if is_over_path() {
        return;
    }
    let (root, state) = (Scratch::new(), Scratch::new());
    let program = command();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""]).arg(program.get_program());
    limited.args(["serve", "--json", "--listen", "127.0.0.1:0", "--state-dir"]);
    let mut daemon = Daemon::from_command(limited.arg(state.path()).arg(root.path()));
    wait_until("the limit is reported", || {
        let is_limit = |line: &str| line.contains("a process may open 200 files here");
        daemon.running().out().lines().any(is_limit)
    });
    send_from_many(&daemon, &root, 30);
    check_alive(&mut daemon);
}

#[test]
fn busy_daemon_admits_a_waiting_client() {
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let mut daemon = Daemon::start(root.path(), &["--max-connections", "3"]);
    let other = Peer::welcomed(daemon.port);
    let copy = |timeout| {
        let mut command = daemon.cp();
        command.args(["--streams", "1", "--timeout", timeout]);
        command.arg(here.join("file")).arg(daemon.url("file"));
        command
    };
    let started = Instant::now();
    let refused = run(&mut copy("4")).expect(5);
    refused.says(&["has reached its connection limit", "try again later"]);
    assert!(started.elapsed() >= Duration::from_secs(4), "it gave up too early");
    let waiting = Running::start(&mut copy("60"));
    wait_until("the client waits", || waiting.out().contains("trying again for up to 60 s"));
    drop(other);
    waiting.wait().expect(0);
    check_alive(&mut daemon);
}

#[test]
fn strangers_of_one_network_do_not_keep_others_out() {
    if is_over_path()
        || TcpStream::connect((Ipv6Addr::LOCALHOST, 9))
            .is_err_and(|e| e.kind() == std::io::ErrorKind::AddrNotAvailable)
    {
        return;
    }
    let (root, here) = (Scratch::new(), Scratch::new());
    write_file(&here.join("file"), b"file");
    let mut daemon = Daemon::start(root.path(), &["--listen", "[::]:0"]);
    let (port, mut strangers) = (daemon.port, Vec::new());
    let mut connect = |count: usize| {
        for _ in 0..count {
            let mut stranger = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
            // The first byte of a TLS handshake: without one, the kernel keeps the connection.
            stranger.write_all(&[22]).unwrap();
            strangers.push(stranger);
        }
    };
    connect(600);
    for number in 0..5 {
        connect(100);
        let mut command = daemon.cp();
        command.arg(here.join("file")).arg(daemon.url(&format!("file-{number}")));
        run_for(&mut command, Duration::from_secs(10)).expect(0);
    }
    drop(strangers);
    check_alive(&mut daemon);
}

/// Connects a client that begins files of 3 MiB, and then waits.
fn hold(daemon: &Daemon, root: &Scratch, names: &[&str]) -> (Peer, Wire) {
    let mut holder = Peer::welcomed(daemon.port);
    holder.send(&open_push(false));
    assert!(matches!(holder.receive(), Some(Message::Opened(_))));
    let entries = names.iter().zip(1..);
    let entries = entries.map(|(name, id)| entry(id, name.as_bytes(), 3 << 20)).collect();
    holder.send(&Message::Entries(entries));
    assert!(matches!(holder.receive(), Some(Message::Wants(_))));
    let mut stream = holder.attach(1);
    for id in 1..=names.len() as u64 {
        send(&mut stream, &block(id, 3 << 20, 0, &[7; 1 << 20]));
    }
    wait_until("the parts are held", || journals(root.path()).len() == names.len());
    (holder, stream)
}

#[test]
fn second_writer_of_a_name_is_told_at_its_beginning() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let holder = hold(&daemon, &root, &["f"]);
    write_file(&here.join("f"), "small");
    write_file(&here.join("other"), "small");
    let copy = || {
        let mut command = daemon.cp();
        command.arg(here.join("f")).arg(here.join("other")).arg(daemon.url(""));
        command
    };
    let done = run(&mut copy()).expect(23);
    done.fails(&["f", "another bankfull is receiving"]);
    assert!(root.join("other").exists() && !root.join("f").exists());
    drop(holder);
    wait_until("the other session has ended", || daemon.clients_done() == 2);
    run(&mut copy()).expect(0);
    assert_same(&here.join("f"), &root.join("f"));
}

/// Part files in a directory, by their inodes.
fn parts_in(dir: &Path) -> BTreeSet<u64> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let parts = entries.filter(|entry| entry.file_name().as_bytes().ends_with(b".part"));
    parts.map(|part| part.metadata().unwrap().ino()).collect()
}

#[test]
fn entries_of_other_kinds_leave_a_held_part() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    // Unchanged at the destination, although another session has begun to replace it.
    write_file(&here.join("g"), vec![1; 2 << 20]);
    run(daemon.cp().arg(here.join("g")).arg(daemon.url(""))).expect(0);
    let _holder = hold(&daemon, &root, &["f", "g"]);
    let before = parts_in(root.path());
    assert_eq!(before.len(), 2);
    let copy = |flags: &[&str]| {
        let mut command = daemon.cp();
        command.args(flags).arg(here.join("f")).arg(here.join("g")).arg(daemon.url(""));
        run(&mut command).expect(23)
    };
    for flags in [&[][..], &["--checksum", "--timeout", "2"]] {
        std::os::unix::fs::symlink("target", here.join("f")).unwrap();
        copy(flags).fails(&["f", "another bankfull is receiving"]);
        fs::remove_file(here.join("f")).unwrap();
        write_file(&here.dir("f").join("file"), b"beneath");
        copy(flags).fails(&["f", "another bankfull is receiving"]);
        fs::remove_dir_all(here.join("f")).unwrap();
        assert_eq!(parts_in(root.path()), before);
    }
    assert!(root.join("f").symlink_metadata().is_err());
}

#[test]
fn deletion_and_links_to_earlier_copies_leave_held_parts() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    for place in [here.join("s/f"), root.join("earlier/f")] {
        write_file(&place, b"content");
        set_mtime(&place, 1_700_000_000, 0);
    }
    write_file(&root.join("f"), b"another");
    let _holder = hold(&daemon, &root, &["f", "huge"]);
    let held = || litter(root.path()).into_iter().collect::<BTreeSet<_>>();
    let before = held();
    let mut copy = daemon.cp();
    copy.args(["--delete", "--link-dest", "earlier"]).arg(here.join("s/")).arg(daemon.url(""));
    run(&mut copy).expect(23).fails(&["f", "another bankfull is receiving"]);
    let mut copy = daemon.cp();
    write_file(&here.join("other/x"), b"x");
    run(copy.arg("--delete").arg(here.join("other/")).arg(daemon.url(""))).expect(0);
    assert_eq!(held(), before);
    assert!(!root.join("earlier").exists(), "extraneous entries are deleted");
}

#[test]
fn held_parts_delay_only_their_files() {
    let (root, here) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let names = ["f", "g", "huge"];
    let _holder = hold(&daemon, &root, &names);
    let mut sources: Vec<_> = names.iter().map(|name| here.join(name)).collect();
    sources.extend((0..20).map(|number| here.join(format!("other-{number}"))));
    sources.iter().for_each(|source| write_file(source, vec![1; 1 << 20]));
    let mut command = daemon.cp();
    command.args(["--timeout", "5"]).args(&sources).arg(daemon.url(""));
    let client = Running::start(&mut command);
    let has_arrived = |number| root.join(format!("other-{number}")).exists();
    wait_until("the other files arrive", || (0..20).all(has_arrived));
    let started = Instant::now();
    let done = client.wait().expect(23);
    assert_eq!(done.failed().len(), 3, "{}", done.out);
    done.fails(&["huge", "another bankfull is receiving"]);
    // All three are waited for at the same time.
    assert!(started.elapsed() < Duration::from_secs(12), "it took {:?}", started.elapsed());
}
