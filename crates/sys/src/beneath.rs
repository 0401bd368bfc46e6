//! Confined path resolution: opens a relative path that cannot leave its starting directory.
//!
//! The kernel's `openat2` resolves the path in one call without a race. If it is missing (old
//! kernel) or forbidden (seccomp filter), a walk opens one component at a time. The walk is
//! stricter: it follows no symbolic link and rejects `..`.
//!
//! Decides only where a path may lead; the caller handles the opened file.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::shortage::retry_opening;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Attempts at one resolution that concurrent renames disturb.
///
/// The kernel returns `EAGAIN` if any rename on the host overlaps a resolution that crosses `..`.
/// (chosen: so many collisions in a row are practically impossible)
const MAX_RENAME_RACES: usize = 64;

/// Path of the directory itself.
const CURRENT_DIR: &[u8] = b".";

/// Opens `rel` with `flags`, resolving it beneath `dir`.
///
/// An empty `rel` names `dir` itself. Symbolic links are followed while they stay beneath `dir`;
/// the last component only if `flags` lacks `NOFOLLOW`. The fallback follows none.
///
/// # Errors
///
/// `EXDEV` if `rel` is absolute or leads out of `dir`, `ELOOP` for a magic link of `/proc`.
pub(crate) fn open(dir: impl AsFd, rel: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let dir = dir.as_fd();
    match resolve_by_kernel(dir, rel, flags) {
        Err(Errno::NOSYS | Errno::PERM) => Ok(resolve_by_walk(dir, rel, flags)?),
        other => Ok(other?),
    }
}

/// Calls `openat2`, again while renames disturb it.
fn resolve_by_kernel(dir: BorrowedFd<'_>, rel: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if rel.is_empty() { CURRENT_DIR } else { rel };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let attempt = || {
        retry_opening(|| {
            rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
        })
    };
    for _ in 0..MAX_RENAME_RACES {
        match attempt() {
            Err(Errno::AGAIN) => {}
            done => return done,
        }
    }
    attempt()
}

/// Opens one component after the other, each in the directory just opened.
fn resolve_by_walk(dir: BorrowedFd<'_>, rel: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if rel.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let mut components: Vec<&[u8]> = rel
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != CURRENT_DIR)
        .collect();
    // A `..` would require the path walked so far, which a concurrent rename can invalidate.
    if components.contains(&b"..".as_slice()) {
        return Err(Errno::XDEV);
    }
    let last = components.pop().unwrap_or(CURRENT_DIR);
    let mut parent: Option<OwnedFd> = None;
    for component in components {
        let here = parent.as_ref().map_or(dir, AsFd::as_fd);
        parent = Some(open_component(here, component, OFlags::PATH | OFlags::DIRECTORY)?);
    }
    let here = parent.as_ref().map_or(dir, AsFd::as_fd);
    // "name/" requests a directory, as usual.
    let flags = if rel.ends_with(b"/") { flags | OFlags::DIRECTORY } else { flags };
    open_component(here, last, flags)
}

fn open_component(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_opening(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

/// Opens the entry `name` of `dir` itself, not through a symbolic link.
///
/// # Errors
///
/// `InvalidInput` if `name` is not the name of an entry; `ELOOP` or `ENOTDIR` for a symbolic link.
pub(crate) fn open_child(
    dir: impl AsFd,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let name = entry_name(name)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(retry_opening(|| rustix::fs::openat(&dir, name, flags, mode))?)
}

/// Checks that `name` is a single component.
///
/// A name with a `/`, `.` or `..` is a path, and could lead elsewhere.
///
/// # Errors
///
/// `InvalidInput` if it is not.
pub(crate) fn entry_name(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_encoded_bytes();
    let is_path = matches!(bytes, b"" | b"." | b"..") || bytes.iter().any(|&b| b == b'/' || b == 0);
    if is_path {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not the name of a directory entry",
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
