//! The transfer of bankfull's tuner in the simulator, in virtual time.

use super::flows::{OwnResult, Stage, known_algorithm};
use super::model;
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::model::job::Job;
use crate::model::metrics::{Metrics, decision_name};
use crate::model::results::RunResult;
use crate::tools::fields::Field;
use crate::tools::tool::{Tool, ToolKind};
use bankfull_sim::{TunedTransfer, TunerConfig};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval at which the transfer may act. (as crates/sim/src/tuned.rs requires)
const TICK: Duration = Duration::from_millis(1);

pub(crate) static TUNED_MODEL: Tool = Tool {
    name: "tuned-model",
    about: "bankfull's tuner in the simulator: cubic, reno, bbr and quic only",
    needs: &[],
    version: &[],
    supports: &[Field::Streams, Field::Congestion],
    unsupported: model::unsupported,
    kind: ToolKind::Simulation(run),
};

fn run(job: &Job<'_>, deadline: &Deadline<'_>) -> Result<RunResult> {
    let mut stage = Stage::new(job);
    let automatic = TunerConfig::automatic(job.path.rtt());
    let config = match job.contender.streams {
        Some(streams) => TunerConfig { streams: streams as u32, max_streams: None, ..automatic },
        None => automatic,
    };
    let config = TunerConfig {
        start: stage.begin,
        algorithm: known_algorithm(job.congestion)?,
        ecn: job.has_ecn,
        seed: job.seed,
        ..config
    };
    let tuned = TunedTransfer::new(&mut stage.world, job.path, &stage.route, &config);
    let tuned = RefCell::new(tuned);
    stage.add_cross()?;
    let mut result = stage.run(
        TUNED_MODEL.name,
        deadline,
        |world, until| world.run_with(until, TICK, |world| tuned.borrow_mut().tick(world)),
        |world| OwnResult {
            delivered: tuned.borrow().delivered(world),
            retransmits: tuned.borrow().retransmits(world),
        },
    )?;
    let tuned = tuned.into_inner();
    let mut decisions = BTreeMap::new();
    for (state, reason) in tuned.decisions() {
        *decisions.entry(decision_name(state, reason)).or_default() += 1;
    }
    result.metrics = Metrics {
        retransmits: result.network.as_ref().and_then(|network| network.retransmits),
        streams: Some(tuned.streams()),
        decisions,
        ..result.metrics
    };
    Ok(result)
}
