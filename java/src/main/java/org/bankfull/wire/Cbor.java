package org.bankfull.wire;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Subset of CBOR (RFC 8949) used by control messages (spec/wire.md, section 4).
 *
 * <p>A data item is a {@code Long} ({@code BigInteger} from 2^63 on), {@code byte[]},
 * {@code String}, {@code Boolean}, {@code List} or {@code Map} with {@code Long} keys. Null,
 * undefined, floats and other simple values decode to {@code null}.
 */
final class Cbor {
    private static final int UNSIGNED = 0;
    private static final int NEGATIVE = 1;
    private static final int BYTES = 2;
    private static final int TEXT = 3;
    private static final int ARRAY = 4;
    private static final int MAP = 5;
    private static final int TAG = 6;
    private static final int FALSE = 0xF4;
    private static final int TRUE = 0xF5;
    private static final int BREAK = 0xFF;
    /** Nesting limit (chosen: known messages need 5, values of unknown keys may need more). */
    private static final int MAX_DEPTH = 32;
    /** Limit of items in a message (chosen: twice the largest message; dozens of bytes each). */
    private static final int MAX_ITEMS = 1 << 17;

    private Cbor() {}

    /** Encodes an item: definite lengths, shortest integers, keys in ascending order. */
    static byte[] write(Object item) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(256);
        write(item, out);
        return out.toByteArray();
    }

    /** Converts an unsigned integer of 64 bits to an item. */
    static Object unsigned(long bits) {
        return bits >= 0
            ? (Object) bits
            : BigInteger.valueOf(bits >>> 1).shiftLeft(1).or(BigInteger.valueOf(bits & 1));
    }

    private static void write(Object item, ByteArrayOutputStream out) {
        if (item instanceof Long) {
            long value = (Long) item;
            writeHead(out, value < 0 ? NEGATIVE : UNSIGNED, value < 0 ? ~value : value);
        } else if (item instanceof BigInteger) {
            writeHead(out, UNSIGNED, ((BigInteger) item).longValue());
        } else if (item instanceof byte[]) {
            writeString(out, BYTES, (byte[]) item);
        } else if (item instanceof String) {
            writeString(out, TEXT, ((String) item).getBytes(StandardCharsets.UTF_8));
        } else if (item instanceof Boolean) {
            out.write((Boolean) item ? TRUE : FALSE);
        } else if (item instanceof List) {
            List<?> items = (List<?>) item;
            writeHead(out, ARRAY, items.size());
            items.forEach(each -> write(each, out));
        } else if (item instanceof Map) {
            Map<?, ?> pairs = new TreeMap<>((Map<?, ?>) item);
            writeHead(out, MAP, pairs.size());
            pairs.forEach((key, value) -> {
                write(key, out);
                write(value, out);
            });
        } else {
            throw new IllegalArgumentException("cannot encode " + item);
        }
    }

    private static void writeString(ByteArrayOutputStream out, int major, byte[] bytes) {
        writeHead(out, major, bytes.length);
        out.write(bytes, 0, bytes.length);
    }

    private static void writeHead(ByteArrayOutputStream out, int major, long value) {
        int initial = major << 5;
        if (value < 0 || value > 0xFFFFFFFFL) {
            out.write(initial | 27);
            writeBigEndian(out, value, 8);
        } else if (value > 0xFFFF) {
            out.write(initial | 26);
            writeBigEndian(out, value, 4);
        } else if (value > 0xFF) {
            out.write(initial | 25);
            writeBigEndian(out, value, 2);
        } else if (value > 23) {
            out.write(initial | 24);
            out.write((int) value);
        } else {
            out.write(initial | (int) value);
        }
    }

    private static void writeBigEndian(ByteArrayOutputStream out, long value, int bytes) {
        for (int i = bytes - 1; i >= 0; i--) {
            out.write((int) (value >>> (8 * i)));
        }
    }

    /** Decodes a single item; trailing bytes are an error. */
    static Object read(byte[] bytes) throws WireException {
        Reader reader = new Reader(ByteBuffer.wrap(bytes));
        Object item = reader.readItem(0);
        if (reader.in.hasRemaining()) {
            throw new WireException("trailing bytes after a message");
        }
        return item;
    }

    private static final class Reader {
        private final ByteBuffer in;
        private int items;

        Reader(ByteBuffer in) {
            this.in = in;
        }

        Object readItem(int depth) throws WireException {
            if (depth > MAX_DEPTH || ++items > MAX_ITEMS) {
                throw new WireException("a message is nested too deeply or has too many items");
            }
            int first = readByte();
            int major = first >> 5;
            int info = first & 31;
            switch (major) {
                case UNSIGNED:
                    return unsigned(readArgument(info));
                case NEGATIVE:
                    long negative = readArgument(info);
                    if (negative < 0) {
                        throw new WireException("an integer is below -2^63");
                    }
                    return ~negative;
                case BYTES:
                    return readString(info);
                case TEXT:
                    return decodeUtf8(readString(info));
                case ARRAY:
                    return readArray(info, depth);
                case MAP:
                    return readMap(info, depth);
                case TAG:
                    readArgument(info);
                    return readItem(depth + 1);
                default:
                    return readSimple(info);
            }
        }

        private Object readSimple(int info) throws WireException {
            if (info == 20 || info == 21) {
                return info == 21;
            }
            if (info > 27) {
                throw new WireException("malformed item in a message");
            }
            if (info > 23) {
                readArgument(info);
            }
            return null;
        }

        private List<Object> readArray(int info, int depth) throws WireException {
            List<Object> items = new ArrayList<>();
            long left = info == 31 ? Long.MAX_VALUE : readLength(info);
            while (left > 0 && !skipBreak(info)) {
                items.add(readItem(depth + 1));
                left--;
            }
            return items;
        }

        private Map<Long, Object> readMap(int info, int depth) throws WireException {
            Map<Long, Object> pairs = new HashMap<>();
            long left = info == 31 ? Long.MAX_VALUE : readLength(info);
            while (left > 0 && !skipBreak(info)) {
                Object key = readItem(depth + 1);
                Object value = readItem(depth + 1);
                if (!(key instanceof Long)) {
                    throw new WireException("a key in a message is not an integer");
                }
                if (pairs.containsKey(key)) {
                    throw new WireException("duplicate key in a message");
                }
                pairs.put((Long) key, value);
                left--;
            }
            return pairs;
        }

        /** Consumes the end of an array or map of indefinite length, if it is next. */
        private boolean skipBreak(int info) throws WireException {
            if (info != 31) {
                return false;
            }
            if (!in.hasRemaining()) {
                throw truncated();
            }
            if ((in.get(in.position()) & 0xFF) != BREAK) {
                return false;
            }
            in.get();
            return true;
        }

        /** Reads a length, bounded by the remaining bytes: each item takes at least one. */
        private int readLength(int info) throws WireException {
            long length = readArgument(info);
            if (length < 0 || length > in.remaining()) {
                throw truncated();
            }
            return (int) length;
        }

        private byte[] readString(int info) throws WireException {
            byte[] bytes = new byte[readLength(info)];
            in.get(bytes);
            return bytes;
        }

        private static String decodeUtf8(byte[] bytes) throws WireException {
            try {
                return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes))
                    .toString();
            } catch (CharacterCodingException e) {
                throw new WireException("a text is not valid UTF-8");
            }
        }

        private long readArgument(int info) throws WireException {
            if (info < 24) {
                return info;
            }
            if (info > 27) {
                throw new WireException("malformed item in a message");
            }
            int bytes = 1 << (info - 24);
            if (in.remaining() < bytes) {
                throw truncated();
            }
            long value = 0;
            for (int i = 0; i < bytes; i++) {
                value = value << 8 | (in.get() & 0xFF);
            }
            return value;
        }

        private int readByte() throws WireException {
            if (!in.hasRemaining()) {
                throw truncated();
            }
            return in.get() & 0xFF;
        }

        private static WireException truncated() {
            return new WireException("truncated message");
        }
    }
}
