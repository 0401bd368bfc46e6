package org.bankfull.engine;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;

/**
 * Announced names in lower case, to find collisions in directories that ignore case.
 *
 * <p>The type of a file system does not suffice: ext4, f2fs and tmpfs may ignore case in single
 * directories, ZFS and NFS as a whole. The names of each directory are therefore recorded until it
 * is completed. If two names collide, or the names exceed their memory, a test file is looked up
 * in the directory by its name in the other case. If case matters there, its names are no longer
 * recorded. If the test fails, the later of two colliding names is refused, since the loss of a
 * file would be silent.
 *
 * <p>Limitation: in directories that ignore case, names beyond the memory are not recorded, and the
 * later of two such files replaces the earlier one. Names that differ only in the composition of
 * their accents (Unicode normalization) are not recognized.
 */
final class FoldedNames {
    /** Memory for the names (chosen: 40 000 short names, an eighth of a heap of 64 MB). */
    static final long MAX_BYTES = 8 << 20;
    /** Estimated size of a recorded name without its characters: two strings and a map entry. */
    private static final int NAME_OVERHEAD_BYTES = 128;

    /** Test of a directory. */
    interface CaseTest {
        /**
         * True if a name in upper case finds the file in lower case.
         *
         * @throws IOException if that is unknown; the test is repeated when needed again
         */
        boolean ignoresCase(Path directory) throws IOException;
    }

    /** Look-up of a path. */
    interface Lookup {
        boolean exists(Path path) throws IOException;
    }

    /** Earlier name that collides with a later one in a directory that may ignore case. */
    static final class Earlier {
        final String name;
        /** False if the test of the directory failed. */
        final boolean isCertain;

        Earlier(String name, boolean isCertain) {
            this.name = name;
            this.isCertain = isCertain;
        }
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

    /** Records a name; returns an earlier one that may be the same, or null. */
    Earlier record(Names names, String name, Supplier<Path> directory) {
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
            return new Earlier(earlier, names.tested.ignoresCase != null);
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
            // Unknown, and tested again when names meet again.
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
        return ignoresCase(directory, path -> Metadata.attributesIfExists(path) != null);
    }

    /** Creates a file in lower case, looks it up in upper case, and removes it. */
    static boolean ignoresCase(Path directory, Lookup lookup) throws IOException {
        Path probe = directory.resolve(probeName());
        Files.createFile(probe);
        boolean isFound;
        try {
            isFound = lookup.exists(directory.resolve(
                probe.getFileName().toString().toUpperCase(Locale.ROOT)));
        } catch (IOException | RuntimeException | Error e) {
            Files.deleteIfExists(probe);
            throw e;
        }
        // The name is unique: if the file can be removed, it existed during the look-up.
        if (!Files.deleteIfExists(probe) && !isFound) {
            throw new IOException("the file of the case test has vanished");
        }
        return isFound;
    }

    /** Returns a random reserved name: two sessions, or a file's journal, must not share it. */
    private static String probeName() {
        return String.format(".bankfull-%016x.part", ThreadLocalRandom.current().nextLong());
    }
}
