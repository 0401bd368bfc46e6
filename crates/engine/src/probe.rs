//! The public entry for looking at a path: sends filler over it as a copy would send data, and says
//! what it carries.

use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventSink, Route, Sample, Summary};
use crate::location::Location;
use crate::net::control::lock;
use crate::options::{DaemonOptions, SshOptions};
use crate::transfer::Transfer;
use bankfull_control::{Bytes, Rate};
use bankfull_proto::limits::MAX_THROUGHPUT_TEST_MS;
use bankfull_proto::wire::control::Direction;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a path is filled where nothing is said. (ours: the controller settles within some
/// seconds)
pub const DEFAULT_PROBE_TIME: Duration = Duration::from_secs(10);

/// A look at the path to a host. Build it, then [`run`](Self::run) it.
#[derive(Debug, Clone)]
pub struct Probe {
    transfer: Transfer,
    time: Duration,
    reverse: bool,
}

impl Probe {
    /// A look at the path to the host of a place, for 10 s, with the defaults of a copy. The path
    /// of the place does not matter.
    #[must_use]
    pub fn new(host: Location) -> Self {
        let transfer = Transfer::new(Vec::new(), host.with_path(PathBuf::new()));
        Self { transfer, time: DEFAULT_PROBE_TIME, reverse: false }
    }

    /// How long it is filled: up to an hour.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// From there to here, in place of from here to there.
    #[must_use]
    pub fn reverse(mut self, reverse: bool) -> Self {
        self.reverse = reverse;
        self
    }

    /// Number of data connections, as of [`Transfer::streams`].
    #[must_use]
    pub fn streams(mut self, streams: u32) -> Self {
        self.transfer = self.transfer.streams(streams);
        self
    }

    /// Whether filler is encrypted as data would be.
    #[must_use]
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.transfer = self.transfer.encryption(encryption);
        self
    }

    /// Silence after which the far side is given up.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.transfer = self.transfer.timeout(timeout);
        self
    }

    /// How the far side is started over ssh.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.transfer = self.transfer.ssh(ssh);
        self
    }

    /// How a daemon is trusted and told who we are.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.transfer = self.transfer.daemon(daemon);
        self
    }

    /// Looks.
    ///
    /// # Errors
    /// As of [`Transfer::run`].
    pub fn run(mut self, events: &dyn EventSink, cancel: &Cancel) -> Result<Findings, Error> {
        let started = Instant::now();
        let longest = Duration::from_millis(MAX_THROUGHPUT_TEST_MS.into());
        if self.time < Duration::from_secs(1) || self.time > longest {
            let text = "--time is from 1 second to 1 hour";
            return Err(Error::new(ErrorKind::Usage, text));
        }
        if self.transfer.destination.is_local() {
            let text =
                "there is no path within a host: name another one, as host or bankfull://host";
            return Err(Error::new(ErrorKind::Usage, text));
        }
        self.transfer.check()?;
        self.transfer.probe = Some(self.time);
        let direction = if self.reverse { Direction::Pull } else { Direction::Push };
        let watch = Watch { next: events, samples: Mutex::default(), route: Mutex::default() };
        let far = self.transfer.destination.clone();
        let summary = self.transfer.run_remote(&far, direction, &watch, cancel, started)?;
        let samples = watch.samples.into_inner().unwrap_or_default();
        let route = watch.route.into_inner().unwrap_or_default();
        Ok(Findings::new(&samples, summary, self.reverse, route))
    }
}

/// Keeps the samples and how bytes travel, and passes all on.
struct Watch<'a> {
    next: &'a dyn EventSink,
    samples: Mutex<Vec<Sample>>,
    route: Mutex<Option<Route>>,
}

impl EventSink for Watch<'_> {
    fn event(&self, event: Event) {
        match &event {
            Event::Sample(sample) => lock(&self.samples).push(sample.clone()),
            Event::Connected { route, .. } => *lock(&self.route) = Some(*route),
            _ => {}
        }
        self.next.event(event);
    }
}

/// What a path carries, as a probe saw it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Findings {
    /// The rate of data that the narrowest line carries, as packet trains told it.
    pub capacity: Option<Rate>,
    /// The rate of data that came: in the middle of the seconds of the second half.
    pub rate: Rate,
    /// The shortest round trip.
    pub rtt_min: Option<Duration>,
    /// The mean of all round trips while the path was filled.
    pub rtt_mean: Option<Duration>,
    /// 99 of 100 were not longer.
    pub rtt_p99: Option<Duration>,
    /// How many probes were answered or lost.
    pub probes: u64,
    /// How many of them were lost on the way that the data goes.
    pub probes_lost: u64,
    /// Segments of data sent again.
    pub retransmits: u64,
    /// The receive window that fills the path.
    pub window: Option<Bytes>,
    /// How many connections that takes, with the windows that this host allows.
    pub streams: u32,
    /// How large a connection's window may be on this host; the far side may allow less.
    pub window_max: Option<Bytes>,
    /// What was seen, in sentences.
    pub words: Vec<String>,
    /// Seconds, bytes, connections, and who limited.
    pub summary: Summary,
}

/// Less than this beside the shortest round trip is no queue. (ours: as the controller's)
const QUEUE_SHARE: f64 = 0.1;

/// More than this share of what the trains told is more than their error. (ours: some percent)
const TRUSTED_SHARE: f64 = 1.05;

impl Findings {
    fn new(samples: &[Sample], summary: Summary, reverse: bool, route: Option<Route>) -> Self {
        let mut rtts: Vec<Duration> = samples.iter().flat_map(|s| s.rtts.clone()).collect();
        rtts.sort_unstable();
        let last = samples.last().cloned().unwrap_or_default();
        // What goes through ssh itself has no connections that could be looked at.
        let seen = steady_rate(samples);
        let rate = if seen == Rate::default() { summary.goodput() } else { seen };
        let mean = |all: &[Duration]| all.iter().sum::<Duration>() / all.len() as u32;
        let (rtt_min, window_max) = (rtts.first().copied(), window_max(reverse));
        let fills = |rtt: Duration| Bytes((rate.bytes_per_sec() as f64 * rtt.as_secs_f64()) as u64);
        let window = rtt_min.map(fills);
        let streams = match (window, window_max) {
            (Some(window), Some(most)) => window.0.div_ceil(most.0.max(1)).clamp(1, 64) as u32,
            _ => 1,
        };
        let mut findings = Self {
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
            words: Vec::new(),
            summary,
        };
        findings.words = [
            findings.say_rate(),
            findings.say_round_trip(),
            findings.say_loss(route),
            findings.say_window(reverse),
        ]
        .into_iter()
        .flatten()
        .collect();
        findings
    }

    fn say_rate(&self) -> Option<String> {
        let Some(capacity) = self.capacity else {
            return Some(format!(
                "{} came. How much the line carries is not known: no packet train told it",
                self.rate
            ));
        };
        let share = self.rate.bits_per_sec() as f64 / capacity.bits_per_sec().max(1) as f64;
        if share > TRUSTED_SHARE {
            let told = "packet trains told less than the line carries";
            return Some(format!("{} came: {told}, {capacity}", self.rate));
        }
        let why = match self.summary.limited_by {
            _ if share >= 0.9 => "the path can be filled",
            "network" if self.probes_lost > 0 => "others take the rest, or losses keep TCP from it",
            "network" => "others take the rest, or windows are too small",
            _ => "it is not the path that limits",
        };
        let percent = share * 100.0;
        Some(format!("the line carries {capacity}, {} came, {percent:.0} %: {why}", self.rate))
    }

    fn say_round_trip(&self) -> Option<String> {
        let (least, mean) = (self.rtt_min?, self.rtt_mean?);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let queue = mean.saturating_sub(least);
        let says = match queue > least.mul_f64(QUEUE_SHARE).max(Duration::from_millis(1)) {
            true => "a queue stands while it is filled",
            false => "hardly a queue while it is filled",
        };
        Some(format!(
            "a round trip takes {:.2} ms, {:.2} ms on average: {says}",
            ms(least),
            ms(mean)
        ))
    }

    fn say_loss(&self, route: Option<Route>) -> Option<String> {
        if self.probes == 0 {
            let what = match self.rtt_min {
                Some(_) if route == Some(Route::Quic) => {
                    "data goes by QUIC, and so do round trips: no probes are sent beside it"
                }
                Some(_) => {
                    "no probe came back, so round trips are TCP's: let UDP through to the port of \
                     the data, and see that no other program has it there"
                }
                None if route == Some(Route::Quic) => {
                    "data goes by QUIC, where no probe tells the round trip"
                }
                None => "data goes through ssh itself: nothing tells the round trip",
            };
            return Some(what.to_owned());
        }
        let share = self.probes_lost as f64 * 100.0 / self.probes as f64;
        Some(match self.probes_lost {
            0 => format!("none of {} probes was lost", self.probes),
            lost => format!("{lost} of {} probes were lost on the way, {share:.2} %", self.probes),
        })
    }

    fn say_window(&self, reverse: bool) -> Option<String> {
        let (window, most) = (self.window?, self.window_max?);
        if self.streams <= 1 {
            return Some(format!("a window of {window} fills it: one connection may have {most}"));
        }
        // The two smaller values stay as they are.
        let name = buffer_name(reverse);
        let values = buffer_values(reverse)?;
        let [least, first] = [values.first()?, values.get(1)?];
        Some(format!(
            "a window of {window} fills it, and a connection may have {most} here: {} streams, or \
             sysctl -w net.ipv4.{name}=\"{least} {first} {}\"",
            self.streams,
            window.0 * 2
        ))
    }
}

/// The rate in the middle of the seconds of the second half; of all where there is hardly one.
fn steady_rate(samples: &[Sample]) -> Rate {
    let until = samples.last().map(|sample| sample.at).unwrap_or_default();
    let second_half = samples.iter().filter(|sample| sample.at >= until / 2);
    let mut rates = Vec::new();
    let mut from: Option<&Sample> = None;
    for sample in second_half {
        let begin = *from.get_or_insert(sample);
        let time = sample.at.saturating_sub(begin.at);
        if time >= Duration::from_secs(1).min(until / 4).max(Duration::from_millis(1)) {
            let bytes = Bytes(sample.carried.0.saturating_sub(begin.carried.0));
            rates.push(bytes.per(time));
            from = Some(sample);
        }
    }
    rates.sort_by_key(|rate| rate.bits_per_sec());
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// How large the window of a connection may grow here: half of the largest buffer, for the kernel
/// counts what packets take in memory, not their data (tcp_adv_win_scale, ip-sysctl.rst).
fn window_max(reverse: bool) -> Option<Bytes> {
    Some(Bytes(buffer_values(reverse)?.get(2)? / 2))
}

fn buffer_name(reverse: bool) -> &'static str {
    if reverse { "tcp_rmem" } else { "tcp_wmem" }
}

/// The least, the first and the largest buffer of a connection here, in bytes.
fn buffer_values(reverse: bool) -> Option<Vec<u64>> {
    let path = format!("/proc/sys/net/ipv4/{}", buffer_name(reverse));
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
    fn the_start_does_not_count() {
        let found = Findings::new(
            &samples(&[10, 100, 400, 940, 940, 940, 900, 940]),
            Summary::default(),
            false,
            None,
        );
        assert_eq!(found.rate.bits_per_sec() / 1_000_000, 940);
        assert_eq!(found.window, Some(Bytes(2_350_000)));
        assert_eq!(found.rtt_min, Some(Duration::from_millis(20)));
        assert_eq!(found.rtt_p99, Some(Duration::from_millis(21)));
        let words = found.words.join(". ");
        assert!(words.contains("the path can be filled"), "{words}");
        assert!(words.contains("none of 800 probes"), "{words}");
    }

    #[test]
    fn trains_that_told_too_little_are_not_taken_for_the_line() {
        let found = Findings::new(&samples(&[1200; 6]), Summary::default(), false, None);
        assert!(found.words[0].contains("told less than the line carries"), "{:?}", found.words);
    }

    #[test]
    fn through_ssh_itself_the_rate_is_that_of_the_whole() {
        let elapsed = Duration::from_secs(10);
        let summary = Summary { bytes: Bytes(1_250_000_000), elapsed, ..Summary::default() };
        let found = Findings::new(&samples(&[0; 5]), summary, false, None);
        assert_eq!(found.rate.bits_per_sec(), 1_000_000_000);
    }

    #[test]
    fn nothing_seen_is_told_without_figures() {
        for (route, by) in [(Route::SshOnly, "through ssh itself"), (Route::Quic, "by QUIC")] {
            let found = Findings::new(&[], Summary::default(), true, Some(route));
            assert_eq!((found.rate, found.window, found.streams), (Rate::default(), None, 1));
            let says =
                |words: &String| words.contains("tells the round trip") && words.contains(by);
            assert!(found.words.iter().any(says), "{:?}", found.words);
        }
    }

    #[test]
    fn a_host_has_no_path_to_itself() {
        let here = Location::parse("./x".as_ref()).unwrap();
        let error = Probe::new(here).run(&crate::event::NoEvents, &Cancel::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
}
