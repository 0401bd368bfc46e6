//! Models of the throughput of n parallel streams, fitted to a few samples.
//!
//! n streams carry at most n·MSS·c / (RTT·√p) (Hacker 2002). The models describe the growth of RTT
//! and losses with n, all as throughput = n / √y(n):
//!
//! | model | y(n) | samples |
//! |---|---|---|
//! | [`Dinda`] | a n² + b | 2 |
//! | [`Newton`] | a nᶜ + b | 3 |
//! | [`FullSecondOrder`] | a n² + b n + c | 3 |
//!
//! With yᵢ = nᵢ²/Thᵢ², as many samples give the coefficients. Some samples give no valid
//! coefficients; see [`FitError`]. Rates are in bit/s throughout.

use super::observation::Sample;
use crate::units::Rate;
use std::fmt;

/// Range of the exponent of [`Newton`]: below it, throughput only grows; above it, the fall is a
/// step. (Yildirim 2009 §3.1.1: c ≥ 2; upper end chosen)
const EXPONENT_RANGE: (f64, f64) = (2.0, 20.0);

/// The reason why samples fit no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FitError {
    /// Two samples with the same number of streams, zero streams, or a rate of zero.
    Degenerate,
    /// Coefficients outside the range in which the curve rises first.
    Coefficients,
    /// No exponent fits, as the throughput does not fall at any number of streams.
    Exponent,
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Degenerate => "samples with the same number of streams, or of rate zero",
            Self::Coefficients => "no curve that rises and then falls fits the samples",
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

/// Returns the samples as points, ordered by the number of streams.
fn points<const N: usize>(samples: [Sample; N]) -> Result<[Point; N], FitError> {
    let mut points = samples.map(|sample| {
        let n = f64::from(sample.streams);
        Point { n, y: (n / sample.rate.bits_per_sec() as f64).powi(2) }
    });
    points.sort_by(|a, b| a.n.total_cmp(&b.n));
    let is_degenerate = points.windows(2).any(|pair| pair[0].n == pair[1].n)
        || points.iter().any(|point| point.n < 1.0 || !point.y.is_finite());
    if is_degenerate { Err(FitError::Degenerate) } else { Ok(points) }
}

/// Returns n / √y.
fn rate(n: f64, y: f64) -> Rate {
    Rate::from_bits_per_sec(n / y.sqrt())
}

/// Dinda's model (Lu, Qiao, Dinda, Bustamante 2005): throughput grows towards 1/√a and never falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dinda {
    a: f64,
    b: f64,
}

impl Dinda {
    /// Fits the model to two samples.
    pub fn fit(samples: [Sample; 2]) -> Result<Self, FitError> {
        let [p, q] = points(samples)?;
        let a = (q.y - p.y) / (q.n * q.n - p.n * p.n);
        let b = p.y - p.n * p.n * a;
        if a > 0.0 && b > 0.0 { Ok(Self { a, b }) } else { Err(FitError::Coefficients) }
    }

    /// Returns the throughput of `n` streams.
    #[must_use]
    pub fn rate(&self, n: f64) -> Rate {
        rate(n, self.a * n * n + self.b)
    }

    /// Returns the throughput of infinitely many streams.
    #[must_use]
    pub fn limit(&self) -> Rate {
        Rate::from_bits_per_sec(self.a.sqrt().recip())
    }
}

/// The model with a fitted exponent (Yildirim, Balman, Kosar 2008).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Newton {
    a: f64,
    b: f64,
    c: f64,
}

impl Newton {
    /// Fits the model to three samples.
    pub fn fit(samples: [Sample; 3]) -> Result<Self, FitError> {
        let points = points(samples)?;
        let [p, q, r] = points;
        if q.y <= p.y || r.y <= q.y {
            return Err(FitError::Coefficients);
        }
        let c = exponent(points)?;
        let a = (q.y - p.y) / (q.n.powf(c) - p.n.powf(c));
        let model = Self { a, b: p.y - a * p.n.powf(c), c };
        let has_peak = model.peak() > 1.0 && model.peak().is_finite();
        let is_valid = a > 0.0 && model.b > 0.0 && has_peak;
        if is_valid { Ok(model) } else { Err(FitError::Coefficients) }
    }

    /// Returns the throughput of `n` streams.
    #[must_use]
    pub fn rate(&self, n: f64) -> Rate {
        rate(n, self.a * n.powf(self.c) + self.b)
    }

    /// Returns the number of streams with the highest throughput.
    #[must_use]
    pub fn peak(&self) -> f64 {
        (2.0 * self.b / (self.a * (self.c - 2.0))).powf(self.c.recip())
    }
}

/// Returns the exponent of the curve through three points.
///
/// Eliminating a and b leaves one equation, (y₃ − y₁)/(y₂ − y₁) = (n₃ᶜ − n₁ᶜ)/(n₂ᶜ − n₁ᶜ), whose
/// right side only grows with c. Its logarithm is solved by bisection to full precision. This takes
/// about fifty steps, against five of the paper's Newton iteration, but only once per search.
fn exponent([p, q, r]: [Point; 3]) -> Result<f64, FitError> {
    let wanted = ((r.y - p.y) / (q.y - p.y)).ln();
    // Relative to n₁, to avoid overflow.
    let (m, n) = ((q.n / p.n).ln(), (r.n / p.n).ln());
    let miss = |c: f64| (c * n).exp_m1().ln() - (c * m).exp_m1().ln() - wanted;
    let (mut low, mut high) = EXPONENT_RANGE;
    if miss(low) > 0.0 || miss(high) < 0.0 {
        return Err(FitError::Exponent);
    }
    loop {
        let c = f64::midpoint(low, high);
        if c <= low || c >= high {
            return Ok(c);
        }
        *(if miss(c) < 0.0 { &mut low } else { &mut high }) = c;
    }
}

/// The model with a full parabola (Yildirim, Yin, Kosar 2009).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FullSecondOrder {
    a: f64,
    b: f64,
    c: f64,
}

impl FullSecondOrder {
    /// Fits the model to three samples.
    ///
    /// The paper's equation 8 lacks the division by n₃ − n₂, and its equation 10 the square of n₁.
    pub fn fit(samples: [Sample; 3]) -> Result<Self, FitError> {
        let [p, q, r] = points(samples)?;
        let slope = (q.y - p.y) / (q.n - p.n);
        let a = ((r.y - p.y) / (r.n - p.n) - slope) / (r.n - q.n);
        let b = slope - (p.n + q.n) * a;
        let c = p.y - p.n * p.n * a - p.n * b;
        // The throughput is finite everywhere only if the parabola has no root.
        let has_no_root = b * b < 4.0 * a * c;
        let is_valid = a > 0.0 && b < 0.0 && c > 0.0 && 2.0 * c + b > 0.0 && has_no_root;
        if is_valid { Ok(Self { a, b, c }) } else { Err(FitError::Coefficients) }
    }

    /// Returns the throughput of `n` streams.
    #[must_use]
    pub fn rate(&self, n: f64) -> Rate {
        rate(n, (self.a * n + self.b) * n + self.c)
    }

    /// Returns the number of streams with the highest throughput.
    #[must_use]
    pub fn peak(&self) -> f64 {
        -2.0 * self.c / self.b
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::test_rng::TestRng;

    fn sample(streams: u32, mbit: f64) -> Sample {
        Sample { streams, rate: Rate::from_bits_per_sec(mbit * 1e6) }
    }

    fn is_near(a: f64, b: f64, share: f64) -> bool {
        (a - b).abs() <= share * b.abs()
    }

    #[test]
    fn dinda_fits_samples_and_approaches_limit() {
        // Streams of 100 Mbit/s each over 500: y = n²/500² + (1/100² - 1/500²).
        let mbit = |n: f64| n / (n * n / 250_000.0 + 1e-4 - 4e-6).sqrt();
        let model = Dinda::fit([sample(8, mbit(8.0)), sample(1, 100.0)]).unwrap();
        for n in [1.0, 3.0, 8.0, 40.0] {
            let rate_at_n = model.rate(n).bits_per_sec() as f64;
            assert!(is_near(rate_at_n, mbit(n) * 1e6, 1e-6), "{n}: {rate_at_n}");
        }
        assert!(is_near(model.limit().bits_per_sec() as f64, 500e6, 1e-6));
    }

    /// The paper's own example, y = 3n² - 8n + 10, with the misprints corrected.
    #[test]
    fn full_second_order_recovers_the_parabola() {
        let mbit = |n: f64| 1000.0 * n / (3.0 * n * n - 8.0 * n + 10.0).sqrt();
        let of = |n: u32| sample(n, mbit(n.into()));
        let model = FullSecondOrder::fit([of(4), of(1), of(2)]).unwrap();
        assert!(is_near(model.peak(), 2.5, 1e-6), "{}", model.peak());
        assert!(is_near(model.rate(7.0).bits_per_sec() as f64, mbit(7.0) * 1e6, 1e-6));
    }

    #[test]
    fn fit_errors_are_distinguished() {
        let same = [sample(1, 90.0), sample(1, 90.0), sample(2, 95.0)];
        assert_eq!(Newton::fit(same), Err(FitError::Degenerate));
        assert_eq!(FullSecondOrder::fit(same), Err(FitError::Degenerate));
        let nothing = [sample(1, 0.0), sample(2, 10.0), sample(4, 20.0)];
        assert_eq!(FullSecondOrder::fit(nothing), Err(FitError::Degenerate));
        assert_eq!(Dinda::fit([sample(0, 1.0), sample(1, 1.0)]), Err(FitError::Degenerate));
        let linear = [sample(1, 10.0), sample(2, 20.0), sample(4, 40.0)];
        assert_eq!(Newton::fit(linear), Err(FitError::Coefficients));
        assert_eq!(FullSecondOrder::fit(linear), Err(FitError::Coefficients));
        // y = n + 1: grows with the root of n and never falls.
        let root = [1, 2, 4].map(|n| sample(n, f64::from(n) / f64::from(n + 1).sqrt()));
        assert_eq!(Newton::fit(root), Err(FitError::Exponent));
        // Three streams carry hardly anything of what two carry.
        let step = [sample(1, 10.0), sample(2, 19.0), sample(3, 0.001)];
        assert_eq!(Newton::fit(step), Err(FitError::Exponent));
        assert_eq!(Dinda::fit([sample(1, 90.0), sample(2, 30.0)]), Err(FitError::Coefficients));
    }

    #[test]
    fn newton_recovers_the_exponent() {
        let mut rng = TestRng::new();
        let mut found = 0;
        for _ in 0..5_000 {
            let (c, peak, one) =
                (rng.uniform(2.05, 12.0), rng.uniform(1.5, 40.0), rng.uniform(1.0, 1e4));
            let n1 = rng.uniform_int(1, 3);
            let n2 = n1 + rng.uniform_int(1, 7);
            let n3 = n2 + rng.uniform_int(1, 15);
            // With b = 1 the peak determines a; rates are relative to one stream.
            let a = 2.0 / ((c - 2.0) * peak.powf(c));
            let mbit = |n: f64| one * n * ((a + 1.0) / (a * n.powf(c) + 1.0)).sqrt();
            // On a line up to the last point, the last digits of the rates decide.
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
    fn models_fit_random_samples_or_fail() {
        let mut rng = TestRng::new();
        let mut fitted = 0;
        for _ in 0..20_000 {
            let samples = [0; 3].map(|_| sample(rng.uniform_int(0, 40), rng.uniform(0.0, 1e5)));
            let check = |rate: &dyn Fn(f64) -> Rate, peak: f64| {
                assert!(peak > 1.0 && peak.is_finite(), "{samples:?}");
                for s in samples {
                    let rate_at_n = rate(f64::from(s.streams)).bits_per_sec() as f64;
                    assert!(is_near(rate_at_n, s.rate.bits_per_sec() as f64, 0.01), "{samples:?}");
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
