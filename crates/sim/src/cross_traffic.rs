//! Unresponsive cross traffic: packets of other sources in the same queue.

use bankfull_control::Rate;
use fastrand::Rng;
use std::time::Duration;

/// Size of a cross traffic packet in bytes: an Ethernet MTU.
pub const CROSS_PACKET_BYTES: u32 = 1500;

/// Unresponsive cross traffic through a link.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum CrossTraffic {
    /// No cross traffic.
    #[default]
    None,
    /// Packets at equal intervals.
    Constant {
        /// Rate.
        rate: Rate,
    },
    /// Packets at exponentially distributed intervals.
    Poisson {
        /// Mean rate.
        rate: Rate,
    },
    /// Bursts at a constant rate, with pauses; both lengths are exponentially distributed.
    OnOff {
        /// Rate during a burst.
        rate: Rate,
        /// Mean length of a burst.
        on: Duration,
        /// Mean length of a pause.
        off: Duration,
    },
}

impl CrossTraffic {
    /// Returns the long-term mean rate.
    #[must_use]
    pub fn mean(&self) -> Rate {
        match *self {
            Self::None => Rate::default(),
            Self::Constant { rate } | Self::Poisson { rate } => rate,
            Self::OnOff { rate, on, off } => {
                let share = on.as_secs_f64() / (on + off).as_secs_f64().max(f64::MIN_POSITIVE);
                Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * share)
            }
        }
    }
}

/// Generator of cross traffic packets.
#[derive(Debug, Clone)]
pub(crate) struct CrossPackets {
    model: CrossTraffic,
    rng: Rng,
    /// Arrival time of the next packet, in seconds.
    next_arrival: f64,
    /// End of the burst, in seconds.
    burst_end: f64,
}

impl CrossPackets {
    pub(crate) fn new(model: CrossTraffic, seed: u64) -> Self {
        let mut cross_packets =
            Self { model, rng: Rng::with_seed(seed), next_arrival: 0.0, burst_end: 0.0 };
        if model.mean().bits_per_sec() == 0 {
            cross_packets.next_arrival = f64::INFINITY;
        } else {
            cross_packets.step();
        }
        cross_packets
    }

    /// Returns the arrival time of the next packet, if it is before `now`.
    pub(crate) fn next_before(&mut self, now: f64) -> Option<f64> {
        let at = self.next_arrival;
        if at > now {
            return None;
        }
        self.step();
        Some(at)
    }

    fn step(&mut self) {
        self.next_arrival += match self.model {
            CrossTraffic::None => f64::INFINITY,
            CrossTraffic::Constant { rate } => interval(rate),
            CrossTraffic::Poisson { rate } => self.random_exponential(interval(rate)),
            CrossTraffic::OnOff { rate, on, off } => {
                let mut wait = interval(rate);
                while self.next_arrival + wait > self.burst_end {
                    let pause = self.random_exponential(off.as_secs_f64());
                    wait = self.burst_end.max(self.next_arrival) - self.next_arrival
                        + pause
                        + interval(rate);
                    self.burst_end =
                        self.next_arrival + wait + self.random_exponential(on.as_secs_f64());
                }
                wait
            }
        };
    }

    fn random_exponential(&mut self, mean: f64) -> f64 {
        // 1 − u is never zero.
        -mean * (1.0 - self.rng.f64()).ln()
    }
}

/// Returns the interval between packets at a rate, in seconds.
fn interval(rate: Rate) -> f64 {
    f64::from(CROSS_PACKET_BYTES) * 8.0 / rate.bits_per_sec() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_traffic_has_its_mean_rate() {
        let rate = Rate::from_bits_per_sec(100e6);
        let (on, off) = (Duration::from_millis(20), Duration::from_millis(60));
        let kinds = [
            (CrossTraffic::None, 0.0),
            (CrossTraffic::Constant { rate }, 100e6),
            (CrossTraffic::Poisson { rate }, 100e6),
            (CrossTraffic::OnOff { rate, on, off }, 25e6),
        ];
        for (model, expected) in kinds {
            assert_eq!(model.mean(), Rate::from_bits_per_sec(expected));
            let mut cross_packets = CrossPackets::new(model, 7);
            let mut packets = 0;
            while cross_packets.next_before(100.0).is_some() {
                packets += 1;
            }
            let found = f64::from(packets) * 12_000.0 / 100.0;
            assert!((found - expected).abs() <= 0.06 * expected, "{model:?}: {found}");
        }
    }
}
