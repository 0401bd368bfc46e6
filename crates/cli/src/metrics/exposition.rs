//! Formats of metrics: OpenMetrics, and the text format of Prometheus 0.0.4, by what a client
//! accepts.

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::fmt;

/// Media type of OpenMetrics in the `Accept` field.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// Format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    /// Text format of Prometheus, which every client accepts.
    Text,
}

impl Format {
    /// Returns the format for the `Accept` field of a request; empty without one.
    pub(super) fn accepted(accept: &str) -> Self {
        let is_wanted = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let is_open_metrics =
                parts.next().is_some_and(|media| media.eq_ignore_ascii_case(OPEN_METRICS));
            is_open_metrics && !parts.any(|part| part == "q=0")
        };
        if accept.split(',').any(is_wanted) { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the value of the `Content-Type` field.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Encodes the metrics of a registry.
    pub(super) fn encode(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut encoded = String::new();
        text::encode(&mut encoded, registry)?;
        Ok(match self {
            Self::OpenMetrics => encoded,
            Self::Text => text_format(&encoded),
        })
    }
}

/// Converts OpenMetrics to the text format of Prometheus.
///
/// There, the name of a family includes the suffix of its samples (`_total`, `_info`), information
/// is a gauge, and units and the end are unknown.
fn text_format(open_metrics: &str) -> String {
    let families = |suffix: &str| -> BTreeSet<&str> {
        let types = open_metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.filter_map(|family| family.strip_suffix(suffix)).collect()
    };
    let (counters, infos) = (families(" counter"), families(" info"));
    let mut converted = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, keyword) = (words.next(), words.next());
        let (name, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match (mark, keyword) {
            (Some("#"), Some("UNIT" | "EOF")) => continue,
            (Some("#"), Some(keyword @ ("HELP" | "TYPE"))) => {
                let (suffix, rest) = match () {
                    () if counters.contains(name) => ("_total", rest),
                    () if infos.contains(name) && keyword == "TYPE" => ("_info", "gauge"),
                    () if infos.contains(name) => ("_info", rest),
                    () => ("", rest),
                };
                converted.push_str(&format!("# {keyword} {name}{suffix} {rest}"));
            }
            _ => converted.push_str(line),
        }
        converted.push('\n');
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Unit;

    #[test]
    fn format_is_the_one_the_client_accepts() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*";
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html, text/plain", Format::Text),
            ("application/openmetrics-text; q=0, */*", Format::Text),
            (prometheus, Format::OpenMetrics),
            ("text/plain, Application/OpenMetrics-Text", Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn text_format_names_families_as_their_samples() {
        let mut registry = Registry::with_prefix("b");
        let counter: Counter = Counter::default();
        counter.inc_by(3);
        registry.register_with_unit("received", "Payload received", Unit::Bytes, counter);
        registry.register("build", "Version", Info::new([("version", "1")]));
        let gauge: Gauge = Gauge::default();
        registry.register("connections", "Connections", gauge);
        assert_eq!(
            Format::OpenMetrics.encode(&registry).unwrap(),
            "# HELP b_received_bytes Payload received.\n\
             # TYPE b_received_bytes counter\n\
             # UNIT b_received_bytes bytes\n\
             b_received_bytes_total 3\n\
             # HELP b_build Version.\n\
             # TYPE b_build info\n\
             b_build_info{version=\"1\"} 1\n\
             # HELP b_connections Connections.\n\
             # TYPE b_connections gauge\n\
             b_connections 0\n\
             # EOF\n"
        );
        assert_eq!(
            Format::Text.encode(&registry).unwrap(),
            "# HELP b_received_bytes_total Payload received.\n\
             # TYPE b_received_bytes_total counter\n\
             b_received_bytes_total 3\n\
             # HELP b_build_info Version.\n\
             # TYPE b_build_info gauge\n\
             b_build_info{version=\"1\"} 1\n\
             # HELP b_connections Connections.\n\
             # TYPE b_connections gauge\n\
             b_connections 0\n"
        );
    }
}
