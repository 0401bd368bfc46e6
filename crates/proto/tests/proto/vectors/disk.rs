//! Vectors of block hashes and of the journal.

use super::Vector;
use super::control::counting;
use bankfull_proto::blocks::{Layout, Run};
use bankfull_proto::hash::{BlockHash, BlockHasher, FileHash, merge};
use bankfull_proto::journal::{
    self, ChangeTime, HEADER_BYTES, Header, RECORD_BYTES, Record, RecordedBlock,
};

pub(super) fn vectors() -> Vec<Vector> {
    vec![
        hashes(
            "hashes-three-blocks",
            "BLAKE3 over 2621440 bytes (2.5 MiB) in blocks of 1 MiB; the byte at offset i is\n\
             i mod 251. The chaining values of the three blocks, then the hash of the whole file.",
            2_621_440,
        ),
        hashes(
            "hashes-five-blocks",
            "BLAKE3 as in hashes-three-blocks over 4195329 bytes (4 MiB, 1 KiB and 1 byte): the\n\
             five blocks, then the whole file.",
            4_195_329,
        ),
        hashes(
            "hashes-one-block",
            "BLAKE3 as in hashes-three-blocks over 300000 bytes: the hash of the single block is\n\
             the hash of the file.",
            300_000,
        ),
        journal(),
    ]
}

fn hashes(name: &'static str, about: &str, len: usize) -> Vector {
    let compute = move || {
        let content: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let layout = Layout::new(len as u64, 1 << 20).unwrap();
        let blocks: Vec<BlockHash> = (0..layout.count())
            .map(|index| {
                let range = layout.range(index).unwrap();
                let mut hasher = BlockHasher::new(&layout, range.start);
                hasher.update(&content[range.start as usize..range.end as usize]);
                hasher.finish()
            })
            .collect();
        let whole = merge(&layout, &blocks).unwrap();
        assert_eq!(whole, FileHash::of(&content));
        let mut out: Vec<u8> = blocks.iter().flat_map(|hash| hash.0).collect();
        out.extend_from_slice(&whole.0);
        out
    };
    Vector::new(name, about, compute(), move |_| compute())
}

fn journal() -> Vector {
    let header = Header {
        layout: Layout::new(2_621_440, 1 << 20).unwrap(),
        mtime_secs: 1_700_000_000,
        mtime_nanos: 123_456_789,
        version: 0x0123_4567_89ab_cdef,
        boot: counting(0x60),
    };
    let part_changed = ChangeTime { secs: 1_700_000_100, nanos: 987_654_321 };
    let records = [
        Record::Block { index: 2, hash: BlockHash(counting(0xe0)) },
        Record::Barrier { covers: 1 },
        Record::Holes { run: Run { first: 0, count: 1 } },
        Record::Copied { index: 1 },
        Record::Copied { index: 0 },
        Record::Damaged { index: 0 },
        Record::Closed { part_changed },
    ];
    let about = "Journal: 2621440 bytes in blocks of 1 MiB, mtime 1700000000.123456789, version\n\
                 0123456789abcdef, boot ID 60 61 .. 6f; then block 2 with the hash e0 e1 .. ff,\n\
                 a barrier, block 0 as a hole, blocks 1 and 0 as copies without a hash,\n\
                 block 0 as damaged, and an end at 1700000100.987654321.";
    let mut bytes = header.encode().to_vec();
    records.iter().for_each(|record| bytes.extend_from_slice(&record.encode()));
    Vector::new("journal", about, bytes, move |bytes| {
        let replay = journal::replay(bytes, &header.boot).unwrap();
        assert_eq!(replay.header, header);
        assert_eq!(replay.valid_bytes as usize, bytes.len() - RECORD_BYTES);
        assert_eq!(replay.closed, Some(part_changed));
        let block = |index, hash: Option<[u8; 32]>| RecordedBlock {
            index,
            hash: hash.map(BlockHash),
            is_durable: true,
        };
        let blocks = [block(1, None), block(2, Some(counting(0xe0)))];
        let holes = [Run { first: 0, count: 1 }];
        assert_eq!(
            (&replay.recorded.blocks[..], &replay.recorded.holes[..]),
            (&blocks[..], &holes[..])
        );
        let other_boot = journal::replay(bytes, &[9; 16]).unwrap().recorded;
        // The copy after the barrier is lost; the damaged block was taken back.
        assert_eq!((&other_boot.blocks[..], &other_boot.holes[..]), (&blocks[1..], &holes[..]));
        let mut will_retry = replay.header.encode().to_vec();
        for record in bytes[HEADER_BYTES..].as_chunks::<RECORD_BYTES>().0 {
            will_retry.extend_from_slice(&Record::decode(record).unwrap().encode());
        }
        will_retry
    })
}
