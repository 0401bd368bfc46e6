//! Connections to the port for data, up to the point where they join a session. They can be begun
//! before there is one: their round trips then pass while the two sides agree on it.
//!
//! Nothing but the TLS handshake is written here. Whose certificate was shown is for the caller to
//! judge, who knows which one it has to be.

use crate::error::{Error, ErrorKind};
use crate::net::control::lock;
use crate::net::socket::configure;
use crate::net::tls;
use crate::options::Fingerprint;
use rustls::{ClientConfig, Connection};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How long one address of the data port may take to answer: twice the first retransmission of a
/// SYN (1 s and 2 s, RFC 6298) fits, and a firewall that drops does not hold the user up for long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Where data connections go, and how they are made.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) addresses: Vec<SocketAddr>,
    /// `None` for plain connections.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) timeout: Duration,
    /// Name of the far side, for messages.
    pub(crate) peer: String,
}

/// A connection that belongs to no session yet.
pub(crate) struct Dialled {
    pub(crate) socket: TcpStream,
    /// For an encrypted one, with the fingerprint that was shown.
    pub(crate) tls: Option<(Connection, Fingerprint)>,
}

impl Dialler {
    /// Connects, and makes the TLS handshake.
    pub(crate) fn dial(&self) -> Result<Dialled, Error> {
        let mut socket = self.reach()?;
        let lost = |e| Error::network(format!("a data connection to {} failed", self.peer), &e);
        configure(&socket, self.timeout).map_err(lost)?;
        socket.set_read_timeout(Some(self.timeout)).map_err(lost)?;
        let tls = match &self.tls {
            None => None,
            Some(config) => Some(
                tls::connect(config, &mut socket, &self.peer)
                    .map_err(|e| Error::new(ErrorKind::Network, e.to_string()))?,
            ),
        };
        Ok(Dialled { socket, tls })
    }

    fn reach(&self) -> Result<TcpStream, Error> {
        let mut last = None;
        let limit = CONNECT_TIMEOUT.min(self.timeout);
        for address in &self.addresses {
            match TcpStream::connect_timeout(address, limit) {
                Ok(socket) => return Ok(socket),
                Err(e) => last = Some((address, e)),
            }
        }
        match last {
            Some((address, e)) => {
                Err(Error::network(format!("cannot open a data connection to {address}"), &e))
            }
            None => Err(Error::new(
                ErrorKind::Network,
                format!("{} named no address for data connections", self.peer),
            )),
        }
    }

    /// Begins `count` connections, all at once.
    pub(crate) fn begin(&self, count: u32) -> Begun {
        let (sender, dialled) = mpsc::channel();
        for _ in 0..count {
            let (dialler, sender) = (self.clone(), sender.clone());
            // One that finds no thread is missing, and is made when it is needed.
            let _ = thread::Builder::new().spawn(move || drop(sender.send(dialler.dial())));
        }
        Begun(Mutex::new(Waiting { left: count, dialled: Some(dialled) }))
    }
}

/// Connections that are being made. Those that nobody takes are closed with this.
pub(crate) struct Begun(Mutex<Waiting>);

struct Waiting {
    /// How many may still be taken.
    left: u32,
    dialled: Option<Receiver<Result<Dialled, Error>>>,
}

impl Begun {
    /// Lets go of what comes after the first `count`.
    pub(crate) fn keep(&self, count: u32) {
        let mut waiting = lock(&self.0);
        waiting.left = waiting.left.min(count);
        waiting.close_when_empty();
    }

    /// What became of the next one; waits for it. `None` when there is no other.
    pub(crate) fn take(&self) -> Option<Result<Dialled, Error>> {
        let mut waiting = lock(&self.0);
        // Whoever comes after waits for the lock, as it would for a connection of its own.
        let dialled = waiting.dialled.as_ref()?.recv().ok()?;
        waiting.left = waiting.left.saturating_sub(1);
        waiting.close_when_empty();
        Some(dialled)
    }
}

impl Waiting {
    fn close_when_empty(&mut self) {
        if self.left == 0 {
            self.dialled = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn dialler(listener: &TcpListener) -> Dialler {
        Dialler {
            addresses: vec![listener.local_addr().unwrap()],
            tls: None,
            timeout: Duration::from_secs(5),
            peer: "there".to_owned(),
        }
    }

    #[test]
    fn connections_begun_are_handed_out_once_and_those_too_many_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let begun = dialler(&listener).begin(3);
        let mut accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        begun.keep(2);
        let taken: Vec<_> = (0..3).filter_map(|_| begun.take()).map(Result::unwrap).collect();
        assert_eq!(taken.len(), 2);
        let ours = |socket: &TcpStream| {
            let from = socket.peer_addr().unwrap();
            taken.iter().any(|d| d.socket.local_addr().unwrap() == from)
        };
        accepted.retain(|socket| !ours(socket));
        assert_eq!(accepted.len(), 1);
        accepted[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(accepted[0].read(&mut [0]).unwrap(), 0, "it was closed");
    }

    #[test]
    fn one_that_fails_is_told_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialler = dialler(&listener);
        drop(listener);
        let begun = dialler.begin(2);
        let failed = || begun.take().is_some_and(|dialled| dialled.is_err());
        assert!(failed() && failed() && begun.take().is_none());
    }
}
