//! Stub of `uring` for builds without the feature `io-uring`.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// Ring of concurrent reads; uninhabited in this build.
#[derive(Debug)]
pub enum ReadRing {}

impl ReadRing {
    /// Returns `None`: `io_uring` is not built in.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn new(_count: usize, _bytes: usize) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Returns false.
    #[must_use]
    pub fn is_available() -> bool {
        false
    }

    /// Never called.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn begin(&mut self, _: usize, _: &Arc<File>, _: u64, _: usize) -> io::Result<()> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn bytes(&mut self, _index: usize) -> io::Result<&[u8]> {
        match *self {}
    }
}
