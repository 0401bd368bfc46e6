//! How many data connections carry data: feeds the tuner of their number with what the receiving
//! side sees.

use super::advice::larger_windows;
use super::cpus;
use bankfull_control::sobas::{self, Reason, Sobas, State};
use bankfull_control::streams::{Decision, Observation, StreamTuner};
use bankfull_control::{Bytes, LimitSamples, Rate};
use bankfull_proto::wire::control::SenderReport;
use std::time::Duration;

/// What the receiving side knows when it asks for the number of connections.
pub(super) struct Known<'k> {
    pub(super) sobas: &'k Sobas,
    pub(super) seen: &'k sobas::Observation,
    /// What is held of window and pacing.
    pub(super) held: Option<&'k sobas::Decision>,
    /// What the line carries.
    pub(super) capacity: Option<Rate>,
    /// What the user wants at most.
    pub(super) rate_max: Option<Rate>,
    /// How many connections carry data.
    pub(super) active_streams: u32,
    pub(super) sight: &'k SenderReport,
    /// Looks at the sender's sockets and at ours, since the beginning.
    pub(super) samples: [LimitSamples; 2],
    /// Time that our side of the connections has kept processors busy.
    pub(super) busy: Duration,
    /// The most data that a connection can have in flight here.
    pub(super) max_inflight_bytes: Bytes,
}

impl Known<'_> {
    /// How many there are to be from now on, if that changes.
    pub(super) fn ask(&self, tuner: &mut StreamTuner) -> Option<Decision> {
        let why = self.held.filter(|held| held.state == State::Disabled).map(|held| held.reason);
        let there = Duration::from_nanos(self.sight.cpu_nanos.unwrap_or_default());
        tuner.observe(&Observation {
            now: self.seen.now,
            active_streams: self.active_streams,
            received: self.seen.received,
            min_rtt: self.sobas.min_rtt(),
            state: self.sobas.state(),
            is_short: why == Some(Reason::ShortPath),
            is_oversubscribed: matches!(why, Some(Reason::TooManyStreams(_))),
            is_lossy: self.is_lossy(),
            has_bbr: self.sight.bbr_available.unwrap_or_default(),
            retransmits: self.seen.retransmits,
            mss: self.seen.mss,
            capacity: self.capacity.into_iter().chain(self.rate_max).min(),
            rate_max: self.rate_max,
            min_streams: self.min_streams(),
            max_inflight_bytes: self.max_inflight_bytes().into_iter().min().unwrap_or_default(),
            samples: self.samples,
            busy: [there, self.busy],
            cpus: self.sight.cpus.unwrap_or(u32::MAX).min(cpus()),
        })
    }

    /// Whether losses go on without a queue.
    fn is_lossy(&self) -> bool {
        let is_told = self.held.is_some_and(|held| {
            matches!(
                held.reason,
                Reason::LostWithoutQueue | Reason::CongestedLoss | Reason::LossSensitiveCc
            )
        });
        is_told || self.sobas.has_loss_without_queue()
    }

    /// What is in flight where the path is full; zero where that is not known.
    fn holds(&self) -> Bytes {
        let held = self.held.map(|held| held.window).filter(|window| window.0 < super::OPEN.0);
        let fills = self.capacity.map(|rate| {
            Bytes((rate.bytes_per_sec() as f64 * self.sobas.min_rtt().as_secs_f64()) as u64)
        });
        held.or(fills).unwrap_or_default()
    }

    /// The most that a connection can have in flight at the receiver, and at the sender.
    fn max_inflight_bytes(&self) -> [Bytes; 2] {
        [self.max_inflight_bytes, Bytes(self.sight.max_inflight_bytes.unwrap_or(u64::MAX))]
    }

    /// The fewest connections whose windows cover the path.
    fn min_streams(&self) -> u32 {
        let [receiver, sender] = self.max_inflight_bytes();
        let max_inflight_bytes = receiver.min(sender).0.max(1);
        u32::try_from(self.holds().0.div_ceil(max_inflight_bytes)).unwrap_or(u32::MAX)
    }

    /// What would have one connection fill the path, where its windows do not cover that: at a path
    /// that is new to us, or where so many connections are too few.
    pub(super) fn advice(&self, streams: u32, is_new: bool) -> Option<String> {
        let enough = if is_new { 1 } else { streams };
        if self.sight.max_inflight_bytes.is_none() || self.min_streams() <= enough {
            return None;
        }
        larger_windows(self.holds(), self.max_inflight_bytes())
    }
}
