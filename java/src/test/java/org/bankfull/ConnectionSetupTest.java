package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.bankfull.FakeDaemon.Peer;
import org.bankfull.wire.DaemonMessages;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.Message.Totals;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Setup of a session with daemons that are slow, busy or hostile. */
class ConnectionSetupTest {
    private static final int TIMEOUT_MILLIS = 2000;
    /** Pause between single bytes or pings, far below the timeout. */
    private static final int TRICKLE_MILLIS = 100;
    private static final Source ROOT = new Source(new byte[0], true, true);

    @TempDir
    Path temp;

    private static BankfullException errorOf(Client client) {
        return assertThrows(
            BankfullException.class, () -> client.list("", entry -> { }));
    }

    /** Asserts that a client gives up in its timeout. */
    private void assertTimesOut(FakeDaemon daemon, String message) throws IOException {
        try (daemon) {
            Client client = daemon.client().timeoutMillis(TIMEOUT_MILLIS);
            long start = System.nanoTime();
            BankfullException error = errorOf(client);
            long millis = (System.nanoTime() - start) / 1_000_000;
            assertEquals(Failure.TIMED_OUT, error.code(), error.getMessage());
            assertTrue(error.getMessage().contains(message), error.getMessage());
            assertTrue(millis >= TIMEOUT_MILLIS && millis < 2 * TIMEOUT_MILLIS, millis + " ms");
            assertEquals(1, daemon.connections());
        }
    }

    /** Sends bytes one by one, then pings, until the client closes the connection. */
    private static void trickle(Peer peer, byte[] first) throws Exception {
        for (byte each : first) {
            peer.sendRaw(new byte[] {each});
            Thread.sleep(TRICKLE_MILLIS);
        }
        while (true) {
            peer.send(Message.ping());
            Thread.sleep(TRICKLE_MILLIS);
        }
    }

    @Test
    void tlsHandshake_trickled_timesOut() throws Exception {
        // The header of a long record, and its beginning.
        byte[] first = {0x16, 3, 3, 0x20, 0, 2, 0, 0x1f, 0};
        assertTimesOut(FakeDaemon.raw(temp, socket -> {
            socket.getInputStream().read(new byte[4096]);
            for (int i = 0;; i++) {
                socket.getOutputStream().write(i < first.length ? first[i] : 0);
                Thread.sleep(TRICKLE_MILLIS);
            }
        }), "accepted the connection but did not answer");
    }

    @Test
    void welcome_trickledOrAbsent_timesOut() throws Exception {
        byte[] welcome = FakeDaemon.frame(DaemonMessages.welcome());
        assertTimesOut(FakeDaemon.greeted(temp, peer -> trickle(peer, welcome)), "no response");
        assertTimesOut(FakeDaemon.greeted(temp, peer -> peer.receive()), "no response");
    }

    @Test
    void opened_trickledOrAbsent_timesOut() throws Exception {
        byte[] opened = FakeDaemon.frame(DaemonMessages.opened(ROOT));
        for (byte[] first : new byte[][] {opened, new byte[0]}) {
            assertTimesOut(FakeDaemon.greeted(temp, peer -> {
                Thread.sleep(TIMEOUT_MILLIS / 2);
                peer.send(DaemonMessages.welcome());
                peer.receive();
                trickle(peer, first);
            }), "no response");
        }
    }

    @Test
    void session_opened_isNotLimitedBySetupDeadline() throws Exception {
        try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
            serveEmptyList(peer, TIMEOUT_MILLIS);
        })) {
            daemon.client().timeoutMillis(TIMEOUT_MILLIS).list("", entry -> { });
        }
    }

    private static void serveEmptyList(Peer peer, int pingMillis) throws Exception {
        peer.send(DaemonMessages.welcome());
        peer.receive();
        peer.send(DaemonMessages.opened(ROOT));
        for (int i = 0; i <= pingMillis / TRICKLE_MILLIS; i++) {
            peer.send(Message.ping());
            Thread.sleep(TRICKLE_MILLIS);
        }
        peer.send(new Totals().write());
        peer.send(Message.sideSummary(Message.FINISH, new long[5], 0));
        peer.receive();
    }

    @Test
    void connection_droppedBeforeWelcome_isTriedAgain() throws Exception {
        List<Long> starts = new ArrayList<>();
        try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
            starts.add(System.nanoTime());
            if (starts.size() == 3) {
                peer.send(Message.error(new Failure(Failure.BUSY, "no room")));
            } else if (starts.size() > 3) {
                serveEmptyList(peer, 0);
            }
        })) {
            daemon.client().timeoutMillis(20_000).list("", entry -> { });
            assertEquals(4, starts.size());
            assertTrue(starts.get(1) - starts.get(0) >= 100_000_000, "no pause");
        }
    }

    @Test
    void connection_droppedBeforeTls_isTriedAgainUntilTimeout() throws Exception {
        try (FakeDaemon daemon = FakeDaemon.raw(temp, socket -> { })) {
            long start = System.nanoTime();
            BankfullException error = errorOf(daemon.client().timeoutMillis(TIMEOUT_MILLIS));
            long millis = (System.nanoTime() - start) / 1_000_000;
            assertTrue(error.getMessage().contains("closed the connection"), error.getMessage());
            assertTrue(millis >= TIMEOUT_MILLIS && millis < 2 * TIMEOUT_MILLIS, millis + " ms");
            assertTrue(daemon.connections() > 2, daemon.connections() + " connections");
        }
    }

    @Test
    void connection_droppedByUnknownServer_isTriedFourTimes() throws Exception {
        // Unpinned: the server may be of another kind.
        try (FakeDaemon daemon = FakeDaemon.raw(temp, socket -> { })) {
            Client unknown = daemon.client().fingerprint(null).timeoutMillis(60_000);
            BankfullException error = errorOf(unknown);
            assertTrue(error.getMessage().contains("closed the connection"), error.getMessage());
            // Each is counted before it is closed.
            assertEquals(4, daemon.connections());
        }
    }

    @Test
    void connection_droppedAfterWelcome_isAnError() throws Exception {
        AtomicInteger sessions = new AtomicInteger();
        try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
            sessions.incrementAndGet();
            peer.send(DaemonMessages.welcome());
            peer.receive();
        })) {
            BankfullException error = errorOf(daemon.client());
            assertTrue(error.getMessage().contains("closed the connection"), error.getMessage());
            assertEquals(1, sessions.get());
        }
    }
}
