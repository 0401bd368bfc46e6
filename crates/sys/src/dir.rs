//! Open directories, and operations on their entries.
//!
//! After the first open, no path is resolved from the root of the filesystem: an entry is named
//! within an open directory, so a concurrent rename or symbolic link cannot redirect an operation.
//! Functions that take a `name` reject anything but the name of an entry (`InvalidInput`) and never
//! follow a symbolic link; functions that take a `rel` path follow links only while they stay
//! beneath the directory.
//!
//! Does not recurse, sort, or decide how to treat an entry.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::shortage::retry_opening;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::fs::{Gid, Uid};
use rustix::io::{Errno, retry_on_intr};

use crate::beneath::{self, entry_name, open_child};
use crate::stat::{FileKind, MODE_BITS, SpecialFile, Stat, Timestamp, stat_file};

/// Flag of a directory that ignores case. (linux/fs.h)
const FS_CASEFOLD_FL: u32 = 0x4000_0000;

/// Types of file systems with case-sensitive names, except in flagged directories.
/// (linux/magic.h: ext2 to ext4, xfs, btrfs, tmpfs, ramfs, overlayfs, f2fs; bcachefs from its
/// source)
const CASE_SENSITIVE_FILESYSTEMS: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0xca45_1a4e,
];

/// Types of virtual file systems, whose files have a size of zero or one page.
/// (linux/magic.h: proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, selinuxfs, bpf,
/// pstore, resctrl, binfmt_misc; configfs from its source)
const VIRTUAL_FILESYSTEMS: [u32; 13] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xf97c_ff8c,
    0xcafe_4a11,
    0x6165_676c,
    0x0765_5821,
    0x4249_4e4d,
    0x6265_6570,
];

/// Flags of every [`Dir`]: readable, so that it can be listed and synced.
const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Flags for a file that may not be regular.
///
/// A FIFO without a writer must not block the open, and a terminal must not become the controlling
/// one.
const PROBE_FLAGS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name, in bytes of the filesystem: not necessarily UTF-8, never with a `/`.
    pub name: OsString,
    /// File type, if the filesystem reports it in listings; otherwise use [`Dir::stat`].
    pub kind: Option<FileKind>,
}

/// Open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
}

/// Reader of a directory's entries.
#[derive(Debug)]
pub struct EntryReader(rustix::fs::Dir);

impl EntryReader {
    /// Returns the next entries, at most `max`, without `.` and `..`; fewer only at the end.
    ///
    /// # Errors
    ///
    /// The first error of reading.
    pub fn next_chunk(&mut self, max: usize) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        while entries.len() < max {
            let Some(entry) = self.0.next() else { break };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push(Entry {
                    name: OsStr::from_bytes(name).to_owned(),
                    kind: FileKind::from_entry_type(entry.file_type()),
                });
            }
        }
        Ok(entries)
    }
}

impl Dir {
    /// Opens the directory at `path`, following symbolic links, as it is the user's own path.
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotADirectory`, `PermissionDenied`, or any other error of the kernel.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = retry_opening(|| rustix::fs::openat(CWD, path, DIR_FLAGS, Mode::empty()))?;
        Ok(Self { fd })
    }

    /// Opens the directory at `rel`, which must lie beneath this one.
    ///
    /// An empty path or `.` is this directory with a listing position of its own. Symbolic links
    /// are followed while they stay beneath; without `openat2`, none is followed and `..` is
    /// rejected.
    ///
    /// # Errors
    ///
    /// `CrossesDevices` (`EXDEV`) if `rel` is absolute or leads out of this directory, `ELOOP` for
    /// a magic link of `/proc`, `NotADirectory` if it is not a directory, or any other error of the
    /// kernel.
    pub fn open_beneath(&self, rel: &[u8]) -> io::Result<Self> {
        Ok(Self { fd: beneath::open(self, rel, DIR_FLAGS)? })
    }

    /// Opens the directory that is the entry `name`.
    ///
    /// # Errors
    ///
    /// `NotADirectory` for anything else, including a symbolic link to a directory.
    pub fn open_child_dir(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self { fd: open_child(self, name, DIR_FLAGS, Mode::empty())? })
    }

    /// Opens the current parent of this directory; the caller must check which directory it is.
    ///
    /// # Errors
    ///
    /// Any error of the kernel.
    pub fn open_parent(&self) -> io::Result<Self> {
        let fd = retry_opening(|| rustix::fs::openat(&self.fd, "..", DIR_FLAGS, Mode::empty()))?;
        Ok(Self { fd })
    }

    /// Opens the regular file at `rel` for reading, under the rules of [`Dir::open_beneath`].
    ///
    /// Never waits for the writer of a FIFO.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is not a regular file; otherwise as [`Dir::open_beneath`].
    pub fn open_file_beneath(&self, rel: &[u8]) -> io::Result<File> {
        open_regular(PROBE_FLAGS | OFlags::RDONLY, |flags| beneath::open(self, rel, flags))
    }

    /// Opens the regular file that is the entry `name` for reading.
    ///
    /// # Errors
    ///
    /// `ELOOP` for a symbolic link, `InvalidInput` for anything else but a regular file.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        open_regular(PROBE_FLAGS | OFlags::RDONLY, |flags| self.open_entry(name, flags))
    }

    /// Opens a regular file of a virtual file system; its reads never wait for more content.
    ///
    /// # Errors
    ///
    /// As for [`Dir::open_file`].
    pub fn open_virtual_file(&self, name: &OsStr) -> io::Result<File> {
        let opened = open_child(self, name, PROBE_FLAGS | OFlags::RDONLY, Mode::empty())?;
        match stat_file(&opened)?.kind {
            FileKind::File => Ok(opened.into()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn open_entry(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        open_child(self, name, flags, Mode::empty())
    }

    /// Creates the regular file `name` with `mode` less the umask; opens it for reading and
    /// writing.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if there is such an entry, even a dangling symbolic link.
    pub fn create_new(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(open_child(self, name, flags, mode_bits(mode))?.into())
    }

    /// Opens the existing regular file `name` for reading and writing.
    ///
    /// # Errors
    ///
    /// `NotFound`, `ELOOP` for a symbolic link, `IsADirectory` for a directory, `InvalidInput` for
    /// anything else but a regular file.
    pub fn open_rw(&self, name: &OsStr) -> io::Result<File> {
        open_regular(PROBE_FLAGS | OFlags::RDWR, |flags| self.open_entry(name, flags))
    }

    /// Describes the entry `name`; a symbolic link itself, not its target.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
    pub fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        let raw = rustix::fs::statat(self, entry_name(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Stat::from_raw(&raw))
    }

    /// Opens the entry `name` with `O_PATH`; a symbolic link itself, not its target.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
    pub fn open_path(&self, name: &OsStr) -> io::Result<OwnedFd> {
        open_child(self, name, OFlags::PATH, Mode::empty())
    }

    /// Describes the file at `rel`, under the rules of [`Dir::open_beneath`].
    ///
    /// The last component is not followed, unless a `/` after it requests the directory. An empty
    /// path or `.` is this directory.
    ///
    /// # Errors
    ///
    /// As for [`Dir::open_beneath`].
    pub fn stat_beneath(&self, rel: &[u8]) -> io::Result<Stat> {
        stat_file(beneath::open(self, rel, OFlags::PATH | OFlags::NOFOLLOW)?)
    }

    /// Describes this directory.
    ///
    /// # Errors
    ///
    /// Any error of `fstat`.
    pub fn stat_self(&self) -> io::Result<Stat> {
        stat_file(self)
    }

    /// Creates the directory `name` with `mode` less the umask.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if there is such an entry of any kind.
    pub fn mkdir(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(self, entry_name(name)?, mode_bits(mode))?)
    }

    /// Renames the entry `from` to `to`, replacing an entry of that name atomically.
    ///
    /// # Errors
    ///
    /// `NotFound`, or `IsADirectory`, `NotADirectory`, `DirectoryNotEmpty` where the kinds of the
    /// two do not allow the replacement.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(self, entry_name(from)?, self, entry_name(to)?)?)
    }

    /// Renames the entry `from` of another directory to `to`, replacing an entry.
    ///
    /// # Errors
    ///
    /// `EXDEV` for another filesystem, `EISDIR`, `ENOTDIR`, or `InvalidInput` for an invalid name.
    pub fn rename_from(&self, other: &Self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(other, entry_name(from)?, self, entry_name(to)?)?)
    }

    /// Removes the entry `name`, which must not be a directory.
    ///
    /// # Errors
    ///
    /// `NotFound`, `IsADirectory`.
    pub fn unlink(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self, entry_name(name)?, AtFlags::empty())?)
    }

    /// Removes the empty directory `name`.
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`.
    pub fn rmdir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self, entry_name(name)?, AtFlags::REMOVEDIR)?)
    }

    /// Creates the symbolic link `name`, pointing to an arbitrary `target`.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `NotFound` for an empty `target`.
    pub fn symlink(&self, target: &OsStr, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, self, entry_name(name)?)?)
    }

    /// Returns the target of the symbolic link `name`.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` if it is not a symbolic link.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(self, entry_name(name)?, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Sets the modification time of the entry `name`, also of a symbolic link itself.
    ///
    /// The access time does not change.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` if the nanoseconds exceed a second. A filesystem that cannot
    /// store the time rounds it silently.
    pub fn set_mtime(&self, name: &OsStr, mtime: Timestamp) -> io::Result<()> {
        let (name, times) = (entry_name(name)?, mtime.as_mtime_only()?);
        Ok(rustix::fs::utimensat(self, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the access time of the entry `name`, also of a symbolic link itself.
    ///
    /// # Errors
    ///
    /// As for [`Dir::set_mtime`].
    pub fn set_atime(&self, name: &OsStr, atime: Timestamp) -> io::Result<()> {
        let (name, times) = (entry_name(name)?, atime.as_atime_only()?);
        Ok(rustix::fs::utimensat(self, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets owner and group of the entry `name`, also of a symbolic link itself; `None` keeps one.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` unless the process may give the entry away.
    pub fn set_owner(
        &self,
        name: &OsStr,
        owner: Option<u32>,
        group: Option<u32>,
    ) -> io::Result<()> {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(self, entry_name(name)?, owner, group, flags)?)
    }

    /// Sets the low twelve mode bits of the entry `name`, regardless of the umask.
    ///
    /// The entry need not be readable, and may be a special file.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a symbolic link, `NotFound` if there is none, or no `/proc`.
    pub fn set_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let fd = open_child(self, name, OFlags::PATH, Mode::empty())?;
        if stat_file(&fd)?.kind == FileKind::Symlink {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "links have no mode"));
        }
        Ok(rustix::fs::chmod(path_of(&fd), mode_bits(mode))?)
    }

    /// Creates the special file `name` with `mode` less the umask.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `PermissionDenied` for a device, unless the process may create it.
    pub fn make_special(&self, name: &OsStr, special: SpecialFile, mode: u32) -> io::Result<()> {
        let (file_type, device) = special.to_raw();
        Ok(rustix::fs::mknodat(self, entry_name(name)?, file_type, mode_bits(mode), device)?)
    }

    /// Creates the hard link `name` to the entry `old_name` of `old_dir`, not following a link.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `CrossesDevices` if the two are on different file systems.
    pub fn link(&self, name: &OsStr, old_dir: &Self, old_name: &OsStr) -> io::Result<()> {
        let (old_name, name) = (entry_name(old_name)?, entry_name(name)?);
        Ok(rustix::fs::linkat(old_dir, old_name, self, name, AtFlags::empty())?)
    }

    /// Opens the regular file `name` so that reading does not change its access time.
    ///
    /// Permitted only to its owner and to privileged processes.
    ///
    /// # Errors
    ///
    /// As for [`Dir::open_file`].
    pub fn open_file_noatime(&self, name: &OsStr) -> io::Result<File> {
        let flags = PROBE_FLAGS | OFlags::RDONLY | OFlags::NOATIME;
        match open_regular(flags, |flags| self.open_entry(name, flags)) {
            Err(e) if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => self.open_file(name),
            opened => opened,
        }
    }

    /// Adds mode bits to the file or directory that is the entry `name`.
    ///
    /// The entry need not be readable. Returns false for another owner or type.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none, or no `/proc`.
    pub fn add_mode(&self, name: &OsStr, bits: u32) -> io::Result<bool> {
        // O_PATH with O_NOFOLLOW requires no read permission, and follows no link.
        let fd = open_child(self, name, OFlags::PATH, Mode::empty())?;
        let stat = stat_file(&fd)?;
        let is_own = stat.uid == crate::host::effective_uid();
        if !is_own || !matches!(stat.kind, FileKind::Dir | FileKind::File) {
            return Ok(false);
        }
        // The file behind the descriptor, whatever its name refers to meanwhile. (proc_pid_fd(5):
        // fchmod(2) refuses such descriptors)
        rustix::fs::chmod(path_of(&fd), mode_bits(stat.mode | bits))?;
        Ok(true)
    }

    /// Sets the low twelve mode bits of this directory, regardless of the umask.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if another user owns it.
    pub fn set_own_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(self, mode_bits(mode))?)
    }

    /// Sets the modification time of this directory; the access time does not change.
    ///
    /// # Errors
    ///
    /// As for [`Dir::set_mtime`].
    pub fn set_own_mtime(&self, mtime: Timestamp) -> io::Result<()> {
        Ok(rustix::fs::futimens(self, &mtime.as_mtime_only()?)?)
    }

    /// Makes the entries of this directory (creations, renames, removals) durable.
    ///
    /// # Errors
    ///
    /// Any error of `fsync`, such as that of an earlier failed write.
    pub fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fsync(self))?)
    }

    /// Makes all writes of any process to the filesystem of this directory durable.
    ///
    /// # Errors
    ///
    /// Any error of `syncfs`; since Linux 5.8 this includes earlier failed writes.
    pub fn sync_filesystem(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::syncfs(self))?)
    }

    /// True on a file system such as `/proc`, whose files have no true sizes.
    pub fn is_virtual(&self) -> bool {
        let info = rustix::fs::fstatfs(self);
        info.is_ok_and(|info| VIRTUAL_FILESYSTEMS.contains(&(info.f_type as u32)))
    }

    /// True if this directory may treat names that differ only in case as the same.
    ///
    /// False for the usual file systems of Linux, unless the directory has the flag for it.
    pub fn may_ignore_case(&self) -> bool {
        let usual = rustix::fs::fstatfs(self)
            .is_ok_and(|info| CASE_SENSITIVE_FILESYSTEMS.contains(&(info.f_type as u32)));
        let has_flag = || {
            rustix::fs::ioctl_getflags(self).is_ok_and(|flags| flags.bits() & FS_CASEFOLD_FL != 0)
        };
        !usual || has_flag()
    }

    /// Returns all entries except `.` and `..`, in the order of the filesystem.
    ///
    /// Uses a descriptor of its own, so that listings do not disturb each other. A removed
    /// directory has no entries.
    ///
    /// # Errors
    ///
    /// The first error of opening or reading; a partial list is never returned.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        self.read_entries()?.next_chunk(usize::MAX)
    }

    /// Returns a reader of the entries, for directories that may be large.
    ///
    /// # Errors
    ///
    /// Any error of opening.
    pub fn read_entries(&self) -> io::Result<EntryReader> {
        Ok(EntryReader(rustix::fs::Dir::new(self.open_self()?)?))
    }

    /// Returns the bytes available to an unprivileged user on the filesystem of this directory.
    ///
    /// # Errors
    ///
    /// Any error of `statvfs`.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let info = retry_on_intr(|| rustix::fs::fstatvfs(self))?;
        Ok(info.f_bavail.saturating_mul(info.f_frsize))
    }

    /// Returns another handle of the same open directory.
    ///
    /// # Errors
    ///
    /// `EMFILE` if no more descriptors can be opened.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()? })
    }

    fn open_self(&self) -> io::Result<OwnedFd> {
        Ok(retry_opening(|| rustix::fs::openat(self, ".", DIR_FLAGS, Mode::empty()))?)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a regular file with `flags`, which include [`PROBE_FLAGS`]; its reads block.
///
/// Any other file type is rejected.
fn open_regular(
    flags: OFlags,
    open: impl FnOnce(OFlags) -> io::Result<OwnedFd>,
) -> io::Result<File> {
    let fd = match open(flags) {
        // A socket, or a device without a driver: exists, but is not a regular file.
        Err(err) if err.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            return Err(not_regular_error());
        }
        other => other?,
    };
    if stat_file(&fd)?.kind != FileKind::File {
        return Err(not_regular_error());
    }
    // F_SETFL does not affect the access mode.
    rustix::fs::fcntl_setfl(&fd, flags.difference(OFlags::NONBLOCK))?;
    Ok(fd.into())
}

fn not_regular_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Path in `/proc` of an open descriptor, which may have been opened with `O_PATH`.
fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn mode_bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & MODE_BITS)
}

#[cfg(test)]
mod tests;
