//! Limits of the send ledger, against receivers that report many or long runs.

use crate::send::{announced, block, blocks, drain, wanted};
use crate::support::{in_blocks, runs, want};
use bankfull_proto::limits::{HOLE_RUNS_PER_ENTRY, MAX_FILE_BLOCKS, MAX_FILE_RUNS, MAX_RUNS};
use bankfull_proto::send::NextStep;
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::Verdict;

#[test]
fn long_runs_are_acknowledged_without_a_loop_over_blocks() {
    let mut ledger = wanted(&[in_blocks(1, MAX_FILE_BLOCKS), in_blocks(2, 1)]);
    assert_eq!(ledger.next_work(1), Some(block(1, 0)));
    let acks = runs(1, &[(0, MAX_FILE_BLOCKS - 1)]);
    // Block by block, these would take minutes.
    for _ in 0..10_000 {
        assert_eq!(ledger.resumed_bytes(&acks), 0);
        assert_eq!(ledger.on_acks(&acks), Ok(NextStep::Nothing));
    }
    assert_eq!(ledger.next_work(1), Some(block(1, MAX_FILE_BLOCKS - 1)));
    assert_eq!(ledger.on_acks(&runs(1, &[(MAX_FILE_BLOCKS - 1, 1)])), Ok(NextStep::SendDigest));
    assert!(!ledger.on_stream_ended(1), "nothing is in flight");
}

#[test]
fn holes_beyond_the_limit_are_sent_as_data() {
    let mut ledger = announced(&[in_blocks(1, 200), in_blocks(2, 200)]);
    let every_second: Vec<(u64, u64)> = (0..100).map(|n| (2 * n, 1)).collect();
    let announced = ledger.on_holes(runs(1, &every_second), 1).unwrap();
    assert_eq!(announced.runs.len(), HOLE_RUNS_PER_ENTRY);
    assert!(ledger.on_holes(runs(2, &every_second), 1).unwrap().runs.is_empty());
    ledger.drop_file(1);
    ledger.on_want(&want(2, Verdict::Send)).unwrap();
    assert_eq!(blocks(&drain(&mut ledger, 1), 2).len(), 200);
}

#[test]
fn reported_runs_of_a_file_are_limited() {
    let mut ledger = announced(&[in_blocks(1, MAX_FILE_BLOCKS)]);
    let part = |at: usize| -> Vec<(u64, u64)> {
        (0..MAX_RUNS).map(|n| (2 * (at * MAX_RUNS + n) as u64, 1)).collect()
    };
    let parts = MAX_FILE_RUNS / MAX_RUNS;
    (0..parts).for_each(|at| ledger.on_have(&runs(1, &part(at))).unwrap());
    let refused = ledger.on_have(&runs(1, &part(parts)));
    assert!(matches!(refused, Err(WireError::OverLimit { .. })), "{refused:?}");
}
