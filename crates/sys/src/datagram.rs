//! Datagrams with the time at which the kernel took them: what tells packets of a train apart that
//! a late reader finds together.
//!
//! Opens no socket that it keeps, and knows nothing of what is in the datagrams.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::socket::{get_int, set_int};

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its length, if it fitted.
    pub len: usize,
    /// Where it came from; absent for what is no address of IP.
    pub from: Option<SocketAddr>,
    /// When the kernel took it, since 1970; absent where the kernel did not say.
    pub at: Option<Duration>,
}

/// Lets the kernel note when each datagram arrives.
///
/// # Errors
///
/// What `setsockopt` answers.
pub fn note_arrivals(s: impl AsFd) -> io::Result<()> {
    set_int(s, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Cuts what is sent at once into datagrams of `bytes`: the kernel then sends them back to back, up
/// to 64 of them and 65 507 bytes. What is no longer than one stays whole.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 4.18.
pub fn cut_datagrams(s: impl AsFd, bytes: u16) -> io::Result<()> {
    set_int(s, libc::IPPROTO_UDP, libc::UDP_SEGMENT, bytes.into())
}

/// Sends what is to be cut into datagrams of `each` bytes, up to 64 of them and 65 507 bytes, back
/// to back to `to`. Unlike [`cut_datagrams`] it leaves other datagrams of the socket alone, which
/// the kernel may refuse where `each` does not fit the path.
///
/// # Errors
///
/// `EINVAL` before Linux 4.18 and, as `EMSGSIZE`, where `each` does not fit the path; `EIO` where
/// the card or the way (IPsec) cannot.
pub fn send_cut(s: impl AsFd, bytes: &[u8], each: u16, to: SocketAddr) -> io::Result<usize> {
    let (mut name, name_len) = name_of(to);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: it is made of integers and pointers, for which all bytes zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = name_len;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: both macros only compute; the first header lies at the beginning of `control`, which
    // has room for it and for the number behind it, and is aligned as it asks.
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

/// How large a packet may be on the way to `to`, with all headers of IP, as far as the kernel
/// knows by now: what its network takes, or what a router on the way has told.
///
/// # Errors
///
/// Where there is no way to `to`.
pub fn path_mtu(to: SocketAddr) -> io::Result<u32> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connected it has a route, and nothing is sent.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let mtu = match to {
        SocketAddr::V4(_) => get_int(&socket, libc::IPPROTO_IP, libc::IP_MTU)?,
        SocketAddr::V6(_) => get_int(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
    };
    Ok(u32::try_from(mtu).unwrap_or_default())
}

/// An address as the kernel takes it, and its length.
fn name_of(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: it is made of integers, for which all bytes zero is a value.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut name;
    let len = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the storage holds and aligns all types of addresses.
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

/// Lets what came back to back in datagrams of equal length be received at once, up to 65 507
/// bytes.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 5.0.
pub fn join_datagrams(s: impl AsFd) -> io::Result<()> {
    set_int(s, libc::IPPROTO_UDP, libc::UDP_GRO, 1)
}

/// Room for one control message with a time or a number, aligned as its header asks.
const CONTROL_WORDS: usize = 8;

/// Receives a datagram. What does not fit in `buf` is cut off.
///
/// # Errors
///
/// As reading: `WouldBlock` on a non-blocking socket or after a read timeout, `Interrupted`,
/// `ConnectionRefused` where the far side said that nobody listens.
pub fn receive_datagram(s: impl AsFd, buf: &mut [u8]) -> io::Result<Datagram> {
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: both are made of integers and pointers, for which all bytes zero is a value.
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
    Ok(Datagram { len, from: address_in(&name), at: time_in(&message) })
}

/// Lets the kernel keep what hosts answer that did not take a datagram, for [`refused_by`]. The
/// next call on the socket fails with the same, and does nothing else.
///
/// # Errors
///
/// What `setsockopt` answers.
pub fn note_refusals(s: impl AsFd, address: SocketAddr) -> io::Result<()> {
    let s = s.as_fd();
    if address.is_ipv6() {
        set_int(s, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    // An IPv6 socket may speak IPv4, too.
    let over_v4 = set_int(s, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    if address.is_ipv6() { Ok(()) } else { over_v4 }
}

/// Where a datagram was sent that the host there did not take, since nobody has the port; in the
/// order in which that was answered. `None`: no more is known.
///
/// # Errors
///
/// As receiving, but for `WouldBlock`.
pub fn refused_by(s: impl AsFd) -> io::Result<Option<SocketAddr>> {
    loop {
        let mut control = [0_u64; ERROR_WORDS];
        // SAFETY: both are made of integers and pointers, for which all bytes zero is a value.
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
        // The name is that of the datagram's destination. (ip(7), IP_RECVERR)
        if error_in(&message) == Some(libc::ECONNREFUSED)
            && let Some(to) = address_in(&name)
        {
            return Ok(Some(to));
        }
    }
}

/// Room for one control message with an error and the address of who has told it.
const ERROR_WORDS: usize = 16;

/// The error in the control messages that came from the error queue.
fn error_in(message: &libc::msghdr) -> Option<i32> {
    // SAFETY: the kernel has filled in the control messages and their length; the macro returns
    // the first that lies within, or null.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null, or points to a header within the control messages.
    while let Some(found) = unsafe { header.as_ref() } {
        let kind = (found.cmsg_level, found.cmsg_type);
        let is_error = kind == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
        if is_error {
            let data = libc::CMSG_DATA;
            // SAFETY: a message of this type holds an error; it need not be aligned for one.
            let error = unsafe { data(header).cast::<libc::sock_extended_err>().read_unaligned() };
            return i32::try_from(error.ee_errno).ok();
        }
        // SAFETY: `header` is one of those in `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

fn address_in(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place: *const libc::sockaddr_storage = name;
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is of this type, and the storage holds and aligns
            // all types of addresses.
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

/// The time in the control messages that came with a datagram.
fn time_in(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled in the control messages and their length; the macro returns
    // the first that lies within, or null.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null, or points to a header within the control messages.
    while let Some(found) = unsafe { header.as_ref() } {
        if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_TIMESTAMPNS {
            // SAFETY: a message of this type holds a time; it need not be aligned for one.
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
    fn datagrams_tell_when_they_came_and_not_when_they_were_read() {
        let (a, b) = pair();
        note_arrivals(&b).unwrap();
        let since_1970 = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        // The kernel begins to note them a moment after it was asked to.
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
    fn whoever_does_not_take_a_datagram_is_named() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(here) else { continue };
            note_refusals(&socket, socket.local_addr().unwrap()).unwrap();
            assert_eq!(refused_by(&socket).unwrap(), None);
            let nobody = UdpSocket::bind(here).unwrap().local_addr().unwrap();
            socket.send_to(&[1; 100], nobody).unwrap();
            let told = (0..1000).find_map(|_| {
                thread::sleep(Duration::from_millis(2));
                refused_by(&socket).unwrap()
            });
            assert_eq!(told, Some(nobody));
            assert_eq!(refused_by(&socket).unwrap(), None);
        }
    }

    #[test]
    fn what_is_sent_at_once_arrives_in_datagrams() {
        let (a, b) = pair();
        cut_datagrams(&a, 10).unwrap();
        a.send(&[1; 25]).unwrap();
        let lens = [0; 3].map(|_| receive_datagram(&b, &mut [0; 100]).unwrap().len);
        assert_eq!(lens, [10, 10, 5]);
    }

    #[test]
    fn what_is_cut_by_one_call_leaves_others_whole_and_comes_over_ipv6_too() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(a) = UdpSocket::bind(here) else { continue };
            let b = UdpSocket::bind(here).unwrap();
            b.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let to = b.local_addr().unwrap();
            assert_eq!(send_cut(&a, &[1; 25], 10, to).unwrap(), 25);
            a.send_to(&[2; 25], to).unwrap();
            let got = [0; 4].map(|_| receive_datagram(&b, &mut [0; 100]).unwrap());
            assert_eq!(got.map(|datagram| datagram.len), [10, 10, 5, 25]);
            assert!(got.iter().all(|datagram| datagram.from == a.local_addr().ok()));
        }
    }

    #[test]
    fn how_large_packets_may_be_is_told_or_that_there_is_no_way() {
        let there = |ip: IpAddr| SocketAddr::from((ip, 9));
        assert!(path_mtu(there(Ipv4Addr::LOCALHOST.into())).unwrap() >= 1500);
        if UdpSocket::bind("[::1]:0").is_ok() {
            assert!(path_mtu(there(Ipv6Addr::LOCALHOST.into())).unwrap() >= 1500);
        }
        assert!(path_mtu(there(Ipv4Addr::BROADCAST.into())).is_err());
    }

    #[test]
    fn an_address_of_ipv6_is_told_where_there_is_ipv6() {
        let Ok(a) = UdpSocket::bind("[::1]:0") else { return };
        let b = UdpSocket::bind("[::1]:0").unwrap();
        a.send_to(b"x", b.local_addr().unwrap()).unwrap();
        let got = receive_datagram(&b, &mut [0; 9]).unwrap();
        assert_eq!(got.from, a.local_addr().ok());
    }

    #[test]
    fn without_notes_there_is_no_time_and_what_does_not_fit_is_cut_off() {
        let (a, b) = pair();
        a.send(&[7; 50]).unwrap();
        let mut buf = [0; 20];
        let from = a.local_addr().ok();
        assert_eq!(receive_datagram(&b, &mut buf).unwrap(), Datagram { len: 20, from, at: None });
        b.set_nonblocking(true).unwrap();
        assert_eq!(receive_datagram(&b, &mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
