//! Input of the stream-count tuner, as seen by the receiving side.

use super::available_cpus;
use super::buffer_advice::suggest_larger_buffers;
use bankfull_control::sobas::{self, Sobas};
use bankfull_control::streams::{Decision, HostLoad, Observation, StreamTuner};
use bankfull_control::{Bytes, LimitSamples, Rate};
use bankfull_proto::wire::control::SenderReport;
use std::time::Duration;

/// Observations from which the receiving side tunes the stream count.
pub(crate) struct TunerInput<'k> {
    pub(crate) sobas: &'k Sobas,
    pub(crate) observation: &'k sobas::Observation,
    /// Current decision on window and pacing.
    pub(crate) decision: Option<&'k sobas::Decision>,
    /// Data rate of the bottleneck link.
    pub(crate) capacity: Option<Rate>,
    /// Maximum rate that the user set.
    pub(crate) rate_max: Option<Rate>,
    /// Number of streams that carry data.
    pub(crate) active_streams: u32,
    pub(crate) sender_report: &'k SenderReport,
    /// Samples of the sender's and the receiver's sockets since the beginning.
    pub(crate) samples: [LimitSamples; 2],
    /// CPU time that the receiver spent on its streams.
    pub(crate) cpu_busy: Duration,
    /// Most data that a stream can have in flight at the receiver.
    pub(crate) max_inflight: Bytes,
}

impl TunerInput<'_> {
    /// Passes the input to the tuner. Returns its decision, if any.
    pub(crate) fn observe(&self, tuner: &mut StreamTuner) -> Option<Decision> {
        let sender_busy = Duration::from_nanos(self.sender_report.cpu_nanos.unwrap_or_default());
        tuner.observe(&Observation {
            now: self.observation.now,
            active_streams: self.active_streams,
            received: self.observation.received,
            min_rtt: self.sobas.min_rtt(),
            state: self.sobas.state(),
            path: self.sobas.path_state(),
            has_bbr: self.sender_report.bbr_available.unwrap_or_default(),
            retransmits: self.observation.retransmits,
            mss: self.observation.mss,
            capacity: self.capacity.into_iter().chain(self.rate_max).min(),
            rate_max: self.rate_max,
            min_streams: self.min_streams(),
            max_inflight_bytes: self.max_inflight().into_iter().min().unwrap_or_default(),
            hosts: HostLoad {
                samples: self.samples,
                busy: [sender_busy, self.cpu_busy],
                cpus: self.sender_report.cpus.unwrap_or(u32::MAX).min(available_cpus()),
            },
        })
    }

    /// Returns the path's BDP; zero if unknown.
    fn path_bdp(&self) -> Bytes {
        let window = self.decision.map(|decision| decision.window);
        let window = window.filter(|window| window.0 < super::MAX_TCP_WINDOW.0);
        let product = self.capacity.map(|rate| {
            Bytes((rate.bytes_per_sec() as f64 * self.sobas.min_rtt().as_secs_f64()) as u64)
        });
        window.or(product).unwrap_or_default()
    }

    /// Returns the most data that a stream can have in flight at the receiver and at the sender.
    fn max_inflight(&self) -> [Bytes; 2] {
        [self.max_inflight, Bytes(self.sender_report.max_inflight_bytes.unwrap_or(u64::MAX))]
    }

    /// Returns the fewest streams whose windows cover the BDP.
    fn min_streams(&self) -> u32 {
        let [receiver, sender] = self.max_inflight();
        let max_inflight = receiver.min(sender).0.max(1);
        u32::try_from(self.path_bdp().0.div_ceil(max_inflight)).unwrap_or(u32::MAX)
    }

    /// Suggests larger buffers if `streams` streams are too few to cover the BDP.
    ///
    /// On a path without earlier results, one stream has to suffice.
    pub(crate) fn advice(&self, streams: u32, is_new: bool) -> Option<String> {
        let enough = if is_new { 1 } else { streams };
        if self.sender_report.max_inflight_bytes.is_none() || self.min_streams() <= enough {
            return None;
        }
        suggest_larger_buffers(self.path_bdp(), self.max_inflight())
    }
}
