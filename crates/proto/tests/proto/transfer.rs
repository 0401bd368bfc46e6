//! Whole transfers between the books of both sides, in a simulated world: files of every kind,
//! control messages that travel for a while, data connections that break at any moment with frames
//! on their way, payloads that arrive damaged, and sides that give files up.
//!
//! What must hold however it goes: every file that nobody gave up ends complete; no block is
//! accepted twice; no verified block is ever sent again; no side ever sees a message or frame that
//! the rules do not allow; and the transfer ends.

mod receiver;
mod sender;
mod world;

use crate::support::MIB;
use proptest::prelude::*;
use world::World;

/// What the receiver thinks of a file when it is announced.
#[derive(Debug, Clone, Copy)]
enum Planned {
    Send,
    Compare { equal: bool },
    Skip,
    Refuse,
}

/// A file of the source, and what of it is at the destination.
#[derive(Debug, Clone)]
struct FilePlan {
    size: u64,
    /// 0 for a file that travels in a pack.
    block_bytes: u32,
    /// Blocks that an earlier session brought.
    here: Vec<u64>,
    holes: Vec<u64>,
    planned: Planned,
}

/// A transfer, and everything that will go wrong with it.
#[derive(Debug, Clone)]
struct Scenario {
    files: Vec<FilePlan>,
    streams: u32,
    /// Whether the sender makes the data connections, or the receiver.
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
        |(size, block_bytes, here, holes, planned)| {
            let count = size.div_ceil(u64::from(block_bytes));
            let within = |numbers: std::collections::BTreeSet<u64>| {
                numbers.into_iter().filter(|&index| index < count).collect()
            };
            FilePlan { size, block_bytes, here: within(here), holes: within(holes), planned }
        },
    )
}

fn in_packs() -> impl Strategy<Value = FilePlan> {
    (0u64..=256 << 10, planned()).prop_map(|(size, planned)| FilePlan {
        size,
        block_bytes: 0,
        here: Vec::new(),
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
    fn a_transfer_over_a_path_that_breaks_ends_complete_and_sends_no_verified_block_again(
        scenario in scenarios(),
    ) {
        let mut world = World::new(&scenario);
        world.run();
        world.check_end();
    }
}

#[test]
fn a_transfer_over_a_path_that_holds_sends_every_byte_once() {
    let file = |size, block_bytes| FilePlan {
        size,
        block_bytes,
        here: Vec::new(),
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
