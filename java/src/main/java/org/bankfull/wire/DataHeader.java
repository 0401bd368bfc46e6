package org.bankfull.wire;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** Header of 32 bytes before each payload of a data stream (spec/wire.md, section 9). */
public final class DataHeader {
    public static final int BYTES = 32;
    public static final int BLOCK = 1;
    public static final int PACK = 2;
    public static final int END = 3;

    private static final int CHECKED_BYTES = 28;

    public final int kind;
    /** Number of files in a pack. */
    public final int count;
    public final long file;
    public final long offset;
    public final int length;

    private DataHeader(int kind, int count, long file, long offset, int length) {
        this.kind = kind;
        this.count = count;
        this.file = file;
        this.offset = offset;
        this.length = length;
    }

    public static DataHeader block(long file, long offset, int length) {
        return new DataHeader(BLOCK, 0, file, offset, length);
    }

    public static DataHeader pack(int files, int length) {
        return new DataHeader(PACK, files, 0, 0, length);
    }

    public static DataHeader end() {
        return new DataHeader(END, 0, 0, 0, 0);
    }

    public byte[] write() {
        ByteBuffer out = ByteBuffer.allocate(BYTES);
        out.put((byte) 'B').put((byte) 'K').put((byte) kind).put((byte) 0).putInt(count);
        out.putLong(file).putLong(offset).putInt(length);
        out.put(checksum(out.array()), 0, BYTES - CHECKED_BYTES);
        return out.array();
    }

    public static DataHeader read(byte[] bytes) throws WireException {
        ByteBuffer in = ByteBuffer.wrap(bytes);
        boolean hasMagic = in.get() == 'B' && in.get() == 'K';
        int kind = in.get(2);
        if (!hasMagic || kind < BLOCK || kind > END || in.get(3) != 0 || !hasValidChecksum(bytes)) {
            throw new WireException("malformed data frame header");
        }
        DataHeader header =
            new DataHeader(kind, in.getInt(4), in.getLong(8), in.getLong(16), in.getInt(24));
        header.checkBounds();
        return header;
    }

    private void checkBounds() throws WireException {
        int maxLength =
            kind == BLOCK ? Limits.MAX_BLOCK_BYTES : kind == PACK ? Limits.MAX_PACK_BYTES : 0;
        boolean fits =
            length >= 0 && length <= maxLength && offset >= 0 && offset <= Long.MAX_VALUE - length;
        if (!fits || kind == BLOCK && (length == 0 || file <= 0)) {
            throw new WireException("a data frame exceeds its limits");
        }
        if (kind == PACK && (count < 1 || count > Limits.MAX_PACK_FILES)) {
            throw new WireException("a pack has " + count + " files");
        }
    }

    private static boolean hasValidChecksum(byte[] bytes) {
        return Arrays.equals(Arrays.copyOf(checksum(bytes), BYTES - CHECKED_BYTES),
            Arrays.copyOfRange(bytes, CHECKED_BYTES, BYTES));
    }

    private static byte[] checksum(byte[] bytes) {
        return Blake3.hasher().update(bytes, 0, CHECKED_BYTES).finish();
    }
}
