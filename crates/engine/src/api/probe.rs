//! Public entry point for measuring a path: sends filler over it like the data of a copy, and
//! reports the throughput.

use super::transfer::Transfer;
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink, Route, Sample, Summary};
use crate::base::event_log::{EventLog, Subject};
use crate::base::location::Location;
use crate::base::sync::lock;
use crate::model::options::{DaemonOptions, SshOptions, Tune};
use crate::model::transfer_options::Purpose;
use crate::stats::lost_sessions::LostSessions;
use bankfull_control::{Bytes, Rate};
use bankfull_proto::limits::MAX_THROUGHPUT_TEST_MS;
use bankfull_proto::wire::control::Direction;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Default duration of a probe. (chosen: the controller settles within some seconds)
pub const DEFAULT_PROBE_DURATION: Duration = Duration::from_secs(10);

/// Measurement of the path to a host. Build it, then [`run`](Self::run) it.
#[derive(Debug, Clone)]
pub struct Probe {
    transfer: Transfer,
    duration: Duration,
    reverse: bool,
}

impl Probe {
    /// Creates a probe of the path to a host. Runs for 10 s, with the defaults of a copy.
    ///
    /// The location's path is ignored.
    #[must_use]
    pub fn new(host: Location) -> Self {
        let transfer = Transfer::new(Vec::new(), host.with_path(PathBuf::new()));
        Self { transfer, duration: DEFAULT_PROBE_DURATION, reverse: false }
    }

    /// Sets the duration, 1 s to 1 h.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Sends from the host to this side instead.
    #[must_use]
    pub fn reverse(mut self, reverse: bool) -> Self {
        self.reverse = reverse;
        self
    }

    /// Sets the number of data streams, as [`Transfer::streams`].
    #[must_use]
    pub fn streams(mut self, streams: u32) -> Self {
        self.transfer = self.transfer.streams(streams);
        self
    }

    /// Sets the tuning, as [`Transfer::tune`].
    #[must_use]
    pub fn tune(mut self, tune: Tune) -> Self {
        self.transfer = self.transfer.tune(tune);
        self
    }

    /// Sets whether the filler is encrypted.
    #[must_use]
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.transfer = self.transfer.encryption(encryption);
        self
    }

    /// Sets the time without a message after which the peer counts as lost.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.transfer = self.transfer.timeout(timeout);
        self
    }

    /// Sets the ssh options.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.transfer = self.transfer.ssh(ssh);
        self
    }

    /// Sets the trust and authentication options for a daemon.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.transfer = self.transfer.daemon(daemon);
        self
    }

    /// Runs the probe.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a duration out of range or a local path; otherwise as
    /// [`Transfer::run`].
    pub fn run(self, events: &dyn EventSink, cancel: &Cancel) -> Result<ProbeResult, Error> {
        let subject = Subject::new("probe", [self.transfer.options.destination.to_string()]);
        subject.log_start();
        let log = EventLog::new(events);
        let result = self.run_unlogged(&log, cancel);
        let summary = result.as_ref().map(|result| result.summary.clone());
        subject.log_end(&summary.map_err(Error::clone), &log.progress());
        result
    }

    fn run_unlogged(
        mut self,
        events: &dyn EventSink,
        cancel: &Cancel,
    ) -> Result<ProbeResult, Error> {
        let started = Instant::now();
        let max = Duration::from_millis(MAX_THROUGHPUT_TEST_MS.into());
        if self.duration < Duration::from_secs(1) || self.duration > max {
            let text = "--time must be from 1 second to 1 hour";
            return Err(Error::new(ErrorKind::Usage, text));
        }
        if self.transfer.options.destination.is_local() {
            let text = "cannot probe a local path: specify a remote host, as host or \
                        bankfull://host";
            return Err(Error::new(ErrorKind::Usage, text));
        }
        self.transfer.check()?;
        self.transfer.options.purpose = Purpose::ThroughputTest(self.duration);
        let direction = if self.reverse { Direction::Pull } else { Direction::Push };
        let collector =
            Collector { next: events, samples: Mutex::default(), route: Mutex::default() };
        let host = self.transfer.options.destination.clone();
        let lost = LostSessions::default();
        let session = (started, &lost);
        let summary = self.transfer.run_remote(&host, direction, &collector, cancel, session)?;
        let samples = collector.samples.into_inner().unwrap_or_default();
        let route = collector.route.into_inner().unwrap_or_default();
        Ok(ProbeResult::new(&samples, summary, self.reverse, route))
    }
}

/// Event sink that collects the samples and the route, and forwards all events.
struct Collector<'a> {
    next: &'a dyn EventSink,
    samples: Mutex<Vec<Sample>>,
    route: Mutex<Option<Route>>,
}

impl EventSink for Collector<'_> {
    fn event(&self, event: Event) {
        match &event {
            Event::Sample(sample) => lock(&self.samples).push(sample.clone()),
            Event::Connected { route, .. } => *lock(&self.route) = Some(*route),
            _ => {}
        }
        self.next.event(event);
    }

    fn wants_completed(&self) -> bool {
        self.next.wants_completed()
    }
}

/// Result of a probe.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ProbeResult {
    /// Data rate of the bottleneck link, from packet trains.
    pub capacity: Option<Rate>,
    /// Goodput: the median of the seconds in the second half.
    pub rate: Rate,
    /// Min RTT.
    pub rtt_min: Option<Duration>,
    /// Mean RTT under load.
    pub rtt_mean: Option<Duration>,
    /// 99th percentile of the RTT under load.
    pub rtt_p99: Option<Duration>,
    /// Number of probes answered or lost.
    pub probes: u64,
    /// Number of probes lost in the direction of the data.
    pub probes_lost: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Receive window that fills the path: goodput times min RTT.
    pub window: Option<Bytes>,
    /// Number of streams that cover `window` with this host's buffers.
    pub streams: u32,
    /// Largest window of a stream on this host; the peer's may be smaller.
    pub window_max: Option<Bytes>,
    /// The result in sentences, for people.
    pub messages: Vec<String>,
    /// Summary of the session: times, bytes, streams and bottleneck.
    pub summary: Summary,
}

/// Relative RTT increase below which a queue is insignificant. (chosen: as the controller's)
const MIN_QUEUE_RTT_SHARE: f64 = 0.1;

/// Ratio of goodput to capacity above which the capacity is wrong. (chosen: trains err by some
/// percent)
const MAX_CAPACITY_RATIO: f64 = 1.05;

/// Ratio of goodput to capacity from which the path counts as filled. (chosen: as in the
/// controller, two rates are equal within a tenth)
const MIN_FILLED_RATIO: f64 = 0.9;

impl ProbeResult {
    fn new(samples: &[Sample], summary: Summary, reverse: bool, route: Option<Route>) -> Self {
        let mut rtts: Vec<Duration> = samples.iter().flat_map(|s| s.rtts.clone()).collect();
        rtts.sort_unstable();
        let last = samples.last().cloned().unwrap_or_default();
        // Data through ssh itself has no samples.
        let steady = steady_rate(samples);
        let rate = if steady == Rate::default() { summary.goodput() } else { steady };
        let mean = |all: &[Duration]| all.iter().sum::<Duration>() / all.len() as u32;
        let (rtt_min, window_max) = (rtts.first().copied(), window_max(reverse));
        let bdp = |rtt: Duration| Bytes((rate.bytes_per_sec() as f64 * rtt.as_secs_f64()) as u64);
        let window = rtt_min.map(bdp);
        let streams = match (window, window_max) {
            (Some(window), Some(max)) => window.0.div_ceil(max.0.max(1)).clamp(1, 64) as u32,
            _ => 1,
        };
        let mut result = Self {
            capacity: last.capacity,
            rate,
            rtt_min,
            rtt_mean: (!rtts.is_empty()).then(|| mean(&rtts)),
            rtt_p99: rtts.get(rtts.len() * 99 / 100).copied(),
            probes: last.probes,
            probes_lost: last.probes_lost,
            retransmits: summary.retransmits.max(last.retransmits.unwrap_or_default()),
            window,
            streams,
            window_max,
            messages: Vec::new(),
            summary,
        };
        result.messages = [
            result.rate_message(),
            result.rtt_message(),
            result.loss_message(route),
            result.window_message(reverse),
        ]
        .into_iter()
        .flatten()
        .collect();
        result
    }

    fn rate_message(&self) -> Option<String> {
        let rate = self.rate;
        let Some(capacity) = self.capacity else {
            return Some(format!(
                "goodput {rate}; the link's capacity is unknown: no packet train measured it"
            ));
        };
        let ratio = rate.bits_per_sec() as f64 / capacity.bits_per_sec().max(1) as f64;
        if ratio > MAX_CAPACITY_RATIO {
            return Some(format!(
                "goodput {rate}; packet trains underestimated the link's capacity: {capacity}"
            ));
        }
        let why = match self.summary.limited_by {
            _ if ratio >= MIN_FILLED_RATIO => "the path is filled",
            "network" if self.probes_lost > 0 => {
                "cross traffic takes the rest, or losses limit TCP"
            }
            "network" => "cross traffic takes the rest, or windows are too small",
            _ => "the path is not the bottleneck",
        };
        let percent = ratio * 100.0;
        Some(format!("link capacity {capacity}, goodput {rate}, {percent:.0} %: {why}"))
    }

    fn rtt_message(&self) -> Option<String> {
        let (min, mean) = (self.rtt_min?, self.rtt_mean?);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let queue = mean.saturating_sub(min);
        let threshold = min.mul_f64(MIN_QUEUE_RTT_SHARE).max(Duration::from_millis(1));
        let verdict = match queue > threshold {
            true => "a standing queue under load",
            false => "hardly a queue under load",
        };
        Some(format!("RTT {:.2} ms at least, {:.2} ms on average: {verdict}", ms(min), ms(mean)))
    }

    fn loss_message(&self, route: Option<Route>) -> Option<String> {
        if self.probes == 0 {
            let text = match self.rtt_min {
                Some(_) if route == Some(Route::Quic) => {
                    "the data uses QUIC, which measures the RTT itself: no probes are sent"
                }
                Some(_) => {
                    "no response to any probe, so the RTT is TCP's: let UDP through to the port of \
                     the data, and check that no other program uses it there"
                }
                None if route == Some(Route::Quic) => {
                    "no RTT: the data uses QUIC, which sends no probes"
                }
                None => "no RTT: the data goes through ssh itself",
            };
            return Some(text.to_owned());
        }
        let percent = self.probes_lost as f64 * 100.0 / self.probes as f64;
        Some(match self.probes_lost {
            0 => format!("none of {} probes lost", self.probes),
            lost => format!("{lost} of {} probes lost, {percent:.2} %", self.probes),
        })
    }

    fn window_message(&self, reverse: bool) -> Option<String> {
        // Without it, goodput times RTT says nothing about the path.
        self.capacity?;
        let (window, max) = (self.window?, self.window_max?);
        if self.streams <= 1 {
            return Some(format!(
                "a window of {window} fills the path; one connection may have {max}"
            ));
        }
        // The sysctl's other two values stay.
        let name = buffer_sysctl(reverse);
        let values = buffer_values(reverse)?;
        let [min, default] = [values.first()?, values.get(1)?];
        Some(format!(
            "a window of {window} fills the path, but a connection may have only {max} here: use \
             {} streams, or sysctl -w net.ipv4.{name}=\"{min} {default} {}\"",
            self.streams,
            window.0 * 2
        ))
    }
}

/// Returns the median rate of the seconds in the second half; of shorter intervals if the probe was
/// short.
///
/// Samples after the last increase of the carried bytes do not count: the streams have sent
/// everything, while a slow path may still deliver it for seconds.
fn steady_rate(samples: &[Sample]) -> Rate {
    let carried = samples.last().map(|sample| sample.carried).unwrap_or_default();
    let end = samples.iter().find(|sample| sample.carried == carried).map(|sample| sample.at);
    let end = end.unwrap_or_default();
    let second_half = samples.iter().filter(|sample| (end / 2..=end).contains(&sample.at));
    let mut rates = Vec::new();
    let mut from: Option<&Sample> = None;
    for sample in second_half {
        let begin = *from.get_or_insert(sample);
        let time = sample.at.saturating_sub(begin.at);
        if time >= Duration::from_secs(1).min(end / 4).max(Duration::from_millis(1)) {
            let bytes = Bytes(sample.carried.0.saturating_sub(begin.carried.0));
            rates.push(bytes.per(time));
            from = Some(sample);
        }
    }
    rates.sort_by_key(|rate| rate.bits_per_sec());
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// Returns the largest window of a connection on this host: half of the largest buffer, because the
/// kernel counts the memory of packets, not their data (tcp_adv_win_scale, ip-sysctl.rst).
fn window_max(reverse: bool) -> Option<Bytes> {
    Some(Bytes(buffer_values(reverse)?.get(2)? / 2))
}

fn buffer_sysctl(reverse: bool) -> &'static str {
    if reverse { "tcp_rmem" } else { "tcp_wmem" }
}

/// Returns the buffer sysctl's values on this host: minimum, default and maximum, in bytes.
fn buffer_values(reverse: bool) -> Option<Vec<u64>> {
    let path = format!("/proc/sys/net/ipv4/{}", buffer_sysctl(reverse));
    let text = std::fs::read_to_string(path).ok()?;
    text.split_whitespace().map(|value| value.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(mbit: &[u64]) -> Vec<Sample> {
        let mut carried = 0;
        let sample = |(n, mbit): (usize, &u64)| {
            carried += mbit * 1_000_000 / 8;
            Sample {
                at: Duration::from_secs(n as u64 + 1),
                carried: Bytes(carried),
                rtts: vec![Duration::from_millis(20), Duration::from_millis(21)],
                probes: 100 * (n as u64 + 1),
                capacity: Some(Rate::from_bits_per_sec(965e6)),
                ..Sample::default()
            }
        };
        mbit.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn probe_rate_excludes_the_start() {
        let result = ProbeResult::new(
            &samples(&[10, 100, 400, 940, 940, 940, 900, 940]),
            Summary::default(),
            false,
            None,
        );
        assert_eq!(result.rate.bits_per_sec() / 1_000_000, 940);
        assert_eq!(result.window, Some(Bytes(2_350_000)));
        assert_eq!(result.rtt_min, Some(Duration::from_millis(20)));
        assert_eq!(result.rtt_p99, Some(Duration::from_millis(21)));
        let messages = result.messages.join(". ");
        assert!(messages.contains("the path is filled"), "{messages}");
        assert!(messages.contains("none of 800 probes lost"), "{messages}");
    }

    #[test]
    fn probe_rate_excludes_the_time_after_the_data() {
        let samples = samples(&[10, 400, 940, 940, 940, 900, 0, 0, 0, 0, 0, 0, 0, 0]);
        let result = ProbeResult::new(&samples, Summary::default(), false, None);
        assert_eq!(result.rate.bits_per_sec() / 1_000_000, 940);
    }

    #[test]
    fn capacity_below_goodput_is_reported_as_underestimate() {
        let result = ProbeResult::new(&samples(&[1200; 6]), Summary::default(), false, None);
        let first = &result.messages[0];
        assert!(first.contains("underestimated the link's capacity"), "{first}");
    }

    #[test]
    fn probe_rate_through_ssh_is_the_overall_goodput() {
        let elapsed = Duration::from_secs(10);
        let summary = Summary { bytes: Bytes(1_250_000_000), elapsed, ..Summary::default() };
        let result = ProbeResult::new(&samples(&[0; 5]), summary, false, None);
        assert_eq!(result.rate.bits_per_sec(), 1_000_000_000);
    }

    #[test]
    fn probe_without_samples_names_the_route() {
        for (route, name) in [(Route::SshOnly, "through ssh itself"), (Route::Quic, "uses QUIC")] {
            let result = ProbeResult::new(&[], Summary::default(), true, Some(route));
            assert_eq!((result.rate, result.window, result.streams), (Rate::default(), None, 1));
            let is_match = |message: &String| message.contains("no RTT") && message.contains(name);
            assert!(result.messages.iter().any(is_match), "{:?}", result.messages);
        }
    }

    #[test]
    fn window_of_unknown_capacity_is_not_advised() {
        let has_window = |capacity| {
            let mut samples = samples(&[940; 6]);
            samples.iter_mut().for_each(|sample| sample.capacity = capacity);
            let result = ProbeResult::new(&samples, Summary::default(), false, None);
            result.messages.iter().any(|message| message.contains("fills the path"))
        };
        assert!(has_window(Some(Rate::from_bits_per_sec(965e6))));
        assert!(!has_window(None));
    }

    #[test]
    fn probe_of_local_path_is_refused() {
        let local = Location::parse("./x".as_ref()).unwrap();
        let error =
            Probe::new(local).run(&crate::base::event::NoEvents, &Cancel::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
}
