//! Two UDP sockets on one port (SO_REUSEPORT), selected by the first bytes of a datagram.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Two sockets bound to one port.
#[derive(Debug)]
pub struct ReuseportPair {
    /// Receives datagrams that begin with the mark, and shorter ones.
    pub marked: UdpSocket,
    /// Receives all other datagrams.
    pub unmarked: UdpSocket,
}

/// Binds two sockets to `address`; port 0 selects a free one.
///
/// # Errors
///
/// As for binding; `ENOPROTOOPT` before Linux 4.5.
pub fn bind_reuseport_pair(mut address: SocketAddr, mark: [u8; 8]) -> io::Result<ReuseportPair> {
    // Bound without SO_REUSEPORT first, so that the port is not shared with another program.
    let alone = UdpSocket::bind(address)?;
    address = alone.local_addr()?;
    drop(alone);
    let marked = bind_reuseport(address)?;
    let unmarked = bind_reuseport(address)?;
    attach_filter(&marked, mark)?;
    Ok(ReuseportPair { marked, unmarked })
}

fn bind_reuseport(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket: OwnedFd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

/// Attaches a filter: datagrams with `mark` go to the first socket, all others to the second.
fn attach_filter(socket: &UdpSocket, mark: [u8; 8]) -> io::Result<()> {
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| mark[at + n]));
    let load = |at| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0);
    let select_other_unless =
        |word, steps| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, word, steps);
    let select = |socket| instruction(libc::BPF_RET | libc::BPF_K, socket, 0);
    // The result is the index of the socket, in the order of binding; it is 0 if a datagram is too
    // short for a load. (socket(7), SO_ATTACH_REUSEPORT_CBPF)
    let mut program = [
        load(0),
        select_other_unless(word(0), 3),
        load(4),
        select_other_unless(word(4), 1),
        select(0),
        select(1),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the descriptor is open while `socket` is borrowed; `filter` points to as many
    // instructions as it states, which the kernel copies, and both outlive the call.
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

/// Returns a BPF instruction; a failed comparison skips `skipped` instructions.
fn instruction(code: u32, value: u32, skipped: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skipped, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn datagrams_are_selected_by_mark() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(shared) = bind_reuseport_pair(here.parse().unwrap(), *b"MARKMARK") else {
                assert!(here.starts_with('['), "IPv4 is everywhere");
                continue;
            };
            let address = shared.marked.local_addr().unwrap();
            assert_eq!(shared.unmarked.local_addr().unwrap(), address);
            let client = UdpSocket::bind(here).unwrap();
            let marked: [&[u8]; 3] = [b"MARKMARK and more", b"MARKMARK", b""];
            let unmarked: [&[u8]; 3] = [b"MARKMARe", b"\xc0\0\0\x01aaaa", b"xARKMARK"];
            marked.iter().chain(&unmarked).for_each(|bytes| {
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
            assert_eq!(took(&shared.unmarked), unmarked.map(<[u8]>::to_vec));
        }
    }

    #[test]
    fn port_in_use_is_not_shared() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = bind_reuseport_pair(taken.local_addr().unwrap(), *b"MARKMARK").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let shared = bind_reuseport_pair("127.0.0.1:0".parse().unwrap(), *b"MARKMARK").unwrap();
        let address = shared.marked.local_addr().unwrap();
        assert!(bind_reuseport_pair(address, *b"MARKMARK").is_err());
    }
}
