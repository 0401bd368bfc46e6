//! Frames of the control channel: a 4-byte big-endian length, then a CBOR body of that length.

use crate::error::WireError;

/// Size of the length prefix in bytes.
pub const PREFIX_BYTES: usize = 4;

/// Splits received bytes into frames. The caller reads the socket.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that were returned as frames.
    consumed: usize,
    max_frame_bytes: usize,
}

impl FrameReader {
    /// Creates a reader that refuses frames longer than `max_frame_bytes`.
    #[must_use]
    pub fn new(max_frame_bytes: usize) -> Self {
        Self { buffer: Vec::new(), consumed: 0, max_frame_bytes }
    }

    /// Sets the frame limit, which rises after authentication.
    pub fn set_limit(&mut self, max_frame_bytes: usize) {
        self.max_frame_bytes = max_frame_bytes;
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the body of the next complete frame, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`WireError::FrameTooLong`], as soon as the prefix is read.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, WireError> {
        let rest = &self.buffer[self.consumed..];
        let Some((prefix, body)) = rest.split_at_checked(PREFIX_BYTES) else { return Ok(None) };
        let len = u32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
        if len > self.max_frame_bytes {
            return Err(WireError::FrameTooLong { len, max: self.max_frame_bytes });
        }
        if body.len() < len {
            return Ok(None);
        }
        let start = self.consumed + PREFIX_BYTES;
        self.consumed = start + len;
        Ok(Some(&self.buffer[start..start + len]))
    }

    /// True if the received bytes end at a frame boundary.
    #[must_use]
    pub fn is_at_frame_boundary(&self) -> bool {
        self.consumed == self.buffer.len()
    }
}

/// Returns the length prefix of a body of `len` bytes.
///
/// # Errors
/// [`WireError::FrameTooLong`] for a body over [`crate::limits::MAX_CONTROL_FRAME_BYTES`].
pub fn prefix(len: usize) -> Result<[u8; PREFIX_BYTES], WireError> {
    let max = crate::limits::MAX_CONTROL_FRAME_BYTES;
    if len > max {
        Err(WireError::FrameTooLong { len, max })
    } else {
        Ok((len as u32).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frame_reader_any_split_returns_the_same_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            cut in 1usize..30,
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend_from_slice(&prefix(frame.len()).unwrap());
                stream.extend_from_slice(frame);
            }
            let mut reader = FrameReader::new(40);
            let mut got = Vec::new();
            for chunk in stream.chunks(cut) {
                reader.push(chunk);
                while let Some(frame) = reader.next_frame().unwrap() {
                    got.push(frame.to_vec());
                }
            }
            prop_assert_eq!(got, frames);
            prop_assert!(reader.is_at_frame_boundary());
        }
    }

    #[test]
    fn frame_reader_long_frame_is_refused_by_its_prefix() {
        let mut reader = FrameReader::new(10);
        reader.push(&11u32.to_be_bytes());
        assert_eq!(reader.next_frame(), Err(WireError::FrameTooLong { len: 11, max: 10 }));
    }

    #[test]
    fn frame_reader_partial_frame_is_not_at_a_boundary() {
        let mut reader = FrameReader::new(10);
        reader.push(&[0, 0, 0, 2, 1]);
        assert_eq!(reader.next_frame(), Ok(None));
        assert!(!reader.is_at_frame_boundary());
    }
}
