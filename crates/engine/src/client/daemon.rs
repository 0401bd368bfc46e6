//! Reaching a daemon: connect, check its fingerprint, show the token.

use super::connector::Connector;
use super::dial::Dialler;
use super::{Far, Greeted, Request, run};
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventSink, Route, Summary};
use crate::net::control::{ControlReader, RUN_AGAIN, close_when_heard, split_tls};
use crate::net::known_hosts::KnownHosts;
use crate::net::socket::{configure, rtt_of};
use crate::net::tls;
use crate::options::{DaemonOptions, Fingerprint, default_state_dir};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a transfer with the daemon at `host:port`.
pub(crate) fn transfer(
    host: &str,
    port: u16,
    request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let timeout = request.transfer.timeout;
    let name =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let config = tls::client_config()?;
    let (owned_host, owned_name, tls) = (host.to_owned(), name.clone(), Arc::clone(&config));
    let encryption = request.transfer.encryption;
    let streams = request.streams();
    let (socket, rtt, dialler, begun, connection, shown) = cancel.attend(move || {
        let (mut socket, address) = connect(&owned_host, port, &owned_name, timeout)?;
        // The data connections follow this one, and are there when the two sides have agreed.
        let dialler = Dialler {
            addresses: vec![address],
            tls: encryption.then(|| Arc::clone(&tls)),
            timeout,
            peer: owned_name.clone(),
        };
        let rtt = rtt_of(&socket);
        let begun = dialler.begin(streams(rtt));
        let (connection, shown) = tls::connect(&tls, &mut socket, &owned_name)?;
        Ok((socket, rtt, dialler, begun, connection, shown))
    })?;
    if let Some(file) = trust(&name, shown, &request.transfer.daemon)? {
        let file = file.display();
        let message = format!("trusting {name} with fingerprint {shown} from now on ({file})");
        events.event(Event::Notice { message });
    }
    let lost = |e: io::Error| Error::network(format!("the connection to {name} failed"), &e);
    let wake = socket.try_clone().map_err(lost)?;
    let close = socket.try_clone().map_err(lost)?;
    let (input, output) = split_tls(connection, socket).map_err(lost)?;
    let far = Far {
        reader: ControlReader::new(input, name.clone(), RUN_AGAIN),
        output,
        wake: Box::new(move || drop(wake.shutdown(Shutdown::Read))),
        close: Arc::new(move || close_when_heard(&close)),
        peer: name.clone(),
        route: Route::Daemon,
        noise_bytes_max: 0,
    };
    let (token, open) = (request.token.clone(), request.open(request.streams()(rtt)));
    let (far, (welcome, asked)) = far.attend(cancel, move |far| far.greet_and_ask(token, &open))?;
    let connector = Connector::new(dialler, begun, encryption.then_some(shown), &welcome);
    run(Greeted { far, welcome, rtt, asked }, connector, request, events, cancel, started)
}

fn connect(
    host: &str,
    port: u16,
    name: &str,
    timeout: Duration,
) -> Result<(TcpStream, SocketAddr), Error> {
    let addresses = (host, port).to_socket_addrs().map_err(|e| {
        Error::new(ErrorKind::Network, format!("cannot find the address of {host}: {e}"))
    })?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                configure(&socket, timeout)
                    .and_then(|()| socket.set_read_timeout(Some(timeout)))
                    .map_err(|e| Error::network(format!("cannot connect to {name}"), &e))?;
                return Ok((socket, address));
            }
            Err(e) => last = e,
        }
    }
    let hint = if last.kind() == io::ErrorKind::ConnectionRefused {
        " (is `bankfull serve` running there?)"
    } else {
        ""
    };
    let error = Error::network(format!("cannot connect to {name}"), &last);
    Err(Error::new(error.kind(), format!("{error}{hint}")))
}

/// Decides whether the daemon is the one that is meant. The file that remembers it from now on,
/// where it was not known before.
fn trust(
    name: &str,
    shown: Fingerprint,
    options: &DaemonOptions,
) -> Result<Option<PathBuf>, Error> {
    if let Some(expected) = options.fingerprint {
        if expected == shown {
            // Verified and to be remembered: the best of both.
            let remember = |dir| KnownHosts::new(dir).check(name, shown, true);
            return match options.accept_new {
                true => state_dir(options).and_then(remember),
                false => Ok(None),
            };
        }
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "{name} shows the fingerprint {shown}, not the expected {expected}: check the \
                 address, and the fingerprint that the server prints when it starts"
            ),
        ));
    }
    KnownHosts::new(state_dir(options)?).check(name, shown, options.accept_new)
}

fn state_dir(options: &DaemonOptions) -> Result<PathBuf, Error> {
    options.state_dir.clone().map_or_else(default_state_dir, Ok)
}
