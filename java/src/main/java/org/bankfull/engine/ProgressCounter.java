package org.bankfull.engine;

import java.util.concurrent.atomic.AtomicLong;
import org.bankfull.ProgressListener;

/** Counters behind the progress of a transfer. */
final class ProgressCounter {
    private final AtomicLong completedFiles = new AtomicLong();
    private final AtomicLong announcedFiles = new AtomicLong();
    private final AtomicLong verifiedBytes = new AtomicLong();
    private final AtomicLong announcedBytes = new AtomicLong();

    void addFile(long size) {
        announcedFiles.incrementAndGet();
        announcedBytes.addAndGet(size);
    }

    void addVerified(long length) {
        verifiedBytes.addAndGet(length);
    }

    /** Counts a completed file and {@code bytes} of it that were not counted before. */
    void completeFile(long bytes) {
        completedFiles.incrementAndGet();
        verifiedBytes.addAndGet(bytes);
    }

    void report(ProgressListener listener) {
        listener.onProgress(
            completedFiles.get(), announcedFiles.get(), verifiedBytes.get(), announcedBytes.get());
    }
}
