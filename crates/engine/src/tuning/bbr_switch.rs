//! Switches the sending side's streams to BBR at the receiver's request, and back.
//!
//! A congestion control that the user chose is never replaced.

use crate::session::Session;
use crate::transport::socket::Socket;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tracing::debug;

/// The kernel's name of BBR. (net/ipv4/tcp_bbr.c)
const BBR: &str = "bbr";

/// Switches streams between BBR and their own congestion control.
pub(crate) struct BbrSwitch {
    /// This host and the user's settings allow the switch.
    is_available: bool,
    is_requested: bool,
    /// Previous congestion control of each stream; empty if none was replaced.
    replaced: BTreeMap<u32, String>,
}

impl BbrSwitch {
    /// Creates a switch. Tests if this host allows BBR, unless the session excludes it.
    pub(crate) fn new(session: &Session) -> Self {
        // With a fixed stream count the receiver sends no request, and the test may load a module.
        let is_free = session.overrides.congestion.is_none() && session.target.max.is_some();
        let is_available = is_free && is_bbr_allowed();
        Self { is_available, is_requested: false, replaced: BTreeMap::new() }
    }

    /// True if the receiver may request BBR.
    pub(crate) fn is_available(&self) -> bool {
        self.is_available
    }

    /// Stores the receiver's request; [`apply`](Self::apply) carries it out.
    pub(crate) fn request(&mut self, is_requested: bool) {
        self.is_requested = is_requested && self.is_available;
    }

    /// Applies the request to all streams, including those opened since the last call.
    pub(crate) fn apply(&mut self, session: &Session) {
        let replaced = &mut self.replaced;
        if !self.is_requested {
            if !replaced.is_empty() {
                session.for_each_stream(|number, socket| restore(socket, replaced.get(&number)));
                replaced.clear();
            }
            return;
        }
        session.for_each_stream(|number, socket| {
            replaced.entry(number).or_insert_with(|| switch_to_bbr(socket).unwrap_or_default());
        });
    }
}

/// Switches a stream to BBR. Returns the congestion control it replaced, if any.
fn switch_to_bbr(socket: &Socket) -> Option<String> {
    let Socket::Tcp(tcp) = socket else { return None };
    let previous = bankfull_sys::congestion_control(tcp).ok().filter(|name| name != BBR)?;
    bankfull_sys::set_congestion_control(tcp, BBR).ok().map(|()| previous)
}

/// Restores a stream's previous congestion control.
fn restore(socket: &Socket, previous: Option<&String>) {
    if let (Socket::Tcp(tcp), Some(name)) = (socket, previous.filter(|name| !name.is_empty())) {
        // The kernel offered it before. If it no longer does, the stream stays with BBR.
        if let Err(error) = bankfull_sys::set_congestion_control(tcp, name) {
            debug!(name, reason = &*error.to_string(), "congestion control not restored");
        }
    }
}

/// True if this process may use BBR. Tested once.
fn is_bbr_allowed() -> bool {
    static IS_ALLOWED: OnceLock<bool> = OnceLock::new();
    *IS_ALLOWED.get_or_init(|| {
        let socket = |domain| socket2::Socket::new(domain, socket2::Type::STREAM, None);
        let socket = socket(socket2::Domain::IPV4).or_else(|_| socket(socket2::Domain::IPV6));
        socket.is_ok_and(|socket| bankfull_sys::set_congestion_control(&socket, BBR).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::overrides::Overrides;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn bbr_switch_covers_later_streams_and_restores_all() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || Socket::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let streams = [connect(), connect()];
        let current = |socket: &Socket| match socket {
            Socket::Tcp(tcp) => bankfull_sys::congestion_control(tcp).unwrap(),
            _ => unreachable!(),
        };
        let set_reno = |socket: &Socket| match socket {
            Socket::Tcp(tcp) => bankfull_sys::set_congestion_control(tcp, "reno").unwrap(),
            _ => unreachable!(),
        };
        let mut session = Session::new(Overrides::default(), 1);
        assert!(!BbrSwitch::new(&session).is_available(), "the stream count is fixed");
        session.target.max = Some(2);
        let mut bbr = BbrSwitch::new(&session);
        if !bbr.is_available() {
            println!("skipped: this host does not allow BBR");
            return;
        }
        streams.iter().for_each(set_reno);
        session.add_stream(0, &streams[0]).unwrap();
        bbr.apply(&session);
        assert_eq!(current(&streams[0]), "reno");
        bbr.request(true);
        bbr.apply(&session);
        session.add_stream(1, &streams[1]).unwrap();
        bbr.apply(&session);
        assert_eq!([current(&streams[0]), current(&streams[1])], [BBR, BBR]);
        bbr.request(false);
        bbr.apply(&session);
        assert_eq!([current(&streams[0]), current(&streams[1])], ["reno", "reno"]);
    }

    #[test]
    fn bbr_switch_user_choice_makes_it_unavailable() {
        let congestion = Some("reno".to_owned());
        let overrides = Overrides { congestion, ..Overrides::default() };
        assert!(!BbrSwitch::new(&Session::new(overrides, 1)).is_available());
    }
}
