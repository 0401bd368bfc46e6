package org.bankfull.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.util.Arrays;

/**
 * BLAKE3 (specification of 2021-11-23): hashes, keyed hashes and chaining values of blocks.
 *
 * <p>No Java library exposes the chaining values. Instances are not thread-safe. Long inputs are
 * hashed {@value #LANES} chunks at a time, in loops that HotSpot vectorizes.
 */
public final class Blake3 {
    /** Length of a hash. */
    public static final int HASH_BYTES = 32;

    /** Length of a BLAKE3 chunk, a leaf of the tree. */
    static final int CHUNK_BYTES = 1024;

    /** Chunks hashed in parallel (measured: the fastest of 32, 64 and 96). */
    private static final int LANES = 32;

    private static final int BLOCK_BYTES = 64;
    private static final int BLOCK_WORDS = 16;
    private static final int CHUNK_WORDS = CHUNK_BYTES / 4;
    private static final int CV_WORDS = 8;
    /** Depth for 2^63 bytes, plus one for the subtree being merged. */
    private static final int STACK_DEPTH = 55;

    private static final int CHUNK_START = 1;
    private static final int CHUNK_END = 2;
    private static final int PARENT = 4;
    private static final int ROOT = 8;
    private static final int KEYED_HASH = 16;

    private static final int[] IV = {
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
    };

    /** Message words that each of the seven rounds mixes in. */
    private static final int[][] SCHEDULE = schedule();

    private final int[] key;
    private final int flags;
    private final long firstChunk;
    private final int[] stack = new int[STACK_DEPTH * CV_WORDS];
    private int stackSize;
    /** Number of chunks merged into the stack. */
    private long chunkCount;
    /** Pending chunk: compressed once more input follows, or as the last one. */
    private final ByteBuffer tail = ByteBuffer.allocate(CHUNK_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    private final int[] words = new int[CHUNK_WORDS];
    private final int[] cv = new int[CV_WORDS];
    private final int[] state = new int[BLOCK_WORDS];
    /** Allocated for the first long input. */
    private Lanes lanes;

    private Blake3(int[] key, int flags, long firstChunk) {
        this.key = key;
        this.flags = flags;
        this.firstChunk = firstChunk;
    }

    /** Creates an unkeyed hasher. */
    public static Blake3 hasher() {
        return new Blake3(IV, 0, 0);
    }

    /** Creates a hasher with a key of 32 bytes. */
    public static Blake3 keyed(byte[] key) {
        if (key.length != HASH_BYTES) {
            throw new IllegalArgumentException("the key must have 32 bytes, not " + key.length);
        }
        int[] words = new int[CV_WORDS];
        ByteBuffer.wrap(key).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer().get(words);
        return new Blake3(words, KEYED_HASH, 0);
    }

    /** Creates a hasher of a subtree, whose power-of-two length divides {@code offset}. */
    public static Blake3 subtree(long offset) {
        return new Blake3(IV, 0, offset / CHUNK_BYTES);
    }

    /** Hashes an array. */
    public static byte[] hash(byte[] bytes) {
        return hasher().update(bytes, 0, bytes.length).finish();
    }

    /** Adds part of an array. */
    public Blake3 update(byte[] bytes, int offset, int length) {
        return update(ByteBuffer.wrap(bytes, offset, length));
    }

    /** Adds the remaining bytes of a buffer and moves its position to its limit. */
    public Blake3 update(ByteBuffer input) {
        while (input.hasRemaining()) {
            if (tail.position() == 0 && input.remaining() > CHUNK_BYTES) {
                updateWholeChunks(input);
                continue;
            }
            if (!tail.hasRemaining()) {
                Buffers.flip(tail);
                tail.asIntBuffer().get(words);
                Buffers.clear(tail);
                compressChunk(words, CHUNK_BYTES, 0);
                push(cv, 0);
                continue;
            }
            fillTail(input);
        }
        return this;
    }

    private void fillTail(ByteBuffer input) {
        int limit = input.limit();
        Buffers.limit(input, input.position() + Math.min(tail.remaining(), input.remaining()));
        tail.put(input);
        Buffers.limit(input, limit);
    }

    /** Compresses whole chunks directly from the input, except for its last one. */
    private void updateWholeChunks(ByteBuffer input) {
        ByteOrder order = input.order();
        IntBuffer ints = input.order(ByteOrder.LITTLE_ENDIAN).asIntBuffer();
        input.order(order);
        int whole = (input.remaining() - 1) / CHUNK_BYTES;
        int left = whole;
        if (left >= LANES && lanes == null) {
            lanes = new Lanes();
        }
        while (left >= LANES) {
            lanes.compressChunks(ints, key, firstChunk + chunkCount, flags);
            for (int lane = 0; lane < LANES; lane++) {
                lanes.copyChainingValue(lane, cv);
                push(cv, 0);
            }
            left -= LANES;
        }
        for (; left > 0; left--) {
            ints.get(words);
            compressChunk(words, CHUNK_BYTES, 0);
            push(cv, 0);
        }
        Buffers.position(input, input.position() + whole * CHUNK_BYTES);
    }

    /** Returns the hash of the input. The hasher must not be used afterwards. */
    public byte[] finish() {
        return finish(ROOT);
    }

    /** Returns the chaining value of a subtree. The hasher must not be used afterwards. */
    public byte[] finishSubtree() {
        return finish(0);
    }

    private byte[] finish(int root) {
        int length = tail.position();
        Arrays.fill(tail.array(), length, CHUNK_BYTES, (byte) 0);
        Buffers.clear(tail);
        tail.asIntBuffer().get(words);
        compressChunk(words, length, stackSize == 0 ? root : 0);
        while (stackSize > 0) {
            stackSize--;
            System.arraycopy(stack, stackSize * CV_WORDS, words, 0, CV_WORDS);
            System.arraycopy(cv, 0, words, CV_WORDS, CV_WORDS);
            compressParent(words, stackSize == 0 ? root : 0);
        }
        return bytes(cv);
    }

    /** Computes the parent of two chaining values; with {@code root}, the root hash. */
    static byte[] parent(byte[] left, byte[] right, boolean root) {
        Blake3 node = hasher();
        ByteBuffer both = ByteBuffer.allocate(2 * HASH_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        Buffers.flip(both.put(left).put(right));
        both.asIntBuffer().get(node.words, 0, BLOCK_WORDS);
        node.compressParent(node.words, root ? ROOT : 0);
        return bytes(node.cv);
    }

    private static byte[] bytes(int[] words) {
        ByteBuffer out = ByteBuffer.allocate(HASH_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        out.asIntBuffer().put(words);
        return out.array();
    }

    /** Pushes the chaining value of a chunk and merges completed subtrees. */
    private void push(int[] from, int at) {
        System.arraycopy(from, at, stack, stackSize * CV_WORDS, CV_WORDS);
        stackSize++;
        chunkCount++;
        for (long count = chunkCount; (count & 1) == 0; count >>= 1) {
            stackSize -= 2;
            System.arraycopy(stack, stackSize * CV_WORDS, words, 0, BLOCK_WORDS);
            compressParent(words, 0);
            System.arraycopy(cv, 0, stack, stackSize * CV_WORDS, CV_WORDS);
            stackSize++;
        }
    }

    private void compressParent(int[] pair, int extra) {
        System.arraycopy(key, 0, cv, 0, CV_WORDS);
        compress(pair, 0, 0, BLOCK_BYTES, flags | PARENT | extra);
    }

    /** Compresses a chunk of {@code length} bytes, padded with zeros, into {@code cv}. */
    private void compressChunk(int[] chunk, int length, int extra) {
        System.arraycopy(key, 0, cv, 0, CV_WORDS);
        int last = Math.max(0, (length - 1) / BLOCK_BYTES);
        for (int block = 0; block <= last; block++) {
            int end = block == last ? CHUNK_END | extra : 0;
            int start = block == 0 ? CHUNK_START : 0;
            int filled = Math.min(BLOCK_BYTES, length - block * BLOCK_BYTES);
            compress(chunk, block * BLOCK_WORDS, firstChunk + chunkCount, filled,
                flags | start | end);
        }
    }

    /** Compresses one block into {@code cv}. */
    private void compress(int[] block, int at, long counter, int length, int blockFlags) {
        int[] v = state;
        System.arraycopy(cv, 0, v, 0, CV_WORDS);
        System.arraycopy(IV, 0, v, 8, 4);
        v[12] = (int) counter;
        v[13] = (int) (counter >>> 32);
        v[14] = length;
        v[15] = blockFlags;
        for (int[] s : SCHEDULE) {
            mix(v, 0, 4, 8, 12, block[at + s[0]], block[at + s[1]]);
            mix(v, 1, 5, 9, 13, block[at + s[2]], block[at + s[3]]);
            mix(v, 2, 6, 10, 14, block[at + s[4]], block[at + s[5]]);
            mix(v, 3, 7, 11, 15, block[at + s[6]], block[at + s[7]]);
            mix(v, 0, 5, 10, 15, block[at + s[8]], block[at + s[9]]);
            mix(v, 1, 6, 11, 12, block[at + s[10]], block[at + s[11]]);
            mix(v, 2, 7, 8, 13, block[at + s[12]], block[at + s[13]]);
            mix(v, 3, 4, 9, 14, block[at + s[14]], block[at + s[15]]);
        }
        for (int i = 0; i < CV_WORDS; i++) {
            cv[i] = v[i] ^ v[i + CV_WORDS];
        }
    }

    private static void mix(int[] v, int a, int b, int c, int d, int x, int y) {
        int va = v[a] + v[b] + x;
        int vd = Integer.rotateRight(v[d] ^ va, 16);
        int vc = v[c] + vd;
        int vb = Integer.rotateRight(v[b] ^ vc, 12);
        va += vb + y;
        vd = Integer.rotateRight(vd ^ va, 8);
        vc += vd;
        v[a] = va;
        v[b] = Integer.rotateRight(vb ^ vc, 7);
        v[c] = vc;
        v[d] = vd;
    }

    private static int[][] schedule() {
        int[] permutation = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
        int[][] rounds = new int[7][BLOCK_WORDS];
        for (int i = 0; i < BLOCK_WORDS; i++) {
            rounds[0][i] = i;
        }
        for (int round = 1; round < rounds.length; round++) {
            for (int i = 0; i < BLOCK_WORDS; i++) {
                rounds[round][i] = rounds[round - 1][permutation[i]];
            }
        }
        return rounds;
    }

    /** Parallel compression of chunks: row w holds word w of all chunks. */
    private static final class Lanes {
        private final int[][] v = new int[BLOCK_WORDS][LANES];
        private final int[][] cvs = new int[CV_WORDS][LANES];
        private final int[][] message = new int[BLOCK_WORDS][LANES];
        private final int[] input = new int[LANES * CHUNK_WORDS];

        void compressChunks(IntBuffer from, int[] key, long counter, int flags) {
            from.get(input);
            for (int word = 0; word < CV_WORDS; word++) {
                Arrays.fill(cvs[word], key[word]);
            }
            for (int block = 0; block < CHUNK_BYTES / BLOCK_BYTES; block++) {
                int start = block == 0 ? CHUNK_START : 0;
                int end = block == CHUNK_BYTES / BLOCK_BYTES - 1 ? CHUNK_END : 0;
                transpose(block * BLOCK_WORDS);
                compress(counter, flags | start | end);
            }
        }

        void copyChainingValue(int lane, int[] out) {
            for (int word = 0; word < CV_WORDS; word++) {
                out[word] = cvs[word][lane];
            }
        }

        private void transpose(int at) {
            // Words of one chunk first: the distance between chunks maps to few cache sets.
            for (int lane = 0; lane < LANES; lane++) {
                int from = lane * CHUNK_WORDS + at;
                for (int word = 0; word < BLOCK_WORDS; word++) {
                    message[word][lane] = input[from + word];
                }
            }
        }

        private void compress(long counter, int blockFlags) {
            for (int word = 0; word < CV_WORDS; word++) {
                System.arraycopy(cvs[word], 0, v[word], 0, LANES);
            }
            for (int word = 0; word < 4; word++) {
                Arrays.fill(v[8 + word], IV[word]);
            }
            for (int lane = 0; lane < LANES; lane++) {
                v[12][lane] = (int) (counter + lane);
                v[13][lane] = (int) ((counter + lane) >>> 32);
            }
            Arrays.fill(v[14], BLOCK_BYTES);
            Arrays.fill(v[15], blockFlags);
            for (int[] s : SCHEDULE) {
                round(s);
            }
            for (int word = 0; word < CV_WORDS; word++) {
                xor(cvs[word], v[word], v[word + CV_WORDS]);
            }
        }

        private void round(int[] s) {
            mix(v[0], v[4], v[8], v[12], message[s[0]], message[s[1]]);
            mix(v[1], v[5], v[9], v[13], message[s[2]], message[s[3]]);
            mix(v[2], v[6], v[10], v[14], message[s[4]], message[s[5]]);
            mix(v[3], v[7], v[11], v[15], message[s[6]], message[s[7]]);
            mix(v[0], v[5], v[10], v[15], message[s[8]], message[s[9]]);
            mix(v[1], v[6], v[11], v[12], message[s[10]], message[s[11]]);
            mix(v[2], v[7], v[8], v[13], message[s[12]], message[s[13]]);
            mix(v[3], v[4], v[9], v[14], message[s[14]], message[s[15]]);
        }

        private static void mix(int[] a, int[] b, int[] c, int[] d, int[] x, int[] y) {
            // A length unknown to the compiler: for a known one it unrolls instead of vectorizing.
            for (int i = 0; i < a.length; i++) {
                int va = a[i] + b[i] + x[i];
                int vd = Integer.rotateRight(d[i] ^ va, 16);
                int vc = c[i] + vd;
                int vb = Integer.rotateRight(b[i] ^ vc, 12);
                va += vb + y[i];
                vd = Integer.rotateRight(vd ^ va, 8);
                vc += vd;
                a[i] = va;
                b[i] = Integer.rotateRight(vb ^ vc, 7);
                c[i] = vc;
                d[i] = vd;
            }
        }

        private static void xor(int[] out, int[] low, int[] high) {
            for (int i = 0; i < out.length; i++) {
                out[i] = low[i] ^ high[i];
            }
        }
    }
}
