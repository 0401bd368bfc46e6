//! Limits of the protocol. A value over its limit is refused before anything is allocated for it.

/// Lowest protocol version of this build.
pub const MIN_VERSION: u16 = 1;
/// Highest protocol version of this build.
pub const MAX_VERSION: u16 = 1;

/// Largest control frame in bytes: the most that a reader allocates for one frame. Batches of
/// entries stay far below it ([`ENTRY_BATCH_TARGET_BYTES`]).
pub const MAX_CONTROL_FRAME_BYTES: usize = 1 << 20;

/// Largest control frame in bytes before authentication. (chosen: a Hello with a token needs a few
/// hundred bytes)
pub const MAX_HELLO_FRAME_BYTES: usize = 16 << 10;

/// Size in bytes at which a batch of entries is sent. The first batch then fits, with the messages
/// before it, into the initial TCP window (10 segments, RFC 6928), and is answered after one RTT.
/// (measured at 100 ms RTT: with batches of 48 KiB the first answers take two RTTs longer)
pub const ENTRY_BATCH_TARGET_BYTES: usize = 8 << 10;

/// Maximum number of entries in one batch.
pub const MAX_ENTRIES_PER_BATCH: usize = 1024;

/// Longest name of a path component in bytes (Linux `NAME_MAX`).
pub const MAX_NAME_BYTES: usize = 255;

/// Longest symlink target and longest request path in bytes (Linux `PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;

/// Maximum number of paths of a request. (chosen: more than a command line of xargs(1) has, which
/// ends at 128 KiB; each is resolved before the session begins)
pub const MAX_REQUEST_PATHS: usize = 16 << 10;

/// Maximum number of directories above an entry, including the directory of the source.
pub const MAX_DIRECTORY_DEPTH: usize = 1024;

/// Smallest block in bytes. Block sizes are powers of two.
pub const MIN_BLOCK_BYTES: u32 = 1 << 20;
/// Largest block in bytes.
pub const MAX_BLOCK_BYTES: u32 = 16 << 20;

/// Maximum number of blocks of a file: 1 PiB in blocks of 16 MiB. (chosen: a bitmap of them takes
/// 8 MiB)
pub const MAX_FILE_BLOCKS: u64 = 1 << 26;

/// Size in bytes up to which a file travels in a pack. A pack carries many files in one frame.
pub const MAX_PACKED_FILE_BYTES: u64 = 256 << 10;

/// Payload size in bytes at which a pack is closed.
pub const PACK_TARGET_BYTES: usize = 1 << 20;

/// Largest payload of a pack in bytes: the target, one more file, and its record.
pub const MAX_PACK_BYTES: usize = PACK_TARGET_BYTES + MAX_PACKED_FILE_BYTES as usize + 64;

/// Maximum number of files in a pack, which bounds packs of empty files.
pub const MAX_PACK_FILES: usize = 1024;

/// Maximum number of data streams of a session.
pub const MAX_STREAMS: u32 = 64;

/// Maximum number of credits in one message: one for each data stream.
pub const MAX_CREDITS: usize = MAX_STREAMS as usize;

/// Longest throughput test in milliseconds: one hour.
pub const MAX_THROUGHPUT_TEST_MS: u32 = 3_600_000;

/// Maximum number of RTT samples in a receiver report.
pub const MAX_REPORT_RTTS: usize = 256;

/// Maximum number of packets in a packet train: one millisecond at 10 Gbit/s.
pub const MAX_TRAIN_PACKETS: u32 = 704;

/// Maximum number of block runs in a list. Longer lists are split over several messages.
pub const MAX_RUNS: usize = 16 << 10;

/// Maximum number of separate runs of a file's blocks that a receiver reports.
///
/// Beside its holes. (chosen: 25 MB; of a journal of a million blocks, every second one)
pub const MAX_FILE_RUNS: usize = 1 << 20;

/// Runs of holes that count as another outstanding entry. (chosen: about the memory of an entry)
pub const HOLE_RUNS_PER_ENTRY: usize = 32;

/// Largest file size and offset in bytes (`off_t`).
pub const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// Longest name of a congestion control algorithm in bytes (Linux `TCP_CA_NAME_MAX` without the
/// final NUL).
pub const MAX_CONGESTION_NAME_BYTES: usize = 15;

/// Maximum number of filter rules of a transfer. (chosen: more than people write)
pub const MAX_FILTER_RULES: usize = 8192;

/// Maximum size of all filter rules of a transfer in bytes. (chosen: half of a control frame)
pub const MAX_FILTER_RULES_BYTES: usize = MAX_CONTROL_FRAME_BYTES / 2;

/// Longest name of an extended attribute in bytes. (linux/limits.h, `XATTR_NAME_MAX`)
pub const MAX_XATTR_NAME_BYTES: usize = 255;

/// Overhead that is counted for an extended attribute beyond its name and value, in bytes.
/// (chosen: its two lengths, pointers and allocations)
pub const XATTR_OVERHEAD_BYTES: usize = 64;

/// Maximum size of an entry's extended attributes in bytes, each with
/// [`XATTR_OVERHEAD_BYTES`]. (chosen: one of the largest size that Linux has, `XATTR_SIZE_MAX`,
/// beside others)
pub const MAX_XATTRS_BYTES: usize = 128 << 10;

/// Extended attributes in bytes that count as another outstanding entry. (chosen: about the size
/// of an entry)
pub const XATTR_BYTES_PER_ENTRY: usize = 1 << 10;

/// Longest name of a user or group in bytes. (useradd(8) allows 256)
pub const MAX_ACCOUNT_NAME_BYTES: usize = 256;

/// Maximum number of accounts in a message. (chosen: with names of full length, half a frame)
pub const MAX_OWNER_NAMES: usize = 1024;

/// Maximum number of accounts in a transfer. (chosen: more than a large institution has)
pub const MAX_ACCOUNTS: usize = 1 << 17;

/// Maximum number of directories of earlier copies. (rsync's MAX_BASIS_DIRS)
pub const MAX_LINK_DESTS: usize = 20;

/// Maximum number of source names that a receiver keeps in memory for a deletion.
///
/// (chosen: 256 MiB at 8 bytes each)
pub const MAX_UNDELETED_SOURCE_NAMES: usize = 32 << 20;

/// Memory of a receiver for inodes with several names, in bytes. Further names beyond it become
/// files of their own. (chosen: a million inodes with paths of 40 bytes)
pub const MAX_LINK_GROUPS_BYTES: usize = 128 << 20;

/// Maximum number of names of ignore files. (chosen: more than people use)
pub const MAX_IGNORE_FILES: usize = 16;

/// Maximum number of names in one part of a list. (chosen: walking them takes far longer than an
/// RTT)
pub const MAX_LIST_PART_NAMES: usize = 4096;

/// Maximum size of all names in one part of a list, in bytes. (chosen: a quarter of a control
/// frame)
pub const MAX_LIST_PART_BYTES: usize = MAX_CONTROL_FRAME_BYTES / 4;

/// Longest name of an I/O method in bytes. (chosen: twice the longest existing name)
pub const MAX_IO_METHOD_NAME_BYTES: usize = 20;

/// Longest text of a message in bytes: reasons, failures, software names.
pub const MAX_TEXT_BYTES: usize = 4096;

/// Maximum number of outstanding files and symlinks, unless the receiver asks for another one.
///
/// Also the limit of directories that the walk has left. (measured: processes of at most 71 MB;
/// 268 MB of files of 4 KiB, the product of 10 Gbit/s and 200 ms)
pub const MAX_OUTSTANDING_FILES: u32 = 1 << 16;
