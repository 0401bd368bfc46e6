//! BLAKE3 over blocks. Blocks are hashed independently, in any order and on any thread; the block
//! hashes merge to the BLAKE3 hash of the file, as `b3sum` prints it.
//!
//! The merge follows the BLAKE3 tree (specification §2.1). Blocks are complete subtrees, since they
//! are aligned and a power of two in size; the left subtree of a parent holds the largest power of
//! two of chunks that leaves at least one for the right.

use crate::blocks::Layout;
use blake3::hazmat::{self, HasherExt, Mode};

/// Hash of a block: the chaining value at its position in the file. For a file of one block, the
/// hash of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHash(pub [u8; 32]);

/// BLAKE3 hash of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHash(pub [u8; 32]);

impl FileHash {
    /// Returns the hash of content in memory.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

/// Prints lower-case hexadecimal digits, like `b3sum`.
impl std::fmt::Display for FileHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for FileHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileHash({self})")
    }
}

/// Incremental hash of one block.
#[derive(Debug, Clone)]
pub struct BlockHasher {
    hasher: blake3::Hasher,
    is_whole_file: bool,
}

impl BlockHasher {
    /// Starts the block at `offset`, which must be a block boundary of the layout.
    #[must_use]
    pub fn new(layout: &Layout, offset: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        let is_whole_file = layout.count() <= 1;
        if !is_whole_file {
            hasher.set_input_offset(offset);
        }
        Self { hasher, is_whole_file }
    }

    /// Hashes the next bytes of the block.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Returns the hash of the bytes so far.
    #[must_use]
    pub fn finish(&self) -> BlockHash {
        if self.is_whole_file {
            BlockHash(*self.hasher.finalize().as_bytes())
        } else {
            BlockHash(self.hasher.finalize_non_root())
        }
    }
}

/// Merges the hashes of all blocks, in order, to the hash of the file.
///
/// Returns `None` unless there is one hash for each block.
#[must_use]
pub fn merge(layout: &Layout, blocks: &[BlockHash]) -> Option<FileHash> {
    if blocks.len() as u64 != layout.count() {
        return None;
    }
    match blocks {
        [] => Some(FileHash::of(&[])),
        [only] => Some(FileHash(only.0)),
        _ => {
            let left_blocks = left_len(blocks.len());
            let left = subtree(&blocks[..left_blocks]);
            let right = subtree(&blocks[left_blocks..]);
            Some(FileHash(*hazmat::merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()))
        }
    }
}

/// Returns the largest power of two below `count`: the number of blocks in the left subtree. Equal
/// to the BLAKE3 rule in chunks, since all blocks but the last hold a power of two of chunks.
fn left_len(count: usize) -> usize {
    count.next_power_of_two() / 2
}

fn subtree(blocks: &[BlockHash]) -> [u8; 32] {
    match blocks {
        [only] => only.0,
        _ => {
            let (left, right) = blocks.split_at(left_len(blocks.len()));
            hazmat::merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_BLOCK_BYTES;

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn merge_equals_file_hash_at_every_boundary() {
        let block = MIN_BLOCK_BYTES as usize;
        for blocks in [0, 1, 2, 3, 4, 5, 7, 8] {
            for extra in [0, 1, 1023, 1024, 1025, block - 1] {
                let data = content(blocks * block + extra);
                let layout = Layout::new(data.len() as u64, MIN_BLOCK_BYTES).unwrap();
                let hashes: Vec<BlockHash> = (0..layout.count())
                    .map(|i| {
                        let range = layout.range(i).unwrap();
                        let mut hasher = BlockHasher::new(&layout, range.start);
                        for chunk in data[range.start as usize..range.end as usize].chunks(77_777) {
                            hasher.update(chunk);
                        }
                        hasher.finish()
                    })
                    .collect();
                assert_eq!(merge(&layout, &hashes), Some(FileHash::of(&data)), "{blocks} {extra}");
            }
        }
    }

    #[test]
    fn merge_missing_block_returns_none() {
        let layout = Layout::new(u64::from(MIN_BLOCK_BYTES) * 2, MIN_BLOCK_BYTES).unwrap();
        assert_eq!(merge(&layout, &[BlockHash([0; 32])]), None);
    }
}
