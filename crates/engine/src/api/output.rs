//! The open file that a transfer writes one file to, instead of a destination.

use crate::base::error::{Error, ErrorKind};
use crate::base::event::Summary;
use crate::base::location::Location;
use crate::file_io::ordered_output::OrderedOutput;
use crate::model::metadata::Metadata;
use crate::model::options::{DirectIo, Fsync};
use crate::model::transfer_options::TransferOptions;
use bankfull_proto::wire::control::ComparisonRules;
use std::fs;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Random bytes in the name of a spool directory. (chosen: no two processes choose the same)
const NAME_BYTES: usize = 8;

/// Name of the file in the spool directory, for messages.
const FILE_NAME: &str = "output";

/// Directory of the part file of an output, removed at the end.
#[derive(Debug)]
pub(super) struct Spool(PathBuf);

impl Spool {
    /// Creates a directory for this user alone.
    fn create(above: &Path) -> Result<Self, Error> {
        let mut name = [0; NAME_BYTES];
        let path = |name: &[u8]| {
            let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            above.join(format!("bankfull-output-{digits}"))
        };
        let create = |name: &mut [u8]| -> io::Result<PathBuf> {
            bankfull_sys::random(name)?;
            DirBuilder::new().mode(0o700).create(path(name))?;
            Ok(path(name))
        };
        create(&mut name).map(Self).map_err(|e| {
            let text = format!(
                "cannot create a directory in {}, where blocks wait for the output (see TMPDIR)",
                above.display()
            );
            Error::local(text, &e)
        })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sets the options of a transfer to an output; returns the directory of its part file.
///
/// # Errors
/// [`ErrorKind::Usage`] for options without meaning; [`ErrorKind::Local`] without a directory.
pub(super) fn prepare(
    options: &mut TransferOptions,
    output: &OrderedOutput,
) -> Result<Spool, Error> {
    if let Some(what) = first_unused(options) {
        let text = format!("{what} cannot be used with the destination -: leave it out");
        return Err(Error::new(ErrorKind::Usage, text));
    }
    let spool = Spool::create(&output.spool)?;
    options.destination = Location::Local(spool.0.join(FILE_NAME));
    let rules = &mut options.rules;
    // A symlink is followed for its content; the part file is temporary, so nothing is flushed.
    rules.walk.copy_links = true;
    (rules.fsync, rules.metadata) = (Fsync::None, Metadata::default());
    if options.overrides.direct == DirectIo::Auto {
        options.overrides.direct = DirectIo::Off;
    }
    Ok(spool)
}

/// Returns the first option that has no meaning for an output.
fn first_unused(options: &TransferOptions) -> Option<&'static str> {
    let rules = &options.rules;
    let unused = [
        (options.sources.len() != 1, "a second source"),
        (options.dry_run, "--dry-run"),
        (rules.delete.is_some(), "--delete"),
        (rules.earlier.backup.is_some(), "--backup"),
        (rules.earlier.link_dest.is_some(), "--link-dest"),
        (rules.removes_sources, "--remove-source-files"),
        (rules.list.is_some(), "--files-from"),
        (rules.walk.relative, "--relative"),
        (rules.trust_journal, "--trust-journal"),
        (rules.comparison != ComparisonRules::default(), "a comparison with the destination"),
    ];
    unused.into_iter().find(|(is_set, _)| *is_set).map(|(_, what)| what)
}

/// Checks at the end that the whole file was written.
///
/// # Errors
/// [`ErrorKind::Source`] if no content arrived, and nothing else failed.
pub(super) fn check_written(output: &OrderedOutput, summary: &Summary) -> Result<(), Error> {
    if summary.failed_files > 0 || output.is_complete() {
        return Ok(());
    }
    let text = "nothing was written to the output: a filter excludes the source, or it is no file";
    Err(Error::new(ErrorKind::Source, text))
}
