//! Responder of HTTP/1.1 for a few pages: `GET` and `HEAD`, one request per connection.
//!
//! Anyone who reaches the port may connect, so that connections, their time and their memory are
//! bounded. Files and data have routes of their own.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of connections; beyond it, the oldest is closed. (chosen: eight threads with the
/// accepting one; a scrape takes milliseconds)
const MAX_CONNECTIONS: usize = 7;

/// Time for a request with its response. (Prometheus: half of the default `scrape_timeout`)
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a request's head in bytes. (nginx: a buffer of `large_client_header_buffers`)
const MAX_HEAD: usize = 8 << 10;

/// Maximum number of fields of a request. (Apache: `LimitRequestFields`)
const MAX_FIELDS: usize = 100;

/// Pause after a failure to accept, as without free descriptors. (nginx: `accept_mutex_delay`)
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Pause after a connection was closed for a new one. (chosen: a hundred threads a second at most)
const EVICTION_PAUSE: Duration = Duration::from_millis(10);

/// Niceness of the threads. (nice(1): the default increment)
const NICENESS: i32 = 10;

/// Media type of messages.
const TEXT: &str = "text/plain; charset=utf-8";

/// Pages by their paths.
pub(super) trait Pages: Send + Sync + 'static {
    /// Returns a page in a format that the client accepts; `None` if there is none.
    fn page(&self, path: &str, accept: &str) -> Option<Response>;
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    /// Creates a response with code and text of its status.
    pub(super) fn new(
        status: &'static str,
        content_type: &'static str,
        body: impl Into<String>,
    ) -> Self {
        Self { status, content_type, body: body.into() }
    }

    /// Creates the response of a page that exists.
    pub(super) fn ok(content_type: &'static str, body: impl Into<String>) -> Self {
        Self::new("200 OK", content_type, body)
    }

    /// Returns the body.
    #[cfg(test)]
    pub(super) fn body(&self) -> &str {
        &self.body
    }

    /// Returns the bytes of the response, without the body after `HEAD`.
    fn encode(&self, has_body: bool) -> Vec<u8> {
        let Self { status, content_type, body } = self;
        let allow = if *status == METHOD_NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             {allow}Connection: close\r\n\r\n",
            body.len()
        );
        let body = if has_body { body.as_str() } else { "" };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

const METHOD_NOT_ALLOWED: &str = "405 Method Not Allowed";

/// Head of a request, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    path: String,
    /// Values of the `Accept` fields.
    accept: String,
}

/// Starts to respond in another thread, until the process ends.
pub(super) fn start(listener: TcpListener, pages: Arc<dyn Pages>) -> io::Result<()> {
    let accept = move || {
        // On Linux this is the niceness of the thread and of those it starts: a crowd of clients
        // takes no time from the program.
        let _ = rustix::process::nice(NICENESS);
        accept_all(&listener, &pages);
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(accept).map(drop)
}

/// An open connection and its thread.
struct Connection {
    socket: TcpStream,
    thread: JoinHandle<()>,
}

impl Connection {
    fn start(socket: TcpStream, pages: Arc<dyn Pages>) -> io::Result<Self> {
        let own = socket.try_clone()?;
        let respond = move || {
            let _ = respond(&own, &*pages, Instant::now() + TIMEOUT);
            // The other handle would keep the connection open.
            let _ = own.shutdown(Shutdown::Both);
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(respond)?;
        Ok(Self { socket, thread })
    }

    /// Closes the connection, and waits for its thread.
    fn close(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.thread.join();
    }
}

fn accept_all(listener: &TcpListener, pages: &Arc<dyn Pages>) {
    let mut connections: VecDeque<Connection> = VecDeque::new();
    loop {
        let Ok((socket, _)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        connections.retain(|connection| !connection.thread.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.close();
            thread::sleep(EVICTION_PAUSE);
        }
        // Without a thread, the connection is closed.
        connections.extend(Connection::start(socket, Arc::clone(pages)));
    }
}

/// Responds to the request of a connection.
fn respond(mut socket: &TcpStream, pages: &dyn Pages, deadline: Instant) -> io::Result<()> {
    let (response, has_body) = match read_request(socket, deadline)? {
        Ok(request) => (response_to(&request, pages), request.method != "HEAD"),
        Err(refusal) => (refusal, true),
    };
    let encoded = response.encode(has_body);
    let mut rest = &encoded[..];
    while !rest.is_empty() {
        socket.set_write_timeout(Some(remaining(deadline)?))?;
        let written = socket.write(rest)?;
        rest = rest.get(written..).filter(|_| written > 0).ok_or(io::ErrorKind::WriteZero)?;
    }
    // Closing with unread data would reset the connection, and the client lose the response.
    socket.shutdown(Shutdown::Write)?;
    let mut discarded = [0; 1024];
    loop {
        socket.set_read_timeout(Some(remaining(deadline)?))?;
        if socket.read(&mut discarded)? == 0 {
            return Ok(());
        }
    }
}

fn response_to(request: &Request, pages: &dyn Pages) -> Response {
    match request.method.as_str() {
        "GET" | "HEAD" => pages
            .page(&request.path, &request.accept)
            .unwrap_or_else(|| Response::new("404 Not Found", TEXT, "no such page\n")),
        _ => Response::new(METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n"),
    }
}

/// Returns the time until the deadline.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}

/// Reads the head of a request, or returns why it is refused.
fn read_request(
    mut socket: &TcpStream,
    deadline: Instant,
) -> io::Result<Result<Request, Response>> {
    let (mut head, mut length) = ([0; MAX_HEAD], 0);
    loop {
        socket.set_read_timeout(Some(remaining(deadline)?))?;
        let read = socket.read(&mut head[length..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        length += read;
        let text = |text: &str| format!("{text}\n");
        match parse(&head[..length]) {
            Ok(Some(request)) => return Ok(Ok(request)),
            Ok(None) if length < head.len() => {}
            Ok(None) | Err(httparse::Error::TooManyHeaders) => {
                let status = "431 Request Header Fields Too Large";
                return Ok(Err(Response::new(status, TEXT, text("the request is too long"))));
            }
            Err(error) => {
                return Ok(Err(Response::new("400 Bad Request", TEXT, text(&error.to_string()))));
            }
        }
    }
}

/// Parses the head of a request; `None` if it is incomplete.
fn parse(head: &[u8]) -> Result<Option<Request>, httparse::Error> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    if request.parse(head)?.is_partial() {
        return Ok(None);
    }
    let target = request.path.unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let accept = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let accept: Vec<&str> =
        accept.filter_map(|field| std::str::from_utf8(field.value).ok()).collect();
    let method = request.method.unwrap_or_default().to_owned();
    Ok(Some(Request { method, path, accept: accept.join(",") }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    /// Pages that show the path and what is accepted.
    struct Mirror;

    impl Pages for Mirror {
        fn page(&self, path: &str, accept: &str) -> Option<Response> {
            (path != "/none").then(|| Response::ok(TEXT, format!("{path} {accept}")))
        }
    }

    fn server() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        start(listener, Arc::new(Mirror)).unwrap();
        address
    }

    /// Sends the pieces of a request. Returns the response.
    fn exchange(address: SocketAddr, pieces: &[&[u8]]) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        for piece in pieces {
            socket.write_all(piece).unwrap();
        }
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn request_is_answered_once_it_is_complete() {
        let address = server();
        let response = exchange(
            address,
            &[b"GET /metrics?x=1 HT", b"TP/1.1\r\nACCEPT: a/b\r", b"\nAccept: c/d\r\n\r\n"],
        );
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
                        Content-Length: 16\r\nConnection: close\r\n\r\n/metrics a/b,c/d";
        assert_eq!(response, expected);
        let head = exchange(address, &[b"HEAD /metrics HTTP/1.0\r\n\r\n"]);
        assert!(head.ends_with("Content-Length: 9\r\nConnection: close\r\n\r\n"), "{head}");
    }

    #[test]
    fn other_requests_are_refused_by_their_status() {
        let address = server();
        let long = [b"GET / HTTP/1.1\r\nA: ", &[b'x'; MAX_HEAD][..]].concat();
        let many = [b"GET / HTTP/1.1\r\n", "A: b\r\n".repeat(101).as_bytes(), b"\r\n"].concat();
        for (request, status) in [
            (&b"GET /none HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
            (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", METHOD_NOT_ALLOWED),
            (b"\x16\x03\x01\x02\x00\x01", "400 Bad Request"),
            (b"GET / HTTP/9\r\n\r\n", "400 Bad Request"),
            (&long, "431 Request Header Fields Too Large"),
            (&many, "431 Request Header Fields Too Large"),
        ] {
            let response = exchange(address, &[request]);
            assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{response}");
        }
        let refused = exchange(address, &[b"PUT / HTTP/1.1\r\n\r\n"]);
        assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
    }

    #[test]
    fn idle_connections_make_way() {
        let address = server();
        let mut idle: Vec<TcpStream> = Vec::new();
        for _ in 0..3 * MAX_CONNECTIONS {
            idle.push(TcpStream::connect(address).unwrap());
        }
        let response = exchange(address, &[b"GET /healthz HTTP/1.1\r\n\r\n"]);
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
        // The oldest was closed without a response.
        assert_eq!(idle[0].read(&mut [0]).unwrap_or(0), 0);
    }
}
