//! Extended attributes of open files, and of entries that cannot be opened.
//!
//! Entries are addressed through their directory's descriptor in `/proc`, without following links:
//! dedicated system calls exist only from Linux 6.13 on.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::beneath::entry_name;
use crate::dir::Dir;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Largest value of an attribute, and largest list of names. (linux/limits.h, `XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`)
const MAX_BYTES: usize = 64 << 10;

/// Attempts to read a value that another process keeps changing. (chosen: never reached by chance)
const MAX_TRIES: u32 = 10;

/// File, directory, symbolic link or special file with attributes.
#[derive(Debug)]
pub struct XattrTarget<'t>(Reached<'t>);

#[derive(Debug)]
enum Reached<'t> {
    Open(BorrowedFd<'t>),
    Path(PathBuf),
}

impl<'t> XattrTarget<'t> {
    /// Returns the attributes of an open file or directory.
    pub fn open(file: &'t impl AsFd) -> Self {
        Self(Reached::Open(file.as_fd()))
    }

    /// Returns the attributes of the entry `name` of a directory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless it is the name of an entry.
    pub fn entry(dir: &Dir, name: &OsStr) -> io::Result<Self> {
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()));
        path.push(entry_name(name)?);
        Ok(Self(Reached::Path(path)))
    }

    /// Lists the names; empty where attributes are not supported.
    ///
    /// # Errors
    ///
    /// `NotFound`, or no `/proc`.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let read = |buffer: &mut Vec<u8>| match &self.0 {
            Reached::Open(fd) => rustix::fs::flistxattr(fd, buffer.as_mut_slice()),
            Reached::Path(path) => rustix::fs::llistxattr(path, buffer.as_mut_slice()),
        };
        match read_growing(read) {
            Err(e) if is_unsupported(&e) => Ok(Vec::new()),
            Err(e) => Err(e),
            Ok(list) => {
                let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
                Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
            }
        }
    }

    /// Returns the value of an attribute; `None` if there is none, or it is not supported.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` for some attributes of others.
    pub fn get(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        let read = |buffer: &mut Vec<u8>| match &self.0 {
            Reached::Open(fd) => rustix::fs::fgetxattr(fd, name, buffer.as_mut_slice()),
            Reached::Path(path) => rustix::fs::lgetxattr(path, name, buffer.as_mut_slice()),
        };
        match read_growing(read) {
            Ok(value) => Ok(Some(value)),
            Err(e) if is_unsupported(&e) || is_missing(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// True unless the file system keeps no attributes of a name's kind.
    #[must_use]
    pub fn may_keep(&self, name: &OsStr) -> bool {
        let mut nothing: [u8; 0] = [];
        let found = match &self.0 {
            Reached::Open(fd) => rustix::fs::fgetxattr(fd, name, &mut nothing[..]),
            Reached::Path(path) => rustix::fs::lgetxattr(path, name, &mut nothing[..]),
        };
        !found.is_err_and(|e| is_unsupported(&e.into()))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    ///
    /// `Unsupported`, `PermissionDenied`, `StorageFull`, or another error of the file system.
    pub fn set(&self, name: &OsStr, value: &[u8]) -> io::Result<()> {
        Ok(match &self.0 {
            Reached::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Reached::Path(path) => rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()),
        }?)
    }

    /// Removes an attribute; it need not exist.
    ///
    /// # Errors
    ///
    /// As for [`XattrTarget::set`].
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        let removed = match &self.0 {
            Reached::Open(fd) => rustix::fs::fremovexattr(fd, name),
            Reached::Path(path) => rustix::fs::lremovexattr(path, name),
        };
        match removed.map_err(io::Error::from) {
            Err(e) if !is_missing(&e) => Err(e),
            _ => Ok(()),
        }
    }
}

/// Reads with a small buffer, and with the largest one if that does not suffice.
fn read_growing(read: impl Fn(&mut Vec<u8>) -> Result<usize, Errno>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 512];
    for _ in 0..MAX_TRIES {
        match read(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => buffer.resize(MAX_BYTES, 0),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::RANGE.into())
}

fn is_unsupported(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    [Errno::OPNOTSUPP, Errno::NOSYS].into_iter().any(|e| errno == Some(e.raw_os_error()))
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NODATA.raw_os_error())
}

/// True if a file system does not keep attributes of this kind.
#[must_use]
pub fn is_xattr_unsupported(error: &io::Error) -> bool {
    // EINVAL: a mount without access control lists of POSIX.
    is_unsupported(error) || error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch;
    use std::fs::File;

    #[test]
    fn attributes_are_set_read_and_removed() {
        let (root, dir) = scratch();
        std::fs::write(root.path().join("f"), b"x").unwrap();
        let file = File::open(root.path().join("f")).unwrap();
        let (name, long) = (OsStr::new("user.long"), vec![7; 3000]);
        let open = XattrTarget::open(&file);
        let entry = XattrTarget::entry(&dir, OsStr::new("f")).unwrap();
        match open.set(name, &long) {
            // A temporary directory without attributes.
            Err(e) if is_xattr_unsupported(&e) => return,
            set => set.unwrap(),
        }
        entry.set(OsStr::new("user.a"), b"").unwrap();
        for target in [&open, &entry] {
            assert_eq!(target.get(name).unwrap().unwrap(), long);
            assert_eq!(target.get(OsStr::new("user.none")).unwrap(), None);
            assert_eq!(target.get(OsStr::new("user.a")).unwrap().unwrap(), b"");
            let names = target.names().unwrap();
            assert!(names.iter().any(|name| name == "user.a"), "{names:?}");
        }
        entry.remove(name).unwrap();
        entry.remove(name).unwrap();
        assert_eq!(open.get(name).unwrap(), None);
        // No file system has attributes of such a namespace.
        for target in [&open, &entry] {
            assert!(target.may_keep(name) && !target.may_keep(OsStr::new("none.a")));
        }
    }

    #[test]
    fn link_is_not_followed() {
        let (root, dir) = scratch();
        std::fs::write(root.path().join("f"), b"x").unwrap();
        std::os::unix::fs::symlink("f", root.path().join("link")).unwrap();
        let file = XattrTarget::entry(&dir, OsStr::new("f")).unwrap();
        if file.set(OsStr::new("user.a"), b"1").is_err() {
            return;
        }
        let link = XattrTarget::entry(&dir, OsStr::new("link")).unwrap();
        assert_eq!(link.get(OsStr::new("user.a")).unwrap_or(None), None);
        assert!(XattrTarget::entry(&dir, OsStr::new("../x")).is_err());
    }
}
