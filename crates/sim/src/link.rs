//! The model of a link: one output port with a drop-tail queue, a line of some rate behind it, and
//! the way to the other end.
//!
//! Whatever comes to the port, from one input or many, is queued in the order of its coming. There
//! is no packet in the model, only its size: the caller keeps the bytes. A burst (a super-packet of
//! the kernel's segmentation offload) is judged segment by segment.
//!
//! Not modelled: queues other than first-in-first-out, buffers counted in packets, jitter,
//! reordering, damage, and the time that the port itself needs.

use crate::cross::{CROSS_PACKET_BYTES, Cross, Others};
use crate::loss::{Loss, Lossy};
use bankfull_control::{Bytes, Rate};
use std::time::Duration;

/// Picoseconds: fine enough that 1500 bytes at 100 Gbit/s (120 000 ps) carry no rounding, and 64
/// bits hold 213 days.
type Picos = u64;

const PICOS_PER_SEC: f64 = 1e12;
const PICOS_PER_NANO: u64 = 1000;

/// Longest time on the line of what is handed on in one piece: 64 KiB at 1 Gbit/s, the largest
/// burst at the rate where hosts coalesce so much. (ours)
pub const QUANTUM: Duration = Duration::from_micros(525);

/// What a link is like.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Rate of the line; `None`: infinitely fast, and therefore never a queue.
    pub rate: Option<Rate>,
    /// One-way delay behind the queue.
    pub delay: Duration,
    /// What the queue holds, with what is just being sent. What does not fit is dropped.
    pub buffer: Bytes,
    /// Loss on the line, behind the queue.
    pub loss: Loss,
    /// What others send through the same queue.
    pub cross: Cross,
    /// Longest time on the line of a run: longer ones are cut.
    pub quantum: Duration,
}

impl Default for LinkConfig {
    /// Infinitely fast, without delay and loss.
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            buffer: Bytes(u64::MAX),
            loss: Loss::None,
            cross: Cross::None,
            quantum: QUANTUM,
        }
    }
}

/// What comes to the port at once: segments of equal size, and perhaps a smaller last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// How many segments.
    pub segments: u32,
    /// Bytes on the line of each but the last, headers included.
    pub segment_bytes: u32,
    /// Bytes on the line of the last, headers included.
    pub last_bytes: u32,
}

impl Burst {
    /// A single packet.
    #[must_use]
    pub const fn packet(bytes: u32) -> Self {
        Self { segments: 1, segment_bytes: bytes, last_bytes: bytes }
    }

    /// Bytes on the line of a segment.
    #[must_use]
    pub const fn bytes_of(&self, segment: u32) -> u32 {
        if segment + 1 == self.segments { self.last_bytes } else { self.segment_bytes }
    }
}

/// Segments of a burst that arrive together at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first of them.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// When the last bit of the last one is at the other end.
    pub arrives: Duration,
}

/// What became of everything so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments that came.
    pub offered: u64,
    /// Segments dropped for want of room in the queue.
    pub overflowed: u64,
    /// Segments lost on the line.
    pub lost: u64,
    /// Segments that arrive.
    pub delivered: u64,
    /// Bytes of those, headers included.
    pub delivered_bytes: Bytes,
    /// Packets of cross traffic that were sent.
    pub cross_sent: u64,
    /// Packets of cross traffic dropped for want of room.
    pub cross_overflowed: u64,
}

/// A link at work. Times must not go backwards.
#[derive(Debug, Clone)]
pub struct Link {
    config: LinkConfig,
    /// Picoseconds on the line per byte.
    picos_per_byte: f64,
    lossy: Lossy,
    others: Others,
    /// When the line has sent all that is queued.
    free_at: Picos,
    is_cut: bool,
    counts: Counts,
}

impl Link {
    /// A link with an empty queue. The seed decides loss and cross traffic.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let picos_per_byte = match config.rate {
            Some(rate) if rate.bits_per_sec() > 0 => {
                8.0 * PICOS_PER_SEC / rate.bits_per_sec() as f64
            }
            _ => 0.0,
        };
        Self {
            lossy: Lossy::new(config.loss, seed),
            // Another stream of chance, so that cross traffic does not change which are lost.
            others: Others::new(config.cross, seed ^ 0x5eed),
            config,
            picos_per_byte,
            free_at: 0,
            is_cut: false,
            counts: Counts::default(),
        }
    }

    /// What the link is like.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What became of everything so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Cuts the link or joins it again. All that comes to a cut link is lost.
    pub fn set_cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// Whether the link is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes in the queue.
    pub fn backlog(&mut self, now: Duration) -> Bytes {
        let now = picos(now);
        self.admit_others(now);
        Bytes(self.backlog_at(now))
    }

    /// A burst comes to the port: `runs` gets the segments that arrive, in order. What is dropped
    /// or lost is in none of them.
    pub fn offer(&mut self, now: Duration, burst: &Burst, runs: &mut Vec<Run>) {
        runs.clear();
        let now = picos(now);
        self.admit_others(now);
        self.counts.offered += u64::from(burst.segments);
        let delay = picos(self.config.delay);
        let quantum = picos(self.config.quantum);
        let mut began = 0;
        for segment in 0..burst.segments {
            let bytes = burst.bytes_of(segment);
            let Some(sent) = self.send(now, bytes) else {
                self.counts.overflowed += 1;
                continue;
            };
            if self.is_cut || self.lossy.takes() {
                self.counts.lost += 1;
                continue;
            }
            self.counts.delivered += 1;
            self.counts.delivered_bytes += Bytes(u64::from(bytes));
            let arrives = Duration::from_nanos((sent + delay).div_ceil(PICOS_PER_NANO));
            let start = sent - self.on_line(bytes);
            match runs.last_mut() {
                Some(run)
                    if run.first + run.count == segment
                        && sent.saturating_sub(began) <= quantum =>
                {
                    run.count += 1;
                    run.arrives = arrives;
                }
                _ => {
                    began = start;
                    runs.push(Run { first: segment, count: 1, arrives });
                }
            }
        }
    }

    /// Queues a segment; when its last bit leaves, or `None` when there is no room.
    fn send(&mut self, now: Picos, bytes: u32) -> Option<Picos> {
        if self.picos_per_byte == 0.0 {
            return Some(now);
        }
        if self.backlog_at(now) + u64::from(bytes) > self.config.buffer.0 {
            return None;
        }
        self.free_at = self.free_at.max(now) + self.on_line(bytes);
        Some(self.free_at)
    }

    fn on_line(&self, bytes: u32) -> Picos {
        (f64::from(bytes) * self.picos_per_byte).round() as Picos
    }

    fn backlog_at(&self, now: Picos) -> u64 {
        if self.picos_per_byte == 0.0 {
            return 0;
        }
        (self.free_at.saturating_sub(now) as f64 / self.picos_per_byte).round() as u64
    }

    /// Queues what others have sent up to now.
    fn admit_others(&mut self, now: Picos) {
        while let Some(at) = self.others.next_before(now as f64 / PICOS_PER_SEC) {
            match self.send((at * PICOS_PER_SEC) as Picos, CROSS_PACKET_BYTES) {
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

    fn offer(link: &mut Link, now: Duration, burst: Burst) -> Vec<Run> {
        let mut runs = Vec::new();
        link.offer(now, &burst, &mut runs);
        runs
    }

    #[test]
    fn a_packet_takes_its_time_on_the_line_and_then_the_delay() {
        // 1250 bytes at 10 Mbit/s are 1 ms.
        let mut link = link(10.0, 20, 10_000);
        let run = |arrives| vec![Run { first: 0, count: 1, arrives }];
        assert_eq!(offer(&mut link, MS, Burst::packet(1250)), run(MS * 22));
        assert_eq!(offer(&mut link, MS, Burst::packet(1250)), run(MS * 23), "it queues");
        assert_eq!(link.backlog(MS), Bytes(2500));
        assert_eq!(link.backlog(MS * 2), Bytes(1250));
        assert_eq!(offer(&mut link, MS * 10, Burst::packet(1250)), run(MS * 31), "idle again");
    }

    #[test]
    fn what_does_not_fit_is_cut_off_the_burst_and_not_the_whole_burst() {
        let mut link = link(1000.0, 0, 15_000);
        let burst = Burst { segments: 12, segment_bytes: 1500, last_bytes: 700 };
        let runs = offer(&mut link, MS, burst);
        // Ten full segments fill the buffer; the eleventh and the small last one find no room.
        assert_eq!(runs.iter().map(|run| (run.first, run.count)).collect::<Vec<_>>(), [(0, 10)]);
        assert_eq!(link.counts().overflowed, 2);
        assert_eq!(link.counts().delivered_bytes, Bytes(15_000));
    }

    #[test]
    fn a_long_burst_on_a_slow_line_arrives_in_pieces_of_a_quantum() {
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
    fn a_lost_segment_splits_its_burst() {
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
    fn constant_rates_above_the_line_lose_the_difference() {
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
    fn cross_traffic_takes_its_share_of_the_line() {
        let config = LinkConfig {
            rate: Some(Rate::from_bits_per_sec(100e6)),
            buffer: Bytes(30_000),
            cross: Cross::Poisson { rate: Rate::from_bits_per_sec(50e6) },
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 9);
        // Even gaps would be in step with the line, and take each place as it becomes free.
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
        assert!((0.3..0.37).contains(&share), "one third of what was offered: {share}");
    }

    #[test]
    fn a_cut_link_loses_all_and_works_again_when_joined() {
        let mut link = link(1000.0, 1, 1 << 20);
        link.set_cut(true);
        assert!(offer(&mut link, MS, Burst::packet(1500)).is_empty());
        link.set_cut(false);
        assert_eq!(offer(&mut link, MS * 2, Burst::packet(1500)).len(), 1);
        assert_eq!(link.counts().lost, 1);
    }

    #[test]
    fn an_infinitely_fast_link_only_delays() {
        let config = LinkConfig { delay: MS * 7, ..LinkConfig::default() };
        let burst = Burst { segments: 40, segment_bytes: 1500, last_bytes: 10 };
        let runs = offer(&mut Link::new(config, 1), MS, burst);
        assert_eq!(runs, [Run { first: 0, count: 40, arrives: MS * 8 }]);
    }
}
