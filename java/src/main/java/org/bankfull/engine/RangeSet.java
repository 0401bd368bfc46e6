package org.bankfull.engine;

import java.util.Map;
import java.util.TreeMap;

/** Set of integers stored as ranges; memory grows with the number of ranges. */
final class RangeSet {
    /** First number of each range, mapped to its last. */
    private final TreeMap<Long, Long> ranges = new TreeMap<>();

    boolean contains(long number) {
        Map.Entry<Long, Long> before = ranges.floorEntry(number);
        return before != null && number <= before.getValue();
    }

    void add(long number) {
        if (contains(number)) {
            return;
        }
        Map.Entry<Long, Long> before = ranges.floorEntry(number);
        boolean joins = before != null && before.getValue() == number - 1;
        Long end = ranges.remove(number + 1);
        ranges.put(joins ? before.getKey() : number, end == null ? number : end);
    }

    /** Returns the number of ranges. */
    int rangeCount() {
        return ranges.size();
    }
}
