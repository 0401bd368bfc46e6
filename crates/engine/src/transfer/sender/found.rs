//! Entries as the rules of the walk see them: symlinks that are followed are their referents.

use crate::base::error::{failure, os_message};
use crate::file_io::links::{Referent, follow};
use crate::file_io::roots::SendRules;
use bankfull_proto::wire::control::{Cause, Failure};
use bankfull_sys::{Dir, FileKind, Stat};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;

/// Name and first bytes of the tag of a cache directory. (Cache Directory Tagging Specification)
pub(super) const CACHE_TAG: &str = "CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// An entry that was looked at.
pub(super) struct Found {
    pub(super) stat: Stat,
    /// Referent, if the entry is a symlink that is followed; `stat` is the referent's.
    pub(super) referent: Option<Referent>,
}

/// Failure to look at an entry.
pub(super) enum FindError {
    /// The entry itself cannot be read.
    Stat(io::Error),
    /// The entry is a symlink that cannot be followed.
    Link(Failure),
}

/// Looks at an entry of a directory with the path `above` in messages.
pub(super) fn find(
    rules: &SendRules,
    above: &Path,
    dir: &Dir,
    name: &OsStr,
) -> Result<Found, FindError> {
    let stat = dir.stat(name).map_err(FindError::Stat)?;
    if stat.kind != FileKind::Symlink || !rules.walk.follows_links() {
        return Ok(Found { stat, referent: None });
    }
    match follow(&rules.root, rules.root.path_to_open(above), dir, name) {
        Ok(found) if rules.walk.copy_links || found.stat.kind == FileKind::Dir => {
            Ok(Found { stat: found.stat, referent: Some(found) })
        }
        Err(e) if rules.walk.copy_links => Err(FindError::Link(link_failure(above, name, &e))),
        // A link to a file, or one that leads nowhere, is copied as it is.
        _ => Ok(Found { stat, referent: None }),
    }
}

fn link_failure(above: &Path, name: &OsStr, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "its target does not exist".to_owned(),
        io::ErrorKind::CrossesDevices => "it leads out of the served directory".to_owned(),
        _ => os_message(error),
    };
    let link = above.join(name);
    let text =
        format!("cannot follow the link {}: {why}: leave it out or repair it", link.display());
    Failure::new(Cause::Other, text)
}

/// Returns the failure of an entry that was found before; one that is gone by now has vanished.
pub(super) fn entry_failure(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Cause::SourceVanished, format!("{shown} vanished before it was read"))
        }
        _ => failure(format!("cannot read {shown}"), error),
    }
}

/// Returns the failure of a directory whose copy would never end.
///
/// `above` has device and inode of the directories that it is in, if links are followed.
pub(super) fn endless_failure(
    rules: &SendRules,
    mut above: impl Iterator<Item = (u64, u64)>,
    stat: &Stat,
    path: &Path,
) -> Option<Failure> {
    let identity = (stat.dev, stat.ino);
    let why = match rules.destination {
        Some(destination) if destination == identity => "the destination of this copy",
        _ if above.any(|dir| dir == identity) => "a directory above it",
        _ => return None,
    };
    let way = if rules.walk.follows_links() { "through symlinks " } else { "" };
    let text = format!("cannot copy {}: {way}it is {why}: leave it out", path.display());
    Some(Failure::new(Cause::Other, text))
}

/// True if a directory has the tag of a cache.
pub(super) fn is_cache(dir: &Dir) -> bool {
    let Ok(file) = dir.open_file(OsStr::new(CACHE_TAG)) else { return false };
    let mut start = Vec::new();
    let read = file.take(CACHE_SIGNATURE.len() as u64).read_to_end(&mut start);
    read.is_ok() && start == CACHE_SIGNATURE
}
