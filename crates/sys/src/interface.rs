//! Network interfaces of this host: which one an address belongs to, and how fast its link is.
//!
//! Only reads. Does not follow routes: an address is looked for among those that interfaces have.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::ptr;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Whether what is sent there stays on this host.
    pub is_loopback: bool,
}

/// The interface that has `address`; `None` where none has it (any more).
///
/// # Errors
///
/// What `getifaddrs` answers.
pub fn interface_of(address: IpAddr) -> io::Result<Option<Interface>> {
    let wanted = address.to_canonical();
    // All of 127.0.0.0/8 is the loopback's, which lists one address of it.
    if wanted.is_loopback() {
        return Ok(Some(Interface { name: "lo".to_owned(), is_loopback: true }));
    }
    let mut first = ptr::null_mut();
    // SAFETY: the kernel's answer is a list that the call allocates and whose head it writes to
    // `first`, which outlives the call.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = None;
    let mut next = first;
    while !next.is_null() && found.is_none() {
        // SAFETY: `next` is an entry of the list, which is freed below only.
        let entry = unsafe { &*next };
        // SAFETY: the address of an entry is null or as long as its family says.
        if unsafe { address_of(entry.ifa_addr) } == Some(wanted) {
            // SAFETY: the name is a string that ends in zero, and lives as long as the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let is_loopback = entry.ifa_flags & libc::IFF_LOOPBACK as libc::c_uint != 0;
            found = Some(Interface { name: name.to_string_lossy().into_owned(), is_loopback });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is kept.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The address that the kernel wrote down.
///
/// # Safety
///
/// `raw` is null, or points to an address that is as long as its family says.
unsafe fn address_of(raw: *const libc::sockaddr) -> Option<IpAddr> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family.
    match libc::c_int::from(unsafe { (*raw).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of this family, so it is that long.
            let raw = unsafe { raw.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so it is that long.
            let raw = unsafe { raw.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(raw.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// How many bits per second the link of an interface carries; `None` where no device stands behind
/// it (tunnels and pairs of virtual ends name a speed that nothing keeps to), or it does not tell.
pub fn link_speed(name: &str) -> Option<u64> {
    let interface = Path::new("/sys/class/net").join(name);
    if !interface.join("device").exists() {
        return None;
    }
    let text = fs::read_to_string(interface.join("speed")).ok()?;
    // In Mbit/s; -1 where it is not known.
    let speed: i64 = text.trim().parse().ok()?;
    u64::try_from(speed).ok().filter(|&speed| speed > 0).map(|speed| speed * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_its_addresses_and_nobody_has_one_for_documents() {
        for address in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            let found = interface_of(address.parse().unwrap()).unwrap().unwrap();
            assert!(found.is_loopback && found.name == "lo", "{address}: {found:?}");
        }
        // RFC 5737 and RFC 3849.
        for address in ["192.0.2.77", "2001:db8::77"] {
            assert_eq!(interface_of(address.parse().unwrap()).unwrap(), None);
        }
    }

    #[test]
    fn where_no_device_stands_behind_it_no_speed_is_known() {
        assert_eq!((link_speed("lo"), link_speed("none-such")), (None, None));
    }
}
