//! Rules for part files, their journals and their renames.
//!
//! The engine carries them out. A crash after any step leaves a part file with a correct journal,
//! one of the two alone, which is ignored, or the finished file.

use crate::hash::BlockHash;
use crate::journal::{ChangeTime, RecordedBlock};

/// Step that creates a part file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateStep {
    /// Remove the journal and its temporary file.
    RemoveJournal,
    /// Create the part file in place of any earlier one, and lock it.
    CreatePart,
    /// Set its size.
    SetSize,
    /// Create the journal, with its header.
    CreateJournal,
}

/// Step that puts a complete part file in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStep {
    /// Set the metadata of the complete part file.
    SetMetadata,
    /// Flush it, if each file is flushed.
    FlushPart,
    /// Check that its name still refers to it.
    CheckName,
    /// Rename it to its target.
    Rename,
    /// Flush the directory, if each file is flushed.
    FlushDirectory,
    /// Remove the journal.
    RemoveJournal,
}

/// Steps that create a part file. A journal must never vouch for a part file of another session.
pub const CREATE_STEPS: [CreateStep; 4] = [
    CreateStep::RemoveJournal,
    CreateStep::CreatePart,
    CreateStep::SetSize,
    CreateStep::CreateJournal,
];

/// Steps that put a complete part file in place.
pub const COMMIT_STEPS: [CommitStep; 6] = [
    CommitStep::SetMetadata,
    CommitStep::FlushPart,
    CommitStep::CheckName,
    CommitStep::Rename,
    CommitStep::FlushDirectory,
    CommitStep::RemoveJournal,
];

/// Longest time from a killed session's last record to its part file's change. In seconds.
/// (chosen: a block of 16 MiB at 0.3 MB/s is written after the record before it)
const MAX_UNRECORDED_SECS: i64 = 60;

/// Rule for blocks that an earlier session left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePolicy {
    /// Between hosts: every block is hashed again.
    Check,
    /// Between hosts, if the user trusts the disk: only blocks in doubt are hashed again.
    TrustJournal,
    /// Within a host, where nothing is hashed: blocks in doubt are copied again.
    SameHost,
}

/// Use of a block that an earlier session left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockUse {
    /// Taken as it is.
    Take,
    /// Taken if it has this hash.
    Check(BlockHash),
    /// Sent or copied again.
    Discard,
}

impl ResumePolicy {
    /// Returns the use of a block. `is_unaltered` is the result of [`is_unaltered`].
    #[must_use]
    pub fn block_use(self, block: &RecordedBlock, is_unaltered: bool) -> BlockUse {
        let is_trusted = block.is_durable && is_unaltered;
        match (self, block.hash) {
            (Self::TrustJournal, Some(_)) | (Self::SameHost, _) if is_trusted => BlockUse::Take,
            (_, Some(hash)) => BlockUse::Check(hash),
            (_, None) => BlockUse::Discard,
        }
    }
}

/// True if a part file was not changed after its session.
///
/// `closed` is its change time at the orderly end of the session. A session that was killed left
/// none: then the part file may have changed a little after its journal, at `journal_modified` in
/// seconds.
#[must_use]
pub fn is_unaltered(
    part_changed: ChangeTime,
    closed: Option<ChangeTime>,
    journal_modified: i64,
) -> bool {
    match closed {
        Some(closed) => part_changed == closed,
        None => part_changed.secs.saturating_sub(journal_modified) <= MAX_UNRECORDED_SECS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: BlockHash = BlockHash([3; 32]);

    #[test]
    fn block_between_hosts_needs_a_hash() {
        let block = |hash, is_durable| RecordedBlock { index: 0, hash, is_durable };
        let (hashed, copied) = (block(Some(HASH), true), block(None, true));
        let lost = block(Some(HASH), false);
        for (policy, uses) in [
            (ResumePolicy::Check, [BlockUse::Check(HASH); 3]),
            (
                ResumePolicy::TrustJournal,
                [BlockUse::Take, BlockUse::Check(HASH), BlockUse::Check(HASH)],
            ),
            (
                ResumePolicy::SameHost,
                [BlockUse::Take, BlockUse::Check(HASH), BlockUse::Check(HASH)],
            ),
        ] {
            let of = |block, unaltered| policy.block_use(block, unaltered);
            assert_eq!(
                [of(&hashed, true), of(&hashed, false), of(&lost, true)],
                uses,
                "{policy:?}"
            );
            let taken = policy == ResumePolicy::SameHost;
            let expected = if taken { BlockUse::Take } else { BlockUse::Discard };
            assert_eq!(of(&copied, true), expected, "{policy:?}");
            assert_eq!(of(&copied, false), BlockUse::Discard, "{policy:?}");
        }
    }

    #[test]
    fn part_changed_after_its_journal_is_altered() {
        let at = |secs, nanos| ChangeTime { secs, nanos };
        let killed = |changed, journal| is_unaltered(at(changed, 5), None, journal);
        assert!(killed(1000, 1000) && killed(10, 1000));
        assert!(killed(1000 + MAX_UNRECORDED_SECS, 1000));
        assert!(!killed(1001 + MAX_UNRECORDED_SECS, 1000));
        assert!(!killed(i64::MAX, i64::MIN));
        // A session that ended orderly leaves no time in doubt.
        let closed = |changed| is_unaltered(changed, Some(at(1000, 5)), 1000);
        assert!(closed(at(1000, 5)) && !closed(at(1000, 6)) && !closed(at(999, 5)));
    }

    /// Blocks of the modelled file.
    const BLOCKS: usize = 3;

    /// Directory with one target: each block holds the number of the version that wrote it.
    #[derive(Debug, Clone, Default)]
    struct Model {
        part: Option<[u8; BLOCKS]>,
        /// Version, and which blocks it records.
        journal: Option<(u8, [bool; BLOCKS])>,
        target: Option<[u8; BLOCKS]>,
    }

    /// Crash after this number of steps.
    struct Crash(usize);

    impl Crash {
        fn tick(&mut self) -> Result<(), ()> {
            self.0 = self.0.checked_sub(1).ok_or(())?;
            Ok(())
        }
    }

    impl Model {
        fn create_step(&mut self, step: CreateStep, version: u8) {
            match step {
                CreateStep::RemoveJournal => self.journal = None,
                CreateStep::CreatePart => self.part = Some([0; BLOCKS]),
                CreateStep::CreateJournal => self.journal = Some((version, [false; BLOCKS])),
                CreateStep::SetSize => {}
            }
        }

        fn commit_step(&mut self, step: CommitStep) {
            match step {
                CommitStep::Rename => self.target = self.part.take(),
                CommitStep::RemoveJournal => self.journal = None,
                CommitStep::SetMetadata
                | CommitStep::FlushPart
                | CommitStep::CheckName
                | CommitStep::FlushDirectory => {}
            }
        }

        /// Runs a session that receives a version, until it is done or crashes.
        fn receive(&mut self, version: u8, crash: &mut Crash) -> Result<(), ()> {
            let recorded = match (self.part, self.journal) {
                (Some(_), Some((of, blocks))) if of == version => Some(blocks),
                _ => None,
            };
            let here = match recorded {
                Some(blocks) => blocks,
                None => {
                    for step in CREATE_STEPS {
                        crash.tick()?;
                        self.create_step(step, version);
                    }
                    [false; BLOCKS]
                }
            };
            for index in (0..BLOCKS).filter(|index| !here[*index]) {
                crash.tick()?;
                self.part.as_mut().ok_or(())?[index] = version;
                crash.tick()?;
                self.journal.as_mut().ok_or(())?.1[index] = true;
            }
            for step in COMMIT_STEPS {
                crash.tick()?;
                self.commit_step(step);
            }
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn crashes_at_any_step_never_mix_versions(
            crashes in prop::collection::vec((1u8..4, 0usize..20), 0..6), last in 1u8..4,
        ) {
            let mut model = Model::default();
            for (version, steps) in crashes {
                let _ = model.receive(version, &mut Crash(steps));
                let is_whole = |blocks: [u8; BLOCKS]| blocks.iter().all(|of| *of == blocks[0]);
                prop_assert!(model.target.is_none_or(is_whole), "{:?}", model);
            }
            prop_assert_eq!(model.receive(last, &mut Crash(usize::MAX)), Ok(()));
            prop_assert_eq!(model.target, Some([last; BLOCKS]));
            prop_assert!(model.part.is_none() && model.journal.is_none());
        }
    }
}
