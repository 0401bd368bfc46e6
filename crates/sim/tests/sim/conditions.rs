//! Conditions of a comparison in virtual time: a tuned and an untuned transfer over one path.

use crate::snapshot::env_is_set;
use crate::{DATA_SHARE, MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::world::{FlowId, Route};
use bankfull_sim::{
    FlowConfig, PathConfig, Trains, TunedTransfer, TunerConfig, TunerPacket, World,
};
use std::time::Duration;

/// Head of a table of [`row`]s.
pub(crate) const HEAD: &str =
    "path                                   tuned  bare  early   late  queue\n";

/// Conditions of a comparison.
pub(crate) struct Case {
    pub(crate) path: PathConfig,
    pub(crate) config: TunerConfig,
    pub(crate) time: Duration,
    /// Competing TCP flows: their number, and their receive window.
    pub(crate) competing_flows: Option<(u32, Option<u64>)>,
    /// Temporary flow: rate in Mbit/s, start, end.
    pub(crate) temporary_flow: Option<(f64, Duration, Duration)>,
    pub(crate) seed: u64,
}

/// Result of a transfer.
#[derive(Debug, Default)]
pub(crate) struct TransferResult {
    /// Goodput as a fraction of the link's payload rate.
    pub(crate) share: f64,
    pub(crate) early_retransmits: u64,
    pub(crate) late_retransmits: u64,
    pub(crate) queue_ms: f64,
    pub(crate) trace: String,
    /// Mbit/s in each second.
    pub(crate) seconds: Vec<f64>,
}

/// A path without cross traffic, and what crossed it.
pub(crate) struct QuietPath {
    pub(crate) name: String,
    pub(crate) case: Case,
    /// Mbit/s, RTT in ms, and buffer as a share of the bandwidth-delay product.
    pub(crate) rate: f64,
    pub(crate) rtt: u32,
    pub(crate) buffer_share: f64,
    pub(crate) tuned: TransferResult,
    pub(crate) untuned: TransferResult,
}

/// Runs transfers over paths without cross traffic; returns them with their table.
pub(crate) fn quiet_paths(case: impl Fn(f64, u32, f64) -> Case) -> (Vec<QuietPath>, String) {
    let (mut paths, mut table) = (Vec::new(), HEAD.to_owned());
    for rate in [100.0, 1000.0, 5000.0] {
        for rtt in [10, 50, 150] {
            for buffer_share in [0.1, 0.5, 1.0] {
                let mut case = case(rate, rtt, buffer_share);
                case.time = SEC * if rtt > 100 { 30 } else { 15 };
                let (tuned, untuned) = case.compare();
                let name = format!("{rate} Mbit/s {rtt} ms {buffer_share} BDP");
                table += &row(&name, &tuned, &untuned);
                paths.push(QuietPath { name, case, rate, rtt, buffer_share, tuned, untuned });
            }
        }
    }
    (paths, table)
}

impl Case {
    /// Returns a transfer as with `--tune auto` over a path in Mbit/s and ms.
    ///
    /// Its buffer is a fraction of the bandwidth-delay product.
    pub(crate) fn automatic(rate: f64, rtt: u32, buffer_share: f64) -> Self {
        let bdp = rate * 1e6 / 8.0 * f64::from(rtt) / 1e3;
        let path = PathConfig::new(mbit(rate), MS * rtt, Bytes((bdp * buffer_share) as u64));
        let time = SEC * 15;
        Self {
            path,
            config: TunerConfig::automatic(MS * rtt),
            time,
            competing_flows: None,
            temporary_flow: None,
            seed: 1,
        }
    }

    /// Returns one stream under SOBAS over such a path, with trains that measure the line.
    pub(crate) fn sobas(rate: f64, rtt: u32, buffer_share: f64) -> Self {
        let trains = Trains::Reported(1.0);
        let config = TunerConfig { has_engine_start: true, trains, ..TunerConfig::default() };
        Self { config, ..Self::automatic(rate, rtt, buffer_share) }
    }

    fn world(&self) -> (World<TunerPacket>, Route) {
        let mut world = World::with_external(self.seed);
        let route = world.add_path(&self.path);
        if let Some((count, window)) = self.competing_flows {
            for n in 0..count {
                let mut config = FlowConfig::new(&route);
                config.start = MS * 37 * n * self.seed as u32;
                config.receive_window = Bytes(window.unwrap_or(1 << 30));
                world.add_flow(config);
            }
        }
        (world, route)
    }

    fn result(
        &self,
        world: &World<TunerPacket>,
        flows: &[FlowId],
        time: Duration,
    ) -> TransferResult {
        let delivered = flows.iter().map(|&f| world.stats(f).delivered.0).sum::<u64>();
        let line = self.path.forward.rate.unwrap_or_default().bits_per_sec() as f64 * DATA_SHARE;
        let rtt: Duration = flows.iter().map(|&f| world.report(f).rtt_mean).sum();
        let queue = (rtt / flows.len() as u32).saturating_sub(self.path.rtt());
        TransferResult {
            share: Bytes(delivered).per(time).bits_per_sec() as f64 / line,
            queue_ms: queue.as_secs_f64() * 1e3,
            ..TransferResult::default()
        }
    }

    fn lead_time(&self) -> Duration {
        if self.competing_flows.is_some() { SEC * 5 } else { Duration::ZERO }
    }

    fn temporary_flow(
        &self,
        world: &mut World<TunerPacket>,
        route: &Route,
        started: &mut Option<FlowId>,
    ) {
        let Some((rate, from, to)) = self.temporary_flow else { return };
        match *started {
            None if world.now() >= from => {
                let mut config = FlowConfig::new(route);
                config.pacing = Some(mbit(rate));
                *started = Some(world.add_flow(config));
            }
            Some(flow) if world.now() >= to => world.finish(flow),
            _ => {}
        }
    }

    fn run_tuned(&self) -> TransferResult {
        let (mut world, route) = self.world();
        let start = self.lead_time();
        let config = TunerConfig { start, ..self.config };
        let mut tuned = TunedTransfer::new(&mut world, &self.path, &route, &config);
        let (mut early_retransmits, mut temporary_flow, mut seconds) = (0, None, vec![0]);
        world.run_with(start + self.time, MS, |world| {
            self.temporary_flow(world, &route, &mut temporary_flow);
            tuned.tick(world);
            let now = world.now();
            if now <= start + SEC * 2 {
                early_retransmits = tuned.retransmits(world);
            }
            if now.saturating_sub(start).as_secs() as usize >= seconds.len() {
                seconds.push(tuned.delivered(world).0);
            }
        });
        let late_retransmits = tuned.retransmits(&world) - early_retransmits;
        let seconds = seconds.windows(2).map(|w| (w[1] - w[0]) as f64 * 8e-6).collect();
        let trace = tuned.trace_lines();
        TransferResult {
            early_retransmits,
            late_retransmits,
            trace,
            seconds,
            ..self.result(&world, tuned.flows(), self.time)
        }
    }

    fn run_untuned(&self) -> TransferResult {
        let (mut world, route) = self.world();
        let start = self.lead_time();
        let mut config = FlowConfig::new(&route);
        config.start = start;
        config.algorithm = self.config.algorithm;
        let flows: Vec<FlowId> =
            (0..self.config.streams).map(|_| world.add_flow(config.clone())).collect();
        let mut temporary_flow = None;
        world.run_with(start + self.time, MS * 10, |world| {
            self.temporary_flow(world, &route, &mut temporary_flow)
        });
        self.result(&world, &flows, self.time)
    }

    pub(crate) fn compare(&self) -> (TransferResult, TransferResult) {
        (self.run_tuned(), self.run_untuned())
    }
}

/// Returns a table row: goodput tuned and untuned, retransmitted segments in the first two
/// seconds and later, mean queue.
pub(crate) fn row(name: &str, tuned: &TransferResult, untuned: &TransferResult) -> String {
    let TransferResult { share, early_retransmits, late_retransmits, queue_ms, trace, .. } = tuned;
    let trace_text = if env_is_set("TRACE") { trace } else { "" };
    let untuned = untuned.share;
    format!(
        "{name:38} {share:.3} {untuned:.3} {early_retransmits:>6} {late_retransmits:>6} {queue_ms:>6.2}\n{trace_text}"
    )
}
