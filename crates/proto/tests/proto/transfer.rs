//! Simulated transfers between both ledgers: files of every kind, delayed control messages, streams
//! that break with frames in flight, damaged payloads, files given up by either side.
//!
//! Invariants: every file that is not given up completes; no block is accepted twice; no verified
//! block is sent again; no side receives a message or frame that the protocol forbids; the transfer
//! ends.

mod receiver;
mod sender;
mod world;

use crate::support::MIB;
use proptest::prelude::*;
use world::World;

/// Answer of the receiver to an announced file.
#[derive(Debug, Clone, Copy)]
enum Planned {
    Send,
    Compare { equal: bool },
    Skip,
    Refuse,
}

/// A file of the source, and its blocks at the destination.
#[derive(Debug, Clone)]
struct FilePlan {
    size: u64,
    /// Block size in bytes; 0 for a packed file.
    block_bytes: u32,
    /// Verified blocks of an earlier session.
    present: Vec<u64>,
    holes: Vec<u64>,
    planned: Planned,
}

/// A transfer, with its number of faults.
#[derive(Debug, Clone)]
struct Scenario {
    files: Vec<FilePlan>,
    streams: u32,
    /// True if the sender connects the data streams, not the receiver.
    push: bool,
    losses: u32,
    damages: u32,
    give_ups: u32,
    seed: u64,
}

fn planned() -> impl Strategy<Value = Planned> {
    prop_oneof![
        6 => Just(Planned::Send),
        2 => any::<bool>().prop_map(|equal| Planned::Compare { equal }),
        1 => Just(Planned::Skip),
        1 => Just(Planned::Refuse),
    ]
}

fn in_blocks() -> impl Strategy<Value = FilePlan> {
    let numbers = || prop::collection::btree_set(0u64..41, 0..12);
    let block = prop::sample::select(vec![1u32 << 20, 2 << 20, 4 << 20]);
    (0u64..=40 * MIB, block, numbers(), numbers(), planned()).prop_map(
        |(size, block_bytes, present, holes, planned)| {
            let count = size.div_ceil(u64::from(block_bytes));
            let within = |numbers: std::collections::BTreeSet<u64>| {
                numbers.into_iter().filter(|&index| index < count).collect()
            };
            FilePlan { size, block_bytes, present: within(present), holes: within(holes), planned }
        },
    )
}

fn in_packs() -> impl Strategy<Value = FilePlan> {
    (0u64..=256 << 10, planned()).prop_map(|(size, planned)| FilePlan {
        size,
        block_bytes: 0,
        present: Vec::new(),
        holes: Vec::new(),
        planned,
    })
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let files = prop::collection::vec(prop_oneof![in_blocks(), in_packs()], 0..14);
    (files, 1u32..6, any::<bool>(), 0u32..12, 0u32..10, 0u32..5, any::<u64>()).prop_map(
        |(files, streams, push, losses, damages, give_ups, seed)| Scenario {
            files,
            streams,
            push,
            losses,
            damages,
            give_ups,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]

    #[test]
    fn transfer_with_faults_completes_without_resending(
        scenario in scenarios(),
    ) {
        let mut world = World::new(&scenario);
        world.run();
        world.check_end();
    }
}

#[test]
fn transfer_without_faults_sends_every_block_once() {
    let file = |size, block_bytes| FilePlan {
        size,
        block_bytes,
        present: Vec::new(),
        holes: Vec::new(),
        planned: Planned::Send,
    };
    let files = vec![file(40 * MIB - 1, 1 << 20), file(0, 1 << 20), file(9, 0), file(0, 0)];
    for push in [true, false] {
        let (losses, damages, give_ups) = (0, 0, 0);
        let scenario =
            Scenario { files: files.clone(), streams: 4, push, losses, damages, give_ups, seed: 7 };
        let mut world = World::new(&scenario);
        world.run();
        world.check_end();
        assert_eq!(world.blocks_sent, 40);
    }
}
