//! Samples of a transfer at its ticks: delay, rate and losses over recent times.

use super::outages::Outages;
use crate::path_control::{Observation, TICK};
use crate::units::{Bytes, Rate};
use std::collections::VecDeque;
use std::time::Duration;

/// Returns the time in which TCP repairs a loss.
pub(super) fn repair_time(rtt: Duration) -> Duration {
    let (rtts, least) = REPAIR_TIME;
    (rtt * rtts).max(least)
}

pub(super) use super::round::{MIN_ROUND, STANDING_SAMPLES};
/// Lifetime of base delay, rates and results of trials.
pub(super) use crate::tcp::MIN_RTT_FILTER_LEN as LIFETIME;
pub(super) use crate::tcp::REPAIR_TIME;

/// Counters of a transfer at a tick, since its start.
#[derive(Debug, Clone, Copy)]
struct Tick {
    now: Duration,
    received: Bytes,
    retransmits: u64,
}

/// Delays of one probe.
#[derive(Debug, Clone, Copy)]
struct Delay {
    now: Duration,
    rtt: Duration,
    /// One-way delay in the direction of the data, from an arbitrary origin.
    forward: Duration,
}

impl Delay {
    /// Returns the reverse delay in nanoseconds, from an arbitrary origin.
    fn reverse_delay(&self) -> i128 {
        nanos(self.rtt) - nanos(self.forward)
    }
}

fn nanos(delay: Duration) -> i128 {
    delay.as_nanos() as i128
}

/// Returns a number of nanoseconds as a duration; zero if it is negative.
fn duration(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

/// Recent samples of a transfer.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    ticks: VecDeque<Tick>,
    delays: VecDeque<Delay>,
    /// Smallest forward delay, and when it was seen last.
    base: Option<(Duration, Duration)>,
    /// Delay above the base that is not a queue of this transfer, and until when.
    floor: Option<(Duration, Duration)>,
    /// Smallest reverse delay, and when it was seen last.
    ///
    /// In nanoseconds, from an arbitrary origin.
    min_reverse_delay: Option<(i128, Duration)>,
    /// Smallest RTT since the base delay or the smallest reverse delay was replaced.
    min_rtt: Option<Duration>,
    /// Kernel's smallest RTT of the last five minutes (`net.ipv4.tcp_min_rtt_wlen`).
    tcp_min_rtt: Option<Duration>,
    /// Kernel's smallest RTT from before the min RTT was replaced; ignored until it changes.
    old_tcp_min_rtt: Option<Duration>,
    /// Smallest smoothed RTT of TCP under a limit, and when it was seen last.
    tcp_rtt: Option<(Duration, Duration)>,
    has_forward_delay: bool,
    pub(super) outages: Outages,
}

impl Samples {
    /// Records an observation.
    pub(super) fn record(&mut self, latest: &Observation) {
        self.outages.on_tick(latest.now);
        if self.ticks.back().is_some_and(|last| latest.received > last.received) {
            self.outages.on_data(latest.now);
        }
        self.tcp_min_rtt = latest.tcp_min_rtt.or(self.tcp_min_rtt);
        self.old_tcp_min_rtt =
            self.old_tcp_min_rtt.filter(|_| self.old_tcp_min_rtt == self.tcp_min_rtt);
        let is_current = |(_, at): &(Duration, Duration)| latest.now <= *at + LIFETIME;
        let least = self.tcp_rtt.filter(is_current);
        self.tcp_rtt = match (latest.tcp_rtt, least) {
            (Some(rtt), least) if least.is_none_or(|(least, _)| rtt <= least) => {
                Some((rtt, latest.now))
            }
            (_, least) => least,
        };
        self.floor = self.floor.filter(|(_, until)| latest.now < *until);
        if let Some(rtt) = latest.rtt {
            self.record_delay(latest.now, rtt, latest.forward_delay);
        }
        let (received, retransmits) = (latest.received, latest.retransmits);
        self.ticks.push_back(Tick { now: latest.now, received, retransmits });
        let from = latest.now.saturating_sub(self.retained_time());
        while self.ticks.len() > 1 && self.ticks[1].now <= from {
            self.ticks.pop_front();
        }
        while self.delays.front().is_some_and(|delay| delay.now < from) {
            self.delays.pop_front();
        }
    }

    /// Returns the maximum age of samples: two repair times.
    ///
    /// They cover the start, or a repair and the rate over as long before it.
    fn retained_time(&self) -> Duration {
        repair_time(self.rtt()) * 2
    }

    /// Records the delays of a probe.
    pub(super) fn record_delay(&mut self, now: Duration, rtt: Duration, forward: Option<Duration>) {
        // Without a one-way delay the RTT takes its place, and the two have different origins.
        if forward.is_some() != std::mem::replace(&mut self.has_forward_delay, forward.is_some()) {
            (self.base, self.min_reverse_delay) = (None, None);
            self.delays.clear();
        }
        self.outages.on_tick(now);
        if forward.is_some() {
            self.outages.on_echo(now);
        }
        let delay = Delay { now, rtt, forward: forward.unwrap_or(rtt) };
        // The first probe may have found a queue.
        let queued = rtt.saturating_sub(self.tcp_min_rtt().unwrap_or(rtt));
        // On slow lines, probes take longer than acknowledgements.
        let queued = if queued > TICK { queued } else { Duration::ZERO };
        let (base, _) = *self.base.get_or_insert((delay.forward.saturating_sub(queued), now));
        if delay.forward <= base {
            (self.base, self.floor) = (Some((delay.forward, now)), None);
        }
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        self.delays.push_back(delay);
        let backward = delay.reverse_delay();
        match self.min_reverse_delay {
            Some((least, at)) if backward > least && now > at + LIFETIME => {
                self.renew_backward(now.saturating_sub(self.retained_time()), now)
            }
            Some((least, _)) if backward > least => {}
            _ => self.min_reverse_delay = Some((backward, now)),
        }
    }

    /// Replaces the smallest reverse delay by that since a time; the min RTT follows.
    ///
    /// Clocks drift, and routes change. A queue in the direction of the data does not count.
    fn renew_backward(&mut self, from: Duration, now: Duration) {
        let Some(least) = self.recent(from).map(Delay::reverse_delay).min() else { return };
        self.min_reverse_delay = Some((least, now));
        self.min_rtt = self.base.map(|(base, _)| duration(least + nanos(base)));
        self.old_tcp_min_rtt = self.tcp_min_rtt;
    }

    /// Returns the min RTT; zero before the first sample.
    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt.into_iter().chain(self.tcp_min_rtt()).min().unwrap_or_default()
    }

    /// Returns the kernel's smallest RTT, unless it is that of an earlier route.
    fn tcp_min_rtt(&self) -> Option<Duration> {
        self.tcp_min_rtt.filter(|_| self.tcp_min_rtt != self.old_tcp_min_rtt)
    }

    /// Returns the median RTT of the latest probes; the min RTT without any.
    pub(super) fn rtt(&self) -> Duration {
        self.median(|delay| delay.rtt).unwrap_or_else(|| self.min_rtt())
    }

    /// Returns the RTT of the data, if it is longer than that of the probes.
    ///
    /// Bursts released by acknowledgements see other delays than probes do. TCP's smallest smoothed
    /// RTT includes no queue built by this transfer.
    pub(super) fn data_rtt(&self) -> Duration {
        self.tcp_rtt.map_or(Duration::ZERO, |(rtt, _)| rtt).max(self.rtt())
    }

    /// Forgets the RTT of TCP, as no limit held before.
    pub(super) fn forget_tcp_rtt(&mut self) {
        self.tcp_rtt = None;
    }

    /// Returns the RTT without queueing delay in the direction of the data.
    ///
    /// The reverse delay counts in full.
    pub(super) fn unqueued_rtt(&self) -> Duration {
        let (Some((base, _)), Some(backward)) = (self.base, self.median(Delay::reverse_delay))
        else {
            return self.min_rtt();
        };
        duration(backward + nanos(base + self.floor()))
    }

    /// Returns the queueing delay in the direction of acknowledgements.
    pub(super) fn reverse_queueing_delay(&self) -> Duration {
        let present = self.median(Delay::reverse_delay).zip(self.min_reverse_delay);
        present.map_or(Duration::ZERO, |(present, (least, _))| duration(present - least))
    }

    /// Returns the lower median of the latest probes.
    fn median<T: Ord + Copy>(&self, value: impl Fn(&Delay) -> T) -> Option<T> {
        let latest = self.delays.iter().rev().take(STANDING_SAMPLES);
        let mut latest: Vec<T> = latest.map(value).collect();
        latest.sort_unstable();
        latest.get(latest.len().saturating_sub(1) / 2).copied()
    }

    /// Returns the smallest queueing delay since a time, and the number of samples.
    pub(super) fn least_queue(&self, from: Duration) -> Option<(Duration, usize)> {
        let count = self.delays_since(from).count();
        self.delays_since(from).min().map(|least| (self.queueing_delay(least), count))
    }

    /// Returns the largest queueing delay that stood for half of the probes since a time.
    ///
    /// [`STANDING_SAMPLES`] probes suffice.
    pub(super) fn largest_queue(&self, from: Duration) -> Duration {
        let delays: Vec<Duration> = self.delays_since(from).collect();
        let count = (delays.len() / 2).clamp(1, STANDING_SAMPLES);
        let stood = delays.windows(count).filter_map(|some| some.iter().min()).max();
        stood.map_or(Duration::ZERO, |&stood| self.queueing_delay(stood))
    }

    /// Returns the smallest queueing delay of the latest `count` probes since a time.
    ///
    /// Zero with fewer probes.
    pub(super) fn latest_queue(&self, count: usize, from: Duration) -> Duration {
        let latest: Vec<Duration> = self.delays_since(from).take(count).collect();
        let least = latest.iter().min().filter(|_| latest.len() == count);
        least.map_or(Duration::ZERO, |&least| self.queueing_delay(least))
    }

    /// Returns the delays since a time, latest first.
    fn recent(&self, from: Duration) -> impl Iterator<Item = &Delay> + '_ {
        self.delays.iter().rev().take_while(move |delay| delay.now >= from)
    }

    /// Returns the forward delays since a time, latest first.
    fn delays_since(&self, from: Duration) -> impl Iterator<Item = Duration> + '_ {
        self.recent(from).map(|delay| delay.forward)
    }

    fn queueing_delay(&self, delay: Duration) -> Duration {
        self.base.map_or(Duration::ZERO, |(base, _)| delay.saturating_sub(base + self.floor()))
    }

    fn floor(&self) -> Duration {
        self.floor.map_or(Duration::ZERO, |(floor, _)| floor)
    }

    /// Returns true if this transfer does not cause all of the delay above the base.
    pub(super) fn has_floor(&self) -> bool {
        !self.floor().is_zero()
    }

    /// Adds a delay that this transfer does not cause to the floor, for ten seconds.
    pub(super) fn raise_floor(&mut self, by: Duration, now: Duration) {
        self.floor = Some((self.floor() + by, now + LIFETIME));
    }

    /// Returns true if the base delay was not seen again within its lifetime.
    pub(super) fn is_base_expired(&self, now: Duration) -> bool {
        self.base.is_some_and(|(_, at)| now > at + LIFETIME)
    }

    /// Replaces base delay and min RTT by the smallest delays since a time.
    pub(super) fn rebase(&mut self, from: Duration, now: Duration) {
        if let Some(least) = self.delays_since(from).min() {
            (self.base, self.floor) = (Some((least, now)), None);
            self.min_rtt = self.recent(from).map(|delay| delay.rtt).min();
            self.old_tcp_min_rtt = self.tcp_min_rtt;
        }
    }

    /// Confirms after an outage that the base delay is that of the present route.
    ///
    /// The smallest reverse delay is replaced by that since a time.
    pub(super) fn confirm_route(&mut self, from: Duration, now: Duration) {
        if self.outages.confirm_route() {
            self.renew_backward(from, now);
        }
    }

    /// Returns the rate over the last `time`, or over the retained part of it.
    pub(super) fn rate_over(&self, time: Duration) -> Rate {
        self.rate_before(Duration::ZERO, time)
    }

    /// Returns the rate over the `time` that ended `ago` before the last tick.
    pub(super) fn rate_before(&self, ago: Duration, time: Duration) -> Rate {
        let Some(last) = self.ticks.back() else { return Rate::default() };
        let end = last.now.saturating_sub(ago);
        let start = self.tick_at(end.saturating_sub(time)).or(self.ticks.front());
        match (start, self.tick_at(end)) {
            (Some(a), Some(b)) => (b.received - a.received).per(b.now.saturating_sub(a.now)),
            _ => Rate::default(),
        }
    }

    /// Returns the highest rate over any retained `time`.
    pub(super) fn highest_rate(&self, time: Duration) -> Rate {
        let mut highest = Rate::default();
        let mut starts = self.ticks.iter().peekable();
        for end in &self.ticks {
            while let Some(start) =
                starts.next_if(|start| end.now.saturating_sub(start.now) >= time)
            {
                let elapsed = end.now.saturating_sub(start.now);
                highest = highest.max((end.received - start.received).per(elapsed));
            }
        }
        highest
    }

    /// Returns the segments retransmitted since a time.
    pub(super) fn retransmits_since(&self, from: Duration) -> u64 {
        match (self.tick_at(from).or(self.ticks.front()), self.ticks.back()) {
            (Some(a), Some(b)) => b.retransmits.saturating_sub(a.retransmits),
            _ => 0,
        }
    }

    /// Returns the last tick up to a time.
    fn tick_at(&self, time: Duration) -> Option<&Tick> {
        self.ticks.iter().rev().find(|tick| tick.now <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Records 1 MB per 10 ms, with RTTs and forward delays in ms.
    fn run(delays: &[(u32, u32)]) -> Samples {
        let mut samples = Samples::default();
        for (n, &(rtt, forward)) in (0..).zip(delays) {
            samples.record(&Observation {
                now: 10 * MS * n,
                received: Bytes(u64::from(n) * 1_000_000),
                rtt: Some(MS * rtt),
                forward_delay: Some(MS * forward),
                retransmits: u64::from(n / 4),
                ..Observation::default()
            });
        }
        samples
    }

    #[test]
    fn queues_of_both_directions_are_told_apart() {
        let samples = run(&[(40, 520), (45, 525), (44, 521), (60, 524), (62, 525), (63, 525)]);
        assert_eq!(samples.least_queue(Duration::ZERO), Some((Duration::ZERO, 6)));
        assert_eq!(samples.least_queue(MS * 30), Some((MS * 4, 3)));
        assert_eq!(samples.latest_queue(2, Duration::ZERO), MS * 5);
        assert_eq!(samples.latest_queue(7, Duration::ZERO), Duration::ZERO, "too few");
        // 40 − 520 at first, now 60 − 524.
        assert_eq!(samples.reverse_queueing_delay(), MS * 16);
        assert_eq!(samples.unqueued_rtt(), MS * 56);
        assert_eq!(samples.min_rtt(), MS * 40);
    }

    /// Records probes each 10 ms for 20 s; returns the largest queue back, in total and at the end.
    fn queues_back(rtt_and_forward: impl Fn(u32) -> (Duration, Duration)) -> (Duration, Duration) {
        let mut samples = Samples::default();
        let queues: Vec<Duration> = (0..2_000)
            .map(|n| {
                let (rtt, forward) = rtt_and_forward(n);
                samples.record_delay(TICK * n, rtt, Some(forward));
                samples.reverse_queueing_delay()
            })
            .collect();
        (
            queues.iter().max().copied().unwrap_or_default(),
            queues.last().copied().unwrap_or_default(),
        )
    }

    #[test]
    fn drift_of_a_clock_is_no_queue_back() {
        // 500 ppm, as much as NTP corrects: 10 ms in 20 s.
        let drift = |n: u32| TICK * n / 2_000;
        let (most, _) = queues_back(|n| (MS * 40, MS * 520 - drift(n)));
        assert!(most < MS * 6, "{most:?}");
    }

    #[test]
    fn longer_reverse_path_is_a_queue_for_ten_seconds() {
        let rtt = |n: u32| if n < 500 { MS * 40 } else { MS * 70 };
        assert_eq!(queues_back(|n| (rtt(n), MS * 20)), (MS * 30, Duration::ZERO));
    }

    #[test]
    fn floor_and_new_base_change_the_queue() {
        let mut samples = run(&[(40, 20), (48, 28), (49, 29), (48, 28)]);
        assert_eq!(samples.latest_queue(3, Duration::ZERO), MS * 8);
        samples.raise_floor(MS * 6, MS * 30);
        assert_eq!(samples.latest_queue(3, Duration::ZERO), MS * 2);
        assert_eq!(samples.unqueued_rtt(), MS * 46);
        assert_eq!(samples.min_rtt(), MS * 40);
        samples.rebase(MS * 10, MS * 30);
        assert_eq!(samples.min_rtt(), MS * 48);
        assert_eq!(samples.latest_queue(3, Duration::ZERO), Duration::ZERO);
        assert!(!samples.is_base_expired(MS * 10_030) && samples.is_base_expired(MS * 10_031));
    }

    #[test]
    fn first_probe_behind_a_queue_is_recognized_by_tcp() {
        let mut samples = Samples::default();
        let observation = Observation {
            rtt: Some(MS * 90),
            forward_delay: Some(MS * 80),
            tcp_min_rtt: Some(MS * 40),
            ..Observation::default()
        };
        samples.record(&observation);
        assert_eq!(samples.latest_queue(1, Duration::ZERO), MS * 50);
        assert_eq!(samples.min_rtt(), MS * 40);
    }

    #[test]
    fn data_rtt_is_the_smallest_of_tcp_for_ten_seconds() {
        let mut samples = run(&[(40, 20); 4]);
        let mut observe = |ms: u32, rtt: Option<u32>| {
            let tcp_rtt = rtt.map(|rtt| MS * rtt);
            samples.record(&Observation { now: MS * ms, tcp_rtt, ..observation(4_000_000) });
            samples.data_rtt()
        };
        assert_eq!(observe(50, Some(44)), MS * 44);
        assert_eq!([observe(60, Some(90)), observe(70, None)], [MS * 44; 2], "its own queue");
        assert_eq!(observe(10_100, Some(46)), MS * 46);
        assert_eq!(observe(10_200, Some(30)), MS * 40, "that of probes at least");
        samples.forget_tcp_rtt();
        assert_eq!(samples.data_rtt(), MS * 40);
    }

    #[test]
    fn without_one_way_delay_the_rtt_serves() {
        let mut samples = run(&[(40, 520), (44, 524)]);
        samples.record_delay(MS * 20, MS * 45, None);
        assert_eq!(samples.latest_queue(1, Duration::ZERO), Duration::ZERO, "another origin");
        samples.record_delay(MS * 30, MS * 47, None);
        assert_eq!(samples.latest_queue(1, Duration::ZERO), MS * 2);
    }

    #[test]
    fn rates_and_losses_over_times() {
        let mut samples = run(&[(20, 10); 40]);
        let mbit = |rate: Rate| rate.bits_per_sec() / 1_000_000;
        assert_eq!(mbit(samples.rate_over(MS * 50)), 800);
        assert_eq!(mbit(samples.highest_rate(MS * 40)), 800);
        assert_eq!(samples.retransmits_since(MS * 350), 1);
        samples.record(&Observation { now: MS * 410, ..observation(59_000_000) });
        assert_eq!(mbit(samples.highest_rate(MS * 20)), 8_000);
        assert_eq!(mbit(samples.rate_before(MS * 20, MS * 40)), 800);
    }

    fn observation(received: u64) -> Observation {
        Observation { received: Bytes(received), ..Observation::default() }
    }

    #[test]
    fn retained_samples_are_bounded() {
        let samples = run(&[(20, 10); 10_000]);
        assert!(samples.ticks.len() <= 102 && samples.delays.len() <= 102);
    }
}
