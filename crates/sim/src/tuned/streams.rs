//! Streams of a tuned transfer: opened, paused and resumed as the engine does.

use super::autotuning::INITIAL_RECEIVE_WINDOW;
use super::prober::MIN_PROBE_TIMEOUT;
use super::{TunerConfig, TunerPacket};
use crate::tcp::Algorithm;
use crate::world::{FlowConfig, FlowId, FlowStats, Route, World};
use bankfull_control::streams::MIN_INITIAL_STREAMS;
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// Round trips from the decision for a stream to its first data. (chosen: the request, and the
/// handshake of TCP)
const OPENING_RTTS: u32 = 2;

/// Fraction of an RTT within which all streams start.
/// (crates/engine/src/transport/start_stagger.rs)
const STAGGER_RTT_FRACTION: f64 = 0.5;

/// Minimum RTT for a staggered start, which is paced before a rate is requested. (as above)
const MIN_PACING_RTT: Duration = Duration::from_millis(5);

/// Non-limiting rate that enables pacing.
const UNLIMITED_PACING: Rate = Rate::from_bytes_per_sec(u64::MAX / 16);

/// Streams of a transfer.
#[derive(Debug)]
pub(super) struct Streams {
    flows: Vec<FlowId>,
    /// Time of the first data of each flow.
    opens_at: Vec<Duration>,
    /// Number of streams that carry data; the others are paused.
    wanted: u32,
    /// Parameters of further streams.
    config: FlowConfig,
    opening_time: Duration,
    /// Interval between the starts of the initial streams.
    stagger: Duration,
    /// Latest start of the remaining initial streams; `None` once they have started.
    held_until: Option<Duration>,
}

impl Streams {
    /// Opens the initial streams.
    pub(super) fn new(
        world: &mut World<TunerPacket>,
        route: &Route,
        rtt: Duration,
        config: &TunerConfig,
    ) -> Self {
        let flow = FlowConfig {
            start: config.start,
            algorithm: config.algorithm,
            ecn: config.ecn,
            receive_window: Bytes(INITIAL_RECEIVE_WINDOW),
            pacing: (config.has_engine_start && rtt >= MIN_PACING_RTT).then_some(UNLIMITED_PACING),
            ..FlowConfig::new(route)
        };
        let opening_time = rtt * OPENING_RTTS;
        let is_staggered = config.has_engine_start && rtt >= MIN_PACING_RTT;
        let time = if is_staggered { rtt.mul_f64(STAGGER_RTT_FRACTION) } else { Duration::ZERO };
        let lead = if config.has_engine_start { rtt } else { Duration::ZERO };
        let begin = config.start + lead;
        let mut streams = Self {
            flows: Vec::new(),
            opens_at: Vec::new(),
            wanted: config.streams,
            config: flow,
            opening_time,
            stagger: time / config.streams.max(1),
            held_until: Some(begin + MIN_PROBE_TIMEOUT),
        };
        let first = if is_staggered { MIN_INITIAL_STREAMS } else { config.streams };
        streams.open_staggered(world, first.min(config.streams), begin);
        streams
    }

    /// Starts the rest of the initial streams once the receiver has requested a rate.
    pub(super) fn poll_held(&mut self, world: &mut World<TunerPacket>, is_requested: bool) {
        let is_due = |until| is_requested || world.now() >= until;
        if self.held_until.is_some_and(is_due) {
            self.held_until = None;
            // The request takes half of an RTT.
            let begin = world.now() + self.opening_time / (2 * OPENING_RTTS);
            self.open_staggered(world, self.wanted, begin);
        }
    }

    /// Opens streams up to a number, one after the other.
    fn open_staggered(&mut self, world: &mut World<TunerPacket>, count: u32, begin: Duration) {
        for number in 0..count.saturating_sub(self.flows.len() as u32) {
            self.open_at(world, begin + self.stagger * number);
        }
    }

    fn open_at(&mut self, world: &mut World<TunerPacket>, opens_at: Duration) {
        self.config.start = opens_at;
        self.flows.push(world.add_flow(self.config.clone()));
        self.opens_at.push(opens_at);
    }

    /// Opens, pauses or resumes streams.
    pub(super) fn request(&mut self, world: &mut World<TunerPacket>, wanted: u32) {
        let opens_at = world.now() + self.opening_time;
        self.set_wanted(world, wanted, opens_at);
    }

    fn set_wanted(&mut self, world: &mut World<TunerPacket>, wanted: u32, opens_at: Duration) {
        let (before, wanted) = (self.wanted as usize, wanted as usize);
        self.wanted = wanted as u32;
        let made = self.flows.len();
        for &flow in self.flows.get(before..wanted.min(made)).unwrap_or_default() {
            world.write(flow, Bytes(u64::MAX));
        }
        for &flow in self.flows.get(wanted..before.min(made)).unwrap_or_default() {
            world.finish(flow);
        }
        for _ in made..wanted {
            self.open_at(world, opens_at);
        }
    }

    /// Switches all streams, and those opened later.
    pub(super) fn set_algorithm(&mut self, world: &mut World<TunerPacket>, algorithm: Algorithm) {
        self.config.algorithm = algorithm;
        self.flows.iter().for_each(|&flow| world.set_algorithm(flow, algorithm));
    }

    /// Returns the pacing rate without a requested one.
    pub(super) fn unrequested_pacing(&self) -> Option<Rate> {
        self.config.pacing
    }

    pub(super) fn flows(&self) -> &[FlowId] {
        &self.flows
    }

    /// Returns the open streams with their statistics.
    pub(super) fn open(&self, world: &World<TunerPacket>) -> Vec<(u32, FlowId, FlowStats)> {
        let all = (0..).zip(&self.flows).zip(&self.opens_at);
        all.filter(|(_, opens_at)| **opens_at <= world.now())
            .map(|((number, &flow), _)| (number, flow, world.stats(flow)))
            .collect()
    }

    /// Returns the number of streams that are to carry data.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::PathConfig;
    use bankfull_control::Rate;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn streams_pause_resume_and_open_after_two_rtts() {
        let path = PathConfig::new(Rate::from_bits_per_sec(50e6), MS * 20, Bytes(125_000));
        let mut world = World::with_external(1);
        let route = world.add_path(&path);
        let config = TunerConfig { streams: 4, ..TunerConfig::default() };
        let mut streams = Streams::new(&mut world, &route, path.rtt(), &config);
        let mut delivered = vec![0; 5];
        // Returns which flows carried data in the next half second.
        let mut carried = |world: &mut World<TunerPacket>, streams: &Streams| {
            world.run_until(world.now() + MS * 500);
            let all = streams.open(world).into_iter().zip(&mut delivered);
            let carried = all.map(|((_, _, stats), before)| {
                std::mem::replace(before, stats.delivered.0) < stats.delivered.0
            });
            carried.collect::<Vec<bool>>()
        };
        assert_eq!(carried(&mut world, &streams), [true; 4]);
        streams.request(&mut world, 2);
        // What is in flight arrives.
        carried(&mut world, &streams);
        assert_eq!(carried(&mut world, &streams), [true, true, false, false]);
        streams.request(&mut world, 5);
        assert_eq!((streams.open(&world).len(), streams.wanted()), (4, 5));
        world.run_until(world.now() + MS * 40);
        assert_eq!(streams.open(&world).len(), 5);
        assert_eq!(carried(&mut world, &streams), [true; 5]);
    }
}
