//! Interface of readers of file ranges, and the reader through a buffer.

use super::uninterrupted;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Reads ranges of files into memory, one after the other. The chunks of a range arrive in order.
pub(crate) trait ReadRange: Send {
    /// Starts a range, which will be read completely.
    ///
    /// # Errors
    /// Files that this method cannot read; another one may.
    fn start(&mut self, file: &File, range: Range<u64>) -> io::Result<()>;

    /// Returns the next chunk; empty at the end of the range or of the file.
    ///
    /// # Errors
    /// Errors of reading.
    fn next(&mut self, file: &File) -> io::Result<&[u8]>;

    /// True if the range bypasses the page cache.
    fn is_direct(&self) -> bool {
        false
    }

    /// Releases the range. False if the file was truncated meanwhile, and zeros were returned for
    /// its missing part.
    fn finish(&mut self) -> bool {
        true
    }
}

/// Reads through a buffer (`pread`).
pub(crate) struct Buffered {
    buffer: Vec<u8>,
    left: Range<u64>,
}

impl Buffered {
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        Self { buffer: vec![0; chunk_bytes.max(1)], left: 0..0 }
    }
}

impl ReadRange for Buffered {
    fn start(&mut self, _: &File, range: Range<u64>) -> io::Result<()> {
        self.left = range;
        Ok(())
    }

    fn next(&mut self, file: &File) -> io::Result<&[u8]> {
        let wanted = self.left.end.saturating_sub(self.left.start);
        let wanted = wanted.min(self.buffer.len() as u64) as usize;
        let mut have = 0;
        while have < wanted {
            let at = self.left.start + have as u64;
            match uninterrupted(|| file.read_at(&mut self.buffer[have..wanted], at))? {
                0 => break,
                read => have += read,
            }
        }
        self.left.start += have as u64;
        Ok(&self.buffer[..have])
    }
}
