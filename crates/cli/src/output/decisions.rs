//! Text of the controllers' decisions, one line each.

use super::text::{duration, printable_text};
use bankfull::{BufferLimit, TuningDecision};

/// Formats a decision about the data streams.
pub(super) fn tuning_line(decision: &TuningDecision) -> String {
    let (at, controller) = (duration(decision.at), decision.controller.name());
    format!("tuning at {at}: {controller}: {}", decision_text(decision, &decision.state))
}

/// Formats the state, the values and the reason of a decision.
pub(crate) fn decision_text(decision: &TuningDecision, state: &str) -> String {
    let mut parts = Vec::new();
    if !state.is_empty() {
        parts.push(printable_text(state));
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
    let reason = printable_text(&decision.reason);
    if parts.is_empty() { reason } else { format!("{}: {reason}", parts.join(", ")) }
}

/// Formats a new limit of a receive buffer.
pub(super) fn buffer_line(limit: &BufferLimit) -> String {
    let (at, size) = (duration(limit.at), limit.size);
    let (buffer, reason) = (limit.buffer.name(), printable_text(&limit.reason));
    format!("tuning at {at}: rrda: {buffer} buffer {size}: {reason}")
}
