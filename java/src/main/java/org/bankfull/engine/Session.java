package org.bankfull.engine;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.SSLException;
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
 * <p>One thread reads messages. Any may post them: posting never waits, so that a sender's reader
 * never does. A receiver's threads wait for room before they cause more to be said: its sender
 * reads at all times (spec/wire.md, section 6).
 */
final class Session implements Closeable {
    static final String SOFTWARE = "bankfull-java 0.1.0";

    private static final String AGAIN = "try again, and a transfer goes on where it was";
    private static final byte[] MAGIC = "BKFLCTRL".getBytes(StandardCharsets.US_ASCII);
    private static final long PING_MILLIS_MOST = 10_000;
    /** More often would be a load of its own, whatever time-out a server names. */
    private static final long PING_MILLIS_LEAST = 100;
    /** Some hundred messages of a receiver, and little beside the heap. */
    private static final long WAITING_BYTES_MOST = 256 << 10;
    /** What a message takes beside its bytes, about. */
    private static final int MESSAGE_BYTES = 64;
    /** What waits is written together up to about a TLS record. */
    private static final int BATCH_BYTES = 16 << 10;

    private final Endpoint endpoint;
    private final Tls tls;
    private final SSLSocket control;
    /** Below it: closing the other one would wait for whoever writes. */
    private final Socket raw;
    private final DataInputStream in;
    private final OutputStream out;
    /** Frames: a message takes several times as much before it is written. */
    private final BlockingQueue<byte[]> outbox = new LinkedBlockingQueue<>();
    private final AtomicLong waiting = new AtomicLong();
    /** Notified as the outbox empties. */
    private final Object room = new Object();
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
        Socket socket = dial(endpoint, false, timeoutMillis);
        try {
            socket.setSoTimeout(asInt(timeoutMillis));
            SSLSocket control = handshake(tls, socket, endpoint);
            Session session = new Session(endpoint, tls, socket, control, timeoutMillis);
            session.greet(token);
            return session;
        } catch (IOException e) {
            quietly(socket);
            throw named(e, endpoint);
        }
    }

    private static Socket dial(Endpoint endpoint, boolean channeled, long timeoutMillis)
        throws IOException {
        String place = endpoint.place();
        try {
            return Dial.to(endpoint, channeled, timeoutMillis);
        } catch (BankfullException e) {
            throw e;
        } catch (SocketTimeoutException e) {
            throw new BankfullException(Failure.TIMED_OUT,
                "nothing answers at " + place + ": check the address and the firewall", e);
        } catch (IOException e) {
            String said = words(e);
            String hint = said.contains("refused")
                ? " (is bankfull serve running there, and at this port?)"
                : " (check the address, and the network of this machine)";
            throw new BankfullException(
                Failure.OTHER, "cannot connect to " + place + ": " + said + hint, e);
        }
    }

    /** The first handshake, which tells what is there. */
    private static SSLSocket handshake(Tls tls, Socket socket, Endpoint endpoint)
        throws IOException {
        String place = endpoint.place();
        try {
            return tls.over(socket, endpoint.host, endpoint.port);
        } catch (BankfullException e) {
            throw e;
        } catch (SocketTimeoutException e) {
            throw new BankfullException(Failure.TIMED_OUT,
                place + " accepted the connection but did not answer: is it a bankfull server?", e);
        } catch (IOException e) {
            throw new BankfullException(Failure.PROTOCOL, unlikeOurs(place, e), e);
        }
    }

    /** What an error in a first handshake says of the other side. */
    private static String unlikeOurs(String place, IOException e) {
        boolean ended = !(e instanceof SSLException);
        for (Throwable cause = e; cause != null; cause = cause.getCause()) {
            ended |= cause instanceof EOFException || cause instanceof SocketException;
        }
        if (ended) {
            return place + " closed the connection during the handshake: is it a bankfull server?";
        }
        // So the JDK, and Android, name a first record that is none of TLS.
        String said = words(e);
        if (said.contains("unrecognized SSL message") || said.contains("parse TLS packet")) {
            return place + " does not speak bankfull (its answer is no TLS): check host and port";
        }
        return "the TLS handshake with " + place + " failed (" + said
            + "): is it a bankfull server?";
    }

    /** What an error says, within a sentence; some say it twice. */
    private static String words(IOException e) {
        String said = e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
        int twice = said.indexOf(" (");
        return Failure.lowered(twice < 0 ? said : said.substring(0, twice));
    }

    private static int asInt(long millis) {
        return (int) Math.min(millis, Integer.MAX_VALUE);
    }

    private static IOException named(IOException e, Endpoint endpoint) {
        if (e instanceof BankfullException) {
            return e;
        }
        String place = endpoint.place();
        if (e instanceof SocketTimeoutException) {
            return new BankfullException(
                Failure.TIMED_OUT, place + " does not answer: " + AGAIN, e);
        }
        if (e instanceof EOFException) {
            return new BankfullException(
                Failure.OTHER, place + " closed the connection: " + AGAIN, e);
        }
        return new BankfullException(
            Failure.OTHER, "the connection to " + place + " broke: " + words(e) + ": " + AGAIN, e);
    }

    private void greet(byte[] token) throws IOException {
        out.write(MAGIC);
        send(Message.hello(SOFTWARE, token));
        byte[] magic = new byte[MAGIC.length];
        in.readFully(magic);
        if (!Arrays.equals(magic, MAGIC)) {
            throw new BankfullException(Failure.PROTOCOL,
                endpoint.place() + " speaks something else than bankfull: check host and port");
        }
        Message answer;
        try {
            answer = readFrame(Limits.HELLO_FRAME_BYTES);
        } catch (BankfullException e) {
            throw e.code() == Failure.TOKEN ? wrongToken(token, e) : e;
        }
        try {
            welcome = answer.welcome();
        } catch (WireException e) {
            throw broken(e);
        }
    }

    /** The daemon's own words speak of the flags of another program. */
    private BankfullException wrongToken(byte[] token, BankfullException e) {
        String why = token == null
            ? " asks for a token: ask whoever runs it, and give it"
            : " says that the token is wrong: ask whoever runs it for the right one";
        return new BankfullException(Failure.TOKEN, endpoint.place() + why,
            BankfullException.Setting.TOKEN, e);
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
        byte[] frame = frame(message);
        waiting.addAndGet(frame.length + MESSAGE_BYTES);
        outbox.add(frame);
    }

    /** What waits to be written, in bytes, about. */
    long waiting() {
        return waiting.get();
    }

    /**
     * Waits while much is queued, for a receiver before it reads on; not longer than the time-out
     * while nothing of it is taken.
     */
    void awaitRoom() throws IOException {
        synchronized (room) {
            long before = waiting.get();
            long since = System.nanoTime();
            while (waiting.get() > WAITING_BYTES_MOST && !isOver()) {
                try {
                    room.wait(100);
                } catch (InterruptedException e) {
                    throw new IOException("interrupted", e);
                }
                if (waiting.get() < before) {
                    since = System.nanoTime();
                }
                before = waiting.get();
                if ((System.nanoTime() - since) / 1_000_000 > timeoutMillis) {
                    throw new BankfullException(Failure.TIMED_OUT, endpoint.place()
                        + " has taken no message for " + shown(timeoutMillis) + ": " + AGAIN);
                }
            }
        }
        check();
    }

    private static String shown(long millis) {
        return millis % 1000 == 0 ? millis / 1000 + " s" : millis + " ms";
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
            throw first(new BankfullException(Failure.TIMED_OUT, endpoint.place()
                + " has said nothing for " + shown(timeoutMillis) + ": " + AGAIN, e));
        } catch (IOException e) {
            throw first(named(e, endpoint));
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
                Failure failure = message.failure();
                throw new BankfullException(
                    failure.code, "the far side says: " + failure.shown());
            }
            return message;
        } catch (WireException e) {
            throw broken(e);
        }
    }

    BankfullException broken(WireException e) {
        return new BankfullException(
            Failure.PROTOCOL, endpoint.place() + " broke the protocol: " + e.getMessage(), e);
    }

    private void send(Message message) throws IOException {
        out.write(frame(message));
        out.flush();
    }

    private static byte[] frame(Message message) {
        byte[] body = message.write();
        return ByteBuffer.allocate(4 + body.length).putInt(body.length).put(body).array();
    }

    /** How long this side may be silent, given what the server says of its own time-out. */
    static long pingMillis(long theirs, long ours) {
        long shorter = theirs > 0 ? Math.min(theirs, ours) : ours;
        return Math.max(PING_MILLIS_LEAST, Math.min(shorter / 4, PING_MILLIS_MOST));
    }

    private void write() {
        long every = pingMillis(welcome.timeoutMillis, timeoutMillis);
        byte[] ping = frame(Message.ping());
        try {
            while (!closing || !outbox.isEmpty()) {
                byte[] next = outbox.poll(closing ? 0 : every, TimeUnit.MILLISECONDS);
                ByteArrayOutputStream frames = new ByteArrayOutputStream(1024);
                byte[] first = next == null ? ping : next;
                frames.write(first, 0, first.length);
                long taken = next == null ? 0 : next.length + MESSAGE_BYTES;
                while (frames.size() < BATCH_BYTES && (next = outbox.poll()) != null) {
                    frames.write(next, 0, next.length);
                    taken += next.length + MESSAGE_BYTES;
                }
                out.write(frames.toByteArray());
                out.flush();
                waiting.addAndGet(-taken);
                synchronized (room) {
                    room.notifyAll();
                }
            }
        } catch (IOException e) {
            if (!closing) {
                fail(named(e, endpoint));
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
        Socket socket = dial(endpoint, plain, timeoutMillis);
        try {
            socket.setSoTimeout(asInt(timeoutMillis));
            Socket secure = plain ? socket : tls.over(socket, endpoint.host, endpoint.port);
            byte[] key = welcome.key;
            secure.getOutputStream().write(Attach.request(stream, welcome.session, key, nonce));
            byte[] reply = new byte[Attach.REPLY_BYTES];
            new DataInputStream(secure.getInputStream()).readFully(reply);
            if (!MessageDigest.isEqual(reply, Attach.reply(key, nonce))) {
                throw new BankfullException(Failure.PROTOCOL,
                    endpoint.place() + " does not know the session");
            }
            // Silence on a data connection means nothing: who sends may have nothing to send.
            socket.setSoTimeout(0);
            return plain
                ? new DataConnection(stream, socket.getChannel(), Attach.streamKey(key, nonce))
                : new DataConnection(stream, socket, secure);
        } catch (IOException e) {
            quietly(socket);
            throw named(e, endpoint);
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

    IOException asIo(Throwable why) {
        if (why instanceof WireException) {
            return broken((WireException) why);
        }
        if (why instanceof OutOfMemoryError) {
            return new BankfullException(Failure.OTHER,
                "no memory is left: give Java more (-Xmx), or use fewer connections", why);
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
