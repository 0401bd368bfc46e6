//! What the kernel knows about one file: its kind, mode, sizes and times.
//!
//! Describes only; opening is in [`crate::dir`], changing is in [`crate::file`].

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Timespec, Timestamps, UTIME_OMIT};

/// Nanoseconds in a second: a [`Timestamp`] holds fewer.
const NANOS_PER_SEC: u32 = 1_000_000_000;

/// The permission bits of a mode, with set-user-ID, set-group-ID and sticky.
pub(crate) const MODE_BITS: u32 = 0o7777;

/// The unit of `st_blocks`, whatever the filesystem's own block size is.
const STAT_BLOCK_BYTES: u64 = 512;

/// What sort of thing a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// Anything else: a FIFO, a socket, a device.
    Other,
}

impl Kind {
    /// The kind of a directory entry, `None` where the filesystem does not say.
    pub(crate) fn from_entry_type(file_type: FileType) -> Option<Self> {
        match file_type {
            FileType::Unknown => None,
            known => Some(Self::from_file_type(known)),
        }
    }

    fn from_file_type(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Dir,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// A moment, as a filesystem stores it: seconds since 1970-01-01 UTC (negative before), and the
/// nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since the epoch, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1 000 000 000.
    pub nanos: u32,
}

impl Timestamp {
    /// The pair of times that sets the modification time to this and leaves the access time alone.
    ///
    /// Refuses nanoseconds out of range: some such values mean "now" and "leave alone" to the
    /// kernel, which is not what a caller with a bad timestamp asked for.
    pub(crate) fn as_mtime_only(self) -> io::Result<Timestamps> {
        if self.nanos >= NANOS_PER_SEC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "timestamp with a nanosecond part of a second or more",
            ));
        }
        Ok(Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: self.secs, tv_nsec: self.nanos.into() },
        })
    }
}

/// What `stat` tells about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What sort of thing it is.
    pub kind: Kind,
    /// The low twelve mode bits: permissions, set-user-ID, set-group-ID, sticky.
    pub mode: u32,
    /// Length in bytes (of the target, for a symbolic link).
    pub size: u64,
    /// Bytes allocated on the filesystem; below `size` for a sparse file.
    pub allocated: u64,
    /// When the content last changed.
    pub mtime: Timestamp,
    /// When the content or the inode last changed.
    pub ctime: Timestamp,
    /// Inode number, unique within `dev` among files that exist.
    pub ino: u64,
    /// Identifies the mounted filesystem until the next boot.
    pub dev: u64,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u64,
}

impl Stat {
    pub(crate) fn from_raw(raw: &rustix::fs::Stat) -> Self {
        Self {
            kind: Kind::from_file_type(FileType::from_raw_mode(raw.st_mode)),
            mode: raw.st_mode & MODE_BITS,
            size: unsigned(raw.st_size),
            allocated: unsigned(raw.st_blocks).saturating_mul(STAT_BLOCK_BYTES),
            mtime: timestamp(raw.st_mtime, raw.st_mtime_nsec),
            ctime: timestamp(raw.st_ctime, raw.st_ctime_nsec),
            ino: widen(raw.st_ino),
            dev: widen(raw.st_dev),
            uid: raw.st_uid,
            gid: raw.st_gid,
            nlink: widen(raw.st_nlink),
        }
    }
}

/// Describes an open file.
///
/// # Errors
///
/// Whatever `fstat` reports: rarely anything on a local filesystem.
pub fn stat_file(f: impl AsFd) -> io::Result<Stat> {
    Ok(Stat::from_raw(&rustix::fs::fstat(f)?))
}

/// Widens a field whose width differs between architectures.
fn widen(value: impl Into<u64>) -> u64 {
    value.into()
}

/// A field that is signed on some architectures but never negative; zero if it were.
fn unsigned(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}

fn timestamp(secs: i64, nanos: impl TryInto<u32>) -> Timestamp {
    Timestamp { secs, nanos: nanos.try_into().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

    use super::*;
    use crate::testing::scratch;

    #[test]
    fn describes_what_the_standard_library_describes() {
        let (root, _) = scratch();
        let path = root.path().join("f");
        std::fs::write(&path, b"12345").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o2750)).unwrap();
        std::fs::hard_link(&path, root.path().join("g")).unwrap();
        let file = File::open(&path).unwrap();

        let (ours, theirs) = (stat_file(&file).unwrap(), file.metadata().unwrap());

        assert_eq!(ours.kind, Kind::File);
        assert_eq!(ours.mode, 0o2750);
        assert_eq!(ours.size, 5);
        assert_eq!(ours.nlink, 2);
        assert_eq!(ours.allocated, theirs.blocks() * 512);
        assert_eq!(
            (ours.mtime.secs, i64::from(ours.mtime.nanos)),
            (theirs.mtime(), theirs.mtime_nsec())
        );
        assert_eq!(
            (ours.ctime.secs, i64::from(ours.ctime.nanos)),
            (theirs.ctime(), theirs.ctime_nsec())
        );
        assert_eq!((ours.ino, ours.dev), (theirs.ino(), theirs.dev()));
        assert_eq!((ours.uid, ours.gid), (theirs.uid(), theirs.gid()));
    }

    #[test]
    fn a_sparse_file_has_less_allocated_than_its_size() {
        let (root, _) = scratch();
        let file = File::create(root.path().join("f")).unwrap();
        file.write_all_at(b"x", 64 << 20).unwrap();

        let stat = stat_file(&file).unwrap();

        assert_eq!(stat.size, (64 << 20) + 1);
        assert!(stat.allocated > 0 && stat.allocated < 1 << 20, "{stat:?}");
    }

    #[test]
    fn timestamps_order_by_second_then_nanosecond() {
        let at = |secs, nanos| Timestamp { secs, nanos };
        assert!(at(-1, 999_999_999) < at(0, 0));
        assert!(at(1, 5) < at(1, 6));
        assert!(at(1, 999_999_999) < at(2, 0));
    }

    #[test]
    fn nanoseconds_that_mean_something_else_to_the_kernel_are_refused() {
        for nanos in [1_000_000_000, (1 << 30) - 1, (1 << 30) - 2, u32::MAX] {
            let refused = Timestamp { secs: 0, nanos }.as_mtime_only().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        assert!(Timestamp { secs: -5, nanos: 999_999_999 }.as_mtime_only().is_ok());
    }
}
