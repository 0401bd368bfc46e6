//! Memory: bounded on both sides, however many streams there are.

use super::harness::{Daemon, Rng, Running, Scratch, assert_same, fill};
use std::fs;
use std::thread;
use std::time::Duration;

const GIB: u64 = 1 << 30;

/// The promise: at 16 streams, each side.
const PEAK_MAX: u64 = 256 << 20;

/// Most memory that a process has had; `None` when it is gone.
fn peak(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
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
