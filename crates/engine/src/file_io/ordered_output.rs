//! Content of one file, written in order to an open file such as standard output.
//!
//! Blocks are verified in the part file, in any order. The threads that receive them write out what
//! has become contiguous, and free its space there. The others wait meanwhile: a slow reader of the
//! output slows the sender. A session that resumes the file continues behind what is written.

use crate::base::error::{Error, ErrorKind};
use crate::base::sync::lock;
use bankfull_proto::blocks::Layout;
use bankfull_proto::wire::control::{Entry, Source};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Interval at which a wait for the reader notices the end of the session. (chosen: ends seem
/// immediate)
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes read from the part file at a time. (chosen: as a stream's thread receives)
const CHUNK_BYTES: usize = 256 << 10;

/// Open file that takes the content of one file, in order.
#[derive(Debug)]
pub(crate) struct OrderedOutput {
    output: File,
    /// Bytes that a write takes at once.
    max_write: usize,
    /// Directory for the one of the part file.
    pub(crate) spool: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Version of the source whose content is written.
    version: Option<Version>,
    /// Bytes that the output has taken.
    written: u64,
    is_complete: bool,
    buffer: Vec<u8>,
}

/// Size, modification time and version of a source.
type Version = (u64, i64, u32, u64);

fn version_of(entry: &Entry) -> Version {
    (entry.size, entry.mtime_secs, entry.mtime_nanos, entry.version)
}

/// Verified blocks of a file that is being received.
pub(crate) struct Verified<'v> {
    pub(crate) entry: &'v Entry,
    pub(crate) layout: Layout,
    pub(crate) part: &'v File,
    /// True for a block that is verified.
    pub(crate) has: &'v dyn Fn(u64) -> bool,
}

impl OrderedOutput {
    /// Returns an output without content.
    pub(crate) fn new(output: File, spool: PathBuf) -> Self {
        let is_file = output.metadata().is_ok_and(|found| found.is_file());
        // A longer write to a pipe might block in the kernel, where it cannot be stopped.
        let max_write = if is_file { CHUNK_BYTES } else { bankfull_sys::PIPE_BUF };
        Self { output, max_write, spool, state: Mutex::default() }
    }

    /// True if the whole file is written.
    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.state).is_complete
    }

    /// True if an entry is written up to `end`, where its space is freed.
    pub(crate) fn has_written(&self, entry: &Entry, end: u64) -> bool {
        let state = lock(&self.state);
        state.version == Some(version_of(entry)) && end <= state.written
    }

    /// Writes the blocks that follow what is written; false once `is_stopped`.
    ///
    /// # Errors
    /// A source that has changed since its first bytes were written; a failure to read or write.
    pub(crate) fn advance(
        &self,
        verified: &Verified<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let mut state = lock(&self.state);
        state.begin(verified.entry)?;
        let layout = &verified.layout;
        loop {
            let index = state.written / u64::from(layout.block_bytes());
            let range = layout.range(index).filter(|range| state.written < range.end);
            let Some(range) = range.filter(|_| (verified.has)(index)) else { break };
            let written = self.write_part(verified.part, range.end, &mut state, is_stopped);
            if !written.map_err(|e| cannot_write(&e))? {
                return Ok(false);
            }
            // Without it, the part file only takes more space.
            let _ = bankfull_sys::punch_hole(verified.part, range.start, range.end - range.start);
        }
        state.is_complete = state.written == verified.entry.size;
        Ok(true)
    }

    /// Writes a file that arrived as a whole; false once `is_stopped`.
    ///
    /// # Errors
    /// A source that has changed since its first bytes were written, or a failure to write.
    pub(crate) fn write_whole(
        &self,
        entry: &Entry,
        content: &[u8],
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let mut state = lock(&self.state);
        state.begin(entry)?;
        let left = usize::try_from(state.written).ok().and_then(|at| content.get(at..));
        let written = self.write(left.unwrap_or_default(), &mut state.written, is_stopped);
        state.is_complete = written.map_err(|e| cannot_write(&e))?;
        Ok(state.is_complete)
    }

    /// Writes the part file from what is written up to `end`.
    fn write_part(
        &self,
        part: &File,
        end: u64,
        state: &mut State,
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        state.buffer.resize(CHUNK_BYTES, 0);
        while state.written < end {
            let len = (end - state.written).min(CHUNK_BYTES as u64) as usize;
            let chunk = &mut state.buffer[..len];
            part.read_exact_at(chunk, state.written)?;
            if !self.write(chunk, &mut state.written, is_stopped)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes bytes and counts them in `written`; false once `is_stopped`.
    fn write(
        &self,
        mut bytes: &[u8],
        written: &mut u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        while !bytes.is_empty() {
            if is_stopped() {
                return Ok(false);
            }
            if !bankfull_sys::wait_writable(&self.output, STOP_CHECK_INTERVAL)? {
                continue;
            }
            match (&self.output).write(&bytes[..bytes.len().min(self.max_write)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    bytes = &bytes[taken..];
                    *written += taken as u64;
                }
                Err(e) if is_passing(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

impl State {
    /// Checks that an entry is the one whose content is being written.
    fn begin(&mut self, entry: &Entry) -> Result<(), Error> {
        let version = version_of(entry);
        let has_begun = self.written > 0 || self.is_complete;
        if has_begun && self.version != Some(version) {
            return Err(source_changed());
        }
        self.version = Some(version);
        Ok(())
    }
}

fn source_changed() -> Error {
    let text = "the source changed after a part of it was written to the output: discard that, and \
                copy it again once no program writes to it";
    Error::new(ErrorKind::Source, text)
}

/// True for a write that is tried again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn cannot_write(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            let text = "cannot write to the output: the program that reads it has ended";
            Error::new(ErrorKind::Local, text)
        }
        _ => Error::local("cannot write to the output", error),
    }
}

/// Refuses sources that are no single file.
pub(crate) fn check_is_file(sources: &[Source]) -> Result<(), Error> {
    if sources.len() > 1 {
        let text = format!(
            "{} files match, and the destination - takes one: name a file, or copy to a directory",
            sources.len()
        );
        return Err(Error::new(ErrorKind::Usage, text));
    }
    if sources.iter().any(|source| source.is_dir || source.contents) {
        let text = "the source is a directory, and the destination - takes one file: name a file, \
                    or copy to a directory";
        return Err(Error::new(ErrorKind::Usage, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::control::EntryKind;
    use std::cell::{Cell, RefCell};
    use std::io::Read;

    const BLOCK: u64 = 1 << 20;

    fn entry(version: u64) -> Entry {
        Entry {
            id: 1,
            parent: 0,
            name: b"f".to_vec(),
            kind: EntryKind::File,
            mode: 0o644,
            mtime_secs: 1,
            mtime_nanos: 2,
            size: 2 * BLOCK + 5,
            version,
            uid: 0,
            gid: 0,
            block_bytes: BLOCK as u32,
            sparse: false,
            target: Vec::new(),
            extra: None,
        }
    }

    fn content() -> Vec<u8> {
        (0..2 * BLOCK + 5).map(|at| (at / 4096 % 251) as u8 + 1).collect()
    }

    struct Fixture {
        output: OrderedOutput,
        written: File,
        part: File,
        verified: RefCell<Vec<u64>>,
    }

    impl Fixture {
        fn new() -> Self {
            let (written, part) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
            part.write_all_at(&content(), 0).unwrap();
            let output = OrderedOutput::new(written.try_clone().unwrap(), PathBuf::new());
            Self { output, written, part, verified: RefCell::default() }
        }

        fn advance(&self, version: u64) -> Result<bool, Error> {
            let (entry, has) = (entry(version), |index| self.verified.borrow().contains(&index));
            let layout = Layout::new(entry.size, entry.block_bytes).unwrap();
            let verified = Verified { entry: &entry, layout, part: &self.part, has: &has };
            self.output.advance(&verified, &|| false)
        }

        fn len(&self) -> u64 {
            self.written.metadata().unwrap().len()
        }
    }

    #[test]
    fn blocks_are_written_in_order_and_freed() {
        let fixture = Fixture::new();
        for (block, len) in [(2, 0), (0, BLOCK), (1, 2 * BLOCK + 5)] {
            fixture.verified.borrow_mut().push(block);
            assert!(fixture.advance(1).unwrap());
            assert_eq!((fixture.len(), fixture.output.is_complete()), (len, block == 1));
        }
        let mut written = vec![0; content().len()];
        fixture.written.read_exact_at(&mut written, 0).unwrap();
        assert!(written == content());
        assert!(bankfull_sys::stat_file(&fixture.part).unwrap().allocated < BLOCK);
        assert!(fixture.advance(1).unwrap() && fixture.output.is_complete());
        assert_eq!(fixture.len(), 2 * BLOCK + 5);
    }

    #[test]
    fn source_may_change_before_its_first_block_only() {
        let fixture = Fixture::new();
        assert!(fixture.advance(1).unwrap() && fixture.advance(2).unwrap());
        fixture.verified.borrow_mut().push(0);
        assert!(fixture.advance(2).unwrap());
        assert!(fixture.output.has_written(&entry(2), BLOCK));
        assert!(!fixture.output.has_written(&entry(2), BLOCK + 1));
        assert!(!fixture.output.has_written(&entry(1), BLOCK));
        let error = fixture.advance(3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Source);
        assert!(error.to_string().contains("discard"), "{error}");
        assert_eq!(fixture.len(), BLOCK);
    }

    /// Creates an output to a pipe.
    fn to_pipe() -> (io::PipeReader, OrderedOutput) {
        let (reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        (reader, OrderedOutput::new(file, PathBuf::new()))
    }

    /// Returns a function that is true from the `count`-th call on.
    fn stopped_after(count: u32) -> impl Fn() -> bool {
        let calls = Cell::new(0);
        move || calls.replace(calls.get() + 1) >= count
    }

    #[test]
    fn stopped_output_continues_where_it_stopped() {
        let (mut reader, output) = to_pipe();
        let content = content();
        let reading = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        assert!(!output.write_whole(&entry(1), &content, &stopped_after(10)).unwrap());
        assert!(!output.is_complete());
        assert!(output.write_whole(&entry(2), &content, &|| false).is_err());
        let part = tempfile::tempfile().unwrap();
        part.write_all_at(&content, 0).unwrap();
        let (entry, has) = (entry(1), |_| true);
        let layout = Layout::new(entry.size, entry.block_bytes).unwrap();
        let verified = Verified { entry: &entry, layout, part: &part, has: &has };
        assert!(!output.advance(&verified, &stopped_after(300)).unwrap());
        assert!(output.advance(&verified, &|| false).unwrap() && output.is_complete());
        drop(output);
        assert!(reading.join().unwrap().unwrap() == content);
    }

    #[test]
    fn reader_that_waits_or_ends_stops_the_output() {
        let (reader, output) = to_pipe();
        // The pipe takes 64 KiB.
        assert!(!output.write_whole(&entry(1), &content(), &stopped_after(20)).unwrap());
        drop(reader);
        let error = output.write_whole(&entry(1), &content(), &|| false).unwrap_err();
        assert!(error.to_string().ends_with("the program that reads it has ended"), "{error}");
    }
}
