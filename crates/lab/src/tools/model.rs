//! The same flows in the simulator, in virtual time: beside `tcp`, it shows how near the model is.

use super::{Field, Figures, Job, Tool, Way};
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::flows::Kind;
use crate::runner::CROSS_LEAD;
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
    takes: &[Field::Streams, Field::Congestion, Field::Window],
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

pub(super) fn refuses(settings: &Settings, contender: &Contender) -> Option<String> {
    let beside = settings.cross_kinds().map(|kind| kind.congestion);
    if beside.chain([settings.congestion(contender)]).any(|name| algorithm(name).is_none()) {
        return Some("knows cubic and reno".to_owned());
    }
    let is_plain = settings.senders.count == 1
        && settings.senders.rate.is_none()
        && settings.senders.longest_delay().is_zero()
        && settings.path.cut.is_none();
    (!is_plain).then(|| "has one sender on the path, and no cut".to_owned())
}

fn run(job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Figures> {
    let mut world = World::new(job.seed);
    let route = world.add_path(job.path);
    // The time counts from the first data on, as of the live flows, which are connected before.
    let begin = if job.cross.is_empty() { Duration::ZERO } else { CROSS_LEAD };
    let mut add = |kind: &Kind<'_>, start: Duration| -> Result<Vec<_>> {
        let unknown = || LabError::Usage("the model knows cubic and reno".to_owned());
        let mut flow = FlowConfig::new(&route);
        flow.algorithm = algorithm(kind.congestion).ok_or_else(unknown)?;
        flow.receive_window = kind.window.unwrap_or(flow.receive_window);
        flow.start = start;
        Ok((0..kind.count).map(|_| world.add_flow(flow.clone())).collect())
    };
    let own =
        Kind { count: job.streams(), window: job.contender.window, congestion: job.congestion };
    let flows = add(&own, begin)?;
    let beside: Vec<Vec<_>> =
        job.cross.iter().map(|kind| add(kind, Duration::ZERO)).collect::<Result<_>>()?;
    let beside = beside.concat();
    world.run_until(begin);
    let delivered = |world: &World, flows: &[_]| -> u64 {
        flows.iter().map(|flow| world.stats(*flow).delivered.0).sum()
    };
    let before = delivered(&world, &beside);
    let (mut until, end) = (begin, begin + job.time);
    while until < end {
        deadline.check(MODEL.name)?;
        until = (until + LOOK).min(end);
        world.run_until(until);
    }
    let per_second = |bytes: u64| bytes as f64 * 8.0 / job.time.as_secs_f64();
    let came_beside = per_second(delivered(&world, &beside) - before);
    let figures = super::goodput(Bytes(delivered(&world, &flows)), job.time);
    Ok(Figures { beside_bps: (!beside.is_empty()).then_some(came_beside), ..figures })
}
