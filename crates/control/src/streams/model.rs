//! Throughput of n parallel streams, from a few samples of it.
//!
//! n streams carry n·MSS·c / (RTT·√p) at most (Hacker 2002); the models say how the round trip and
//! the losses grow with n, all as throughput = n / √y(n):
//!
//! | model | y(n) | samples |
//! |---|---|---|
//! | [`Dinda`] | a n² + b | 2 |
//! | [`Newton`] | a nᶜ + b | 3 |
//! | [`FullSecondOrder`] | a n² + b n + c | 3 |
//!
//! With yᵢ = nᵢ²/Thᵢ² the coefficients follow from as many samples. Not every set of samples gives
//! coefficients that mean something: [`Unfit`] tells why. Rates are in bit/s throughout.

use super::Sample;
use crate::units::Rate;
use std::fmt;

/// The range of the exponent of [`Newton`]: below the first throughput only grows; what falls more
/// steeply than with the last is a step. [Yildirim 2009, section 3.1.1: c ≥ 2; the upper end ours]
const EXPONENT: (f64, f64) = (2.0, 20.0);

/// The exponent is known well enough when a step is smaller, and after so many steps whatever they
/// are. (ours: the iteration doubles the digits at each; five or six do)
const EXPONENT_ERROR: f64 = 1e-9;
const EXPONENT_STEPS: u32 = 50;

/// Why samples give no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// Two samples of the same number of streams, none of them, or a rate of zero.
    Degenerate,
    /// The coefficients are not in the range in which the curve rises first.
    Coefficients,
    /// The throughput does not fall within any number of streams: no exponent fits.
    Exponent,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Degenerate => "samples of the same number of streams, or of nothing",
            Self::Coefficients => "no curve that rises and then falls goes through the samples",
            Self::Exponent => "no exponent from 2 to 20 fits the samples",
        })
    }
}

/// A sample as a point of y(n).
#[derive(Debug, Clone, Copy)]
struct Point {
    n: f64,
    y: f64,
}

/// The samples as points, in the order of their numbers of streams.
fn points<const N: usize>(samples: [Sample; N]) -> Result<[Point; N], Unfit> {
    let mut points = samples.map(|sample| {
        let n = f64::from(sample.streams);
        Point { n, y: (n / sample.rate.bits_per_sec() as f64).powi(2) }
    });
    points.sort_by(|a, b| a.n.total_cmp(&b.n));
    let is_degenerate = points.windows(2).any(|pair| pair[0].n == pair[1].n)
        || points.iter().any(|point| point.n < 1.0 || !point.y.is_finite());
    if is_degenerate { Err(Unfit::Degenerate) } else { Ok(points) }
}

/// n / √y.
fn rate(n: f64, y: f64) -> Rate {
    Rate::from_bits_per_sec(n / y.sqrt())
}

/// Dinda's model (Lu, Qiao, Dinda, Bustamante 2005): throughput grows towards 1/√a, and never
/// falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dinda {
    a: f64,
    b: f64,
}

impl Dinda {
    /// The model through two samples.
    pub fn fit(samples: [Sample; 2]) -> Result<Self, Unfit> {
        let [p, q] = points(samples)?;
        let a = (q.y - p.y) / (q.n * q.n - p.n * p.n);
        let b = p.y - p.n * p.n * a;
        if a > 0.0 && b > 0.0 { Ok(Self { a, b }) } else { Err(Unfit::Coefficients) }
    }

    /// What `n` streams carry.
    #[must_use]
    pub fn rate(&self, n: f64) -> Rate {
        rate(n, self.a * n * n + self.b)
    }

    /// What infinitely many would carry.
    #[must_use]
    pub fn limit(&self) -> Rate {
        Rate::from_bits_per_sec(self.a.sqrt().recip())
    }

    /// How many streams reach that share of the [limit](Self::limit), from 0 to less than 1.
    #[must_use]
    pub fn streams_for_share(&self, share: f64) -> f64 {
        share * (self.b / (self.a * (1.0 - share * share))).sqrt()
    }
}

/// The model with an exponent of its own (Yildirim, Balman, Kosar 2008).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Newton {
    a: f64,
    b: f64,
    c: f64,
}

impl Newton {
    /// The model through three samples.
    pub fn fit(samples: [Sample; 3]) -> Result<Self, Unfit> {
        let points = points(samples)?;
        let [p, q, r] = points;
        if q.y <= p.y || r.y <= q.y {
            return Err(Unfit::Coefficients);
        }
        let c = exponent(points)?;
        let a = (q.y - p.y) / (q.n.powf(c) - p.n.powf(c));
        let model = Self { a, b: p.y - a * p.n.powf(c), c };
        let has_peak = model.peak() > 1.0 && model.peak().is_finite();
        let is_valid = a > 0.0 && model.b > 0.0 && has_peak;
        if is_valid { Ok(model) } else { Err(Unfit::Coefficients) }
    }

    /// What `n` streams carry.
    #[must_use]
    pub fn rate(&self, n: f64) -> Rate {
        rate(n, self.a * n.powf(self.c) + self.b)
    }

    /// The number of streams that carries most.
    #[must_use]
    pub fn peak(&self) -> f64 {
        (2.0 * self.b / (self.a * (self.c - 2.0))).powf(self.c.recip())
    }
}

/// The exponent with which the curve goes through three points.
///
/// Without a and b there is one equation, (y₃ − y₁)/(y₂ − y₁) = (n₃ᶜ − n₁ᶜ)/(n₂ᶜ − n₁ᶜ), whose
/// right side only grows with c. Newton's iteration on its logarithm, kept within a range that
/// becomes smaller.
fn exponent([p, q, r]: [Point; 3]) -> Result<f64, Unfit> {
    let wanted = ((r.y - p.y) / (q.y - p.y)).ln();
    // By n₁, so that nothing becomes too large: what is to be zero, and its slope.
    let (m, n) = ((q.n / p.n).ln(), (r.n / p.n).ln());
    let miss = |c: f64| (c * n).exp_m1().ln() - (c * m).exp_m1().ln() - wanted;
    let slope = |c: f64| n / -(-c * n).exp_m1() - m / -(-c * m).exp_m1();
    let (mut low, mut high) = EXPONENT;
    if miss(low) > 0.0 || miss(high) < 0.0 {
        return Err(Unfit::Exponent);
    }
    let mut c = low;
    for _ in 0..EXPONENT_STEPS {
        let missed = miss(c);
        if missed < 0.0 {
            low = c
        } else {
            high = c
        }
        let newton = c - missed / slope(c);
        let next = if (low..=high).contains(&newton) { newton } else { (low + high) / 2.0 };
        let step = (next - c).abs();
        c = next;
        if step < EXPONENT_ERROR {
            break;
        }
    }
    Ok(c)
}

/// The model with a full parabola (Yildirim, Yin, Kosar 2009).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FullSecondOrder {
    a: f64,
    b: f64,
    c: f64,
}

impl FullSecondOrder {
    /// The model through three samples.
    ///
    /// The paper's equation 8 lacks the division by n₃ − n₂, and its equation 10 the square of n₁.
    pub fn fit(samples: [Sample; 3]) -> Result<Self, Unfit> {
        let [p, q, r] = points(samples)?;
        let slope = (q.y - p.y) / (q.n - p.n);
        let a = ((r.y - p.y) / (r.n - p.n) - slope) / (r.n - q.n);
        let b = slope - (p.n + q.n) * a;
        let c = p.y - p.n * p.n * a - p.n * b;
        // The throughput is a number everywhere only where the parabola has no root.
        let has_no_root = b * b < 4.0 * a * c;
        let is_valid = a > 0.0 && b < 0.0 && c > 0.0 && 2.0 * c + b > 0.0 && has_no_root;
        if is_valid { Ok(Self { a, b, c }) } else { Err(Unfit::Coefficients) }
    }

    /// What `n` streams carry.
    #[must_use]
    pub fn rate(&self, n: f64) -> Rate {
        rate(n, (self.a * n + self.b) * n + self.c)
    }

    /// The number of streams that carries most.
    #[must_use]
    pub fn peak(&self) -> f64 {
        -2.0 * self.c / self.b
    }
}

#[cfg(test)]
mod tests {
    use super::super::dice::Dice;
    use super::*;

    fn sample(streams: u32, mbit: f64) -> Sample {
        Sample { streams, rate: Rate::from_bits_per_sec(mbit * 1e6) }
    }

    fn is_near(a: f64, b: f64, share: f64) -> bool {
        (a - b).abs() <= share * b.abs()
    }

    #[test]
    fn dinda_goes_through_its_samples_and_towards_its_limit() {
        // Streams of 100 Mbit/s each over 500: y = n²/500² + (1/100² - 1/500²).
        let mbit = |n: f64| n / (n * n / 250_000.0 + 1e-4 - 4e-6).sqrt();
        let model = Dinda::fit([sample(8, mbit(8.0)), sample(1, 100.0)]).unwrap();
        for n in [1.0, 3.0, 8.0, 40.0] {
            let told = model.rate(n).bits_per_sec() as f64;
            assert!(is_near(told, mbit(n) * 1e6, 1e-6), "{n}: {told}");
        }
        assert!(is_near(model.limit().bits_per_sec() as f64, 500e6, 1e-6));
        let n = model.streams_for_share(0.9);
        assert!(is_near(model.rate(n).bits_per_sec() as f64, 450e6, 1e-6), "{n}");
    }

    /// What the paper's own arithmetic gives for y = 3n² - 8n + 10, with the misprints mended.
    #[test]
    fn full_second_order_finds_the_parabola() {
        let mbit = |n: f64| 1000.0 * n / (3.0 * n * n - 8.0 * n + 10.0).sqrt();
        let of = |n: u32| sample(n, mbit(n.into()));
        let model = FullSecondOrder::fit([of(4), of(1), of(2)]).unwrap();
        assert!(is_near(model.peak(), 2.5, 1e-6), "{}", model.peak());
        assert!(is_near(model.rate(7.0).bits_per_sec() as f64, mbit(7.0) * 1e6, 1e-6));
    }

    #[test]
    fn samples_that_mean_nothing_are_told_apart() {
        let same = [sample(1, 90.0), sample(1, 90.0), sample(2, 95.0)];
        assert_eq!(Newton::fit(same), Err(Unfit::Degenerate));
        assert_eq!(FullSecondOrder::fit(same), Err(Unfit::Degenerate));
        let nothing = [sample(1, 0.0), sample(2, 10.0), sample(4, 20.0)];
        assert_eq!(FullSecondOrder::fit(nothing), Err(Unfit::Degenerate));
        assert_eq!(Dinda::fit([sample(0, 1.0), sample(1, 1.0)]), Err(Unfit::Degenerate));
        let linear = [sample(1, 10.0), sample(2, 20.0), sample(4, 40.0)];
        assert_eq!(Newton::fit(linear), Err(Unfit::Coefficients));
        assert_eq!(FullSecondOrder::fit(linear), Err(Unfit::Coefficients));
        // y = n + 1: it grows with the root of n, and never falls.
        let root = [1, 2, 4].map(|n| sample(n, f64::from(n) / f64::from(n + 1).sqrt()));
        assert_eq!(Newton::fit(root), Err(Unfit::Exponent));
        // Three streams carry nothing at all of what two do.
        let step = [sample(1, 10.0), sample(2, 19.0), sample(3, 0.001)];
        assert_eq!(Newton::fit(step), Err(Unfit::Exponent));
        assert_eq!(Dinda::fit([sample(1, 90.0), sample(2, 30.0)]), Err(Unfit::Coefficients));
    }

    #[test]
    fn newton_finds_the_exponent_again() {
        let mut dice = Dice::new();
        let mut found = 0;
        for _ in 0..5_000 {
            let (c, peak, one) = (dice.real(2.05, 12.0), dice.real(1.5, 40.0), dice.real(1.0, 1e4));
            let n1 = dice.whole(1, 3);
            let n2 = n1 + dice.whole(1, 7);
            let n3 = n2 + dice.whole(1, 15);
            // With b = 1 the peak tells a; all by what one stream carries.
            let a = 2.0 / ((c - 2.0) * peak.powf(c));
            let mbit = |n: f64| one * n * ((a + 1.0) / (a * n.powf(c) + 1.0)).sqrt();
            // Where the curve is a line up to the last but one, the rates' last digits decide.
            if a * f64::from(n2).powf(c) < 1e-3 || a * f64::from(n3).powf(c) > 1e6 {
                continue;
            }
            let model = Newton::fit([n1, n2, n3].map(|n| sample(n, mbit(n.into())))).unwrap();
            assert!(is_near(model.peak(), peak, 0.01), "{} {peak} {c}", model.peak());
            assert!(is_near(model.rate(peak).bits_per_sec() as f64, mbit(peak) * 1e6, 0.01));
            found += 1;
        }
        assert!(found > 1_000, "{found}");
    }

    #[test]
    fn a_model_goes_through_its_samples_or_is_refused() {
        let mut dice = Dice::new();
        let mut fitted = 0;
        for _ in 0..20_000 {
            let samples = [0; 3].map(|_| sample(dice.whole(0, 40), dice.real(0.0, 1e5)));
            let check = |rate: &dyn Fn(f64) -> Rate, peak: f64| {
                assert!(peak > 1.0 && peak.is_finite(), "{samples:?}");
                for s in samples {
                    let told = rate(f64::from(s.streams)).bits_per_sec() as f64;
                    assert!(is_near(told, s.rate.bits_per_sec() as f64, 0.01), "{samples:?}");
                }
            };
            if let Ok(model) = Newton::fit(samples) {
                check(&|n| model.rate(n), model.peak());
                fitted += 1;
            }
            if let Ok(model) = FullSecondOrder::fit(samples) {
                check(&|n| model.rate(n), model.peak());
                fitted += 1;
            }
        }
        assert!(fitted > 500, "{fitted}");
    }
}
