//! Cross traffic of TCP flows: endless ones, short ones of the web, and video.

use crate::tcp::Algorithm;
use bankfull_control::{Bytes, Rate};
use fastrand::Rng;
use std::time::Duration;

/// Sizes of web objects: a bounded Pareto distribution. (exponent: Crovella and Bestavros 1997, 1.0
/// to 1.3; bounds chosen: from an icon to a download)
const WEB_EXPONENT: f64 = 1.2;
const WEB_BYTES: (f64, f64) = (4_000.0, 10_000_000.0);

/// Length of a video segment. (HLS and DASH deployments: 2 s to 6 s)
const SEGMENT: Duration = Duration::from_secs(4);

/// Bit rates of a video as shares of its best. (chosen: as common ladders from 240p to 1080p)
const LADDER: [f64; 5] = [1.0, 0.6, 0.35, 0.2, 0.1];

/// Share of the measured throughput that a video may use. (chosen: as in players)
const VIDEO_MARGIN: f64 = 0.8;

/// Interval at which a player looks for the end of a segment. (chosen: short beside a segment)
pub(crate) const VIDEO_TICK: Duration = Duration::from_millis(100);

/// Media that a player keeps ahead. (chosen: some segments)
const VIDEO_BUFFER: Duration = Duration::from_secs(12);

/// Cross traffic of TCP flows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Background {
    /// Endless flows.
    Bulk {
        /// Congestion control.
        algorithm: Algorithm,
        /// Number of flows.
        flows: u32,
    },
    /// Short flows that arrive at random, with heavy-tailed sizes.
    Web {
        /// Mean rate of all together.
        rate: Rate,
    },
    /// Video in segments, whose bit rate follows the throughput.
    Video {
        /// Best bit rate.
        rate: Rate,
    },
}

/// Results of cross traffic.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BackgroundReport {
    /// Delivered bytes of all flows.
    pub delivered: Bytes,
    /// Completion times of short flows, in order of completion.
    pub completion_times: Vec<Duration>,
    /// Time for which a video was stalled after its start.
    pub stalled: Duration,
}

/// Draws the size of a web object.
pub(crate) fn web_bytes(rng: &mut Rng) -> Bytes {
    let (low, high) = WEB_BYTES;
    let cut = 1.0 - (low / high).powf(WEB_EXPONENT);
    Bytes((low / (1.0 - rng.f64() * cut).powf(1.0 / WEB_EXPONENT)) as u64)
}

/// Draws the time until the next web object, for a mean rate of all.
pub(crate) fn web_gap(rate: Rate, rng: &mut Rng) -> Duration {
    let mean = web_mean_bytes() / (rate.bits_per_sec().max(1) as f64 / 8.0);
    Duration::from_secs_f64(-mean * (1.0 - rng.f64()).ln())
}

/// Returns the mean of the bounded Pareto distribution.
fn web_mean_bytes() -> f64 {
    let ((low, high), a) = (WEB_BYTES, WEB_EXPONENT);
    let scale = low.powf(a) / (1.0 - (low / high).powf(a));
    scale * a / (a - 1.0) * (low.powf(1.0 - a) - high.powf(1.0 - a))
}

/// State of a video player.
#[derive(Debug, Default)]
pub(crate) struct Player {
    /// Bytes requested so far.
    requested: Bytes,
    requested_at: Duration,
    is_waiting: bool,
    /// Media that is not played yet.
    ahead: Duration,
    throughput: Option<f64>,
    stalled: Duration,
}

impl Player {
    /// Returns the bits of a segment at the bit rate that the throughput allows.
    fn segment_bits(&self, best: Rate) -> f64 {
        let best = best.bits_per_sec() as f64;
        let allowed = self.throughput.map_or(0.0, |throughput| throughput * VIDEO_MARGIN);
        let step = LADDER.iter().find(|share| best * *share <= allowed);
        best * step.unwrap_or(&LADDER[LADDER.len() - 1]) * SEGMENT.as_secs_f64()
    }

    /// Returns the time for which the video was stalled after its start.
    pub(crate) fn stalled(&self) -> Duration {
        self.stalled
    }

    /// Plays for a tick; returns the size of the next segment if one is requested.
    pub(crate) fn play(&mut self, now: Duration, best: Rate, delivered: Bytes) -> Option<Bytes> {
        if self.is_waiting && delivered >= self.requested {
            let bits = self.segment_bits(best);
            let time = now.saturating_sub(self.requested_at).max(VIDEO_TICK);
            self.throughput = Some(bits / time.as_secs_f64());
            self.ahead += SEGMENT;
            self.is_waiting = false;
        }
        if self.throughput.is_some() && self.ahead.is_zero() {
            self.stalled += VIDEO_TICK;
        }
        self.ahead = self.ahead.saturating_sub(VIDEO_TICK);
        if self.is_waiting || self.ahead >= VIDEO_BUFFER {
            return None;
        }
        let bytes = Bytes((self.segment_bits(best) / 8.0) as u64);
        self.requested += bytes;
        self.requested_at = now;
        self.is_waiting = true;
        Some(bytes)
    }
}
