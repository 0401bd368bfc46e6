package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SessionTest {
    @Test
    void pingInterval_isQuarterOfShorterTimeoutWithinLimits() {
        assertEquals(10_000, Session.pingIntervalMillis(60_000, 60_000));
        assertEquals(2000, Session.pingIntervalMillis(8000, 60_000));
        assertEquals(500, Session.pingIntervalMillis(0, 2000));
        assertEquals(100, Session.pingIntervalMillis(3, 60_000));
        assertEquals(100, Session.pingIntervalMillis(60_000, 1));
    }
}
