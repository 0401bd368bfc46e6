//! Pipe for `splice`: moves bytes between a file and a socket within the kernel.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

/// Pipe of page references, which are moved rather than copied if possible.
#[derive(Debug)]
pub struct Pipe {
    into: OwnedFd,
    out: OwnedFd,
    size: usize,
}

impl Pipe {
    /// Creates a pipe of `bytes`. Uses the default size if the kernel does not allow it.
    ///
    /// # Errors
    ///
    /// Any error of `pipe2`, such as too many open files.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // Above `pipe-max-size` the size does not change. (pipe(7))
        let size = fcntl_setpipe_size(&into, bytes).or_else(|_| fcntl_getpipe_size(&into))?;
        Ok(Self { into, out, size })
    }

    /// Returns the capacity in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns how many splices of `len` bytes or less fit into the empty pipe. Valid at any
    /// offset.
    #[must_use]
    pub fn max_splices(&self, len: usize) -> usize {
        let page = rustix::param::page_size();
        // Partial pages count as whole ones, at the start and at the end.
        self.size / page / (len / page + 2)
    }

    /// Moves up to `len` bytes of a file at `offset` into the pipe; returns the number, zero at the
    /// end.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the filesystem cannot, and any error of reading the file.
    pub fn splice_from_file(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        let mut from = offset;
        let len = len.min(self.size);
        Ok(splice(file, Some(&mut from), &self.into, None, len, SpliceFlags::MOVE)?)
    }

    /// Moves up to `len` bytes from a socket into the pipe; waits for the first. Zero at the end.
    ///
    /// # Errors
    ///
    /// Any error of reading from the socket.
    pub fn splice_from_socket(&self, socket: impl AsFd, len: usize) -> io::Result<usize> {
        let len = len.min(self.size);
        Ok(splice(socket, None, &self.into, None, len, SpliceFlags::MOVE)?)
    }

    /// Moves up to `len` bytes from the pipe to a socket; returns the number.
    ///
    /// With `more`, a partial segment waits for further data.
    ///
    /// # Errors
    ///
    /// Any error of writing to the socket.
    pub fn splice_to_socket(&self, socket: impl AsFd, len: usize, more: bool) -> io::Result<usize> {
        let flags = if more { SpliceFlags::MOVE | SpliceFlags::MORE } else { SpliceFlags::MOVE };
        Ok(splice(&self.out, None, socket, None, len, flags)?)
    }

    /// Moves up to `len` bytes from the pipe to a file at `offset`; returns the number.
    ///
    /// # Errors
    ///
    /// Any error of writing to the file.
    pub fn splice_to_file(&self, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
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
    fn spliced_bytes_arrive_unchanged() {
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
                    let mut left = pipe.splice_from_file(&source, at, 100_000).unwrap();
                    if left == 0 {
                        return;
                    }
                    at += left as u64;
                    while left > 0 {
                        left -= pipe.splice_to_socket(&near, left, false).unwrap();
                    }
                }
            });
            let pipe = Pipe::new(1 << 20).unwrap();
            let mut at = 0;
            loop {
                let mut left = pipe.splice_from_socket(&far, 1 << 20).unwrap();
                if left == 0 {
                    break;
                }
                while left > 0 {
                    let written = pipe.splice_to_file(&target, at, left).unwrap();
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
