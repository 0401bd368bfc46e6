//! Orderly interruptions, and their leftovers after a power loss, a changed source or tampering.

use super::super::harness::{
    Daemon, Done, Proxy, Rng, Running, Tree, assert_same, cp, differences, fill, journals, litter,
    run, wait_until,
};
use super::{Left, check_resumed};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A tree that was partially sent to a daemon.
pub(super) struct Interrupted {
    pub(super) tree: Tree,
    pub(super) daemon: Daemon,
    pub(super) copied_to: PathBuf,
}

impl Interrupted {
    fn new() -> Self {
        Self::after(60 * MIB, &[80 * MIB + 5, 40 * MIB])
    }

    /// Sends `bytes` of a tree.
    pub(super) fn after(bytes: u64, big: &[u64]) -> Self {
        let tree = Tree::bulk(big, 30);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let copied_to = tree.path.parent().unwrap().join("copied_to/bulk");
        let proxy = Proxy::start(daemon.port);
        proxy.cut_all_after(bytes);
        run(daemon.cp().arg(&tree.path).arg(proxy.url("copied_to"))).expect(10);
        wait_until("the daemon ended the session", || daemon.clients_done() > 0);
        assert!(!journals(&copied_to).is_empty());
        Self { tree, daemon, copied_to }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = self.daemon.cp();
        command.arg(&self.tree.path).arg(self.daemon.url("copied_to"));
        command
    }

    pub(super) fn left(&self) -> Left {
        Left::find(&self.tree.path, &self.copied_to)
    }

    pub(super) fn finish(&self, left: Left) {
        self.check(&run(&mut self.command()), left);
    }

    /// Checks the resumed run.
    #[track_caller]
    pub(super) fn check(&self, done: &Done, left: Left) {
        assert_eq!(done.code, Some(0), "{}", done.err);
        check_resumed(done, &self.tree, &self.copied_to, left);
    }
}

/// Starts a command and sends it a signal once a journal has records.
fn interrupt(command: &mut Command, signal: Signal, tree: &Path, copied_to: &Path) {
    let client = Running::start(command);
    wait_until("a journal has records", || Left::find(tree, copied_to).journalled > 0);
    client.signal(signal);
    client.wait().expect(20).says(&["interrupted", "run the same command again"]);
}

/// Returns SIGHUP, unless the tests themselves run with it ignored, as with nohup(1).
fn hangup() -> Signal {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let is_ignored = u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1;
    if is_ignored { Signal::TERM } else { Signal::HUP }
}

#[test]
fn signal_ends_the_copy_and_next_run_resumes() {
    let signals = [(true, Signal::INT), (false, hangup()), (true, Signal::TERM)];
    for (push, signal) in signals {
        let tree = Tree::bulk(&[300 * MIB], 30);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let copied_to = tree.path.parent().unwrap().join("copied_to/bulk");
        let command = || {
            let mut command = daemon.cp();
            if push {
                command.arg(&tree.path).arg(daemon.url("copied_to"));
            } else {
                command.arg(daemon.url("bulk")).arg(copied_to.parent().unwrap());
            }
            command
        };
        interrupt(&mut command(), signal, &tree.path, &copied_to);
        wait_until("the daemon ended the session", || daemon.clients_done() > 0);
        let left = Left::find(&tree.path, &copied_to);
        let done = run(&mut command()).expect(0);
        check_resumed(&done, &tree, &copied_to, left);
    }
}

/// Interrupts a local copy; returns the tree, the destination, and the run after it.
fn interrupted_local_copy() -> (Tree, PathBuf, Done) {
    let tree = Tree::bulk(&[500 * MIB], 30);
    let into = tree.path.parent().unwrap().join("copied_to");
    let copied_to = into.join("bulk");
    let command = || {
        let mut command = cp();
        command.arg(&tree.path).arg(&into);
        command
    };
    // On a busy machine a copy may end before the signal; then again.
    let is_interrupted = |_| {
        let mut client = Running::start(&mut command());
        wait_until("it has begun", || !journals(&copied_to).is_empty() || client.is_over());
        client.signal(Signal::INT);
        let done = client.wait();
        if done.code == Some(0) {
            fs::remove_dir_all(&copied_to).unwrap();
            return false;
        }
        done.expect(20);
        true
    };
    assert!((0..20).any(is_interrupted), "no copy was interrupted in its middle");
    let done = run(&mut command()).expect(0);
    (tree, copied_to, done)
}

#[test]
fn interrupted_local_copy_resumes() {
    let (tree, copied_to, _) = interrupted_local_copy();
    assert_same(&tree.path, &copied_to);
    assert!(litter(&copied_to).is_empty());
}

#[test]
fn resumed_local_copy_figures_add_up() {
    let (tree, _, done) = interrupted_local_copy();
    let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
    assert_eq!(bytes + resumed + skipped, tree.bytes);
}

#[test]
fn power_loss_resends_only_damaged_blocks() {
    let scene = Interrupted::new();
    let left = scene.left();
    let journals = journals(&scene.copied_to);
    for journal in &journals {
        journal.age();
    }
    let hit = journals.iter().find(|journal| !journal.blocks.is_empty()).unwrap();
    let index = *hit.blocks.iter().nth(hit.blocks.len() / 2).unwrap();
    hit.damage(index);
    let lost = hit.layout().block_len(index);
    scene.finish(Left { journalled: left.journalled - lost, ..left });
}

#[test]
fn power_loss_without_damage_resends_nothing() {
    let scene = Interrupted::new();
    let left = scene.left();
    journals(&scene.copied_to).iter().for_each(|journal| journal.age());
    scene.finish(left);
}

#[test]
fn changed_source_is_sent_from_the_start() {
    let scene = Interrupted::new();
    let left = scene.left();
    let mut rng = Rng::new(99);
    // The same size: only the time differs.
    fill(&scene.tree.path.join("big-0"), 80 * MIB + 5, &mut rng);
    fill(&scene.tree.path.join("big-1"), 40 * MIB, &mut rng);
    scene.finish(Left { journalled: 0, ..left });
}

#[test]
fn damaged_journal_loses_only_its_blocks() {
    let scene = Interrupted::new();
    let torn = journals(&scene.copied_to).remove(0);
    let len = fs::metadata(&torn.path).unwrap().len();
    // Truncates the last record.
    File::options().write(true).open(&torn.path).unwrap().set_len(len - 20).unwrap();
    scene.finish(scene.left());

    let scene = Interrupted::new();
    for journal in journals(&scene.copied_to) {
        fs::write(&journal.path, b"not a journal at all").unwrap();
    }
    scene.finish(scene.left());
}

#[test]
fn orphaned_part_or_journal_is_removed() {
    for extension in ["part", "journal"] {
        let scene = Interrupted::new();
        for path in litter(&scene.copied_to) {
            if path.extension().is_some_and(|e| e == extension) {
                fs::remove_file(path).unwrap();
            }
        }
        scene.finish(scene.left());
    }
}

#[test]
fn leftovers_in_a_local_source_are_skipped() {
    let scene = Interrupted::after(8 * MIB, &[16 * MIB]);
    let (source, into) = (&scene.copied_to, scene.copied_to.with_file_name("further"));
    for is_whole in [false, true] {
        if is_whole {
            // The part file of the copy now has the name of the one in the source.
            fs::copy(scene.tree.path.join("big-0"), source.join("big-0")).unwrap();
        }
        let done = run(cp().arg(source).arg(&into)).expect(0);
        let reported = done.events().into_iter().filter(|event| event["event"] == "warning");
        let reported: Vec<String> = reported.map(|event| event["message"].to_string()).collect();
        assert!(reported.iter().any(|text| text.contains("skipped ")), "{reported:?}");
        let found = differences(source, &into.join("bulk"));
        let is_litter = |text: &String| text.contains(".bankfull-") && text.contains("is missing");
        assert!(found.len() == 2 && found.iter().all(is_litter), "{found:?}");
    }
    // They are still usable.
    fs::remove_file(source.join("big-0")).unwrap();
    scene.finish(scene.left());
}
