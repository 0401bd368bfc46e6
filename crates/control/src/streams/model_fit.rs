//! The best number of streams, chosen from samples.

use super::model::{FullSecondOrder, Newton};
use super::observation::Sample;
use crate::units::Rate;
use std::fmt;

/// Share of the highest throughput from which fewer streams are preferred. (measured, curves of
/// crates/lab/src/commands/predict.rs: with 95 %, the choice carries less than that)
pub(super) const NEAR_BEST_SHARE: f64 = 0.97;

/// The chosen number of streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamChoice {
    /// Number of streams, from 1 to the maximum.
    pub streams: u32,
    /// Reason of the choice.
    pub reason: ChoiceReason,
}

/// The reason of a choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ChoiceReason {
    /// A model predicts nearly the highest throughput for this number.
    Model {
        /// Fitted model.
        model: Model,
        /// Number of streams with the highest throughput, within the maximum.
        peak: u32,
        /// Predicted throughput at the peak.
        rate: Rate,
        /// Mean absolute error over the samples.
        error: Rate,
    },
    /// No model fits: the fewest streams with nearly the highest sampled throughput.
    Fewest,
    /// Fewer than three samples.
    TooFewSamples,
}

/// A model with a peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// [`Newton`].
    Newton,
    /// [`FullSecondOrder`].
    FullSecondOrder,
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model { model, peak, rate, error } => {
                let name = match model {
                    Model::Newton => "Newton's model",
                    Model::FullSecondOrder => "the full second order model",
                };
                write!(f, "{name} peaks at {peak} streams with {rate} (mean error {error})")
            }
            Self::Fewest => f.write_str("no model fits; more streams carried hardly more"),
            Self::TooFewSamples => f.write_str("there are fewer than three samples"),
        }
    }
}

/// A curve through three samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Curve {
    /// A curve of Newton's model.
    Newton(Newton),
    /// A curve of the full second order model.
    Full(FullSecondOrder),
}

impl Curve {
    /// Returns the curve with the smallest mean error over all samples (BestCmb, Yildirim 2009
    /// §3.2).
    ///
    /// Candidates are the valid curves through any three samples.
    #[must_use]
    pub fn of(samples: &[Sample]) -> Option<Self> {
        Self::nearest(samples, |_| true)
    }

    /// Returns the same among the curves of one model.
    #[must_use]
    pub fn of_model(samples: &[Sample], model: Model) -> Option<Self> {
        Self::nearest(samples, |curve| curve.model() == model)
    }

    fn nearest(samples: &[Sample], which: impl Fn(&Self) -> bool) -> Option<Self> {
        let curves = curves(samples).filter(which).map(|curve| (curve.error(samples), curve));
        curves.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, curve)| curve)
    }

    /// Returns the model of the curve.
    #[must_use]
    pub fn model(&self) -> Model {
        match self {
            Self::Newton(_) => Model::Newton,
            Self::Full(_) => Model::FullSecondOrder,
        }
    }

    /// Returns the predicted throughput of a number of streams in bit/s.
    #[must_use]
    pub fn rate(&self, streams: u32) -> f64 {
        let n = f64::from(streams);
        let rate = match self {
            Self::Newton(fitted) => fitted.rate(n),
            Self::Full(fitted) => fitted.rate(n),
        };
        rate.bits_per_sec() as f64
    }

    /// Returns the number of streams with the highest throughput.
    fn peak(&self, most: u32) -> u32 {
        let peak = match self {
            Self::Newton(fitted) => fitted.peak(),
            Self::Full(fitted) => fitted.peak(),
        };
        // `as` saturates.
        (peak.round() as u32).clamp(1, most)
    }

    /// Returns the mean absolute error over the samples in bit/s.
    fn error(&self, samples: &[Sample]) -> f64 {
        let off = |s: &Sample| (self.rate(s.streams) - s.rate.bits_per_sec() as f64).abs();
        samples.iter().map(off).sum::<f64>() / samples.len() as f64
    }
}

/// Returns the best number of streams, at most `most`; `None` without samples.
///
/// If no curve is valid, the throughput does not rise and then fall; the fewest streams with nearly
/// the highest sampled throughput are chosen.
#[must_use]
pub fn best_streams(samples: &[Sample], most: u32) -> Option<StreamChoice> {
    let most = most.max(1);
    if let Some(curve) = Curve::of(samples) {
        let error = curve.error(samples);
        let peak = curve.peak(most);
        let rate = curve.rate(peak);
        let is_near = |&streams: &u32| curve.rate(streams) >= rate * NEAR_BEST_SHARE;
        let streams = (1..=peak).find(is_near).unwrap_or(peak);
        let [rate, error] = [rate, error].map(Rate::from_bits_per_sec);
        return Some(StreamChoice {
            streams,
            reason: ChoiceReason::Model { model: curve.model(), peak, rate, error },
        });
    }
    fewest_streams(samples, most)
}

/// Returns the fewest sampled streams, at most `most`, with nearly the highest throughput.
pub(super) fn fewest_streams(samples: &[Sample], most: u32) -> Option<StreamChoice> {
    let highest = samples.iter().map(|sample| sample.rate).max()?;
    let near = highest.bits_per_sec() as f64 * NEAR_BEST_SHARE;
    let is_near = |sample: &&Sample| sample.rate.bits_per_sec() as f64 >= near;
    let fewest_streams = samples.iter().filter(is_near).map(|sample| sample.streams).min()?;
    let reason = if samples.len() < 3 { ChoiceReason::TooFewSamples } else { ChoiceReason::Fewest };
    Some(StreamChoice { streams: fewest_streams.clamp(1, most.max(1)), reason })
}

/// Returns all valid curves through three of the samples.
fn curves(samples: &[Sample]) -> impl Iterator<Item = Curve> + '_ {
    triples(samples).flat_map(|triple| {
        let newton = Newton::fit(triple).ok().map(Curve::Newton);
        newton.into_iter().chain(FullSecondOrder::fit(triple).ok().map(Curve::Full))
    })
}

fn triples(samples: &[Sample]) -> impl Iterator<Item = [Sample; 3]> + '_ {
    let count = samples.len();
    let pairs = (0..count).flat_map(move |i| (i + 1..count).map(move |j| (i, j)));
    pairs.flat_map(move |(i, j)| samples[j + 1..].iter().map(move |&c| [samples[i], samples[j], c]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::model::Dinda;
    use crate::streams::select::ExpSelection;
    use crate::streams::test_rng::TestRng;

    fn samples(of: &[(u32, f64)]) -> Vec<Sample> {
        let sample = |&(streams, mbit): &(u32, f64)| Sample {
            streams,
            rate: Rate::from_bits_per_sec(mbit * 1e6),
        };
        of.iter().map(sample).collect()
    }

    #[test]
    fn best_streams_finds_the_peak_of_a_curve() {
        let best =
            best_streams(&samples(&[(1, 300.0), (2, 520.0), (4, 640.0), (8, 560.0)]), 64).unwrap();
        assert!((3..=5).contains(&best.streams), "{best:?}");
        let ChoiceReason::Model { peak, rate, error, .. } = best.reason else { panic!("{best:?}") };
        assert!((3..=5).contains(&peak), "{best:?}");
        assert!((600..=700).contains(&(rate.bits_per_sec() / 1_000_000)), "{rate}");
        assert!(error < Rate::from_bits_per_sec(30e6), "{error}");
    }

    #[test]
    fn best_streams_without_model_takes_the_fewest() {
        let flat = best_streams(&samples(&[(1, 93.0), (2, 95.0), (4, 95.5)]), 64).unwrap();
        assert_eq!(flat.streams, 1, "a model has its peak at 12, with next to nothing more");
        let full = best_streams(&samples(&[(1, 95.0), (2, 95.0), (4, 95.0)]), 64).unwrap();
        assert_eq!(full.streams, 1, "{full:?}");
        let rising = best_streams(&samples(&[(1, 10.0), (2, 20.0), (4, 40.0)]), 64);
        assert_eq!(rising, Some(StreamChoice { streams: 4, reason: ChoiceReason::Fewest }));
        let falling = best_streams(&samples(&[(1, 90.0), (2, 80.0), (4, 10.0)]), 64);
        assert_eq!(falling.map(|best| best.streams), Some(1));
    }

    #[test]
    fn best_streams_handles_degenerate_samples() {
        assert_eq!(best_streams(&[], 64), None);
        let one = best_streams(&samples(&[(4, 90.0)]), 64);
        assert_eq!(one, Some(StreamChoice { streams: 4, reason: ChoiceReason::TooFewSamples }));
        let equal = best_streams(&samples(&[(2, 90.0), (2, 90.0), (2, 90.0)]), 64);
        assert_eq!(equal, Some(StreamChoice { streams: 2, reason: ChoiceReason::Fewest }));
        let nothing = best_streams(&samples(&[(1, 0.0), (2, 0.0), (4, 0.0)]), 64);
        assert_eq!(nothing, Some(StreamChoice { streams: 1, reason: ChoiceReason::Fewest }));
    }

    /// Streams share a path equally until it is full. Beyond that they reduce each other's
    /// throughput.
    #[test]
    fn best_streams_is_near_the_optimum() {
        let mut rng = TestRng::new();
        let mut shares = Vec::new();
        for _ in 0..2_000 {
            let (full_at, fall) = (rng.uniform(1.5, 24.0), rng.uniform(0.0, 0.02));
            let carries = |n: f64| n.min(full_at) * (1.0 - fall * (n - full_at).max(0.0)).max(0.2);
            let mut selection = ExpSelection::new(1, 64);
            while let Some(streams) = selection.next() {
                let noise = rng.uniform(0.98, 1.02);
                let rate = Rate::from_bits_per_sec(carries(streams.into()) * noise * 1e8);
                selection.record(Sample { streams, rate });
            }
            let chosen = best_streams(selection.samples(), 64).unwrap();
            let most = (1..=64).map(|n| carries(f64::from(n))).fold(0.0, f64::max);
            shares.push(carries(chosen.streams.into()) / most);
        }
        shares.sort_by(f64::total_cmp);
        let (least, median) = (shares[20], shares[1_000]);
        assert!(least > 0.85 && median > 0.95, "{least} {median}");
    }

    /// Returns the mean errors of the chosen curve and of Dinda's model. The third value is the
    /// share of curves without a fit.
    ///
    /// Errors are over 1 to 50 streams of many random curves, sampled with noise.
    fn mean_errors(curve_by_chance: impl Fn(&mut TestRng) -> Box<dyn Fn(f64) -> f64>) -> [f64; 3] {
        let mut rng = TestRng::new();
        let (mut errors, mut unfit) = (Vec::new(), 0.0);
        for _ in 0..1_000 {
            let carries = curve_by_chance(&mut rng);
            let mut selection = ExpSelection::new(1, 64);
            while let Some(streams) = selection.next() {
                let rate = 1e8 * carries(streams.into()) * rng.uniform(0.98, 1.02);
                selection.record(Sample { streams, rate: Rate::from_bits_per_sec(rate) });
            }
            let samples = selection.samples();
            let dinda = Dinda::fit([samples[0], samples[samples.len() - 1]]);
            let (Some(curve), Ok(dinda)) = (Curve::of(samples), dinda) else {
                unfit += 1.0;
                continue;
            };
            let off = |of: &dyn Fn(u32) -> f64| {
                let off = |n: u32| (of(n) / 1e8 / carries(f64::from(n)) - 1.0).abs();
                (1..=50).map(off).sum::<f64>() / 50.0
            };
            let of_dinda = |n: u32| dinda.rate(f64::from(n)).bits_per_sec() as f64;
            errors.push((off(&|n| curve.rate(n)), off(&of_dinda)));
        }
        let mean =
            |of: fn(&(f64, f64)) -> f64| errors.iter().map(of).sum::<f64>() / errors.len() as f64;
        [mean(|error| error.0), mean(|error| error.1), unfit / 1_000.0]
    }

    #[test]
    fn fitted_curve_predicts_falling_throughput() {
        // Losses and RTT that grow with n, as in the paper: y with its peak at −2c/b.
        let [best_cmb, dindas, unfit] = mean_errors(|rng| {
            let (peak, depth) = (rng.uniform(3.0, 20.0), rng.uniform(1.05, 3.0));
            let (a, b) = (depth / (peak * peak), -2.0 / peak);
            Box::new(move |n| n / (a * n * n + b * n + 1.0).sqrt())
        });
        // Streams that share equally until the path is full: a bend that no model has.
        let [bent, dindas_bent, _] = mean_errors(|rng| {
            let (full_at, fall) = (rng.uniform(1.5, 12.0), rng.uniform(0.005, 0.02));
            Box::new(move |n| n.min(full_at) * (1.0 - fall * (n - full_at).max(0.0)).max(0.2))
        });
        assert!(bent < dindas_bent, "{bent} {dindas_bent}");
        assert!(
            best_cmb <= 0.08 && best_cmb <= dindas / 2.0 && unfit < 0.1,
            "{best_cmb} {dindas} {unfit}"
        );
    }

    #[test]
    fn best_streams_random_samples_stay_in_range() {
        let mut rng = TestRng::new();
        for _ in 0..20_000 {
            let (count, most) = (rng.uniform_int(1, 6), rng.uniform_int(0, 200));
            let of: Vec<(u32, f64)> =
                (0..count).map(|_| (rng.uniform_int(0, 300), rng.uniform(0.0, 1e6))).collect();
            let chosen = best_streams(&samples(&of), most).unwrap();
            assert!((1..=most.max(1)).contains(&chosen.streams), "{of:?} {chosen:?}");
            assert!(!chosen.reason.to_string().contains("NaN"), "{of:?} {chosen:?}");
        }
    }
}
