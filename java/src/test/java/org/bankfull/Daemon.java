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

/** Real daemon that serves a directory until it is closed. */
final class Daemon implements Closeable {
    static final String TOKEN = "sesame";

    final int port;
    final String fingerprint;
    private final Process process;

    /** Starts a daemon that allows unencrypted data; skips the test without a program. */
    Daemon(Path root, Path state) throws IOException {
        this(root, state, "--allow-no-encryption");
    }

    /** Starts a daemon with flags. */
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
        String startLine = out.readLine();
        fingerprint = extract("\"fingerprint\":\"(sha256:[0-9a-f]{64})\"", startLine);
        port = Integer.parseInt(extract("\"address\":\"127.0.0.1:([0-9]+)\"", startLine));
        Thread drain = new Thread(() -> out.lines().forEach(line -> { }));
        drain.setDaemon(true);
        drain.start();
    }

    private static String extract(String pattern, String text) {
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
