//! The receiver's books: what is taken in, what is refused, and what is ignored because it may
//! come late.

use crate::support::{MIB, hash_of, runs};
use bankfull_proto::blocks::{Layout, Run};
use bankfull_proto::hash::{BlockHash, FileHash, merge};
use bankfull_proto::journal::Here;
use bankfull_proto::limits::{BLOCK_BYTES_MAX, FILE_BLOCKS_MAX};
use bankfull_proto::receive::{Claim, ReceiveLedger, Seal};
use bankfull_proto::wire::WireError;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A file of three blocks, the last one short.
const SIZE: u64 = 2 * MIB + 100;

fn layout() -> Layout {
    Layout::new(SIZE, MIB as u32).unwrap()
}

/// Books that wait for file 1, of three blocks, and for the packed file 2 of ten bytes.
fn books() -> ReceiveLedger {
    let mut ledger = ReceiveLedger::new();
    ledger.expect_blocks(1, layout(), &Here::default());
    ledger.expect_packed(2, 10);
    ledger
}

fn claim(ledger: &mut ReceiveLedger, index: u64) -> Result<Claim, WireError> {
    let range = layout().range(index).unwrap();
    ledger.claim_block(1, range.start, (range.end - range.start) as u32)
}

/// Takes a block in from its header to its acknowledgement.
fn take(ledger: &mut ReceiveLedger, index: u64) {
    assert_eq!(claim(ledger, index), Ok(Claim::Take(index)));
    assert!(ledger.verified(1, index, hash_of(1, index)));
}

fn whole_hash() -> FileHash {
    let hashes: Vec<BlockHash> = (0..3).map(|index| hash_of(1, index)).collect();
    merge(&layout(), &hashes).unwrap()
}

#[test]
fn numbers_of_entries_ascend_from_one() {
    let mut ledger = ReceiveLedger::new();
    assert_eq!(ledger.announce(0), Err(WireError::BadFileId(0)));
    assert_eq!(ledger.announce(1), Ok(()));
    assert_eq!(ledger.announce(5), Ok(()));
    assert_eq!(ledger.announce(5), Err(WireError::BadFileId(5)));
    assert_eq!(ledger.announce(4), Err(WireError::BadFileId(4)));
}

#[test]
fn a_file_whose_blocks_all_arrived_is_complete_with_its_hash() {
    let mut ledger = books();
    ledger.announce(2).unwrap();
    for index in [2, 0, 1] {
        take(&mut ledger, index);
    }
    assert_eq!(ledger.seal(1, Some(whole_hash())), Ok(Seal::Complete(Some(whole_hash()))));
    // From here on it is closed, and what comes of it counts no more.
    assert_eq!(ledger.seal(1, None), Ok(Seal::Ignore));
    assert_eq!(ledger.seal_ahead(1, None), Ok(Seal::Ignore));
    assert_eq!(ledger.aborted(1), Ok(false));
    assert!(ledger.here(1).is_some_and(|here| here.is_full()), "until it is in place");
    ledger.finish(1);
    assert_eq!(ledger.open_ids().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_seal_that_comes_ahead_counts_with_the_last_block_and_only_once() {
    let mut ledger = books();
    take(&mut ledger, 0);
    assert_eq!(ledger.seal_now(1), None);
    assert_eq!(ledger.seal_ahead(1, Some(whole_hash())), Ok(Seal::Later));
    take(&mut ledger, 2);
    assert_eq!(ledger.seal_now(1), None, "one is missing");
    take(&mut ledger, 1);
    assert_eq!(ledger.seal_now(1), Some(Seal::Complete(Some(whole_hash()))));
    assert_eq!(ledger.seal_now(1), None);
    let mut whole = books();
    (0..3).for_each(|index| take(&mut whole, index));
    let other = Some(FileHash([1; 32]));
    assert_eq!(whole.seal_now(1), None, "nobody has sealed it");
    assert_eq!(whole.seal_ahead(1, other), Ok(Seal::Mismatch));
    whole.give_up(1);
    assert_eq!(whole.seal_ahead(1, other), Ok(Seal::Ignore));
    assert_eq!(whole.seal_ahead(2, None), Err(WireError::BadFileId(2)), "a packed file");
}

#[test]
fn where_a_block_arrived_damaged_a_seal_ahead_counts_for_nothing() {
    for before in [true, false] {
        let mut ledger = books();
        take(&mut ledger, 0);
        take(&mut ledger, 1);
        if before {
            assert_eq!(ledger.seal_ahead(1, Some(whole_hash())), Ok(Seal::Later));
        }
        claim(&mut ledger, 2).unwrap();
        ledger.damaged(1, 2);
        if !before {
            assert_eq!(ledger.seal_ahead(1, Some(whole_hash())), Ok(Seal::Ignore));
        }
        take(&mut ledger, 2);
        assert_eq!(ledger.seal_now(1), None);
        assert_eq!(ledger.seal(1, None), Ok(Seal::Complete(Some(whole_hash()))));
    }
}

#[test]
fn a_block_that_was_verified_or_is_on_its_way_is_refused_the_second_time() {
    let mut ledger = books();
    claim(&mut ledger, 1).unwrap();
    let twice = Err(WireError::DuplicateBlock { file: 1, index: 1 });
    assert_eq!(claim(&mut ledger, 1), twice);
    ledger.verified(1, 1, hash_of(1, 1));
    assert_eq!(claim(&mut ledger, 1), twice);
}

#[test]
fn a_block_that_was_here_from_the_start_is_refused() {
    let mut ledger = ReceiveLedger::new();
    let holes = vec![Run { first: 2, count: 1 }];
    ledger.expect_blocks(1, layout(), &Here { blocks: vec![(0, Some(hash_of(1, 0)))], holes });
    for index in [0, 2] {
        assert_eq!(claim(&mut ledger, index), Err(WireError::DuplicateBlock { file: 1, index }));
    }
    let here: Vec<u64> = ledger.here(1).unwrap().runs().map(|run| run.first).collect();
    assert_eq!(here, [0, 2]);
    take(&mut ledger, 1);
    assert_eq!(ledger.seal(1, None), Ok(Seal::Complete(None)), "one block has no hash");
}

#[test]
fn a_block_that_was_released_may_come_again() {
    let mut ledger = books();
    for _ in 0..3 {
        assert_eq!(claim(&mut ledger, 0), Ok(Claim::Take(0)));
        ledger.release(1, 0);
        assert_eq!(ledger.claim_packed(2, 10), Ok(Claim::Take(0)));
        ledger.release(2, 0);
    }
    ledger.release(7, 0);
}

#[test]
fn what_is_no_block_of_the_file_is_refused() {
    let mut ledger = books();
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
fn a_block_or_packed_file_that_was_not_asked_for_is_refused() {
    let mut ledger = books();
    assert_eq!(ledger.claim_block(9, 0, 1), Err(WireError::BadFileId(9)));
    assert_eq!(ledger.claim_packed(9, 1), Err(WireError::BadFileId(9)));
    assert_eq!(ledger.claim_block(2, 0, 10), Err(WireError::BadFileId(2)), "it is packed");
    assert_eq!(ledger.claim_packed(1, SIZE), Err(WireError::BadFileId(1)), "it has blocks");
    assert_eq!(ledger.layout(1), Some(layout()));
    assert_eq!(ledger.layout(2), None);
    assert!(ledger.here(2).is_none());
}

#[test]
fn a_packed_file_comes_once_and_with_the_length_announced() {
    let mut ledger = books();
    for len in [0, 9, 11] {
        let refused = ledger.claim_packed(2, len);
        let bad = WireError::BadBlock { offset: 0, len: len as u32, size: 10 };
        assert_eq!(refused, Err(bad));
    }
    assert_eq!(ledger.claim_packed(2, 10), Ok(Claim::Take(0)));
    let twice = Err(WireError::DuplicateBlock { file: 2, index: 0 });
    assert_eq!(ledger.claim_packed(2, 10), twice);
    ledger.finish(2);
    assert_eq!(ledger.claim_packed(2, 10), Err(WireError::BadFileId(2)), "it is in place");
}

#[test]
fn whatever_comes_of_a_file_that_was_given_up_is_ignored() {
    let mut ledger = books();
    claim(&mut ledger, 0).unwrap();
    ledger.give_up(1);
    ledger.give_up(2);
    assert_eq!(claim(&mut ledger, 0), Ok(Claim::Ignore));
    assert_eq!(claim(&mut ledger, 2), Ok(Claim::Ignore));
    assert_eq!(ledger.claim_packed(2, 10), Ok(Claim::Ignore));
    assert!(!ledger.verified(1, 0, hash_of(1, 0)), "a block that was on its way");
    assert!(!ledger.copied(1, 0));
    assert_eq!(ledger.holes(&runs(1, &[(1, 1)])), Ok(Vec::new()));
    assert_eq!(ledger.seal(1, None), Ok(Seal::Ignore));
    assert_eq!(ledger.open_ids().count(), 0);
}

#[test]
fn a_sender_gives_up_what_is_still_open_and_nothing_that_it_did_not_announce() {
    let mut ledger = books();
    ledger.announce(2).unwrap();
    ledger.finish(2);
    assert_eq!(ledger.aborted(1), Ok(true));
    assert_eq!(claim(&mut ledger, 0), Ok(Claim::Ignore), "what is on its way may still come");
    assert_eq!(ledger.aborted(2), Ok(false), "it is in place, which the sender has not heard");
    assert_eq!(ledger.claim_packed(2, 10), Err(WireError::BadFileId(2)));
    assert_eq!(ledger.aborted(3), Err(WireError::BadFileId(3)));
}

#[test]
fn a_seal_with_blocks_missing_is_an_error() {
    let mut ledger = books();
    take(&mut ledger, 0);
    take(&mut ledger, 1);
    claim(&mut ledger, 2).unwrap();
    let refused = ledger.seal(1, None);
    assert!(matches!(refused, Err(WireError::Unexpected(_))), "{refused:?}");
    for id in [2, 9] {
        assert_eq!(ledger.seal(id, None), Err(WireError::BadFileId(id)));
    }
}

#[test]
fn two_hashes_that_differ_are_a_mismatch() {
    let mut ledger = books();
    (0..3).for_each(|index| take(&mut ledger, index));
    assert_eq!(ledger.seal(1, Some(FileHash([1; 32]))), Ok(Seal::Mismatch));
    let empty = |theirs| {
        let mut empty = ReceiveLedger::new();
        empty.expect_blocks(1, Layout::new(0, MIB as u32).unwrap(), &Here::default());
        empty.seal(1, Some(theirs))
    };
    let hash = FileHash::of(b"");
    assert_eq!(empty(hash), Ok(Seal::Complete(Some(hash))));
    assert_eq!(empty(FileHash([1; 32])), Ok(Seal::Mismatch));
}

#[test]
fn holes_are_entered_once_and_the_file_is_complete_without_their_hashes() {
    let mut ledger = books();
    take(&mut ledger, 0);
    let one = |first| Ok(vec![Run { first, count: 1 }]);
    assert_eq!(ledger.holes(&runs(1, &[(0, 2)])), one(1), "block 0 was here");
    assert_eq!(claim(&mut ledger, 1), Err(WireError::DuplicateBlock { file: 1, index: 1 }));
    assert_eq!(ledger.holes(&runs(1, &[(1, 2)])), one(2));
    assert_eq!(ledger.seal(1, Some(whole_hash())), Ok(Seal::Complete(None)));
}

#[test]
fn holes_of_the_largest_file_cost_no_more_than_their_message() {
    let block = u64::from(BLOCK_BYTES_MAX);
    let largest = Layout::new(FILE_BLOCKS_MAX * block, BLOCK_BYTES_MAX).unwrap();
    let mut ledger = ReceiveLedger::new();
    ledger.expect_blocks(1, largest, &Here::default());
    let all = Run { first: 0, count: FILE_BLOCKS_MAX };
    assert_eq!(ledger.holes(&runs(1, &[(0, FILE_BLOCKS_MAX)])), Ok(vec![all]));
    assert_eq!(ledger.here(1).unwrap().runs().count(), 1);
    assert_eq!(ledger.seal(1, None), Ok(Seal::Complete(None)));
}

#[test]
fn a_hole_over_a_block_on_its_way_is_refused() {
    let mut ledger = books();
    claim(&mut ledger, 1).unwrap();
    let refused = ledger.holes(&runs(1, &[(0, 3)]));
    assert_eq!(refused, Err(WireError::DuplicateBlock { file: 1, index: 1 }));
}

#[test]
fn holes_outside_the_file_or_of_another_kind_of_file_are_refused() {
    let mut ledger = books();
    for bad in [(0, 0), (0, 4), (3, 1), (u64::MAX, 2)] {
        let refused = ledger.holes(&runs(1, &[bad]));
        assert!(matches!(refused, Err(WireError::BadRun { .. })), "{bad:?}: {refused:?}");
    }
    for id in [2, 9] {
        assert_eq!(ledger.holes(&runs(id, &[(0, 1)])), Err(WireError::BadFileId(id)));
    }
}

#[test]
fn a_block_copied_within_the_host_is_here_without_a_hash() {
    let mut ledger = books();
    assert!(ledger.copied(1, 0));
    assert!(!ledger.copied(1, 0), "it was here before");
    assert!(!ledger.copied(9, 0));
    take(&mut ledger, 1);
    take(&mut ledger, 2);
    assert_eq!(ledger.seal(1, None), Ok(Seal::Complete(None)));
}

proptest! {
    #[test]
    fn the_books_agree_with_a_list_of_what_is_here_and_what_is_coming(
        blocks in 1u64..9,
        here in prop::collection::btree_set(0u64..9, 0..4),
        steps in prop::collection::vec((0u8..5, 0u64..9), 0..80),
    ) {
        let layout = Layout::new(blocks * MIB, MIB as u32).unwrap();
        let mut verified: BTreeSet<u64> = here.into_iter().filter(|&i| i < blocks).collect();
        let mut claimed = BTreeSet::new();
        let mut ledger = ReceiveLedger::new();
        let listed: Vec<_> = verified.iter().map(|&i| (i, Some(hash_of(1, i)))).collect();
        ledger.expect_blocks(1, layout, &Here { blocks: listed, holes: Vec::new() });
        for (step, index) in steps {
            match step {
                0 | 1 => {
                    let fits = index < blocks && !verified.contains(&index);
                    let taken = ledger.claim_block(1, index * MIB, MIB as u32).is_ok();
                    prop_assert_eq!(taken, fits && claimed.insert(index));
                }
                2 if claimed.remove(&index) => {
                    verified.insert(index);
                    prop_assert!(ledger.verified(1, index, hash_of(1, index)));
                }
                3 if claimed.remove(&index) => ledger.release(1, index),
                4 if index < blocks => {
                    let fresh = ledger.holes(&runs(1, &[(index, 1)]));
                    prop_assert_eq!(fresh.is_err(), claimed.contains(&index));
                    if let Ok(fresh) = fresh {
                        prop_assert_eq!(fresh.len() == 1, verified.insert(index));
                    }
                }
                _ => {}
            }
            let shown: BTreeSet<u64> =
                ledger.here(1).unwrap().runs().flat_map(|r| r.first..r.first + r.count).collect();
            prop_assert_eq!(&shown, &verified);
            prop_assert_eq!(ledger.seal(1, None).is_ok(), verified.len() as u64 == blocks);
        }
    }
}
