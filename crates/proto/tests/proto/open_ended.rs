//! Files of unknown size, on both sides.

use crate::support::{MIB, hash_of, in_blocks, runs, want};
use bankfull_proto::blocks::{BlockSet, Layout};
use bankfull_proto::receive::{Claim, DigestOutcome, ReceiveLedger};
use bankfull_proto::send::{NextStep, SendLedger, Work};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Entry, ExtraMetadata, FileEnd, Verdict};

fn announced(entry: &Entry) -> SendLedger {
    let mut ledger = SendLedger::default();
    ledger.announce(entry).unwrap();
    ledger.on_entries_end();
    ledger
}

/// Assigns all work to one stream.
fn drain(ledger: &mut SendLedger, stream: u32) -> Vec<Work> {
    std::iter::from_fn(|| ledger.next_work(stream)).collect()
}

fn block(file: u64, index: u64) -> Work {
    Work::Block { file, index }
}

/// Returns a ledger with an open-ended file of at most `count` blocks.
fn sending(count: u64) -> SendLedger {
    let extra = ExtraMetadata { open_ended: Some(true), ..ExtraMetadata::default() };
    announced(&Entry { extra: Some(Box::new(extra)), ..in_blocks(1, count) })
}

#[test]
fn open_ended_file_sends_blocks_as_they_are_there() {
    let mut ledger = sending(1 << 20);
    ledger.on_block_available(1, 0);
    assert_eq!((ledger.next_work(1), ledger.take_file_end(1)), (None, None), "not wanted yet");
    assert_eq!(ledger.on_want(&want(1, Verdict::Send)), Ok(NextStep::Work));
    assert_eq!(drain(&mut ledger, 1), [block(1, 0)]);
    for index in [1, 2] {
        ledger.on_block_available(1, index);
    }
    assert_eq!(ledger.next_work(1), Some(block(1, 1)));
    assert_eq!(ledger.prefetch_block(1, 1, 1), None, "another stream may be idle");
    assert_eq!(ledger.next_work(3), Some(block(1, 2)));
    for index in 0..3 {
        assert_eq!(ledger.on_block_sent(1, index, hash_of(1, index)), NextStep::Nothing);
    }
    assert!(ledger.on_stream_ended(3), "its block is sent again");
    assert_eq!(ledger.next_work(1), Some(block(1, 2)));
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 2)])), Ok(NextStep::Nothing));
    ledger.on_file_end(1, 2 * MIB + 5);
    let end = FileEnd { file: 1, size: 2 * MIB + 5 };
    assert_eq!(ledger.take_file_end(1), Some((end, NextStep::Nothing)));
    assert_eq!(ledger.take_file_end(1), None, "once");
    assert_eq!(ledger.on_acks(&runs(1, &[(2, 1)])), Ok(NextStep::SendDigest));
    assert_eq!(ledger.file_hash(1), None, "the last block is padded");
    assert_eq!(ledger.on_finished(1), Ok(NextStep::Completed));
    assert!(ledger.is_complete());
}

#[test]
fn end_may_come_after_the_last_ack_or_before_the_want() {
    let mut ledger = sending(10);
    ledger.on_want(&want(1, Verdict::Send)).unwrap();
    ledger.on_block_available(1, 0);
    ledger.next_work(1);
    assert_eq!(ledger.on_acks(&runs(1, &[(0, 1)])), Ok(NextStep::Nothing));
    ledger.on_file_end(1, MIB);
    let end = FileEnd { file: 1, size: MIB };
    assert_eq!(ledger.take_file_end(1), Some((end, NextStep::SendDigest)));
    let mut ledger = sending(10);
    ledger.on_block_available(1, 0);
    ledger.on_file_end(1, MIB);
    assert_eq!(ledger.take_file_end(1), None);
    ledger.on_want(&want(1, Verdict::Send)).unwrap();
    assert_eq!(ledger.take_file_end(1), Some((end, NextStep::Nothing)));
    // A file of known size has no end of its own.
    let mut ledger = announced(&in_blocks(1, 3));
    ledger.on_want(&want(1, Verdict::Send)).unwrap();
    ledger.on_file_end(1, MIB);
    assert_eq!(ledger.take_file_end(1), None);
    assert_eq!(drain(&mut ledger, 1).len(), 3);
}

/// Returns a ledger with an open-ended file, of which these blocks have arrived.
fn receiving(arrived: &[u64]) -> ReceiveLedger {
    let mut ledger = ReceiveLedger::new();
    ledger.expect_open_ended(1, Layout::new(10 * MIB, MIB as u32).unwrap());
    for &index in arrived {
        assert_eq!(ledger.claim_block(1, index * MIB, MIB as u32), Ok(Claim::Accept(index)));
        assert!(ledger.on_block_verified(1, index, hash_of(1, index)));
    }
    ledger
}

fn end(size: u64) -> FileEnd {
    FileEnd { file: 1, size }
}

#[test]
fn open_ended_file_is_complete_with_the_blocks_before_its_end() {
    let mut ledger = receiving(&[1]);
    assert_eq!(ledger.on_file_end(end(2 * MIB)), Ok(true));
    assert!(ledger.on_file_digest(1, None).is_err(), "a block is missing");
    // Beyond its end there are no blocks.
    let beyond = ledger.claim_block(1, 2 * MIB, MIB as u32);
    assert!(matches!(beyond, Err(WireError::DuplicateBlock { index: 2, .. })));
    assert_eq!(ledger.claim_block(1, 0, MIB as u32), Ok(Claim::Accept(0)));
    assert!(ledger.on_block_verified(1, 0, hash_of(1, 0)));
    assert_eq!(ledger.on_file_digest(1, None), Ok(DigestOutcome::Complete(None)));
}

#[test]
fn wrong_ends_are_refused() {
    let mut ledger = receiving(&[0, 4]);
    for size in [10 * MIB + 1, u64::MAX] {
        let refused = ledger.on_file_end(end(size));
        assert!(matches!(refused, Err(WireError::BadLayout { .. })), "{size}");
    }
    assert!(ledger.on_file_end(end(4 * MIB)).is_err(), "block 4 has arrived");
    assert_eq!(ledger.claim_block(1, 6 * MIB, MIB as u32), Ok(Claim::Accept(6)));
    assert!(ledger.on_file_end(end(6 * MIB)).is_err(), "block 6 arrives");
    assert_eq!(ledger.on_file_end(end(6 * MIB + 1)), Ok(true));
    assert!(ledger.on_file_end(end(6 * MIB + 1)).is_err(), "twice");
    ledger.expect_blocks(2, Layout::new(MIB, MIB as u32).unwrap(), &BlockSet::new(1));
    ledger.expect_packed(3, 1);
    for (file, why) in [(2, "its size is known"), (3, "packed"), (9, "unknown")] {
        assert!(ledger.on_file_end(FileEnd { file, size: 1 }).is_err(), "{why}");
    }
    ledger.give_up(1);
    assert_eq!(ledger.on_file_end(end(1)), Ok(false));
}
