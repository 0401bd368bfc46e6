//! A simulated peer: it speaks the protocol with the project's own encoders, and violates it on
//! request.

use super::remote::{connect_remote, listen_remote, patience, remote_url, spawn_remote};
use super::run::wait_until;
use super::scratch::Scratch;
use crate::command;
use bankfull_proto::blocks::Layout;
use bankfull_proto::limits::MAX_CONTROL_FRAME_BYTES;
use bankfull_proto::wire::attach::{self, Attach, DATA_MAGIC, REPLY_BYTES, REQUEST_BYTES};
use bankfull_proto::wire::control::{
    self, Cause, Direction, Entry, EntryKind, Failure, Fsync, Hello, MAGIC, Message, Open,
    PathBytes, Source, Welcome,
};
use bankfull_proto::wire::data::Header;
use bankfull_proto::wire::frame::FrameReader;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// First byte of a TLS handshake record. (RFC 8446, 5.1)
const TLS_HANDSHAKE: u8 = 22;

/// Time limit for a response of the program.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time limit of a read of a connection that is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A connection of any kind.
pub(crate) type Wire = Box<dyn Duplex>;

pub(crate) trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// One side of a control connection.
pub(crate) struct Peer {
    wire: Wire,
    frames: FrameReader,
    port: u16,
    pub(crate) welcome: Welcome,
    /// Number of streams that a [`FakeServer`] has answered.
    streams: Arc<AtomicUsize>,
}

impl Peer {
    /// Connects a client that has not sent Hello.
    pub(crate) fn connect(port: u16) -> Self {
        let mut peer = Self::over(tls_to(port), port);
        peer.send_raw(&MAGIC);
        peer.expect_magic();
        peer
    }

    /// Connects a client that has received Welcome.
    pub(crate) fn welcomed(port: u16) -> Self {
        Self::connect(port).introduced()
    }

    /// Starts an agent with a welcomed client; returns it with the process number.
    pub(crate) fn of_agent() -> (Self, u32) {
        let pipes = Pipes::to_agent();
        let id = pipes.0.id();
        let mut peer = Self::over(Box::new(pipes), 0);
        peer.send_raw(&MAGIC);
        peer.expect_magic();
        let mut peer = peer.introduced();
        peer.port = peer.welcome.data_port.expect("a data port");
        (peer, id)
    }

    fn introduced(mut self) -> Self {
        self.send(&hello(1, 1));
        match self.receive() {
            Some(Message::Welcome(welcome)) => self.welcome = welcome,
            other => panic!("expected Welcome, got {other:?}"),
        }
        self
    }

    fn over(wire: Wire, port: u16) -> Self {
        let frames = FrameReader::new(MAX_CONTROL_FRAME_BYTES);
        Self { wire, frames, port, welcome: Welcome::default(), streams: Arc::default() }
    }

    fn expect_magic(&mut self) {
        let mut magic = [0; MAGIC.len()];
        self.wire.read_exact(&mut magic).unwrap();
        assert_eq!(magic, MAGIC);
    }

    pub(crate) fn send(&mut self, message: &Message) {
        self.send_raw(&control::encode(message).unwrap());
    }

    /// Sends raw bytes. The program may have closed the connection already; its earlier messages
    /// count.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.wire.write_all(bytes).and_then(|()| self.wire.flush());
    }

    /// Closes the connection with unread data, which resets it.
    pub(crate) fn hang_up(&mut self) {
        self.wire = Box::new(io::Cursor::new(Vec::new()));
    }

    /// Returns the next message other than heartbeats and path reports; `None` when the connection
    /// is closed.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            while let Some(frame) = self.frames.next_frame().unwrap() {
                match control::decode(frame).unwrap() {
                    Message::Ping
                    | Message::RateRequest(_)
                    | Message::SenderReport(_)
                    | Message::TrainRequest(_)
                    | Message::ReceiverReport(_) => {}
                    message => return Some(message),
                }
            }
            match self.wire.read(&mut buffer) {
                Ok(n @ 1..) => self.frames.push(&buffer[..n]),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock) => {
                    panic!("the program neither answers nor closes the connection")
                }
                _ => return None,
            }
        }
    }

    /// Waits until a [`FakeServer`] has answered this number of streams.
    #[track_caller]
    pub(crate) fn wait_for_streams(&self, count: usize) {
        wait_until("they are there", || self.streams.load(Ordering::SeqCst) >= count);
    }

    /// Reads until the program sends an error and closes, or just closes.
    pub(crate) fn refusal(&mut self) -> Option<Failure> {
        let mut reason = None;
        while let Some(message) = self.receive() {
            if let Message::Error(failure) = message {
                reason = Some(failure);
            }
        }
        reason
    }

    /// Reads until the program sends an error with this cause and these words.
    #[track_caller]
    pub(crate) fn expect_refusal(&mut self, cause: Cause, words: &str) {
        let failure = self.refusal().unwrap_or_else(|| panic!("no reason instead of {words:?}"));
        assert!(
            failure.cause() == cause && failure.text.contains(words),
            "not {cause:?} {words:?} but {failure:?}"
        );
    }

    /// Opens a stream of this session with a proof made with `key`.
    pub(crate) fn attach_with(&self, stream: u32, key: &[u8; 32], encrypted: bool) -> Wire {
        let mut nonce = [7; 32];
        nonce[..4].copy_from_slice(&stream.to_be_bytes());
        let attach = Attach { version: 1, stream, session: self.welcome.session, nonce };
        let mut wire = if encrypted { tls_to(self.port) } else { Box::new(tcp_to(self.port)) };
        wire.write_all(&attach.encode(key)).and_then(|()| wire.flush()).unwrap();
        wire
    }

    /// Opens a stream of this session that is accepted.
    pub(crate) fn attach(&self, stream: u32) -> Wire {
        let mut wire = self.attach_with(stream, &self.welcome.session_key, true);
        wire.read_exact(&mut [0; REPLY_BYTES]).unwrap();
        wire
    }
}

/// An agent as ssh starts it, on pipes. Killed on drop.
struct Pipes(Child);

impl Pipes {
    fn to_agent() -> Self {
        let mut agent = command();
        agent.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(spawn_remote(&mut agent).expect("the program starts"))
    }
}

impl Read for Pipes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.stdout.as_mut().expect("a pipe").read(out)
    }
}

impl Write for Pipes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stdin.as_mut().expect("a pipe").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that handles each connection on a separate thread as the test specifies. Its port stays
/// open until the test program ends.
pub(crate) struct FakeServer {
    pub(crate) port: u16,
    /// SHA-256 of its certificate.
    pub(crate) fingerprint: [u8; 32],
}

impl FakeServer {
    /// Starts a server without any protocol.
    pub(crate) fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let (listener, port) = listen_remote();
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(socket));
            }
        });
        Self { port, fingerprint: [0; 32] }
    }

    /// Starts a server that completes the handshake and receives Hello. It ends streams in order as
    /// soon as they are attached.
    pub(crate) fn greeted(serve: impl Fn(&mut Peer, Hello) + Send + Sync + 'static) -> Self {
        Self::with_streams(true, serve)
    }

    /// Starts a server that keeps streams open without sending anything.
    pub(crate) fn holding(serve: impl Fn(&mut Peer, Hello) + Send + Sync + 'static) -> Self {
        Self::with_streams(false, serve)
    }

    fn with_streams(ended: bool, serve: impl Fn(&mut Peer, Hello) + Send + Sync + 'static) -> Self {
        let (config, fingerprint) = server_config();
        let streams: Arc<AtomicUsize> = Arc::default();
        let server = Self::raw(move |socket| {
            socket.set_read_timeout(Some(patience(PATIENCE))).unwrap();
            let mut magic = [0; MAGIC.len()];
            let _ = socket.peek(&mut magic[..1]);
            let mut wire: Wire = match magic[0] {
                TLS_HANDSHAKE => {
                    let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                    Box::new(StreamOwned::new(connection, socket))
                }
                // The control connection of an agent.
                _ => Box::new(socket),
            };
            if wire.read_exact(&mut magic).is_err() {
                return;
            }
            if magic == DATA_MAGIC {
                return idle_stream(wire, &magic, ended, &streams);
            }
            let mut peer = Peer { streams: Arc::clone(&streams), ..Peer::over(wire, 0) };
            peer.send_raw(&MAGIC);
            if let Some(Message::Hello(hello)) = peer.receive() {
                serve(&mut peer, hello);
                // The client closes after an error; after Done, the sender does.
                while peer.receive().is_some_and(|reported| !matches!(reported, Message::Done(_))) {
                }
            }
        });
        Self { fingerprint, ..server }
    }

    /// Returns a command that connects to this server in place of ssh.
    pub(crate) fn ssh_command(&self, here: &Scratch) -> String {
        let script = here.join("ssh");
        // Standard output ends with the server, the connection with standard input.
        let lines = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{} 4>&1 >/dev/null\n\
             cat <&3 >&4 & exec 4>&-\n\
             cat >&3; kill $!\n",
            self.port
        );
        std::fs::write(&script, lines).unwrap();
        format!("bash {}", script.display())
    }

    pub(crate) fn url(&self) -> String {
        remote_url(self.port, "")
    }
}

/// Key of every session of a [`FakeServer`].
const SESSION_KEY: [u8; 32] = [5; 32];

/// Accepts a stream; `ended` also sends its end.
fn idle_stream(mut wire: Wire, magic: &[u8], ended: bool, streams: &AtomicUsize) {
    let mut request = [0; REQUEST_BYTES];
    request[..magic.len()].copy_from_slice(magic);
    wire.read_exact(&mut request[magic.len()..]).unwrap();
    let attach = Attach::decode(&request).unwrap();
    let mut answer = attach::reply(&SESSION_KEY, &attach.nonce).to_vec();
    if ended {
        answer.extend_from_slice(&Header::End.encode());
    }
    let _ = wire.write_all(&answer).and_then(|()| wire.flush());
    streams.fetch_add(1, Ordering::SeqCst);
    let _ = io::copy(&mut wire, &mut io::sink());
}

/// Returns the Welcome of a [`FakeServer`].
pub(crate) fn welcome(version: u16) -> Message {
    Message::Welcome(Welcome {
        version,
        software: "a test".into(),
        session: [4; 16],
        session_key: SESSION_KEY,
        max_streams: 4,
        ..Welcome::default()
    })
}

/// Returns the Welcome of a [`FakeServer`] as an agent with this data port and certificate.
pub(crate) fn welcome_of_agent((port, fingerprint): (u16, [u8; 32])) -> Message {
    let Message::Welcome(welcome) = welcome(1) else { unreachable!("a Welcome") };
    Message::Welcome(Welcome {
        data_port: Some(port),
        data_hosts: vec!["127.0.0.1".into()],
        fingerprint: Some(fingerprint),
        ..welcome
    })
}

/// Returns a Hello.
pub(crate) fn hello(min_version: u16, max_version: u16) -> Message {
    let software = "a test".into();
    Message::Hello(Hello { min_version, max_version, software, ..Hello::default() })
}

/// Names of the files that [`open_push`] requests to send.
const PUSHED: [&str; 5] = ["f", "g", "small", "late", "huge"];

/// Returns the request to send files to the root of the daemon.
pub(crate) fn open_push(unencrypted: bool) -> Message {
    let file =
        |name: &str| Source { name: name.into(), is_dir: false, contents: false, open_ended: None };
    open_push_of(PUSHED.map(file).into(), unencrypted)
}

/// Returns the request to send these sources to the root of the daemon.
pub(crate) fn open_push_of(sources: Vec<Source>, unencrypted: bool) -> Message {
    Message::Open(Open {
        direction: Direction::Push,
        paths: vec![PathBytes(b"".to_vec())],
        sources,
        fsync: Fsync::None,
        checksum: false,
        dry_run: false,
        unencrypted,
        streams: 1,
        timeout_ms: 60_000,
        ..Open::default()
    })
}

/// Returns the announcement of a directory whose contents are sent.
pub(crate) fn base() -> Entry {
    Entry { kind: EntryKind::Dir, ..entry(1, b"", 0) }
}

/// Returns the announcement of a file in that directory.
pub(crate) fn below(id: u64, name: &[u8], size: u64) -> Entry {
    Entry { parent: 1, ..entry(id, name, size) }
}

/// Returns the announcement of a file in the root.
pub(crate) fn entry(id: u64, name: &[u8], size: u64) -> Entry {
    let in_blocks = size > 256 << 10;
    Entry {
        id,
        parent: 0,
        name: name.to_vec(),
        kind: EntryKind::File,
        mode: 0o644,
        mtime_secs: 1_700_000_000,
        mtime_nanos: 1,
        size,
        version: 1,
        uid: 0,
        gid: 0,
        block_bytes: if in_blocks { Layout::for_size(size).block_bytes() } else { 0 },
        sparse: false,
        target: Vec::new(),
        extra: None,
    }
}

fn tcp_to(port: u16) -> TcpStream {
    let socket = connect_remote(port);
    socket.set_read_timeout(Some(patience(PATIENCE))).unwrap();
    socket
}

fn tls_to(port: u16) -> Wire {
    let name = ServerName::try_from("bankfull").unwrap();
    let connection = ClientConnection::new(client_config(), name).unwrap();
    Box::new(StreamOwned::new(connection, tcp_to(port)))
}

fn client_config() -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Arc::new(config)
}

/// Connects and sends first bytes; reads then wait for 10 ms at most.
pub(crate) fn polled_tls_to(port: u16, first: &[u8]) -> Wire {
    let socket = tcp_to(port);
    let name = ServerName::try_from("bankfull").unwrap();
    let connection = ClientConnection::new(client_config(), name).unwrap();
    let limits = socket.try_clone().unwrap();
    let mut wire = StreamOwned::new(connection, socket);
    // The handshake is within the first write.
    wire.write_all(first).and_then(|()| wire.flush()).unwrap();
    limits.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
    Box::new(wire)
}

/// A server that hands over connections after the handshake and the magic.
pub(crate) struct TlsServer {
    pub(crate) port: u16,
    fingerprint: [u8; 32],
}

impl TlsServer {
    /// Starts it; reads of its connections wait for 10 ms at most.
    pub(crate) fn start(serve: impl Fn(Wire, [u8; 8]) + Send + Sync + 'static) -> Self {
        let (config, fingerprint) = server_config();
        let server = FakeServer::raw(move |socket| {
            socket.set_read_timeout(Some(patience(PATIENCE))).unwrap();
            let limits = socket.try_clone().unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut wire = StreamOwned::new(connection, socket);
            let mut magic = [0; MAGIC.len()];
            // A client may close a connection that it does not need.
            if wire.read_exact(&mut magic).is_ok() {
                limits.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
                serve(Box::new(wire), magic);
            }
        });
        Self { port: server.port, fingerprint }
    }

    /// Returns the flag with which clients trust it.
    pub(crate) fn trust(&self) -> [String; 2] {
        let hex: String = self.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
        ["--fingerprint".to_owned(), format!("sha256:{hex}")]
    }

    pub(crate) fn url(&self, path: &str) -> String {
        remote_url(self.port, path)
    }
}

/// Returns the configuration, and the SHA-256 of the certificate.
fn server_config() -> (Arc<ServerConfig>, [u8; 32]) {
    let made = rcgen::generate_simple_self_signed(vec!["bankfull".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("of TLS 1.3");
    let digest = suite.common.hash_provider.hash(made.cert.der());
    (Arc::new(config), digest.as_ref().try_into().unwrap())
}

/// Trusts every certificate, as the tests start all servers.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

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
        Err(rustls::Error::General("only TLS 1.3 is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
