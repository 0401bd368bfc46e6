//! Frames of the control channel: any split of the stream gives the same frames, none over the
//! limit, and no more bytes than were pushed.

#![no_main]

use bankfull_proto::wire::frame::{FrameReader, PREFIX_BYTES};
use libfuzzer_sys::fuzz_target;

const MAX_FRAME_BYTES: usize = 1 << 10;

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, stream)) = bytes.split_first() else { return };
    let whole = frames(stream, stream.len().max(1));
    let cut = frames(stream, usize::from(step) + 1);
    assert_eq!(whole, cut);
    let (frames, is_refused) = whole;
    assert!(frames.iter().all(|frame| frame.len() <= MAX_FRAME_BYTES));
    let consumed: usize = frames.iter().map(|frame| frame.len() + PREFIX_BYTES).sum();
    assert!(consumed <= stream.len());
    if !is_refused {
        let rest = &stream[consumed..];
        let len = rest.first_chunk().map(|prefix| u32::from_be_bytes(*prefix) as usize);
        assert!(len.is_none_or(|len| len <= MAX_FRAME_BYTES && rest.len() < len + PREFIX_BYTES));
    }
});

/// Reads frames from chunks of `step` bytes. Returns them, and whether the stream was refused.
fn frames(stream: &[u8], step: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = FrameReader::new(MAX_FRAME_BYTES);
    let mut frames = Vec::new();
    for chunk in stream.chunks(step) {
        reader.push(chunk);
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
