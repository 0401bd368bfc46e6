//! Named paths; their parameters are also listed in `docs/sim.md`.

use crate::background::Background;
use crate::link::LinkConfig;
use crate::loss::Loss;
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// Path between two hosts, in both directions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathConfig {
    /// Link from the sender to the receiver, the bottleneck.
    pub forward: LinkConfig,
    /// Link back: delay only by default.
    pub reverse: LinkConfig,
    /// Link of the sender before `forward`: another bottleneck.
    pub first_hop: Option<LinkConfig>,
    /// TCP cross traffic through both links, from the start.
    pub background: Vec<Background>,
}

impl PathConfig {
    /// Creates a path whose forward link is the bottleneck; each direction has half of the delay.
    #[must_use]
    pub fn new(rate: Rate, rtt: Duration, buffer: Bytes) -> Self {
        let delay = rtt / 2;
        Self {
            forward: LinkConfig { rate: Some(rate), delay, buffer, ..LinkConfig::default() },
            reverse: LinkConfig { delay: rtt - delay, ..LinkConfig::default() },
            first_hop: None,
            background: Vec::new(),
        }
    }

    /// Returns the RTT without queueing.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        let first = self.first_hop.as_ref().map_or(Duration::ZERO, |link| link.delay);
        first + self.forward.delay + self.reverse.delay
    }

    /// Returns the bandwidth-delay product; `None` for an infinite rate.
    #[must_use]
    pub fn bdp(&self) -> Option<Bytes> {
        let rate = self.forward.rate?;
        Some(Bytes((rate.bits_per_sec() as f64 / 8.0 * self.rtt().as_secs_f64()) as u64))
    }
}

/// Named path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preset {
    /// Name.
    pub name: &'static str,
    /// Description.
    pub description: &'static str,
    rate_mbit: f64,
    rtt_us: u64,
    buffer_bytes: u64,
    loss: f64,
}

impl Preset {
    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> PathConfig {
        let rate = Rate::from_bits_per_sec(self.rate_mbit * 1e6);
        let rtt = Duration::from_micros(self.rtt_us);
        let mut path = PathConfig::new(rate, rtt, Bytes(self.buffer_bytes));
        if self.loss > 0.0 {
            path.forward.loss = Loss::Random { probability: self.loss };
        }
        path
    }
}

/// All presets. (chosen: the six paths on which other tools were measured, and an incast port)
pub const PRESETS: [Preset; 7] = [
    preset("lan", "a local network", (10_000.0, 200), 4_000_000, 0.0),
    preset("continental", "a shallow gigabit path", (1_000.0, 20_000), 300_000, 0.0),
    preset("transatlantic", "a long shallow gigabit path", (1_000.0, 100_000), 1_250_000, 0.0),
    preset("lossy", "loss that is not congestion", (500.0, 80_000), 5_000_000, 0.001),
    preset("antipodes", "a slow and very long path", (100.0, 180_000), 250_000, 0.0),
    preset("research", "a fast and long path", (5_000.0, 50_000), 6_000_000, 0.0),
    preset("incast", "the last port of a switch", (1_000.0, 100), 256_000, 0.0),
];

/// Returns the preset of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

const fn preset(
    name: &'static str,
    description: &'static str,
    (rate_mbit, rtt_us): (f64, u64),
    buffer_bytes: u64,
    loss: f64,
) -> Preset {
    Preset { name, description, rate_mbit, rtt_us, buffer_bytes, loss }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_is_found_by_name() {
        let path = find("continental").unwrap().path();
        assert_eq!(path.rtt(), Duration::from_millis(20));
        assert_eq!(path.bdp(), Some(Bytes(2_500_000)));
        assert_eq!(path.forward.buffer, Bytes(300_000));
        assert!(find("nowhere").is_none());
        assert_eq!(find("lossy").unwrap().path().forward.loss.mean(), 0.001);
    }
}
