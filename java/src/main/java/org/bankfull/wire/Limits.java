package org.bankfull.wire;

/** Bounds of the protocol (spec/wire.md, section 13). */
public final class Limits {
    public static final int CONTROL_FRAME_BYTES = 1 << 20;
    /** Before the token is accepted. */
    public static final int HELLO_FRAME_BYTES = 16 << 10;
    public static final int NAME_BYTES = 255;
    public static final int PATH_BYTES = 4096;
    public static final int TEXT_BYTES = 4096;
    public static final int DEPTH = 1024;
    public static final int ENTRIES_IN_MESSAGE = 1024;
    public static final int BLOCK_BYTES_LEAST = 1 << 20;
    public static final int BLOCK_BYTES_MOST = 16 << 20;
    public static final long FILE_BLOCKS = 1L << 26;
    public static final int PACKED_FILE_BYTES = 256 << 10;
    /** A pack is closed by the file that brings it to so many. */
    public static final int PACK_BYTES_AIMED = 1 << 20;
    public static final int PACK_BYTES = PACK_BYTES_AIMED + PACKED_FILE_BYTES + 64;
    public static final int PACK_FILES = 1024;
    public static final int STREAMS = 64;
    public static final int RUNS_IN_LIST = 16 << 10;

    private Limits() {}
}
