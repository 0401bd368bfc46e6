//! What the emulator saw: backlog, drops and delivered bytes at short intervals, and its own
//! lateness. This is the ground truth that measurements of others are compared with.

use super::packet::FlowKey;
use bankfull_control::Bytes;
use bankfull_sim::{Counts, Link};
use std::collections::BTreeMap;
use std::time::Duration;

/// Flows that are told apart; what others deliver is counted with the port only. (ours: 256 senders
/// with some connections each)
const FLOWS_MAX: usize = 4096;

/// One interval of one port.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// When the interval ends, since the start.
    pub at: Duration,
    /// Largest backlog seen in it.
    pub backlog_max: Bytes,
    /// Backlog at its end.
    pub backlog: Bytes,
    /// Segments dropped for want of room.
    pub overflowed: u64,
    /// Segments lost on the line.
    pub lost: u64,
    /// Bytes that arrived at the host, headers included.
    pub delivered: Bytes,
    /// The same by flow; the index leads into [`Recording::flows`].
    pub flows: BTreeMap<usize, Bytes>,
}

/// Everything that was recorded in a run.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Length of an interval.
    pub interval: Duration,
    /// The flows that were seen, in the order of their coming.
    pub flows: Vec<FlowKey>,
    /// A connection of the lab's own among them, which is nobody's data.
    pub own: Option<FlowKey>,
    /// For each port its intervals, one after another.
    pub ports: Vec<Vec<Sample>>,
    /// For each port what became of everything.
    pub totals: Vec<Counts>,
    /// How late deliveries were.
    pub lateness: Lateness,
    /// How long packets waited in the hosts' interfaces until the emulator read them, from probes
    /// beside which others came.
    pub waited: Lateness,
    /// All probes that were read, those of idle time among them.
    pub probes: u64,
    /// Packets that the hosts' interfaces dropped before the emulator read them: must be none.
    pub unread: u64,
    /// Packets for addresses that no host has, and those that are no IPv4.
    pub stray: u64,
    /// Packets that a host's interface refused.
    pub refused: u64,
}

impl Recording {
    /// Whether all flows that came were told apart.
    #[must_use]
    pub fn has_all_flows(&self) -> bool {
        self.flows.len() < FLOWS_MAX
    }

    /// What a share of the packets kept, of being read late and of being delivered late: the worse.
    #[must_use]
    pub fn late(&self, share: f64) -> Duration {
        self.lateness.quantile(share).max(self.waited.quantile(share))
    }
}

/// A histogram of the time between a planned and a real moment.
#[derive(Debug, Clone)]
pub struct Lateness {
    /// Counts by microseconds: one by one up to 8, then eight buckets for each doubling.
    buckets: [u64; BUCKETS],
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], max: Duration::ZERO }
    }
}

impl Lateness {
    pub(crate) fn add(&mut self, late: Duration) {
        let micros = late.as_micros().min(1 << 30) as u64;
        self.buckets[bucket_of(micros)] += 1;
        self.max = self.max.max(late);
    }

    /// How many moments there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The latest of all.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.max
    }

    /// An upper bound, at most an eighth too high, of the lateness that a share of the deliveries
    /// kept.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(bound_of(at)).min(self.max);
            }
        }
        self.max
    }
}

/// Enough for 2^31 microseconds: 8, and 8 for each of the doublings behind.
const BUCKETS: usize = 8 + 8 * 28;

fn bucket_of(micros: u64) -> usize {
    if micros < 8 {
        return micros as usize;
    }
    let doublings = micros.ilog2() - 3;
    8 + 8 * doublings as usize + ((micros >> doublings) - 8) as usize
}

/// The first number of microseconds that is in a later bucket.
fn bound_of(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64 + 1;
    }
    let (doublings, eighth) = ((bucket - 8) / 8, (bucket - 8) % 8);
    (9 + eighth as u64) << doublings
}

/// Records while the network runs.
pub(crate) struct Recorder {
    recording: Recording,
    current: Vec<Sample>,
    before: Vec<Counts>,
    next: Duration,
    last_flow: Option<(FlowKey, usize)>,
}

impl Recorder {
    pub(crate) fn new(ports: usize, interval: Duration) -> Self {
        let recording = Recording {
            interval,
            ports: vec![Vec::new(); ports],
            totals: vec![Counts::default(); ports],
            ..Recording::default()
        };
        Self {
            recording,
            current: vec![Sample::default(); ports],
            before: vec![Counts::default(); ports],
            next: interval,
            last_flow: None,
        }
    }

    pub(crate) fn late(&mut self, late: Duration) {
        self.recording.lateness.add(late);
    }

    /// A probe was read; with the time that it waited when it counts.
    pub(crate) fn probe(&mut self, waited: Option<Duration>) {
        self.recording.probes += 1;
        if let Some(time) = waited {
            self.recording.waited.add(time);
        }
    }

    pub(crate) fn stray(&mut self) {
        self.recording.stray += 1;
    }

    pub(crate) fn refused(&mut self) {
        self.recording.refused += 1;
    }

    /// Something was queued at a port.
    pub(crate) fn queued(&mut self, port: usize, now: Duration, link: &mut Link) {
        let sample = &mut self.current[port];
        sample.backlog_max = sample.backlog_max.max(link.backlog(now));
    }

    /// Bytes arrive at the host behind a port.
    pub(crate) fn delivered(&mut self, port: usize, flow: &FlowKey, bytes: u64) {
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
            (flows.len() < FLOWS_MAX).then(|| {
                flows.push(*flow);
                flows.len() - 1
            })
        })
    }

    /// Closes the intervals that have ended by `now`.
    pub(crate) fn advance(&mut self, now: Duration, ports: &mut [Link]) {
        while now >= self.next {
            for (at, port) in ports.iter_mut().enumerate() {
                let counts = port.counts();
                let before = std::mem::replace(&mut self.before[at], counts);
                let mut sample = std::mem::take(&mut self.current[at]);
                sample.at = self.next;
                sample.backlog = port.backlog(self.next);
                sample.backlog_max = sample.backlog_max.max(sample.backlog);
                sample.overflowed = counts.overflowed - before.overflowed;
                sample.lost = counts.lost - before.lost;
                self.recording.ports[at].push(sample);
            }
            self.next += self.recording.interval;
        }
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self, ports: &[Link]) -> Recording {
        self.recording.totals = ports.iter().map(Link::counts).collect();
        self.recording
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_below_the_bound_of_its_bucket_and_not_below_the_one_before() {
        for micros in (0..5000).chain([1 << 20, (1 << 30) - 1, 1 << 30]) {
            let bucket = bucket_of(micros);
            assert!(micros < bound_of(bucket), "{micros}");
            assert!(bucket == 0 || micros >= bound_of(bucket - 1), "{micros}");
            assert!(bound_of(bucket) <= micros + 1 + micros / 8, "{micros}");
        }
    }

    #[test]
    fn lateness_tells_quantiles_as_upper_bounds() {
        let mut lateness = Lateness::default();
        for micros in 1..=100 {
            lateness.add(Duration::from_micros(micros * 10));
        }
        assert_eq!(lateness.count(), 100);
        assert_eq!(lateness.max(), Duration::from_millis(1));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(512));
        assert_eq!(lateness.quantile(0.9), Duration::from_micros(960));
        assert_eq!(lateness.quantile(0.99), Duration::from_millis(1));
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn probes_of_idle_time_are_known_but_tell_nothing() {
        let mut recorder = Recorder::new(1, Duration::from_millis(10));
        for _ in 0..5000 {
            recorder.probe(None);
        }
        let recording = recorder.finish(&[]);
        assert_eq!((recording.probes, recording.waited.count()), (5000, 0));
        let mut recorder = Recorder::new(1, Duration::from_millis(10));
        (0..5000).for_each(|_| recorder.probe(None));
        (0..100).for_each(|_| recorder.probe(Some(Duration::from_micros(90))));
        (0..3).for_each(|_| recorder.probe(Some(Duration::from_millis(7))));
        assert!(recorder.finish(&[]).late(0.99) >= Duration::from_millis(7), "3 of 103");
    }

    #[test]
    fn what_is_read_late_is_late_though_it_was_delivered_in_time() {
        let mut recording = Recording::default();
        recording.lateness.add(Duration::from_micros(50));
        assert_eq!(recording.late(0.99), Duration::from_micros(50));
        recording.waited.add(Duration::from_millis(3));
        assert_eq!(recording.late(0.99), Duration::from_millis(3));
    }
}
