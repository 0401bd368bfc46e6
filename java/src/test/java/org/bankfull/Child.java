package org.bankfull;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.bankfull.cli.Main;

/** The command in a Java of its own. */
public final class Child {
    public final int code;
    public final String said;
    /** The most memory that it had, all of Java's own included. */
    public final long peakKib;

    private Child(int code, String said, long peakKib) {
        this.code = code;
        this.said = said;
        this.peakKib = peakKib;
    }

    /** A command to be started, with its output in one. */
    public static ProcessBuilder command(List<String> javaFlags, String... arguments)
        throws URISyntaxException {
        Path java = Path.of(System.getProperty("java.home"), "bin", "java");
        Path classes =
            Path.of(Main.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        List<String> command = new ArrayList<>(List.of(java.toString()));
        command.addAll(javaFlags);
        command.addAll(List.of("-cp", classes.toString(), Main.class.getName()));
        command.addAll(Arrays.asList(arguments));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        // Java would say that it has picked them up.
        builder.environment().keySet().removeAll(List.of("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"));
        return builder;
    }

    /** Runs it to its end. */
    public static Child run(ProcessBuilder builder, Path scratch) throws Exception {
        Path said = scratch.resolve("said");
        Process process = builder.redirectOutput(said.toFile()).start();
        long peak = 0;
        while (process.isAlive()) {
            peak = Math.max(peak, peakKib(process.pid()));
            Thread.sleep(10);
        }
        String text = new String(Files.readAllBytes(said), StandardCharsets.UTF_8);
        return new Child(process.exitValue(), text, peak);
    }

    /** 0 where nobody tells, or where it has ended. */
    private static long peakKib(long pid) throws IOException {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/" + pid + "/status"))) {
                if (line.startsWith("VmHWM:")) {
                    return Long.parseLong(line.replaceAll("[^0-9]", ""));
                }
            }
        } catch (NoSuchFileException e) {
            return 0;
        } catch (IOException e) {
            // It ended while it was looked at.
            return 0;
        }
        return 0;
    }

    /** Compares two files without holding either in memory. */
    public static void assertSame(Path one, Path other) throws IOException {
        try (InputStream a = new BufferedInputStream(Files.newInputStream(one), 1 << 20);
            InputStream b = new BufferedInputStream(Files.newInputStream(other), 1 << 20)) {
            long at = 0;
            for (int octet = a.read(); octet >= 0; octet = a.read()) {
                if (octet != b.read()) {
                    throw new AssertionError(one + " and " + other + " differ at " + at);
                }
                at++;
            }
            if (b.read() >= 0) {
                throw new AssertionError(other + " is longer than " + one);
            }
        }
    }
}
