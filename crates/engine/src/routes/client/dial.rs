//! Connections to the data port, up to their attachment to a session. They may be started before
//! the session exists, so that their round trips overlap with the negotiation.
//!
//! Only the TLS handshake is written here. The caller checks the fingerprint.

use crate::base::error::{Error, ErrorKind};
use crate::base::sync::lock;
use crate::base::threads::in_this_span;
use crate::model::options::Fingerprint;
use crate::transport::quic::connection::QuicStream;
use crate::transport::quic::{QuicConnection, QuicPort};
use crate::transport::socket::{Socket, configure, connect};
use crate::transport::tls;
use rustls::{ClientConfig, Connection};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::debug;

/// Time for one address of the data port to answer. It includes two SYN retransmissions (after 1 s
/// and 2 s, RFC 6298) and limits the delay by a firewall that drops packets.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Least time for an address. (chosen: the RTT of any path)
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Addresses of the data port and parameters of its connections.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) addresses: Vec<SocketAddr>,
    /// `None` for unencrypted connections.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Streams of one QUIC connection instead of TCP.
    pub(crate) quic: Option<Arc<QuicDialer>>,
    pub(crate) timeout: Duration,
    /// Name of the peer in messages.
    pub(crate) peer: String,
}

/// A connection that is not attached to a session yet.
pub(crate) struct DialedConn {
    pub(crate) socket: Socket,
    /// TLS state, if the socket does not encrypt.
    pub(crate) tls: Option<Connection>,
    /// Fingerprint presented by an encrypted connection.
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// Opens streams of one QUIC connection, and reconnects if it is lost.
pub(crate) struct QuicDialer {
    port: Arc<QuicPort>,
    tls: Arc<ClientConfig>,
    connected: Mutex<Option<(QuicConnection, Fingerprint)>>,
}

impl QuicDialer {
    pub(crate) fn new(port: Arc<QuicPort>, tls: Arc<ClientConfig>) -> Self {
        Self { port, tls, connected: Mutex::default() }
    }

    fn dial(&self, dialer: &Dialer) -> Result<DialedConn, Error> {
        // Concurrent callers wait here for the handshake.
        let mut connected = lock(&self.connected);
        if let Some((connection, fingerprint)) = &*connected
            && let Ok(stream) = connection.open(dialer.timeout)
        {
            return dialed(stream, *fingerprint, dialer.timeout);
        }
        *connected = None;
        let address = *dialer.addresses.first().ok_or_else(|| dialer.no_address())?;
        let (connection, fingerprint) = self.port.connect(
            address,
            &self.tls,
            (dialer.timeout, dialer.timeout),
            &dialer.peer,
        )?;
        let stream = connection
            .open(dialer.timeout)
            .map_err(|e| Error::network(format!("a data stream to {} failed", dialer.peer), &e))?;
        *connected = Some((connection, fingerprint));
        dialed(stream, fingerprint, dialer.timeout)
    }
}

fn dialed(
    stream: QuicStream,
    fingerprint: Fingerprint,
    timeout: Duration,
) -> Result<DialedConn, Error> {
    stream.set_read_timeout(Some(timeout));
    Ok(DialedConn { socket: Socket::Quic(stream), tls: None, fingerprint: Some(fingerprint) })
}

impl Dialer {
    /// Connects, and makes the TLS handshake.
    pub(crate) fn dial(&self) -> Result<DialedConn, Error> {
        if let Some(quic) = &self.quic {
            return quic.dial(self);
        }
        let mut socket = self.connect()?;
        let lost = |e| Error::network(format!("a data stream to {} failed", self.peer), &e);
        configure(&socket, self.timeout).map_err(lost)?;
        socket.set_read_timeout(Some(self.timeout)).map_err(lost)?;
        let connect = |config| {
            tls::connect(config, &mut socket, &self.peer)
                .map_err(|e| Error::new(ErrorKind::Network, e.to_string()))
        };
        let (tls, fingerprint) = self.tls.as_ref().map(connect).transpose()?.unzip();
        Ok(DialedConn { socket: Socket::Tcp(socket), tls, fingerprint })
    }

    fn no_address(&self) -> Error {
        let text = format!("{} reported no address for data streams", self.peer);
        Error::new(ErrorKind::Network, text)
    }

    fn connect(&self) -> Result<TcpStream, Error> {
        let mut last = None;
        // Of many addresses that drop packets, the last ones are not tried.
        let until = Instant::now() + self.timeout / 2;
        for address in &self.addresses {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && last.is_some() {
                break;
            }
            let limit = CONNECT_TIMEOUT.min(self.timeout).min(left.max(MIN_CONNECT_TIMEOUT));
            match connect(*address, limit) {
                Ok(socket) => return Ok(socket),
                Err(e) => {
                    debug!(%address, reason = &*e.to_string(), "data connection failed");
                    last = Some((address, e));
                }
            }
        }
        match last {
            Some((address, e)) => {
                Err(Error::network(format!("cannot open a data stream to {address}"), &e))
            }
            None => Err(self.no_address()),
        }
    }

    /// Starts `count` connections at once.
    pub(crate) fn start_dialing(&self, count: u32) -> PendingDials {
        let (sender, dialed) = mpsc::channel();
        for _ in 0..count {
            let (dialer, sender) = (self.clone(), sender.clone());
            let dial = in_this_span(move || drop(sender.send(dialer.dial())));
            // Without a thread, the connection is made later, when it is needed.
            let _ = thread::Builder::new().spawn(dial);
        }
        PendingDials(Mutex::new(DialQueue { left: count, dialed: Some(dialed) }))
    }
}

/// Connections in progress. Those that are not taken are closed on drop.
pub(crate) struct PendingDials(Mutex<DialQueue>);

struct DialQueue {
    /// Number that may still be taken.
    left: u32,
    dialed: Option<Receiver<Result<DialedConn, Error>>>,
}

impl PendingDials {
    /// Closes all but the first `count`.
    pub(crate) fn limit(&self, count: u32) {
        let mut queue = lock(&self.0);
        queue.left = queue.left.min(count);
        queue.close_when_empty();
    }

    /// Waits for the next connection and returns its outcome; `None` if there is no other.
    pub(crate) fn take(&self) -> Option<Result<DialedConn, Error>> {
        let mut queue = lock(&self.0);
        // Concurrent callers wait for the lock instead.
        let dialed = queue.dialed.as_ref()?.recv().ok()?;
        queue.left = queue.left.saturating_sub(1);
        queue.close_when_empty();
        Some(dialed)
    }
}

impl DialQueue {
    fn close_when_empty(&mut self) {
        if self.left == 0 {
            self.dialed = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn dialer(listener: &TcpListener) -> Dialer {
        Dialer {
            addresses: vec![listener.local_addr().unwrap()],
            tls: None,
            quic: None,
            timeout: Duration::from_secs(5),
            peer: "there".to_owned(),
        }
    }

    #[test]
    fn pending_dials_beyond_the_limit_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pending = dialer(&listener).start_dialing(3);
        let mut accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        pending.limit(2);
        let taken: Vec<_> = (0..3).filter_map(|_| pending.take()).map(Result::unwrap).collect();
        assert_eq!(taken.len(), 2);
        let is_taken = |socket: &TcpStream| {
            let from = socket.peer_addr().unwrap();
            let local = |d: &DialedConn| match &d.socket {
                Socket::Tcp(tcp) => tcp.local_addr().unwrap(),
                _ => unreachable!(),
            };
            taken.iter().any(|d| local(d) == from)
        };
        accepted.retain(|socket| !is_taken(socket));
        assert_eq!(accepted.len(), 1);
        accepted[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(accepted[0].read(&mut [0]).unwrap(), 0, "it was closed");
    }

    #[test]
    fn pending_dial_failure_is_returned_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialer = dialer(&listener);
        drop(listener);
        let pending = dialer.start_dialing(2);
        let failed = || pending.take().is_some_and(|dialed| dialed.is_err());
        assert!(failed() && failed() && pending.take().is_none());
    }
}
