package org.bankfull.engine;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.function.Supplier;

/**
 * Announced names by lower case, to find two that a directory does not tell apart.
 *
 * <p>The type of a file system does not tell: ext4, f2fs and tmpfs may ignore case in single
 * directories, ZFS and NFS as a whole. Names of all directories are therefore recorded until they
 * are completed. When two meet, or the names exceed their memory, a file with a name of other case
 * is looked up there. Where names are told apart, they are not recorded any more.
 *
 * <p>Limit: of directories that ignore case, names beyond the memory are not recorded, and the
 * later of two such files replaces the earlier one. Names that differ in the composition of their
 * accents only (Unicode normalization) are not recognized.
 */
final class FoldedNames {
    /** Memory for the names (chosen: 40 000 short names, an eighth of a heap of 64 MB). */
    static final long MAX_BYTES = 8 << 20;
    /** Estimated size of a recorded name without its characters: two strings and a map entry. */
    private static final int NAME_OVERHEAD_BYTES = 128;

    /** Test of a directory. */
    interface CaseTest {
        /** True if a name in upper case finds the file in lower case. */
        boolean ignoresCase(Path directory) throws IOException;
    }

    private final CaseTest test;
    private long totalBytes;

    /** Recorded names of a directory. */
    static final class Names {
        /** Names of the directory that was tested for this one; itself, or an ancestor. */
        private final Names tested;
        /** Result of the test; null: none yet. */
        private Boolean ignoresCase;
        /** Names by the name in lower case; null: none. */
        private Map<String, String> byFolded;
        private long bytes;

        /**
         * Creates an empty record.
         *
         * @param inherited names of the parent of a new directory, which handles case as its
         *     parent does; null for a directory that existed before
         */
        Names(Names inherited) {
            this.tested = inherited == null ? this : inherited.tested;
        }
    }

    FoldedNames() {
        this(FoldedNames::ignoresCase);
    }

    FoldedNames(CaseTest test) {
        this.test = test;
    }

    /** Records a name; returns the earlier one that is the same in the directory, or null. */
    String record(Names names, String name, Supplier<Path> directory) {
        String folded = name.toLowerCase(Locale.ROOT);
        String earlier = names.byFolded == null ? null : names.byFolded.get(folded);
        if (name.equals(earlier)) {
            // Announced again after a change.
            return null;
        }
        long bytes = NAME_OVERHEAD_BYTES + 2L * name.length();
        boolean isFull = totalBytes + bytes > MAX_BYTES;
        boolean isTested = names.tested.ignoresCase != null;
        if (!isTested && (earlier != null || isFull)) {
            runTest(names.tested, directory.get());
        }
        if (Boolean.FALSE.equals(names.tested.ignoresCase)) {
            forget(names);
            return null;
        }
        if (earlier != null) {
            return names.tested.ignoresCase == null ? null : earlier;
        }
        if (!isFull) {
            if (names.byFolded == null) {
                names.byFolded = new HashMap<>(4);
            }
            names.byFolded.put(folded, name);
            names.bytes += bytes;
            totalBytes += bytes;
        }
        return null;
    }

    private void runTest(Names tested, Path directory) {
        try {
            tested.ignoresCase = test.ignoresCase(directory);
        } catch (IOException e) {
            // Nothing can be written there: the file itself fails, too.
        }
    }

    /** Forgets the names of a completed directory. */
    void forget(Names names) {
        totalBytes -= names.bytes;
        names.bytes = 0;
        names.byFolded = null;
    }

    /** Returns the estimated memory of all recorded names. */
    long bytes() {
        return totalBytes;
    }

    private static boolean ignoresCase(Path directory) throws IOException {
        Path probe = PartFile.journalDraftPath(directory.resolve("case"));
        Files.deleteIfExists(probe);
        Files.createFile(probe);
        try {
            String upper = probe.getFileName().toString().toUpperCase(Locale.ROOT);
            return Files.exists(directory.resolve(upper));
        } finally {
            Files.delete(probe);
        }
    }
}
