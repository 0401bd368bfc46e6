//! Memory: bounded on both sides, however many streams there are.

use super::harness::{
    Daemon, Disk, Rng, Running, Scratch, assert_same, fill, is_over_path, wait_until,
};
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// The promise: at 16 streams, each side.
const PEAK_MAX: u64 = 256 << 20;

/// Most memory that a process has had; `None` when it is gone.
fn peak(id: u32) -> Option<u64> {
    status(id, "VmHWM:")
}

/// What the kernel says of the memory of a process; `None` when it is gone.
fn status(id: u32, what: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[test]
fn sixteen_encrypted_streams_stay_within_the_memory_promised() {
    // In memory, so that the network is what there is to wait for, and buffers fill.
    let Some(scratch) = Scratch::in_memory(3 * GIB) else {
        println!("skipped: no room in /dev/shm");
        return;
    };
    fill(&scratch.dir("from").join("file"), GIB, &mut Rng::new(1));
    let daemon = Daemon::start(scratch.path(), &[]);
    for push in [true, false] {
        let mut command = daemon.cp();
        command.args(["--streams", "16"]);
        if push {
            command.arg(scratch.join("from/file")).arg(daemon.url("pushed"));
        } else {
            command.arg(daemon.url("from/file")).arg(scratch.join("pulled"));
        }
        let mut client = Running::start(&mut command);
        let mut most = 0;
        while !client.is_over() {
            most = most.max(peak(client.id()).unwrap_or(0));
            thread::sleep(Duration::from_millis(5));
        }
        client.wait().expect(0);
        let landed = scratch.join(if push { "pushed" } else { "pulled" });
        assert_same(&scratch.join("from/file"), &landed);
        fs::remove_file(landed).unwrap();
        let served = peak(daemon.id()).unwrap();
        println!("push: {push}: client {} MiB, daemon {} MiB", most >> 20, served >> 20);
        assert!(most > 0 && most <= PEAK_MAX, "push: {push}: the client had {most} bytes");
        assert!(served <= PEAK_MAX, "push: {push}: the daemon had {served} bytes");
    }
}

/// What a daemon may have while its disk stands still, with `--max-memory 32MiB`: by QUIC a quarter
/// beside that, and 16 MiB for the program, its threads, and what it encrypts with.
const HELD_MAX: u64 = (32 + 8 + 16) << 20;

/// What it may have when all is done.
const LEFT_MAX: u64 = 16 << 20;

/// Much less than a disk takes, so that whoever writes waits for data, and more than enough for all
/// that may wait to come within the 4 s for which room is made (docs/algorithms/rrda.md).
const RATE: &str = "320mbit";

/// Memory of its own that a process has.
fn own(id: u32) -> u64 {
    status(id, "RssAnon:").expect("the daemon runs")
}

/// The most that a process has while it gets no more for a while.
fn most_of(id: u32) -> u64 {
    let (mut most, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        if own(id) > most {
            (most, since) = (own(id), Instant::now());
        }
        thread::sleep(Duration::from_millis(20));
    }
    most
}

/// What a copy has brought so far, as it tells.
fn moved(client: &Running) -> u64 {
    let out = client.out();
    let mut moved = out.lines().filter_map(|line| line.split("\"bytes_moved\":").nth(1));
    moved.next_back().and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// A daemon whose disk stands still in the midst of a copy has what it is allowed, and more only
/// where it is not told how much; when the disk goes on, the copy does, and the memory goes back.
fn stands_still(transport: &str) {
    // One after the other: what comes within some seconds counts.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if is_over_path() {
        println!("skipped: the path is too slow to fill any memory");
        return;
    }
    let scratch = Scratch::in_memory(GIB).unwrap_or_else(Scratch::new);
    let Some(disk) = Disk::new(&scratch, 512) else { return };
    let file = scratch.join("file");
    fill(&file, 192 << 20, &mut Rng::new(3));
    for limit in [Some("32MiB"), None] {
        let flags = limit.map_or_else(Vec::new, |limit| vec!["--max-memory", limit]);
        let daemon = Daemon::start(disk.path(), &flags);
        let mut command = daemon.cp();
        command.args(["--transport", transport, "--max-rate", RATE]);
        let mut client = Running::start(command.arg(&file).arg(daemon.url("copy")));
        wait_until("data has come", || moved(&client) >= 16 << 20);
        let frozen = disk.freeze();
        match limit {
            Some(_) => {
                let held = most_of(daemon.id());
                println!("{transport}: {} MiB held with a limit of 32", held >> 20);
                assert!(held <= HELD_MAX, "{transport}: {held} bytes are held");
            }
            // Else the limit would be none.
            None => wait_until("more is held without a limit", || own(daemon.id()) > HELD_MAX),
        }
        assert!(!client.is_over(), "{}", client.err());
        frozen.thaw();
        client.wait().expect(0);
        assert_same(&file, &disk.path().join("copy"));
        wait_until("the memory has gone back", || own(daemon.id()) <= LEFT_MAX);
        fs::remove_file(disk.path().join("copy")).unwrap();
    }
}

#[test]
fn a_disk_that_stands_still_is_no_reason_for_more_memory_than_is_allowed_by_tcp() {
    stands_still("tcp");
}

#[test]
fn a_disk_that_stands_still_is_no_reason_for_more_memory_than_is_allowed_by_quic() {
    stands_still("quic");
}
