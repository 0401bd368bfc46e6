//! One stream's thread of the receiving side: takes frames off its connection, verifies them,
//! writes them, and acknowledges.

use super::part::Part;
use super::{Incoming, Receiver};
use crate::counts::add;
use crate::error::failure;
use crate::net::ahead::{ReadAhead, Taken};
use crate::net::control::lock;
use crate::session::Meter;
use bankfull_control::Stage;
use bankfull_proto::hash::{BlockHasher, FileHash};
use bankfull_proto::journal::Record;
use bankfull_proto::receive::Claim;
use bankfull_proto::wire::control::{Failure, Message, Nack};
use bankfull_proto::wire::data::{self, HEADER_BYTES, Header, PackedFile};
use std::io;
use std::sync::Arc;

/// Granularity in which zeros of a sparse file are left out: a page. [Linux file systems allocate
/// at least 4 KiB]
const HOLE_BYTES: usize = 4096;

/// The state of a stream's thread.
pub(super) struct Worker<'r, 'a> {
    receiver: &'r Receiver<'a>,
    stream: ReadAhead,
    meter: Meter,
    pack: Vec<u8>,
    /// Files that are in place, as the sender was told.
    said: usize,
}

impl<'r, 'a> Worker<'r, 'a> {
    pub(super) fn new(receiver: &'r Receiver<'a>, stream: ReadAhead) -> Self {
        Self { receiver, stream, meter: Meter::start(), pack: Vec::new(), said: 0 }
    }

    /// Works until the sender ends the stream. An error is the connection's, or the sender's fault
    /// when it holds a [`bankfull_proto::wire::WireError`].
    pub(super) fn run(&mut self) -> io::Result<()> {
        loop {
            self.meter.mark(Stage::Network);
            match self.stream.next()? {
                Taken::End | Taken::Header(_, Header::End) => return Ok(()),
                Taken::Header(bytes, Header::Block { file, offset, len }) => {
                    self.receive_block(&bytes, file, offset, len)?;
                    self.stream.frame_done(len.into());
                }
                Taken::Header(bytes, Header::Pack { count, len }) => {
                    self.receive_pack(&bytes, count, len as usize)?;
                    self.stream.frame_done(len.into());
                }
                // Nothing to receive for a while; the control connection tells whether that is bad.
                Taken::Idle if self.receiver.session.is_stopped() => return Ok(()),
                Taken::Idle => self.meter.mark(Stage::Idle),
                Taken::Header(_, Header::Filler { .. }) | Taken::Piece(_) | Taken::Tag(_) => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            self.account();
            // Last of all, for with that it may be known that all is done.
            self.receiver.ending.said(std::mem::take(&mut self.said));
        }
    }

    /// Hands in what was measured.
    pub(super) fn account(&mut self) {
        let figures = self.stream.take_figures();
        let mut times = self.meter.take();
        // While this thread waited, the reading thread may have been decrypting.
        let crypto = figures.crypto_time.min(times.network);
        times.network -= crypto;
        times.compute += crypto;
        // The busier of the two threads is what limits a connection.
        let busy = figures.busy.max(self.meter.take_busy());
        self.receiver.tally.add_times(&times, busy);
        add(&self.receiver.tally.counts.wire_bytes, figures.wire_bytes);
    }

    fn receive_block(
        &mut self,
        header: &[u8; HEADER_BYTES],
        file: u64,
        offset: u64,
        len: u32,
    ) -> io::Result<()> {
        let claim =
            lock(&self.receiver.ledger).claim_block(file, offset, len).map_err(io::Error::other)?;
        let incoming = match claim {
            Claim::Accept(index) => self.receiver.find(file).map(|incoming| (incoming, index)),
            Claim::Ignore => None,
        };
        let Some((incoming, index)) = incoming else {
            return self.skip_block(header, len);
        };
        let result = self.take_block(header, &incoming, index, offset, len);
        if result.is_err() {
            lock(&self.receiver.ledger).release(file, index);
        }
        result
    }

    fn take_block(
        &mut self,
        header: &[u8; HEADER_BYTES],
        incoming: &Arc<Incoming>,
        index: u64,
        offset: u64,
        len: u32,
    ) -> io::Result<()> {
        let file = incoming.entry.id;
        let Some(layout) = incoming.layout() else { return self.skip_block(header, len) };
        let mut trouble: Option<Failure> = None;
        let part = match self.receiver.open_part(incoming) {
            Ok(part) => Some(part),
            Err(failure) => {
                trouble = Some(failure);
                None
            }
        };
        // Something may stand there already: of an earlier run, or of this block when it came
        // damaged.
        let zeros_matter = incoming.entry.sparse
            && part.as_ref().is_some_and(|part| !punch(&part.file, offset, len));
        let mut hasher = BlockHasher::new(&layout, offset);
        let skip_zeros = incoming.entry.sparse && !zeros_matter;
        let mut at = 0;
        while at < u64::from(len) {
            let piece = self.stream.next_piece()?;
            self.meter.mark(Stage::Network);
            hasher.update(&piece);
            self.meter.mark(Stage::Compute);
            if let (Some(part), None) = (&part, &trouble) {
                if let Err(e) = write_piece(part, &piece, offset + at, skip_zeros) {
                    trouble = Some(self.receiver.write_failure(incoming, &e));
                }
                self.meter.mark(Stage::Write);
            }
            at += piece.len() as u64;
        }
        let hash = hasher.finish();
        if !self.stream.next_tag(header, &hash.0)? {
            lock(&self.receiver.ledger).on_block_damaged(file, index);
            self.receiver.outbox.post(&Message::Nack(Nack { file, index }));
            self.stream.comes_again(len.into());
            return Ok(());
        }
        if let (Some(part), None) = (&part, &trouble)
            && let Err(e) = part.record(&Record::Block { index, hash }, self.receiver.is_durable())
        {
            trouble = Some(self.receiver.write_failure(incoming, &e));
        }
        match trouble {
            Some(failure) => self.receiver.fail_file(file, &failure),
            None => self.said += self.receiver.block_done(incoming, index, hash, len),
        }
        self.meter.mark(Stage::Write);
        Ok(())
    }

    /// Reads past a block that nobody wants any more. Its tag counts all the same.
    fn skip_block(&mut self, header: &[u8; HEADER_BYTES], len: u32) -> io::Result<()> {
        let mut left = len as usize;
        while left > 0 {
            let piece = self.stream.next_piece()?;
            left -= piece.len().min(left);
        }
        self.stream.next_tag(header, &[0; 32]).map(|_| ())
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
            let piece = self.stream.next_piece()?;
            pack.extend_from_slice(&piece);
        }
        self.meter.mark(Stage::Network);
        let hash = blake3::hash(&pack);
        let intact = self.stream.next_tag(header, hash.as_bytes())?;
        if !intact {
            // Not even its file numbers can be believed: as good as lost.
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a pack arrived damaged"));
        }
        let files = data::unpack(&pack, count).map_err(io::Error::other)?;
        self.meter.mark(Stage::Compute);
        let mut done = Vec::with_capacity(files.len());
        for packed in &files {
            if self.receiver.session.is_stopped() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.take_packed(packed, &mut done)?;
        }
        self.receiver.outbox.finished(&done);
        self.said += done.len();
        self.meter.mark(Stage::Write);
        self.pack = pack;
        Ok(())
    }

    fn take_packed(&mut self, packed: &PackedFile<'_>, done: &mut Vec<u64>) -> io::Result<()> {
        let id = packed.file;
        let claim = lock(&self.receiver.ledger)
            .claim_packed(id, packed.content.len() as u64)
            .map_err(io::Error::other)?;
        let (Claim::Accept(_), Some(incoming)) = (claim, self.receiver.find(id)) else {
            return Ok(());
        };
        let hash = FileHash::of(packed.content);
        if hash.0 != packed.hash {
            lock(&self.receiver.ledger).release(id, 0);
            self.receiver.outbox.post(&Message::Nack(Nack { file: id, index: 0 }));
            self.stream.comes_again(packed.content.len() as u64);
            return Ok(());
        }
        self.meter.mark(Stage::Compute);
        let placed = self.receiver.dirs.open(incoming.dir).and_then(|dir| {
            self.receiver.place_small(&dir, &incoming.name, &incoming.entry, packed.content)
        });
        match placed {
            Ok(()) => {
                self.receiver.small_done(&incoming, Some(hash));
                done.push(id);
            }
            Err(e) => {
                let failure = self.receiver.write_failure(&incoming, &e);
                self.receiver.fail_file(id, &failure);
            }
        }
        self.meter.mark(Stage::Write);
        Ok(())
    }
}

/// Frees a range, so that zeros need not be written to it. False where the file system cannot.
fn punch(file: &std::fs::File, offset: u64, len: u32) -> bool {
    bankfull_sys::punch_hole(file, offset, u64::from(len)).unwrap_or(false)
}

/// Writes a piece; of a sparse file only the pages that hold something.
fn write_piece(part: &Part, piece: &[u8], offset: u64, skip_zeros: bool) -> io::Result<()> {
    if !skip_zeros {
        return part.write(piece, offset);
    }
    let is_zero = |page: &[u8]| page.iter().all(|&byte| byte == 0);
    let mut at = 0;
    while at < piece.len() {
        let pages = piece[at..].chunks(HOLE_BYTES);
        let zeros: usize = pages.clone().take_while(|p| is_zero(p)).map(<[u8]>::len).sum();
        at += zeros;
        let held: usize =
            piece[at..].chunks(HOLE_BYTES).take_while(|p| !is_zero(p)).map(<[u8]>::len).sum();
        part.write(&piece[at..at + held], offset + at as u64)?;
        at += held;
    }
    Ok(())
}

/// A failure that names the file by its path.
pub(super) fn path_failure(path: &std::path::Path, error: &io::Error) -> Failure {
    failure(format!("cannot write {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn zeros_of_a_sparse_file_are_left_out_and_all_else_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut piece = vec![0u8; 10 * HOLE_BYTES + 100];
        piece[3 * HOLE_BYTES + 5] = 1;
        piece[4 * HOLE_BYTES] = 2;
        piece[10 * HOLE_BYTES + 99] = 3;
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
        let file = file.unwrap();
        file.set_len(1 << 20).unwrap();
        let part = Part::of(file);
        write_piece(&part, &piece, 8192, true).unwrap();
        let mut back = vec![9; piece.len()];
        let file = &part.file;
        file.read_exact_at(&mut back, 8192).unwrap();
        assert!(back == piece);
        let allocated = bankfull_sys::stat_file(file).unwrap().allocated;
        assert!(allocated <= 4 * HOLE_BYTES as u64, "{allocated}");
    }
}
