//! From a file to a socket.

use super::{Engine, SendRange, blocks, uninterrupted};
use bankfull_sys::{Mapping, Pipe, send_file};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Most bytes that one `sendfile` is asked for. (ours: Linux takes 2 GiB less a page at most)
const CALL_BYTES_MAX: u64 = 1 << 30;

/// Bytes that are mapped at a time, where blocks are smaller. (ours: few calls, and few tables of
/// pages)
const MAPPED_BYTES: u64 = 4 << 20;

pub(super) fn sender(engine: Engine, block_bytes: usize) -> io::Result<Box<dyn SendRange>> {
    Ok(match engine {
        Engine::Stream => Box::new(Stream),
        Engine::Buffered => Box::new(Buffered(vec![0; block_bytes.max(1)])),
        Engine::Mmap => Box::new(Mapped { block_bytes }),
        Engine::SendFile => Box::new(InKernel { block_bytes: None }),
        Engine::ZeroBuffer => Box::new(InKernel { block_bytes: Some(block_bytes) }),
        Engine::Splice => Box::new(Spliced { pipe: Pipe::new(block_bytes)?, block_bytes }),
    })
}

struct Stream;

impl SendRange for Stream {
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

struct Buffered(Vec<u8>);

impl SendRange for Buffered {
    fn send(&mut self, file: &File, range: Range<u64>, mut socket: &TcpStream) -> io::Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(self.0.len() as u64) as usize;
            let read = uninterrupted(|| file.read_at(&mut self.0[..len], at))?;
            if read == 0 {
                break;
            }
            socket.write_all(&self.0[..read])?;
            at += read as u64;
        }
        Ok(at - range.start)
    }
}

struct Mapped {
    block_bytes: usize,
}

impl SendRange for Mapped {
    fn send(&mut self, file: &File, range: Range<u64>, mut socket: &TcpStream) -> io::Result<u64> {
        // What is behind the end of the file cannot be read, and nobody would miss it.
        let end = range.end.min(file.metadata()?.len());
        let mut sent = 0;
        let window = MAPPED_BYTES.max(self.block_bytes as u64) as usize;
        for (at, len) in blocks(range.start..end.max(range.start), window) {
            let mapping = Mapping::new(file, at, len)?;
            for block in mapping.bytes().chunks(self.block_bytes.max(1)) {
                let mut rest = block;
                while !rest.is_empty() {
                    // The kernel reads from the mapping: of what is gone meanwhile it says so.
                    match uninterrupted(|| socket.write(rest)) {
                        Err(e) if e.raw_os_error() == Some(EFAULT) => return Ok(sent),
                        Ok(0) => return Err(ErrorKind::WriteZero.into()),
                        Ok(gone) => (sent, rest) = (sent + gone as u64, &rest[gone..]),
                        Err(e) => return Err(e),
                    }
                }
            }
        }
        Ok(sent)
    }
}

/// "Bad address": of a mapping whose file was cut. (errno(3))
const EFAULT: i32 = 14;

struct InKernel {
    /// The whole range at once where there is none.
    block_bytes: Option<usize>,
}

impl SendRange for InKernel {
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let most = self.block_bytes.map_or(CALL_BYTES_MAX, |bytes| bytes.max(1) as u64);
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(most) as usize;
            match uninterrupted(|| send_file(socket, file, at, len))? {
                0 => break,
                sent => at += sent as u64,
            }
        }
        Ok(at - range.start)
    }
}

struct Spliced {
    pipe: Pipe,
    block_bytes: usize,
}

impl Spliced {
    fn pass(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(self.block_bytes.max(1) as u64) as usize;
            let mut left = uninterrupted(|| self.pipe.take_from_file(file, at, len))?;
            if left == 0 {
                break;
            }
            at += left as u64;
            while left > 0 {
                let more = at < range.end;
                match uninterrupted(|| self.pipe.hand_to_socket(socket, left, more))? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    handed => left -= handed,
                }
            }
        }
        Ok(at - range.start)
    }
}

impl SendRange for Spliced {
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let passed = self.pass(file, range, socket);
        if passed.is_err() {
            // What is left in the pipe is nobody's.
            self.pipe = Pipe::new(self.block_bytes)?;
        }
        passed
    }
}
