//! Packets that cross a link, and what arrives.

use crate::MS;
use bankfull_sim::{Burst, Ecn, Link, LinkConfig, Packets};
use std::time::Duration;

/// Interval of datagrams at 1000 a second.
pub(super) const DATAGRAM_INTERVAL: Duration = MS;

/// Packet that enters a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Duration,
    pub(super) bytes: u32,
    pub(super) flow: u64,
    pub(super) ecn: Ecn,
    pub(super) is_pure_ack: bool,
}

/// Arrival of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    /// Index of the packet in those sent.
    pub(super) index: usize,
    pub(super) at: Duration,
    /// Time since the packet was sent.
    pub(super) delay: Duration,
    pub(super) is_marked: bool,
}

/// Returns packets of a flow at a constant interval, from zero until a time.
pub(super) fn stream(flow: u64, bytes: u32, interval: Duration, until: Duration) -> Vec<Sent> {
    let count = until.as_nanos().div_ceil(interval.as_nanos()) as u32;
    let sent = |n| Sent { at: interval * n, bytes, flow, ecn: Ecn::NotCapable, is_pure_ack: false };
    (0..count).map(sent).collect()
}

/// Carries packets, in the order of their times, over a link; returns arrivals in order of time.
pub(super) fn carry(config: &LinkConfig, seed: u64, sent: &[Sent]) -> Vec<Received> {
    let mut link = Link::new(config.clone(), seed);
    for (index, packet) in sent.iter().enumerate() {
        advance_to(&mut link, packet.at);
        let &Sent { bytes, flow, ecn, is_pure_ack, .. } = packet;
        let packets = Packets::new(Burst::packet(bytes), flow, index);
        link.offer(packet.at, Packets { ecn, is_pure_ack, ..packets });
    }
    advance_to(&mut link, Duration::MAX);
    let mut arrivals = Vec::new();
    link.take_arrivals(&mut arrivals);
    let received = |arrival: bankfull_sim::Arrival<usize>| Received {
        index: arrival.payload,
        at: arrival.at,
        delay: arrival.at - sent[arrival.payload].at,
        is_marked: arrival.is_marked,
    };
    let mut received: Vec<Received> = arrivals.into_iter().map(received).collect();
    received.sort_by_key(|one| one.at);
    received
}

fn advance_to(link: &mut Link<usize>, end: Duration) {
    while let Some(at) = link.next_event_at().filter(|at| *at <= end) {
        link.advance(at);
    }
}

/// Returns a time in ms.
pub(super) fn in_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the delays of arrivals in ms, in ascending order.
pub(super) fn delays(received: &[Received]) -> Vec<f64> {
    let mut delays: Vec<f64> = received.iter().map(|one| in_ms(one.delay)).collect();
    delays.sort_by(f64::total_cmp);
    delays
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns a percentile of ascending values.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[percent * (sorted.len() - 1) / 100]
}

/// Returns a percentage.
pub(super) fn percent(part: usize, of: usize) -> f64 {
    100.0 * part as f64 / of as f64
}

/// Returns the longest time between consecutive arrivals, in ms.
pub(super) fn longest_gap(received: &[Received]) -> f64 {
    let gaps = received.windows(2).map(|pair| pair[1].at - pair[0].at);
    in_ms(gaps.max().unwrap_or_default())
}

/// Returns the number of packets that arrive after one that was sent later (RFC 4737 §3.3).
pub(super) fn reordered(received: &[Received]) -> usize {
    let mut highest = 0;
    let is_late = |one: &&Received| {
        highest = highest.max(one.index);
        one.index < highest
    };
    received.iter().filter(is_late).count()
}
