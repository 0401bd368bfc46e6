package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.bankfull.engine.FoldedNames.Names;
import org.bankfull.wire.Entry;
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
        FoldedNames.Earlier earlier = folded.record(names, name, () -> temp);
        assertTrue(earlier == null || earlier.isCertain, name);
        return earlier == null ? null : earlier.name;
    }

    private List<String> list() throws IOException {
        try (Stream<Path> all = Files.list(temp)) {
            return all.map(path -> path.getFileName().toString()).collect(Collectors.toList());
        }
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
    void names_directoryCannotBeTested_meetingOnesAreRefused() {
        AtomicInteger failuresLeft = new AtomicInteger(2);
        FoldedNames folded = new FoldedNames(directory -> {
            if (failuresLeft.getAndDecrement() > 0) {
                throw new IOException("no descriptors");
            }
            return false;
        });
        Names names = new Names(null);
        assertNull(record(folded, names, "a"));
        for (int i = 0; i < 2; i++) {
            FoldedNames.Earlier earlier = folded.record(names, "A", () -> temp);
            assertEquals("a", earlier.name);
            assertFalse(earlier.isCertain);
            assertNull(record(folded, names, "other" + i), "meets no other name");
        }
        assertNull(record(folded, names, "A"), "a failed test is repeated");
        assertEquals(-1, failuresLeft.get());
        assertEquals(0, folded.bytes());
    }

    @Test
    void caseTest_realDirectory_leavesNothing() throws IOException {
        FoldedNames folded = new FoldedNames();
        Names names = new Names(null);
        assertNull(record(folded, names, "a"));
        Files.createFile(temp.resolve("b"));
        boolean ignoresCase = Files.exists(temp.resolve("B"));
        assertEquals(ignoresCase ? "a" : null, record(folded, names, "A"));
        assertEquals(List.of("b"), list());
    }

    @Test
    void caseTest_journalDraftsOfOthers_areKept() throws IOException {
        // Part file that a transfer of a file of that name may have beside it.
        Path part = PartFile.partPath(temp.resolve("case"));
        String stem = part.getFileName().toString().replace(".part", "");
        for (String end : List.of(".part", ".journal", ".journal.new")) {
            Files.writeString(temp.resolve(stem + end), "kept");
        }
        FoldedNames folded = new FoldedNames();
        Names names = new Names(null);
        record(folded, names, "a");
        record(folded, names, "A");
        assertEquals(3, list().size());
        for (String name : list()) {
            assertEquals("kept", Files.readString(temp.resolve(name)));
        }
    }

    @Test
    void caseTest_probe_hasReservedNameOfItsOwn() throws IOException {
        Set<String> probes = new HashSet<>();
        for (int i = 0; i < 10; i++) {
            assertTrue(FoldedNames.ignoresCase(temp, upper -> {
                probes.addAll(list());
                return true;
            }));
        }
        assertEquals(10, probes.size());
        probes.forEach(name -> assertTrue(Entry.isReservedName(name), name));
        assertEquals(List.of(), list());
    }

    @Test
    void caseTest_vanishedProbeOrFailedLookup_isUnknown() throws IOException {
        assertThrows(IOException.class, () -> FoldedNames.ignoresCase(temp, upper -> {
            for (String name : list()) {
                Files.delete(temp.resolve(name));
            }
            return false;
        }));
        assertThrows(IOException.class, () -> FoldedNames.ignoresCase(temp, upper -> {
            throw new IOException("input/output error");
        }));
        assertEquals(List.of(), list());
        assertFalse(FoldedNames.ignoresCase(temp, upper -> false));
    }
}
