//! Metrics of a contender.

use bankfull_control::{Bytes, Rate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Duration from which a round includes a retransmission timeout: TCP_RTO_MIN of Linux
/// (net/tcp.h).
const SLOW_ROUND_SECONDS: f64 = 0.2;

/// Metrics of a contender.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Goodput in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    /// Duration in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Files per second, for a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_per_second: Option<f64>,
    /// Minimum, mean and maximum RTT in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_seconds: Option<[f64; 3]>,
    /// Share of sent packets that did not arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_share: Option<f64>,
    /// Share that the queue must drop in theory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_lost_share: Option<f64>,
    /// Rate of TCP cross traffic in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_bps: Option<f64>,
    /// Duration of each incast round in seconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<f64>,
    /// Segments or packets retransmitted, as bankfull counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Streams that carry data at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Decisions of bankfull's tuner by its state.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: BTreeMap<String, u32>,
    /// Metrics of a datagram service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceMetrics>,
}

/// Metrics of a datagram service.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServiceMetrics {
    /// Messages sent by the clients, retransmissions included.
    pub sent: u64,
    /// Retransmissions of clients.
    pub retransmits: u64,
    /// Messages received from the socket.
    pub received: u64,
    /// Received messages that had been processed before.
    pub duplicates: u64,
    /// Messages discarded by the socket for lack of buffer, as counted by the kernel.
    pub discarded: u64,
    /// Messages discarded later than 2 s after the start of the service.
    pub discarded_after_warmup: u64,
    /// Discarded share of all messages that arrived.
    pub discarded_share: f64,
    /// CPU time of handler and buffer tuner per Gbit processed, while clients sent, in seconds.
    pub cpu_seconds_per_gbit: Option<f64>,
    /// Mean receive buffer while clients sent, in bytes.
    pub buffer_mean_bytes: f64,
    /// Largest receive buffer in bytes.
    pub buffer_max_bytes: u64,
    /// Last receive buffer in bytes.
    pub buffer_last_bytes: u64,
    /// Time from the end of the clients until a tuned buffer had shrunk, in seconds; `None` if it
    /// had not within 10 s, and for a fixed buffer.
    pub shrink_seconds: Option<f64>,
    /// Sizes of the buffer in bytes. Each has its start in seconds since the clients started.
    pub buffer: Vec<(f64, u64)>,
}

impl Metrics {
    /// Combines concurrent senders: sums of goodput and files, means of shares, and the longest
    /// duration.
    #[must_use]
    pub fn combine(all: &[Self]) -> Self {
        let each =
            |of: fn(&Self) -> Option<f64>| -> Vec<f64> { all.iter().filter_map(of).collect() };
        let sum = |of| each(of).into_iter().reduce(|a, b| a + b);
        let largest = |of| each(of).into_iter().reduce(f64::max);
        let mean = |of| {
            let found = each(of);
            (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
        };
        let smallest = each(|one| Some(one.rtt_seconds?[0])).into_iter().reduce(f64::min);
        let rtt = || {
            let (mean, largest) =
                (mean(|one| Some(one.rtt_seconds?[1])), largest(|one| Some(one.rtt_seconds?[2])));
            Some([smallest?, mean?, largest?])
        };
        let mut decisions = BTreeMap::new();
        for (state, count) in all.iter().flat_map(|one| &one.decisions) {
            *decisions.entry(state.clone()).or_default() += count;
        }
        Self {
            goodput_bps: sum(|one| one.goodput_bps),
            seconds: largest(|one| one.seconds),
            files_per_second: sum(|one| one.files_per_second),
            rtt_seconds: rtt(),
            lost_share: mean(|one| one.lost_share),
            expected_lost_share: mean(|one| one.expected_lost_share),
            cross_bps: all.first().and_then(|one| one.cross_bps),
            rounds: all.iter().flat_map(|one| one.rounds.iter().copied()).collect(),
            // One service serves all senders.
            retransmits: all.iter().map(|one| one.retransmits).sum(),
            streams: all.iter().map(|one| one.streams).sum(),
            decisions,
            service: all.first().and_then(|one| one.service.clone()),
        }
    }

    /// Metrics of bytes moved in a time.
    #[must_use]
    pub fn of_transfer(bytes: Bytes, duration: Duration) -> Self {
        let seconds = duration.as_secs_f64();
        Self {
            goodput_bps: Some(bytes.0 as f64 * 8.0 / seconds.max(f64::MIN_POSITIVE)),
            seconds: Some(seconds),
            ..Self::default()
        }
    }

    /// Number of rounds with a retransmission timeout.
    #[must_use]
    pub fn slow_rounds(&self) -> usize {
        self.rounds.iter().filter(|seconds| **seconds > SLOW_ROUND_SECONDS).count()
    }

    /// Quantile of the durations of rounds, in seconds.
    #[must_use]
    pub fn round_percentile(&self, share: f64) -> Option<f64> {
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        let at = (rounds.len() as f64 * share).ceil() as usize;
        rounds.get(at.saturating_sub(1)).copied()
    }

    /// Summary in a few words.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut words = Vec::new();
        if let Some(bps) = self.goodput_bps {
            words.push(Rate::from_bits_per_sec(bps).to_string());
        }
        if let Some(files) = self.files_per_second {
            words.push(format!("{files:.0} files/s"));
        }
        if let Some([min, mean, max]) = self.rtt_seconds.map(|rtt| rtt.map(|s| s * 1e3)) {
            words.push(format!("RTT {mean:.2} ms ({min:.2}–{max:.2})"));
        }
        if let Some(lost) = self.lost_share {
            words.push(format!("{:.2} % lost", lost * 100.0));
        }
        if !self.rounds.is_empty() {
            let (slow, all) = (self.slow_rounds(), self.rounds.len());
            words.push(format!("{slow} of {all} rounds over {SLOW_ROUND_SECONDS} s"));
        }
        if let Some(service) = &self.service {
            let share = service.discarded_share * 100.0;
            words.push(format!(
                "{share:.2} % of {} discarded",
                service.received + service.discarded
            ));
        }
        words.join(", ")
    }
}

/// Name of a decision: the state it leads to. Where the tuner falls back, the reason as well,
/// without its figures.
pub(crate) fn decision_name(state: &str, reason: &str) -> String {
    if state != "disabled" {
        return state.to_owned();
    }
    format!("disabled ({})", without_figures(reason))
}

/// Prepositions that lead to a figure, and are omitted with it.
const FIGURE_PREPOSITIONS: [&str; 6] = ["above", "at", "below", "for", "of", "to"];

/// Units of figures, and the word for a figure without a preposition.
const FIGURE_UNITS: [(&str, &str); 7] = [
    ("ms", "the time"),
    ("s", "the time"),
    ("%", "the share"),
    ("bit/s", "the rate"),
    ("kbit/s", "the rate"),
    ("Mbit/s", "the rate"),
    ("Gbit/s", "the rate"),
];

/// Clause without its figures. "a queue of 3.2 ms stands" becomes "a queue stands".
fn without_figures(clause: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut words = clause.split(' ').peekable();
    while let Some(word) = words.next() {
        if !word.contains(|c: char| c.is_ascii_digit()) {
            kept.push(word);
            continue;
        }
        let unit = words.peek().and_then(|next| FIGURE_UNITS.iter().find(|(unit, _)| unit == next));
        if unit.is_some() {
            words.next();
        }
        let has_preposition = kept.last().is_some_and(|last| FIGURE_PREPOSITIONS.contains(last));
        match unit {
            _ if has_preposition => drop(kept.pop()),
            Some((_, noun)) => kept.push(noun),
            None => {}
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_senders_have_sums_means_and_extremes() {
        let ping = |rtt, lost, seconds| Metrics {
            rtt_seconds: Some(rtt),
            lost_share: Some(lost),
            seconds: Some(seconds),
            ..Metrics::default()
        };
        let both = Metrics::combine(&[
            Metrics { goodput_bps: Some(1e6), ..ping([1.0, 2.0, 3.0], 0.0, 8.0) },
            Metrics { goodput_bps: Some(3e6), ..ping([2.0, 4.0, 6.0], 0.5, 9.0) },
        ]);
        let wanted = Metrics { goodput_bps: Some(4e6), ..ping([1.0, 3.0, 6.0], 0.25, 9.0) };
        assert_eq!(both, wanted);
        assert_eq!(Metrics::combine(std::slice::from_ref(&both)), both);
    }

    #[test]
    fn reasons_of_hand_overs_read_without_figures() {
        for (reason, name) in [
            ("a queue of 3.2 ms stands despite lower rates", "a queue stands despite lower rates"),
            ("a queue of 3.2 ms of other flows overflows", "a queue of other flows overflows"),
            (
                "the rate rose to 93.4 Mbit/s with a higher limit",
                "the rate rose with a higher limit",
            ),
            (
                "acknowledgements wait for 8.0 ms on the reverse path",
                "acknowledgements wait on the reverse path",
            ),
            (
                "1.2 Mbit/s is too low a limit for this many streams",
                "the rate is too low a limit for this many streams",
            ),
            ("losses continue", "losses continue"),
        ] {
            assert_eq!(decision_name("disabled", reason), format!("disabled ({name})"));
        }
        assert_eq!(decision_name("limited", "the rate is flat at 9 Mbit/s"), "limited");
    }

    #[test]
    fn summary_lists_available_metrics() {
        let metrics = Metrics {
            goodput_bps: Some(9.2e8),
            rounds: vec![0.1, 0.3, 0.25],
            lost_share: Some(0.2),
            rtt_seconds: Some([0.02, 0.0201, 0.021]),
            ..Metrics::default()
        };
        let wanted = "920.0 Mbit/s, RTT 20.10 ms (20.00–21.00), 20.00 % lost, \
                      2 of 3 rounds over 0.2 s";
        assert_eq!(metrics.summary(), wanted);
    }
}
