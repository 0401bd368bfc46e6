package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class RangeSetTest {
    @Test
    void randomNumbers_matchHashSetWithMinimalRanges() {
        long seed = 4;
        Random random = new Random(seed);
        RangeSet ranges = new RangeSet();
        Set<Long> expected = new HashSet<>();
        for (int i = 0; i < 3000; i++) {
            long number = random.nextInt(1000);
            ranges.add(number);
            expected.add(number);
            int rangeCount = 0;
            for (long value = 0; value <= 1000; value++) {
                assertEquals(
                    expected.contains(value), ranges.contains(value), value + ", seed " + seed);
                rangeCount += expected.contains(value) && !expected.contains(value - 1) ? 1 : 0;
            }
            assertEquals(rangeCount, ranges.rangeCount(), "seed " + seed);
        }
    }
}
