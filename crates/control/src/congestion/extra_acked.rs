//! Window allowance for aggregated ACKs on short paths.
//!
//! On a path with an RTT below a millisecond ACKs arrive late and many at once: more than the
//! bandwidth-delay product is in flight before the next one. The allowance covers that, as long as
//! the queue takes it: its loss is compared with the loss without it.

use std::time::Duration;

/// Delivery time that the allowance covers. (chosen: both processes sleep and wake within it;
/// measured: over a cable of 1 Gbit/s ACKs took 120 µs where the minimum RTT was 38 µs)
const AGGREGATION_TIME: Duration = Duration::from_micros(1500);

/// Maximum allowance. (chosen: 1.5 ms at 1 Gbit/s; more brought no more even without a limit, and
/// fewer queues take it)
const MAX_EXTRA_ACKED_BYTES: u64 = 192 << 10;

/// Interval over which the delivery rate is averaged. (chosen: the maximum of a shorter one is that
/// of aggregated ACKs)
const DELIVERY_INTERVAL: Duration = Duration::from_millis(10);

/// Datagrams of one evaluation of loss. (chosen: 15 of them are 0.75 %)
const EVALUATION_DATAGRAMS: u64 = 2000;

/// Datagrams after a change that do not count, as they were sent before it. (chosen: a window of
/// `MAX_EXTRA_ACKED_BYTES` is 160 datagrams, and its losses show after later ACKs)
const SETTLING_DATAGRAMS: u64 = EVALUATION_DATAGRAMS / 4;

/// Loss that the allowance may add. (chosen)
const ADDED_LOSS_MARGIN: f64 = 0.0075;

/// Multiple of the baseline loss that is accepted besides. (chosen)
const BASELINE_LOSS_FACTOR: f64 = 1.5;

/// Lifetime of the baseline loss estimate, and delay before the limit doubles after a cut. (chosen:
/// that of the minimum RTT)
const BASELINE_LIFETIME: Duration = Duration::from_secs(10);

/// Lower bound of the limit. (chosen: two datagrams)
const MIN_EXTRA_ACKED_BYTES: u64 = MAX_EXTRA_ACKED_BYTES / 64;

/// Window allowance for aggregated ACKs.
#[derive(Debug, Clone)]
pub(crate) struct ExtraAcked {
    /// Allowance that the queue takes, in bytes.
    limit: u64,
    /// Delivery rate of the last interval that counts, in bytes per second.
    mean_bw: f64,
    interval: DeliveryInterval,
    evaluation: Evaluation,
    /// Loss without the allowance, as a fraction, and the time of its measurement.
    baseline: Option<(f64, Duration)>,
    /// Time of the last change of the limit.
    limit_changed_at: Duration,
}

/// Bytes delivered since a time.
#[derive(Debug, Clone, Copy)]
struct DeliveryInterval {
    started: Duration,
    bytes: u64,
    app_limited: bool,
}

/// Datagrams acknowledged and lost, with or without the allowance.
#[derive(Debug, Clone, Copy, Default)]
struct Evaluation {
    /// Datagrams still to be skipped.
    settling: u64,
    acked: u64,
    lost: u64,
    /// The allowance is off, to measure the baseline.
    is_baseline: bool,
}

impl ExtraAcked {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            limit: MAX_EXTRA_ACKED_BYTES,
            mean_bw: 0.0,
            interval: DeliveryInterval { started: now, bytes: 0, app_limited: false },
            evaluation: Evaluation::default(),
            baseline: None,
            limit_changed_at: now,
        }
    }

    /// Forgets the delivery rate after persistent congestion.
    pub(crate) fn reset(&mut self) {
        self.mean_bw = 0.0;
        self.evaluation = Evaluation::default();
    }

    /// Returns the window, raised to the allowance.
    pub(crate) fn extend(&self, cwnd: u64) -> u64 {
        if self.evaluation.is_baseline { cwnd } else { cwnd.max(self.allowance()) }
    }

    fn allowance(&self) -> u64 {
        self.limit.min((self.mean_bw * AGGREGATION_TIME.as_secs_f64()) as u64)
    }

    /// Records an acknowledged datagram. `cwnd`: the window without the allowance.
    pub(crate) fn on_ack(&mut self, now: Duration, bytes: u64, cwnd: u64, app_limited: bool) {
        self.interval.bytes += bytes;
        self.interval.app_limited |= app_limited;
        let elapsed = now.saturating_sub(self.interval.started);
        if elapsed >= DELIVERY_INTERVAL {
            let mean_bw = self.interval.bytes as f64 / elapsed.as_secs_f64();
            if mean_bw > self.mean_bw || !self.interval.app_limited {
                self.mean_bw = mean_bw;
            }
            self.interval = DeliveryInterval { started: now, bytes: 0, app_limited: false };
            if self.limit < MAX_EXTRA_ACKED_BYTES
                && now.saturating_sub(self.limit_changed_at) >= BASELINE_LIFETIME
            {
                (self.limit, self.limit_changed_at) = (self.limit * 2, now);
            }
        }
        if self.allowance() > cwnd && self.is_settled(1) {
            self.evaluation.acked += 1;
            self.evaluate(now);
        }
    }

    /// Records lost datagrams. `cwnd`: the window without the allowance.
    pub(crate) fn on_lost(&mut self, datagrams: u64, cwnd: u64) {
        if self.allowance() > cwnd && self.is_settled(datagrams) {
            self.evaluation.lost += datagrams;
        }
    }

    /// True if datagrams were sent after the last change; if not, skips them.
    fn is_settled(&mut self, datagrams: u64) -> bool {
        let is_settled = self.evaluation.settling == 0;
        self.evaluation.settling = self.evaluation.settling.saturating_sub(datagrams);
        is_settled
    }

    /// Ends the evaluation when it is complete or has lost too many datagrams already.
    fn evaluate(&mut self, now: Duration) {
        let Evaluation { acked, lost, is_baseline, .. } = self.evaluation;
        let baseline = self
            .baseline
            .filter(|&(_, measured_at)| now.saturating_sub(measured_at) < BASELINE_LIFETIME);
        let max_loss =
            baseline.map_or(0.0, |(loss, _)| loss * BASELINE_LOSS_FACTOR) + ADDED_LOSS_MARGIN;
        let is_complete = acked + lost >= EVALUATION_DATAGRAMS;
        let next = Evaluation { settling: SETTLING_DATAGRAMS, ..Evaluation::default() };
        if is_baseline {
            if is_complete {
                self.baseline = Some((lost as f64 / EVALUATION_DATAGRAMS as f64, now));
                self.evaluation = next;
            }
        } else if lost as f64 > max_loss * EVALUATION_DATAGRAMS as f64 {
            if baseline.is_some() {
                (self.limit, self.limit_changed_at) =
                    (MIN_EXTRA_ACKED_BYTES.max(self.limit / 2), now);
            }
            self.evaluation = Evaluation { is_baseline: baseline.is_none(), ..next };
        } else if is_complete {
            self.evaluation = Evaluation::default();
        }
    }
}
