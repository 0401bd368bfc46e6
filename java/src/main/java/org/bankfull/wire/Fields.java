package org.bankfull.wire;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Typed access to the keys of a structure in a message. */
final class Fields {
    private final Map<?, ?> pairs;
    private final String structure;

    Fields(Object item, String structure) throws WireException {
        if (!(item instanceof Map)) {
            throw new WireException(structure + " is not a map");
        }
        this.pairs = (Map<?, ?>) item;
        this.structure = structure;
    }

    boolean has(int key) {
        return pairs.get((long) key) != null;
    }

    private <T> T get(int key, Class<T> type) throws WireException {
        Object value = pairs.get((long) key);
        if (!type.isInstance(value)) {
            throw new WireException(
                structure + ": key " + key + " is missing or has the wrong type");
        }
        return type.cast(value);
    }

    /** Returns an unsigned integer below 2^63. */
    long unsigned(int key) throws WireException {
        return within(get(key, Long.class), Long.MAX_VALUE);
    }

    /** Returns an unsigned integer of at most {@code max}. */
    int boundedInt(int key, int max) throws WireException {
        return (int) within(get(key, Long.class), max);
    }

    private long within(long value, long max) throws WireException {
        if (value < 0 || value > max) {
            throw new WireException(structure + ": " + value + " is out of range");
        }
        return value;
    }

    /** Returns the bits of an unsigned integer of 64 bits. */
    long unsigned64(int key) throws WireException {
        Object value = pairs.get((long) key);
        return value instanceof BigInteger ? ((BigInteger) value).longValue() : unsigned(key);
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

    byte[] bytes(int key, int max) throws WireException {
        byte[] value = get(key, byte[].class);
        if (value.length > max) {
            throw new WireException(
                structure + ": a string of " + value.length + " bytes exceeds its limit");
        }
        return value;
    }

    byte[] fixedBytes(int key, int length) throws WireException {
        byte[] value = bytes(key, length);
        if (value.length != length) {
            throw new WireException(
                structure + ": " + value.length + " bytes instead of " + length);
        }
        return value;
    }

    Object item(int key) {
        return pairs.get((long) key);
    }

    List<?> list(int key) throws WireException {
        return get(key, List.class);
    }

    /** Converts an array of unsigned integers below 2^63. */
    static List<Long> unsignedList(Object item, String structure) throws WireException {
        List<Long> counts = new ArrayList<>();
        for (Object each : list(item, structure)) {
            if (!(each instanceof Long) || (Long) each < 0) {
                throw new WireException(structure + " has an item that is not an unsigned integer");
            }
            counts.add((Long) each);
        }
        return counts;
    }

    static List<?> list(Object item, String structure) throws WireException {
        if (!(item instanceof List)) {
            throw new WireException(structure + " is not an array");
        }
        return (List<?>) item;
    }
}
