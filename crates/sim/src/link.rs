//! Link model: one output port with a drop-tail queue, a line of some rate, and a delay.
//!
//! All packets that arrive at the port, from one input or many, are queued in order of arrival. The
//! model knows only their sizes: the caller keeps the data. A burst (a super-packet of the kernel's
//! segmentation offload) is queued or dropped segment by segment.
//!
//! Not modelled: other queueing disciplines than FIFO, buffers counted in packets, jitter,
//! reordering, corruption, and processing delay of the port.

use crate::cross_traffic::{CROSS_PACKET_BYTES, CrossPackets, CrossTraffic};
use crate::loss::{Loss, LossProcess};
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// Picoseconds: 1500 bytes at 100 Gbit/s (120 000 ps) need no rounding, and 64 bits hold 213 days.
type Picos = u64;

const PICOS_PER_SEC: f64 = 1e12;
const PICOS_PER_NANO: u64 = 1000;

/// Default of [`LinkConfig::quantum`]: 64 KiB at 1 Gbit/s. (chosen: the largest super-packet at the
/// rate where hosts coalesce that much)
pub const DEFAULT_QUANTUM: Duration = Duration::from_micros(525);

/// Parameters of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Link rate; `None`: infinite, so that there is never a queue.
    pub rate: Option<Rate>,
    /// One-way propagation delay behind the queue.
    pub delay: Duration,
    /// Queue capacity, including the packet in transmission. Packets that exceed it are dropped.
    pub buffer: Bytes,
    /// Loss on the line, behind the queue.
    pub loss: Loss,
    /// Cross traffic through the same queue.
    pub cross: CrossTraffic,
    /// Longest transmission time of a run; longer runs are split.
    pub quantum: Duration,
}

impl Default for LinkConfig {
    /// Returns an infinitely fast link without delay and loss.
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            buffer: Bytes(u64::MAX),
            loss: Loss::None,
            cross: CrossTraffic::None,
            quantum: DEFAULT_QUANTUM,
        }
    }
}

/// Segments that arrive at the port together: of equal size, except for the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Number of segments.
    pub segments: u32,
    /// Bytes on the line of each segment except the last, including headers.
    pub segment_bytes: u32,
    /// Bytes on the line of the last segment, including headers.
    pub last_bytes: u32,
}

impl Burst {
    /// Returns a burst of a single packet.
    #[must_use]
    pub const fn packet(bytes: u32) -> Self {
        Self { segments: 1, segment_bytes: bytes, last_bytes: bytes }
    }

    /// Returns the bytes on the line of a segment.
    #[must_use]
    pub const fn bytes_of(&self, segment: u32) -> u32 {
        if segment + 1 == self.segments { self.last_bytes } else { self.segment_bytes }
    }
}

/// Segments of a burst that arrive together at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRun {
    /// Index of the first segment.
    pub first: u32,
    /// Number of segments.
    pub count: u32,
    /// Arrival time of the last bit of the last segment.
    pub arrives: Duration,
}

/// Counters of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Segments that arrived at the port.
    pub offered: u64,
    /// Segments dropped because the queue was full.
    pub overflowed: u64,
    /// Segments lost on the line.
    pub lost: u64,
    /// Segments that arrive at the other end.
    pub delivered: u64,
    /// Bytes of delivered segments, including headers.
    pub delivered_bytes: Bytes,
    /// Cross traffic packets sent.
    pub cross_sent: u64,
    /// Cross traffic packets dropped because the queue was full.
    pub cross_overflowed: u64,
}

/// Link in operation. Times must not decrease.
#[derive(Debug, Clone)]
pub struct Link {
    config: LinkConfig,
    /// Transmission time per byte, in picoseconds.
    picos_per_byte: f64,
    loss_process: LossProcess,
    cross_packets: CrossPackets,
    /// Time at which the queue is empty.
    idle_at: Picos,
    is_cut: bool,
    counts: LinkCounts,
}

impl Link {
    /// Creates a link with an empty queue. The seed determines loss and cross traffic.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let picos_per_byte = match config.rate {
            Some(rate) if rate.bits_per_sec() > 0 => {
                8.0 * PICOS_PER_SEC / rate.bits_per_sec() as f64
            }
            _ => 0.0,
        };
        Self {
            loss_process: LossProcess::new(config.loss, seed),
            // A separate random sequence, so that cross traffic does not change which segments are
            // lost.
            cross_packets: CrossPackets::new(config.cross, seed ^ 0x5eed),
            config,
            picos_per_byte,
            idle_at: 0,
            is_cut: false,
            counts: LinkCounts::default(),
        }
    }

    /// Returns the parameters of the link.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the counters of the link.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Cuts or restores the link. A cut link loses all segments.
    pub fn set_cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// Returns whether the link is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the bytes in the queue.
    pub fn backlog(&mut self, now: Duration) -> Bytes {
        let now = picos(now);
        self.queue_cross_traffic(now);
        Bytes(self.backlog_at(now))
    }

    /// Offers a burst to the port; `runs` receives the delivered segments, in order.
    ///
    /// Dropped and lost segments are in no run.
    pub fn offer(&mut self, now: Duration, burst: &Burst, runs: &mut Vec<SegmentRun>) {
        runs.clear();
        let now = picos(now);
        self.queue_cross_traffic(now);
        self.counts.offered += u64::from(burst.segments);
        let delay = picos(self.config.delay);
        let quantum = picos(self.config.quantum);
        let mut run_start = 0;
        for segment in 0..burst.segments {
            let bytes = burst.bytes_of(segment);
            let Some(sent) = self.enqueue(now, bytes) else {
                self.counts.overflowed += 1;
                continue;
            };
            if self.is_cut || self.loss_process.is_next_lost() {
                self.counts.lost += 1;
                continue;
            }
            self.counts.delivered += 1;
            self.counts.delivered_bytes += Bytes(u64::from(bytes));
            let arrives = Duration::from_nanos((sent + delay).div_ceil(PICOS_PER_NANO));
            let start = sent - self.transmission_time(bytes);
            match runs.last_mut() {
                Some(run)
                    if run.first + run.count == segment
                        && sent.saturating_sub(run_start) <= quantum =>
                {
                    run.count += 1;
                    run.arrives = arrives;
                }
                _ => {
                    run_start = start;
                    runs.push(SegmentRun { first: segment, count: 1, arrives });
                }
            }
        }
    }

    /// Queues a segment; returns the end of its transmission, or `None` if the queue is full.
    fn enqueue(&mut self, now: Picos, bytes: u32) -> Option<Picos> {
        if self.picos_per_byte == 0.0 {
            return Some(now);
        }
        if self.backlog_at(now) + u64::from(bytes) > self.config.buffer.0 {
            return None;
        }
        self.idle_at = self.idle_at.max(now) + self.transmission_time(bytes);
        Some(self.idle_at)
    }

    fn transmission_time(&self, bytes: u32) -> Picos {
        (f64::from(bytes) * self.picos_per_byte).round() as Picos
    }

    fn backlog_at(&self, now: Picos) -> u64 {
        if self.picos_per_byte == 0.0 {
            return 0;
        }
        (self.idle_at.saturating_sub(now) as f64 / self.picos_per_byte).round() as u64
    }

    /// Queues the cross traffic up to now.
    fn queue_cross_traffic(&mut self, now: Picos) {
        while let Some(at) = self.cross_packets.next_before(now as f64 / PICOS_PER_SEC) {
            match self.enqueue((at * PICOS_PER_SEC) as Picos, CROSS_PACKET_BYTES) {
                Some(_) => self.counts.cross_sent += 1,
                None => self.counts.cross_overflowed += 1,
            }
        }
    }
}

fn picos(time: Duration) -> Picos {
    Picos::try_from(time.as_nanos()).unwrap_or(Picos::MAX / PICOS_PER_NANO) * PICOS_PER_NANO
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn link(rate_mbit: f64, delay_ms: u32, buffer: u64) -> Link {
        let config = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(rate_mbit * 1e6)),
            delay: MS * delay_ms,
            buffer: Bytes(buffer),
            ..LinkConfig::default()
        };
        Link::new(config, 1)
    }

    fn offer(link: &mut Link, now: Duration, burst: Burst) -> Vec<SegmentRun> {
        let mut runs = Vec::new();
        link.offer(now, &burst, &mut runs);
        runs
    }

    #[test]
    fn packet_takes_transmission_time_plus_delay() {
        // 1250 bytes at 10 Mbit/s are 1 ms.
        let mut link = link(10.0, 20, 10_000);
        let run = |arrives| vec![SegmentRun { first: 0, count: 1, arrives }];
        assert_eq!(offer(&mut link, MS, Burst::packet(1250)), run(MS * 22));
        assert_eq!(offer(&mut link, MS, Burst::packet(1250)), run(MS * 23), "it queues");
        assert_eq!(link.backlog(MS), Bytes(2500));
        assert_eq!(link.backlog(MS * 2), Bytes(1250));
        assert_eq!(offer(&mut link, MS * 10, Burst::packet(1250)), run(MS * 31), "idle again");
    }

    #[test]
    fn full_queue_drops_tail_of_burst_only() {
        let mut link = link(1000.0, 0, 15_000);
        let burst = Burst { segments: 12, segment_bytes: 1500, last_bytes: 700 };
        let runs = offer(&mut link, MS, burst);
        // Ten full segments fill the buffer; the eleventh and the small last one are dropped.
        assert_eq!(runs.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>(), [(0, 10)]);
        assert_eq!(link.counts().overflowed, 2);
        assert_eq!(link.counts().delivered_bytes, Bytes(15_000));
    }

    #[test]
    fn long_burst_is_split_into_quanta() {
        let mut link = link(100.0, 5, 1 << 20);
        let burst = Burst { segments: 44, segment_bytes: 1500, last_bytes: 1500 };
        let runs = offer(&mut link, Duration::ZERO, burst);
        // 1500 bytes are 120 µs: four of them stay below 525 µs.
        assert!(runs.iter().all(|run| run.count == 4), "{runs:?}");
        assert_eq!(runs.len(), 11);
        assert_eq!(runs[0].arrives, Duration::from_micros(5480));
        assert_eq!(runs[10].arrives, Duration::from_micros(5000 + 44 * 120));
    }

    #[test]
    fn lost_segment_splits_burst() {
        let config = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(1e9)),
            loss: Loss::Random { probability: 0.1 },
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 3);
        let burst = Burst { segments: 40, segment_bytes: 1500, last_bytes: 1500 };
        let runs = offer(&mut link, Duration::ZERO, burst);
        let delivered: u32 = runs.iter().map(|run| run.count).sum();
        assert!(runs.len() > 1 && delivered < 40, "{runs:?}");
        assert_eq!(u64::from(delivered), link.counts().delivered);
        assert_eq!(link.counts().lost + link.counts().delivered, 40);
        assert!(runs.windows(2).all(|w| w[0].first + w[0].count < w[1].first));
    }

    #[test]
    fn excess_of_constant_rate_is_dropped() {
        for (sent_mbit, expected) in [(80.0, 0.0), (100.0, 0.0), (125.0, 0.2), (200.0, 0.5)] {
            let mut link = link(100.0, 10, 50_000);
            let gap = Duration::from_secs_f64(12_000.0 / (sent_mbit * 1e6));
            for n in 0..100_000 {
                offer(&mut link, gap * n, Burst::packet(1500));
            }
            let counts = link.counts();
            let lost = counts.overflowed as f64 / counts.offered as f64;
            assert!((lost - expected).abs() < 0.001, "{sent_mbit}: {lost}");
        }
    }

    #[test]
    fn cross_traffic_gets_proportional_share() {
        let config = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(100e6)),
            buffer: Bytes(30_000),
            cross: CrossTraffic::Poisson { rate: Rate::from_bits_per_sec(50e6) },
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 9);
        // Equal intervals would be synchronous with the line, and take each place as it becomes
        // free.
        let mut rng = fastrand::Rng::with_seed(5);
        let mut now = Duration::ZERO;
        for _ in 0..100_000 {
            now += Duration::from_nanos(rng.u64(0..240_000));
            offer(&mut link, now, Burst::packet(1500));
        }
        let counts = link.counts();
        let all = counts.delivered + counts.cross_sent;
        assert!((all as f64 / 100_000.0 - 1.0).abs() < 0.01, "the line is full: {counts:?}");
        let share = counts.cross_sent as f64 / all as f64;
        assert!((0.3..0.37).contains(&share), "one third of the offered load: {share}");
    }

    #[test]
    fn cut_link_loses_all_until_restored() {
        let mut link = link(1000.0, 1, 1 << 20);
        link.set_cut(true);
        assert!(offer(&mut link, MS, Burst::packet(1500)).is_empty());
        link.set_cut(false);
        assert_eq!(offer(&mut link, MS * 2, Burst::packet(1500)).len(), 1);
        assert_eq!(link.counts().lost, 1);
    }

    #[test]
    fn infinitely_fast_link_only_delays() {
        let config = LinkConfig { delay: MS * 7, ..LinkConfig::default() };
        let burst = Burst { segments: 40, segment_bytes: 1500, last_bytes: 10 };
        let runs = offer(&mut Link::new(config, 1), MS, burst);
        assert_eq!(runs, [SegmentRun { first: 0, count: 40, arrives: MS * 8 }]);
    }
}
