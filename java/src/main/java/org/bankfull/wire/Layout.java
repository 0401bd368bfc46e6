package org.bankfull.wire;

import java.util.List;

/** Division of a file into blocks, and its hash from theirs (spec/wire.md, section 10). */
public final class Layout {
    public final long size;
    public final int blockBytes;

    private Layout(long size, int blockBytes) {
        this.size = size;
        this.blockBytes = blockBytes;
    }

    /** Creates the layout of an announced file. */
    public static Layout of(long size, int blockBytes) throws WireException {
        boolean power = Integer.bitCount(blockBytes) == 1;
        if (!power || blockBytes < Limits.MIN_BLOCK_BYTES
            || blockBytes > Limits.MAX_BLOCK_BYTES) {
            throw new WireException("invalid block size of " + blockBytes + " bytes");
        }
        Layout layout = new Layout(size, blockBytes);
        if (layout.blockCount() > Limits.MAX_FILE_BLOCKS) {
            throw new WireException("a file of " + size + " bytes has too many blocks");
        }
        return layout;
    }

    /** Returns this sender's block size: size / 1024, rounded up to a power of two. */
    public static int blockBytesFor(long size) {
        long target =
            Math.max(Limits.MIN_BLOCK_BYTES, Math.min(Limits.MAX_BLOCK_BYTES, size / 1024));
        long power = Long.highestOneBit(target);
        return (int) (power == target ? power : power << 1);
    }

    public long blockCount() {
        return size / blockBytes + (size % blockBytes == 0 ? 0 : 1);
    }

    public long offset(long block) {
        return block * blockBytes;
    }

    public int length(long block) {
        return (int) Math.min(blockBytes, size - offset(block));
    }

    /** Creates the hasher of the block at an offset. */
    public Blake3 hasher(long offset) {
        return blockCount() == 1 ? Blake3.hasher() : Blake3.subtree(offset);
    }

    /** Returns the hash of a block from its {@link #hasher}. */
    public byte[] finish(Blake3 block) {
        return blockCount() == 1 ? block.finish() : block.finishSubtree();
    }

    /** Computes the hash of a file from the hashes of all its blocks. */
    public static byte[] fileHash(List<byte[]> blocks) {
        if (blocks.isEmpty()) {
            return Blake3.hash(new byte[0]);
        }
        return blocks.size() == 1 ? blocks.get(0) : mergeSubtree(blocks, true);
    }

    private static byte[] mergeSubtree(List<byte[]> blocks, boolean root) {
        if (blocks.size() == 1) {
            return blocks.get(0);
        }
        int left = Integer.highestOneBit(blocks.size() - 1);
        byte[] first = mergeSubtree(blocks.subList(0, left), false);
        return Blake3.parent(first, mergeSubtree(blocks.subList(left, blocks.size()), false), root);
    }
}
