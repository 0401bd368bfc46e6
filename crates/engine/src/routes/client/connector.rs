//! Connects the client's data streams. Opens a tunnel through the control channel if the data port
//! is unreachable.

use super::Peer;
use super::dial::{DialedConn, Dialer, PendingDials};
use crate::base::error::{Error, ErrorKind};
use crate::base::event::Route;
use crate::base::sync::lock;
use crate::model::options::Fingerprint;
use crate::run::streams::Connect;
use crate::stats::session_stats::SessionStats;
use crate::transport::control::Outbox;
use crate::transport::data_stream::DataStream;
use crate::transport::socket::Socket;
use crate::transport::tunnel;
use bankfull_proto::wire::attach::Attach;
use bankfull_proto::wire::control::Welcome;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Connects the data streams of one session.
pub(crate) struct Connector {
    dialer: Dialer,
    /// Connections that were started before the session existed.
    pending: PendingDials,
    /// Fingerprint that an encrypted connection must present.
    fingerprint: Option<Fingerprint>,
    version: u16,
    session: [u8; 16],
    session_key: [u8; 32],
    next: AtomicU32,
    tunnel: Option<Mutex<Option<UnixStream>>>,
}

impl Connector {
    pub(crate) fn new(
        dialer: Dialer,
        pending: PendingDials,
        fingerprint: Option<Fingerprint>,
        welcome: &Welcome,
    ) -> Self {
        Self {
            dialer,
            pending,
            fingerprint,
            version: welcome.version,
            session: welcome.session,
            session_key: welcome.session_key,
            next: AtomicU32::new(0),
            tunnel: None,
        }
    }

    /// Time without a response after which the peer is given up.
    pub(crate) fn timeout(&self) -> Duration {
        self.dialer.timeout
    }

    /// First address of the data port.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.dialer.addresses.first().copied()
    }

    /// Keeps at most `count` of the connections that were started early.
    pub(crate) fn limit(&self, count: u32) {
        self.pending.limit(count);
    }

    /// Chooses the route from the outcome of the first data stream over ssh. If the data port is
    /// unreachable, opens a tunnel through the control channel.
    pub(crate) fn choose_route(
        &mut self,
        made: Result<(u32, DataStream), Error>,
        peer: &mut Peer,
        outbox: &Outbox,
        stats: &SessionStats<'_>,
    ) -> Result<(Vec<(u32, DataStream)>, Route), Error> {
        match made {
            Ok(stream) => Ok((vec![stream], peer.route)),
            Err(e) if is_unreachable(&e) => {
                stats.warn(format!(
                    "the data port is unreachable ({e}): carrying the data over ssh"
                ));
                let socket = tunnel::open(&mut peer.reader, outbox)
                    .map_err(|e| Error::local("cannot open a tunnel through ssh", &e))?;
                self.tunnel = Some(Mutex::new(Some(socket)));
                Ok((Vec::new(), Route::SshOnly))
            }
            Err(e) => Err(e),
        }
    }

    /// Attaches the one data stream in the tunnel.
    fn connect_tunnelled(
        &self,
        slot: &Mutex<Option<UnixStream>>,
    ) -> Result<(u32, DataStream), Error> {
        let Some(socket) = lock(slot).take() else {
            return Err(Error::new(
                ErrorKind::AgentStart,
                "the tunnel through ssh was lost: run the same command again to continue",
            ));
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let attach = self.attach(number)?;
        socket
            .set_read_timeout(Some(self.dialer.timeout))
            .map_err(|e| Error::local("cannot open a tunnel through ssh", &e))?;
        let socket = Socket::Unix(socket);
        DataStream::attach(socket, None, &attach, &self.session_key, &self.dialer.peer)
            .map(|stream| (number, stream))
    }

    fn attach(&self, number: u32) -> Result<Attach, Error> {
        let mut nonce = [0; 32];
        bankfull_sys::random(&mut nonce)
            .map_err(|e| Error::local("cannot read random bytes", &e))?;
        Ok(Attach { version: self.version, stream: number, session: self.session, nonce })
    }

    /// Attaches a connection to the session.
    fn join(&self, dialed: DialedConn) -> Result<(u32, DataStream), Error> {
        let peer = &self.dialer.peer;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if dialed.fingerprint != self.fingerprint {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!(
                    "the data port of {peer} presents another certificate: check which program \
                     listens there"
                ),
            ));
        }
        let attach = self.attach(number)?;
        let DialedConn { socket, tls, .. } = dialed;
        let stream = DataStream::attach(socket, tls, &attach, &self.session_key, peer)?;
        Ok((number, stream))
    }
}

fn is_unreachable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol)
}

impl Connect for Connector {
    fn connect(&self) -> Result<(u32, DataStream), Error> {
        if let Some(slot) = &self.tunnel {
            return self.connect_tunnelled(slot);
        }
        if let Some(dialed) = self.pending.take().transpose()?
            && let Ok(joined) = self.join(dialed)
        {
            return Ok(joined);
        }
        // The loss of a connection that was started early does not condemn the port.
        self.join(self.dialer.dial()?)
    }
}
