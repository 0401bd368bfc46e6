package org.bankfull.wire;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Attach handshake and frame tags of a data stream (spec/wire.md, sections 8 and 9). */
public final class Attach {
    public static final int REPLY_BYTES = 32;
    public static final int NONCE_BYTES = 32;

    private static final int REQUEST_BYTES = 96;
    private static final int AUTHENTICATED_BYTES = 64;

    private Attach() {}

    public static byte[] request(int stream, byte[] session, byte[] key, byte[] nonce) {
        ByteBuffer out = ByteBuffer.allocate(REQUEST_BYTES);
        out.put(ascii("BKFLDATA")).putShort((short) 1).putShort((short) 0).putInt(stream);
        out.put(session).put(nonce);
        out.put(Blake3.keyed(key).update(out.array(), 0, AUTHENTICATED_BYTES).finish());
        return out.array();
    }

    public static byte[] reply(byte[] key, byte[] nonce) {
        return derive(key, "attach reply", nonce);
    }

    /** Derives the tag key of an unencrypted data stream. */
    public static byte[] deriveStreamKey(byte[] key, byte[] nonce) {
        return derive(key, "stream tags", nonce);
    }

    /** Computes the tag of frame {@code number} of an unencrypted data stream. */
    public static byte[] tag(byte[] streamKey, long number, byte[] header, byte[] payloadHash) {
        ByteBuffer in = ByteBuffer.allocate(8 + header.length + payloadHash.length);
        Buffers.flip(in.putLong(number).put(header).put(payloadHash));
        return Blake3.keyed(streamKey).update(in).finish();
    }

    private static byte[] derive(byte[] key, String label, byte[] nonce) {
        byte[] ascii = ascii(label);
        return Blake3.keyed(key).update(ascii, 0, ascii.length).update(nonce, 0, nonce.length)
            .finish();
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
