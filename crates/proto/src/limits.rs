//! Every bound of the protocol in one place. A peer that passes one is answered with a
//! [`crate::wire::WireError`] before anything is allocated for it.

/// Largest control frame, in bytes. Entry batches aim far lower ([`ENTRY_BATCH_BYTES`]); this is
/// what a reader allocates at most on a peer's word.
pub const CONTROL_FRAME_BYTES_MAX: usize = 1 << 20;

/// Control frames before the peer is authenticated: a hello with a token needs a few hundred bytes.
pub const HELLO_FRAME_BYTES_MAX: usize = 16 << 10;

/// A batch of entries is sent when it holds about this many bytes. The first one then fits in the
/// window that a TCP connection begins with (10 segments, RFC 6928), beside what else is said, and
/// is answered after one round trip. [measured over 100 ms: in batches of 48 KiB the first answers
/// come two round trips later]
pub const ENTRY_BATCH_BYTES: usize = 8 << 10;

/// Most entries in one batch.
pub const ENTRY_BATCH_COUNT_MAX: usize = 1024;

/// Longest name of one path component, in bytes (Linux NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest symlink target and longest request path, in bytes (Linux PATH_MAX).
pub const PATH_BYTES_MAX: usize = 4096;

/// Most directories above anything that is walked or received, the source's own included.
pub const DEPTH_MAX: usize = 1024;

/// Smallest and largest block of a file, in bytes; powers of two (DESIGN.md, "Data plane").
pub const BLOCK_BYTES_MIN: u32 = 1 << 20;
/// See [`BLOCK_BYTES_MIN`].
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// Most blocks of a file: both sides keep bitmaps of them, of 8 MiB at most then. 1 PiB in blocks
/// of
/// 16 MiB. (ours)
pub const FILE_BLOCKS_MAX: u64 = 1 << 26;

/// Files up to this size travel many to a message (a pack).
pub const PACKED_FILE_BYTES_MAX: u64 = 256 << 10;

/// A pack is closed when it holds at least this many payload bytes.
pub const PACK_BYTES_TARGET: usize = 1 << 20;

/// Largest payload of a pack: the target, plus one more file and its record.
pub const PACK_BYTES_MAX: usize = PACK_BYTES_TARGET + PACKED_FILE_BYTES_MAX as usize + 64;

/// Most files in one pack: empty files would otherwise fill it without end.
pub const PACK_FILES_MAX: usize = 1024;

/// Most data connections of one session.
pub const STREAMS_MAX: u32 = 64;

/// Most data connections that one message asks for something. (as many as there may be)
pub const ASKS_MAX: usize = STREAMS_MAX as usize;

/// Longest probe of a path in milliseconds: an hour.
pub const PROBE_MS_MAX: u32 = 3_600_000;

/// Most round trips in one report of a path.
pub const ROUND_TRIPS_MAX: usize = 256;

/// Most packets of one packet train: a millisecond at 10 Gbit/s.
pub const TRAIN_PACKETS_MAX: u32 = 704;

/// Most runs of block numbers in one message; longer lists are cut over several messages.
pub const RUNS_MAX: usize = 16 << 10;

/// Largest file size and offset: what `off_t` can hold.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Longest name of a congestion control, in bytes: the kernel's is 16 with the zero at its end
/// (TCP_CA_NAME_MAX, include/net/tcp.h).
pub const CONGESTION_BYTES_MAX: usize = 15;

/// Longest name of a block engine, in bytes. (ours: twice the longest there is)
pub const ENGINE_BYTES_MAX: usize = 20;

/// Longest text (reasons, software names) in a message, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
