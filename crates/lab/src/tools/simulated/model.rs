//! The flows of `tcp` in the simulator, in virtual time, to validate the simulator's model.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::model::contender::Contender;
use crate::model::job::Job;
use crate::model::metrics::Metrics;
use crate::model::plan::{CROSS_LEAD, FlowSpec};
use crate::model::settings::Settings;
use crate::tools::fields::Field;
use crate::tools::tool::{Tool, ToolKind};
use bankfull_control::Bytes;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::{FlowConfig, World};
use std::time::Duration;

/// Virtual time between checks of the deadline. (chosen: some milliseconds of real time)
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) static MODEL: Tool = Tool {
    name: "model",
    about: "the flows of `tcp` in the simulator: cubic, reno and bbr only",
    needs: &[],
    version: &[],
    supports: &[Field::Streams, Field::Congestion, Field::Window],
    unsupported,
    kind: ToolKind::Simulation(run),
};

fn algorithm(congestion: Option<&str>) -> Option<Algorithm> {
    match congestion? {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::NewReno),
        "bbr" => Some(Algorithm::Bbr),
        _ => None,
    }
}

pub(crate) fn unsupported(settings: &Settings, contender: &Contender) -> Option<String> {
    let cross = settings.cross_flows().map(|kind| kind.congestion);
    if cross.chain([settings.congestion(contender)]).any(|name| algorithm(name).is_none()) {
        return Some("supports cubic, reno and bbr only".to_owned());
    }
    let is_plain = settings.senders.count == 1
        && settings.senders.rate.is_none()
        && settings.senders.longest_delay().is_zero()
        && settings.path.cut.is_none();
    (!is_plain).then(|| "supports one sender without an access link, and no cut".to_owned())
}

fn run(job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Metrics> {
    let mut world = World::new(job.seed);
    let route = world.add_path(job.path);
    // Time counts from the first data, as for live flows, which are already connected.
    let begin = if job.cross.is_empty() { Duration::ZERO } else { CROSS_LEAD };
    let mut add = |kind: &FlowSpec<'_>, start: Duration| -> Result<Vec<_>> {
        let unknown = || LabError::Usage("the model supports cubic, reno and bbr only".to_owned());
        let mut flow = FlowConfig::new(&route);
        flow.algorithm = algorithm(kind.congestion).ok_or_else(unknown)?;
        flow.receive_window = kind.window.unwrap_or(flow.receive_window);
        flow.start = start;
        Ok((0..kind.count).map(|_| world.add_flow(flow.clone())).collect())
    };
    let own =
        FlowSpec { count: job.streams(), window: job.contender.window, congestion: job.congestion };
    let flows = add(&own, begin)?;
    let cross: Vec<Vec<_>> =
        job.cross.iter().map(|kind| add(kind, Duration::ZERO)).collect::<Result<_>>()?;
    let cross = cross.concat();
    world.run_until(begin);
    let delivered = |world: &World, flows: &[_]| -> u64 {
        flows.iter().map(|flow| world.stats(*flow).delivered.0).sum()
    };
    let before = delivered(&world, &cross);
    let (mut until, end) = (begin, begin + job.duration);
    while until < end {
        deadline.check(MODEL.name)?;
        until = (until + CHECK_INTERVAL).min(end);
        world.run_until(until);
    }
    let per_second = |bytes: u64| bytes as f64 * 8.0 / job.duration.as_secs_f64();
    let cross_bps = per_second(delivered(&world, &cross) - before);
    let metrics = Metrics::of_transfer(Bytes(delivered(&world, &flows)), job.duration);
    Ok(Metrics { cross_bps: (!cross.is_empty()).then_some(cross_bps), ..metrics })
}
