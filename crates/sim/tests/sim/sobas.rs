//! SOBAS in virtual time: transfers that it steers beside the same without, under the conditions
//! that matter, as tables that a person can review.

use crate::steered::{Setting, Steered};
use crate::{DATA_SHARE, MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::world::{FlowId, Route};
use bankfull_sim::{Cross, FlowConfig, Loss, PathConfig, World};
use std::time::Duration;

/// A condition under which a transfer is compared with an untouched one.
pub(crate) struct Case {
    pub(crate) path: PathConfig,
    pub(crate) setting: Setting,
    pub(crate) time: Duration,
    /// Others' TCP flows: how many, and their receive window.
    pub(crate) others: Option<(u32, Option<u64>)>,
    /// Another flow comes and goes: its rate, from when to when.
    guest: Option<(f64, Duration, Duration)>,
    pub(crate) seed: u64,
}

/// How a transfer went.
#[derive(Debug, Default)]
pub(crate) struct Went {
    /// Share of the line's data.
    pub(crate) share: f64,
    early: u64,
    pub(crate) late: u64,
    pub(crate) queue_ms: f64,
    pub(crate) trace: String,
    /// Mbit/s in each second.
    seconds: Vec<f64>,
}

impl Case {
    pub(crate) fn new(rate: f64, rtt: u32, buffer_share: f64) -> Self {
        let bdp = rate * 1e6 / 8.0 * f64::from(rtt) / 1e3;
        let path = PathConfig::new(mbit(rate), MS * rtt, Bytes((bdp * buffer_share) as u64));
        let time = SEC * 15;
        Self { path, setting: Setting::default(), time, others: None, guest: None, seed: 1 }
    }

    fn world(&self) -> (World, Route) {
        let mut world = World::new(self.seed);
        let route = world.add_path(&self.path);
        if let Some((count, window)) = self.others {
            for n in 0..count {
                let mut config = FlowConfig::new(&route);
                config.start = MS * 37 * n * self.seed as u32;
                config.receive_window = Bytes(window.unwrap_or(1 << 30));
                world.add_flow(config);
            }
        }
        (world, route)
    }

    fn came(&self, world: &World, flows: &[FlowId], time: Duration) -> Went {
        let delivered = flows.iter().map(|&f| world.stats(f).delivered.0).sum::<u64>();
        let line = self.path.forward.rate.unwrap_or_default().bits_per_sec() as f64 * DATA_SHARE;
        let rtt: Duration = flows.iter().map(|&f| world.report(f).rtt_mean).sum();
        let queue = (rtt / flows.len() as u32).saturating_sub(self.path.rtt());
        Went {
            share: Bytes(delivered).per(time).bits_per_sec() as f64 / line,
            queue_ms: queue.as_secs_f64() * 1e3,
            ..Went::default()
        }
    }

    fn lead(&self) -> Duration {
        if self.others.is_some() { SEC * 5 } else { Duration::ZERO }
    }

    fn guest(&self, world: &mut World, route: &Route, has_come: &mut Option<FlowId>) {
        let Some((rate, from, to)) = self.guest else { return };
        match *has_come {
            None if world.now() >= from => {
                let mut config = FlowConfig::new(route);
                config.pacing = Some(mbit(rate));
                *has_come = Some(world.add_flow(config));
            }
            Some(flow) if world.now() >= to => world.finish(flow),
            _ => {}
        }
    }

    fn steered(&self) -> Went {
        let (mut world, route) = self.world();
        let start = self.lead();
        let setting = Setting { start, ..self.setting };
        let mut steered = Steered::new(&mut world, &self.path, &route, &setting);
        let (mut early, mut guest, mut seconds) = (0, None, vec![0]);
        world.run_with(start + self.time, MS, |world| {
            self.guest(world, &route, &mut guest);
            steered.tick(world);
            let now = world.now();
            if now <= start + SEC * 2 {
                early = steered.retransmits(world);
            }
            if now.saturating_sub(start).as_secs() as usize >= seconds.len() {
                seconds.push(steered.delivered(world).0);
            }
        });
        let late = steered.retransmits(&world) - early;
        let seconds = seconds.windows(2).map(|w| (w[1] - w[0]) as f64 * 8e-6).collect();
        let trace = steered.told();
        Went { early, late, trace, seconds, ..self.came(&world, &steered.flows, self.time) }
    }

    fn untouched(&self) -> Went {
        let (mut world, route) = self.world();
        let start = self.lead();
        let mut config = FlowConfig::new(&route);
        config.start = start;
        config.algorithm = self.setting.algorithm;
        let flows: Vec<FlowId> =
            (0..self.setting.streams).map(|_| world.add_flow(config.clone())).collect();
        let mut guest = None;
        world.run_with(start + self.time, MS * 10, |world| self.guest(world, &route, &mut guest));
        self.came(&world, &flows, self.time)
    }

    pub(crate) fn compared(&self) -> (Went, Went) {
        (self.steered(), self.untouched())
    }
}

/// A row of the table: share of the line with SOBAS and without, segments sent again in the first
/// two seconds and later, mean queue.
fn row(name: &str, steered: &Went, untouched: &Went) -> String {
    let Went { share, early, late, queue_ms, trace, .. } = steered;
    let shown = if wants("TRACE") { trace } else { "" };
    let untouched = untouched.share;
    format!("{name:38} {share:.3} {untouched:.3} {early:>6} {late:>6} {queue_ms:>6.2}\n{shown}")
}

const HEAD: &str = "path                                   SOBAS  bare  early   late  queue\n";

#[expect(clippy::disallowed_methods, reason = "a test does more when asked to")]
pub(crate) fn wants(what: &str) -> bool {
    std::env::var(format!("BANKFULL_SIM_{what}")).is_ok()
}

/// Compares with what is committed. To write it anew after a change that is meant:
/// `BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim sobas`. With `BANKFULL_SIM_TRACE=1` and
/// `-- --nocapture` it shows the decisions instead.
#[expect(clippy::disallowed_methods, reason = "a test writes its own table when asked to")]
#[expect(clippy::print_stdout, reason = "and shows it")]
pub(crate) fn same_as_committed(found: &str, committed: &str, file: &str) {
    if wants("TRACE") {
        print!("{found}");
        return;
    }
    if wants("BLESS") {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/");
        assert!(std::fs::write(format!("{dir}{file}"), found).is_ok(), "{file}");
        return;
    }
    for (at, (found, committed)) in found.lines().zip(committed.lines()).enumerate() {
        assert_eq!(found, committed, "{file}, line {}", at + 1);
    }
    assert_eq!(found.lines().count(), committed.lines().count(), "{file}");
}

/// The grid of docs/algorithms/sobas.md: paths without others, where nothing should be lost.
#[test]
fn quiet_paths_are_filled_without_loss_and_without_a_queue() {
    let mut table = HEAD.to_owned();
    for rate in [100.0, 1000.0, 5000.0] {
        for rtt in [10u32, 50, 150] {
            for share in [0.1, 0.5, 1.0] {
                for streams in [1, 4] {
                    let mut case = Case::new(rate, rtt, share);
                    case.setting.streams = streams;
                    case.time = SEC * if rtt > 100 { 30 } else { 15 };
                    let (steered, untouched) = case.compared();
                    let name = format!("{rate} Mbit/s {rtt} ms {share} BDP n={streams}");
                    table += &row(&name, &steered, &untouched);
                    assert_eq!(steered.late, 0, "{name}: lost after the start\n{}", steered.trace);
                    let allowed = (f64::from(rtt) * 0.1).max(3.0);
                    assert!(steered.queue_ms <= allowed, "{name}: {steered:?}");
                    // The first, unpaced windows of all streams overflow the smallest buffers.
                    let least: f64 = if steered.early > 0 { 0.9 } else { 0.935 };
                    let least = least.max(if share < 0.5 { untouched.share } else { 0.0 });
                    assert!(steered.share >= least, "{name}: {steered:?}");
                }
            }
        }
    }
    same_as_committed(&table, include_str!("../snapshots/sobas-quiet.txt"), "sobas-quiet.txt");
}

/// 1 Gbit/s, 20 ms, under each condition, with three buffers and one or four streams.
fn everywhere(name: &str, table: &mut String, change: impl Fn(&mut Case)) -> Vec<(Went, Went)> {
    let mut all = Vec::new();
    for share in [0.12, 0.5, 1.0] {
        for streams in [1, 4] {
            let mut case = Case::new(1000.0, 20, share);
            case.setting.streams = streams;
            change(&mut case);
            let (steered, untouched) = case.compared();
            *table += &row(&format!("{name} {share} BDP n={streams}"), &steered, &untouched);
            all.push((steered, untouched));
        }
    }
    all
}

#[test]
fn a_wrong_estimate_of_the_capacity_or_none_is_made_good() {
    let mut table = HEAD.to_owned();
    for share in [0.5, 0.9, 0.97, 1.03, 1.1, 2.0] {
        let name = format!("trains tell {share} of it,");
        for (steered, _) in everywhere(&name, &mut table, |case| case.setting.trains = Some(share))
        {
            assert!(steered.share > 0.91, "{name}: {steered:?}");
        }
    }
    for (steered, untouched) in
        everywhere("no train tells,", &mut table, |case| case.setting.trains = None)
    {
        assert!(steered.share > 0.85 * untouched.share, "{steered:?}");
    }
    for (steered, untouched) in
        everywhere("UDP is blocked,", &mut table, |case| case.setting.is_udp_blocked = true)
    {
        assert!(steered.share > 0.85 * untouched.share, "{steered:?}");
    }
    same_as_committed(&table, include_str!("../snapshots/sobas-trains.txt"), "sobas-trains.txt");
}

#[test]
fn loss_that_is_no_congestion_costs_no_more_than_without() {
    let mut table = HEAD.to_owned();
    for probability in [1e-4, 1e-3, 1e-2] {
        let name = format!("loss {} %,", probability * 100.0);
        for (steered, untouched) in everywhere(&name, &mut table, |case| {
            case.path.forward.loss = Loss::Random { probability };
        }) {
            assert!(steered.share >= 0.9 * untouched.share, "{name}: {steered:?} {untouched:?}");
        }
    }
    same_as_committed(&table, include_str!("../snapshots/sobas-loss.txt"), "sobas-loss.txt");
}

#[test]
fn others_get_what_is_theirs_and_we_get_ours() {
    let mut table = HEAD.to_owned();
    // 400 of 1000 Mbit/s that do not react: 0.6 is ours.
    let all = everywhere("400 Mbit/s of packets,", &mut table, |case| {
        case.path.forward.cross = Cross::Poisson { rate: mbit(400.0) };
    });
    for (steered, untouched) in all {
        assert!(steered.share > 0.52 && steered.late < 100, "{steered:?} {untouched:?}");
        assert!(steered.share > 0.97 * untouched.share, "{steered:?} {untouched:?}");
    }
    // A flow that its window holds at 500 Mbit/s: the rest is ours, and no more.
    let all = everywhere("a flow of 500 Mbit/s,", &mut table, |case| {
        case.others = Some((1, Some(1_250_000)));
    });
    for (steered, _) in all {
        assert!((0.47..0.6).contains(&steered.share), "{steered:?}");
    }
    everywhere("bursts of 800 Mbit/s,", &mut table, |case| {
        let (on, off) = (MS * 20, MS * 20);
        case.path.forward.cross = Cross::OnOff { rate: mbit(800.0), on, off };
    });
    for seed in 1..4 {
        everywhere(&format!("4 flows of CUBIC ({seed}),"), &mut table, |case| {
            case.others = Some((4, None));
            case.seed = seed;
            case.time = SEC * 60;
        });
    }
    same_as_committed(&table, include_str!("../snapshots/sobas-others.txt"), "sobas-others.txt");
}

#[test]
fn a_path_that_changes_is_followed() {
    let mut table = HEAD.to_owned();
    let all = everywhere("half is taken from 10 s to 30 s,", &mut table, |case| {
        case.guest = Some((480.0, SEC * 10, SEC * 30));
        case.time = SEC * 50;
    });
    for (steered, _) in all {
        let mean = |range: std::ops::Range<usize>| {
            let count = range.len() as f64;
            steered.seconds[range].iter().sum::<f64>() / count
        };
        assert!(mean(20..30) > 0.9 * 480.0, "within 10 s of less: {steered:?}");
        assert!(mean(40..49) > 0.9 * 965.0, "within 10 s of more: {steered:?}");
    }
    same_as_committed(&table, include_str!("../snapshots/sobas-change.txt"), "sobas-change.txt");
}
