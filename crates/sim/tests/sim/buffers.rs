//! Buffers and rate limits on many kinds of load: socket buffer, buffer pool, backlog, limiter.
//!
//! The table is a snapshot for review; `scripts/sensitivity --matrix gather` uses it to measure the
//! effect of the constants. Its columns are those of the matrix of gather.

use crate::rrda::Buffer;
use crate::snapshot::assert_snapshot;
use bankfull_control::pacing::RateLimiter;
use bankfull_control::rrda::backlog::Backlog;
use bankfull_control::rrda::pool::{Interval, PoolLimit};
use bankfull_control::rrda::{Bounds, EPOCH_INTERVAL};
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

const MIB: u64 = 1 << 20;

const HEAD: &str = "condition              goodput    lost timeouts   queue    Jain\n";

/// Returns a row: goodput as a share of the possible, refused amount, and mean size in kB.
fn row(name: &str, goodput: f64, refused: u64, size: f64) -> String {
    format!("{name:22} {goodput:.4} {refused:>8} {:>8} {:>7.1}  {:.4}\n", 0, size / 1e3, 1.0)
}

/// Socket buffer under epochs of arriving and processable kB; refused: kB that were discarded.
fn socket(name: &str, memory: f64, epochs: impl Iterator<Item = (u64, u64)>) -> String {
    let mut buffer = Buffer::new(Bounds { min: Bytes(131_072), max: Bytes(64 * MIB) }, memory);
    buffer.run_idle();
    let (mut arrived, mut count, mut sizes) = (0, 0, 0);
    for (arriving, processable) in epochs {
        let result = buffer.epoch(arriving * 1000, processable * 1000);
        (arrived, count, sizes) = (arrived + arriving * 1000, count + 1, sizes + result.size);
    }
    let goodput = 1.0 - buffer.discarded as f64 / arrived as f64;
    row(name, goodput, buffer.discarded / 1000, sizes as f64 / f64::from(count))
}

fn sockets() -> String {
    let alternating = (0..60).map(|n| (250, if n % 2 == 0 { 150 } else { 350 }));
    let rising = (0..70).map(|n| match n {
        5..20 => (1250, 1150),
        20..40 => (125, 1150),
        _ => (125, 125),
    });
    let bursts = (0..80).map(|n| if n % 8 == 1 { (1250, 125) } else { (125, 300) });
    let pausing = |every: u64| (0..600).map(move |n| (1250, if n % every < 5 { 0 } else { 1700 }));
    // Each pause is longer than the last.
    let longer = (0..300).map(|n| (1250, if n % 30 < n / 50 { 0 } else { 1700 }));
    let overload = (0..200).map(|n| (1250, if n < 20 { 600 } else { 1500 }));
    // A part of an epoch brings as much as the smallest buffer holds.
    let fast = (0..600).map(|n| (12_500, if n % 30 < 5 { 0 } else { 17_000 }));
    let fast_bursts = (0..240).map(|n| if n % 8 == 1 { (37_500, 6_250) } else { (1_250, 7_500) });
    [
        socket("socket fast", 0.25, fast.clone()),
        socket("socket fast, scarce", 0.8, fast),
        socket("socket fast bursts", 0.25, fast_bursts),
        socket("socket alternating", 0.25, alternating),
        socket("socket rising", 0.25, rising.clone()),
        socket("socket rising, scarce", 0.8, rising),
        socket("socket bursts", 0.25, bursts.clone()),
        socket("socket bursts, scarce", 0.8, bursts),
        socket("socket pauses 3 s", 0.25, pausing(30)),
        socket("socket pauses, scarce", 0.8, pausing(30)),
        socket("socket pauses 6 s", 0.25, pausing(60)),
        socket("socket longer pauses", 0.25, longer),
        socket("socket overload", 0.25, overload),
    ]
    .concat()
}

/// Pool between a path and a disk, with bytes of each per millisecond.
fn pool(name: &str, memory: f64, seconds: u64, path: u64, disk: impl Fn(u64) -> u64) -> String {
    let mut control = PoolLimit::new(Bounds { min: Bytes(4 * MIB), max: Bytes(256 * MIB) });
    let (mut queued, mut written, mut possible, mut sizes) = (0_u64, 0, 0, 0.0);
    // A pool of any size.
    let mut unlimited = 0_u64;
    for epoch in 0..seconds * 10 {
        let mut interval = Interval {
            elapsed: EPOCH_INTERVAL,
            arrived: Bytes(0),
            processed: Bytes(0),
            max_used: Bytes(queued),
            min_used: Bytes(queued),
            blocked_time: Duration::ZERO,
            was_starved: false,
            memory,
        };
        for ms in epoch * 100..(epoch + 1) * 100 {
            let taken = path.min(control.size().0.saturating_sub(queued));
            interval.blocked_time += Duration::from_millis(u64::from(taken < path));
            let done = disk(ms).min(queued + taken);
            interval.max_used = interval.max_used.max(Bytes(queued + taken));
            interval.was_starved |= done < disk(ms);
            queued = queued + taken - done;
            interval.arrived += Bytes(taken);
            interval.processed += Bytes(done);
            interval.min_used = interval.min_used.min(Bytes(queued));
            written += done;
            let done = disk(ms).min(unlimited + path);
            (unlimited, possible) = (unlimited + path - done, possible + done);
        }
        sizes += control.size().0 as f64;
        control.on_epoch(&interval);
    }
    row(name, written as f64 / possible as f64, 0, sizes / (seconds * 10) as f64)
}

fn pools() -> String {
    /// 1 Gbit/s.
    const PATH: u64 = 125_000;
    let stalling = |rate: u64, every: u64, stall: u64| {
        move |ms: u64| if ms % every >= every - stall { 0 } else { rate }
    };
    [
        pool("pool disk 2", 0.2, 30, PATH, stalling(2 * PATH, 3000, 500)),
        pool("pool disk 5/4", 0.2, 30, PATH, stalling(PATH * 5 / 4, 3000, 500)),
        pool("pool disk 11/10", 0.2, 30, PATH, stalling(PATH * 11 / 10, 3000, 500)),
        pool("pool disk 2, scarce", 0.8, 30, PATH, stalling(2 * PATH, 3000, 500)),
        pool("pool short stalls", 0.2, 30, PATH, stalling(2 * PATH, 700, 150)),
        pool("pool rare stalls", 0.2, 40, PATH, stalling(2 * PATH, 8000, 800)),
        pool("pool slower", 0.2, 30, PATH, |_| PATH / 2),
        pool("pool little slower", 0.2, 30, PATH, |_| PATH * 9 / 10),
        // Other load takes a part of the disk for a while.
        pool(
            "pool dips to half",
            0.2,
            30,
            PATH,
            |ms| {
                if ms % 3000 < 500 { PATH } else { 2 * PATH }
            },
        ),
        pool("pool dips to third", 0.2, 30, PATH, |ms| {
            if ms % 3000 < 800 { PATH * 2 / 5 } else { PATH * 6 / 5 }
        }),
        pool(
            "pool slowed for good",
            0.2,
            60,
            PATH,
            |ms| if ms < 5000 { 2 * PATH } else { PATH / 5 },
        ),
        // Idle for seconds between bursts that the disk takes up late.
        pool("pool bursts", 0.2, 40, PATH, |ms| if ms % 5000 < 1000 { 0 } else { PATH * 3 / 2 }),
    ]
    .concat()
}

/// Chunks between a network and a processor in steps of 0.1 ms; refused: chunks that had to wait
/// although the processor ran. The size is the mean backlog.
fn backlog(name: &str, seconds: u64, path: u64, processable: impl Fn(u64) -> u64) -> String {
    const CHUNK: u64 = 256 << 10;
    /// Guaranteed room.
    const GUARANTEED: u64 = 6 * CHUNK;
    let mut control = Backlog::new(Duration::ZERO, Bytes(GUARANTEED));
    let (mut queued, mut arrived, mut credit, mut processed) = (0, 0, 0, 0);
    let (mut unlimited, mut possible, mut refused, mut sum) = (0_u64, 0, 0, 0);
    for step in 0..seconds * 10_000 {
        let now = Duration::from_micros(100) * step as u32;
        // The socket's buffer holds four chunks.
        arrived = (arrived + path).min(4 * CHUNK);
        while arrived >= CHUNK {
            let beyond = (queued + CHUNK).saturating_sub(GUARANTEED);
            if beyond > 0 && !control.admits(now, Bytes(beyond)) {
                refused += u64::from(processable(step) > 0);
                break;
            }
            if queued == 0 {
                control.on_first_arrival(now);
            }
            (queued, arrived) = (queued + CHUNK, arrived - CHUNK);
        }
        sum += queued;
        credit = (credit + processable(step)).min(2 * CHUNK);
        if credit >= CHUNK && queued > 0 {
            (queued, credit, processed) = (queued - CHUNK, credit - CHUNK, processed + CHUNK);
            control.on_processed(now, Bytes(queued.saturating_sub(GUARANTEED)));
        }
        let done = processable(step).min(unlimited + path);
        (unlimited, possible) = (unlimited + path - done, possible + done);
    }
    let goodput = processed as f64 / possible as f64;
    row(name, goodput, refused, sum as f64 / (seconds * 10_000) as f64)
}

fn backlogs() -> String {
    /// 1 Gbit/s.
    const PATH: u64 = 12_500;
    const SECOND: u64 = 10_000;
    let stalling = |rate: u64, every: u64, stall: u64| {
        move |step: u64| if step % every < stall { 0 } else { rate }
    };
    [
        backlog("backlog slower", 3, 2 * PATH, |_| PATH),
        // A processor whose time for a chunk varies.
        backlog(
            "backlog uneven",
            5,
            PATH,
            |step| if step / 60 % 2 == 0 { 0 } else { PATH * 5 / 2 },
        ),
        backlog("backlog uneven, slower", 5, 4 * PATH, |step| {
            if step / 60 % 2 == 0 { 0 } else { PATH * 5 / 2 }
        }),
        backlog(
            "backlog stall, slower",
            6,
            4 * PATH,
            |step| {
                if step < SECOND / 5 { 0 } else { 3 * PATH }
            },
        ),
        backlog("backlog disk 2", 15, PATH, stalling(2 * PATH, 3 * SECOND, SECOND / 2)),
        backlog("backlog disk 11/10", 30, PATH, stalling(PATH * 11 / 10, 3 * SECOND, SECOND / 2)),
        backlog("backlog short stalls", 15, PATH, stalling(PATH * 5 / 4, SECOND / 2, SECOND / 20)),
        backlog("backlog slow disk", 15, PATH / 2, stalling(PATH * 2 / 3, SECOND, SECOND / 10)),
    ]
    .concat()
}

/// Threads that share a rate limit and wake up late; refused: turns per MB. The size is the most
/// that is sent beyond the rate.
fn limiter(name: &str, mbit: f64, threads: usize, max_late: Duration) -> String {
    let rate = Rate::from_bits_per_sec(mbit * 1e6);
    let mut limiter = RateLimiter::new(rate);
    let mut rng = fastrand::Rng::with_seed(3);
    let time = Duration::from_secs(2);
    let mut ready = vec![Duration::ZERO; threads];
    // A system call takes some µs and sends 5 GB/s.
    let call = |bytes: Bytes| Duration::from_micros(5) + Duration::from_nanos(bytes.0 / 5);
    let (mut sent, mut turns, mut burst) = (0, 0_u64, 0.0_f64);
    // Least sent beyond the rate until now.
    let mut least = 0.0_f64;
    while let Some((thread, now)) = ready.iter().copied().enumerate().min_by_key(|&(_, at)| at) {
        if now >= time {
            break;
        }
        let quantum = limiter.quantum();
        let begin = limiter.reserve(now, quantum);
        let late = if begin > now { max_late.mul_f64(rng.f64()) } else { Duration::ZERO };
        let begin = begin.max(now) + late;
        let excess = sent as f64 - rate.bytes_per_sec() as f64 * begin.as_secs_f64();
        least = least.min(excess);
        (sent, turns) = (sent + quantum.0, turns + 1);
        burst = burst.max(excess + quantum.0 as f64 - least);
        ready[thread] = begin + call(quantum);
    }
    let goodput = sent as f64 / (rate.bytes_per_sec() as f64 * time.as_secs_f64());
    row(name, goodput, turns * 1_000_000 / sent, burst)
}

fn limiters() -> String {
    let us = Duration::from_micros;
    [
        limiter("limiter 1M", 1.0, 1, us(200)),
        limiter("limiter 100M", 100.0, 1, us(200)),
        limiter("limiter 100M, late", 100.0, 1, us(8000)),
        limiter("limiter 1G", 1000.0, 1, us(200)),
        limiter("limiter 1G, late", 1000.0, 4, us(8000)),
        limiter("limiter 10G", 10_000.0, 4, us(200)),
        limiter("limiter 10G, late", 10_000.0, 4, us(3000)),
    ]
    .concat()
}

#[test]
fn buffers_match_snapshot() {
    let table = [HEAD, &sockets(), &pools(), &backlogs(), &limiters()].concat();
    assert_snapshot(&table, include_str!("../snapshots/buffers.txt"), "buffers.txt");
}
