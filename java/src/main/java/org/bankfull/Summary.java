package org.bankfull;

import java.util.ArrayList;
import java.util.List;

/** What a transfer did. */
public final class Summary {
    /** Most problems that are kept in words; all are counted. */
    private static final int TOLD_MAX = 1000;

    public long copied;
    public long skipped;
    public long directories;
    public long symlinks;
    /** Content that was transferred now. */
    public long bytes;
    /** Content of copied files that an earlier run had left here. */
    public long bytesResumed;
    public long failed;
    /** Why files failed, a line each. */
    public final List<String> failures = new ArrayList<>();
    /** What else is worth knowing: what was left out. */
    public final List<String> remarks = new ArrayList<>();
    public double seconds;

    public synchronized void fail(String line) {
        failed++;
        if (failures.size() < TOLD_MAX) {
            failures.add(line);
        }
    }

    public synchronized void remark(String line) {
        if (remarks.size() < TOLD_MAX) {
            remarks.add(line);
        }
    }
}
