//! In the place of `uring` where this is built without the feature `io-uring`: there are none.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// Reads that are on their way while others are made: there cannot be any.
#[derive(Debug)]
pub enum Reads {}

impl Reads {
    /// `None`: they are not built in.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn new(_count: usize, _bytes: usize) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Not at all.
    #[must_use]
    pub fn are_possible() -> bool {
        false
    }

    /// There is nothing to begin with.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn begin(&mut self, _: usize, _: &Arc<File>, _: u64, _: usize) -> io::Result<()> {
        match *self {}
    }

    /// There is nothing to wait for.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn bytes(&mut self, _index: usize) -> io::Result<&[u8]> {
        match *self {}
    }
}
