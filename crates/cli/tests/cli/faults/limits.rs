//! Limits of memory and threads that a program was started with.

use super::super::harness::{
    Daemon, Rng, Running, Scratch, assert_same, cp, fill, is_over_path, is_root, run,
    unprivileged_within, write_file,
};
use super::check_alive;
use crate::command;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Returns a command within this limit of its address space, in MiB.
fn within(mib: u64, command: &Command) -> Command {
    limited(&format!("--as={}", mib * MIB), command)
}

/// Returns a command within a limit, an option of prlimit(1).
fn limited(limit: &str, command: &Command) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg(limit).arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// Returns a copy of `from`, within the host or over a transport from the daemon.
fn copy_from(here: &Scratch, daemon: &Daemon, transport: &str) -> Command {
    if transport == "local" {
        let mut copy = cp();
        copy.arg(here.join("from/"));
        return copy;
    }
    let mut copy = daemon.cp();
    copy.args(["--transport", transport]).arg(daemon.url("from/"));
    copy
}

#[test]
fn copies_of_many_directories_work_with_few_descriptors() {
    let here = Scratch::new();
    for number in 0..400 {
        write_file(&here.dir(&format!("from/{number}")).join("file"), b"some content");
    }
    for number in 0..20 {
        // Larger than a pack, so that each has a part file.
        let large = here.dir(&format!("from/{number}/deeper")).join("large");
        fill(&large, 3 * MIB, &mut Rng::new(number));
    }
    let daemon = Daemon::start(here.path(), &[]);
    for descriptors in [256, 64] {
        for transport in ["local", "tcp", "quic"] {
            let into = here.join(format!("into-{descriptors}-{transport}"));
            let mut copy = copy_from(&here, &daemon, transport);
            let done = run(&mut limited(&format!("--nofile={descriptors}"), copy.arg(&into)));
            done.expect(0);
            assert_same(&here.join("from"), &into);
        }
    }
}

#[test]
fn deep_trees_are_deleted_with_few_descriptors() {
    let here = Scratch::new();
    write_file(&here.dir("from").join("file"), b"some content");
    for route in ["local", "tcp"] {
        let daemon = Daemon::start(here.path(), &[]);
        let into = here.dir(&format!("into-{route}"));
        let deep = here.dir(&format!("into-{route}/{}", "d/".repeat(300)));
        write_file(&deep.join("extraneous"), b"x");
        // A level that the source has, above others that it does not have.
        here.dir("from/d/d/d");
        let mut copy = copy_from(&here, &daemon, route);
        copy.arg("--delete").arg(&into);
        run(&mut limited("--nofile=64", &copy)).expect(0);
        assert_same(&here.join("from"), &into);
    }
}

#[test]
fn operands_of_one_directory_share_its_descriptor() {
    let here = Scratch::new();
    let names: Vec<String> = (0..200).map(|number| format!("from/{number}")).collect();
    names.iter().for_each(|name| write_file(&here.join(name), name.as_bytes()));
    let daemon = Daemon::start(here.path(), &[]);
    let mut push = daemon.cp();
    let files: Vec<_> = names.iter().map(|name| here.join(name)).collect();
    push.args(&files).arg(daemon.url("pushed/"));
    let mut pull = daemon.cp();
    pull.args(names.iter().map(|name| daemon.url(name))).arg(here.join("pulled/"));
    let mut local = cp();
    local.args(&files).arg(here.join("copied/"));
    for (command, to) in [(push, "pushed"), (pull, "pulled"), (local, "copied")] {
        run(&mut limited("--nofile=64", &command)).expect(0);
        for file in &files {
            assert_same(file, &here.join(to).join(file.file_name().unwrap()));
        }
    }
}

#[test]
fn copies_work_in_a_small_address_space_or_say_why_not() {
    let here = Scratch::new();
    fill(&here.dir("from").join("large"), 20 * MIB, &mut Rng::new(3));
    for number in 0..20 {
        write_file(&here.join(format!("from/{number}")), b"small");
    }
    let daemon = Daemon::start(here.path(), &[]);
    for (mib, fits) in [(512, true), (256, true), (40, false)] {
        for transport in ["local", "tcp", "quic"] {
            let into = here.join(format!("into-{mib}-{transport}"));
            let mut copy = copy_from(&here, &daemon, transport);
            let done = run(&mut within(mib, copy.arg(&into)));
            match done.code {
                Some(0) => assert_same(&here.join("from"), &into),
                // Rust's own start of a thread aborts in so little memory.
                None if !fits => {}
                _ => {
                    let done = done.expect(11);
                    assert!(!fits, "{mib} {transport}: {}", done.err);
                    done.says(&["ulimit"]);
                }
            }
        }
    }
}

#[test]
fn daemon_in_a_small_address_space_receives() {
    if is_over_path() {
        return;
    }
    let (root, here, state) = (Scratch::new(), Scratch::new(), Scratch::new());
    fill(&here.join("large"), 20 * MIB, &mut Rng::new(4));
    let mut serve = command();
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0", "--state-dir"]);
    let mut daemon =
        Daemon::from_command(&mut within(256, serve.arg(state.path()).arg(root.path())));
    for transport in ["tcp", "quic"] {
        let mut command = daemon.cp();
        command.args(["--transport", transport]).arg(here.join("large"));
        run(command.arg(daemon.url(transport))).expect(0);
        assert_same(&here.join("large"), &root.join(transport));
    }
    check_alive(&mut daemon);
}

#[test]
fn daemon_with_few_threads_serves_all_clients() {
    if is_over_path() || !is_root() {
        return;
    }
    let here = Scratch::new();
    let root = here.dir("root");
    // Some sessions at a time. Other tests may use threads of the same user.
    let mut serve = unprivileged_within(&here, &root, 120);
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0", "--state-dir"]);
    let mut daemon = Daemon::from_command(serve.arg(root.join(".state")).arg(&root));
    write_file(&here.join("file"), b"file");
    let start = |number| {
        let mut command = daemon.cp();
        command.arg(here.join("file"));
        Running::start(command.arg(daemon.url(&format!("file-{number}"))))
    };
    let clients: Vec<_> = (0..12).map(start).collect();
    for (number, client) in clients.into_iter().enumerate() {
        client.wait().expect(0);
        assert_same(&here.join("file"), &root.join(format!("file-{number}")));
    }
    check_alive(&mut daemon);
}
