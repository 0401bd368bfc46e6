//! The far side of an ssh session: the control protocol on standard input and output, data on a
//! port of its own.

use crate::admission::{Door, Newcomer, Opening};
use crate::anchor::PathRoot;
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::event::NoEvents;
use crate::host::{Caller, Host, Policy};
use crate::net::control::ControlReader;
use crate::net::identity::Identity;
use crate::net::pipe::{PipeReader, PipeWriter};
use crate::net::probe::ProbePort;
use crate::net::staging::BufferPool;
use crate::net::tls;
use crate::options::DEFAULT_TIMEOUT;
use bankfull_control::Bytes;
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::wire::attach::DATA_MAGIC;
use rustls::ServerConfig;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// Connections to the data port before strangers have to go: all that a session may have, and some
/// that are on their way in or out.
const CONNECTIONS_MAX: usize = MAX_STREAMS as usize + 16;

/// The far side of an ssh session: speaks the protocol on standard input and output until the
/// client is done. This is what `bankfull agent` runs.
///
/// `memory_max` is what may wait in memory until it is written, as in
/// [`ServeOptions::memory_max`](crate::ServeOptions::memory_max).
///
/// Returns the kind of what ended the session early: the client was told of it on the channel, as
/// far as it was still there, and would read it twice if it stood on standard error too.
///
/// # Errors
/// What kept the two from talking to each other at all.
pub fn run_agent(memory_max: Option<Bytes>) -> Result<Option<ErrorKind>, Error> {
    let unusable = |e: io::Error| Error::local("standard input or output is unusable", &e);
    let input = File::from(duplicate(io::stdin()).map_err(unusable)?);
    let output = File::from(duplicate(io::stdout()).map_err(unusable)?);
    let identity = Identity::generate()?;
    let config = tls::server_config(&identity)?;
    let listener = listen()?;
    let address = listener.local_addr().map_err(unusable)?;
    let port = address.port();
    let door = Door::new(listener).map_err(unusable)?;
    let _ = bankfull_sys::raise_open_file_limit();
    // Who may log in may do as they like here, encryption of data included: ssh vouches for them.
    let policy = Policy {
        token: None,
        read_only: false,
        unencrypted_allowed: true,
        timeout: DEFAULT_TIMEOUT,
        link_rate: None,
        buffer_pool: BufferPool::new(memory_max),
    };
    // ssh vouches for the client, wherever its datagrams come from.
    let probes = ProbePort::bind(address).ok();
    let host = Arc::new(Host::new(PathRoot::Host, policy, probes));
    let over = Cancel::new();
    let (accepting, until) = (Arc::clone(&host), over.clone());
    let accepting = move || accept(&door, &accepting, &config, &until);
    thread::Builder::new().spawn(accepting).map_err(|e| Error::no_thread(&e))?;
    if let Some(probes) = host.probes.clone() {
        thread::Builder::new().spawn(move || probes.run()).map_err(|e| Error::no_thread(&e))?;
    }
    let reader = PipeReader::new(input, DEFAULT_TIMEOUT);
    let (wake, clock) = (reader.control(), reader.control());
    let output = PipeWriter::new(output, reader.control());
    let mut caller = Caller {
        reader: ControlReader::new(Box::new(reader), "the client".to_owned(), ""),
        output: Box::new(output),
        wake: Box::new(move || wake.stop()),
        close: Arc::new(|| {}),
        max_streams: MAX_STREAMS,
        data_port: Some(port),
        data_hosts: own_addresses(),
        fingerprint: Some(identity.fingerprint().0),
        peer: None,
        advice: None,
        on_asked: Box::new(move |timeout| clock.set_timeout(timeout)),
    };
    caller.reader.expect_magic(0)?;
    let served = host.serve(caller, true, &NoEvents);
    over.cancel();
    Ok(served.err().map(|error| error.kind()))
}

fn duplicate(stream: impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

/// A free port on every address, IPv6 and IPv4 where the host has both.
fn listen() -> Result<TcpListener, Error> {
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    TcpListener::bind(any6)
        .or_else(|_| TcpListener::bind(any4))
        .map_err(|e| Error::network("cannot open a data port", &e))
}

/// The address that the ssh client came in on: the third word of what sshd tells.
fn own_addresses() -> Vec<String> {
    let told = std::env::var("SSH_CONNECTION").unwrap_or_default();
    told.split_whitespace().nth(2).map(str::to_owned).into_iter().collect()
}

/// Brings data connections to the session until it is over.
fn accept(door: &Arc<Door>, host: &Arc<Host>, config: &Arc<ServerConfig>, over: &Cancel) {
    while !over.is_cancelled() {
        // Without a port left there is still the way through ssh.
        let Ok(newcomer) = door.admit() else { return };
        let Some(newcomer) = newcomer else { continue };
        // Strangers make room for whoever comes after them; how fast they go has its limit too.
        let is_full = newcomer.count > CONNECTIONS_MAX;
        if newcomer.count > 2 * CONNECTIONS_MAX || is_full && !door.make_room(&newcomer) {
            continue;
        }
        let (host, config) = (Arc::clone(host), Arc::clone(config));
        // A stranger on the port is not answered; the client notices a failure by itself.
        let attach = move || drop(attach(newcomer, &host, &config));
        let _ = thread::Builder::new().spawn(attach);
    }
}

fn attach(mut newcomer: Newcomer, host: &Host, config: &Arc<ServerConfig>) -> Result<(), Error> {
    let Opening::Data(connection) = newcomer.listen(config, host.policy.timeout)? else {
        return Err(Error::new(ErrorKind::Protocol, "a stranger on the data port"));
    };
    let Newcomer { socket, seat, visit: _visit, .. } = newcomer;
    host.attach(socket, connection.map(|tls| *tls), &DATA_MAGIC, Box::new(seat))
        .map_err(|e| Error::network("a data connection failed", &e))
}
