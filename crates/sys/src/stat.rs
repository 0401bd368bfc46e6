//! File metadata: type, mode, sizes and times.
//!
//! Read-only; opening is in [`crate::dir`], changing is in [`crate::file`].

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Timespec, Timestamps, UTIME_OMIT};

/// Nanoseconds per second.
const NANOS_PER_SEC: u32 = 1_000_000_000;

/// Permission bits of a mode, with set-user-ID, set-group-ID and sticky.
pub(crate) const MODE_BITS: u32 = 0o7777;

/// Unit of `st_blocks`, independent of the filesystem's block size.
const STAT_BLOCK_BYTES: u64 = 512;

/// Time that stays as it is.
const KEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };

/// Type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Any other: FIFO, socket, device.
    Other,
}

impl FileKind {
    /// Returns the type of a directory entry; `None` if the filesystem does not report it.
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

/// Special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialFile {
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device with its major and minor number.
    CharDevice(u32, u32),
    /// Block device with its major and minor number.
    BlockDevice(u32, u32),
}

impl SpecialFile {
    fn from_raw(raw: &rustix::fs::Stat) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(raw.st_rdev), rustix::fs::minor(raw.st_rdev));
        match FileType::from_raw_mode(raw.st_mode) {
            FileType::Fifo => Some(Self::Fifo),
            FileType::Socket => Some(Self::Socket),
            FileType::CharacterDevice => Some(Self::CharDevice(major, minor)),
            FileType::BlockDevice => Some(Self::BlockDevice(major, minor)),
            _ => None,
        }
    }

    /// Returns the type and the device number for mknod(2).
    pub(crate) fn to_raw(self) -> (FileType, u64) {
        match self {
            Self::Fifo => (FileType::Fifo, 0),
            Self::Socket => (FileType::Socket, 0),
            Self::CharDevice(major, minor) => {
                (FileType::CharacterDevice, rustix::fs::makedev(major, minor))
            }
            Self::BlockDevice(major, minor) => {
                (FileType::BlockDevice, rustix::fs::makedev(major, minor))
            }
        }
    }
}

/// Time of a filesystem: seconds since 1970-01-01 UTC (negative before), and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since the epoch, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1 000 000 000.
    pub nanos: u32,
}

impl Timestamp {
    /// Returns a pair of times that sets the modification time and keeps the access time.
    ///
    /// Rejects nanoseconds out of range: some such values mean "now" and "keep" to the kernel.
    pub(crate) fn as_mtime_only(self) -> io::Result<Timestamps> {
        Ok(Timestamps { last_access: KEEP, last_modification: self.to_raw()? })
    }

    /// Returns a pair of times that sets the access time and keeps the modification time.
    pub(crate) fn as_atime_only(self) -> io::Result<Timestamps> {
        Ok(Timestamps { last_access: self.to_raw()?, last_modification: KEEP })
    }

    fn to_raw(self) -> io::Result<Timespec> {
        if self.nanos >= NANOS_PER_SEC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "timestamp with a nanosecond part of a second or more",
            ));
        }
        Ok(Timespec { tv_sec: self.secs, tv_nsec: self.nanos.into() })
    }
}

/// Metadata of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// File type.
    pub kind: FileKind,
    /// Special file, if it is one.
    pub special: Option<SpecialFile>,
    /// Low twelve mode bits: permissions, set-user-ID, set-group-ID, sticky.
    pub mode: u32,
    /// Length in bytes (of the target path, for a symbolic link).
    pub size: u64,
    /// Allocated bytes; less than `size` for a sparse file.
    pub allocated: u64,
    /// Time of the last read, as far as the mount records it.
    pub atime: Timestamp,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Time of the last change of the content or the inode.
    pub ctime: Timestamp,
    /// Inode number, unique within `dev` among files that exist.
    pub ino: u64,
    /// Identifier of the mounted filesystem until the next boot.
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
            kind: FileKind::from_file_type(FileType::from_raw_mode(raw.st_mode)),
            special: SpecialFile::from_raw(raw),
            mode: raw.st_mode & MODE_BITS,
            size: unsigned(raw.st_size),
            allocated: unsigned(raw.st_blocks).saturating_mul(STAT_BLOCK_BYTES),
            atime: timestamp(raw.st_atime, raw.st_atime_nsec),
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
/// Any error of `fstat`; rare on a local filesystem.
pub fn stat_file(f: impl AsFd) -> io::Result<Stat> {
    Ok(Stat::from_raw(&rustix::fs::fstat(f)?))
}

/// Widens a field whose width differs between architectures.
fn widen(value: impl Into<u64>) -> u64 {
    value.into()
}

/// Converts a field that is signed on some architectures but never negative; zero otherwise.
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
    fn stat_equals_std_metadata() {
        let (root, _) = scratch();
        let path = root.path().join("f");
        std::fs::write(&path, b"12345").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o2750)).unwrap();
        std::fs::hard_link(&path, root.path().join("g")).unwrap();
        let file = File::open(&path).unwrap();

        let (stat, metadata) = (stat_file(&file).unwrap(), file.metadata().unwrap());

        assert_eq!(stat.kind, FileKind::File);
        assert_eq!(stat.mode, 0o2750);
        assert_eq!(stat.size, 5);
        assert_eq!(stat.nlink, 2);
        assert_eq!(stat.allocated, metadata.blocks() * 512);
        assert_eq!(
            (stat.mtime.secs, i64::from(stat.mtime.nanos)),
            (metadata.mtime(), metadata.mtime_nsec())
        );
        assert_eq!(
            (stat.ctime.secs, i64::from(stat.ctime.nanos)),
            (metadata.ctime(), metadata.ctime_nsec())
        );
        assert_eq!((stat.ino, stat.dev), (metadata.ino(), metadata.dev()));
        assert_eq!((stat.uid, stat.gid), (metadata.uid(), metadata.gid()));
    }

    #[test]
    fn sparse_file_has_few_allocated_bytes() {
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
    fn out_of_range_nanoseconds_are_rejected() {
        for nanos in [1_000_000_000, (1 << 30) - 1, (1 << 30) - 2, u32::MAX] {
            let refused = Timestamp { secs: 0, nanos }.as_mtime_only().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        assert!(Timestamp { secs: -5, nanos: 999_999_999 }.as_mtime_only().is_ok());
    }
}
