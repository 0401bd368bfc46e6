//! Frames of the control stream: a 4-byte big-endian length, then that many bytes of CBOR.

use super::WireError;

/// Length of the prefix in bytes.
pub const PREFIX_BYTES: usize = 4;

/// Collects bytes as they arrive and hands out whole frames. Sans-IO: the caller reads the socket.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    taken: usize,
    frame_bytes_max: usize,
}

impl FrameReader {
    /// A reader that refuses frames longer than `frame_bytes_max`.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, frame_bytes_max }
    }

    /// Changes the limit: a peer gets more room once it is authenticated.
    pub fn set_limit(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Takes bytes off the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, without its prefix; `None` until more bytes are pushed.
    ///
    /// # Errors
    /// [`WireError::FrameTooLong`] as soon as the prefix says so.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, WireError> {
        let rest = &self.buffer[self.taken..];
        let Some((prefix, body)) = rest.split_at_checked(PREFIX_BYTES) else { return Ok(None) };
        let len = u32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
        if len > self.frame_bytes_max {
            return Err(WireError::FrameTooLong { len, max: self.frame_bytes_max });
        }
        if body.len() < len {
            return Ok(None);
        }
        let start = self.taken + PREFIX_BYTES;
        self.taken = start + len;
        Ok(Some(&self.buffer[start..start + len]))
    }

    /// Whether the stream could end here without cutting a frame.
    #[must_use]
    pub fn is_at_border(&self) -> bool {
        self.taken == self.buffer.len()
    }
}

/// The prefix of a frame with a body of `len` bytes.
///
/// # Errors
/// [`WireError::FrameTooLong`] for a body over the protocol's limit.
pub fn prefix(len: usize) -> Result<[u8; PREFIX_BYTES], WireError> {
    let max = crate::limits::CONTROL_FRAME_BYTES_MAX;
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
        fn frames_come_out_as_they_went_in_however_the_stream_is_cut(
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
            for piece in stream.chunks(cut) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    got.push(frame.to_vec());
                }
            }
            prop_assert_eq!(got, frames);
            prop_assert!(reader.is_at_border());
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_before_its_body_comes() {
        let mut reader = FrameReader::new(10);
        reader.push(&11u32.to_be_bytes());
        assert_eq!(reader.next_frame(), Err(WireError::FrameTooLong { len: 11, max: 10 }));
    }

    #[test]
    fn a_cut_frame_is_not_at_a_border() {
        let mut reader = FrameReader::new(10);
        reader.push(&[0, 0, 0, 2, 1]);
        assert_eq!(reader.next_frame(), Ok(None));
        assert!(!reader.is_at_border());
    }
}
