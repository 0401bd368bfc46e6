package org.bankfull;

import java.util.ArrayList;
import java.util.List;

/** Result of a transfer. */
public final class Summary {
    /** Limit of the messages kept in each list; failures beyond it are only counted. */
    private static final int MAX_MESSAGES = 1000;

    public long copied;
    public long skipped;
    public long directories;
    public long symlinks;
    /** Bytes of content transferred by this call. */
    public long bytes;
    /** Bytes of content kept from an earlier run. */
    public long bytesResumed;
    public long failed;
    /** Messages of failed files, one line each. */
    public final List<String> failures = new ArrayList<>();
    /** Warnings, one line each: skipped paths, fewer streams than requested. */
    public final List<String> warnings = new ArrayList<>();
    public double seconds;

    public synchronized void addFailure(String line) {
        failed++;
        if (failures.size() < MAX_MESSAGES) {
            failures.add(line);
        }
    }

    public synchronized void addWarning(String line) {
        if (warnings.size() < MAX_MESSAGES) {
            warnings.add(line);
        }
    }
}
