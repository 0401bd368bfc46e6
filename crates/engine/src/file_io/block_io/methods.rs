//! The implementation behind each name of an I/O method.

use super::{CHUNK_BYTES, ReceiveRange, SendRange, receive, send};
use crate::model::io_method::IoMethod;
use std::io;

impl IoMethod {
    /// Default method to send unencrypted data. (measured: docs/block-io.md)
    pub const DEFAULT_SENDER: Self = Self::ZeroBuffer;

    /// Bytes per call to a socket whose send buffer has `send_buffer` bytes: half of it, so that
    /// data is left to send during the next call, clamped to 64 to 256 KiB. (measured:
    /// docs/block-io.md, "the call of a small buffer")
    #[must_use]
    pub fn sender_call_bytes(send_buffer: usize) -> usize {
        (send_buffer / 2).clamp(send::MIN_CALL_BYTES, CHUNK_BYTES)
    }

    /// Default method and block size to receive. (measured: docs/block-io.md, "to a file in
    /// memory")
    pub const DEFAULT_RECEIVER: (Self, usize) = (Self::Buffered, CHUNK_BYTES);

    /// True if this build and this kernel support it.
    #[must_use]
    pub fn is_available(self) -> bool {
        self != Self::IoUring || bankfull_sys::ReadRing::is_available()
    }

    /// Creates a sender with blocks of `block_bytes`.
    ///
    /// # Errors
    /// Unavailable resources of the method: a pipe, `io_uring`.
    pub fn sender(self, block_bytes: usize) -> io::Result<Box<dyn SendRange>> {
        send::sender(self, block_bytes)
    }

    /// Creates a receiver with blocks of `block_bytes`. [`IoMethod::Stream`],
    /// [`IoMethod::Buffered`] and [`IoMethod::Splice`] can receive.
    ///
    /// # Errors
    /// `Unsupported` for the other methods, and when a resource of the method is unavailable.
    pub fn receiver(self, block_bytes: usize) -> io::Result<Box<dyn ReceiveRange>> {
        receive::receiver(self, block_bytes)
    }
}
