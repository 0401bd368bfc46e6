//! Send ledger: assignment, reassignment and completion.

use crate::support::{MIB, dir, hash_of, in_blocks, packed, runs, symlink, want};
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHash, FileHash, merge};
use bankfull_proto::limits::{
    MAX_OUTSTANDING_FILES, MAX_PACK_BYTES, MAX_PACK_FILES, PACK_TARGET_BYTES,
};
use bankfull_proto::send::{NextStep, SendLedger, Work};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Entry, Verdict, Want};
use bankfull_proto::wire::data::PACK_RECORD_BYTES;
use proptest::prelude::*;

/// Returns a ledger with these entries, at the end of the walk.
pub(crate) fn announced(entries: &[Entry]) -> SendLedger {
    let mut ledger = SendLedger::default();
    for entry in entries {
        ledger.announce(entry).unwrap();
    }
    ledger.on_entries_end();
    ledger
}

/// Returns a ledger with these entries, all wanted.
pub(crate) fn wanted(entries: &[Entry]) -> SendLedger {
    let mut ledger = announced(entries);
    for entry in entries {
        ledger.on_want(&want(entry.id, Verdict::Send)).unwrap();
    }
    ledger
}

/// Assigns all work to one stream.
pub(crate) fn drain(ledger: &mut SendLedger, stream: u32) -> Vec<Work> {
    std::iter::from_fn(|| ledger.next_work(stream)).collect()
}

/// Returns the block numbers of one file in assigned work.
pub(crate) fn blocks(work: &[Work], of: u64) -> Vec<u64> {
    let block = |work: &Work| match work {
        Work::Block { file, index } if *file == of => Some(*index),
        _ => None,
    };
    work.iter().filter_map(block).collect()
}

pub(crate) fn block(file: u64, index: u64) -> Work {
    Work::Block { file, index }
}

fn compare(file: u64) -> Want {
    Want { hash: Some([7; 32]), ..want(file, Verdict::IfDiffers) }
}

#[test]
fn next_work_assigns_each_block_once_in_order() {
    let mut ledger = wanted(&[in_blocks(1, 3), in_blocks(2, 2)]);
    let streams = [1, 3, 2, 0, 5].map(|stream| ledger.next_work(stream).unwrap());
    assert_eq!(streams, [block(1, 0), block(1, 1), block(1, 2), block(2, 0), block(2, 1)]);
    assert_eq!(ledger.next_work(1), None);
}

#[test]
fn next_work_without_a_want_is_none() {
    let mut ledger = announced(&[in_blocks(1, 3), packed(2, 5)]);
    assert_eq!(ledger.next_work(0), None);
    assert_eq!(ledger.next_work(1), None);
}

#[test]
fn stream_ended_requeues_unacknowledged_work() {
    let mut ledger = wanted(&[in_blocks(1, 4), packed(2, 10), packed(3, 10)]);
    for (stream, index) in [(1, 0), (3, 1), (1, 2), (3, 3)] {
        assert_eq!(ledger.next_work(stream), Some(block(1, index)));
    }
    assert_eq!(ledger.next_work(1), Some(Work::Pack(vec![2, 3])));
    assert_eq!(ledger.on_acks(&runs(1, &[(2, 1)])), Ok(NextStep::Nothing));
    assert_eq!(ledger.on_finished(3), Ok(NextStep::Completed));
    assert!(ledger.on_stream_ended(1));
    assert_eq!(drain(&mut ledger, 5), [block(1, 0), Work::Pack(vec![2])]);
    assert!(!ledger.on_stream_ended(1), "requeued once");
    assert!(!ledger.on_stream_ended(9), "a stream that carried nothing");
    assert_eq!(ledger.next_work(5), None);
}

#[test]
fn prefetched_block_belongs_to_its_stream_until_it_ends() {
    let mut ledger = wanted(&[in_blocks(1, 6), in_blocks(2, 6)]);
    assert_eq!(ledger.next_work(1), Some(block(1, 0)));
    assert_eq!(ledger.prefetch_block(1, 1, 2), Some(1));
    assert_eq!(ledger.next_work(3), Some(block(1, 2)));
    assert_eq!(ledger.prefetch_block(3, 2, 2), None, "another file is not next");
    assert!(ledger.on_stream_ended(1));
    assert_eq!([ledger.next_work(5), ledger.next_work(5)], [Some(block(1, 0)), Some(block(1, 1))]);
    assert_eq!(ledger.prefetch_block(5, 1, 2), Some(3));
    assert_eq!(ledger.prefetch_block(5, 1, 3), None, "too few are left");
    assert_eq!(blocks(&drain(&mut ledger, 7), 1), [4, 5]);
}

#[test]
fn prefetch_block_yields_to_work_that_is_next() {
    let mut ledger = wanted(&[in_blocks(1, 9), packed(2, 10)]);
    assert_eq!(ledger.next_work(1), Some(block(1, 0)));
    assert_eq!(ledger.prefetch_block(2, 1, 1), None, "this stream prefers packs");
    assert_eq!(ledger.prefetch_block(1, 1, 1), Some(1));
    assert_eq!(ledger.next_work(2), Some(Work::Pack(vec![2])));
    assert_eq!(ledger.prefetch_block(2, 1, 1), Some(2));
    ledger.announce(&in_blocks(3, 2)).unwrap();
    ledger.on_want(&compare(3)).unwrap();
    assert_eq!(ledger.prefetch_block(1, 1, 1), None, "a comparison waits");
    // Acknowledged blocks are skipped without assigning blocks of the next file.
    let mut ledger = wanted(&[in_blocks(1, 3), in_blocks(2, 3)]);
    assert_eq!(drain(&mut ledger, 1).len(), 6);
    assert!(ledger.on_stream_ended(1));
    assert_eq!(ledger.next_work(1), Some(block(1, 0)));
    ledger.on_acks(&runs(1, &[(1, 2)])).unwrap();
    assert_eq!(ledger.prefetch_block(1, 1, 1), None);
    assert_eq!(drain(&mut ledger, 3), [block(2, 0), block(2, 1), block(2, 2)]);
}

#[test]
fn stream_ended_requeues_packs_in_order() {
    let files: Vec<Entry> = (1..=40).map(|id| packed(id, 1)).collect();
    let mut ledger = wanted(&files);
    let first = drain(&mut ledger, 0);
    assert!(ledger.on_stream_ended(0));
    assert_eq!(drain(&mut ledger, 0), first);
}

#[test]
fn acknowledged_block_is_never_assigned_again() {
    let mut ledger = wanted(&[in_blocks(1, 2)]);
    drain(&mut ledger, 1);
    ledger.on_acks(&runs(1, &[(0, 1)])).unwrap();
    let refused = ledger.on_nack(1, 0);
    assert!(matches!(refused, Err(WireError::Unexpected(_))), "{refused:?}");
    assert!(ledger.on_stream_ended(1));
    assert_eq!(drain(&mut ledger, 3), [block(1, 1)]);
}

#[test]
fn third_nack_of_a_block_gives_its_file_up() {
    let mut ledger = wanted(&[in_blocks(1, 2), packed(2, 10)]);
    drain(&mut ledger, 1);
    for _ in 0..2 {
        assert_eq!(ledger.on_nack(1, 1), Ok(NextStep::Work));
        assert_eq!(ledger.on_nack(2, 0), Ok(NextStep::Work));
        assert_eq!(drain(&mut ledger, 1), [block(1, 1), Work::Pack(vec![2])]);
    }
    assert_eq!(ledger.on_nack(1, 1), Ok(NextStep::GiveUp));
    assert_eq!(ledger.on_nack(2, 0), Ok(NextStep::GiveUp));
    assert_eq!(ledger.next_work(1), None, "a file given up is not queued");
}

#[test]
fn nacks_of_different_blocks_do_not_add_up() {
    let mut ledger = wanted(&[in_blocks(1, 5)]);
    drain(&mut ledger, 1);
    for index in 0..5 {
        assert_eq!(ledger.on_nack(1, index), Ok(NextStep::Work), "block {index}");
    }
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [0, 1, 2, 3, 4]);
}

#[test]
fn nack_of_a_block_that_is_not_in_flight_is_an_error() {
    let mut ledger = wanted(&[in_blocks(1, 2)]);
    assert!(matches!(ledger.on_nack(1, 0), Err(WireError::Unexpected(_))));
    ledger.next_work(1);
    assert_eq!(ledger.on_nack(1, 0), Ok(NextStep::Work));
    assert!(matches!(ledger.on_nack(1, 0), Err(WireError::Unexpected(_))), "twice");
    assert!(matches!(ledger.on_nack(1, 7), Err(WireError::Unexpected(_))), "past the end");
}

#[test]
fn dropped_file_ignores_late_messages() {
    let mut ledger = wanted(&[in_blocks(1, 2), packed(2, 1)]);
    drain(&mut ledger, 1);
    ledger.drop_file(1);
    ledger.drop_file(2);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(NextStep::Nothing));
    assert_eq!(ledger.on_nack(1, 0), Ok(NextStep::Nothing));
    assert_eq!(ledger.on_nack(2, 0), Ok(NextStep::Nothing));
    assert_eq!(ledger.on_finished(1), Ok(NextStep::Nothing));
    assert!(!ledger.on_stream_ended(1));
    assert!(ledger.is_complete());
}

#[test]
fn file_digest_is_due_with_the_last_acknowledgement() {
    let mut ledger = wanted(&[in_blocks(1, 3)]);
    drain(&mut ledger, 1);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 1)])), Ok(NextStep::Nothing));
    assert_eq!(ledger.on_acks(&runs(1, &[(2, 1)])), Ok(NextStep::Nothing));
    assert_eq!(ledger.on_acks(&runs(1, &[(1, 1)])), Ok(NextStep::SendDigest));
    assert_eq!(ledger.on_acks(&runs(1, &[(1, 1)])), Ok(NextStep::Nothing), "once");
    assert!(!ledger.is_complete(), "not finished");
    assert_eq!(ledger.on_finished(1), Ok(NextStep::Completed));
    assert!(ledger.is_complete());
}

/// Returns a ledger with a file of two blocks that accepts an early digest. With `has_one`, the
/// receiver has the first block.
fn early(has_one: bool) -> SendLedger {
    let mut ledger = announced(&[in_blocks(1, 2)]);
    let have = if has_one { runs(1, &[(0, 1)]).runs } else { Vec::new() };
    let want = Want { have, accepts_early_digest: Some(true), ..want(1, Verdict::Send) };
    assert_eq!(ledger.on_want(&want), Ok(NextStep::Work));
    drain(&mut ledger, 1);
    ledger
}

#[test]
fn early_digest_is_due_with_the_last_read_block() {
    let mut ledger = early(false);
    assert_eq!(ledger.on_block_sent(1, 1, hash_of(1, 1)), NextStep::Nothing);
    assert!(!ledger.is_resend(1, 0));
    assert_eq!(ledger.on_block_sent(1, 0, hash_of(1, 0)), NextStep::SendEarlyDigest);
    assert_eq!(ledger.on_block_sent(1, 0, hash_of(1, 0)), NextStep::Nothing, "it was sent again");
    assert!(ledger.is_resend(1, 0) && !ledger.is_resend(1, 7));
    assert!(ledger.record_early_digest(1));
    assert_eq!(
        ledger.on_acks(&runs(1, &[(0, 2)])),
        Ok(NextStep::Nothing),
        "no final digest follows"
    );
    assert_eq!(ledger.on_finished(1), Ok(NextStep::Completed));
    let mut ledger = early(true);
    assert_eq!(ledger.on_block_sent(1, 1, hash_of(1, 1)), NextStep::SendEarlyDigest);
    // Finished may arrive before the last acknowledgement.
    assert!(ledger.record_early_digest(1));
    assert_eq!(ledger.on_finished(1), Ok(NextStep::Completed));
    let mut ledger = wanted(&[in_blocks(1, 1)]);
    drain(&mut ledger, 1);
    assert_eq!(
        ledger.on_block_sent(1, 0, hash_of(1, 0)),
        NextStep::Nothing,
        "the receiver does not accept it"
    );
}

#[test]
fn damaged_block_requires_a_final_digest() {
    let mut ledger = early(false);
    ledger.on_block_sent(1, 0, hash_of(1, 0));
    assert_eq!(ledger.on_block_sent(1, 1, hash_of(1, 1)), NextStep::SendEarlyDigest);
    assert!(ledger.record_early_digest(1));
    assert_eq!(ledger.on_nack(1, 0), Ok(NextStep::Work));
    assert!(!ledger.record_early_digest(1), "after a damaged block");
    drain(&mut ledger, 1);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(NextStep::SendDigest));
    // All blocks are acknowledged before the early digest.
    let mut ledger = early(true);
    assert_eq!(ledger.on_block_sent(1, 1, hash_of(1, 1)), NextStep::SendEarlyDigest);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(NextStep::SendDigest));
    assert!(!ledger.record_early_digest(1), "a final digest follows");
}

#[test]
fn file_digest_of_a_present_file_is_due_once_it_is_checked() {
    let mut ledger = announced(&[in_blocks(1, 3), in_blocks(2, 0)]);
    ledger.on_have(&runs(1, &[(0, 2)])).unwrap();
    let rest = Want { have: runs(1, &[(2, 1)]).runs, ..want(1, Verdict::Send) };
    assert_eq!(ledger.on_want(&rest), Ok(NextStep::Work), "the receiver checks it");
    assert_eq!(ledger.next_work(1), None);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 3)])), Ok(NextStep::SendDigest));
    assert_eq!(ledger.on_want(&want(2, Verdict::Send)), Ok(NextStep::SendDigest), "an empty file");
    assert_eq!(ledger.next_work(1), None);
}

#[test]
fn finished_before_the_file_digest_is_an_error() {
    let mut ledger = announced(&[in_blocks(1, 1), packed(2, 1)]);
    for id in [1, 2] {
        let refused = ledger.on_finished(id);
        assert!(matches!(refused, Err(WireError::Unexpected(_))), "{id}: {refused:?}");
        ledger.on_want(&want(id, Verdict::Send)).unwrap();
    }
    let early = ledger.on_finished(1);
    assert!(matches!(early, Err(WireError::Unexpected(_))), "{early:?}");
}

#[test]
fn symlink_is_completed_by_finished_or_verdict() {
    let mut ledger = announced(&[symlink(1), symlink(2), symlink(3)]);
    assert_eq!(ledger.on_finished(1), Ok(NextStep::Completed));
    assert_eq!(ledger.on_want(&want(2, Verdict::Skip)), Ok(NextStep::Completed));
    assert_eq!(ledger.on_want(&want(3, Verdict::Send)), Ok(NextStep::Nothing));
    assert_eq!(ledger.next_work(0), None);
    assert_eq!(ledger.on_finished(3), Ok(NextStep::Completed));
    assert!(ledger.is_complete());
}

#[test]
fn directory_is_not_recorded() {
    let mut ledger = announced(&[dir(1)]);
    assert!(ledger.is_complete());
    assert_eq!(ledger.on_want(&want(1, Verdict::Send)), Err(WireError::BadFileId(1)));
}

#[test]
fn verdict_other_than_send_completes_the_file() {
    let mut ledger = announced(&[in_blocks(1, 1), packed(2, 1), in_blocks(3, 1)]);
    for (id, verdict) in [(1, Verdict::Skip), (2, Verdict::Refused), (3, Verdict::WouldSend)] {
        assert!(ledger.is_outstanding(id));
        assert_eq!(ledger.on_want(&want(id, verdict)), Ok(NextStep::Completed));
        assert!(!ledger.is_outstanding(id));
    }
    assert!(ledger.is_complete());
}

#[test]
fn second_or_unknown_want_is_an_error() {
    let mut ledger = wanted(&[in_blocks(1, 1)]);
    assert_eq!(ledger.on_want(&want(1, Verdict::Send)), Err(WireError::BadFileId(1)));
    assert_eq!(ledger.on_want(&want(2, Verdict::Send)), Err(WireError::BadFileId(2)));
}

#[test]
fn comparison_completes_equal_and_queues_different_files() {
    let mut ledger = announced(&[in_blocks(1, 2), packed(2, 3), in_blocks(3, 1)]);
    for id in [1, 2, 3] {
        assert_eq!(ledger.on_want(&compare(id)), Ok(NextStep::Work));
    }
    let hash = FileHash([7; 32]);
    let expected = [1, 2, 3].map(|file| Work::Compare { file, hash });
    assert_eq!(drain(&mut ledger, 0), expected);
    assert_eq!(ledger.on_compared(1, false), NextStep::Work);
    assert_eq!(ledger.on_compared(2, false), NextStep::Work);
    assert_eq!(ledger.on_compared(3, true), NextStep::Completed);
    assert_eq!(drain(&mut ledger, 1), [block(1, 0), block(1, 1), Work::Pack(vec![2])]);
    assert_eq!(ledger.outstanding_files(), 2);
}

#[test]
fn comparison_needs_a_hash_and_keeps_verified_blocks() {
    let mut ledger = announced(&[in_blocks(1, 3), in_blocks(2, 1)]);
    let refused = ledger.on_want(&want(1, Verdict::IfDiffers));
    assert!(matches!(refused, Err(WireError::Malformed(_))), "{refused:?}");
    let have = Want { have: runs(1, &[(1, 1)]).runs, ..compare(1) };
    assert_eq!(ledger.on_want(&have), Ok(NextStep::Work));
    let whole = Want { have: runs(2, &[(0, 1)]).runs, ..compare(2) };
    assert_eq!(ledger.on_want(&whole), Ok(NextStep::Work));
    assert_eq!(drain(&mut ledger, 1).len(), 2);
    assert_eq!(ledger.on_compared(1, false), NextStep::Work);
    assert_eq!(ledger.on_compared(2, false), NextStep::Work);
    assert_eq!(ledger.on_acks(&runs(2, &[(0, 1)])), Ok(NextStep::SendDigest));
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [0, 2]);
}

#[test]
fn dropped_file_leaves_every_queue() {
    let entries = [in_blocks(1, 2), in_blocks(2, 1), packed(3, 1), packed(4, 1)];
    let mut ledger = wanted(&entries);
    ledger.next_work(1);
    ledger.drop_file(1);
    ledger.drop_file(3);
    assert_eq!(drain(&mut ledger, 1), [block(2, 0), Work::Pack(vec![4])]);
    assert!(ledger.on_stream_ended(1));
    assert_eq!(drain(&mut ledger, 1), [block(2, 0), Work::Pack(vec![4])]);
    ledger.on_block_sent(1, 0, hash_of(1, 0));
    assert_eq!(ledger.file_hash(1), None);
}

#[test]
fn holes_and_verified_blocks_are_never_assigned() {
    let mut ledger = announced(&[in_blocks(1, 8)]);
    ledger.on_have(&runs(1, &[(0, 1), (6, 1)])).unwrap();
    ledger.on_holes(runs(1, &[(2, 2)]), MAX_OUTSTANDING_FILES).unwrap();
    let more = Want { have: runs(1, &[(5, 1)]).runs, ..want(1, Verdict::Send) };
    assert_eq!(ledger.on_want(&more), Ok(NextStep::Work));
    assert_eq!(ledger.unconfirmed_bytes(1), 3 * MIB);
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [1, 4, 7]);
    assert!(ledger.on_stream_ended(1));
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [1, 4, 7], "after a lost stream");
    let acks = runs(1, &[(1, 1), (4, 1), (7, 1)]);
    assert_eq!(ledger.on_acks(&acks), Ok(NextStep::Nothing), "others are being checked");
    let checked = runs(1, &[(0, 1), (5, 2)]);
    assert_eq!((ledger.resumed_bytes(&acks), ledger.resumed_bytes(&checked)), (0, 3 * MIB));
    assert_eq!(ledger.on_acks(&checked), Ok(NextStep::SendDigest));
    assert_eq!(ledger.unconfirmed_bytes(1), 0);
}

#[test]
fn holes_of_a_compared_file_follow_the_comparison() {
    let mut ledger = announced(&[in_blocks(1, 3)]);
    let compared = Want { hash: Some([0; 32]), ..want(1, Verdict::IfDiffers) };
    assert_eq!(ledger.on_want(&compared), Ok(NextStep::Work));
    assert!(matches!(drain(&mut ledger, 1)[..], [Work::Compare { file: 1, .. }]));
    ledger.on_holes(runs(1, &[(0, 2)]), MAX_OUTSTANDING_FILES).unwrap();
    assert_eq!(ledger.on_compared(1, false), NextStep::Work);
    assert!(ledger.on_holes(runs(1, &[(2, 1)]), MAX_OUTSTANDING_FILES).is_err());
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [2]);
    assert_eq!(ledger.on_acks(&runs(1, &[(2, 1)])), Ok(NextStep::SendDigest));
}

#[test]
fn nack_of_an_earlier_block_sends_it() {
    let mut ledger = announced(&[in_blocks(1, 4)]);
    ledger.on_have(&runs(1, &[(0, 3)])).unwrap();
    ledger.on_holes(runs(1, &[(2, 1)]), MAX_OUTSTANDING_FILES).unwrap();
    assert_eq!(ledger.on_want(&want(1, Verdict::Send)), Ok(NextStep::Work));
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [3]);
    assert_eq!(ledger.on_nack(1, 1), Ok(NextStep::Work));
    assert_eq!(ledger.on_nack(1, 2), Ok(NextStep::Nothing), "a hole");
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [1]);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(NextStep::Nothing));
    assert_eq!(ledger.on_acks(&runs(1, &[(3, 1)])), Ok(NextStep::SendDigest));
}

#[test]
fn nack_of_a_hole_voids_the_early_digest() {
    for is_early in [true, false] {
        let mut ledger = announced(&[in_blocks(1, 2)]);
        ledger.on_have(&runs(1, &[(0, 1)])).unwrap();
        ledger.on_holes(runs(1, &[(0, 1)]), MAX_OUTSTANDING_FILES).unwrap();
        let accepting = Want { accepts_early_digest: Some(is_early), ..want(1, Verdict::Send) };
        assert_eq!(ledger.on_want(&accepting), Ok(NextStep::Work));
        drain(&mut ledger, 1);
        let due = [NextStep::Nothing, NextStep::SendEarlyDigest][usize::from(is_early)];
        assert_eq!(ledger.on_block_sent(1, 1, hash_of(1, 1)), due);
        assert!(!is_early || ledger.record_early_digest(1));
        let due = [NextStep::SendDigest, NextStep::Nothing][usize::from(is_early)];
        assert_eq!(ledger.on_acks(&runs(1, &[(1, 1)])), Ok(due));
        let due = [NextStep::Nothing, NextStep::SendDigest][usize::from(is_early)];
        assert_eq!(ledger.on_nack(1, 0), Ok(due));
    }
}

#[test]
fn nack_during_a_comparison_sends_the_block_after_it() {
    let mut ledger = announced(&[in_blocks(1, 2)]);
    let with_have = Want { have: runs(1, &[(0, 2)]).runs, ..compare(1) };
    assert_eq!(ledger.on_want(&with_have), Ok(NextStep::Work));
    assert!(matches!(ledger.next_work(1), Some(Work::Compare { .. })));
    assert_eq!(ledger.on_nack(1, 0), Ok(NextStep::Work));
    assert_eq!(ledger.next_work(1), None);
    assert_eq!(ledger.on_compared(1, false), NextStep::Work);
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [0]);
}

#[test]
fn acknowledgement_before_the_want_is_kept() {
    let mut ledger = announced(&[in_blocks(1, 2)]);
    let early = runs(1, &[(0, 2)]);
    assert_eq!(ledger.resumed_bytes(&early), 2 * MIB);
    assert_eq!(ledger.on_acks(&early), Ok(NextStep::Nothing));
    let with_have = Want { have: early.runs, ..want(1, Verdict::Send) };
    assert_eq!(ledger.on_want(&with_have), Ok(NextStep::SendDigest));
    assert_eq!(ledger.unconfirmed_bytes(1), 0);
}

#[test]
fn have_after_the_want_is_an_error() {
    let mut ledger = wanted(&[in_blocks(1, 2)]);
    let late = ledger.on_have(&runs(1, &[(0, 2)]));
    assert!(matches!(late, Err(WireError::Unexpected(_))), "{late:?}");
    assert_eq!(drain(&mut ledger, 1).len(), 2, "the error changes nothing");
    // The same during a comparison.
    let mut comparing = announced(&[in_blocks(1, 2)]);
    let with_have = Want { have: runs(1, &[(0, 1)]).runs, ..compare(1) };
    assert_eq!(comparing.on_want(&with_have), Ok(NextStep::Work));
    let late = comparing.on_have(&runs(1, &[(1, 1)]));
    assert!(matches!(late, Err(WireError::Unexpected(_))), "{late:?}");
    assert_eq!(comparing.on_compared(1, false), NextStep::Work);
    assert_eq!(comparing.unconfirmed_bytes(1), MIB);
}

#[test]
fn runs_past_the_end_or_of_a_packed_file_are_errors() {
    let mut ledger = announced(&[in_blocks(1, 4), packed(2, 1)]);
    for bad in [(0, 0), (0, 5), (4, 1), (u64::MAX, 2)] {
        let refused = ledger.on_have(&runs(1, &[bad]));
        assert!(matches!(refused, Err(WireError::BadRun { .. })), "{bad:?}: {refused:?}");
        let refused = ledger.on_acks(&runs(1, &[bad]));
        assert!(matches!(refused, Err(WireError::BadRun { .. })), "{bad:?}: {refused:?}");
    }
    for id in [2, 9] {
        assert_eq!(ledger.on_have(&runs(id, &[(0, 1)])), Err(WireError::BadFileId(id)));
    }
    assert_eq!(ledger.on_acks(&runs(2, &[(0, 1)])), Err(WireError::BadFileId(2)));
    assert_eq!(ledger.unconfirmed_bytes(2), 0);
}

#[test]
fn announce_invalid_block_size_is_refused() {
    let odd = Entry { block_bytes: 3 << 20, ..in_blocks(1, 4) };
    assert!(matches!(SendLedger::default().announce(&odd), Err(WireError::BadLayout { .. })));
}

#[test]
fn pack_is_closed_at_its_target_size() {
    let files: Vec<Entry> = (1..=10).map(|id| packed(id, 256 << 10)).collect();
    let mut ledger = wanted(&files);
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![1, 2, 3, 4])));
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![5, 6, 7, 8])));
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![9, 10])));
    assert_eq!(ledger.next_work(0), None);
}

#[test]
fn pack_of_empty_files_is_bounded_by_count_share_and_bytes() {
    let count = 20_000;
    let min = (32_usize << 10).div_ceil(PACK_RECORD_BYTES);
    let files: Vec<Entry> = (1..=count as u64).map(|id| packed(id, 0)).collect();
    let mut ledger = wanted(&files);
    let sizes: Vec<usize> = drain(&mut ledger, 0)
        .iter()
        .map(|work| if let Work::Pack(files) = work { files.len() } else { 0 })
        .collect();
    let is_share = |(at, size): (usize, &usize)| {
        let left = count - sizes[..at].iter().sum::<usize>();
        *size == (left / 16).clamp(min.min(left), MAX_PACK_FILES)
    };
    assert_eq!((sizes[0], sizes.iter().sum::<usize>()), (MAX_PACK_FILES, count));
    assert!(sizes.iter().enumerate().all(is_share), "{sizes:?}");
}

#[test]
fn odd_streams_prefer_blocks_and_even_ones_packs() {
    let mut ledger = wanted(&[packed(1, 1), in_blocks(2, 2), packed(3, 1)]);
    assert_eq!(ledger.next_work(1), Some(block(2, 0)));
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![1, 3])));
    assert_eq!(ledger.next_work(0), Some(block(2, 1)));
    assert_eq!(ledger.next_work(1), None);
    assert!(ledger.on_stream_ended(0));
    assert_eq!(drain(&mut ledger, 1), [block(2, 1), Work::Pack(vec![1, 3])]);
}

#[test]
fn ledger_is_incomplete_until_the_walk_ends() {
    let mut ledger = SendLedger::default();
    assert!(!ledger.is_complete());
    ledger.announce(&packed(1, 1)).unwrap();
    ledger.on_entries_end();
    assert!(!ledger.is_complete());
    ledger.on_want(&want(1, Verdict::Skip)).unwrap();
    assert!(ledger.is_complete());
    ledger.announce(&packed(2, 1)).unwrap();
    assert!(!ledger.is_complete(), "a retried file");
}

#[test]
fn file_hash_needs_all_blocks_read_in_this_session() {
    let entry = Entry { size: 2 * MIB + 5, ..in_blocks(1, 3) };
    let mut ledger = wanted(&[entry]);
    drain(&mut ledger, 1);
    let hashes: Vec<BlockHash> = (0..3).map(|index| hash_of(1, index)).collect();
    for (index, hash) in hashes.iter().enumerate() {
        assert_eq!(ledger.file_hash(1), None);
        ledger.on_block_sent(1, index as u64, *hash);
    }
    let layout = Layout::new(2 * MIB + 5, MIB as u32).unwrap();
    assert_eq!(ledger.file_hash(1), merge(&layout, &hashes));
    let mut resumed = announced(&[in_blocks(1, 2)]);
    resumed.on_have(&runs(1, &[(0, 1)])).unwrap();
    resumed.on_want(&want(1, Verdict::Send)).unwrap();
    resumed.on_block_sent(1, 1, hash_of(1, 1));
    assert_eq!(resumed.file_hash(1), None);
}

proptest! {
    #[test]
    fn packs_keep_their_limits_and_hold_every_file_once(
        sizes in prop::collection::vec(0u64..=256 << 10, 1..400),
    ) {
        let files: Vec<Entry> =
            sizes.iter().zip(1..).map(|(&size, id)| packed(id, size)).collect();
        let mut ledger = wanted(&files);
        let mut seen = Vec::new();
        let packs = drain(&mut ledger, 0);
        for (at, work) in packs.iter().enumerate() {
            let Work::Pack(ids) = work else { return Err(TestCaseError::fail("not a pack")) };
            let bytes: usize =
                ids.iter().map(|&id| sizes[id as usize - 1] as usize + PACK_RECORD_BYTES).sum();
            prop_assert!(bytes <= MAX_PACK_BYTES && ids.len() <= MAX_PACK_FILES);
            let share = ((files.len() - seen.len()) / 16).max(8);
            let is_full = bytes >= PACK_TARGET_BYTES || ids.len() >= share;
            prop_assert!(is_full || at + 1 == packs.len(), "a pack sent half empty");
            seen.extend_from_slice(ids);
        }
        prop_assert_eq!(seen, (1..=sizes.len() as u64).collect::<Vec<_>>());
    }
}
