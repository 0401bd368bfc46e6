//! Result of a probe as text: figures first, then their interpretation.

use super::text::{count, grouped};
use bankfull::{ProbeResult, Rate};
use std::time::Duration;

/// Returns the figures with their names.
pub(crate) fn figures(result: &ProbeResult) -> Vec<(&'static str, String)> {
    let used = count(result.summary.streams.into(), "stream", "streams");
    let mut figures = vec![
        ("goodput", result.rate.to_string()),
        ("capacity", result.capacity.map_or_else(unknown, |rate: Rate| rate.to_string())),
        ("RTT", rtt(result)),
        ("probes", format!("{}, {} lost", grouped(result.probes), grouped(result.probes_lost))),
        ("retransmits", format!("{}, {used}", grouped(result.retransmits))),
    ];
    if let Some(window) = result.window.filter(|_| result.capacity.is_some()) {
        let streams = count(result.streams.into(), "stream", "streams");
        figures.push(("needed", format!("window {window}, {streams}")));
    }
    figures
}

/// Formats the lines.
pub(super) fn lines(result: &ProbeResult) -> Vec<String> {
    let figures = figures(result).into_iter();
    let mut lines: Vec<_> = figures.map(|(name, value)| format!("{name:<14}{value}")).collect();
    lines.push(String::new());
    lines.extend(result.messages.iter().map(|message| format!("- {message}")));
    lines
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn rtt(result: &ProbeResult) -> String {
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    match (result.rtt_min, result.rtt_mean, result.rtt_p99) {
        (Some(min), Some(mean), Some(p99)) => {
            format!("min {}, mean {}, p99 {}", ms(min), ms(mean), ms(p99))
        }
        _ => unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_figure_is_unknown() {
        let lines = lines(&ProbeResult::default());
        assert_eq!(lines[1], "capacity      unknown");
        assert_eq!(lines[2], "RTT           unknown");
    }
}
