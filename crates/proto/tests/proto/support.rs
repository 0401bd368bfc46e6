//! Shared test values: entries, wants, runs, hashes, random numbers.

use bankfull_proto::blocks::Run;
use bankfull_proto::hash::BlockHash;
use bankfull_proto::wire::control::{Entry, EntryKind, FileRuns, Verdict, Want};

/// One mebibyte in bytes, the smallest block.
pub(crate) const MIB: u64 = 1 << 20;

/// Returns a packed file.
pub(crate) fn packed(id: u64, size: u64) -> Entry {
    Entry {
        id,
        parent: 0,
        name: format!("file-{id}").into_bytes(),
        kind: EntryKind::File,
        mode: 0o644,
        mtime_secs: 1_700_000_000,
        mtime_nanos: 1,
        size,
        version: id,
        uid: 1000,
        gid: 1000,
        block_bytes: 0,
        sparse: false,
        target: Vec::new(),
        extra: None,
    }
}

/// Returns a file of `blocks` full blocks of 1 MiB.
pub(crate) fn in_blocks(id: u64, blocks: u64) -> Entry {
    Entry { block_bytes: MIB as u32, ..packed(id, blocks * MIB) }
}

/// Returns a symlink.
pub(crate) fn symlink(id: u64) -> Entry {
    Entry { kind: EntryKind::Symlink, target: b"elsewhere".to_vec(), ..packed(id, 0) }
}

/// Returns a directory.
pub(crate) fn dir(id: u64) -> Entry {
    Entry { kind: EntryKind::Dir, ..packed(id, 0) }
}

/// Returns a want with only a verdict.
pub(crate) fn want(file: u64, verdict: Verdict) -> Want {
    Want { file, verdict, have: Vec::new(), hash: None, failure: None, accepts_early_digest: None }
}

/// Returns runs given as first block and count.
pub(crate) fn runs(file: u64, runs: &[(u64, u64)]) -> FileRuns {
    FileRuns { file, runs: runs.iter().map(|&(first, count)| Run { first, count }).collect() }
}

/// Returns a unique hash for a block.
pub(crate) fn hash_of(file: u64, index: u64) -> BlockHash {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&file.to_be_bytes());
    bytes[8..].copy_from_slice(&index.to_be_bytes());
    BlockHash(*blake3::hash(&bytes).as_bytes())
}

/// Reproducible random numbers. (SplitMix64, Steele et al. 2014)
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`; `end` must not be 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.below(of.len())]) }
    }
}
