//! Leftovers of an earlier run that change before the next one: they are hashed again.

use super::super::harness::{
    Done, JournalFile, Running, SshServer, assert_same, cp, journals, litter, run, wait_until,
};
use super::Left;
use super::leftovers::Interrupted;
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const MIB: u64 = 1 << 20;

fn interrupted() -> Interrupted {
    Interrupted::after(20 * MIB, &[32 * MIB + 5])
}

/// Returns the journal of the large file.
fn journal(scene: &Interrupted) -> JournalFile {
    journals(&scene.copied_to).into_iter().max_by_key(JournalFile::bytes).unwrap()
}

/// Returns the reasons of the files that failed.
fn failures(done: &Done) -> Vec<String> {
    let failed = done.events().into_iter().filter(|event| event["event"] == "file_failed");
    failed.map(|event| event.to_string()).collect()
}

/// Sets the modification time of a journal an hour back.
fn date_back(journal: &Path) {
    let file = File::options().write(true).open(journal).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

#[test]
fn damaged_block_is_sent_again_on_every_route() {
    let ssh = SshServer::start();
    for (push, transport) in [
        (true, "tcp"),
        (false, "tcp"),
        (true, "quic"),
        (false, "quic"),
        (true, "ssh"),
        (false, "ssh"),
    ] {
        let scene = interrupted();
        let into = scene.copied_to.parent().unwrap();
        let mut command = match (transport, &ssh, push) {
            ("ssh", None, _) => continue,
            ("ssh", Some(ssh), true) => {
                let mut command = ssh.cp();
                command.arg(&scene.tree.path).arg(SshServer::place(into));
                command
            }
            ("ssh", Some(ssh), false) => {
                let mut command = ssh.cp();
                command.arg(SshServer::place(&scene.tree.path)).arg(into);
                command
            }
            (_, _, true) => scene.command(),
            (_, _, false) => {
                let mut command = scene.daemon.cp();
                command.arg(scene.daemon.url("bulk")).arg(into);
                command
            }
        };
        if transport == "quic" {
            command.args(["--transport", "quic"]);
        }
        let (left, journal) = (scene.left(), journal(&scene));
        let index = *journal.blocks.iter().nth(journal.blocks.len() / 2).unwrap();
        journal.damage(index);
        let lost = journal.layout().block_len(index);
        let done = run(&mut command);
        println!("{transport}, push: {push}");
        scene.check(&done, Left { journalled: left.journalled - lost, ..left });
        assert_eq!(done.figure("damaged_bytes"), lost);
        let warned = done.events().iter().any(|event| {
            event["event"] == "warning" && event["message"].to_string().contains("is damaged")
        });
        assert!(warned, "{}", done.out);
    }
}

#[test]
fn truncated_and_regrown_part_is_sent_again() {
    let scene = interrupted();
    let (left, journal) = (scene.left(), journal(&scene));
    let part = File::options().write(true).open(&journal.part).unwrap();
    part.set_len(0).unwrap();
    part.set_len(journal.layout().size()).unwrap();
    let done = run(&mut scene.command());
    scene.check(&done, Left { journalled: 0, ..left });
    assert_eq!(done.figure("damaged_bytes"), left.journalled);
}

#[test]
fn part_replaced_by_a_symlink_is_never_written_through() {
    let scene = interrupted();
    let (left, journal) = (scene.left(), journal(&scene));
    let victim = scene.copied_to.with_file_name("victim");
    fs::rename(&journal.part, &victim).unwrap();
    let content = fs::read(&victim).unwrap();
    symlink(&victim, &journal.part).unwrap();
    scene.finish(Left { journalled: 0, ..left });
    assert!(fs::read(&victim).unwrap() == content);
}

#[test]
fn part_replaced_by_a_directory_is_named_with_the_way_out() {
    let scene = interrupted();
    let journal = journal(&scene);
    fs::remove_file(&journal.part).unwrap();
    fs::create_dir(&journal.part).unwrap();
    fs::write(journal.part.join("kept"), b"kept").unwrap();
    let name = journal.part.file_name().unwrap().to_str().unwrap();
    let done = run(&mut scene.command()).expect(23);
    let reason = failures(&done).join("\n");
    assert!(["big-0", name, "remove it"].iter().all(|part| reason.contains(part)), "{reason}");
    assert!(!scene.copied_to.join("big-0").exists() && journal.part.join("kept").exists());
    fs::remove_dir_all(&journal.part).unwrap();
    run(&mut scene.command()).expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
}

#[test]
fn other_file_system_under_the_name_is_left_alone() {
    let scene = interrupted();
    let target = scene.copied_to.join("big-0");
    fs::write(&target, b"mounted over").unwrap();
    let other = scene.copied_to.with_file_name("other");
    fs::write(&other, b"of another file system").unwrap();
    let into = scene.copied_to.parent().unwrap();
    let script = "mount --bind \"$1\" \"$2\" || exit 99; shift 2; exec \"$@\"";
    let mut copy = scene.daemon.cp();
    copy.arg(scene.daemon.url("bulk")).arg(into);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&other).arg(&target);
    command.arg(copy.get_program()).args(copy.get_args());
    copy.get_envs().for_each(|(name, value)| {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    });
    let done = run(&mut command);
    if done.code == Some(99) || done.err.contains("unshare") {
        eprintln!("skipped: cannot mount: {}", done.err);
        return;
    }
    let failures = failures(&done.expect(23)).join("\n");
    assert!(failures.contains("cannot write") && failures.contains("big-0"), "{failures}");
    assert_eq!(fs::read(&other).unwrap(), b"of another file system");
    assert_eq!(fs::read(&target).unwrap(), b"mounted over");
    run(&mut scene.command()).expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
}

#[test]
fn trusted_journal_is_checked_if_the_part_changed_later() {
    // After a kill it is not known when the part file was last written.
    for (was_killed, is_later) in [(false, false), (true, true), (true, false)] {
        let is_noticed = !was_killed || is_later;
        let scene = interrupted();
        let (left, journal) = (scene.left(), journal(&scene));
        let index = *journal.blocks.first().unwrap();
        if was_killed {
            journal.cut_end();
        }
        journal.damage(index);
        if is_later {
            date_back(&journal.path);
        }
        let done = run(scene.command().arg("--trust-journal")).expect(0);
        let lost = if is_noticed { journal.layout().block_len(index) } else { 0 };
        assert_eq!(
            done.figures(["damaged_bytes", "resumed_bytes"]),
            [lost, left.journalled - lost]
        );
        let (sent, arrived) = (scene.tree.path.join("big-0"), scene.copied_to.join("big-0"));
        assert_eq!(fs::read(sent).unwrap() == fs::read(arrived).unwrap(), is_noticed);
    }
}

#[test]
fn damaged_record_is_void_for_a_later_run_that_trusts() {
    let scene = interrupted();
    let journal = journal(&scene);
    let index = *journal.blocks.first().unwrap();
    journal.damage(index);
    // The run that detects the damage is interrupted too.
    let mut client = Running::start(scene.command().args(["--max-rate", "20mbit"]));
    wait_until("the damage is recorded", || {
        let found = journals(&scene.copied_to);
        found.iter().all(|journal| !journal.blocks.contains(&index)) || client.is_over()
    });
    client.signal(Signal::INT);
    client.wait().expect(20);
    run(scene.command().arg("--trust-journal")).expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
    assert!(litter(&scene.copied_to).is_empty());
}

#[test]
fn local_copy_takes_no_part_that_changed_after_its_journal() {
    let scene = interrupted();
    let journal = journal(&scene);
    let part = File::options().write(true).open(&journal.part).unwrap();
    for index in &journal.blocks {
        part.write_all_at(b"altered", index * u64::from(journal.layout().block_bytes())).unwrap();
    }
    let done = run(cp().arg(&scene.tree.path).arg(scene.copied_to.parent().unwrap())).expect(0);
    assert_eq!(done.figures(["resumed_bytes", "damaged_bytes"]), [0, journal.bytes()]);
    assert_same(&scene.tree.path, &scene.copied_to);
}

#[test]
fn directory_removed_during_the_copy_is_named() {
    let scene = interrupted();
    let before = scene.left().journalled;
    let client = Running::start(scene.command().args(["--max-rate", "20mbit"]));
    wait_until("a block has arrived", || scene.left().journalled > before);
    fs::remove_dir_all(&scene.copied_to).unwrap();
    let reasons = failures(&client.wait().expect(23)).join("\n");
    assert!(reasons.contains("was removed meanwhile"), "{reasons}");
    assert!(!reasons.contains("another bankfull"), "{reasons}");
}
