package org.bankfull.wire;

import java.nio.Buffer;
import java.nio.ByteBuffer;

/**
 * Position and limit of buffers, set through methods that every Java library has.
 *
 * <p>The overloads that return a {@code ByteBuffer} came with Java 9 and are not in the Android
 * API.
 */
public final class Buffers {
    private Buffers() {}

    public static ByteBuffer flip(ByteBuffer buffer) {
        ((Buffer) buffer).flip();
        return buffer;
    }

    public static ByteBuffer clear(ByteBuffer buffer) {
        ((Buffer) buffer).clear();
        return buffer;
    }

    public static ByteBuffer limit(ByteBuffer buffer, int limit) {
        ((Buffer) buffer).limit(limit);
        return buffer;
    }

    public static ByteBuffer position(ByteBuffer buffer, int position) {
        ((Buffer) buffer).position(position);
        return buffer;
    }
}
