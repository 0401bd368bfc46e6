//! Sender and receiver over a path that delays, duplicates and loses single segments.

use super::{Ack, Algorithm, HEADER_BYTES, MSS, Receiver, Segments, Sender, SenderCounts};
use bankfull_control::Bytes;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Path of 100 Mbit/s and 40 ms, with a queue of 40 ms.
#[derive(Debug, Default)]
struct Path {
    /// Bytes to send; zero: unlimited.
    bytes: u64,
    loss: f64,
    ack_loss: f64,
    duplication: f64,
    /// Fraction of the segments that are late, and their additional delay.
    late: (f64, Duration),
    /// The same of acknowledgements.
    late_acks: (f64, Duration),
    /// Queueing delay above which segments are marked.
    mark_above: Option<Duration>,
    /// Additional delay of everything in a time interval.
    stall: Option<(Duration, Duration)>,
}

#[derive(Clone, Copy)]
enum Event {
    Data(Segments, bool),
    Ack(Ack),
}

const NANOS_PER_BYTE: u32 = 80;
const QUEUE: Duration = Duration::from_millis(40);
const HALF_RTT: Duration = Duration::from_millis(20);

/// Runs a flow for a time; returns its Mbit/s of payload and its counters.
fn run(algorithm: Algorithm, path: &Path, time: Duration) -> (f64, SenderCounts) {
    let mut rng = Rng::with_seed(7);
    let mut receiver = Receiver::new(Bytes(1 << 26));
    let mut sender = Sender::new(algorithm, receiver.right_edge(), 2 * HALF_RTT);
    sender.write(if path.bytes == 0 { u64::MAX } else { path.bytes });
    let mut events: BTreeMap<(Duration, u64), Event> = BTreeMap::new();
    let (mut now, mut idle_at, mut sequence) = (Duration::ZERO, Duration::ZERO, 0);
    while now < time && (path.bytes == 0 || sender.acked() < path.bytes) {
        let mut probe = sender.on_time(now);
        while let Some(mut burst) = probe.take().or_else(|| sender.poll(now)) {
            while burst.start < burst.end {
                let segment = burst.split_off_first(1);
                if idle_at > now + QUEUE {
                    continue;
                }
                let bytes = (segment.end - segment.start) as u32 + HEADER_BYTES;
                idle_at = idle_at.max(now) + Duration::from_nanos(1) * bytes * NANOS_PER_BYTE;
                let is_marked = path.mark_above.is_some_and(|limit| idle_at > now + limit);
                if rng.f64() < path.loss {
                    continue;
                }
                let copies = 1 + usize::from(rng.f64() < path.duplication);
                for _ in 0..copies {
                    let late = if rng.f64() < path.late.0 { path.late.1 } else { Duration::ZERO };
                    let arrives = idle_at + HALF_RTT + late;
                    let is_stalled =
                        path.stall.filter(|stall| (stall.0..stall.1).contains(&arrives));
                    let arrives = is_stalled.map_or(arrives, |stall| stall.1);
                    sequence += 1;
                    events.insert((arrives, sequence), Event::Data(segment, is_marked));
                }
            }
        }
        let next = events.keys().next().map(|key| key.0);
        let timers = [sender.timer(), sender.paced_until(now), receiver.ack_at(), next];
        now = timers.into_iter().flatten().min().unwrap_or(time).max(now);
        let mut acks = receiver.on_time(now).into_iter().collect::<Vec<_>>();
        while let Some(entry) = events.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Event::Data(segments, is_marked) => {
                    acks.extend(receiver.on_segments(now, &segments, is_marked));
                }
                Event::Ack(ack) => sender.on_ack(now, &ack, &mut receiver),
            }
        }
        for ack in acks {
            if rng.f64() < path.ack_loss {
                continue;
            }
            let is_late = rng.f64() < path.late_acks.0;
            let late = if is_late { path.late_acks.1 } else { Duration::ZERO };
            sequence += 1;
            events.insert((now + HALF_RTT + late, sequence), Event::Ack(ack));
        }
    }
    let time = time.min(now);
    (receiver.next() as f64 * 8e-6 / time.as_secs_f64(), sender.counts())
}

const TIME: Duration = Duration::from_secs(20);

#[test]
fn path_without_disorder_shows_none() {
    let (rate, counts) = run(Algorithm::Cubic, &Path::default(), TIME);
    assert!(rate > 92.0, "{rate} {counts:?}");
    assert_eq!((counts.reordering_seen, counts.spurious_retransmits), (0, 0));
}

#[test]
fn reordered_segments_are_not_taken_for_lost() {
    for (fraction, late_ms) in [(0.01, 3), (0.2, 9), (0.05, 30)] {
        let path = Path { late: (fraction, MS * late_ms), ..Path::default() };
        let (rate, counts) = run(Algorithm::Cubic, &path, TIME);
        assert!(rate > 92.0, "{late_ms} ms: {rate} {counts:?}");
        assert!(counts.reordering_seen > 1000, "{late_ms} ms: {counts:?}");
        assert!(counts.spurious_retransmits < 30, "{late_ms} ms: {counts:?}");
    }
}

#[test]
fn losses_are_repaired_beside_reordering() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let [clean, late] = [0.0, 0.1].map(|fraction| {
            let path = Path { loss: 0.001, late: (fraction, MS * 5), ..Path::default() };
            run(algorithm, &path, 5 * TIME)
        });
        assert!(late.0 > 0.8 * clean.0, "{algorithm:?}: {late:?} {clean:?}");
        assert_eq!(late.1.timeouts, 0, "{algorithm:?}: {late:?}");
    }
}

#[test]
fn bbr_fills_path_with_all_disorder() {
    let path = Path {
        loss: 0.01,
        duplication: 0.02,
        late: (0.1, MS * 8),
        late_acks: (0.1, MS * 8),
        ..Path::default()
    };
    let (rate, counts) = run(Algorithm::Bbr, &path, TIME);
    assert!(rate > 88.0, "{rate} {counts:?}");
}

#[test]
fn duplicated_segments_cost_nothing() {
    let path = Path { duplication: 0.05, ..Path::default() };
    let (rate, counts) = run(Algorithm::Cubic, &path, TIME);
    assert!(rate > 90.0 && counts.spurious_retransmits > 7000, "{rate} {counts:?}");
    assert!(counts.retransmits < 50, "{counts:?}");
}

#[test]
fn reordered_acks_cost_nothing() {
    let path = Path { late_acks: (0.3, MS * 15), ..Path::default() };
    let (rate, counts) = run(Algorithm::Cubic, &path, TIME);
    assert!(rate > 92.0 && counts.retransmits < 50, "{rate} {counts:?}");
    assert_eq!((counts.reordering_seen, counts.spurious_retransmits), (0, 0));
}

#[test]
fn spurious_timeout_is_undone() {
    let path = Path { stall: Some((MS * 5000, MS * 5400)), ..Path::default() };
    let (rate, counts) = run(Algorithm::Cubic, &path, TIME);
    // The stall itself costs 2 %, and the burst after it overflows the queue once.
    assert!(rate > 87.0 && counts.retransmits < 20, "{rate} {counts:?}");
    assert!(counts.timeouts > 0, "{counts:?}");
}

#[test]
fn marks_keep_queue_short_without_loss() {
    for (algorithm, rate_min) in [(Algorithm::NewReno, 60.0), (Algorithm::Cubic, 75.0)] {
        let path = Path { mark_above: Some(MS * 10), ..Path::default() };
        let (rate, counts) = run(algorithm, &path, TIME);
        assert!(rate > rate_min, "{algorithm:?}: {rate} {counts:?}");
        assert_eq!((counts.retransmits, counts.recoveries), (0, 0), "{algorithm:?}");
        // Most marks of one round cause one reduction.
        assert!(counts.marked > 4 * counts.mark_reductions, "{algorithm:?}: {counts:?}");
        assert!(counts.mark_reductions > 2, "{algorithm:?}: {counts:?}");
        let rtt_mean = counts.rtt_sum / counts.rtt_samples as u32;
        assert!(rtt_mean < MS * 52, "{algorithm:?}: {counts:?}");
    }
}

#[test]
fn marks_in_late_acks_cause_no_reduction() {
    let mark_above = Some(MS * 10);
    let clean = run(Algorithm::Cubic, &Path { mark_above, ..Path::default() }, TIME);
    let path = Path { mark_above, late_acks: (0.3, MS * 35), ..Path::default() };
    let late = run(Algorithm::Cubic, &path, TIME);
    assert!(late.1.mark_reductions <= clean.1.mark_reductions + 1, "{late:?} {clean:?}");
    assert!(late.0 > 0.9 * clean.0, "{late:?} {clean:?}");
}

#[test]
fn random_disorder_delivers_all_data() {
    let all = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr, Algorithm::Ledbat];
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let mut late = || (rng.f64() * 0.5, Duration::from_micros(rng.u64(0..150_000)));
        let (late_data, late_acks) = (late(), late());
        let stall = MS * rng.u32(0..1000);
        let path = Path {
            bytes: rng.u64(1..2_000_000),
            loss: rng.f64() * rng.f64() * 0.15,
            ack_loss: rng.f64() * rng.f64() * 0.2,
            duplication: rng.f64() * rng.f64() * 0.2,
            late: late_data,
            late_acks,
            mark_above: rng.bool().then(|| MS * rng.u32(1..40)),
            stall: rng.bool().then(|| (stall, stall + MS * rng.u32(0..3000))),
        };
        let algorithm = all[seed as usize % all.len()];
        let (rate, counts) = run(algorithm, &path, 10 * TIME);
        let seconds = path.bytes as f64 * 8e-6 / rate;
        assert!(seconds < 190.0, "{seed} {algorithm:?}: {seconds} s, {counts:?}");
    }
}

#[test]
fn run_has_its_part_of_the_bytes() {
    let all = Segments { number: 7, start: 1000, end: 1000 + 3 * MSS + 5, mss: MSS };
    assert_eq!(all.count(), 4);
    let burst = all.burst();
    assert_eq!((burst.segments, burst.segment_bytes, burst.last_bytes), (4, 1500, 57));
    let middle = Segments { number: 8, start: 1000 + MSS, end: 1000 + 3 * MSS, mss: MSS };
    assert_eq!(all.in_run(1, 2), middle);
    let last = Segments { number: 10, start: 1000 + 3 * MSS, ..all };
    assert_eq!(all.in_run(3, 1), last);
}
