//! Reaching a daemon: connect, check its fingerprint, show the token.

use super::connector::Connector;
use super::dial::{Begun, CONNECT_TIMEOUT, Dialler, QuicDialler};
use super::{Far, Greeted, Request, run};
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind, lowercase_first, way_to_reach};
use crate::event::{Event, EventSink, Route, Summary};
use crate::net::control::{ControlReader, RERUN_HINT, close_when_acked, split};
use crate::net::known_hosts::KnownHosts;
use crate::net::quic::QuicPort;
use crate::net::socket::{Socket, configure, tcp_rtt};
use crate::net::staging::BufferPool;
use crate::net::tls;
use crate::options::{DaemonOptions, Fingerprint, Transport, default_state_dir};
use crate::paths::Lossy;
use rustls::Connection;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a daemon is, and what is to hold for connections to it.
#[derive(Clone)]
struct Place {
    host: String,
    port: u16,
    /// As it is named in messages.
    name: String,
    timeout: Duration,
    /// What may wait in memory.
    staging: Arc<BufferPool>,
}

/// A connection to a daemon that has shown its certificate, and the data connections that follow.
struct Reached {
    socket: Socket,
    /// What encrypts it, where the socket does not.
    tls: Option<Connection>,
    shown: Fingerprint,
    rtt: Option<Duration>,
    dialler: Dialler,
    begun: Begun,
    port: Option<Arc<QuicPort>>,
    /// Why QUIC does not get through, where it was to be taken.
    unreached: Option<Error>,
}

/// Runs a transfer with the daemon at `host:port`.
pub(crate) fn transfer(
    host: &str,
    port: u16,
    request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let name =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let timeout = request.transfer.timeout;
    let staging = Arc::clone(&request.transfer.staging);
    let place = Place { host: host.to_owned(), port, name: name.clone(), timeout, staging };
    let encryption = request.transfer.encryption;
    let transport = match request.transfer.daemon.transport {
        // Whoever sends in rounds is asked, which those who send by QUIC are not.
        Transport::Auto if request.transfer.seat.is_some() => Transport::Tcp,
        transport => transport,
    };
    let streams = request.streams();
    let is_for_quic = request.earlier.lossy.is_some_and(Lossy::is_for_quic);
    let reach = move || {
        let all = addresses(&place)?;
        match transport {
            Transport::Tcp => by_tcp(&place, &all, place.timeout, encryption, streams),
            Transport::Quic => by_quic(&place, &all, place.timeout, &streams),
            Transport::Auto => by_either(&place, &all, encryption, is_for_quic, streams),
        }
    };
    let Reached { socket, tls, shown, rtt, dialler, begun, port, unreached } =
        cancel.attend(reach)?;
    let advice = port.as_ref().map(|port| port.advice());
    if transport == Transport::Auto && tls.is_none() {
        let why = match is_for_quic {
            true => "an earlier copy by TCP lost segments at random on this path",
            false => "no TCP connection could be made",
        };
        events.event(Event::Notice { message: format!("the data goes by QUIC: {why}") });
    }
    let mut request = request;
    if let Some(why) = unreached {
        request.earlier.lossy = request.earlier.lossy.map(Lossy::without_quic);
        let message = format!("the data goes by TCP: {why}");
        events.event(Event::Notice { message });
    }
    let mut transfer = request.transfer.clone();
    transfer.daemon.transport = if tls.is_some() { Transport::Tcp } else { Transport::Quic };
    let request = Request { transfer: &transfer, ..request };
    if let Some(file) = trust(&name, shown, &request.transfer.daemon)? {
        let file = file.display();
        let message = format!("trusting {name} with fingerprint {shown} from now on ({file})");
        events.event(Event::Notice { message });
    }
    let lost = |e: io::Error| Error::network(format!("the connection to {name} failed"), &e);
    let is_encrypted = encryption || socket.is_encrypted();
    let route = if tls.is_some() { Route::Daemon } else { Route::Quic };
    let wake = socket.try_clone().map_err(lost)?;
    let close = socket.try_clone().map_err(lost)?;
    let (input, output) = split(tls, socket).map_err(lost)?;
    let far = Far {
        reader: ControlReader::new(input, name.clone(), RERUN_HINT),
        output,
        wake: Box::new(move || wake.stop_reading()),
        close: Arc::new(move || close_when_acked(&close)),
        peer: name.clone(),
        route,
        noise_bytes_max: 0,
    };
    let (token, open) = (request.token.clone(), request.open(request.streams()(rtt)));
    let (far, (welcome, asked)) = far.attend(cancel, move |far| far.greet_and_ask(token, &open))?;
    let connector = Connector::new(dialler, begun, is_encrypted.then_some(shown), &welcome);
    let greeted = Greeted { far, welcome, rtt, asked };
    let result = run(greeted, connector, request, events, cancel, started);
    if let Some(message) = advice.and_then(|mut advice| advice.next_advice()) {
        events.event(Event::Notice { message });
    }
    result
}

/// Connects by TCP, or by QUIC where that does not reach anybody; or the other way round.
fn by_either(
    place: &Place,
    all: &[SocketAddr],
    encryption: bool,
    is_for_quic: bool,
    streams: impl Fn(Option<Duration>) -> u32,
) -> Result<Reached, Error> {
    let limit = CONNECT_TIMEOUT.min(place.timeout);
    let has_failed =
        |error: &Error| matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout);
    if is_for_quic {
        // Whatever is the matter with QUIC here, TCP has done before.
        let is_quics = |error: &Error| {
            has_failed(error) || matches!(error.kind(), ErrorKind::Local | ErrorKind::Protocol)
        };
        return match by_quic(place, all, limit, &streams) {
            Err(error) if is_quics(&error) => {
                by_tcp(place, all, place.timeout, encryption, streams)
                    .map(|reached| Reached { unreached: Some(error), ..reached })
            }
            reached => reached,
        };
    }
    match by_tcp(place, all, limit, encryption, &streams) {
        // Why there is no TCP is what a user knows how to mend.
        Err(error) if has_failed(&error) => {
            by_quic(place, all, limit, &streams).map_err(|quic| by_neither(&error, &quic))
        }
        reached => reached,
    }
}

/// What is said where neither reaches anybody: the way out is the same, and is told once.
fn by_neither(tcp: &Error, quic: &Error) -> Error {
    let text = match quic.is_loss() {
        true => format!("{tcp}; nobody answers by QUIC either"),
        false => format!("{tcp}; and by QUIC, {quic}"),
    };
    Error::new(tcp.kind(), text)
}

/// Connects by TCP, within `limit`.
fn by_tcp(
    place: &Place,
    all: &[SocketAddr],
    limit: Duration,
    encryption: bool,
    streams: impl Fn(Option<Duration>) -> u32,
) -> Result<Reached, Error> {
    let tls = tls::client_config()?;
    let (mut socket, address) = connect(place, all, limit)?;
    // The data connections follow this one, and are there when the two sides have agreed.
    let dialler = Dialler {
        addresses: vec![address],
        tls: encryption.then(|| Arc::clone(&tls)),
        quic: None,
        timeout: place.timeout,
        peer: place.name.clone(),
    };
    let rtt = tcp_rtt(&socket);
    let begun = dialler.begin(streams(rtt));
    let (connection, shown) = tls::connect(&tls, &mut socket, &place.name)?;
    let (socket, tls) = (Socket::Tcp(socket), Some(connection));
    Ok(Reached { socket, tls, shown, rtt, dialler, begun, port: None, unreached: None })
}

/// Connects by QUIC. Data has a connection of its own, so that what waits there to be written to a
/// disk holds up no word.
fn by_quic(
    place: &Place,
    all: &[SocketAddr],
    limit: Duration,
    streams: &impl Fn(Option<Duration>) -> u32,
) -> Result<Reached, Error> {
    let mut last = Error::new(ErrorKind::Network, format!("{} has no address", place.host));
    // As by TCP, the next one where nobody answers at the first.
    for address in all {
        match by_quic_to(place, *address, limit / all.len() as u32, streams) {
            Err(e) if matches!(e.kind(), ErrorKind::Network | ErrorKind::Timeout) => last = e,
            reached => return reached,
        }
    }
    Err(last)
}

fn by_quic_to(
    place: &Place,
    address: SocketAddr,
    limit: Duration,
    streams: &impl Fn(Option<Duration>) -> u32,
) -> Result<Reached, Error> {
    let tls = tls::client_config()?;
    let port = QuicPort::client(address, Arc::clone(&place.staging))
        .map_err(|e| Error::network("no UDP port can be had here", &e))?;
    let lost =
        |e: io::Error| Error::network(format!("the connection to {} failed", place.name), &e);
    let quic = QuicDialler::new(Arc::clone(&port), Arc::clone(&tls));
    let dialler = Dialler {
        addresses: vec![address],
        tls: None,
        quic: Some(Arc::new(quic)),
        timeout: place.timeout,
        peer: place.name.clone(),
    };
    let (connection, shown) = port.connect(address, &tls, (limit, place.timeout), &place.name)?;
    let stream = connection.open(place.timeout).map_err(lost)?;
    stream.set_read_timeout(Some(place.timeout));
    let rtt = Some(stream.rtt());
    let begun = dialler.begin(streams(rtt));
    let socket = Socket::Quic(stream);
    let port = Some(port);
    Ok(Reached { socket, tls: None, shown, rtt, dialler, begun, port, unreached: None })
}

fn addresses(place: &Place) -> Result<Vec<SocketAddr>, Error> {
    let Place { host, port, .. } = place;
    let all = (host.as_str(), *port).to_socket_addrs().map_err(|e| unresolved(host, &e))?;
    Ok(all.collect())
}

/// A name without an address.
fn unresolved(host: &str, error: &io::Error) -> Error {
    let text = error.to_string();
    // The library's own words come first, and say no more than ours.
    let why = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    let text = format!(
        "cannot find the address of {host}: {} (check the name, or give an IP address)",
        lowercase_first(why)
    );
    Error::new(ErrorKind::Network, text)
}

fn connect(
    place: &Place,
    all: &[SocketAddr],
    limit: Duration,
) -> Result<(TcpStream, SocketAddr), Error> {
    let Place { name, timeout, .. } = place;
    let timeout = *timeout;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for &address in all {
        match TcpStream::connect_timeout(&address, limit / all.len() as u32) {
            Ok(socket) => {
                configure(&socket, timeout)
                    .and_then(|()| socket.set_read_timeout(Some(timeout)))
                    .map_err(|e| Error::network(format!("cannot connect to {name}"), &e))?;
                return Ok((socket, address));
            }
            Err(e) => last = e,
        }
    }
    let error = Error::network(format!("cannot connect to {name}"), &last);
    Err(Error::new(error.kind(), format!("{error}{}", way_to_reach(&last))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_neither_reaches_anybody_the_way_out_is_told_once_and_what_differs_too() {
        let error = |text: &str| Error::new(ErrorKind::Network, text);
        let tcp = error("cannot connect to h:1: refused (try it)");
        let told = |quic: &Error| by_neither(&tcp, quic).to_string();
        assert_eq!(
            told(&error("cannot connect to h:1 by QUIC: refused (try it)")),
            "cannot connect to h:1: refused (try it); nobody answers by QUIC either"
        );
        assert_eq!(
            told(&error("h:1 has no room").heard()),
            "cannot connect to h:1: refused (try it); and by QUIC, h:1 has no room"
        );
    }

    #[test]
    fn a_name_without_an_address_is_told_once_with_a_way_out() {
        let library = "failed to lookup address information: Name or service not known";
        assert_eq!(
            unresolved("hots", &io::Error::other(library)).to_string(),
            "cannot find the address of hots: name or service not known (check the name, or give \
             an IP address)"
        );
    }
}
