//! The same flows in the simulator, in virtual time: beside `tcp`, it shows how near the model is.

use super::{Field, Figures, Job, Tool, Way};
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::scenario::{Contender, Settings};
use bankfull_control::Bytes;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::{FlowConfig, World};
use std::time::Duration;

/// Virtual time between two looks whether it must end. (ours: some milliseconds of real time)
const LOOK: Duration = Duration::from_millis(100);

pub(super) static MODEL: Tool = Tool {
    name: "model",
    about: "the flows of `tcp` in the simulator: cubic and reno only",
    needs: &[],
    version: &[],
    takes: &[Field::Streams, Field::Congestion],
    refuses,
    way: Way::Model(run),
};

fn algorithm(congestion: Option<&str>) -> Option<Algorithm> {
    match congestion? {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::NewReno),
        _ => None,
    }
}

fn refuses(settings: &Settings, contender: &Contender) -> Option<String> {
    if algorithm(settings.congestion(contender)).is_none() {
        return Some("knows cubic and reno".to_owned());
    }
    let is_plain = settings.senders.count == 1
        && settings.senders.rate.is_none()
        && settings.senders.longest_delay().is_zero()
        && settings.cross_tcp.is_empty()
        && settings.path.cut.is_none();
    (!is_plain).then(|| "has one sender on the path, nobody beside it, and no cut".to_owned())
}

fn run(job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Figures> {
    let unknown = || LabError::Usage("the model knows cubic and reno".to_owned());
    let algorithm = algorithm(job.congestion).ok_or_else(unknown)?;
    let mut world = World::new(job.seed);
    let route = world.add_path(job.path);
    // The time counts from the first data on, as of the live flows, which are connected before.
    let mut flow = FlowConfig::new(&route);
    flow.algorithm = algorithm;
    let flows: Vec<_> = (0..job.streams()).map(|_| world.add_flow(flow.clone())).collect();
    let mut until = Duration::ZERO;
    while until < job.time {
        deadline.check(MODEL.name)?;
        until = (until + LOOK).min(job.time);
        world.run_until(until);
    }
    let delivered = flows.iter().map(|flow| world.stats(*flow).delivered.0).sum();
    Ok(super::goodput(Bytes(delivered), job.time))
}
