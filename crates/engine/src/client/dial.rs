//! Connections to the port for data, up to the point where they join a session. They can be begun
//! before there is one: their round trips then pass while the two sides agree on it.
//!
//! Nothing but the TLS handshake is written here. Whose certificate was shown is for the caller to
//! judge, who knows which one it has to be.

use crate::error::{Error, ErrorKind};
use crate::net::control::lock;
use crate::net::quic::{QuicConnection, QuicPort, QuicStream};
use crate::net::socket::{Socket, configure};
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
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Where data connections go, and how they are made.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) addresses: Vec<SocketAddr>,
    /// `None` for plain connections.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// In place of TCP, streams of one QUIC connection.
    pub(crate) quic: Option<Arc<QuicDialler>>,
    pub(crate) timeout: Duration,
    /// Name of the far side, for messages.
    pub(crate) peer: String,
}

/// A connection that belongs to no session yet.
pub(crate) struct Dialled {
    pub(crate) socket: Socket,
    /// What encrypts it, where the socket does not.
    pub(crate) tls: Option<Connection>,
    /// For an encrypted one, the fingerprint that was shown.
    pub(crate) shown: Option<Fingerprint>,
}

/// Makes streams of one QUIC connection, and another one when that is lost.
pub(crate) struct QuicDialler {
    port: Arc<QuicPort>,
    tls: Arc<ClientConfig>,
    connected: Mutex<Option<(QuicConnection, Fingerprint)>>,
}

impl QuicDialler {
    pub(crate) fn new(port: Arc<QuicPort>, tls: Arc<ClientConfig>) -> Self {
        Self { port, tls, connected: Mutex::default() }
    }

    fn dial(&self, dialler: &Dialler) -> Result<Dialled, Error> {
        // Whoever comes while the handshake is made waits for it.
        let mut connected = lock(&self.connected);
        if let Some((connection, shown)) = &*connected
            && let Ok(stream) = connection.open(dialler.timeout)
        {
            return dialled(stream, *shown, dialler.timeout);
        }
        *connected = None;
        let address = *dialler.addresses.first().ok_or_else(|| dialler.no_address())?;
        let (connection, shown) = self.port.connect(
            address,
            &self.tls,
            (dialler.timeout, dialler.timeout),
            &dialler.peer,
        )?;
        let stream = connection.open(dialler.timeout).map_err(|e| {
            Error::network(format!("a data connection to {} failed", dialler.peer), &e)
        })?;
        *connected = Some((connection, shown));
        dialled(stream, shown, dialler.timeout)
    }
}

fn dialled(stream: QuicStream, shown: Fingerprint, timeout: Duration) -> Result<Dialled, Error> {
    stream.set_read_timeout(Some(timeout));
    Ok(Dialled { socket: Socket::Quic(stream), tls: None, shown: Some(shown) })
}

impl Dialler {
    /// Connects, and makes the TLS handshake.
    pub(crate) fn dial(&self) -> Result<Dialled, Error> {
        if let Some(quic) = &self.quic {
            return quic.dial(self);
        }
        let mut socket = self.reach()?;
        let lost = |e| Error::network(format!("a data connection to {} failed", self.peer), &e);
        configure(&socket, self.timeout).map_err(lost)?;
        socket.set_read_timeout(Some(self.timeout)).map_err(lost)?;
        let connect = |config| {
            tls::connect(config, &mut socket, &self.peer)
                .map_err(|e| Error::new(ErrorKind::Network, e.to_string()))
        };
        let (tls, shown) = self.tls.as_ref().map(connect).transpose()?.unzip();
        Ok(Dialled { socket: Socket::Tcp(socket), tls, shown })
    }

    fn no_address(&self) -> Error {
        let text = format!("{} named no address for data connections", self.peer);
        Error::new(ErrorKind::Network, text)
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
            None => Err(self.no_address()),
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
            quic: None,
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
            let local = |d: &Dialled| match &d.socket {
                Socket::Tcp(tcp) => tcp.local_addr().unwrap(),
                _ => unreachable!(),
            };
            taken.iter().any(|d| local(d) == from)
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
