package org.bankfull.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.bankfull.ClientProcess;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Command line parsing, and one-line error messages that name their object. */
class MainTest {
    private static final String URL = "bankfull://127.0.0.1:1/x";

    @TempDir
    Path temp;

    /** Returns the exit code of a command, followed by its output on stdout and stderr. */
    private static String run(String... arguments) {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(output, true, StandardCharsets.UTF_8);
        int code = Main.run(arguments, stream, stream);
        return code + " " + output.toString(StandardCharsets.UTF_8);
    }

    private static void assertLine(String expected, String... arguments) {
        String output = run(arguments);
        assertTrue(output.startsWith(expected.substring(0, 2)), output);
        assertTrue(output.contains(expected.substring(2)), output);
        assertEquals(1, output.lines().count(), output);
    }

    @Test
    void help_anywhereBeforeEndOfFlags_isShown() {
        for (String flag : new String[] {"--help", "-h"}) {
            assertTrue(run(flag).startsWith("0 bankfull for Java"));
            assertTrue(run("get", flag).startsWith("0 bankfull for Java"));
            String put = run("put", "x", URL, "--token-file", flag);
            assertTrue(put.startsWith("0 bankfull for Java"), put);
        }
        assertTrue(run().startsWith("1 bankfull for Java"));
        assertLine("2 cannot read --help: it does not exist", "put", "--", "--help", URL);
    }

    @Test
    void flag_unknownOrWithoutValue_isRefused() {
        for (String flag : new String[] {"-x", "--quite", "-", "-qq"}) {
            assertLine("1 unknown flag " + flag + ":", "get", flag, URL, "here");
        }
        assertLine("2 cannot read -x: it does not exist", "put", "-q", "--", "-x", URL);
        assertLine("1 --streams needs a value", "get", URL, "here", "--streams");
        assertLine("1 --streams needs a value", "get", "--streams", "--", URL, "here");
        assertLine("1 --streams needs a number", "get", "--streams", "65", URL, "here");
        assertLine("1 --block and --socket apply to measure only", "get", "--block", "4096", URL,
            "here");
    }

    @Test
    void file_missing_isNamedInError() {
        String file = temp.resolve("nofile").toString();
        assertLine("1 cannot read the token file " + file + ": it does not exist",
            "list", URL, "--token-file", file);
        assertLine("2 cannot use " + file + ": it does not exist",
            "measure", "send", "nio", file, "127.0.0.1:1");
    }

    @Test
    void url_invalid_errorNamesTheMistake() {
        assertLine("1 \"bankfull://h:99999/f\": \"99999\" is not a port (1 to 65535): write"
            + " bankfull://", "list", "bankfull://h:99999/f");
        assertLine("1 \"bankfull:///f\": the host is missing: write bankfull://", "list",
            "bankfull:///f");
        assertLine("1 \"bankfull://[::1/f\": '[' without ']' in the host", "list",
            "bankfull://[::1/f");
        assertLine("1 \"h:f\": not the address of a daemon: write bankfull://", "list", "h:f");
    }

    @Test
    void measureSend_hostUnreachable_isNamedInError() throws Exception {
        Path file = Files.writeString(temp.resolve("f"), "content");
        assertLine("2 cannot connect to 127.0.0.1:1",
            "measure", "send", "nio", file.toString(), "127.0.0.1:1");
        assertLine("2 the host no-such-host.invalid has no IP address",
            "measure", "send", "nio", file.toString(), "no-such-host.invalid:1");
    }

    @Test
    void name_notInLocale_errorNamesRemedy() throws Exception {
        for (String[] arguments : new String[][] {
            {"put", "\u00fcber", URL},
            {"get", URL, "\u00fcber"},
            {"list", URL, "--token-file", "\u00fcber"},
            {"measure", "send", "nio", "\u00fcber", "127.0.0.1:1"},
        }) {
            ProcessBuilder command = ClientProcess.command(List.of("-Xmx64m"), arguments);
            command.environment().put("LC_ALL", "C");
            command.environment().put("BANKFULL_FINGERPRINT", "sha256:" + "0".repeat(64));
            ClientProcess child = ClientProcess.run(command, temp);
            if (arguments[0].equals("get")) {
                // The connection to the daemon comes first and fails.
                assertEquals(2, child.exitCode, child.output);
            } else {
                assertEquals(1, child.exitCode, child.output);
                assertTrue(child.output.contains("run with LC_ALL=C.UTF-8"), child.output);
            }
            assertEquals(1, child.output.lines().count(), child.output);
        }
    }

    @Test
    void measure_blockAndSocketFlags_applyToBothEnds() throws Exception {
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        Path into = temp.resolve("into");
        byte[] content = new byte[3_000_001];
        new java.util.Random(3).nextBytes(content);
        Path file = Files.write(temp.resolve("f"), content);
        Process receiver = ClientProcess.command(List.of("-Xmx64m"), "measure", "receive",
            String.valueOf(port), into.toString(), "--block", "4096", "--socket", "40000").start();
        try (BufferedReader out = new BufferedReader(
            new InputStreamReader(receiver.getInputStream(), StandardCharsets.UTF_8))) {
            String listening =
                "listening at " + port + ", with a buffer of 40000 bytes, in blocks of 4096";
            assertEquals(listening, out.readLine());
            for (String method : new String[] {"nio", "mapped", "zerocopy", "zerobuffer"}) {
                String output = run("measure", "send", method, file.toString(), "127.0.0.1:" + port,
                    "--block", "65536", "--socket", "50000");
                assertTrue(output.contains("\"block\":65536,\"bytes\":3000001,"), output);
                assertTrue(output.contains("\"socket\":50000"), output);
                ClientProcess.assertSameContent(file, into);
            }
        } finally {
            receiver.destroyForcibly().waitFor();
        }
    }
}
