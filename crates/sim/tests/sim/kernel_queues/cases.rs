//! Cases of `experiments/conformance/kernel-queues.sh` in the model.

use super::datagrams::{Arrival, Content, Datagrams};
use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::link::queue::{CodelConfig, FqCodelConfig, PieConfig, QueueConfig};
use bankfull_sim::link::rate::Policer;
use bankfull_sim::link::{Jitter, Reordering};
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::world::{FlowConfig, FlowId, LinkId, Route, World};
use bankfull_sim::{Ecn, LinkConfig, LinkCounts, Loss};
use std::time::Duration;

/// Figures by name.
pub(super) type Figures = Vec<(String, f64)>;

/// Age of a discipline when traffic starts: `sleep 1`, and 0.2 s for the receiver.
pub(super) const START: Duration = Duration::from_millis(1201);

/// Duration of a case.
const DURATION: Duration = Duration::from_secs(20);

/// Time after the last packet was sent: queues drain, and late packets arrive.
const DRAIN: Duration = Duration::from_secs(10);

/// Two packets, which the tbf in front of a discipline passes at once after idling.
const HEAD_START: Bytes = Bytes(3000);

/// Update interval of PIE in a kernel of 250 Hz: 15 ms are five ticks, with rounding.
const PIE_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the figures of a case for a seed; `None` if the model lacks it.
pub(super) fn figures(case: &str, parameters: &str, seed: u64) -> Option<Figures> {
    let found = match case {
        "fifo" => overload(behind(10.0, QueueConfig::DropTail, 50_000), Ecn::NotCapable, seed),
        "codel" if parameters.starts_with("10 ") => {
            overload(behind(10.0, codel(), u64::MAX), Ecn::NotCapable, seed)
        }
        "codel" => beside_probe(behind(20.0, codel(), u64::MAX), "cubic", parameters, seed),
        "fq_codel" if parameters.contains("beside datagrams") => flood(seed),
        "fq_codel" => two_flows(seed),
        // tc: a limit of 1000 packets.
        "pie" if parameters.starts_with("10 ") => {
            let is_capable = parameters.contains(" ecn");
            let ecn = if is_capable { Ecn::Capable } else { Ecn::NotCapable };
            overload(LinkConfig { ecn: true, ..behind(10.0, pie(), 1_500_000) }, ecn, seed)
        }
        "pie" => beside_probe(behind(20.0, pie(), 1_500_000), "cubic", parameters, seed),
        "tbf" if parameters.contains("back to back") => burst(seed),
        "tbf" => tcp_pair(tbf(50_000), parameters, seed),
        "police" if parameters.contains("load 0.95") => policed(791.6667, 15_833, seed),
        "police" if parameters.contains("load 1.25") => policed(1041.6667, 20_833, seed),
        "police" => tcp_pair(policer(), parameters, seed),
        "netem" => netem(parameters.split(';').next()?, seed)?,
        _ => return None,
    };
    Some(found)
}

fn codel() -> QueueConfig {
    QueueConfig::Codel(CodelConfig::default())
}

fn pie() -> QueueConfig {
    QueueConfig::Pie(PieConfig { interval: PIE_INTERVAL, ..PieConfig::default() })
}

/// Returns a link whose queue is the discipline.
fn behind(rate_mbit: f64, queue: QueueConfig, buffer: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(mbit(rate_mbit)),
        shaper_burst: HEAD_START,
        queue,
        buffer: Bytes(buffer),
        ..LinkConfig::default()
    }
}

fn tbf(buffer: u64) -> LinkConfig {
    let shaper_burst = Bytes(64_000);
    LinkConfig { shaper_burst, ..behind(10.0, QueueConfig::DropTail, buffer) }
}

/// Returns a policer on a link that sends each packet by itself, without delay.
fn policer() -> LinkConfig {
    LinkConfig {
        rate: Some(mbit(10_000.0)),
        policer: Some(Policer { rate: mbit(10.0), burst: Bytes(64_000) }),
        quantum: Duration::ZERO,
        ..LinkConfig::default()
    }
}

/// Returns the time of an idle ping beyond the delay of its path: 19 µs in case `check`.
///
/// Each seed adds a microsecond, as results of TCP are chaotic. Without the rest, arrivals are
/// in step with the link.
fn idle_excess(seed: u64) -> Duration {
    Duration::from_micros(18 + seed)
}

/// World with one link under test, and what arrives.
struct Bench {
    seed: u64,
    world: World<Content>,
    link: LinkId,
    streams: Vec<(Datagrams, Vec<Arrival>)>,
}

impl Bench {
    fn new(config: LinkConfig, seed: u64) -> Self {
        let mut world = World::with_external(seed);
        let link = world.add_link(config);
        Self { seed, world, link, streams: Vec::new() }
    }

    fn send(&mut self, datagrams: Datagrams) {
        datagrams.inject(&mut self.world, self.streams.len(), self.link);
        self.streams.push((datagrams, Vec::new()));
    }

    /// Adds a TCP flow over the link and a reverse path with a delay.
    fn add_flow(&mut self, algorithm: Algorithm, rtt: Duration, ecn: bool) -> FlowId {
        let delay = rtt + idle_excess(self.seed);
        let reverse = self.world.add_link(LinkConfig { delay, ..LinkConfig::default() });
        let route = Route { forward: vec![self.link], reverse: vec![reverse] };
        let config = FlowConfig { algorithm, ecn, start: START, ..FlowConfig::new(&route) };
        self.world.add_flow(config)
    }

    fn run_until(&mut self, end: Duration) {
        while self.world.next_event_at().is_some_and(|at| at <= end) {
            if let Some(arrival) = self.world.run_next_event() {
                let ((stream, number), at, is_marked) =
                    (arrival.content, arrival.at, arrival.is_marked);
                self.streams[stream].1.push(Arrival { number, at, is_marked });
            }
        }
    }

    /// Runs until all datagrams arrived or were lost.
    fn drain(&mut self) {
        self.run_until(START + DURATION + DRAIN);
    }

    fn report(&self, stream: usize) -> Figures {
        let (datagrams, arrivals) = &self.streams[stream];
        datagrams.report(arrivals)
    }

    fn goodput_mbit(&self, flow: FlowId) -> f64 {
        self.world.stats(flow).delivered.0 as f64 * 8e-6 / DURATION.as_secs_f64()
    }

    fn counts(&self) -> LinkCounts {
        self.world.counts(self.link)
    }
}

/// Sends datagrams at 1.25 times a rate of 10 Mbit/s for 20 s.
fn overload(config: LinkConfig, ecn: Ecn, seed: u64) -> Figures {
    let mut bench = Bench::new(config, seed);
    bench.send(Datagrams { ecn, ..Datagrams::new(1041.6667, 20_833, 1500) });
    bench.drain();
    bench.report(0)
}

fn policed(per_second: f64, count: usize, seed: u64) -> Figures {
    let mut bench = Bench::new(policer(), seed);
    bench.send(Datagrams::new(per_second, count, 1500));
    bench.drain();
    bench.report(0)
}

/// Runs a TCP flow beside small datagrams, which measure the delay.
fn beside_probe(mut config: LinkConfig, name: &str, parameters: &str, seed: u64) -> Figures {
    let ecn = parameters.contains(" ecn");
    let algorithm = if name == "bbr" { Algorithm::Bbr } else { Algorithm::Cubic };
    config.ecn = ecn;
    let mut bench = Bench::new(config, seed);
    let flow = bench.add_flow(algorithm, MS * 40, ecn);
    bench.send(Datagrams::new(20.0, 400, 64));
    bench.run_until(START + DURATION);
    let (goodput, counts) = (bench.goodput_mbit(flow), bench.counts());
    let retransmits = bench.world.stats(flow).sender.retransmits as f64;
    bench.world.finish(flow);
    bench.drain();
    let mut figures = vec![
        (format!("goodput, {name}"), goodput),
        (format!("retransmits, {name}"), retransmits),
        ("dropped".to_owned(), counts.dropped() as f64),
        ("marked".to_owned(), counts.marked as f64),
    ];
    let report = bench.report(0).into_iter().filter(|(name, _)| name.starts_with("delay"));
    figures.extend(report.map(|(figure, value)| (format!("{figure}, {name}"), value)));
    figures
}

/// Runs CUBIC, then BBR.
fn tcp_pair(config: LinkConfig, parameters: &str, seed: u64) -> Figures {
    let runs = ["cubic", "bbr"].map(|name| beside_probe(config.clone(), name, parameters, seed));
    runs.concat()
}

fn fq_codel() -> LinkConfig {
    behind(20.0, QueueConfig::FqCodel(FqCodelConfig::default()), u64::MAX)
}

/// Runs a TCP flow beside datagrams at the rate of the link.
fn flood(seed: u64) -> Figures {
    let mut bench = Bench::new(fq_codel(), seed);
    let flow = bench.add_flow(Algorithm::Cubic, MS * 40, false);
    bench.send(Datagrams::new(20.0, 400, 64));
    // The script waits for the receiver of the small datagrams before it starts TCP.
    let start = START - MS * 200;
    bench.send(Datagrams { start, ..Datagrams::new(1666.6667, 33_333, 1500) });
    bench.run_until(START + DURATION);
    let goodput = bench.goodput_mbit(flow);
    let retransmits = bench.world.stats(flow).sender.retransmits as f64;
    bench.world.finish(flow);
    bench.drain();
    let named = |stream: usize, of: &str| {
        let report = bench.report(stream).into_iter();
        report.map(|(figure, value)| (format!("{figure}, {of}"), value)).collect::<Vec<_>>()
    };
    let mut figures = [named(0, "cubic"), named(1, "datagrams")].concat();
    figures.push(("goodput, cubic".to_owned(), goodput));
    figures.push(("retransmits, cubic".to_owned(), retransmits));
    figures
}

/// Runs two TCP flows of different RTT.
fn two_flows(seed: u64) -> Figures {
    let mut bench = Bench::new(fq_codel(), seed);
    let [near, far] = [20, 80].map(|rtt| bench.add_flow(Algorithm::Cubic, MS * rtt, false));
    bench.run_until(START + DURATION);
    let [near, far] = [near, far].map(|flow| bench.goodput_mbit(flow));
    let jain = (near + far).powi(2) / (2.0 * (near * near + far * far));
    [("goodput, 20 ms", near), ("goodput, 80 ms", far), ("Jain's index", jain)]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
}

/// Sends 100 datagrams back to back.
fn burst(seed: u64) -> Figures {
    let mut bench = Bench::new(tbf(10_000_000), seed);
    // Sending one takes 10 µs (measured: an idle path adds as much).
    bench.send(Datagrams::new(1e5, 100, 1500));
    bench.drain();
    bench.report(0)
}

/// Sends 1000 small datagrams a second through a path of netem; `None` if the model lacks it.
fn netem(setting: &str, seed: u64) -> Option<Figures> {
    let mut config = LinkConfig::default();
    let impairments = &mut config.impairments;
    match setting {
        "delay 20ms 5ms" => {
            config.delay = MS * 15;
            impairments.jitter =
                Some(Jitter { max: MS * 10, period: Duration::ZERO, reorders: true });
        }
        // netem delays all but one in a hundred.
        "delay 10ms reorder 1%" => {
            impairments.reordering = Some(Reordering { share: 0.99, delay: MS * 10 });
        }
        "duplicate 1%" => impairments.duplication = 0.01,
        "loss 1%" => config.loss = Loss::Random { probability: 0.01 },
        // At a packet per millisecond, the sixth one after a slot opens the next.
        "slot 5ms 5ms" => impairments.aggregation = Some(MS * 6),
        // "delay 20ms 5ms distribution normal".
        _ => return None,
    }
    let mut bench = Bench::new(config, seed);
    bench.send(Datagrams::new(1000.0, 20_000, 200));
    bench.run_until(START + DURATION + SEC);
    Some(bench.report(0))
}
