//! Receive ledger: accepted, refused and ignored data.

use crate::support::{MIB, hash_of, runs};
use bankfull_proto::blocks::{BlockSet, Layout, Run};
use bankfull_proto::hash::{BlockHash, FileHash, merge};
use bankfull_proto::limits::{
    HOLE_RUNS_PER_ENTRY, MAX_BLOCK_BYTES, MAX_FILE_BLOCKS, MAX_OUTSTANDING_FILES,
};
use bankfull_proto::receive::{Claim, DigestOutcome, ReceiveLedger};
use bankfull_proto::wire::WireError;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Size of file 1 in bytes: three blocks, the last one short.
const SIZE: u64 = 2 * MIB + 100;

fn layout() -> Layout {
    Layout::new(SIZE, MIB as u32).unwrap()
}

/// Returns a ledger with a file in blocks and a packed file. File 1 has three blocks; file 2 has
/// ten bytes.
fn two_files() -> ReceiveLedger {
    let mut ledger = ReceiveLedger::new();
    ledger.expect_blocks(1, layout(), &BlockSet::new(3));
    ledger.expect_packed(2, 10);
    ledger
}

fn claim(ledger: &mut ReceiveLedger, index: u64) -> Result<Claim, WireError> {
    let range = layout().range(index).unwrap();
    ledger.claim_block(1, range.start, (range.end - range.start) as u32)
}

/// Claims and verifies a block of file 1.
fn receive(ledger: &mut ReceiveLedger, index: u64) {
    assert_eq!(claim(ledger, index), Ok(Claim::Accept(index)));
    assert!(ledger.on_block_verified(1, index, hash_of(1, index)));
}

fn file_hash() -> FileHash {
    let hashes: Vec<BlockHash> = (0..3).map(|index| hash_of(1, index)).collect();
    merge(&layout(), &hashes).unwrap()
}

#[test]
fn announce_numbers_must_ascend_from_one() {
    let mut ledger = ReceiveLedger::new();
    assert_eq!(ledger.announce(0), Err(WireError::BadFileId(0)));
    assert_eq!(ledger.announce(1), Ok(()));
    assert_eq!(ledger.announce(5), Ok(()));
    assert_eq!(ledger.announce(5), Err(WireError::BadFileId(5)));
    assert_eq!(ledger.announce(4), Err(WireError::BadFileId(4)));
}

#[test]
fn file_digest_completes_a_file_of_all_blocks() {
    let mut ledger = two_files();
    ledger.announce(2).unwrap();
    for index in [2, 0, 1] {
        receive(&mut ledger, index);
    }
    assert_eq!(
        ledger.on_file_digest(1, Some(file_hash())),
        Ok(DigestOutcome::Complete(Some(file_hash())))
    );
    // Later messages about a complete file are ignored.
    assert_eq!(ledger.on_file_digest(1, None), Ok(DigestOutcome::Ignored));
    assert_eq!(ledger.on_early_digest(1, None), Ok(DigestOutcome::Ignored));
    assert_eq!(ledger.on_aborted(1), Ok(false));
    assert!(
        ledger.verified_blocks(1).is_some_and(|blocks| blocks.is_full()),
        "until it is in place"
    );
    ledger.finish(1);
    assert_eq!(ledger.outstanding_ids().collect::<Vec<_>>(), [2]);
}

#[test]
fn early_digest_applies_once_with_the_last_block() {
    let mut ledger = two_files();
    receive(&mut ledger, 0);
    assert_eq!(ledger.apply_early_digest(1), None);
    assert_eq!(ledger.on_early_digest(1, Some(file_hash())), Ok(DigestOutcome::Pending));
    receive(&mut ledger, 2);
    assert_eq!(ledger.apply_early_digest(1), None, "a block is missing");
    receive(&mut ledger, 1);
    assert_eq!(ledger.apply_early_digest(1), Some(DigestOutcome::Complete(Some(file_hash()))));
    assert_eq!(ledger.apply_early_digest(1), None);
    let mut whole = two_files();
    (0..3).for_each(|index| receive(&mut whole, index));
    let other = Some(FileHash([1; 32]));
    assert_eq!(whole.apply_early_digest(1), None, "no digest was received");
    assert_eq!(whole.on_early_digest(1, other), Ok(DigestOutcome::Mismatch));
    whole.give_up(1);
    assert_eq!(whole.on_early_digest(1, other), Ok(DigestOutcome::Ignored));
    assert_eq!(whole.on_early_digest(2, None), Err(WireError::BadFileId(2)), "a packed file");
}

#[test]
fn early_digest_is_voided_by_a_damaged_block() {
    for is_before in [true, false] {
        let mut ledger = two_files();
        receive(&mut ledger, 0);
        receive(&mut ledger, 1);
        if is_before {
            assert_eq!(ledger.on_early_digest(1, Some(file_hash())), Ok(DigestOutcome::Pending));
        }
        claim(&mut ledger, 2).unwrap();
        ledger.on_block_damaged(1, 2);
        if !is_before {
            assert_eq!(ledger.on_early_digest(1, Some(file_hash())), Ok(DigestOutcome::Ignored));
        }
        receive(&mut ledger, 2);
        assert_eq!(ledger.apply_early_digest(1), None);
        assert_eq!(ledger.on_file_digest(1, None), Ok(DigestOutcome::Complete(Some(file_hash()))));
    }
}

#[test]
fn claim_verified_or_claimed_block_is_refused() {
    let mut ledger = two_files();
    claim(&mut ledger, 1).unwrap();
    let twice = Err(WireError::DuplicateBlock { file: 1, index: 1 });
    assert_eq!(claim(&mut ledger, 1), twice);
    ledger.on_block_verified(1, 1, hash_of(1, 1));
    assert_eq!(claim(&mut ledger, 1), twice);
}

/// Returns a ledger of a file with these blocks of an earlier session.
fn resumed(left: &[u64]) -> ReceiveLedger {
    let mut ledger = ReceiveLedger::new();
    let mut set = BlockSet::new(3);
    for index in left {
        set.insert(*index);
    }
    ledger.expect_blocks(1, layout(), &set);
    ledger
}

#[test]
fn claim_block_of_an_earlier_session_is_refused() {
    let mut ledger = resumed(&[0, 2]);
    for index in [0, 2] {
        let duplicate = Err(WireError::DuplicateBlock { file: 1, index });
        assert_eq!(claim(&mut ledger, index), duplicate, "being checked");
        assert!(ledger.on_block_checked(1, index, None));
        assert!(!ledger.on_block_checked(1, index, None), "twice");
        assert_eq!(claim(&mut ledger, index), duplicate, "verified");
    }
    let present: Vec<u64> =
        ledger.verified_blocks(1).unwrap().runs().map(|run| run.first).collect();
    assert_eq!(present, [0, 2]);
    receive(&mut ledger, 1);
    let outcome = ledger.on_file_digest(1, None);
    assert_eq!(outcome, Ok(DigestOutcome::Complete(None)), "a block has no hash");
}

#[test]
fn file_with_unchecked_blocks_is_not_complete() {
    let mut ledger = resumed(&[0, 1]);
    receive(&mut ledger, 2);
    assert!(matches!(ledger.on_file_digest(1, None), Err(WireError::Unexpected(_))));
    assert_eq!(ledger.on_early_digest(1, Some(file_hash())), Ok(DigestOutcome::Pending));
    assert!(ledger.on_block_checked(1, 0, Some(hash_of(1, 0))));
    assert_eq!(ledger.apply_early_digest(1), None);
    assert!(ledger.on_block_checked(1, 1, Some(hash_of(1, 1))));
    let complete = DigestOutcome::Complete(Some(file_hash()));
    assert_eq!(ledger.apply_early_digest(1), Some(complete));
}

#[test]
fn failed_check_voids_the_early_digest_and_admits_the_block() {
    let mut ledger = resumed(&[0, 1, 2]);
    assert_eq!(ledger.on_early_digest(1, Some(file_hash())), Ok(DigestOutcome::Pending));
    for index in [0, 2] {
        assert!(ledger.on_block_checked(1, index, Some(hash_of(1, index))));
    }
    assert!(ledger.on_check_failed(1, 1));
    assert!(!ledger.on_check_failed(1, 1) && !ledger.on_block_checked(1, 1, None), "settled");
    assert_eq!(ledger.on_early_digest(1, Some(file_hash())), Ok(DigestOutcome::Ignored));
    receive(&mut ledger, 1);
    assert_eq!(ledger.apply_early_digest(1), None);
    let complete = DigestOutcome::Complete(Some(file_hash()));
    assert_eq!(ledger.on_file_digest(1, Some(file_hash())), Ok(complete));
}

#[test]
fn holes_replace_unchecked_blocks() {
    let mut ledger = resumed(&[0, 1]);
    let one = |first| Ok(vec![Run { first, count: 1 }]);
    assert_eq!(ledger.on_holes(&runs(1, &[(1, 1)])), one(1));
    assert!(!ledger.on_block_checked(1, 1, None) && !ledger.on_check_failed(1, 1));
    assert!(ledger.on_check_failed(1, 0));
    assert_eq!(ledger.on_holes(&runs(1, &[(0, 1)])), one(0));
    receive(&mut ledger, 2);
    assert_eq!(ledger.on_file_digest(1, None), Ok(DigestOutcome::Complete(None)));
}

#[test]
fn claim_released_block_is_accepted_again() {
    let mut ledger = two_files();
    for _ in 0..3 {
        assert_eq!(claim(&mut ledger, 0), Ok(Claim::Accept(0)));
        ledger.release(1, 0);
        assert_eq!(ledger.claim_packed(2, 10), Ok(Claim::Accept(0)));
        ledger.release(2, 0);
    }
    ledger.release(7, 0);
}

#[test]
fn claim_range_that_is_not_a_block_is_refused() {
    let mut ledger = two_files();
    let bad = [
        (3 * MIB, MIB as u32),
        (3 * MIB, 0),
        (1, MIB as u32),
        (MIB / 2, MIB as u32),
        (0, MIB as u32 - 1),
        (0, 2 * MIB as u32),
        (2 * MIB, MIB as u32),
        (2 * MIB, 99),
        (0, 0),
        (u64::MAX, 1),
    ];
    for (offset, len) in bad {
        let refused = ledger.claim_block(1, offset, len);
        assert_eq!(refused, Err(WireError::BadBlock { offset, len, size: SIZE }));
    }
}

#[test]
fn claim_unwanted_block_or_packed_file_is_refused() {
    let mut ledger = two_files();
    assert_eq!(ledger.claim_block(9, 0, 1), Err(WireError::BadFileId(9)));
    assert_eq!(ledger.claim_packed(9, 1), Err(WireError::BadFileId(9)));
    assert_eq!(ledger.claim_block(2, 0, 10), Err(WireError::BadFileId(2)), "it is packed");
    assert_eq!(ledger.claim_packed(1, SIZE), Err(WireError::BadFileId(1)), "it has blocks");
    assert_eq!(ledger.layout(1), Some(layout()));
    assert_eq!(ledger.layout(2), None);
    assert!(ledger.verified_blocks(2).is_none());
}

#[test]
fn claim_packed_file_once_and_with_announced_length() {
    let mut ledger = two_files();
    for len in [0, 9, 11] {
        let refused = ledger.claim_packed(2, len);
        let bad = WireError::BadBlock { offset: 0, len: len as u32, size: 10 };
        assert_eq!(refused, Err(bad));
    }
    assert_eq!(ledger.claim_packed(2, 10), Ok(Claim::Accept(0)));
    let twice = Err(WireError::DuplicateBlock { file: 2, index: 0 });
    assert_eq!(ledger.claim_packed(2, 10), twice);
    ledger.finish(2);
    assert_eq!(ledger.claim_packed(2, 10), Err(WireError::BadFileId(2)), "it is in place");
}

#[test]
fn given_up_file_ignores_late_data() {
    let mut ledger = two_files();
    claim(&mut ledger, 0).unwrap();
    ledger.give_up(1);
    ledger.give_up(2);
    assert_eq!(claim(&mut ledger, 0), Ok(Claim::Ignore));
    assert_eq!(claim(&mut ledger, 2), Ok(Claim::Ignore));
    assert_eq!(ledger.claim_packed(2, 10), Ok(Claim::Ignore));
    assert!(!ledger.on_block_verified(1, 0, hash_of(1, 0)), "a claimed block");
    assert!(!ledger.on_block_copied(1, 0));
    assert_eq!(ledger.on_holes(&runs(1, &[(1, 1)])), Ok(Vec::new()));
    assert_eq!(ledger.on_file_digest(1, None), Ok(DigestOutcome::Ignored));
    assert_eq!(ledger.outstanding_ids().count(), 0);
}

#[test]
fn aborted_gives_up_outstanding_files_only() {
    let mut ledger = two_files();
    ledger.announce(2).unwrap();
    ledger.finish(2);
    assert_eq!(ledger.on_aborted(1), Ok(true));
    assert_eq!(claim(&mut ledger, 0), Ok(Claim::Ignore), "a block in flight may still arrive");
    assert_eq!(
        ledger.on_aborted(2),
        Ok(false),
        "it is in place, which the sender does not know yet"
    );
    assert_eq!(ledger.claim_packed(2, 10), Err(WireError::BadFileId(2)));
    assert_eq!(ledger.on_aborted(3), Err(WireError::BadFileId(3)));
}

#[test]
fn file_digest_with_missing_blocks_is_an_error() {
    let mut ledger = two_files();
    receive(&mut ledger, 0);
    receive(&mut ledger, 1);
    claim(&mut ledger, 2).unwrap();
    let refused = ledger.on_file_digest(1, None);
    assert!(matches!(refused, Err(WireError::Unexpected(_))), "{refused:?}");
    for id in [2, 9] {
        assert_eq!(ledger.on_file_digest(id, None), Err(WireError::BadFileId(id)));
    }
}

#[test]
fn file_digest_with_another_hash_is_a_mismatch() {
    let mut ledger = two_files();
    (0..3).for_each(|index| receive(&mut ledger, index));
    assert_eq!(ledger.on_file_digest(1, Some(FileHash([1; 32]))), Ok(DigestOutcome::Mismatch));
    let empty = |remote| {
        let mut empty = ReceiveLedger::new();
        empty.expect_blocks(1, Layout::new(0, MIB as u32).unwrap(), &BlockSet::new(0));
        empty.on_file_digest(1, Some(remote))
    };
    let hash = FileHash::of(b"");
    assert_eq!(empty(hash), Ok(DigestOutcome::Complete(Some(hash))));
    assert_eq!(empty(FileHash([1; 32])), Ok(DigestOutcome::Mismatch));
}

#[test]
fn holes_are_recorded_once_and_complete_the_file() {
    let mut ledger = two_files();
    receive(&mut ledger, 0);
    let one = |first| Ok(vec![Run { first, count: 1 }]);
    assert_eq!(ledger.on_holes(&runs(1, &[(0, 2)])), one(1), "block 0 was verified");
    assert_eq!(claim(&mut ledger, 1), Err(WireError::DuplicateBlock { file: 1, index: 1 }));
    assert_eq!(ledger.on_holes(&runs(1, &[(1, 2)])), one(2));
    assert_eq!(ledger.on_file_digest(1, Some(file_hash())), Ok(DigestOutcome::Complete(None)));
}

#[test]
fn holes_of_the_largest_file_are_stored_as_one_run() {
    let block = u64::from(MAX_BLOCK_BYTES);
    let largest = Layout::new(MAX_FILE_BLOCKS * block, MAX_BLOCK_BYTES).unwrap();
    let mut ledger = ReceiveLedger::new();
    ledger.expect_blocks(1, largest, &BlockSet::new(MAX_FILE_BLOCKS));
    let all = Run { first: 0, count: MAX_FILE_BLOCKS };
    assert_eq!(ledger.on_holes(&runs(1, &[(0, MAX_FILE_BLOCKS)])), Ok(vec![all]));
    assert_eq!(ledger.verified_blocks(1).unwrap().runs().count(), 1);
    assert_eq!(ledger.on_file_digest(1, None), Ok(DigestOutcome::Complete(None)));
}

#[test]
fn holes_over_a_claimed_block_are_refused() {
    let mut ledger = two_files();
    claim(&mut ledger, 1).unwrap();
    let refused = ledger.on_holes(&runs(1, &[(0, 3)]));
    assert_eq!(refused, Err(WireError::DuplicateBlock { file: 1, index: 1 }));
}

#[test]
fn holes_outside_the_file_or_of_a_packed_file_are_refused() {
    let mut ledger = two_files();
    for bad in [(0, 0), (0, 4), (3, 1), (u64::MAX, 2)] {
        let refused = ledger.on_holes(&runs(1, &[bad]));
        assert!(matches!(refused, Err(WireError::BadRun { .. })), "{bad:?}: {refused:?}");
    }
    for id in [2, 9] {
        assert_eq!(ledger.on_holes(&runs(id, &[(0, 1)])), Err(WireError::BadFileId(id)));
    }
}

#[test]
fn copied_block_is_verified_without_a_hash() {
    let mut ledger = two_files();
    assert!(ledger.on_block_copied(1, 0));
    assert!(!ledger.on_block_copied(1, 0), "it was verified before");
    assert!(!ledger.on_block_copied(9, 0));
    receive(&mut ledger, 1);
    receive(&mut ledger, 2);
    assert_eq!(ledger.on_file_digest(1, None), Ok(DigestOutcome::Complete(None)));
}

proptest! {
    #[test]
    fn receive_ledger_agrees_with_sets_of_blocks(
        blocks in 1u64..9,
        present in prop::collection::btree_set(0u64..9, 0..4),
        steps in prop::collection::vec((0u8..5, 0u64..9), 0..80),
    ) {
        let layout = Layout::new(blocks * MIB, MIB as u32).unwrap();
        let mut verified: BTreeSet<u64> = present.into_iter().filter(|&i| i < blocks).collect();
        let mut claimed = BTreeSet::new();
        let mut ledger = ReceiveLedger::new();
        let mut left = BlockSet::new(blocks);
        for index in &verified {
            left.insert(*index);
        }
        ledger.expect_blocks(1, layout, &left);
        for &index in &verified {
            prop_assert!(ledger.on_block_checked(1, index, Some(hash_of(1, index))));
        }
        for (step, index) in steps {
            match step {
                0 | 1 => {
                    let fits = index < blocks && !verified.contains(&index);
                    let is_accepted = ledger.claim_block(1, index * MIB, MIB as u32).is_ok();
                    prop_assert_eq!(is_accepted, fits && claimed.insert(index));
                }
                2 if claimed.remove(&index) => {
                    verified.insert(index);
                    prop_assert!(ledger.on_block_verified(1, index, hash_of(1, index)));
                }
                3 if claimed.remove(&index) => ledger.release(1, index),
                4 if index < blocks => {
                    let fresh = ledger.on_holes(&runs(1, &[(index, 1)]));
                    prop_assert_eq!(fresh.is_err(), claimed.contains(&index));
                    if let Ok(fresh) = fresh {
                        prop_assert_eq!(fresh.len() == 1, verified.insert(index));
                    }
                }
                _ => {}
            }
            let runs_of_1 = ledger.verified_blocks(1).unwrap().runs();
            let recorded: BTreeSet<u64> =
                runs_of_1.flat_map(|r| r.first..r.first + r.count).collect();
            prop_assert_eq!(&recorded, &verified);
            let is_full = verified.len() as u64 == blocks;
            prop_assert_eq!(ledger.on_file_digest(1, None).is_ok(), is_full);
        }
    }
}

#[test]
fn runs_of_holes_count_as_outstanding_files() {
    let blocks = 1000;
    let mut ledger = ReceiveLedger::new();
    let layout = Layout::new(blocks * MIB, MIB as u32).unwrap();
    ledger.announce(2).unwrap();
    ledger.expect_blocks(1, layout, &BlockSet::new(blocks));
    ledger.expect_blocks(2, layout, &BlockSet::new(blocks));
    let every_second: Vec<(u64, u64)> = (0..blocks / 2).map(|n| (2 * n, 1)).collect();
    for file in [1, 2] {
        ledger.on_holes(&runs(file, &every_second)).unwrap();
    }
    let weight = every_second.len() / HOLE_RUNS_PER_ENTRY;
    assert_eq!(ledger.outstanding_files(), 2 + 1000 / HOLE_RUNS_PER_ENTRY);
    ledger.give_up(1);
    assert_eq!(ledger.outstanding_files(), 1 + weight);
    ledger.finish(2);
    assert_eq!(ledger.outstanding_files(), 0);
}

#[test]
fn late_data_of_the_latest_failed_files_is_ignored() {
    let mut ledger = ReceiveLedger::new();
    let last = 2 * 2 * u64::from(MAX_OUTSTANDING_FILES) + 100;
    ledger.announce(last).unwrap();
    // Every second one: none adjoins another.
    (1..=last / 2).for_each(|n| ledger.give_up(2 * n));
    assert_eq!(ledger.claim_packed(last, 1), Ok(Claim::Ignore));
    assert_eq!(ledger.claim_packed(2, 1), Err(WireError::BadFileId(2)), "long ago");
}
