package org.bankfull.wire;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The keys of a structure in a message, each read as what it must be. */
final class Fields {
    private final Map<?, ?> pairs;
    private final String of;

    Fields(Object item, String of) throws WireException {
        if (!(item instanceof Map)) {
            throw new WireException(of + " is no map");
        }
        this.pairs = (Map<?, ?>) item;
        this.of = of;
    }

    boolean has(int key) {
        return pairs.get((long) key) != null;
    }

    private <T> T get(int key, Class<T> type) throws WireException {
        Object value = pairs.get((long) key);
        if (!type.isInstance(value)) {
            throw new WireException(of + ": key " + key + " is missing or of the wrong kind");
        }
        return type.cast(value);
    }

    /** An unsigned integer below 2^63. */
    long count(int key) throws WireException {
        return within(get(key, Long.class), Long.MAX_VALUE);
    }

    /** An unsigned integer that is {@code most} at most. */
    int small(int key, int most) throws WireException {
        return (int) within(get(key, Long.class), most);
    }

    private long within(long value, long most) throws WireException {
        if (value < 0 || value > most) {
            throw new WireException(of + ": " + value + " is out of bounds");
        }
        return value;
    }

    /** An unsigned integer of 64 bits, by its bits. */
    long bits(int key) throws WireException {
        Object value = pairs.get((long) key);
        return value instanceof BigInteger ? ((BigInteger) value).longValue() : count(key);
    }

    long signed(int key) throws WireException {
        return get(key, Long.class);
    }

    boolean bool(int key) throws WireException {
        return get(key, Boolean.class);
    }

    String text(int key) throws WireException {
        return get(key, String.class);
    }

    byte[] bytes(int key, int most) throws WireException {
        byte[] value = get(key, byte[].class);
        if (value.length > most) {
            throw new WireException(of + ": a string of " + value.length + " bytes is too long");
        }
        return value;
    }

    byte[] exactly(int key, int length) throws WireException {
        byte[] value = bytes(key, length);
        if (value.length != length) {
            throw new WireException(of + ": " + value.length + " bytes where there must be "
                + length);
        }
        return value;
    }

    Object item(int key) {
        return pairs.get((long) key);
    }

    List<?> list(int key) throws WireException {
        return get(key, List.class);
    }

    /** Unsigned integers below 2^63. */
    static List<Long> counts(Object item, String of) throws WireException {
        List<Long> counts = new ArrayList<>();
        for (Object each : list(item, of)) {
            if (!(each instanceof Long) || (Long) each < 0) {
                throw new WireException(of + ": no unsigned integer");
            }
            counts.add((Long) each);
        }
        return counts;
    }

    static List<?> list(Object item, String of) throws WireException {
        if (!(item instanceof List)) {
            throw new WireException(of + " is no array");
        }
        return (List<?>) item;
    }
}
