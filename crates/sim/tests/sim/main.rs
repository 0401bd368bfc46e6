//! The TCP model on links: known results, incast, and that nothing hangs.

mod alone;
mod incast;
mod nothing_hangs;
mod together;

use bankfull_control::{Bytes, Rate};
use bankfull_sim::presets::{PRESETS, Preset};
use bankfull_sim::tcp::MSS;
use bankfull_sim::world::{FlowConfig, Report, World};
use bankfull_sim::{LinkConfig, PathConfig};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// The share of a line that is data.
const DATA_SHARE: f64 = MSS as f64 / 1500.0;

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec(rate * 1e6)
}

fn preset(name: &str) -> PathConfig {
    PRESETS.iter().find(|preset| preset.name == name).map(Preset::path).unwrap_or_default()
}

/// A path that never overflows, for what does not depend on queues.
fn wide(rtt: Duration) -> PathConfig {
    let mut path = PathConfig::new(mbit(10_000.0), rtt, Bytes::gib(1));
    path.forward.quantum = MS;
    path
}

/// An endless flow alone on a path, after some time.
fn alone(path: &PathConfig, time: Duration, change: impl FnOnce(&mut FlowConfig)) -> Report {
    let mut world = World::new(1);
    let route = world.add_path(path);
    let mut config = FlowConfig::new(&route);
    change(&mut config);
    let flow = world.add_flow(config);
    world.run_until(time);
    world.report(flow)
}

/// A port as [`LinkConfig`] without delay.
fn port(rate_mbit: f64, buffer: u64, delay: Duration) -> LinkConfig {
    let rate = Some(mbit(rate_mbit));
    LinkConfig { rate, delay, buffer: Bytes(buffer), ..LinkConfig::default() }
}
