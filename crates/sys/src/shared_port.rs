//! Two UDP sockets at one port, told apart by how datagrams begin.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// A port with two sockets.
#[derive(Debug)]
pub struct SharedPort {
    /// Gets what begins with the mark, and what is shorter.
    pub marked: UdpSocket,
    /// Gets everything else.
    pub other: UdpSocket,
}

/// Binds two sockets to `address`; port 0 takes a free one.
///
/// # Errors
///
/// As binding; `ENOPROTOOPT` before Linux 4.5.
pub fn share_udp_port(mut address: SocketAddr, mark: [u8; 8]) -> io::Result<SharedPort> {
    // By itself first, so that no other program's socket is joined.
    let alone = UdpSocket::bind(address)?;
    address = alone.local_addr()?;
    drop(alone);
    let marked = bind_shared(address)?;
    let other = bind_shared(address)?;
    tell_apart(&marked, mark)?;
    Ok(SharedPort { marked, other })
}

fn bind_shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket: OwnedFd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

/// Of sockets at one port, the first gets what begins with `mark`, and the second what does not.
fn tell_apart(socket: &UdpSocket, mark: [u8; 8]) -> io::Result<()> {
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| mark[at + n]));
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0);
    let other_unless = |word, steps| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, word, steps);
    let choose = |socket| step(libc::BPF_RET | libc::BPF_K, socket, 0);
    // The number of the socket, in the order in which they were bound; where a datagram is too
    // short for a load, the answer is 0. (socket(7), SO_ATTACH_REUSEPORT_CBPF)
    let mut program = [
        load(0),
        other_unless(word(0), 3),
        load(4),
        other_unless(word(4), 1),
        choose(0),
        choose(1),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the descriptor is open while `socket` is borrowed; `filter` points to as many steps
    // as it says, which the kernel copies, and both outlive the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A step of a filter: for a comparison, how many steps to leave out where it fails.
fn step(code: u32, value: u32, left_out: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: left_out, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn datagrams_go_to_their_socket() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(shared) = share_udp_port(here.parse().unwrap(), *b"MARKMARK") else {
                assert!(here.starts_with('['), "IPv4 is everywhere");
                continue;
            };
            let address = shared.marked.local_addr().unwrap();
            assert_eq!(shared.other.local_addr().unwrap(), address);
            let client = UdpSocket::bind(here).unwrap();
            let marked: [&[u8]; 3] = [b"MARKMARK and more", b"MARKMARK", b""];
            let other: [&[u8]; 3] = [b"MARKMARe", b"\xc0\0\0\x01aaaa", b"xARKMARK"];
            marked.iter().chain(&other).for_each(|bytes| {
                client.send_to(bytes, address).unwrap();
            });
            let took = |socket: &UdpSocket| {
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                [0; 3].map(|_| {
                    let mut buf = [0; 100];
                    let len = socket.recv(&mut buf).unwrap();
                    buf[..len].to_vec()
                })
            };
            assert_eq!(took(&shared.marked), marked.map(<[u8]>::to_vec));
            assert_eq!(took(&shared.other), other.map(<[u8]>::to_vec));
        }
    }

    #[test]
    fn a_port_that_somebody_has_is_not_shared() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = share_udp_port(taken.local_addr().unwrap(), *b"MARKMARK").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let shared = share_udp_port("127.0.0.1:0".parse().unwrap(), *b"MARKMARK").unwrap();
        let address = shared.marked.local_addr().unwrap();
        assert!(share_udp_port(address, *b"MARKMARK").is_err());
    }
}
