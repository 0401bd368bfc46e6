//! Named paths, with numbers that stand here and in `docs/sim.md` and nowhere else.

use crate::link::LinkConfig;
use crate::loss::Loss;
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// A path between two hosts: where the data goes, and the way back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathConfig {
    /// From the sender to the receiver, with the bottleneck.
    pub forward: LinkConfig,
    /// Back: only delay, unless said otherwise.
    pub reverse: LinkConfig,
}

impl PathConfig {
    /// A path with its bottleneck forward, and the delay shared by both ways.
    #[must_use]
    pub fn new(rate: Rate, rtt: Duration, buffer: Bytes) -> Self {
        let delay = rtt / 2;
        Self {
            forward: LinkConfig { rate: Some(rate), delay, buffer, ..LinkConfig::default() },
            reverse: LinkConfig { delay: rtt - delay, ..LinkConfig::default() },
        }
    }

    /// The round trip without queues.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.reverse.delay
    }

    /// Bandwidth × delay: the bytes in flight that fill the path; `None` when nothing limits it.
    #[must_use]
    pub fn bdp(&self) -> Option<Bytes> {
        let rate = self.forward.rate?;
        Some(Bytes((rate.bits_per_sec() as f64 / 8.0 * self.rtt().as_secs_f64()) as u64))
    }
}

/// A path with a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preset {
    /// What it is called.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    rate_mbit: f64,
    rtt_us: u64,
    buffer_bytes: u64,
    loss: f64,
}

impl Preset {
    /// The path.
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

/// All of them. (ours: the six paths on which other movers were measured, and an incast port)
pub const PRESETS: [Preset; 7] = [
    preset("lan", "a local network", (10_000.0, 200), 4_000_000, 0.0),
    preset("continental", "a shallow gigabit path", (1_000.0, 20_000), 300_000, 0.0),
    preset("transatlantic", "a long shallow gigabit path", (1_000.0, 100_000), 1_250_000, 0.0),
    preset("lossy", "loss that is not congestion", (500.0, 80_000), 5_000_000, 0.001),
    preset("antipodes", "a slow and very long path", (100.0, 180_000), 250_000, 0.0),
    preset("research", "a fast and long path", (5_000.0, 50_000), 6_000_000, 0.0),
    preset("incast", "the last port of a switch", (1_000.0, 100), 256_000, 0.0),
];

/// The preset of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

const fn preset(
    name: &'static str,
    about: &'static str,
    (rate_mbit, rtt_us): (f64, u64),
    buffer_bytes: u64,
    loss: f64,
) -> Preset {
    Preset { name, about, rate_mbit, rtt_us, buffer_bytes, loss }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_found_by_its_name_and_is_what_it_says() {
        let path = find("continental").unwrap().path();
        assert_eq!(path.rtt(), Duration::from_millis(20));
        assert_eq!(path.bdp(), Some(Bytes(2_500_000)));
        assert_eq!(path.forward.buffer, Bytes(300_000));
        assert!(find("nowhere").is_none());
        assert_eq!(find("lossy").unwrap().path().forward.loss.mean(), 0.001);
    }
}
