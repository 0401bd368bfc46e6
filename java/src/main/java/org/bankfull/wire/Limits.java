package org.bankfull.wire;

/** Limits of the protocol (spec/wire.md, section 13). */
public final class Limits {
    public static final int MAX_CONTROL_FRAME_BYTES = 1 << 20;
    /** Limit before authentication. */
    public static final int MAX_HELLO_FRAME_BYTES = 16 << 10;
    public static final int MAX_NAME_BYTES = 255;
    public static final int MAX_PATH_BYTES = 4096;
    public static final int MAX_TEXT_BYTES = 4096;
    public static final int MAX_DIRECTORY_DEPTH = 1024;
    public static final int MAX_ENTRIES_PER_BATCH = 1024;
    /** Directories announced and not completed. */
    public static final int MAX_OPEN_DIRECTORIES = 131072;
    public static final int MIN_BLOCK_BYTES = 1 << 20;
    public static final int MAX_BLOCK_BYTES = 16 << 20;
    public static final long MAX_FILE_BLOCKS = 1L << 26;
    public static final int MAX_PACKED_FILE_BYTES = 256 << 10;
    /** Payload size that closes a pack. */
    public static final int PACK_TARGET_BYTES = 1 << 20;
    public static final int MAX_PACK_BYTES = PACK_TARGET_BYTES + MAX_PACKED_FILE_BYTES + 64;
    public static final int MAX_PACK_FILES = 1024;
    public static final int MAX_STREAMS = 64;
    public static final int MAX_RUNS = 16 << 10;

    private Limits() {}
}
