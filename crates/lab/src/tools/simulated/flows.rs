//! Flows of a contender in the simulator, and observations of their bottlenecks.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::model::background::BackgroundMetrics;
use crate::model::job::Job;
use crate::model::metrics::Metrics;
use crate::model::plan::{CROSS_LEAD, FlowSpec};
use crate::model::results::{NetworkMetrics, RunResult, SendingMetrics};
use bankfull_control::{Bytes, pacing};
use bankfull_sim::World;
use bankfull_sim::link::LinkCounts;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::world::{FlowConfig, FlowId, Route};
use std::time::Duration;

/// Interval of samples of the queue. (chosen: as the recordings of real runs)
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Time allowed for slow start. (as for real runs)
const SLOW_START_TIME: Duration = Duration::from_secs(2);

/// Share of payload in a full packet.
const PAYLOAD_SHARE: f64 = pacing::DEFAULT_MSS.0 as f64 / pacing::DEFAULT_MTU.0 as f64;

/// Algorithm of a name, if the simulator has it.
pub(super) fn algorithm(congestion: Option<&str>) -> Option<Algorithm> {
    match congestion? {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::NewReno),
        "bbr" => Some(Algorithm::Bbr),
        "quic" => Some(Algorithm::Quic),
        _ => None,
    }
}

/// Algorithm of a name, or an error that names the choice.
pub(super) fn known_algorithm(congestion: Option<&str>) -> Result<Algorithm> {
    let unknown =
        || LabError::Usage("the model supports cubic, reno, bbr and quic only".to_owned());
    algorithm(congestion).ok_or_else(unknown)
}

/// World with the path of a job and its cross traffic.
pub(super) struct Stage<'j, F> {
    job: &'j Job<'j>,
    pub(super) world: World<F>,
    pub(super) route: Route,
    /// Time counts from the first data, as for live flows, which are already connected.
    pub(super) begin: Duration,
    cross: Vec<FlowId>,
}

/// Results of a contender's own flows.
pub(super) struct OwnResult {
    pub(super) delivered: Bytes,
    pub(super) retransmits: u64,
}

/// Observations of the bottlenecks.
struct Observed {
    /// Queueing delay of each sample, in seconds; that of a first hop is added.
    queue: Vec<f64>,
    /// Counters when slow start was over.
    after_start: LinkCounts,
}

impl<'j, F: Clone> Stage<'j, F> {
    pub(super) fn new(job: &'j Job<'j>) -> Self {
        let mut world = World::with_external(job.seed);
        let route = world.add_path(job.path);
        let is_alone = job.cross.is_empty() && job.beside.is_empty();
        let begin = if is_alone { Duration::ZERO } else { CROSS_LEAD };
        Self { job, world, route, begin, cross: Vec::new() }
    }

    /// Adds flows that start at a time.
    pub(super) fn add(&mut self, kind: &FlowSpec<'_>, start: Duration) -> Result<Vec<FlowId>> {
        let mut flow = FlowConfig::new(&self.route);
        flow.algorithm = known_algorithm(kind.congestion)?;
        flow.receive_window = kind.window.unwrap_or(flow.receive_window);
        flow.ecn = self.job.has_ecn;
        flow.start = start;
        Ok((0..kind.count).map(|_| self.world.add_flow(flow.clone())).collect())
    }

    /// Adds the cross traffic of the scenario.
    pub(super) fn add_cross(&mut self) -> Result<()> {
        for kind in &self.job.cross {
            let flows = self.add(kind, Duration::ZERO)?;
            self.cross.extend(flows);
        }
        Ok(())
    }

    /// Runs for the time of the job; `run_until` runs the world until a time.
    pub(super) fn run(
        mut self,
        name: &'static str,
        deadline: &Deadline<'_>,
        mut run_until: impl FnMut(&mut World<F>, Duration),
        own: impl FnOnce(&World<F>) -> OwnResult,
    ) -> Result<RunResult> {
        let (begin, end) = (self.begin, self.begin + self.job.duration);
        run_until(&mut self.world, begin);
        let beside_before = self.beside();
        let mut observed = Observed { queue: Vec::new(), after_start: self.counts() };
        let mut until = begin;
        while until < end {
            deadline.check(name)?;
            until = (until + SAMPLE_INTERVAL).min(end);
            run_until(&mut self.world, until);
            let forward = self.route.forward.iter();
            let delay: Duration =
                forward.map(|&link| self.world.queueing_delay_at(link, until)).sum();
            observed.queue.push(delay.as_secs_f64());
            if until <= begin + SLOW_START_TIME {
                observed.after_start = self.counts();
            }
        }
        let own = own(&self.world);
        Ok(self.result(&own, &observed, beside_before))
    }

    /// Counters of the port towards the receiver, with drops and marks of a first hop.
    fn counts(&self) -> LinkCounts {
        // A path has a link towards the receiver.
        let (hops, port) = self.route.forward.split_at(self.route.forward.len() - 1);
        let mut counts = self.world.counts(port[0]);
        hops.iter().for_each(|&hop| counts.add_losses(&self.world.counts(hop)));
        counts
    }

    /// Delivered bytes of `cross-tcp`, and of simulated cross traffic.
    fn beside(&self) -> (u64, u64) {
        let cross = self.cross.iter().map(|&flow| self.world.stats(flow).delivered.0).sum();
        let background = self.world.background_reports();
        (cross, background.iter().map(|report| report.delivered.0).sum())
    }

    fn result(&self, own: &OwnResult, observed: &Observed, before: (u64, u64)) -> RunResult {
        let time = self.job.duration;
        let per_second = |bytes: u64| bytes as f64 * 8.0 / time.as_secs_f64();
        let beside = self.beside();
        let cross_bps = per_second(beside.0 - before.0);
        let beside_bps = cross_bps + per_second(beside.1 - before.1);
        let metrics = Metrics {
            cross_bps: (!self.cross.is_empty()).then_some(cross_bps),
            ..Metrics::of_transfer(own.delivered, time)
        };
        let queue = &observed.queue;
        let mut late = queue[queue.len() / 2..].to_vec();
        late.sort_by(f64::total_cmp);
        let sending = SendingMetrics {
            arrival_bps: per_second(own.delivered.0),
            beside_bps: beside_bps / PAYLOAD_SHARE,
            standing_queue_seconds: late.get(late.len() / 2).copied().unwrap_or_default(),
        };
        let counts = self.counts();
        let network = NetworkMetrics {
            retransmits: Some(own.retransmits),
            dropped: counts.dropped(),
            dropped_after_2s: counts.dropped() - observed.after_start.dropped(),
            marked: counts.marked,
            lost: counts.lost,
            queue_mean_seconds: queue.iter().sum::<f64>() / queue.len().max(1) as f64,
            queue_max_seconds: queue.iter().copied().fold(0.0, f64::max),
            sending: Some(sending),
            ..NetworkMetrics::default()
        };
        let reports = self.world.background_reports();
        let background = self.job.beside.iter().zip(&reports);
        let background = background
            .map(|(word, report)| BackgroundMetrics::of(&word.word, report, self.world.now()))
            .collect();
        RunResult { metrics, network: Some(network), background, ..RunResult::default() }
    }
}
