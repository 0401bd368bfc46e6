package org.bankfull.engine;

import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import org.bankfull.wire.Entry;

/** A file that is being received. */
final class Incoming {
    final Entry entry;
    final Path target;
    /** Of a file of blocks. */
    Part part;
    /** Blocks that are arriving: as many as there are connections at most. */
    final Set<Long> arriving = new HashSet<>(0);
    /** The other side was asked whether what is here is the same. */
    boolean compared;
    /** Given up by either side: what still comes of it is read past. */
    boolean dead;

    Incoming(Entry entry, Path target) {
        this.entry = entry;
        this.target = target;
    }
}
