//! [`Delete`]: rules for deleting at the destination.

use crate::base::error::{Error, ErrorKind};
use crate::base::location::Location;
use crate::model::options::Fsync;
use crate::model::transfer_options::{CopyRules, ROOT_REFUSED};
use bankfull_proto::wire::control::DeleteRules;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Deletes entries of the destination that the source does not have, in the copied directories.
///
/// That happens at the end, if everything else succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delete {
    /// Deletes what filter rules exclude, too, unless they protect it.
    pub excluded: bool,
    /// Deletes nothing if it would be more entries than this.
    pub max: Option<u64>,
    /// Deletes even if some entries failed.
    pub ignore_errors: bool,
    /// Deletes everything if the source is empty.
    pub empty_source: bool,
}

impl Delete {
    /// Returns the rules for the receiver.
    pub(crate) fn rules(self) -> DeleteRules {
        let wanted = |flag: bool| flag.then_some(true);
        DeleteRules {
            excluded: wanted(self.excluded),
            max: self.max,
            ignore_errors: wanted(self.ignore_errors),
            empty_source: wanted(self.empty_source),
        }
    }
}

/// Checks that the removal of the sources loses nothing.
///
/// # Errors
/// [`ErrorKind::Usage`] beside options that leave files out, delete, or flush less.
pub(crate) fn check_removal(rules: &CopyRules) -> Result<(), Error> {
    if !rules.removes_sources {
        return Ok(());
    }
    let usage = |text: &str| Err(Error::new(ErrorKind::Usage, text));
    if rules.comparison.leaves_out() || rules.comparison.size_only {
        return usage(
            "--remove-source-files would remove what --update, --existing, --ignore-existing or \
             --size-only leaves out: leave out one of them",
        );
    }
    if rules.delete.is_some() {
        return usage(
            "--remove-source-files with --delete: a second run would delete what the first one \
             has moved: leave out one of them",
        );
    }
    if rules.fsync != Fsync::End {
        return usage(
            "--remove-source-files removes the sources after the flush at the end: leave out \
             --fsync",
        );
    }
    Ok(())
}

/// Refuses to delete in the root of this host.
pub(crate) fn refuse_root(destination: &Location) -> Result<(), Error> {
    let Location::Local(path) = destination else { return Ok(()) };
    let identity = |path: &std::path::Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let own = identity(path);
    match own.is_some() && own == identity("/".as_ref()) {
        true => Err(Error::new(ErrorKind::Usage, ROOT_REFUSED)),
        false => Ok(()),
    }
}
