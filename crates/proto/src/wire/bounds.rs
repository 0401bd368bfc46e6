//! The bounds of decoded messages: lengths, counts and names. Whether a message belongs where it
//! came is [`crate::session`]'s matter.

use super::WireError;
use super::control::{Entry, EntryKind, Failure, Message, Open, Source};
use crate::blocks::Run;
use crate::limits::{
    ASKS_MAX, CONGESTION_BYTES_MAX, ENGINE_BYTES_MAX, ENTRY_BATCH_COUNT_MAX, NAME_BYTES_MAX,
    PATH_BYTES_MAX, PROBE_MS_MAX, ROUND_TRIPS_MAX, RUNS_MAX, STREAMS_MAX, TEXT_BYTES_MAX,
    TRAIN_PACKETS_MAX,
};

/// Checks the fields of a message.
///
/// # Errors
/// [`WireError::OverLimit`], [`WireError::BadName`] and others that name the field.
pub(super) fn check(message: &Message) -> Result<(), WireError> {
    match message {
        Message::Hello(hello) => at_most("the software name", hello.software.len(), TEXT_BYTES_MAX),
        Message::Welcome(welcome) => {
            at_most("the software name", welcome.software.len(), TEXT_BYTES_MAX)?;
            at_most("the number of streams", welcome.streams_max as usize, STREAMS_MAX as usize)?;
            at_most("the number of addresses", welcome.data_hosts.len(), 16)
        }
        Message::Open(open) => check_open(open),
        Message::Error(failure) => check_failure(failure),
        Message::Opened(opened) => opened.sources.iter().try_for_each(check_source),
        Message::Entries(entries) => {
            at_most("a batch of entries", entries.len(), ENTRY_BATCH_COUNT_MAX)?;
            entries.iter().try_for_each(check_entry)
        }
        Message::Problem(problem) => check_failure(&problem.failure),
        Message::Wants(wants) => wants.iter().try_for_each(|want| {
            want.failure.as_ref().map_or(Ok(()), check_failure)?;
            check_runs(&want.have)
        }),
        Message::Have(runs) | Message::Holes(runs) => check_runs(&runs.runs),
        Message::Acks(acks) => acks.iter().try_for_each(|ack| check_runs(&ack.runs)),
        Message::Aborted(aborted) => check_failure(&aborted.failure),
        Message::Failed(failed) => check_failure(&failed.failure),
        Message::Trains(packets) => {
            at_most("the packets of a train", *packets as usize, TRAIN_PACKETS_MAX as usize)
        }
        Message::Asks(asks) => at_most("the number of asks", asks.len(), ASKS_MAX),
        Message::Course(course) => {
            at_most("the name of a state", course.state.len(), TEXT_BYTES_MAX)?;
            at_most("the round trips of a report", course.rtts_us.len(), ROUND_TRIPS_MAX)?;
            [&course.reason, &course.staging_reason]
                .into_iter()
                .flatten()
                .try_for_each(|reason| at_most("a reason", reason.len(), TEXT_BYTES_MAX))
        }
        _ => Ok(()),
    }
}

fn check_failure(failure: &Failure) -> Result<(), WireError> {
    at_most("the text of a failure", failure.text.len(), TEXT_BYTES_MAX)
}

/// Runs of any file at all: not empty, and no further than numbers reach.
fn check_runs(runs: &[Run]) -> Result<(), WireError> {
    at_most("a list of runs", runs.len(), RUNS_MAX)?;
    runs.iter().try_for_each(|run| run.within(u64::MAX).map(|_| ()))
}

fn check_open(open: &Open) -> Result<(), WireError> {
    for streams in open.streams_most.into_iter().chain([open.streams]) {
        at_most("the number of streams", streams as usize, STREAMS_MAX as usize)?;
    }
    let probe_ms = open.probe_ms.unwrap_or_default();
    at_most("the time of a probe", probe_ms as usize, PROBE_MS_MAX as usize)?;
    for path in &open.paths {
        at_most("a path", path.0.len(), PATH_BYTES_MAX)?;
    }
    open.congestion.as_deref().map_or(Ok(()), check_congestion)?;
    let engine = open.engine.as_deref().unwrap_or_default();
    at_most("the name of a block engine", engine.len(), ENGINE_BYTES_MAX)?;
    open.sources.iter().try_for_each(check_source)
}

fn check_source(source: &Source) -> Result<(), WireError> {
    if source.contents && source.name.is_empty() { Ok(()) } else { check_name(&source.name) }
}

fn check_entry(entry: &Entry) -> Result<(), WireError> {
    let is_root = entry.parent == 0 && entry.kind == EntryKind::Dir && entry.name.is_empty();
    if !is_root {
        check_name(&entry.name)?;
    }
    at_most("a symlink target", entry.target.len(), PATH_BYTES_MAX)?;
    if entry.mtime_nanos >= 1_000_000_000 {
        return Err(WireError::OverLimit { what: "nanoseconds", max: 999_999_999 });
    }
    if entry.target.contains(&0) {
        return Err(WireError::BadName(lossy(&entry.target)));
    }
    match (entry.kind, entry.block_bytes) {
        (EntryKind::File, 0) => at_most(
            "a packed file",
            usize::try_from(entry.size).unwrap_or(usize::MAX),
            crate::limits::PACKED_FILE_BYTES_MAX as usize,
        ),
        (EntryKind::File, block) => crate::blocks::Layout::new(entry.size, block).map(|_| ()),
        _ => Ok(()),
    }
}

/// Refuses what is no plain path component: this is what keeps a peer's tree beneath its root.
///
/// # Errors
/// [`WireError::BadName`].
pub fn check_name(name: &[u8]) -> Result<(), WireError> {
    let plain = !name.is_empty()
        && name != b"."
        && name != b".."
        && name.len() <= NAME_BYTES_MAX
        && !name.iter().any(|&b| b == b'/' || b == 0);
    if plain { Ok(()) } else { Err(WireError::BadName(lossy(name))) }
}

/// Refuses what cannot be the name of a congestion control.
///
/// # Errors
/// [`WireError::BadCongestion`].
pub fn check_congestion(name: &str) -> Result<(), WireError> {
    let is_fit = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    let fits = (1..=CONGESTION_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fit);
    if fits { Ok(()) } else { Err(WireError::BadCongestion(lossy(name.as_bytes()))) }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}

fn at_most(what: &'static str, value: usize, max: usize) -> Result<(), WireError> {
    if value > max { Err(WireError::OverLimit { what, max }) } else { Ok(()) }
}
