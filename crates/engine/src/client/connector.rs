//! Makes the client's data connections; where none can be made, a tunnel through the control
//! channel takes their place.

use super::Far;
use super::dial::{Begun, Dialled, Dialler};
use crate::driver::Connect;
use crate::error::{Error, ErrorKind};
use crate::event::Route;
use crate::net::control::{Outbox, lock};
use crate::net::socket::Socket;
use crate::net::stream::DataStream;
use crate::options::Fingerprint;
use crate::session::SessionStats;
use crate::tunnel;
use bankfull_proto::wire::attach::Attach;
use bankfull_proto::wire::control::Welcome;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes data connections of one session.
pub(crate) struct Connector {
    dialler: Dialler,
    /// Those that were begun before there was a session.
    begun: Begun,
    /// What an encrypted connection must show.
    fingerprint: Option<Fingerprint>,
    version: u16,
    session: [u8; 16],
    session_key: [u8; 32],
    next: AtomicU32,
    tunnel: Option<Mutex<Option<UnixStream>>>,
}

impl Connector {
    pub(crate) fn new(
        dialler: Dialler,
        begun: Begun,
        fingerprint: Option<Fingerprint>,
        welcome: &Welcome,
    ) -> Self {
        Self {
            dialler,
            begun,
            fingerprint,
            version: welcome.version,
            session: welcome.session,
            session_key: welcome.session_key,
            next: AtomicU32::new(0),
            tunnel: None,
        }
    }

    /// Where data connections go first.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.dialler.addresses.first().copied()
    }

    /// Of the connections that were begun, no more than `count` will be needed.
    pub(crate) fn keep(&self, count: u32) {
        self.begun.keep(count);
    }

    /// What making the first connection over ssh showed: the route that is open. Where there is
    /// none, the data goes through the control channel.
    pub(crate) fn choose_route(
        &mut self,
        made: Result<(u32, DataStream), Error>,
        far: &mut Far,
        outbox: &Outbox,
        stats: &SessionStats<'_>,
    ) -> Result<(Vec<(u32, DataStream)>, Route), Error> {
        match made {
            Ok(stream) => Ok((vec![stream], far.route)),
            Err(e) if reach_failed(&e) => {
                stats.warn(format!(
                    "the data port could not be reached ({e}): carrying the data over ssh"
                ));
                let socket = tunnel::open(&mut far.reader, outbox)
                    .map_err(|e| Error::local("cannot make a tunnel through ssh", &e))?;
                self.tunnel = Some(Mutex::new(Some(socket)));
                Ok((Vec::new(), Route::SshOnly))
            }
            Err(e) => Err(e),
        }
    }

    /// The one connection through the control channel.
    fn connect_tunnelled(
        &self,
        slot: &Mutex<Option<UnixStream>>,
    ) -> Result<(u32, DataStream), Error> {
        let Some(socket) = lock(slot).take() else {
            return Err(Error::new(ErrorKind::FarSide, "the tunnel through ssh was lost"));
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let attach = self.attach(number)?;
        socket
            .set_read_timeout(Some(self.dialler.timeout))
            .map_err(|e| Error::local("cannot make a tunnel through ssh", &e))?;
        let socket = Socket::Unix(socket);
        DataStream::attach(socket, None, &attach, &self.session_key, &self.dialler.peer)
            .map(|stream| (number, stream))
    }

    fn attach(&self, number: u32) -> Result<Attach, Error> {
        let mut nonce = [0; 32];
        bankfull_sys::random(&mut nonce).map_err(|e| Error::local("no randomness", &e))?;
        Ok(Attach { version: self.version, stream: number, session: self.session, nonce })
    }

    /// Attaches a connection to the session.
    fn join(&self, dialled: Dialled) -> Result<(u32, DataStream), Error> {
        let peer = &self.dialler.peer;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if dialled.shown != self.fingerprint {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("the data port of {peer} belongs to somebody else"),
            ));
        }
        let attach = self.attach(number)?;
        let Dialled { socket, tls, .. } = dialled;
        let stream = DataStream::attach(socket, tls, &attach, &self.session_key, peer)?;
        Ok((number, stream))
    }
}

fn reach_failed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol)
}

impl Connect for Connector {
    fn connect(&self) -> Result<(u32, DataStream), Error> {
        if let Some(slot) = &self.tunnel {
            return self.connect_tunnelled(slot);
        }
        if let Some(dialled) = self.begun.take().transpose()?
            && let Ok(joined) = self.join(dialled)
        {
            return Ok(joined);
        }
        // One that was begun early and is lost by now says nothing about the port.
        self.join(self.dialler.dial()?)
    }
}
