//! Tests of links without variation, and of what varies.

use super::queue::QueueConfig;
use super::*;
use crate::cross_traffic::CrossTraffic;
use crate::loss::Loss;
use bankfull_control::Bytes;
use bankfull_control::Rate;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn link(rate_mbit: f64, delay_ms: u32, buffer: u64) -> Link<()> {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_sec(rate_mbit * 1e6)),
        delay: MS * delay_ms,
        buffer: Bytes(buffer),
        ..LinkConfig::default()
    };
    Link::new(config, 1)
}

/// Offers a burst; returns first segment, number and arrival time of each run.
fn offer(link: &mut Link<()>, now: Duration, burst: Burst) -> Vec<(u32, u32, Duration)> {
    link.offer(now, Packets::new(burst, 0, ()));
    let mut arrivals = Vec::new();
    link.take_arrivals(&mut arrivals);
    arrivals.iter().map(|run| (run.first, run.count, run.at)).collect()
}

#[test]
fn packet_takes_transmission_time_plus_delay() {
    // 1250 bytes at 10 Mbit/s are 1 ms.
    let mut link = link(10.0, 20, 10_000);
    let run = |arrives| vec![(0, 1, arrives)];
    assert_eq!(offer(&mut link, MS, Burst::packet(1250)), run(MS * 22));
    assert_eq!(offer(&mut link, MS, Burst::packet(1250)), run(MS * 23), "it queues");
    assert_eq!(link.backlog(MS), Bytes(2500));
    assert_eq!(link.backlog(MS * 2), Bytes(1250));
    assert_eq!(offer(&mut link, MS * 10, Burst::packet(1250)), run(MS * 31), "idle again");
}

#[test]
fn full_queue_drops_tail_of_burst_only() {
    let mut link = link(1000.0, 0, 15_000);
    let burst = Burst { segments: 12, segment_bytes: 1500, last_bytes: 700 };
    let runs = offer(&mut link, MS, burst);
    // Ten full segments fill the buffer; the eleventh and the small last one are dropped.
    assert_eq!(runs.iter().map(|run| (run.0, run.1)).collect::<Vec<_>>(), [(0, 10)]);
    assert_eq!(link.counts().overflowed, 2);
    assert_eq!(link.counts().delivered_bytes, Bytes(15_000));
}

#[test]
fn long_burst_is_split_into_quanta() {
    let mut link = link(100.0, 5, 1 << 20);
    let burst = Burst { segments: 44, segment_bytes: 1500, last_bytes: 1500 };
    let runs = offer(&mut link, Duration::ZERO, burst);
    // 1500 bytes are 120 µs: four of them stay below 525 µs.
    assert!(runs.iter().all(|run| run.1 == 4), "{runs:?}");
    assert_eq!(runs.len(), 11);
    assert_eq!(runs[0].2, Duration::from_micros(5480));
    assert_eq!(runs[10].2, Duration::from_micros(5000 + 44 * 120));
}

#[test]
fn lost_segment_splits_burst() {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_sec(1e9)),
        loss: Loss::Random { probability: 0.1 },
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 3);
    let burst = Burst { segments: 40, segment_bytes: 1500, last_bytes: 1500 };
    let runs = offer(&mut link, Duration::ZERO, burst);
    let delivered: u32 = runs.iter().map(|run| run.1).sum();
    assert!(runs.len() > 1 && delivered < 40, "{runs:?}");
    assert_eq!(u64::from(delivered), link.counts().delivered);
    assert_eq!(link.counts().lost + link.counts().delivered, 40);
    assert!(runs.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0));
}

#[test]
fn excess_of_constant_rate_is_dropped() {
    for (sent_mbit, expected) in [(80.0, 0.0), (100.0, 0.0), (125.0, 0.2), (200.0, 0.5)] {
        let mut link = link(100.0, 10, 50_000);
        let gap = Duration::from_secs_f64(12_000.0 / (sent_mbit * 1e6));
        for n in 0..100_000 {
            offer(&mut link, gap * n, Burst::packet(1500));
        }
        let counts = link.counts();
        let lost = counts.overflowed as f64 / counts.offered as f64;
        assert!((lost - expected).abs() < 0.001, "{sent_mbit}: {lost}");
    }
}

#[test]
fn cross_traffic_gets_proportional_share() {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_sec(100e6)),
        buffer: Bytes(30_000),
        cross: CrossTraffic::Poisson { rate: Rate::from_bits_per_sec(50e6) },
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 9);
    // Equal intervals would be synchronous with the line, and take each place as it becomes
    // free.
    let mut rng = fastrand::Rng::with_seed(5);
    let mut now = Duration::ZERO;
    for _ in 0..100_000 {
        now += Duration::from_nanos(rng.u64(0..240_000));
        offer(&mut link, now, Burst::packet(1500));
    }
    let counts = link.counts();
    let all = counts.delivered + counts.cross_sent;
    assert!((all as f64 / 100_000.0 - 1.0).abs() < 0.01, "the line is full: {counts:?}");
    let share = counts.cross_sent as f64 / all as f64;
    assert!((0.3..0.37).contains(&share), "one third of the offered load: {share}");
}

#[test]
fn cut_link_loses_all_until_restored() {
    let mut link = link(1000.0, 1, 1 << 20);
    link.set_cut(true);
    assert!(offer(&mut link, MS, Burst::packet(1500)).is_empty());
    link.set_cut(false);
    assert_eq!(offer(&mut link, MS * 2, Burst::packet(1500)).len(), 1);
    assert_eq!(link.counts().lost, 1);
}

#[test]
fn infinitely_fast_link_only_delays() {
    let config = LinkConfig { delay: MS * 7, ..LinkConfig::default() };
    let burst = Burst { segments: 40, segment_bytes: 1500, last_bytes: 10 };
    let runs = offer(&mut Link::new(config, 1), MS, burst);
    assert_eq!(runs, [(0, 40, MS * 8)]);
}

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec(rate * 1e6)
}

/// Result of packets of 1500 bytes at a constant rate: counters, and delays in ms in each second.
fn send_at(config: LinkConfig, sent_mbit: f64, seconds: u32, ecn: Ecn) -> (LinkCounts, Vec<f64>) {
    let mut link = Link::new(config, 4);
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut now, mut arrivals) = (Duration::ZERO, Vec::new());
    let mut sums = vec![(0.0, 0u32); seconds as usize + 60];
    while now < MS * 1000 * seconds {
        // Equal intervals would be synchronous with the line.
        now += Duration::from_secs_f64(12_000.0 / (sent_mbit * 1e6) * 2.0 * rng.f64());
        while let Some(at) = link.next_event_at().filter(|at| *at <= now) {
            link.advance(at);
        }
        link.offer(now, Packets { ecn, ..Packets::new(Burst::packet(1500), 7, now) });
        link.take_arrivals(&mut arrivals);
        for arrival in arrivals.drain(..) {
            let (sum, count) = &mut sums[arrival.at.as_secs() as usize];
            *sum += (arrival.at - arrival.payload).as_secs_f64() * 1e3;
            *count += arrival.count;
        }
    }
    let delays = sums.iter().take(seconds as usize).map(|(sum, count)| sum / f64::from(*count));
    (link.counts(), delays.collect())
}

/// Link without a queue.
fn impaired(delay_ms: u32, change: impl FnOnce(&mut Impairments)) -> LinkConfig {
    let mut config = LinkConfig { delay: MS * delay_ms, ..LinkConfig::default() };
    change(&mut config.impairments);
    config
}

fn queue(queue: QueueConfig) -> LinkConfig {
    let buffer = Bytes(1_000_000);
    LinkConfig { rate: Some(mbit(10.0)), buffer, queue, ..LinkConfig::default() }
}

#[test]
fn codel_takes_long_to_control_constant_overload() {
    // 1.1 times the rate: 83 of 917 packets a second must go. The k-th drop comes 200 ms · √k after
    // control began (RFC 8289 §4.4): until 69 are dropped in a second, the queue grows for 700 ms.
    let codel = QueueConfig::Codel(Default::default());
    let (counts, delays) = send_at(queue(codel), 11.0, 60, Ecn::NotCapable);
    assert!(delays[0] > 15.0 && delays[1] > 30.0, "{delays:?}");
    let late = &delays[10..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((15.0..50.0).contains(&mean), "{mean} {delays:?}");
    let dropped = counts.early_dropped as f64 / counts.offered as f64;
    assert!((0.08..0.11).contains(&dropped) && counts.overflowed == 0, "{counts:?}");
}

#[test]
fn codel_leaves_short_queues_alone() {
    let (counts, delays) =
        send_at(queue(QueueConfig::Codel(Default::default())), 8.0, 20, Ecn::NotCapable);
    assert_eq!(counts.dropped(), 0, "{delays:?}");
}

#[test]
fn marks_replace_drops_for_capable_packets() {
    for kind in [
        QueueConfig::Codel(Default::default()),
        QueueConfig::FqCodel(Default::default()),
        QueueConfig::Pie(Default::default()),
    ] {
        let config = LinkConfig { ecn: true, ..queue(kind) };
        let (capable, _) = send_at(config.clone(), 10.5, 20, Ecn::Capable);
        // PIE drops capable packets as well above 10 %, as this flow does not respond to marks.
        let drops = !matches!(kind, QueueConfig::Pie(_));
        assert!(capable.marked > 20, "{kind:?} {capable:?}");
        assert!(!drops || capable.early_dropped == 0, "{kind:?} {capable:?}");
        let (other, _) = send_at(config, 10.5, 20, Ecn::NotCapable);
        assert!(other.early_dropped > 20 && other.marked == 0, "{kind:?} {other:?}");
    }
}

#[test]
fn pie_holds_its_target_delay() {
    let (counts, delays) =
        send_at(queue(QueueConfig::Pie(Default::default())), 12.5, 60, Ecn::NotCapable);
    let mean = delays[30..].iter().sum::<f64>() / 30.0;
    assert!((10.0..25.0).contains(&mean), "the target is 15 ms: {mean}, {delays:?}");
    let dropped = counts.early_dropped as f64 / counts.offered as f64;
    assert!((0.18..0.22).contains(&dropped), "one fifth is too much: {dropped}");
}

#[test]
fn fair_queue_protects_sparse_flow() {
    let mut link = Link::new(queue(QueueConfig::FqCodel(Default::default())), 1);
    let (mut arrivals, mut worst) = (Vec::new(), Duration::ZERO);
    let mut arrived = [0u32; 2];
    for step in 0..100_000u32 {
        let now = Duration::from_micros(100) * step;
        while let Some(at) = link.next_event_at().filter(|at| *at <= now) {
            link.advance(at);
        }
        // A flood of 1.2 times the rate; 1 % of it every 10 ms.
        if step.is_multiple_of(10) {
            link.offer(now, Packets::new(Burst::packet(1500), 1, (1, now)));
        }
        if step.is_multiple_of(100) {
            link.offer(now, Packets::new(Burst::packet(125), 2, (2, now)));
        }
        link.take_arrivals(&mut arrivals);
        for arrival in arrivals.drain(..) {
            let (flow, sent) = arrival.payload;
            arrived[flow - 1] += 1;
            if flow == 2 {
                worst = worst.max(arrival.at - sent);
            }
        }
    }
    assert!(arrived[1] >= 999, "{arrived:?}");
    // Two packets of 1500 bytes take 2.4 ms.
    assert!(worst <= Duration::from_micros(2600), "{worst:?}");
}

#[test]
fn new_flow_sends_one_packet_in_its_first_turn() {
    let mut link = Link::new(queue(QueueConfig::FqCodel(Default::default())), 1);
    let burst = Burst { segments: 4, segment_bytes: 1500, last_bytes: 1500 };
    link.offer(MS, Packets::new(burst, 1, 1));
    link.advance(MS * 3);
    link.offer(MS * 3, Packets::new(burst, 2, 2));
    link.offer(MS * 3, Packets::new(Burst::packet(100), 3, 3));
    link.advance(MS * 1000);
    let mut arrivals = Vec::new();
    link.take_arrivals(&mut arrivals);
    let order: Vec<u32> = arrivals.iter().map(|arrival| arrival.payload).collect();
    // A quantum is one packet of 1500 bytes: with 1514, the second flow sends two before the third.
    assert_eq!(order, [1, 1, 2, 3, 2, 1, 2, 1, 2]);
}

#[test]
fn full_fair_queue_drops_from_longest_flow() {
    let config =
        LinkConfig { buffer: Bytes(30_000), ..queue(QueueConfig::FqCodel(Default::default())) };
    let mut link = Link::new(config, 1);
    link.offer(MS, Packets::new(Burst::packet(1500), 2, 2));
    let flood = Burst { segments: 43, segment_bytes: 1500, last_bytes: 1500 };
    link.offer(MS, Packets::new(flood, 1, 1));
    assert!(link.backlog(MS) <= Bytes(31_500));
    link.advance(MS * 1000);
    let mut arrivals = Vec::new();
    link.take_arrivals(&mut arrivals);
    assert!(arrivals.iter().any(|arrival| arrival.payload == 2));
    let counts = link.counts();
    assert_eq!(counts.overflowed + counts.delivered, 44);
    assert!((5..=21).contains(&counts.delivered), "{counts:?}");
}

#[test]
fn later_acknowledgement_takes_the_place_of_an_earlier_one() {
    let config = LinkConfig {
        rate: Some(mbit(0.08)),
        thins_acks: true,
        buffer: Bytes(3000),
        ..LinkConfig::default()
    };
    // 100 bytes take 10 ms.
    let mut link = Link::new(config, 1);
    let packet = |number, flow, is_pure_ack| Packets {
        is_pure_ack,
        ..Packets::new(Burst::packet(100), flow, number)
    };
    for (number, flow, is_ack) in [
        (1, 1, true),
        (2, 1, true),
        (3, 2, true),
        (4, 1, true),
        (5, 1, false),
        (6, 1, true),
        (7, 2, true),
    ] {
        link.offer(MS, packet(number, flow, is_ack));
    }
    link.advance(MS * 1000);
    let mut arrivals = Vec::new();
    link.take_arrivals(&mut arrivals);
    let order: Vec<(u32, u32)> =
        arrivals.iter().map(|one| (one.payload, one.at.as_millis() as u32)).collect();
    // The first is in transmission; data is never replaced, nor overtaken.
    assert_eq!(order, [(1, 11), (4, 21), (7, 31), (5, 41), (6, 51)]);
    assert_eq!(link.counts().thinned_acks, 2);
}

#[test]
fn jitter_keeps_order_unless_told_otherwise() {
    for (reorders, period) in [(false, 0), (true, 0), (false, 20)] {
        let jitter = Jitter { max: MS * 8, period: MS * period, reorders };
        let config = impaired(20, |impairments| impairments.jitter = Some(jitter));
        let mut link = Link::new(config, 3);
        let mut at = Vec::new();
        for n in 0..20_000 {
            at.extend(offer(&mut link, MS * n / 4, Burst::packet(1500)).iter().map(|run| run.2));
        }
        let delays: Vec<f64> = at
            .iter()
            .enumerate()
            .map(|(n, at)| (*at - MS * n as u32 / 4).as_secs_f64() * 1e3)
            .collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!(delays.iter().all(|delay| (20.0..28.1).contains(delay)), "{reorders}");
        let is_sorted = at.is_sorted();
        assert_eq!(is_sorted, !reorders);
        // Uniform means 4 ms; a packet behind a late one is late as well.
        let expected = if reorders || period > 0 { 23.5..24.7 } else { 26.0..28.0 };
        assert!(expected.contains(&mean), "{reorders} {period}: {mean}");
    }
}

#[test]
fn reordered_and_duplicated_segments_have_their_shares() {
    let config = impaired(10, |impairments| {
        impairments.reordering = Some(Reordering { share: 0.01, delay: MS * 4 });
        impairments.duplication = 0.02;
    });
    let mut link = Link::new(config, 3);
    let (mut late, mut all) = (0, 0);
    for n in 0..100_000 {
        let now = MS * n;
        let runs = offer(&mut link, now, Burst::packet(1500));
        late += u32::from(runs[0].2 == now + MS * 14);
        all += runs.len();
    }
    assert!((900..1100).contains(&late), "{late}");
    assert!((101_800..102_200).contains(&all), "{all}");
    assert_eq!(link.counts().duplicated, all as u64 - 100_000);
}

#[test]
fn aggregated_packets_arrive_with_their_frame() {
    let mut config = impaired(5, |impairments| impairments.aggregation = Some(MS * 4));
    config.rate = Some(mbit(12.0));
    config.quantum = MS * 4;
    let mut link = Link::new(config, 1);
    let burst = Burst { segments: 6, segment_bytes: 1500, last_bytes: 1500 };
    // Each packet takes 1 ms; frames leave at 4 ms and 8 ms.
    assert_eq!(offer(&mut link, Duration::ZERO, burst), [(0, 4, MS * 9), (4, 2, MS * 13)]);
}

#[test]
fn reroute_changes_delay_and_smaller_mtu_drops() {
    let config = impaired(10, |impairments| {
        impairments.delay_changes = vec![(MS * 100, MS * 50), (MS * 200, MS * 5)];
        impairments.mtu_changes = vec![(MS * 300, 1400)];
    });
    let mut link = Link::new(config, 1);
    for (at, arrives) in [(99, 109), (100, 150), (250, 255)] {
        assert_eq!(offer(&mut link, MS * at, Burst::packet(1500)), [(0, 1, MS * arrives)]);
    }
    assert!(offer(&mut link, MS * 300, Burst::packet(1500)).is_empty());
    assert_eq!(offer(&mut link, MS * 300, Burst::packet(1400)).len(), 1);
    assert_eq!(link.counts().too_long, 1);
}

#[test]
fn policed_segments_are_counted() {
    let policer = rate::Policer { rate: mbit(10.0), burst: Bytes(15_000) };
    let config = LinkConfig { policer: Some(policer), ..LinkConfig::default() };
    let (counts, delays) = send_at(config, 12.5, 20, Ecn::NotCapable);
    let share = counts.policed as f64 / counts.offered as f64;
    assert!((0.19..0.21).contains(&share) && delays.iter().all(|delay| *delay == 0.0), "{share}");
}

#[test]
fn queue_without_line_rate_passes_at_once() {
    for kind in [QueueConfig::Codel(Default::default()), QueueConfig::Pie(Default::default())] {
        let mut link = Link::new(LinkConfig { rate: None, ..queue(kind) }, 1);
        assert_eq!(offer(&mut link, MS, Burst::packet(1500)), [(0, 1, MS)]);
    }
}
