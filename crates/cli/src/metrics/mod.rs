//! Metrics over HTTP: the pages that a program offers to Prometheus and to health checks.
//!
//! Parts: the responder ([`http`]), the formats ([`exposition`]), and the metrics of a copy
//! ([`copy`]), of the daemon ([`daemon`]) and of the guard ([`guard`]).

mod copy;
mod daemon;
mod exposition;
mod guard;
mod http;

pub(crate) use copy::CopyEnd;
pub(crate) use daemon::{DaemonMetrics, MetricsSink};
pub(crate) use guard::GuardMetrics;

use crate::address;
use crate::flags::Listen;
use bankfull::{Error, ErrorKind};
use exposition::Format;
use http::{Pages, Response};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Path of the metrics, by Prometheus' convention.
const METRICS_PATH: &str = "/metrics";

/// Plain text in UTF-8.
const TEXT: &str = "text/plain; charset=utf-8";

/// Checks the state of a program.
pub(crate) type Check = Box<dyn Fn() -> bool + Send + Sync>;

/// Metrics and state of a program.
pub(crate) struct Exporter {
    registry: Registry,
    /// True while the program works.
    is_alive: Check,
    /// True while it does its task.
    is_ready: Check,
    /// Updates the metrics before they are read.
    update: Box<dyn Fn() + Send + Sync>,
}

impl Exporter {
    /// Creates an exporter of metrics that `register` adds under a prefix.
    pub(crate) fn new(
        prefix: &str,
        register: impl FnOnce(&mut Registry),
        [is_alive, is_ready]: [Check; 2],
    ) -> Self {
        let mut registry = Registry::with_prefix("bankfull");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of bankfull", version);
        register(registry.sub_registry_with_prefix(prefix));
        Self { registry, is_alive, is_ready, update: Box::new(|| {}) }
    }

    /// Updates the metrics by a function before they are read.
    fn with_update(self, update: impl Fn() + Send + Sync + 'static) -> Self {
        Self { update: Box::new(update), ..self }
    }

    /// Returns the metrics in the format that the client accepts.
    fn metrics(&self, accept: &str) -> Response {
        (self.update)();
        let format = Format::accepted(accept);
        match format.encode(&self.registry) {
            Ok(text) => Response::ok(format.content_type(), text),
            Err(_) => Response::new("500 Internal Server Error", TEXT, "no metrics\n"),
        }
    }
}

/// Raises a counter to a total that is known elsewhere; a smaller total changes nothing.
fn raise(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

/// Raises a counter to a total time; a shorter one changes nothing.
fn raise_seconds(counter: &Counter<f64, AtomicU64>, total: Duration) {
    counter.inc_by((total.as_secs_f64() - counter.get()).max(0.0));
}

/// Returns a number as the value of a gauge.
fn gauge_value(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a page about the state of a program.
fn state_page(is_good: bool) -> Response {
    match is_good {
        true => Response::ok(TEXT, "ok\n"),
        false => Response::new("503 Service Unavailable", TEXT, "unavailable\n"),
    }
}

impl Pages for Exporter {
    fn page(&self, path: &str, accept: &str) -> Option<Response> {
        match path {
            METRICS_PATH => Some(self.metrics(accept)),
            "/healthz" => Some(state_page((self.is_alive)())),
            "/readyz" => Some(state_page((self.is_ready)())),
            "/" => Some(Response::ok(TEXT, "bankfull: /metrics, /healthz, /readyz\n")),
            _ => None,
        }
    }
}

/// A listening socket for metrics.
#[derive(Debug)]
pub(crate) struct MetricsPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsPort {
    /// Binds an address.
    ///
    /// # Errors
    /// [`ErrorKind::Network`] if that is impossible.
    pub(crate) fn bind(listen: &Listen) -> Result<Self, Error> {
        let address = address::resolve(listen)?;
        let failed = |error: io::Error| {
            let text = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "the address is in use (choose another port with --metrics)".to_owned()
                }
                io::ErrorKind::PermissionDenied => {
                    "permission denied (ports below 1024 need root)".to_owned()
                }
                _ => error.to_string(),
            };
            Error::new(ErrorKind::Network, format!("cannot offer metrics on {address}: {text}"))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Address of the socket.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Responds to requests in other threads, until the process ends.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] if no thread can be started.
    pub(crate) fn serve(self, exporter: Exporter) -> Result<(), Error> {
        http::start(self.listener, Arc::new(exporter)).map_err(|error| Error::thread_start(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exporter(is_alive: bool) -> Exporter {
        Exporter::new("x", |_| {}, [Box::new(move || is_alive), Box::new(|| true)])
    }

    #[test]
    fn pages_show_metrics_and_state() {
        let page = |path: &str| exporter(false).page(path, "");
        assert_eq!(page("/readyz"), Some(Response::ok(TEXT, "ok\n")));
        let down = Response::new("503 Service Unavailable", TEXT, "unavailable\n");
        assert_eq!(page("/healthz"), Some(down));
        assert!(page("/").is_some());
        assert_eq!(page("/metrics/"), None);
        let metrics = exporter(true).metrics("");
        let version = env!("CARGO_PKG_VERSION");
        let line = format!("bankfull_build_info{{version=\"{version}\"}} 1\n");
        assert!(metrics.body().ends_with(&line), "{metrics:?}");
    }

    #[test]
    fn port_in_use_has_a_way_out() {
        let listen = |port| Listen { host: "127.0.0.1".to_owned(), port };
        let first = MetricsPort::bind(&listen(0)).unwrap();
        let error = MetricsPort::bind(&listen(first.address().port())).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "cannot offer metrics on {}: the address is in use (choose another port with \
                 --metrics)",
                first.address()
            )
        );
    }
}
