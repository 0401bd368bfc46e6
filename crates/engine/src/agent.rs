//! The far side of an ssh session: the control protocol on standard input and output, data on a
//! port of its own.

use crate::anchor::Anchor;
use crate::error::{Error, ErrorKind};
use crate::event::NoEvents;
use crate::host::{Caller, Host, Policy};
use crate::net::control::ControlReader;
use crate::net::identity::Identity;
use crate::net::pipe::PipeReader;
use crate::net::stream::{Socket, configure};
use crate::net::tls;
use crate::options::DEFAULT_TIMEOUT;
use bankfull_proto::wire::attach::DATA_MAGIC;
use rustls::ServerConfig;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The far side of an ssh session: speaks the protocol on standard input and output until the
/// client is done. This is what `bankfull agent` runs.
///
/// # Errors
/// What ended the session early; the client was told too where that was possible.
pub fn run_agent() -> Result<(), Error> {
    let unusable = |e: io::Error| Error::local("standard input or output is unusable", &e);
    let input = File::from(duplicate(io::stdin()).map_err(unusable)?);
    let output = File::from(duplicate(io::stdout()).map_err(unusable)?);
    let identity = Identity::generate()?;
    let config = tls::server_config(&identity)?;
    let listener = listen()?;
    let port = listener.local_addr().map_err(unusable)?.port();
    let _ = bankfull_sys::raise_open_file_limit();
    // Who may log in may do as they like here, encryption of data included: ssh vouches for them.
    let policy =
        Policy { token: None, read_only: false, plain_allowed: true, timeout: DEFAULT_TIMEOUT };
    let host = Arc::new(Host::new(Anchor::Host, policy));
    let accepting = Arc::clone(&host);
    // Ends with the process.
    std::thread::spawn(move || accept(&listener, &accepting, &config));
    let reader = PipeReader::new(input, DEFAULT_TIMEOUT);
    let (wake, clock) = (reader.control(), reader.control());
    let mut caller = Caller {
        reader: ControlReader::new(Box::new(reader), "the client".to_owned(), ""),
        output: Box::new(output),
        wake: Box::new(move || wake.stop()),
        close: Arc::new(|| {}),
        data_port: Some(port),
        data_hosts: own_addresses(),
        fingerprint: Some(identity.fingerprint().0),
        on_asked: Box::new(move |timeout| clock.set_timeout(timeout)),
    };
    caller.reader.expect_magic(0)?;
    host.serve(caller, true, &NoEvents).map(|_| ())
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

fn accept(listener: &TcpListener, host: &Arc<Host>, config: &Arc<ServerConfig>) {
    for socket in listener.incoming().flatten() {
        let (host, config) = (Arc::clone(host), Arc::clone(config));
        std::thread::spawn(move || {
            // A stranger on the port is not answered; the client notices a failure by itself.
            let _ = attach(socket, &host, &config);
        });
    }
}

fn attach(mut socket: TcpStream, host: &Host, config: &Arc<ServerConfig>) -> Result<(), Error> {
    let failed = |e: io::Error| Error::network("a data connection failed", &e);
    configure(&socket, host.policy.timeout).map_err(failed)?;
    socket.set_read_timeout(Some(host.policy.timeout)).map_err(failed)?;
    let mut first = [0];
    bankfull_sys::peek(&socket, &mut first).map_err(failed)?;
    let (connection, magic) = if first[0] == tls::HANDSHAKE_BYTE {
        let (connection, magic) = tls::accept_magic(config, &mut socket)?;
        (Some(connection), magic)
    } else {
        let mut magic = [0; 8];
        socket.read_exact(&mut magic).map_err(failed)?;
        (None, magic)
    };
    if magic != DATA_MAGIC {
        return Err(Error::new(ErrorKind::Protocol, "a stranger on the data port"));
    }
    host.attach(Socket::Tcp(socket), connection, &magic, Box::new(())).map_err(failed)
}
