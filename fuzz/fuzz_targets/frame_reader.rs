//! The control stream: however it is cut, the same frames come out, none over the limit, and no
//! more is held than was pushed.

#![no_main]

use bankfull_proto::wire::frame::{FrameReader, PREFIX_BYTES};
use libfuzzer_sys::fuzz_target;

const FRAME_BYTES_MAX: usize = 1 << 10;

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, stream)) = bytes.split_first() else { return };
    let whole = frames(stream, stream.len().max(1));
    let cut = frames(stream, usize::from(step) + 1);
    assert_eq!(whole, cut);
    let (frames, refused) = whole;
    assert!(frames.iter().all(|frame| frame.len() <= FRAME_BYTES_MAX));
    let taken: usize = frames.iter().map(|frame| frame.len() + PREFIX_BYTES).sum();
    assert!(taken <= stream.len());
    if !refused {
        let rest = &stream[taken..];
        let len = rest.first_chunk().map(|prefix| u32::from_be_bytes(*prefix) as usize);
        assert!(len.is_none_or(|len| len <= FRAME_BYTES_MAX && rest.len() < len + PREFIX_BYTES));
    }
});

/// The frames of a stream that comes in pieces of `step` bytes, and whether it was refused.
fn frames(stream: &[u8], step: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let mut frames = Vec::new();
    for piece in stream.chunks(step) {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}
