//! Benchmark of I/O methods: a range of a file goes over one TCP connection between two hosts
//! joined by a veth pair, by each method in turn.
//!
//! The opposite end is the same for all methods: it discards, or sends by `sendfile`. A run lasts
//! from the established connection to the last byte in place. CPU time is that of the whole
//! machine, so that kernel work is included wherever it is charged.

use crate::base::error::{LabError, Result};
use crate::topology::hosts::Hosts;
use crate::topology::machine;
use bankfull::IoMethod;
use bankfull_control::Bytes;
use serde::Serialize;
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::Instant;

/// Port of the receiver. (chosen: no result depends on it)
const PORT: u16 = 7790;

/// Buffer of a discarding receiver, in bytes. (chosen: few calls)
const DISCARD_BUFFER_BYTES: usize = 1 << 20;

/// Chunk size of the opposite end, in bytes. (chosen: few calls)
const PEER_CHUNK_BYTES: usize = 1 << 20;

/// Largest file for byte-by-byte transfers. (chosen: 2 million calls, some seconds)
pub const MAX_STREAM_BYTES: Bytes = Bytes(1 << 20);

/// Measured direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a file to the socket.
    Send,
    /// From the socket to a file.
    Receive,
}

/// I/O method, fixed or chosen by bankfull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MethodChoice {
    /// Method and chunk size that copies use by default; the cell's chunk size is ignored.
    Auto,
    /// This method.
    Fixed(IoMethod),
}

impl MethodChoice {
    /// All methods available on this host, and the default choice.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let methods = IoMethod::ALL.into_iter().filter(|method| method.is_available());
        methods.map(Self::Fixed).chain([Self::Auto]).collect()
    }

    /// Name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed(method) => method.name(),
        }
    }

    /// Method and chunk size in bytes.
    fn resolve(self, cell: &Cell) -> (IoMethod, usize) {
        match (self, cell.direction) {
            (Self::Fixed(method), _) => (method, cell.chunk.0 as usize),
            (Self::Auto, Direction::Send) => {
                // The kernel doubles the requested size. (socket(7))
                let buffer = cell
                    .socket_buffer
                    .map_or(usize::MAX, |Bytes(requested)| requested as usize * 2);
                (IoMethod::DEFAULT_SENDER, IoMethod::sender_call_bytes(buffer))
            }
            (Self::Auto, Direction::Receive) => IoMethod::DEFAULT_RECEIVER,
        }
    }
}

impl FromStr for MethodChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Fixed).map_err(|e| format!("{e}, or auto")),
        }
    }
}

/// One cell of the benchmark: a method and its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Cell {
    /// Measured direction.
    pub direction: Direction,
    /// I/O method.
    #[serde(serialize_with = "by_name")]
    pub method: MethodChoice,
    /// Chunk size in bytes.
    #[serde(serialize_with = "number")]
    pub chunk: Bytes,
    /// Send and receive buffer of both sockets; `None`: auto-tuned by the kernel.
    #[serde(serialize_with = "some_number")]
    pub socket_buffer: Option<Bytes>,
    /// File size in bytes.
    #[serde(serialize_with = "number")]
    pub size: Bytes,
}

fn by_name<S: serde::Serializer>(
    method: &MethodChoice,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(method.name())
}

fn number<S: serde::Serializer>(bytes: &Bytes, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_u64(bytes.0)
}

fn some_number<S: serde::Serializer>(
    bytes: &Option<Bytes>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    bytes.map(|bytes| bytes.0).serialize(to)
}

impl Cell {
    /// True if all but the method is the same.
    #[must_use]
    pub fn has_same_conditions(&self, other: &Self) -> bool {
        Self { method: other.method, ..*self } == *other
    }

    /// Reason why the cell cannot be measured; `None` if it can.
    #[must_use]
    pub fn unsupported_reason(&self) -> Option<&'static str> {
        let is_slow = self.method == MethodChoice::Fixed(IoMethod::Stream);
        if is_slow && self.size > MAX_STREAM_BYTES {
            return Some("byte-by-byte transfers support files up to 1 MiB");
        }
        let can_receive = matches!(
            self.method.resolve(self).0,
            IoMethod::Stream | IoMethod::Buffered | IoMethod::Splice
        );
        (self.direction == Direction::Receive && !can_receive).then_some("this method only sends")
    }
}

/// Time and CPU time of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Elapsed {
    /// Duration of the transfer.
    pub seconds: f64,
    /// CPU time of the whole machine, in ticks of the kernel's clock.
    pub cpu_seconds: f64,
}

/// Two hosts joined by a veth pair, and a file to move.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Sender (first) and receiver (second).
    pub hosts: &'a Hosts,
    /// File to move; a cell uses its first bytes.
    pub file: &'a File,
    /// Directory of the receiver's files.
    pub dir: &'a Path,
}

impl Bench<'_> {
    /// Runs a cell once.
    ///
    /// # Errors
    /// [`LabError::Io`] if a connection or a file fails, or bytes are missing.
    pub fn run(&self, cell: &Cell) -> Result<Elapsed> {
        let listener = self.hosts.run_on(1, || listen(cell.socket_buffer))?;
        let sender = self.hosts.run_on(0, || connect(cell.socket_buffer))?;
        let failed = |e| LabError::io(format!("{} failed", cell.method.name()), e);
        let receiver = listener.accept().map_err(failed)?.0;
        let target = tempfile::tempfile_in(self.dir).map_err(failed)?;
        let (began, cpu) = (Instant::now(), machine::cpu_time());
        let arrived = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let sent = self.send(cell, &sender);
                // Even after an error: the receiver waits for the end of the stream.
                let ended = sender.shutdown(Shutdown::Write);
                sent.and(ended)
            });
            let arrived = receive(cell, &receiver, &target);
            if arrived.is_err() {
                let _ = receiver.shutdown(Shutdown::Both);
            }
            let sent = sending.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            // If receiving fails, sending fails as a consequence.
            arrived.and_then(|bytes| sent.map(|()| bytes))
        });
        let (seconds, cpu_seconds) =
            (began.elapsed().as_secs_f64(), machine::cpu_time().saturating_sub(cpu).as_secs_f64());
        match arrived.map_err(failed)? {
            bytes if bytes == cell.size.0 => Ok(Elapsed { seconds, cpu_seconds }),
            bytes => {
                let text = format!("{} of {} arrived", Bytes(bytes), cell.size);
                Err(failed(io::Error::other(text)))
            }
        }
    }

    fn send(&self, cell: &Cell, socket: &TcpStream) -> io::Result<()> {
        let (method, chunk) = match cell.direction {
            Direction::Send => cell.method.resolve(cell),
            Direction::Receive => (IoMethod::SendFile, PEER_CHUNK_BYTES),
        };
        method.sender(chunk)?.send(self.file, 0..cell.size.0, socket).map(drop)
    }
}

/// Receives, and returns the number of bytes.
fn receive(cell: &Cell, mut socket: &TcpStream, target: &File) -> io::Result<u64> {
    if cell.direction == Direction::Receive {
        let (method, chunk) = cell.method.resolve(cell);
        let mut method = method.receiver(chunk)?;
        return method.receive(socket, target, 0..u64::MAX);
    }
    let mut buffer = vec![0; DISCARD_BUFFER_BYTES];
    let mut received = 0;
    loop {
        match socket.read(&mut buffer)? {
            0 => return Ok(received),
            read => received += read as u64,
        }
    }
}

fn socket(buffer: Option<Bytes>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(Bytes(bytes)) = buffer {
        socket.set_send_buffer_size(bytes as usize)?;
        socket.set_recv_buffer_size(bytes as usize)?;
        check_granted("net.core.wmem_max", bytes, socket.send_buffer_size()?)?;
        check_granted("net.core.rmem_max", bytes, socket.recv_buffer_size()?)?;
    }
    Ok(socket)
}

/// Fails if the kernel granted less than requested; it reports success either way, and doubles a
/// granted size. (socket(7))
fn check_granted(limit: &str, requested: u64, granted: usize) -> io::Result<()> {
    if granted as u64 >= requested * 2 {
        return Ok(());
    }
    let text = format!("{limit} does not allow a socket buffer of {}", Bytes(requested));
    Err(io::Error::other(format!("{text}: raise it, or choose a smaller --socket-buffer")))
}

fn listen(buffer: Option<Bytes>) -> io::Result<TcpListener> {
    let socket = socket(buffer)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Hosts::address(1), PORT)).into())?;
    socket.listen(1)?;
    Ok(socket.into())
}

fn connect(buffer: Option<Bytes>) -> io::Result<TcpStream> {
    let socket = socket(buffer)?;
    socket.connect(&SocketAddr::from((Hosts::address(1), PORT)).into())?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_cell_is_refused_with_reason() {
        let cell = Cell {
            direction: Direction::Send,
            method: MethodChoice::Fixed(IoMethod::Stream),
            chunk: Bytes(4096),
            socket_buffer: None,
            size: Bytes(1 << 20),
        };
        assert_eq!(cell.unsupported_reason(), None);
        assert!(Cell { size: Bytes(1 << 21), ..cell }.unsupported_reason().is_some());
        let sendfile =
            Cell { method: MethodChoice::Fixed(IoMethod::SendFile), size: Bytes(1 << 32), ..cell };
        assert_eq!(sendfile.unsupported_reason(), None);
        assert!(Cell { direction: Direction::Receive, ..sendfile }.unsupported_reason().is_some());
        let auto = Cell { method: MethodChoice::Auto, ..sendfile };
        assert_eq!((auto.unsupported_reason(), "auto".parse()), (None, Ok(MethodChoice::Auto)));
        assert_eq!(Cell { direction: Direction::Receive, ..auto }.unsupported_reason(), None);
    }
}
