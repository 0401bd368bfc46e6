//! Whether connections carry more under BBR, which takes no loss for congestion, where a path loses
//! without a queue: what they carried and lost before, and what then.
//!
//! What it does not do: take the samples, or tell such a path from others.

use super::tuner::fills;
use crate::losses::Losses;
use crate::units::Rate;
use std::fmt;

/// BBR is kept when this multiple of what came before comes with it. (ours: samples of a lossy path
/// differ by some percent)
const GAIN: f64 = 1.1;

/// Where the line is full with BBR, this share of it is enough: what came before may have come of a
/// queue, and CUBIC takes its time to come down from slow start. (ours)
const FULL_GAIN: f64 = 0.95;

/// What came of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// BBR carries more, and loses no more.
    Keeps(Rate, Rate),
    /// It carries no more.
    NoGain(Rate, Rate),
    /// It carries more, but more is lost: the losses are congestion.
    Loses,
    /// That could not be seen in time.
    Unseen,
}

/// What the connections carried, first without BBR and then with it.
#[derive(Debug, Clone, Default)]
pub(super) struct Trial {
    before: Option<(Rate, Losses)>,
    after: Option<(Rate, Losses)>,
}

impl Trial {
    /// Takes the next sample.
    pub(super) fn take(&mut self, rate: Rate, losses: Losses) {
        let next = if self.before.is_none() { &mut self.before } else { &mut self.after };
        *next = Some((rate, losses));
    }

    /// Whether BBR is to be tried next.
    pub(super) fn is_half(&self) -> bool {
        self.before.is_some() && self.after.is_none()
    }

    /// What came of it over a line that carries so much, as far as that is known, and what such a
    /// path loses.
    pub(super) fn verdict(&self, capacity: Option<Rate>) -> (Verdict, Losses) {
        let Some(((before, lost), (after, loses))) = self.before.zip(self.after) else {
            return (Verdict::Unseen, Losses::default());
        };
        let least = if fills(after, capacity) { FULL_GAIN } else { GAIN };
        let gains = after.bits_per_sec() as f64 >= before.bits_per_sec() as f64 * least;
        let verdict = match gains {
            false => Verdict::NoGain(before, after),
            true if loses.exceed(lost) => Verdict::Loses,
            true => Verdict::Keeps(before, after),
        };
        (verdict, lost.worse(loses))
    }
}

/// One clause, for a trace or a report.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keeps(before, after) => {
                write!(f, "BBR carries {after} instead of {before}, and no more of it is lost")
            }
            Self::NoGain(before, after) => {
                write!(f, "BBR carried {after} instead of {before}: it is not worth it")
            }
            Self::Loses => f.write_str("more was lost with BBR: others congest the path"),
            Self::Unseen => f.write_str("BBR could not be tried for long enough"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(before: (f64, u64, u64), after: (f64, u64, u64)) -> Verdict {
        over(None, before, after)
    }

    fn over(line: Option<f64>, before: (f64, u64, u64), after: (f64, u64, u64)) -> Verdict {
        let mut trial = Trial::default();
        assert_eq!(trial.verdict(None).0, Verdict::Unseen);
        for (mbit, resent, segments) in [before, after] {
            assert_eq!(trial.is_half(), mbit == after.0);
            trial.take(Rate::from_bits_per_sec(mbit * 1e6), Losses { resent, segments });
        }
        trial.verdict(line.map(|mbit| Rate::from_bits_per_sec(mbit * 1e6))).0
    }

    #[test]
    fn it_is_kept_where_it_carries_more_and_loses_no_more() {
        let keeps = |before, after| matches!(tried(before, after), Verdict::Keeps(..));
        // One of a thousand is lost, whatever the rate.
        assert!(keeps((200.0, 10, 10_000), (450.0, 27, 24_000)));
        assert!(keeps((200.0, 0, 10_000), (450.0, 9, 24_000)));
        assert!(matches!(tried((200.0, 10, 10_000), (210.0, 10, 10_500)), Verdict::NoGain(..)));
        let fills = over(Some(480.0), (430.0, 20, 22_000), (450.0, 24, 24_000));
        assert!(matches!(fills, Verdict::Keeps(..)));
        // Four flows of others have lost a few each, and then BBR takes their part.
        assert_eq!(tried((450.0, 20, 24_000), (800.0, 900, 41_000)), Verdict::Loses);
    }
}
