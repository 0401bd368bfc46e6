//! Recording of the emulator: backlog, drops and delivered bytes at short intervals, and its own
//! lateness. The ground truth for other measurements.

use crate::topology::emulator::packet::FlowKey;
use bankfull_control::Bytes;
use bankfull_sim::cross_traffic::CROSS_PACKET_BYTES;
use bankfull_sim::world::LinkId;
use bankfull_sim::{BackgroundReport, LinkCounts, World};
use std::collections::BTreeMap;
use std::time::Duration;

/// Largest number of tracked flows; further ones count for the port only. (chosen: 256 senders with
/// several connections each)
const MAX_FLOWS: usize = 4096;

/// One interval of one port.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// End of the interval, since the start.
    pub at: Duration,
    /// Largest backlog in the interval.
    pub max_backlog: Bytes,
    /// Backlog at its end.
    pub backlog: Bytes,
    /// Queueing delay at its end, that of a first hop included.
    pub queueing_delay: Duration,
    /// Segments dropped by queue, queueing discipline and policer.
    pub dropped: u64,
    /// Segments marked by the queueing discipline.
    pub marked: u64,
    /// Segments lost on the link.
    pub lost: u64,
    /// Bytes delivered to the host, headers included.
    pub delivered: Bytes,
    /// Bytes that left the queue and were not lost, those of simulated cross traffic included.
    pub carried: Bytes,
    /// Delivered bytes by flow; the key is an index into [`Recording::flows`].
    pub flows: BTreeMap<usize, Bytes>,
}

/// Recording of a whole run.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Length of an interval.
    pub interval: Duration,
    /// Tracked flows, in order of appearance.
    pub flows: Vec<FlowKey>,
    /// The lab's own connection that verified the congestion control; carries no data.
    pub check_flow: Option<FlowKey>,
    /// Intervals of each port.
    pub ports: Vec<Vec<Sample>>,
    /// Totals of each port.
    pub totals: Vec<LinkCounts>,
    /// Results of simulated cross traffic.
    pub background: Vec<BackgroundReport>,
    /// Time in which it ran.
    pub background_time: Duration,
    /// Lateness of deliveries.
    pub lateness: Lateness,
    /// Time that packets waited in the interfaces until read, from probes near other packets.
    pub read_delay: Lateness,
    /// Probes read, those of idle time included.
    pub probe_count: u64,
    /// Packets dropped by the interfaces before they were read; nonzero voids the run.
    pub tun_drops: u64,
    /// Packets to unknown addresses, and those that are no IPv4.
    pub stray: u64,
    /// Packets refused by a host's interface.
    pub write_errors: u64,
}

impl Recording {
    /// True if all flows were tracked.
    #[must_use]
    pub fn tracked_all_flows(&self) -> bool {
        self.flows.len() < MAX_FLOWS
    }

    /// Quantile of lateness: the larger of read delay and delivery lateness.
    #[must_use]
    pub fn lateness_quantile(&self, share: f64) -> Duration {
        self.lateness.quantile(share).max(self.read_delay.quantile(share))
    }
}

/// Histogram of the time between scheduled and actual moments.
#[derive(Debug, Clone)]
pub struct Lateness {
    /// Counts by microseconds: one bucket each up to 8, then eight for each doubling.
    buckets: [u64; BUCKET_COUNT],
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: [0; BUCKET_COUNT], max: Duration::ZERO }
    }
}

impl Lateness {
    pub(crate) fn record(&mut self, late: Duration) {
        let micros = late.as_micros().min(1 << 30) as u64;
        self.buckets[bucket_index(micros)] += 1;
        self.max = self.max.max(late);
    }

    /// Number of recorded moments.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Largest lateness.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Quantile as an upper bound, at most an eighth too high.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count() as f64 * share).ceil() as u64;
        let mut count_so_far = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            count_so_far += count;
            if count_so_far >= rank {
                return Duration::from_micros(bucket_bound(at)).min(self.max);
            }
        }
        self.max
    }
}

/// Buckets up to 2^31 µs: 8, and 8 for each further doubling.
const BUCKET_COUNT: usize = 8 + 8 * 28;

fn bucket_index(micros: u64) -> usize {
    if micros < 8 {
        return micros as usize;
    }
    let doublings = micros.ilog2() - 3;
    8 + 8 * doublings as usize + ((micros >> doublings) - 8) as usize
}

/// Lowest number of microseconds above a bucket.
fn bucket_bound(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64 + 1;
    }
    let (doublings, eighth) = ((bucket - 8) / 8, (bucket - 8) % 8);
    (9 + eighth as u64) << doublings
}

/// Recorder of a running network.
pub(crate) struct Recorder {
    recording: Recording,
    current: Vec<Sample>,
    before: Vec<LinkCounts>,
    next: Duration,
    last_flow: Option<(FlowKey, usize)>,
}

impl Recorder {
    pub(crate) fn new(ports: usize, interval: Duration) -> Self {
        let recording = Recording {
            interval,
            ports: vec![Vec::new(); ports],
            totals: vec![LinkCounts::default(); ports],
            ..Recording::default()
        };
        Self {
            recording,
            current: vec![Sample::default(); ports],
            before: vec![LinkCounts::default(); ports],
            next: interval,
            last_flow: None,
        }
    }

    pub(crate) fn record_lateness(&mut self, late: Duration) {
        self.recording.lateness.record(late);
    }

    /// Records a probe; `read_delay` is its read delay, if it counts.
    pub(crate) fn record_probe(&mut self, read_delay: Option<Duration>) {
        self.recording.probe_count += 1;
        if let Some(time) = read_delay {
            self.recording.read_delay.record(time);
        }
    }

    pub(crate) fn count_stray(&mut self) {
        self.recording.stray += 1;
    }

    pub(crate) fn count_write_error(&mut self) {
        self.recording.write_errors += 1;
    }

    /// Updates the largest backlog of a port.
    pub(crate) fn on_enqueued(&mut self, port: usize, backlog: Bytes) {
        let sample = &mut self.current[port];
        sample.max_backlog = sample.max_backlog.max(backlog);
    }

    /// Records bytes delivered to the host behind a port.
    pub(crate) fn on_delivered(&mut self, port: usize, flow: &FlowKey, bytes: u64) {
        let number = match self.last_flow {
            Some((last, number)) if last == *flow => Some(number),
            _ => self.number_of(flow),
        };
        let sample = &mut self.current[port];
        sample.delivered += Bytes(bytes);
        if let Some(number) = number {
            self.last_flow = Some((*flow, number));
            *sample.flows.entry(number).or_default() += Bytes(bytes);
        }
    }

    fn number_of(&mut self, flow: &FlowKey) -> Option<usize> {
        let flows = &mut self.recording.flows;
        flows.iter().position(|known| known == flow).or_else(|| {
            (flows.len() < MAX_FLOWS).then(|| {
                flows.push(*flow);
                flows.len() - 1
            })
        })
    }

    /// Closes the intervals that ended by `now`. First hops count with the last port; of several,
    /// the longest queue.
    pub(crate) fn advance<F: Clone>(
        &mut self,
        now: Duration,
        world: &mut World<F>,
        (ports, first_hops): (&[LinkId], &[LinkId]),
    ) {
        while now >= self.next {
            for (at, &port) in ports.iter().enumerate() {
                let hops = if at + 1 == ports.len() { first_hops } else { &[] };
                let counts = counts_of(world, port, hops);
                let before = std::mem::replace(&mut self.before[at], counts);
                let mut sample = std::mem::take(&mut self.current[at]);
                sample.at = self.next;
                sample.backlog = world.backlog_at(port, self.next);
                sample.max_backlog = sample.max_backlog.max(sample.backlog);
                let waits = hops.iter().map(|&hop| world.queueing_delay_at(hop, self.next)).max();
                sample.queueing_delay =
                    world.queueing_delay_at(port, self.next) + waits.unwrap_or_default();
                sample.dropped = counts.dropped() - before.dropped();
                sample.marked = counts.marked - before.marked;
                let cross_sent = counts.cross_sent - before.cross_sent;
                sample.carried = counts.delivered_bytes - before.delivered_bytes
                    + Bytes(cross_sent * u64::from(CROSS_PACKET_BYTES));
                sample.lost = counts.lost - before.lost;
                self.recording.ports[at].push(sample);
            }
            self.next += self.recording.interval;
        }
    }

    /// Ends the recording.
    pub(crate) fn finish<F: Clone>(
        mut self,
        world: &World<F>,
        ports: &[LinkId],
        first_hops: &[LinkId],
    ) -> Recording {
        let hops = |at: usize| if at + 1 == ports.len() { first_hops } else { &[] };
        let ports = ports.iter().enumerate();
        self.recording.totals = ports.map(|(at, &port)| counts_of(world, port, hops(at))).collect();
        self.recording.background = world.background_reports();
        self.recording.background_time = world.now();
        self.recording
    }
}

/// Counters of a port, with the drops and marks of hops before it.
fn counts_of<F: Clone>(world: &World<F>, port: LinkId, hops: &[LinkId]) -> LinkCounts {
    let mut counts = world.counts(port);
    hops.iter().for_each(|&hop| counts.add_losses(&world.counts(hop)));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_values_lie_within_bucket_bounds() {
        for micros in (0..5000).chain([1 << 20, (1 << 30) - 1, 1 << 30]) {
            let bucket = bucket_index(micros);
            assert!(micros < bucket_bound(bucket), "{micros}");
            assert!(bucket == 0 || micros >= bucket_bound(bucket - 1), "{micros}");
            assert!(bucket_bound(bucket) <= micros + 1 + micros / 8, "{micros}");
        }
    }

    #[test]
    fn lateness_quantiles_are_upper_bounds() {
        let mut lateness = Lateness::default();
        for micros in 1..=100 {
            lateness.record(Duration::from_micros(micros * 10));
        }
        assert_eq!(lateness.count(), 100);
        assert_eq!(lateness.max(), Duration::from_millis(1));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(512));
        assert_eq!(lateness.quantile(0.9), Duration::from_micros(960));
        assert_eq!(lateness.quantile(0.99), Duration::from_millis(1));
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn idle_probes_count_without_delay() {
        let mut recorder = Recorder::new(1, Duration::from_millis(10));
        for _ in 0..5000 {
            recorder.record_probe(None);
        }
        let recording = recorder.finish(&World::new(1), &[], &[]);
        assert_eq!((recording.probe_count, recording.read_delay.count()), (5000, 0));
        let mut recorder = Recorder::new(1, Duration::from_millis(10));
        (0..5000).for_each(|_| recorder.record_probe(None));
        (0..100).for_each(|_| recorder.record_probe(Some(Duration::from_micros(90))));
        (0..3).for_each(|_| recorder.record_probe(Some(Duration::from_millis(7))));
        assert!(
            recorder.finish(&World::new(1), &[], &[]).lateness_quantile(0.99)
                >= Duration::from_millis(7),
            "3 of 103"
        );
    }

    #[test]
    fn late_read_counts_despite_timely_delivery() {
        let mut recording = Recording::default();
        recording.lateness.record(Duration::from_micros(50));
        assert_eq!(recording.lateness_quantile(0.99), Duration::from_micros(50));
        recording.read_delay.record(Duration::from_millis(3));
        assert_eq!(recording.lateness_quantile(0.99), Duration::from_millis(3));
    }
}
