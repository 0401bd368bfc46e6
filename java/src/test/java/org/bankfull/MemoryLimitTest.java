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

/** Transfers in a separate Java process with little memory. */
class MemoryLimitTest {
    /** Limits that Java itself enforces: what exceeds them fails the command. */
    private static final List<String> LIMITS = List.of("-Xmx64m", "-XX:MaxDirectMemorySize=16m");
    private static final int FILES = 18_000;
    private static final int FILES_PER_DIRECTORY = 1000;
    private static final long LARGE_BYTES = 300 << 20;

    @TempDir
    Path temp;

    private ClientProcess get(Daemon daemon, String source, Path to) throws Exception {
        ProcessBuilder command = ClientProcess.command(LIMITS, "get", daemon.url(source),
            to.toString(), "--fingerprint", daemon.fingerprint);
        command.environment().put("BANKFULL_TOKEN", Daemon.TOKEN);
        ClientProcess child = ClientProcess.run(command, temp);
        assertEquals(0, child.exitCode, child.output);
        return child;
    }

    /** Returns a path so long that all paths together exceed the heap. */
    private static String path(int number) {
        String directory = "directory-" + number / FILES_PER_DIRECTORY + "-".repeat(200) + "/";
        return directory.repeat(17) + "a file with the number " + number + "-".repeat(200);
    }

    private static void makeMany(Path tree) throws IOException {
        for (int i = 0; i < FILES; i++) {
            Path file = tree.resolve(path(i));
            if (i % FILES_PER_DIRECTORY == 0) {
                Files.createDirectories(file.getParent());
            }
            Files.writeString(file, "content " + i);
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
    void get_pathsBeyondHeapAndLargeFile_fitsLimits() throws Exception {
        Path root = Files.createDirectory(temp.resolve("root"));
        try (Daemon daemon = new Daemon(root, temp.resolve("state"))) {
            makeMany(root.resolve("many"));
            ClientProcess many = get(daemon, "many/", temp.resolve("many"));
            assertTrue(many.output.contains(FILES + " copied, 0 unchanged, 0 failed"), many.output);
            for (int i = 0; i < FILES; i += 997) {
                Path file = temp.resolve("many").resolve(path(i));
                assertEquals("content " + i, Files.readString(file));
            }
            makeLarge(root.resolve("large"));
            get(daemon, "large", temp.resolve("large"));
            ClientProcess.assertSameContent(root.resolve("large"), temp.resolve("large"));
        }
    }
}
