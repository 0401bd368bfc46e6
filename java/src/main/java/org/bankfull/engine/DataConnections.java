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

/** Keeps a session's data connections, each on a thread of its own, and makes lost ones again. */
final class DataConnections {
    private static final long DELAY_LEAST_MILLIS = 100;
    private static final long DELAY_MOST_MILLIS = 5000;
    /** One that has held for so long was no failed attempt. */
    private static final long HEALTHY_MILLIS = 1000;
    /**
     * How often a time-out is looked whether a connection is stuck, and not more often than that.
     */
    private static final int LOOKS = 8;
    private static final long LOOK_MILLIS_LEAST = 50;

    /** What is done with a connection. */
    interface Work {
        /**
         * Until it ends in order. When this throws, all that came of the connection has been said.
         */
        void on(DataConnection connection) throws IOException;

        /** It broke: what the other side is to hear. */
        Message lost(int stream);
    }

    private final Session session;
    private final boolean plain;
    private final Work work;
    private final Map<Integer, DataConnection> open = new HashMap<>();
    /** Numbers that one side gave up: such a connection is never used. */
    private final Set<Integer> ended = new HashSet<>();
    private int alive;
    private boolean ending;

    DataConnections(Session session, boolean plain, Work work) {
        this.session = session;
        this.plain = plain;
        this.work = work;
    }

    void start(int count) {
        alive = count;
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(this::keep, "bankfull-data-" + i);
            thread.setDaemon(true);
            thread.start();
        }
        Thread watch = new Thread(this::watch, "bankfull-watch");
        watch.setDaemon(true);
        watch.start();
    }

    /**
     * Closes connections whose other side takes nothing for the time-out: whoever writes there
     * waits without one, and what it wrote goes another way then.
     */
    private void watch() {
        long look = Math.max(LOOK_MILLIS_LEAST, session.timeoutMillis() / LOOKS);
        while (!session.isOver()) {
            List<DataConnection> all;
            synchronized (this) {
                if (alive == 0) {
                    return;
                }
                all = new ArrayList<>(open.values());
            }
            for (DataConnection connection : all) {
                if (connection.isStuck(session.timeoutMillis())) {
                    connection.close();
                }
            }
            waitFor(look);
        }
    }

    private synchronized void waitFor(long millis) {
        try {
            wait(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void keep() {
        try {
            keepOne();
        } catch (Throwable e) {
            // Out of memory, too: nobody may wait for this thread in vain.
            session.fail(e);
        } finally {
            synchronized (this) {
                alive--;
                notifyAll();
            }
        }
    }

    private void keepOne() {
        long delay = DELAY_LEAST_MILLIS;
        long healthy = System.nanoTime();
        while (!isEnding()) {
            long began = System.nanoTime();
            IOException why;
            try (DataConnection connection = session.attach(plain)) {
                why = use(connection);
            } catch (IOException e) {
                why = e;
            }
            if (why == null || isEnding()) {
                return;
            }
            if (millisSince(began) > HEALTHY_MILLIS && !(why instanceof BankfullException)) {
                delay = DELAY_LEAST_MILLIS;
                healthy = System.nanoTime();
            }
            boolean passing = !(why instanceof BankfullException)
                || ((BankfullException) why).code() != Failure.PROTOCOL;
            if (!passing || millisSince(healthy) > session.timeoutMillis()) {
                session.fail(why);
                return;
            }
            pause(delay);
            delay = Math.min(delay * 2, DELAY_MOST_MILLIS);
        }
    }

    /** Why a connection broke; null when it ended in order. */
    private IOException use(DataConnection connection) {
        try {
            enter(connection);
            work.on(connection);
            take(connection.stream);
            return null;
        } catch (IOException e) {
            take(connection.stream);
            if (!isEnding()) {
                session.post(work.lost(connection.stream));
            }
            return e;
        }
    }

    private static long millisSince(long nanos) {
        return (System.nanoTime() - nanos) / 1_000_000;
    }

    private synchronized void enter(DataConnection connection) throws IOException {
        if (ending || ended.contains(connection.stream)) {
            throw new IOException("it was given up before it began");
        }
        open.put(connection.stream, connection);
    }

    private synchronized boolean isEnding() {
        return ending || session.isOver();
    }

    private synchronized void pause(long millis) {
        if (!ending) {
            waitFor(millis);
        }
    }

    /** The other side has lost a connection: it is closed here too, and then said to have ended. */
    void lostThere(int stream) {
        DataConnection connection;
        synchronized (this) {
            ended.add(stream);
            connection = open.get(stream);
        }
        if (connection == null) {
            session.post(Message.stream(Message.STREAM_ENDED, stream));
        } else {
            connection.close();
        }
    }

    /** The other side says that nothing of a connection is taken in any more. */
    void endedThere(int stream) {
        DataConnection connection;
        synchronized (this) {
            ended.add(stream);
            connection = open.get(stream);
        }
        if (connection != null) {
            connection.close();
        }
    }

    private synchronized void take(int stream) {
        open.remove(stream);
    }

    /** Makes no connection again, and waits until all have ended. */
    void awaitEnds() throws IOException {
        long until = System.nanoTime() + session.timeoutMillis() * 1_000_000;
        synchronized (this) {
            ending = true;
            notifyAll();
            while (alive > 0) {
                long left = (until - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    throw new BankfullException(Failure.TIMED_OUT, "data connections do not end");
                }
                try {
                    wait(left);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw new BankfullException(Failure.CANCELLED, "interrupted", e);
                }
            }
        }
    }

    /** Closes all at once. */
    void closeAll() {
        List<DataConnection> rest;
        synchronized (this) {
            ending = true;
            notifyAll();
            rest = new ArrayList<>(open.values());
        }
        rest.forEach(DataConnection::close);
    }
}
