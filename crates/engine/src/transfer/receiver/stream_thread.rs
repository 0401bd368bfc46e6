//! Stream thread of the receiving side: reads frames, verifies, writes and acknowledges them.

use super::incoming::IncomingFile;
use super::part_file::PartFile;
use super::store::FileStore;
use crate::stats::counters::add;
use crate::stats::thread_meter::ThreadMeter;
use crate::transport::frame_reader::{DataFrameReader, FrameEvent};
use bankfull_control::Stage;
use bankfull_proto::hash::{BlockHasher, FileHash};
use bankfull_proto::journal::Record;
use bankfull_proto::receive::Claim;
use bankfull_proto::wire::control::{Failure, Message, Nack};
use bankfull_proto::wire::data::{self, HEADER_BYTES, Header, PackedFile};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// Granularity at which zeros of a sparse file are skipped: a page. (Linux file systems allocate at
/// least 4 KiB)
const ZERO_PAGE_BYTES: usize = 4096;

/// Time after the end of a session in which received data is still written. (chosen: enough for
/// what is in memory, unless the disk is stalled)
const STORE_TIME_AFTER_STOP: Duration = Duration::from_millis(100);

/// State of a stream's thread.
pub(crate) struct Worker<'r, 'a> {
    store: &'r FileStore<'a>,
    stream: DataFrameReader,
    meter: ThreadMeter,
    pack: Vec<u8>,
    /// Files completed since the last report to [`Completion`](super::completion::Completion).
    completed: usize,
    /// Time when the stop of the session was noticed.
    stopped_at: Option<Instant>,
}

impl<'r, 'a> Worker<'r, 'a> {
    pub(crate) fn new(store: &'r FileStore<'a>, stream: DataFrameReader) -> Self {
        let meter = ThreadMeter::start();
        Self { store, stream, meter, pack: Vec::new(), completed: 0, stopped_at: None }
    }

    /// Runs until the sender ends the stream.
    ///
    /// # Errors
    /// Connection errors; a [`bankfull_proto::wire::WireError`] inside is the sender's fault.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        loop {
            self.meter.mark(Stage::Network);
            self.check_running()?;
            match self.stream.next_event()? {
                FrameEvent::End | FrameEvent::Header(_, Header::End) => return Ok(()),
                FrameEvent::Header(bytes, Header::Block { file, offset, len }) => {
                    self.receive_block(&bytes, file, offset, len)?;
                    self.stream.report_verified(len.into());
                }
                FrameEvent::Header(bytes, Header::Pack { count, len }) => {
                    self.receive_pack(&bytes, count, len as usize)?;
                    self.stream.report_verified(len.into());
                }
                // No data for a while; the control connection detects a dead peer.
                FrameEvent::Idle if self.stopped_at.is_some() => return Ok(()),
                FrameEvent::Idle => self.meter.mark(Stage::Idle),
                FrameEvent::Header(_, Header::Filler { .. })
                | FrameEvent::Chunk(_)
                | FrameEvent::Tag(_) => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            self.report_stats();
            // After all else, as it may end the session.
            self.store.completion.on_completed(std::mem::take(&mut self.completed));
        }
    }

    /// Fails a moment after the session has stopped: the next run sends again what is not written.
    fn check_running(&mut self) -> io::Result<()> {
        if !self.store.registry.session.is_stopped() {
            return Ok(());
        }
        let stopped_at = *self.stopped_at.get_or_insert_with(Instant::now);
        match stopped_at.elapsed() < STORE_TIME_AFTER_STOP {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Adds the thread's measurements to the session's.
    pub(crate) fn report_stats(&mut self) {
        let figures = self.stream.take_stats();
        let mut times = self.meter.take();
        // The reading thread may have been decrypting while this one waited.
        let crypto = figures.crypto_time.min(times.network);
        times.network -= crypto;
        times.compute += crypto;
        // The busier of the two threads limits the stream.
        let busy = figures.cpu_time.max(self.meter.take_cpu_time());
        self.store.registry.stats.add_times(&times, busy);
        add(&self.store.registry.stats.counts.wire_bytes, figures.wire_bytes);
    }

    fn receive_block(
        &mut self,
        header: &[u8; HEADER_BYTES],
        file: u64,
        offset: u64,
        len: u32,
    ) -> io::Result<()> {
        let claim = self
            .store
            .registry
            .ledger()
            .claim_block(file, offset, len)
            .map_err(io::Error::other)?;
        let incoming = match claim {
            Claim::Accept(index) => {
                self.store.registry.find(file).map(|incoming| (incoming, index))
            }
            Claim::Ignore => None,
        };
        let Some((incoming, index)) = incoming else {
            return self.skip_block(header, len);
        };
        let result = self.store_block(header, &incoming, index, offset, len);
        if result.is_err() {
            self.store.registry.ledger().release(file, index);
        }
        result
    }

    fn store_block(
        &mut self,
        header: &[u8; HEADER_BYTES],
        incoming: &Arc<IncomingFile>,
        index: u64,
        offset: u64,
        len: u32,
    ) -> io::Result<()> {
        let file = incoming.entry.id;
        let Some(layout) = incoming.layout() else { return self.skip_block(header, len) };
        let mut first_failure: Option<Failure> = None;
        let part = match self.store.parts.open(incoming) {
            Ok(part) => Some(part),
            Err(failure) => {
                first_failure = Some(failure);
                None
            }
        };
        // The range may hold data of an earlier run, or of this block when it arrived damaged.
        let zeros_matter = incoming.entry.sparse
            && part.as_ref().is_some_and(|part| !punch(&part.file, offset, len));
        let mut hasher = BlockHasher::new(&layout, offset);
        let skip_zeros = incoming.entry.sparse && !zeros_matter;
        let (mut at, mut taken) = (0, 0);
        while at < u64::from(len) {
            self.check_running()?;
            let chunk = self.stream.next_chunk()?;
            self.meter.mark(Stage::Network);
            hasher.update(&chunk);
            self.meter.mark(Stage::Compute);
            if let (Some(part), None) = (&part, &first_failure) {
                let reserved = self.store.registry.before_write(incoming, chunk.len());
                taken += reserved.as_ref().map_or(0, |()| chunk.len() as u64);
                let written =
                    reserved.and_then(|()| write_chunk(part, &chunk, offset + at, skip_zeros));
                if let Err(e) = written {
                    first_failure = Some(self.store.registry.write_failure(incoming, &e));
                }
                self.meter.mark(Stage::Write);
            }
            at += chunk.len() as u64;
        }
        let hash = hasher.finish();
        if !self.stream.verify_tag(header, &hash.0)? {
            debug!(file, index, "damaged block requested again");
            self.store.registry.on_damaged(incoming, taken);
            self.store.registry.ledger().on_block_damaged(file, index);
            self.store.registry.outbox.post(&Message::Nack(Nack { file, index }));
            self.stream.report_damaged(len.into());
            return Ok(());
        }
        if let (Some(part), None) = (&part, &first_failure)
            && let Err(e) = part.record(&Record::Block { index, hash }, self.store.is_durable())
        {
            first_failure = Some(self.store.registry.write_failure(incoming, &e));
        }
        match first_failure {
            Some(failure) => self.store.registry.fail_file(file, &failure),
            None => self.completed += self.store.on_verified(incoming, index, hash, len),
        }
        self.meter.mark(Stage::Write);
        Ok(())
    }

    /// Discards a block that is not wanted any more; its tag is still checked.
    fn skip_block(&mut self, header: &[u8; HEADER_BYTES], len: u32) -> io::Result<()> {
        let mut left = len as usize;
        while left > 0 {
            let chunk = self.stream.next_chunk()?;
            left -= chunk.len().min(left);
        }
        self.stream.verify_tag(header, &[0; 32]).map(|_| ())
    }

    fn receive_pack(
        &mut self,
        header: &[u8; HEADER_BYTES],
        count: u32,
        len: usize,
    ) -> io::Result<()> {
        let mut pack = std::mem::take(&mut self.pack);
        pack.clear();
        while pack.len() < len {
            let chunk = self.stream.next_chunk()?;
            pack.extend_from_slice(&chunk);
        }
        self.meter.mark(Stage::Network);
        let hash = blake3::hash(&pack);
        let intact = self.stream.verify_tag(header, hash.as_bytes())?;
        if !intact {
            // Its file numbers cannot be trusted either: the stream is given up.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a pack arrived damaged"));
        }
        let files = data::unpack(&pack, count).map_err(io::Error::other)?;
        self.meter.mark(Stage::Compute);
        let mut done = Vec::with_capacity(files.len());
        for packed in &files {
            self.check_running()?;
            self.store_packed(packed, &mut done)?;
        }
        self.store.registry.outbox.post_finished(&done);
        self.completed += done.len();
        self.meter.mark(Stage::Write);
        self.pack = pack;
        Ok(())
    }

    fn store_packed(&mut self, packed: &PackedFile<'_>, done: &mut Vec<u64>) -> io::Result<()> {
        let id = packed.file;
        let claim = self
            .store
            .registry
            .ledger()
            .claim_packed(id, packed.content.len() as u64)
            .map_err(io::Error::other)?;
        let (Claim::Accept(_), Some(incoming)) = (claim, self.store.registry.find(id)) else {
            return Ok(());
        };
        let hash = FileHash::of(packed.content);
        if hash.0 != packed.hash {
            self.store.registry.ledger().release(id, 0);
            self.store.registry.outbox.post(&Message::Nack(Nack { file: id, index: 0 }));
            self.stream.report_damaged(packed.content.len() as u64);
            return Ok(());
        }
        self.meter.mark(Stage::Compute);
        let placed = self.store.place_small(&incoming, packed.content);
        match placed {
            Ok(()) => {
                self.store.on_small_stored(&incoming, Some(hash));
                done.push(id);
            }
            Err(e) => self.store.fail_write(&incoming, &e),
        }
        self.meter.mark(Stage::Write);
        Ok(())
    }
}

/// Deallocates a range, so that it reads as zeros; false if the file system cannot.
fn punch(file: &std::fs::File, offset: u64, len: u32) -> bool {
    bankfull_sys::punch_hole(file, offset, u64::from(len)).unwrap_or(false)
}

/// Writes a chunk; of a sparse file only the pages with data.
fn write_chunk(part: &PartFile, chunk: &[u8], offset: u64, skip_zeros: bool) -> io::Result<()> {
    if !skip_zeros {
        return part.write(chunk, offset);
    }
    let is_zero = |page: &[u8]| page.iter().all(|&byte| byte == 0);
    let mut at = 0;
    while at < chunk.len() {
        let pages = chunk[at..].chunks(ZERO_PAGE_BYTES);
        let zeros: usize = pages.clone().take_while(|p| is_zero(p)).map(<[u8]>::len).sum();
        at += zeros;
        let held: usize =
            chunk[at..].chunks(ZERO_PAGE_BYTES).take_while(|p| !is_zero(p)).map(<[u8]>::len).sum();
        part.write(&chunk[at..at + held], offset + at as u64)?;
        at += held;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn sparse_write_skips_zero_pages_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut chunk = vec![0u8; 10 * ZERO_PAGE_BYTES + 100];
        chunk[3 * ZERO_PAGE_BYTES + 5] = 1;
        chunk[4 * ZERO_PAGE_BYTES] = 2;
        chunk[10 * ZERO_PAGE_BYTES + 99] = 3;
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
        let file = file.unwrap();
        file.set_len(1 << 20).unwrap();
        let part = PartFile::of(file);
        write_chunk(&part, &chunk, 8192, true).unwrap();
        let mut back = vec![9; chunk.len()];
        let file = &part.file;
        file.read_exact_at(&mut back, 8192).unwrap();
        assert!(back == chunk);
        let allocated = bankfull_sys::stat_file(file).unwrap().allocated;
        assert!(allocated <= 4 * ZERO_PAGE_BYTES as u64, "{allocated}");
    }
}
