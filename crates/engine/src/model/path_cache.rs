//! Cache of path metrics from earlier copies, as starting points for later ones (like Linux's
//! `tcp_metrics`).
//!
//! One small file for each path and direction. Each write replaces the whole file, so concurrent
//! processes need no lock. Expired, damaged and missing files are ignored.

use super::options::default_state_dir;
use super::transfer_options::TransferOptions;
use crate::base::fs_names::create_private_dir;
use crate::base::location::Location;
use bankfull_control::path_control::CachedPath;
use bankfull_control::{LossSample, Rate};
use bankfull_proto::wire::control::Direction;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::debug;

/// Lifetime of cached metrics. (chosen: links change within weeks)
const CACHE_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Minimum loss rate without a queue for QUIC. (measured, docs/algorithms/quic.md: at 0.1 % TCP is
/// as good, at 1 % it is not)
const MIN_LOSS_RATE: f64 = 0.005;

/// Minimum number of lost segments for QUIC. (chosen: fewer are chance)
const MIN_LOST_SEGMENTS: u64 = 20;

/// Lifetime of a QUIC result; after it QUIC is tried again. (chosen: blocked UDP may be opened, and
/// the copy may have failed for another reason)
const QUIC_RESULT_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Minimum number of samples that show whether there is a standing queue. (chosen: two seconds)
const MIN_QUEUE_SAMPLES: u32 = 10;

/// Minimum time that a stream count was in use to be more than a trial.
/// (docs/algorithms/streams.md: a sample waits for 4 s and 10 T at most, and takes 4 T, of at most
/// 200 ms each)
const MIN_STREAM_COUNT_TIME: Duration = Duration::from_secs(7);

/// First line of a cache file, with its format version.
const FILE_MAGIC: &str = "bankfull path 4";

/// Number of the next temporary file of this process.
static TEMP_FILE_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Metrics of a path from one copy.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PathMetrics {
    /// Last rate limit of the controller, and the min RTT.
    pub(crate) sustained: Option<CachedPath>,
    /// Stream count, if higher than the initial one.
    pub(crate) streams: Option<u32>,
    /// Results by transport, if the path loses segments at random.
    pub(crate) loss: Option<LossRecord>,
}

/// Results of copies over a path that loses segments without a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LossRecord {
    /// Last result over TCP.
    tcp: Measurement,
    /// Last result over QUIC.
    quic: Option<Measurement>,
}

/// Goodput of a copy, with its time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measurement {
    goodput: Rate,
    /// Seconds since 1970.
    at: u64,
}

impl Measurement {
    fn now(goodput: Rate) -> Self {
        Self { goodput, at: unix_seconds(SystemTime::now()) }
    }

    /// Returns the measurement unless it is older than its lifetime.
    fn within(self, lifetime: Duration, now: SystemTime) -> Option<Self> {
        let age = unix_seconds(now).checked_sub(self.at)?;
        (age <= lifetime.as_secs()).then_some(self)
    }
}

fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Result of a copy that the path limited, for its transport.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransportResult {
    pub(crate) is_quic: bool,
    pub(crate) goodput: Rate,
    pub(crate) losses: LossSample,
    /// True if most samples showed a standing queue; `None` with too few samples.
    pub(crate) is_queued: Option<bool>,
}

impl LossRecord {
    /// True if QUIC was faster than TCP, or has no result.
    pub(crate) fn prefers_quic(self) -> bool {
        self.quic.is_none_or(|quic| quic.goodput > self.tcp.goodput)
    }

    /// Returns the record with a failed QUIC attempt.
    pub(crate) fn with_quic_failure(self) -> Self {
        Self { quic: Some(Measurement::now(Rate::from_bits_per_sec(1.0))), ..self }
    }

    /// Returns the record updated with the result of another copy.
    pub(crate) fn updated(before: Option<Self>, result: &TransportResult) -> Option<Self> {
        let LossSample { retransmits, segments } = result.losses;
        if (segments as f64) < MIN_LOST_SEGMENTS as f64 / MIN_LOSS_RATE {
            return before;
        }
        let has_loss =
            retransmits >= MIN_LOST_SEGMENTS && result.losses.loss_rate() >= MIN_LOSS_RATE;
        if result.is_quic {
            // Once the path no longer loses segments, TCP's earlier result is void.
            let known = before.filter(|_| has_loss);
            return known
                .map(|known| Self { quic: Some(Measurement::now(result.goodput)), ..known });
        }
        let Some(is_queued) = result.is_queued else { return before };
        let is_random_loss = has_loss && !is_queued;
        let quic = before.and_then(|known| known.quic);
        is_random_loss.then_some(Self { tcp: Measurement::now(result.goodput), quic })
    }
}

/// Collects the metrics of a path during a copy. Times count from its start.
#[derive(Debug, Default)]
pub(crate) struct PathObserver {
    sustained: Option<CachedPath>,
    /// Latest target stream count, with the time it was set.
    streams: Option<(u32, Duration)>,
    /// Carried bytes, with the time of their latest increase.
    carried: (u64, Duration),
    /// Samples with a standing queue, and all samples.
    queued: (u32, u32),
}

impl PathObserver {
    /// Records a rate limit of the controller, with the min RTT.
    pub(crate) fn on_rate_limit(&mut self, rate: Rate, rtt: Duration) {
        self.sustained = Some(CachedPath { rate, rtt });
    }

    /// Records a new target stream count.
    pub(crate) fn on_stream_count(&mut self, streams: u32, now: Duration) {
        self.streams = Some((streams, now));
    }

    /// Records the bytes carried so far.
    pub(crate) fn on_carried(&mut self, bytes: u64, now: Duration) {
        if bytes > self.carried.0 {
            self.carried = (bytes, now);
        }
    }

    /// Records a sample of the queue.
    pub(crate) fn on_queue(&mut self, is_standing: bool) {
        self.queued = (self.queued.0 + u32::from(is_standing), self.queued.1 + 1);
    }

    /// True if most samples showed a standing queue; `None` with too few samples.
    pub(crate) fn is_queued(&self) -> Option<bool> {
        let (standing, all) = self.queued;
        (all >= MIN_QUEUE_SAMPLES).then_some(2 * standing > all)
    }

    /// Returns the metrics, with the stream count only if data flowed long enough with it.
    pub(crate) fn metrics(&self) -> PathMetrics {
        let is_settled =
            |(_, since): &(u32, Duration)| self.carried.1 >= *since + MIN_STREAM_COUNT_TIME;
        let streams = self.streams.filter(is_settled).map(|(streams, _)| streams);
        PathMetrics { sustained: self.sustained, streams, loss: None }
    }
}

/// Cache entry of a transfer's path.
pub(crate) struct PathCache {
    file: PathBuf,
    name: String,
}

impl PathCache {
    /// Returns the entry of the path to or from the peer; `None` without a state directory.
    pub(crate) fn for_transfer(options: &TransferOptions, direction: Direction) -> Option<Self> {
        let peer = match direction {
            Direction::Pull => options.sources.first().unwrap_or(&options.destination),
            Direction::Push => &options.destination,
        };
        let host = match peer {
            Location::Local(_) => return None,
            Location::Ssh { host, .. } => host.clone(),
            Location::Daemon { host, port, .. } => format!("{host}:{port}"),
        };
        let dir = options.daemon.state_dir.clone().or_else(|| default_state_dir().ok())?;
        let way = if direction == Direction::Push { "to" } else { "from" };
        Some(Self::at(dir, &format!("{way} {host}")))
    }

    fn at(state_dir: PathBuf, name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes()).to_hex();
        Self { file: state_dir.join("paths").join(&hash.as_str()[..16]), name: name.to_owned() }
    }

    /// Returns the names of all paths, with their metrics unless expired.
    pub(crate) fn all(state_dir: &Path) -> Vec<(String, PathMetrics)> {
        let files = fs::read_dir(state_dir.join("paths")).into_iter().flatten().flatten();
        let load = |file: PathBuf| {
            let text = fs::read_to_string(&file).ok()?;
            let name = text.lines().nth(1)?.to_owned();
            let metrics = Self { file, name: name.clone() }.load()?;
            Some((name, metrics))
        };
        let mut all: Vec<_> = files.filter_map(|entry| load(entry.path())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Loads the metrics, unless expired.
    pub(crate) fn load(&self) -> Option<PathMetrics> {
        self.load_at(SystemTime::now())
    }

    fn load_at(&self, now: SystemTime) -> Option<PathMetrics> {
        let text = fs::read_to_string(&self.file).ok()?;
        let mut lines = text.lines();
        if lines.next()? != FILE_MAGIC || lines.next()? != self.name {
            return None;
        }
        let numbers: Vec<u64> = lines.map_while(|line| line.parse().ok()).collect();
        let [rate_bps, rtt_us, streams, tcp_bps, tcp_at, quic_bps, quic_at, at] =
            numbers.try_into().ok()?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(at))?;
        let age = now.duration_since(at).ok()?;
        let rate = |bps: u64| (bps > 0).then(|| Rate::from_bits_per_sec(bps as f64));
        let rtt = Duration::from_micros(rtt_us);
        let sustained = rate(rate_bps).filter(|_| rtt_us > 0).map(|rate| CachedPath { rate, rtt });
        let measurement = |bps, at, lifetime| {
            rate(bps).and_then(|goodput| Measurement { goodput, at }.within(lifetime, now))
        };
        let tcp = measurement(tcp_bps, tcp_at, CACHE_LIFETIME);
        let loss = tcp.map(|tcp| LossRecord {
            tcp,
            quic: measurement(quic_bps, quic_at, QUIC_RESULT_LIFETIME),
        });
        let streams = u32::try_from(streams).ok().filter(|&streams| streams > 0);
        (age <= CACHE_LIFETIME).then_some(PathMetrics { sustained, streams, loss })
    }

    /// Stores the metrics unless they are empty and have no loss record to clear.
    ///
    /// Failures are only logged.
    pub(crate) fn store(&self, metrics: &PathMetrics, earlier: &PathMetrics) {
        let has_content = *metrics != PathMetrics::default() || earlier.loss.is_some();
        if has_content && self.try_store(metrics).is_none() {
            debug!(file = ?self.file, "path metrics not stored");
        }
    }

    fn try_store(&self, metrics: &PathMetrics) -> Option<()> {
        let dir = self.file.parent()?;
        create_private_dir(dir.parent()?).ok()?;
        create_private_dir(dir).ok()?;
        let at = unix_seconds(SystemTime::now());
        let sustained = metrics.sustained.map(|s| (s.rate.bits_per_sec(), s.rtt.as_micros()));
        let (rate, rtt) = sustained.unwrap_or_default();
        let streams = metrics.streams.unwrap_or_default();
        let lines = |measurement: Option<Measurement>| {
            let (bps, at) = measurement.map_or((0, 0), |m| (m.goodput.bits_per_sec(), m.at));
            format!("{bps}\n{at}")
        };
        let tcp = lines(metrics.loss.map(|loss| loss.tcp));
        let quic = lines(metrics.loss.and_then(|loss| loss.quic));
        // A unique name, so that no other writer renames an unfinished file.
        let number = TEMP_FILE_NUMBER.fetch_add(1, Ordering::Relaxed);
        let temp = self.file.with_extension(format!("{}-{number}", std::process::id()));
        let mut file = fs::File::create(&temp).ok()?;
        let numbers = format!("{rate}\n{rtt}\n{streams}\n{tcp}\n{quic}\n{at}\n");
        let text = format!("{FILE_MAGIC}\n{}\n{numbers}", self.name);
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&temp, &self.file));
        if written.is_err() {
            let _ = fs::remove_file(&temp);
        }
        written.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(mbit: f64) -> PathMetrics {
        let rate = Rate::from_bits_per_sec(mbit * 1e6);
        let sustained = Some(CachedPath { rate, rtt: Duration::from_millis(20) });
        PathMetrics { sustained, ..PathMetrics::default() }
    }

    #[test]
    fn metrics_last_a_week_and_are_kept_per_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| PathCache::at(dir.path().to_owned(), name);
        assert_eq!(path("to a:1").load(), None);
        path("to a:1").store(&metrics(900.0), &PathMetrics::default());
        path("from a:1").store(&metrics(100.0), &PathMetrics::default());
        assert_eq!(path("to a:1").load(), Some(metrics(900.0)));
        assert_eq!(path("from a:1").load(), Some(metrics(100.0)));
        let all = PathCache::all(dir.path());
        let named = |name: &str, mbit| (name.to_owned(), metrics(mbit));
        assert_eq!(all, [named("from a:1", 100.0), named("to a:1", 900.0)]);
        let many = PathMetrics { streams: Some(48), ..PathMetrics::default() };
        path("to a:1").store(&many, &PathMetrics::default());
        path("to a:1").store(&PathMetrics::default(), &PathMetrics::default());
        assert_eq!(path("to a:1").load(), Some(many));
        let later = SystemTime::now() + CACHE_LIFETIME + Duration::from_secs(60);
        assert_eq!(path("to a:1").load_at(later), None);
    }

    #[test]
    fn damaged_cache_file_is_ignored_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = PathCache::at(dir.path().to_owned(), "to a:1");
        path.store(&metrics(900.0), &PathMetrics::default());
        let future = format!("{FILE_MAGIC}\nto a:1\n1\n1\n1\n1\n1\n1\n1\n{}\n", u64::MAX);
        let other = format!("{FILE_MAGIC}\nto b:1\n1\n1\n1\n1\n1\n1\n1\n1\n");
        for text in ["", "rubbish", &other, &future, "\u{0}\u{1}"] {
            fs::write(&path.file, text).unwrap();
            assert_eq!(path.load(), None, "{text:?}");
        }
        path.store(&metrics(800.0), &PathMetrics::default());
        assert_eq!(path.load(), Some(metrics(800.0)));
        assert_eq!(fs::read_dir(path.file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn concurrent_writers_leave_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 1..=8u32 {
                let path = PathCache::at(dir.path().to_owned(), "to a:1");
                scope.spawn(move || {
                    let metrics = metrics(f64::from(n));
                    (0..50).for_each(|_| path.store(&metrics, &PathMetrics::default()));
                });
            }
        });
        let loaded = PathCache::at(dir.path().to_owned(), "to a:1").load();
        let rtt = |metrics: PathMetrics| metrics.sustained.map(|sustained| sustained.rtt);
        assert_eq!(loaded.and_then(rtt), rtt(metrics(1.0)));
    }

    const MANY_LOSSES: LossSample = LossSample { retransmits: 700, segments: 70_000 };

    fn result(is_quic: bool, mbit: f64) -> TransportResult {
        let goodput = Rate::from_bits_per_sec(mbit * 1e6);
        TransportResult { is_quic, goodput, losses: MANY_LOSSES, is_queued: Some(false) }
    }

    #[test]
    fn random_loss_prefers_quic_unless_tcp_was_faster() {
        let lossy = LossRecord::updated(None, &result(false, 100.0));
        assert!(lossy.unwrap().prefers_quic(), "QUIC has no result yet");
        let tried = LossRecord::updated(lossy, &result(true, 130.0));
        assert!(tried.unwrap().prefers_quic());
        let slower = LossRecord::updated(tried, &result(true, 90.0));
        assert!(!slower.unwrap().prefers_quic());
        // The next copy uses TCP, and keeps the result of QUIC.
        let again = LossRecord::updated(slower, &result(false, 80.0));
        assert!(again.unwrap().prefers_quic());
        assert_eq!(LossRecord::updated(None, &result(true, 100.0)), None, "no result of TCP");
        let failed = lossy.unwrap().with_quic_failure();
        assert!(!failed.prefers_quic());
        assert!(!LossRecord::updated(Some(failed), &result(false, 80.0)).unwrap().prefers_quic());
        // A short copy changes nothing; a long one without loss clears the record.
        let few = LossSample { retransmits: 0, segments: 80 };
        let short = TransportResult { losses: few, ..result(true, 1.0) };
        assert_eq!(LossRecord::updated(tried, &short), tried);
        let losses = LossSample { retransmits: 0, ..MANY_LOSSES };
        let lossless = TransportResult { losses, ..result(true, 130.0) };
        assert_eq!(LossRecord::updated(tried, &lossless), None);
    }

    #[test]
    fn queue_few_losses_or_little_data_do_not_prefer_quic() {
        let known = LossRecord::updated(None, &result(false, 100.0));
        let after = |before, losses, is_queued| {
            let is_queued = Some(is_queued);
            let result = TransportResult { losses, is_queued, ..result(false, 100.0) };
            LossRecord::updated(before, &result)
        };
        for before in [None, known] {
            assert_eq!(after(before, MANY_LOSSES, true), None);
            assert_eq!(
                after(before, LossSample { retransmits: 70, segments: 70_000 }, false),
                None
            );
            let little = LossSample { retransmits: 30, segments: 1_000 };
            assert_eq!(after(before, little, false), before, "too few segments");
            let unsampled = TransportResult { is_queued: None, ..result(false, 100.0) };
            assert_eq!(LossRecord::updated(before, &unsampled), before, "too few samples");
        }
    }

    #[test]
    fn transport_results_are_stored_and_expire() {
        let dir = tempfile::tempdir().unwrap();
        let path = PathCache::at(dir.path().to_owned(), "to a:1");
        let lossy = LossRecord::updated(None, &result(false, 100.0));
        let tried = LossRecord::updated(lossy, &result(true, 130.0));
        for loss in [lossy, tried] {
            let metrics = PathMetrics { loss, ..metrics(100.0) };
            path.store(&metrics, &PathMetrics::default());
            assert_eq!(path.load(), Some(metrics));
        }
        // A slow or failed QUIC result expires after a day, that of TCP after a week, regardless of
        // QUIC copies meanwhile.
        let loss = tried.map(LossRecord::with_quic_failure);
        path.store(&PathMetrics { loss, ..PathMetrics::default() }, &PathMetrics::default());
        let at = |age| path.load_at(SystemTime::now() + age).and_then(|metrics| metrics.loss);
        assert!(!at(QUIC_RESULT_LIFETIME / 2).unwrap().prefers_quic());
        assert!(at(2 * QUIC_RESULT_LIFETIME).unwrap().prefers_quic());
        let tcp = tried.unwrap().tcp;
        let expired = Measurement { at: tcp.at - CACHE_LIFETIME.as_secs() - 60, ..tcp };
        let loss = tried.map(|known| LossRecord { tcp: expired, ..known });
        path.store(&PathMetrics { loss, ..PathMetrics::default() }, &PathMetrics::default());
        assert_eq!(at(Duration::ZERO), None);
        path.store(&PathMetrics::default(), &PathMetrics { loss, ..PathMetrics::default() });
        assert_eq!(path.load(), Some(PathMetrics::default()));
    }
}
