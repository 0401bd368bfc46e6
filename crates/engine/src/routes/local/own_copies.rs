//! Sources that are their own destination, and that a copy would destroy.

use crate::base::error::{Error, ErrorKind};
use crate::file_io::roots::SourceItem;
use crate::model::transfer_options::TransferOptions;
use bankfull_sys::{Dir, FileKind};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Refuses a copy that would remove or delete its only original.
///
/// The destination is a directory, and the new name of a single file there.
///
/// # Errors
/// [`ErrorKind::Usage`] names the source.
pub(super) fn refuse_loss(
    items: &[SourceItem],
    destination: (&Dir, Option<&OsStr>),
    options: &TransferOptions,
) -> Result<(), Error> {
    let usage = |text| Err(Error::new(ErrorKind::Usage, text));
    let own_copy = items.iter().find(|item| is_own_copy(item, destination));
    if let Some(item) = own_copy.filter(|_| options.rules.removes_sources) {
        let shown = item.operand.display();
        return usage(format!(
            "{shown} is its own copy: --remove-source-files would remove the only one"
        ));
    }
    if options.rules.delete.is_none() {
        return Ok(());
    }
    let path = options.destination.path();
    let cleaned: Vec<PathBuf> = items.iter().filter_map(|item| cleaned_dir(item, path)).collect();
    let is_deleted = |item: &&SourceItem| {
        let source = item.operand.canonicalize();
        source
            .is_ok_and(|source| cleaned.iter().any(|dir| source != *dir && source.starts_with(dir)))
    };
    match items.iter().find(is_deleted) {
        None => Ok(()),
        Some(item) => {
            let shown = item.operand.display();
            usage(format!(
                "{shown} is in the destination, where --delete would delete it: choose another one"
            ))
        }
    }
}

/// True if a source has the place of its copy.
fn is_own_copy(item: &SourceItem, (base, rename): (&Dir, Option<&OsStr>)) -> bool {
    let identity = |dir: &Dir| dir.stat_self().ok().map(|stat| (stat.dev, stat.ino));
    let is_same_dir = identity(&item.dir).is_some() && identity(&item.dir) == identity(base);
    if item.contents || item.names.is_some() {
        return is_same_dir;
    }
    let name = rename.unwrap_or(&item.name);
    match item.stat.kind {
        // Another way may lead to the same directory.
        FileKind::Dir => {
            let found = base.stat(name).ok().map(|stat| (stat.dev, stat.ino));
            found == Some((item.stat.dev, item.stat.ino))
        }
        _ => is_same_dir && item.name == name,
    }
}

/// Returns the directory in which a source has extraneous entries deleted.
fn cleaned_dir(item: &SourceItem, destination: &Path) -> Option<PathBuf> {
    let is_whole = item.contents || item.names.is_some();
    match item.stat.kind == FileKind::Dir {
        true if is_whole => destination.canonicalize().ok(),
        true => destination.join(&item.name).canonicalize().ok(),
        false => None,
    }
}
