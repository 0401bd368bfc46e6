//! Stream thread of the sending side: reads blocks and small files, hashes and sends them.

use super::Sender;
use super::files::{SourceError, SourceFile};
use crate::file_io::block_io::CHUNK_BYTES;
use crate::file_io::block_io::read::FileReader;
use crate::model::io_method::IoMethod;
use crate::stats::counters::add;
use crate::stats::thread_meter::ThreadMeter;
use crate::transport::data_stream::DataStream;
use bankfull_control::Stage;
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHasher, FileHash};
use bankfull_proto::limits::MAX_PACK_BYTES;
use bankfull_proto::send::{NextStep, Work};
use bankfull_proto::wire::data::{Header, push_packed};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// State of a stream's thread.
pub(crate) struct Worker<'s, 'a> {
    sender: &'s Sender<'a>,
    number: u32,
    stream: DataStream,
    meter: ThreadMeter,
    reader: FileReader,
    buffer: Vec<u8>,
    pack: Vec<u8>,
    /// File and index of the next block, which is reserved and read ahead.
    prefetched: Option<(u64, u64)>,
}

impl<'s, 'a> Worker<'s, 'a> {
    pub(crate) fn new(sender: &'s Sender<'a>, number: u32, stream: DataStream) -> Self {
        let overrides = &sender.session.overrides;
        Self {
            sender,
            number,
            stream,
            meter: ThreadMeter::start(),
            reader: FileReader::new(overrides.io_method, overrides.direct),
            buffer: vec![0; CHUNK_BYTES],
            pack: Vec::new(),
            prefetched: None,
        }
    }

    /// Returns the next work; `None` when all files are completed or the session has stopped.
    fn next_work(&mut self) -> io::Result<Option<Work>> {
        if let Some((file, index)) = self.prefetched.take()
            && !self.sender.session.is_stopped()
        {
            return Ok(Some(Work::Block { file, index }));
        }
        // Data read ahead may be of an earlier version of the file.
        self.reader.discard();
        let stream = &mut self.stream;
        self.sender.queue.next_work(self.number, || stream.flush())
    }

    /// Runs until all files are completed; errors are those of the connection.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        loop {
            let work = self.next_work()?;
            if matches!(work, Some(Work::Block { .. } | Work::Pack(_))) {
                self.stream.wait_for_credit()?;
            }
            self.meter.mark(Stage::Idle);
            match work {
                None if self.sender.session.is_stopped() => return Ok(()),
                None => {
                    self.stream.begin_frame(&Header::End);
                    return self.stream.flush();
                }
                Some(Work::Block { file, index }) => self.send_block(file, index)?,
                Some(Work::Pack(files)) => self.send_pack(&files)?,
                Some(Work::Compare { file, hash }) => self.compare(file, hash),
            }
            self.report_stats();
        }
    }

    /// Adds the thread's measurements to the session's.
    fn report_stats(&mut self) {
        add(&self.sender.stats.counts.wire_bytes, self.stream.take_wire_bytes());
        let mut times = self.meter.take();
        let crypto = self.stream.take_crypto_time().min(times.network);
        times.network -= crypto;
        times.compute += crypto;
        self.sender.stats.add_times(&times, self.meter.take_cpu_time());
    }

    /// Adds the final measurements.
    pub(crate) fn finish(&mut self) {
        self.report_stats();
        add(&self.sender.stats.counts.retransmits, self.stream.socket().retransmits());
    }

    fn send_block(&mut self, id: u64, index: u64) -> io::Result<()> {
        let Some(file) = self.sender.files.find(id) else { return Ok(()) };
        let opened = match self.sender.files.open(&file) {
            Ok(opened) => opened,
            Err(error) => {
                self.sender.on_source_error(id, error);
                return Ok(());
            }
        };
        self.meter.mark(Stage::Read);
        let layout = Layout::new(file.entry.size, file.entry.block_bytes);
        let Some((layout, range)) = layout.ok().and_then(|l| Some((l, l.range(index)?))) else {
            return Ok(());
        };
        self.prefetched =
            self.sender.queue.prefetch_block(self.number, id).map(|index| (id, index));
        let next = self.prefetched.and_then(|(_, index)| layout.range(index));
        let len = (range.end - range.start) as u32;
        let header = self.stream.begin_frame(&Header::Block { file: id, offset: range.start, len });
        let mut hasher = BlockHasher::new(&layout, range.start);
        let sent = self.send_range(&file, &opened, range, next, &mut hasher)?;
        let mut error = sent.err();
        // A retransmitted block must match the version that an early digest was sent for.
        if error.is_none() && self.sender.queue.with_ledger(|ledger| ledger.is_resend(id, index)) {
            error = self.sender.files.check(&file, &opened).err();
        }
        if let Some(error) = error {
            self.stream.end_frame(&header, &[0; 32]);
            self.sender.on_source_error(id, error);
            return Ok(());
        }
        let hash = hasher.finish();
        let next = self.sender.queue.with_ledger(|ledger| ledger.on_block_sent(id, index, hash));
        self.stream.end_frame(&header, &hash.0);
        self.meter.mark(Stage::Compute);
        if next == NextStep::SendEarlyDigest {
            self.sender.send_early_digest(&file, &opened);
        }
        Ok(())
    }

    /// Sends and hashes a range of a file.
    ///
    /// The outer error is the connection's, the inner one the source's. After a source error the
    /// frame is padded; its tag cannot match, and the receiver learns that the file has failed.
    fn send_range(
        &mut self,
        file: &SourceFile,
        opened: &File,
        range: Range<u64>,
        next: Option<Range<u64>>,
        hasher: &mut BlockHasher,
    ) -> io::Result<Result<(), SourceError>> {
        let method = self.sender.session.overrides.io_method;
        let may_stay = method.unwrap_or(IoMethod::DEFAULT_SENDER).stays_in_kernel();
        // Either the whole range is sent once it is hashed, or each chunk by itself.
        let (mut at, mut hashed) = (range.start, range.start);
        let mut error = None;
        let chunks = self.reader.start(opened, range.clone(), next);
        let is_refused = || file.sendfile_refused.load(Ordering::Relaxed);
        let may_stay = may_stay && !chunks.is_direct() && !is_refused();
        let is_whole =
            may_stay && method == Some(IoMethod::SendFile) && self.stream.can_send_file();
        while at < range.end && error.is_none() {
            let chunk = match chunks.next(opened) {
                Ok(chunk) => chunk,
                Err(e) => {
                    error = Some(self.sender.files.failed(file, &e));
                    break;
                }
            };
            self.meter.mark(Stage::Read);
            hasher.update(chunk);
            hashed += chunk.len() as u64;
            self.meter.mark(Stage::Compute);
            if is_whole && hashed < range.end && !chunk.is_empty() {
                continue;
            }
            let is_in_kernel = may_stay && self.stream.can_send_file() && !is_refused();
            if is_whole || is_in_kernel {
                let len = (hashed - at) as usize;
                let outcome = self.stream.send_file(opened, at, len, is_whole)?;
                at += outcome.bytes as u64;
                if outcome.file_error.is_some() {
                    file.sendfile_refused.store(true, Ordering::Relaxed);
                    let left = at..hashed;
                    let (sent, failed) =
                        send_buffered(&mut self.stream, &mut self.buffer, opened, left)?;
                    at += sent;
                    error = failed.map(|e| self.sender.files.failed(file, &e));
                }
            } else {
                self.stream.send(chunk)?;
                at += chunk.len() as u64;
            }
            if chunk.is_empty() || at < hashed {
                error.get_or_insert(SourceError::Changed);
            }
            self.meter.mark(Stage::Network);
        }
        if !chunks.finish() {
            error.get_or_insert(SourceError::Changed);
        }
        self.fill(range.end - at)?;
        Ok(error.map_or(Ok(()), Err))
    }

    /// Pads the frame with zeros.
    fn fill(&mut self, mut left: u64) -> io::Result<()> {
        let zeros = &mut self.buffer[..];
        if left > 0 {
            zeros.fill(0);
        }
        while left > 0 {
            let len = left.min(zeros.len() as u64) as usize;
            self.stream.send(&zeros[..len])?;
            left -= len as u64;
        }
        Ok(())
    }

    fn send_pack(&mut self, ids: &[u64]) -> io::Result<()> {
        self.pack.clear();
        let mut count = 0;
        for &id in ids {
            if self.sender.session.is_stopped() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let Some(file) = self.sender.files.find(id) else { continue };
            match self.read_small(&file) {
                Ok(len) => {
                    let content = &self.buffer[..len];
                    push_packed(&mut self.pack, id, &FileHash::of(content).0, content);
                    count += 1;
                }
                Err(error) => self.sender.on_source_error(id, error),
            }
            debug_assert!(self.pack.len() <= MAX_PACK_BYTES);
        }
        self.meter.mark(Stage::Read);
        if count == 0 {
            return Ok(());
        }
        let header = self.stream.begin_frame(&Header::Pack { count, len: self.pack.len() as u32 });
        let hash = blake3::hash(&self.pack);
        self.meter.mark(Stage::Compute);
        self.stream.send(&self.pack)?;
        self.stream.end_frame(&header, hash.as_bytes());
        self.meter.mark(Stage::Network);
        Ok(())
    }

    /// Reads a small file into the buffer; returns its length. Fails if the file changed meanwhile.
    fn read_small(&mut self, file: &SourceFile) -> Result<usize, SourceError> {
        let len = file.entry.size as usize;
        self.sender.files.read_whole(file, &mut self.buffer[..len])?;
        Ok(len)
    }

    fn compare(&mut self, id: u64, remote_hash: FileHash) {
        self.sender.compare(id, remote_hash, &mut self.buffer);
        self.meter.mark(Stage::Read);
    }
}

/// Sends a range of a file through a buffer. Stops at the end of the file or a read error.
///
/// Returns the bytes sent and that error; an outer error is the connection's.
fn send_buffered(
    stream: &mut DataStream,
    buffer: &mut [u8],
    file: &File,
    range: Range<u64>,
) -> io::Result<(u64, Option<io::Error>)> {
    let mut at = range.start;
    let mut failed = None;
    while at < range.end && failed.is_none() {
        let len = (range.end - at).min(buffer.len() as u64) as usize;
        match file.read_at(&mut buffer[..len], at) {
            Ok(0) => break,
            Ok(n) => {
                stream.send(&buffer[..n])?;
                at += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => failed = Some(e),
        }
    }
    Ok((at - range.start, failed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::data_stream::tests::pair;
    use std::io::Write;

    #[test]
    fn buffered_send_stops_at_end_of_file_or_read_error() {
        let (mut near, mut far) = pair();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buffer = [0; 4];
        let (sent, failed) = send_buffered(&mut near, &mut buffer, &file, 2..20).unwrap();
        assert!(sent == 8 && failed.is_none());
        let mut n = [0; 8];
        far.receive(&mut n).unwrap();
        assert_eq!(&n, b"23456789");
        let dir = File::open("/").unwrap();
        let (sent, failed) = send_buffered(&mut near, &mut buffer, &dir, 0..20).unwrap();
        assert_eq!((sent, failed.unwrap().kind()), (0, io::ErrorKind::IsADirectory));
        drop(far);
        assert!(send_buffered(&mut near, &mut buffer, &file, 0..10).is_err(), "the connection's");
    }
}
