//! Delivery opportunities of links whose rate varies: Mahimahi's format, and generated traces.
//!
//! The generators imitate published properties of such links; none is a recording.

use super::time::{Picos, Stretch, picos};
use bankfull_control::Rate;
use fastrand::Rng;
use std::time::Duration;

/// Bytes of a delivery opportunity (Mahimahi: a packet of the MTU).
const OPPORTUNITY_BYTES: u32 = 1500;

/// Resolution of a trace (Mahimahi: whole milliseconds).
const BIN: Duration = Duration::from_millis(1);
const BINS_PER_SEC: f64 = 1000.0;

/// Longest trace, in bins: an hour. (chosen: recordings have minutes)
const MAX_BINS: u64 = 3_600_000;

/// Length of a generated trace, in bins: a minute, then it repeats. (chosen: longer than most runs)
const GENERATED_BINS: usize = 60_000;

/// Names of the generated traces.
pub const TRACE_NAMES: [&str; 4] = ["cellular", "cellular-weak", "wifi", "satellite"];

/// Bytes that a link delivers in each millisecond; repeats at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    bytes: Vec<u32>,
}

impl Trace {
    /// Parses a trace in Mahimahi's format: lines of milliseconds, one for each 1500 bytes.
    ///
    /// # Errors
    /// Describes the first line that is not an ascending number, or reports an empty trace.
    pub fn parse_mahimahi(text: &str) -> Result<Self, String> {
        let mut bytes: Vec<u32> = Vec::new();
        for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let wrong = |what: &str| format!("line {}: {what}", line + 1);
            let at: u64 = text.trim().parse().map_err(|_| wrong("expected a number of ms"))?;
            if at > MAX_BINS {
                return Err(wrong("a trace lasts at most an hour"));
            }
            // An opportunity at n ms counts for the millisecond before it.
            let bin = (at as usize).saturating_sub(1);
            if bin + 1 < bytes.len() {
                return Err(wrong("times must ascend"));
            }
            bytes.resize(bytes.len().max(bin + 1), 0);
            bytes[bin] = bytes[bin].saturating_add(OPPORTUNITY_BYTES);
        }
        match bytes.is_empty() {
            true => Err("the trace has no delivery opportunity".to_owned()),
            false => Ok(Self { bytes }),
        }
    }

    /// Returns the trace in Mahimahi's format.
    #[must_use]
    pub fn to_mahimahi(&self) -> String {
        let mut text = String::new();
        let mut credit = 0;
        for (bin, bytes) in self.bytes.iter().enumerate() {
            credit += bytes;
            for _ in 0..credit / OPPORTUNITY_BYTES {
                text += &format!("{}\n", bin + 1);
            }
            credit %= OPPORTUNITY_BYTES;
        }
        text
    }

    /// Generates the trace of a name, whose highest rate is `peak`; `None`: unknown name.
    ///
    /// | Name | Imitates |
    /// |---|---|
    /// | `cellular` | LTE: fading over seconds, grants every few ms, short outages |
    /// | `cellular-weak` | the same at the edge of a cell: deeper fades, longer outages |
    /// | `wifi` | rates chosen anew every 200 ms, frames every few ms, contention |
    /// | `satellite` | low orbit: another rate every 15 s after an outage |
    #[must_use]
    pub fn generate(name: &str, peak: Rate, seed: u64) -> Option<Self> {
        let mut rng = Rng::with_seed(seed);
        let shares = match name {
            "cellular" => cellular(&mut rng, 0.1, 0.15),
            "cellular-weak" => cellular(&mut rng, 0.02, 0.5),
            "wifi" => wifi(&mut rng),
            "satellite" => satellite(&mut rng),
            _ => return None,
        };
        let peak_bytes = peak.bits_per_sec() as f64 / 8.0 / BINS_PER_SEC;
        let bytes = shares.into_iter().map(|share| (share * peak_bytes).round() as u32);
        Some(Self { bytes: bytes.collect() })
    }

    /// Returns the mean rate.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let sum: f64 = self.bytes.iter().map(|&bytes| f64::from(bytes)).sum();
        Rate::from_bits_per_sec(sum * 8.0 * BINS_PER_SEC / self.bytes.len().max(1) as f64)
    }

    /// Returns the stretch from a time, the start of a bin, to the next bin.
    pub(super) fn stretch(&self, start: Picos) -> Stretch {
        let bin = picos(BIN);
        let bytes = self.bytes[(start / bin) as usize % self.bytes.len()];
        let picos_per_byte = if bytes == 0 { f64::INFINITY } else { bin as f64 / f64::from(bytes) };
        Stretch { picos_per_byte, end: (start / bin + 1) * bin }
    }
}

/// Spreads a share of the peak rate over grants: all of the peak in some bins, none in others.
fn grants(shares: &[f64], rng: &mut Rng, longest_gap: usize) -> Vec<f64> {
    let mut bins = Vec::with_capacity(shares.len());
    let mut owed = 0.0;
    while bins.len() < shares.len() {
        let gap = rng.usize(1..=longest_gap).min(shares.len() - bins.len());
        owed += shares[bins.len()..bins.len() + gap].iter().sum::<f64>();
        let from = bins.len();
        bins.resize(from + gap, 0.0);
        for bin in bins[from..].iter_mut().rev() {
            *bin = owed.clamp(0.0, 1.0);
            owed -= *bin;
        }
    }
    bins
}

/// Sets the shares of an outage to zero.
fn cut_out(shares: &mut [f64], from: usize, bins: usize) {
    let end = (from + bins).min(shares.len());
    shares[from.min(end)..end].fill(0.0);
}

/// Fading between `least` and 0.8 of the peak, and an outage every 10 s; seconds.
fn cellular(rng: &mut Rng, least: f64, outage: f64) -> Vec<f64> {
    let (low, high) = (least.ln(), 0.8_f64.ln());
    let mut level = f64::midpoint(low, high);
    let mut shares = Vec::with_capacity(GENERATED_BINS);
    while shares.len() < GENERATED_BINS {
        // Every 100 ms by up to ±35 %, back to the middle within some seconds.
        level += 0.3 * (2.0 * rng.f64() - 1.0) + 0.02 * (f64::midpoint(low, high) - level);
        level = level.clamp(low, high);
        shares.resize(shares.len() + 100, level.exp());
    }
    for _ in 0..GENERATED_BINS / 10_000 {
        let bins = (outage * BINS_PER_SEC * (0.3 + 0.7 * rng.f64())) as usize;
        cut_out(&mut shares, rng.usize(0..GENERATED_BINS), bins);
    }
    grants(&shares, rng, 8)
}

/// One of five rates every 200 ms, frames, and contention of up to 30 ms.
fn wifi(rng: &mut Rng) -> Vec<f64> {
    // Shares of 802.11 rates with two streams: MCS 9, 7, 5, 4, 3 (IEEE 802.11-2020, table 21-30).
    const LEVELS: [f64; 5] = [1.0, 0.83, 0.67, 0.5, 0.33];
    let mut level = 1usize;
    let mut shares = Vec::with_capacity(GENERATED_BINS);
    while shares.len() < GENERATED_BINS {
        level = (level + rng.usize(0..3)).clamp(1, LEVELS.len()) - 1;
        shares.resize(shares.len() + 200, LEVELS[level] * 0.9);
        level = level.max(1);
    }
    for _ in 0..GENERATED_BINS / 1000 {
        cut_out(&mut shares, rng.usize(0..GENERATED_BINS), rng.usize(5..30));
    }
    grants(&shares, rng, 5)
}

/// Another rate every 15 s, after an outage of 60 to 120 ms.
fn satellite(rng: &mut Rng) -> Vec<f64> {
    let mut shares = Vec::with_capacity(GENERATED_BINS);
    while shares.len() < GENERATED_BINS {
        let (from, level) = (shares.len(), 0.4 + 0.6 * rng.f64());
        let slot: Vec<f64> = (0..15_000).map(|_| level * (0.95 + 0.05 * rng.f64())).collect();
        shares.extend(slot);
        cut_out(&mut shares, from, rng.usize(60..120));
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mahimahi_format_is_read_and_written() {
        let trace = Trace::parse_mahimahi("1\n1\n3\n\n5\n").unwrap();
        assert_eq!(trace.bytes, [3000, 0, 1500, 0, 1500]);
        assert_eq!(trace.mean(), Rate::from_bits_per_sec(9.6e6));
        assert_eq!(Trace::parse_mahimahi(&trace.to_mahimahi()), Ok(trace));
        for (text, words) in [
            ("", "no delivery opportunity"),
            ("1\nx\n", "line 2: expected a number of ms"),
            ("5\n3\n", "line 2: times must ascend"),
            ("9999999999\n", "line 1: a trace lasts at most an hour"),
        ] {
            assert!(Trace::parse_mahimahi(text).unwrap_err().contains(words), "{text:?}");
        }
    }

    #[test]
    fn generated_traces_vary_and_repeat() {
        let peak = Rate::from_bits_per_sec(100e6);
        for (name, low, high) in [
            ("cellular", 20.0, 50.0),
            ("cellular-weak", 5.0, 30.0),
            ("wifi", 45.0, 85.0),
            ("satellite", 50.0, 95.0),
        ] {
            let trace = Trace::generate(name, peak, 1).unwrap();
            let mean = trace.mean().bits_per_sec() as f64 / 1e6;
            assert!((low..high).contains(&mean), "{name}: {mean}");
            let seconds: Vec<u32> = trace.bytes.chunks(1000).map(|s| s.iter().sum()).collect();
            let (least, most) = (seconds.iter().min().unwrap(), seconds.iter().max().unwrap());
            assert!(*most as f64 > 1.2 * f64::from(*least), "{name}: {least} {most}");
            assert_eq!(
                trace.stretch(0).picos_per_byte,
                trace.stretch(picos(BIN) * trace.bytes.len() as u64).picos_per_byte
            );
            assert_eq!(Trace::generate(name, peak, 1), Some(trace));
        }
        assert!(Trace::generate("tin cans", peak, 1).is_none());
        assert!(TRACE_NAMES.iter().all(|name| Trace::generate(name, peak, 2).is_some()));
    }
}
