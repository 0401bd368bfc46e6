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
import org.bankfull.Child;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is typed, and what is said where it cannot be done: a line that names the thing. */
class MainTest {
    private static final String URL = "bankfull://127.0.0.1:1/x";

    @TempDir
    Path temp;

    /** What a command said, on both of its outputs, after its exit code. */
    private static String run(String... arguments) {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(said, true, StandardCharsets.UTF_8);
        int code = Main.run(arguments, stream, stream);
        return code + " " + said.toString(StandardCharsets.UTF_8);
    }

    private static void line(String expected, String... arguments) {
        String said = run(arguments);
        assertTrue(said.startsWith(expected.substring(0, 2)), said);
        assertTrue(said.contains(expected.substring(2)), said);
        assertEquals(1, said.lines().count(), said);
    }

    @Test
    void helpIsToBeHadAnywhereButBehindTheEndOfFlags() {
        for (String flag : new String[] {"--help", "-h"}) {
            assertTrue(run(flag).startsWith("0 bankfull for Java"));
            assertTrue(run("get", flag).startsWith("0 bankfull for Java"));
            String put = run("put", "x", URL, "--token-file", flag);
            assertTrue(put.startsWith("0 bankfull for Java"), put);
        }
        assertTrue(run().startsWith("1 bankfull for Java"));
        line("2 cannot read --help: it does not exist", "put", "--", "--help", URL);
    }

    @Test
    void whatBeginsWithADashIsAFlagOrRefused() {
        for (String flag : new String[] {"-x", "--quite", "-", "-qq"}) {
            line("1 there is no flag " + flag + ":", "get", flag, URL, "here");
        }
        line("2 cannot read -x: it does not exist", "put", "-q", "--", "-x", URL);
        line("1 --streams wants a value", "get", URL, "here", "--streams");
        line("1 --streams wants a value", "get", "--streams", "--", URL, "here");
        line("1 --streams wants a number", "get", "--streams", "65", URL, "here");
        line("1 --block and --socket are for measure alone", "get", "--block", "4096", URL, "here");
    }

    @Test
    void aFileThatIsNotThereIsNamed() {
        String file = temp.resolve("nofile").toString();
        line("1 cannot read the token file " + file + ": it does not exist",
            "list", URL, "--token-file", file);
        line("2 cannot use " + file + ": it does not exist",
            "measure", "send", "nio", file, "127.0.0.1:1");
    }

    @Test
    void anAddressThatIsNoneIsSaidWithWhatIsWrongWithIt() {
        line("1 \"bankfull://h:99999/f\": \"99999\" is not a port (1 to 65535): write bankfull://",
            "list", "bankfull://h:99999/f");
        line("1 \"bankfull:///f\": no host: write bankfull://", "list", "bankfull:///f");
        line("1 \"bankfull://[::1/f\": a '[' without ']'", "list", "bankfull://[::1/f");
        line("1 \"h:f\": no address of a daemon: write bankfull://", "list", "h:f");
    }

    @Test
    void aHostThatIsNotThereIsNamed() throws Exception {
        Path file = Files.writeString(temp.resolve("f"), "content");
        line("2 nothing answers at 127.0.0.1:1",
            "measure", "send", "nio", file.toString(), "127.0.0.1:1");
        line("2 the host no-such-host.invalid has no address",
            "measure", "send", "nio", file.toString(), "no-such-host.invalid:1");
    }

    @Test
    void aNameThatTheLocaleCannotWriteIsRefusedWithTheWayOut() throws Exception {
        for (String[] arguments : new String[][] {
            {"put", "\u00fcber", URL},
            {"get", URL, "\u00fcber"},
            {"list", URL, "--token-file", "\u00fcber"},
            {"measure", "send", "nio", "\u00fcber", "127.0.0.1:1"},
        }) {
            ProcessBuilder command = Child.command(List.of("-Xmx64m"), arguments);
            command.environment().put("LC_ALL", "C");
            command.environment().put("BANKFULL_FINGERPRINT", "sha256:" + "0".repeat(64));
            Child child = Child.run(command, temp);
            if (arguments[0].equals("get")) {
                // The daemon is asked first, and nobody answers.
                assertEquals(2, child.code, child.said);
            } else {
                assertEquals(1, child.code, child.said);
                assertTrue(child.said.contains("run with LC_ALL=C.UTF-8"), child.said);
            }
            assertEquals(1, child.said.lines().count(), child.said);
        }
    }

    @Test
    void bothEndsOfAMeasurementHaveTheBuffersAndBlocksAskedFor() throws Exception {
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        Path into = temp.resolve("into");
        byte[] content = new byte[3_000_001];
        new java.util.Random(3).nextBytes(content);
        Path file = Files.write(temp.resolve("f"), content);
        Process receiver = Child.command(List.of("-Xmx64m"), "measure", "receive",
            String.valueOf(port), into.toString(), "--block", "4096", "--socket", "40000").start();
        try (BufferedReader out = new BufferedReader(
            new InputStreamReader(receiver.getInputStream(), StandardCharsets.UTF_8))) {
            String listening =
                "listening at " + port + ", with a buffer of 40000 bytes, in blocks of 4096";
            assertEquals(listening, out.readLine());
            for (String method : new String[] {"nio", "mapped", "zerocopy", "zerobuffer"}) {
                String said = run("measure", "send", method, file.toString(), "127.0.0.1:" + port,
                    "--block", "65536", "--socket", "50000");
                assertTrue(said.contains("\"block\":65536,\"bytes\":3000001,"), said);
                assertTrue(said.contains("\"socket\":50000"), said);
                Child.assertSame(file, into);
            }
        } finally {
            receiver.destroyForcibly().waitFor();
        }
    }
}
