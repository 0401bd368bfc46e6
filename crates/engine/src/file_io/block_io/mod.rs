//! Methods to move data from a file to a socket and back. There is one trait in each direction.
//! `bankfull-lab io` compares the methods.
//!
//! The five methods of the ZeroBuffer paper are [`IoMethod::Stream`], [`IoMethod::Buffered`],
//! [`IoMethod::Mmap`], [`IoMethod::SendFile`] and [`IoMethod::ZeroBuffer`]. [`IoMethod::Splice`],
//! [`IoMethod::IoUring`] and [`IoMethod::ZeroCopy`] are Linux's own.

mod ahead;
mod buffered;
pub(crate) mod direct;
pub(crate) mod read;
mod receive;
pub(crate) mod send;
#[cfg(test)]
pub(crate) mod tests;
mod workers;

use crate::model::io_method::IoMethod;
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

impl IoMethod {
    /// Default method to send unencrypted data. (measured: docs/block-io.md)
    pub const DEFAULT_SENDER: Self = Self::ZeroBuffer;

    /// Bytes per call to a socket whose send buffer has `send_buffer` bytes: half of it, so that
    /// data is left to send during the next call, clamped to 64 to 256 KiB. (measured:
    /// docs/block-io.md, "the call of a small buffer")
    #[must_use]
    pub fn sender_call_bytes(send_buffer: usize) -> usize {
        (send_buffer / 2).clamp(send::MIN_CALL_BYTES, CHUNK_BYTES)
    }

    /// Default method and block size to receive. (measured: docs/block-io.md, "to a file in
    /// memory")
    pub const DEFAULT_RECEIVER: (Self, usize) = (Self::Buffered, CHUNK_BYTES);

    /// True if this build and this kernel support it.
    #[must_use]
    pub fn is_available(self) -> bool {
        self != Self::IoUring || bankfull_sys::ReadRing::is_available()
    }

    /// Creates a sender with blocks of `block_bytes`.
    ///
    /// # Errors
    /// Unavailable resources of the method: a pipe, `io_uring`.
    pub fn sender(self, block_bytes: usize) -> io::Result<Box<dyn SendRange>> {
        send::sender(self, block_bytes)
    }

    /// Creates a receiver with blocks of `block_bytes`. [`IoMethod::Stream`],
    /// [`IoMethod::Buffered`] and [`IoMethod::Splice`] can receive.
    ///
    /// # Errors
    /// `Unsupported` for the other methods, and when a resource of the method is unavailable.
    pub fn receiver(self, block_bytes: usize) -> io::Result<Box<dyn ReceiveRange>> {
        receive::receiver(self, block_bytes)
    }
}
