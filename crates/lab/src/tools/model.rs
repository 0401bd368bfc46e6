//! The same flows in the simulator, in virtual time: beside `tcp`, it shows how near the model is.

use super::{Figures, Job, Tool, Way};
use crate::error::{LabError, Result};
use bankfull_control::Bytes;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::{FlowConfig, World};

pub(super) static MODEL: Tool = Tool {
    name: "model",
    about: "the flows of `tcp` in the simulator: cubic and reno only",
    needs: &[],
    version: &[],
    way: Way::Model(run),
};

fn run(job: &Job<'_>) -> Result<Figures> {
    let algorithm = match job.congestion {
        Some("cubic") => Algorithm::Cubic,
        Some("reno") => Algorithm::NewReno,
        _ => return Err(LabError::Usage("the model knows cubic and reno".to_owned())),
    };
    if job.senders > 1 || job.is_disturbed {
        let text = "the model is run with one sender, nobody beside it, and no cut";
        return Err(LabError::Usage(text.to_owned()));
    }
    let mut world = World::new(job.seed);
    let route = world.add_path(job.path);
    let flows: Vec<_> = (0..job.streams())
        .map(|_| {
            let mut flow = FlowConfig::new(&route);
            flow.algorithm = algorithm;
            // The live flows shake hands first.
            flow.start = job.path.rtt();
            world.add_flow(flow)
        })
        .collect();
    world.run_until(job.time);
    let delivered = flows.iter().map(|flow| world.stats(*flow).delivered.0).sum();
    Ok(super::goodput(Bytes(delivered), job.time))
}
