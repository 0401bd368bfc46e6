//! Loss on the line, behind the queue.

use fastrand::Rng;

/// Loss model of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent loss of each segment.
    Random {
        /// Probability of loss, 0 to 1.
        probability: f64,
    },
    /// Bursty loss: a Markov chain of a good and a bad state that steps with each segment (Gilbert
    /// 1960, Elliott 1963).
    GilbertElliott {
        /// Probability of going from good to bad, per segment.
        to_bad: f64,
        /// Probability of going from bad to good, per segment.
        to_good: f64,
        /// Probability of loss in the good state.
        loss_good: f64,
        /// Probability of loss in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// Returns the long-term fraction of lost segments.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random { probability } => probability,
            Self::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let changes = to_bad + to_good;
                let bad = if changes > 0.0 { to_bad / changes } else { 0.0 };
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }
}

/// Loss process of a line, segment by segment.
#[derive(Debug, Clone)]
pub(crate) struct LossProcess {
    model: Loss,
    rng: Rng,
    is_in_bad_state: bool,
}

impl LossProcess {
    pub(crate) fn new(model: Loss, seed: u64) -> Self {
        Self { model, rng: Rng::with_seed(seed), is_in_bad_state: false }
    }

    /// Steps the process; returns whether the next segment is lost.
    pub(crate) fn is_next_lost(&mut self) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Random { probability } => self.rng.f64() < probability,
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let leaves = if self.is_in_bad_state { to_good } else { to_bad };
                self.is_in_bad_state ^= self.rng.f64() < leaves;
                self.rng.f64() < if self.is_in_bad_state { loss_bad } else { loss_good }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(loss: Loss, segments: usize) -> Vec<bool> {
        let mut loss_process = LossProcess::new(loss, 42);
        (0..segments).map(|_| loss_process.is_next_lost()).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&l| l).count() as f64 / lost.len() as f64
    }

    #[test]
    fn random_loss_has_its_rate_and_is_reproducible() {
        let loss = Loss::Random { probability: 0.01 };
        let first = lost(loss, 200_000);
        assert!((share(&first) - 0.01).abs() < 0.001, "{}", share(&first));
        assert_eq!(first, lost(loss, 200_000));
    }

    #[test]
    fn bursty_loss_has_its_mean_rate() {
        let loss =
            Loss::GilbertElliott { to_bad: 0.001, to_good: 0.05, loss_good: 0.0, loss_bad: 0.5 };
        let lost = lost(loss, 2_000_000);
        assert!((share(&lost) / loss.mean() - 1.0).abs() < 0.1, "{} {}", share(&lost), loss.mean());
        let after_a_loss: Vec<bool> = lost.windows(2).filter(|w| w[0]).map(|w| w[1]).collect();
        assert!(share(&after_a_loss) > 10.0 * share(&lost), "losses come in clusters");
    }
}
