package org.bankfull.wire;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** The bytes of a journal (spec/wire.md, appendix A). */
public final class JournalFormat {
    public static final int HEADER_BYTES = 64;
    public static final int RECORD_BYTES = 48;
    public static final int BOOT_BYTES = 16;
    public static final int BLOCK = 1;
    public static final int HOLES = 2;
    public static final int BARRIER = 3;
    public static final int COPIED = 4;

    private static final int HEADER_CHECKED = 56;
    private static final int RECORD_CHECKED = 44;

    private JournalFormat() {}

    /** For a part of this entry. */
    public static byte[] header(Entry entry, byte[] boot) {
        ByteBuffer out = ByteBuffer.allocate(HEADER_BYTES);
        out.put("BKFLJRN1".getBytes(StandardCharsets.US_ASCII)).putLong(entry.size);
        out.putLong(entry.mtimeSecs).putInt(entry.mtimeNanos).putInt(entry.blockBytes)
            .putLong(entry.version);
        out.put(boot);
        out.put(hash(out.array(), 0, HEADER_CHECKED), 0, HEADER_BYTES - HEADER_CHECKED);
        return out.array();
    }

    /** A record of {@code kind} for block {@code number}; {@code hash} may be null. */
    public static byte[] record(int kind, long number, byte[] hash) {
        ByteBuffer out = ByteBuffer.allocate(RECORD_BYTES);
        out.putLong(number).put((byte) kind).put(new byte[3]);
        if (hash != null) {
            out.put(hash);
        }
        Buffers.position(out, RECORD_CHECKED);
        out.put(hash(out.array(), 0, RECORD_CHECKED), 0, RECORD_BYTES - RECORD_CHECKED);
        return out.array();
    }

    /** A record of {@code count} blocks that are holes. */
    public static byte[] holes(long first, long count) {
        return record(HOLES, first, ByteBuffer.allocate(Blake3.HASH_BYTES).putLong(count).array());
    }

    /** Whether the record at an offset is whole and of a known kind. */
    public static boolean isWhole(byte[] bytes, int at) {
        byte[] check = hash(bytes, at, RECORD_CHECKED);
        int kind = bytes[at + 8];
        byte[] stands = Arrays.copyOfRange(bytes, at + RECORD_CHECKED, at + RECORD_BYTES);
        return kind >= BLOCK && kind <= COPIED
            && Arrays.equals(Arrays.copyOf(check, stands.length), stands);
    }

    private static byte[] hash(byte[] bytes, int offset, int length) {
        return Blake3.hasher().update(bytes, offset, length).finish();
    }
}
