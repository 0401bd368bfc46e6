//! Referents of symlinks that are followed.
//!
//! On a host, a link leads wherever the user may read; in a daemon, only beneath its root.

use super::root::{PathRoot, refuse_reserved_names};
use bankfull_proto::sources::split_path;
use bankfull_sys::{Dir, FileKind, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Maximum number of links in a chain before it is an error. (path_resolution(7): 40)
const MAX_LINKS: usize = 40;

/// A directory that is opened by a path, not from its parent in the copy.
#[derive(Debug, Clone)]
pub(crate) struct LinkedDir {
    root: PathRoot,
    path: Vec<u8>,
}

impl LinkedDir {
    /// Returns the directory of a path beneath a root.
    pub(crate) fn new(root: &PathRoot, path: Vec<u8>) -> Self {
        Self { root: root.clone(), path }
    }

    /// Opens the directory.
    pub(crate) fn open(&self) -> io::Result<Dir> {
        self.root.open_dir(&self.path)
    }
}

/// Referent of a symlink, which is no symlink itself.
#[derive(Debug, Clone)]
pub(crate) struct Referent {
    /// Its directory; the referent itself if that is a directory.
    pub(crate) dir: LinkedDir,
    /// Name in the directory; empty for a directory.
    pub(crate) name: OsString,
    pub(crate) stat: Stat,
}

/// True for a link to an open file of a process: a pipe, a socket, or standard input.
///
/// The text of such a link names no file. (proc_pid_fd(5))
pub(crate) fn is_open_file(dir: &Dir, name: &OsStr) -> bool {
    let Ok(target) = dir.read_link(name) else { return false };
    let target = target.as_bytes();
    let is_unnamed = || [&b"pipe:["[..], b"socket:["].iter().any(|text| target.starts_with(text));
    target.starts_with(b"/proc/self/fd/") || (is_unnamed() && dir.is_virtual())
}

/// Follows the symlink `name` of a directory with the path `above`.
///
/// # Errors
/// `EXDEV` for a link out of a daemon's root, `ELOOP` for too many links, and those of opening.
pub(crate) fn follow(
    root: &PathRoot,
    above: &[u8],
    dir: &Dir,
    name: &OsStr,
) -> io::Result<Referent> {
    let mut above = above.to_vec();
    let mut target = dir.read_link(name)?.as_bytes().to_vec();
    for _ in 0..MAX_LINKS {
        let path = root.join_target(&above, &target)?;
        refuse_reserved_names(&path).map_err(io::Error::other)?;
        let parts = split_path(&path);
        let opened = match parts.name {
            Some(name) if !parts.must_be_dir => {
                let dir = Arc::new(root.open_dir(parts.dir)?);
                let stat = dir.stat(OsStr::from_bytes(name))?;
                Some((dir, OsStr::from_bytes(name).to_owned(), stat))
            }
            _ => None,
        };
        match opened {
            Some((dir, name, stat)) if stat.kind == FileKind::Symlink => {
                target = dir.read_link(&name)?.as_bytes().to_vec();
                above = parts.dir.to_vec();
            }
            Some((_, name, stat)) if stat.kind != FileKind::Dir => {
                return Ok(Referent { dir: LinkedDir::new(root, parts.dir.to_vec()), name, stat });
            }
            _ => {
                let stat = root.open_dir(&path)?.stat_self()?;
                return Ok(Referent {
                    dir: LinkedDir::new(root, path),
                    name: OsString::new(),
                    stat,
                });
            }
        }
    }
    Err(io::Error::from_raw_os_error(LOOP))
}

/// ELOOP. (errno(3), Linux)
pub(crate) const LOOP: i32 = 40;
