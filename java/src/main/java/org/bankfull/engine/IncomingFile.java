package org.bankfull.engine;

import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import org.bankfull.wire.Entry;

/** File that is being received. */
final class IncomingFile {
    final Entry entry;
    final Path target;
    /** Part file; null for a packed file. */
    PartFile part;
    /** Claimed blocks: arriving now, at most one per data stream. */
    final Set<Long> claimed = new HashSet<>(0);
    /** A comparison with the existing file was requested from the sender. */
    boolean isCompared;
    /** The sender found the existing file to be equal: the check of the part file ends. */
    volatile boolean isUnchanged;
    /** Failed on either side: further data of the file is discarded. */
    boolean isAbandoned;

    IncomingFile(Entry entry, Path target) {
        this.entry = entry;
        this.target = target;
    }
}
