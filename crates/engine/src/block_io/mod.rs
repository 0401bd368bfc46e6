//! From a file to a socket, and from a socket to a file: the ways that there are, behind one trait
//! in each direction. `bankfull-lab io` compares them.
//!
//! The five ways of the ZeroBuffer paper are [`Engine::Stream`], [`Engine::Buffered`],
//! [`Engine::Mmap`], [`Engine::SendFile`] and [`Engine::ZeroBuffer`]; [`Engine::Splice`] is what
//! Linux has beside them.

mod receive;
mod send;

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::ops::Range;
use std::str::FromStr;

/// A way from a file to a socket or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Byte by byte: one call for each to read it, and one to write it. To compare with.
    Stream,
    /// Blocks through a buffer.
    Buffered,
    /// Blocks of the file in memory (`mmap`).
    Mmap,
    /// The whole range at once, within the kernel (`sendfile`).
    SendFile,
    /// The same block by block.
    ZeroBuffer,
    /// Through a pipe, within the kernel (`splice`).
    Splice,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Stream, Self::Buffered, Self::Mmap, Self::SendFile, Self::ZeroBuffer, Self::Splice];

    /// What users call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Buffered => "buffered",
            Self::Mmap => "mmap",
            Self::SendFile => "sendfile",
            Self::ZeroBuffer => "zerobuffer",
            Self::Splice => "splice",
        }
    }

    /// A sender of this kind, in blocks of so many bytes.
    ///
    /// # Errors
    /// When it cannot have what it needs: a pipe.
    pub fn sender(self, block_bytes: usize) -> io::Result<Box<dyn SendRange>> {
        send::sender(self, block_bytes)
    }

    /// A receiver of this kind, in blocks of so many bytes. Within the kernel there is only one way
    /// from a socket to a file, [`Engine::Splice`]; [`Engine::Mmap`] only sends, too.
    ///
    /// # Errors
    /// `Unsupported` for those, and when it cannot have what it needs.
    pub fn receiver(self, block_bytes: usize) -> io::Result<Box<dyn ReceiveRange>> {
        receive::receiver(self, block_bytes)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no engine {text:?}: choose {names}")
        })
    }
}

/// Puts a range of a file on a socket.
pub trait SendRange: Send {
    /// Sends the range; how many bytes of it there were: fewer where the file ends before.
    ///
    /// # Errors
    /// What reading or sending reports.
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64>;
}

/// Takes a range of a file off a socket.
pub trait ReceiveRange: Send {
    /// Receives the range; how many bytes of it came: fewer where the socket ends before.
    ///
    /// # Errors
    /// What receiving or writing reports.
    fn receive(&mut self, socket: &TcpStream, file: &File, range: Range<u64>) -> io::Result<u64>;
}

/// Blocks of a range, in order, each no longer than so many bytes.
fn blocks(range: Range<u64>, block_bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    let Range { start, end } = range;
    let step = block_bytes.max(1);
    (start..end).step_by(step).map(move |at| (at, (end - at).min(step as u64) as usize))
}

/// Tries again what a signal has interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests;
