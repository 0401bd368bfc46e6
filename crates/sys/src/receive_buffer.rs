//! The receive buffer of a socket whose sender nobody holds back: how large it is, what stands in
//! it, and what was dropped for want of room.
//!
//! The kernel counts the memory that datagrams take, with what it keeps beside them. Here, as in
//! `SO_RCVBUF`, half of that counts as data, which is about right for packets that fill an
//! Ethernet frame; small ones take much more than twice their data.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::socket::{get_int, set_int};

/// Of what the kernel counts, one part in so many is data (socket(7), SO_RCVBUF: "the kernel
/// doubles this value").
const DOUBLED: u64 = 2;

/// How full a receive buffer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Its size, in bytes of data.
    pub size: u64,
    /// What stands in it. The kernel gives back what was read of a UDP socket by and by: it may be
    /// up to a quarter of the size more than that.
    pub used: u64,
    /// Datagrams that were dropped since the socket was made. It counts up to `u32::MAX`, and
    /// begins anew.
    pub dropped: u32,
}

/// How full the receive buffer of a socket is.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 4.12.
pub fn receive_buffer(s: impl AsFd) -> io::Result<ReceiveBuffer> {
    // By name, since the numbers of drops are the last of nine (linux/sock_diag.h, SK_MEMINFO_*).
    const RMEM_ALLOC: usize = 0;
    const RCVBUF: usize = 1;
    const DROPS: usize = 8;
    let mut values = [0_u32; DROPS + 1];
    let mut len = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the descriptor is open while `s` is borrowed; the kernel writes at most `len` bytes
    // to `values`, which has that many, and the new length to `len`; both outlive the call.
    let outcome = unsafe {
        libc::getsockopt(
            s.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ReceiveBuffer {
        size: u64::from(values[RCVBUF]) / DOUBLED,
        used: u64::from(values[RMEM_ALLOC]) / DOUBLED,
        dropped: values[DROPS],
    })
}

/// Gives a socket a receive buffer for so many bytes of data: as many as the kernel grants, which
/// is the answer. More than `net.core.rmem_max` needs `CAP_NET_ADMIN`. What stands in the buffer
/// stays, even where it is more.
///
/// # Errors
///
/// What `setsockopt` answers for what is no socket.
pub fn set_receive_buffer(s: impl AsFd, bytes: u64) -> io::Result<u64> {
    let s = s.as_fd();
    // The kernel doubles it in an int.
    let most = u64::from(i32::MAX.unsigned_abs()) / DOUBLED;
    let wanted = libc::c_int::try_from(bytes.min(most)).unwrap_or(libc::c_int::MAX);
    if set_int(s, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err() {
        set_int(s, libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)?;
    }
    let granted = get_int(s, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    Ok(u64::try_from(granted).unwrap_or_default() / DOUBLED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_is_granted_and_what_stands_in_it_is_told() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let granted = set_receive_buffer(&here, 100_000).unwrap();
        let empty = receive_buffer(&here).unwrap();
        assert_eq!((empty.size, empty.used, empty.dropped), (granted, 0, 0));
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        there.send_to(&[1; 5000], here.local_addr().unwrap()).unwrap();
        let used = receive_buffer(&here).unwrap().used;
        assert!((2500..20_000).contains(&used), "{used}");
        here.recv(&mut [0; 5000]).unwrap();
        assert_eq!(receive_buffer(&here).unwrap().used, 0);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_a_smaller_buffer_keeps_what_it_has() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let large = set_receive_buffer(&here, 200_000).unwrap();
        let to = here.local_addr().unwrap();
        for _ in 0..200 {
            there.send_to(&[1; 5000], to).unwrap();
        }
        let full = receive_buffer(&here).unwrap();
        assert!(full.dropped > 100 && full.used > large / 2, "{full:?}");
        let small = set_receive_buffer(&here, 20_000).unwrap();
        let now = receive_buffer(&here).unwrap();
        assert!(small < large && now.used == full.used, "{now:?}");
        assert_eq!(here.recv(&mut [0; 5000]).unwrap(), 5000);
    }

    #[test]
    fn no_more_is_granted_than_is_allowed_and_what_it_is_is_told() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let granted = set_receive_buffer(&here, u64::MAX).unwrap();
        assert_eq!(receive_buffer(&here).unwrap().size, granted);
    }
}
