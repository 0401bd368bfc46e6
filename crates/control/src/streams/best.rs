//! What follows from samples: the best number of streams, and why.

use super::Sample;
use super::model::{FullSecondOrder, Newton};
use crate::units::Rate;
use std::fmt;

/// The fewest streams are taken that reach this share of the most that is told. [design: within 3 %
/// of the best sample, where no model is; ours: with a model too, for each stream costs]
pub(super) const NEAR_BEST: f64 = 0.97;

/// The best number of streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// From one to what was allowed.
    pub streams: u32,
    /// Why so many.
    pub why: Why,
}

/// Why a number of streams is the best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// A model tells that they carry about as much as any number does.
    Model {
        /// Which one.
        model: Model,
        /// How many carry most, as far as so many are allowed.
        peak: u32,
        /// What those would carry.
        rate: Rate,
        /// How far it is from the samples, in the mean.
        error: Rate,
    },
    /// No model fits: the fewest that carried nearly as much as any.
    Fewest,
    /// There are not three samples to compare.
    TooFew,
}

/// A model that has a peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// [`Newton`].
    Newton,
    /// [`FullSecondOrder`].
    FullSecondOrder,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model { model, peak, rate, error } => {
                let name = match model {
                    Model::Newton => "Newton's model",
                    Model::FullSecondOrder => "the full second order model",
                };
                write!(f, "{name} has its peak at {peak}, {rate}, and is {error} off the samples")
            }
            Self::Fewest => f.write_str("no model fits; more of them carried next to nothing more"),
            Self::TooFew => f.write_str("there are not three samples to compare"),
        }
    }
}

/// A curve through three samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Curve {
    /// Of Newton's model.
    Newton(Newton),
    /// Of the full second order model.
    Full(FullSecondOrder),
}

impl Curve {
    /// BestCmb (Yildirim 2009, section 3.2): of the valid curves through each three of the samples,
    /// the one with the least mean error over all of them.
    #[must_use]
    pub fn of(samples: &[Sample]) -> Option<Self> {
        Self::nearest(samples, |_| true)
    }

    /// The same of the curves of one model.
    #[must_use]
    pub fn of_model(samples: &[Sample], model: Model) -> Option<Self> {
        Self::nearest(samples, |curve| curve.model() == model)
    }

    fn nearest(samples: &[Sample], which: impl Fn(&Self) -> bool) -> Option<Self> {
        let curves = curves(samples).filter(which).map(|curve| (curve.error(samples), curve));
        curves.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, curve)| curve)
    }

    /// The model that it is of.
    #[must_use]
    pub fn model(&self) -> Model {
        match self {
            Self::Newton(_) => Model::Newton,
            Self::Full(_) => Model::FullSecondOrder,
        }
    }

    /// What so many streams carry, in bit/s.
    #[must_use]
    pub fn rate(&self, streams: u32) -> f64 {
        let n = f64::from(streams);
        let rate = match self {
            Self::Newton(fitted) => fitted.rate(n),
            Self::Full(fitted) => fitted.rate(n),
        };
        rate.bits_per_sec() as f64
    }

    /// How many carry most.
    fn peak(&self, most: u32) -> u32 {
        let peak = match self {
            Self::Newton(fitted) => fitted.peak(),
            Self::Full(fitted) => fitted.peak(),
        };
        // `as` saturates.
        (peak.round() as u32).clamp(1, most)
    }

    /// How far it is from the samples in the mean, in bit/s.
    fn error(&self, samples: &[Sample]) -> f64 {
        let off = |s: &Sample| (self.rate(s.streams) - s.rate.bits_per_sec() as f64).abs();
        samples.iter().map(off).sum::<f64>() / samples.len() as f64
    }
}

/// The best number of streams, `most` at most; `None` without samples. Where no curve is valid, the
/// throughput does not rise and fall, and the fewest streams do that carry about the most.
#[must_use]
pub fn best(samples: &[Sample], most: u32) -> Option<Best> {
    let most = most.max(1);
    if let Some(curve) = Curve::of(samples) {
        let error = curve.error(samples);
        let peak = curve.peak(most);
        let rate = curve.rate(peak);
        let is_near = |&streams: &u32| curve.rate(streams) >= rate * NEAR_BEST;
        let streams = (1..=peak).find(is_near).unwrap_or(peak);
        let [rate, error] = [rate, error].map(Rate::from_bits_per_sec);
        return Some(Best { streams, why: Why::Model { model: curve.model(), peak, rate, error } });
    }
    fewest(samples, most)
}

/// The fewest of those that were sampled, `most` at most, that carried about as much as any.
pub(super) fn fewest(samples: &[Sample], most: u32) -> Option<Best> {
    let highest = samples.iter().map(|sample| sample.rate).max()?;
    let near = highest.bits_per_sec() as f64 * NEAR_BEST;
    let is_near = |sample: &&Sample| sample.rate.bits_per_sec() as f64 >= near;
    let fewest = samples.iter().filter(is_near).map(|sample| sample.streams).min()?;
    let why = if samples.len() < 3 { Why::TooFew } else { Why::Fewest };
    Some(Best { streams: fewest.clamp(1, most.max(1)), why })
}

/// All valid curves through three of the samples.
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
    use super::super::ExpSelection;
    use super::super::dice::Dice;
    use super::super::model::Dinda;
    use super::*;

    fn samples(of: &[(u32, f64)]) -> Vec<Sample> {
        let sample = |&(streams, mbit): &(u32, f64)| Sample {
            streams,
            rate: Rate::from_bits_per_sec(mbit * 1e6),
        };
        of.iter().map(sample).collect()
    }

    #[test]
    fn a_curve_that_rises_and_falls_has_its_peak_told() {
        let best = best(&samples(&[(1, 300.0), (2, 520.0), (4, 640.0), (8, 560.0)]), 64).unwrap();
        assert!((3..=5).contains(&best.streams), "{best:?}");
        let Why::Model { peak, rate, error, .. } = best.why else { panic!("{best:?}") };
        assert!((3..=5).contains(&peak), "{best:?}");
        assert!((600..=700).contains(&(rate.bits_per_sec() / 1_000_000)), "{rate}");
        assert!(error < Rate::from_bits_per_sec(30e6), "{error}");
    }

    #[test]
    fn without_a_model_the_fewest_that_carry_the_most_are_taken() {
        let flat = best(&samples(&[(1, 93.0), (2, 95.0), (4, 95.5)]), 64).unwrap();
        assert_eq!(flat.streams, 1, "a model has its peak at 12, with next to nothing more");
        let full = best(&samples(&[(1, 95.0), (2, 95.0), (4, 95.0)]), 64).unwrap();
        assert_eq!(full.streams, 1, "{full:?}");
        let rising = best(&samples(&[(1, 10.0), (2, 20.0), (4, 40.0)]), 64);
        assert_eq!(rising, Some(Best { streams: 4, why: Why::Fewest }));
        let falling = best(&samples(&[(1, 90.0), (2, 80.0), (4, 10.0)]), 64);
        assert_eq!(falling.map(|best| best.streams), Some(1));
    }

    #[test]
    fn few_samples_equal_ones_and_none_have_an_answer() {
        assert_eq!(best(&[], 64), None);
        let one = best(&samples(&[(4, 90.0)]), 64);
        assert_eq!(one, Some(Best { streams: 4, why: Why::TooFew }));
        let equal = best(&samples(&[(2, 90.0), (2, 90.0), (2, 90.0)]), 64);
        assert_eq!(equal, Some(Best { streams: 2, why: Why::Fewest }));
        let nothing = best(&samples(&[(1, 0.0), (2, 0.0), (4, 0.0)]), 64);
        assert_eq!(nothing, Some(Best { streams: 1, why: Why::Fewest }));
    }

    /// Streams that share a path evenly until it is full, and then lose by each other.
    #[test]
    fn what_it_chooses_carries_nearly_as_much_as_the_best_number_does() {
        let mut dice = Dice::new();
        let mut shares = Vec::new();
        for _ in 0..2_000 {
            let (full_at, fall) = (dice.real(1.5, 24.0), dice.real(0.0, 0.02));
            let carries = |n: f64| n.min(full_at) * (1.0 - fall * (n - full_at).max(0.0)).max(0.2);
            let mut selection = ExpSelection::new(1, 64);
            while let Some(streams) = selection.next() {
                let noise = dice.real(0.98, 1.02);
                let rate = Rate::from_bits_per_sec(carries(streams.into()) * noise * 1e8);
                selection.take(Sample { streams, rate });
            }
            let chosen = best(selection.samples(), 64).unwrap();
            let most = (1..=64).map(|n| carries(f64::from(n))).fold(0.0, f64::max);
            shares.push(carries(chosen.streams.into()) / most);
        }
        shares.sort_by(f64::total_cmp);
        let (least, median) = (shares[20], shares[1_000]);
        assert!(least > 0.85 && median > 0.95, "{least} {median}");
    }

    /// The mean errors of the curve that is chosen, and of Dinda's model, over 1 to 50 streams of
    /// many curves by chance, sampled with noise; and how many of them no model fits.
    fn mean_errors(curve_by_chance: impl Fn(&mut Dice) -> Box<dyn Fn(f64) -> f64>) -> [f64; 3] {
        let mut dice = Dice::new();
        let (mut errors, mut unfit) = (Vec::new(), 0.0);
        for _ in 0..1_000 {
            let carries = curve_by_chance(&mut dice);
            let mut selection = ExpSelection::new(1, 64);
            while let Some(streams) = selection.next() {
                let rate = 1e8 * carries(streams.into()) * dice.real(0.98, 1.02);
                selection.take(Sample { streams, rate: Rate::from_bits_per_sec(rate) });
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
    fn where_throughput_falls_few_samples_tell_it_and_dindas_model_does_not() {
        // Losses and round trips that grow with n, as the paper has them: y with its peak at −2c/b.
        let [ours, dindas, unfit] = mean_errors(|dice| {
            let (peak, depth) = (dice.real(3.0, 20.0), dice.real(1.05, 3.0));
            let (a, b) = (depth / (peak * peak), -2.0 / peak);
            Box::new(move |n| n / (a * n * n + b * n + 1.0).sqrt())
        });
        // Streams that share evenly until the path is full: a bend that neither model has.
        let [bent, dindas_bent, _] = mean_errors(|dice| {
            let (full_at, fall) = (dice.real(1.5, 12.0), dice.real(0.005, 0.02));
            Box::new(move |n| n.min(full_at) * (1.0 - fall * (n - full_at).max(0.0)).max(0.2))
        });
        assert!(bent < dindas_bent, "{bent} {dindas_bent}");
        assert!(ours <= 0.08 && ours <= dindas / 2.0 && unfit < 0.1, "{ours} {dindas} {unfit}");
    }

    #[test]
    fn whatever_is_sampled_it_answers_within_what_is_allowed() {
        let mut dice = Dice::new();
        for _ in 0..20_000 {
            let (count, most) = (dice.whole(1, 6), dice.whole(0, 200));
            let of: Vec<(u32, f64)> =
                (0..count).map(|_| (dice.whole(0, 300), dice.real(0.0, 1e6))).collect();
            let chosen = best(&samples(&of), most).unwrap();
            assert!((1..=most.max(1)).contains(&chosen.streams), "{of:?} {chosen:?}");
            assert!(!chosen.why.to_string().contains("NaN"), "{of:?} {chosen:?}");
        }
    }
}
