package org.bankfull.engine;

import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.BitSet;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Layout;
import org.bankfull.wire.Message.Run;
import org.bankfull.wire.WireException;

/** A file that is being sent. All is guarded by the sender's lock. */
final class Outgoing {
    /** Hashes are kept, to tell that of the whole file, of files with so many blocks at most. */
    private static final long HASHED_BLOCKS_MAX = 1 << 16;
    private static final int TRIES_MAX = 2;

    final Entry entry;
    final Path path;
    /** It changed before, and was announced again. */
    final boolean again;
    /** Null for a packed file. */
    final Layout layout;
    private final Deque<Long> repeat = new ArrayDeque<>();
    /** Held by the receiver, or acknowledged. */
    private final BitSet done = new BitSet();
    /** Blocks on their way, by the connection that they went to. */
    final Map<Long, Integer> sent = new HashMap<>();
    private final Map<Long, Integer> nacks = new HashMap<>();
    private long next;
    /** All blocks are read here, and few enough for their hashes to be kept. */
    private boolean isHashed;
    private byte[] hashes;
    private long hashed;
    boolean wanted;
    boolean sealed;

    Outgoing(Entry entry, Path path, boolean again) throws WireException {
        this.entry = entry;
        this.path = path;
        this.again = again;
        this.layout = entry.blockBytes == 0 ? null : Layout.of(entry.size, entry.blockBytes);
        this.isHashed = layout != null && layout.count() <= HASHED_BLOCKS_MAX;
    }

    void have(Run run) throws WireException {
        long count = layout == null ? 0 : layout.count();
        if (run.first >= count || run.count > count - run.first) {
            throw new WireException("the receiver has blocks that do not exist");
        }
        done.set((int) run.first, (int) (run.first + run.count));
        isHashed = false;
    }

    /** The next block to be sent; -1 when there is none now. */
    long take(int stream) {
        Long block = repeat.poll();
        if (block == null) {
            next = done.nextClearBit((int) next);
            if (next >= layout.count()) {
                return -1;
            }
            block = next++;
        }
        sent.put(block, stream);
        return block;
    }

    boolean hasWork() {
        return !repeat.isEmpty() || done.nextClearBit((int) next) < layout.count();
    }

    /** A block that the receiver has verified. */
    void acknowledged(long block) throws WireException {
        if (sent.remove(block) == null) {
            throw new WireException("the receiver acknowledges a block that was not sent");
        }
        done.set((int) block);
    }

    /** Whether a damaged block may be sent once more. */
    boolean mayRepeat(long block) throws WireException {
        if (sent.remove(block) == null) {
            throw new WireException("the receiver complains about a block that was not sent");
        }
        if (nacks.merge(block, 1, Integer::sum) > TRIES_MAX) {
            return false;
        }
        if (layout != null) {
            repeat.add(block);
        }
        return true;
    }

    /** What went to a connection that is lost is sent again. */
    boolean lost(int stream) {
        boolean any = false;
        for (Long block : sent.keySet().toArray(new Long[0])) {
            if (sent.get(block) == stream) {
                sent.remove(block);
                any = true;
                if (layout != null) {
                    repeat.add(block);
                }
            }
        }
        return any;
    }

    boolean isWhole() {
        return layout != null && done.cardinality() == layout.count();
    }

    void keep(long block, byte[] hash) {
        if (isHashed) {
            if (hashes == null) {
                hashes = new byte[(int) layout.count() * Blake3.HASH_BYTES];
            }
            System.arraycopy(hash, 0, hashes, (int) block * Blake3.HASH_BYTES, Blake3.HASH_BYTES);
            hashed++;
        }
    }

    /** BLAKE3 of the whole, where all of it was read here. */
    byte[] wholeHash() {
        if (!isHashed || hashed < layout.count()) {
            return null;
        }
        byte[][] each = new byte[(int) layout.count()][];
        for (int i = 0; i < each.length; i++) {
            each[i] = java.util.Arrays.copyOfRange(hashes, i * Blake3.HASH_BYTES,
                (i + 1) * Blake3.HASH_BYTES);
        }
        return Layout.merge(java.util.Arrays.asList(each));
    }
}
