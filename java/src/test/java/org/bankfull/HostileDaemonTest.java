package org.bankfull;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.bankfull.wire.DaemonMessages;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.Message.Want;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Fetches from a daemon that announces other entries than those requested. */
class HostileDaemonTest {
    private static final Source REPORT = source("report.pdf", false);
    private static final Source TREE = source("tree", true);
    private static final Source CONTENTS = new Source(new byte[0], true, true);

    @TempDir
    Path temp;
    private Path home;
    private Path outside;

    @BeforeEach
    void makeHome() throws IOException {
        home = Files.createDirectory(temp.resolve("home"));
        outside = Files.createDirectory(temp.resolve("outside"));
        Files.writeString(home.resolve(".bashrc"), "mine");
    }

    private static Source source(String name, boolean directory) {
        return new Source(name.getBytes(StandardCharsets.UTF_8), directory, false);
    }

    private static Entry entry(int kind, long id, long parent, String name) {
        Entry entry = new Entry();
        entry.kind = kind;
        entry.id = id;
        entry.parent = parent;
        entry.name = name.getBytes(StandardCharsets.UTF_8);
        entry.mode = kind == Entry.DIRECTORY ? 0755 : 0644;
        return entry;
    }

    /** Returns a file of one block; its part file would be created at once. */
    private static Entry file(long id, long parent, String name) {
        Entry entry = entry(Entry.FILE, id, parent, name);
        entry.size = 1 << 20;
        entry.blockBytes = 1 << 20;
        return entry;
    }

    private static Entry directory(long id, long parent, String name) {
        return entry(Entry.DIRECTORY, id, parent, name);
    }

    private Entry symlink(long id, long parent, String name) {
        Entry entry = entry(Entry.SYMLINK, id, parent, name);
        entry.target = outside.toString().getBytes(StandardCharsets.UTF_8);
        return entry;
    }

    /** Fetches a path from a daemon that announces these batches; returns the error. */
    private BankfullException fetch(String path, List<Source> sources, List<List<Entry>> batches)
        throws Exception {
        try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
            peer.send(DaemonMessages.welcome());
            peer.receive();
            peer.send(DaemonMessages.opened(sources.toArray(new Source[0])));
            for (List<Entry> batch : batches) {
                peer.send(Message.entries(batch));
                if (batch != batches.get(batches.size() - 1)) {
                    peer.receive();
                }
            }
            while (peer.receive().number != Message.ERROR) { }
        })) {
            return assertThrows(BankfullException.class, () ->
                daemon.client().timeoutMillis(5000).get(List.of(path), home.toString()));
        }
    }

    /** Asserts that an answer is refused as a whole, before anything is written. */
    private void assertRefused(String path, List<Source> sources, Entry... entries)
        throws Exception {
        BankfullException error = fetch(path, sources, List.of(List.of(entries)));
        String text = error.getMessage();
        assertEquals(Failure.PROTOCOL, error.code(), text);
        assertTrue(text.contains(" violated the protocol: "), text);
        assertEquals(List.of(".bashrc"), list(home), text);
        assertEquals("mine", Files.readString(home.resolve(".bashrc")), text);
        assertEquals(List.of(), list(outside), text);
        List<String> others = new ArrayList<>(list(temp));
        others.removeAll(List.of("home", "outside", "keys.p12", "keytool"));
        assertEquals(List.of(), others, text);
    }

    private static List<String> list(Path directory) throws IOException {
        try (Stream<Path> all = Files.list(directory)) {
            return all.map(path -> path.getFileName().toString()).collect(Collectors.toList());
        }
    }

    @Test
    void get_otherSources_areRefused() throws Exception {
        assertRefused("report.pdf", List.of(), file(1, 0, "report.pdf"));
        assertRefused("report.pdf", List.of(CONTENTS), directory(1, 0, ""), file(2, 1, "x"));
        for (String name : List.of(".bashrc", "../evil", "/evil", "..", "sub/report.pdf")) {
            Source other = source(name, false);
            assertRefused("report.pdf", List.of(other), file(1, 0, "report.pdf"));
            assertRefused("report.pdf", List.of(REPORT, other), file(1, 0, "report.pdf"));
        }
    }

    @Test
    void get_otherRootEntries_areRefused() throws Exception {
        List<Source> report = List.of(REPORT);
        assertRefused("report.pdf", report, file(1, 0, ".bashrc"));
        assertRefused("report.pdf", report, file(1, 0, "report.pdf"), file(2, 0, ".bashrc"));
        assertRefused("report.pdf", report, file(1, 0, "report.pdf"), symlink(2, 0, "link"));
        assertRefused("report.pdf", report, directory(1, 0, "report.pdf"));
        assertRefused("report.pdf", report, directory(1, 0, ""), file(2, 1, ".bashrc"));
        assertRefused("tree", List.of(TREE), directory(1, 0, "tree"), file(2, 0, "tree"));
        assertRefused("tree", List.of(TREE), directory(1, 0, "tree"), symlink(2, 0, "tree"));
        assertRefused("tree/", List.of(CONTENTS), directory(1, 0, ""), file(2, 0, "x"));
    }

    @Test
    void get_invalidNames_areRefused() throws Exception {
        String part = ".bankfull-0123456789abcdef.";
        for (String name : List.of("..", ".", "", "../evil", "/etc/evil", "a/b", "a\0b",
            part + "part", part + "journal", part + "journal.new")) {
            for (Entry evil : List.of(file(3, 1, name), directory(3, 1, name),
                symlink(3, 1, name))) {
                assertRefused("tree", List.of(TREE),
                    directory(1, 0, "tree"), file(2, 1, "good"), evil);
            }
        }
    }

    @Test
    void get_entriesBeneathOtherDirectories_areRefused() throws Exception {
        List<Source> tree = List.of(TREE);
        assertRefused("tree", tree, directory(1, 0, "tree"), file(2, 77, "orphan"));
        assertRefused(
            "tree", tree, directory(1, 0, "tree"), directory(2, 0, "other"), file(3, 2, "evil"));
        assertRefused("tree", tree, directory(1, 0, "tree"), file(2, 1, "f"), file(3, 2, "evil"));
        assertRefused("tree", tree, directory(1, 0, "tree"), file(2, 1, "f"), file(2, 1, "twice"));
        assertRefused("tree", tree, directory(2, 0, "tree"), file(1, 2, "earlier"));
        assertRefused(
            "tree", tree, directory(1, 0, "tree"), symlink(2, 1, "way"), file(3, 2, "evil"));
        assertRefused("report.pdf", List.of(REPORT), symlink(1, 0, "report.pdf"), file(2, 1, "x"));
    }

    @Test
    void get_symlinkThenEntryBeneathIt_isNotFollowed() throws Exception {
        List<Entry> link = List.of(directory(1, 0, "tree"), symlink(2, 1, "way"));
        BankfullException error =
            fetch("tree", List.of(TREE), List.of(link, List.of(file(3, 2, "evil"))));
        assertEquals(Failure.PROTOCOL, error.code(), error.getMessage());
        assertTrue(Files.isSymbolicLink(home.resolve("tree/way")));
        assertEquals(List.of("way"), list(home.resolve("tree")));
        assertEquals(List.of(), list(outside));
    }

    @Test
    void get_entriesOfOtherKinds_areSkippedWithNotes() throws Exception {
        try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
            peer.send(DaemonMessages.welcome());
            peer.receive();
            peer.send(DaemonMessages.opened(TREE));
            peer.send(Message.entries(List.of(directory(1, 0, "tree"), entry(3, 2, 1, "hard link"),
                entry(200, 3, 1, "later kind"))));
            peer.send(new Message.Totals().write());
            Message answer = peer.receive();
            while (answer.number != Message.WANTS) {
                answer = peer.receive();
            }
            for (Want want : answer.wants()) {
                assertEquals(Want.SKIP, want.verdict);
            }
            peer.send(Message.sideSummary(Message.FINISH, new long[5], 0));
            peer.awaitEnd();
        })) {
            Summary done =
                daemon.client().timeoutMillis(5000).get(List.of("tree"), home.toString());
            assertEquals(2, done.warnings.size(), done.warnings.toString());
            assertTrue(done.warnings.get(0).startsWith("skipped "), done.warnings.toString());
            assertEquals(List.of(), done.failures);
        }
        assertEquals(List.of(), list(home.resolve("tree")));
    }

    @Test
    void get_symlinkThenDirectoryOfItsName_isNotFollowed() throws Exception {
        List<Message> answers = new ArrayList<>();
        try (FakeDaemon daemon = FakeDaemon.greeted(temp, peer -> {
            peer.send(DaemonMessages.welcome());
            peer.receive();
            peer.send(DaemonMessages.opened(TREE));
            peer.send(Message.entries(List.of(directory(1, 0, "tree"), symlink(2, 1, "way"),
                directory(3, 1, "way"), file(4, 3, "evil"), directory(5, 3, "evil directory"),
                symlink(6, 3, "evil link"))));
            Message answer = peer.receive();
            while (answer.number != Message.WANTS) {
                answer = peer.receive();
            }
            answers.add(answer);
            peer.send(Message.error(new Failure(Failure.CANCELLED, "enough")));
        })) {
            BankfullException error = assertThrows(BankfullException.class, () ->
                daemon.client().timeoutMillis(5000).get(List.of("tree"), home.toString()));
            assertTrue(error.getMessage().contains("enough"), error.getMessage());
        }
        for (Want want : answers.get(0).wants()) {
            assertEquals(Want.REFUSED, want.verdict);
        }
        assertEquals(2, answers.get(0).wants().size());
        assertEquals(List.of("way"), list(home.resolve("tree")));
        assertEquals(List.of(), list(outside));
    }
}
