//! Part files of a receiving session: opened at the first block, closed when there are too many.

use super::incoming::IncomingFile;
use super::part_file::{Earlier, EarlierPart, LockRequest, LockWait, PartFile, UNKNOWN_BOOT};
use super::registry::FileRegistry;
use crate::base::part_names::PartNames;
use crate::base::sync::lock;
use bankfull_proto::blocks::Run;
use bankfull_proto::hash::BlockHash;
use bankfull_proto::part::{BlockUse, ResumePolicy};
use bankfull_proto::wire::control::{Cause, Failure};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest wait for another thread to close a part file that is reopened.
const OWN_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of open part files, with two descriptors each, or three with direct I/O.
/// (chosen: at most a third of the usual soft limit of 1024)
const MAX_OPEN_PARTS: u64 = 128;

/// Share of the limit of open files that a session's part files may be. (as above)
const LIMIT_SHARE: u64 = 8;

/// Block that an earlier run left, and is taken over once it is settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierBlock {
    pub(crate) index: u64,
    /// Hash in the journal, unless it was copied within the host.
    pub(crate) hash: Option<BlockHash>,
    /// True if it is taken without a check.
    pub(crate) is_taken: bool,
    /// True if the journal has a record of it.
    pub(crate) is_recorded: bool,
}

/// Part files of the outstanding files.
pub(crate) struct PartFiles<'a> {
    registry: Arc<FileRegistry<'a>>,
    /// Files with open part files, in the order of opening.
    open_order: Mutex<VecDeque<u64>>,
    boot: [u8; 16],
    policy: ResumePolicy,
}

impl<'a> PartFiles<'a> {
    pub(crate) fn new(registry: Arc<FileRegistry<'a>>, policy: ResumePolicy) -> Self {
        // Without a boot identity no earlier record is trusted without its hash, which is safe.
        let boot = bankfull_sys::boot_id().unwrap_or(UNKNOWN_BOOT);
        Self { registry, open_order: Mutex::default(), boot, policy }
    }

    /// Returns the part file; opens or creates it at the first block.
    pub(crate) fn open(&self, incoming: &IncomingFile) -> Result<Arc<PartFile>, Failure> {
        let mut slot = lock(&incoming.part);
        if let Some(part) = &slot.open {
            return Ok(Arc::clone(part));
        }
        let part = match slot.closed.upgrade() {
            Some(part) => part,
            None => Arc::new(self.make(incoming, slot.exists)?),
        };
        slot.open = Some(Arc::clone(&part));
        slot.exists = true;
        drop(slot);
        self.close_excess(incoming.entry.id);
        Ok(part)
    }

    /// Closes a part file until its blocks arrive, which may be much later; descriptors are few.
    pub(crate) fn close(&self, incoming: &IncomingFile) {
        let mut slot = lock(&incoming.part);
        if let Some(part) = slot.open.take() {
            slot.closed = Arc::downgrade(&part);
        }
    }

    /// Closes the oldest open part file if there are too many. Threads that use it keep it; the
    /// file's next block reopens it.
    fn close_excess(&self, opened: u64) {
        let excess = {
            let mut order = lock(&self.open_order);
            order.push_back(opened);
            let max = MAX_OPEN_PARTS.min(bankfull_sys::max_open_files() / LIMIT_SHARE).max(1);
            if order.len() as u64 > max { order.pop_front() } else { None }
        };
        if let Some(other) = excess.and_then(|id| self.registry.find(id)) {
            self.close(&other);
        }
    }

    fn make(&self, incoming: &IncomingFile, exists: bool) -> Result<PartFile, Failure> {
        if self.registry.dry_run {
            return Err(Failure::new(Cause::Protocol, "received content in a dry run"));
        }
        let layout = incoming
            .layout()
            .ok_or_else(|| Failure::new(Cause::Protocol, "received a block of a packed file"))?;
        self.registry.reserve(incoming, 0)?;
        let dir = self.registry.dirs.open(incoming.dir);
        let dir = dir.map_err(|e| self.registry.write_failure(incoming, &e))?;
        let names = PartNames::of(&incoming.name);
        let entry = &incoming.entry;
        let warn = |text| self.registry.warn(PathBuf::new(), text);
        let part = if exists {
            let resume =
                |req: &LockRequest<'_>| PartFile::resume(&dir, &names, entry, self.boot, req);
            let found = resume(&LockRequest {
                own_session_timeout: OWN_SESSION_TIMEOUT,
                ..self.lock_request(&warn)
            })?;
            self.check_resumed(incoming, found)?
        } else {
            let create = |request: &LockRequest<'_>| {
                PartFile::create(&dir, &names, entry, layout, self.boot, request)
            };
            create(&self.lock_request(&warn))?
        };
        Ok(part.prepare(entry, self.registry.session.overrides.direct))
    }

    /// Returns a lock request of this session that waits for no other one.
    ///
    /// The caller may be the thread of a data stream, on which other files wait.
    fn lock_request<'r>(&'r self, warn: &'r dyn Fn(String)) -> LockRequest<'r> {
        LockRequest {
            session: &self.registry.session,
            own_session_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            wait: None,
            warn,
        }
    }

    /// Checks that a reopened part file holds every block that the ledger counts.
    fn check_resumed(&self, incoming: &IncomingFile, found: Earlier) -> Result<PartFile, Failure> {
        let id = incoming.entry.id;
        if let (Earlier::Found(found), Some(layout)) = (found, incoming.layout()) {
            let EarlierPart { part, recorded, is_unaltered, .. } = *found;
            let here = recorded.set(layout.count());
            let ledger = self.registry.ledger();
            let counted = ledger.verified_blocks(id).map(|set| set.runs().collect::<Vec<_>>());
            let is_here = |run: Run| {
                here.next_missing(run.first).is_none_or(|missing| missing >= run.first + run.count)
            };
            if is_unaltered && counted.into_iter().flatten().all(is_here) {
                return Ok(part);
            }
        }
        let path = self.registry.path(incoming);
        let text = format!(
            "the received part of {} changed meanwhile: run the same command again",
            path.display()
        );
        Err(Failure::new(Cause::SourceChanged, text))
    }

    /// Returns the blocks that an earlier run left of a file; `None` if another session holds them.
    ///
    /// `wait` is the wait so far, at most `idle_timeout` for an owner that writes nothing.
    pub(crate) fn find_earlier(
        &self,
        incoming: &IncomingFile,
        wait: &Mutex<LockWait>,
        idle_timeout: Duration,
    ) -> Result<Option<VecDeque<EarlierBlock>>, Failure> {
        let Ok(dir) = self.registry.dirs.open(incoming.dir) else {
            return Ok(Some(VecDeque::new()));
        };
        let names = PartNames::of(&incoming.name);
        let (entry, boot) = (&incoming.entry, self.boot);
        let warn = |text| self.registry.warn(PathBuf::new(), text);
        let request = LockRequest { idle_timeout, wait: Some(wait), ..self.lock_request(&warn) };
        let earlier = match PartFile::resume(&dir, &names, entry, boot, &request)? {
            Earlier::Found(found) => *found,
            Earlier::Missing => return Ok(Some(VecDeque::new())),
            Earlier::Held => return Ok(None),
        };
        let blocks = self.usable_blocks(&earlier);
        // Kept open and locked while descriptors suffice, so that no other session changes what the
        // ledger counts.
        let mut slot = lock(&incoming.part);
        let direct = self.registry.session.overrides.direct;
        slot.open = Some(Arc::new(earlier.part.prepare(entry, direct)));
        slot.exists = true;
        drop(slot);
        self.close_excess(incoming.entry.id);
        Ok(Some(blocks))
    }

    /// Returns the blocks of an earlier run that the policy takes or checks.
    fn usable_blocks(&self, earlier: &EarlierPart) -> VecDeque<EarlierBlock> {
        let recorded = earlier.recorded.blocks.iter();
        recorded
            .filter_map(|block| {
                let is_taken = match self.policy.block_use(block, earlier.is_unaltered) {
                    BlockUse::Take => true,
                    BlockUse::Check(_) => false,
                    BlockUse::Discard => return None,
                };
                let is_recorded = block.is_durable || !earlier.is_rewritten;
                Some(EarlierBlock { index: block.index, hash: block.hash, is_taken, is_recorded })
            })
            .collect()
    }
}
