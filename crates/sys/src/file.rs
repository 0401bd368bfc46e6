//! What is done to an open file besides reading and writing it.
//!
//! Where the kernel or the filesystem may be unable to do a thing that is only an optimisation
//! (reserve, clone, copy inside the kernel), the answer says so as a value; an error is something
//! that went wrong.
//!
//! Reads and writes themselves are the standard library's; when to use which is the caller's.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use crate::stat::{MODE_BITS, Timestamp, stat_file};

/// How often a file may change between the two seeks of one [`data_extent`] before the rest of it
/// is taken for data.
const MAX_EXTENT_RACES: usize = 8;

/// Sets the low twelve mode bits; the umask plays no part.
///
/// # Errors
///
/// `PermissionDenied` if the file is not ours.
pub fn set_mode(f: impl AsFd, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(f, Mode::from_raw_mode(mode & MODE_BITS))?)
}

/// Sets the modification time; the access time stays.
///
/// # Errors
///
/// `InvalidInput` for nanoseconds of a second or more; `PermissionDenied` if the file is not ours.
pub fn set_mtime(f: impl AsFd, mtime: Timestamp) -> io::Result<()> {
    Ok(rustix::fs::futimens(f, &mtime.as_mtime_only()?)?)
}

/// Makes the content durable, and of the metadata what is needed to read it back (the size).
///
/// # Errors
///
/// Whatever `fdatasync` reports, such as an earlier failed write.
pub fn sync_data(f: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(&f))?)
}

/// Makes the content and all metadata durable (not the name: that is [`crate::Dir::sync`]).
///
/// # Errors
///
/// Whatever `fsync` reports, such as an earlier failed write.
pub fn sync_all(f: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fsync(&f))?)
}

/// The next bytes at or after `offset` that may hold data, as a non-empty range; `None` if there
/// is only a hole up to the end of the file.
///
/// The range begins at `offset` if that is inside data, and ends at the next hole or the end of
/// the file. Where the filesystem cannot tell, all that is left of the file counts as data. Moves
/// the file offset, which every descriptor duplicated from this one shares; positioned reads and
/// writes are undisturbed.
///
/// # Errors
///
/// Whatever `lseek` reports otherwise, such as `ESPIPE` for something that is not a file.
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
            // Cut short or punched between the two calls: what was learnt first is stale.
            Ok(_) | Err(Errno::NXIO) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return rest_of_file(f, start),
            Err(err) => return Err(err.into()),
        }
    }
    rest_of_file(f, offset)
}

/// All from `offset` on, taken for data.
fn rest_of_file(f: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    let size = stat_file(f)?.size;
    Ok((offset < size).then_some(offset..size))
}

/// Reserves space for `len` bytes from `offset` on without changing the size of the file; `false`
/// if the filesystem cannot reserve. Nothing is reserved for a `len` of zero.
///
/// # Errors
///
/// `StorageFull` if there is no room, `FileTooLarge`, `QuotaExceeded`.
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

/// Turns a range into a hole that reads as zeros, without changing the size of the file; `false`
/// where the filesystem cannot. An empty range is nothing to do.
///
/// # Errors
///
/// What goes wrong on a filesystem that can.
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

/// Makes `dst` share the whole content of `src` (a reflink, copied on write); `false` where the
/// filesystem cannot, or the two are not on the same one.
///
/// # Errors
///
/// What goes wrong on a filesystem that can, such as `StorageFull`.
pub fn clone_whole(src: impl AsFd, dst: impl AsFd) -> io::Result<bool> {
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

/// Copies up to `len` bytes from `src` at `src_off` to `dst` at `dst_off` inside the kernel, with
/// one `copy_file_range`. Neither file offset moves.
///
/// The answer is the number of bytes copied, which may be below `len`; zero at or past the end of
/// `src` (and from files that only pretend to be empty, as in `/proc`). `None` if the kernel
/// cannot do it for this pair.
///
/// # Errors
///
/// What goes wrong in a pair that can: `StorageFull`, `FileTooLarge`, an I/O error.
pub fn copy_range(
    src: impl AsFd,
    src_off: u64,
    dst: impl AsFd,
    dst_off: u64,
    len: u64,
) -> io::Result<Option<u64>> {
    // One call copies 2 GiB at most, so a length that does not fit a `usize` loses nothing.
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

/// Takes the exclusive advisory lock of the file if it is free; `false` if somebody has it.
///
/// The lock belongs to the open file: it is let go when the last descriptor duplicated from this
/// one is closed. Two opens of one file conflict even within a process.
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

/// Tells the kernel that the file will be read from front to back, so that it reads further ahead.
///
/// # Errors
///
/// `ESPIPE` for a pipe; a hint that cannot be used is no error.
pub fn advise_sequential(f: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fadvise(f, 0, None, Advice::Sequential)?)
}

/// One piece of advice has the kernel read no more than the longest request of the disk, or its
/// usual readahead if that is longer; most disks take this much. (mm/readahead.c,
/// `force_page_cache_ra`; `BLK_DEF_MAX_SECTORS` is 1280 KiB)
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// Tells the kernel that the `len` bytes at `offset` will be read soon, so that it begins to read
/// them now, from front to back; where the disk takes less than 1 MiB at a time, a part of them. A
/// `len` of zero does nothing.
///
/// # Errors
///
/// `ESPIPE` for a pipe; a hint that cannot be used is no error.
pub fn advise_will_need(f: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let mut at = 0;
    // The kernel would take a length of zero for "to the end".
    while let Some(piece) = NonZeroU64::new((len - at).min(READ_AHEAD_BYTES)) {
        rustix::fs::fadvise(&f, offset + at, Some(piece), Advice::WillNeed)?;
        at += piece.get();
    }
    Ok(())
}

/// Tells the kernel that the `len` bytes at `offset` will not be needed again, so that it may drop
/// them from the page cache. What is not yet written back stays, and so may up to a few MiB at
/// either end: the cache drops whole units only, and they can be that large. A `len` of zero does
/// nothing.
///
/// # Errors
///
/// `ESPIPE` for a pipe; a hint that cannot be used is no error.
pub fn advise_dont_need(f: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    match NonZeroU64::new(len) {
        Some(len) => Ok(rustix::fs::fadvise(f, offset, Some(len), Advice::DontNeed)?),
        // The kernel takes zero for "to the end", which nobody asked for.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
