//! Makes the client's data connections; where none can be made, a tunnel through the control
//! channel takes their place.

use super::Far;
use crate::driver::Connect;
use crate::error::{Error, ErrorKind};
use crate::event::Route;
use crate::net::control::{Outbox, lock};
use crate::net::stream::{DataStream, Socket, configure};
use crate::net::tls;
use crate::options::Fingerprint;
use crate::session::Tally;
use crate::tunnel;
use bankfull_proto::wire::attach::Attach;
use bankfull_proto::wire::control::Welcome;
use rustls::ClientConfig;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long one address of the data port may take to answer: twice the first retransmission of a
/// SYN (1 s and 2 s, RFC 6298) fits, and a firewall that drops does not hold the user up for long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Makes data connections of one session.
pub(crate) struct Connector {
    pub(crate) addresses: Vec<SocketAddr>,
    /// TLS configuration and the fingerprint that the data port must show; `None` for plain.
    pub(crate) tls: Option<(Arc<ClientConfig>, Fingerprint)>,
    pub(crate) version: u16,
    pub(crate) session: [u8; 16],
    pub(crate) session_key: [u8; 32],
    pub(crate) timeout: Duration,
    pub(crate) peer: String,
    next: AtomicU32,
    tunnel: Option<Mutex<Option<UnixStream>>>,
}

impl Connector {
    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        tls: Option<(Arc<ClientConfig>, Fingerprint)>,
        welcome: &Welcome,
        timeout: Duration,
        peer: String,
    ) -> Self {
        Self {
            addresses,
            tls,
            version: welcome.version,
            session: welcome.session,
            session_key: welcome.session_key,
            timeout,
            peer,
            next: AtomicU32::new(0),
            tunnel: None,
        }
    }

    /// What making the first connection showed: the route that is open. Where there is none over
    /// ssh, later connections are made through the control channel.
    pub(crate) fn choose_route(
        &mut self,
        made: Result<(u32, DataStream), Error>,
        far: &mut Far,
        outbox: &Outbox,
        tally: &Tally<'_>,
    ) -> Result<(Vec<(u32, DataStream)>, Route), Error> {
        match made {
            Ok(stream) => Ok((vec![stream], far.route)),
            Err(e) if far.route == Route::Ssh && reach_failed(&e) => {
                tally.notice(format!(
                    "the data port could not be reached ({e}): carrying the data over ssh"
                ));
                let socket = tunnel::open(&mut far.reader, outbox)
                    .map_err(|e| Error::local("cannot make a tunnel through ssh", &e))?;
                self.tunnel = Some(Mutex::new(Some(socket)));
                Ok((Vec::new(), Route::SshOnly))
            }
            // The same port answered a moment ago: the streams try again.
            Err(e) if far.route == Route::Daemon && e.kind() == ErrorKind::Network => {
                Ok((Vec::new(), far.route))
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
            .set_read_timeout(Some(self.timeout))
            .map_err(|e| Error::local("cannot make a tunnel through ssh", &e))?;
        let socket = Socket::Unix(socket);
        DataStream::attach(socket, None, &attach, &self.session_key, &self.peer)
            .map(|stream| (number, stream))
    }

    fn attach(&self, number: u32) -> Result<Attach, Error> {
        let mut nonce = [0; 32];
        bankfull_sys::random(&mut nonce).map_err(|e| Error::local("no randomness", &e))?;
        Ok(Attach { version: self.version, stream: number, session: self.session, nonce })
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
}

fn reach_failed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol)
}

impl Connect for Connector {
    fn connect(&self) -> Result<(u32, DataStream), Error> {
        if let Some(slot) = &self.tunnel {
            return self.connect_tunnelled(slot);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut socket = self.reach()?;
        let lost = |e| Error::network(format!("a data connection to {} failed", self.peer), &e);
        configure(&socket, self.timeout).map_err(lost)?;
        socket.set_read_timeout(Some(self.timeout)).map_err(lost)?;
        let tls = match &self.tls {
            None => None,
            Some((config, fingerprint)) => {
                let (connection, shown) = tls::connect(config, &mut socket, &self.peer)
                    .map_err(|e| Error::new(ErrorKind::Network, e.to_string()))?;
                if shown != *fingerprint {
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        format!("the data port of {} belongs to somebody else", self.peer),
                    ));
                }
                Some(connection)
            }
        };
        let attach = self.attach(number)?;
        let stream =
            DataStream::attach(Socket::Tcp(socket), tls, &attach, &self.session_key, &self.peer)?;
        Ok((number, stream))
    }
}
