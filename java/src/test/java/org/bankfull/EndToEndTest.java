package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Transfers of trees in both directions with the real daemon and 64 MB of heap. */
class EndToEndTest {
    @TempDir
    Path temp;
    private Path root;
    private Path local;
    private Daemon daemon;
    private int port;
    private String fingerprint;

    @BeforeEach
    void startDaemon() throws IOException {
        root = Files.createDirectory(temp.resolve("root"));
        local = Files.createDirectory(temp.resolve("local"));
        daemon = new Daemon(root, temp.resolve("state"));
        port = daemon.port;
        fingerprint = daemon.fingerprint;
    }

    @AfterEach
    void stopDaemon() {
        if (daemon != null) {
            daemon.close();
        }
    }

    @Test
    void get_clientsBeyondLimit_waitAndSucceed() throws Exception {
        write(root.resolve("file"), 5 << 20, 7);
        daemon.close();
        daemon = new Daemon(root, temp.resolve("state"), "--max-connections", "2");
        port = daemon.port;
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        List<Thread> clients = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            String to = local.resolve("file-" + i).toString();
            clients.add(new Thread(() -> {
                try {
                    client().streams(1).get(List.of("file"), to);
                } catch (Exception e) {
                    failures.add(e);
                }
            }));
        }
        clients.forEach(Thread::start);
        for (Thread thread : clients) {
            thread.join();
        }
        assertEquals(List.of(), failures);
        for (int i = 0; i < 6; i++) {
            ClientProcess.assertSameContent(
                root.resolve("file"), local.resolve("file-" + i));
        }
    }

    private Client client() throws BankfullException {
        return Client.of("bankfull://127.0.0.1:" + port + "/").fingerprint(fingerprint)
            .token(Daemon.TOKEN);
    }

    private static void write(Path path, int size, int seed) throws IOException {
        Random random = new Random(seed);
        byte[] chunk = new byte[1 << 20];
        try (OutputStream out = Files.newOutputStream(path)) {
            for (int left = size; left > 0; left -= chunk.length) {
                random.nextBytes(chunk);
                out.write(chunk, 0, Math.min(left, chunk.length));
            }
        }
        Files.setLastModifiedTime(path,
            FileTime.from(Instant.ofEpochSecond(1_600_000_000L + seed, seed * 1000L)));
    }

    private static void makeTree(Path tree) throws IOException {
        Files.createDirectory(tree);
        for (String name : List.of("a", "a/deep", "a/deep/er", "empty", "b")) {
            Files.createDirectory(tree.resolve(name));
        }
        for (int i = 0; i < 300; i++) {
            write(tree.resolve("b/small-" + i), i * 37, i);
        }
        for (int i = 0; i < 600; i++) {
            Path many = tree.resolve("many/" + i % 7 + "/" + i);
            Files.createDirectories(many);
            write(many.resolve("small"), 3, i);
            Files.setLastModifiedTime(many,
                FileTime.from(Instant.ofEpochSecond(1_400_000_000L + i)));
        }
        write(tree.resolve("a/just-packed"), 262_144, 1001);
        write(tree.resolve("a/one-block"), 262_145, 1002);
        write(tree.resolve("a/deep/blocks"), (5 << 20) + 12_345, 1003);
        write(tree.resolve("a/deep/er/\u00fcml\u00e4ut and space"), 100, 1004);
        Files.createSymbolicLink(tree.resolve("a/link"), Path.of("deep/blocks"));
        Files.createSymbolicLink(tree.resolve("dangling"), Path.of("nowhere"));
        Files.setPosixFilePermissions(tree.resolve("b/small-7"),
            PosixFilePermissions.fromString("r-x--x---"));
        Files.setPosixFilePermissions(tree.resolve("empty"),
            PosixFilePermissions.fromString("rwx------"));
        Files.setLastModifiedTime(tree.resolve("empty"),
            FileTime.from(Instant.ofEpochSecond(1_500_000_000L)));
    }

    /** Returns path, type, mode, time and content of a tree, for comparison. */
    private static Map<String, String> snapshot(Path tree) throws IOException {
        Map<String, String> snapshot = new TreeMap<>();
        try (Stream<Path> all = Files.walk(tree)) {
            for (Path path : all.collect(Collectors.toList())) {
                String text;
                if (Files.isSymbolicLink(path)) {
                    text = "-> " + Files.readSymbolicLink(path);
                } else {
                    text = PosixFilePermissions.toString(Files.getPosixFilePermissions(path));
                    if (Files.isRegularFile(path)) {
                        Instant time = Files.getLastModifiedTime(path).toInstant();
                        text += " " + time.truncatedTo(ChronoUnit.MICROS) + " "
                            + Arrays.hashCode(Files.readAllBytes(path));
                    }
                }
                snapshot.put(tree.relativize(path).toString(), text);
            }
        }
        return snapshot;
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void tree_putThenGet_isIdentical(boolean unencrypted) throws IOException {
        Path tree = local.resolve("tree");
        makeTree(tree);
        Summary put = client().unencrypted(unencrypted).put(List.of(tree.toString()), "");
        assertEquals(List.of(), put.failures);
        assertEquals(904, put.copied);
        assertEquals(snapshot(tree), snapshot(root.resolve("tree")));
        Path back = local.resolve("back");
        Summary get = client().unencrypted(unencrypted).get(List.of("tree/"), back.toString());
        assertEquals(List.of(), get.failures);
        assertEquals(904, get.copied);
        assertEquals(snapshot(tree), snapshot(back));
        // Again: no data is sent.
        assertEquals(
            904, client().unencrypted(unencrypted).put(List.of(tree.toString()), "").skipped);
        Summary again = client().unencrypted(unencrypted).get(List.of("tree/"), back.toString());
        assertEquals(904, again.skipped, again.failures.toString());
        assertEquals(0, again.bytes);
    }

    @Test
    void checksum_sameSizeAndTime_comparesContent() throws IOException {
        write(local.resolve("f"), 3 << 20, 1);
        client().put(List.of(local.resolve("f").toString()), "");
        FileTime time = Files.getLastModifiedTime(local.resolve("f"));
        byte[] other = Files.readAllBytes(local.resolve("f"));
        other[2 << 20] ^= 1;
        Files.write(local.resolve("f"), other);
        Files.setLastModifiedTime(local.resolve("f"), time);
        assertEquals(1, client().put(List.of(local.resolve("f").toString()), "").skipped);
        assertEquals(1,
            client().checksum(true).put(List.of(local.resolve("f").toString()), "").copied);
        assertArrayEquals(other, Files.readAllBytes(root.resolve("f")));
        assertEquals(1,
            client().checksum(true).put(List.of(local.resolve("f").toString()), "").skipped);
        assertEquals(1, client().checksum(true).get(List.of("f"), local.toString()).skipped);
        other[5] ^= 1;
        Files.write(root.resolve("f"), other);
        Files.setLastModifiedTime(root.resolve("f"), time);
        assertEquals(1, client().checksum(true).get(List.of("f"), local.toString()).copied);
        assertArrayEquals(other, Files.readAllBytes(local.resolve("f")));
    }

    /** Inverts all bytes of the part file in a directory. */
    private static void damagePart(Path dir) throws IOException {
        Path part;
        try (Stream<Path> all = Files.list(dir)) {
            part = all.filter(path -> path.toString().endsWith(".part")).findFirst().orElseThrow();
        }
        byte[] content = Files.readAllBytes(part);
        for (int i = 0; i < content.length; i++) {
            content[i] ^= -1;
        }
        Files.write(part, content);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void part_damagedSinceItsInterruption_isSentAgain(boolean get) throws IOException {
        Path from = (get ? root : local).resolve("big");
        Path into = get ? local : root;
        write(from, 24 << 20, 5);
        List<String> source = List.of(get ? "big" : from.toString());
        try (FaultyProxy proxy = new FaultyProxy(port, 20 << 20, true)) {
            Client interrupted = clientOf(proxy).timeoutMillis(2000);
            assertThrows(IOException.class, () -> {
                if (get) {
                    interrupted.get(source, local.toString());
                } else {
                    interrupted.put(source, "");
                }
            });
        }
        damagePart(into);
        Summary rest = get ? client().get(source, local.toString()) : client().put(source, "");
        assertEquals(24 << 20, rest.bytes);
        assertEquals(0, rest.bytesResumed);
        ClientProcess.assertSameContent(from, into.resolve("big"));
        try (Stream<Path> left = Files.list(into)) {
            assertEquals(1, left.count(), "part file and journal are deleted");
        }
    }

    private Client clientOf(FaultyProxy proxy) throws BankfullException {
        return Client.of("bankfull://127.0.0.1:" + proxy.port() + "/").fingerprint(fingerprint)
            .token(Daemon.TOKEN);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void get_interrupted_resumes(boolean unencrypted) throws IOException {
        write(root.resolve("big"), 24 << 20, 5);
        try (FaultyProxy proxy = new FaultyProxy(port, 20 << 20, true)) {
            assertThrows(IOException.class,
                () -> clientOf(proxy).unencrypted(unencrypted).timeoutMillis(2000)
                    .get(List.of("big"), local.toString()));
        }
        assertFalse(Files.exists(local.resolve("big")));
        Summary rest = client().unencrypted(unencrypted).get(List.of("big"), local.toString());
        assertEquals(24 << 20, rest.bytes + rest.bytesResumed);
        assertTrue(rest.bytesResumed >= 1 << 20, rest.bytesResumed + " bytes resumed");
        ClientProcess.assertSameContent(root.resolve("big"), local.resolve("big"));
        try (Stream<Path> left = Files.list(local)) {
            assertEquals(1, left.count(), "part file and journal are deleted");
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void put_interrupted_resumes(boolean unencrypted) throws IOException {
        write(local.resolve("big"), 24 << 20, 5);
        List<String> source = List.of(local.resolve("big").toString());
        try (FaultyProxy proxy = new FaultyProxy(port, 20 << 20, true)) {
            assertThrows(IOException.class,
                () -> clientOf(proxy).unencrypted(unencrypted).timeoutMillis(2000).put(source, ""));
        }
        assertFalse(Files.exists(root.resolve("big")));
        Summary rest = client().unencrypted(unencrypted).put(source, "");
        assertEquals(24 << 20, rest.bytes + rest.bytesResumed);
        assertTrue(rest.bytesResumed >= 4 << 20, rest.bytesResumed + " bytes resumed");
        ClientProcess.assertSameContent(local.resolve("big"), root.resolve("big"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void dataStream_lost_reconnects(boolean unencrypted) throws IOException {
        write(local.resolve("big"), 24 << 20, 6);
        write(local.resolve("small"), 1000, 7);
        List<String> sources =
            List.of(local.resolve("big").toString(), local.resolve("small").toString());
        try (FaultyProxy proxy = new FaultyProxy(port, 12 << 20, false)) {
            Summary put = clientOf(proxy).unencrypted(unencrypted).put(sources, "");
            assertEquals(2, put.copied, put.failures.toString());
            assertTrue(proxy.hasInjectedFault());
        }
        ClientProcess.assertSameContent(local.resolve("big"), root.resolve("big"));
        Path back = Files.createDirectory(local.resolve("back"));
        try (FaultyProxy proxy = new FaultyProxy(port, 12 << 20, false)) {
            Summary get = clientOf(proxy).unencrypted(unencrypted)
                .get(List.of("big", "small"), back.toString());
            assertEquals(2, get.copied, get.failures.toString());
            assertTrue(proxy.hasInjectedFault());
        }
        ClientProcess.assertSameContent(local.resolve("big"), back.resolve("big"));
    }

    @Test
    void list_tree_hasAllEntries() throws IOException {
        makeTree(root.resolve("tree"));
        List<Client.ListedEntry> all = new ArrayList<>();
        client().list("tree", all::add);
        Map<String, Client.ListedEntry> byPath =
            all.stream().collect(Collectors.toMap(entry -> entry.path, entry -> entry));
        assertEquals(1520, byPath.size());
        assertTrue(byPath.get("tree/a/deep").directory);
        assertEquals((5 << 20) + 12_345, byPath.get("tree/a/deep/blocks").size);
        assertEquals("deep/blocks", byPath.get("tree/a/link").target);
    }

    @Test
    void source_missing_isNamedInError() throws IOException {
        write(root.resolve("f"), 10, 1);
        Exception missing = assertThrows(BankfullException.class,
            () -> client().get(List.of("g"), local.toString()));
        assertTrue(missing.getMessage().contains("g"), missing.getMessage());
        Exception none = assertThrows(BankfullException.class,
            () -> client().put(List.of(local.resolve("missing").toString()), ""));
        assertTrue(none.getMessage().contains("missing"), none.getMessage());
    }

    @Test
    void get_directoryInTheWay_failsThatFileOnly() throws IOException {
        write(root.resolve("f"), 10, 1);
        write(root.resolve("g"), 400_000, 2);
        Files.createDirectory(local.resolve("f"));
        Summary get = client().get(List.of("f", "g"), local.toString() + "/");
        assertEquals(1, get.failed);
        assertTrue(get.failures.get(0).contains("a directory is in the way"),
            get.failures.toString());
        assertTrue(Files.isRegularFile(local.resolve("g"), LinkOption.NOFOLLOW_LINKS));
        assertEquals(1, get.copied);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void put_streamStalled_isAbandonedAfterTimeout(boolean unencrypted) throws IOException {
        write(local.resolve("big"), 64 << 20, 8);
        // Far more data than the socket buffers hold, so that the client blocks in a write.
        try (FaultyProxy proxy = FaultyProxy.stalling(port, 4 << 20)) {
            long start = System.nanoTime();
            Summary put = clientOf(proxy).unencrypted(unencrypted).timeoutMillis(2000)
                .put(List.of(local.resolve("big").toString()), "");
            assertEquals(1, put.copied, put.failures.toString());
            assertTrue(proxy.hasInjectedFault());
            long seconds = (System.nanoTime() - start) / 1_000_000_000;
            // The daemon's own timeout is 60 s.
            assertTrue(seconds < 30, seconds + " s");
        }
        ClientProcess.assertSameContent(local.resolve("big"), root.resolve("big"));
    }

    @Test
    void get_unchangedFiles_areNotModified() throws IOException {
        for (String mode : List.of("---------", "-w-------", "rw-r--r--")) {
            write(root.resolve(mode), 1000, mode.hashCode() & 0xFFFF);
            Files.setPosixFilePermissions(root.resolve(mode),
                PosixFilePermissions.fromString(mode));
        }
        Path to = Files.createDirectory(local.resolve("to"));
        Summary first = client().get(List.of(""), to.toString());
        // Without root, the daemon cannot read the first two.
        assertTrue(first.copied >= 1, first.failures.toString());
        Map<String, Object> before = changeTimes(to);
        Summary again = client().get(List.of(""), to.toString());
        assertEquals(first.copied, again.skipped, again.failures.toString());
        assertEquals(before, changeTimes(to));
        // A changed mode is restored.
        Files.setPosixFilePermissions(to.resolve("rw-r--r--"),
            PosixFilePermissions.fromString("rwx------"));
        assertEquals(first.copied, client().get(List.of(""), to.toString()).skipped);
        assertEquals(PosixFilePermissions.fromString("rw-r--r--"),
            Files.getPosixFilePermissions(to.resolve("rw-r--r--")));
    }

    private static Map<String, Object> changeTimes(Path directory) throws IOException {
        Map<String, Object> times = new TreeMap<>();
        try (Stream<Path> all = Files.list(directory)) {
            for (Path path : all.collect(Collectors.toList())) {
                times.put(path.getFileName().toString(), Files.getAttribute(path, "unix:ctime"));
            }
        }
        return times;
    }

    @Test
    void streams_heapTooSmall_warnsAndUsesFewer() throws IOException {
        write(local.resolve("f"), 10, 1);
        Summary put = client().streams(64).put(List.of(local.resolve("f").toString()), "");
        assertEquals(1, put.warnings.size());
        String warning = put.warnings.get(0);
        assertTrue(warning.matches("[0-9]+ of 64 data streams are used: .*-Xmx\\)"), warning);
        assertEquals(List.of(), client().get(List.of("f"), local.toString()).warnings);
    }
}
