//! Network interfaces of this host: by address, and their link speed.
//!
//! Read-only. Does not consult routes: an address is looked up among those of the interfaces.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::ptr;

/// Ethernet overhead of a packet: preamble, header, frame check sequence and gap, in bytes. (IEEE
/// 802.3)
pub const ETHERNET_OVERHEAD_BYTES: u64 = 38;

/// Network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// True if it is the loopback interface.
    pub is_loopback: bool,
}

/// Returns the interface that has `address`; `None` if no interface has it.
///
/// # Errors
///
/// Any error of `getifaddrs`.
pub fn interface_of(address: IpAddr) -> io::Result<Option<Interface>> {
    let wanted = address.to_canonical();
    // 127.0.0.0/8 belongs to the loopback interface, which lists only one of its addresses.
    if wanted.is_loopback() {
        return Ok(Some(Interface { name: "lo".to_owned(), is_loopback: true }));
    }
    let found = addresses()?.into_iter().find(|entry| entry.address == wanted);
    Ok(found.map(|entry| Interface { name: entry.name, is_loopback: entry.is_loopback }))
}

/// Returns the addresses of an interface, each with the mask of its network.
///
/// # Errors
///
/// Any error of `getifaddrs`.
pub fn networks_of(name: &str) -> io::Result<Vec<(IpAddr, IpAddr)>> {
    let entries = addresses()?.into_iter().filter(|entry| entry.name == name);
    Ok(entries.filter_map(|entry| Some((entry.address, entry.mask?))).collect())
}

/// Address of an interface.
struct Entry {
    name: String,
    address: IpAddr,
    mask: Option<IpAddr>,
    is_loopback: bool,
}

/// Returns all addresses of all interfaces in this thread's network namespace.
fn addresses() -> io::Result<Vec<Entry>> {
    let mut first = ptr::null_mut();
    // SAFETY: the call allocates a list and writes its head to `first`, which outlives the call.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut entries = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list, which is freed only below.
        let entry = unsafe { &*next };
        // SAFETY: the address of an entry is null or as long as its family requires.
        if let Some(address) = unsafe { address_of(entry.ifa_addr) } {
            // SAFETY: the name is a NUL-terminated string that lives as long as the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            entries.push(Entry {
                name: name.to_string_lossy().into_owned(),
                address,
                // SAFETY: the mask is null or as long as its family requires.
                mask: unsafe { address_of(entry.ifa_netmask) },
                is_loopback: entry.ifa_flags & libc::IFF_LOOPBACK as libc::c_uint != 0,
            });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, and no reference to it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(entries)
}

/// Reads a kernel address.
///
/// # Safety
///
/// `raw` is null, or points to an address that is as long as its family requires.
unsafe fn address_of(raw: *const libc::sockaddr) -> Option<IpAddr> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family.
    match libc::c_int::from(unsafe { (*raw).sa_family }) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this length.
            let raw = unsafe { raw.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has this length.
            let raw = unsafe { raw.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(raw.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// Returns the link speed of an interface in bits per second.
///
/// `None` if the interface has no device (tunnels and veth pairs report a fictitious speed) or the
/// speed is unknown.
pub fn link_speed(name: &str) -> Option<u64> {
    let interface = Path::new("/sys/class/net").join(name);
    if !interface.join("device").exists() {
        return None;
    }
    let text = fs::read_to_string(interface.join("speed")).ok()?;
    // In Mbit/s; -1 if unknown.
    let speed: i64 = text.trim().parse().ok()?;
    u64::try_from(speed).ok().filter(|&speed| speed > 0).map(|speed| speed * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_of_address_is_found_or_none() {
        for address in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            let found = interface_of(address.parse().unwrap()).unwrap().unwrap();
            assert!(found.is_loopback && found.name == "lo", "{address}: {found:?}");
        }
        // Documentation addresses (RFC 5737 and RFC 3849).
        for address in ["192.0.2.77", "2001:db8::77"] {
            assert_eq!(interface_of(address.parse().unwrap()).unwrap(), None);
        }
    }

    #[test]
    fn networks_of_an_interface_have_masks() {
        let loopback: (IpAddr, IpAddr) =
            (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(255, 0, 0, 0).into());
        assert!(networks_of("lo").unwrap().contains(&loopback));
        assert_eq!(networks_of("none-such").unwrap(), []);
    }

    #[test]
    fn link_speed_without_device_is_unknown() {
        assert_eq!((link_speed("lo"), link_speed("none-such")), (None, None));
    }
}
