package org.bankfull;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.bankfull.cli.Main;

/** Run of the client command in a separate Java process. */
public final class ClientProcess {
    public final int exitCode;
    public final String output;

    private ClientProcess(int exitCode, String output) {
        this.exitCode = exitCode;
        this.output = output;
    }

    /** Creates the process builder of a command, with stderr merged into stdout. */
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
        // Java prints a notice about these variables.
        builder.environment().keySet().removeAll(List.of("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"));
        return builder;
    }

    /** Runs a command to its end. */
    public static ClientProcess run(ProcessBuilder builder, Path scratch) throws Exception {
        Path output = scratch.resolve("output");
        Process process = builder.redirectOutput(output.toFile()).start();
        int exitCode = process.waitFor();
        String text = new String(Files.readAllBytes(output), StandardCharsets.UTF_8);
        return new ClientProcess(exitCode, text);
    }

    /** Asserts that two files are equal, without loading either into memory. */
    public static void assertSameContent(Path first, Path second) throws IOException {
        try (InputStream a = new BufferedInputStream(Files.newInputStream(first), 1 << 20);
            InputStream b = new BufferedInputStream(Files.newInputStream(second), 1 << 20)) {
            long offset = 0;
            for (int value = a.read(); value >= 0; value = a.read()) {
                if (value != b.read()) {
                    throw new AssertionError(first + " and " + second + " differ at " + offset);
                }
                offset++;
            }
            if (b.read() >= 0) {
                throw new AssertionError(second + " is longer than " + first);
            }
        }
    }
}
