package org.bankfull.engine;

import java.util.concurrent.atomic.AtomicLong;
import org.bankfull.Progress;

/** How far a transfer is. */
final class Counts {
    private final AtomicLong files = new AtomicLong();
    private final AtomicLong filesKnown = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private final AtomicLong bytesKnown = new AtomicLong();

    void announced(long size) {
        filesKnown.incrementAndGet();
        bytesKnown.addAndGet(size);
    }

    void arrived(long length) {
        bytes.addAndGet(length);
    }

    /** A file is settled, and so much of it did not have to come. */
    void settled(long here) {
        files.incrementAndGet();
        bytes.addAndGet(here);
    }

    void tell(Progress progress) {
        progress.at(files.get(), filesKnown.get(), bytes.get(), bytesKnown.get());
    }
}
