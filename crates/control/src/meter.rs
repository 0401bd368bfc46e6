//! The stage meter: where the time of a transfer went, and which stage therefore limited it.
//!
//! Each worker thread charges its time to stages as it goes; the sums of both sides meet in
//! [`limited_by`]. This module reads no clock and samples no socket: callers measure.

use std::fmt;
use std::time::Duration;

/// What a worker thread was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading source files (open, stat and read).
    Read,
    /// Hashing, encrypting, decrypting: work of the CPU on bytes already in memory.
    Compute,
    /// In a socket call: sending, or waiting for bytes to arrive.
    Network,
    /// Writing destination files (create, write, metadata, rename).
    Write,
    /// Waiting for something to do.
    Idle,
}

/// Time charged to each stage, summed over the worker threads of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Time in [`Stage::Read`].
    pub read: Duration,
    /// Time in [`Stage::Compute`].
    pub compute: Duration,
    /// Time in [`Stage::Network`].
    pub network: Duration,
    /// Time in [`Stage::Write`].
    pub write: Duration,
    /// Time in [`Stage::Idle`].
    pub idle: Duration,
}

impl StageTimes {
    /// Sum of all stages.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.read + self.compute + self.network + self.write + self.idle
    }

    /// Adds another thread's (or side's) times to these.
    pub fn merge(&mut self, other: &Self) {
        self.read += other.read;
        self.compute += other.compute;
        self.network += other.network;
        self.write += other.write;
        self.idle += other.idle;
    }

    fn share(part: Duration, whole: Duration) -> f64 {
        if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
    }
}

/// Charges the time between marks to stages: one per worker thread, no locks.
///
/// Times are offsets from any fixed instant of the caller's clock and must not go backwards; a
/// step back charges nothing.
#[derive(Debug, Clone)]
pub struct StageMeter {
    times: StageTimes,
    since: Duration,
}

impl StageMeter {
    /// Starts metering at `now`.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { times: StageTimes::default(), since: now }
    }

    /// Charges the time since the last mark to `stage`.
    pub fn mark(&mut self, stage: Stage, now: Duration) {
        let spent = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        let slot = match stage {
            Stage::Read => &mut self.times.read,
            Stage::Compute => &mut self.times.compute,
            Stage::Network => &mut self.times.network,
            Stage::Write => &mut self.times.write,
            Stage::Idle => &mut self.times.idle,
        };
        *slot += spent;
    }

    /// What was charged so far, and starts again from zero.
    pub fn take(&mut self) -> StageTimes {
        std::mem::take(&mut self.times)
    }
}

/// The stage that limited a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The sending side waited for its source files.
    SourceRead,
    /// Hashing and encryption on the sending side.
    SenderCpu,
    /// The path between the hosts.
    Network,
    /// The most that the user allowed.
    RateMax,
    /// The windows that the user has set.
    Buffer,
    /// Hashing and decryption on the receiving side.
    ReceiverCpu,
    /// The receiving side waited for its destination files.
    DestinationWrite,
    /// Too little was moved to say.
    Nothing,
}

impl Limit {
    /// The stable name used in machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceRead => "source-read",
            Self::SenderCpu => "sender-cpu",
            Self::Network => "network",
            Self::RateMax => "max-rate",
            Self::Buffer => "buffer",
            Self::ReceiverCpu => "receiver-cpu",
            Self::DestinationWrite => "destination-write",
            Self::Nothing => "nothing",
        }
    }
}

/// What a person reads in the summary.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceRead => "reading the source",
            Self::SenderCpu => "CPU of the sender (hashing, encryption)",
            Self::Network => "the network",
            Self::RateMax => "the rate that was allowed (--max-rate)",
            Self::Buffer => "the windows that were set (--buffer)",
            Self::ReceiverCpu => "CPU of the receiver (hashing, decryption)",
            Self::DestinationWrite => "writing the destination",
            Self::Nothing => "nothing in particular",
        })
    }
}

/// A side whose workers spent at least this share of their time in the socket was held up by the
/// other side or the path. [ours: half is the point where waiting outweighs working]
const WAITING_SHARE: f64 = 0.5;

/// Names the stage that limited a transfer from the times of its two sides.
///
/// The rule follows back-pressure. A receiver that is mostly waiting for bytes is not the limit;
/// a sender that is mostly blocked in its socket is not the limit; when both wait, the path
/// between them is. Otherwise it is the largest working stage of the side that did not wait.
#[must_use]
pub fn limited_by(sender: &StageTimes, receiver: &StageTimes) -> Limit {
    let sender_work = sender.total().saturating_sub(sender.idle);
    let receiver_work = receiver.total().saturating_sub(receiver.idle);
    if sender_work.is_zero() && receiver_work.is_zero() {
        return Limit::Nothing;
    }
    let sender_waits = StageTimes::share(sender.network, sender_work) >= WAITING_SHARE;
    let receiver_waits = StageTimes::share(receiver.network, receiver_work) >= WAITING_SHARE;
    match (sender_waits, receiver_waits) {
        (true, true) => Limit::Network,
        (true, false) => largest_of_receiver(receiver),
        (false, true) => largest_of_sender(sender),
        // Neither waits for the other: the side with more work per thread is the slower one.
        (false, false) => {
            let sender_busy = sender.read + sender.compute;
            let receiver_busy = receiver.write + receiver.compute;
            if sender_busy > receiver_busy {
                largest_of_sender(sender)
            } else {
                largest_of_receiver(receiver)
            }
        }
    }
}

fn largest_of_sender(times: &StageTimes) -> Limit {
    if times.read >= times.compute { Limit::SourceRead } else { Limit::SenderCpu }
}

fn largest_of_receiver(times: &StageTimes) -> Limit {
    if times.write >= times.compute { Limit::DestinationWrite } else { Limit::ReceiverCpu }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(read: u64, compute: u64, network: u64, write: u64) -> StageTimes {
        let ms = Duration::from_millis;
        StageTimes {
            read: ms(read),
            compute: ms(compute),
            network: ms(network),
            write: ms(write),
            idle: Duration::ZERO,
        }
    }

    #[test]
    fn the_meter_charges_each_interval_to_the_stage_that_ended_it() {
        let ms = Duration::from_millis;
        let mut meter = StageMeter::new(ms(100));
        meter.mark(Stage::Read, ms(110));
        meter.mark(Stage::Network, ms(140));
        meter.mark(Stage::Read, ms(145));
        assert_eq!(meter.take(), times(15, 0, 30, 0));
        assert_eq!(meter.take(), StageTimes::default());
    }

    #[test]
    fn a_clock_that_steps_back_charges_nothing() {
        let ms = Duration::from_millis;
        let mut meter = StageMeter::new(ms(100));
        meter.mark(Stage::Write, ms(50));
        meter.mark(Stage::Write, ms(101));
        assert_eq!(meter.take().write, ms(1));
    }

    #[test]
    fn the_limit_is_where_the_back_pressure_starts() {
        let cases = [
            (times(10, 10, 80, 0), times(0, 10, 80, 10), Limit::Network),
            (times(80, 10, 10, 0), times(0, 5, 90, 5), Limit::SourceRead),
            (times(10, 80, 10, 0), times(0, 5, 90, 5), Limit::SenderCpu),
            (times(5, 5, 90, 0), times(0, 20, 10, 70), Limit::DestinationWrite),
            (times(5, 5, 90, 0), times(0, 70, 10, 20), Limit::ReceiverCpu),
            (times(0, 0, 0, 0), times(0, 0, 0, 0), Limit::Nothing),
        ];
        for (sender, receiver, expected) in cases {
            assert_eq!(limited_by(&sender, &receiver), expected, "{sender:?} {receiver:?}");
        }
    }

    #[test]
    fn idle_threads_do_not_hide_the_busy_stage() {
        let mut sender = times(80, 10, 10, 0);
        sender.idle = Duration::from_secs(100);
        assert_eq!(limited_by(&sender, &times(0, 5, 90, 5)), Limit::SourceRead);
    }
}
