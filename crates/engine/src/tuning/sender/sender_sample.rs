//! Samples of a sending session's connections.

use crate::session::Session;
use crate::stats::transport_stats::TransportStats;
use bankfull_control::{Bytes, LimitSamples};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum growth of the data in flight within an RTT: slow start doubles it. (RFC 5681 §3.1)
const SLOW_START_GROWTH: u64 = 2;

/// Sample of all connections of a sender.
#[derive(Default)]
pub(super) struct SenderSample {
    /// Acknowledged bytes of each stream.
    pub(super) acked: Vec<(u32, u64)>,
    /// Congestion window of each stream.
    cwnd: BTreeMap<u32, Bytes>,
    /// Limit of the pacing rate of each stream, in bytes per second.
    max_pacing: BTreeMap<u32, u64>,
    /// Smallest MSS of the streams.
    pub(super) min_segment: Option<Bytes>,
    /// Smallest smoothed RTT of the streams.
    pub(super) rtt: Option<Duration>,
    /// Smallest min RTT of the streams.
    pub(super) min_rtt: Option<Duration>,
    /// Receive window granted to all streams together, in bytes.
    pub(super) granted: Option<u64>,
    pub(super) carried: TransportStats,
}

impl SenderSample {
    /// Samples all connections. Adds whether each stream is app-limited to `samples`.
    pub(super) fn new(session: &Session, samples: &mut LimitSamples) -> Self {
        let mut sample = Self::default();
        let first_paused = session.first_paused().unwrap_or(u32::MAX);
        let min = |a: Option<Duration>, b| Some(a.map_or(b, |a: Duration| a.min(b)));
        sample.carried = session.sample_streams(|number, _, info| {
            if number < first_paused {
                samples.add(info.notsent_bytes == Some(0));
            }
            sample.acked.push((number, info.bytes_acked.unwrap_or_default()));
            let segment = Bytes(info.snd_mss.into());
            sample.min_segment = Some(sample.min_segment.map_or(segment, |min| min.min(segment)));
            sample.cwnd.insert(number, Bytes(segment.0 * u64::from(info.snd_cwnd)));
            if let Some(rate) = info.max_pacing_rate_bytes_per_sec {
                sample.max_pacing.insert(number, rate);
            }
            if let Some(granted) = info.snd_wnd {
                *sample.granted.get_or_insert(0) += u64::from(granted);
            }
            if !info.rtt.is_zero() {
                sample.rtt = min(sample.rtt, info.rtt);
                sample.min_rtt = min(sample.min_rtt, info.min_rtt.unwrap_or(info.rtt));
            }
        });
        sample.rtt = sample.rtt.or(sample.carried.quic_smoothed_rtt);
        sample
    }

    /// Returns the most data that a stream may have in flight an RTT later.
    ///
    /// A requested rate alone, without data in flight, justifies no larger buffer.
    pub(super) fn max_next_inflight(&self, number: u32) -> Bytes {
        let cwnd = self.cwnd.get(&number).copied().unwrap_or_default();
        Bytes(cwnd.0 * SLOW_START_GROWTH)
    }

    /// Returns true if a stream's pacing rate is limited to this one.
    ///
    /// In bytes per second.
    pub(super) fn is_paced_at(&self, number: u32, bytes_per_sec: u64) -> bool {
        self.max_pacing.get(&number) == Some(&bytes_per_sec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_need_follows_the_congestion_window() {
        let mut sample = SenderSample::default();
        assert_eq!(sample.max_next_inflight(0), Bytes(0));
        sample.cwnd.insert(0, Bytes(14_480));
        let next = [sample.max_next_inflight(0), sample.max_next_inflight(1)];
        assert_eq!(next, [Bytes(28_960), Bytes(0)]);
    }
}
