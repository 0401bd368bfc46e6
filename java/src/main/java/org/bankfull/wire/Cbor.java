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
 * The part of CBOR (RFC 8949) that control messages use (spec/wire.md, section 4).
 *
 * <p>An item is a {@code Long} ({@code BigInteger} from 2^63 on), {@code byte[]}, {@code String},
 * {@code Boolean}, {@code List} or {@code Map} with keys {@code Long}; null, undefined and what
 * none of ours uses (floats, other simple values) are read as {@code null}.
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
    /** Ours nest five deep; a peer's unknown keys may hold more. */
    private static final int DEPTH_MAX = 32;
    /** Items of a message: the most that ours hold, twice. Each takes some dozens of bytes here. */
    private static final int ITEMS_MAX = 1 << 17;

    private Cbor() {}

    /** An item with definite lengths, the shortest integers, and keys in ascending order. */
    static byte[] write(Object item) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(256);
        write(item, out);
        return out.toByteArray();
    }

    /** An unsigned integer of 64 bits, as an item. */
    static Object unsigned(long bits) {
        return bits >= 0
            ? (Object) bits
            : BigInteger.valueOf(bits >>> 1).shiftLeft(1).or(BigInteger.valueOf(bits & 1));
    }

    private static void write(Object item, ByteArrayOutputStream out) {
        if (item instanceof Long) {
            long value = (Long) item;
            head(out, value < 0 ? NEGATIVE : UNSIGNED, value < 0 ? ~value : value);
        } else if (item instanceof BigInteger) {
            head(out, UNSIGNED, ((BigInteger) item).longValue());
        } else if (item instanceof byte[]) {
            string(out, BYTES, (byte[]) item);
        } else if (item instanceof String) {
            string(out, TEXT, ((String) item).getBytes(StandardCharsets.UTF_8));
        } else if (item instanceof Boolean) {
            out.write((Boolean) item ? TRUE : FALSE);
        } else if (item instanceof List) {
            List<?> items = (List<?>) item;
            head(out, ARRAY, items.size());
            items.forEach(each -> write(each, out));
        } else if (item instanceof Map) {
            Map<?, ?> pairs = new TreeMap<>((Map<?, ?>) item);
            head(out, MAP, pairs.size());
            pairs.forEach((key, value) -> {
                write(key, out);
                write(value, out);
            });
        } else {
            throw new IllegalArgumentException("no message holds " + item);
        }
    }

    private static void string(ByteArrayOutputStream out, int major, byte[] bytes) {
        head(out, major, bytes.length);
        out.write(bytes, 0, bytes.length);
    }

    private static void head(ByteArrayOutputStream out, int major, long value) {
        int shape = major << 5;
        if (value < 0 || value > 0xFFFFFFFFL) {
            out.write(shape | 27);
            bigEndian(out, value, 8);
        } else if (value > 0xFFFF) {
            out.write(shape | 26);
            bigEndian(out, value, 4);
        } else if (value > 0xFF) {
            out.write(shape | 25);
            bigEndian(out, value, 2);
        } else if (value > 23) {
            out.write(shape | 24);
            out.write((int) value);
        } else {
            out.write(shape | (int) value);
        }
    }

    private static void bigEndian(ByteArrayOutputStream out, long value, int bytes) {
        for (int i = bytes - 1; i >= 0; i--) {
            out.write((int) (value >>> (8 * i)));
        }
    }

    /** Reads the one item that the bytes are. */
    static Object read(byte[] bytes) throws WireException {
        Reader reader = new Reader(ByteBuffer.wrap(bytes));
        Object item = reader.item(0);
        if (reader.in.hasRemaining()) {
            throw new WireException("a message has something behind it");
        }
        return item;
    }

    private static final class Reader {
        private final ByteBuffer in;
        private int items;

        Reader(ByteBuffer in) {
            this.in = in;
        }

        Object item(int depth) throws WireException {
            if (depth > DEPTH_MAX || ++items > ITEMS_MAX) {
                throw new WireException("a message is nested too deep, or holds too much");
            }
            int first = octet();
            int major = first >> 5;
            int info = first & 31;
            switch (major) {
                case UNSIGNED:
                    return unsigned(value(info));
                case NEGATIVE:
                    long negative = value(info);
                    if (negative < 0) {
                        throw new WireException("an integer is below the least that fits");
                    }
                    return ~negative;
                case BYTES:
                    return string(info);
                case TEXT:
                    return utf8(string(info));
                case ARRAY:
                    return array(info, depth);
                case MAP:
                    return map(info, depth);
                case TAG:
                    value(info);
                    return item(depth + 1);
                default:
                    return simple(info);
            }
        }

        private Object simple(int info) throws WireException {
            if (info == 20 || info == 21) {
                return info == 21;
            }
            if (info > 27) {
                throw new WireException("a message holds a broken item");
            }
            if (info > 23) {
                value(info);
            }
            return null;
        }

        private List<Object> array(int info, int depth) throws WireException {
            List<Object> items = new ArrayList<>();
            long left = info == 31 ? Long.MAX_VALUE : count(info);
            while (left > 0 && !atBreak(info)) {
                items.add(item(depth + 1));
                left--;
            }
            return items;
        }

        private Map<Long, Object> map(int info, int depth) throws WireException {
            Map<Long, Object> pairs = new HashMap<>();
            long left = info == 31 ? Long.MAX_VALUE : count(info);
            while (left > 0 && !atBreak(info)) {
                Object key = item(depth + 1);
                Object value = item(depth + 1);
                if (!(key instanceof Long)) {
                    throw new WireException("a key of a message is no integer");
                }
                if (pairs.containsKey(key)) {
                    throw new WireException("a key of a message comes twice");
                }
                pairs.put((Long) key, value);
                left--;
            }
            return pairs;
        }

        /** Steps over the end of an array or map of indefinite length. */
        private boolean atBreak(int info) throws WireException {
            if (info != 31) {
                return false;
            }
            if (!in.hasRemaining()) {
                throw cut();
            }
            if ((in.get(in.position()) & 0xFF) != BREAK) {
                return false;
            }
            in.get();
            return true;
        }

        /** A length, which never passes what there is: each item takes a byte at least. */
        private int count(int info) throws WireException {
            long length = value(info);
            if (length < 0 || length > in.remaining()) {
                throw cut();
            }
            return (int) length;
        }

        private byte[] string(int info) throws WireException {
            byte[] bytes = new byte[count(info)];
            in.get(bytes);
            return bytes;
        }

        private static String utf8(byte[] bytes) throws WireException {
            try {
                return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes))
                    .toString();
            } catch (CharacterCodingException e) {
                throw new WireException("a text is no UTF-8");
            }
        }

        private long value(int info) throws WireException {
            if (info < 24) {
                return info;
            }
            if (info > 27) {
                throw new WireException("a message holds a broken item");
            }
            int bytes = 1 << (info - 24);
            if (in.remaining() < bytes) {
                throw cut();
            }
            long value = 0;
            for (int i = 0; i < bytes; i++) {
                value = value << 8 | (in.get() & 0xFF);
            }
            return value;
        }

        private int octet() throws WireException {
            if (!in.hasRemaining()) {
                throw cut();
            }
            return in.get() & 0xFF;
        }

        private static WireException cut() {
            return new WireException("a message ends too early");
        }
    }
}
