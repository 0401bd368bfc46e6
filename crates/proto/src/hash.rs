//! BLAKE3 over blocks: each block is hashed on its own, in any order and on any thread, and the
//! block hashes merge to the BLAKE3 hash of the whole file (the one `b3sum` prints).
//!
//! The merge is BLAKE3's own tree (specification §2.1): blocks are complete subtrees because they
//! are powers of two in size and aligned; the left subtree of a parent is the largest power of two
//! of chunks that leaves at least one for the right.

use crate::blocks::Layout;
use blake3::hazmat::{self, HasherExt, Mode};

/// A 32-byte BLAKE3 value: for a file of one block the hash of the file, else the chaining value of
/// the block at its place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHash(pub [u8; 32]);

/// The BLAKE3 hash of a whole file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHash(pub [u8; 32]);

impl FileHash {
    /// The hash of content that is in memory as a whole.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

/// Lower-case hexadecimal, as `b3sum` prints it.
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

/// Hashes one block as its bytes come by.
#[derive(Debug, Clone)]
pub struct BlockHasher {
    hasher: blake3::Hasher,
    whole_file: bool,
}

impl BlockHasher {
    /// Starts on the block at `offset` of a file with this layout. `offset` must be a block border.
    #[must_use]
    pub fn new(layout: &Layout, offset: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        let whole_file = layout.count() <= 1;
        if !whole_file {
            hasher.set_input_offset(offset);
        }
        Self { hasher, whole_file }
    }

    /// Takes the next bytes of the block.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The hash of the bytes taken.
    #[must_use]
    pub fn finish(&self) -> BlockHash {
        if self.whole_file {
            BlockHash(*self.hasher.finalize().as_bytes())
        } else {
            BlockHash(self.hasher.finalize_non_root())
        }
    }
}

/// Merges the hashes of all blocks, in order, to the hash of the file. `None` when the number of
/// hashes is not the number of blocks.
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

/// Largest power of two below `count`: BLAKE3's rule for the left subtree, counted in blocks. Equal
/// to the rule in chunks, because all blocks but the last are full and of a power of two of chunks.
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
    use crate::limits::BLOCK_BYTES_MIN;

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn merged_blocks_give_the_hash_of_the_whole_file_at_every_border() {
        let block = BLOCK_BYTES_MIN as usize;
        for blocks in [0, 1, 2, 3, 4, 5, 7, 8] {
            for extra in [0, 1, 1023, 1024, 1025, block - 1] {
                let data = content(blocks * block + extra);
                let layout = Layout::new(data.len() as u64, BLOCK_BYTES_MIN).unwrap();
                let hashes: Vec<BlockHash> = (0..layout.count())
                    .map(|i| {
                        let range = layout.range(i).unwrap();
                        let mut hasher = BlockHasher::new(&layout, range.start);
                        for piece in data[range.start as usize..range.end as usize].chunks(77_777) {
                            hasher.update(piece);
                        }
                        hasher.finish()
                    })
                    .collect();
                assert_eq!(merge(&layout, &hashes), Some(FileHash::of(&data)), "{blocks} {extra}");
            }
        }
    }

    #[test]
    fn a_missing_block_gives_no_file_hash() {
        let layout = Layout::new(u64::from(BLOCK_BYTES_MIN) * 2, BLOCK_BYTES_MIN).unwrap();
        assert_eq!(merge(&layout, &[BlockHash([0; 32])]), None);
    }
}
