//! What is asked of, or told to, a connected TCP socket besides reading and writing it.
//!
//! Reports the kernel's numbers in ordinary units and leaves out those it does not have. Does not
//! connect, accept, or judge the numbers.

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::tcp_info as RawInfo;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send, sendmsg,
    sockopt,
};

/// What TCP says about a connection. An absent value is one that this kernel does not report or
/// has not measured yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time; zero before the first measurement.
    pub rtt: Duration,
    /// Smallest round-trip time of late (over the last five minutes, by default).
    pub min_rtt: Option<Duration>,
    /// Segments sent again, over the life of the connection.
    pub total_retrans: u32,
    /// Segments sent again that had arrived before, as the peer has told (DSACK, RFC 2883).
    pub dsack_dups: Option<u32>,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
    /// Payload bytes sent, those sent again included.
    pub bytes_sent: Option<u64>,
    /// Payload bytes sent again.
    pub bytes_retrans: Option<u64>,
    /// Segments received that carried data.
    pub data_segs_in: Option<u32>,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// Segment size when sending, in bytes.
    pub snd_mss: u32,
    /// Latest measured rate of delivery to the peer, in bytes per second.
    pub delivery_rate_bytes_per_sec: Option<u64>,
    /// Rate to which sending is paced, in bytes per second; absent when unlimited.
    pub pacing_rate_bytes_per_sec: Option<u64>,
    /// Time spent limited by the peer's receive window.
    pub rwnd_limited: Option<Duration>,
    /// Time spent limited by our send buffer.
    pub sndbuf_limited: Option<Duration>,
    /// Time spent with something unacknowledged or unsent.
    pub busy_time: Option<Duration>,
    /// Round-trip time estimated as a receiver.
    pub rcv_rtt: Option<Duration>,
    /// Bytes that the application reads in a round trip, as the receive buffer's tuning sees it.
    pub rcv_space: u32,
    /// Receive window that we advertise, in bytes; not where the C library is musl, whose structure
    /// ends before it.
    pub rcv_wnd: Option<u32>,
    /// Receive window that the peer advertises, in bytes.
    pub snd_wnd: Option<u32>,
    /// Bytes in the send queue that have not been sent yet.
    pub notsent_bytes: Option<u32>,
}

/// Asks the kernel about a TCP connection.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn tcp_info(s: impl AsFd) -> io::Result<TcpInfo> {
    let (raw, len) = raw_tcp_info(s)?;
    Ok(TcpInfo::from_raw(&raw, len))
}

/// The kernel's structure, and how many bytes of it this kernel has filled in.
fn raw_tcp_info(s: impl AsFd) -> io::Result<(RawInfo, usize)> {
    // SAFETY: the structure is made of integers only, for which all bytes zero is a value.
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

/// The value of a field of the kernel's structure, `None` if the kernel's ends before it.
macro_rules! reported {
    ($raw:expr, $len:expr, $field:ident) => {
        (offset_of!(RawInfo, $field) + size_of_val(&$raw.$field) <= $len).then_some($raw.$field)
    };
}

impl TcpInfo {
    /// Reads the first `len` bytes of `raw`.
    ///
    /// The fields up to `tcpi_total_retrans` have been there for as long as we could run.
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
            rwnd_limited: reported!(raw, len, tcpi_rwnd_limited).map(micros),
            sndbuf_limited: reported!(raw, len, tcpi_sndbuf_limited).map(micros),
            busy_time: reported!(raw, len, tcpi_busy_time).map(micros),
            rcv_rtt: (raw.tcpi_rcv_rtt != 0).then(|| micros(raw.tcpi_rcv_rtt.into())),
            rcv_space: raw.tcpi_rcv_space,
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

/// The name of the congestion control algorithm that the connection uses.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn congestion_control(s: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(s)?)
}

/// Chooses the congestion control algorithm of the connection.
///
/// # Errors
///
/// `NotFound` if the kernel has none of that name, `PermissionDenied` if it is not among those
/// that anybody may use.
pub fn set_congestion_control(s: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(s, name)?)
}

/// How long sent data may stay unacknowledged before the connection is given up; zero is the
/// system's default. Rounded up to milliseconds, and down to the 24 days the kernel can hold.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn set_user_timeout(s: impl AsFd, timeout: Duration) -> io::Result<()> {
    // Up, because a timeout rounded down to zero would become the default of a quarter of an hour.
    let millis = timeout.as_nanos().div_ceil(1_000_000);
    let longest = i32::MAX as u32;
    let millis = u32::try_from(millis).map_or(longest, |ms| ms.min(longest));
    Ok(sockopt::set_tcp_user_timeout(s, millis)?)
}

/// Opens the receive window of a connection to about `bytes` at least, as far as the largest buffer
/// that the kernel allows; from there on the kernel goes on tuning it, which a buffer set by
/// `SO_RCVBUF` would end.
///
/// # Errors
///
/// What `setsockopt` answers for a socket that is none of TCP.
pub fn open_window(s: impl AsFd, bytes: u32) -> io::Result<()> {
    // To wake a reader only when so much is there, the kernel makes room for it at once
    // (`tcp_set_rcvlowat`). Nobody waits for that much: it is taken back, and the room stays.
    let most = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for low_water in [most, 1] {
        set_int(&s, libc::SOL_SOCKET, libc::SO_RCVLOWAT, low_water)?;
    }
    Ok(())
}

/// Keeps the receive window of a connection, or of those that a listening socket will accept, at
/// `bytes` at most; the kernel has a least value of about 1 kB. While data flows the kernel raises
/// the bound by itself now and then: whoever wants it held calls this again, which reads it back
/// and sets it only where it is another. A window that was offered already is not taken back.
///
/// # Errors
///
/// What `setsockopt` answers for a socket that is none of TCP.
pub fn hold_window(s: impl AsFd, bytes: u32) -> io::Result<()> {
    let most = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let s = s.as_fd();
    let is_held = get_int(s, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP)? == most;
    if is_held { Ok(()) } else { set_int(s, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, most) }
}

/// Gives a connection a receive buffer that fits a window of `bytes`, whatever `net.core.rmem_max`
/// and `net.ipv4.tcp_rmem` say. The kernel no longer tunes it from then on.
///
/// # Errors
///
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn force_receive_buffer(s: impl AsFd, bytes: u32) -> io::Result<()> {
    // The kernel doubles it: half is for what it keeps beside the data (socket(7), SO_RCVBUF).
    Ok(sockopt::set_socket_recv_buffer_size_force(s, bytes as usize)?)
}

/// Gives a connection a send buffer that fits `bytes` in flight, whatever `net.core.wmem_max` and
/// `net.ipv4.tcp_wmem` say. The kernel no longer tunes it from then on.
///
/// # Errors
///
/// `PermissionDenied` without `CAP_NET_ADMIN`.
pub fn force_send_buffer(s: impl AsFd, bytes: u32) -> io::Result<()> {
    // Doubled as well.
    Ok(sockopt::set_socket_send_buffer_size_force(s, bytes as usize)?)
}

/// Limits the rate of data that TCP sends, which it keeps by pacing itself; `None`: no limit any
/// longer, but it goes on pacing. Headers do not count.
///
/// # Errors
///
/// What `setsockopt` answers.
pub fn set_pacing(s: impl AsFd, bytes_per_sec: Option<u64>) -> io::Result<()> {
    // All ones: no limit (sk_max_pacing_rate, include/net/sock.h).
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

/// Has a connection take no more from its program while so much that it has is not sent.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn set_unsent_max(s: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(s, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes.cast_signed())
}

/// Sends bytes that TCP neither joins with those before nor with those after, and so hands down in
/// one super-packet at most: `MSG_EOR`. Returns how many were taken.
///
/// # Errors
///
/// As writing: `BrokenPipe` or `ConnectionReset` if the connection is gone.
pub fn send_apart(s: impl AsFd, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let mut nothing = SendAncillaryBuffer::default();
    Ok(sendmsg(s, parts, &mut nothing, SendFlags::EOR | SendFlags::NOSIGNAL)?)
}

/// Lets [`send_uncopied`] send from where the bytes are; false where the kernel cannot (before
/// 4.14).
///
/// # Errors
///
/// What goes wrong otherwise.
pub fn allow_uncopied(s: impl AsFd) -> io::Result<bool> {
    match set_int(s, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1) {
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        set => set.map(|()| true),
    }
}

/// Sends bytes from where they are, as far as the way out can (`MSG_ZEROCOPY`): what is changed
/// there before it has arrived may arrive changed. Returns how many were taken.
///
/// # Errors
///
/// `ENOBUFS` where too much was not taken off with [`take_uncopied`]; else as writing.
pub fn send_uncopied(s: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32) | SendFlags::NOSIGNAL;
    Ok(send(s, bytes, flags)?)
}

/// Takes in that bytes of [`send_uncopied`] are not needed any more, as far as that is so.
///
/// # Errors
///
/// What the connection has met.
pub fn take_uncopied(s: impl AsFd) -> io::Result<()> {
    loop {
        let mut nothing = RecvAncillaryBuffer::default();
        match recvmsg(&s, &mut [], &mut nothing, RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Bytes that have come on a socket and were not read.
///
/// # Errors
///
/// `EINVAL` for a listening socket.
pub fn unread_bytes(s: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(s)?)
}

/// Sets an option whose value is one int.
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

/// Sends up to `len` bytes of `file` from `offset` with one `sendfile`; the file's own offset does
/// not move. The answer is the number of bytes taken, which may be below `len`; zero at the end of
/// the file.
///
/// # Errors
///
/// `WouldBlock` on a non-blocking socket without room, `Interrupted` if a signal came first,
/// `BrokenPipe` or `ConnectionReset` if the connection is gone, `InvalidInput` if the file cannot
/// be sent this way.
pub fn send_file(out: impl AsFd, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
    let mut position = offset;
    Ok(rustix::fs::sendfile(out, file, Some(&mut position), len)?)
}

/// Reads what has arrived into `buf` without taking it off the queue; waits for the first byte
/// like a read would. Zero if the peer has closed (or `buf` is empty).
///
/// # Errors
///
/// As reading: `WouldBlock` on a non-blocking socket or after a read timeout, `Interrupted`,
/// `ConnectionReset`.
pub fn peek(s: impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    let (read, _) = recv(s, buf, RecvFlags::PEEK)?;
    Ok(read)
}

/// Bytes written to the socket that the peer has not acknowledged, sent or not.
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
