//! The flows of `tcp` in the simulator, in virtual time, to validate the simulator's model.

use super::flows::{OwnResult, Stage, algorithm};
use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::model::contender::Contender;
use crate::model::job::Job;
use crate::model::plan::FlowSpec;
use crate::model::results::RunResult;
use crate::model::settings::Settings;
use crate::tools::fields::Field;
use crate::tools::tool::{Tool, ToolKind};
use bankfull_control::Bytes;

pub(crate) static MODEL: Tool = Tool {
    name: "model",
    about: "the flows of `tcp` in the simulator: cubic, reno, bbr and quic only",
    needs: &[],
    version: &[],
    supports: &[Field::Streams, Field::Congestion, Field::Window],
    unsupported,
    kind: ToolKind::Simulation(run),
};

pub(crate) fn unsupported(settings: &Settings, contender: &Contender) -> Option<String> {
    let cross = settings.cross_flows().map(|kind| kind.congestion);
    if cross.chain([settings.congestion(contender)]).any(|name| algorithm(name).is_none()) {
        return Some("supports cubic, reno, bbr and quic only".to_owned());
    }
    let is_plain = settings.senders.count == 1
        && settings.senders.rate.is_none()
        && settings.senders.longest_delay().is_zero()
        && settings.path.cut.is_none();
    (!is_plain).then(|| "supports one sender without an access link, and no cut".to_owned())
}

fn run(job: &Job<'_>, deadline: &Deadline<'_>) -> Result<RunResult> {
    let mut stage = Stage::<()>::new(job);
    let own =
        FlowSpec { count: job.streams(), window: job.contender.window, congestion: job.congestion };
    let flows = stage.add(&own, stage.begin)?;
    stage.add_cross()?;
    stage.run(
        MODEL.name,
        deadline,
        |world, until| world.run_until(until),
        |world| {
            let stats = || flows.iter().map(|&flow| world.stats(flow));
            OwnResult {
                delivered: stats().fold(Bytes(0), |sum, stats| sum + stats.delivered),
                retransmits: stats().map(|stats| stats.sender.retransmits).sum(),
            }
        },
    )
}
