package org.bankfull;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import org.bankfull.wire.Attach;
import org.bankfull.wire.Message;

/** Server with the behavior of a test, and with a certificate made by keytool. */
final class FakeDaemon implements Closeable {
    private static final char[] PASSWORD = "password".toCharArray();
    private static final byte[] CONTROL = "BKFLCTRL".getBytes(StandardCharsets.US_ASCII);
    /** Size of an attach request after its first 8 bytes, and the nonce in it. */
    private static final int ATTACH_BYTES = 88;
    private static final int NONCE_AT = 24;

    /** Treatment of a control connection after its Hello, or of a connection before TLS. */
    interface Behavior<T> {
        void handle(T peer) throws Exception;
    }

    private static KeyStore madeKeys;

    final String fingerprint;
    private final SSLContext tls;
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final List<Socket> sockets = new ArrayList<>();
    private final AtomicInteger connections = new AtomicInteger();
    private final Behavior<Socket> behavior;

    /** Client of a fake daemon, after its Hello. */
    static final class Peer {
        private final SSLSocket socket;
        private final DataInputStream in;

        private Peer(SSLSocket socket, DataInputStream in) {
            this.socket = socket;
            this.in = in;
        }

        /** Writes bytes without a frame. */
        void sendRaw(byte[] bytes) throws IOException {
            socket.getOutputStream().write(bytes);
            socket.getOutputStream().flush();
        }

        void send(byte[] message) throws IOException {
            sendRaw(frame(message));
        }

        void send(Message message) throws IOException {
            send(message.write());
        }

        /** Receives the request of a data stream; returns the reply to it. */
        byte[] receiveAttach() throws IOException {
            byte[] request = new byte[ATTACH_BYTES];
            in.readFully(request);
            byte[] nonce =
                Arrays.copyOfRange(request, NONCE_AT, NONCE_AT + Attach.NONCE_BYTES);
            return Attach.reply(new byte[32], nonce);
        }

        OutputStream out() throws IOException {
            return socket.getOutputStream();
        }

        /** Waits until the client closes the connection. */
        void awaitEnd() throws IOException {
            while (in.read() >= 0) { }
        }

        /** Receives the next message other than Ping. */
        Message receive() throws Exception {
            while (true) {
                byte[] body = new byte[in.readInt()];
                in.readFully(body);
                Message message = Message.read(body);
                if (message.number != Message.PING) {
                    return message;
                }
            }
        }
    }

    /**
     * Creates a server.
     *
     * @param raw treatment of connections before TLS, or null
     * @param rawFrom number of the first connection that it treats
     */
    private FakeDaemon(Path scratch, Behavior<Socket> raw, int rawFrom, Behavior<Peer> greeted,
        Behavior<Peer> data) throws Exception {
        KeyStore keys = makeKeys(scratch);
        KeyManagerFactory managers =
            KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        managers.init(keys, PASSWORD);
        tls = SSLContext.getInstance("TLSv1.3");
        tls.init(managers.getKeyManagers(), null, null);
        byte[] certificate = keys.getCertificate("fake").getEncoded();
        StringBuilder digits = new StringBuilder("sha256:");
        for (byte each : MessageDigest.getInstance("SHA-256").digest(certificate)) {
            digits.append(String.format("%02x", each));
        }
        fingerprint = digits.toString();
        behavior = socket -> {
            if (raw != null && connections.get() >= rawFrom) {
                raw.handle(socket);
            } else {
                greet(socket, greeted, data);
            }
        };
        start(this::accept);
    }

    /** Starts a server that treats its connections before TLS. */
    static FakeDaemon raw(Path scratch, Behavior<Socket> behavior) throws Exception {
        return new FakeDaemon(scratch, behavior, 1, null, null);
    }

    /** Starts a server that treats control connections after Hello; data streams stay silent. */
    static FakeDaemon greeted(Path scratch, Behavior<Peer> behavior) throws Exception {
        return withStreams(scratch, behavior, Peer::awaitEnd);
    }

    /** Starts a server that treats data streams, too, after 8 bytes of their request. */
    static FakeDaemon withStreams(Path scratch, Behavior<Peer> behavior, Behavior<Peer> data)
        throws Exception {
        return new FakeDaemon(scratch, null, 0, behavior, data);
    }

    /** Starts a server that treats all connections but the first before TLS. */
    static FakeDaemon withRawStreams(
        Path scratch, Behavior<Peer> behavior, Behavior<Socket> data) throws Exception {
        return new FakeDaemon(scratch, data, 2, behavior, null);
    }

    /** Returns a key and its certificate, made once per process. */
    private static synchronized KeyStore makeKeys(Path scratch) throws Exception {
        if (madeKeys == null) {
            Path file = scratch.resolve("keys.p12");
            Path output = scratch.resolve("keytool");
            String keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
            Process process = new ProcessBuilder(keytool, "-genkeypair", "-alias", "fake",
                "-keyalg", "EC", "-dname", "CN=fake", "-validity", "2", "-storetype", "PKCS12",
                "-keystore", file.toString(), "-storepass", new String(PASSWORD))
                .redirectErrorStream(true).redirectOutput(output.toFile()).start();
            if (process.waitFor() != 0) {
                throw new IOException(Files.readString(output));
            }
            KeyStore keys = KeyStore.getInstance("PKCS12");
            try (InputStream in = Files.newInputStream(file)) {
                keys.load(in, PASSWORD);
            }
            madeKeys = keys;
        }
        return madeKeys;
    }

    static byte[] frame(byte[] message) {
        return ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).array();
    }

    String name() {
        return "127.0.0.1:" + server.getLocalPort();
    }

    Client client() throws BankfullException {
        return Client.of("bankfull://" + name() + "/").fingerprint(fingerprint).streams(1);
    }

    /** Returns the number of accepted connections. */
    int connections() {
        return connections.get();
    }

    private static void start(Behavior<Void> task) {
        Thread thread = new Thread(() -> {
            try {
                task.handle(null);
            } catch (Exception e) {
                // The connection or the server is closed.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept(Void none) throws IOException {
        while (true) {
            Socket socket = server.accept();
            connections.incrementAndGet();
            synchronized (sockets) {
                sockets.add(socket);
            }
            start(ignored -> {
                try (socket) {
                    behavior.handle(socket);
                }
            });
        }
    }

    private void greet(Socket raw, Behavior<Peer> greeted, Behavior<Peer> data)
        throws Exception {
        SSLSocket socket = (SSLSocket) tls.getSocketFactory().createSocket(raw, null, true);
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] magic = new byte[CONTROL.length];
        in.readFully(magic);
        Peer peer = new Peer(socket, in);
        if (!Arrays.equals(magic, CONTROL)) {
            data.handle(peer);
            return;
        }
        peer.receive();
        peer.sendRaw(CONTROL);
        greeted.handle(peer);
    }

    @Override
    public void close() throws IOException {
        server.close();
        synchronized (sockets) {
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }
}
