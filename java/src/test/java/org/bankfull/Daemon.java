package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The real daemon, which serves a directory until it is closed. */
final class Daemon implements Closeable {
    static final String TOKEN = "sesame";

    final int port;
    final String fingerprint;
    private final Process process;

    /** Skips the test with a word where no program is named. */
    Daemon(Path root, Path state) throws IOException {
        this(root, state, "--allow-no-encryption");
    }

    /** With flags of its own. */
    Daemon(Path root, Path state, String... flags) throws IOException {
        String program = System.getProperty("bankfull.program", "");
        assumeTrue(!program.isEmpty(), "no daemon: give -Dbankfull.program=target/debug/bankfull");
        ProcessBuilder builder = new ProcessBuilder(program, "serve", root.toString(), "--listen",
            "127.0.0.1:0", "--json", "--state-dir", state.toString());
        builder.command().addAll(Arrays.asList(flags));
        builder.environment().put("BANKFULL_TOKEN", TOKEN);
        builder.redirectError(ProcessBuilder.Redirect.DISCARD);
        process = builder.start();
        BufferedReader out = new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String first = out.readLine();
        fingerprint = found("\"fingerprint\":\"(sha256:[0-9a-f]{64})\"", first);
        port = Integer.parseInt(found("\"address\":\"127.0.0.1:([0-9]+)\"", first));
        Thread rest = new Thread(() -> out.lines().forEach(line -> { }));
        rest.setDaemon(true);
        rest.start();
    }

    private static String found(String pattern, String text) {
        Matcher matcher = Pattern.compile(pattern).matcher(text);
        assertTrue(matcher.find(), pattern + " in " + text);
        return matcher.group(1);
    }

    String url(String path) {
        return "bankfull://127.0.0.1:" + port + "/" + path;
    }

    @Override
    public void close() {
        try {
            process.destroyForcibly().waitFor();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
