//! What a probe found, for people: figures first, then what they mean.

use super::text::{count, grouped};
use bankfull::{ProbeResult, Rate};
use std::time::Duration;

/// The lines.
pub(super) fn lines(found: &ProbeResult) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<14}{value}"));
    line("rate", found.rate.to_string());
    line("capacity", found.capacity.map_or_else(unknown, |rate: Rate| rate.to_string()));
    line("round trip", round_trip(found));
    line("probes", format!("{}, {} lost", grouped(found.probes), grouped(found.probes_lost)));
    let used = count(found.summary.streams.into(), "connection", "connections");
    line("sent again", format!("{} segments, {used}", grouped(found.retransmits)));
    if let Some(window) = found.window {
        let streams = count(found.streams.into(), "connection", "connections");
        line("to fill it", format!("a window of {window}, {streams}"));
    }
    lines.push(String::new());
    lines.extend(found.messages.iter().map(|words| format!("- {words}")));
    lines
}

fn unknown() -> String {
    "not known".to_owned()
}

fn round_trip(found: &ProbeResult) -> String {
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    match (found.rtt_min, found.rtt_mean, found.rtt_p99) {
        (Some(least), Some(mean), Some(p99)) => {
            format!("{} at least, {} mean, {} p99", ms(least), ms(mean), ms(p99))
        }
        _ => unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_said_to_be_unknown() {
        let lines = lines(&ProbeResult::default());
        assert_eq!(lines[1], "capacity      not known");
        assert_eq!(lines[2], "round trip    not known");
    }
}
