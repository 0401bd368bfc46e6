//! The sender's books: every rule of what is handed out, when again, and when a file is settled.

use crate::support::{MIB, dir, hash_of, in_blocks, packed, runs, symlink, want};
use bankfull_proto::blocks::Layout;
use bankfull_proto::hash::{BlockHash, FileHash, merge};
use bankfull_proto::limits::{PACK_BYTES_MAX, PACK_BYTES_TARGET, PACK_FILES_MAX};
use bankfull_proto::send::{Next, SendLedger, Work};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Entry, Verdict, Want};
use bankfull_proto::wire::data::PACK_RECORD_BYTES;
use proptest::prelude::*;

/// Books in which these entries are announced, and no more will be.
fn announced(entries: &[Entry]) -> SendLedger {
    let mut ledger = SendLedger::new();
    for entry in entries {
        ledger.announce(entry).unwrap();
    }
    ledger.end_of_entries();
    ledger
}

/// Books in which these entries are announced and wanted.
fn wanted(entries: &[Entry]) -> SendLedger {
    let mut ledger = announced(entries);
    for entry in entries {
        ledger.on_want(&want(entry.id, Verdict::Send)).unwrap();
    }
    ledger
}

/// Everything that there is to do, in order, for one stream.
fn drain(ledger: &mut SendLedger, stream: u32) -> Vec<Work> {
    std::iter::from_fn(|| ledger.next_work(stream)).collect()
}

/// The numbers of the blocks of one file that are handed out.
fn blocks(work: &[Work], of: u64) -> Vec<u64> {
    let block = |work: &Work| match work {
        Work::Block { file, index } if *file == of => Some(*index),
        _ => None,
    };
    work.iter().filter_map(block).collect()
}

fn block(file: u64, index: u64) -> Work {
    Work::Block { file, index }
}

fn compare(file: u64) -> Want {
    Want { hash: Some([7; 32]), ..want(file, Verdict::IfDiffers) }
}

#[test]
fn every_block_is_handed_out_once_and_in_order_whatever_stream_asks() {
    let mut ledger = wanted(&[in_blocks(1, 3), in_blocks(2, 2)]);
    let streams = [1, 3, 2, 0, 5].map(|stream| ledger.next_work(stream).unwrap());
    assert_eq!(streams, [block(1, 0), block(1, 1), block(1, 2), block(2, 0), block(2, 1)]);
    assert_eq!(ledger.next_work(1), None);
}

#[test]
fn nothing_is_handed_out_of_a_file_that_nobody_wants_yet() {
    let mut ledger = announced(&[in_blocks(1, 3), packed(2, 5)]);
    assert_eq!(ledger.next_work(0), None);
    assert_eq!(ledger.next_work(1), None);
}

#[test]
fn what_a_lost_stream_carried_goes_out_again_unless_it_was_acknowledged() {
    let mut ledger = wanted(&[in_blocks(1, 4), packed(2, 10), packed(3, 10)]);
    for (stream, index) in [(1, 0), (3, 1), (1, 2), (3, 3)] {
        assert_eq!(ledger.next_work(stream), Some(block(1, index)));
    }
    assert_eq!(ledger.next_work(1), Some(Work::Pack(vec![2, 3])));
    assert_eq!(ledger.on_acks(&runs(1, &[(2, 1)])), Ok(Next::Nothing));
    assert_eq!(ledger.on_finished(3), Ok(Next::Settled));
    assert!(ledger.stream_ended(1));
    assert_eq!(drain(&mut ledger, 5), [block(1, 0), Work::Pack(vec![2])]);
    assert!(!ledger.stream_ended(1), "nothing is lost twice");
    assert!(!ledger.stream_ended(9), "a stream that carried nothing");
    assert_eq!(ledger.next_work(5), None);
}

#[test]
fn a_block_ahead_is_its_streams_alone_and_goes_out_again_where_that_is_lost() {
    let mut ledger = wanted(&[in_blocks(1, 6), in_blocks(2, 6)]);
    assert_eq!(ledger.next_work(1), Some(block(1, 0)));
    assert_eq!(ledger.block_ahead(1, 1, 2), Some(1));
    assert_eq!(ledger.next_work(3), Some(block(1, 2)));
    assert_eq!(ledger.block_ahead(3, 2, 2), None, "another file's turn comes later");
    assert!(ledger.stream_ended(1));
    assert_eq!([ledger.next_work(5), ledger.next_work(5)], [Some(block(1, 0)), Some(block(1, 1))]);
    assert_eq!(ledger.block_ahead(5, 1, 2), Some(3));
    assert_eq!(ledger.block_ahead(5, 1, 3), None, "too few are left");
    assert_eq!(blocks(&drain(&mut ledger, 7), 1), [4, 5]);
}

#[test]
fn nothing_is_taken_ahead_of_what_comes_first() {
    let mut ledger = wanted(&[in_blocks(1, 9), packed(2, 10)]);
    assert_eq!(ledger.next_work(1), Some(block(1, 0)));
    assert_eq!(ledger.block_ahead(2, 1, 1), None, "this stream looks for packs first");
    assert_eq!(ledger.block_ahead(1, 1, 1), Some(1));
    assert_eq!(ledger.next_work(2), Some(Work::Pack(vec![2])));
    assert_eq!(ledger.block_ahead(2, 1, 1), Some(2));
    ledger.announce(&in_blocks(3, 2)).unwrap();
    ledger.on_want(&compare(3)).unwrap();
    assert_eq!(ledger.block_ahead(1, 1, 1), None, "a comparison waits");
    // Those that the receiver has are no reason to take the next file's.
    let mut ledger = wanted(&[in_blocks(1, 3), in_blocks(2, 3)]);
    assert_eq!(drain(&mut ledger, 1).len(), 6);
    assert!(ledger.stream_ended(1));
    assert_eq!(ledger.next_work(1), Some(block(1, 0)));
    ledger.on_acks(&runs(1, &[(1, 2)])).unwrap();
    assert_eq!(ledger.block_ahead(1, 1, 1), None);
    assert_eq!(drain(&mut ledger, 3), [block(2, 0), block(2, 1), block(2, 2)]);
}

#[test]
fn what_a_lost_stream_carried_goes_out_again_in_the_order_it_had() {
    let files: Vec<Entry> = (1..=40).map(|id| packed(id, 1)).collect();
    let mut ledger = wanted(&files);
    let first = drain(&mut ledger, 0);
    assert!(ledger.stream_ended(0));
    assert_eq!(drain(&mut ledger, 0), first);
}

#[test]
fn a_block_is_never_handed_out_again_once_it_is_acknowledged() {
    let mut ledger = wanted(&[in_blocks(1, 2)]);
    drain(&mut ledger, 1);
    ledger.on_acks(&runs(1, &[(0, 1)])).unwrap();
    let refused = ledger.on_nack(1, 0);
    assert!(matches!(refused, Err(WireError::Unexpected(_))), "{refused:?}");
    assert!(ledger.stream_ended(1));
    assert_eq!(drain(&mut ledger, 3), [block(1, 1)]);
}

#[test]
fn a_damaged_block_goes_out_again_and_the_third_complaint_gives_its_file_up() {
    let mut ledger = wanted(&[in_blocks(1, 2), packed(2, 10)]);
    drain(&mut ledger, 1);
    for _ in 0..2 {
        assert_eq!(ledger.on_nack(1, 1), Ok(Next::Work));
        assert_eq!(ledger.on_nack(2, 0), Ok(Next::Work));
        assert_eq!(drain(&mut ledger, 1), [block(1, 1), Work::Pack(vec![2])]);
    }
    assert_eq!(ledger.on_nack(1, 1), Ok(Next::GiveUp));
    assert_eq!(ledger.on_nack(2, 0), Ok(Next::GiveUp));
    assert_eq!(ledger.next_work(1), None, "what is given up is not queued");
}

#[test]
fn complaints_about_different_blocks_do_not_add_up() {
    let mut ledger = wanted(&[in_blocks(1, 5)]);
    drain(&mut ledger, 1);
    for index in 0..5 {
        assert_eq!(ledger.on_nack(1, index), Ok(Next::Work), "block {index}");
    }
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [0, 1, 2, 3, 4]);
}

#[test]
fn a_complaint_about_a_block_that_is_not_on_its_way_is_an_error() {
    let mut ledger = wanted(&[in_blocks(1, 2)]);
    assert!(matches!(ledger.on_nack(1, 0), Err(WireError::Unexpected(_))));
    ledger.next_work(1);
    assert_eq!(ledger.on_nack(1, 0), Ok(Next::Work));
    assert!(matches!(ledger.on_nack(1, 0), Err(WireError::Unexpected(_))), "twice");
    assert!(matches!(ledger.on_nack(1, 7), Err(WireError::Unexpected(_))), "past the end");
}

#[test]
fn what_comes_late_about_a_file_that_was_given_up_is_ignored() {
    let mut ledger = wanted(&[in_blocks(1, 2), packed(2, 1)]);
    drain(&mut ledger, 1);
    ledger.drop_file(1);
    ledger.drop_file(2);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(Next::Nothing));
    assert_eq!(ledger.on_nack(1, 0), Ok(Next::Nothing));
    assert_eq!(ledger.on_nack(2, 0), Ok(Next::Nothing));
    assert_eq!(ledger.on_finished(1), Ok(Next::Nothing));
    assert!(!ledger.stream_ended(1));
    assert!(ledger.is_settled());
}

#[test]
fn a_file_is_to_be_sealed_exactly_when_its_last_block_is_acknowledged() {
    let mut ledger = wanted(&[in_blocks(1, 3)]);
    drain(&mut ledger, 1);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 1)])), Ok(Next::Nothing));
    assert_eq!(ledger.on_acks(&runs(1, &[(2, 1)])), Ok(Next::Nothing));
    assert_eq!(ledger.on_acks(&runs(1, &[(1, 1)])), Ok(Next::Seal));
    assert_eq!(ledger.on_acks(&runs(1, &[(1, 1)])), Ok(Next::Nothing), "once");
    assert!(!ledger.is_settled(), "sealed is not settled");
    assert_eq!(ledger.on_finished(1), Ok(Next::Settled));
    assert!(ledger.is_settled());
}

/// Books of a file of two blocks, of which the receiver has the first one, or not, and takes a seal
/// ahead.
fn sealable(has_one: bool) -> SendLedger {
    let mut ledger = announced(&[in_blocks(1, 2)]);
    let have = if has_one { runs(1, &[(0, 1)]).runs } else { Vec::new() };
    let want = Want { have, ahead: Some(true), ..want(1, Verdict::Send) };
    assert_eq!(ledger.on_want(&want), Ok(Next::Work));
    drain(&mut ledger, 1);
    ledger
}

#[test]
fn a_seal_goes_ahead_with_the_last_block_that_is_read_where_the_receiver_takes_it() {
    let mut ledger = sealable(false);
    assert_eq!(ledger.sent_block(1, 1, hash_of(1, 1)), Next::Nothing);
    assert!(!ledger.is_sent_again(1, 0));
    assert_eq!(ledger.sent_block(1, 0, hash_of(1, 0)), Next::SealAhead);
    assert_eq!(ledger.sent_block(1, 0, hash_of(1, 0)), Next::Nothing, "it was sent again");
    assert!(ledger.is_sent_again(1, 0) && !ledger.is_sent_again(1, 7));
    assert!(ledger.seal_ahead(1));
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(Next::Nothing), "no other follows");
    assert_eq!(ledger.on_finished(1), Ok(Next::Settled));
    let mut ledger = sealable(true);
    assert_eq!(ledger.sent_block(1, 1, hash_of(1, 1)), Next::SealAhead);
    // The file may be in place before this side has read that all blocks are there.
    assert!(ledger.seal_ahead(1));
    assert_eq!(ledger.on_finished(1), Ok(Next::Settled));
    let mut ledger = wanted(&[in_blocks(1, 1)]);
    drain(&mut ledger, 1);
    assert_eq!(ledger.sent_block(1, 0, hash_of(1, 0)), Next::Nothing, "nobody would take it");
}

#[test]
fn a_block_that_arrives_damaged_has_the_file_sealed_at_its_end_after_all() {
    let mut ledger = sealable(false);
    ledger.sent_block(1, 0, hash_of(1, 0));
    assert_eq!(ledger.sent_block(1, 1, hash_of(1, 1)), Next::SealAhead);
    assert!(ledger.seal_ahead(1));
    assert_eq!(ledger.on_nack(1, 0), Ok(Next::Work));
    assert!(!ledger.seal_ahead(1), "nor later");
    drain(&mut ledger, 1);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(Next::Seal));
    // All is there before it could be said.
    let mut ledger = sealable(true);
    assert_eq!(ledger.sent_block(1, 1, hash_of(1, 1)), Next::SealAhead);
    assert_eq!(ledger.on_acks(&runs(1, &[(1, 1)])), Ok(Next::Seal));
    assert!(!ledger.seal_ahead(1), "another follows already");
}

#[test]
fn a_file_that_is_there_as_a_whole_is_sealed_without_sending_anything() {
    let mut ledger = announced(&[in_blocks(1, 3), in_blocks(2, 0)]);
    ledger.on_have(&runs(1, &[(0, 2)])).unwrap();
    let rest = Want { have: runs(1, &[(2, 1)]).runs, ..want(1, Verdict::Send) };
    assert_eq!(ledger.on_want(&rest), Ok(Next::Seal));
    assert_eq!(ledger.on_want(&want(2, Verdict::Send)), Ok(Next::Seal), "an empty file");
    assert_eq!(ledger.next_work(1), None);
}

#[test]
fn a_file_that_is_finished_before_it_was_sent_is_an_error() {
    let mut ledger = announced(&[in_blocks(1, 1), packed(2, 1)]);
    for id in [1, 2] {
        let refused = ledger.on_finished(id);
        assert!(matches!(refused, Err(WireError::Unexpected(_))), "{id}: {refused:?}");
        ledger.on_want(&want(id, Verdict::Send)).unwrap();
    }
    let unsealed = ledger.on_finished(1);
    assert!(matches!(unsealed, Err(WireError::Unexpected(_))), "{unsealed:?}");
}

#[test]
fn a_symlink_needs_no_sending_and_is_settled_by_its_finish_or_its_verdict() {
    let mut ledger = announced(&[symlink(1), symlink(2), symlink(3)]);
    assert_eq!(ledger.on_finished(1), Ok(Next::Settled));
    assert_eq!(ledger.on_want(&want(2, Verdict::Skip)), Ok(Next::Settled));
    assert_eq!(ledger.on_want(&want(3, Verdict::Send)), Ok(Next::Nothing));
    assert_eq!(ledger.next_work(0), None);
    assert_eq!(ledger.on_finished(3), Ok(Next::Settled));
    assert!(ledger.is_settled());
}

#[test]
fn directories_are_not_in_the_books() {
    let mut ledger = announced(&[dir(1)]);
    assert!(ledger.is_settled());
    assert_eq!(ledger.on_want(&want(1, Verdict::Send)), Err(WireError::BadFileId(1)));
}

#[test]
fn a_verdict_other_than_send_settles_the_file() {
    let mut ledger = announced(&[in_blocks(1, 1), packed(2, 1), in_blocks(3, 1)]);
    for (id, verdict) in [(1, Verdict::Skip), (2, Verdict::Refused), (3, Verdict::WouldSend)] {
        assert!(ledger.is_open(id));
        assert_eq!(ledger.on_want(&want(id, verdict)), Ok(Next::Settled));
        assert!(!ledger.is_open(id));
    }
    assert!(ledger.is_settled());
}

#[test]
fn a_second_verdict_or_one_on_an_unknown_file_is_an_error() {
    let mut ledger = wanted(&[in_blocks(1, 1)]);
    assert_eq!(ledger.on_want(&want(1, Verdict::Send)), Err(WireError::BadFileId(1)));
    assert_eq!(ledger.on_want(&want(2, Verdict::Send)), Err(WireError::BadFileId(2)));
}

#[test]
fn equal_content_settles_a_file_and_different_content_queues_it() {
    let mut ledger = announced(&[in_blocks(1, 2), packed(2, 3), in_blocks(3, 1)]);
    for id in [1, 2, 3] {
        assert_eq!(ledger.on_want(&compare(id)), Ok(Next::Work));
    }
    let hash = FileHash([7; 32]);
    let expected = [1, 2, 3].map(|file| Work::Compare { file, hash });
    assert_eq!(drain(&mut ledger, 0), expected);
    assert_eq!(ledger.compared(1, false), Next::Work);
    assert_eq!(ledger.compared(2, false), Next::Work);
    assert_eq!(ledger.compared(3, true), Next::Settled);
    assert_eq!(drain(&mut ledger, 1), [block(1, 0), block(1, 1), Work::Pack(vec![2])]);
    assert_eq!(ledger.open_files(), 2);
}

#[test]
fn a_comparison_needs_a_hash_and_keeps_the_blocks_that_are_there() {
    let mut ledger = announced(&[in_blocks(1, 3), in_blocks(2, 1)]);
    let refused = ledger.on_want(&want(1, Verdict::IfDiffers));
    assert!(matches!(refused, Err(WireError::Malformed(_))), "{refused:?}");
    let have = Want { have: runs(1, &[(1, 1)]).runs, ..compare(1) };
    assert_eq!(ledger.on_want(&have), Ok(Next::Work));
    let whole = Want { have: runs(2, &[(0, 1)]).runs, ..compare(2) };
    assert_eq!(ledger.on_want(&whole), Ok(Next::Work));
    assert_eq!(drain(&mut ledger, 1).len(), 2);
    assert_eq!(ledger.compared(1, false), Next::Work);
    assert_eq!(ledger.compared(2, false), Next::Seal, "nothing of it is missing");
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [0, 2]);
}

#[test]
fn a_dropped_file_leaves_every_queue() {
    let entries = [in_blocks(1, 2), in_blocks(2, 1), packed(3, 1), packed(4, 1)];
    let mut ledger = wanted(&entries);
    ledger.next_work(1);
    ledger.drop_file(1);
    ledger.drop_file(3);
    assert_eq!(drain(&mut ledger, 1), [block(2, 0), Work::Pack(vec![4])]);
    assert!(ledger.stream_ended(1));
    assert_eq!(drain(&mut ledger, 1), [block(2, 0), Work::Pack(vec![4])]);
    ledger.sent_block(1, 0, hash_of(1, 0));
    assert_eq!(ledger.whole_hash(1), None);
}

#[test]
fn holes_and_blocks_that_are_there_are_never_handed_out() {
    let mut ledger = announced(&[in_blocks(1, 8)]);
    ledger.on_have(&runs(1, &[(0, 1), (6, 1)])).unwrap();
    assert_eq!(ledger.bytes_there(1), Some(2 * MIB));
    ledger.on_holes(&runs(1, &[(2, 2)])).unwrap();
    let more = Want { have: runs(1, &[(5, 1)]).runs, ..want(1, Verdict::Send) };
    assert_eq!(ledger.on_want(&more), Ok(Next::Work));
    assert_eq!(ledger.bytes_there(1), Some(5 * MIB));
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [1, 4, 7]);
    assert!(ledger.stream_ended(1));
    assert_eq!(blocks(&drain(&mut ledger, 1), 1), [1, 4, 7], "nor after a loss");
    assert_eq!(ledger.on_acks(&runs(1, &[(1, 1), (4, 1), (7, 1)])), Ok(Next::Seal));
}

#[test]
fn blocks_that_are_there_may_not_be_named_any_more_once_the_file_is_wanted() {
    let mut ledger = wanted(&[in_blocks(1, 2)]);
    let late = ledger.on_have(&runs(1, &[(0, 2)]));
    assert!(matches!(late, Err(WireError::Unexpected(_))), "{late:?}");
    assert_eq!(drain(&mut ledger, 1).len(), 2, "and they change nothing");
    // Nor while the two sides compare, nor twice with the want.
    let mut comparing = announced(&[in_blocks(1, 2)]);
    let with_have = Want { have: runs(1, &[(0, 1)]).runs, ..compare(1) };
    assert_eq!(comparing.on_want(&with_have), Ok(Next::Work));
    let late = comparing.on_have(&runs(1, &[(1, 1)]));
    assert!(matches!(late, Err(WireError::Unexpected(_))), "{late:?}");
    assert_eq!(comparing.compared(1, false), Next::Work);
    assert_eq!(comparing.bytes_there(1), Some(MIB));
}

#[test]
fn runs_past_the_end_or_of_a_file_that_has_no_blocks_are_errors() {
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
    assert_eq!(ledger.bytes_there(2), None);
}

#[test]
fn a_block_size_that_is_not_allowed_is_refused() {
    let odd = Entry { block_bytes: 3 << 20, ..in_blocks(1, 4) };
    assert!(matches!(SendLedger::new().announce(&odd), Err(WireError::BadLayout { .. })));
}

#[test]
fn a_pack_is_closed_at_its_target_and_holds_no_more_than_its_limit() {
    let files: Vec<Entry> = (1..=10).map(|id| packed(id, 256 << 10)).collect();
    let mut ledger = wanted(&files);
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![1, 2, 3, 4])));
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![5, 6, 7, 8])));
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![9, 10])));
    assert_eq!(ledger.next_work(0), None);
}

#[test]
fn empty_files_fill_a_pack_by_their_number_and_the_last_are_shared_among_the_streams() {
    let count = 20_000;
    let files: Vec<Entry> = (1..=count as u64).map(|id| packed(id, 0)).collect();
    let mut ledger = wanted(&files);
    let sizes: Vec<usize> = drain(&mut ledger, 0)
        .iter()
        .map(|work| if let Work::Pack(files) = work { files.len() } else { 0 })
        .collect();
    let is_share = |(at, size): (usize, &usize)| {
        let left = count - sizes[..at].iter().sum::<usize>();
        *size == (left / 16).clamp(8.min(left), PACK_FILES_MAX)
    };
    assert_eq!((sizes[0], sizes.iter().sum::<usize>()), (PACK_FILES_MAX, count));
    assert!(sizes.iter().enumerate().all(is_share), "{sizes:?}");
}

#[test]
fn odd_streams_take_blocks_first_and_even_ones_packs_and_neither_stays_idle() {
    let mut ledger = wanted(&[packed(1, 1), in_blocks(2, 2), packed(3, 1)]);
    assert_eq!(ledger.next_work(1), Some(block(2, 0)));
    assert_eq!(ledger.next_work(0), Some(Work::Pack(vec![1, 3])));
    assert_eq!(ledger.next_work(0), Some(block(2, 1)));
    assert_eq!(ledger.next_work(1), None);
    assert!(ledger.stream_ended(0));
    assert_eq!(drain(&mut ledger, 1), [block(2, 1), Work::Pack(vec![1, 3])]);
}

#[test]
fn nothing_is_settled_while_entries_may_still_come() {
    let mut ledger = SendLedger::new();
    assert!(!ledger.is_settled());
    ledger.announce(&packed(1, 1)).unwrap();
    ledger.end_of_entries();
    assert!(!ledger.is_settled());
    ledger.on_want(&want(1, Verdict::Skip)).unwrap();
    assert!(ledger.is_settled());
    ledger.announce(&packed(2, 1)).unwrap();
    assert!(!ledger.is_settled(), "a file announced again");
}

#[test]
fn the_hash_of_the_file_is_known_only_when_all_its_blocks_were_read_here() {
    let entry = Entry { size: 2 * MIB + 5, ..in_blocks(1, 3) };
    let mut ledger = wanted(&[entry]);
    drain(&mut ledger, 1);
    let hashes: Vec<BlockHash> = (0..3).map(|index| hash_of(1, index)).collect();
    for (index, hash) in hashes.iter().enumerate() {
        assert_eq!(ledger.whole_hash(1), None);
        ledger.sent_block(1, index as u64, *hash);
    }
    let layout = Layout::new(2 * MIB + 5, MIB as u32).unwrap();
    assert_eq!(ledger.whole_hash(1), merge(&layout, &hashes));
    let mut resumed = announced(&[in_blocks(1, 2)]);
    resumed.on_have(&runs(1, &[(0, 1)])).unwrap();
    resumed.on_want(&want(1, Verdict::Send)).unwrap();
    resumed.sent_block(1, 1, hash_of(1, 1));
    assert_eq!(resumed.whole_hash(1), None);
}

proptest! {
    #[test]
    fn packs_keep_their_bounds_and_hold_every_file_once(
        sizes in prop::collection::vec(0u64..=256 << 10, 1..400),
    ) {
        let files: Vec<Entry> =
            sizes.iter().zip(1..).map(|(&size, id)| packed(id, size)).collect();
        let mut ledger = wanted(&files);
        let mut seen = Vec::new();
        let packs = drain(&mut ledger, 0);
        for (at, work) in packs.iter().enumerate() {
            let Work::Pack(ids) = work else { return Err(TestCaseError::fail("no pack")) };
            let bytes: usize =
                ids.iter().map(|&id| sizes[id as usize - 1] as usize + PACK_RECORD_BYTES).sum();
            prop_assert!(bytes <= PACK_BYTES_MAX && ids.len() <= PACK_FILES_MAX);
            let share = ((files.len() - seen.len()) / 16).max(8);
            let is_full = bytes >= PACK_BYTES_TARGET || ids.len() >= share;
            prop_assert!(is_full || at + 1 == packs.len(), "a pack sent half empty");
            seen.extend_from_slice(ids);
        }
        prop_assert_eq!(seen, (1..=sizes.len() as u64).collect::<Vec<_>>());
    }
}
