//! What came of scenarios: the shape of `--json`, and what tables and pictures are made from.
//! `docs/lab.md` describes it.

use crate::emulator::{FlowKey, Recording, Sample};
use crate::hosts::Hosts;
use crate::network::Outcome;
use crate::scenario::Axis;
use crate::tools::Figures;
use bankfull_control::{Bytes, Rate, pacing};
use serde::Serialize;
use std::cmp::Reverse;
use std::time::Duration;

/// Version of the shape: it changes when a field goes or changes its meaning.
pub const SCHEMA: u32 = 4;

/// Everything of one call of `bankfull-lab run`.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the lab.
    pub version: &'static str,
    /// When it began, in seconds since 1970.
    pub began_unix: u64,
    /// Where it ran.
    pub machine: Machine,
    /// Tools that ran, each with the line that tells its version.
    pub tools: Vec<(String, String)>,
    /// What came of each scenario.
    pub scenarios: Vec<ScenarioResult>,
}

/// A machine.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Congestion control that programs get unless it is pinned.
    pub default_congestion: String,
}

/// What came of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioResult {
    /// Its name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Names of what varies between conditions.
    pub axes: Vec<String>,
    /// What came of each condition.
    pub conditions: Vec<ConditionResult>,
}

/// What came of one condition of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct ConditionResult {
    /// The value of each axis.
    pub values: Vec<String>,
    /// Payload of TCP that the path carries per second at most.
    pub capacity_bps: f64,
    /// Round trip without queues.
    pub rtt_seconds: f64,
    /// What the queue holds.
    pub buffer_bytes: u64,
    /// What came of each contender.
    pub contenders: Vec<ContenderResult>,
}

/// What came of a contender under one condition.
#[derive(Debug, Clone, Serialize)]
pub struct ContenderResult {
    /// What it is called.
    pub name: String,
    /// Its tool.
    pub tool: String,
    /// Congestion control that was pinned; nothing when it was left open.
    pub congestion: Option<String>,
    /// Why it did not run at all.
    pub skipped: Option<String>,
    /// Its runs, those that are void among them.
    pub runs: Vec<RunResult>,
}

/// What came of one run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunResult {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// How often it was tried: all attempts but the last, which this is, were void.
    pub attempts: u32,
    /// Seed of the links.
    pub seed: u64,
    /// Why it must not be believed: it counts in no median.
    pub void: Option<String>,
    /// Why it did not do what it should: it counts in no median.
    pub failed: Option<String>,
    /// What the contender reached.
    pub figures: Figures,
    /// What the network saw; nothing of a run in virtual time.
    pub network: Option<NetworkFigures>,
    /// How it went over time.
    pub series: Series,
}

/// What hosts told of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostFigures {
    /// See [`NetworkFigures::retransmitted`].
    pub retransmitted: Option<u64>,
    /// See [`NetworkFigures::socket_drops`].
    pub socket_drops: Option<u64>,
}

/// What the network saw of a run, at the port towards the receiver.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NetworkFigures {
    /// TCP segments that senders sent again; nothing when a host does not tell.
    pub retransmitted: Option<u64>,
    /// Datagrams that the receiver's sockets dropped for want of room; nothing when it does not
    /// tell.
    pub socket_drops: Option<u64>,
    /// Segments of the hosts that were dropped for want of room in the queue.
    pub dropped: u64,
    /// Those of them that were dropped more than 2 s after the first data had come: when slow start
    /// is over.
    pub dropped_later: u64,
    /// Segments lost on the line.
    pub lost: u64,
    /// Packets, on all ways, for addresses that no host has, and those that are no IPv4 or not
    /// whole: nobody got them. Left out when there were none.
    #[serde(skip_serializing_if = "is_none")]
    pub stray: u64,
    /// Time that a packet waits in the queue, in the mean of the time in which something arrived.
    pub queue_mean_seconds: f64,
    /// The longest such time.
    pub queue_max_seconds: f64,
    /// Fairness between the flows that carry the data: 1 when all got the same (Jain, 1984).
    /// Nothing where these are less than two, their number is not known, or nobody told all of
    /// them apart.
    pub fairness: Option<f64>,
    /// The same between senders, which bring what their flows bring: from 20 s after the last of
    /// them began until the first one ended. Nothing where there is no such time.
    pub sharing: Option<f64>,
    /// What the senders' flows brought in a second, in bits and as data in full segments, from 5 s
    /// after the first data until the last. Nothing where that is no second.
    pub started_bps: Option<f64>,
    /// The same from 10 s after the first data.
    pub settled_bps: Option<f64>,
    /// How late the emulator was at most, for 99 of 100 packets, to read or to deliver them.
    pub lateness_p99_seconds: f64,
}

/// A run over time. Times are seconds since its start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Series {
    /// Ends of the link's intervals.
    pub time: Vec<f64>,
    /// Rate at which bytes arrived in each, headers included.
    pub arrived_bps: Vec<f64>,
    /// Bytes that each of the senders' flows brought to the receiver, headers included; those that
    /// brought least are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowSeries>,
    /// Largest backlog in each.
    pub queue_bytes: Vec<u64>,
    /// Segments dropped or lost in each.
    pub drops: Vec<u64>,
    /// When the first sender's connections were looked at.
    pub sampled: Vec<f64>,
    /// Mean of their smoothed round trips.
    pub rtt_seconds: Vec<f64>,
    /// Sum of their congestion windows.
    pub window_bytes: Vec<f64>,
}

/// One flow over time.
#[derive(Debug, Clone, Serialize)]
pub struct FlowSeries {
    /// Whence, with the port: `10.77.0.1:40000`.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Its number in IP: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// Number of the link's interval in which the first bytes arrived.
    pub first: usize,
    /// Bytes that arrived in that interval and those behind, up to the last in which some did.
    pub bytes: Vec<u64>,
}

/// Most flows of a run whose course is kept, those that brought most. (ours: as many as a picture
/// can tell apart, and a file that stays small)
const FLOWS_KEPT: usize = 8;

/// Where nobody knows how many flows carry the data, those with less than this share of the largest
/// are not kept. (ours: they would be a line at zero)
const FLOW_SHARE_MIN: f64 = 0.001;

/// An interval in which less came has none of a copy's data. (ours: greetings are smaller)
const DATA_MIN: Bytes = Bytes(10_000);

/// So long slow start may take, and so long it may take until transfers share a path. (ours: what
/// SOBAS is to reach)
const SLOW_START: Duration = Duration::from_secs(2);
const SETTLED: Duration = Duration::from_secs(20);

/// A start may take so long, and a search for a number of streams; what comes afterwards is told
/// where it is so long at least. (docs/algorithms/streams.md; ours)
const STARTED: Duration = Duration::from_secs(5);
const SEARCHED: Duration = Duration::from_secs(10);
const SETTLED_MIN: Duration = Duration::from_secs(1);

/// Which flows carry a contender's data.
#[derive(Debug, Clone, Copy)]
pub struct Carriers {
    /// Number of the senders: the first hosts.
    pub senders: usize,
    /// How many flows of all senders, where that is known.
    pub flows: Option<usize>,
}

impl ScenarioResult {
    /// Names of axes: the shortest end of each key that no other has.
    #[must_use]
    pub fn axis_names(axes: &[Axis]) -> Vec<String> {
        let keys: Vec<Vec<&str>> = axes.iter().map(|axis| axis.key.split('.').collect()).collect();
        let short = |key: &Vec<&str>| {
            let ends = (0..key.len()).rev().map(|from| &key[from..]);
            let is_own = |end: &&[&str]| keys.iter().filter(|one| one.ends_with(end)).count() == 1;
            ends.into_iter().find(is_own).unwrap_or(key).join(".")
        };
        keys.iter().map(short).collect()
    }
}

impl ContenderResult {
    /// The runs that count.
    pub fn believed(&self) -> impl Iterator<Item = &RunResult> {
        self.runs.iter().filter(|run| run.void.is_none() && run.failed.is_none())
    }

    /// Smallest, median and largest of a figure over the runs that count and have it.
    #[must_use]
    pub fn spread(&self, of: impl Fn(&RunResult) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.believed().filter_map(of).collect())
    }

    /// The run in the middle of those that count, by goodput.
    #[must_use]
    pub fn typical(&self) -> Option<&RunResult> {
        let mut runs: Vec<&RunResult> = self.believed().collect();
        let goodput = |run: &RunResult| run.figures.goodput_bps.unwrap_or(0.0);
        runs.sort_by(|a, b| goodput(a).total_cmp(&goodput(b)));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

/// How far figures of repetitions are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The one in the middle; of an even number, the mean of both in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// Of some figures; `None` of none.
    #[must_use]
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let count = figures.len();
        let (min, max) = (*figures.first()?, *figures.last()?);
        let median = f64::midpoint(figures[(count - 1) / 2], figures[count / 2]);
        Some(Self { median, min, max, count })
    }
}

impl NetworkFigures {
    /// What an emulator saw; `rate` is that of the port towards the receiver. TCP flows beside
    /// count for the queue and for what was dropped, but not for fairness; cross traffic that is
    /// no host's counts for the queue only.
    #[must_use]
    pub fn of(outcome: &Outcome, rate: Rate, carriers: Carriers, told: HostFigures) -> Self {
        let recording = &outcome.recording;
        let Some((totals, samples)) = recording.totals.last().zip(recording.ports.last()) else {
            return Self::default();
        };
        let wait = |backlog: Bytes| rate.time_for(backlog).unwrap_or_default().as_secs_f64();
        let busy: Vec<f64> = samples
            .iter()
            .filter(|sample| sample.delivered.0 > 0)
            .map(|sample| wait(sample.backlog))
            .collect();
        let longest = samples.iter().map(|sample| sample.backlog_max).max().unwrap_or_default();
        Self {
            retransmitted: told.retransmitted,
            socket_drops: told.socket_drops,
            dropped: totals.overflowed,
            dropped_later: dropped_later(samples),
            lost: totals.lost,
            stray: recording.stray,
            queue_mean_seconds: busy.iter().sum::<f64>() / busy.len().max(1) as f64,
            queue_max_seconds: wait(longest),
            fairness: fairness(recording, carriers),
            sharing: sharing(recording, carriers),
            started_bps: after(STARTED, recording, carriers),
            settled_bps: after(SEARCHED, recording, carriers),
            lateness_p99_seconds: recording.late(0.99).as_secs_f64(),
        }
    }
}

/// The flows of the senders that carry the data, each with its number and the bytes that it brought
/// to the receiver, the largest first. Those that brought nothing are not among them.
fn data_flows(recording: &Recording, carriers: Carriers) -> Vec<(usize, u64)> {
    let is_sender = |flow: &FlowKey| {
        (0..carriers.senders).any(|at| Hosts::address(at) == flow.source)
            && recording.own != Some(*flow)
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
    // What asks for the way beside a copy is no data.
    let protocol = flows.first().map(|(largest, _)| recording.flows[*largest].protocol);
    flows.retain(|(flow, _)| Some(recording.flows[*flow].protocol) == protocol);
    let least = flows.first().map_or(0.0, |(_, largest)| *largest as f64 * FLOW_SHARE_MIN);
    match carriers.flows {
        Some(count) => flows.truncate(count),
        None => flows.retain(|(_, bytes)| *bytes as f64 >= least),
    }
    flows
}

/// Jain's index over the flows that carry the data, of which those that are missing brought none:
/// a starved flow is what it must show. `None` of less than two, and where nothing came or nobody
/// told all flows apart; also where nobody knows how many they are, for no share tells a flow that
/// starves from a connection that only steers. (measured: `bankfull` with small files steers with
/// 3 % of what a data connection brings, `gridftp` with 2 %)
fn fairness(recording: &Recording, carriers: Carriers) -> Option<f64> {
    let flows = data_flows(recording, carriers);
    let count = carriers.flows?;
    if count < 2 || flows.is_empty() || !recording.has_all_flows() {
        return None;
    }
    let shares: Vec<f64> = flows.iter().map(|(_, bytes)| *bytes as f64).collect();
    Some(jain(&shares, count))
}

/// Segments dropped for want of room, when slow start is over.
fn dropped_later(samples: &[Sample]) -> u64 {
    let Some(first) = samples.iter().find(|sample| sample.delivered >= DATA_MIN) else { return 0 };
    let later = samples.iter().filter(|sample| sample.at > first.at + SLOW_START);
    later.map(|sample| sample.overflowed).sum()
}

/// Jain's index over the senders, while all of them send and have had time to find their shares.
fn sharing(recording: &Recording, carriers: Carriers) -> Option<f64> {
    let samples = recording.ports.last()?;
    let of_sender = |sample: &Sample, at: usize| -> u64 {
        let of = |flow: &usize| Hosts::address(at) == recording.flows[*flow].source;
        sample.flows.iter().filter(|(flow, _)| of(flow)).map(|(_, bytes)| bytes.0).sum()
    };
    let moments = |at: usize| {
        let mut busy = samples.iter().filter(|sample| of_sender(sample, at) >= DATA_MIN.0);
        let first = busy.next()?.at;
        Some((first, busy.next_back().map_or(first, |last| last.at)))
    };
    let moments: Vec<_> = (0..carriers.senders).map(moments).collect::<Option<_>>()?;
    let from = moments.iter().map(|(first, _)| *first).max()? + SETTLED;
    let until = moments.iter().map(|(_, last)| *last).min()?;
    let during = || samples.iter().filter(|sample| (from..until).contains(&sample.at));
    if carriers.senders < 2 || during().next().is_none() || !recording.has_all_flows() {
        return None;
    }
    let shares = |at: usize| during().map(|sample| of_sender(sample, at)).sum::<u64>() as f64;
    Some(jain(&(0..carriers.senders).map(shares).collect::<Vec<f64>>(), carriers.senders))
}

/// What the senders' flows brought in a second once they have had some time to find their rate, as
/// data in full segments.
fn after(time: Duration, recording: &Recording, carriers: Carriers) -> Option<f64> {
    let samples = recording.ports.last()?;
    let is_sender = |flow: &usize| {
        (0..carriers.senders).any(|at| Hosts::address(at) == recording.flows[*flow].source)
    };
    let came = |sample: &Sample| -> u64 {
        sample.flows.iter().filter(|(flow, _)| is_sender(flow)).map(|(_, bytes)| bytes.0).sum()
    };
    let mut busy = samples.iter().filter(|sample| came(sample) >= DATA_MIN.0);
    let from = busy.next()?.at + time;
    let until = busy.next_back()?.at;
    let seconds = until.checked_sub(from).filter(|time| *time >= SETTLED_MIN)?.as_secs_f64();
    let during = samples.iter().filter(|sample| sample.at > from && sample.at <= until);
    let bits = during.map(came).sum::<u64>() as f64 * 8.0;
    let share = pacing::DEFAULT_MSS.0 as f64 / pacing::DEFAULT_MTU.0 as f64;
    recording.has_all_flows().then_some(bits / seconds * share)
}

/// Jain's index of so many, of which those that are missing got nothing.
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
    /// What the link recorded; connections are added by whoever looked at them.
    #[must_use]
    pub fn of(recording: &Recording, carriers: Carriers) -> Self {
        let samples = recording.ports.last().map_or(&[][..], Vec::as_slice);
        let rate = |bytes: Bytes| bytes.per(recording.interval).bits_per_sec() as f64;
        let carried = data_flows(recording, carriers).into_iter().take(FLOWS_KEPT);
        let mut kept: Vec<usize> = carried.map(|(flow, _)| flow).collect();
        kept.sort_unstable();
        Self {
            time: samples.iter().map(|sample| rounded(sample.at)).collect(),
            arrived_bps: samples.iter().map(|sample| rate(sample.delivered)).collect(),
            flows: kept.into_iter().map(|flow| FlowSeries::of(recording, flow)).collect(),
            queue_bytes: samples.iter().map(|sample| sample.backlog_max.0).collect(),
            drops: samples.iter().map(|sample| sample.overflowed + sample.lost).collect(),
            ..Self::default()
        }
    }
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Seconds, to the microsecond.
#[must_use]
pub fn rounded(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::Sample;
    use std::collections::BTreeMap;

    #[test]
    fn medians_and_extremes_are_those_of_the_runs_that_count() {
        assert_eq!(Spread::of(Vec::new()), None);
        let found = Spread::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((found.median, found.min, found.max, found.count), (2.5, 1.0, 10.0, 4));
        let run = |goodput: f64, void: bool| RunResult {
            repetition: 1,
            attempts: 1,
            seed: 1,
            void: void.then(|| "late".to_owned()),
            failed: None,
            figures: Figures { goodput_bps: Some(goodput), ..Figures::default() },
            network: None,
            series: Series::default(),
        };
        let result = ContenderResult {
            name: "one".to_owned(),
            tool: "tcp".to_owned(),
            congestion: None,
            skipped: None,
            runs: vec![run(1.0, false), run(100.0, true), run(3.0, false), run(2.0, false)],
        };
        let found = result.spread(|run| run.figures.goodput_bps).unwrap();
        assert_eq!((found.median, found.max, found.count), (2.0, 3.0, 3));
        assert_eq!(result.typical().unwrap().figures.goodput_bps, Some(2.0));
    }

    #[test]
    fn packets_for_nobody_are_told_where_there_were_some() {
        let json = |stray| {
            let figures = NetworkFigures { stray, ..NetworkFigures::default() };
            serde_json::to_value(figures).unwrap()
        };
        assert_eq!(json(3)["stray"], 3);
        assert!(json(0).get("stray").is_none());
    }

    #[test]
    fn axes_are_called_by_the_end_of_their_key_that_no_other_has() {
        let names = |keys: &[&str]| {
            let axis = |key: &&str| Axis { key: (*key).to_owned(), values: Vec::new() };
            ScenarioResult::axis_names(&keys.iter().map(axis).collect::<Vec<_>>())
        };
        assert_eq!(names(&["path.buffer", "run.seed"]), ["buffer", "seed"]);
        assert_eq!(names(&["path.rate", "senders.rate"]), ["path.rate", "senders.rate"]);
        assert_eq!(names(&["path"]), ["path"]);
        assert_eq!(names(&["rate", "path.rate"]), ["rate", "path.rate"]);
    }

    #[test]
    fn the_course_of_each_flow_of_the_senders_is_kept_from_its_first_byte_to_its_last() {
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
        let of = |senders, flows| Carriers { senders, flows };
        let found = Series::of(&recording, of(1, None)).flows;
        assert_eq!(found.len(), 2, "that of another host is none of the senders'");
        assert_eq!((found[0].from.as_str(), found[0].to.as_str()), ("10.77.0.1:7", "10.77.0.3:8"));
        assert_eq!((found[0].first, &found[0].bytes[..]), (1, &[500, 0, 100][..]));
        assert_eq!(Series::of(&recording, of(2, None)).flows.len(), 2, "a small one is left out");
        assert_eq!(Series::of(&recording, of(2, Some(3))).flows.len(), 3, "where it may be none");
        assert_eq!(Series::of(&recording, of(2, Some(1))).flows[0].from, "10.77.0.2:7");
        let recording = Recording { own: Some(key(1)), ..recording };
        assert_eq!(Series::of(&recording, of(1, None)).flows.len(), 0, "that of the lab");
    }

    #[test]
    fn senders_share_what_comes_when_all_have_had_time() {
        let key = |host| FlowKey {
            source: [10, 77, 0, host].into(),
            destination: [10, 77, 0, 3].into(),
            protocol: 6,
            source_port: 1,
            destination_port: 2,
        };
        // The second one begins at 5 s and has all of the path until 20 s later; then both have
        // half, until the first one ends at 40 s.
        let shares = |second: u64| match second {
            0..5 => [1_000_000, 0],
            5..25 => [0, 1_000_000],
            25..40 => [500_000, 500_000],
            _ => [0, 1_000_000],
        };
        let sample = |second: u64| Sample {
            at: Duration::from_secs(second + 1),
            delivered: Bytes(1_000_000),
            overflowed: second,
            flows: shares(second).map(Bytes).into_iter().enumerate().collect(),
            ..Sample::default()
        };
        let samples: Vec<Sample> = (0..50).map(sample).collect();
        assert_eq!(dropped_later(&samples), (3..50).sum::<u64>());
        let recording = Recording {
            flows: vec![key(1), key(2)],
            ports: vec![Vec::new(), samples],
            ..Recording::default()
        };
        // The two together, from 11 s after the beginning on; of the first alone half.
        let from = |time| {
            let recording = &recording;
            move |senders| after(time, recording, Carriers { senders, flows: None }).unwrap()
        };
        let (settled, line) = (from(SEARCHED), 8e6 * 1448.0 / 1500.0);
        assert!((from(STARTED)(2) - line).abs() < 1.0, "{}", from(STARTED)(2));
        assert!((settled(2) - line).abs() < 1.0, "{}", settled(2));
        assert!((settled(1) / line - 7.5 / 29.0).abs() < 1e-3, "{}", settled(1) / line);
        let of = |senders| sharing(&recording, Carriers { senders, flows: None });
        assert_eq!((of(1), of(2), of(3)), (None, Some(1.0), None));
    }

    #[test]
    fn fairness_is_one_for_equal_flows_and_shows_those_that_starve() {
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
            fairness(&recording(shares), Carriers { senders: 1, flows })
        };
        let is_near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 0.01;
        assert_eq!(of(&[500, 500], Some(2)), Some(1.0));
        assert_eq!(of(&[500; 200], Some(200)), Some(1.0));
        // Two have nothing, one almost nothing, one only steers.
        assert_eq!(of(&[500, 500], Some(4)), Some(0.5));
        assert!(is_near(of(&[500, 500, 1], Some(3)), 0.67));
        assert_eq!(of(&[500, 1, 500], Some(2)), Some(1.0));
        assert_eq!(of(&[500, 1], Some(1)), None);
        assert_eq!(of(&[], Some(2)), None, "nothing came");
        assert_eq!(of(&[500, 500, 5], None), None, "does the third starve, or only steer?");
        let nobodys = Carriers { senders: 0, flows: Some(2) };
        assert_eq!(fairness(&recording(&[500, 500]), nobodys), None, "others do not count");
        let with_own = Recording { own: Some(key), ..recording(&[500, 500]) };
        let two = Carriers { senders: 1, flows: Some(2) };
        assert_eq!(fairness(&with_own, two), None, "the lab's own is no contender's");
        let udp = FlowKey { protocol: 17, ..key };
        let with_udp = Recording { flows: vec![key, udp, key], ..recording(&[500, 400, 500]) };
        assert_eq!(fairness(&with_udp, two), Some(1.0), "beside the data");
        assert_eq!(of(&[500; 4096], Some(2)), None, "there may be more than are told apart");
    }
}
