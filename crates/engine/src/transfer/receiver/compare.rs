//! Comparison by content: existing files are hashed, and their hashes sent to the sender.

use super::incoming::IncomingFile;
use super::registry::FileRegistry;
use super::want_message::make_want;
use crate::base::sync::lock;
use bankfull_proto::hash::FileHash;
use bankfull_proto::wire::control::{Message, Verdict, Want};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Files to be compared by content.
pub(crate) struct CompareQueue {
    /// Closed when the sender has finished.
    files: Mutex<Option<mpsc::Sender<Arc<IncomingFile>>>>,
}

impl CompareQueue {
    /// Returns the queue, and its receiving end for [`run_compare`].
    pub(crate) fn new() -> (Self, mpsc::Receiver<Arc<IncomingFile>>) {
        let (files, queue) = mpsc::channel();
        (Self { files: Mutex::new(Some(files)) }, queue)
    }

    pub(crate) fn push(&self, incoming: Arc<IncomingFile>) {
        // The queue's receiving end lives as long as the session.
        let _ = lock(&self.files).as_ref().map(|files| files.send(incoming));
    }

    pub(crate) fn close(&self) {
        lock(&self.files).take();
    }
}

/// Hashes existing files and sends the hashes for comparison, until the session ends.
pub(crate) fn run_compare(registry: &FileRegistry<'_>, queue: &mpsc::Receiver<Arc<IncomingFile>>) {
    while !registry.session.is_stopped() {
        let incoming = match queue.recv_timeout(Duration::from_millis(100)) {
            Ok(incoming) => incoming,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let id = incoming.entry.id;
        let want = match hash_existing(registry, &incoming) {
            Ok(hash) => Want { hash: Some(hash.0), ..make_want(id, Verdict::IfDiffers) },
            // Removed or unreadable: it is replaced.
            Err(_) => make_want(id, Verdict::Send),
        };
        registry.outbox.post(&Message::Wants(vec![want]));
    }
}

fn hash_existing(registry: &FileRegistry<'_>, incoming: &IncomingFile) -> io::Result<FileHash> {
    let file = registry.dirs.open(incoming.dir)?.open_file(&incoming.name)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset)? {
            0 => return Ok(FileHash(*hasher.finalize().as_bytes())),
            n => {
                hasher.update(&buffer[..n]);
                offset += n as u64;
            }
        }
    }
}
