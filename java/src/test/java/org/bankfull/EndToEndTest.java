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

/** Real trees, both ways, between this client and the real daemon, with 64 MB of heap. */
class EndToEndTest {
    @TempDir
    Path temp;
    private Path root;
    private Path here;
    private Daemon daemon;
    private int port;
    private String fingerprint;

    @BeforeEach
    void startDaemon() throws IOException {
        root = Files.createDirectory(temp.resolve("root"));
        here = Files.createDirectory(temp.resolve("here"));
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

    private Client client() throws BankfullException {
        return Client.of("bankfull://127.0.0.1:" + port + "/").fingerprint(fingerprint)
            .token(Daemon.TOKEN);
    }

    private static void write(Path path, int size, int seed) throws IOException {
        Random random = new Random(seed);
        byte[] piece = new byte[1 << 20];
        try (OutputStream out = Files.newOutputStream(path)) {
            for (int left = size; left > 0; left -= piece.length) {
                random.nextBytes(piece);
                out.write(piece, 0, Math.min(left, piece.length));
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

    /** Everything that is to be the same on both sides. */
    private static Map<String, String> picture(Path tree) throws IOException {
        Map<String, String> picture = new TreeMap<>();
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
                picture.put(tree.relativize(path).toString(), text);
            }
        }
        return picture;
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aTreeGoesThereAndComesBack(boolean plain) throws IOException {
        Path tree = here.resolve("tree");
        makeTree(tree);
        Summary put = client().plain(plain).put(List.of(tree.toString()), "");
        assertEquals(List.of(), put.failures);
        assertEquals(304, put.copied);
        assertEquals(picture(tree), picture(root.resolve("tree")));
        Path back = here.resolve("back");
        Summary get = client().plain(plain).get(List.of("tree/"), back.toString());
        assertEquals(List.of(), get.failures);
        assertEquals(304, get.copied);
        assertEquals(picture(tree), picture(back));
        // Again: nothing is sent.
        assertEquals(304, client().plain(plain).put(List.of(tree.toString()), "").skipped);
        Summary again = client().plain(plain).get(List.of("tree/"), back.toString());
        assertEquals(304, again.skipped, again.failures.toString());
        assertEquals(0, again.bytes);
    }

    @Test
    void contentIsComparedWhereItIsAskedFor() throws IOException {
        write(here.resolve("f"), 3 << 20, 1);
        client().put(List.of(here.resolve("f").toString()), "");
        FileTime time = Files.getLastModifiedTime(here.resolve("f"));
        byte[] other = Files.readAllBytes(here.resolve("f"));
        other[2 << 20] ^= 1;
        Files.write(here.resolve("f"), other);
        Files.setLastModifiedTime(here.resolve("f"), time);
        assertEquals(1, client().put(List.of(here.resolve("f").toString()), "").skipped);
        assertEquals(1,
            client().checksum(true).put(List.of(here.resolve("f").toString()), "").copied);
        assertArrayEquals(other, Files.readAllBytes(root.resolve("f")));
        assertEquals(1,
            client().checksum(true).put(List.of(here.resolve("f").toString()), "").skipped);
        assertEquals(1, client().checksum(true).get(List.of("f"), here.toString()).skipped);
        other[5] ^= 1;
        Files.write(root.resolve("f"), other);
        Files.setLastModifiedTime(root.resolve("f"), time);
        assertEquals(1, client().checksum(true).get(List.of("f"), here.toString()).copied);
        assertArrayEquals(other, Files.readAllBytes(here.resolve("f")));
    }

    private Client through(CuttingProxy proxy) throws BankfullException {
        return Client.of("bankfull://127.0.0.1:" + proxy.port() + "/").fingerprint(fingerprint)
            .token(Daemon.TOKEN);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anInterruptedFetchGoesOnWhereItStopped(boolean plain) throws IOException {
        write(root.resolve("big"), 24 << 20, 5);
        try (CuttingProxy proxy = new CuttingProxy(port, 20 << 20, true)) {
            assertThrows(IOException.class,
                () -> through(proxy).plain(plain).timeoutMillis(2000)
                    .get(List.of("big"), here.toString()));
        }
        assertFalse(Files.exists(here.resolve("big")));
        Summary rest = client().plain(plain).get(List.of("big"), here.toString());
        assertEquals(24 << 20, rest.bytes + rest.bytesResumed);
        assertTrue(rest.bytesResumed >= 1 << 20, rest.bytesResumed + " were here");
        Child.assertSame(root.resolve("big"), here.resolve("big"));
        try (Stream<Path> left = Files.list(here)) {
            assertEquals(1, left.count(), "part and journal are gone");
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anInterruptedPutGoesOnWhereItStopped(boolean plain) throws IOException {
        write(here.resolve("big"), 24 << 20, 5);
        List<String> source = List.of(here.resolve("big").toString());
        try (CuttingProxy proxy = new CuttingProxy(port, 20 << 20, true)) {
            assertThrows(IOException.class,
                () -> through(proxy).plain(plain).timeoutMillis(2000).put(source, ""));
        }
        assertFalse(Files.exists(root.resolve("big")));
        Summary rest = client().plain(plain).put(source, "");
        assertEquals(24 << 20, rest.bytes + rest.bytesResumed);
        assertTrue(rest.bytesResumed >= 4 << 20, rest.bytesResumed + " were there");
        Child.assertSame(here.resolve("big"), root.resolve("big"));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aLostDataConnectionIsMadeAgain(boolean plain) throws IOException {
        write(here.resolve("big"), 24 << 20, 6);
        write(here.resolve("small"), 1000, 7);
        List<String> sources =
            List.of(here.resolve("big").toString(), here.resolve("small").toString());
        try (CuttingProxy proxy = new CuttingProxy(port, 12 << 20, false)) {
            Summary put = through(proxy).plain(plain).put(sources, "");
            assertEquals(2, put.copied, put.failures.toString());
            assertTrue(proxy.hasCut());
        }
        Child.assertSame(here.resolve("big"), root.resolve("big"));
        Path back = Files.createDirectory(here.resolve("back"));
        try (CuttingProxy proxy = new CuttingProxy(port, 12 << 20, false)) {
            Summary get = through(proxy).plain(plain).get(List.of("big", "small"), back.toString());
            assertEquals(2, get.copied, get.failures.toString());
            assertTrue(proxy.hasCut());
        }
        Child.assertSame(here.resolve("big"), back.resolve("big"));
    }

    @Test
    void aTreeIsListed() throws IOException {
        makeTree(root.resolve("tree"));
        List<Client.Listed> all = new ArrayList<>();
        client().list("tree", all::add);
        Map<String, Client.Listed> byPath =
            all.stream().collect(Collectors.toMap(one -> one.path, one -> one));
        assertEquals(312, byPath.size());
        assertTrue(byPath.get("tree/a/deep").directory);
        assertEquals((5 << 20) + 12_345, byPath.get("tree/a/deep/blocks").size);
        assertEquals("deep/blocks", byPath.get("tree/a/link").target);
    }

    @Test
    void aSourceThatIsNotThereIsNamed() throws IOException {
        write(root.resolve("f"), 10, 1);
        Exception missing = assertThrows(BankfullException.class,
            () -> client().get(List.of("g"), here.toString()));
        assertTrue(missing.getMessage().contains("g"), missing.getMessage());
        Exception none = assertThrows(BankfullException.class,
            () -> client().put(List.of(here.resolve("missing").toString()), ""));
        assertTrue(none.getMessage().contains("missing"), none.getMessage());
    }

    @Test
    void aDirectoryInTheWayFailsItsFileAloneAndIsSaid() throws IOException {
        write(root.resolve("f"), 10, 1);
        write(root.resolve("g"), 400_000, 2);
        Files.createDirectory(here.resolve("f"));
        Summary get = client().get(List.of("f", "g"), here.toString() + "/");
        assertEquals(1, get.failed);
        assertTrue(get.failures.get(0).contains("a directory is in the way"),
            get.failures.toString());
        assertTrue(Files.isRegularFile(here.resolve("g"), LinkOption.NOFOLLOW_LINKS));
        assertEquals(1, get.copied);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aConnectionThatTakesNothingIsGivenUpAfterTheTimeOut(boolean plain) throws IOException {
        write(here.resolve("big"), 64 << 20, 8);
        // Far more is to come than the socket's buffers hold, so that the client waits in a write.
        try (CuttingProxy proxy = CuttingProxy.stalling(port, 4 << 20)) {
            long began = System.nanoTime();
            Summary put = through(proxy).plain(plain).timeoutMillis(2000)
                .put(List.of(here.resolve("big").toString()), "");
            assertEquals(1, put.copied, put.failures.toString());
            assertTrue(proxy.hasCut());
            long seconds = (System.nanoTime() - began) / 1_000_000_000;
            // The daemon notices by itself after its own time-out of 60 s.
            assertTrue(seconds < 30, seconds + " s");
        }
        Child.assertSame(here.resolve("big"), root.resolve("big"));
    }

    @Test
    void whatIsUnchangedIsNotTouched() throws IOException {
        for (String mode : List.of("---------", "-w-------", "rw-r--r--")) {
            write(root.resolve(mode), 1000, mode.hashCode() & 0xFFFF);
            Files.setPosixFilePermissions(root.resolve(mode),
                PosixFilePermissions.fromString(mode));
        }
        Path to = Files.createDirectory(here.resolve("to"));
        Summary first = client().get(List.of(""), to.toString());
        // A daemon that is not root's may not read the first two.
        assertTrue(first.copied >= 1, first.failures.toString());
        Map<String, Object> before = changeTimes(to);
        Summary again = client().get(List.of(""), to.toString());
        assertEquals(first.copied, again.skipped, again.failures.toString());
        assertEquals(before, changeTimes(to));
        // What is not as it was is set again.
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
    void fewerConnectionsThanAskedForAreRemarked() throws IOException {
        write(here.resolve("f"), 10, 1);
        Summary put = client().streams(64).put(List.of(here.resolve("f").toString()), "");
        assertEquals(1, put.remarks.size());
        String remark = put.remarks.get(0);
        assertTrue(remark.matches("[0-9]+ of 64 connections carry data: .*-Xmx\\)"), remark);
        assertEquals(List.of(), client().get(List.of("f"), here.toString()).remarks);
    }
}
