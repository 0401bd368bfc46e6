package org.bankfull.engine;

import java.io.Closeable;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import org.bankfull.BankfullException;

/**
 * Deadline of the setup of a session or a data stream.
 *
 * <p>It covers everything from the first connection to {@code Opened}, or to the reply.
 *
 * <p>When it passes, a thread closes the connection in use. The timeout of a read does not suffice:
 * single bytes and pings would reset it for ever. Name resolution is not interrupted.
 */
final class SetupDeadline implements Closeable {
    private final long start = System.nanoTime();
    private final long timeoutMillis;
    /** Connection in use; null: none. */
    private Socket socket;
    private boolean isDone;
    /** The deadline was ended before its time. */
    private volatile boolean isCancelled;

    SetupDeadline(long timeoutMillis) {
        this.timeoutMillis = timeoutMillis;
        Thread thread = new Thread(this::closeLateSockets, "bankfull-setup-deadline");
        thread.setDaemon(true);
        thread.start();
    }

    /** Returns the time that is left, at least 0. */
    long leftMillis() {
        long millis = timeoutMillis - (System.nanoTime() - start) / 1_000_000;
        return isCancelled ? 0 : Math.max(0, millis);
    }

    boolean hasPassed() {
        return leftMillis() == 0;
    }

    /** Closes this connection, instead of an earlier one, when the deadline passes. */
    synchronized void watch(Socket socket) {
        this.socket = socket;
        notifyAll();
    }

    /** Returns a timeout for an error without a description, if the deadline has passed. */
    IOException orTimeout(IOException error) {
        if (!hasPassed() || error instanceof BankfullException
            || error instanceof SocketTimeoutException) {
            return error;
        }
        SocketTimeoutException timeout = new SocketTimeoutException("too late");
        timeout.initCause(error);
        return timeout;
    }

    private synchronized void closeLateSockets() {
        try {
            while (!isDone) {
                if (!hasPassed()) {
                    wait(leftMillis());
                } else if (socket != null) {
                    Session.closeQuietly(socket);
                    socket = null;
                } else {
                    wait();
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Closes the connection in use, and later ones, as if the deadline had passed. */
    synchronized void cancel() {
        isCancelled = true;
        notifyAll();
    }

    /** Ends the deadline; returns false if it has passed. */
    synchronized boolean end() {
        boolean isInTime = isDone || !hasPassed();
        isDone = true;
        notifyAll();
        return isInTime;
    }

    @Override
    public void close() {
        end();
    }
}
