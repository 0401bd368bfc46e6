//! From a file to a socket.

use super::ahead::Ahead;
use super::read::{Buffered, Mapped, ReadRange};
use super::{Engine, SendRange, uninterrupted};
use bankfull_sys::{Pipe, allow_uncopied, is_gone, send_file, send_uncopied, take_uncopied};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Most bytes that one `sendfile` is asked for. (ours: Linux takes 2 GiB less a page at most)
const CALL_BYTES_MAX: u64 = 1 << 30;

pub(super) fn sender(engine: Engine, block_bytes: usize) -> io::Result<Box<dyn SendRange>> {
    Ok(match engine {
        Engine::Stream => Box::new(Stream),
        Engine::Buffered => Box::new(FromMemory(Buffered::new(block_bytes))),
        Engine::Mmap => Box::new(FromMemory(Mapped::new(block_bytes))),
        Engine::SendFile => Box::new(InKernel { block_bytes: None }),
        Engine::ZeroBuffer => Box::new(InKernel { block_bytes: Some(joined(block_bytes)) }),
        Engine::IoUring => Box::new(FromMemory(ahead(block_bytes)?)),
        Engine::ZeroCopy => Box::new(Uncopied(Mapped::new(block_bytes))),
        Engine::Splice => Box::new(Spliced::new(block_bytes)?),
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

fn ahead(block_bytes: usize) -> io::Result<Ahead> {
    Ahead::by_ring(block_bytes)?.ok_or_else(|| {
        io::Error::new(ErrorKind::Unsupported, "this kernel does not let us have io_uring")
    })
}

/// What is in memory is written to the socket.
struct FromMemory<R>(R);

impl<R: ReadRange> SendRange for FromMemory<R> {
    fn send(&mut self, file: &File, range: Range<u64>, mut socket: &TcpStream) -> io::Result<u64> {
        send_pieces(&mut self.0, file, range, |rest| socket.write(rest))
    }
}

/// Sends the pieces of a range; how many bytes have gone.
fn send_pieces(
    pieces: &mut impl ReadRange,
    file: &File,
    range: Range<u64>,
    mut send: impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<u64> {
    pieces.start(file, range)?;
    let mut sent = 0;
    loop {
        let mut rest = pieces.next(file)?;
        if rest.is_empty() {
            pieces.finish();
            return Ok(sent);
        }
        while !rest.is_empty() {
            // The kernel reads from a mapping: of what is gone meanwhile it says so.
            match uninterrupted(|| send(rest)) {
                Err(e) if is_gone(&e) => return Ok(sent),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(gone) => (sent, rest) = (sent + gone as u64, &rest[gone..]),
                Err(e) => return Err(e),
            }
        }
    }
}

/// The network takes the file's pages themselves, where it can.
struct Uncopied(Mapped);

impl SendRange for Uncopied {
    fn send(&mut self, file: &File, range: Range<u64>, mut socket: &TcpStream) -> io::Result<u64> {
        if !allow_uncopied(socket)? {
            return Err(ErrorKind::Unsupported.into());
        }
        send_pieces(&mut self.0, file, range, |rest| {
            take_uncopied(socket)?;
            match send_uncopied(socket, rest) {
                // As much is on its way as may be.
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => socket.write(rest),
                sent => sent,
            }
        })
    }
}

/// "No buffer space available". (errno(3))
const ENOBUFS: i32 = 105;

/// As many whole blocks as are handed over by one call: what it returns tells how many have gone.
fn joined(block_bytes: usize) -> usize {
    let block_bytes = block_bytes.max(1);
    block_bytes * (JOINED_BYTES / block_bytes).max(1)
}

struct InKernel {
    /// The whole range at once where there is none.
    block_bytes: Option<usize>,
}

impl SendRange for InKernel {
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let most = self.block_bytes.map_or(CALL_BYTES_MAX, |bytes| bytes as u64);
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

/// What a pipe holds at least: as many small blocks as are joined. (Linux gives no more to users,
/// pipe-max-size)
const PIPE_BYTES: usize = 1 << 20;

/// Blocks are joined up to so many bytes before the network has them: whatever it is given it sends
/// on at once, at the cost of a packet. (the largest that TCP makes: GSO_LEGACY_MAX_SIZE)
pub(super) const JOINED_BYTES: usize = 64 << 10;

impl Spliced {
    fn new(block_bytes: usize) -> io::Result<Self> {
        let block_bytes = block_bytes.max(1);
        let pipe = Pipe::new(block_bytes.max(PIPE_BYTES))?;
        Ok(Self { pipe, block_bytes })
    }

    fn pass(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let held = self.gather(file, at..range.end)?;
            if held == 0 {
                break;
            }
            at += held as u64;
            hand_out(&self.pipe, held, at < range.end, socket)?;
        }
        Ok(at - range.start)
    }

    /// Takes blocks into the empty pipe, until there are enough of them; how many bytes.
    fn gather(&mut self, file: &File, range: Range<u64>) -> io::Result<usize> {
        let mut held = 0;
        for _ in 0..self.pipe.room_for(self.block_bytes).max(1) {
            let at = range.start + held as u64;
            let len = (range.end - at).min(self.block_bytes as u64) as usize;
            if len == 0 || held >= JOINED_BYTES {
                break;
            }
            match uninterrupted(|| self.pipe.take_from_file(file, at, len))? {
                0 => break,
                came => held += came,
            }
        }
        Ok(held)
    }
}

/// Has some of a file's bytes go through an empty pipe to a socket, `len` at most; how many. None:
/// the file has ended. After an error some may be left in the pipe.
pub(crate) fn splice_once(
    pipe: &Pipe,
    file: &File,
    offset: u64,
    len: usize,
    socket: impl AsFd,
) -> io::Result<usize> {
    let came = uninterrupted(|| pipe.take_from_file(file, offset, len))?;
    // More of the same follows, unless this is all.
    hand_out(pipe, came, came < len, socket)?;
    Ok(came)
}

/// Hands out all that is in a pipe.
fn hand_out(pipe: &Pipe, held: usize, more: bool, socket: impl AsFd) -> io::Result<()> {
    let mut left = held;
    while left > 0 {
        match uninterrupted(|| pipe.hand_to_socket(&socket, left, more))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            handed => left -= handed,
        }
    }
    Ok(())
}

impl SendRange for Spliced {
    fn send(&mut self, file: &File, range: Range<u64>, socket: &TcpStream) -> io::Result<u64> {
        let passed = self.pass(file, range, socket);
        if passed.is_err() {
            // What is left in the pipe is nobody's.
            *self = Self::new(self.block_bytes)?;
        }
        passed
    }
}
