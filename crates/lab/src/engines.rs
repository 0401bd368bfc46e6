//! Block engines measured: a range of a file goes over one TCP connection between two hosts that
//! a virtual cable joins, by each engine, in turns.
//!
//! The other end is the same for all: what an engine sends is thrown away, and what one receives
//! was sent by `sendfile`. A run begins when both ends are connected and ends when the last byte
//! is where it belongs. The processors' time is that of the whole machine, so that nothing of the
//! kernel's work is left out, whoever it is charged to.

use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use crate::machine;
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

/// The receiver's port. (ours)
const PORT: u16 = 7790;

/// Bytes that are read at once where they are thrown away. (ours: few calls)
const DISCARD_BYTES: usize = 1 << 20;

/// Blocks of the end that is not measured. (ours: few calls)
const OTHER_BYTES: usize = 1 << 20;

/// Byte by byte, more than this takes too long. (ours: 2 million calls, some seconds)
pub const STREAM_BYTES_MAX: Bytes = Bytes(1 << 20);

/// Which end is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a file to the socket.
    Send,
    /// From the socket to a file.
    Receive,
}

/// Which way is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// The engine and the block that copies have by themselves, whatever the cell's block is.
    Auto,
    /// This one.
    Fixed(IoMethod),
}

impl Way {
    /// All that this host has: the engines, and what is chosen of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let engines = IoMethod::ALL.into_iter().filter(|engine| engine.is_available());
        engines.map(Self::Fixed).chain([Self::Auto]).collect()
    }

    /// What users call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed(engine) => engine.name(),
        }
    }

    /// The engine, and bytes that it moves at once.
    fn engine(self, cell: &Cell) -> (IoMethod, usize) {
        match (self, cell.direction) {
            (Self::Fixed(engine), _) => (engine, cell.block.0 as usize),
            (Self::Auto, Direction::Send) => {
                // The kernel gives twice what it is asked for. (socket(7))
                let buffer =
                    cell.socket_buffer.map_or(usize::MAX, |Bytes(asked)| asked as usize * 2);
                (IoMethod::DEFAULT_SENDER, IoMethod::sender_call_bytes(buffer))
            }
            (Self::Auto, Direction::Receive) => IoMethod::DEFAULT_RECEIVER,
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Fixed).map_err(|e| format!("{e}, or auto")),
        }
    }
}

/// What is compared: an engine under its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Cell {
    /// Which end is measured.
    pub direction: Direction,
    /// By which engine.
    #[serde(serialize_with = "by_name")]
    pub engine: Way,
    /// Bytes that the engine moves at once.
    #[serde(serialize_with = "number")]
    pub block: Bytes,
    /// What both sockets are given, to send and to receive; nothing: the kernel's own tuning.
    #[serde(serialize_with = "some_number")]
    pub socket_buffer: Option<Bytes>,
    /// Bytes of the file.
    #[serde(serialize_with = "number")]
    pub size: Bytes,
}

fn by_name<S: serde::Serializer>(engine: &Way, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(engine.name())
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
    /// Whether all but the engine is the same.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        Self { engine: other.engine, ..*self } == *other
    }

    /// Why there is nothing to measure; `None` where there is.
    #[must_use]
    pub fn refused(&self) -> Option<&'static str> {
        let is_slow = self.engine == Way::Fixed(IoMethod::Stream);
        if is_slow && self.size > STREAM_BYTES_MAX {
            return Some("byte by byte, only files of up to 1 MiB are moved");
        }
        let can_receive = matches!(
            self.engine.engine(self).0,
            IoMethod::Stream | IoMethod::Buffered | IoMethod::Splice
        );
        (self.direction == Direction::Receive && !can_receive).then_some("it only sends")
    }
}

/// What a run took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Took {
    /// Time of the transfer.
    pub seconds: f64,
    /// Time of all processors meanwhile, to the kernel's clock tick.
    pub cpu_seconds: f64,
}

/// Two hosts with a cable between them, and a file to move.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The sender is the first, the receiver the second.
    pub hosts: &'a Hosts,
    /// What is moved: from its beginning as much as a cell wants.
    pub file: &'a File,
    /// Where the receiver's files are.
    pub dir: &'a Path,
}

impl Bench<'_> {
    /// Runs a cell once.
    ///
    /// # Errors
    /// When a connection or a file fails, or not all has arrived.
    pub fn run(&self, cell: &Cell) -> Result<Took> {
        let listener = self.hosts.on(1, || listen(cell.socket_buffer))?;
        let near = self.hosts.on(0, || connect(cell.socket_buffer))?;
        let failed = |e| LabError::io(format!("{} failed", cell.engine.name()), e);
        let far = listener.accept().map_err(failed)?.0;
        let target = tempfile::tempfile_in(self.dir).map_err(failed)?;
        let (began, cpu) = (Instant::now(), machine::busy());
        let arrived = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let sent = self.send(cell, &near);
                // Whatever came of it: the other end waits for this.
                let ended = near.shutdown(Shutdown::Write);
                sent.and(ended)
            });
            let arrived = receive(cell, &far, &target);
            if arrived.is_err() {
                let _ = far.shutdown(Shutdown::Both);
            }
            let sent = sending.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            // Where receiving fails, sending does for want of somebody who reads.
            arrived.and_then(|bytes| sent.map(|()| bytes))
        });
        let (seconds, cpu_seconds) =
            (began.elapsed().as_secs_f64(), machine::busy().saturating_sub(cpu).as_secs_f64());
        match arrived.map_err(failed)? {
            bytes if bytes == cell.size.0 => Ok(Took { seconds, cpu_seconds }),
            bytes => {
                let text = format!("{} of {} arrived", Bytes(bytes), cell.size);
                Err(failed(io::Error::other(text)))
            }
        }
    }

    fn send(&self, cell: &Cell, socket: &TcpStream) -> io::Result<()> {
        let (engine, block) = match cell.direction {
            Direction::Send => cell.engine.engine(cell),
            Direction::Receive => (IoMethod::SendFile, OTHER_BYTES),
        };
        engine.sender(block)?.send(self.file, 0..cell.size.0, socket).map(drop)
    }
}

/// How many bytes came.
fn receive(cell: &Cell, mut socket: &TcpStream, target: &File) -> io::Result<u64> {
    if cell.direction == Direction::Receive {
        let (engine, block) = cell.engine.engine(cell);
        let mut engine = engine.receiver(block)?;
        return engine.receive(socket, target, 0..u64::MAX);
    }
    let mut buffer = vec![0; DISCARD_BYTES];
    let mut came = 0;
    loop {
        match socket.read(&mut buffer)? {
            0 => return Ok(came),
            read => came += read as u64,
        }
    }
}

fn socket(buffer: Option<Bytes>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(Bytes(bytes)) = buffer {
        socket.set_send_buffer_size(bytes as usize)?;
        socket.set_recv_buffer_size(bytes as usize)?;
        refuse_less("net.core.wmem_max", bytes, socket.send_buffer_size()?)?;
        refuse_less("net.core.rmem_max", bytes, socket.recv_buffer_size()?)?;
    }
    Ok(socket)
}

/// The kernel gives less than was asked for without a word, and twice as much else. (socket(7))
fn refuse_less(limit: &str, asked: u64, given: usize) -> io::Result<()> {
    if given as u64 >= asked * 2 {
        return Ok(());
    }
    let text = format!("a socket buffer of {} is more than {limit} allows", Bytes(asked));
    Err(io::Error::other(format!("{text}: set it, or choose a smaller --socket-buffer")))
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
    fn what_takes_hours_or_cannot_be_is_refused_with_a_reason() {
        let cell = Cell {
            direction: Direction::Send,
            engine: Way::Fixed(IoMethod::Stream),
            block: Bytes(4096),
            socket_buffer: None,
            size: Bytes(1 << 20),
        };
        assert_eq!(cell.refused(), None);
        assert!(Cell { size: Bytes(1 << 21), ..cell }.refused().is_some());
        let sendfile =
            Cell { engine: Way::Fixed(IoMethod::SendFile), size: Bytes(1 << 32), ..cell };
        assert_eq!(sendfile.refused(), None);
        assert!(Cell { direction: Direction::Receive, ..sendfile }.refused().is_some());
        let auto = Cell { engine: Way::Auto, ..sendfile };
        assert_eq!((auto.refused(), "auto".parse()), (None, Ok(Way::Auto)));
        assert_eq!(Cell { direction: Direction::Receive, ..auto }.refused(), None);
    }
}
