//! Quotas and rates of a daemon's shares.

use super::harness::{Rng, Running, Scratch, fill, run, script, set_mode, wait_until, write_file};
use super::shares::{Shared, set};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

#[test]
fn file_beyond_the_quota_is_refused_and_the_others_are_copied() {
    let shared = Shared::prepared(|here| set(here, "quota = \"1MiB\"", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    let source = here.dir("d");
    fill(&source.join("large"), 2 << 20, &mut Rng::new(1));
    fill(&source.join("small"), 100 << 10, &mut Rng::new(2));
    let push = || run(there.cp().arg(here.join("d")).arg(there.url("data")));
    let partial = push();
    assert_eq!(partial.code, Some(23));
    let failed = partial.failed();
    assert!(failed.len() == 1 && failed[0].0.ends_with("large"), "{failed:?}");
    let why = "the quota of the share data does not allow it: 2.0 MiB in addition to ";
    assert!(failed[0].1.contains(why), "{failed:?}");
    let held = shared.here.join("data/d");
    assert!(held.join("small").exists());
    assert_eq!(fs::read_dir(&held).unwrap().count(), 1, "nothing was written");
    // Unchanged files need no further quota.
    fs::remove_file(source.join("large")).unwrap();
    push().expect(0);
    // Files that are replaced count until they are: two of 100 KiB, then one.
    for seed in 3..20 {
        fill(&source.join("small"), 100 << 10, &mut Rng::new(seed));
        push().expect(0);
    }
    // Room is made at the daemon.
    fill(&source.join("more"), 800 << 10, &mut Rng::new(30));
    push().expect(0);
    fill(&source.join("last"), 300 << 10, &mut Rng::new(31));
    push().expect(23);
    fs::remove_file(source.join("more")).unwrap();
    fs::remove_file(held.join("more")).unwrap();
    wait_until("the room is noticed", || push().code == Some(0));
}

#[test]
fn input_of_unknown_size_ends_at_the_quota() {
    let shared = Shared::prepared(|here| set(here, "quota = \"1MiB\"", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    fill(&here.join("f"), 9 << 20, &mut Rng::new(1));
    let mut copy = there.cp();
    copy.arg("-").arg(there.url("data/in"));
    let done = run(script("cat \"$INPUT\" | \"$@\"", &copy).env("INPUT", here.join("f")));
    assert_ne!(done.code, Some(0));
    assert!(done.out.contains("the quota of the share data"), "{}", done.out);
    assert!(!shared.here.join("data/in").exists());
}

#[test]
fn entries_beyond_the_quota_are_refused() {
    let shared = Shared::prepared(|here| set(here, "quota_entries = 6", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    let source = here.dir("d");
    (0..9).for_each(|at| write_file(&source.join(at.to_string()), b"x"));
    let push = || run(there.cp().arg(here.join("d")).arg(there.url("data")));
    // The share has alice/x: two entries, and room for d and three files.
    let partial = push();
    assert_eq!((partial.code, partial.failed().len()), (Some(23), 6));
    assert!(partial.failed()[0].1.contains("it has 6 entries of 6"));
    assert_eq!(fs::read_dir(shared.here.join("data/d")).unwrap().count(), 3);
    fs::remove_dir_all(shared.here.join("data/alice")).unwrap();
    let more = push();
    assert_eq!((more.code, more.failed().len()), (Some(23), 4));
}

#[test]
fn rate_of_a_share_limits_its_sessions_together() {
    let shared = Shared::prepared(|here| set(here, "max_rate = \"80mbit\"", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    let source = here.dir("d");
    fill(&source.join("f"), 10 << 20, &mut Rng::new(1));
    fill(&shared.here.join("data/f"), 10 << 20, &mut Rng::new(2));
    // On a busy machine the copies only take longer; exceeding the limit would still be detected.
    let timed = |commands: [Command; 2]| {
        let started = std::time::Instant::now();
        for done in commands.map(|mut command| Running::start(&mut command)).map(Running::wait) {
            done.expect(0);
        }
        started.elapsed()
    };
    let push = |name: &str| {
        let mut copy = there.cp();
        copy.arg(source.join("f")).arg(there.url(&format!("data/{name}")));
        copy
    };
    let pull = |name: &str| {
        let mut copy = there.cp();
        copy.arg(there.url("data/f")).arg(here.join(name));
        copy
    };
    for took in [timed([push("a"), push("b")]), timed([pull("a"), pull("b")])] {
        // 2 x 10 MiB at 10 MB/s.
        assert!(took.as_secs_f64() > 1.9, "{took:?}");
    }
}

#[test]
fn directories_of_a_share_with_a_quota_stay_readable() {
    let shared = Shared::prepared(|here| set(here, "quota = \"1MiB\"", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    let source = here.dir("d");
    fs::create_dir(source.join("closed")).unwrap();
    fill(&source.join("closed/f"), 900 << 10, &mut Rng::new(1));
    set_mode(&source.join("closed"), 0o300);
    let push = |flags: &[&str], to: &str| {
        let mut copy = there.cp();
        run(copy.args(flags).arg(here.join("d")).arg(there.url(&format!("data/{to}"))))
    };
    for (flags, to, again) in [(&[][..], "a", "b"), (&["--no-perms"], "c", "d")] {
        push(flags, to).expect(0);
        let held = shared.here.join(format!("data/{to}/d/closed"));
        assert_eq!(fs::metadata(&held).unwrap().mode() & 0o700, 0o700, "{flags:?}");
        push(flags, again).expect(23);
        fs::remove_dir_all(shared.here.join("data").join(to)).unwrap();
    }
}

#[test]
fn limits_of_a_share_change_at_sighup_and_keep_their_count() {
    let shared = Shared::prepared(|here| set(here, "quota = \"1MiB\"", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    fill(&here.join("f"), 700 << 10, &mut Rng::new(1));
    let push = |to: &str| {
        let mut copy = there.cp();
        run(copy.arg(here.join("f")).arg(there.url(&format!("data/{to}"))))
    };
    push("a").expect(0);
    push("b").expect(23);
    let file = shared.here.join("serve.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("1MiB", "2MiB")).unwrap();
    there.running().signal(Signal::HUP);
    wait_until("the new quota applies", || push("b").code == Some(0));
    let failed = push("c").expect(23).failed();
    assert!(failed[0].1.contains("in addition to 1.4 MiB in use exceeds 2.0 MiB"), "{failed:?}");
}

#[test]
fn comparison_of_content_keeps_to_the_quota() {
    let shared = Shared::prepared(|here| set(here, "quota = \"3MiB\"", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    fill(&shared.here.join("data/f"), 2 << 20, &mut Rng::new(1));
    fill(&here.join("f"), 2 << 20, &mut Rng::new(1));
    let push = || run(there.cp().arg("--checksum").arg(here.join("f")).arg(there.url("data/f")));
    // An equal file needs no space.
    push().expect(0);
    fill(&here.join("f"), 2 << 20, &mut Rng::new(2));
    let failed = push().expect(23).failed();
    assert!(failed[0].1.contains("the quota of the share data"), "{failed:?}");
}

#[test]
fn replaced_files_free_no_more_than_they_took() {
    let shared = Shared::prepared(|here| set(here, "quota = \"1MiB\"", ""));
    let (there, here) = (&shared.daemon, Scratch::new());
    let source = here.dir("d");
    fill(&source.join("large"), 600 << 10, &mut Rng::new(1));
    let push = || run(there.cp().arg("-c").arg(here.join("d")).arg(there.url("data")));
    for content in ["a", "b", "c"] {
        (0..60).for_each(|at| write_file(&source.join(at.to_string()), content.as_bytes()));
        push().expect(0);
    }
    // The small files take 240 KiB, as the disk counts them.
    fill(&source.join("more"), 300 << 10, &mut Rng::new(2));
    push().expect(23);
}
