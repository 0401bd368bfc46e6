//! Metrics of the guard, from its events.

use super::{Check, Exporter, gauge_value, raise};
use bankfull_guard::{Config, Event, Status};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Age of the last status from which the guard counts as stalled. (chosen: three of its intervals)
const MAX_STATUS_AGE: Duration = Duration::from_secs(3);

/// Label of a family, as (name, value).
type Label = [(&'static str, &'static str); 1];

/// Gauges and counters of a status.
#[derive(Debug, Default)]
struct StatusMetrics {
    connections: Gauge,
    receiving: Gauge,
    is_engaged: Gauge,
    is_rolled_back: Gauge,
    /// Bytes per second; 0 while unknown.
    capacity: Gauge<f64, AtomicU64>,
    received: Counter,
    without_slot: Counter,
    unfollowed: Counter,
    lost_events: Counter,
    refused: Counter,
}

impl StatusMetrics {
    fn register(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("connections", "TCP connections that the guard sees", &self.connections),
            ("receiving_connections", "Guarded connections that receive", &self.receiving),
            ("engaged", "1 while windows are decided", &self.is_engaged),
            (
                "rolled_back",
                "1 while windows stay free, as less data arrived while they were set",
                &self.is_rolled_back,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            (
                "connections_without_slot",
                "Connections left alone, as too many are open",
                &self.without_slot,
            ),
            (
                "unfollowed_connections",
                "Connections from before the guard that this kernel cannot follow",
                &self.unfollowed,
            ),
            ("lost_events", "Events lost, as too many came at once", &self.lost_events),
            ("refused_windows", "Windows that the kernel did not set", &self.refused),
        ] {
            registry.register(name, help, counter.clone());
        }
        let capacity = "Capacity of the port for payload; 0 while unknown";
        registry.register("capacity_bytes_per_second", capacity, self.capacity.clone());
        let received = "Payload received by guarded connections";
        registry.register_with_unit("received", received, Unit::Bytes, self.received.clone());
    }

    fn update(&self, status: &Status) {
        self.connections.set(gauge_value(status.connections as u64));
        self.receiving.set(gauge_value(status.active as u64));
        self.is_engaged.set(status.is_engaged.into());
        self.is_rolled_back.set(status.is_rolled_back.into());
        self.capacity.set(status.capacity.map_or(0.0, |rate| rate.bytes_per_sec() as f64));
        self.received.inc_by(status.received.0);
        raise(&self.without_slot, status.without_slot);
        raise(&self.unfollowed, status.unfollowed);
        raise(&self.lost_events, status.lost_events);
        raise(&self.refused, status.refused);
    }
}

/// Metrics of a guard.
#[derive(Debug)]
pub(crate) struct GuardMetrics {
    status: StatusMetrics,
    opened: Family<Label, Counter>,
    closed: Counter,
    held: Gauge,
    changes: Family<Label, Counter>,
    /// IDs of the connections whose window is limited.
    held_ids: BTreeSet<u64>,
    status_at: Arc<Mutex<Instant>>,
}

impl GuardMetrics {
    /// Creates the metrics of a guard that starts now.
    pub(crate) fn new() -> Self {
        Self {
            status: StatusMetrics::default(),
            opened: Family::default(),
            closed: Counter::default(),
            held: Gauge::default(),
            changes: Family::default(),
            held_ids: BTreeSet::new(),
            status_at: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Returns what offers these metrics over HTTP.
    pub(crate) fn exporter(&self, config: &Config, mode: &'static str) -> Exporter {
        let interface = config.interface.clone();
        let labels = vec![("interface", interface), ("mode", mode.to_owned())];
        let register = |registry: &mut Registry| {
            registry.register("port", "The guarded port", Info::new(labels));
            self.register(registry);
        };
        Exporter::new("guard", register, [self.check(), self.check()])
    }

    fn register(&self, registry: &mut Registry) {
        self.status.register(registry);
        let opened = "Connections seen, by whether they are guarded";
        registry.register("opened_connections", opened, self.opened.clone());
        registry.register("closed_connections", "Connections that ended", self.closed.clone());
        let held = "Connections whose window is limited, or would be";
        registry.register("limited_connections", held, self.held.clone());
        let changes = "Changes of windows, by reason";
        registry.register("window_changes", changes, self.changes.clone());
    }

    /// Returns a check that the guard has shown its status lately.
    fn check(&self) -> Check {
        let status_at = Arc::clone(&self.status_at);
        Box::new(move || {
            let at = *status_at.lock().unwrap_or_else(PoisonError::into_inner);
            at.elapsed() <= MAX_STATUS_AGE
        })
    }

    /// Updates the metrics.
    pub(crate) fn update(&mut self, event: &Event<'_>) {
        match event {
            Event::Opened(connection) => {
                self.opened.get_or_create(&[("standing", connection.standing.name())]).inc();
            }
            Event::Closed(connection, _) => {
                self.closed.inc();
                self.held_ids.remove(&connection.id);
            }
            Event::Window(connection, window, reason) => {
                self.changes.get_or_create(&[("reason", *reason)]).inc();
                match window {
                    Some(_) => self.held_ids.insert(connection.id),
                    None => self.held_ids.remove(&connection.id),
                };
            }
            Event::Judged(_) | Event::Rate(..) | Event::Guest(..) => {}
            Event::Status(status) => {
                // Windows that were only observed are not lifted one by one.
                if !status.is_engaged {
                    self.held_ids.clear();
                }
                self.status.update(status);
                *self.status_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
        }
        self.held.set(gauge_value(self.held_ids.len() as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::super::http::Pages;
    use super::*;
    use bankfull::{Bytes, Rate};
    use bankfull_guard::{Connection, Mode, Received, Standing};

    fn connection(id: u64) -> Connection {
        Connection {
            id,
            remote: "10.0.0.7:80".parse().unwrap(),
            local: "10.0.0.1:5001".parse().unwrap(),
            is_passive: false,
            is_forwarded: false,
            cgroup: "/".to_owned(),
            netns: 1,
            process: 2,
            command: "curl".to_owned(),
            rtt: None,
            standing: Standing::Guarded,
        }
    }

    fn config() -> Config {
        Config {
            interface: "eth0".to_owned(),
            cgroup: None,
            guests: Vec::new(),
            link_rate: None,
            mode: Mode::Hold,
            min_window_segments: 2,
            max_rtt: Duration::from_millis(2),
            reports_rates: false,
        }
    }

    fn status(received: u64, lost_events: u64) -> Status {
        Status {
            connections: 2,
            active: 1,
            is_engaged: true,
            is_rolled_back: false,
            received: Bytes(received),
            rate: Rate::from_bits_per_sec(8e6),
            capacity: Some(Rate::from_bits_per_sec(8e9)),
            without_slot: 0,
            unfollowed: 0,
            lost_events,
            refused: 0,
        }
    }

    #[test]
    fn events_become_metrics() {
        let mut metrics = GuardMetrics::new();
        let exporter = metrics.exporter(&config(), "hold");
        let (first, second) = (connection(1), connection(2));
        for event in [
            Event::Opened(&first),
            Event::Opened(&second),
            Event::Window(&first, Some(Bytes(2920)), "share"),
            Event::Window(&second, Some(Bytes(2920)), "share"),
            Event::Window(&second, None, "lifted"),
            Event::Closed(&second, Received::default()),
            Event::Status(status(1000, 3)),
            Event::Status(status(500, 4)),
        ] {
            metrics.update(&event);
        }
        let page = exporter.page("/metrics", "").unwrap();
        for line in [
            "bankfull_guard_port_info{interface=\"eth0\",mode=\"hold\"} 1",
            "bankfull_guard_connections 2",
            "bankfull_guard_receiving_connections 1",
            "bankfull_guard_engaged 1",
            "bankfull_guard_capacity_bytes_per_second 1000000000.0",
            "bankfull_guard_received_bytes_total 1500",
            "bankfull_guard_lost_events_total 4",
            "bankfull_guard_opened_connections_total{standing=\"guarded\"} 2",
            "bankfull_guard_closed_connections_total 1",
            "bankfull_guard_limited_connections 1",
            "bankfull_guard_window_changes_total{reason=\"share\"} 2",
            "bankfull_guard_window_changes_total{reason=\"lifted\"} 1",
        ] {
            assert!(page.body().lines().any(|shown| shown == line), "{line}: {page:?}");
        }
    }

    #[test]
    fn stalled_guard_is_neither_alive_nor_ready() {
        let mut metrics = GuardMetrics::new();
        let exporter = metrics.exporter(&config(), "observe");
        let stalled = Instant::now().checked_sub(MAX_STATUS_AGE * 2).unwrap();
        *metrics.status_at.lock().unwrap() = stalled;
        let body = |path: &str| exporter.page(path, "").unwrap().body().to_owned();
        assert_eq!([body("/healthz"), body("/readyz")], ["unavailable\n"; 2]);
        metrics.update(&Event::Status(status(0, 0)));
        assert_eq!([body("/healthz"), body("/readyz")], ["ok\n"; 2]);
    }
}
