//! Analysis of recordings: network metrics, fairness, rates and time series.

use crate::model::results::{
    FlowSeries, HostCounters, NetworkMetrics, SendingMetrics, Series, round_seconds,
};
use crate::topology::emulator::{FlowKey, Recording, Sample};
use crate::topology::hosts::Hosts;
use crate::topology::network::Outcome;
use bankfull_control::{Bytes, Rate, pacing};
use bankfull_sim::link::rate::RateVariation;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// Largest number of flows with a time series. (chosen: distinguishable in a chart, and small in a
/// file)
const MAX_FLOW_SERIES: usize = 8;

/// Smallest share of the largest flow for a time series. Used if the number of data flows is
/// unknown. (chosen: smaller ones would be a line at zero)
const MIN_FLOW_SHARE: f64 = 0.001;

/// Smallest number of bytes that marks an interval as carrying data. (chosen: handshakes are
/// smaller)
const MIN_DATA_BYTES: Bytes = Bytes(10_000);

/// Number of bytes after which data has begun however slowly it arrives. (chosen: handshakes of all
/// connections are smaller)
const MIN_TOTAL_BYTES: Bytes = Bytes(30_000);

/// Time allowed for slow start, and for senders to share a path. (chosen: the aim of SOBAS)
const SLOW_START_TIME: Duration = Duration::from_secs(2);

const SHARING_WARMUP: Duration = Duration::from_secs(20);

/// Times after which the rates are reported: for the start, and for the search for a number of
/// streams (docs/algorithms/streams.md); and the shortest time for such a rate.
/// (chosen: start and search have mostly ended)
const START_TIME: Duration = Duration::from_secs(5);

const STREAM_SEARCH_TIME: Duration = Duration::from_secs(10);

const MIN_RATE_SPAN: Duration = Duration::from_secs(1);

/// Selection of the flows that carry a contender's data.
#[derive(Debug, Clone, Copy)]
pub struct DataFlows {
    /// Number of senders: the first hosts.
    pub senders: usize,
    /// Number of flows of all senders, if known.
    pub flows: Option<usize>,
}

impl NetworkMetrics {
    /// Metrics of an emulated run; `rate` is that of the port towards the receiver.
    ///
    /// Flows of `cross-tcp` count for the queue and its drops, but not for fairness; `path.cross`
    /// counts for the queue's length only.
    #[must_use]
    pub fn of(
        outcome: &Outcome,
        rate: Rate,
        data_flows: DataFlows,
        counters: HostCounters,
    ) -> Self {
        let recording = &outcome.recording;
        let Some((totals, samples)) = recording.totals.last().zip(recording.ports.last()) else {
            return Self::default();
        };
        let wait = |backlog: Bytes| rate.time_for(backlog).unwrap_or_default();
        let busy: Vec<f64> = samples
            .iter()
            .filter(|sample| sample.delivered.0 > 0)
            .map(|sample| sample.queueing_delay.as_secs_f64())
            .collect();
        // Longest wait of an interval: that of its largest backlog, or more at a lower rate.
        let longest =
            samples.iter().map(|sample| wait(sample.max_backlog).max(sample.queueing_delay)).max();
        Self {
            retransmits: counters.retransmits,
            socket_drops: counters.socket_drops,
            dropped: totals.dropped(),
            dropped_after_2s: dropped_after_start(samples),
            marked: totals.marked,
            lost: totals.lost,
            stray: recording.stray,
            queue_mean_seconds: busy.iter().sum::<f64>() / busy.len().max(1) as f64,
            queue_max_seconds: longest.unwrap_or_default().as_secs_f64(),
            fairness: fairness(recording, data_flows),
            sender_fairness: sender_fairness(recording, data_flows),
            rate_after_5s_bps: rate_after(START_TIME, recording, data_flows),
            rate_after_10s_bps: rate_after(STREAM_SEARCH_TIME, recording, data_flows),
            sending: None,
            lateness_p99_seconds: recording.lateness_quantile(0.99).as_secs_f64(),
        }
    }
}

impl SendingMetrics {
    /// Metrics of a time from the first data on; `None` without data.
    #[must_use]
    pub fn of(recording: &Recording, data_flows: DataFlows, time: Duration) -> Option<Self> {
        let samples = recording.ports.last()?;
        let flows: BTreeSet<usize> =
            rank_data_flows(recording, data_flows).into_iter().map(|(flow, _)| flow).collect();
        let bytes = |sample: &Sample| -> u64 {
            let of_data = sample.flows.iter().filter(|(flow, _)| flows.contains(flow));
            of_data.map(|(_, bytes)| bytes.0).sum()
        };
        let mut so_far = 0;
        let first = samples.iter().find(|sample| {
            so_far += bytes(sample);
            bytes(sample) >= MIN_DATA_BYTES.0 || so_far >= MIN_TOTAL_BYTES.0
        })?;
        // The interval of the first data belongs to the time.
        let start = first.at.saturating_sub(recording.interval);
        let during = |from: Duration| {
            samples.iter().filter(move |one| one.at > from && one.at <= start + time)
        };
        let per_second = |bytes: u64| bytes as f64 * 8.0 / time.as_secs_f64();
        let carried: u64 = during(start).map(|sample| sample.carried.0).sum();
        let delivered: u64 = during(start).map(|sample| sample.delivered.0).sum();
        let mut queue: Vec<Duration> =
            during(start + time / 2).map(|sample| sample.queueing_delay).collect();
        queue.sort_unstable();
        let share = pacing::DEFAULT_MSS.0 as f64 / pacing::DEFAULT_MTU.0 as f64;
        Some(Self {
            arrival_bps: per_second(during(start).map(bytes).sum()) * share,
            beside_bps: per_second(carried.saturating_sub(delivered)),
            standing_queue_seconds: queue.get(queue.len() / 2).map_or(0.0, Duration::as_secs_f64),
        })
    }
}

/// Returns the senders' flows that carry the data, the largest first. Each has its index and bytes.
/// Excludes flows without bytes.
fn rank_data_flows(recording: &Recording, data_flows: DataFlows) -> Vec<(usize, u64)> {
    let is_sender = |flow: &FlowKey| {
        (0..data_flows.senders).any(|at| Hosts::address(at) == flow.source)
            && recording.check_flow != Some(*flow)
    };
    let mut by_flow = vec![0; recording.flows.len()];
    for (flow, bytes) in recording.ports.last().into_iter().flatten().flat_map(|s| &s.flows) {
        if is_sender(&recording.flows[*flow]) {
            by_flow[*flow] += bytes.0;
        }
    }
    let mut flows: Vec<(usize, u64)> =
        by_flow.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0).collect();
    flows.sort_by_key(|(_, bytes)| Reverse(*bytes));
    // UDP probes of a copy carry no data, but on a slow path more than one of many streams.
    let protocol = |flow: &usize| recording.flows[*flow].protocol;
    let bytes_of = |of: u8| -> u64 {
        flows.iter().filter(|(flow, _)| protocol(flow) == of).map(|(_, bytes)| bytes).sum()
    };
    let of_data = flows.iter().map(|(flow, _)| protocol(flow)).max_by_key(|&of| bytes_of(of));
    flows.retain(|(flow, _)| Some(protocol(flow)) == of_data);
    let least = flows.first().map_or(0.0, |(_, largest)| *largest as f64 * MIN_FLOW_SHARE);
    match data_flows.flows {
        Some(count) => flows.truncate(count),
        None => flows.retain(|(_, bytes)| *bytes as f64 >= least),
    }
    flows
}

/// Jain's index of the data flows; missing flows count as zero, so that starvation shows.
///
/// `None` for fewer than two flows, without data, or with untracked flows; also if the number of
/// flows is unknown, since a starved flow then looks like a control connection. (measured:
/// control connections of `bankfull` with small files carry 3 % of a data connection, of `gridftp`
/// 2 %)
fn fairness(recording: &Recording, data_flows: DataFlows) -> Option<f64> {
    let flows = rank_data_flows(recording, data_flows);
    let count = data_flows.flows?;
    if count < 2 || flows.is_empty() || !recording.tracked_all_flows() {
        return None;
    }
    let shares: Vec<f64> = flows.iter().map(|(_, bytes)| *bytes as f64).collect();
    Some(jain(&shares, count))
}

/// Segments dropped by the port after slow start.
fn dropped_after_start(samples: &[Sample]) -> u64 {
    let Some(first) = samples.iter().find(|sample| sample.delivered >= MIN_DATA_BYTES) else {
        return 0;
    };
    let later = samples.iter().filter(|sample| sample.at > first.at + SLOW_START_TIME);
    later.map(|sample| sample.dropped).sum()
}

/// Jain's index of the senders, while all send and have had time to converge.
fn sender_fairness(recording: &Recording, data_flows: DataFlows) -> Option<f64> {
    let samples = recording.ports.last()?;
    let of_sender = |sample: &Sample, at: usize| -> u64 {
        let of = |flow: &usize| Hosts::address(at) == recording.flows[*flow].source;
        sample.flows.iter().filter(|(flow, _)| of(flow)).map(|(_, bytes)| bytes.0).sum()
    };
    let moments = |at: usize| {
        let mut busy = samples.iter().filter(|sample| of_sender(sample, at) >= MIN_DATA_BYTES.0);
        let first = busy.next()?.at;
        Some((first, busy.next_back().map_or(first, |last| last.at)))
    };
    let moments: Vec<_> = (0..data_flows.senders).map(moments).collect::<Option<_>>()?;
    let from = moments.iter().map(|(first, _)| *first).max()? + SHARING_WARMUP;
    let until = moments.iter().map(|(_, last)| *last).min()?;
    let during = || samples.iter().filter(|sample| (from..until).contains(&sample.at));
    if data_flows.senders < 2 || during().next().is_none() || !recording.tracked_all_flows() {
        return None;
    }
    let shares = |at: usize| during().map(|sample| of_sender(sample, at)).sum::<u64>() as f64;
    Some(jain(&(0..data_flows.senders).map(shares).collect::<Vec<f64>>(), data_flows.senders))
}

/// Returns the rate of the senders' flows from `time` after the first data. Counts payload of full
/// segments.
fn rate_after(time: Duration, recording: &Recording, data_flows: DataFlows) -> Option<f64> {
    let samples = recording.ports.last()?;
    let is_sender = |flow: &usize| {
        (0..data_flows.senders).any(|at| Hosts::address(at) == recording.flows[*flow].source)
    };
    let arrived = |sample: &Sample| -> u64 {
        sample.flows.iter().filter(|(flow, _)| is_sender(flow)).map(|(_, bytes)| bytes.0).sum()
    };
    let mut busy = samples.iter().filter(|sample| arrived(sample) >= MIN_DATA_BYTES.0);
    let from = busy.next()?.at + time;
    let until = busy.next_back()?.at;
    let seconds = until.checked_sub(from).filter(|time| *time >= MIN_RATE_SPAN)?.as_secs_f64();
    let during = samples.iter().filter(|sample| sample.at > from && sample.at <= until);
    let bits = during.map(arrived).sum::<u64>() as f64 * 8.0;
    let share = pacing::DEFAULT_MSS.0 as f64 / pacing::DEFAULT_MTU.0 as f64;
    recording.tracked_all_flows().then_some(bits / seconds * share)
}

/// Jain's index of `count` shares; missing ones are zero.
fn jain(shares: &[f64], count: usize) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    shares.iter().sum::<f64>().powi(2) / (count as f64 * squares)
}

impl FlowSeries {
    fn of(recording: &Recording, number: usize) -> Self {
        let samples = recording.ports.last().map_or(&[][..], Vec::as_slice);
        let bytes = samples.iter().map(|s| s.flows.get(&number).copied().unwrap_or_default().0);
        let mut bytes: Vec<u64> = bytes.collect();
        let first = bytes.iter().position(|bytes| *bytes > 0).unwrap_or(bytes.len());
        let end = bytes.iter().rposition(|bytes| *bytes > 0).map_or(first, |last| last + 1);
        bytes.truncate(end);
        let key = &recording.flows[number];
        Self {
            from: format!("{}:{}", key.source, key.source_port),
            to: format!("{}:{}", key.destination, key.destination_port),
            protocol: key.protocol,
            first,
            bytes: bytes.split_off(first.min(end)),
        }
    }
}

impl Series {
    /// Time series of the link; the caller adds the samples of connections.
    #[must_use]
    pub fn of(recording: &Recording, data_flows: DataFlows) -> Self {
        let samples = recording.ports.last().map_or(&[][..], Vec::as_slice);
        let rate = |bytes: Bytes| bytes.per(recording.interval).bits_per_sec() as f64;
        let carried = rank_data_flows(recording, data_flows).into_iter().take(MAX_FLOW_SERIES);
        let mut selected: Vec<usize> = carried.map(|(flow, _)| flow).collect();
        selected.sort_unstable();
        Self {
            time: samples.iter().map(|sample| round_seconds(sample.at)).collect(),
            arrived_bps: samples.iter().map(|sample| rate(sample.delivered)).collect(),
            flows: selected.into_iter().map(|flow| FlowSeries::of(recording, flow)).collect(),
            queue_bytes: samples.iter().map(|sample| sample.max_backlog.0).collect(),
            drops: samples.iter().map(|sample| sample.dropped + sample.lost).collect(),
            ..Self::default()
        }
    }
}

/// Times and new rates of a line with steps.
///
/// Steps and samples have the clock of the emulator: both count from its start.
pub(super) fn rate_changes(variation: &RateVariation) -> Vec<(f64, u64)> {
    let RateVariation::Steps(steps) = variation else { return Vec::new() };
    steps.iter().map(|(at, rate)| (round_seconds(*at), rate.bits_per_sec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn steps_are_on_the_clock_of_samples() {
        let step = |seconds, bps| (Duration::from_secs(seconds), Rate::from_bits_per_sec(bps));
        let steps = RateVariation::Steps(vec![step(6, 25e6), step(11, 50e6)]);
        assert_eq!(rate_changes(&steps), [(6.0, 25_000_000), (11.0, 50_000_000)]);
        assert_eq!(rate_changes(&RateVariation::Constant), []);
    }

    #[test]
    fn flow_series_span_first_to_last_byte() {
        let sample = |shares: &[(usize, u64)]| Sample {
            flows: shares.iter().map(|(flow, bytes)| (*flow, Bytes(*bytes))).collect(),
            ..Sample::default()
        };
        let key = |host: u8| FlowKey {
            source: [10, 77, 0, host].into(),
            destination: [10, 77, 0, 3].into(),
            protocol: 6,
            source_port: 7,
            destination_port: 8,
        };
        let samples =
            [&[][..], &[(0, 500), (2, 8)], &[(1, 900)], &[(0, 100), (2, 1)], &[(1, 9_000)]];
        let recording = Recording {
            flows: vec![key(1), key(2), key(1)],
            ports: vec![Vec::new(), samples.map(sample).to_vec()],
            ..Recording::default()
        };
        let of = |senders, flows| DataFlows { senders, flows };
        let found = Series::of(&recording, of(1, None)).flows;
        assert_eq!(found.len(), 2, "that of another host is none of the senders'");
        assert_eq!((found[0].from.as_str(), found[0].to.as_str()), ("10.77.0.1:7", "10.77.0.3:8"));
        assert_eq!((found[0].first, &found[0].bytes[..]), (1, &[500, 0, 100][..]));
        assert_eq!(Series::of(&recording, of(2, None)).flows.len(), 2, "a small one is left out");
        assert_eq!(Series::of(&recording, of(2, Some(3))).flows.len(), 3, "three flows expected");
        assert_eq!(Series::of(&recording, of(2, Some(1))).flows[0].from, "10.77.0.2:7");
        let recording = Recording { check_flow: Some(key(1)), ..recording };
        assert_eq!(Series::of(&recording, of(1, None)).flows.len(), 0, "that of the lab");
    }

    #[test]
    fn probes_that_exceed_each_stream_are_no_data() {
        let key = |protocol: u8| FlowKey {
            source: [10, 77, 0, 1].into(),
            destination: [10, 77, 0, 3].into(),
            protocol,
            source_port: 7,
            destination_port: 8,
        };
        let bytes = [(0, 300), (1, 200), (2, 200)].map(|(flow, bytes)| (flow, Bytes(bytes)));
        let sample = Sample { flows: bytes.into_iter().collect(), ..Sample::default() };
        let recording = Recording {
            flows: vec![key(17), key(6), key(6)],
            ports: vec![vec![sample]],
            ..Recording::default()
        };
        let found = rank_data_flows(&recording, DataFlows { senders: 1, flows: None });
        assert_eq!(found.iter().map(|(flow, _)| *flow).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn sending_metrics_cover_time_from_first_data_on() {
        let key = FlowKey {
            source: [10, 77, 0, 1].into(),
            destination: [10, 77, 0, 3].into(),
            protocol: 6,
            source_port: 1,
            destination_port: 2,
        };
        // Data from 2 s on, of which 4 s count; half of what the link carries is that of others.
        let sample = |second: u64| Sample {
            at: Duration::from_secs(second),
            delivered: Bytes(15_000),
            carried: Bytes(if second < 6 { 30_000 } else { 90_000 }),
            queueing_delay: Duration::from_millis(second),
            flows: [(0, Bytes(if second < 2 { 60 } else { 15_000 }))].into_iter().collect(),
            ..Sample::default()
        };
        let recording = Recording {
            interval: Duration::from_secs(1),
            flows: vec![key],
            ports: vec![(0..20).map(sample).collect()],
            ..Recording::default()
        };
        let data_flows = DataFlows { senders: 1, flows: Some(1) };
        let found = SendingMetrics::of(&recording, data_flows, Duration::from_secs(4)).unwrap();
        assert!((found.arrival_bps - 14_480.0 * 8.0).abs() < 1e-6, "{found:?}");
        assert!((found.beside_bps - 15_000.0 * 8.0).abs() < 1e-6, "{found:?}");
        assert!((found.standing_queue_seconds - 5e-3).abs() < 1e-9, "{found:?}");
        // A slow link never carries much in an interval.
        let slow = |second: u64| Sample {
            at: Duration::from_secs(second),
            flows: [(0, Bytes(1000))].into_iter().collect(),
            ..Sample::default()
        };
        let ports = vec![(0..90).map(slow).collect()];
        let recording = Recording { ports, ..recording };
        let found = SendingMetrics::of(&recording, data_flows, Duration::from_secs(4)).unwrap();
        assert!((found.arrival_bps - 8000.0 * 1448.0 / 1500.0).abs() < 1e-6, "{found:?}");
        let none = Recording::default();
        assert_eq!(SendingMetrics::of(&none, data_flows, Duration::from_secs(4)), None);
    }

    #[test]
    fn sender_fairness_covers_common_time() {
        let key = |host| FlowKey {
            source: [10, 77, 0, host].into(),
            destination: [10, 77, 0, 3].into(),
            protocol: 6,
            source_port: 1,
            destination_port: 2,
        };
        // The second sender starts at 5 s and has the whole path until 25 s; then both have half,
        // until the first one ends at 40 s.
        let shares = |second: u64| match second {
            0..5 => [1_000_000, 0],
            5..25 => [0, 1_000_000],
            25..40 => [500_000, 500_000],
            _ => [0, 1_000_000],
        };
        let sample = |second: u64| Sample {
            at: Duration::from_secs(second + 1),
            delivered: Bytes(1_000_000),
            dropped: second,
            flows: shares(second).map(Bytes).into_iter().enumerate().collect(),
            ..Sample::default()
        };
        let samples: Vec<Sample> = (0..50).map(sample).collect();
        assert_eq!(dropped_after_start(&samples), (3..50).sum::<u64>());
        let recording = Recording {
            flows: vec![key(1), key(2)],
            ports: vec![Vec::new(), samples],
            ..Recording::default()
        };
        // Rates of both from 11 s after the start; the first alone has half.
        let from = |time| {
            let recording = &recording;
            move |senders| rate_after(time, recording, DataFlows { senders, flows: None }).unwrap()
        };
        let (settled, line) = (from(STREAM_SEARCH_TIME), 8e6 * 1448.0 / 1500.0);
        assert!((from(START_TIME)(2) - line).abs() < 1.0, "{}", from(START_TIME)(2));
        assert!((settled(2) - line).abs() < 1.0, "{}", settled(2));
        assert!((settled(1) / line - 7.5 / 29.0).abs() < 1e-3, "{}", settled(1) / line);
        let of = |senders| sender_fairness(&recording, DataFlows { senders, flows: None });
        assert_eq!((of(1), of(2), of(3)), (None, Some(1.0), None));
    }

    #[test]
    fn fairness_counts_starved_flows() {
        let sample = |shares: &[u64]| Sample {
            flows: shares.iter().map(|bytes| Bytes(*bytes)).enumerate().collect::<BTreeMap<_, _>>(),
            ..Sample::default()
        };
        let key = FlowKey {
            source: [10, 77, 0, 1].into(),
            destination: [10, 77, 0, 2].into(),
            protocol: 6,
            source_port: 1,
            destination_port: 2,
        };
        let recording = |shares: &[u64]| Recording {
            flows: vec![key; shares.len()],
            ports: vec![Vec::new(), vec![sample(shares), sample(shares)]],
            ..Recording::default()
        };
        let of = |shares: &[u64], flows: Option<usize>| {
            fairness(&recording(shares), DataFlows { senders: 1, flows })
        };
        let is_near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 0.01;
        assert_eq!(of(&[500, 500], Some(2)), Some(1.0));
        assert_eq!(of(&[500; 200], Some(200)), Some(1.0));
        // Two flows without bytes, one with almost none, one control connection.
        assert_eq!(of(&[500, 500], Some(4)), Some(0.5));
        assert!(is_near(of(&[500, 500, 1], Some(3)), 0.67));
        assert_eq!(of(&[500, 1, 500], Some(2)), Some(1.0));
        assert_eq!(of(&[500, 1], Some(1)), None);
        assert_eq!(of(&[], Some(2)), None, "nothing came");
        assert_eq!(
            of(&[500, 500, 5], None),
            None,
            "is the third a starved flow or a control connection?"
        );
        let no_senders = DataFlows { senders: 0, flows: Some(2) };
        assert_eq!(fairness(&recording(&[500, 500]), no_senders), None, "others do not count");
        let with_own = Recording { check_flow: Some(key), ..recording(&[500, 500]) };
        let two = DataFlows { senders: 1, flows: Some(2) };
        assert_eq!(fairness(&with_own, two), None, "the lab's own flow is not a contender's");
        let udp = FlowKey { protocol: 17, ..key };
        let with_udp = Recording { flows: vec![key, udp, key], ..recording(&[500, 400, 500]) };
        assert_eq!(fairness(&with_udp, two), Some(1.0), "another protocol");
        assert_eq!(of(&[500; 4096], Some(2)), None, "further flows may be untracked");
    }
}
