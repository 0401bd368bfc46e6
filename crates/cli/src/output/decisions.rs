//! Text of the controllers' decisions, one line each.

use super::text::{duration, printable_text};
use bankfull::{BufferLimit, TuningDecision};

/// Formats a decision about the data streams.
pub(super) fn tuning_line(decision: &TuningDecision) -> String {
    let mut parts = Vec::new();
    if !decision.state.is_empty() {
        parts.push(printable_text(&decision.state));
    }
    if let Some(streams) = decision.streams {
        parts.push(super::text::count(streams.into(), "stream", "streams"));
    }
    if let Some(window) = decision.window {
        parts.push(format!("window {window}"));
    }
    if let Some(rate) = decision.pacing {
        parts.push(format!("pacing {rate}"));
    }
    let (at, controller) = (duration(decision.at), decision.controller.name());
    let reason = printable_text(&decision.reason);
    format!("tuning at {at}: {controller}: {}: {reason}", parts.join(", "))
}

/// Formats a new limit of a receive buffer.
pub(super) fn buffer_line(limit: &BufferLimit) -> String {
    let (at, size) = (duration(limit.at), limit.size);
    let (buffer, reason) = (limit.buffer.name(), printable_text(&limit.reason));
    format!("tuning at {at}: rrda: {buffer} buffer {size}: {reason}")
}
