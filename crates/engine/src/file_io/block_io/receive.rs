//! From a socket to a file.

use super::{ReceiveRange, uninterrupted};
use crate::model::io_method::IoMethod;
use bankfull_sys::Pipe;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;

pub(crate) fn receiver(method: IoMethod, block_bytes: usize) -> io::Result<Box<dyn ReceiveRange>> {
    Ok(match method {
        IoMethod::Stream => Box::new(BufferedReceive(vec![0; 1])),
        IoMethod::Buffered => Box::new(BufferedReceive(vec![0; block_bytes.max(1)])),
        IoMethod::Splice => Box::new(SpliceReceive { pipe: Pipe::new(block_bytes)?, block_bytes }),
        IoMethod::Mmap
        | IoMethod::SendFile
        | IoMethod::ZeroBuffer
        | IoMethod::IoUring
        | IoMethod::ZeroCopy => {
            let text = format!("{method} cannot receive: choose stream, buffered or splice");
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
    })
}

struct BufferedReceive(Vec<u8>);

impl ReceiveRange for BufferedReceive {
    fn receive(
        &mut self,
        mut socket: &TcpStream,
        file: &File,
        range: Range<u64>,
    ) -> io::Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(self.0.len() as u64) as usize;
            let read = uninterrupted(|| socket.read(&mut self.0[..len]))?;
            if read == 0 {
                break;
            }
            file.write_all_at(&self.0[..read], at)?;
            at += read as u64;
        }
        Ok(at - range.start)
    }
}

struct SpliceReceive {
    pipe: Pipe,
    block_bytes: usize,
}

impl SpliceReceive {
    fn splice(&mut self, socket: &TcpStream, file: &File, range: Range<u64>) -> io::Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(self.block_bytes.max(1) as u64) as usize;
            let mut left = uninterrupted(|| self.pipe.splice_from_socket(socket, len))?;
            if left == 0 {
                break;
            }
            while left > 0 {
                match uninterrupted(|| self.pipe.splice_to_file(file, at, left))? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    written => (at, left) = (at + written as u64, left - written),
                }
            }
        }
        Ok(at - range.start)
    }
}

impl ReceiveRange for SpliceReceive {
    fn receive(&mut self, socket: &TcpStream, file: &File, range: Range<u64>) -> io::Result<u64> {
        let result = self.splice(socket, file, range);
        if result.is_err() {
            // The rest in the pipe belongs to no range.
            self.pipe = Pipe::new(self.block_bytes)?;
        }
        result
    }
}
