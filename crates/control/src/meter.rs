//! The stage meter: time spent in each stage of a transfer, and the stage that limited it.
//!
//! Each worker thread charges its time to stages; [`limited_by`] evaluates the sums of both sides.
//! This module reads no clock and no socket; callers measure.

use std::fmt;
use std::time::Duration;

/// The activity of a worker thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading source files (open, stat and read).
    Read,
    /// CPU work on bytes in memory: hashing, encrypting, decrypting.
    Compute,
    /// In a socket call: sending, or waiting for bytes to arrive.
    Network,
    /// Writing destination files (create, write, metadata, rename).
    Write,
    /// Waiting for work.
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
    /// Returns the sum of all stages.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.read + self.compute + self.network + self.write + self.idle
    }

    /// Adds the times of another thread or side.
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

/// Charges the time between marks to stages; one per worker thread, without locks.
///
/// Times are offsets from any fixed instant of the caller's clock. A backward step charges nothing.
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

    /// Returns the times charged so far and resets them.
    pub fn take(&mut self) -> StageTimes {
        std::mem::take(&mut self.times)
    }
}

/// The stage that limited a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Reading the source files.
    SourceRead,
    /// CPU of the sender: hashing and encryption.
    SenderCpu,
    /// The path between the hosts.
    Network,
    /// The rate limit of the user.
    RateMax,
    /// The window size set by the user.
    Buffer,
    /// CPU of the receiver: hashing and decryption.
    ReceiverCpu,
    /// Writing the destination files.
    DestinationWrite,
    /// Unknown: too little data was moved.
    Nothing,
}

impl Limit {
    /// Returns the stable name for machine-readable output.
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

/// Text for the summary.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceRead => "reading the source",
            Self::SenderCpu => "sender CPU (hashing, encryption)",
            Self::Network => "the network",
            Self::RateMax => "the rate limit (--max-rate, --schedule)",
            Self::Buffer => "the window size (--buffer)",
            Self::ReceiverCpu => "receiver CPU (hashing, decryption)",
            Self::DestinationWrite => "writing the destination",
            Self::Nothing => "nothing in particular",
        })
    }
}

/// Minimum share of time in socket calls at which a side counts as waiting. Covers waiting for the
/// other side or the path. (chosen: at one half, waiting outweighs working)
const MIN_WAITING_SHARE: f64 = 0.5;

/// Returns the stage that limited a transfer, from the stage times of both sides.
///
/// The rule follows back-pressure. A side that is mostly blocked in its socket is not the limit; if
/// both are, the path is. Otherwise it is the largest working stage of the side that was not
/// blocked, or of the side with more work if neither was.
#[must_use]
pub fn limited_by(sender: &StageTimes, receiver: &StageTimes) -> Limit {
    let sender_work = sender.total().saturating_sub(sender.idle);
    let receiver_work = receiver.total().saturating_sub(receiver.idle);
    if sender_work.is_zero() && receiver_work.is_zero() {
        return Limit::Nothing;
    }
    let sender_waits = StageTimes::share(sender.network, sender_work) >= MIN_WAITING_SHARE;
    let receiver_waits = StageTimes::share(receiver.network, receiver_work) >= MIN_WAITING_SHARE;
    match (sender_waits, receiver_waits) {
        (true, true) => Limit::Network,
        (true, false) => largest_receiver_stage(receiver),
        (false, true) => largest_sender_stage(sender),
        // Neither side waits: the one with more work per thread is slower.
        (false, false) => {
            let sender_busy = sender.read + sender.compute;
            let receiver_busy = receiver.write + receiver.compute;
            if sender_busy > receiver_busy {
                largest_sender_stage(sender)
            } else {
                largest_receiver_stage(receiver)
            }
        }
    }
}

fn largest_sender_stage(times: &StageTimes) -> Limit {
    if times.read >= times.compute { Limit::SourceRead } else { Limit::SenderCpu }
}

fn largest_receiver_stage(times: &StageTimes) -> Limit {
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
    fn meter_charges_interval_to_the_ending_stage() {
        let ms = Duration::from_millis;
        let mut meter = StageMeter::new(ms(100));
        meter.mark(Stage::Read, ms(110));
        meter.mark(Stage::Network, ms(140));
        meter.mark(Stage::Read, ms(145));
        assert_eq!(meter.take(), times(15, 0, 30, 0));
        assert_eq!(meter.take(), StageTimes::default());
    }

    #[test]
    fn meter_backward_clock_charges_nothing() {
        let ms = Duration::from_millis;
        let mut meter = StageMeter::new(ms(100));
        meter.mark(Stage::Write, ms(50));
        meter.mark(Stage::Write, ms(101));
        assert_eq!(meter.take().write, ms(1));
    }

    #[test]
    fn limited_by_follows_back_pressure() {
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
    fn limited_by_ignores_idle_time() {
        let mut sender = times(80, 10, 10, 0);
        sender.idle = Duration::from_secs(100);
        assert_eq!(limited_by(&sender, &times(0, 5, 90, 5)), Limit::SourceRead);
    }
}
