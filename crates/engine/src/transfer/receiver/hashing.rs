//! Hashing of data at the destination: existing files, to be compared with the source, and blocks
//! that an earlier run left.

use super::incoming::IncomingFile;
use super::open_parts::EarlierBlock;
use super::part_file::is_block_intact;
use super::store::FileStore;
use super::want_message::make_want;
use crate::base::sync::lock;
use crate::file_io::content::read_chunks;
use bankfull_proto::hash::FileHash;
use bankfull_proto::journal::Record;
use bankfull_proto::wire::control::{Failure, Message, Verdict, Want};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Interval at which the end of the session is noticed.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes hashed at a time; the end of the session is noticed in between.
const CHUNK_BYTES: usize = 256 << 10;

/// Work of the hashing thread.
pub(crate) enum HashJob {
    /// Hash the existing file and send the hash; then check the blocks of an earlier run.
    Compare(Arc<IncomingFile>, VecDeque<EarlierBlock>),
    /// Check blocks of an earlier run that were reported to the sender.
    Check(Arc<IncomingFile>, VecDeque<EarlierBlock>),
}

/// Queue of the hashing thread.
pub(crate) struct HashQueue {
    /// Closed when the sender has finished.
    jobs: Mutex<Option<Sender<HashJob>>>,
}

impl HashQueue {
    /// Returns the queue, and its receiving end for [`run`].
    pub(crate) fn new() -> (Self, Receiver<HashJob>) {
        let (jobs, queue) = mpsc::channel();
        (Self { jobs: Mutex::new(Some(jobs)) }, queue)
    }

    pub(crate) fn push(&self, job: HashJob) {
        // The queue's receiving end lives as long as the session.
        let _ = lock(&self.jobs).as_ref().map(|jobs| jobs.send(job));
    }

    pub(crate) fn close(&self) {
        lock(&self.jobs).take();
    }
}

/// Runs the hashing thread until the sender has finished or the session ends.
///
/// Comparisons come first: the sender waits for them.
pub(crate) fn run(store: &FileStore<'_>, queue: &Receiver<HashJob>) {
    let mut hasher = Hasher { store, checks: VecDeque::new(), buffer: vec![0; CHUNK_BYTES] };
    while !hasher.is_stopped() {
        match hasher.next_job(queue) {
            Ok(Some(HashJob::Compare(incoming, blocks))) => {
                hasher.compare(&incoming);
                hasher.checks.push_back((incoming, blocks));
            }
            Ok(Some(HashJob::Check(incoming, blocks))) => {
                hasher.checks.push_back((incoming, blocks));
            }
            Ok(None) => hasher.check_next(),
            Err(QueueClosed) => return,
        }
    }
}

struct QueueClosed;

struct Hasher<'h, 'a> {
    store: &'h FileStore<'a>,
    checks: VecDeque<(Arc<IncomingFile>, VecDeque<EarlierBlock>)>,
    buffer: Vec<u8>,
}

impl Hasher<'_, '_> {
    fn is_stopped(&self) -> bool {
        self.store.registry.session.is_stopped()
    }

    /// Returns the next job; waits for it for a while if there is nothing to check.
    fn next_job(&self, queue: &Receiver<HashJob>) -> Result<Option<HashJob>, QueueClosed> {
        if self.checks.is_empty() {
            return match queue.recv_timeout(STOP_CHECK_INTERVAL) {
                Ok(job) => Ok(Some(job)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(QueueClosed),
            };
        }
        match queue.try_recv() {
            Ok(job) => Ok(Some(job)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(QueueClosed),
        }
    }

    fn compare(&mut self, incoming: &IncomingFile) {
        let id = incoming.entry.id;
        let want = match self.hash_compared(incoming) {
            Ok(hash) => Want { hash: Some(hash.0), ..make_want(id, Verdict::IfDiffers) },
            // Removed or unreadable: it is replaced.
            Err(_) => make_want(id, Verdict::Send),
        };
        self.store.registry.outbox.post(&Message::Wants(vec![want]));
    }

    /// Returns the hash of the existing file, or of an earlier copy.
    fn hash_compared(&mut self, incoming: &IncomingFile) -> io::Result<FileHash> {
        let compared = &incoming.compared;
        let Some(earlier) = &compared.earlier else { return self.hash_existing(incoming) };
        let existing = match compared.with_existing && !earlier.is_linked {
            true => self.hash_existing(incoming).ok(),
            false => None,
        };
        let found = earlier.open(&incoming.name).and_then(|file| self.hash(&file));
        match (found, existing) {
            (Ok(hash), Some(other)) if hash != other && compared.prefers_existing => Ok(other),
            (Ok(hash), _) => {
                compared.choose_earlier();
                Ok(hash)
            }
            (Err(e), existing) => existing.ok_or(e),
        }
    }

    fn hash_existing(&mut self, incoming: &IncomingFile) -> io::Result<FileHash> {
        let file = self.store.registry.dirs.open(incoming.dir)?.open_file(&incoming.name)?;
        self.hash(&file)
    }

    fn hash(&mut self, file: &File) -> io::Result<FileHash> {
        let mut hasher = blake3::Hasher::new();
        let session = &self.store.registry.session;
        let update = |chunk: &[u8]| {
            hasher.update(chunk);
        };
        let is_stopped = || session.is_stopped();
        match read_chunks(file, 0..u64::MAX, &mut self.buffer, is_stopped, update)? {
            Some(_) => Ok(FileHash(*hasher.finalize().as_bytes())),
            None => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// Settles the next block of an earlier run.
    fn check_next(&mut self) {
        let Some((incoming, blocks)) = self.checks.front_mut() else { return };
        let is_outstanding = self.store.registry.find(incoming.entry.id).is_some();
        let (Some(block), true) = (blocks.pop_front(), is_outstanding) else {
            self.checks.pop_front();
            return;
        };
        let incoming = Arc::clone(incoming);
        if let Err(failure) = self.check(&incoming, &block) {
            self.store.registry.fail_file(incoming.entry.id, &failure);
        }
    }

    fn check(&mut self, incoming: &IncomingFile, block: &EarlierBlock) -> Result<(), Failure> {
        let (store, EarlierBlock { index, hash, .. }) = (self.store, *block);
        let is_kept = block.is_taken && block.is_recorded;
        let (Some(layout), Some(hash), false) = (incoming.layout(), hash, is_kept) else {
            store.on_checked(incoming, index, hash);
            return Ok(());
        };
        let part = store.parts.open(incoming)?;
        let session = &store.registry.session;
        let is_intact = block.is_taken
            || store.has_written(incoming, index)
            || is_block_intact(&part.file, &layout, (index, &hash), &mut self.buffer, || {
                session.is_stopped()
            });
        if session.is_stopped() {
            return Ok(());
        }
        let record = match is_intact {
            true if block.is_recorded => None,
            true => Some(Record::Block { index, hash }),
            false => Some(Record::Damaged { index }),
        };
        if let Some(record) = record {
            let recorded = part.record(&record, false);
            recorded.map_err(|e| store.registry.write_failure(incoming, &e))?;
        }
        match is_intact {
            true => store.on_checked(incoming, index, Some(hash)),
            false => store.on_check_failed(incoming, index),
        }
        Ok(())
    }
}
