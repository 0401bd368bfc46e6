//! Cross traffic in a world: starts flows, and collects their results.

use super::{EventKind, FlowConfig, FlowId, Route, World};
use crate::background::{Background, BackgroundReport, Player, VIDEO_TICK, web_bytes, web_gap};
use bankfull_control::Bytes;
use fastrand::Rng;
use std::time::Duration;

/// Cross traffic in operation.
#[derive(Debug)]
pub(super) struct Source {
    kind: Background,
    route: Route,
    rng: Rng,
    flows: Vec<FlowId>,
    player: Player,
}

impl<F: Clone> World<F> {
    /// Adds cross traffic that starts at a time, or now if that has passed.
    pub fn add_background(&mut self, route: &Route, kind: Background, start: Duration) {
        let id = self.sources.len();
        let rng = Rng::with_seed(self.rng.u64(..));
        let (flows, player) = (Vec::new(), Player::default());
        self.sources.push(Source { kind, route: route.clone(), rng, flows, player });
        self.schedule(start.max(self.now), EventKind::Background(id));
    }

    /// Returns the results of cross traffic so far, in the order of addition.
    #[must_use]
    pub fn background_reports(&self) -> Vec<BackgroundReport> {
        self.sources.iter().map(|source| self.background_report(source)).collect()
    }

    fn background_report(&self, source: &Source) -> BackgroundReport {
        let reports = source.flows.iter().map(|&flow| self.report(flow));
        let mut found = BackgroundReport { stalled: source.player.stalled(), ..Default::default() };
        for report in reports {
            found.delivered += report.stats.delivered;
            let is_short = matches!(source.kind, Background::Web { .. });
            found.completion_times.extend(report.completion.filter(|_| is_short));
        }
        found
    }

    /// Starts flows that are due, and schedules the next ones.
    pub(super) fn run_background(&mut self, id: usize) {
        let (now, source) = (self.now, &mut self.sources[id]);
        let mut config = FlowConfig::new(&source.route);
        config.start = now;
        config.sample_interval = Duration::ZERO;
        match source.kind {
            Background::Bulk { algorithm, flows } => {
                config.algorithm = algorithm;
                let added: Vec<FlowId> =
                    (0..flows).map(|_| self.add_flow(config.clone())).collect();
                self.sources[id].flows.extend(added);
            }
            Background::Web { rate } => {
                config.bytes = Some(web_bytes(&mut source.rng));
                let gap = web_gap(rate, &mut source.rng);
                let flow = self.add_flow(config);
                self.sources[id].flows.push(flow);
                self.schedule(now + gap, EventKind::Background(id));
            }
            Background::Video { rate } => {
                if source.flows.is_empty() {
                    config.bytes = Some(Bytes(0));
                    let flow = self.add_flow(config);
                    self.sources[id].flows.push(flow);
                }
                let source = &mut self.sources[id];
                if let Some(&flow) = source.flows.first() {
                    let delivered = self.flows[flow.0].stats().delivered;
                    if let Some(bytes) = source.player.play(now, rate, delivered) {
                        self.write(flow, bytes);
                    }
                }
                self.schedule(now + VIDEO_TICK, EventKind::Background(id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathConfig;
    use crate::tcp::Algorithm;
    use bankfull_control::Rate;

    fn run(kind: Background, rate_mbit: f64, seconds: u64) -> BackgroundReport {
        let rate = Rate::from_bits_per_sec(rate_mbit * 1e6);
        let path = PathConfig::new(rate, Duration::from_millis(40), Bytes(500_000));
        let mut world = World::new(2);
        let route = world.add_path(&path);
        world.add_background(&route, kind, Duration::ZERO);
        world.run_until(Duration::from_secs(seconds));
        world.background_reports().remove(0)
    }

    #[test]
    fn web_flows_have_their_rate_and_end() {
        let rate = Rate::from_bits_per_sec(10e6);
        let report = run(Background::Web { rate }, 100.0, 200);
        let mbit = report.delivered.0 as f64 * 8e-6 / 200.0;
        assert!((7.0..13.0).contains(&mbit), "{mbit}");
        let mut times = report.completion_times;
        times.sort_unstable();
        assert!(times.len() > 5_000, "{}", times.len());
        // An object of 4 kB takes one RTT after the handshake.
        assert!(
            times[0] <= Duration::from_millis(41)
                && times[times.len() / 2] < Duration::from_millis(200)
        );
    }

    #[test]
    fn video_takes_the_bit_rate_that_fits() {
        let rate = Rate::from_bits_per_sec(8e6);
        for (line, low, high) in [(100.0, 7.5, 9.0), (7.0, 4.0, 6.8)] {
            let report = run(Background::Video { rate }, line, 120);
            let mbit = report.delivered.0 as f64 * 8e-6 / 120.0;
            assert!((low..high).contains(&mbit), "{line}: {mbit}");
            assert_eq!(report.stalled, Duration::ZERO, "{line}");
        }
        let starved = run(Background::Video { rate }, 0.5, 120);
        assert!(starved.stalled > Duration::from_secs(5), "{:?}", starved.stalled);
    }

    #[test]
    fn endless_flows_fill_the_line() {
        let bulk = Background::Bulk { algorithm: Algorithm::Cubic, flows: 3 };
        let mbit = run(bulk, 50.0, 20).delivered.0 as f64 * 8e-6 / 20.0;
        assert!(mbit > 44.0, "{mbit}");
    }
}
