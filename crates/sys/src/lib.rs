//! Thin safe wrappers around the Linux system calls that bankfull needs.
//!
//! Each function wraps one kernel operation, with its `unsafe` code (allowed in this crate only),
//! retries after interruption or while descriptors are short, and a value instead of an error when
//! the kernel or the filesystem lacks an optional feature. Confinement of a path beneath a
//! directory is also here, because only the kernel can do it without a race.
//!
//! The crate contains no policy (when to copy, how much, how to treat an error), no protocol, and
//! no types except plain descriptions of kernel data.
//!
//! Every fallible function returns [`std::io::Result`]; an error from the kernel carries its raw OS
//! error. Names of directory entries are [`std::ffi::OsStr`], relative paths are bytes with `/`
//! between components: neither has to be UTF-8.
//!
//! All descriptors made here are close-on-exec.

pub mod alloc;
mod beneath;
pub mod datagram;
pub mod dir;
pub mod direct;
pub mod disk;
pub mod file;
pub mod host;
pub mod inherited;
pub mod interface;
pub mod local_time;
pub mod mapping;
pub mod memory;
pub mod ownership;
pub mod pages;
pub mod pipe;
pub mod receive_buffer;
pub mod reuseport;
pub mod shared_words;
pub mod shortage;
pub mod socket;
pub mod stat;
#[cfg(test)]
mod testing;
pub mod tun;
#[cfg(feature = "io-uring")]
pub mod uring;
#[cfg(not(feature = "io-uring"))]
#[path = "uring_stub.rs"]
pub mod uring;
pub mod xattr;

pub use alloc::{RetryingAllocator, use_few_arenas};
pub use datagram::{
    Datagram, enable_arrival_timestamps, enable_error_queue, enable_udp_gro,
    next_rejected_destination, path_mtu, receive_datagram, send_gso, set_udp_gso_size,
};
pub use dir::{Dir, Entry, EntryReader};
pub use direct::{DirectAlign, cached_bytes, open_direct};
pub use disk::is_rotational;
pub use file::{
    advise_dont_need, advise_sequential, advise_will_need, copy_range, data_extent, memory_file,
    punch_hole, reflink, reserve, set_atime, set_mode, set_mtime, set_mtime_with_atime, set_owner,
    sync_all, sync_data, try_lock,
};
pub use host::{
    PIPE_BUF, boot_id, effective_uid, exit_now, host_name, is_clock_synchronized, is_hung_up,
    kernel_version, max_open_files, max_rss_bytes, max_threads, name_thread, process_cpu_time,
    raise_open_file_limit, random, thread_cpu_time, umask, wait_either, wait_readable,
    wait_writable,
};
pub use inherited::inherited_listener;
pub use interface::{ETHERNET_OVERHEAD_BYTES, Interface, interface_of, link_speed, networks_of};
pub use local_time::local_minute;
pub use mapping::{Mapping, is_mapping_fault};
pub use memory::{Memory, memory};
pub use ownership::{MappedIds, group_ids, may_change_owners};
pub use pages::Pages;
pub use pipe::Pipe;
pub use receive_buffer::{ReceiveBuffer, receive_buffer, set_receive_buffer};
pub use reuseport::{ReuseportPair, bind_reuseport_pair};
pub use shared_words::SharedWords;
pub use shortage::{
    SHORTAGE_TIMEOUT, is_shortage, retry_shortage, set_wait_end, wait_end, without_waits,
};
pub use socket::{
    MAX_WINDOW, TcpInfo, congestion_control, defer_accept, enable_zerocopy, force_receive_buffer,
    force_send_buffer, grow_receive_window, limit_window_scale, peek, reap_zerocopy,
    receive_queue_bytes, send_eor, send_file, send_queue_bytes, send_zerocopy,
    set_congestion_control, set_notsent_lowat, set_pacing, set_user_timeout, set_window_clamp,
    tcp_info,
};
pub use stat::{FileKind, SpecialFile, Stat, Timestamp, stat_file};
pub use uring::ReadRing;
pub use xattr::{XattrTarget, is_xattr_unsupported};
