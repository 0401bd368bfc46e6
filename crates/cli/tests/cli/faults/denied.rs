//! Modes that deny their own user access, at a receiver that is not root: as rsync(1), it grants
//! itself access during the copy, and sets the modes at the end.

use super::super::harness::{
    Daemon, Rng, Running, Scratch, assert_same, fill, is_root, journals, run, set_mode,
    unprivileged, wait_until, write_file,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modes of directories that their user cannot read, write or search.
const DENYING: [u32; 6] = [0o000, 0o100, 0o300, 0o500, 0o600, 0o055];

/// A tree of a daemon, which may read it, and a user that copies it.
struct Scene {
    here: Scratch,
    daemon: Daemon,
    into: PathBuf,
}

impl Scene {
    /// Returns `None` if the tests do not run as root: the daemon could not read the tree either.
    fn new() -> Option<Self> {
        if !is_root() {
            println!("skipped: only root reads a tree that denies access");
            return None;
        }
        let here = Scratch::new();
        let (_, into) = (here.dir("tree"), here.dir("into"));
        let daemon = Daemon::start(here.path(), &[]);
        Some(Self { here, daemon, into })
    }

    fn tree(&self) -> PathBuf {
        self.here.join("tree")
    }

    /// Returns a copy of this source by the user.
    fn copy(&self, source: &str, into: &Path) -> Command {
        let mut command = unprivileged(&self.here, &self.into);
        command.args(["cp", "--json", "--retry-for", "0", "--accept-new", "--state-dir"]);
        command.arg(self.into.join("state")).arg(self.daemon.url(source)).arg(into);
        command
    }
}

/// Returns a directory of this mode, with a file, in the tree.
fn denying(tree: &Path, mode: u32) -> PathBuf {
    tree.join(format!("{mode:03o}"))
}

#[test]
fn directories_that_deny_access_are_copied_again() {
    let Some(scene) = Scene::new() else { return };
    let tree = scene.tree();
    for mode in DENYING {
        let dir = denying(&tree, mode);
        write_file(&dir.join("below/file"), "first");
        write_file(&dir.join("file"), "first");
        set_mode(&dir.join("below"), mode);
        set_mode(&dir, mode);
    }
    for content in ["first", "other"] {
        for mode in DENYING {
            fs::write(denying(&tree, mode).join("below/file"), content).unwrap();
            fs::write(denying(&tree, mode).join(format!("new {content}")), content).unwrap();
        }
        for source in ["tree", "tree/"] {
            let into = scene.into.join(format!("copy-{}", source.len()));
            run(&mut scene.copy(source, &into)).expect(0);
            let copied = if source == "tree" && into.join("tree").exists() {
                into.join("tree")
            } else {
                into
            };
            assert_same(&tree, &copied);
        }
    }
}

#[test]
fn destination_that_denies_access_is_copied_to_again() {
    let Some(scene) = Scene::new() else { return };
    write_file(&scene.tree().join("file"), "first");
    for mode in DENYING {
        set_mode(&scene.tree(), mode);
        let into = scene.into.join("copy");
        for content in ["first", "other"] {
            fs::write(scene.tree().join("file"), content).unwrap();
            run(&mut scene.copy("tree/", &into)).expect(0);
            assert_same(&scene.tree(), &into);
        }
        // Nothing would restore the mode of a destination that is not the copy itself.
        if mode & 0o400 == 0 {
            run(&mut scene.copy("tree/file", &into)).expect(11).says(&["permission denied"]);
            assert_same(&scene.tree(), &into);
        }
    }
}

#[test]
fn files_that_deny_access_are_kept_up_to_date() {
    let Some(scene) = Scene::new() else { return };
    let file = scene.tree().join("file");
    write_file(&file, "content");
    for mode in [0o000, 0o644, 0o200, 0o444] {
        set_mode(&file, mode);
        run(&mut scene.copy("tree/", &scene.into.join("copy"))).expect(0);
        assert_same(&scene.tree(), &scene.into.join("copy"));
    }
}

#[test]
fn part_file_with_its_final_mode_is_continued() {
    let Some(scene) = Scene::new() else { return };
    // At this rate 17 s of data, so that no slow machine copies all of it before it is looked at.
    fill(&scene.tree().join("file"), 40 << 20, &mut Rng::new(1));
    let into = scene.into.join("copy");
    let mut slow = scene.copy("tree/", &into);
    let mut client = Running::start(slow.args(["--max-rate", "20mbit"]));
    let has_block = || journals(&into).first().is_some_and(|journal| !journal.blocks.is_empty());
    wait_until("a block is recorded", has_block);
    client.kill();
    let left = journals(&into).remove(0);
    // As a kill between the last two steps leaves it.
    set_mode(&left.part, 0o044);
    let done = run(&mut scene.copy("tree/", &into)).expect(0);
    assert!(done.figure("resumed_bytes") >= 1 << 20, "{}", done.out);
    assert_same(&scene.tree(), &into);
}
