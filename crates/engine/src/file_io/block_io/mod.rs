//! Methods to move data from a file to a socket and back. There is one trait in each direction.
//! `bankfull-lab io` compares the methods.
//!
//! The five methods of the ZeroBuffer paper are `Stream`, `Buffered`,
//! `Mmap`, `SendFile` and `ZeroBuffer`. `Splice`,
//! `IoUring` and `ZeroCopy` are Linux's own.

mod ahead;
mod buffered;
pub(crate) mod direct;
mod methods;
pub(crate) mod read;
mod receive;
pub(crate) mod send;
#[cfg(test)]
pub(crate) mod tests;
mod workers;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::ops::Range;

/// Unit of reading, hashing and sending, in bytes. It fits a core's second-level cache, where the
/// hash and the cipher find it. (measured by hand: reading and hashing 1 GiB takes 0.18 s in chunks
/// of 64 KiB to 1 MiB alike; chosen: 256 KiB has few calls and fits beside the cipher's output)
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Sends ranges of files to a socket.
pub trait SendRange: Send {
    /// Sends the range; returns the number of bytes sent, fewer if the file ends early.
    ///
    /// # Errors
    /// Errors of reading and sending.
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64>;
}

/// Receives ranges of files from a socket.
pub trait ReceiveRange: Send {
    /// Receives the range; returns the number of bytes received, fewer if the socket ends early.
    ///
    /// # Errors
    /// Errors of receiving and writing.
    fn receive(&mut self, socket: &TcpStream, file: &File, range: Range<u64>) -> io::Result<u64>;
}

/// Repeats a call that a signal interrupts.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
