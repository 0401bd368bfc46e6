package org.bankfull.wire;

import java.util.List;

/**
 * How a file is cut into blocks, and how their hashes make up its own (spec/wire.md, section 10).
 */
public final class Layout {
    public final long size;
    public final int blockBytes;

    private Layout(long size, int blockBytes) {
        this.size = size;
        this.blockBytes = blockBytes;
    }

    /** Of an announced file. */
    public static Layout of(long size, int blockBytes) throws WireException {
        boolean power = Integer.bitCount(blockBytes) == 1;
        if (!power || blockBytes < Limits.BLOCK_BYTES_LEAST
            || blockBytes > Limits.BLOCK_BYTES_MOST) {
            throw new WireException("blocks of " + blockBytes + " bytes");
        }
        Layout layout = new Layout(size, blockBytes);
        if (layout.count() > Limits.FILE_BLOCKS) {
            throw new WireException("a file of " + size + " bytes has too many blocks");
        }
        return layout;
    }

    /**
     * The fixed rule of this sender: size / 1024, rounded up to a power of two, within the limits.
     */
    public static int blockBytesFor(long size) {
        long aimed =
            Math.max(Limits.BLOCK_BYTES_LEAST, Math.min(Limits.BLOCK_BYTES_MOST, size / 1024));
        long power = Long.highestOneBit(aimed);
        return (int) (power == aimed ? power : power << 1);
    }

    public long count() {
        return size / blockBytes + (size % blockBytes == 0 ? 0 : 1);
    }

    public long offset(long block) {
        return block * blockBytes;
    }

    public int length(long block) {
        return (int) Math.min(blockBytes, size - offset(block));
    }

    /** What hashes the block at an offset. */
    public Blake3 hasher(long offset) {
        return count() == 1 ? Blake3.hasher() : Blake3.subtree(offset);
    }

    /** The hash of a block from what {@link #hasher} took in. */
    public byte[] finish(Blake3 block) {
        return count() == 1 ? block.finish() : block.finishSubtree();
    }

    /** The hash of a file from those of all its blocks. */
    public static byte[] merge(List<byte[]> blocks) {
        if (blocks.isEmpty()) {
            return Blake3.hash(new byte[0]);
        }
        return blocks.size() == 1 ? blocks.get(0) : merge(blocks, true);
    }

    private static byte[] merge(List<byte[]> blocks, boolean root) {
        if (blocks.size() == 1) {
            return blocks.get(0);
        }
        int left = Integer.highestOneBit(blocks.size() - 1);
        byte[] first = merge(blocks.subList(0, left), false);
        return Blake3.parent(first, merge(blocks.subList(left, blocks.size()), false), root);
    }
}
