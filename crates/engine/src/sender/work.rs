//! One stream's thread of the sending side: reads blocks and small files, hashes them, and puts
//! them on its connection.

use super::Sender;
use super::files::{SourceFile, Trouble};
use crate::block_io::read::Reader;
use crate::block_io::{Engine, PIECE_BYTES};
use crate::counts::add;
use crate::net::stream::DataStream;
use crate::session::Meter;
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

/// The state of a stream's thread.
pub(super) struct Worker<'s, 'a> {
    sender: &'s Sender<'a>,
    number: u32,
    stream: DataStream,
    meter: Meter,
    reader: Reader,
    buffer: Vec<u8>,
    pack: Vec<u8>,
    /// File and number of the block that is this stream's next one, and is read ahead.
    ahead: Option<(u64, u64)>,
}

impl<'s, 'a> Worker<'s, 'a> {
    pub(super) fn new(sender: &'s Sender<'a>, number: u32, stream: DataStream) -> Self {
        let overrides = &sender.session.overrides;
        Self {
            sender,
            number,
            stream,
            meter: Meter::start(),
            reader: Reader::new(overrides.engine, overrides.direct),
            buffer: vec![0; PIECE_BYTES],
            pack: Vec::new(),
            ahead: None,
        }
    }

    /// What to do next: `None` when everything is settled or the session stopped.
    fn next_work(&mut self) -> io::Result<Option<Work>> {
        if let Some((file, index)) = self.ahead.take()
            && !self.sender.session.is_stopped()
        {
            return Ok(Some(Work::Block { file, index }));
        }
        // What was read ahead may have been another version of the file.
        self.reader.forget();
        let stream = &mut self.stream;
        self.sender.next_work(self.number, || stream.flush())
    }

    /// Works until everything is settled. An error is the connection's.
    pub(super) fn run(&mut self) -> io::Result<()> {
        loop {
            let work = self.next_work()?;
            if matches!(work, Some(Work::Block { .. } | Work::Pack(_))) {
                self.stream.wait_until_asked()?;
            }
            self.meter.mark(Stage::Idle);
            match work {
                None if self.sender.session.is_stopped() => return Ok(()),
                None => {
                    self.stream.begin(&Header::End);
                    return self.stream.flush();
                }
                Some(Work::Block { file, index }) => self.send_block(file, index)?,
                Some(Work::Pack(files)) => self.send_pack(&files)?,
                Some(Work::Compare { file, hash }) => self.compare(file, hash),
            }
            self.account();
        }
    }

    /// Hands in what was measured.
    fn account(&mut self) {
        add(&self.sender.tally.counts.wire_bytes, self.stream.take_wire_bytes());
        let mut times = self.meter.take();
        let crypto = self.stream.take_crypto_time().min(times.network);
        times.network -= crypto;
        times.compute += crypto;
        self.sender.tally.add_times(&times, self.meter.take_busy());
    }

    /// Hands in the rest, at its end.
    pub(super) fn finish(&mut self) {
        self.account();
        add(&self.sender.tally.counts.retransmits, self.stream.socket().retransmits());
    }

    fn send_block(&mut self, id: u64, index: u64) -> io::Result<()> {
        let Some(file) = self.sender.files.find(id) else { return Ok(()) };
        let opened = match self.sender.files.open(&file) {
            Ok(opened) => opened,
            Err(trouble) => {
                self.sender.trouble(id, trouble);
                return Ok(());
            }
        };
        self.meter.mark(Stage::Read);
        let layout = Layout::new(file.entry.size, file.entry.block_bytes);
        let Some((layout, range)) = layout.ok().and_then(|l| Some((l, l.range(index)?))) else {
            return Ok(());
        };
        self.ahead = self.sender.prefetch_block(self.number, id).map(|index| (id, index));
        let next = self.ahead.and_then(|(_, index)| layout.range(index));
        let len = (range.end - range.start) as u32;
        let header = self.stream.begin(&Header::Block { file: id, offset: range.start, len });
        let mut hasher = BlockHasher::new(&layout, range.start);
        let sent = self.send_range(&file, &opened, range, next, &mut hasher)?;
        let mut trouble = sent.err();
        // One that is sent again must be of the source that a seal may have been for.
        if trouble.is_none() && self.sender.with_ledger(|ledger| ledger.is_resend(id, index)) {
            trouble = self.sender.files.check(&file, &opened).err();
        }
        if let Some(trouble) = trouble {
            self.stream.end(&header, &[0; 32]);
            self.sender.trouble(id, trouble);
            return Ok(());
        }
        let hash = hasher.finish();
        let next = self.sender.with_ledger(|ledger| ledger.on_block_sent(id, index, hash));
        self.stream.end(&header, &hash.0);
        self.meter.mark(Stage::Compute);
        if next == NextStep::SendEarlyDigest {
            self.sender.send_early_digest(&file, &opened);
        }
        Ok(())
    }

    /// Sends a range of a file, and hashes it. The outer error is the connection's, the inner one
    /// the file's: then the frame is filled all the same; its tag will not fit, and the receiver
    /// will hear that the file is given up.
    fn send_range(
        &mut self,
        file: &SourceFile,
        opened: &File,
        range: Range<u64>,
        next: Option<Range<u64>>,
        hasher: &mut BlockHasher,
    ) -> io::Result<Result<(), Trouble>> {
        let engine = self.sender.session.overrides.engine;
        let may_stay = engine.unwrap_or(Engine::SENDER).stays_in_kernel();
        // Either all of it goes at once when it is hashed, or each piece by itself.
        let (mut at, mut hashed) = (range.start, range.start);
        let mut trouble = None;
        let pieces = self.reader.start(opened, range.clone(), next);
        let is_by_memory = || file.by_memory.load(Ordering::Relaxed);
        let may_stay = may_stay && !pieces.is_direct() && !is_by_memory();
        let is_whole = may_stay && engine == Some(Engine::SendFile) && self.stream.can_send_file();
        while at < range.end && trouble.is_none() {
            let piece = match pieces.next(opened) {
                Ok(piece) => piece,
                Err(e) => {
                    trouble = Some(self.sender.files.failed(file, &e));
                    break;
                }
            };
            self.meter.mark(Stage::Read);
            hasher.update(piece);
            hashed += piece.len() as u64;
            self.meter.mark(Stage::Compute);
            if is_whole && hashed < range.end && !piece.is_empty() {
                continue;
            }
            let is_in_kernel = may_stay && self.stream.can_send_file() && !is_by_memory();
            if is_whole || is_in_kernel {
                let len = (hashed - at) as usize;
                let gone = self.stream.send_file(opened, at, len, is_whole)?;
                at += gone.bytes as u64;
                if gone.refused.is_some() {
                    file.by_memory.store(true, Ordering::Relaxed);
                    let left = at..hashed;
                    let (sent, failed) =
                        send_copied(&mut self.stream, &mut self.buffer, opened, left)?;
                    at += sent;
                    trouble = failed.map(|e| self.sender.files.failed(file, &e));
                }
            } else {
                self.stream.send(piece)?;
                at += piece.len() as u64;
            }
            if piece.is_empty() || at < hashed {
                trouble.get_or_insert(Trouble::Changed);
            }
            self.meter.mark(Stage::Network);
        }
        if !pieces.finish() {
            trouble.get_or_insert(Trouble::Changed);
        }
        self.fill(range.end - at)?;
        Ok(trouble.map_or(Ok(()), Err))
    }

    /// Sends zeros in the place of what there is not.
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
            let Some(file) = self.sender.files.find(id) else { continue };
            match self.read_small(&file) {
                Ok(len) => {
                    let content = &self.buffer[..len];
                    push_packed(&mut self.pack, id, &FileHash::of(content).0, content);
                    count += 1;
                }
                Err(trouble) => self.sender.trouble(id, trouble),
            }
            debug_assert!(self.pack.len() <= MAX_PACK_BYTES);
        }
        self.meter.mark(Stage::Read);
        if count == 0 {
            return Ok(());
        }
        let header = self.stream.begin(&Header::Pack { count, len: self.pack.len() as u32 });
        let hash = blake3::hash(&self.pack);
        self.meter.mark(Stage::Compute);
        self.stream.send(&self.pack)?;
        self.stream.end(&header, hash.as_bytes());
        self.meter.mark(Stage::Network);
        Ok(())
    }

    /// Reads a small file whole into the buffer; returns its length. It did not change meanwhile.
    fn read_small(&mut self, file: &SourceFile) -> Result<usize, Trouble> {
        let len = file.entry.size as usize;
        self.sender.files.read_whole(file, &mut self.buffer[..len])?;
        Ok(len)
    }

    fn compare(&mut self, id: u64, theirs: FileHash) {
        let Some(file) = self.sender.files.find(id) else { return };
        match self.sender.files.hash_whole(&file, &mut self.buffer) {
            Ok(ours) => self.sender.on_compared(&file, ours == theirs),
            Err(trouble) => self.sender.trouble(id, trouble),
        }
        self.meter.mark(Stage::Read);
    }
}

/// Sends a range of a file by way of a buffer, up to where the file ends; how many bytes, and why
/// no more could be read. An error is the connection's.
fn send_copied(
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
            Ok(came) => {
                stream.send(&buffer[..came])?;
                at += came as u64;
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
    use crate::net::stream::tests::pair;
    use std::io::Write;

    #[test]
    fn what_the_kernel_does_not_send_goes_from_memory_up_to_its_end_or_its_first_error() {
        let (mut near, mut far) = pair();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut buffer = [0; 4];
        let (sent, failed) = send_copied(&mut near, &mut buffer, &file, 2..20).unwrap();
        assert!(sent == 8 && failed.is_none());
        let mut came = [0; 8];
        far.receive(&mut came).unwrap();
        assert_eq!(&came, b"23456789");
        let dir = File::open("/").unwrap();
        let (sent, failed) = send_copied(&mut near, &mut buffer, &dir, 0..20).unwrap();
        assert_eq!((sent, failed.unwrap().kind()), (0, io::ErrorKind::IsADirectory));
        drop(far);
        assert!(send_copied(&mut near, &mut buffer, &file, 0..10).is_err(), "the connection's");
    }
}
