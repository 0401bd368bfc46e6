use std::fs;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::testing::{errno, kind, name, scratch};

/// Multiple of the block size of all filesystems that the tests may use.
const BLOCK: u64 = 64 << 10;

fn extents(file: &File) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut offset = 0;
    while let Some(extent) = data_extent(file, offset).unwrap() {
        offset = extent.end;
        found.push(extent);
    }
    found
}

/// Creates a file in memory: on another filesystem than the scratch directory.
fn in_memory(content: &[u8]) -> File {
    let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(content).unwrap();
    file
}

/// Opens a file of `/proc`: regular, but without optional operations.
fn proc_file() -> File {
    File::options().read(true).write(true).open("/proc/self/oom_score_adj").unwrap()
}

#[test]
fn sparse_file_extents_are_its_data() {
    let (_root, dir) = scratch();
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    let data = vec![1; BLOCK as usize];
    file.write_all_at(&data, 16 * BLOCK).unwrap();
    file.write_all_at(&data, 64 * BLOCK).unwrap();
    file.write_all_at(&data, 65 * BLOCK).unwrap();
    file.set_len(128 * BLOCK).unwrap();
    let expected = [16 * BLOCK..17 * BLOCK, 64 * BLOCK..66 * BLOCK];

    assert_eq!(extents(&file), expected);
    sync_all(&file).unwrap();
    assert_eq!(extents(&file), expected, "after allocation");

    let within = 64 * BLOCK + 5;
    assert_eq!(data_extent(&file, within).unwrap(), Some(within..66 * BLOCK));
    assert_eq!(data_extent(&file, 66 * BLOCK).unwrap(), None);
    assert_eq!(data_extent(&file, 128 * BLOCK).unwrap(), None);
    assert_eq!(data_extent(&file, 1 << 40).unwrap(), None);
    assert_eq!(data_extent(&file, u64::MAX).unwrap(), None);
}

#[test]
fn dense_file_is_one_extent_and_empty_has_none() {
    let (_root, dir) = scratch();
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    assert_eq!(data_extent(&file, 0).unwrap(), None);
    file.write_all_at(&vec![0; BLOCK as usize + 7], 0).unwrap();
    assert_eq!(data_extent(&file, 0).unwrap(), Some(0..BLOCK + 7));
    assert_eq!(extents(&file).len(), 1);
}

#[test]
fn rest_of_file_counts_as_data() {
    let (_root, dir) = scratch();
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    file.set_len(100).unwrap();
    assert_eq!(rest_of_file(&file, 40).unwrap(), Some(40..100));
    assert_eq!(rest_of_file(&file, 100).unwrap(), None);
    assert_eq!(rest_of_file(&file, 101).unwrap(), None);
}

#[test]
fn data_extent_of_pipe_fails() {
    let (reader, _writer) = io::pipe().unwrap();
    let pipe = File::from(OwnedFd::from(reader));
    assert_eq!(errno(data_extent(&pipe, 0)), libc::ESPIPE);
}

#[test]
fn reserve_allocates_without_changing_size() {
    let (_root, dir) = scratch();
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    assert!(reserve(&file, 0, 0).unwrap());
    assert_eq!(stat_file(&file).unwrap().allocated, 0);
    assert!(reserve(&file, 0, 4 << 20).unwrap());
    let stat = stat_file(&file).unwrap();
    assert_eq!(stat.size, 0);
    assert!(stat.allocated >= 4 << 20, "{stat:?}");
}

#[test]
fn reserve_unsupported_is_false_and_too_large_fails() {
    let (_root, dir) = scratch();
    assert!(!reserve(proc_file(), 0, 4096).unwrap());
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    assert!(reserve(&file, 0, 1 << 62).is_err());
    assert_eq!(errno(reserve(dir.open_file(name(b"f")).unwrap(), 0, 4096)), libc::EBADF);
}

#[test]
fn reflink_has_content_or_returns_false() {
    let (root, dir) = scratch();
    fs::write(root.path().join("src"), vec![7; 100_000]).unwrap();
    let src = dir.open_file(name(b"src")).unwrap();
    let dst = dir.create_new(name(b"dst"), 0o600).unwrap();
    let cloned = reflink(&src, &dst).unwrap();
    let content = fs::read(root.path().join("dst")).unwrap();
    assert_eq!(content, vec![7; if cloned { 100_000 } else { 0 }]);
}

#[test]
fn reflink_across_filesystems_is_false() {
    let (_root, dir) = scratch();
    let dst = dir.create_new(name(b"dst"), 0o600).unwrap();
    assert!(!reflink(in_memory(b"x"), &dst).unwrap());
    assert!(!reflink(&dst, proc_file()).unwrap());
    assert_eq!(kind(reflink(&dir, &dst)), io::ErrorKind::IsADirectory);
    assert_eq!(errno(reflink(&dst, dir.open_file(name(b"dst")).unwrap())), libc::EBADF);
}

#[test]
fn copy_range_does_not_move_offsets() {
    let (root, dir) = scratch();
    fs::write(root.path().join("src"), "0123456789").unwrap();
    let mut src = dir.open_file(name(b"src")).unwrap();
    let mut dst = dir.create_new(name(b"dst"), 0o600).unwrap();

    assert_eq!(copy_range(&src, 3, &dst, 5, 4).unwrap(), Some(4));
    assert_eq!(copy_range(&src, 8, &dst, 0, 100).unwrap(), Some(2), "up to the end");
    assert_eq!(copy_range(&src, 10, &dst, 0, 100).unwrap(), Some(0), "at the end");

    assert_eq!(fs::read(root.path().join("dst")).unwrap(), b"89\0\0\x003456");
    assert_eq!((src.stream_position().unwrap(), dst.stream_position().unwrap()), (0, 0));
}

#[test]
fn copy_range_unsupported_is_none() {
    let (root, dir) = scratch();
    let dst = dir.create_new(name(b"dst"), 0o600).unwrap();
    // Another type of filesystem, unless the scratch directory is in memory too.
    let outcome = copy_range(in_memory(b"abc"), 0, &dst, 0, 3).unwrap();
    assert!(matches!(outcome, None | Some(3)), "{outcome:?}");
    let appending = File::options().append(true).open(root.path().join("dst")).unwrap();
    assert_eq!(copy_range(&dst, 0, &appending, 0, 1).unwrap(), None);
    assert_eq!(kind(copy_range(&dir, 0, &dst, 0, 1)), io::ErrorKind::IsADirectory);
}

#[test]
fn lock_conflicts_until_last_duplicate_is_closed() {
    let (_root, dir) = scratch();
    let first = dir.create_new(name(b"f"), 0o600).unwrap();
    let second = dir.open_file(name(b"f")).unwrap();

    assert!(try_lock(&first).unwrap());
    assert!(try_lock(&first).unwrap(), "the holder has it already");
    assert!(!try_lock(&second).unwrap());

    let duplicate = first.try_clone().unwrap();
    drop(first);
    assert!(!try_lock(&second).unwrap(), "a duplicate still holds it");
    drop(duplicate);
    assert!(try_lock(&second).unwrap());
    assert!(try_lock(&dir).unwrap(), "a directory can be locked too");
}

#[test]
fn set_mode_ignores_umask() {
    let (_root, dir) = scratch();
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    for mode in [0o777, 0o4750, 0] {
        set_mode(&file, mode).unwrap();
        assert_eq!(stat_file(&file).unwrap().mode, mode);
    }
    set_mode(&file, 0o100_644).unwrap();
    assert_eq!(stat_file(&file).unwrap().mode, 0o644, "the type bits are ignored");
}

#[test]
fn set_mtime_is_exact_and_keeps_atime() {
    let (_root, dir) = scratch();
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    let before = file.metadata().unwrap();
    for then in [
        Timestamp { secs: 1_234_567_890, nanos: 123_456_789 },
        Timestamp { secs: -1, nanos: 999_999_999 },
        Timestamp { secs: 1 << 32, nanos: 0 },
    ] {
        set_mtime(&file, then).unwrap();
        assert_eq!(stat_file(&file).unwrap().mtime, then);
    }
    let after = file.metadata().unwrap();
    assert_eq!((after.atime(), after.atime_nsec()), (before.atime(), before.atime_nsec()));
    let bad = Timestamp { secs: 0, nanos: 1_000_000_000 };
    assert_eq!(kind(set_mtime(&file, bad)), io::ErrorKind::InvalidInput);
}

#[test]
fn sync_of_file_succeeds_and_of_pipe_fails() {
    let (_root, dir) = scratch();
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    sync_data(&file).unwrap();
    sync_all(&file).unwrap();
    let (pipe, _writer) = io::pipe().unwrap();
    assert_eq!(kind(sync_data(&pipe)), io::ErrorKind::InvalidInput);
    assert_eq!(kind(sync_all(&pipe)), io::ErrorKind::InvalidInput);
}

/// Number of `cachestat` on all architectures except alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// Returns the cached pages of a range; `None` if the kernel does not report them (before 6.5).
fn cached_pages(file: &File, range: Range<u64>) -> Option<u64> {
    let range_words = [range.start, range.end - range.start];
    let mut counters = [0_u64; 5];
    // SAFETY: the kernel reads an offset and a length from `range_words` and writes five
    // counters to `counters`, the first of them the cached pages; both outlive the call.
    let outcome = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            range_words.as_ptr(),
            counters.as_mut_ptr(),
            0,
        )
    };
    (outcome == 0).then_some(counters[0])
}

#[test]
fn advise_dont_need_drops_only_its_range() {
    let (_root, dir) = scratch();
    let lives_in_memory = rustix::fs::fstatfs(&dir).unwrap().f_type == libc::TMPFS_MAGIC;
    let file = dir.create_new(name(b"f"), 0o600).unwrap();
    let (half, whole) = (8 << 20, 16 << 20);
    file.write_all_at(&vec![1; 16 << 20], 0).unwrap();
    sync_all(&file).unwrap();
    let Some(before) = cached_pages(&file, 0..whole) else { return };
    if lives_in_memory {
        return;
    }

    advise_dont_need(&file, 0, 0).unwrap();
    assert_eq!(cached_pages(&file, 0..whole), Some(before), "zero bytes are not the whole file");
    advise_dont_need(&file, 0, half).unwrap();
    assert_eq!(cached_pages(&file, 0..half), Some(0));
    assert!(cached_pages(&file, half..whole).unwrap() > 0);

    advise_will_need(&file, 0, 0).unwrap();
    advise_will_need(&file, 0, half).unwrap();
    // The kernel reads asynchronously.
    let has_some = || cached_pages(&file, 0..half) > Some(0);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !has_some() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(has_some());
}

#[test]
fn advice_for_pipe_fails() {
    let (_root, dir) = scratch();
    advise_sequential(dir.create_new(name(b"f"), 0o600).unwrap()).unwrap();
    let (pipe, _writer) = io::pipe().unwrap();
    assert_eq!(errno(advise_sequential(&pipe)), libc::ESPIPE);
    assert_eq!(errno(advise_dont_need(&pipe, 0, 1)), libc::ESPIPE);
    assert_eq!(errno(advise_will_need(&pipe, 0, 1)), libc::ESPIPE);
}
