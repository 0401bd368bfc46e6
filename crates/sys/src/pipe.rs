//! A pipe that bytes pass through within the kernel, between a file and a socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

/// What a pipe holds until it is emptied: pages, handed on and not copied where that is possible.
#[derive(Debug)]
pub struct Pipe {
    into: OwnedFd,
    out: OwnedFd,
    size: usize,
}

impl Pipe {
    /// One that holds so many bytes, or as many as the kernel allows.
    ///
    /// # Errors
    ///
    /// Whatever `pipe2` reports, such as too many open files.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // Beyond `pipe-max-size` it stays as it was. (pipe(7))
        let size = fcntl_setpipe_size(&into, bytes).or_else(|_| fcntl_getpipe_size(&into))?;
        Ok(Self { into, out, size })
    }

    /// How much it holds.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many times something can be taken in before it is full, where each time is so many bytes
    /// at most, wherever they begin.
    #[must_use]
    pub fn room_for(&self, len: usize) -> usize {
        let page = rustix::param::page_size();
        // Parts of pages count as whole ones, and begin and end may be such.
        self.size / page / (len / page + 2)
    }

    /// Takes up to `len` bytes of a file from `offset` on; how many, zero at its end.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the file system cannot, and what reading it reports.
    pub fn take_from_file(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        let mut from = offset;
        let len = len.min(self.size);
        Ok(splice(file, Some(&mut from), &self.into, None, len, SpliceFlags::MOVE)?)
    }

    /// Takes up to `len` bytes that came on a socket; waits for the first. Zero at its end.
    ///
    /// # Errors
    ///
    /// As reading from it.
    pub fn take_from_socket(&self, socket: impl AsFd, len: usize) -> io::Result<usize> {
        let len = len.min(self.size);
        Ok(splice(socket, None, &self.into, None, len, SpliceFlags::MOVE)?)
    }

    /// Hands up to `len` of the bytes in it to a socket; how many. Where `more` will follow, what
    /// does not fill a segment waits for it.
    ///
    /// # Errors
    ///
    /// As writing to it.
    pub fn hand_to_socket(&self, socket: impl AsFd, len: usize, more: bool) -> io::Result<usize> {
        let flags = if more { SpliceFlags::MOVE | SpliceFlags::MORE } else { SpliceFlags::MOVE };
        Ok(splice(&self.out, None, socket, None, len, flags)?)
    }

    /// Writes up to `len` of the bytes in it to a file at `offset`; how many.
    ///
    /// # Errors
    ///
    /// As writing to it.
    pub fn hand_to_file(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        let mut to = offset;
        Ok(splice(&self.out, None, file, Some(&mut to), len, SpliceFlags::MOVE)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn what_passes_through_from_file_to_socket_to_file_stays_as_it_is() {
        let content: Vec<u8> = (0..300_000u32).map(|at| (at % 241) as u8).collect();
        let (mut source, mut target) =
            (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        source.write_all(&content).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (near, pipe) = (near, Pipe::new(1 << 20).unwrap());
                let mut at = 0;
                loop {
                    let mut left = pipe.take_from_file(&source, at, 100_000).unwrap();
                    if left == 0 {
                        return;
                    }
                    at += left as u64;
                    while left > 0 {
                        left -= pipe.hand_to_socket(&near, left, false).unwrap();
                    }
                }
            });
            let pipe = Pipe::new(1 << 20).unwrap();
            let mut at = 0;
            loop {
                let mut left = pipe.take_from_socket(&far, 1 << 20).unwrap();
                if left == 0 {
                    break;
                }
                while left > 0 {
                    let written = pipe.hand_to_file(&target, at, left).unwrap();
                    at += written as u64;
                    left -= written;
                }
            }
        });
        let mut arrived = Vec::new();
        target.read_to_end(&mut arrived).unwrap();
        assert!(arrived == content, "{} of {} bytes", arrived.len(), content.len());
    }
}
