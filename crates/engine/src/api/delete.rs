//! [`Delete`]: rules for deleting at the destination.

use crate::base::error::{Error, ErrorKind};
use crate::base::location::Location;
use crate::model::transfer_options::ROOT_REFUSED;
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
