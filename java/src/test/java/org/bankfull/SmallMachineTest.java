package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What a transfer takes of memory: of a Java of its own, with 64 MB of heap, seen from outside. */
class SmallMachineTest {
    private static final int FILES = 100_000;
    private static final int IN_DIRECTORY = 1000;
    private static final long LARGE_BYTES = 300 << 20;
    private static final long PEAK_KIB_MOST = 160 << 10;

    @TempDir
    Path temp;

    private Child get(Daemon daemon, String source, Path to) throws Exception {
        ProcessBuilder command = Child.command(List.of("-Xmx64m"), "get", daemon.url(source),
            to.toString(), "--fingerprint", daemon.fingerprint);
        command.environment().put("BANKFULL_TOKEN", Daemon.TOKEN);
        Child child = Child.run(command, temp);
        assertEquals(0, child.code, child.said);
        assertTrue(child.peakKib > 0 && child.peakKib <= PEAK_KIB_MOST, child.peakKib + " KiB");
        return child;
    }

    /** Long enough for all of them to be more than the heap holds. */
    private static String name(int number) {
        return "a file with the number " + number + " " + "-".repeat(200);
    }

    private static void makeMany(Path tree) throws IOException {
        for (int i = 0; i < FILES; i++) {
            Path directory = tree.resolve("directory-" + i / IN_DIRECTORY);
            if (i % IN_DIRECTORY == 0) {
                Files.createDirectories(directory);
            }
            Files.writeString(directory.resolve(name(i)), "content " + i);
        }
    }

    private static void makeLarge(Path file) throws IOException {
        byte[] piece = new byte[1 << 20];
        Random random = new Random(7);
        try (OutputStream out = Files.newOutputStream(file)) {
            for (long left = LARGE_BYTES; left > 0; left -= piece.length) {
                random.nextBytes(piece);
                out.write(piece);
            }
        }
    }

    @Test
    void manySmallFilesAndALargeOneComeWithinLittleMemory() throws Exception {
        Path root = Files.createDirectory(temp.resolve("root"));
        try (Daemon daemon = new Daemon(root, temp.resolve("state"))) {
            makeMany(root.resolve("many"));
            Child many = get(daemon, "many/", temp.resolve("many"));
            assertTrue(many.said.contains(FILES + " copied, 0 unchanged, 0 failed"), many.said);
            for (int i = 0; i < FILES; i += 997) {
                String name = "directory-" + i / IN_DIRECTORY + "/" + name(i);
                assertEquals("content " + i, Files.readString(temp.resolve("many").resolve(name)));
            }
            makeLarge(root.resolve("large"));
            get(daemon, "large", temp.resolve("large"));
            Child.assertSame(root.resolve("large"), temp.resolve("large"));
        }
    }
}
