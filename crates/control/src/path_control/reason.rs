//! States of a controller and the reasons of its decisions, with their text for people.

use crate::units::Rate;
use std::fmt;
use std::time::Duration;

/// The state of a controller. `docs/algorithms/delay.md` and `sobas.md` have the diagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waiting for the capacity estimate.
    Probing,
    /// Start below the estimated capacity.
    StartBounded,
    /// Start without an estimate; no limit.
    StartOpen,
    /// Window and pacing rate limit the transfer, and grow by steps, or for a trial.
    Growing,
    /// Window and pacing rate limit the transfer; a queue near its target is left.
    Limited,
    /// No limit: TCP, or a pacing rate under BBR, does better on this path.
    Disabled,
}

impl State {
    /// Returns the stable name for machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Probing => "probing",
            Self::StartBounded => "start-bounded",
            Self::StartOpen => "start-open",
            Self::Growing => "growing",
            Self::Limited => "limited",
            Self::Disabled => "disabled",
        }
    }
}

/// The cause of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Packet trains measured this capacity.
    CapacityKnown(Rate),
    /// No packet train gave a capacity.
    CapacityUnknown,
    /// No packet train gave a capacity, but an earlier transfer was limited to this rate.
    CachedRate(Rate),
    /// The rate is flat at the target, which limits it.
    TargetReached(Rate),
    /// The user's maximum has changed to this rate; `None`: there is none any more.
    RateMaxChanged(Option<Rate>),
    /// The RTT grew while the rate no longer did: the path is full at this rate.
    QueueGrew(Rate, Duration),
    /// The rate is flat: the path is full at this rate.
    FlatRate(Rate),
    /// Losses while a queue stood, or a drop of a constant rate, above this rate.
    Overflowed(Rate),
    /// Losses without a queue.
    LostWithoutQueue,
    /// Losses in the start.
    StartOverflowed,
    /// A queue stood.
    StandingQueue(Duration),
    /// The queue has drained; this rate is slightly below the full path's.
    QueueDrained(Rate),
    /// The queue is near its target.
    QueueHeld(Rate, Duration),
    /// The delay without a queue was not seen for a while.
    BaseDelayExpired,
    /// Other flows share the path: the rate follows the window in part.
    SharedQueue(Duration),
    /// Acknowledgements wait on the reverse path.
    AckQueue(Duration),
    /// TCP uses the window only in part.
    Unused,
    /// The target was raised, and the rate rose.
    RateRose(Rate),
    /// The target was raised, and the rate did not rise.
    NoGain(Rate),
    /// Trial of a wider window.
    ProbeUp,
    /// The RTT is so short that host delays look like queues.
    ShortPath,
    /// Losses continue without a self-induced queue.
    CongestedLoss,
    /// The congestion control is now loss-tolerant.
    LossTolerantCc,
    /// The congestion control is now BBR, whose queue is shorter than TCP's.
    ShortQueueCc,
    /// The congestion control is loss-based again.
    LossSensitiveCc,
    /// The rate is unsteady.
    Unsteady,
    /// Neither data nor probes arrived for some time.
    Interrupted(Duration),
    /// A queue stands despite repeated reductions.
    CongestedQueue(Duration),
    /// A queue of others overflows.
    SharedOverflow(Duration),
    /// Neither losses nor a queue for some time.
    Quiet,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// One clause for traces and reports.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapacityKnown(rate) => write!(f, "packet trains measured {rate}"),
            Self::CachedRate(rate) => write!(f, "an earlier copy was limited to {rate}"),
            Self::CapacityUnknown => f.write_str("no packet train measured the capacity"),
            Self::TargetReached(rate) => write!(f, "the rate has reached its limit of {rate}"),
            Self::RateMaxChanged(Some(rate)) => write!(f, "the maximum is now {rate}"),
            Self::RateMaxChanged(None) => f.write_str("there is no maximum rate any more"),
            Self::QueueGrew(rate, queue) => {
                write!(f, "a queue of {:.1} ms grew at {rate}", ms(*queue))
            }
            Self::FlatRate(rate) => write!(f, "the rate is flat at {rate}"),
            Self::Overflowed(rate) => write!(f, "a queue overflowed above {rate}"),
            Self::StartOverflowed => f.write_str("slow start lost segments"),
            Self::LostWithoutQueue => f.write_str("segments were lost without a queue"),
            Self::StandingQueue(queue) => write!(f, "a queue of {:.1} ms stood", ms(*queue)),
            Self::QueueDrained(rate) => {
                write!(f, "the queue has drained; the path carries {rate}")
            }
            Self::QueueHeld(rate, queue) => {
                write!(f, "the path carries {rate} with a queue of {:.1} ms", ms(*queue))
            }
            Self::BaseDelayExpired => f.write_str("measuring the delay without a queue"),
            Self::SharedQueue(queue) => {
                write!(f, "other flows share the path and its queue of {:.1} ms", ms(*queue))
            }
            Self::AckQueue(queue) => {
                write!(f, "acknowledgements wait for {:.1} ms on the reverse path", ms(*queue))
            }
            Self::Unused => f.write_str("TCP uses only a part of the window"),
            Self::RateRose(rate) => write!(f, "the rate rose to {rate} with a higher limit"),
            Self::NoGain(rate) => write!(f, "the rate stayed at {rate} with a higher limit"),
            Self::ProbeUp => f.write_str("probing for more bandwidth"),
            Self::ShortPath => f.write_str("the path is too short for a limit"),
            Self::LossTolerantCc => f.write_str("pacing limits the path; BBR tolerates the losses"),
            Self::ShortQueueCc => f.write_str("BBR keeps a shorter queue than TCP"),
            Self::LossSensitiveCc => f.write_str("losses count again; BBR is no longer used"),
            Self::CongestedLoss => f.write_str("losses continue without a self-induced queue"),
            Self::CongestedQueue(queue) => {
                write!(f, "a queue of {:.1} ms stands despite lower rates", ms(*queue))
            }
            Self::SharedOverflow(queue) => {
                write!(f, "a queue of {:.1} ms of other flows overflows", ms(*queue))
            }
            Self::Unsteady => f.write_str("the rate is unsteady"),
            Self::Interrupted(time) => write!(f, "nothing arrived for {:.0} ms", ms(*time)),
            Self::Quiet => f.write_str("no losses and no queue for some time"),
        }
    }
}
