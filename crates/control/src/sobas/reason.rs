//! Why SOBAS decided as it did, in a type for programs and in words for people.

use crate::holder::Holder;
use crate::units::Rate;
use std::fmt;
use std::time::Duration;

/// Where the controller stands. `docs/algorithms/sobas.md` has the diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waiting for the estimate of the capacity.
    Probing,
    /// The first round trips, held below the estimated capacity.
    StartBounded,
    /// The first round trips without an estimate: nothing is held.
    StartOpen,
    /// What we hold limits the transfer: more is allowed step by step.
    Growing,
    /// Something was lost that our own data did not push out, or the queue of others has gone:
    /// nothing is held until the rate is even.
    Avoidance,
    /// The path is full and has no queue: window and pacing hold it there.
    Limited,
    /// A little more is allowed for a while, to see whether there is more.
    Reprobing,
    /// The path is congested by others: no window is held, and the pace only a little above the
    /// capacity.
    Disabled,
}

impl State {
    /// The stable name used in machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Probing => "probing",
            Self::StartBounded => "start-bounded",
            Self::StartOpen => "start-open",
            Self::Growing => "growing",
            Self::Avoidance => "avoidance",
            Self::Limited => "limited",
            Self::Reprobing => "reprobing",
            Self::Disabled => "disabled",
        }
    }
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Packet trains told the capacity of the line.
    CapacityKnown(Rate),
    /// No packet train told anything.
    CapacityUnknown,
    /// No packet train told anything, but an earlier transfer was held at this rate.
    Remembered(Rate),
    /// The rate is even, and what we hold is what limits it.
    HeldByUs(Rate),
    /// All comes that may ever come: the user wants no more.
    RateMax(Rate),
    /// The round trip grew while the rate no longer did: the path is full at this rate.
    QueueGrew(Rate, Duration),
    /// The rate is even and a queue stands: the path is full at this rate.
    FlatRate(Rate),
    /// Segments were lost when a queue stood: we had overflowed it, beyond this rate.
    Overflowed(Rate),
    /// Segments were lost and no queue stood.
    LostWithoutQueue,
    /// Segments were lost before anything told what the path carries.
    StartOverflowed,
    /// A queue stood for two windows.
    StandingQueue(Duration),
    /// The queue has gone that stood, and this is a little less than what the path carried then.
    Drained(Rate),
    /// More was allowed, and more came.
    RateRose(Rate),
    /// More was allowed, and no more came.
    NothingToGain(Rate),
    /// It is time to look whether there is more.
    TimeToLook,
    /// A round trip is so short that delays of the hosts look like queues.
    ShortPath,
    /// Loss goes on without a queue of ours.
    CongestedLoss,
    /// The congestion control takes no loss for congestion.
    LossProof,
    /// It does again.
    LossCounts,
    /// The rate goes up and down: there is none to hold.
    Unsteady,
    /// A queue stands whatever we do.
    CongestedQueue(Duration),
    /// Neither loss nor queue for a while.
    Calm,
    /// The first windows of all connections bring much more than comes, at this rate.
    TooManyStreams(Rate),
    /// Something else than the path holds the transfer up.
    HeldBy(Holder),
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// One clause, for a trace or a report.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapacityKnown(rate) => write!(f, "packet trains told {rate}"),
            Self::Remembered(rate) => write!(f, "an earlier copy went at {rate}"),
            Self::CapacityUnknown => f.write_str("no packet train told the capacity"),
            Self::HeldByUs(rate) => write!(f, "{rate} is all that is allowed"),
            Self::RateMax(rate) => write!(f, "more than {rate} is not wanted"),
            Self::QueueGrew(rate, queue) => {
                write!(f, "a queue of {:.1} ms grew at {rate}", ms(*queue))
            }
            Self::FlatRate(rate) => write!(f, "the rate is even at {rate}, and a queue stands"),
            Self::Overflowed(rate) => write!(f, "a queue overflowed beyond {rate}"),
            Self::StartOverflowed => f.write_str("slow start lost segments"),
            Self::LostWithoutQueue => f.write_str("segments were lost and no queue stood"),
            Self::StandingQueue(queue) => write!(f, "a queue of {:.1} ms stood", ms(*queue)),
            Self::Drained(rate) => write!(f, "the queue has gone, and the path carries {rate}"),
            Self::RateRose(rate) => write!(f, "more was allowed and came: {rate}"),
            Self::NothingToGain(rate) => write!(f, "more than {rate} did not come"),
            Self::TimeToLook => f.write_str("time to look for more"),
            Self::ShortPath => f.write_str("the path is too short to need it"),
            Self::LossProof => f.write_str("the pace holds the path: losses do not slow BBR down"),
            Self::LossCounts => f.write_str("losses count again: BBR is not used any more"),
            Self::CongestedLoss => f.write_str("losses go on without a queue of ours"),
            Self::CongestedQueue(queue) => {
                write!(f, "a queue of {:.1} ms stands whatever we do", ms(*queue))
            }
            Self::Unsteady => f.write_str("the rate goes up and down"),
            Self::Calm => f.write_str("no loss and no queue for a while"),
            Self::TooManyStreams(rate) => {
                write!(f, "{rate} is too little for so many connections to be held at")
            }
            Self::HeldBy(Holder::Source) => f.write_str("the source has nothing to send"),
            Self::HeldBy(Holder::Receiver) => f.write_str("the receiver does not come to read"),
            Self::HeldBy(Holder::Path) => f.write_str("the path limits"),
        }
    }
}
