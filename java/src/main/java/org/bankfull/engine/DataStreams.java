package org.bankfull.engine;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.bankfull.BankfullException;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Message;

/** Data streams of a session, one thread each; reconnects lost streams. */
final class DataStreams {
    private static final long MIN_RECONNECT_DELAY_MILLIS = 100;
    private static final long MAX_RECONNECT_DELAY_MILLIS = 5000;
    /** Lifetime after which a stream counts as established and resets the backoff. */
    private static final long ESTABLISHED_MILLIS = 1000;
    /** Checks for stalled streams per timeout. */
    private static final int STALL_CHECKS_PER_TIMEOUT = 8;
    private static final long MIN_CHECK_INTERVAL_MILLIS = 50;
    /** Interval at which waiting threads look at the session. */
    private static final long STATE_CHECK_MILLIS = 100;

    /** Task of a data stream. */
    interface Task {
        /** Runs to the orderly end; all received data has been processed when this throws. */
        void run(DataStream stream) throws IOException;

        /** Returns the message that reports the loss of a stream to the peer. */
        Message lossMessage(int number);
    }

    private final Session session;
    private final boolean unencrypted;
    private final Task task;
    private final Map<Integer, DataStream> streams = new HashMap<>();
    /** Numbers of streams abandoned by either side, never used again. */
    private final Set<Integer> abandonedNumbers = new HashSet<>();
    private int liveThreads;
    private boolean ending;

    DataStreams(Session session, boolean unencrypted, Task task) {
        this.session = session;
        this.unencrypted = unencrypted;
        this.task = task;
    }

    void start(int count) {
        liveThreads = count;
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(this::runThread, "bankfull-data-" + i);
            thread.setDaemon(true);
            thread.start();
        }
        Thread watcher = new Thread(this::closeStalledStreams, "bankfull-stall-watch");
        watcher.setDaemon(true);
        watcher.start();
    }

    /**
     * Closes streams whose peer accepts no data for the timeout.
     *
     * <p>A blocking write has no timeout of its own. The lost data is sent again over another
     * stream.
     */
    private void closeStalledStreams() {
        long interval =
            Math.max(MIN_CHECK_INTERVAL_MILLIS, session.timeoutMillis() / STALL_CHECKS_PER_TIMEOUT);
        while (!session.isOver()) {
            List<DataStream> all;
            synchronized (this) {
                if (liveThreads == 0) {
                    return;
                }
                all = new ArrayList<>(streams.values());
            }
            for (DataStream stream : all) {
                if (stream.isStalled(session.timeoutMillis())) {
                    stream.close();
                }
            }
            waitFor(interval);
        }
    }

    private synchronized void waitFor(long millis) {
        try {
            wait(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void runThread() {
        try {
            reconnectUntilEnd();
        } catch (Throwable e) {
            // Includes OutOfMemoryError: other threads must not wait forever.
            session.fail(e);
        } finally {
            synchronized (this) {
                liveThreads--;
                notifyAll();
            }
        }
    }

    private void reconnectUntilEnd() {
        long delay = MIN_RECONNECT_DELAY_MILLIS;
        long lastEstablished = System.nanoTime();
        while (!isEnding()) {
            long start = System.nanoTime();
            IOException error;
            try (DataStream stream = session.attachStream(unencrypted)) {
                error = runTask(stream);
            } catch (IOException e) {
                error = e;
            }
            if (error == null || isEnding()) {
                return;
            }
            if (millisSince(start) > ESTABLISHED_MILLIS && !(error instanceof BankfullException)) {
                delay = MIN_RECONNECT_DELAY_MILLIS;
                lastEstablished = System.nanoTime();
            }
            boolean isTransient = !(error instanceof BankfullException)
                || ((BankfullException) error).code() != Failure.PROTOCOL;
            if (!isTransient || millisSince(lastEstablished) > session.timeoutMillis()) {
                session.fail(error);
                return;
            }
            pause(delay);
            delay = Math.min(delay * 2, MAX_RECONNECT_DELAY_MILLIS);
        }
    }

    /** Runs the task of a stream; returns the error, or null after an orderly end. */
    private IOException runTask(DataStream stream) {
        try {
            register(stream);
            task.run(stream);
            unregister(stream.number);
            return null;
        } catch (IOException e) {
            unregister(stream.number);
            if (!isEnding()) {
                session.post(task.lossMessage(stream.number));
            }
            return e;
        }
    }

    private static long millisSince(long nanos) {
        return (System.nanoTime() - nanos) / 1_000_000;
    }

    private synchronized void register(DataStream stream) throws IOException {
        if (ending || abandonedNumbers.contains(stream.number)) {
            throw new IOException("the stream was abandoned before it was connected");
        }
        streams.put(stream.number, stream);
    }

    private synchronized boolean isEnding() {
        return ending || session.isOver();
    }

    private synchronized void pause(long millis) {
        if (!ending) {
            waitFor(millis);
        }
    }

    /** Handles StreamLost: closes the stream, which is then reported as ended. */
    void onStreamLost(int number) {
        DataStream stream;
        synchronized (this) {
            abandonedNumbers.add(number);
            stream = streams.get(number);
        }
        if (stream == null) {
            session.post(Message.stream(Message.STREAM_ENDED, number));
        } else {
            stream.close();
        }
    }

    /** Handles StreamEnded: the peer processes no more data of the stream. */
    void onStreamEnded(int number) {
        DataStream stream;
        synchronized (this) {
            abandonedNumbers.add(number);
            stream = streams.get(number);
        }
        if (stream != null) {
            stream.close();
        }
    }

    private synchronized void unregister(int number) {
        streams.remove(number);
    }

    /** Stops reconnecting and waits until all streams have ended. */
    void awaitEnd() throws IOException {
        // A stream that is being attached ends by its own timeout, of the same length.
        long grace = session.timeoutMillis() + MAX_RECONNECT_DELAY_MILLIS;
        long deadline = System.nanoTime() + grace * 1_000_000;
        synchronized (this) {
            ending = true;
            notifyAll();
            while (liveThreads > 0) {
                session.throwIfFailed();
                long left = (deadline - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    throw new BankfullException(
                        Failure.TIMED_OUT, "the data streams did not end: try again");
                }
                try {
                    // The end of the session does not notify.
                    wait(Math.min(left, STATE_CHECK_MILLIS));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw new BankfullException(Failure.CANCELLED, "interrupted", e);
                }
            }
        }
    }

    /** Closes all streams immediately. */
    void closeAll() {
        List<DataStream> remaining;
        synchronized (this) {
            ending = true;
            notifyAll();
            remaining = new ArrayList<>(streams.values());
        }
        remaining.forEach(DataStream::close);
    }
}
