//! Words of cross traffic: `web` and `video`.

use super::{Case, Figure};
use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_sim::tcp::MSS;
use bankfull_sim::{Background, PathConfig, World};
use std::time::Duration;

/// Sizes of web objects as documented: a bounded Pareto distribution.
const WEB_EXPONENT: f64 = 1.2;
const WEB_LEAST: f64 = 4e3;
const WEB_MOST: f64 = 1e7;

/// Initial window in segments (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

/// Length of a video segment, and shares of the best bit rate, as documented.
const SEGMENT: Duration = Duration::from_secs(4);
const MIDDLE_RUNG: f64 = 0.35;
const LOWEST_RUNG: f64 = 0.1;

/// Observation of a video, after its player has filled its buffer: 25 segments.
const VIDEO_START: Duration = Duration::from_secs(61);
const VIDEO_TIME: Duration = Duration::from_secs(100);

fn world(line_mbit: f64, kind: Background, seed: u64) -> World {
    let path = PathConfig::new(mbit(line_mbit), MS * 40, Bytes(1_000_000));
    let mut world = World::new(seed);
    let route = world.add_path(&path);
    world.add_background(&route, kind, Duration::ZERO);
    world
}

/// Returns the share of web objects of at most so many bytes.
fn web_share(bytes: f64) -> f64 {
    let above = |bytes: f64| (WEB_LEAST / bytes).powf(WEB_EXPONENT);
    (1.0 - above(bytes)) / (1.0 - above(WEB_MOST))
}

/// Returns the mean of the sizes: the integral of the share above each.
fn web_mean_bytes() -> f64 {
    const CELLS: u32 = 100_000;
    // Even cells in the logarithm.
    let ratio = (WEB_MOST / WEB_LEAST).powf(1.0 / f64::from(CELLS));
    let mut low = WEB_LEAST;
    let mut mean = WEB_LEAST;
    for _ in 0..CELLS {
        let high = low * ratio;
        mean += (1.0 - web_share((low * high).sqrt())) * (high - low);
        low = high;
    }
    mean
}

/// Web objects of 20 Mbit/s on a line of 1 Gbit/s, for 200 s.
///
/// A flow without queues needs an RTT for its initial window, another for twice as much, and so on.
pub(super) fn web(seed: u64) -> Case {
    const SECONDS: u32 = 200;
    let rate = mbit(20.0);
    let mut world = world(1000.0, Background::Web { rate }, seed);
    world.run_until(SEC * SECONDS);
    let report = world.background_reports().remove(0);
    let flows = rate.bits_per_sec() as f64 / 8.0 * f64::from(SECONDS) / web_mean_bytes();
    let completed = &report.completion_times;
    let within = |rtts: u32| {
        let limit = MS * 40 * rtts + MS * 20;
        let count = completed.iter().filter(|&&time| time <= limit).count();
        100.0 * count as f64 / completed.len() as f64
    };
    let share = |name, note, windows: f64, model| Figure {
        unit: "%",
        digits: 1,
        // 21 000 flows.
        tolerance: 0.6,
        ..Figure::new(name, note, 100.0 * web_share(windows * INITIAL_WINDOW * MSS as f64), model)
    };
    let delivered = report.delivered.0 as f64 * 8e-6 / f64::from(SECONDS);
    Case {
        name: "`web:20mbit`, 200 s",
        figures: vec![
            Figure {
                unit: "flows",
                digits: 0,
                // Three standard deviations of a Poisson process.
                tolerance: 3.0 * flows.sqrt(),
                ..Figure::new(
                    "completed",
                    "time by rate / mean size",
                    flows,
                    completed.len() as f64,
                )
            },
            share("within 1 RTT", "sizes of an initial window", 1.0, within(1)),
            share("within 2 RTTs", "of 3 initial windows", 3.0, within(2)),
            share("within 3 RTTs", "of 7", 7.0, within(3)),
            Figure {
                unit: "Mbit/s",
                digits: 1,
                // A standard deviation of the sizes is six means.
                tolerance: 2.0,
                ..Figure::new("mean rate", "", rate.bits_per_sec() as f64 / 1e6, delivered)
            },
        ],
    }
}

/// Video of 8 Mbit/s over lines of 100, 4.5 and 0.5 Mbit/s.
///
/// The bit rate is the highest rung that is at most 0.8 of the throughput of a segment.
pub(super) fn video() -> Case {
    let best = 8.0;
    let observe = |line: f64| {
        let mut world = world(line, Background::Video { rate: mbit(best) }, 1);
        world.run_until(VIDEO_START);
        let before = world.background_reports().remove(0);
        world.run_until(VIDEO_START + VIDEO_TIME);
        let after = world.background_reports().remove(0);
        let seconds = VIDEO_TIME.as_secs_f64();
        let rate = (after.delivered.0 - before.delivered.0) as f64 * 8e-6 / seconds;
        (rate, 100.0 * (after.stalled - before.stalled).as_secs_f64() / seconds)
    };
    let rate = |name, note, theory, model| Figure {
        unit: "Mbit/s",
        // Parts of segments at either end.
        tolerance: 0.02,
        ..Figure::new(name, note, theory, model)
    };
    let share = |name, note, tolerance, theory, model| Figure {
        unit: "%",
        digits: 1,
        tolerance,
        ..Figure::new(name, note, theory, model)
    };
    let starved = 0.5;
    let ((fast, fast_stalled), (slow, slow_stalled)) = (observe(100.0), observe(4.5));
    let (_, stalled) = observe(starved);
    // Media of a second needs more than a second of the line.
    let played = starved * crate::DATA_SHARE / (best * LOWEST_RUNG);
    // A request waits for half of a tick of 100 ms; slow start adds two RTTs of 40 ms.
    let pause = 0.13;
    let segment = SEGMENT.as_secs_f64();
    let stalled_theory = 100.0 * (1.0 - segment / (segment / played + pause));
    Case {
        name: "`video:8mbit`",
        figures: vec![
            rate("mean rate, line of 100 Mbit/s", "the best", best, fast),
            share("time stalled", "", 0.0, 0.0, fast_stalled),
            rate("mean rate, line of 4.5 Mbit/s", "0.35 of the best", best * MIDDLE_RUNG, slow),
            share("time stalled", "", 0.0, 0.0, slow_stalled),
            share(
                "time stalled, line of 0.5 Mbit/s",
                "a tenth of the best does not fit",
                1.0,
                stalled_theory,
                stalled,
            ),
        ],
    }
}
