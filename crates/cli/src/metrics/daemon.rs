//! Metrics of the daemon: of its state when they are read, and of its events.

use super::{Check, Exporter, gauge_value, raise, raise_seconds};
use crate::exit::Exit;
use bankfull::{
    Cancel, DirectionStatus, Error, Event, EventSink, Server, ServerStatus, StageTimes, Summary,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Goodputs of the histogram in bytes/s: from 1 Mbit/s, doubled to 33 Gbit/s. (chosen: the rates
/// of lines in use)
const MIN_GOODPUT: f64 = 125e3;
const GOODPUT_BUCKETS: u16 = 16;

/// Minimum size of a session whose goodput is recorded. (chosen: smaller ones end during startup)
const MIN_GOODPUT_BYTES: u64 = 1 << 20;

/// Age of the daemon's state from which it is read again. (chosen: far below the interval of
/// Prometheus; a crowd of clients does not make the daemon sample its sockets all the time)
const MIN_STATE_AGE: Duration = Duration::from_millis(100);

/// Label of a family, as (name, value).
type Label = [(&'static str, &'static str); 1];

/// RTTs of the histogram in seconds: from 0.1 ms, doubled to 3.3 s. (chosen: a rack to a satellite
/// with a queue)
const MIN_RTT: f64 = 1e-4;
const RTT_BUCKETS: u16 = 16;

/// States of the controllers; decisions on streams have none. A peer may send other texts.
const STATES: [&str; 8] =
    ["", "probing", "start-bounded", "start-open", "growing", "limited", "unlimited", "disabled"];

/// Labels of a direction and a stage, or a controller and its state.
type StageLabels = [(&'static str, &'static str); 2];

/// Labels of a direction and a route.
type RouteLabels = [(&'static str, &'static str); 2];

/// Metrics of the daemon's state.
#[derive(Debug, Default)]
struct StateMetrics {
    sessions: Family<Label, Gauge>,
    streams: Family<Label, Gauge>,
    carried: Family<RouteLabels, Counter>,
    retransmits: Family<Label, Counter>,
    stages: Family<StageLabels, Counter<f64, AtomicU64>>,
    pending: Gauge,
    staged: Gauge,
    staging_limit: Gauge,
    staging_wait: Counter<f64, AtomicU64>,
}

/// Longest time without a turn of the server's accept loop. (chosen: several of its polls, and far
/// below the usual watchdog of 30 s)
const MAX_ACCEPT_TIME: Duration = Duration::from_secs(10);

/// Check that a server accepts connections.
struct Accepting {
    server: Arc<Server>,
    drain: Cancel,
    /// Turns of its accept loop, and the time of the last change seen.
    seen: Mutex<(u64, Instant)>,
}

impl Accepting {
    fn new(server: Arc<Server>, drain: Cancel) -> Self {
        let seen = Mutex::new((server.accept_iterations(), Instant::now()));
        Self { server, drain, seen }
    }

    /// True unless the loop hangs; one that has ended to drain does not.
    fn check(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = self.server.accept_iterations();
        if turns != seen.0 {
            *seen = (turns, Instant::now());
        }
        // The first check after a long pause sees the iterations during that pause.
        self.drain.is_cancelled() || seen.1.elapsed() < MAX_ACCEPT_TIME
    }
}

impl StateMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register("sessions", "Sessions that run", self.sessions.clone());
        registry.register("streams", "Data streams of running sessions", self.streams.clone());
        let carried = "Bytes of data streams, with headers and encryption";
        registry.register_with_unit("carried", carried, Unit::Bytes, self.carried.clone());
        let retransmits = "Segments that this side retransmitted";
        registry.register("retransmits", retransmits, self.retransmits.clone());
        let stages = "Time of threads in a stage since the start";
        registry.register_with_unit("stage", stages, Unit::Seconds, self.stages.clone());
        let pending = "Connections that have made no request yet";
        registry.register("pending_connections", pending, self.pending.clone());
        let staged = "Received data that waits for the disk";
        registry.register_with_unit("staged", staged, Unit::Bytes, self.staged.clone());
        let limit = "Limit of that data; 0 before anything is received";
        let gauge = self.staging_limit.clone();
        registry.register_with_unit("staging_limit", limit, Unit::Bytes, gauge);
        let wait = "Time since the start in which streams waited for the disk";
        let counter = self.staging_wait.clone();
        registry.register_with_unit("staging_wait", wait, Unit::Seconds, counter);
    }

    fn update(&self, status: &ServerStatus) {
        for (direction, of) in [("receive", &status.receiving), ("send", &status.sending)] {
            self.update_direction(direction, of);
        }
        self.pending.set(gauge_value(status.pending));
        self.staged.set(gauge_value(status.staged.0));
        self.staging_limit.set(gauge_value(status.staging_limit.0));
        raise_seconds(&self.staging_wait, status.staging_wait);
    }

    fn update_direction(&self, direction: &'static str, status: &DirectionStatus) {
        let label = [("direction", direction)];
        self.sessions.get_or_create(&label).set(gauge_value(status.sessions));
        self.streams.get_or_create(&label).set(gauge_value(status.streams));
        let by_quic = status.carried_by_quic.0;
        for (route, bytes) in [("tcp", status.carried.0 - by_quic), ("quic", by_quic)] {
            let labels = [("direction", direction), ("route", route)];
            raise(&self.carried.get_or_create(&labels), bytes);
        }
        raise(&self.retransmits.get_or_create(&label), status.retransmits);
        for (stage, time) in stages(&status.stages) {
            let labels = [("direction", direction), ("stage", stage)];
            raise_seconds(&self.stages.get_or_create(&labels), time);
        }
    }
}

/// Returns the stages by their names in metrics.
fn stages(times: &StageTimes) -> [(&'static str, Duration); 5] {
    [
        ("read", times.read),
        ("compute", times.compute),
        ("network", times.network),
        ("write", times.write),
        ("idle", times.idle),
    ]
}

/// State of a server, as it was read last.
struct State {
    metrics: StateMetrics,
    read_at: Option<Instant>,
}

impl State {
    /// Reads the state of a server, unless that was just done.
    fn update(&mut self, server: &Server) {
        if self.read_at.is_none_or(|at| at.elapsed() >= MIN_STATE_AGE) {
            self.metrics.update(&server.status());
            self.read_at = Some(Instant::now());
        }
    }
}

/// Metrics of the daemon's events.
#[derive(Debug)]
pub(crate) struct DaemonMetrics {
    ended: Family<Label, Counter>,
    limits: Family<Label, Counter>,
    files: Family<Label, Counter>,
    failed_files: Family<Label, Counter>,
    decisions: Family<StageLabels, Counter>,
    warnings: Counter,
    goodput: Histogram,
    rtt: Histogram,
}

impl DaemonMetrics {
    pub(crate) fn new() -> Self {
        let buckets = exponential_buckets(MIN_GOODPUT, 2.0, GOODPUT_BUCKETS);
        Self {
            ended: Family::default(),
            limits: Family::default(),
            files: Family::default(),
            failed_files: Family::default(),
            decisions: Family::default(),
            warnings: Counter::default(),
            goodput: Histogram::new(buckets),
            rtt: Histogram::new(exponential_buckets(MIN_RTT, 2.0, RTT_BUCKETS)),
        }
    }

    /// Returns the counter of warnings, for those that are no events of the server.
    pub(crate) fn warning_counter(&self) -> Counter {
        self.warnings.clone()
    }

    /// Returns what offers these metrics, and the state of a server, over HTTP.
    ///
    /// A server that is drained is not ready; one that accepts no connections is not healthy.
    pub(crate) fn exporter(&self, server: &Arc<Server>, drain: &Cancel) -> Exporter {
        let state = State { metrics: StateMetrics::default(), read_at: None };
        let register = |registry: &mut Registry| {
            state.metrics.register(registry);
            self.register(registry);
        };
        let drain = drain.clone();
        let accepting = Accepting::new(Arc::clone(server), drain.clone());
        let checks: [Check; 2] =
            [Box::new(move || accepting.check()), Box::new(move || !drain.is_cancelled())];
        let exporter = Exporter::new("serve", register, checks);
        let (server, state) = (Arc::clone(server), Mutex::new(state));
        exporter.with_update(move || {
            state.lock().unwrap_or_else(PoisonError::into_inner).update(&server);
        })
    }

    fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            ("ended_sessions", "Sessions that ended, by outcome", &self.ended),
            ("limited_sessions", "Completed sessions, by what limited them", &self.limits),
            ("files", "Files of completed sessions, by outcome", &self.files),
            ("failed_files", "Files, directories and symlinks that failed", &self.failed_files),
        ] {
            registry.register(name, help, family.clone());
        }
        let decisions = "Decisions on windows, rates and streams";
        registry.register("tuning_decisions", decisions, self.decisions.clone());
        let rtt = "RTTs of the paths of running sessions";
        registry.register_with_unit("rtt", rtt, Unit::Seconds, self.rtt.clone());
        registry.register("warnings", "Warnings about the daemon", self.warnings.clone());
        let goodput = "Goodput of completed sessions of 1 MiB or more";
        registry.register("goodput_bytes_per_second", goodput, self.goodput.clone());
    }

    /// Updates the metrics.
    pub(crate) fn update(&self, event: &Event) {
        match event {
            Event::ClientDone { result, .. } => self.on_end(result),
            Event::Tuning(decision) => {
                let known = STATES.into_iter().find(|state| *state == decision.state);
                let controller = ("controller", decision.controller.name());
                let labels = [controller, ("state", known.unwrap_or("other"))];
                self.decisions.get_or_create(&labels).inc();
            }
            Event::FileFailed { cause, .. } => {
                self.failed_files.get_or_create(&[("cause", cause)]).inc();
            }
            Event::Sample(sample) => {
                // The least of a sample: others have waited in the queue of this copy's data.
                if let Some(rtt) = sample.rtts.iter().min() {
                    self.rtt.observe(rtt.as_secs_f64());
                }
            }
            Event::Warning { .. } => {
                self.warnings.inc();
            }
            _ => {}
        }
    }

    fn on_end(&self, result: &Result<Summary, Error>) {
        let outcome = match result {
            Ok(summary) if summary.failed_files > 0 => "partial",
            Ok(_) => "complete",
            Err(error) => Exit::from(error.kind()).name(),
        };
        self.ended.get_or_create(&[("outcome", outcome)]).inc();
        let Ok(summary) = result else { return };
        self.limits.get_or_create(&[("stage", summary.limited_by)]).inc();
        for (outcome, files) in [
            ("copied", summary.files),
            ("unchanged", summary.skipped_files),
            ("failed", summary.failed_files),
        ] {
            self.files.get_or_create(&[("outcome", outcome)]).inc_by(files);
        }
        if summary.bytes.0 >= MIN_GOODPUT_BYTES && !summary.elapsed.is_zero() {
            self.goodput.observe(summary.bytes.0 as f64 / summary.elapsed.as_secs_f64());
        }
    }
}

/// Sink that updates the metrics, and passes the events on.
pub(crate) struct MetricsSink<'a> {
    pub(crate) metrics: &'a DaemonMetrics,
    pub(crate) next: &'a dyn EventSink,
}

impl EventSink for MetricsSink<'_> {
    fn event(&self, event: Event) {
        self.metrics.update(&event);
        self.next.event(event);
    }

    fn wants_completed(&self) -> bool {
        self.next.wants_completed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::exposition::Format;
    use super::*;
    use bankfull::{Bytes, ErrorKind, Sample, TuningDecision};
    use std::collections::BTreeSet;

    /// Encodes what is registered.
    fn encoded(register: impl FnOnce(&mut Registry)) -> String {
        let mut registry = Registry::default();
        register(&mut registry);
        Format::Text.encode(&registry).unwrap()
    }

    fn assert_shown(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|shown| shown == *line), "{line}: {text}");
        }
    }

    #[test]
    fn events_become_metrics() {
        let metrics = DaemonMetrics::new();
        let mut summary = Summary::default();
        (summary.files, summary.skipped_files, summary.bytes) = (3, 1, Bytes(10 << 20));
        (summary.elapsed, summary.limited_by) = (Duration::from_secs(10), "network");
        let refused = Error::new(ErrorKind::Refused, "the token is wrong");
        for result in [Ok(summary.clone()), Ok(summary), Err(refused)] {
            let peer = "10.0.0.1:5".to_owned();
            metrics.update(&Event::ClientDone { peer, request: None, result });
        }
        let mut decision = TuningDecision::default();
        decision.state = "limited".to_owned();
        metrics.update(&Event::Tuning(decision.clone()));
        decision.state = "a text of the peer".to_owned();
        metrics.update(&Event::Tuning(decision));
        let (path, message) = ("a".into(), "full".to_owned());
        let cause = "no-space";
        metrics.update(&Event::FileFailed { path, message, cause, vanished: false });
        let mut sample = Sample::default();
        sample.rtts = vec![Duration::from_millis(70), Duration::from_millis(30)];
        metrics.update(&Event::Sample(sample));
        metrics.update(&Event::Warning { message: "port lost".to_owned() });
        let text = encoded(|registry| metrics.register(registry));
        assert_shown(
            &text,
            &[
                "ended_sessions_total{outcome=\"complete\"} 2",
                "ended_sessions_total{outcome=\"refused\"} 1",
                "limited_sessions_total{stage=\"network\"} 2",
                "files_total{outcome=\"copied\"} 6",
                "tuning_decisions_total{controller=\"sobas\",state=\"limited\"} 1",
                "tuning_decisions_total{controller=\"sobas\",state=\"other\"} 1",
                "failed_files_total{cause=\"no-space\"} 1",
                "rtt_seconds_sum 0.03",
                "warnings_total 1",
                "goodput_bytes_per_second_count 2",
                "goodput_bytes_per_second_bucket{le=\"1000000.0\"} 0",
                "goodput_bytes_per_second_bucket{le=\"2000000.0\"} 2",
            ],
        );
    }

    #[test]
    fn dashboard_shows_each_metric() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/daemon.json");
        let text = std::fs::read_to_string(path).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (state, metrics) = (StateMetrics::default(), DaemonMetrics::new());
        state.update(&ServerStatus::default());
        let mut summary = Summary::default();
        (summary.bytes, summary.elapsed) = (Bytes(10 << 20), Duration::from_secs(1));
        metrics.on_end(&Ok(summary));
        metrics.update(&Event::Tuning(TuningDecision::default()));
        let (path, message, cause) = ("a".into(), String::new(), "io");
        metrics.update(&Event::FileFailed { path, message, cause, vanished: false });
        let text = encoded(|registry| {
            let registry = registry.sub_registry_with_prefix("bankfull_serve");
            state.register(registry);
            metrics.register(registry);
        });
        let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let families = families.map(|line| line.split(' ').next().unwrap().to_owned());
        let mut unseen: BTreeSet<String> = families.collect();
        // A count of decisions is for those who change the tuner.
        assert!(unseen.remove("bankfull_serve_tuning_decisions_total"));
        let known = unseen.clone();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                for word in words.filter(|word| word.starts_with("bankfull_")) {
                    let family = word.strip_suffix("_bucket").unwrap_or(word);
                    assert!(known.contains(family), "{word} in {expression}");
                    unseen.remove(family);
                }
            }
        }
        assert_eq!(unseen, BTreeSet::new());
    }

    #[test]
    fn state_has_both_directions() {
        let state = StateMetrics::default();
        let mut status = ServerStatus::default();
        status.receiving.sessions = 2;
        status.receiving.carried = Bytes(700);
        status.sending.retransmits = 9;
        status.sending.stages.read = Duration::from_millis(2500);
        status.staged = Bytes(1 << 20);
        state.update(&status);
        status.receiving.carried = Bytes(900);
        state.update(&status);
        let text = encoded(|registry| state.register(registry));
        let types = || text.lines().filter(|line| line.starts_with("# TYPE "));
        assert_eq!(types().collect::<BTreeSet<_>>().len(), types().count(), "{text}");
        assert_shown(
            &text,
            &[
                "sessions{direction=\"receive\"} 2",
                "carried_bytes_total{direction=\"receive\",route=\"tcp\"} 900",
                "retransmits_total{direction=\"send\"} 9",
                "stage_seconds_total{direction=\"send\",stage=\"read\"} 2.5",
                "staged_bytes 1048576",
            ],
        );
    }
}
