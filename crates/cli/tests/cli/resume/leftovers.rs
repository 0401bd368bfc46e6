//! Interruptions in good order, and what becomes of their leftovers: after a power loss, after the
//! source changed, after somebody tampered with them.

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

/// A tree that was sent to a daemon in part.
pub(super) struct Interrupted {
    tree: Tree,
    daemon: Daemon,
    pub(super) landed: PathBuf,
}

impl Interrupted {
    fn new() -> Self {
        Self::after(60 * MIB, &[80 * MIB + 5, 40 * MIB])
    }

    /// A tree of which `bytes` were sent.
    pub(super) fn after(bytes: u64, big: &[u64]) -> Self {
        let tree = Tree::bulk(big, 30);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let landed = tree.path.parent().unwrap().join("landed/bulk");
        let proxy = Proxy::start(daemon.port);
        proxy.cut_all_after(bytes);
        run(daemon.cp().arg(&tree.path).arg(proxy.url("landed"))).expect(10);
        wait_until("the daemon ended the session", || daemon.clients_done() > 0);
        assert!(!journals(&landed).is_empty());
        Self { tree, daemon, landed }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = self.daemon.cp();
        command.arg(&self.tree.path).arg(self.daemon.url("landed"));
        command
    }

    pub(super) fn left(&self) -> Left {
        Left::find(&self.tree.path, &self.landed)
    }

    pub(super) fn finish(&self, left: Left) {
        self.check(&run(&mut self.command()), left);
    }

    /// Checks the run that continued.
    #[track_caller]
    pub(super) fn check(&self, done: &Done, left: Left) {
        assert_eq!(done.code, Some(0), "{}", done.err);
        check_resumed(done, &self.tree, &self.landed, left);
    }
}

/// Starts a command and ends it with a signal as soon as something is journalled.
fn interrupt(command: &mut Command, signal: Signal, tree: &Path, landed: &Path) {
    let client = Running::start(command);
    wait_until("something is journalled", || Left::find(tree, landed).journalled > 0);
    client.signal(signal);
    client.wait().expect(20).says(&["interrupted", "run the same command again"]);
}

#[test]
fn a_signal_ends_the_copy_and_the_next_run_continues() {
    for (push, signal) in [(true, Signal::INT), (false, Signal::INT), (true, Signal::TERM)] {
        let tree = Tree::bulk(&[300 * MIB], 30);
        let daemon = Daemon::start(tree.path.parent().unwrap(), &[]);
        let landed = tree.path.parent().unwrap().join("landed/bulk");
        let command = || {
            let mut command = daemon.cp();
            if push {
                command.arg(&tree.path).arg(daemon.url("landed"));
            } else {
                command.arg(daemon.url("bulk")).arg(landed.parent().unwrap());
            }
            command
        };
        interrupt(&mut command(), signal, &tree.path, &landed);
        wait_until("the daemon ended the session", || daemon.clients_done() > 0);
        let left = Left::find(&tree.path, &landed);
        let done = run(&mut command()).expect(0);
        check_resumed(&done, &tree, &landed, left);
    }
}

/// Interrupts a copy within the host; returns the tree, where it landed, and the run after it.
fn interrupted_within_the_host() -> (Tree, PathBuf, Done) {
    let tree = Tree::bulk(&[500 * MIB], 30);
    let into = tree.path.parent().unwrap().join("landed");
    let landed = into.join("bulk");
    let command = || {
        let mut command = cp();
        command.arg(&tree.path).arg(&into);
        command
    };
    let client = Running::start(&mut command());
    wait_until("it has begun", || !journals(&landed).is_empty());
    client.signal(Signal::INT);
    client.wait().expect(20);
    let done = run(&mut command()).expect(0);
    (tree, landed, done)
}

#[test]
fn a_copy_within_the_host_continues_too() {
    let (tree, landed, _) = interrupted_within_the_host();
    assert_same(&tree.path, &landed);
    assert!(litter(&landed).is_empty());
}

#[test]
fn the_figures_of_a_continued_copy_within_the_host_add_up() {
    let (tree, _, done) = interrupted_within_the_host();
    let [bytes, resumed, skipped] = done.figures(["bytes", "resumed_bytes", "skipped_bytes"]);
    assert_eq!(bytes + resumed + skipped, tree.bytes);
}

#[test]
fn after_a_power_loss_blocks_are_looked_at_and_only_damaged_ones_are_sent_again() {
    let scene = Interrupted::new();
    let left = scene.left();
    let journals = journals(&scene.landed);
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
fn after_a_power_loss_that_damaged_nothing_nothing_is_sent_again() {
    let scene = Interrupted::new();
    let left = scene.left();
    journals(&scene.landed).iter().for_each(|journal| journal.age());
    scene.finish(left);
}

#[test]
fn a_source_that_changed_since_is_sent_from_its_beginning() {
    let scene = Interrupted::new();
    let left = scene.left();
    let mut rng = Rng::new(99);
    // The same sizes: only times tell.
    fill(&scene.tree.path.join("big-0"), 80 * MIB + 5, &mut rng);
    fill(&scene.tree.path.join("big-1"), 40 * MIB, &mut rng);
    scene.finish(Left { journalled: 0, ..left });
}

#[test]
fn a_journal_that_is_torn_or_nonsense_costs_what_it_would_have_saved_and_no_more() {
    let scene = Interrupted::new();
    let torn = journals(&scene.landed).remove(0);
    let len = fs::metadata(&torn.path).unwrap().len();
    // Cuts the last record in two.
    File::options().write(true).open(&torn.path).unwrap().set_len(len - 20).unwrap();
    scene.finish(scene.left());

    let scene = Interrupted::new();
    for journal in journals(&scene.landed) {
        fs::write(&journal.path, b"not a journal at all").unwrap();
    }
    scene.finish(scene.left());
}

#[test]
fn a_part_or_a_journal_alone_is_of_no_use_and_goes_away() {
    for extension in ["part", "journal"] {
        let scene = Interrupted::new();
        for path in litter(&scene.landed) {
            if path.extension().is_some_and(|e| e == extension) {
                fs::remove_file(path).unwrap();
            }
        }
        scene.finish(scene.left());
    }
}

#[test]
fn leftovers_in_a_source_are_left_out_of_a_copy_within_the_host_and_do_not_confuse_it() {
    let scene = Interrupted::after(8 * MIB, &[16 * MIB]);
    let (source, into) = (&scene.landed, scene.landed.with_file_name("further"));
    for is_whole in [false, true] {
        if is_whole {
            // From now on the copy's own part has the name of the one that stands in the source.
            fs::copy(scene.tree.path.join("big-0"), source.join("big-0")).unwrap();
        }
        let done = run(cp().arg(source).arg(&into)).expect(0);
        let told = done.events().into_iter().filter(|event| event["event"] == "notice");
        let told: Vec<String> = told.map(|event| event["message"].to_string()).collect();
        assert!(told.iter().any(|text| text.contains("left out")), "{told:?}");
        let found = differences(source, &into.join("bulk"));
        let is_litter = |text: &String| text.contains(".bankfull-") && text.contains("is missing");
        assert!(found.len() == 2 && found.iter().all(is_litter), "{found:?}");
    }
    // They still serve.
    fs::remove_file(source.join("big-0")).unwrap();
    scene.finish(scene.left());
}
