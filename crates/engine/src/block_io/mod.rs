//! From a file to a socket, and from a socket to a file: the ways that there are, behind one trait
//! in each direction. `bankfull-lab io` compares them.
//!
//! The five ways of the ZeroBuffer paper are [`Engine::Stream`], [`Engine::Buffered`],
//! [`Engine::Mmap`], [`Engine::SendFile`] and [`Engine::ZeroBuffer`]; [`Engine::Splice`] is what
//! Linux has beside them.

mod ahead;
pub(crate) mod direct;
pub(crate) mod read;
mod receive;
pub(crate) mod send;
mod workers;

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::ops::Range;
use std::str::FromStr;

/// Bytes read, hashed and sent at a time: fits a core's second-level cache, so the hash and the
/// cipher find them there. [measured by hand, not by a program of this tree: reading and hashing
/// 1 GiB takes 0.18 s in pieces of 64 KiB to 1 MiB alike; ours: 256 KiB has few calls and fits
/// beside the cipher's output]
pub(crate) const PIECE_BYTES: usize = 256 << 10;

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
    /// The same block by block; small blocks go several to a call, up to 64 KiB.
    ZeroBuffer,
    /// Through a pipe, within the kernel (`splice`).
    Splice,
    /// Blocks through buffers that the kernel fills ahead of whoever sends them (`io_uring`).
    IoUring,
    /// Blocks of the file in memory, which the network takes from there where it can
    /// (`MSG_ZEROCOPY`).
    ZeroCopy,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Stream,
        Self::Buffered,
        Self::Mmap,
        Self::SendFile,
        Self::ZeroBuffer,
        Self::Splice,
        Self::IoUring,
        Self::ZeroCopy,
    ];

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
            Self::IoUring => "io_uring",
            Self::ZeroCopy => "zerocopy",
        }
    }

    /// What copies have by themselves where data is not encrypted. (measured: docs/block-io.md)
    pub const SENDER: Self = Self::ZeroBuffer;

    /// How much of a file it moves at once to a socket whose send buffer has so many bytes: half of
    /// that, so that there is something to send while the next is handed over; but no less than
    /// 64 KiB and no more than 256 KiB. (measured: docs/block-io.md, "the call of a small buffer")
    #[must_use]
    pub fn sender_bytes(send_buffer: usize) -> usize {
        (send_buffer / 2).clamp(send::JOINED_BYTES, PIECE_BYTES)
    }

    /// What copies have to bring bytes from a socket to a file. (measured: docs/block-io.md, "to a
    /// file in memory")
    pub const RECEIVER: (Self, usize) = (Self::Buffered, PIECE_BYTES);

    /// Whether this build and this kernel have it.
    #[must_use]
    pub fn is_available(self) -> bool {
        self != Self::IoUring || bankfull_sys::Reads::are_possible()
    }

    /// Whether a copy can be made by it: not by what is only to compare with.
    #[must_use]
    pub fn is_for_copies(self) -> bool {
        !matches!(self, Self::Stream | Self::ZeroCopy)
    }

    /// Whether bytes go from the file to the socket within the kernel, and so cannot be encrypted
    /// on their way.
    #[must_use]
    pub fn stays_in_kernel(self) -> bool {
        matches!(self, Self::SendFile | Self::ZeroBuffer | Self::Splice)
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
pub(crate) mod tests;
