package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class SpansTest {
    @Test
    void theyHoldWhatASetHoldsInAsManyPiecesAsThereAre() {
        long seed = 4;
        Random random = new Random(seed);
        Spans spans = new Spans();
        Set<Long> same = new HashSet<>();
        for (int i = 0; i < 3000; i++) {
            long number = random.nextInt(1000);
            spans.add(number);
            same.add(number);
            int pieces = 0;
            for (long at = 0; at <= 1000; at++) {
                assertEquals(same.contains(at), spans.contains(at), at + ", seed " + seed);
                pieces += same.contains(at) && !same.contains(at - 1) ? 1 : 0;
            }
            assertEquals(pieces, spans.count(), "seed " + seed);
        }
    }
}
