//! Result of a probe as text: figures first, then their interpretation.

use super::text::{count, grouped};
use bankfull::{ProbeResult, Rate};
use std::time::Duration;

/// Formats the lines.
pub(super) fn lines(result: &ProbeResult) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<14}{value}"));
    line("goodput", result.rate.to_string());
    line("capacity", result.capacity.map_or_else(unknown, |rate: Rate| rate.to_string()));
    line("RTT", rtt(result));
    line("probes", format!("{}, {} lost", grouped(result.probes), grouped(result.probes_lost)));
    let used = count(result.summary.streams.into(), "stream", "streams");
    line("retransmits", format!("{}, {used}", grouped(result.retransmits)));
    if let Some(window) = result.window {
        let streams = count(result.streams.into(), "stream", "streams");
        line("needed", format!("window {window}, {streams}"));
    }
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
