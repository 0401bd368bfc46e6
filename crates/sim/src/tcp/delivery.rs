//! Delivery rate samples, as in Linux (net/ipv4/tcp_rate.c), and their windowed maximum.

use std::time::Duration;

/// State of the delivery when a transmission left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stamp {
    /// Segments delivered by then.
    delivered: u64,
    /// Time of the latest delivery by then.
    delivered_at: Duration,
    /// Time of transmission of what was delivered latest by then.
    first_sent: Duration,
    pub(super) is_app_limited: bool,
}

/// Sample of the delivery rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateSample {
    /// Segments delivered during the interval.
    pub(super) delivered: u64,
    pub(super) interval: Duration,
    /// Segments delivered before the interval.
    pub(super) prior_delivered: u64,
    /// The sender lacked data.
    pub(super) is_app_limited: bool,
}

/// Totals of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Total {
    /// Segments delivered.
    pub(super) delivered: u64,
    /// Time of the latest delivery.
    pub(super) delivered_at: Duration,
    /// Segments presumed lost.
    pub(super) lost: u64,
}

/// Delivery so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivery {
    pub(super) total: Total,
    first_sent: Duration,
    /// Transmissions are app-limited until more segments than these are delivered.
    app_limited_until: u64,
    /// Newest transmission of an acknowledgement: its number and time, and its stamp.
    newest: Option<(u64, Duration, Stamp)>,
}

impl Delivery {
    /// Returns the stamp of a transmission.
    pub(super) fn stamp(&mut self, now: Duration, is_first_in_flight: bool) -> Stamp {
        if is_first_in_flight {
            self.first_sent = now;
            self.total.delivered_at = now;
        }
        Stamp {
            delivered: self.total.delivered,
            delivered_at: self.total.delivered_at,
            first_sent: self.first_sent,
            is_app_limited: self.is_app_limited(),
        }
    }

    /// Returns whether the sender lacked data.
    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// Marks what is in flight as app-limited.
    pub(super) fn set_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.total.delivered + in_flight).max(1);
    }

    /// Records a transmission that has arrived.
    pub(super) fn on_arrival(&mut self, number: u64, sent: Duration, stamp: Stamp) {
        if self.newest.is_none_or(|(newest, ..)| newest < number) {
            self.newest = Some((number, sent, stamp));
        }
    }

    /// Ends an acknowledgement that delivers segments; returns its sample if it is valid.
    pub(super) fn sample(
        &mut self,
        now: Duration,
        delivered: u64,
        min_rtt: Duration,
    ) -> Option<RateSample> {
        self.total.delivered += delivered;
        if self.total.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        if delivered > 0 {
            self.total.delivered_at = now;
        }
        let (_, sent, stamp) = self.newest.take()?;
        self.first_sent = sent;
        let interval = (sent - stamp.first_sent).max(now - stamp.delivered_at);
        // Shorter intervals follow a spurious retransmission.
        (interval >= min_rtt && !interval.is_zero()).then_some(RateSample {
            delivered: self.total.delivered - stamp.delivered,
            interval,
            prior_delivered: stamp.delivered,
            is_app_limited: stamp.is_app_limited,
        })
    }
}

/// Maximum over a window, from its three best samples (lib/win_minmax.c).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MaxFilter {
    /// Time and value: the best, the second best after it, and the third.
    best: [(u64, f64); 3],
}

impl MaxFilter {
    /// Returns the maximum.
    pub(super) fn get(&self) -> f64 {
        self.best[0].1
    }

    /// Adds a sample, and forgets those older than the window.
    pub(super) fn update(&mut self, window: u64, at: u64, value: f64) {
        let sample = (at, value);
        let [first, second, third] = &mut self.best;
        if value >= first.1 || at - third.0 > window {
            self.best = [sample; 3];
            return;
        }
        if value >= second.1 {
            (*second, *third) = (sample, sample);
        } else if value >= third.1 {
            *third = sample;
        }
        let age = at - first.0;
        if age > window {
            (*first, *second, *third) = (*second, *third, sample);
            if at - first.0 > window {
                (*first, *second) = (*second, *third);
            }
        } else if second.0 == first.0 && age > window / 4 {
            (*second, *third) = (sample, sample);
        } else if third.0 == second.0 && age > window / 2 {
            *third = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sample_is_the_rate_between_two_deliveries() {
        let mut delivery = Delivery::default();
        let stamps = [0, 1, 2].map(|n| delivery.stamp(MS * n, n == 0));
        for (n, stamp) in stamps.into_iter().enumerate() {
            delivery.on_arrival(n as u64, MS * n as u32, stamp);
            let sample = delivery.sample(MS * (20 + n as u32), 10, 20 * MS).unwrap();
            assert_eq!((sample.delivered, sample.prior_delivered), (10 * (n as u64 + 1), 0));
            assert_eq!((sample.interval, sample.is_app_limited), (MS * (20 + n as u32), false));
        }
        delivery.set_app_limited(5);
        let stamp = delivery.stamp(MS * 23, false);
        delivery.on_arrival(4, MS * 23, stamp);
        let sample = delivery.sample(MS * 45, 6, 20 * MS).unwrap();
        assert!(sample.is_app_limited && !delivery.is_app_limited());
        let stamp = delivery.stamp(MS * 45, false);
        delivery.on_arrival(5, MS * 30, stamp);
        assert!(delivery.sample(MS * 55, 1, 20 * MS).is_none(), "shorter than the min RTT");
    }

    #[test]
    fn maximum_is_forgotten_after_its_window() {
        let mut filter = MaxFilter::default();
        for (at, value) in [(0, 50.0), (1, 90.0), (4, 70.0), (8, 60.0), (11, 10.0)] {
            filter.update(10, at, value);
        }
        assert_eq!(filter.get(), 90.0);
        filter.update(10, 12, 10.0);
        assert_eq!(filter.get(), 70.0);
        filter.update(10, 16, 10.0);
        assert_eq!(filter.get(), 60.0);
        filter.update(10, 40, 20.0);
        assert_eq!(filter.get(), 20.0);
    }
}
