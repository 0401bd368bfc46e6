//! Content of files to be hashed. Holes are not read, and the end of the session is noticed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Shortest hole that is not read. (chosen: a chunk; the two calls that find a shorter one cost as
/// much as its zeros)
const MIN_HOLE_BYTES: u64 = 256 << 10;

/// Passes a range to `consume`, chunk by chunk through `buffer`; the zeros of holes are not read.
///
/// Returns the offset that was reached: below the end of the range if the file is shorter. `None`
/// once `is_stopped`, which is called before each chunk.
///
/// # Errors
/// Errors of reading.
pub(crate) fn read_chunks(
    file: &File,
    range: Range<u64>,
    buffer: &mut [u8],
    is_stopped: impl Fn() -> bool,
    mut consume: impl FnMut(&[u8]),
) -> io::Result<Option<u64>> {
    let stat = bankfull_sys::stat_file(file)?;
    let end = range.end.min(stat.size);
    let mut at = range.start;
    // Data that was found last: all of a file without holes.
    let mut data = if stat.allocated < stat.size { at..at } else { at..end };
    let mut zeroed = false;
    while at < end {
        if is_stopped() {
            return Ok(None);
        }
        if at >= data.end {
            data = bankfull_sys::data_extent(file, at)?.unwrap_or(end..end);
        }
        let hole = data.start.min(end).saturating_sub(at);
        // Zeros until the data; or, after a short hole, the hole together with the data.
        let is_hole = hole >= MIN_HOLE_BYTES || (zeroed && hole > 0);
        let wanted = if is_hole { hole } else { end - at };
        let chunk = wanted.min(buffer.len() as u64) as usize;
        if is_hole {
            if !std::mem::replace(&mut zeroed, true) {
                buffer.fill(0);
            }
            consume(&buffer[..chunk]);
            at += chunk as u64;
            continue;
        }
        zeroed = false;
        match file.read_at(&mut buffer[..chunk], at) {
            Ok(0) => break,
            Ok(read) => {
                consume(&buffer[..read]);
                at += read as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MIB: u64 = 1 << 20;

    /// A file with this size and data of 7 in these ranges.
    fn sparse(size: u64, data: &[Range<u64>]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for range in data {
            file.write_all_at(&vec![7; (range.end - range.start) as usize], range.start).unwrap();
        }
        file
    }

    fn read(file: &File, range: Range<u64>, buffer: usize) -> (Option<u64>, Vec<u8>) {
        let mut content = Vec::new();
        let consume = |chunk: &[u8]| content.extend_from_slice(chunk);
        let end = read_chunks(file, range, &mut vec![9; buffer], || false, consume).unwrap();
        (end, content)
    }

    #[test]
    fn content_with_holes_is_as_read() {
        let size = 5 * MIB + 77;
        let sets: [&[Range<u64>]; 5] = [
            &[],
            &[0..size, 0..1],
            &[0..5000, MIB..MIB + 4096, MIB + 8192..MIB + 9000],
            &[2 * MIB..2 * MIB + 300_000, 3 * MIB..3 * MIB + 1, size - 1..size],
            &[MIB - 1..MIB + 1, 4 * MIB..4 * MIB + 10],
        ];
        for data in sets {
            let file = sparse(size, data);
            let mut whole = vec![0; size as usize];
            file.read_exact_at(&mut whole, 0).unwrap();
            for range in [0..size, 0..u64::MAX, MIB..3 * MIB, MIB + 3..MIB + 4, size - 5..size] {
                let end = range.end.min(size);
                for buffer in [4096, 100_003, 256 << 10] {
                    let (reached, content) = read(&file, range.clone(), buffer);
                    assert_eq!(reached, Some(end), "{data:?} {range:?}");
                    assert!(content == whole[range.start as usize..end as usize], "{range:?}");
                }
            }
        }
    }

    #[test]
    fn huge_hole_is_not_read_and_left_after_a_stop() {
        let file = sparse(1 << 40, &[]);
        let (chunks, reads_before) = (Cell::new(0), bytes_read());
        let is_stopped = || chunks.get() == 2000;
        let mut buffer = vec![0; 256 << 10];
        let consume = |_: &[u8]| chunks.set(chunks.get() + 1);
        let end = read_chunks(&file, 0..1 << 40, &mut buffer, is_stopped, consume).unwrap();
        assert_eq!((end, chunks.get()), (None, 2000));
        let read = bytes_read() - reads_before;
        assert!(read < 2000 * (256 << 10) / 2, "{read} bytes were read");
    }

    /// Bytes that this thread has read from files.
    fn bytes_read() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        count.map_or(0, |count| count.parse().unwrap())
    }
}
