//! The TCP model on links: known results, incast, and that nothing hangs.

mod alone;
mod ictcp;
mod incast;
mod linux;
mod matrix;
mod nothing_hangs;
mod overflow;
mod rrda;
mod sobas;
mod sobas_matrix;
mod steered;
mod together;

use bankfull_control::{Bytes, Rate};
use bankfull_sim::presets::{PRESETS, Preset};
use bankfull_sim::tcp::MSS;
use bankfull_sim::world::{FlowConfig, Report, World};
use bankfull_sim::{LinkConfig, PathConfig};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// What is told of the model.
const DOCUMENT: &str = include_str!("../../../../docs/sim.md");

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

#[test]
fn the_document_lists_the_presets_as_they_are() {
    let expected = PRESETS.iter().map(|preset| {
        let path = preset.path();
        let rate = path.forward.rate.unwrap().bits_per_sec() / 1_000_000;
        let rtt = path.rtt().as_micros() as f64 / 1000.0;
        let (buffer, bdp) = (path.forward.buffer.0, path.bdp().unwrap().0);
        let loss = path.forward.loss.mean() * 100.0;
        let about = preset.about;
        let buffer_kb = buffer / 1000;
        let bdp_kb = bdp as f64 / 1000.0;
        format!(
            "| `{}` | {about} | {rate} | {rtt} | {buffer_kb} | {bdp_kb} | {loss} |",
            preset.name
        )
    });
    let is_row = |line: &&str| PRESETS.iter().any(|p| line.starts_with(&format!("| `{}`", p.name)));
    let found: Vec<&str> = DOCUMENT.lines().filter(is_row).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
}
