//! One stream's thread of the sending side: reads blocks and small files, hashes them, and puts
//! them on its connection.

use super::Sender;
use super::files::{SourceFile, Trouble};
use crate::net::stream::DataStream;
use crate::session::{Meter, add};
use bankfull_control::Stage;
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHasher, FileHash};
use bankfull_proto::limits::PACK_BYTES_MAX;
use bankfull_proto::send::{Next, Work};
use bankfull_proto::wire::data::{Header, push_packed};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read, hashed and sent at a time: fits a core's second-level cache, so the hash and the
/// cipher find them there. [measured: reading and hashing 1 GiB takes 0.18 s in pieces of 64 KiB to
/// 1 MiB alike; 256 KiB has few calls and fits beside the cipher's output]
const PIECE_BYTES: usize = 256 << 10;

/// The state of a stream's thread.
pub(super) struct Worker<'s, 'a> {
    sender: &'s Sender<'a>,
    number: u32,
    stream: DataStream,
    meter: Meter,
    buffer: Vec<u8>,
    pack: Vec<u8>,
}

impl<'s, 'a> Worker<'s, 'a> {
    pub(super) fn new(sender: &'s Sender<'a>, number: u32, stream: DataStream) -> Self {
        Self {
            sender,
            number,
            stream,
            meter: Meter::start(),
            buffer: vec![0; PIECE_BYTES],
            pack: Vec::new(),
        }
    }

    /// Works until everything is settled. An error is the connection's.
    pub(super) fn run(&mut self) -> io::Result<()> {
        loop {
            let stream = &mut self.stream;
            let work = self.sender.next_work(self.number, || stream.flush())?;
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
        let len = (range.end - range.start) as u32;
        // Blocks are handed out in order: so a disk reads them in order, too, a whole one at a
        // time, and not pieces of as many as there are connections. Where the kernel does not, it
        // is not missed.
        let _ = bankfull_sys::advise_will_need(&*opened, range.start, len.into());
        let header = self.stream.begin(&Header::Block { file: id, offset: range.start, len });
        let mut hasher = BlockHasher::new(&layout, range.start);
        let mut trouble = None;
        let mut offset = range.start;
        while offset < range.end {
            let piece = (range.end - offset).min(PIECE_BYTES as u64) as usize;
            if let Err(t) = self.send_piece(&file, &opened, offset, piece, &mut hasher)? {
                // The frame must be filled all the same; its tag will not fit, and the receiver
                // will hear that the file is given up.
                trouble.get_or_insert(t);
            }
            offset += piece as u64;
        }
        // One that is sent again must be of the source that a seal may have been for.
        if trouble.is_none() && self.sender.with_ledger(|ledger| ledger.is_sent_again(id, index)) {
            trouble = self.sender.files.check(&file, &opened).err();
        }
        if let Some(trouble) = trouble {
            self.stream.end(&header, &[0; 32]);
            self.sender.trouble(id, trouble);
            return Ok(());
        }
        let hash = hasher.finish();
        let next = self.sender.with_ledger(|ledger| ledger.sent_block(id, index, hash));
        self.stream.end(&header, &hash.0);
        self.meter.mark(Stage::Compute);
        if next == Next::SealAhead {
            self.sender.seal_ahead(&file, &opened);
        }
        Ok(())
    }

    /// Sends one piece of a block. The outer error is the connection's, the inner one the file's.
    fn send_piece(
        &mut self,
        file: &SourceFile,
        opened: &File,
        offset: u64,
        len: usize,
        hasher: &mut BlockHasher,
    ) -> io::Result<Result<(), Trouble>> {
        let piece = &mut self.buffer[..len];
        let read = opened.read_exact_at(piece, offset);
        self.meter.mark(Stage::Read);
        if let Err(e) = read {
            piece.fill(0);
            self.stream.send(piece)?;
            let ended = e.kind() == io::ErrorKind::UnexpectedEof;
            let trouble = if ended { Trouble::Changed } else { self.sender.files.failed(file, &e) };
            return Ok(Err(trouble));
        }
        hasher.update(piece);
        self.meter.mark(Stage::Compute);
        if self.stream.can_send_file() {
            let sent = self.stream.send_file(opened, offset, len)?;
            if sent < len {
                self.stream.send(&vec![0; len - sent])?;
                return Ok(Err(Trouble::Changed));
            }
        } else {
            self.stream.send(piece)?;
        }
        self.meter.mark(Stage::Network);
        Ok(Ok(()))
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
            debug_assert!(self.pack.len() <= PACK_BYTES_MAX);
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
            Ok(ours) => self.sender.compared(&file, ours == theirs),
            Err(trouble) => self.sender.trouble(id, trouble),
        }
        self.meter.mark(Stage::Read);
    }
}
