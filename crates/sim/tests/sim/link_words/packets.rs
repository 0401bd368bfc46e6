//! Words about packets: `rtt`, `mtu`, `jitter`, `thin-acks`, and `fq-codel` with `ecn`.

use super::bench::{
    DATAGRAM_INTERVAL, Received, Sent, carry, delays, in_ms, longest_gap, mean, percent,
    percentile, reordered, stream,
};
use super::pseudocode;
use super::{Case, Figure};
use crate::{MS, SEC, mbit};
use bankfull_sim::link::Jitter;
use bankfull_sim::link::queue::{FqCodelConfig, QueueConfig};
use bankfull_sim::{Ecn, LinkConfig};
use std::time::Duration;

/// One-way delay of a path whose route changes.
const DELAY: Duration = Duration::from_millis(20);

fn time(name: &'static str, note: &'static str, theory_ms: f64, model_ms: f64) -> Figure {
    Figure {
        unit: "ms",
        digits: 2,
        tolerance: 1e-3,
        ..Figure::new(name, note, theory_ms, model_ms)
    }
}

fn count(name: &'static str, note: &'static str, theory: f64, model: usize) -> Figure {
    Figure { unit: "packets", digits: 0, ..Figure::new(name, note, theory, model as f64) }
}

/// Returns the share of a count.
fn share(name: &'static str, theory: f64, part: usize, of: usize) -> Figure {
    Figure { unit: "%", digits: 0, ..Figure::new(name, "", theory, percent(part, of)) }
}

/// Another delay after 1 s; a datagram every ms.
///
/// Packets on the old route arrive after those sent up to the difference of the delays later.
pub(super) fn reroute(case: &'static str, new: Duration) -> Case {
    let mut config = LinkConfig { delay: DELAY, ..LinkConfig::default() };
    config.impairments.delay_changes = vec![(SEC, new)];
    let received = carry(&config, 1, &stream(1, 200, DATAGRAM_INTERVAL, SEC * 2));
    let change = (SEC.as_nanos() / DATAGRAM_INTERVAL.as_nanos()) as usize;
    let delay_of = |index: usize| {
        let found = received.iter().find(|one| one.index == index);
        in_ms(found.map_or(Duration::MAX, |one| one.delay))
    };
    let (interval, shorter) = (in_ms(DATAGRAM_INTERVAL), in_ms(DELAY.saturating_sub(new)));
    let overtaken = (shorter / interval).ceil() - 1.0;
    let reordered_note = if new < DELAY { "sent within the difference" } else { "" };
    let mut figures = vec![
        time("delay, last packet before", "", in_ms(DELAY), delay_of(change - 1)),
        time("delay, first packet after", "", in_ms(new), delay_of(change)),
        count("reordered", reordered_note, overtaken.max(0.0), reordered(&received)),
        count("lost", "", 0.0, 2 * change - received.len()),
    ];
    if new > DELAY {
        let pause = in_ms(new - DELAY) + interval;
        let note = "the difference, and an interval";
        figures.push(time("longest pause", note, pause, longest_gap(&received)));
    } else {
        let note = "the difference, less an interval";
        figures.push(time("longest time behind", note, shorter - interval, behind(&received)));
    }
    Case { name: case, figures }
}

/// Returns the longest time in ms after the first arrival of a packet sent later.
fn behind(received: &[Received]) -> f64 {
    let late = |(at, one): (usize, &Received)| {
        let first = received[..at].iter().find(|earlier| earlier.index > one.index);
        first.map_or(0.0, |first| in_ms(one.at - first.at))
    };
    received.iter().enumerate().map(late).fold(0.0, f64::max)
}

/// MTU of 1300 bytes after 1 s; packets of four sizes.
pub(super) fn mtu() -> Case {
    const SIZES: [u32; 4] = [1500, 1301, 1300, 64];
    let mut config = LinkConfig::default();
    config.impairments.mtu_changes = vec![(SEC, 1300)];
    let mut sent = stream(1, 0, DATAGRAM_INTERVAL, SEC * 2);
    let sizes = SIZES.into_iter().cycle();
    sent.iter_mut().zip(sizes).for_each(|(packet, size)| packet.bytes = size);
    let received = carry(&config, 1, &sent);
    let lost = |name, theory, size, is_after: bool| {
        let is_one = |packet: &Sent| packet.bytes == size && (packet.at >= SEC) == is_after;
        let all = sent.iter().filter(|packet| is_one(packet)).count();
        let arrived = received.iter().filter(|one| is_one(&sent[one.index])).count();
        share(name, theory, all - arrived, all)
    };
    Case {
        name: "`mtu:1300@1s`",
        figures: vec![
            lost("lost before, 1500 bytes", 0.0, 1500, false),
            lost("lost after, 1500 bytes", 100.0, 1500, true),
            lost("lost after, 1301 bytes", 100.0, 1301, true),
            lost("lost after, 1300 bytes", 0.0, 1300, true),
            lost("lost after, 64 bytes", 0.0, 64, true),
        ],
    }
}

/// Jitter of 10 ms that keeps the order.
///
/// A packet arrives with the latest of those before it: its delay is the maximum of uniform values
/// that fall by an interval a packet. P(delay ≤ x) = ∏ min(1, (x + k · interval) / max).
pub(super) fn jitter(seed: u64) -> Case {
    const MAX: f64 = 10.0;
    let interval = in_ms(DATAGRAM_INTERVAL);
    let below = |x: f64| {
        let terms = (0..10).map(|k| ((x + f64::from(k) * interval) / MAX).clamp(0.0, 1.0));
        terms.product::<f64>()
    };
    let jitter = Jitter { max: MS * 10, period: Duration::ZERO, reorders: false };
    jittered("`jitter:10ms`", jitter, below, 0.05, seed)
}

/// Jitter of 8 ms whose value holds for 20 ms, in order.
///
/// The k-th packet of a period has its value, or that of the period before less k intervals.
pub(super) fn held_jitter(seed: u64) -> Case {
    const MAX: f64 = 8.0;
    let interval = in_ms(DATAGRAM_INTERVAL);
    let below = |x: f64| {
        let earlier = |k: u32| ((x + f64::from(k) * interval) / MAX).clamp(0.0, 1.0);
        (x / MAX).clamp(0.0, 1.0) * (1..=20).map(earlier).sum::<f64>() / 20.0
    };
    let jitter = Jitter { max: MS * 8, period: MS * 20, reorders: false };
    // 3000 values of ±2.3 ms.
    jittered("`jitter:8ms,20ms`", jitter, below, 0.15, seed)
}

/// Compares delays behind jitter with their distribution.
fn jittered(
    case: &'static str,
    jitter: Jitter,
    below: impl Fn(f64) -> f64,
    tolerance: f64,
    seed: u64,
) -> Case {
    const CELLS: u32 = 10_000;
    let max = in_ms(jitter.max);
    let grid = || (0..=CELLS).map(|n| f64::from(n) * max / f64::from(CELLS));
    let mean_theory = grid().map(|x| 1.0 - below(x)).sum::<f64>() * max / f64::from(CELLS);
    let quantile = |percent: usize| {
        grid().find(|&x| below(x) >= percent as f64 / 100.0).unwrap_or(f64::INFINITY)
    };
    let mut config = LinkConfig::default();
    config.impairments.jitter = Some(jitter);
    let received = carry(&config, seed, &stream(1, 200, DATAGRAM_INTERVAL, SEC * 60));
    let delays = delays(&received);
    let near = |name, note, theory, model| Figure { tolerance, ..time(name, note, theory, model) };
    let at = |name, percent| near(name, "", quantile(percent), percentile(&delays, percent));
    Case {
        name: case,
        figures: vec![
            count("reordered", "", 0.0, reordered(&received)),
            near("delay mean", "maximum of uniform values", mean_theory, mean(&delays)),
            at("delay p5", 5),
            at("delay p50", 50),
            at("delay p95", 95),
        ],
    }
}

/// Interval of the acknowledgements of a connection, out of step with the line.
const ACK_INTERVAL: Duration = Duration::from_nanos(371_700);

/// Interval of pairs of data packets on the reverse path, as well.
const PAIR_INTERVAL: Duration = Duration::from_nanos(10_062_600);

/// Acknowledgements of `connections` beside data; 50 bytes take 1 ms.
fn acks(connections: u64, has_data: bool) -> (Vec<Sent>, Vec<Received>) {
    let config = LinkConfig { rate: Some(mbit(0.4)), thins_acks: true, ..LinkConfig::default() };
    let mut sent = Vec::new();
    for flow in 1..=connections {
        let acks = stream(flow, 50, ACK_INTERVAL, SEC * 20).into_iter();
        sent.extend(acks.map(|ack| Sent { is_pure_ack: true, ..ack }));
    }
    if has_data {
        let pairs = stream(connections + 1, 50, PAIR_INTERVAL, SEC * 20);
        sent.extend(pairs.into_iter().flat_map(|packet| [packet; 2]));
    }
    sent.sort_by_key(|packet| packet.at);
    let received = carry(&config, 1, &sent);
    (sent, received)
}

/// Returns the percentage that arrived of a kind of packet.
fn arrived(sent: &[Sent], received: &[Received], is_kind: impl Fn(&Sent) -> bool) -> f64 {
    let all = sent.iter().filter(|packet| is_kind(packet)).count();
    percent(received.iter().filter(|one| is_kind(&sent[one.index])).count(), all)
}

/// Acknowledgements of one connection: one leaves per ms, the latest of those that came meanwhile.
pub(super) fn thin_acks() -> Case {
    let (sent, received) = acks(1, false);
    let interval = in_ms(ACK_INTERVAL);
    let last = received.last().map_or(0, |one| one.index);
    let share = arrived(&sent, &received, |ack| ack.is_pure_ack);
    let note = "sending, and half an interval";
    let delay = mean(&delays(&received));
    Case {
        name: "`thin-acks`, one connection",
        figures: vec![
            Figure {
                unit: "%",
                tolerance: 0.01,
                ..Figure::new(
                    "ACKs delivered",
                    "interval / time of sending",
                    100.0 * interval,
                    share,
                )
            },
            time("delay mean", note, 1.0 + interval / 2.0, delay),
            time("delay max", "sending, and an interval", 1.0 + interval, {
                delays(&received)[received.len() - 1]
            }),
            time("longest pause", "time of sending", 1.0, longest_gap(&received)),
            count("sent after the last delivered", "", 0.0, sent.len() - 1 - last),
        ],
    }
}

/// Acknowledgements of two connections beside data, which is never replaced.
pub(super) fn thin_acks_beside_data() -> Case {
    let (sent, received) = acks(2, true);
    let acks = |flow: u64| arrived(&sent, &received, |one| one.flow == flow);
    let data = arrived(&sent, &received, |packet| !packet.is_pure_ack);
    let left = 1.0 - 2.0 / in_ms(PAIR_INTERVAL);
    let theory = 100.0 * left * in_ms(ACK_INTERVAL) / 2.0;
    let of = |name, note, theory, model| Figure {
        unit: "%",
        tolerance: 0.01,
        ..Figure::new(name, note, theory, model)
    };
    Case {
        name: "`thin-acks`, two connections and data",
        figures: vec![
            of("data delivered", "", 100.0, data),
            of("ACKs delivered, first", "half of what data leaves", theory, acks(1)),
            of("ACKs delivered, second", "", theory, acks(2)),
        ],
    }
}

/// Flows behind FQ-CoDel with ECN.
const CAPABLE: u64 = 0;
const NOT_CAPABLE: u64 = 1;
const SPARSE: u64 = 2;

/// Interval of the sparse flow, out of step with the line.
const SPARSE_INTERVAL: Duration = Duration::from_nanos(7_131_700);

/// FQ-CoDel with ECN: a flow that is ECN-capable, one that is not, and a sparse one.
///
/// The first two offer 6 Mbit/s each to a link of 10 Mbit/s, for 5 s.
pub(super) fn fq_codel_ecn() -> Case {
    let interval = Duration::from_micros(2000);
    let capable = |packet: Sent| Sent { ecn: Ecn::Capable, ..packet };
    let mut sent: Vec<Sent> =
        stream(CAPABLE, 1500, interval, SEC * 5).into_iter().map(capable).collect();
    let offset = |packet: Sent| Sent { at: packet.at + interval / 3, ..packet };
    sent.extend(stream(NOT_CAPABLE, 1500, interval, SEC * 5).into_iter().map(offset));
    sent.extend(stream(SPARSE, 100, SPARSE_INTERVAL, SEC * 5).into_iter().map(capable));
    sent.sort_by_key(|packet| packet.at);
    let queue = QueueConfig::FqCodel(FqCodelConfig::default());
    let config = LinkConfig { rate: Some(mbit(10.0)), queue, ecn: true, ..LinkConfig::default() };
    let model = carry(&config, 1, &sent);
    let theory = pseudocode::fq_codel(&sent, 3, 10e6);
    let of = |received: &[Received], flow| -> Vec<Received> {
        received.iter().filter(|one| sent[one.index].flow == flow).copied().collect()
    };
    let both = |figure: &dyn Fn(&[Received]) -> f64, flow| {
        (figure(&of(&theory, flow)), figure(&of(&model, flow)))
    };
    let marked = |received: &[Received]| received.iter().filter(|one| one.is_marked).count() as f64;
    let dropped = |flow| {
        let all = sent.iter().filter(|packet| packet.flow == flow).count();
        move |received: &[Received]| (all - received.len()) as f64
    };
    let delay = |received: &[Received]| mean(&delays(received));
    // One step of Newton's method stands for the square root, as in Linux: 6 % (docs/lab.md).
    let figure = |name, unit, digits, (theory, model): (f64, f64)| Figure {
        unit,
        digits,
        tolerance: 0.06 * theory,
        ..Figure::new(name, "", theory, model)
    };
    let packets = |name, found| figure(name, "packets", 0, found);
    Case {
        name: "`fq-codel`, `ecn`, three flows",
        figures: vec![
            packets("marked, capable", both(&marked, CAPABLE)),
            packets("dropped, capable", both(&dropped(CAPABLE), CAPABLE)),
            packets("marked, not capable", both(&marked, NOT_CAPABLE)),
            packets("dropped, not capable", both(&dropped(NOT_CAPABLE), NOT_CAPABLE)),
            packets("marked, sparse", both(&marked, SPARSE)),
            packets("dropped, sparse", both(&dropped(SPARSE), SPARSE)),
            figure("delay mean, capable", "ms", 0, both(&delay, CAPABLE)),
            figure("delay mean, not capable", "ms", 0, both(&delay, NOT_CAPABLE)),
            figure("delay mean, sparse", "ms", 2, both(&delay, SPARSE)),
        ],
    }
}

/// Returns datagrams behind CoDel by the pseudocode: lost share and mean delay in each 5 s.
pub(super) fn codel_windows() -> Vec<(f64, f64)> {
    let interval = Duration::from_secs_f64(1.0 / 1041.6667);
    let sent = stream(0, 1500, interval, SEC * 20);
    let received = pseudocode::fq_codel(&sent, 1, 10e6);
    let window = |n: u64| {
        let is_in = |at: Duration| at.as_secs() / 5 == n;
        let all = sent.iter().filter(|packet| is_in(packet.at)).count();
        let inside: Vec<Received> =
            received.iter().filter(|one| is_in(sent[one.index].at)).copied().collect();
        (percent(all - inside.len(), all), mean(&delays(&inside)))
    };
    (0..4).map(window).collect()
}
