//! The open file that a transfer sends instead of a source.

use super::reconnect::without_hint;
use crate::base::error::{Error, ErrorKind};
use crate::file_io::spooled_input::SpooledInput;
use crate::model::transfer_options::TransferOptions;
use std::fs::File;
use std::sync::Arc;

/// Prepares an open file to be read.
///
/// # Errors
/// [`ErrorKind::Local`] for a shortage.
pub(super) fn open(file: File) -> Result<Arc<SpooledInput>, Error> {
    let input = SpooledInput::new(file).map(Arc::new);
    input.map_err(|e| Error::local("cannot prepare the memory for the input", &e))
}

/// Checks the options of a transfer that sends an input.
///
/// # Errors
/// [`ErrorKind::Usage`] for options without meaning.
pub(super) fn check(options: &TransferOptions, has_output: bool) -> Result<(), Error> {
    let rules = &options.rules;
    let unused = [
        (options.sources.len() != 1, "a second source"),
        (has_output, "the destination -"),
        (options.dry_run, "--dry-run"),
        (rules.delete.is_some(), "--delete"),
        (rules.removes_sources, "--remove-source-files"),
        (rules.list.is_some(), "--files-from"),
        (rules.walk.relative, "--relative"),
    ];
    match unused.into_iter().find(|(is_set, _)| *is_set) {
        None => Ok(()),
        Some((_, what)) => {
            let text = format!("{what} cannot be used with the source -: leave it out");
            Err(Error::new(ErrorKind::Usage, text))
        }
    }
}

/// Replaces the loss of a connection after which the input cannot be sent again.
pub(super) fn explain_loss(input: Option<&SpooledInput>, error: Error) -> Error {
    let is_lost = error.is_connection_loss() || error.is_end_of_server();
    if !is_lost || input.is_none_or(SpooledInput::can_restart) {
        return error;
    }
    let text = without_hint(&error);
    let text = format!("{text}; the input cannot be read again: rerun the program that writes it");
    Error::new(error.kind(), text)
}
