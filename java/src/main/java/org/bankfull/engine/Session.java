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
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
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
 * Session with a daemon: control connection, outbox with pings, first failure, data streams.
 *
 * <p>One thread reads messages, and detects the end of the session even while the thread that
 * handles them is busy; any thread may post messages. Posting never blocks, so a sender always
 * reads. A receiver's threads wait for space in the outbox before they cause more messages
 * (spec/wire.md, section 6).
 */
final class Session implements Closeable, StopCheck {
    static final String SOFTWARE = "bankfull-java 0.1.0";

    private static final String RETRY_HINT =
        "try again, and the transfer continues where it stopped";
    private static final byte[] MAGIC = "BKFLCTRL".getBytes(StandardCharsets.US_ASCII);
    /** First and longest pause before a retry at a crowded daemon. */
    private static final long FIRST_BUSY_PAUSE_MILLIS = 200;
    private static final long MAX_BUSY_PAUSE_MILLIS = 2000;
    /**
     * Retries after a server without a known fingerprint has closed connections.
     *
     * <p>The server may be another program, or a crowded daemon. (chosen: about a second)
     */
    private static final int MAX_DROPPED_RETRIES = 3;
    private static final long MAX_PING_INTERVAL_MILLIS = 10_000;
    /** Lower limit of the ping interval, whatever the server's timeout. */
    private static final long MIN_PING_INTERVAL_MILLIS = 100;
    /** Longest wait for the daemon's close after Done (chosen: many round trips). */
    private static final long MAX_CLOSE_WAIT_MILLIS = 5000;
    /** Limit of queued messages (chosen: hundreds of a receiver's, small beside the heap). */
    private static final long MAX_QUEUED_BYTES = 256 << 10;
    /** Estimated memory overhead of a queued message. */
    private static final int MESSAGE_OVERHEAD_BYTES = 64;
    /** Size up to which queued messages are written together: about a TLS record. */
    private static final int WRITE_BATCH_BYTES = 16 << 10;

    private final Endpoint endpoint;
    private final Tls tls;
    private final SSLSocket control;
    /** Socket below TLS; closing the TLS socket would block on a writer. */
    private final Socket raw;
    private final DataInputStream in;
    private final OutputStream out;
    /** Queued frames; encoded, since a message object takes several times the memory. */
    private final BlockingQueue<byte[]> outbox = new LinkedBlockingQueue<>();
    private final Inbox inbox = new Inbox();
    private final AtomicLong queuedBytes = new AtomicLong();
    /** Notified when the outbox shrinks. */
    private final Object queueShrunk = new Object();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final AtomicInteger nextStream = new AtomicInteger();
    /** Deadlines of the data streams that are being attached. */
    private final Set<SetupDeadline> attaching = ConcurrentHashMap.newKeySet();
    private final long timeoutMillis;
    private final SecureRandom random = new SecureRandom();
    private final Thread writer = new Thread(this::writeQueued, "bankfull-control");
    private final Thread reader = new Thread(this::readAll, "bankfull-receive");
    private final SetupDeadline deadline;
    private Message.Welcome welcome;
    private volatile boolean isClosing;
    /** Done was sent or received: the peer may close the connection. */
    private volatile boolean isDone;

    private Session(Endpoint endpoint, Tls tls, Socket raw, SSLSocket control, long timeoutMillis,
        SetupDeadline deadline) throws IOException {
        this.raw = raw;
        this.endpoint = endpoint;
        this.tls = tls;
        this.control = control;
        this.timeoutMillis = timeoutMillis;
        this.deadline = deadline;
        this.in = new DataInputStream(new java.io.BufferedInputStream(control.getInputStream()));
        this.out = control.getOutputStream();
        writer.setDaemon(true);
        reader.setDaemon(true);
    }

    /**
     * Connects and performs the handshake, within the timeout.
     *
     * <p>Tries again if the daemon is busy, or closes the connection before its answer: a crowded
     * daemon does so with clients that it does not know yet.
     */
    static Session connect(Endpoint endpoint, Tls tls, byte[] token, long timeoutMillis)
        throws IOException {
        SetupDeadline deadline = new SetupDeadline(timeoutMillis);
        try {
            return connectWithRetry(endpoint, tls, token, timeoutMillis, deadline);
        } catch (IOException | RuntimeException | Error e) {
            deadline.close();
            throw e;
        }
    }

    private static Session connectWithRetry(Endpoint endpoint, Tls tls, byte[] token,
        long timeoutMillis, SetupDeadline deadline) throws IOException {
        long pause = FIRST_BUSY_PAUSE_MILLIS;
        int droppedLeft = tls.hasFingerprint() ? Integer.MAX_VALUE : MAX_DROPPED_RETRIES;
        IOException earlier = null;
        while (true) {
            Socket socket = null;
            try {
                socket = connectSocket(endpoint, false, deadline);
                return greet(endpoint, tls, socket, token, timeoutMillis, deadline);
            } catch (IOException e) {
                boolean isDropped = socket != null && isDropped(e);
                boolean isTemporary =
                    hasCode(e, Failure.BUSY) || isDropped && droppedLeft-- > 0;
                if (!isTemporary || deadline.hasPassed()) {
                    // The earlier error is more specific than the timeout of a retry.
                    throw earlier != null && hasCode(e, Failure.TIMED_OUT) ? earlier : e;
                }
                earlier = e;
            }
            pauseAtRandom(Math.min(pause, deadline.leftMillis()));
            pause = Math.min(pause * 2, MAX_BUSY_PAUSE_MILLIS);
        }
    }

    private static boolean hasCode(IOException e, int code) {
        return e instanceof BankfullException && ((BankfullException) e).code() == code;
    }

    /** True for a connection that its peer has closed. */
    private static boolean isDropped(IOException e) {
        for (Throwable cause = e; cause != null; cause = cause.getCause()) {
            if (cause instanceof SocketTimeoutException) {
                return false;
            }
            if (cause instanceof EOFException || cause instanceof SocketException) {
                return true;
            }
        }
        return false;
    }

    /** Waits for half to the whole of a time: clients must not return together. */
    private static void pauseAtRandom(long millis) throws BankfullException {
        try {
            Thread.sleep(millis / 2 + (long) (Math.random() * millis / 2));
        } catch (InterruptedException e) {
            throw new BankfullException(Failure.CANCELLED, "interrupted", e);
        }
    }

    /** Performs both handshakes over a connection; an error closes it. */
    private static Session greet(Endpoint endpoint, Tls tls, Socket socket, byte[] token,
        long timeoutMillis, SetupDeadline deadline) throws IOException {
        try {
            deadline.watch(socket);
            SSLSocket control = handshake(tls, socket, endpoint, deadline);
            Session session = new Session(endpoint, tls, socket, control, timeoutMillis, deadline);
            session.exchangeHello(token);
            return session;
        } catch (IOException e) {
            closeQuietly(socket);
            throw describe(deadline.orTimeout(e), endpoint);
        }
    }

    private static Socket connectSocket(
        Endpoint endpoint, boolean withChannel, SetupDeadline deadline) throws IOException {
        String peer = endpoint.hostAndPort();
        try {
            return Connector.connect(endpoint, withChannel, deadline);
        } catch (BankfullException e) {
            throw e;
        } catch (IOException e) {
            if (deadline.orTimeout(e) instanceof SocketTimeoutException) {
                throw new BankfullException(Failure.TIMED_OUT,
                    "no response from " + peer + ": check the address and the firewall", e);
            }
            String reason = reason(e);
            String hint = reason.contains("refused")
                ? " (is bankfull serve running there, on this port?)"
                : " (check the address and the network of this host)";
            throw new BankfullException(
                Failure.OTHER, "cannot connect to " + peer + ": " + reason + hint, e);
        }
    }

    /** Performs the TLS handshake of the control connection. */
    private static SSLSocket handshake(
        Tls tls, Socket socket, Endpoint endpoint, SetupDeadline deadline) throws IOException {
        String peer = endpoint.hostAndPort();
        try {
            return tls.handshake(socket, endpoint.host, endpoint.port);
        } catch (BankfullException e) {
            throw e;
        } catch (IOException e) {
            if (deadline.orTimeout(e) instanceof SocketTimeoutException) {
                throw new BankfullException(Failure.TIMED_OUT, peer
                    + " accepted the connection but did not answer: is it a bankfull server?",
                    deadline.orTimeout(e));
            }
            throw new BankfullException(Failure.PROTOCOL, handshakeError(peer, e), e);
        }
    }

    /** Describes the peer from an error of the first handshake. */
    private static String handshakeError(String peer, IOException e) {
        if (!(e instanceof SSLException) || isDropped(e)) {
            return peer + " closed the connection during the handshake: is it a bankfull server?";
        }
        // Messages of the JDK and of Android for a first record that is not TLS.
        String reason = reason(e);
        if (reason.contains("unrecognized SSL message") || reason.contains("parse TLS packet")) {
            return peer + " does not speak bankfull (its answer is not TLS): check host and port";
        }
        return "the TLS handshake with " + peer + " failed (" + reason
            + "): is it a bankfull server?";
    }

    /** Returns the reason of an error, without the repetition in parentheses. */
    private static String reason(IOException e) {
        String reason = e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
        int repetition = reason.indexOf(" (");
        return Failure.lowercaseInitial(repetition < 0 ? reason : reason.substring(0, repetition));
    }

    private static int asInt(long millis) {
        return (int) Math.min(millis, Integer.MAX_VALUE);
    }

    /** Returns an error with the peer and a hint. */
    private static IOException describe(IOException e, Endpoint endpoint) {
        if (e instanceof BankfullException) {
            return e;
        }
        String peer = endpoint.hostAndPort();
        if (e instanceof SocketTimeoutException) {
            return new BankfullException(
                Failure.TIMED_OUT, "no response from " + peer + ": " + RETRY_HINT, e);
        }
        if (e instanceof EOFException) {
            return new BankfullException(
                Failure.OTHER, peer + " closed the connection: " + RETRY_HINT, e);
        }
        return new BankfullException(
            Failure.OTHER,
                "the connection to " + peer + " failed: " + reason(e) + ": " + RETRY_HINT, e);
    }

    private void exchangeHello(byte[] token) throws IOException {
        out.write(MAGIC);
        send(Message.hello(SOFTWARE, token));
        byte[] magic = new byte[MAGIC.length];
        in.readFully(magic);
        if (!Arrays.equals(magic, MAGIC)) {
            throw new BankfullException(Failure.PROTOCOL,
                endpoint.hostAndPort() + " does not speak bankfull: check host and port");
        }
        Message answer;
        try {
            answer = readFrame(Limits.MAX_HELLO_FRAME_BYTES);
        } catch (BankfullException e) {
            throw e.code() == Failure.BAD_TOKEN ? tokenError(token, e) : e;
        }
        try {
            welcome = answer.welcome();
        } catch (WireException e) {
            throw protocolError(e);
        }
    }

    /** Replaces the daemon's message, which names flags of another program. */
    private BankfullException tokenError(byte[] token, BankfullException e) {
        String error = token == null
            ? " requires a token: ask the administrator of the server for it"
            : " rejects the token: ask the administrator of the server for the right one";
        return new BankfullException(Failure.BAD_TOKEN, endpoint.hostAndPort() + error,
            BankfullException.Setting.TOKEN, e);
    }

    /** Sends Open and returns Opened; starts reading and writing of messages. */
    Message open(Message open) throws IOException {
        Message answer;
        try {
            send(open);
            answer = readPastPings();
            if (!deadline.end()) {
                throw new SocketTimeoutException("too late");
            }
            raw.setSoTimeout(asInt(timeoutMillis));
        } catch (IOException e) {
            throw firstFailure(describe(deadline.orTimeout(e), endpoint));
        }
        if (answer.number != Message.OPENED) {
            throw protocolError(
                new WireException("message " + answer.number + " in answer to Open"));
        }
        writer.start();
        reader.start();
        return answer;
    }

    Message.Welcome welcome() {
        return welcome;
    }

    long timeoutMillis() {
        return timeoutMillis;
    }

    /** Queues a message; never blocks. */
    void post(Message message) {
        byte[] frame = frame(message);
        queuedBytes.addAndGet(frame.length + MESSAGE_OVERHEAD_BYTES);
        outbox.add(frame);
    }

    /** Returns the estimated size of the outbox in bytes. */
    long queuedBytes() {
        return queuedBytes.get();
    }

    /**
     * Waits until the outbox is below its limit.
     *
     * @throws BankfullException if the peer accepts no message for the timeout
     */
    void awaitQueueSpace() throws IOException {
        synchronized (queueShrunk) {
            long before = queuedBytes.get();
            long since = System.nanoTime();
            while (queuedBytes.get() > MAX_QUEUED_BYTES && !isOver()) {
                try {
                    queueShrunk.wait(100);
                } catch (InterruptedException e) {
                    throw new IOException("interrupted", e);
                }
                if (queuedBytes.get() < before) {
                    since = System.nanoTime();
                }
                before = queuedBytes.get();
                if ((System.nanoTime() - since) / 1_000_000 > timeoutMillis) {
                    throw new BankfullException(Failure.TIMED_OUT, endpoint.hostAndPort()
                        + " has accepted no message for " + formatMillis(timeoutMillis) + ": "
                        + RETRY_HINT);
                }
            }
        }
        throwIfFailed();
    }

    private static String formatMillis(long millis) {
        return millis % 1000 == 0 ? millis / 1000 + " s" : millis + " ms";
    }

    /** Receives the next message other than Ping; throws a received Error. */
    Message receive() throws IOException {
        try {
            while (true) {
                byte[] body = inbox.take();
                if (body == null) {
                    throwIfFailed();
                    throw describe(new EOFException("the session has ended"), endpoint);
                }
                Message message = decode(body);
                if (message.number != Message.PING) {
                    return message;
                }
            }
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        }
    }

    /** Reads messages until the connection ends. */
    private void readAll() {
        try {
            while (true) {
                byte[] body = readBody(Limits.MAX_CONTROL_FRAME_BYTES);
                if (Message.hasNumber(body, Message.ERROR)) {
                    // Handled before the messages that still wait: the session has ended.
                    decode(body);
                }
                if (!Message.hasNumber(body, Message.PING)) {
                    inbox.add(body);
                }
                if (Message.hasNumber(body, Message.DONE)) {
                    // Later messages are read, but not handled.
                    isDone = true;
                    inbox.end();
                }
            }
        } catch (SocketTimeoutException e) {
            endReading(new BankfullException(Failure.TIMED_OUT, "no message from "
                + endpoint.hostAndPort() + " for " + formatMillis(timeoutMillis) + ": "
                + RETRY_HINT, e));
        } catch (IOException e) {
            endReading(describe(e, endpoint));
        } catch (Throwable e) {
            // Includes OutOfMemoryError: other threads must not wait forever.
            endReading(e);
        }
    }

    /** Records the end of the connection; what was received before is still handled. */
    private void endReading(Throwable error) {
        if (!isDone && !isClosing && failure.compareAndSet(null, error)) {
            closeQuietly(raw);
            attaching.forEach(SetupDeadline::cancel);
        }
        inbox.end();
    }

    private Message readPastPings() throws IOException {
        while (true) {
            Message message = readFrame(Limits.MAX_CONTROL_FRAME_BYTES);
            if (message.number != Message.PING) {
                return message;
            }
        }
    }

    /**
     * Sends Done, and waits until the peer has received it and closes the connection.
     *
     * <p>The wait is limited: the copy is complete either way.
     */
    void finish(Message done) {
        isDone = true;
        inbox.discard();
        post(done);
        try {
            reader.join(Math.min(timeoutMillis, MAX_CLOSE_WAIT_MILLIS));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Returns the first failure of the session, the cause of later ones. */
    private IOException firstFailure(IOException later) {
        Throwable earlier = failure.get();
        return earlier == null ? later : toIoException(earlier);
    }

    private Message readFrame(int maxBytes) throws IOException {
        return decode(readBody(maxBytes));
    }

    private byte[] readBody(int maxBytes) throws IOException {
        int length = in.readInt();
        if (length < 0 || length > maxBytes) {
            throw protocolError(
                new WireException("a frame of " + (length & 0xFFFFFFFFL) + " bytes"));
        }
        byte[] body = new byte[length];
        in.readFully(body);
        return body;
    }

    /** Decodes a message; throws an Error. */
    private Message decode(byte[] body) throws IOException {
        try {
            Message message = Message.read(body);
            if (message.number == Message.ERROR) {
                Failure failure = message.failure();
                throw new BankfullException(
                    failure.code, "the peer reported: " + failure.printable());
            }
            return message;
        } catch (WireException e) {
            throw protocolError(e);
        }
    }

    BankfullException protocolError(WireException e) {
        return new BankfullException(
            Failure.PROTOCOL,
            endpoint.hostAndPort() + " violated the protocol: " + e.getMessage(), e);
    }

    private void send(Message message) throws IOException {
        out.write(frame(message));
        out.flush();
    }

    private static byte[] frame(Message message) {
        byte[] body = message.write();
        return ByteBuffer.allocate(4 + body.length).putInt(body.length).put(body).array();
    }

    /** Computes the ping interval from the timeouts of the server and this side; 0: unknown. */
    static long pingIntervalMillis(long serverTimeout, long ownTimeout) {
        long shorter = serverTimeout > 0 ? Math.min(serverTimeout, ownTimeout) : ownTimeout;
        return Math.max(MIN_PING_INTERVAL_MILLIS, Math.min(shorter / 4, MAX_PING_INTERVAL_MILLIS));
    }

    private void writeQueued() {
        long interval = pingIntervalMillis(welcome.timeoutMillis, timeoutMillis);
        byte[] ping = frame(Message.ping());
        try {
            while (!isClosing || !outbox.isEmpty()) {
                byte[] next = outbox.poll(isClosing ? 0 : interval, TimeUnit.MILLISECONDS);
                ByteArrayOutputStream frames = new ByteArrayOutputStream(1024);
                byte[] first = next == null ? ping : next;
                frames.write(first, 0, first.length);
                long written = next == null ? 0 : next.length + MESSAGE_OVERHEAD_BYTES;
                while (frames.size() < WRITE_BATCH_BYTES && (next = outbox.poll()) != null) {
                    frames.write(next, 0, next.length);
                    written += next.length + MESSAGE_OVERHEAD_BYTES;
                }
                out.write(frames.toByteArray());
                out.flush();
                queuedBytes.addAndGet(-written);
                synchronized (queueShrunk) {
                    queueShrunk.notifyAll();
                }
            }
        } catch (IOException e) {
            if (!isClosing) {
                fail(describe(e, endpoint));
            }
        } catch (Throwable e) {
            fail(e);
        }
    }

    /**
     * Connects a data stream and attaches it to the session.
     *
     * <p>All of it has the timeout together, and ends with the session.
     */
    DataStream attachStream(boolean unencrypted) throws IOException {
        try (SetupDeadline attach = new SetupDeadline(timeoutMillis)) {
            attaching.add(attach);
            if (isOver()) {
                attach.cancel();
            }
            try {
                return attachStream(unencrypted, attach);
            } finally {
                attaching.remove(attach);
            }
        }
    }

    private DataStream attachStream(boolean unencrypted, SetupDeadline attach)
        throws IOException {
        int number = nextStream.getAndIncrement();
        byte[] nonce = new byte[Attach.NONCE_BYTES];
        random.nextBytes(nonce);
        Socket socket = connectSocket(endpoint, unencrypted, attach);
        try {
            Socket secure =
                unencrypted ? socket : tls.handshake(socket, endpoint.host, endpoint.port);
            byte[] key = welcome.key;
            secure.getOutputStream().write(Attach.request(number, welcome.session, key, nonce));
            byte[] reply = new byte[Attach.REPLY_BYTES];
            new DataInputStream(secure.getInputStream()).readFully(reply);
            if (!MessageDigest.isEqual(reply, Attach.reply(key, nonce))) {
                throw new BankfullException(Failure.PROTOCOL,
                    endpoint.hostAndPort() + " does not know the session: try again");
            }
            // From here on without a timeout: an idle data stream is normal.
            if (!attach.end()) {
                throw new SocketTimeoutException("too late");
            }
            return unencrypted
                ? new DataStream(number, socket.getChannel(), Attach.deriveStreamKey(key, nonce))
                : new DataStream(number, socket, secure);
        } catch (IOException e) {
            closeQuietly(socket);
            throw describe(attach.orTimeout(e), endpoint);
        }
    }

    /** Ends the session with its first failure, unless it is closing. */
    void fail(Throwable error) {
        if (!isClosing && failure.compareAndSet(null, error)) {
            closeQuietly(raw);
            inbox.discard();
            attaching.forEach(SetupDeadline::cancel);
        }
    }

    boolean isOver() {
        return isClosing || failure.get() != null;
    }

    /** Throws the recorded failure, if any. */
    void throwIfFailed() throws IOException {
        Throwable error = failure.get();
        if (error != null) {
            throw toIoException(error);
        }
    }

    /** Throws if the session has ended, by a failure or not. */
    @Override
    public void throwIfOver() throws IOException {
        throwIfFailed();
        if (isClosing) {
            throw new IOException("the session has ended");
        }
    }

    IOException toIoException(Throwable error) {
        if (error instanceof WireException) {
            return protocolError((WireException) error);
        }
        if (error instanceof OutOfMemoryError) {
            return new BankfullException(Failure.OTHER,
                "out of memory: give Java more (-Xmx), or use fewer streams", error);
        }
        return error instanceof IOException
            ? (IOException) error
            : new BankfullException(Failure.OTHER, String.valueOf(error), error);
    }

    /** Writes the queued messages and closes the connection. */
    @Override
    public void close() {
        deadline.close();
        isClosing = true;
        inbox.discard();
        attaching.forEach(SetupDeadline::cancel);
        post(Message.ping());
        try {
            writer.join(1000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        closeQuietly(raw);
        closeQuietly(control);
    }

    static void closeQuietly(Closeable closeable) {
        try {
            closeable.close();
        } catch (IOException e) {
            // Ignored: the resource is not used afterwards.
        }
    }
}
