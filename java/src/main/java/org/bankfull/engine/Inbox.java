package org.bankfull.engine;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Received messages in order, between the threads that read and handle them.
 *
 * <p>They are kept encoded: a message object takes several times the memory.
 */
final class Inbox {
    /** Limit of the messages (chosen: 4096 announced files with long names). */
    static final int MAX_BYTES = 1 << 20;
    /** Estimated memory overhead of a message. */
    static final int OVERHEAD_BYTES = 32;

    private final Deque<byte[]> messages = new ArrayDeque<>();
    private long bytes;
    private boolean isEnded;

    /** Adds a message; waits for space. After the end it is discarded. */
    synchronized void add(byte[] message) throws InterruptedException {
        int size = message.length + OVERHEAD_BYTES;
        while (!isEnded && !messages.isEmpty() && bytes + size > MAX_BYTES) {
            wait();
        }
        if (!isEnded) {
            messages.add(message);
            bytes += size;
            notifyAll();
        }
    }

    /** Takes the next message; waits for it. Returns null after the last one. */
    synchronized byte[] take() throws InterruptedException {
        while (!isEnded && messages.isEmpty()) {
            wait();
        }
        byte[] next = messages.poll();
        if (next != null) {
            bytes -= next.length + OVERHEAD_BYTES;
            notifyAll();
        }
        return next;
    }

    /** Ends the messages after those that were added. */
    synchronized void end() {
        isEnded = true;
        notifyAll();
    }

    /** Ends the messages now. */
    synchronized void discard() {
        messages.clear();
        bytes = 0;
        end();
    }
}
