//! Root that paths are resolved against: the whole host, or a served directory.

use crate::base::error::Error;
use crate::base::part_names::is_part_name;
use bankfull_proto::wire::control::{Cause, Failure};
use bankfull_sys::Dir;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Root that paths are resolved against.
#[derive(Debug, Clone)]
pub(crate) enum PathRoot {
    /// The whole host, from the working directory, with the user's permissions.
    Host,
    /// Only paths beneath this directory.
    Dir(Arc<Dir>),
}

impl PathRoot {
    /// Returns the normalized path; beneath a directory it must be relative and without `..`.
    ///
    /// Nowhere may it name a part file or journal: a copy would replace or publish another's.
    pub(super) fn validate(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        refuse_reserved_names(path)?;
        match self {
            Self::Host if path.is_empty() => Ok(b".".to_vec()),
            Self::Host => Ok(path.to_vec()),
            Self::Dir(_) => {
                let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
                let relative = &path[start..];
                if relative.split(|&b| b == b'/').any(|part| part == b"..") || path.contains(&0) {
                    let shown = String::from_utf8_lossy(path).into_owned();
                    let text = format!(
                        "the path {shown:?} is not allowed: use a path relative to the served \
                         directory, without '..'"
                    );
                    return Err(Failure::new(Cause::OutsideRoot, text).into());
                }
                Ok(relative.to_vec())
            }
        }
    }

    /// Opens a directory, whose path may have symlinks.
    pub(crate) fn open_dir(&self, path: &[u8]) -> io::Result<Dir> {
        match self {
            Self::Host if path.is_empty() => Dir::open(Path::new(".")),
            Self::Host => Dir::open(Path::new(OsStr::from_bytes(path))),
            Self::Dir(root) => {
                let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
                // Absolute paths begin at the root.
                let start = path.iter().position(|&b| b != b'/').unwrap_or(end);
                root.open_beneath(&path[start.min(end)..end])
            }
        }
    }

    /// Returns the path of a link's target, whose directory has the path `above`.
    ///
    /// # Errors
    /// `EXDEV` for an absolute target beneath a directory.
    pub(super) fn join_target(&self, above: &[u8], target: &[u8]) -> io::Result<Vec<u8>> {
        match (self, target.starts_with(b"/")) {
            (Self::Host, true) => Ok(target.to_vec()),
            (Self::Dir(_), true) => Err(io::ErrorKind::CrossesDevices.into()),
            (_, false) if above.is_empty() => Ok(target.to_vec()),
            (_, false) => Ok([above, b"/", target].concat()),
        }
    }

    /// Returns the path by which a directory with this path in messages is opened.
    pub(crate) fn path_to_open<'p>(&self, shown: &'p Path) -> &'p [u8] {
        let path = shown.as_os_str().as_bytes();
        match self {
            Self::Host => path,
            Self::Dir(_) => {
                let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
                &path[start..]
            }
        }
    }

    /// Returns device and inode of the directory that is served.
    pub(super) fn served_root(&self) -> io::Result<Option<(u64, u64)>> {
        match self {
            Self::Host => Ok(None),
            Self::Dir(root) => root.stat_self().map(|stat| Some((stat.dev, stat.ino))),
        }
    }
}

/// Refuses a path with the name of a part file or journal in it.
pub(super) fn refuse_reserved_names(path: &[u8]) -> Result<(), Error> {
    let Some(name) = path.split(|&b| b == b'/').find(|name| is_part_name(name)) else {
        return Ok(());
    };
    let [path, name] = [path, name].map(String::from_utf8_lossy);
    let text = format!(
        "the path {path:?} is not allowed: names of the form {name} are reserved for unfinished \
         files: choose another name"
    );
    Err(Failure::new(Cause::Usage, text).into())
}
