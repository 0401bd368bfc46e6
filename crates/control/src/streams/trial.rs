//! Comparison of the original congestion control with BBR. For paths that lose segments without a
//! queue, or on which TCP keeps a long one; sampling, and detection of such paths, are elsewhere.

use super::observation::fills_line;
use crate::loss::LossSample;
use crate::path_control::{PathState, RATE_DEVIATION};
use crate::tcp::{CUBIC_BETA, LOSS_THRESH};
use crate::units::Rate;
use std::fmt;

/// The outcome of a BBR trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrialOutcome {
    /// Kept: BBR carries enough (rates before and after) without more loss.
    Kept(Rate, Rate),
    /// Not kept: BBR carries too little (rates before and after).
    NoGain(Rate, Rate),
    /// Not kept: BBR carries more but loses more, so the losses are congestion.
    MoreLoss,
    /// Not kept: the trial ended without both samples.
    Inconclusive,
}

/// Rate and loss of the streams, first without and then with BBR.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    /// True because of a long queue of TCP, false because of losses.
    is_for_queue: bool,
    before: Option<(Rate, LossSample)>,
    after: Option<(Rate, LossSample)>,
}

impl Trial {
    /// Returns a trial because of losses: BBR has to carry more.
    pub(super) fn of_losses() -> Self {
        Self { is_for_queue: false, before: None, after: None }
    }

    /// Returns a trial because of a long queue: BBR may carry a little less.
    ///
    /// The rate of such a path varies; while a queue stands, BBR has all of it. On a line of known
    /// capacity other flows may take more from BBR than from CUBIC.
    pub(super) fn of_long_queue() -> Self {
        Self { is_for_queue: true, before: None, after: None }
    }

    /// Records the next sample.
    pub(super) fn record(&mut self, rate: Rate, losses: LossSample) {
        let next = if self.before.is_none() { &mut self.before } else { &mut self.after };
        *next = Some((rate, losses));
    }

    /// Returns true if the sample with BBR is missing.
    pub(super) fn needs_bbr_sample(&self) -> bool {
        self.before.is_some() && self.after.is_none()
    }

    /// Returns the outcome of the trial and the loss of the path.
    ///
    /// `capacity` is that of the line, if known.
    pub(super) fn outcome(
        &self,
        capacity: Option<Rate>,
        path: PathState,
    ) -> (TrialOutcome, LossSample) {
        let Some(((before, lost), (after, loses))) = self.before.zip(self.after) else {
            return (TrialOutcome::Inconclusive, LossSample::default());
        };
        // Flows that keep a queue make all lose as much as BBR tolerates.
        let lost = if path.has_cross_traffic_queue {
            lost.higher_loss(LossSample::of_rate(LOSS_THRESH))
        } else {
            lost
        };
        // On a full line, the rate before may be due to a queue: CUBIC is slow to reduce.
        let least_gain = if self.is_for_queue { CUBIC_BETA } else { 1.0 + RATE_DEVIATION };
        let least = before.bits_per_sec() as f64 * least_gain;
        let is_full = match capacity {
            Some(_) => fills_line(after, capacity),
            None => self.is_for_queue && path.has_standing_queue,
        };
        let gains = is_full || after.bits_per_sec() as f64 >= least;
        let outcome = match gains {
            false => TrialOutcome::NoGain(before, after),
            true if loses.exceeds(lost) => TrialOutcome::MoreLoss,
            true => TrialOutcome::Kept(before, after),
        };
        (outcome, lost.higher_loss(loses))
    }
}

/// One clause for traces and reports.
impl fmt::Display for TrialOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(before, after) => {
                write!(f, "BBR carries {after} instead of {before} without more loss")
            }
            Self::NoGain(before, after) => {
                write!(f, "BBR carried {after} instead of {before}: not kept")
            }
            Self::MoreLoss => {
                f.write_str("BBR lost more segments: cross traffic congests the path")
            }
            Self::Inconclusive => f.write_str("the BBR trial was too short"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(before: (f64, u64, u64), after: (f64, u64, u64)) -> TrialOutcome {
        over(None, before, after)
    }

    fn over(line: Option<f64>, before: (f64, u64, u64), after: (f64, u64, u64)) -> TrialOutcome {
        let line = line.map(|mbit| Rate::from_bits_per_sec(mbit * 1e6));
        trial_of(before, after).outcome(line, PathState::default()).0
    }

    fn trial_of(before: (f64, u64, u64), after: (f64, u64, u64)) -> Trial {
        let mut trial = Trial::of_losses();
        assert_eq!(trial.outcome(None, PathState::default()).0, TrialOutcome::Inconclusive);
        for (mbit, retransmits, segments) in [before, after] {
            assert_eq!(trial.needs_bbr_sample(), mbit == after.0);
            trial.record(Rate::from_bits_per_sec(mbit * 1e6), LossSample { retransmits, segments });
        }
        trial
    }

    #[test]
    fn trial_of_long_queue_allows_a_lower_rate() {
        let of = |after: f64, retransmits, line: Option<f64>, has_standing_queue| {
            let mut trial = Trial::of_long_queue();
            for (mbit, retransmits) in [(10.0, 0), (after, retransmits)] {
                let losses = LossSample { retransmits, segments: 900 };
                trial.record(Rate::from_bits_per_sec(mbit * 1e6), losses);
            }
            let line = line.map(|mbit| Rate::from_bits_per_sec(mbit * 1e6));
            trial.outcome(line, PathState { has_standing_queue, ..PathState::default() }).0
        };
        assert!(matches!(of(7.1, 0, None, false), TrialOutcome::Kept(..)));
        assert!(matches!(of(6.9, 0, None, false), TrialOutcome::NoGain(..)));
        assert!(matches!(of(3.0, 0, None, true), TrialOutcome::Kept(..)));
        assert!(matches!(of(3.0, 0, Some(20.0), true), TrialOutcome::NoGain(..)));
        assert_eq!(of(9.0, 90, None, true), TrialOutcome::MoreLoss);
    }

    #[test]
    fn trial_keeps_bbr_with_more_rate_and_equal_loss() {
        let keeps = |before, after| matches!(tried(before, after), TrialOutcome::Kept(..));
        // One segment in a thousand is lost at any rate.
        assert!(keeps((200.0, 10, 10_000), (450.0, 27, 24_000)));
        assert!(keeps((200.0, 0, 10_000), (450.0, 9, 24_000)));
        assert!(matches!(
            tried((200.0, 10, 10_000), (210.0, 10, 10_500)),
            TrialOutcome::NoGain(..)
        ));
        let fills_line = over(Some(480.0), (430.0, 20, 22_000), (450.0, 24, 24_000));
        assert!(matches!(fills_line, TrialOutcome::Kept(..)));
        // Each of four competing flows lost a few; then BBR takes their share.
        let (before, after) = ((450.0, 20, 24_000), (800.0, 900, 41_000));
        assert_eq!(tried(before, after), TrialOutcome::MoreLoss);
        // Beside flows that keep a queue, BBR loses some percent as they do.
        let path = PathState { has_cross_traffic_queue: true, ..PathState::default() };
        let beside = |after| trial_of(before, after).outcome(None, path).0;
        assert!(matches!(beside(after), TrialOutcome::Kept(..)));
        assert_eq!(beside((800.0, 1_900, 41_000)), TrialOutcome::MoreLoss);
    }
}
