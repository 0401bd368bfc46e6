package org.bankfull.engine;

import java.util.Map;
import java.util.TreeMap;

/** A set of numbers, of which many stand side by side: as little memory as there are gaps. */
final class Spans {
    /** The first of each span, and the last. */
    private final TreeMap<Long, Long> spans = new TreeMap<>();

    boolean contains(long number) {
        Map.Entry<Long, Long> before = spans.floorEntry(number);
        return before != null && number <= before.getValue();
    }

    void add(long number) {
        if (contains(number)) {
            return;
        }
        Map.Entry<Long, Long> before = spans.floorEntry(number);
        boolean joins = before != null && before.getValue() == number - 1;
        Long end = spans.remove(number + 1);
        spans.put(joins ? before.getKey() : number, end == null ? number : end);
    }

    /** How many spans there are. */
    int count() {
        return spans.size();
    }
}
