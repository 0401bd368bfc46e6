package org.bankfull.wire;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** How a data connection joins its session; tags of its frames (spec/wire.md, sections 8, 9). */
public final class Attach {
    public static final int REPLY_BYTES = 32;
    public static final int NONCE_BYTES = 32;

    private static final int REQUEST_BYTES = 96;
    private static final int PROVEN = 64;

    private Attach() {}

    public static byte[] request(int stream, byte[] session, byte[] key, byte[] nonce) {
        ByteBuffer out = ByteBuffer.allocate(REQUEST_BYTES);
        out.put(ascii("BKFLDATA")).putShort((short) 1).putShort((short) 0).putInt(stream);
        out.put(session).put(nonce);
        out.put(Blake3.keyed(key).update(out.array(), 0, PROVEN).finish());
        return out.array();
    }

    public static byte[] reply(byte[] key, byte[] nonce) {
        return labelled(key, "attach reply", nonce);
    }

    /** The key of the tags on a plain connection. */
    public static byte[] streamKey(byte[] key, byte[] nonce) {
        return labelled(key, "stream tags", nonce);
    }

    /** The tag of frame {@code number} of a plain connection. */
    public static byte[] tag(byte[] streamKey, long number, byte[] header, byte[] payloadHash) {
        ByteBuffer in = ByteBuffer.allocate(8 + header.length + payloadHash.length);
        Buffers.flip(in.putLong(number).put(header).put(payloadHash));
        return Blake3.keyed(streamKey).update(in).finish();
    }

    private static byte[] labelled(byte[] key, String label, byte[] nonce) {
        byte[] ascii = ascii(label);
        return Blake3.keyed(key).update(ascii, 0, ascii.length).update(nonce, 0, nonce.length)
            .finish();
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
