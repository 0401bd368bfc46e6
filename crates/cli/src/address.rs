//! Addresses to listen on, and the name of this host.

use crate::flags::Listen;
use bankfull::{Error, ErrorKind};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Returns the first address of the host, or every local address without one.
pub(crate) fn resolve(listen: &Listen) -> Result<SocketAddr, Error> {
    if listen.host.is_empty() || listen.host == "::" {
        return Ok(every_address(listen.port));
    }
    let found = (listen.host.as_str(), listen.port).to_socket_addrs().map(|mut all| all.next());
    let cannot = |why: String| {
        Error::new(ErrorKind::Network, format!("cannot listen on {}: {why}", listen.host))
    };
    let way_out = "check the name, or give an IP address of this host";
    found
        .map_err(|e| cannot(format!("{} ({way_out})", lookup_message(&e))))?
        .ok_or_else(|| cannot(format!("no IP address ({way_out})")))
}

/// Returns the name of this host, or `HOST` if it has none.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "HOST".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns why a name has no address, without the prefix of the standard library.
fn lookup_message(error: &io::Error) -> String {
    let text = error.to_string();
    let why = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    let mut chars = why.chars();
    chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
}

/// Returns `[::]`, which accepts IPv4 too, or `0.0.0.0` without IPv6.
fn every_address(port: u16) -> SocketAddr {
    let v6 = Ipv6Addr::UNSPECIFIED;
    if UdpSocket::bind((v6, 0)).is_ok() {
        (v6, port).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, port).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_without_address_has_a_way_out() {
        let library = "failed to lookup address information: Name or service not known";
        assert_eq!(lookup_message(&io::Error::other(library)), "name or service not known");
        let listen = Listen { host: "no name".to_owned(), port: 1 };
        let error = resolve(&listen).unwrap_err().to_string();
        assert!(error.starts_with("cannot listen on no name: "), "{error}");
        assert!(error.ends_with("(check the name, or give an IP address of this host)"), "{error}");
    }
}
