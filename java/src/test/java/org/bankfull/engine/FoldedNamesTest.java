package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.bankfull.engine.FoldedNames.Names;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FoldedNamesTest {
    @TempDir
    Path temp;
    private final List<Path> tested = new ArrayList<>();

    private FoldedNames folded(boolean ignoresCase) {
        return new FoldedNames(directory -> {
            tested.add(directory);
            return ignoresCase;
        });
    }

    private String record(FoldedNames folded, Names names, String name) {
        return folded.record(names, name, () -> temp);
    }

    @Test
    void names_directoryIgnoresCase_laterOneIsFound() {
        FoldedNames folded = folded(true);
        Names names = new Names(null);
        assertNull(record(folded, names, "File"));
        assertNull(record(folded, names, "\u00c4"));
        assertEquals(List.of(), tested, "no two names have met");
        assertEquals("File", record(folded, names, "FILE"));
        assertEquals("\u00c4", record(folded, names, "\u00e4"));
        assertNull(record(folded, names, "File"), "announced again after a change");
        Names below = new Names(names);
        assertNull(record(folded, below, "FILE"), "in another directory");
        assertEquals("FILE", record(folded, below, "file"));
        assertEquals(List.of(temp), tested);
        folded.forget(names);
        folded.forget(below);
        assertEquals(0, folded.bytes());
    }

    @Test
    void names_directoryIsCaseSensitive_areNotRecordedAfterTest() {
        FoldedNames folded = folded(false);
        Names names = new Names(null);
        Names below = new Names(names);
        assertNull(record(folded, names, "a"));
        assertNull(record(folded, names, "A"));
        assertEquals(0, folded.bytes());
        assertNull(record(folded, below, "a"));
        assertEquals(0, folded.bytes(), "a new directory is as its parent");
        // Another one that existed may differ.
        Names other = new Names(null);
        assertNull(record(folded, other, "a"));
        assertTrue(folded.bytes() > 0);
        assertNull(record(folded, other, "A"));
        assertEquals(List.of(temp, temp), tested);
    }

    @Test
    void names_many_useBoundedMemory() {
        for (boolean ignoresCase : new boolean[] {false, true}) {
            FoldedNames folded = folded(ignoresCase);
            tested.clear();
            Names names = new Names(null);
            String padding = "x".repeat(200);
            long peak = 0;
            for (int i = 0; i < 20_000; i++) {
                assertNull(record(folded, names, padding + i));
                peak = Math.max(peak, folded.bytes());
            }
            assertTrue(peak > FoldedNames.MAX_BYTES * 9 / 10, peak + " bytes");
            assertTrue(peak <= FoldedNames.MAX_BYTES, peak + " bytes");
            assertEquals(1, tested.size());
            String first = record(folded, names, padding.toUpperCase() + "0");
            assertEquals(ignoresCase ? padding + "0" : null, first);
        }
    }

    @Test
    void names_directoryCannotBeTested_areAccepted() {
        FoldedNames folded = new FoldedNames(directory -> {
            throw new IOException("read-only");
        });
        Names names = new Names(null);
        assertNull(record(folded, names, "a"));
        assertNull(record(folded, names, "A"));
    }

    @Test
    void caseTest_realDirectory_leavesNothing() throws IOException {
        FoldedNames folded = new FoldedNames();
        Names names = new Names(null);
        // Left by a process that was killed during a test.
        Files.createFile(PartFile.journalDraftPath(temp.resolve("case")));
        assertNull(record(folded, names, "a"));
        Files.createFile(temp.resolve("b"));
        boolean ignoresCase = Files.exists(temp.resolve("B"));
        assertEquals(ignoresCase ? "a" : null, record(folded, names, "A"));
        try (Stream<Path> left = Files.list(temp)) {
            assertEquals(1, left.count());
        }
    }
}
