package org.bankfull.wire;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Binary format of a journal (spec/wire.md, appendix A). */
public final class JournalFormat {
    public static final int HEADER_BYTES = 64;
    public static final int RECORD_BYTES = 48;
    public static final int BOOT_ID_BYTES = 16;
    public static final int BLOCK = 1;
    public static final int HOLES = 2;
    public static final int BARRIER = 3;
    public static final int COPIED = 4;
    public static final int DAMAGED = 5;
    public static final int CLOSED = 6;

    private static final int HEADER_CHECKED_BYTES = 56;
    private static final int RECORD_CHECKED_BYTES = 44;

    private JournalFormat() {}

    /** Encodes the header of the journal of an entry. */
    public static byte[] header(Entry entry, byte[] bootId) {
        ByteBuffer out = ByteBuffer.allocate(HEADER_BYTES);
        out.put("BKFLJRN1".getBytes(StandardCharsets.US_ASCII)).putLong(entry.size);
        out.putLong(entry.mtimeSecs).putInt(entry.mtimeNanos).putInt(entry.blockBytes)
            .putLong(entry.version);
        out.put(bootId);
        out.put(hash(out.array(), 0, HEADER_CHECKED_BYTES), 0, HEADER_BYTES - HEADER_CHECKED_BYTES);
        return out.array();
    }

    /** Encodes a record of {@code kind} for block {@code number}; {@code hash} may be null. */
    public static byte[] record(int kind, long number, byte[] hash) {
        ByteBuffer out = ByteBuffer.allocate(RECORD_BYTES);
        out.putLong(number).put((byte) kind).put(new byte[3]);
        if (hash != null) {
            out.put(hash);
        }
        Buffers.position(out, RECORD_CHECKED_BYTES);
        out.put(hash(out.array(), 0, RECORD_CHECKED_BYTES), 0, RECORD_BYTES - RECORD_CHECKED_BYTES);
        return out.array();
    }

    /** Encodes a record of {@code count} blocks that are holes. */
    public static byte[] holes(long first, long count) {
        return record(HOLES, first, ByteBuffer.allocate(Blake3.HASH_BYTES).putLong(count).array());
    }

    /** True if the record at an offset has a known kind and a valid checksum. */
    public static boolean isValidRecord(byte[] bytes, int at) {
        byte[] expected = hash(bytes, at, RECORD_CHECKED_BYTES);
        int kind = bytes[at + 8];
        byte[] found = Arrays.copyOfRange(bytes, at + RECORD_CHECKED_BYTES, at + RECORD_BYTES);
        return kind >= BLOCK && kind <= CLOSED
            && Arrays.equals(Arrays.copyOf(expected, found.length), found);
    }

    private static byte[] hash(byte[] bytes, int offset, int length) {
        return Blake3.hasher().update(bytes, offset, length).finish();
    }
}
