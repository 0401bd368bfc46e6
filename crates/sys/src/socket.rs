//! Options and state of a connected TCP socket.
//!
//! Reports the kernel's numbers in ordinary units, without those that the kernel lacks. Does not
//! connect, accept, or interpret the numbers.

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::tcp_info as RawInfo;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send, sendmsg,
    sockopt,
};

/// TCP statistics of a connection. Values that the kernel does not report or has not measured yet
/// are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed RTT; zero before the first measurement.
    pub rtt: Duration,
    /// Min RTT (of the last five minutes, by default).
    pub min_rtt: Option<Duration>,
    /// Retransmitted segments over the life of the connection.
    pub total_retrans: u32,
    /// Spurious retransmissions reported by the peer (DSACK, RFC 2883).
    pub dsack_dups: Option<u32>,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
    /// Payload bytes sent, including retransmissions.
    pub bytes_sent: Option<u64>,
    /// Payload bytes retransmitted.
    pub bytes_retrans: Option<u64>,
    /// Received segments with data.
    pub data_segs_in: Option<u32>,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// Segment size when sending, in bytes.
    pub snd_mss: u32,
    /// Latest delivery rate sample, in bytes per second.
    pub delivery_rate_bytes_per_sec: Option<u64>,
    /// Pacing rate, in bytes per second; absent if unlimited.
    pub pacing_rate_bytes_per_sec: Option<u64>,
    /// Limit of the pacing rate, in bytes per second; all ones if there is none.
    pub max_pacing_rate_bytes_per_sec: Option<u64>,
    /// Time limited by the peer's receive window.
    pub rwnd_limited: Option<Duration>,
    /// Time limited by the send buffer.
    pub sndbuf_limited: Option<Duration>,
    /// Time with unacknowledged or unsent data.
    pub busy_time: Option<Duration>,
    /// RTT estimated as a receiver.
    pub rcv_rtt: Option<Duration>,
    /// Bytes that the application reads per RTT, as estimated by receive buffer autotuning.
    pub rcv_space: u32,
    /// Largest receive window that is advertised at present, in bytes.
    pub rcv_ssthresh: u32,
    /// Advertised receive window, in bytes; absent with musl, whose structure ends before it.
    pub rcv_wnd: Option<u32>,
    /// Receive window advertised by the peer, in bytes.
    pub snd_wnd: Option<u32>,
    /// Unsent bytes in the send queue.
    pub notsent_bytes: Option<u32>,
}

/// Returns the statistics of a TCP connection.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn tcp_info(s: impl AsFd) -> io::Result<TcpInfo> {
    let (raw, len) = get_raw_tcp_info(s)?;
    Ok(TcpInfo::from_raw(&raw, len))
}

/// Returns the kernel's structure, and the number of bytes that this kernel has filled in.
fn get_raw_tcp_info(s: impl AsFd) -> io::Result<(RawInfo, usize)> {
    // SAFETY: the structure consists of integers only, for which all zero bytes are a value.
    let mut raw: RawInfo = unsafe { std::mem::zeroed() };
    let mut len = size_of::<RawInfo>() as libc::socklen_t;
    // SAFETY: the descriptor is open while `s` is borrowed; the kernel writes at most `len` bytes
    // to `raw`, which has that many, and the new length to `len`; both outlive the call.
    let outcome = unsafe {
        libc::getsockopt(
            s.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut raw).cast(),
            &raw mut len,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((raw, len as usize))
}

/// Evaluates to a field of the kernel's structure; `None` if the structure ends before it.
macro_rules! reported {
    ($raw:expr, $len:expr, $field:ident) => {
        (offset_of!(RawInfo, $field) + size_of_val(&$raw.$field) <= $len).then_some($raw.$field)
    };
}

impl TcpInfo {
    /// Reads the first `len` bytes of `raw`.
    ///
    /// All supported kernels have the fields up to `tcpi_total_retrans`.
    fn from_raw(raw: &RawInfo, len: usize) -> Self {
        Self {
            rtt: micros(raw.tcpi_rtt.into()),
            min_rtt: reported!(raw, len, tcpi_min_rtt)
                .filter(|&us| us != u32::MAX)
                .map(|us| micros(us.into())),
            total_retrans: raw.tcpi_total_retrans,
            dsack_dups: reported!(raw, len, tcpi_dsack_dups),
            bytes_acked: reported!(raw, len, tcpi_bytes_acked),
            bytes_received: reported!(raw, len, tcpi_bytes_received),
            bytes_sent: reported!(raw, len, tcpi_bytes_sent),
            bytes_retrans: reported!(raw, len, tcpi_bytes_retrans),
            data_segs_in: reported!(raw, len, tcpi_data_segs_in),
            snd_cwnd: raw.tcpi_snd_cwnd,
            snd_mss: raw.tcpi_snd_mss,
            delivery_rate_bytes_per_sec: reported!(raw, len, tcpi_delivery_rate)
                .filter(|&rate| rate != 0),
            pacing_rate_bytes_per_sec: reported!(raw, len, tcpi_pacing_rate)
                .filter(|&rate| rate != u64::MAX),
            max_pacing_rate_bytes_per_sec: reported!(raw, len, tcpi_max_pacing_rate),
            rwnd_limited: reported!(raw, len, tcpi_rwnd_limited).map(micros),
            sndbuf_limited: reported!(raw, len, tcpi_sndbuf_limited).map(micros),
            busy_time: reported!(raw, len, tcpi_busy_time).map(micros),
            rcv_rtt: (raw.tcpi_rcv_rtt != 0).then(|| micros(raw.tcpi_rcv_rtt.into())),
            rcv_space: raw.tcpi_rcv_space,
            rcv_ssthresh: raw.tcpi_rcv_ssthresh,
            #[cfg(target_env = "gnu")]
            rcv_wnd: reported!(raw, len, tcpi_rcv_wnd),
            #[cfg(not(target_env = "gnu"))]
            rcv_wnd: None,
            snd_wnd: reported!(raw, len, tcpi_snd_wnd),
            notsent_bytes: reported!(raw, len, tcpi_notsent_bytes),
        }
    }
}

fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Returns the congestion control algorithm of the connection.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn congestion_control(s: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(s)?)
}

/// Sets the congestion control algorithm of the connection.
///
/// # Errors
///
/// `NotFound` if the kernel has none of that name, `PermissionDenied` if it is reserved for
/// privileged users.
pub fn set_congestion_control(s: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(s, name)?)
}

/// Sets how long sent data may stay unacknowledged before the connection fails.
///
/// Zero is the system's default. Rounded up to milliseconds, and limited to the 24 days that the
/// kernel supports.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn set_user_timeout(s: impl AsFd, timeout: Duration) -> io::Result<()> {
    // Rounded up, because zero would select the default of a quarter of an hour.
    let millis = timeout.as_nanos().div_ceil(1_000_000);
    let longest = i32::MAX as u32;
    let millis = u32::try_from(millis).map_or(longest, |ms| ms.min(longest));
    Ok(sockopt::set_tcp_user_timeout(s, millis)?)
}

/// Grows the receive window to at least about `bytes`, limited by the largest buffer allowed.
///
/// Autotuning continues, which a buffer set by `SO_RCVBUF` would end.
///
/// # Errors
///
/// Any error of `setsockopt`, as for a socket that is not TCP.
pub fn grow_receive_window(s: impl AsFd, bytes: u32) -> io::Result<()> {
    // A high low-water mark makes the kernel enlarge the buffer at once (`tcp_set_rcvlowat`). The
    // mark is reset because no reader waits for that much; the buffer keeps its size.
    let most = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for low_water in [most, 1] {
        set_int(&s, libc::SOL_SOCKET, libc::SO_RCVLOWAT, low_water)?;
    }
    Ok(())
}

/// Divisor of the receive buffer: the part that may be in use when a window is clamped.
///
/// From Linux 5.15 to the fix of commit 58d3aade20cd, a clamp at a window of 0 closes it for ever:
/// `tcp_set_window_clamp` limits the threshold of the window to the one last advertised. The window
/// is 0 when the buffer is full, and half of it cannot fill between the check and the call.
const CLAMPABLE_BUFFER_DIVISOR: u32 = 2;

/// Largest window scale with which every window can shrink: units of 1 KiB, less than a segment.
///
/// An offered window is rounded up to the next unit, so that it stays the same if a unit holds more
/// than an acknowledgement covers (`tcp_select_window`, net/ipv4/tcp_output.c). With a `tcp_rmem`
/// of 64 MiB and more the kernel takes larger units, up to 16 KiB.
const MAX_WINDOW_SCALE: u32 = 10;

/// Largest window of a connection with [`limit_window_scale`], in bytes. (RFC 7323 §2.2)
pub const MAX_WINDOW: u32 = 65_535 << MAX_WINDOW_SCALE;

/// Limits the window scale of a socket or listener before its handshake.
///
/// A clamp can then narrow the window. The kernel derives the scale from the clamp
/// (`tcp_select_initial_window`).
///
/// # Errors
///
/// Any error of `setsockopt`, as for a socket that is not TCP.
pub fn limit_window_scale(s: impl AsFd) -> io::Result<()> {
    let most = libc::c_int::try_from(MAX_WINDOW).unwrap_or(libc::c_int::MAX);
    set_int(s.as_fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, most)
}

/// Limits the receive window of a connection, or of those from a listener, to `bytes`.
///
/// Returns false, and changes nothing, if so much data is unread that the window may be closed.
///
/// The kernel has a minimum of about 1 kB, and raises the clamp by itself while data flows: call
/// this repeatedly to keep it. The value is read first, and set only if it differs. A window that
/// was already advertised is not withdrawn.
///
/// # Errors
///
/// Any error of `setsockopt`, as for a socket that is not TCP.
pub fn set_window_clamp(s: impl AsFd, bytes: u32) -> io::Result<bool> {
    let most = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let s = s.as_fd();
    let is_held = get_int(s, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP)? == most;
    if is_held {
        return Ok(true);
    }
    let (used, limit) = receive_memory(s)?;
    if used > limit / CLAMPABLE_BUFFER_DIVISOR {
        return Ok(false);
    }
    set_int(s, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, most).map(|()| true)
}

/// Returns the memory of a socket's unread data, and its limit.
fn receive_memory(s: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // `rmem_alloc` and `rcvbuf` are the first two. (linux/sock_diag.h, SK_MEMINFO_*)
    let mut memory = [0u32; 2];
    let mut len = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the descriptor is open while `s` is borrowed; the kernel writes at most `len` bytes
    // to `memory`, which has that many, and the new length to `len`; both outlive the call.
    let outcome = unsafe {
        libc::getsockopt(
            s.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((memory[0], memory[1]))
}

/// Sets a receive buffer for a window of `bytes`, beyond `net.core.rmem_max` and
/// `net.ipv4.tcp_rmem`.
///
/// Disables autotuning of the buffer.
///
/// # Errors
///
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn force_receive_buffer(s: impl AsFd, bytes: u32) -> io::Result<()> {
    // The kernel doubles it: half is for its overhead (socket(7), SO_RCVBUF).
    Ok(sockopt::set_socket_recv_buffer_size_force(s, bytes as usize)?)
}

/// Sets a send buffer for `bytes` in flight, beyond `net.core.wmem_max` and `net.ipv4.tcp_wmem`.
///
/// Disables autotuning of the buffer.
///
/// # Errors
///
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn force_send_buffer(s: impl AsFd, bytes: u32) -> io::Result<()> {
    // Doubled as well.
    Ok(sockopt::set_socket_send_buffer_size_force(s, bytes as usize)?)
}

/// Enables TCP pacing with a maximum payload rate; `None` removes the limit but keeps pacing.
///
/// # Errors
///
/// Any error of `setsockopt`.
pub fn set_pacing(s: impl AsFd, bytes_per_sec: Option<u64>) -> io::Result<()> {
    // All ones: unlimited (sk_max_pacing_rate, include/net/sock.h).
    let rate = bytes_per_sec.unwrap_or(u64::MAX);
    // SAFETY: the descriptor is open while `s` is borrowed; the kernel reads eight bytes (since
    // 4.20), which outlive the call.
    let outcome = unsafe {
        libc::setsockopt(
            s.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Defers the accepting of connections until they have data, for at most about `seconds`.
///
/// Until then, the kernel keeps up to `backlog` of them as requests, without full sockets.
///
/// # Errors
///
/// Any error of `setsockopt` or `listen`.
pub fn defer_accept(listener: impl AsFd, seconds: u8, backlog: u16) -> io::Result<()> {
    let seconds = libc::c_int::from(seconds);
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while `listener` is borrowed; the kernel reads one int, which
    // outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    // For a socket that already listens, `listen` changes the backlog. (listen(2))
    // SAFETY: no memory is involved.
    if outcome != 0 || unsafe { libc::listen(fd, backlog.into()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Limits the unsent bytes in the send queue; at the limit, the socket is not writable.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn set_notsent_lowat(s: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(s, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes.cast_signed())
}

/// Sends bytes that TCP does not coalesce with earlier or later ones (`MSG_EOR`).
///
/// They leave in at most one super-packet. Returns the number of bytes accepted.
///
/// # Errors
///
/// As for writing: `BrokenPipe` or `ConnectionReset` if the connection is closed.
pub fn send_eor(s: impl AsFd, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let mut nothing = SendAncillaryBuffer::default();
    Ok(sendmsg(s, parts, &mut nothing, SendFlags::EOR | SendFlags::NOSIGNAL)?)
}

/// Enables [`send_zerocopy`]; false if the kernel cannot (before 4.14).
///
/// # Errors
///
/// Any other failure.
pub fn enable_zerocopy(s: impl AsFd) -> io::Result<bool> {
    match set_int(s, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1) {
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        set => set.map(|()| true),
    }
}

/// Sends bytes without copying them if possible (`MSG_ZEROCOPY`); returns the number accepted.
///
/// Bytes that change before they arrive may arrive changed.
///
/// # Errors
///
/// `ENOBUFS` if too many completions are pending, see [`reap_zerocopy`]; else as for writing.
pub fn send_zerocopy(s: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32) | SendFlags::NOSIGNAL;
    Ok(send(s, bytes, flags)?)
}

/// Consumes the pending completions of [`send_zerocopy`].
///
/// # Errors
///
/// A pending error of the connection.
pub fn reap_zerocopy(s: impl AsFd) -> io::Result<()> {
    loop {
        let mut nothing = RecvAncillaryBuffer::default();
        match recvmsg(&s, &mut [], &mut nothing, RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns the bytes in the receive queue that have not been read.
///
/// # Errors
///
/// `EINVAL` for a listening socket.
pub fn receive_queue_bytes(s: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(s)?)
}

/// Returns an option whose value is an int.
pub(crate) fn get_int(
    s: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open while `s` is borrowed; the kernel writes at most `len` bytes
    // to `value`, which has that many, and the new length to `len`; both outlive the call.
    let outcome = unsafe {
        libc::getsockopt(s.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

pub(crate) fn set_int(
    s: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open while `s` is borrowed; the kernel reads one int, which
    // outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            s.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends up to `len` bytes of `file` at `offset` with one `sendfile`.
///
/// The file's own offset does not move. Returns the number of bytes accepted, which may be below
/// `len`; zero at the end of the file.
///
/// # Errors
///
/// `WouldBlock` on a non-blocking socket whose buffer is full, `Interrupted` after a signal,
/// `BrokenPipe` or `ConnectionReset` if the connection is closed, `InvalidInput` if the file does
/// not support it.
pub fn send_file(out: impl AsFd, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
    let mut position = offset;
    Ok(rustix::fs::sendfile(out, file, Some(&mut position), len)?)
}

/// Reads into `buf` without removing the bytes from the queue; waits for the first byte.
///
/// Zero if the peer has closed (or `buf` is empty).
///
/// # Errors
///
/// As for reading: `WouldBlock` on a non-blocking socket or after a read timeout, `Interrupted`,
/// `ConnectionReset`.
pub fn peek(s: impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    let (read, _) = recv(s, buf, RecvFlags::PEEK)?;
    Ok(read)
}

/// Returns the bytes in the send queue: unsent or not acknowledged.
///
/// # Errors
///
/// `EINVAL` for a listening socket.
pub fn send_queue_bytes(s: impl AsFd) -> io::Result<u32> {
    let mut queued: libc::c_int = 0;
    // SAFETY: the descriptor is open while `s` is borrowed; SIOCOUTQ (which has the number of
    // TIOCOUTQ) writes one int, to a place that outlives the call.
    let outcome = unsafe { libc::ioctl(s.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(queued).unwrap_or(0))
}

#[cfg(test)]
mod tests;
