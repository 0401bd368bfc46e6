//! From a file to a socket.

use super::ahead::Prefetcher;
use super::buffered::{Buffered, ReadRange};
use super::read::Mapped;
use super::{SendRange, uninterrupted};
use crate::model::io_method::IoMethod;
use bankfull_sys::{
    Pipe, enable_zerocopy, is_mapping_fault, reap_zerocopy, send_file, send_zerocopy,
};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Largest request to `sendfile`. (chosen: Linux accepts 2 GiB minus a page)
const MAX_SENDFILE_BYTES: u64 = 1 << 30;

pub(crate) fn sender(method: IoMethod, block_bytes: usize) -> io::Result<Box<dyn SendRange>> {
    Ok(match method {
        IoMethod::Stream => Box::new(ByteSend),
        IoMethod::Buffered => Box::new(MemorySend(Buffered::new(block_bytes))),
        IoMethod::Mmap => Box::new(MemorySend(Mapped::new(block_bytes))),
        IoMethod::SendFile => Box::new(SendFileLoop { block_bytes: None }),
        IoMethod::ZeroBuffer => {
            Box::new(SendFileLoop { block_bytes: Some(call_bytes(block_bytes)) })
        }
        IoMethod::IoUring => Box::new(MemorySend(io_uring_reader(block_bytes)?)),
        IoMethod::ZeroCopy => Box::new(ZeroCopySend(Mapped::new(block_bytes))),
        IoMethod::Splice => Box::new(SpliceSend::new(block_bytes)?),
    })
}

struct ByteSend;

impl SendRange for ByteSend {
    fn send(&mut self, file: &File, range: Range<u64>, mut socket: &TcpStream) -> io::Result<u64> {
        let mut byte = [0];
        let mut sent = 0;
        for at in range {
            if uninterrupted(|| file.read_at(&mut byte, at))? == 0 {
                break;
            }
            socket.write_all(&byte)?;
            sent += 1;
        }
        Ok(sent)
    }
}

fn io_uring_reader(block_bytes: usize) -> io::Result<Prefetcher> {
    Prefetcher::with_io_uring(block_bytes)?.ok_or_else(|| {
        io::Error::new(
            ErrorKind::Unsupported,
            "io_uring is denied to this process: choose another I/O method",
        )
    })
}

/// Sends from memory through `write`.
struct MemorySend<R>(R);

impl<R: ReadRange> SendRange for MemorySend<R> {
    fn send(&mut self, file: &File, range: Range<u64>, mut socket: &TcpStream) -> io::Result<u64> {
        send_chunks(&mut self.0, file, range, |rest| socket.write(rest))
    }
}

/// Sends the chunks of a range; returns the number of bytes sent.
fn send_chunks(
    chunks: &mut impl ReadRange,
    file: &File,
    range: Range<u64>,
    mut send: impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<u64> {
    chunks.start(file, range)?;
    let mut sent = 0;
    loop {
        let mut rest = chunks.next(file)?;
        if rest.is_empty() {
            chunks.finish();
            return Ok(sent);
        }
        while !rest.is_empty() {
            // For a mapping that was truncated, the kernel reports an error.
            match uninterrupted(|| send(rest)) {
                Err(e) if is_mapping_fault(&e) => return Ok(sent),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent_now) => (sent, rest) = (sent + sent_now as u64, &rest[sent_now..]),
                Err(e) => return Err(e),
            }
        }
    }
}

/// Sends the file's pages without a copy, if possible.
struct ZeroCopySend(Mapped);

impl SendRange for ZeroCopySend {
    fn send(&mut self, file: &File, range: Range<u64>, mut socket: &TcpStream) -> io::Result<u64> {
        if !enable_zerocopy(socket)? {
            return Err(ErrorKind::Unsupported.into());
        }
        send_chunks(&mut self.0, file, range, |rest| {
            reap_zerocopy(socket)?;
            match send_zerocopy(socket, rest) {
                // The limit of data in flight without a copy is reached.
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => socket.write(rest),
                sent => sent,
            }
        })
    }
}

/// "No buffer space available". (errno(3))
const ENOBUFS: i32 = 105;

/// Bytes per call: as many whole blocks as are joined, so that the result counts blocks.
fn call_bytes(block_bytes: usize) -> usize {
    let block_bytes = block_bytes.max(1);
    block_bytes * (MIN_CALL_BYTES / block_bytes).max(1)
}

struct SendFileLoop {
    /// `None`: the whole range at once.
    block_bytes: Option<usize>,
}

impl SendRange for SendFileLoop {
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let max_bytes = self.block_bytes.map_or(MAX_SENDFILE_BYTES, |bytes| bytes as u64);
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(max_bytes) as usize;
            match uninterrupted(|| send_file(socket, file, at, len))? {
                0 => break,
                sent => at += sent as u64,
            }
        }
        Ok(at - range.start)
    }
}

struct SpliceSend {
    pipe: Pipe,
    block_bytes: usize,
}

/// Smallest capacity of a pipe, for joined small blocks. (Linux's maximum for users, pipe-max-size)
const MIN_PIPE_BYTES: usize = 1 << 20;

/// Smallest number of bytes per call: smaller blocks are joined, as each call may emit a packet.
/// (TCP's largest: GSO_LEGACY_MAX_SIZE)
pub(crate) const MIN_CALL_BYTES: usize = 64 << 10;

impl SpliceSend {
    fn new(block_bytes: usize) -> io::Result<Self> {
        let block_bytes = block_bytes.max(1);
        let pipe = Pipe::new(block_bytes.max(MIN_PIPE_BYTES))?;
        Ok(Self { pipe, block_bytes })
    }

    fn splice(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let held = self.fill_pipe(file, at..range.end)?;
            if held == 0 {
                break;
            }
            at += held as u64;
            drain_pipe(&self.pipe, held, at < range.end, socket)?;
        }
        Ok(at - range.start)
    }

    /// Fills the empty pipe with enough blocks; returns the number of bytes.
    fn fill_pipe(&mut self, file: &File, range: Range<u64>) -> io::Result<usize> {
        let mut held = 0;
        for _ in 0..self.pipe.max_splices(self.block_bytes).max(1) {
            let at = range.start + held as u64;
            let len = (range.end - at).min(self.block_bytes as u64) as usize;
            if len == 0 || held >= MIN_CALL_BYTES {
                break;
            }
            match uninterrupted(|| self.pipe.splice_from_file(file, at, len))? {
                0 => break,
                moved => held += moved,
            }
        }
        Ok(held)
    }
}

/// Moves at most `len` bytes of a file through an empty pipe to a socket; returns their number, 0
/// at the end of the file. After an error, some may be left in the pipe.
pub(crate) fn splice_once(
    pipe: &Pipe,
    file: &File,
    offset: u64,
    len: usize,
    socket: impl AsFd,
) -> io::Result<usize> {
    let moved = uninterrupted(|| pipe.splice_from_file(file, offset, len))?;
    // More data follows, unless this is all.
    drain_pipe(pipe, moved, moved < len, socket)?;
    Ok(moved)
}

/// Sends everything in the pipe.
fn drain_pipe(pipe: &Pipe, held: usize, more: bool, socket: impl AsFd) -> io::Result<()> {
    let mut left = held;
    while left > 0 {
        match uninterrupted(|| pipe.splice_to_socket(&socket, left, more))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            handed => left -= handed,
        }
    }
    Ok(())
}

impl SendRange for SpliceSend {
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let result = self.splice(file, range, socket);
        if result.is_err() {
            // The rest in the pipe belongs to no range.
            *self = Self::new(self.block_bytes)?;
        }
        result
    }
}
