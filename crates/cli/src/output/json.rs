//! JSON lines: one object per event on standard output, written at once. `docs/cli.md` documents
//! the schema; [`SCHEMA`] is its version. Errors are also written to standard error, as text.

use super::progress::{Rates, average};
use super::quiet::source_failed_line;
use super::sources::Sources;
use super::text::{printable_json, printable_text};
use super::{Beginning, Ending, Output, Render, SCHEMA, Serving, listing};
use crate::exit::Exit;
use bankfull::{
    Error, Event, GatherSummary, ItemizedChange, ListedEntry, Outcome, ProbeResult, Progress, Rate,
    Round, Served, Summary,
};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Interval between progress lines. (chosen: enough for a program)
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Output with `--json`.
pub(super) struct Json {
    output: Output,
    completed: bool,
    rates: Rates,
    progress_due: Duration,
    /// Sources of a gathering.
    sources: Sources,
}

impl Json {
    /// Creates the output; `completed` adds a line per completed file.
    pub(super) fn new(output: Output, completed: bool) -> Self {
        let sources = Sources::new(std::iter::empty());
        Self { output, completed, rates: Rates::new(), progress_due: Duration::ZERO, sources }
    }

    /// Adds the fields that identify a source.
    fn of_source(&self, line: Line, source: usize) -> Line {
        line.field("source_index", source).field("source", self.sources.name(source))
    }

    fn put(&mut self, line: Line) {
        self.output.data_line(&printable_json(&line.end()));
    }
}

impl Render for Json {
    fn begin(&mut self, beginning: &Beginning) {
        if let Beginning::Gather { sources, .. } = beginning {
            self.sources = Sources::new(sources.iter().map(|s| s.to_string_lossy().into_owned()));
        }
        self.put(match beginning {
            Beginning::Copy { sources, destination, dry_run }
            | Beginning::Gather { sources, destination, dry_run } => {
                let sources: Vec<_> = sources.iter().map(|s| s.to_string_lossy()).collect();
                Line::new("start")
                    .field("schema", SCHEMA)
                    .field("version", env!("CARGO_PKG_VERSION"))
                    .field("sources", sources)
                    .field("destination", destination.to_string_lossy())
                    .field("dry_run", *dry_run)
            }
            Beginning::Probe { host, reverse, time } => Line::new("start")
                .field("schema", SCHEMA)
                .field("version", env!("CARGO_PKG_VERSION"))
                .field("host", host.to_string_lossy())
                .field("reverse", *reverse)
                .field("time_seconds", seconds(*time)),
            Beginning::List { place } => Line::new("start")
                .field("schema", SCHEMA)
                .field("version", env!("CARGO_PKG_VERSION"))
                .field("place", place.to_string_lossy()),
            Beginning::Serve(serving) => listening(serving),
        });
        if let Beginning::Serve(serving) = beginning {
            let warning =
                |message: &String| Line::new("warning").field("message", message.as_str());
            serving.warnings.iter().for_each(|message| self.put(warning(message)));
        }
    }

    fn event(&mut self, event: &Event) {
        if let Some(line) = event_line(event) {
            self.put(line);
        }
    }

    fn tick(&mut self, progress: &Progress, now: Duration) {
        self.rates.observe(progress, now);
        if now >= self.progress_due {
            self.progress_due = now + PROGRESS_INTERVAL;
            self.put(progress_line(progress, &self.rates));
        }
    }

    fn source_event(&mut self, source: usize, event: &Event) {
        let Some(line) = event_line(event) else { return };
        self.put(match event {
            // Its `source` field is the operand.
            Event::Destination { .. } => line.field("source_index", source),
            _ => self.of_source(line, source),
        });
    }

    fn source_done(&mut self, source: usize, result: &Result<Summary, Error>) {
        self.sources.ended(source, result);
        if let Some(line) = source_failed_line(&printable_text(self.sources.name(source)), result) {
            self.output.message(&line);
        }
        self.put(result_fields(self.of_source(Line::new("source_done"), source), result));
    }

    fn round(&mut self, round: &Round) {
        self.put(
            Line::new("round")
                .field("number", round.number)
                .field("bytes", round.bytes.0)
                .field("seconds", seconds(round.elapsed))
                .field("sources_left", round.sources_left),
        );
    }

    fn tick_sources(&mut self, sources: &[Option<Progress>], now: Duration) {
        let total = self.sources.observe(sources, now);
        if self.sources.count() == 0 || now < self.progress_due {
            return;
        }
        self.progress_due = now + PROGRESS_INTERVAL;
        let slowest = self.sources.slowest(now).map(|(number, rate)| {
            json!({
                "source_index": number,
                "source": self.sources.name(number),
                "rate_bps": rate.bits_per_sec(),
            })
        });
        self.put(
            progress_line(&total, &self.sources.rates)
                .field("sources_done", self.sources.done)
                .field("sources_failed", self.sources.failed)
                .field("sources_total", self.sources.count())
                .field("slowest", slowest),
        );
    }

    fn stopping(&mut self) {}

    fn end(&mut self, ending: &Ending<'_>) {
        let exit = ending.exit();
        self.put(match ending {
            Ending::Copied(summary) => {
                summary_fields(Line::new("summary"), summary).field("exit_code", exit.code())
            }
            Ending::Gathered(done) => {
                gathered_line(done, &self.sources).field("exit_code", exit.code())
            }
            Ending::Probed(result) => probe_result_line(result).field("exit_code", exit.code()),
            Ending::Stopped => Line::new("stopped"),
            Ending::Failed(error) => error_line(exit, &error.to_string()),
        });
        if let Ending::Failed(error) = ending {
            self.output.error(&error.to_string());
        }
    }

    fn wants_completed(&self) -> bool {
        self.completed
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

/// Formats an event; `None` for progress, which has its own interval, and for unknown events.
fn event_line(event: &Event) -> Option<Line> {
    Some(match event {
        Event::Connected { route, software, encrypted, at } => Line::new("connected")
            .field("at_seconds", seconds(*at))
            .field("route", route.name())
            .field("software", software.as_str())
            .field("encrypted", *encrypted),
        Event::Destination { source, destination } => {
            Line::new("destination").path("source", source).path("destination", destination)
        }
        Event::Completed { path, outcome, bytes, blake3 } => Line::new("file")
            .path("path", path)
            .field("outcome", outcome_name(*outcome))
            .field("bytes", bytes.0)
            .field("blake3", blake3.clone()),
        Event::Listed(entry) => listed_line(entry),
        Event::Changed(change) => change_fields(change),
        Event::FileFailed { path, message, cause, vanished } => Line::new("file_failed")
            .path("path", path)
            .field("message", message.as_str())
            .field("cause", *cause)
            .field("vanished", *vanished),
        Event::Tuning(decision) => Line::new("tuning")
            .field("at_seconds", seconds(decision.at))
            .field("controller", decision.controller.name())
            .field("state", decision.state.as_str())
            .field("window_bytes", decision.window.map(|window| window.0))
            .field("pacing_bps", decision.pacing.map(Rate::bits_per_sec))
            .field("streams", decision.streams)
            .field("reason", decision.reason.as_str()),
        Event::BufferLimit(limit) => Line::new("buffer_limit")
            .field("at_seconds", seconds(limit.at))
            .field("buffer", limit.buffer.name())
            .field("size_bytes", limit.size.0)
            .field("reason", limit.reason.as_str()),
        Event::Deploying { software, host } => {
            Line::new("deploying").field("software", software.as_str()).field("host", host.as_str())
        }
        Event::Warning { message } => Line::new("warning").field("message", message.as_str()),
        Event::Reconnecting { message, pause, left } => Line::new("reconnecting")
            .field("message", message.as_str())
            .field("pause_seconds", seconds(*pause))
            .field("seconds_left", seconds(*left)),
        Event::ClientConnected { peer } => {
            Line::new("client_connected").field("peer", peer.as_str())
        }
        Event::ClientDone { peer, result, .. } => {
            let line = Line::new("client_done").field("peer", peer.as_str());
            match result {
                Ok(summary) => summary_fields(line.field("ok", true), summary),
                Err(error) => line.field("ok", false).field("message", error.to_string()),
            }
        }
        _ => return None,
    })
}

fn listed_line(entry: &ListedEntry) -> Line {
    let since = entry.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Line::new("entry")
        .path("path", &entry.path)
        .field("kind", listing::kind_name(entry.kind))
        .field("mode", format!("{:04o}", entry.mode))
        .field("bytes", entry.bytes)
        .field("modified", since.map(|since| since.as_secs()))
        .field("owner", entry.owner.to_string_lossy())
        .field("group", entry.group.to_string_lossy())
        .field("target", entry.target.as_ref().map(|target| target.to_string_lossy()))
}

fn change_fields(change: &ItemizedChange) -> Line {
    let line = Line::new("change")
        .field("columns", change.columns.as_str())
        .path("path", &change.path)
        .field("is_dir", change.is_dir);
    let line = match &change.target {
        Some(target) => line.path("target", target),
        None => line,
    };
    match &change.first_name {
        Some(first) => line.path("first_name", first),
        None => line,
    }
}

fn probe_result_line(result: &ProbeResult) -> Line {
    Line::new("probe_result")
        .field("rate_bps", result.rate.bits_per_sec())
        .field("capacity_bps", result.capacity.map(Rate::bits_per_sec))
        .field("rtt_min_seconds", result.rtt_min.map(precise_seconds))
        .field("rtt_mean_seconds", result.rtt_mean.map(precise_seconds))
        .field("rtt_p99_seconds", result.rtt_p99.map(precise_seconds))
        .field("probes", result.probes)
        .field("probes_lost", result.probes_lost)
        .field("retransmits", result.retransmits)
        .field("window_bytes", result.window.map(|window| window.0))
        .field("window_max_bytes", result.window_max.map(|window| window.0))
        .field("streams", result.streams)
        .field("streams_used", result.summary.streams)
        .field("seconds", seconds(result.summary.elapsed))
        .field("limited_by", result.summary.limited_by)
        .field("messages", result.messages.clone())
}

fn listening(serving: &Serving) -> Line {
    let line = Line::new("listening")
        .field("address", serving.address.to_string())
        .field("port", serving.address.port())
        .field("fingerprint", serving.fingerprint.to_string());
    let line = match &serving.served {
        Served::Root(root) => line.path("root", root).field("shares", Value::Null),
        Served::Shares(shares) => {
            let shares: Map<String, Value> = shares
                .iter()
                .map(|share| (share.name.clone(), share.path.to_string_lossy().into()))
                .collect();
            line.field("root", Value::Null).field("shares", shares)
        }
    };
    line.field("max_connections", serving.limits.connections as u64)
        .field("max_unauthenticated", serving.limits.unauthenticated as u64)
        .field("max_open_files", serving.limits.open_files)
        .field("metrics", serving.metrics.map(|address| address.to_string()))
        .field("invite", serving.invite.as_deref())
        .field("schema", SCHEMA)
        .field("version", env!("CARGO_PKG_VERSION"))
}

fn progress_line(progress: &Progress, rates: &Rates) -> Line {
    Line::new("progress")
        .field("files_done", progress.files_done)
        .field("files_total", progress.files_total)
        .field("bytes_done", progress.bytes_done.0)
        .field("bytes_total", progress.bytes_total.0)
        .field("total_is_final", progress.total_is_final)
        .field("bytes_unchecked", progress.bytes_unchecked.0)
        .field("bytes_moved", progress.bytes_moved.0)
        .field("bytes_carried", progress.bytes_carried.0)
        .field("seconds", seconds(progress.elapsed))
        .field("rate_bps", rates.now().bits_per_sec())
        .field("average_bps", average(progress).bits_per_sec())
        .field("eta_seconds", rates.eta(progress).map(|eta| eta.as_secs()))
}

fn summary_fields(line: Line, summary: &Summary) -> Line {
    let limited_by = Some(summary.limited_by).filter(|name| !name.is_empty());
    line.field("files", summary.files)
        .field("dirs", summary.dirs)
        .field("symlinks", summary.symlinks)
        .field("bytes", summary.bytes.0)
        .field("wire_bytes", summary.wire_bytes.0)
        .field("seconds", seconds(summary.elapsed))
        .field("goodput_bps", summary.goodput().bits_per_sec())
        .field("streams", summary.streams)
        .field("retransmits", summary.retransmits)
        .field("resumed_bytes", summary.resumed_bytes.0)
        .field("damaged_bytes", summary.damaged_bytes.0)
        .field("dirs_created", summary.dirs_created)
        .field("hard_links_created", summary.hard_links_created)
        .field("special_files_created", summary.special_files_created)
        .field("linked_files", summary.linked_files)
        .field("skipped_files", summary.skipped_files)
        .field("skipped_bytes", summary.skipped_bytes.0)
        .field("left_out_files", summary.left_out_files)
        .field("left_out_bytes", summary.left_out_bytes.0)
        .field("would_copy_entries", summary.would_copy_entries)
        .field("would_copy_bytes", summary.would_copy_bytes.0)
        .field("deleted", summary.deleted)
        .field("failed_files", summary.failed_files)
        .field("vanished_files", summary.vanished_files)
        .field("hard_links", summary.hard_links)
        .field("special_files", summary.special_files)
        .field("special_files_skipped", summary.special_files_skipped)
        .field("limited_by", limited_by)
}

/// Adds the result of one of several sources.
fn result_fields(line: Line, result: &Result<Summary, Error>) -> Line {
    match result {
        Ok(summary) => summary_fields(line.field("ok", true), summary),
        Err(error) => line
            .field("ok", false)
            .field("kind", Exit::from(error.kind()).name())
            .field("message", error.to_string()),
    }
}

fn gathered_line(done: &GatherSummary, sources: &Sources) -> Line {
    let each = done.sources.iter().enumerate().map(|(number, (_, result))| match result {
        Ok(summary) => json!({
            "source": sources.name(number),
            "ok": true,
            "files": summary.files,
            "bytes": summary.bytes.0,
            "seconds": seconds(summary.elapsed),
            "failed_files": summary.failed_files,
        }),
        Err(error) => json!({
            "source": sources.name(number),
            "ok": false,
            "kind": Exit::from(error.kind()).name(),
            "message": error.to_string(),
        }),
    });
    let each: Vec<Value> = each.collect();
    summary_fields(Line::new("summary"), &done.total)
        .field("sources_total", done.sources.len())
        .field("sources_failed", done.failed().count())
        .field("sources", each)
}

fn error_line(exit: Exit, message: &str) -> Line {
    Line::new("error")
        .field("kind", exit.name())
        .field("message", message)
        .field("exit_code", exit.code())
}

/// Returns a short time in seconds, rounded to microseconds.
fn precise_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Returns a time in seconds, rounded to milliseconds.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Copied => "copied",
        Outcome::Unchanged => "unchanged",
        Outcome::LeftOut => "left-out",
        Outcome::WouldCopy => "would-copy",
        Outcome::Deleted => "deleted",
        Outcome::WouldDelete => "would-delete",
        _ => "other",
    }
}

/// One object; its fields keep their order, with `event` first.
struct Line(String);

impl Line {
    fn new(event: &str) -> Self {
        Self(format!("{{\"event\":{}", Value::from(event)))
    }

    fn field(mut self, key: &str, value: impl Into<Value>) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.0, ",{}:{}", Value::from(key), value.into());
        self
    }

    /// Adds a path as text, and in hexadecimal if it is not valid UTF-8.
    fn path(self, key: &str, path: &Path) -> Self {
        let line = self.field(key, path.to_string_lossy());
        if path.to_str().is_some() {
            return line;
        }
        let bytes = path.as_os_str().as_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        line.field(&format!("{key}_hex"), hex)
    }

    fn end(self) -> String {
        self.0 + "}"
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
