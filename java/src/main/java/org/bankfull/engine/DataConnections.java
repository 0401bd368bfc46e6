package org.bankfull.engine;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.bankfull.BankfullException;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Message;

/** Keeps a session's data connections, each on a thread of its own, and makes lost ones again. */
final class DataConnections {
    private static final long DELAY_LEAST_MILLIS = 100;
    private static final long DELAY_MOST_MILLIS = 5000;

    /** What is done with a connection until it ends in order. */
    interface Work {
        void on(DataConnection connection) throws IOException;
    }

    private final Session session;
    private final boolean plain;
    private final Work work;
    private final List<Thread> threads = new ArrayList<>();
    private final Map<Integer, DataConnection> open = new HashMap<>();
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
            threads.add(thread);
            thread.start();
        }
    }

    private void keep() {
        long delay = DELAY_LEAST_MILLIS;
        long healthy = System.nanoTime();
        while (!isEnding()) {
            try (DataConnection connection = session.attach(plain)) {
                enter(connection);
                delay = DELAY_LEAST_MILLIS;
                healthy = System.nanoTime();
                work.on(connection);
                break;
            } catch (IOException e) {
                long millis = (System.nanoTime() - healthy) / 1_000_000;
                boolean passing = !(e instanceof BankfullException)
                    || ((BankfullException) e).code() != Failure.PROTOCOL;
                if (isEnding()) {
                    break;
                }
                if (!passing || millis > session.timeoutMillis()) {
                    session.fail(e);
                    break;
                }
                pause(delay);
                delay = Math.min(delay * 2, DELAY_MOST_MILLIS);
            } catch (RuntimeException e) {
                session.fail(e);
            }
        }
        synchronized (this) {
            alive--;
            notifyAll();
        }
    }

    private synchronized void enter(DataConnection connection) throws IOException {
        if (ending) {
            throw new IOException("it is over");
        }
        open.put(connection.stream, connection);
    }

    private synchronized boolean isEnding() {
        return ending || session.isOver();
    }

    private synchronized void pause(long millis) {
        try {
            if (!ending) {
                wait(millis);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** The other side has lost a connection: it is closed here too, and its worker says that it ended. */
    void lostThere(int stream) {
        DataConnection connection = take(stream);
        if (connection == null) {
            session.post(Message.stream(Message.STREAM_ENDED, stream));
        } else {
            connection.close();
        }
    }

    /** A connection that its worker is done with; null when that was so before. */
    synchronized DataConnection take(int stream) {
        return open.remove(stream);
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
