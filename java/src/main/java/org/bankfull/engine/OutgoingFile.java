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

/** File that is being sent. Guarded by the sender's lock. */
final class OutgoingFile {
    /** Limit of blocks whose hashes are kept to compute the file digest. */
    private static final long MAX_HASHED_BLOCKS = 1 << 16;
    private static final int MAX_RETRANSMITS = 2;

    final Entry entry;
    final Path path;
    /** The file changed before and was announced again. */
    final boolean isRetry;
    /** Block layout; null for a packed file. */
    final Layout layout;
    private final Deque<Long> retransmits = new ArrayDeque<>();
    /** Acknowledged blocks. */
    private final BitSet completed = new BitSet();
    /** Blocks that an earlier session left at the receiver. */
    private final BitSet left = new BitSet();
    /** Blocks among them that the receiver still checks. It answers each with an Ack or a Nack. */
    private final BitSet unconfirmed = new BitSet();
    /** Blocks in flight, with the number of their data stream. */
    final Map<Long, Integer> inFlight = new HashMap<>();
    private final Map<Long, Integer> nacks = new HashMap<>();
    private long nextNew;
    /** All blocks are read by this session, and their hashes are kept. */
    private boolean keepsHashes;
    private byte[] hashes;
    private long hashCount;
    boolean isWanted;
    /** Its blocks may be sent: it is wanted, and differs if it was compared. */
    boolean isScheduled;
    boolean isDigestSent;

    OutgoingFile(Entry entry, Path path, boolean isRetry) throws WireException {
        this.entry = entry;
        this.path = path;
        this.isRetry = isRetry;
        this.layout = entry.blockBytes == 0 ? null : Layout.of(entry.size, entry.blockBytes);
        this.keepsHashes = layout != null && layout.blockCount() <= MAX_HASHED_BLOCKS;
    }

    void onHave(Run run) throws WireException {
        long count = layout == null ? 0 : layout.blockCount();
        if (run.first >= count || run.count > count - run.first) {
            throw new WireException("the receiver reports blocks that do not exist");
        }
        left.set((int) run.first, (int) (run.first + run.count));
        unconfirmed.set((int) run.first, (int) (run.first + run.count));
        keepsHashes = false;
    }

    /** Assigns the next block to a stream; returns -1 if there is none now. */
    long nextBlock(int stream) {
        Long block = retransmits.poll();
        if (block == null) {
            nextNew = nextUnsent();
            if (nextNew >= layout.blockCount()) {
                return -1;
            }
            block = nextNew++;
        }
        inFlight.put(block, stream);
        return block;
    }

    boolean hasWork() {
        return !retransmits.isEmpty() || nextUnsent() < layout.blockCount();
    }

    private int nextUnsent() {
        int block = completed.nextClearBit((int) nextNew);
        while (left.get(block)) {
            block = completed.nextClearBit(left.nextClearBit(block));
        }
        return block;
    }

    /** Handles the acknowledgement of a block; returns whether an earlier session left it. */
    boolean onAck(long block) throws WireException {
        boolean wasSent = inFlight.remove(block) != null;
        // Before the want, which an acknowledgement may overtake, nothing was sent.
        if (!wasSent && isWanted && !unconfirmed.get((int) block)
            || block >= layout.blockCount()) {
            throw new WireException("an Ack of a block that was not sent");
        }
        unconfirmed.clear((int) block);
        completed.set((int) block);
        return !wasSent;
    }

    /** Handles a damaged block; returns whether it will be sent again. */
    boolean onNack(long block) throws WireException {
        boolean wasLeft = layout != null && block < layout.blockCount()
            && unconfirmed.get((int) block) && !completed.get((int) block);
        if (inFlight.remove(block) == null && !wasLeft) {
            throw new WireException("a Nack of a block that was not sent");
        }
        if (wasLeft) {
            unconfirmed.clear((int) block);
        }
        if (nacks.merge(block, 1, Integer::sum) > MAX_RETRANSMITS) {
            return false;
        }
        if (layout != null) {
            retransmits.add(block);
        }
        return true;
    }

    /** Requeues the blocks in flight on a lost stream; returns whether there were any. */
    boolean requeueLost(int stream) {
        boolean any = false;
        for (Long block : inFlight.keySet().toArray(new Long[0])) {
            if (inFlight.get(block) == stream) {
                inFlight.remove(block);
                any = true;
                if (layout != null) {
                    retransmits.add(block);
                }
            }
        }
        return any;
    }

    boolean isComplete() {
        return layout != null && completed.cardinality() == layout.blockCount();
    }

    void keepHash(long block, byte[] hash) {
        if (keepsHashes) {
            if (hashes == null) {
                hashes = new byte[(int) layout.blockCount() * Blake3.HASH_BYTES];
            }
            System.arraycopy(hash, 0, hashes, (int) block * Blake3.HASH_BYTES, Blake3.HASH_BYTES);
            hashCount++;
        }
    }

    /** Returns the BLAKE3 of the file; null unless all blocks were hashed by this session. */
    byte[] fileHash() {
        if (!keepsHashes || hashCount < layout.blockCount()) {
            return null;
        }
        byte[][] blockHashes = new byte[(int) layout.blockCount()][];
        for (int i = 0; i < blockHashes.length; i++) {
            blockHashes[i] = java.util.Arrays.copyOfRange(hashes, i * Blake3.HASH_BYTES,
                (i + 1) * Blake3.HASH_BYTES);
        }
        return Layout.fileHash(java.util.Arrays.asList(blockHashes));
    }
}
