//! TLS 1.3 with pinned self-signed certificates: configuration and blocking handshakes.

use super::handshake_gate::GATE;
use super::identity::{Identity, fingerprint_of};
use crate::base::error::{Error, ErrorKind, is_timeout};
use crate::model::options::Fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, ServerConfig,
    ServerConnection, SignatureScheme,
};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// First byte of a TLS handshake record (RFC 8446 §5.1); never the first byte of an unencrypted
/// data stream.
pub(crate) const HANDSHAKE_BYTE: u8 = 0x16;

/// Returns the provider with AES-128-GCM as the only cipher suite: relevant CPUs accelerate it, and
/// a single suite leaves nothing to downgrade.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(provider)
}

/// Certificate of the accepting side, which may change between connections.
#[derive(Debug)]
pub(crate) struct ServerCertificate(RwLock<Arc<CertifiedKey>>);

impl ServerCertificate {
    /// Takes the first certificate.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] for a certificate that does not match its key, and unsupported kinds.
    pub(crate) fn new(identity: &Identity) -> Result<Self, Error> {
        certified(identity).map(|certified| Self(RwLock::new(Arc::new(certified))))
    }

    /// Takes another certificate. The one in use stays if it fails.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn replace(&self, identity: &Identity) -> Result<(), Error> {
        let certified = Arc::new(certified(identity)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// Returns the fingerprint that clients pin.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        // There is always one.
        self.current().cert.first().map_or(Fingerprint([0; 32]), fingerprint_of)
    }

    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// Checks that a certificate belongs to its key.
fn certified(identity: &Identity) -> Result<CertifiedKey, Error> {
    let chain = [&identity.certificate].into_iter().chain(&identity.signers).cloned().collect();
    CertifiedKey::from_der(chain, identity.key.clone_key(), &provider()).map_err(|e| {
        let text = match e {
            rustls::Error::InconsistentKeys(_) => {
                "the certificate does not belong to the private key: give the files of one pair"
                    .to_owned()
            }
            other => format!("cannot use the certificate: {other}"),
        };
        Error::new(ErrorKind::Local, text)
    })
}

/// Returns the configuration of the accepting side.
pub(crate) fn server_config(
    certificate: Arc<ServerCertificate>,
) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| Error::new(ErrorKind::Local, format!("cannot set up TLS: {e}")))?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    // Sessions are never resumed, and a client that only sends would not read a ticket: closing its
    // socket with unread bytes would reset the connection.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the configuration of the connecting side.
///
/// The handshake accepts any certificate and proves possession of its key; the caller compares the
/// fingerprint before it writes a byte.
pub(crate) fn client_config() -> Result<Arc<ClientConfig>, Error> {
    let provider = provider();
    let verifier =
        Arc::new(AnyCertificate { algorithms: provider.signature_verification_algorithms });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| Error::new(ErrorKind::Local, format!("cannot set up TLS: {e}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Connects as client; returns the connection and the fingerprint presented.
///
/// The read timeout of the socket limits the whole handshake.
pub(crate) fn connect(
    config: &Arc<ClientConfig>,
    socket: &mut TcpStream,
    peer: &str,
) -> Result<(Connection, Fingerprint), Error> {
    // rustls requires a name; the fingerprint is checked instead.
    let name = ServerName::try_from("bankfull")
        .map_err(|e| Error::new(ErrorKind::Local, e.to_string()))?;
    let client = ClientConnection::new(Arc::clone(config), name)
        .map_err(|e| Error::new(ErrorKind::Local, format!("cannot set up TLS: {e}")))?;
    let mut connection = Connection::Client(client);
    handshake_in_time(&mut connection, socket).map_err(|e| connect_error(peer, &e))?;
    let presented = connection.peer_certificates().and_then(|c| c.first()).map(fingerprint_of);
    let presented = presented.ok_or_else(|| {
        Error::new(ErrorKind::Protocol, format!("{peer} presented no certificate"))
    })?;
    Ok((connection, presented))
}

/// Accepts as server and reads the magic, which tells the kind of connection.
///
/// `None` if the client disconnects before it: clients open spare connections.
pub(crate) fn accept_magic(
    config: &Arc<ServerConfig>,
    socket: &mut TcpStream,
) -> Result<Option<(Connection, [u8; 8])>, Error> {
    let server = ServerConnection::new(Arc::clone(config))
        .map_err(|e| Error::new(ErrorKind::Local, format!("cannot set up TLS: {e}")))?;
    let mut connection = Connection::Server(server);
    let mut magic = [0; 8];
    let mut filled = 0;
    match read_magic(&mut connection, socket, &mut magic, &mut filled) {
        Ok(()) => Ok(Some((connection, magic))),
        Err(e) if filled == 0 && is_disconnect(&e) => Ok(None),
        Err(e) => Err(rejected_client_error(&e)),
    }
}

fn read_magic(
    connection: &mut Connection,
    socket: &mut TcpStream,
    magic: &mut [u8],
    filled: &mut usize,
) -> io::Result<()> {
    accept_handshake(connection, socket)?;
    while *filled < magic.len() {
        match connection.reader().read(&mut magic[*filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => *filled += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => complete_io(connection, socket)?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// True if the client closed the connection, whether or not it left data unread.
fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Performs the handshake within the read timeout of the socket, which it keeps.
fn handshake_in_time(connection: &mut Connection, socket: &mut TcpStream) -> io::Result<()> {
    let Some(timeout) = socket.read_timeout()? else { return handshake(connection, socket) };
    let mut limited = TimeLimited { socket, started: Instant::now(), timeout };
    handshake(connection, &mut limited)?;
    socket.set_read_timeout(Some(timeout))
}

/// Socket whose reads together take no longer than a timeout.
///
/// A peer that sends single bytes would reset the timeout of each read.
struct TimeLimited<'s> {
    socket: &'s mut TcpStream,
    started: Instant,
    timeout: Duration,
}

impl Read for TimeLimited<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.timeout.saturating_sub(self.started.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.read(out)
    }
}

impl Write for TimeLimited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn handshake(connection: &mut Connection, socket: &mut (impl Read + Write)) -> io::Result<()> {
    while connection.is_handshaking() {
        complete_io(connection, socket)?;
    }
    // The last flight may still be queued.
    flush(connection, socket)
}

/// Performs the handshake as server: computes only within the limit of all clients.
fn accept_handshake(connection: &mut Connection, socket: &mut TcpStream) -> io::Result<()> {
    while connection.is_handshaking() {
        flush(connection, socket)?;
        match connection.read_tls(socket) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        // The wait may have outlasted the connection, which then is no reason to compute.
        let socket_state = &*socket;
        let processed = GATE.pass(|| {
            (!bankfull_sys::is_hung_up(socket_state)).then(|| connection.process_new_packets())
        });
        let Some(processed) = processed else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if let Err(e) = processed {
            // The alert that tells the reason.
            let _ = flush(connection, socket);
            return Err(io::Error::new(io::ErrorKind::InvalidData, e));
        }
    }
    flush(connection, socket)
}

fn flush(connection: &mut Connection, socket: &mut impl Write) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(socket) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// Performs one step of I/O; ignores interruption by a signal.
fn complete_io(connection: &mut Connection, socket: &mut (impl Read + Write)) -> io::Result<()> {
    match connection.complete_io(socket) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Returns the error of a failed handshake for the server's log.
fn rejected_client_error(error: &io::Error) -> Error {
    let reason = match error.kind() {
        _ if is_timeout(error) => "it timed out".to_owned(),
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => crate::base::error::os_message(error),
    };
    Error::new(
        ErrorKind::Protocol,
        format!("a client did not complete the TLS handshake: {reason}"),
    )
}

fn connect_error(peer: &str, error: &io::Error) -> Error {
    if is_timeout(error) {
        return Error::new(
            ErrorKind::Timeout,
            format!("{peer} accepted the connection but did not answer: is it a bankfull server?"),
        );
    }
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidMessage(_)) => Error::new(
            ErrorKind::Protocol,
            format!("{peer} does not speak bankfull (its answer is not TLS): check host and port"),
        ),
        Some(e) => Error::new(
            ErrorKind::Protocol,
            format!("the TLS handshake with {peer} failed ({e}): is it a bankfull server?"),
        ),
        None if error.kind() == io::ErrorKind::UnexpectedEof => Error::new(
            ErrorKind::Protocol,
            format!("{peer} closed the connection during the handshake: is it a bankfull server?"),
        )
        .dropped(),
        None => Error::network(format!("the connection to {peer} failed"), error).dropped(),
    }
}

/// Certificate verifier that accepts any certificate whose key signed the handshake.
#[derive(Debug)]
struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
