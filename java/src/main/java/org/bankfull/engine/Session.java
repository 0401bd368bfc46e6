package org.bankfull.engine;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.SSLSocket;
import org.bankfull.BankfullException;
import org.bankfull.Endpoint;
import org.bankfull.wire.Attach;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Limits;
import org.bankfull.wire.Message;
import org.bankfull.wire.WireException;

/**
 * One session with a daemon: its control connection, a thread that writes what was posted and gives
 * signs of life, the first failure of any thread, and the way to data connections.
 *
 * <p>One thread reads messages. Any may post them: posting never waits, so that the reader never does.
 */
final class Session implements Closeable {
    static final String SOFTWARE = "bankfull-java 0.1.0";

    private static final byte[] MAGIC = "BKFLCTRL".getBytes(StandardCharsets.US_ASCII);
    private static final int CONNECT_MILLIS = 10_000;
    private static final long PING_MILLIS_MOST = 10_000;
    /** What waits is written together up to about a TLS record. */
    private static final int BATCH_BYTES = 16 << 10;

    private final Endpoint endpoint;
    private final Tls tls;
    private final SSLSocket control;
    /** Below it: closing the other one would wait for whoever writes. */
    private final Socket raw;
    private final DataInputStream in;
    private final OutputStream out;
    private final BlockingQueue<Message> outbox = new LinkedBlockingQueue<>();
    private final AtomicReference<Throwable> failed = new AtomicReference<>();
    private final AtomicInteger nextStream = new AtomicInteger();
    private final long timeoutMillis;
    private final SecureRandom random = new SecureRandom();
    private final Thread writer = new Thread(this::write, "bankfull-control");
    private Message.Welcome welcome;
    private volatile boolean closing;

    private Session(Endpoint endpoint, Tls tls, Socket raw, SSLSocket control, long timeoutMillis)
        throws IOException {
        this.raw = raw;
        this.endpoint = endpoint;
        this.tls = tls;
        this.control = control;
        this.timeoutMillis = timeoutMillis;
        this.in = new DataInputStream(new java.io.BufferedInputStream(control.getInputStream()));
        this.out = control.getOutputStream();
        writer.setDaemon(true);
    }

    /** Connects and greets. */
    static Session connect(Endpoint endpoint, Tls tls, byte[] token, long timeoutMillis)
        throws IOException {
        Socket socket = new Socket();
        try {
            dial(socket, endpoint);
            socket.setSoTimeout((int) Math.min(timeoutMillis, Integer.MAX_VALUE));
            SSLSocket control = tls.over(socket, endpoint.host, endpoint.port);
            Session session = new Session(endpoint, tls, socket, control, timeoutMillis);
            session.greet(token);
            return session;
        } catch (IOException e) {
            quietly(socket);
            throw named(e, endpoint, true);
        }
    }

    private static void dial(Socket socket, Endpoint endpoint) throws IOException {
        InetSocketAddress address = new InetSocketAddress(endpoint.host, endpoint.port);
        if (address.isUnresolved()) {
            throw new BankfullException(
                Failure.NOT_FOUND, "the host " + endpoint.host + " has no address: check its name");
        }
        socket.connect(address, CONNECT_MILLIS);
        socket.setTcpNoDelay(true);
    }

    private static IOException named(IOException e, Endpoint endpoint, boolean first) {
        if (e instanceof BankfullException) {
            return e;
        }
        String at = endpoint.host + ":" + endpoint.port;
        if (e instanceof java.net.ConnectException) {
            return new BankfullException(
                Failure.OTHER, "nothing answers at " + at + ": start bankfull serve there, or name its port", e);
        }
        if (e instanceof SocketTimeoutException) {
            return new BankfullException(
                Failure.TIMED_OUT, at + " does not answer: check the address and the firewall", e);
        }
        if (first && e instanceof javax.net.ssl.SSLException) {
            return new BankfullException(
                Failure.OTHER, "no secure connection to " + at + " (is it bankfull serve?): " + e.getMessage(), e);
        }
        return new BankfullException(Failure.OTHER, "the connection to " + at + " broke: " + e.getMessage(), e);
    }

    private void greet(byte[] token) throws IOException {
        out.write(MAGIC);
        send(Message.hello(SOFTWARE, token));
        byte[] magic = new byte[MAGIC.length];
        in.readFully(magic);
        if (!Arrays.equals(magic, MAGIC)) {
            throw new BankfullException(Failure.PROTOCOL, endpoint.host + " speaks something else than bankfull");
        }
        Message answer = readFrame(Limits.HELLO_FRAME_BYTES);
        try {
            welcome = answer.welcome();
        } catch (WireException e) {
            throw broken(e);
        }
    }

    /** Asks, and returns the server's Opened. From here on messages may be posted. */
    Message open(Message open) throws IOException {
        send(open);
        Message answer = receive();
        if (answer.number != Message.OPENED) {
            throw broken(new WireException("message " + answer.number + " in answer to a request"));
        }
        writer.start();
        return answer;
    }

    Message.Welcome welcome() {
        return welcome;
    }

    long timeoutMillis() {
        return timeoutMillis;
    }

    /** Queues a message; never waits. */
    void post(Message message) {
        outbox.add(message);
    }

    /** Messages that wait to be written. */
    int waiting() {
        return outbox.size();
    }

    /** The next message but signs of life. An error of the server's is thrown. */
    Message receive() throws IOException {
        try {
            while (true) {
                Message message = readFrame(Limits.CONTROL_FRAME_BYTES);
                if (message.number != Message.PING) {
                    return message;
                }
            }
        } catch (SocketTimeoutException e) {
            throw first(new BankfullException(Failure.TIMED_OUT, endpoint.host + " has said nothing for "
                + timeoutMillis / 1000 + " s: run the same command again to continue", e));
        } catch (EOFException e) {
            throw first(new BankfullException(Failure.OTHER, endpoint.host
                + " closed the connection: run the same command again to continue", e));
        } catch (IOException e) {
            throw first(named(e, endpoint, false));
        }
    }

    /** Waits until the other side, which has heard all, closes the connection. */
    void awaitClosed() {
        try {
            while (true) {
                readFrame(Limits.CONTROL_FRAME_BYTES);
            }
        } catch (IOException e) {
            // So it has, or it has gone: nothing depends on it any more.
        }
    }

    /** What failed first is why the rest did. */
    private IOException first(IOException later) {
        Throwable earlier = failed.get();
        return earlier == null ? later : asIo(earlier);
    }

    private Message readFrame(int most) throws IOException {
        int length = in.readInt();
        if (length < 0 || length > most) {
            throw broken(new WireException("a frame of " + (length & 0xFFFFFFFFL) + " bytes"));
        }
        byte[] body = new byte[length];
        in.readFully(body);
        try {
            Message message = Message.read(body);
            if (message.number == Message.ERROR) {
                throw new BankfullException(message.failure());
            }
            return message;
        } catch (WireException e) {
            throw broken(e);
        }
    }

    BankfullException broken(WireException e) {
        return new BankfullException(
            Failure.PROTOCOL, endpoint.host + " broke the protocol: " + e.getMessage(), e);
    }

    private void send(Message message) throws IOException {
        ByteArrayOutputStream frames = new ByteArrayOutputStream(256);
        frame(message, frames);
        out.write(frames.toByteArray());
        out.flush();
    }

    private static void frame(Message message, ByteArrayOutputStream into) {
        byte[] body = message.write();
        into.write(ByteBuffer.allocate(4).putInt(body.length).array(), 0, 4);
        into.write(body, 0, body.length);
    }

    private void write() {
        long theirs = welcome.timeoutMillis > 0 ? welcome.timeoutMillis : timeoutMillis;
        long every = Math.min(Math.min(theirs, timeoutMillis) / 4, PING_MILLIS_MOST);
        try {
            while (!closing || !outbox.isEmpty()) {
                Message next = outbox.poll(closing ? 0 : every, TimeUnit.MILLISECONDS);
                ByteArrayOutputStream frames = new ByteArrayOutputStream(1024);
                frame(next == null ? Message.ping() : next, frames);
                for (next = outbox.poll(); next != null && frames.size() < BATCH_BYTES; next = outbox.poll()) {
                    frame(next, frames);
                }
                if (next != null) {
                    frame(next, frames);
                }
                out.write(frames.toByteArray());
                out.flush();
            }
        } catch (IOException e) {
            if (!closing) {
                fail(named(e, endpoint, false));
            }
        } catch (Throwable e) {
            fail(e);
        }
    }

    /** Joins a new data connection to the session. */
    DataConnection attach(boolean plain) throws IOException {
        int stream = nextStream.getAndIncrement();
        byte[] nonce = new byte[Attach.NONCE_BYTES];
        random.nextBytes(nonce);
        SocketChannel channel = plain ? SocketChannel.open() : null;
        Socket socket = plain ? channel.socket() : new Socket();
        try {
            dial(socket, endpoint);
            socket.setSoTimeout(CONNECT_MILLIS);
            Socket secure = plain ? socket : tls.over(socket, endpoint.host, endpoint.port);
            byte[] key = welcome.key;
            secure.getOutputStream().write(Attach.request(stream, welcome.session, key, nonce));
            byte[] reply = new byte[Attach.REPLY_BYTES];
            new DataInputStream(secure.getInputStream()).readFully(reply);
            if (!MessageDigest.isEqual(reply, Attach.reply(key, nonce))) {
                throw new BankfullException(Failure.PROTOCOL, endpoint.host + " does not know the session");
            }
            // Silence on a data connection means nothing.
            socket.setSoTimeout(0);
            return plain
                ? new DataConnection(stream, channel, Attach.streamKey(key, nonce))
                : new DataConnection(stream, socket, secure);
        } catch (IOException e) {
            quietly(socket);
            throw named(e, endpoint, true);
        }
    }

    /** Ends the session because of a failure; the first one counts. */
    void fail(Throwable why) {
        if (failed.compareAndSet(null, why)) {
            quietly(raw);
        }
    }

    boolean isOver() {
        return closing || failed.get() != null;
    }

    /** Throws what failed, if anything did. */
    void check() throws IOException {
        Throwable why = failed.get();
        if (why != null) {
            throw asIo(why);
        }
    }

    private IOException asIo(Throwable why) {
        if (why instanceof WireException) {
            return broken((WireException) why);
        }
        if (why instanceof OutOfMemoryError) {
            return new BankfullException(Failure.OTHER, "no memory is left: give Java more (-Xmx), or copy less at once", why);
        }
        return why instanceof IOException
            ? (IOException) why
            : new BankfullException(Failure.OTHER, String.valueOf(why), why);
    }

    /** Writes what is posted, and closes. */
    @Override
    public void close() {
        closing = true;
        post(Message.ping());
        try {
            writer.join(1000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        quietly(raw);
        quietly(control);
    }

    static void quietly(Closeable closeable) {
        try {
            closeable.close();
        } catch (IOException e) {
            // Nothing depends on it.
        }
    }
}
