//! UDP datagrams with kernel timestamps, segmentation offload (GSO, GRO) and delivery errors.
//!
//! Arrival timestamps separate the packets of a train that the reader receives together. The module
//! keeps no socket, and does not interpret datagrams.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::socket::{get_int, set_int};

/// Received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Length in bytes, at most that of the buffer.
    pub len: usize,
    /// Source address; absent if it is not an IP address.
    pub from: Option<SocketAddr>,
    /// Arrival time in the kernel since 1970; absent if the kernel did not report it.
    pub at: Option<Duration>,
}

/// Enables arrival timestamps.
///
/// # Errors
///
/// Any error of `setsockopt`.
pub fn enable_arrival_timestamps(s: impl AsFd) -> io::Result<()> {
    set_int(s, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Sets the GSO segment size: longer sends are cut into datagrams of `bytes`.
///
/// The kernel sends them back to back, up to 64 datagrams and 65 507 bytes. A shorter send stays
/// whole.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 4.18.
pub fn set_udp_gso_size(s: impl AsFd, bytes: u16) -> io::Result<()> {
    set_int(s, libc::IPPROTO_UDP, libc::UDP_SEGMENT, bytes.into())
}

/// Sends `bytes` to `to` in back-to-back datagrams of `each` bytes (GSO).
///
/// At most 64 datagrams and 65 507 bytes. Unlike [`set_udp_gso_size`], it does not affect other
/// datagrams of the socket, which the kernel may reject if `each` exceeds the path MTU.
///
/// # Errors
///
/// `EINVAL` before Linux 4.18; `EINVAL` or `EMSGSIZE` if `each` exceeds the path MTU; `EIO` if the
/// network card or the route (IPsec) cannot.
pub fn send_gso(s: impl AsFd, bytes: &[u8], each: u16, to: SocketAddr) -> io::Result<usize> {
    let (mut name, name_len) = to_sockaddr(to);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; TIMESTAMP_CONTROL_WORDS];
    // SAFETY: the structure consists of integers and pointers, for which all zero bytes are a
    // value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = name_len;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: both macros only compute; the first header is at the start of `control`, which has
    // room for it and the number after it, and is suitably aligned.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::IPPROTO_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(each);
    }
    // SAFETY: the descriptor is open while `s` is borrowed; `message` points to one part of the
    // length of `bytes`, which is only read, to `control` and to `name` with their lengths, and all
    // outlive the call.
    let sent = unsafe { libc::sendmsg(s.as_fd().as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Returns the path MTU to `to` in bytes, IP headers included.
///
/// The kernel knows the MTU of the interface, and lower values reported by routers.
///
/// # Errors
///
/// An error if there is no route to `to`.
pub fn path_mtu(to: SocketAddr) -> io::Result<u32> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A connected socket has a route; nothing is sent.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let mtu = match to {
        SocketAddr::V4(_) => get_int(&socket, libc::IPPROTO_IP, libc::IP_MTU)?,
        SocketAddr::V6(_) => get_int(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
    };
    Ok(u32::try_from(mtu).unwrap_or_default())
}

/// Returns an address in the kernel's format, and its length.
fn to_sockaddr(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: the structure consists of integers, for which all zero bytes are a value.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut name;
    let len = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the storage is large enough and aligned for all address types.
            let out = unsafe { &mut *place.cast::<libc::sockaddr_in>() };
            out.sin_family = libc::AF_INET as libc::sa_family_t;
            out.sin_port = v4.port().to_be();
            out.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            size_of_val(out)
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let out = unsafe { &mut *place.cast::<libc::sockaddr_in6>() };
            out.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            out.sin6_port = v6.port().to_be();
            out.sin6_flowinfo = v6.flowinfo();
            out.sin6_addr.s6_addr = v6.ip().octets();
            out.sin6_scope_id = v6.scope_id();
            size_of_val(out)
        }
    };
    (name, len as libc::socklen_t)
}

/// Enables GRO: back-to-back datagrams of equal length are received together.
///
/// A read returns up to 65 507 bytes.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 5.0.
pub fn enable_udp_gro(s: impl AsFd) -> io::Result<()> {
    set_int(s, libc::IPPROTO_UDP, libc::UDP_GRO, 1)
}

/// Size in words of a buffer for a control message with a time or number. Suitably aligned.
const TIMESTAMP_CONTROL_WORDS: usize = 8;

/// Receives a datagram, truncated to the length of `buf`.
///
/// # Errors
///
/// As for reading: `WouldBlock` on a non-blocking socket or after a read timeout, `Interrupted`,
/// `ConnectionRefused` if the destination reported that the port is closed.
pub fn receive_datagram(s: impl AsFd, buf: &mut [u8]) -> io::Result<Datagram> {
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut control = [0_u64; TIMESTAMP_CONTROL_WORDS];
    // SAFETY: both structures consist of integers and pointers, for which all zero bytes are a
    // value.
    let (mut message, mut name): (libc::msghdr, libc::sockaddr_storage) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of_val(&name) as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the descriptor is open while `s` is borrowed; `message` points to one part of the
    // length of `buf`, to `control` and to `name` with their lengths, and all outlive the call.
    let len = unsafe { libc::recvmsg(s.as_fd().as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    Ok(Datagram { len, from: from_sockaddr(&name), at: arrival_time(&message) })
}

/// Enables the error queue, from which [`next_rejected_destination`] reads rejected datagrams.
///
/// After an error, the next call on the socket fails with it and does nothing else.
///
/// # Errors
///
/// Any error of `setsockopt`.
pub fn enable_error_queue(s: impl AsFd, address: SocketAddr) -> io::Result<()> {
    let s = s.as_fd();
    if address.is_ipv6() {
        set_int(s, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    // An IPv6 socket may also carry IPv4.
    let over_v4 = set_int(s, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    if address.is_ipv6() { Ok(()) } else { over_v4 }
}

/// Returns the destination of the next datagram that was rejected because its port is closed.
///
/// The order is that of the ICMP errors. `None` if there are no more.
///
/// # Errors
///
/// As for receiving, except `WouldBlock`.
pub fn next_rejected_destination(s: impl AsFd) -> io::Result<Option<SocketAddr>> {
    loop {
        let mut control = [0_u64; ERROR_CONTROL_WORDS];
        // SAFETY: both structures consist of integers and pointers, for which all zero bytes are a
        // value.
        let (mut message, mut name): (libc::msghdr, libc::sockaddr_storage) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of_val(&name) as libc::socklen_t;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the descriptor is open while `s` is borrowed; `message` points to `control` and
        // to `name` with their lengths, and to no part, and all outlive the call.
        let len = unsafe { libc::recvmsg(s.as_fd().as_raw_fd(), &raw mut message, flags) };
        if len < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // The name is the destination of the datagram (ip(7), IP_RECVERR).
        if queued_error(&message) == Some(libc::ECONNREFUSED)
            && let Some(to) = from_sockaddr(&name)
        {
            return Ok(Some(to));
        }
    }
}

/// Size in words of a buffer for a control message with an error. The message includes the address
/// of the error's origin.
const ERROR_CONTROL_WORDS: usize = 16;

/// Returns the error in the control messages from the error queue.
fn queued_error(message: &libc::msghdr) -> Option<i32> {
    // SAFETY: the kernel has filled in the control messages and their length; the macro returns the
    // first one within, or null.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null, or points to a header within the control messages.
    while let Some(found) = unsafe { header.as_ref() } {
        let kind = (found.cmsg_level, found.cmsg_type);
        let is_error = kind == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
        if is_error {
            let data = libc::CMSG_DATA;
            // SAFETY: a message of this type holds an error, possibly unaligned.
            let error = unsafe { data(header).cast::<libc::sock_extended_err>().read_unaligned() };
            return i32::try_from(error.ee_errno).ok();
        }
        // SAFETY: `header` is one of those in `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

fn from_sockaddr(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place: *const libc::sockaddr_storage = name;
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type, and the storage is large enough and
            // aligned for all address types.
            let found = unsafe { &*place.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(found.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let found = unsafe { &*place.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(found.sin6_addr.s6_addr);
            let port = u16::from_be(found.sin6_port);
            Some(SocketAddrV6::new(ip, port, found.sin6_flowinfo, found.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Returns the time in the control messages of a datagram.
fn arrival_time(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled in the control messages and their length; the macro returns the
    // first one within, or null.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null, or points to a header within the control messages.
    while let Some(found) = unsafe { header.as_ref() } {
        if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_TIMESTAMPNS {
            // SAFETY: a message of this type holds a time, possibly unaligned.
            let time = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
            let seconds = u64::try_from(time.tv_sec).ok()?;
            return Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?));
        }
        // SAFETY: `header` is one of those in `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::SystemTime;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [a, b] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (a, b)
    }

    #[test]
    fn arrival_timestamp_is_not_read_time() {
        let (a, b) = pair();
        enable_arrival_timestamps(&b).unwrap();
        let since_1970 = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        // The kernel enables timestamps with a short delay.
        let is_noted = || {
            a.send(b"none").unwrap();
            thread::sleep(Duration::from_millis(5));
            let read = since_1970();
            receive_datagram(&b, &mut [0; 100]).unwrap().at.is_some_and(|at| at < read)
        };
        assert!((0..2_000).any(|_| is_noted()));
        let before = since_1970();
        a.send(b"one").unwrap();
        thread::sleep(Duration::from_millis(30));
        a.send(b"second").unwrap();
        let between = since_1970();
        thread::sleep(Duration::from_millis(30));
        let mut buf = [0; 100];
        let first = receive_datagram(&b, &mut buf).unwrap();
        assert_eq!(&buf[..first.len], b"one");
        let second = receive_datagram(&b, &mut buf).unwrap();
        assert_eq!(&buf[..second.len], b"second");
        let (first, second) = (first.at.unwrap(), second.at.unwrap());
        assert!(first >= before && second <= between, "{before:?} {first:?} {second:?}");
        assert!(second - first >= Duration::from_millis(30));
    }

    #[test]
    fn rejected_datagram_reports_destination() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(here) else { continue };
            enable_error_queue(&socket, socket.local_addr().unwrap()).unwrap();
            assert_eq!(next_rejected_destination(&socket).unwrap(), None);
            let closed_port = UdpSocket::bind(here).unwrap().local_addr().unwrap();
            socket.send_to(&[1; 100], closed_port).unwrap();
            let rejected = (0..1000).find_map(|_| {
                thread::sleep(Duration::from_millis(2));
                next_rejected_destination(&socket).unwrap()
            });
            assert_eq!(rejected, Some(closed_port));
            assert_eq!(next_rejected_destination(&socket).unwrap(), None);
        }
    }

    #[test]
    fn gso_send_arrives_as_datagrams() {
        let (a, b) = pair();
        set_udp_gso_size(&a, 10).unwrap();
        a.send(&[1; 25]).unwrap();
        let lens = [0; 3].map(|_| receive_datagram(&b, &mut [0; 100]).unwrap().len);
        assert_eq!(lens, [10, 10, 5]);
    }

    #[test]
    fn send_gso_does_not_affect_other_sends() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(a) = UdpSocket::bind(here) else { continue };
            let b = UdpSocket::bind(here).unwrap();
            b.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let to = b.local_addr().unwrap();
            assert_eq!(send_gso(&a, &[1; 25], 10, to).unwrap(), 25);
            a.send_to(&[2; 25], to).unwrap();
            let got = [0; 4].map(|_| receive_datagram(&b, &mut [0; 100]).unwrap());
            assert_eq!(got.map(|datagram| datagram.len), [10, 10, 5, 25]);
            assert!(got.iter().all(|datagram| datagram.from == a.local_addr().ok()));
        }
    }

    #[test]
    fn path_mtu_is_reported_or_no_route() {
        let there = |ip: IpAddr| SocketAddr::from((ip, 9));
        assert!(path_mtu(there(Ipv4Addr::LOCALHOST.into())).unwrap() >= 1500);
        if UdpSocket::bind("[::1]:0").is_ok() {
            assert!(path_mtu(there(Ipv6Addr::LOCALHOST.into())).unwrap() >= 1500);
        }
        assert!(path_mtu(there(Ipv4Addr::BROADCAST.into())).is_err());
    }

    #[test]
    fn received_datagram_has_ipv6_source() {
        let Ok(a) = UdpSocket::bind("[::1]:0") else { return };
        let b = UdpSocket::bind("[::1]:0").unwrap();
        a.send_to(b"x", b.local_addr().unwrap()).unwrap();
        let got = receive_datagram(&b, &mut [0; 9]).unwrap();
        assert_eq!(got.from, a.local_addr().ok());
    }

    #[test]
    fn datagram_without_timestamps_is_truncated() {
        let (a, b) = pair();
        a.send(&[7; 50]).unwrap();
        let mut buf = [0; 20];
        let from = a.local_addr().ok();
        assert_eq!(receive_datagram(&b, &mut buf).unwrap(), Datagram { len: 20, from, at: None });
        b.set_nonblocking(true).unwrap();
        assert_eq!(receive_datagram(&b, &mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
