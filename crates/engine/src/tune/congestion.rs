//! The congestion control of the connections that this side sends on, where the receiver may ask
//! for BBR: whether this host gives it, and who has it. What the user chose stays.

use crate::net::socket::Socket;
use crate::session::Session;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The name that the kernel has for it (net/ipv4/tcp_bbr.c).
const BBR: &str = "bbr";

/// Gives connections BBR and takes it away again.
pub(super) struct Congestion {
    /// Connections may be asked for it.
    offers: bool,
    /// They are to have it.
    is_wanted: bool,
    /// What those began with that have it from us.
    given: BTreeMap<u32, String>,
}

impl Congestion {
    pub(super) fn new(session: &Session) -> Self {
        // Where their number is to stay, nobody asks; the kernel may have to load it first.
        let is_free = session.overrides.congestion.is_none() && session.max_streams.is_some();
        let offers = is_free && has_bbr();
        Self { offers, is_wanted: false, given: BTreeMap::new() }
    }

    /// Whether connections may have it.
    pub(super) fn offers(&self) -> bool {
        self.offers
    }

    /// Whether they are to have it from now on.
    pub(super) fn want(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted && self.offers;
    }

    /// Sets what connections do not have yet: some come later.
    pub(super) fn set(&mut self, session: &Session) {
        let given = &mut self.given;
        if !self.is_wanted {
            if !given.is_empty() {
                session.for_each_stream(|number, socket| restore(socket, given.get(&number)));
                given.clear();
            }
            return;
        }
        session.for_each_stream(|number, socket| {
            given.entry(number).or_insert_with(|| give(socket).unwrap_or_default());
        });
    }
}

/// Gives a connection BBR; what it had, if it was something else.
fn give(socket: &Socket) -> Option<String> {
    let Socket::Tcp(tcp) = socket else { return None };
    let own = bankfull_sys::congestion_control(tcp).ok().filter(|own| own != BBR)?;
    bankfull_sys::set_congestion_control(tcp, BBR).ok().map(|()| own)
}

/// Gives a connection back what it had.
fn restore(socket: &Socket, own: Option<&String>) {
    if let (Socket::Tcp(tcp), Some(own)) = (socket, own.filter(|own| !own.is_empty())) {
        // The kernel had it a moment ago; where it has not, what comes tells.
        let _ = bankfull_sys::set_congestion_control(tcp, own);
    }
}

/// Whether this host gives it to us. Found once.
fn has_bbr() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let socket = |domain| socket2::Socket::new(domain, socket2::Type::STREAM, None);
        let socket = socket(socket2::Domain::IPV4).or_else(|_| socket(socket2::Domain::IPV6));
        socket.is_ok_and(|socket| bankfull_sys::set_congestion_control(&socket, BBR).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides::Overrides;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_get_it_later_ones_too_and_have_their_own_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || Socket::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let near = [connect(), connect()];
        let has = |socket: &Socket| match socket {
            Socket::Tcp(tcp) => bankfull_sys::congestion_control(tcp).unwrap(),
            _ => unreachable!(),
        };
        let reno = |socket: &Socket| match socket {
            Socket::Tcp(tcp) => bankfull_sys::set_congestion_control(tcp, "reno").unwrap(),
            _ => unreachable!(),
        };
        let mut session = Session::new(Overrides::default(), 1);
        assert!(!Congestion::new(&session).offers(), "nobody would ask");
        session.max_streams = Some(2);
        let mut congestion = Congestion::new(&session);
        if !congestion.offers() {
            println!("skipped: this host gives no BBR");
            return;
        }
        near.iter().for_each(reno);
        session.add_stream(0, &near[0]).unwrap();
        congestion.set(&session);
        assert_eq!(has(&near[0]), "reno");
        congestion.want(true);
        congestion.set(&session);
        session.add_stream(1, &near[1]).unwrap();
        congestion.set(&session);
        assert_eq!([has(&near[0]), has(&near[1])], [BBR, BBR]);
        congestion.want(false);
        congestion.set(&session);
        assert_eq!([has(&near[0]), has(&near[1])], ["reno", "reno"]);
    }

    #[test]
    fn what_the_user_chose_stays() {
        let congestion = Some("reno".to_owned());
        let set = Overrides { congestion, ..Overrides::default() };
        assert!(!Congestion::new(&Session::new(set, 1)).offers());
    }
}
