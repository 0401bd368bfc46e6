//! Memory: bounded on both sides for any number of streams.

use super::harness::{
    Daemon, Disk, Rng, Running, Scratch, assert_same, fill, is_over_path, wait_until,
};
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// Documented limit with 16 streams per side, if `--max-memory` is half of it: a slow receiver may
/// use all that it is allowed.
const MAX_PEAK_BYTES: u64 = 256 << 20;

/// Returns the peak memory of a process; `None` after its end.
fn peak(id: u32) -> Option<u64> {
    status(id, "VmHWM:")
}

/// Returns a memory figure of a process from the kernel; `None` after its end.
fn status(id: u32, what: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[test]
fn encrypted_streams_stay_within_the_memory_limit() {
    // In memory, so that the network is the bottleneck and buffers fill.
    let Some(scratch) = Scratch::in_memory(3 * GIB) else {
        println!("skipped: no room in /dev/shm");
        return;
    };
    fill(&scratch.dir("from").join("file"), GIB / 2, &mut Rng::new(1));
    let daemon = Daemon::start(scratch.path(), &["--max-memory", "128MiB"]);
    for push in [true, false] {
        let mut command = daemon.cp();
        command.args(["--streams", "16"]);
        if push {
            command.arg(scratch.join("from/file")).arg(daemon.url("pushed"));
        } else {
            command.args(["--max-memory", "128MiB"]);
            command.arg(daemon.url("from/file")).arg(scratch.join("pulled"));
        }
        let mut client = Running::start(&mut command);
        let mut most = 0;
        while !client.is_over() {
            most = most.max(peak(client.id()).unwrap_or(0));
            thread::sleep(Duration::from_millis(5));
        }
        client.wait().expect(0);
        let copied_to = scratch.join(if push { "pushed" } else { "pulled" });
        assert_same(&scratch.join("from/file"), &copied_to);
        fs::remove_file(copied_to).unwrap();
        let served = peak(daemon.id()).unwrap();
        println!("push: {push}: client {} MiB, daemon {} MiB", most >> 20, served >> 20);
        assert!(most > 0 && most <= MAX_PEAK_BYTES, "push: {push}: the client had {most} bytes");
        assert!(served <= MAX_PEAK_BYTES, "push: {push}: the daemon had {served} bytes");
    }
}

/// Allowed memory of a daemon with a stalled disk and `--max-memory 32MiB`: a quarter in addition
/// over QUIC, and 16 MiB for the program, its threads and encryption.
const MAX_HELD_BYTES: u64 = (32 + 8 + 16) << 20;

/// Allowed memory after the end.
const MAX_LEFT_BYTES: u64 = 16 << 20;

/// Rate limit: far below the disk's, so that the writer waits for data, and high enough to fill the
/// limit within the 4 s of the buffer (docs/algorithms/rrda.md).
const RATE: &str = "320mbit";

/// Returns the private memory of a process.
fn own(id: u32) -> u64 {
    status(id, "RssAnon:").expect("the daemon runs")
}

/// Returns the peak memory of a process, once it has stopped growing.
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

/// Returns the bytes that a copy has reported so far.
fn moved(client: &Running) -> u64 {
    let out = client.out();
    let mut moved = out.lines().filter_map(|line| line.split("\"bytes_moved\":").nth(1));
    moved.next_back().and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Checks that a daemon with a stalled disk respects `--max-memory`. It uses more without it,
/// continues after the stall, and releases the memory.
fn check_stalled_disk(transport: &str) {
    // One test at a time, since the amount of data in some seconds is measured.
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
                assert!(held <= MAX_HELD_BYTES, "{transport}: {held} bytes are held");
            }
            // Otherwise the limit had no effect.
            None => {
                wait_until("without a limit more is buffered", || own(daemon.id()) > MAX_HELD_BYTES)
            }
        }
        assert!(!client.is_over(), "{}", client.err());
        frozen.thaw();
        client.wait().expect(0);
        assert_same(&file, &disk.path().join("copy"));
        wait_until("the memory is released", || own(daemon.id()) <= MAX_LEFT_BYTES);
        fs::remove_file(disk.path().join("copy")).unwrap();
    }
}

#[test]
fn stalled_disk_respects_max_memory_over_tcp() {
    check_stalled_disk("tcp");
}

#[test]
fn stalled_disk_respects_max_memory_over_quic() {
    check_stalled_disk("quic");
}
