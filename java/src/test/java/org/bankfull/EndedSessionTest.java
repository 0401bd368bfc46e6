package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.bankfull.FakeDaemon.Behavior;
import org.bankfull.FakeDaemon.Peer;
import org.bankfull.wire.DaemonMessages;
import org.bankfull.wire.DataHeader;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.Message.Totals;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Ends of sessions: nothing is read, written or waited for beyond them. */
class EndedSessionTest {
    /** Pause between single bytes or pings, far below any timeout. */
    private static final int TRICKLE_MILLIS = 50;
    private static final Source ROOT = new Source(new byte[0], true, true);

    @TempDir
    Path temp;
    private Path home;

    @BeforeEach
    void makeHome() throws IOException {
        home = Files.createDirectory(temp.resolve("home"));
    }

    private static long millisSince(long start) {
        return (System.nanoTime() - start) / 1_000_000;
    }

    /** Sends something until the client closes the connection. */
    private static void repeat(Peer peer, byte[] bytes) throws Exception {
        while (true) {
            peer.sendRaw(bytes);
            Thread.sleep(TRICKLE_MILLIS);
        }
    }

    /** Treats a data stream without data. */
    private static void endStream(Peer peer) throws Exception {
        peer.sendRaw(peer.receiveAttach());
        peer.sendRaw(DataHeader.end().write());
        peer.awaitEnd();
    }

    /** Fetches nothing from a daemon that continues in some way after Done. */
    private void fetchWithoutClose(Behavior<Peer> afterDone) throws Exception {
        try (FakeDaemon daemon = FakeDaemon.withStreams(temp, peer -> {
            peer.send(DaemonMessages.welcome());
            peer.receive();
            peer.send(DaemonMessages.opened(ROOT));
            peer.send(new Totals().write());
            peer.send(Message.sideSummary(Message.FINISH, new long[5], 0));
            while (peer.receive().number != Message.DONE) { }
            afterDone.handle(peer);
        }, EndedSessionTest::endStream)) {
            long start = System.nanoTime();
            Summary summary =
                daemon.client().timeoutMillis(1000).get(List.of(""), home.toString());
            assertEquals(0, summary.failed);
            assertTrue(millisSince(start) < 5000, millisSince(start) + " ms");
        }
    }

    @Test
    void get_daemonStaysAfterDone_succeedsSoon() throws Exception {
        fetchWithoutClose(peer -> repeat(peer, FakeDaemon.frame(Message.ping().write())));
        // A frame that does not end.
        fetchWithoutClose(peer -> repeat(peer, new byte[1]));
        fetchWithoutClose(peer -> {
            byte[] totals = FakeDaemon.frame(new Totals().write().write());
            while (true) {
                peer.sendRaw(totals);
            }
        });
        fetchWithoutClose(Peer::awaitEnd);
    }

    @Test
    void get_daemonClosesAfterDone_isNotDelayed() throws Exception {
        fetchWithoutClose(peer -> { });
        long start = System.nanoTime();
        fetchWithoutClose(peer -> { });
        assertTrue(millisSince(start) < 900, millisSince(start) + " ms");
    }
}
