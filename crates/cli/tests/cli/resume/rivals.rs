//! Others at the same destination: parts that vanish, are replaced or held by somebody else, and
//! several copies at a time. Content is whole whoever comes last, and whoever loses hears why.

use super::super::harness::{
    Done, Running, Tree, assert_same, journals, litter, run, set_mtime, wait_until, write_file,
};
use super::leftovers::Interrupted;
use super::network::Scene;
use super::within_the_host;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The one part at a destination, once its journal is there too.
fn part_in(landed: &Path) -> PathBuf {
    wait_until("a part and its journal are there", || !journals(landed).is_empty());
    journals(landed).remove(0).part
}

/// Whether a program's output so far has these words.
fn has_told(program: &Running, words: &str) -> bool {
    program.out().contains(words)
}

/// Lets a copy begin, does something to its part, and lets it end. Then copies again.
fn disturb(push: bool, what: impl Fn(&Path)) {
    let scene = Scene::new(&[16 * MIB]);
    let old = scene.landed.join("big-0");
    write_file(&old, b"what was here before");
    scene.proxy.stall_after(6 * MIB);
    let client = Running::start(&mut scene.command(push));
    what(&part_in(&scene.landed));
    scene.proxy.mend();
    let done = client.wait().expect(23);
    done.fails(&["big-0", "another bankfull"]);
    assert_eq!(done.failed().len(), 1, "push: {push}");
    assert_eq!(fs::read(&old).unwrap(), b"what was here before", "push: {push}");
    wait_until("the daemon ended the session", || scene.daemon.clients_done() > 0);

    run(&mut scene.command(push)).expect(0);
    assert_same(&scene.tree.path, &scene.landed);
    assert_eq!(litter(&scene.landed), Vec::<PathBuf>::new(), "push: {push}");
}

#[test]
fn a_part_that_vanishes_fails_its_file_and_the_next_run_sends_it() {
    for push in [true, false] {
        disturb(push, |part| fs::remove_file(part).unwrap());
    }
}

#[test]
fn a_part_that_is_replaced_together_with_its_journal_is_not_put_in_place() {
    for push in [true, false] {
        disturb(push, |part| {
            let len = fs::metadata(part).unwrap().len();
            for path in [part.to_owned(), part.with_extension("journal")] {
                fs::remove_file(&path).unwrap();
            }
            File::create(part).unwrap().set_len(len).unwrap();
        });
    }
}

#[test]
fn a_part_that_is_replaced_by_zeros_is_not_put_in_place() {
    for push in [true, false] {
        disturb(push, |part| {
            let len = fs::metadata(part).unwrap().len();
            fs::remove_file(part).unwrap();
            File::create(part).unwrap().set_len(len).unwrap();
        });
    }
}

#[test]
fn a_part_that_somebody_holds_is_waited_for_and_that_is_told() {
    let scene = Interrupted::after(8 * MIB, &[16 * MIB]);
    let left = scene.left();
    let part = File::open(part_in(&scene.landed)).unwrap();
    part.lock().unwrap();
    let client = Running::start(&mut scene.command());
    wait_until("the wait is told", || has_told(&client, "waiting for an earlier copy"));
    drop(part);
    let done = client.wait();
    scene.check(&done, left);
    let told = done.events().into_iter().find(|event| {
        event["message"].as_str().is_some_and(|text| text.contains("waiting for an earlier copy"))
    });
    let told = told.unwrap();
    assert_eq!(told["event"], "notice");
    assert!(told["message"].as_str().unwrap().contains("big-0"), "{told}");
}

#[test]
fn a_part_that_somebody_holds_and_writes_to_fails_its_file_soon() {
    let scene = Interrupted::after(8 * MIB, &[16 * MIB]);
    let left = scene.left();
    let path = part_in(&scene.landed);
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
    // A holder that does nothing is waited for much longer.
    assert!(started.elapsed() < Duration::from_secs(30), "it took {:?}", started.elapsed());
    let done = done.expect(23);
    done.fails(&["big-0", "another bankfull is receiving", "wait until it is done"]);
    assert_eq!(done.failed().len(), 1);
    assert!(!scene.landed.join("big-0").exists());
    drop(part);
    // The small files came through meanwhile.
    scene.finish(super::Left { in_place: scene.left().in_place, ..left });
}

#[test]
fn a_newer_session_of_a_daemon_takes_over_and_the_older_one_hears_of_it() {
    let scene = Scene::new(&[16 * MIB]);
    scene.proxy.slow_to(512 << 10);
    let older = Running::start(&mut scene.command(true));
    part_in(&scene.landed);
    run(&mut scene.directly(true)).expect(0);
    assert_same(&scene.tree.path, &scene.landed);
    let older = older.wait();
    assert!(older.code.is_some_and(|code| code != 0), "{}", older.out);
    older.says(&["a newer session of the same transfer took over"]);

    let again = run(&mut scene.directly(true)).expect(0);
    assert_eq!(again.figures(["files", "skipped_files"]), [0, scene.tree.files]);
    assert_same(&scene.tree.path, &scene.landed);
    assert_eq!(litter(&scene.landed), Vec::<PathBuf>::new());
}

#[test]
fn a_second_fetch_to_the_same_place_is_told_of_the_first_which_goes_on() {
    let scene = Scene::new(&[16 * MIB]);
    scene.proxy.slow_to(256 << 10);
    let first = Running::start(&mut scene.command(false));
    part_in(&scene.landed);
    let second = run(&mut scene.directly(false)).expect(23);
    second.fails(&["big-0", "another bankfull is receiving"]);
    scene.proxy.mend();
    first.wait().expect(0);
    assert_same(&scene.tree.path, &scene.landed);
    run(&mut scene.directly(false)).expect(0);
    assert_same(&scene.tree.path, &scene.landed);
    assert_eq!(litter(&scene.landed), Vec::<PathBuf>::new());
}

/// The words that a copy may end with when another one was at the same files.
fn ended_clearly(done: &Done) {
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

/// Starts a copy twice at the same time, three times over, and then once more alone.
fn at_once(tree: &Tree, landed: &Path, command: impl Fn() -> Command) {
    for _ in 0..3 {
        let both = [Running::start(&mut command()), Running::start(&mut command())];
        both.map(Running::wait).iter().for_each(ended_clearly);
        run(&mut command()).expect(0);
        assert_same(&tree.path, landed);
        assert_eq!(litter(landed), Vec::<PathBuf>::new());
        fs::remove_dir_all(landed).unwrap();
    }
}

#[test]
fn copies_to_a_daemon_at_the_same_time_end_clearly_and_corrupt_nothing() {
    let scene = Scene::new(&[30 * MIB, 20 * MIB]);
    at_once(&scene.tree, &scene.landed, || scene.directly(true));
}

#[test]
fn fetches_at_the_same_time_end_clearly_and_corrupt_nothing() {
    let scene = Scene::new(&[30 * MIB, 20 * MIB]);
    at_once(&scene.tree, &scene.landed, || scene.directly(false));
}

#[test]
fn copies_within_the_host_at_the_same_time_end_clearly_and_corrupt_nothing() {
    let tree = Tree::bulk(&[100 * MIB, 50 * MIB], 300);
    let into = tree.path.with_file_name("landed");
    at_once(&tree, &into.join("bulk"), || within_the_host(&tree, &into));
}

#[test]
fn a_copy_within_the_host_waits_for_one_that_was_paused() {
    let tree = Tree::bulk(&[500 * MIB], 3);
    let into = tree.path.with_file_name("landed");
    let landed = into.join("bulk");
    let command = || within_the_host(&tree, &into);
    let first = Running::start(&mut command());
    part_in(&landed);
    first.signal(Signal::STOP);
    let second = Running::start(&mut command());
    wait_until("the wait is told", || has_told(&second, "waiting for an earlier copy"));
    first.signal(Signal::CONT);
    first.wait().expect(0);
    ended_clearly(&second.wait());
    run(&mut command()).expect(0);
    assert_same(&tree.path, &landed);
    assert_eq!(litter(&landed), Vec::<PathBuf>::new());
}
