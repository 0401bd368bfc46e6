//! Reports of the receiver for people.

use crate::base::error::Error;
use crate::base::event::{Event, Outcome};
use crate::file_io::roots::SendRules;
use crate::stats::changes::event_of;
use crate::stats::session_stats::SessionStats;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Cause, Change, Failure, PathBytes};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Records entries that the receiver deleted.
pub(super) fn on_deleted(
    rules: &SendRules,
    stats: &SessionStats<'_>,
    paths: Vec<PathBytes>,
) -> Result<(), Error> {
    if rules.delete.is_none() {
        return Err(WireError::Unexpected("deletions that were not requested").into());
    }
    let outcome = match rules.dry_run {
        true => Outcome::WouldDelete,
        false => Outcome::Deleted,
    };
    for path in paths {
        let path = PathBuf::from(OsString::from_vec(path.0));
        stats.file_completed(|| path, outcome, 0, None);
    }
    Ok(())
}

/// Passes changes at the destination to the user.
pub(super) fn on_changes(
    rules: &SendRules,
    stats: &SessionStats<'_>,
    changes: Vec<Change>,
) -> Result<(), Error> {
    if !rules.itemizes {
        return Err(WireError::Unexpected("changes that were not requested").into());
    }
    let events = changes.into_iter().map(|change| Event::Changed(event_of(change, true)));
    events.for_each(|event| stats.event(event));
    Ok(())
}

/// Marks a failure as the receiver's, which concerns the destination.
pub(super) fn with_peer_prefix(failure: &Failure) -> Failure {
    match failure.cause() {
        Cause::Warning => failure.clone(),
        cause => Failure::new(cause, format!("the peer reported: {}", failure.text)),
    }
}
