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

/** What is said where it cannot be done: what happened, to what, and what to do. */
class WordsTest {
    @TempDir
    Path temp;
    private Path root;
    private Path here;
    private Daemon daemon;

    @BeforeEach
    void startDaemon() throws IOException {
        root = Files.createDirectory(temp.resolve("root"));
        here = Files.createDirectory(temp.resolve("here"));
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

    /** Fails to fetch a file, because of a setting, with these words, and without any flag. */
    private void refused(Client client, int code, Setting setting, String words) {
        BankfullException why = assertThrows(BankfullException.class,
            () -> client.get(List.of("f"), here.toString()));
        assertTrue(why.getMessage().contains(words), why.getMessage());
        assertEquals(code, why.code(), why.getMessage());
        assertEquals(setting, why.setting(), why.getMessage());
        String rest = why.getMessage().replace("serve --allow-no-encryption", "");
        assertFalse(rest.contains(" --") || rest.contains("BANKFULL_"), rest);
    }

    /** The exit code of a command, and what it said. */
    private String run(String token, String... arguments) throws Exception {
        ProcessBuilder command = Child.command(List.of("-Xmx64m"), arguments);
        command.environment().remove("BANKFULL_FINGERPRINT");
        command.environment().remove("BANKFULL_TOKEN");
        if (token != null) {
            command.environment().put("BANKFULL_TOKEN", token);
        }
        Child child = Child.run(command, temp);
        assertEquals(1, child.said.lines().count(), child.said);
        return child.code + " " + child.said.trim();
    }

    @Test
    void aSettingThatStandsInTheWayIsNamedByTheLibraryAndItsFlagByTheCommand() throws Exception {
        String place = "127.0.0.1:" + daemon.port;
        String other = "sha256:" + "0".repeat(64);
        refused(client().fingerprint(null), Failure.OTHER, Setting.FINGERPRINT,
            place + " is not known yet; its fingerprint is " + daemon.fingerprint + ": compare");
        refused(client().fingerprint(other), Failure.OTHER, Setting.FINGERPRINT, place + " shows"
            + " the fingerprint " + daemon.fingerprint + ", not the expected " + other + ": check");
        refused(client().fingerprint("sha256:1"), Failure.USAGE, Setting.FINGERPRINT,
            "\"sha256:1\" is not a fingerprint: write sha256: and 64 hexadecimal digits");
        refused(client().token("guessed"), Failure.TOKEN, Setting.TOKEN,
            place + " says that the token is wrong: ask whoever runs it");
        refused(client().token(" \n"), Failure.USAGE, Setting.TOKEN, "the token is empty: give");
        refused(client().token("x".repeat(4097)), Failure.USAGE, Setting.TOKEN,
            "the token is longer than 4096 bytes: is it the right one?");
        refused(Client.of(daemon.url("")).fingerprint(daemon.fingerprint), Failure.TOKEN,
            Setting.TOKEN, place + " asks for a token: ask whoever runs it");
        refused(client().plain(true), Failure.PLAIN_REFUSED, Setting.PLAIN,
            place + " does not allow data without encryption: have it started with");
        String[] get = {"get", daemon.url("f"), here.toString(), "--fingerprint"};
        String said = run("sesame", "get", daemon.url("f"), here.toString());
        assertTrue(said.startsWith("2 bankfull: " + place + " is not known yet"), said);
        assertTrue(said.endsWith(" (--fingerprint F, or BANKFULL_FINGERPRINT)"), said);
        said = run(null, get[0], get[1], get[2], get[3], daemon.fingerprint);
        assertTrue(said.startsWith("2 bankfull: " + place + " asks for a token"), said);
        assertTrue(said.endsWith(" (--token-file F, or BANKFULL_TOKEN)"), said);
        said = run("", get[0], get[1], get[2], get[3], daemon.fingerprint);
        assertTrue(said.startsWith("1 bankfull: the token is empty"), said);
        assertTrue(said.endsWith(" (BANKFULL_TOKEN)"), said);
        Path file = Files.writeString(temp.resolve("token"), "guessed");
        said = run("sesame", get[0], get[1], get[2], get[3], daemon.fingerprint, "--token-file",
            file.toString());
        assertTrue(said.startsWith("2 bankfull: " + place + " says that the token is"), said);
        assertTrue(said.endsWith(" (the token file " + file + ")"), said);
        said = run("sesame", get[0], get[1], get[2], get[3], daemon.fingerprint,
            "--no-encryption");
        assertTrue(said.startsWith("2 bankfull: " + place + " does not allow data without"), said);
        assertTrue(said.endsWith(" (leave out --no-encryption)"), said);
        assertFalse(Files.exists(here.resolve("f")));
    }

    private interface Answer {
        void to(Socket socket) throws IOException;
    }

    /** What is said of a server that does this with each connection. */
    private String saidOf(long timeoutMillis, Answer answer) throws IOException {
        InetAddress local = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
        try (ServerSocket server = new ServerSocket(0, 5, local)) {
            Thread thread = new Thread(() -> {
                try (Socket socket = server.accept()) {
                    answer.to(socket);
                } catch (IOException e) {
                    // The client has gone.
                }
            });
            thread.start();
            String place = "127.0.0.1:" + server.getLocalPort();
            Client client = Client.of("bankfull://" + place + "/").timeoutMillis(timeoutMillis)
                .fingerprint(daemon.fingerprint);
            String said = assertThrows(BankfullException.class, () -> client.list("", one -> { }))
                .getMessage();
            assertTrue(said.startsWith(place + " "), said);
            return said.substring(place.length() + 1);
        }
    }

    @Test
    void whatIsNoDaemonIsToldFromOne() throws Exception {
        Client nobody = Client.of("bankfull://127.0.0.1:1/").fingerprint(daemon.fingerprint);
        refused(nobody, Failure.OTHER, null, "cannot connect to 127.0.0.1:1: connection refused"
            + " (is bankfull serve running there, and at this port?)");
        byte[] http = "HTTP/1.0 400 Bad Request\r\n\r\nthis is another service".getBytes();
        assertEquals("does not speak bankfull (its answer is no TLS): check host and port",
            saidOf(20_000, socket -> {
                socket.getInputStream().read();
                socket.getOutputStream().write(http);
                socket.shutdownOutput();
                while (socket.getInputStream().read() >= 0) { }
            }));
        assertEquals("closed the connection during the handshake: is it a bankfull server?",
            saidOf(20_000, socket -> socket.getInputStream().read()));
        assertEquals("accepted the connection but did not answer: is it a bankfull server?",
            saidOf(2000, socket -> {
                while (socket.getInputStream().read() >= 0) { }
            }));
    }

    private static void makeFifo(Path path) throws Exception {
        Process made = new ProcessBuilder("mkfifo", path.toString()).start();
        assertEquals(0, made.waitFor());
    }

    @Test
    void aFifoAtTheDestinationIsNamedAsTypedAndAsWhatItIs() throws Exception {
        Path fifo = here.resolve("fifo");
        makeFifo(fifo);
        Summary get = client().get(List.of("f"), fifo.toString());
        String what = "a device, FIFO or socket";
        assertEquals(List.of(fifo + ": " + what + " is in the way: remove or rename it"),
            get.failures);
        for (String destination : new String[] {fifo + "/", fifo + "/x"}) {
            String said = assertThrows(BankfullException.class,
                () -> client().get(List.of("f"), destination)).getMessage();
            assertTrue(said.contains(fifo + (destination.endsWith("/") ? "/" : "") + " is " + what),
                said);
            assertTrue(said.endsWith(": name another destination"), said);
        }
        String said = assertThrows(BankfullException.class,
            () -> client().put(List.of(fifo.toString()), "")).getMessage();
        assertTrue(said.startsWith(fifo + " is " + what + ": "), said);
        Files.createDirectories(root.resolve("d/fifo"));
        Summary tree = client().get(List.of("d/"), here.toString());
        assertEquals(List.of(fifo + ": cannot make the directory: " + what
            + " is in the way: remove or rename it"), tree.failures);
    }

    @Test
    void aSignalEndsACopyWithALineAndWhatIsVerifiedIsKept() throws Exception {
        byte[] content = new byte[24 << 20];
        new Random(9).nextBytes(content);
        Files.write(root.resolve("big"), content);
        // The one connection with data stands still in the end: the copy cannot be done before.
        try (CuttingProxy proxy = CuttingProxy.stalling(daemon.port, 12 << 20)) {
            ProcessBuilder command = Child.command(List.of("-Xmx64m"), "get",
                "bankfull://127.0.0.1:" + proxy.port() + "/big", here.toString(), "--streams", "1",
                "--fingerprint", daemon.fingerprint);
            command.environment().put("BANKFULL_TOKEN", Daemon.TOKEN);
            Path said = temp.resolve("said");
            Process process = command.redirectOutput(said.toFile()).start();
            try {
                for (int i = 0; !proxy.hasCut() && i < 1200 && process.isAlive(); i++) {
                    Thread.sleep(50);
                }
                assertTrue(proxy.hasCut(), Files.readString(said));
                process.destroy();
                assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            } finally {
                process.destroyForcibly();
            }
            assertEquals("bankfull: interrupted; run the same command again to continue where it"
                + " stopped\n", Files.readString(said));
            assertEquals(20, process.exitValue());
        }
        assertFalse(Files.exists(here.resolve("big")));
        Summary rest = client().get(List.of("big"), here.toString());
        assertTrue(rest.bytesResumed >= 1 << 20, rest.bytesResumed + " were here");
        Child.assertSame(root.resolve("big"), here.resolve("big"));
    }
}
