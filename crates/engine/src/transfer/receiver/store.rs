//! Received data in the files at the destination, and the completion of these files.

use super::completion::Completion;
use super::incoming::IncomingFile;
use super::open_parts::PartFiles;
use super::part_file::{refuse_received, remove_part};
use super::place::Placer;
use super::registry::FileRegistry;
use crate::base::error::Error;
use crate::base::event::Outcome;
use crate::base::part_names::PartNames;
use crate::file_io::ordered_output::{OrderedOutput, Verified};
use crate::file_io::storage_quota::BLOCK_BYTES;
use crate::model::options::Fsync;
use crate::stats::counters::{ByteSource, add};
use bankfull_control::StageTimes;
use bankfull_proto::blocks::Run;
use bankfull_proto::hash::{BlockHash, FileHash};
use bankfull_proto::journal::Record;
use bankfull_proto::receive::DigestOutcome;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{
    Aborted, Cause, ChangeAction, Failure, FileEnd, FileRuns, Message, Nack,
};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Stores received data, and puts complete files in place.
pub(crate) struct FileStore<'a> {
    pub(crate) registry: Arc<FileRegistry<'a>>,
    pub(crate) parts: Arc<PartFiles<'a>>,
    pub(crate) completion: Arc<Completion>,
    placer: Arc<Placer>,
    fsync: Fsync,
    dry_run: bool,
    /// Open file that takes the content of the one source.
    output: Option<Arc<OrderedOutput>>,
}

impl<'a> FileStore<'a> {
    /// Returns a store for the files of the registry.
    pub(crate) fn new(
        registry: Arc<FileRegistry<'a>>,
        parts: Arc<PartFiles<'a>>,
        placer: Arc<Placer>,
        completion: Arc<Completion>,
        (fsync, dry_run, output): (Fsync, bool, Option<Arc<OrderedOutput>>),
    ) -> Self {
        Self { registry, parts, completion, placer, fsync, dry_run, output }
    }

    /// True if data must survive a power loss file by file.
    pub(crate) fn is_durable(&self) -> bool {
        self.fsync == Fsync::File
    }

    /// Records a block that is verified, written and journalled; returns the files it completed.
    pub(crate) fn on_verified(
        &self,
        incoming: &IncomingFile,
        index: u64,
        hash: BlockHash,
        len: u32,
    ) -> usize {
        let file = incoming.entry.id;
        let mut ledger = self.registry.ledger();
        if !ledger.on_block_verified(file, index, hash) {
            return 0;
        }
        // Under the lock: the thread with the last block reports the file as finished, which must
        // not overtake this acknowledgement.
        self.registry.outbox.post_ack(file, index);
        let outcome = ledger.apply_early_digest(file);
        drop(ledger);
        self.registry.stats.counts.record(&incoming.stats, ByteSource::Transferred, len.into());
        self.write_out(incoming);
        outcome.map_or(0, |outcome| self.apply_digest(file, outcome))
    }

    /// Records that a block of an earlier run is intact.
    pub(crate) fn on_checked(&self, incoming: &IncomingFile, index: u64, hash: Option<BlockHash>) {
        let (registry, file) = (&self.registry, incoming.entry.id);
        let mut ledger = registry.ledger();
        if !ledger.on_block_checked(file, index, hash) {
            return;
        }
        // Under the lock, like the acknowledgement of a block that arrived.
        registry.outbox.post_ack(file, index);
        let outcome = ledger.apply_early_digest(file);
        drop(ledger);
        registry.stats.counts.settle_check(&incoming.stats, incoming.block_len(index), true);
        self.write_out(incoming);
        self.completion.on_completed(outcome.map_or(0, |outcome| self.apply_digest(file, outcome)));
    }

    /// Requests a block of an earlier run that is damaged.
    pub(crate) fn on_check_failed(&self, incoming: &IncomingFile, index: u64) {
        let (registry, file) = (&self.registry, incoming.entry.id);
        if !registry.ledger().on_check_failed(file, index) {
            return;
        }
        registry.outbox.post(&Message::Nack(Nack { file, index }));
        if registry.stats.counts.settle_check(&incoming.stats, incoming.block_len(index), false) {
            registry.stats.file_damaged(&registry.path(incoming));
        }
    }

    /// Journals blocks that were copied within this host, and enters them in the ledger.
    pub(crate) fn record_copied(&self, incoming: &IncomingFile, blocks: Range<u64>) {
        let registry = &self.registry;
        let (id, durable) = (incoming.entry.id, self.is_durable());
        let Some(layout) = incoming.layout() else { return };
        for index in blocks {
            if registry.session.is_stopped() {
                return;
            }
            let recorded = self.parts.open(incoming).and_then(|part| {
                part.record(&Record::Copied { index }, durable)
                    .map_err(|e| registry.write_failure(incoming, &e))
            });
            if let Err(failure) = recorded {
                return registry.fail_file(id, &failure);
            }
            if registry.ledger().on_block_copied(id, index) {
                registry.outbox.post_ack(id, index);
                registry.stats.counts.record(
                    &incoming.stats,
                    ByteSource::Transferred,
                    layout.block_len(index),
                );
                self.write_out(incoming);
            }
        }
    }

    /// True if a block is written to the output, and freed in the part file.
    pub(crate) fn has_written(&self, incoming: &IncomingFile, index: u64) -> bool {
        let range = incoming.layout().and_then(|layout| layout.range(index));
        let (Some(output), Some(range)) = (&self.output, range) else { return false };
        output.has_written(&incoming.entry, range.end)
    }

    /// Writes verified blocks to the output, if there is one. Its failure ends the session.
    fn write_out(&self, incoming: &IncomingFile) {
        let (Some(output), Some(layout)) = (&self.output, incoming.layout()) else { return };
        let (registry, id) = (&self.registry, incoming.entry.id);
        let part = match self.parts.open(incoming) {
            Ok(part) => part,
            Err(failure) => return registry.fail_file(id, &failure),
        };
        let has = |index| {
            registry.ledger().verified_blocks(id).is_some_and(|blocks| blocks.contains(index))
        };
        let verified = Verified { entry: &incoming.entry, layout, part: &part.file, has: &has };
        if let Err(error) = output.advance(&verified, &|| registry.session.is_stopped()) {
            registry.session.fail(error);
        }
    }

    /// Writes a small file and puts it in place.
    pub(crate) fn place_small(&self, incoming: &IncomingFile, content: &[u8]) -> io::Result<()> {
        if let Some(output) = &self.output {
            return self.write_small(output, incoming, content);
        }
        if self.dry_run {
            return Err(io::Error::other("received content in a dry run"));
        }
        // A small file takes a block of the disk.
        let taken = content.len().next_multiple_of(BLOCK_BYTES as usize);
        self.registry.before_write(incoming, taken)?;
        let dir = self.registry.dirs.open(incoming.dir)?;
        // Another session may have begun to receive it after this file was announced.
        if !self.registry.dirs.is_parent_created(&incoming.entry) {
            let received = refuse_received(&dir, &incoming.name, &self.registry.session);
            received.map_err(|failure| io::Error::other(failure.text))?;
        }
        self.registry.put_file(&dir, incoming, || {
            self.placer.store_small_file(&dir, &incoming.name, &incoming.entry, content)
        })
    }

    /// Writes a small file to the output. Its failure ends the session.
    fn write_small(
        &self,
        output: &OrderedOutput,
        incoming: &IncomingFile,
        content: &[u8],
    ) -> io::Result<()> {
        let session = &self.registry.session;
        match output.write_whole(&incoming.entry, content, &|| session.is_stopped()) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => session.fail(error),
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Stores a small file that was read within this host.
    pub(crate) fn store_small(&self, id: u64, content: &[u8]) {
        let Some(incoming) = self.registry.find(id) else { return };
        match self.place_small(&incoming, content) {
            Ok(()) => {
                self.on_small_stored(&incoming, None);
                self.registry.outbox.post_finished(&[id]);
                self.completion.on_completed(1);
            }
            Err(e) => self.fail_write(&incoming, &e),
        }
    }

    /// Fails a small file that could not be written; one for the output has ended the session.
    pub(crate) fn fail_write(&self, incoming: &IncomingFile, error: &io::Error) {
        if self.output.is_none() {
            let failure = self.registry.write_failure(incoming, error);
            self.registry.fail_file(incoming.entry.id, &failure);
        }
    }

    /// Adds the stage times of a thread that serves no stream.
    pub(crate) fn add_times(&self, times: &StageTimes) {
        self.registry.stats.add_times(times, Duration::ZERO);
    }

    /// Records a small file that is in place.
    pub(crate) fn on_small_stored(&self, incoming: &IncomingFile, hash: Option<FileHash>) {
        let registry = &self.registry;
        let id = incoming.entry.id;
        registry.finish(id);
        self.report_lost_time();
        add(&registry.stats.counts.bytes_moved, incoming.entry.size);
        registry.changes.report_file(incoming, ChangeAction::Transfer);
        registry.stats.file_copied(|| registry.path(incoming), incoming.entry.size, hash);
        registry.link_placed(&incoming.entry, incoming.dir, &incoming.name);
    }

    /// Records the holes of a file.
    pub(crate) fn on_holes(&self, holes: &FileRuns) -> Result<(), Error> {
        // Opened before the holes are counted: the part file must hold all that the ledger counts.
        let incoming = self.registry.find(holes.file);
        if incoming.as_ref().is_some_and(|incoming| !incoming.entry.sparse) {
            return Err(WireError::Unexpected("holes in a file that was announced without").into());
        }
        let written = incoming.as_ref().filter(|_| !self.dry_run);
        let part = written.map(|incoming| self.parts.open(incoming));
        let new_runs = self.registry.ledger().on_holes(holes)?;
        let (Some(incoming), Some(part)) = (incoming, part) else { return Ok(()) };
        let Some(layout) = incoming.layout() else { return Ok(()) };
        let range = |run: &Run| layout.byte_range(*run);
        let bytes = new_runs.iter().map(range).map(|range| range.end - range.start).sum();
        self.registry.stats.counts.record(&incoming.stats, ByteSource::Holes, bytes);
        let recorded = part.and_then(|part| {
            let is_stopped = || self.registry.session.is_stopped();
            new_runs
                .iter()
                .try_for_each(|run| {
                    if is_stopped() {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    part.clear_holes(&range(run), is_stopped)?;
                    part.record(&Record::Holes { run: *run }, false)
                })
                .map_err(|e| self.registry.write_failure(&incoming, &e))
        });
        self.parts.close(&incoming);
        if let Err(failure) = recorded
            && !self.registry.session.is_stopped()
        {
            self.registry.fail_file(holes.file, &failure);
        }
        Ok(())
    }

    /// Records the size of an open-ended file.
    pub(crate) fn on_file_end(&self, end: FileEnd) -> Result<(), Error> {
        let registry = &self.registry;
        let is_applied = registry.ledger().on_file_end(end)?;
        if let Some(incoming) = registry.find(end.file).filter(|_| is_applied) {
            incoming.set_end(end.size);
            add(&registry.stats.counts.bytes_total, end.size);
        }
        Ok(())
    }

    /// Acts on a file digest of the sender.
    pub(crate) fn on_digest(&self, id: u64, outcome: DigestOutcome) {
        self.completion.on_completed(self.apply_digest(id, outcome));
    }

    /// Puts a file in place whose digest matches; returns the number of files completed, which the
    /// caller reports to [`Completion`].
    fn apply_digest(&self, id: u64, outcome: DigestOutcome) -> usize {
        let registry = &self.registry;
        let hash = match outcome {
            DigestOutcome::Complete(hash) => hash,
            DigestOutcome::Ignored | DigestOutcome::Pending => return 0,
            DigestOutcome::Mismatch => {
                let text =
                    "the file's hash differs between the two sides: check the memory of both";
                registry.fail_file(id, &Failure::new(Cause::Verification, text));
                return 0;
            }
        };
        let Some(incoming) = registry.find(id) else { return 0 };
        match self.complete(&incoming) {
            Ok(true) => {}
            // The session is ending.
            Ok(false) => return 0,
            Err(failure) => {
                registry.fail_file(id, &failure);
                return 0;
            }
        }
        registry.finish(id);
        self.report_lost_time();
        registry.changes.report_file(&incoming, ChangeAction::Transfer);
        registry.stats.file_copied(|| registry.path(&incoming), incoming.size(), hash);
        registry.outbox.post_finished(&[id]);
        registry.link_placed(&incoming.entry, incoming.dir, &incoming.name);
        1
    }

    /// Puts a complete part file in place; false if the session ends before it is written out.
    fn complete(&self, incoming: &IncomingFile) -> Result<bool, Failure> {
        if let Some(output) = &self.output {
            // The last holes may have come after the last block.
            self.write_out(incoming);
            return Ok(output.is_complete());
        }
        let part = self.parts.open(incoming)?;
        if let (Some(size), Some(layout)) = (incoming.end(), incoming.layout()) {
            // The last block is padded.
            part.file.set_len(size).map_err(|e| self.registry.write_failure(incoming, &e))?;
            let padding = size.next_multiple_of(layout.block_bytes().into()) - size;
            add(&self.registry.stats.counts.bytes_discarded, padding);
        }
        let names = PartNames::of(&incoming.name);
        self.registry
            .dirs
            .open(incoming.dir)
            .and_then(|dir| {
                let (name, entry) = (&incoming.name, &incoming.entry);
                let place = (&names, name.as_os_str());
                let void = || part.void_journal();
                let commit = || self.placer.commit(&dir, place, entry, &part.file, void);
                let committed = self.registry.put_file(&dir, incoming, commit);
                committed.inspect_err(|_| part.invalidate_journal(&dir, &names))
            })
            .map(|()| true)
            .map_err(|e| self.registry.write_failure(incoming, &e))
    }

    /// Tells both users, once, that the file system did not keep a time.
    fn report_lost_time(&self) {
        if let Some(text) = self.placer.kept_times.take_loss() {
            self.registry.warn(PathBuf::new(), text);
        }
    }

    /// Drops a file that the sender gave up.
    pub(crate) fn on_aborted(&self, aborted: &Aborted) -> Result<(), Error> {
        let registry = &self.registry;
        if !registry.ledger().on_aborted(aborted.file)? {
            registry.link_withdrawn(aborted);
            return Ok(());
        }
        let Some(incoming) = registry.remove(aborted.file) else { return Ok(()) };
        if aborted.will_retry {
            // The next announcement is of another version, which may be too small for a part file.
            registry.discard_part(&incoming);
            registry.stats.counts.files_total.fetch_sub(1, Ordering::Relaxed);
            registry.stats.counts.bytes_total.fetch_sub(incoming.entry.size, Ordering::Relaxed);
            registry.stats.file_changed(&registry.path(&incoming), &incoming.stats);
        } else {
            let is_vanished = aborted.failure.cause() == Cause::SourceVanished;
            if is_vanished || incoming.entry.is_open_ended() {
                registry.discard_part(&incoming);
            }
            registry.stats.file_failed(registry.path(&incoming), &aborted.failure);
            registry.link_failed(&incoming.entry);
        }
        Ok(())
    }

    /// Keeps a file that the sender found to be equal.
    pub(crate) fn on_unchanged(&self, id: u64) {
        let registry = &self.registry;
        let Some(incoming) = registry.remove(id) else { return };
        registry.ledger().finish(id);
        registry.stats.counts.discard(&incoming.stats);
        let is_linked = incoming.compared.chosen().is_some();
        match if self.dry_run { Ok(()) } else { self.keep_unchanged(&incoming) } {
            Ok(()) => {
                // A link to an earlier copy is no change, as in rsync.
                if !is_linked {
                    registry.changes.report_file(&incoming, ChangeAction::Update);
                }
                registry.stats.file_skipped(|| registry.path(&incoming), incoming.entry.size);
                registry.link_placed(&incoming.entry, incoming.dir, &incoming.name);
            }
            Err(failure) => {
                registry.report_problem(registry.path(&incoming), failure);
                registry.link_failed(&incoming.entry);
            }
        }
        self.completion.on_completed(1);
    }

    /// Sets the metadata of an equal file, or links it to an earlier copy.
    fn keep_unchanged(&self, incoming: &IncomingFile) -> Result<(), Failure> {
        let registry = &self.registry;
        let failed = |e: io::Error| registry.write_failure(incoming, &e);
        let dir = registry.dirs.open(incoming.dir).map_err(failed)?;
        remove_part(&dir, &incoming.name, &registry.session);
        let Some(copy) = incoming.compared.chosen() else {
            let now = dir.stat(&incoming.name).map_err(failed)?;
            let (name, entry) = (&incoming.name, &incoming.entry);
            return registry.dirs.metadata.refresh(&dir, name, entry, now).map_err(failed);
        };
        registry.dirs.metadata.lost.add_all(&copy.lost);
        if copy.is_linked || registry.link_earlier(incoming, copy, false)? {
            return Ok(());
        }
        let text = format!(
            "cannot make {} a hard link to its earlier copy, which has too many or may have no \
             further ones: copy it without --checksum",
            registry.path(incoming).display()
        );
        Err(Failure::new(Cause::Io, text))
    }

    /// Records a file that a dry run found to differ.
    pub(crate) fn on_differs(&self, id: u64) {
        let registry = &self.registry;
        let Some(incoming) = registry.remove(id) else { return };
        registry.ledger().finish(id);
        let (path, bytes) = (|| registry.path(&incoming), incoming.entry.size);
        registry.changes.report_file(&incoming, ChangeAction::Transfer);
        registry.stats.file_completed(path, Outcome::WouldCopy, bytes, None);
        registry.link_placed(&incoming.entry, incoming.dir, &incoming.name);
        self.completion.on_completed(1);
    }
}

impl Drop for FileStore<'_> {
    /// Removes what a stopped session leaves of open-ended files.
    fn drop(&mut self) {
        self.registry.open_ended().iter().for_each(|file| self.registry.discard_part(file));
    }
}
