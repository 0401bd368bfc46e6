//! Threads of a local copy: each takes the sender's work, copies the data, and enters it in the
//! receiver's ledger.

use crate::base::sync::lock;
use crate::model::throttle::Throttle;
use crate::stats::thread_meter::ThreadMeter;
use crate::transfer::receiver::incoming::IncomingFile;
use crate::transfer::receiver::store::FileStore;
use crate::transfer::sender::Sender;
use crate::transfer::sender::files::{SourceError, SourceFile};
use bankfull_control::Stage;
use bankfull_proto::limits::MAX_PACKED_FILE_BYTES;
use bankfull_proto::send::Work;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes copied at a time if the kernel cannot copy by itself.
const CHUNK_BYTES: usize = 256 << 10;

/// Copies data between the two sides of a local copy; shared by its threads.
pub(crate) struct Mover<'m, 'a> {
    sender: &'m Sender<'a>,
    store: &'m FileStore<'a>,
    /// Rate that the threads share, if it is limited.
    throttle: Option<Arc<Throttle>>,
    /// Set after a reflink failed: these file systems do not support it.
    is_reflink_unsupported: AtomicBool,
}

impl<'m, 'a> Mover<'m, 'a> {
    pub(crate) fn new(sender: &'m Sender<'a>, store: &'m FileStore<'a>) -> Self {
        let throttle = store.registry.session.throttle();
        Self { sender, store, throttle, is_reflink_unsupported: AtomicBool::new(false) }
    }

    /// Runs a thread until all files are completed.
    pub(crate) fn run(&self, number: u32) {
        let mut meter = ThreadMeter::start();
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(Some(work)) = self.sender.queue.next_work(number, || Ok(())) {
            meter.mark(Stage::Idle);
            match work {
                Work::Block { file, index } => self.move_block(file, index, &mut buffer),
                Work::Pack(files) => {
                    for id in files {
                        if self.store.registry.session.is_stopped() {
                            break;
                        }
                        self.move_small(id, &mut buffer, &mut meter);
                    }
                }
                Work::Compare { file, hash } => self.sender.compare(file, hash, &mut buffer),
            }
            meter.mark(Stage::Write);
        }
        self.store.add_times(&meter.take());
    }

    fn move_small(&self, id: u64, buffer: &mut [u8], meter: &mut ThreadMeter) {
        let Some(file) = self.sender.files.find(id) else { return };
        let len = file.entry.size.min(MAX_PACKED_FILE_BYTES) as usize;
        let mut waiting = len as u64;
        while waiting > 0 {
            let Ok(granted) = self.wait_for_turn(waiting) else { return };
            waiting -= granted;
        }
        let read = self.sender.files.read_whole(&file, &mut buffer[..len]);
        meter.mark(Stage::Read);
        match read {
            Ok(()) => self.store.store_small(id, &buffer[..len]),
            Err(error) => self.sender.on_source_error(id, error),
        }
        meter.mark(Stage::Write);
    }

    /// Waits until some of the bytes may be copied; returns how many.
    ///
    /// # Errors
    /// The session has ended.
    fn wait_for_turn(&self, wanted: u64) -> io::Result<u64> {
        let Some(throttle) = &self.throttle else { return Ok(wanted) };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        throttle.wait(wanted, 0).map(|granted| granted as u64)
    }

    fn move_block(&self, id: u64, index: u64, buffer: &mut [u8]) {
        let Some(file) = self.sender.files.find(id) else { return };
        let source = match self.sender.files.open(&file) {
            Ok(source) => source,
            Err(error) => return self.sender.on_source_error(id, error),
        };
        let Some(incoming) = self.store.registry.find(id) else { return };
        let Some(range) = incoming.layout().and_then(|layout| layout.range(index)) else { return };
        if let Err(failure) = self.store.parts.open(&incoming) {
            return self.store.registry.fail_file(id, &failure);
        }
        if self.reflink(&source, &incoming) {
            return;
        }
        match self.copy(&file, &source, &incoming, range, buffer) {
            Ok(Ok(())) => self.store.record_copied(&incoming, index..index + 1),
            Ok(Err(_)) if self.store.registry.session.is_stopped() => {}
            Ok(Err(e)) => {
                let failure = self.store.registry.write_failure(&incoming, &e);
                self.store.registry.fail_file(id, &failure);
            }
            Err(error) => self.sender.on_source_error(id, error),
        }
    }

    /// Reflinks the whole source file to the part file, if the file system supports it.
    fn reflink(&self, source: &File, incoming: &IncomingFile) -> bool {
        if self.is_reflink_unsupported.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(part) = self.store.parts.open(incoming) else { return false };
        let Some(layout) = incoming.layout() else { return false };
        // Once: the file may be in its place as soon as all blocks are recorded.
        let mut is_cloned = lock(&incoming.is_cloned);
        if *is_cloned {
            return true;
        }
        let cloned = bankfull_sys::reflink(source, &part.file).and_then(|is_cloned| {
            // The source may have grown.
            is_cloned.then(|| part.file.set_len(layout.size())).transpose()
        });
        match cloned {
            Ok(Some(())) => {
                *is_cloned = true;
                drop(is_cloned);
                self.store.record_copied(incoming, 0..layout.count());
                true
            }
            _ => {
                self.is_reflink_unsupported.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Copies one block. The outer error is the source's, the inner one the destination's.
    fn copy(
        &self,
        file: &SourceFile,
        source: &File,
        incoming: &IncomingFile,
        range: Range<u64>,
        buffer: &mut [u8],
    ) -> Result<io::Result<()>, SourceError> {
        let Ok(part) = self.store.parts.open(incoming) else { return Ok(Ok(())) };
        let is_stopped = || self.store.registry.session.is_stopped();
        if file.entry.sparse
            && let Err(e) = part.clear_holes(&range, is_stopped)
        {
            return Ok(Err(e));
        }
        let mut at = range.start;
        while at < range.end {
            if is_stopped() {
                return Ok(Err(io::ErrorKind::Interrupted.into()));
            }
            let extent = if file.entry.sparse {
                let found = bankfull_sys::data_extent(source, at)
                    .map_err(|e| self.sender.files.failed(file, &e))?;
                let Some(extent) = found.filter(|extent| extent.start < range.end) else { break };
                extent.start.max(at)..extent.end.min(range.end)
            } else {
                at..range.end
            };
            if let Err(e) = self.copy_extent(file, source, &part.file, extent.clone(), buffer)? {
                return Ok(Err(e));
            }
            at = extent.end;
        }
        Ok(Ok(()))
    }

    fn copy_extent(
        &self,
        file: &SourceFile,
        source: &File,
        part: &File,
        extent: Range<u64>,
        buffer: &mut [u8],
    ) -> Result<io::Result<()>, SourceError> {
        let mut at = extent.start;
        while at < extent.end {
            let len = match self.wait_for_turn(extent.end - at) {
                Ok(len) => len,
                Err(e) => return Ok(Err(e)),
            };
            match bankfull_sys::copy_range(source, at, part, at, len) {
                Ok(Some(0)) => return Err(SourceError::Changed),
                Ok(Some(n)) => at += n,
                Ok(None) => {
                    let chunk = len.min(buffer.len() as u64) as usize;
                    let n = source
                        .read_at(&mut buffer[..chunk], at)
                        .map_err(|e| self.sender.files.failed(file, &e))?;
                    if n == 0 {
                        return Err(SourceError::Changed);
                    }
                    if let Err(e) = part.write_all_at(&buffer[..n], at) {
                        return Ok(Err(e));
                    }
                    at += n as u64;
                }
                Err(e) => return Ok(Err(e)),
            }
        }
        Ok(Ok(()))
    }
}
