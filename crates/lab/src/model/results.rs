//! Results of scenarios: the schema of `--json`, described in `docs/lab.md`, and the input of
//! tables and charts.

use crate::model::background::BackgroundMetrics;
use crate::model::metrics::Metrics;
use serde::Serialize;
use std::time::Duration;

/// Version of the schema; incremented when a field is removed or changes its meaning.
pub const SCHEMA: u32 = 5;

/// Results of one `bankfull-lab run`.
#[derive(Debug, Clone, Serialize)]
pub struct LabResults {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the lab.
    pub version: &'static str,
    /// Start, in seconds since 1970.
    pub began_unix: u64,
    /// Machine that ran it.
    pub machine: Machine,
    /// Tools that ran, each with its version line.
    pub tools: Vec<(String, String)>,
    /// Results of each scenario.
    pub scenarios: Vec<ScenarioResult>,
}

/// Description of a machine.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Default congestion control of programs, unless pinned.
    pub default_congestion: String,
}

/// Result of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioResult {
    /// Name.
    pub name: String,
    /// Title.
    pub title: String,
    /// Names of the swept keys.
    pub axes: Vec<String>,
    /// Results of each condition.
    pub conditions: Vec<ConditionResult>,
}

/// Result of one condition of a scenario.
#[derive(Debug, Clone, Serialize)]
pub struct ConditionResult {
    /// Value of each axis.
    pub values: Vec<String>,
    /// Capacity for TCP payload in bit/s.
    pub capacity_bps: f64,
    /// RTT without queueing, in seconds.
    pub rtt_seconds: f64,
    /// Buffer of the bottleneck's queue, in bytes.
    pub buffer_bytes: u64,
    /// Results of each contender.
    pub contenders: Vec<ContenderResult>,
}

/// Result of a contender under one condition.
#[derive(Debug, Clone, Serialize)]
pub struct ContenderResult {
    /// Name in results.
    pub name: String,
    /// Tool.
    pub tool: String,
    /// Pinned congestion control; `None` if left open.
    pub congestion: Option<String>,
    /// Reason why it was skipped.
    pub skipped: Option<String>,
    /// Runs, void ones included.
    pub runs: Vec<RunResult>,
}

/// Result of one run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunResult {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Number of attempts; all but the last were void, and this is the last.
    pub attempts: u32,
    /// Seed of the links.
    pub seed: u64,
    /// Reason why the run is void; it counts in no median.
    pub void: Option<String>,
    /// Reason why the run failed; it counts in no median.
    pub failed: Option<String>,
    /// Metrics of the contender.
    pub metrics: Metrics,
    /// Metrics of the network; `None` for a run in ns-3.
    pub network: Option<NetworkMetrics>,
    /// Results of simulated cross traffic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundMetrics>,
    /// Time series.
    pub series: Series,
}

/// Kernel counters of the hosts of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostCounters {
    /// See [`NetworkMetrics::retransmits`].
    pub retransmits: Option<u64>,
    /// See [`NetworkMetrics::socket_drops`].
    pub socket_drops: Option<u64>,
}

/// Metrics of the port towards the receiver.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NetworkMetrics {
    /// TCP segments retransmitted by the senders; `None` if a counter is unavailable.
    pub retransmits: Option<u64>,
    /// Datagrams dropped by the receiver's sockets for lack of buffer; `None` if unavailable.
    pub socket_drops: Option<u64>,
    /// Segments of the hosts dropped by the queue, its discipline, and the policer.
    pub dropped: u64,
    /// Segments dropped more than 2 s after the first data, when slow start is over.
    pub dropped_after_2s: u64,
    /// Segments marked by the queueing discipline (ECN); omitted if zero.
    #[serde(skip_serializing_if = "is_zero")]
    pub marked: u64,
    /// Segments lost on the link.
    pub lost: u64,
    /// Packets on all paths to unknown addresses, or that are not complete IPv4; omitted if zero.
    #[serde(skip_serializing_if = "is_zero")]
    pub stray: u64,
    /// Mean queueing delay in seconds, over intervals in which something arrived.
    pub queue_mean_seconds: f64,
    /// Largest queueing delay in seconds.
    pub queue_max_seconds: f64,
    /// Jain's fairness index of the flows that carry the data. 1 if all got the same (Jain 1984).
    /// `None` for fewer than two flows, an unknown number, or untracked flows.
    pub fairness: Option<f64>,
    /// Jain's index of the senders while all run. Measured from 20 s after the last one started
    /// until the first one ended. `None` without such a time.
    pub sender_fairness: Option<f64>,
    /// Rate of the senders' flows, as payload of full segments in bit/s. Measured from 5 s after
    /// the first data to the last. `None` if that is less than 1 s.
    pub rate_after_5s_bps: Option<f64>,
    /// The same rate from 10 s after the first data.
    pub rate_after_10s_bps: Option<f64>,
    /// Metrics of the time for which tools send; `None` without data.
    pub sending: Option<SendingMetrics>,
    /// 99th percentile of the emulator's lateness in reading or delivering packets, in seconds.
    pub lateness_p99_seconds: f64,
}

/// Metrics of [`crate::model::settings::RunSettings::duration`] from the first data on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SendingMetrics {
    /// Rate of the senders' data flows, as payload of full segments in bit/s.
    pub arrival_bps: f64,
    /// Rate of all other traffic on the link, headers included, in bit/s.
    pub beside_bps: f64,
    /// Median queueing delay in the second half, in seconds.
    pub standing_queue_seconds: f64,
}

/// Time series of a run; times are seconds since its start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Series {
    /// Ends of the recording intervals.
    pub time: Vec<f64>,
    /// Changes of the line's rate by the word `steps`: time, and new rate in bit/s.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate_changes: Vec<(f64, u64)>,
    /// Rate at which bytes arrived in each interval, headers included.
    pub arrived_bps: Vec<f64>,
    /// Flows of the senders with the most bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowSeries>,
    /// Largest backlog in each interval, in bytes.
    pub queue_bytes: Vec<u64>,
    /// Segments dropped or lost in each interval.
    pub drops: Vec<u64>,
    /// Sample times of the first sender's connections.
    pub sampled: Vec<f64>,
    /// Mean smoothed RTT of these connections, in seconds.
    pub rtt_seconds: Vec<f64>,
    /// Sum of their congestion windows, in bytes.
    pub cwnd_bytes: Vec<f64>,
}

/// Time series of one flow.
#[derive(Debug, Clone, Serialize)]
pub struct FlowSeries {
    /// Source address and port: `10.77.0.1:40000`.
    pub from: String,
    /// Destination address and port.
    pub to: String,
    /// IP protocol number: 6 is TCP, 17 is UDP.
    pub protocol: u8,
    /// Index of the interval in which the first bytes arrived.
    pub first: usize,
    /// Bytes in that interval and the following ones, headers included. Ends with the last interval
    /// in which some arrived.
    pub bytes: Vec<u64>,
}

impl ContenderResult {
    /// Runs that are neither void nor failed.
    pub fn valid_runs(&self) -> impl Iterator<Item = &RunResult> {
        self.runs.iter().filter(|run| run.void.is_none() && run.failed.is_none())
    }

    /// Median, minimum and maximum of a metric over the valid runs that have it.
    #[must_use]
    pub fn summary(&self, of: impl Fn(&RunResult) -> Option<f64>) -> Option<Summary> {
        Summary::of(self.valid_runs().filter_map(of).collect())
    }

    /// Median of the valid runs, by goodput.
    #[must_use]
    pub fn median_run(&self) -> Option<&RunResult> {
        let mut runs: Vec<&RunResult> = self.valid_runs().collect();
        let goodput = |run: &RunResult| run.metrics.goodput_bps.unwrap_or(0.0);
        runs.sort_by(|a, b| goodput(a).total_cmp(&goodput(b)));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

/// Median, minimum and maximum of repeated measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Median; the mean of both middle values for an even count.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

impl Summary {
    /// Summarizes values; `None` if there are none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (min, max) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        Some(Self { median, min, max, count })
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Seconds, rounded to microseconds.
#[must_use]
pub fn round_seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_covers_valid_runs_only() {
        assert_eq!(Summary::of(Vec::new()), None);
        let found = Summary::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((found.median, found.min, found.max, found.count), (2.5, 1.0, 10.0, 4));
        let run = |goodput: f64, void: bool| RunResult {
            repetition: 1,
            attempts: 1,
            seed: 1,
            void: void.then(|| "late".to_owned()),
            failed: None,
            metrics: Metrics { goodput_bps: Some(goodput), ..Metrics::default() },
            network: None,
            background: Vec::new(),
            series: Series::default(),
        };
        let result = ContenderResult {
            name: "one".to_owned(),
            tool: "tcp".to_owned(),
            congestion: None,
            skipped: None,
            runs: vec![run(1.0, false), run(100.0, true), run(3.0, false), run(2.0, false)],
        };
        let found = result.summary(|run| run.metrics.goodput_bps).unwrap();
        assert_eq!((found.median, found.max, found.count), (2.0, 3.0, 3));
        assert_eq!(result.median_run().unwrap().metrics.goodput_bps, Some(2.0));
    }

    #[test]
    fn stray_packets_are_omitted_if_zero() {
        let json = |stray| {
            let metrics = NetworkMetrics { stray, ..NetworkMetrics::default() };
            serde_json::to_value(metrics).unwrap()
        };
        assert_eq!(json(3)["stray"], 3);
        assert!(json(0).get("stray").is_none());
    }
}
