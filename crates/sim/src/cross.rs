//! Cross traffic that does not react: bytes of others that pass the same queue.

use bankfull_control::Rate;
use fastrand::Rng;
use std::time::Duration;

/// Bytes of a packet of cross traffic unless said otherwise: an Ethernet MTU.
pub const CROSS_PACKET_BYTES: u32 = 1500;

/// What others send through a link, whatever becomes of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Cross {
    /// Nothing.
    #[default]
    None,
    /// Packets at equal distances.
    Constant {
        /// Their rate.
        rate: Rate,
    },
    /// Packets at exponentially distributed distances.
    Poisson {
        /// Their mean rate.
        rate: Rate,
    },
    /// Bursts at a constant rate, with pauses; the lengths of both are exponentially distributed.
    OnOff {
        /// Rate while it sends.
        rate: Rate,
        /// Mean length of a burst.
        on: Duration,
        /// Mean length of a pause.
        off: Duration,
    },
}

impl Cross {
    /// The rate in the long run.
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

/// The packets of cross traffic, one after another.
#[derive(Debug, Clone)]
pub(crate) struct Others {
    cross: Cross,
    rng: Rng,
    /// When the next packet comes, in seconds.
    next: f64,
    /// Until when the burst lasts, in seconds.
    burst_until: f64,
}

impl Others {
    pub(crate) fn new(cross: Cross, seed: u64) -> Self {
        let mut others = Self { cross, rng: Rng::with_seed(seed), next: 0.0, burst_until: 0.0 };
        if cross.mean().bits_per_sec() == 0 {
            others.next = f64::INFINITY;
        } else {
            others.step();
        }
        others
    }

    /// When the next packet comes, if it does before `now`.
    pub(crate) fn next_before(&mut self, now: f64) -> Option<f64> {
        let at = self.next;
        if at > now {
            return None;
        }
        self.step();
        Some(at)
    }

    fn step(&mut self) {
        self.next += match self.cross {
            Cross::None => f64::INFINITY,
            Cross::Constant { rate } => gap(rate),
            Cross::Poisson { rate } => self.exponential(gap(rate)),
            Cross::OnOff { rate, on, off } => {
                let mut wait = gap(rate);
                while self.next + wait > self.burst_until {
                    let pause = self.exponential(off.as_secs_f64());
                    wait = self.burst_until.max(self.next) - self.next + pause + gap(rate);
                    self.burst_until = self.next + wait + self.exponential(on.as_secs_f64());
                }
                wait
            }
        };
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        // 1 − u is never zero.
        -mean * (1.0 - self.rng.f64()).ln()
    }
}

/// Seconds between packets at a rate.
fn gap(rate: Rate) -> f64 {
    f64::from(CROSS_PACKET_BYTES) * 8.0 / rate.bits_per_sec() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_keeps_its_mean_rate() {
        let rate = Rate::from_bits_per_sec(100e6);
        let (on, off) = (Duration::from_millis(20), Duration::from_millis(60));
        let kinds = [
            (Cross::None, 0.0),
            (Cross::Constant { rate }, 100e6),
            (Cross::Poisson { rate }, 100e6),
            (Cross::OnOff { rate, on, off }, 25e6),
        ];
        for (cross, expected) in kinds {
            assert_eq!(cross.mean(), Rate::from_bits_per_sec(expected));
            let mut others = Others::new(cross, 7);
            let mut packets = 0;
            while others.next_before(100.0).is_some() {
                packets += 1;
            }
            let found = f64::from(packets) * 12_000.0 / 100.0;
            assert!((found - expected).abs() <= 0.06 * expected, "{cross:?}: {found}");
        }
    }
}
