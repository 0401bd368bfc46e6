//! Concurrent use of a destination: parts that vanish, are replaced or locked, and several copies
//! at a time. Content is always whole, and the loser gets a reason.

use super::super::harness::{
    Done, Running, Tree, assert_same, journals, litter, run, set_mtime, wait_until, write_file,
};
use super::leftovers::Interrupted;
use super::local_copy;
use super::network::Scene;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Returns the only part at a destination, once its journal exists.
fn part_in(copied_to: &Path) -> PathBuf {
    wait_until("a part and its journal are there", || !journals(copied_to).is_empty());
    journals(copied_to).remove(0).part
}

/// True if the output of a program so far has these words.
fn has_message(program: &Running, words: &str) -> bool {
    program.out().contains(words)
}

/// Starts a copy, disturbs its part, and lets the copy end. Then copies again.
fn disturb(push: bool, reason: &str, what: impl Fn(&Path)) {
    let scene = Scene::new(&[16 * MIB]);
    let old = scene.copied_to.join("big-0");
    write_file(&old, b"what was here before");
    scene.proxy.stall_after(6 * MIB);
    let client = Running::start(&mut scene.command(push));
    what(&part_in(&scene.copied_to));
    scene.proxy.mend();
    let done = client.wait().expect(23);
    done.fails(&["big-0", reason]);
    assert_eq!(done.failed().len(), 1, "push: {push}");
    assert_eq!(fs::read(&old).unwrap(), b"what was here before", "push: {push}");
    wait_until("the daemon ended the session", || scene.daemon.clients_done() > 0);

    run(&mut scene.command(push)).expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
    assert_eq!(litter(&scene.copied_to), Vec::<PathBuf>::new(), "push: {push}");
}

#[test]
fn vanished_part_fails_its_file_until_the_next_run() {
    for push in [true, false] {
        disturb(push, "was removed meanwhile", |part| fs::remove_file(part).unwrap());
    }
}

#[test]
fn replaced_part_and_journal_are_not_renamed() {
    for push in [true, false] {
        disturb(push, "another bankfull", |part| {
            let len = fs::metadata(part).unwrap().len();
            for path in [part.to_owned(), part.with_extension("journal")] {
                fs::remove_file(&path).unwrap();
            }
            File::create(part).unwrap().set_len(len).unwrap();
        });
    }
}

#[test]
fn zeroed_part_is_not_renamed() {
    for push in [true, false] {
        disturb(push, "another bankfull", |part| {
            let len = fs::metadata(part).unwrap().len();
            fs::remove_file(part).unwrap();
            File::create(part).unwrap().set_len(len).unwrap();
        });
    }
}

#[test]
fn locked_part_is_waited_for_with_a_message() {
    let scene = Interrupted::after(8 * MIB, &[16 * MIB]);
    let left = scene.left();
    let part = File::open(part_in(&scene.copied_to)).unwrap();
    part.lock().unwrap();
    let client = Running::start(&mut scene.command());
    wait_until("the wait is reported", || has_message(&client, "waiting for an earlier copy"));
    drop(part);
    let done = client.wait();
    scene.check(&done, left);
    let reported = done.events().into_iter().find(|event| {
        event["message"].as_str().is_some_and(|text| text.contains("waiting for an earlier copy"))
    });
    let reported = reported.unwrap();
    assert_eq!(reported["event"], "warning");
    assert!(reported["message"].as_str().unwrap().contains("big-0"), "{reported}");
}

#[test]
fn locked_active_part_fails_its_file() {
    let scene = Interrupted::after(8 * MIB, &[16 * MIB]);
    let left = scene.left();
    let path = part_in(&scene.copied_to);
    let part = File::open(&path).unwrap();
    part.lock().unwrap();
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            for second in 1.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                set_mtime(&path, second, 0);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let done = run(&mut scene.command());
        stop.store(true, Ordering::Relaxed);
        done
    });
    // An inactive holder is waited for much longer.
    assert!(started.elapsed() < Duration::from_secs(30), "it took {:?}", started.elapsed());
    let done = done.expect(23);
    done.fails(&["big-0", "another bankfull is receiving", "wait until it is done"]);
    assert_eq!(done.failed().len(), 1);
    assert!(!scene.copied_to.join("big-0").exists());
    drop(part);
    // The small files arrived meanwhile.
    scene.finish(super::Left { in_place: scene.left().in_place, ..left });
}

#[test]
fn newer_daemon_session_replaces_the_older_one() {
    let scene = Scene::new(&[16 * MIB]);
    scene.proxy.slow_to(512 << 10);
    let older = Running::start(&mut scene.command(true));
    part_in(&scene.copied_to);
    run(&mut scene.directly(true)).expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
    let older = older.wait();
    assert!(older.code.is_some_and(|code| code != 0), "{}", older.out);
    older.says(&["a newer session of the same transfer took over"]);

    let again = run(&mut scene.directly(true)).expect(0);
    assert_eq!(again.figures(["files", "skipped_files"]), [0, scene.tree.files]);
    assert_same(&scene.tree.path, &scene.copied_to);
    assert_eq!(litter(&scene.copied_to), Vec::<PathBuf>::new());
}

#[test]
fn second_fetch_fails_while_the_first_continues() {
    let scene = Scene::new(&[16 * MIB]);
    scene.proxy.slow_to(256 << 10);
    let first = Running::start(&mut scene.command(false));
    part_in(&scene.copied_to);
    let second = run(&mut scene.directly(false)).expect(23);
    second.fails(&["big-0", "another bankfull is receiving"]);
    scene.proxy.mend();
    first.wait().expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
    run(&mut scene.directly(false)).expect(0);
    assert_same(&scene.tree.path, &scene.copied_to);
    assert_eq!(litter(&scene.copied_to), Vec::<PathBuf>::new());
}

/// Checks that a copy ended with success or a known error of concurrent copies.
fn check_end(done: &Done) {
    let clear = |text: &str| {
        ["another bankfull", "a newer session", "changed meanwhile"]
            .iter()
            .any(|words| text.contains(words))
    };
    assert!(!done.err.contains("panicked"), "{}", done.err);
    match done.code {
        Some(0) => {}
        Some(23) => {
            let failed = done.failed();
            assert!(failed.iter().all(|(_, message)| clear(message)), "{failed:?}");
        }
        code => assert!(clear(&done.err), "{code:?}: {}", done.err),
    }
}

/// Starts a copy twice at once, three times in a row, then once alone.
fn at_once(tree: &Tree, copied_to: &Path, command: impl Fn() -> Command) {
    for _ in 0..3 {
        let both = [Running::start(&mut command()), Running::start(&mut command())];
        both.map(Running::wait).iter().for_each(check_end);
        run(&mut command()).expect(0);
        assert_same(&tree.path, copied_to);
        assert_eq!(litter(copied_to), Vec::<PathBuf>::new());
        fs::remove_dir_all(copied_to).unwrap();
    }
}

#[test]
fn concurrent_pushes_corrupt_nothing() {
    let scene = Scene::new(&[30 * MIB, 20 * MIB]);
    at_once(&scene.tree, &scene.copied_to, || scene.directly(true));
}

#[test]
fn concurrent_fetches_corrupt_nothing() {
    let scene = Scene::new(&[30 * MIB, 20 * MIB]);
    at_once(&scene.tree, &scene.copied_to, || scene.directly(false));
}

#[test]
fn concurrent_local_copies_corrupt_nothing() {
    let tree = Tree::bulk(&[100 * MIB, 50 * MIB], 300);
    let into = tree.path.with_file_name("copied_to");
    at_once(&tree, &into.join("bulk"), || local_copy(&tree, &into));
}

/// Starts a copy and stops it midway. Tries again if a busy machine let it end before the signal.
fn paused(command: &mut Command, copied_to: &Path) -> Running {
    for _ in 0..20 {
        let mut copy = Running::start(command);
        wait_until("it has begun", || !journals(copied_to).is_empty() || copy.is_over());
        copy.signal(Signal::STOP);
        wait_until("it has stopped", || copy.is_over() || is_stopped(copy.id()));
        if !journals(copied_to).is_empty() {
            return copy;
        }
        copy.signal(Signal::CONT);
        copy.wait().expect(0);
        fs::remove_dir_all(copied_to).unwrap();
    }
    panic!("no copy was stopped in its middle");
}

/// True if a signal has stopped a process.
fn is_stopped(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))
}

#[test]
fn local_copy_waits_for_a_paused_one() {
    let tree = Tree::bulk(&[500 * MIB], 3);
    let into = tree.path.with_file_name("copied_to");
    let copied_to = into.join("bulk");
    let command = || local_copy(&tree, &into);
    let first = paused(&mut command(), &copied_to);
    let second = Running::start(&mut command());
    wait_until("the wait is reported", || has_message(&second, "waiting for an earlier copy"));
    first.signal(Signal::CONT);
    first.wait().expect(0);
    check_end(&second.wait());
    run(&mut command()).expect(0);
    assert_same(&tree.path, &copied_to);
    assert_eq!(litter(&copied_to), Vec::<PathBuf>::new());
}
