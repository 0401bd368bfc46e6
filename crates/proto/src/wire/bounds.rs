//! Checks that several messages share: lengths, counts, names.

use crate::blocks::Run;
use crate::error::WireError;
use crate::limits::{MAX_CONGESTION_NAME_BYTES, MAX_NAME_BYTES, MAX_RUNS};

/// Refuses a value over its limit; `what` names the field.
pub(super) fn at_most(what: &'static str, value: usize, max: usize) -> Result<(), WireError> {
    if value > max { Err(WireError::OverLimit { what, max }) } else { Ok(()) }
}

/// Refuses empty runs and runs past the largest block number. The size of the file is not known
/// here.
pub(super) fn check_runs(runs: &[Run]) -> Result<(), WireError> {
    at_most("a list of runs", runs.len(), MAX_RUNS)?;
    runs.iter().try_for_each(|run| run.within(u64::MAX).map(|_| ()))
}

/// Refuses a name that is not a plain path component. This confines a peer's tree to its root.
///
/// # Errors
/// [`WireError::BadName`].
pub fn check_name(name: &[u8]) -> Result<(), WireError> {
    let is_plain = !name.is_empty()
        && name != b"."
        && name != b".."
        && name.len() <= MAX_NAME_BYTES
        && !name.iter().any(|&b| b == b'/' || b == 0);
    if is_plain { Ok(()) } else { Err(WireError::BadName(printable(name))) }
}

/// Name in a list that stands for the source itself, with its contents.
pub const WHOLE_SOURCE: &[u8] = b"./";

/// Refuses a name of a list that has anything but plain components.
///
/// A slash at its end is allowed.
///
/// # Errors
/// [`WireError::BadName`].
pub fn check_listed(name: &[u8]) -> Result<(), WireError> {
    if name == WHOLE_SOURCE {
        return Ok(());
    }
    let bare = name.strip_suffix(b"/").unwrap_or(name);
    bare.split(|&byte| byte == b'/').try_for_each(check_name)
}

/// Refuses an invalid name of a congestion control algorithm.
///
/// # Errors
/// [`WireError::BadCongestion`].
pub fn check_congestion(name: &str) -> Result<(), WireError> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    let is_valid =
        (1..=MAX_CONGESTION_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed);
    if is_valid { Ok(()) } else { Err(WireError::BadCongestion(printable(name.as_bytes()))) }
}

/// Returns at most 300 bytes as text for an error message.
pub(super) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}
