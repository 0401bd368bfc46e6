//! Operations on open files other than reading and writing.
//!
//! If the kernel or the filesystem lacks an operation that is only an optimization (reserve, clone,
//! copy in the kernel), the function returns this as a value. An error means that a supported
//! operation failed.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::memfd_create;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, Gid, MemfdFlags, Mode, SeekFrom, Uid};
use rustix::io::{Errno, retry_on_intr};

use crate::stat::{MODE_BITS, Timestamp, stat_file};

/// Attempts of [`data_extent`] while the file changes between its two seeks; then the rest counts
/// as data. (chosen: never reached in practice)
const MAX_EXTENT_RACES: usize = 8;

/// Sets the low twelve mode bits, regardless of the umask.
///
/// # Errors
///
/// `PermissionDenied` if another user owns the file.
pub fn set_mode(f: impl AsFd, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(f, Mode::from_raw_mode(mode & MODE_BITS))?)
}

/// Sets the modification time; the access time does not change.
///
/// # Errors
///
/// `InvalidInput` if the nanoseconds exceed a second; `PermissionDenied` if another user owns the
/// file.
pub fn set_mtime(f: impl AsFd, mtime: Timestamp) -> io::Result<()> {
    Ok(rustix::fs::futimens(f, &mtime.as_mtime_only()?)?)
}

/// Sets the access time; the modification time does not change.
///
/// # Errors
///
/// As for [`set_mtime`].
pub fn set_atime(f: impl AsFd, atime: Timestamp) -> io::Result<()> {
    Ok(rustix::fs::futimens(f, &atime.as_atime_only()?)?)
}

/// Sets the owner and the group; `None` keeps one. The kernel may clear set-id bits.
///
/// # Errors
///
/// `PermissionDenied` unless the process may give the file away.
pub fn set_owner(f: impl AsFd, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
    Ok(rustix::fs::fchown(f, owner.map(Uid::from_raw), group.map(Gid::from_raw))?)
}

/// Sets the modification time of an open file together with its unchanged access time.
///
/// For file systems that set both to the present when one is left out, such as bindfs.
///
/// # Errors
///
/// As for [`set_mtime`].
pub fn set_mtime_with_atime(f: impl AsFd, mtime: Timestamp) -> io::Result<()> {
    let now = rustix::fs::fstat(&f)?;
    let mut times = mtime.as_mtime_only()?;
    times.last_access =
        rustix::fs::Timespec { tv_sec: now.st_atime, tv_nsec: now.st_atime_nsec as _ };
    Ok(rustix::fs::futimens(f, &times)?)
}

/// Makes the content durable, with the metadata required to read it (the size).
///
/// # Errors
///
/// Any error of `fdatasync`, such as that of an earlier failed write.
pub fn sync_data(f: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(&f))?)
}

/// Makes the content and all metadata durable (except the name: see [`crate::Dir::sync`]).
///
/// # Errors
///
/// Any error of `fsync`, such as that of an earlier failed write.
pub fn sync_all(f: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fsync(&f))?)
}

/// Returns the next range at or after `offset` that may hold data; `None` if only a hole is left.
///
/// The range is not empty. It begins at `offset` if that is inside data, and ends at the next hole
/// or the end of the file. If the filesystem does not support the query, the rest of the file
/// counts as data. Moves the file offset, which all duplicates of the descriptor share; positioned
/// reads and writes are not affected.
///
/// # Errors
///
/// Any other error of `lseek`, such as `ESPIPE` for a pipe.
pub fn data_extent(f: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    for _ in 0..MAX_EXTENT_RACES {
        let start = match rustix::fs::seek(f, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return rest_of_file(f, offset),
            Err(err) => return Err(err.into()),
        };
        match rustix::fs::seek(f, SeekFrom::Hole(start)) {
            Ok(end) if end > start => return Ok(Some(start..end)),
            // Truncated or punched between the two calls: the first result is stale.
            Ok(_) | Err(Errno::NXIO) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return rest_of_file(f, start),
            Err(err) => return Err(err.into()),
        }
    }
    rest_of_file(f, offset)
}

/// Returns the range from `offset` to the end of the file, as data.
fn rest_of_file(f: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    let size = stat_file(f)?.size;
    Ok((offset < size).then_some(offset..size))
}

/// Reserves space for `len` bytes at `offset` without changing the size of the file.
///
/// Returns false if the filesystem cannot reserve. A `len` of zero does nothing.
///
/// # Errors
///
/// `StorageFull` if there is no space, `FileTooLarge`, `QuotaExceeded`.
pub fn reserve(f: impl AsFd, offset: u64, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    match retry_on_intr(|| rustix::fs::fallocate(&f, FallocateFlags::KEEP_SIZE, offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

/// Turns a range into a hole that reads as zeros. The file size does not change.
///
/// Returns false if the filesystem cannot. An empty range does nothing.
///
/// # Errors
///
/// Any failure on a filesystem that supports it.
pub fn punch_hole(f: impl AsFd, offset: u64, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| rustix::fs::fallocate(&f, flags, offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

/// Makes `dst` share the whole content of `src` (a reflink, copied on write).
///
/// Returns false if the filesystem cannot, or the files are on different ones.
///
/// # Errors
///
/// Any failure on a filesystem that supports it, such as `StorageFull`.
pub fn reflink(src: impl AsFd, dst: impl AsFd) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::ioctl_ficlone(&dst, &src)) {
        Ok(()) => Ok(true),
        Err(
            Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::PERM,
        ) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

/// Copies up to `len` bytes between files in the kernel, with one `copy_file_range`.
///
/// Neither file offset moves. Returns the number of bytes copied, which may be below `len`; zero at
/// or past the end of `src` (and from files of `/proc`, whose size is zero). `None` if the kernel
/// cannot copy between this pair.
///
/// # Errors
///
/// Any failure of a supported pair: `StorageFull`, `FileTooLarge`, an I/O error.
pub fn copy_range(
    src: impl AsFd,
    src_off: u64,
    dst: impl AsFd,
    dst_off: u64,
    len: u64,
) -> io::Result<Option<u64>> {
    // One call copies at most 2 GiB, so a `usize` is always sufficient.
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let copied = retry_on_intr(|| {
        let (mut from, mut to) = (src_off, dst_off);
        rustix::fs::copy_file_range(&src, Some(&mut from), &dst, Some(&mut to), len)
    });
    match copied {
        Ok(count) => Ok(Some(count as u64)),
        Err(
            Errno::XDEV
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::BADF
            | Errno::PERM
            | Errno::TXTBSY,
        ) => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// Creates a file in memory with this content, without a name in any directory.
///
/// # Errors
///
/// Too many open files, or too little memory.
pub fn memory_file(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("bankfull", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

/// Takes the exclusive advisory lock of the file; false if it is already locked.
///
/// The lock belongs to the open file description, and is released when its last duplicate is
/// closed. Two opens of one file conflict even within a process.
///
/// # Errors
///
/// `ENOLCK`, or `EOPNOTSUPP` on a network filesystem without locks.
pub fn try_lock(f: impl AsFd) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::flock(&f, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

/// Advises the kernel that the file will be read sequentially, for more readahead.
///
/// # Errors
///
/// `ESPIPE` for a pipe; an ignored hint is not an error.
pub fn advise_sequential(f: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fadvise(f, 0, None, Advice::Sequential)?)
}

/// Bytes per readahead request.
///
/// The kernel reads at most the longest request of the disk or its usual readahead per call; most
/// disks accept this size. (mm/readahead.c, `force_page_cache_ra`; `BLK_DEF_MAX_SECTORS` is 1280
/// KiB)
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// Advises the kernel to start reading `len` bytes at `offset` into the page cache.
///
/// Reads only a part of them if the disk accepts less than 1 MiB per request. A `len` of zero does
/// nothing.
///
/// # Errors
///
/// `ESPIPE` for a pipe; an ignored hint is not an error.
pub fn advise_will_need(f: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let mut at = 0;
    // The kernel interprets a length of zero as "to the end".
    while let Some(piece) = NonZeroU64::new((len - at).min(READ_AHEAD_BYTES)) {
        rustix::fs::fadvise(&f, offset + at, Some(piece), Advice::WillNeed)?;
        at += piece.get();
    }
    Ok(())
}

/// Advises the kernel to drop `len` bytes at `offset` from the page cache.
///
/// Dirty data stays, and so may up to a few MiB at either end: the cache drops whole folios only. A
/// `len` of zero does nothing.
///
/// # Errors
///
/// `ESPIPE` for a pipe; an ignored hint is not an error.
pub fn advise_dont_need(f: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    match NonZeroU64::new(len) {
        Some(len) => Ok(rustix::fs::fadvise(f, offset, Some(len), Advice::DontNeed)?),
        // The kernel interprets zero as "to the end", which is not intended.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
