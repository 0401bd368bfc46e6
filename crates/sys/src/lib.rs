//! Thin safe wrappers over the Linux system calls that bankfull needs.
//!
//! What lives here: one function per thing the kernel can do for us, with its `unsafe` (this
//! crate is the only home of it), its retries on interruption, and the translation of "this
//! kernel or this filesystem cannot" into a value instead of an error. Confinement of a path
//! beneath a directory lives here too, because only the kernel can do it without a race.
//!
//! What never does: policy (when to copy, how much, what to do about an error), the protocol, and
//! any type of ours beyond the plain descriptions of what the kernel said.
//!
//! Every fallible function returns [`std::io::Result`]; an error that came from the kernel carries
//! its raw OS error. Names of directory entries are [`std::ffi::OsStr`], relative paths are bytes
//! with `/` between components: neither has to be UTF-8.
//!
//! Descriptors made here are all close-on-exec.

mod beneath;
pub mod datagram;
pub mod dir;
pub mod direct;
pub mod disk;
pub mod file;
pub mod host;
pub mod interface;
pub mod mapping;
pub mod memory;
pub mod pages;
pub mod pipe;
pub mod receive_buffer;
pub mod shared_port;
pub mod socket;
pub mod stat;
#[cfg(test)]
mod testing;
pub mod tun;
#[cfg(feature = "io-uring")]
pub mod uring;
#[cfg(not(feature = "io-uring"))]
#[path = "no_uring.rs"]
pub mod uring;

pub use datagram::{
    Datagram, cut_datagrams, join_datagrams, note_arrivals, note_refusals, path_mtu,
    receive_datagram, refused_by, send_cut,
};
pub use dir::{Dir, Entry};
pub use direct::{DirectAlign, cached_bytes, open_direct};
pub use disk::rotates;
pub use file::{
    advise_dont_need, advise_sequential, advise_will_need, clone_whole, copy_range, data_extent,
    punch_hole, reserve, set_mode, set_mtime, sync_all, sync_data, try_lock,
};
pub use host::{
    PIPE_BYTES, boot_id, effective_uid, exit_now, host_name, kernel_version, max_rss_bytes,
    process_cpu_time, raise_open_file_limit, random, thread_cpu_time, umask, wait_either,
    wait_readable, wait_writable,
};
pub use interface::{Interface, interface_of, link_speed};
pub use mapping::{Mapping, is_gone};
pub use memory::{Memory, memory};
pub use pages::Pages;
pub use pipe::Pipe;
pub use receive_buffer::{ReceiveBuffer, receive_buffer, set_receive_buffer};
pub use shared_port::{SharedPort, share_udp_port};
pub use socket::{
    TcpInfo, allow_uncopied, congestion_control, force_receive_buffer, force_send_buffer,
    hold_window, open_window, peek, send_apart, send_file, send_queue_bytes, send_uncopied,
    set_congestion_control, set_pacing, set_unsent_max, set_user_timeout, take_uncopied, tcp_info,
    unread_bytes,
};
pub use stat::{Kind, Stat, Timestamp, stat_file};
pub use uring::Reads;
