//! Receive buffer of a UDP socket: size, fill level and drops.
//!
//! The kernel counts memory including its overhead. As in `SO_RCVBUF`, half of it counts as data
//! here, which is about right for packets that fill an Ethernet frame; small packets take much more
//! than twice their data.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::socket::{get_int, set_int};

/// Ratio of the kernel's count to data (socket(7), SO_RCVBUF: "the kernel doubles this value").
const KERNEL_OVERHEAD_FACTOR: u64 = 2;

/// State of a receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// Size, in bytes of data.
    pub size: u64,
    /// Bytes in the buffer. The kernel releases read UDP data lazily: up to a quarter of the size
    /// may be too much.
    pub used: u64,
    /// Datagrams dropped since the socket was created; wraps around after `u32::MAX`.
    pub dropped: u32,
}

/// Returns the state of a socket's receive buffer.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 4.12.
pub fn receive_buffer(s: impl AsFd) -> io::Result<ReceiveBuffer> {
    // Indices of the nine values (linux/sock_diag.h, SK_MEMINFO_*).
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
        size: u64::from(values[RCVBUF]) / KERNEL_OVERHEAD_FACTOR,
        used: u64::from(values[RMEM_ALLOC]) / KERNEL_OVERHEAD_FACTOR,
        dropped: values[DROPS],
    })
}

/// Sets the receive buffer to `bytes` of data, and returns the granted size.
///
/// More than `net.core.rmem_max` requires `CAP_NET_ADMIN`. Data in the buffer stays, even if it
/// exceeds the new size.
///
/// # Errors
///
/// Any error of `setsockopt`, as for a descriptor that is not a socket.
pub fn set_receive_buffer(s: impl AsFd, bytes: u64) -> io::Result<u64> {
    let s = s.as_fd();
    // The kernel doubles the value, which is an int.
    let most = u64::from(i32::MAX.unsigned_abs()) / KERNEL_OVERHEAD_FACTOR;
    let wanted = libc::c_int::try_from(bytes.min(most)).unwrap_or(libc::c_int::MAX);
    if set_int(s, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err() {
        set_int(s, libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)?;
    }
    let granted = get_int(s, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    Ok(u64::try_from(granted).unwrap_or_default() / KERNEL_OVERHEAD_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn receive_buffer_reports_size_and_fill() {
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
    fn drops_are_counted_and_shrinking_keeps_data() {
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
    fn granted_receive_buffer_equals_reported_size() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let granted = set_receive_buffer(&here, u64::MAX).unwrap();
        assert_eq!(receive_buffer(&here).unwrap().size, granted);
    }
}
