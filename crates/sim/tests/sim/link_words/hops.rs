//! Two bottlenecks in a row: `first-hop`.

use super::bench::in_ms;
use super::{Case, Figure};
use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::world::ExternalPackets;
use bankfull_sim::{Burst, Ecn, LinkConfig, PathConfig, World};
use std::time::Duration;

/// Bytes and bits of a full packet.
const PACKET: u32 = 1500;
const PACKET_BITS: f64 = PACKET as f64 * 8.0;

/// One-way delay of the path.
const DELAY_MS: f64 = 20.0;

/// Places in the queues of first hop and path, with the packet in transmission.
const FIRST_QUEUE: u64 = 10;
const QUEUE: u64 = 20;

/// Interval of datagrams: 13.3 Mbit/s.
const INTERVAL: Duration = Duration::from_micros(900);

/// Packets behind both links: losses of each, and the delays of those that arrive.
struct Crossed {
    lost: [u64; 2],
    /// Arrival and delay in ms, in order of arrival.
    received: Vec<(f64, f64)>,
}

/// Carries packets that are sent at given times through a first hop and a path.
fn cross(first_mbit: f64, path_mbit: f64, sent: &[Duration]) -> Crossed {
    let bytes = |packets: u64| Bytes(packets * u64::from(PACKET));
    let rtt = MS * (2.0 * DELAY_MS) as u32;
    let mut path = PathConfig::new(mbit(path_mbit), rtt, bytes(QUEUE));
    let buffer = bytes(FIRST_QUEUE);
    path.first_hop =
        Some(LinkConfig { rate: Some(mbit(first_mbit)), buffer, ..LinkConfig::default() });
    let mut world = World::<usize>::with_external(1);
    let route = world.add_path(&path);
    for (content, &at) in sent.iter().enumerate() {
        let external = ExternalPackets {
            content,
            burst: Burst::packet(PACKET),
            first: 0,
            flow: 1,
            ecn: Ecn::NotCapable,
            is_pure_ack: false,
            max_run: 1,
            route: route.forward.clone().into(),
            not_before: Duration::ZERO,
            echo_hop: None,
            echoed_at: None,
        };
        world.inject(at, external);
    }
    world.run_until(SEC * 10);
    let lost = [0, 1].map(|hop| world.counts(route.forward[hop]).dropped());
    let arrivals = world.take_external_arrivals(|_| true);
    let received = arrivals.iter().map(|one| (in_ms(one.at), in_ms(one.at - sent[one.content])));
    Crossed { lost, received: received.collect() }
}

fn time(name: &'static str, note: &'static str, theory: f64, model: f64) -> Figure {
    Figure { unit: "ms", tolerance: 1e-3, ..Figure::new(name, note, theory, model) }
}

/// Burst of packets, fewer than a queue holds, through both links.
///
/// Each packet takes the time of both transmissions, and they leave in the longer of the two.
pub(super) fn burst(case: &'static str, first_mbit: f64, path_mbit: f64) -> Case {
    let count = FIRST_QUEUE as usize;
    let crossed = cross(first_mbit, path_mbit, &vec![Duration::ZERO; count]);
    let [first, path] = [first_mbit, path_mbit].map(|rate| PACKET_BITS / rate / 1e3);
    let gaps = crossed.received.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let (least, most) =
        gaps.fold((f64::MAX, 0.0), |(a, b): (f64, f64), gap| (a.min(gap), b.max(gap)));
    let delay = |at: usize| crossed.received.get(at).map_or(f64::NAN, |one| one.1);
    let alone = DELAY_MS + first + path;
    let last = alone + (count - 1) as f64 * first.max(path);
    Case {
        name: case,
        figures: vec![
            time("delay of the first", "both transmissions", alone, delay(0)),
            time("delay of the last", "and 9 times the longer one", last, delay(count - 1)),
            time("least gap", "the longer transmission", first.max(path), least),
            time("largest gap", "", first.max(path), most),
        ],
    }
}

/// Datagrams at 13.3 Mbit/s through both links, for 2.7 s.
///
/// A link passes what it sends from its first to its last arrival, and its queue; the rest is lost.
pub(super) fn overload(case: &'static str, first_mbit: f64, path_mbit: f64) -> Case {
    const COUNT: u32 = 3000;
    let sent: Vec<Duration> = (0..COUNT).map(|n| INTERVAL * n).collect();
    let crossed = cross(first_mbit, path_mbit, &sent);
    let [first, path] = [first_mbit, path_mbit].map(|rate| PACKET_BITS / rate / 1e3);
    let passes = |count: f64, arriving_ms: f64, each_ms: f64, queue: u64| {
        count.min((arriving_ms / each_ms + queue as f64).floor())
    };
    let offered = f64::from(COUNT);
    let behind_first = passes(offered, (offered - 1.0) * in_ms(INTERVAL), first, FIRST_QUEUE);
    let interval = first.max(in_ms(INTERVAL));
    let delivered = passes(behind_first, (behind_first - 1.0) * interval, path, QUEUE);
    // A queue of the path forms behind a faster first hop only.
    let wait = if path > first { QUEUE as f64 * path } else { path };
    let longest = DELAY_MS + FIRST_QUEUE as f64 * first + wait;
    let count = |name, note, theory, model: u64| Figure {
        unit: "packets",
        digits: 0,
        ..Figure::new(name, note, theory, model as f64)
    };
    let delay = crossed.received.iter().map(|one| one.1).fold(0.0, f64::max);
    Case {
        name: case,
        figures: vec![
            count("lost at the first hop", "", offered - behind_first, crossed.lost[0]),
            count("lost at the path", "", behind_first - delivered, crossed.lost[1]),
            count("delivered", "", delivered, crossed.received.len() as u64),
            Figure { tolerance: 0.2, ..time("delay max", "the queues that fill", longest, delay) },
        ],
    }
}
