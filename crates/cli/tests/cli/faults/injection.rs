//! Failures of the writer's system calls and kills at them, injected by strace(1).
//!
//! A name never shows a damaged file, and the next run completes the copy.
//!
//! `BANKFULL_INJECTIONS` sets their number, `BANKFULL_SEED` replays one of them, and
//! `BANKFULL_INJECTED` names another program than the one under test, such as an optimised one.

use super::super::harness::{
    Daemon, Done, Mount, Rng, Scratch, Tree, assert_same, cp, litter, run, snapshot, write_file,
};
use crate::command;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Default number of injections.
const INJECTIONS: u64 = 200;

/// Threads that inject at the same time.
const THREADS: usize = 4;

const MIB: u64 = 1 << 20;

/// System calls of the receiving side, with about the number of each in a run.
const CALLS: [(&str, u64); 15] = [
    ("pwrite64", 20),
    ("mkdirat", 10),
    ("flock", 4),
    ("copy_file_range", 4),
    ("getdents64", 8),
    ("write", 8),
    ("ftruncate", 2),
    ("renameat", 4),
    ("unlinkat", 12),
    ("openat", 24),
    ("utimensat", 5),
    ("fchmod", 5),
    ("newfstatat", 12),
    ("fstat", 10),
    ("syncfs", 1),
];

/// Errors in place of the call, or a signal at its entry.
const FAULTS: [&str; 7] = [
    "error=ENOSPC",
    "error=EIO",
    "error=EINTR",
    "error=EMFILE",
    "error=ENOMEM",
    "error=EDQUOT",
    "signal=KILL",
];

/// A tree at a daemon: files of several blocks, of one, and small ones.
struct Scene {
    tree: Tree,
    daemon: Daemon,
    /// Injections that changed the outcome of their copy.
    effective: AtomicU64,
}

impl Scene {
    fn new() -> Self {
        let tree = Tree::bulk(&[3 * MIB + 5, MIB], 12);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        Self { tree, daemon, effective: AtomicU64::new(0) }
    }

    /// Returns a command that pulls the tree, or copies it within the host.
    fn copy(&self, is_local: bool, into: &Path) -> Command {
        let mut command = if is_local { cp() } else { self.daemon.cp() };
        match is_local {
            true => command.arg(&self.tree.path),
            false => command.arg(self.daemon.url("bulk")),
        };
        command.arg(into);
        command
    }

    /// Returns a command that pushes the tree to an agent with an injection.
    fn push(&self, into: &Path, scratch: &Scratch, call: &str, injection: &str) -> Command {
        let mut agent = command();
        let traced = traced(agent.arg("agent"), call, injection);
        let words = std::iter::once(traced.get_program()).chain(traced.get_args());
        let words: Vec<_> = words.map(|word| format!("'{}'", word.display())).collect();
        let ssh = scratch.join("ssh");
        let asked = "for word; do [ \"$word\" != -G ] || exit; done";
        fs::write(&ssh, format!("{asked}; exec {}", words.join(" "))).unwrap();
        let mut push = cp();
        push.args(["--timeout", "20", "--ssh-command", &format!("sh {}", ssh.display())]);
        push.arg(&self.tree.path).arg(format!("127.0.0.1:{}", into.display()));
        push
    }

    /// Runs a copy with one injection into its receiver; it may end in any way but a panic.
    fn inject(&self, scratch: &Scratch, into: &Path, rng: &mut Rng) -> String {
        let (call, count) = CALLS[rng.below(CALLS.len() as u64) as usize];
        let fault = FAULTS[rng.below(FAULTS.len() as u64) as usize];
        let injection = format!("{fault}:when={}", 1 + rng.below(count));
        let mut copy = match rng.below(4) {
            0 => traced(&self.copy(true, into), call, &injection),
            1 => self.push(into, scratch, call, &injection),
            _ => traced(&self.copy(false, into), call, &injection),
        };
        let done = run(&mut copy);
        let injection = format!("{call}:{injection}");
        assert!(!done.err.contains("panicked"), "{injection}\n{}", done.err);
        match done.code {
            Some(0) => assert_same(&self.tree.path, &into.join("bulk")),
            _ => drop(self.effective.fetch_add(1, Ordering::Relaxed)),
        }
        injection
    }

    /// Injects one or two faults into copies; then lets a copy complete.
    fn run(&self, seed: u64) {
        let (mut rng, scratch) = (Rng::new(seed), Scratch::bulk());
        let into = scratch.dir("in");
        let is_local = rng.below(4) == 0;
        let mut injected = vec![self.inject(&scratch, &into, &mut rng)];
        check_names(&self.tree.path, &into.join("bulk"), &injected);
        if rng.below(2) == 0 {
            injected.push(self.inject(&scratch, &into, &mut rng));
            check_names(&self.tree.path, &into.join("bulk"), &injected);
        }
        let done: Done = run(&mut self.copy(is_local, &into));
        assert_eq!(done.code, Some(0), "BANKFULL_SEED={seed}: {injected:?}\n{}", done.err);
        assert_same(&self.tree.path, &into.join("bulk"));
        let left = litter(&into);
        assert!(left.is_empty(), "BANKFULL_SEED={seed}: {injected:?}: {left:?}");
    }
}

/// Checks that a file equals its source, except for a zero byte per thread.
///
/// Returns true if there are such bytes.
fn lacks_bytes(source: &Path, copied_to: &Path, injection: &str) -> bool {
    let (original, copy) = (fs::read(source).unwrap(), fs::read(copied_to).unwrap());
    assert_eq!(original.len(), copy.len(), "{injection}");
    let differing = (0..copy.len()).filter(|&at| original[at] != copy[at]).collect::<Vec<_>>();
    assert!(differing.len() <= 32, "{injection}: {} bytes", differing.len());
    assert!(differing.iter().all(|&at| copy[at] == 0), "{injection}");
    !differing.is_empty()
}

/// Checks that each name in a directory shows the whole content of the source.
fn check_names(source: &Path, copied_to: &Path, injected: &[String]) {
    for entry in fs::read_dir(copied_to).into_iter().flatten().map(Result::unwrap) {
        let (path, original) = (entry.path(), source.join(entry.file_name()));
        if entry.file_name().as_encoded_bytes().starts_with(b".bankfull-") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            check_names(&original, &path, injected);
        } else {
            let is_whole = fs::read(&path).unwrap() == fs::read(&original).unwrap();
            assert!(is_whole, "{injected:?}: {} is damaged", path.display());
        }
    }
}

/// Returns the command with an injection into its system calls of this name.
pub(super) fn traced(command: &Command, call: &str, injection: &str) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qqq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    traced.args(["-e", &format!("inject={call}:{injection}")]);
    let program = std::env::var_os("BANKFULL_INJECTED");
    traced.arg(program.unwrap_or_else(|| command.get_program().to_owned()));
    traced.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    traced
}

/// Returns the only child of a process.
pub(super) fn child_of(id: u32) -> Pid {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// True if strace may trace here.
pub(super) fn can_trace() -> bool {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-o", "/dev/null", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    let status = traced.status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn injected_faults_never_damage_a_name() {
    if !can_trace() {
        eprintln!("skipped: strace is missing, or may not trace here");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let scene = Scene::new();
    if let Some(seed) = number("BANKFULL_SEED") {
        return scene.run(seed);
    }
    let count = number("BANKFULL_INJECTIONS").unwrap_or(INJECTIONS);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    scene.run(seed);
                }
            });
        }
    });
    let effective = scene.effective.into_inner();
    println!("{effective} injections changed the outcome of their copy");
    assert!(effective * 4 >= count, "only {effective} of {count}: the calls are not made any more");
}

/// Calls that strace(1) suppresses, and reports as successful for one byte or none.
///
/// Further calls must write the rest at its place.
#[test]
fn short_writes_are_continued() {
    if !can_trace() {
        eprintln!("skipped: strace is missing, or may not trace here");
        return;
    }
    let scene = Scene::new();
    let mut total = 0;
    for (is_local, call) in [(false, "pwrite64"), (true, "copy_file_range")] {
        let mut short = 0;
        // strace counts the calls of each thread, which share the files by chance: twice each.
        for number in (1..=10).cycle().take(20) {
            let (scratch, injection) = (Scratch::bulk(), format!("retval=1:when={number}"));
            let into = scratch.dir("in");
            run(&mut traced(&scene.copy(is_local, &into), call, &injection)).expect(0);
            for (name, ..) in snapshot(&scene.tree.path) {
                let (from, to) = (scene.tree.path.join(&name), into.join("bulk").join(&name));
                short += u32::from(from.is_file() && lacks_bytes(&from, &to, &injection));
            }
        }
        // If no call writes anything, the copy must fail instead of looping forever.
        let into = Scratch::bulk();
        let copy = scene.copy(is_local, into.path());
        let done = run(&mut traced(&copy, call, "retval=0:when=1+"));
        assert!(done.code.is_some(), "{call} {done:?}");
        // A call that copies nothing may be replaced by others.
        assert!(call != "pwrite64" || done.code != Some(0), "{done:?}");
        check_names(&scene.tree.path, &into.path().join("bulk"), &[call.to_owned()]);
        assert!(short > 0, "no file lacks a byte: {call} is not made any more");
        total += short;
    }
    assert!(total >= 10, "only {total} files lack a byte: the calls are not made any more");
}

#[test]
fn sources_stay_after_a_failed_flush_that_asks_to_compare() {
    if !can_trace() {
        eprintln!("skipped: strace is missing, or may not trace here");
        return;
    }
    let here = Scratch::new();
    write_file(&here.join("s/f"), b"x");
    let failing = |command: &Command| traced(command, "syncfs", "error=EIO");
    let mut serve = command();
    serve.args(["serve", "--json", "--listen", "127.0.0.1:0", "--state-dir"]);
    serve.arg(here.dir("state")).arg(here.path());
    let remote = Daemon::from_command(&mut failing(&serve));
    let daemon = Daemon::start(here.path(), &[]);
    let [from, to] = ["s/", "copy"].map(|name| here.path().join(name).display().to_string());
    for (number, mut copy, from, to) in [
        (0, cp(), from.clone(), to.clone()),
        (1, remote.cp(), from, remote.url("copy")),
        (2, daemon.cp(), daemon.url("s/"), to),
    ] {
        copy.arg("--remove-source-files").arg(from).arg(format!("{to}-{number}"));
        let done = run(&mut if number == 1 { copy } else { failing(&copy) }).expect(23);
        let is_said = |part: &str| {
            done.events()
                .iter()
                .any(|event| event["message"].as_str().is_some_and(|text| text.contains(part)))
        };
        assert!(is_said("1 source file stays") && is_said("copy with --checksum"), "{done:?}");
        assert!(here.join("s/f").exists());
    }
    // It outlasts strace(1).
    kill_process(child_of(remote.id()), Signal::KILL).unwrap();
}

#[test]
fn failed_flush_of_a_file_leaves_nothing_to_resume() {
    if !can_trace() {
        eprintln!("skipped: strace is missing, or may not trace here");
        return;
    }
    let here = Scratch::new();
    write_file(&here.join("f"), vec![7; 3 << 20]);
    let mut copy = cp();
    copy.args(["--fsync", "file"]).arg(here.join("f")).arg(here.join("copy"));
    run(&mut traced(&copy, "fsync", "error=EIO")).expect(23);
    assert!(!here.join("copy").exists());
    let done = run(&mut copy).expect(0);
    assert_eq!(done.figure("resumed_bytes"), 0, "lost data still looks right in the page cache");
}

#[test]
fn file_systems_beneath_a_destination_are_flushed() {
    let here = Scratch::new();
    let mounted = can_trace().then(|| Mount::new(here.join("copy/mount"), 16)).flatten();
    let Some(mounted) = mounted else {
        eprintln!("skipped: strace is missing, or there is no permission to mount");
        return;
    };
    write_file(&here.join("s/mount/f"), b"x");
    let mut copy = cp();
    copy.arg(here.join("s/")).arg(here.join("copy"));
    let failed = run(&mut traced(&copy, "syncfs", "error=EIO:when=2")).expect(23);
    failed.fails(&["copy", "cannot flush the destination to disk"]);
    assert!(mounted.path().join("f").exists());
}
