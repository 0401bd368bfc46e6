//! Tests of the TCP model on links: known results, incast, controllers, and termination.

mod algorithms;
mod alone;
mod automatic;
mod buffers;
mod conditions;
mod gather;
mod gather_port;
mod ictcp;
mod incast;
mod kernel_queues;
mod link_words;
mod linux;
mod matrix;
mod nothing_hangs;
mod overflow;
mod path_mtu;
mod random_paths;
mod rrda;
mod snapshot;
mod sobas;
mod together;
mod traces;
mod tuned;

use bankfull_control::{Bytes, Rate};
use bankfull_sim::presets::{PRESETS, Preset};
use bankfull_sim::tcp::MSS;
use bankfull_sim::world::{FlowConfig, FlowReport, World};
use bankfull_sim::{LinkConfig, PathConfig};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// Documentation of the model.
const DOCUMENT: &str = include_str!("../../../../docs/sim.md");

/// Payload fraction of the link rate.
const DATA_SHARE: f64 = MSS as f64 / 1500.0;

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_sec(rate * 1e6)
}

fn preset(name: &str) -> PathConfig {
    PRESETS.iter().find(|preset| preset.name == name).map(Preset::path).unwrap_or_default()
}

/// Returns a path that never overflows, for tests that do not depend on queues.
fn wide(rtt: Duration) -> PathConfig {
    let mut path = PathConfig::new(mbit(10_000.0), rtt, Bytes::gib(1));
    path.forward.quantum = MS;
    path
}

/// Runs an unlimited flow alone on a path, and returns its report.
fn alone(path: &PathConfig, time: Duration, change: impl FnOnce(&mut FlowConfig)) -> FlowReport {
    let mut world = World::new(1);
    let route = world.add_path(path);
    let mut config = FlowConfig::new(&route);
    change(&mut config);
    let flow = world.add_flow(config);
    world.run_until(time);
    world.report(flow)
}

/// Returns a link with a rate, a buffer and a delay.
fn port(rate_mbit: f64, buffer: u64, delay: Duration) -> LinkConfig {
    let rate = Some(mbit(rate_mbit));
    LinkConfig { rate, delay, buffer: Bytes(buffer), ..LinkConfig::default() }
}

#[test]
fn document_lists_all_presets() {
    let expected = PRESETS.iter().map(|preset| {
        let path = preset.path();
        let rate = path.forward.rate.unwrap().bits_per_sec() / 1_000_000;
        let rtt = path.rtt().as_micros() as f64 / 1000.0;
        let (buffer, bdp) = (path.forward.buffer.0, path.bdp().unwrap().0);
        let loss = path.forward.loss.mean() * 100.0;
        let description = preset.description;
        let buffer_kb = buffer / 1000;
        let bdp_kb = bdp as f64 / 1000.0;
        format!(
            "| `{}` | {description} | {rate} | {rtt} | {buffer_kb} | {bdp_kb} | {loss} |",
            preset.name
        )
    });
    let is_row = |line: &&str| PRESETS.iter().any(|p| line.starts_with(&format!("| `{}`", p.name)));
    let found: Vec<&str> = DOCUMENT.lines().filter(is_row).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
}
