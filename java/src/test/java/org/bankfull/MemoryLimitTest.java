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

/** Peak memory of a transfer in a separate Java process with 64 MB of heap. */
class MemoryLimitTest {
    private static final int FILES = 100_000;
    private static final int FILES_PER_DIRECTORY = 1000;
    private static final long LARGE_BYTES = 300 << 20;
    private static final long MAX_PEAK_KIB = 160 << 10;

    @TempDir
    Path temp;

    private ClientProcess get(Daemon daemon, String source, Path to) throws Exception {
        ProcessBuilder command =
            ClientProcess.command(List.of("-Xmx64m"), "get", daemon.url(source),
            to.toString(), "--fingerprint", daemon.fingerprint);
        command.environment().put("BANKFULL_TOKEN", Daemon.TOKEN);
        ClientProcess child = ClientProcess.run(command, temp);
        assertEquals(0, child.exitCode, child.output);
        assertTrue(child.peakKib > 0 && child.peakKib <= MAX_PEAK_KIB, child.peakKib + " KiB");
        return child;
    }

    /** Returns a name so long that all names together exceed the heap. */
    private static String name(int number) {
        return "a file with the number " + number + " " + "-".repeat(200);
    }

    private static void makeMany(Path tree) throws IOException {
        for (int i = 0; i < FILES; i++) {
            Path directory = tree.resolve("directory-" + i / FILES_PER_DIRECTORY);
            if (i % FILES_PER_DIRECTORY == 0) {
                Files.createDirectories(directory);
            }
            Files.writeString(directory.resolve(name(i)), "content " + i);
        }
    }

    private static void makeLarge(Path file) throws IOException {
        byte[] chunk = new byte[1 << 20];
        Random random = new Random(7);
        try (OutputStream out = Files.newOutputStream(file)) {
            for (long left = LARGE_BYTES; left > 0; left -= chunk.length) {
                random.nextBytes(chunk);
                out.write(chunk);
            }
        }
    }

    @Test
    void get_manySmallFilesAndLargeFile_peakMemoryIsBounded() throws Exception {
        Path root = Files.createDirectory(temp.resolve("root"));
        try (Daemon daemon = new Daemon(root, temp.resolve("state"))) {
            makeMany(root.resolve("many"));
            ClientProcess many = get(daemon, "many/", temp.resolve("many"));
            assertTrue(many.output.contains(FILES + " copied, 0 unchanged, 0 failed"), many.output);
            for (int i = 0; i < FILES; i += 997) {
                String name = "directory-" + i / FILES_PER_DIRECTORY + "/" + name(i);
                assertEquals("content " + i, Files.readString(temp.resolve("many").resolve(name)));
            }
            makeLarge(root.resolve("large"));
            get(daemon, "large", temp.resolve("large"));
            ClientProcess.assertSameContent(root.resolve("large"), temp.resolve("large"));
        }
    }
}
