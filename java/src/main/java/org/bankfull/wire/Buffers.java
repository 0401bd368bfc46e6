package org.bankfull.wire;

import java.nio.Buffer;
import java.nio.ByteBuffer;

/**
 * Where a buffer begins and ends, set by what every version of the library has: the methods of
 * {@code ByteBuffer} that return one came with Java 9, and Android's interface does not list them.
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
