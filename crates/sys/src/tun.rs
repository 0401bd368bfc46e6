//! TUN and TAP interfaces, network namespaces and thread scheduling.
//!
//! Packets of TUN interfaces keep the kernel's segmentation and checksum offload: each read and
//! write has a 10-byte header before the IP packet, and the packet may be a super-packet of up to
//! 64 KiB. The caller interprets the header.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Setter, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Size of the header before each packet: `struct virtio_net_hdr`.
pub const OFFLOAD_HEADER_BYTES: usize = 10;

const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<libc::c_int>(b'T', 202);
const TUNSETOFFLOAD: rustix::ioctl::Opcode = opcode::write::<libc::c_uint>(b'T', 208);

/// `TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6`: packets without checksum, and TCP super-packets.
/// (linux/if_tun.h)
const TCP_OFFLOADS: usize = 0x01 | 0x02 | 0x04;

/// `TUN_F_USO4 | TUN_F_USO6`: UDP super-packets, since Linux 6.2; only both together.
/// (linux/if_tun.h)
const UDP_OFFLOADS: usize = 0x20 | 0x40;

/// Creates an interface in the calling thread's network namespace.
///
/// The interface is removed when the file is closed.
///
/// # Errors
///
/// `NotFound` without `/dev/net/tun`, `PermissionDenied` without `CAP_NET_ADMIN`, `EBUSY` if the
/// name is in use; `InvalidInput` if it is longer than 15 bytes.
pub fn open_tun(name: &str) -> io::Result<File> {
    let file = open_device(name, libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR)?;
    set_offloads(&file, TCP_OFFLOADS | UDP_OFFLOADS)
        .or_else(|_| set_offloads(&file, TCP_OFFLOADS))?;
    Ok(file)
}

/// Creates an interface of Ethernet frames, without a header before each.
///
/// # Errors
///
/// As [`open_tun`].
pub fn open_tap(name: &str) -> io::Result<File> {
    open_device(name, libc::IFF_TAP | libc::IFF_NO_PI)
}

fn open_device(name: &str, kind: libc::c_int) -> io::Result<File> {
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open("/dev/net/tun", flags, Mode::empty())?);
    // SAFETY: the structure consists of integers and bytes only, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = kind as i16;
    // SAFETY: the request takes a pointer to a `struct ifreq`, as passed.
    unsafe { ioctl(&file, Setter::<TUNSETIFF, libc::ifreq>::new(request))? };
    Ok(file)
}

fn set_offloads(file: &File, flags: usize) -> io::Result<()> {
    // SAFETY: the request takes its flags as the argument itself.
    unsafe { ioctl(file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags))? };
    Ok(())
}

/// Moves the calling thread, and no other, into a network namespace.
///
/// Sockets and processes that the thread creates belong to it. The thread should end afterwards.
///
/// # Errors
///
/// `NotFound` if the file is missing, `PermissionDenied` without `CAP_SYS_ADMIN`.
pub fn enter_network_namespace(path: &Path) -> io::Result<()> {
    let namespace = File::open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Gives the calling thread precise timers and real-time priority (`SCHED_FIFO`).
///
/// Returns false if the process lacks the permission for the priority.
///
/// # Errors
///
/// Any error except a missing permission.
pub fn set_realtime_priority() -> io::Result<bool> {
    // SAFETY: `prctl` with these arguments reads no memory.
    if unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread; the structure is only read and outlives the call.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) } == 0 {
        return Ok(true);
    }
    match Errno::from_io_error(&io::Error::last_os_error()) {
        Some(Errno::PERM | Errno::NOSYS) => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tun_interface_exists_while_file_is_open() {
        let name = format!("bktest{}", std::process::id() % 100_000);
        let path = Path::new("/sys/class/net").join(&name);
        match open_tun(&name) {
            Ok(file) => {
                assert!(path.exists());
                assert_eq!(open_tun(&name).unwrap_err().raw_os_error(), Some(libc::EBUSY));
                drop(file);
                assert!(!path.exists());
            }
            Err(e) => println!("skipped: no TUN interface can be made here ({e})"),
        }
        assert_eq!(open_tun("sixteen-bytes-xx").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn missing_network_namespace_is_not_found() {
        std::thread::spawn(|| {
            set_realtime_priority().unwrap();
            let missing = enter_network_namespace(Path::new("/run/netns/no-such-namespace"));
            assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        })
        .join()
        .unwrap();
    }
}
