package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.bankfull.FakeDaemon.Behavior;
import org.bankfull.FakeDaemon.Peer;
import org.bankfull.wire.DaemonMessages;
import org.bankfull.wire.DataHeader;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.Message.Totals;
import org.bankfull.wire.Message.Want;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Ends of sessions: nothing is read, written or waited for beyond them. */
class EndedSessionTest {
    /** Pause between single bytes or pings, far below any timeout. */
    private static final int TRICKLE_MILLIS = 50;
    private static final long HUGE_BYTES = 256L << 30;
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

    /** Treats a control connection with pings only after Opened. */
    private static void ping(Peer peer) throws Exception {
        peer.send(DaemonMessages.welcome());
        peer.receive();
        peer.send(DaemonMessages.opened(ROOT));
        repeat(peer, FakeDaemon.frame(Message.ping().write()));
    }

    /** Asserts that the data stream of a pinging daemon is given up after the timeout. */
    private void assertStreamTimesOut(FakeDaemon daemon) throws Exception {
        try (daemon) {
            long start = System.nanoTime();
            BankfullException error = assertThrows(BankfullException.class, () ->
                daemon.client().timeoutMillis(1000).get(List.of(""), home.toString()));
            assertEquals(Failure.TIMED_OUT, error.code(), error.getMessage());
            long millis = millisSince(start);
            assertTrue(millis >= 1000 && millis < 4000, millis + " ms");
        }
    }

    private static void trickle(OutputStream out, byte[] bytes) throws Exception {
        for (byte each : bytes) {
            out.write(each);
            out.flush();
            Thread.sleep(4 * TRICKLE_MILLIS);
        }
    }

    @Test
    void dataStream_attachReplyTrickled_timesOut() throws Exception {
        assertStreamTimesOut(FakeDaemon.withStreams(temp, EndedSessionTest::ping,
            peer -> trickle(peer.out(), peer.receiveAttach())));
    }

    @Test
    void dataStream_tlsHandshakeTrickled_timesOut() throws Exception {
        // The header of a long record, and its beginning.
        byte[] record = Arrays.copyOf(new byte[] {0x16, 3, 3, 0x20, 0, 2, 0, 0x1f, 0}, 100);
        assertStreamTimesOut(FakeDaemon.withRawStreams(temp, EndedSessionTest::ping, socket -> {
            socket.getInputStream().read(new byte[4096]);
            trickle(socket.getOutputStream(), record);
        }));
    }

    @Test
    void dataStream_sessionEndsDuringAttach_isClosed() throws Exception {
        CountDownLatch attached = new CountDownLatch(1);
        CountDownLatch closed = new CountDownLatch(1);
        try (FakeDaemon daemon = FakeDaemon.withStreams(temp, peer -> {
            peer.send(DaemonMessages.welcome());
            peer.receive();
            peer.send(DaemonMessages.opened(ROOT));
            attached.await();
            peer.send(Message.error(new Failure(Failure.CANCELLED, "enough")));
        }, peer -> {
            peer.receiveAttach();
            attached.countDown();
            try {
                peer.awaitEnd();
            } finally {
                closed.countDown();
            }
        })) {
            BankfullException error = assertThrows(BankfullException.class, () ->
                daemon.client().get(List.of(""), home.toString()));
            assertTrue(error.getMessage().contains("enough"), error.getMessage());
            assertTrue(closed.await(5, TimeUnit.SECONDS), "the stream is still being attached");
        }
    }

    /** Ways to end a session. */
    private static List<Behavior<Peer>> ends() {
        return List.of(
            peer -> peer.send(Message.error(new Failure(Failure.CANCELLED, "enough"))),
            peer -> { },
            // Lost: no message for the timeout.
            Peer::awaitEnd);
    }

    /** Creates a file whose hashing takes far longer than a test; it occupies no space. */
    private Path makeHugeFile() throws IOException {
        Path path = home.resolve("huge");
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            file.setLength(HUGE_BYTES);
        }
        return path;
    }

    /** Asserts that a transfer fails soon after its session, and that its threads end. */
    private void assertEndsSoon(Executable transfer) throws Exception {
        long start = System.nanoTime();
        assertThrows(BankfullException.class, transfer);
        assertTrue(millisSince(start) < 6000, millisSince(start) + " ms");
        List<String> running = List.of("?");
        while (!running.isEmpty() && millisSince(start) < 8000) {
            Thread.sleep(10);
            running = Thread.getAllStackTraces().keySet().stream().map(Thread::getName)
                .filter(name -> name.startsWith("bankfull-")).collect(Collectors.toList());
        }
        assertEquals(List.of(), running);
    }

    @Test
    void get_sessionEndsDuringComparison_stopsHashing() throws Exception {
        makeHugeFile();
        Entry directory = new Entry();
        directory.kind = Entry.DIRECTORY;
        directory.id = 1;
        directory.name = new byte[0];
        directory.mode = 0755;
        Entry huge = new Entry();
        huge.kind = Entry.FILE;
        huge.id = 2;
        huge.parent = 1;
        huge.name = "huge".getBytes(StandardCharsets.UTF_8);
        huge.size = HUGE_BYTES;
        huge.blockBytes = 16 << 20;
        for (Behavior<Peer> end : ends()) {
            try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
                peer.send(DaemonMessages.welcome());
                peer.receive();
                peer.send(DaemonMessages.opened(ROOT));
                peer.send(Message.entries(List.of(directory, huge)));
                Thread.sleep(500);
                end.handle(peer);
            })) {
                Client client = daemon.client().timeoutMillis(2000).checksum(true);
                assertEndsSoon(() -> client.get(List.of(""), home.toString()));
            }
        }
    }

    @Test
    void put_sessionEndsDuringComparison_stopsHashing() throws Exception {
        Path huge = makeHugeFile();
        for (Behavior<Peer> end : ends()) {
            try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
                peer.send(DaemonMessages.welcome());
                peer.receive();
                peer.send(DaemonMessages.opened());
                Message entries = peer.receive();
                Want want = new Want(entries.entries().get(0).id, Want.IF_DIFFERS);
                want.hash = new byte[32];
                peer.send(Message.wants(List.of(want)));
                Thread.sleep(500);
                end.handle(peer);
            })) {
                Client client = daemon.client().timeoutMillis(2000);
                assertEndsSoon(() -> client.put(List.of(huge.toString()), ""));
            }
        }
    }

    @Test
    void get_sessionEndsWhileStreamsEnd_isNotDelayed() throws Exception {
        CountDownLatch attached = new CountDownLatch(1);
        try (FakeDaemon daemon = FakeDaemon.withStreams(temp, peer -> {
            peer.send(DaemonMessages.welcome());
            peer.receive();
            peer.send(DaemonMessages.opened(ROOT));
            peer.send(new Totals().write());
            attached.await();
            // A stream that is attached after Finish is not used.
            Thread.sleep(500);
            peer.send(Message.sideSummary(Message.FINISH, new long[5], 0));
            Thread.sleep(500);
            peer.send(Message.error(new Failure(Failure.CANCELLED, "enough")));
        }, peer -> {
            peer.sendRaw(peer.receiveAttach());
            attached.countDown();
            peer.awaitEnd();
        })) {
            assertEndsSoon(() -> daemon.client().get(List.of(""), home.toString()));
        }
    }
}
