package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.bankfull.BankfullException.Setting;
import org.bankfull.wire.Failure;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Error messages: each states the event, the object and the remedy. */
class ErrorMessagesTest {
    @TempDir
    Path temp;
    private Path root;
    private Path local;
    private Daemon daemon;

    @BeforeEach
    void startDaemon() throws IOException {
        root = Files.createDirectory(temp.resolve("root"));
        local = Files.createDirectory(temp.resolve("local"));
        Files.writeString(root.resolve("f"), "content");
        daemon = new Daemon(root, temp.resolve("state"), new String[0]);
    }

    @AfterEach
    void stopDaemon() {
        if (daemon != null) {
            daemon.close();
        }
    }

    private Client client() throws BankfullException {
        return Client.of(daemon.url("")).fingerprint(daemon.fingerprint).token(Daemon.TOKEN);
    }

    /** Asserts that a fetch fails with a code, setting and text, without naming a flag. */
    private void assertRefused(Client client, int code, Setting setting, String text) {
        BankfullException error = assertThrows(BankfullException.class,
            () -> client.get(List.of("f"), local.toString()));
        assertTrue(error.getMessage().contains(text), error.getMessage());
        assertEquals(code, error.code(), error.getMessage());
        assertEquals(setting, error.setting(), error.getMessage());
        String rest = error.getMessage().replace("serve --allow-no-encryption", "");
        assertFalse(rest.contains(" --") || rest.contains("BANKFULL_"), rest);
    }

    /** Returns the exit code of a command and its single line of output. */
    private String run(String token, String... arguments) throws Exception {
        ProcessBuilder command = ClientProcess.command(List.of("-Xmx64m"), arguments);
        command.environment().remove("BANKFULL_FINGERPRINT");
        command.environment().remove("BANKFULL_TOKEN");
        if (token != null) {
            command.environment().put("BANKFULL_TOKEN", token);
        }
        ClientProcess child = ClientProcess.run(command, temp);
        assertEquals(1, child.output.lines().count(), child.output);
        return child.exitCode + " " + child.output.trim();
    }

    @Test
    void setting_invalid_isNamedByLibraryAndItsFlagByCommand() throws Exception {
        String address = "127.0.0.1:" + daemon.port;
        String otherFingerprint = "sha256:" + "0".repeat(64);
        assertRefused(client().fingerprint(null), Failure.OTHER, Setting.FINGERPRINT,
            address + " is not known yet; its fingerprint is " + daemon.fingerprint + ": compare");
        assertRefused(client().fingerprint(otherFingerprint), Failure.OTHER, Setting.FINGERPRINT,
            address + " presents the fingerprint " + daemon.fingerprint + ", not the expected "
            + otherFingerprint + ": check");
        assertRefused(client().fingerprint("sha256:1"), Failure.USAGE, Setting.FINGERPRINT,
            "\"sha256:1\" is not a fingerprint: write sha256: followed by 64 hexadecimal digits");
        assertRefused(client().token("guessed"), Failure.BAD_TOKEN, Setting.TOKEN,
            address + " rejects the token: ask the administrator of the server");
        assertRefused(
            client().token(" \n"), Failure.USAGE, Setting.TOKEN, "the token is empty: use");
        assertRefused(client().token("x".repeat(4097)), Failure.USAGE, Setting.TOKEN,
            "the token is longer than 4096 bytes: is it the right one?");
        assertRefused(Client.of(daemon.url("")).fingerprint(daemon.fingerprint), Failure.BAD_TOKEN,
            Setting.TOKEN, address + " requires a token: ask the administrator of the server");
        assertRefused(client().unencrypted(true), Failure.UNENCRYPTED_REFUSED, Setting.UNENCRYPTED,
            address + " does not allow data without encryption: start it with");
        String[] get = {"get", daemon.url("f"), local.toString(), "--fingerprint"};
        String output = run("sesame", "get", daemon.url("f"), local.toString());
        assertTrue(output.startsWith("2 bankfull: " + address + " is not known yet"), output);
        assertTrue(output.endsWith(" (--fingerprint F, or BANKFULL_FINGERPRINT)"), output);
        output = run(null, get[0], get[1], get[2], get[3], daemon.fingerprint);
        assertTrue(output.startsWith("2 bankfull: " + address + " requires a token"), output);
        assertTrue(output.endsWith(" (--token-file F, or BANKFULL_TOKEN)"), output);
        output = run("", get[0], get[1], get[2], get[3], daemon.fingerprint);
        assertTrue(output.startsWith("1 bankfull: the token is empty"), output);
        assertTrue(output.endsWith(" (BANKFULL_TOKEN)"), output);
        Path file = Files.writeString(temp.resolve("token"), "guessed");
        output = run("sesame", get[0], get[1], get[2], get[3], daemon.fingerprint, "--token-file",
            file.toString());
        assertTrue(output.startsWith("2 bankfull: " + address + " rejects the token"), output);
        assertTrue(output.endsWith(" (the token file " + file + ")"), output);
        output = run("sesame", get[0], get[1], get[2], get[3], daemon.fingerprint,
            "--no-encryption");
        assertTrue(output.startsWith("2 bankfull: " + address + " does not allow data without"),
            output);
        assertTrue(output.endsWith(" (leave out --no-encryption)"), output);
        assertFalse(Files.exists(local.resolve("f")));
    }

    private interface ServerBehavior {
        void handle(Socket socket) throws IOException;
    }

    /** Returns the error about a server that answers its connection in this way. */
    private String errorOf(long timeoutMillis, ServerBehavior behavior) throws IOException {
        InetAddress local = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
        try (ServerSocket server = new ServerSocket(0, 5, local)) {
            Thread thread = new Thread(() -> {
                while (!server.isClosed()) {
                    try (Socket socket = server.accept()) {
                        behavior.handle(socket);
                    } catch (IOException e) {
                        // The client has disconnected.
                    }
                }
            });
            thread.start();
            String address = "127.0.0.1:" + server.getLocalPort();
            Client client = Client.of("bankfull://" + address + "/").timeoutMillis(timeoutMillis)
                .fingerprint(daemon.fingerprint);
            String output = assertThrows(BankfullException.class,
                () -> client.list("", entry -> { })).getMessage();
            assertTrue(output.startsWith(address + " "), output);
            return output.substring(address.length() + 1);
        }
    }

    @Test
    void connect_notABankfullServer_isRecognized() throws Exception {
        Client unreachable = Client.of("bankfull://127.0.0.1:1/").fingerprint(daemon.fingerprint);
        assertRefused(
            unreachable, Failure.OTHER, null, "cannot connect to 127.0.0.1:1: connection refused"
            + " (is bankfull serve running there, on this port?)");
        byte[] http = "HTTP/1.0 400 Bad Request\r\n\r\nthis is another service".getBytes();
        assertEquals("does not speak bankfull (its answer is not TLS): check host and port",
            errorOf(20_000, socket -> {
                socket.getInputStream().read();
                socket.getOutputStream().write(http);
                socket.shutdownOutput();
                while (socket.getInputStream().read() >= 0) { }
            }));
        assertEquals("closed the connection during the handshake: is it a bankfull server?",
            errorOf(2000, socket -> socket.getInputStream().read()));
        assertEquals("accepted the connection but did not answer: is it a bankfull server?",
            errorOf(2000, socket -> {
                while (socket.getInputStream().read() >= 0) { }
            }));
    }

    private static void makeFifo(Path path) throws Exception {
        Process mkfifo = new ProcessBuilder("mkfifo", path.toString()).start();
        assertEquals(0, mkfifo.waitFor());
    }

    @Test
    void destination_isFifo_errorNamesPathAndKind() throws Exception {
        Path fifo = local.resolve("fifo");
        makeFifo(fifo);
        Summary get = client().get(List.of("f"), fifo.toString());
        String kind = "a device, FIFO or socket";
        assertEquals(List.of(fifo + ": " + kind + " is in the way: remove or rename it"),
            get.failures);
        for (String destination : new String[] {fifo + "/", fifo + "/x"}) {
            String output = assertThrows(BankfullException.class,
                () -> client().get(List.of("f"), destination)).getMessage();
            assertTrue(output.contains(
                fifo + (destination.endsWith("/") ? "/" : "") + " is " + kind),
                output);
            assertTrue(output.endsWith(": choose another destination"), output);
        }
        String output = assertThrows(BankfullException.class,
            () -> client().put(List.of(fifo.toString()), "")).getMessage();
        assertTrue(output.startsWith(fifo + " is " + kind + ": "), output);
        Files.createDirectories(root.resolve("d/fifo"));
        Summary tree = client().get(List.of("d/"), local.toString());
        assertEquals(List.of(fifo + ": cannot create the directory: " + kind
            + " is in the way: remove or rename it"), tree.failures);
    }

    @Test
    void get_signal_printsOneLineAndKeepsVerifiedData() throws Exception {
        byte[] content = new byte[24 << 20];
        new Random(9).nextBytes(content);
        Files.write(root.resolve("big"), content);
        // The only data stream stalls, so the copy cannot complete before the signal.
        try (FaultyProxy proxy = FaultyProxy.stalling(daemon.port, 12 << 20)) {
            ProcessBuilder command = ClientProcess.command(List.of("-Xmx64m"), "get",
                "bankfull://127.0.0.1:" + proxy.port() + "/big", local.toString(), "--streams", "1",
                "--fingerprint", daemon.fingerprint);
            command.environment().put("BANKFULL_TOKEN", Daemon.TOKEN);
            Path output = temp.resolve("output");
            Process process = command.redirectOutput(output.toFile()).start();
            try {
                for (int i = 0; !proxy.hasInjectedFault() && i < 1200 && process.isAlive(); i++) {
                    Thread.sleep(50);
                }
                assertTrue(proxy.hasInjectedFault(), Files.readString(output));
                process.destroy();
                assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            } finally {
                process.destroyForcibly();
            }
            assertEquals("bankfull: interrupted; run the same command again to continue where it"
                + " stopped\n", Files.readString(output));
            assertEquals(20, process.exitValue());
        }
        assertFalse(Files.exists(local.resolve("big")));
        Summary rest = client().get(List.of("big"), local.toString());
        assertTrue(rest.bytesResumed >= 1 << 20, rest.bytesResumed + " bytes resumed");
        ClientProcess.assertSameContent(root.resolve("big"), local.resolve("big"));
    }
}
