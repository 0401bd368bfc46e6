package org.bankfull.engine;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.bankfull.Summary;
import org.bankfull.engine.Directories.Directory;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Layout;
import org.bankfull.wire.Limits;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Run;
import org.bankfull.wire.Message.Runs;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.Message.Want;
import org.bankfull.wire.WireException;

/**
 * The receiving side: answers announcements, puts files in place, keeps the books of what arrives.
 * Of a file nothing is kept once it is settled.
 */
final class Receiver {
    /** As many files may be announced and not settled: some MB of memory, and some packs ahead. */
    static final int UNSETTLED_MOST = 4096;

    private final Session session;
    private final Landing landing;
    private final List<Source> sources;
    private final boolean checksum;
    private final boolean durable;
    private final Summary summary;
    private final Counts counts;
    private final Directories directories;
    private final Map<Long, Incoming> files = new HashMap<>();
    /** Given up by either side: what still comes of them is read past. */
    private final Spans dead = new Spans();
    private long lastId;
    private boolean entriesEnded;

    Receiver(Session session, Landing landing, List<Source> sources, boolean checksum,
        boolean durable, Summary summary, Counts counts) {
        this.session = session;
        this.landing = landing;
        this.sources = sources;
        this.checksum = checksum;
        this.durable = durable;
        this.summary = summary;
        this.counts = counts;
        this.directories = new Directories(landing.base);
    }

    /** Handles messages until the sender has finished. */
    void run(DataConnections connections) throws IOException {
        while (true) {
            session.awaitRoom();
            Message message = session.receive();
            try {
                if (message.number == Message.FINISH) {
                    if (!entriesEnded) {
                        throw new WireException("the sender finished before its entries ended");
                    }
                    connections.awaitEnds();
                    finish();
                    return;
                }
                handle(message, connections);
            } catch (WireException e) {
                session.post(Message.error(new Failure(Failure.PROTOCOL, e.getMessage())));
                throw session.broken(e);
            }
        }
    }

    /** Lets go of what is not in place yet: a later run goes on with it. */
    synchronized void close() {
        for (Incoming incoming : files.values()) {
            incoming.dead = true;
            if (incoming.part != null) {
                incoming.part.close();
            }
        }
    }

    private void handle(Message message, DataConnections connections)
        throws IOException, WireException {
        switch (message.number) {
            case Message.ENTRIES:
                onEntries(message.entries());
                break;
            case Message.ENTRIES_END:
                message.totals();
                entriesEnded = true;
                break;
            case Message.PROBLEM:
                problem(message.failureInside(), summary);
                break;
            case Message.HOLES:
                onHoles(message.runs());
                break;
            case Message.SEALED:
                onSealed(message);
                break;
            case Message.ABORTED:
                onAborted(message);
                break;
            case Message.UNCHANGED:
                for (long file : message.files()) {
                    onUnchanged(file);
                }
                break;
            case Message.STREAM_LOST:
                connections.lostThere(message.stream());
                break;
            default:
                // How the path does (section 16), which nothing depends on.
                if (message.number < 25) {
                    throw new WireException("message " + message.number + " from a sender");
                }
        }
    }

    private void onEntries(List<Entry> entries) throws WireException {
        List<Want> wants = new ArrayList<>();
        List<Long> made = new ArrayList<>();
        for (Entry entry : entries) {
            Directory parent = directories.find(entry.parent);
            if (entry.id <= lastId || parent == null) {
                throw new WireException("entry " + entry.id + " comes out of order");
            }
            if (entry.parent == 0 && !Sources.hold(sources, entry)) {
                throw new WireException("entry " + entry.id + " is nothing that was asked for");
            }
            lastId = entry.id;
            if (entry.kind == Entry.DIRECTORY) {
                onDirectory(entry, parent);
            } else if (entry.kind == Entry.SYMLINK) {
                onSymlink(entry, parent, wants, made);
            } else {
                Want want = onFile(entry, parent);
                if (want != null) {
                    wants.add(want);
                }
            }
        }
        if (!wants.isEmpty()) {
            session.post(Message.wants(wants));
        }
        if (!made.isEmpty()) {
            session.post(Message.files(Message.FINISHED, made));
        }
    }

    /** The path that a file or symlink gets. Its name is a single component. */
    private Path place(Entry entry, Directory parent) throws Refused {
        String name = name(entry, parent);
        if (landing.rename != null && entry.parent == 0) {
            name = landing.rename;
        }
        return directories.path(parent).resolve(name);
    }

    /** A name that can be written here. */
    private static String name(Entry entry, Directory parent) throws Refused {
        if (parent.failed) {
            throw new Refused(new Failure(Failure.IO, "its directory could not be made"));
        }
        String name = decode(entry.name, "name");
        try {
            Paths.get(name);
            return name;
        } catch (InvalidPathException e) {
            throw new Refused(new Failure(Failure.USAGE,
                "its name cannot be written under this locale: run with LC_ALL=C.UTF-8"));
        }
    }

    private static String decode(byte[] bytes, String what) throws Refused {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            throw new Refused(new Failure(Failure.USAGE,
                "its " + what + " is no UTF-8, which Java cannot write"));
        }
    }

    /** Something that cannot be received. */
    private static final class Refused extends Exception {
        private static final long serialVersionUID = 1;
        final transient Failure failure;

        Refused(Failure failure) {
            this.failure = failure;
        }
    }

    private void onDirectory(Entry entry, Directory parent) {
        try {
            directories.make(entry, parent, name(entry, parent));
            summary.directories++;
        } catch (Refused refused) {
            problem(entry, parent, refused.failure);
            directories.failed(entry, parent);
        } catch (IOException e) {
            problem(entry, parent, Meta.failure("cannot make the directory", e));
            directories.failed(entry, parent);
        }
    }

    private void problem(Entry entry, Directory parent, Failure failure) {
        String shown = shown(entry, parent);
        summary.fail(shown + ": " + failure.shown());
        session.post(Message.problem(shown.getBytes(StandardCharsets.UTF_8), failure));
    }

    private String shown(Entry entry, Directory parent) {
        String name = landing.rename != null && entry.parent == 0
            ? landing.rename
            : new String(entry.name, StandardCharsets.UTF_8);
        String directory = directories.path(parent).toString();
        return new Failure(0, directory.isEmpty() ? name : directory + "/" + name).shown();
    }

    private void onSymlink(Entry entry, Directory parent, List<Want> wants, List<Long> made) {
        try {
            Path path = place(entry, parent);
            Path target = Paths.get(decode(entry.target, "target"));
            if (Files.isSymbolicLink(path) && Files.readSymbolicLink(path).equals(target)) {
                wants.add(new Want(entry.id, Want.SKIP));
                return;
            }
            refuseInTheWay(path);
            Path draft = Part.partOf(path);
            Part.drop(path);
            Files.createSymbolicLink(draft, target);
            Part.rename(draft, path);
            summary.symlinks++;
            made.add(entry.id);
        } catch (Refused refused) {
            wants.add(refused(entry, parent, refused.failure));
        } catch (IOException | InvalidPathException | UnsupportedOperationException e) {
            IOException io = e instanceof IOException ? (IOException) e : new IOException(e);
            wants.add(refused(entry, parent, Meta.failure("cannot make the symlink", io)));
        }
    }

    private static void refuseInTheWay(Path path) throws IOException, Refused {
        BasicFileAttributes found = Meta.lookIfThere(path);
        if (found != null && (found.isDirectory() || found.isOther())) {
            String what = found.isDirectory() ? "a directory" : Meta.kind(found);
            throw new Refused(new Failure(
                found.isDirectory() ? Failure.IS_A_DIRECTORY : Failure.USAGE,
                what + " is in the way: remove or rename it"));
        }
    }

    private Want refused(Entry entry, Directory parent, Failure failure) {
        summary.fail(shown(entry, parent) + ": " + failure.shown());
        counts.settled(0);
        Want want = new Want(entry.id, Want.REFUSED);
        want.failure = failure;
        return want;
    }

    private Want onFile(Entry entry, Directory parent) {
        counts.announced(entry.size);
        try {
            Path target = place(entry, parent);
            refuseInTheWay(target);
            Incoming incoming = new Incoming(entry, target);
            BasicFileAttributes existing = parent.fresh ? null : Meta.lookIfThere(target);
            boolean sameSize =
                existing != null && existing.isRegularFile() && existing.size() == entry.size;
            if (sameSize && !checksum && Meta.hasTime(entry, existing.lastModifiedTime())) {
                return skip(entry, target);
            }
            Want want = new Want(entry.id, Want.SEND);
            if (entry.blockBytes != 0) {
                open(incoming, want);
            }
            synchronized (this) {
                files.put(entry.id, incoming);
            }
            return sameSize && checksum ? compare(want, incoming) : want;
        } catch (Refused refused) {
            return refused(entry, parent, refused.failure);
        } catch (IOException e) {
            return refused(entry, parent, Meta.failure("cannot write", e));
        }
    }

    private Want skip(Entry entry, Path target) throws IOException {
        if (entry.blockBytes != 0) {
            Part.drop(target);
        }
        Meta.apply(target, entry);
        skipped(entry);
        return new Want(entry.id, Want.SKIP);
    }

    private void skipped(Entry entry) {
        synchronized (summary) {
            summary.skipped++;
        }
        counts.settled(entry.size);
    }

    /** Opens the part of a file of blocks, and says what of it is here. */
    private void open(Incoming incoming, Want want) throws IOException {
        incoming.part = Part.of(incoming.target, incoming.entry);
        BitSet here = incoming.part.here();
        List<Run> have = new ArrayList<>();
        for (int at = here.nextSetBit(0); at >= 0;) {
            int end = here.nextClearBit(at);
            have.add(new Run(at, end - at));
            long bytes = Math.min(incoming.entry.size, (long) end * incoming.entry.blockBytes)
                - (long) at * incoming.entry.blockBytes;
            synchronized (summary) {
                summary.bytesResumed += bytes;
            }
            counts.arrived(bytes);
            at = here.nextSetBit(end);
        }
        int most = Limits.RUNS_IN_LIST / 16;
        for (int at = 0; have.size() > most && at < have.size(); at += most) {
            List<Run> some = have.subList(at, Math.min(have.size(), at + most));
            session.post(Message.have(new Runs(incoming.entry.id, some)));
        }
        want.have = have.size() > most ? List.of() : have;
    }

    /** Asks to compare the content of a file that is here. */
    private Want compare(Want want, Incoming incoming) {
        byte[] hash;
        try {
            hash = Meta.hash(incoming.target);
        } catch (IOException e) {
            // It is gone or cannot be read: then it is replaced.
            return want;
        }
        incoming.compared = true;
        Want compare = new Want(want.file, Want.IF_DIFFERS);
        compare.have = want.have;
        compare.hash = hash;
        return compare;
    }

    private void onUnchanged(long file) throws WireException {
        Incoming incoming = settle(file);
        if (incoming == null && isDead(file)) {
            return;
        }
        if (incoming == null || !incoming.compared) {
            throw new WireException("file " + file + " is unchanged, which nobody asked");
        }
        if (incoming.part != null) {
            incoming.part.close();
        }
        try {
            Part.drop(incoming.target);
            Meta.apply(incoming.target, incoming.entry);
            skipped(incoming.entry);
        } catch (IOException e) {
            summary.fail(
                incoming.target + ": " + Meta.failure("cannot set its metadata", e).shown());
            counts.settled(0);
        }
    }

    /** What the other side could not read, or left out. */
    static void problem(Failure failure, Summary summary) {
        if (failure.code == Failure.REMARK) {
            summary.remark(failure.shown());
        } else {
            summary.fail(failure.shown());
        }
    }

    private void onHoles(Runs holes) throws WireException {
        Incoming incoming = find(holes.file);
        if (incoming == null && isDead(holes.file)) {
            return;
        }
        if (incoming == null || incoming.part == null) {
            throw new WireException("holes of a file that was not asked for");
        }
        Layout layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
        for (Run run : holes.runs) {
            if (run.count > layout.count() - run.first) {
                throw new WireException("holes beyond the end of a file");
            }
            try {
                if (!incoming.dead) {
                    incoming.part.holes(run.first, run.count);
                }
            } catch (IOException e) {
                giveUp(incoming, Meta.failure("cannot write", e));
            }
        }
    }

    private synchronized Incoming find(long file) {
        return files.get(file);
    }

    private synchronized Incoming settle(long file) {
        return files.remove(file);
    }

    private synchronized boolean isDead(long file) {
        return dead.contains(file);
    }

    /** Forgets a file that is given up, but for its number; false when it was before. */
    private synchronized boolean bury(Incoming incoming) {
        boolean first = !incoming.dead;
        incoming.dead = true;
        files.remove(incoming.entry.id);
        dead.add(incoming.entry.id);
        return first;
    }

    private void onSealed(Message message) throws WireException {
        long file = message.file();
        Incoming incoming = settle(file);
        if (incoming == null && isDead(file)) {
            return;
        }
        if (incoming == null || incoming.part == null || !incoming.part.isWhole()) {
            throw new WireException("file " + file + " was sealed before all of it was here");
        }
        byte[] theirs = message.sealedHash();
        byte[] ours = incoming.part.wholeHash();
        if (theirs != null && ours != null && !Arrays.equals(theirs, ours)) {
            incoming.part.close();
            giveUp(incoming, new Failure(Failure.VERIFICATION, "its content is not what was sent"));
            return;
        }
        try {
            incoming.part.place(durable);
            done(incoming);
        } catch (IOException e) {
            giveUp(incoming, Meta.failure("cannot put it in place", e));
        }
    }

    private void done(Incoming incoming) {
        synchronized (summary) {
            summary.copied++;
        }
        counts.settled(0);
        session.post(Message.files(Message.FINISHED, List.of(incoming.entry.id)));
    }

    /** This side cannot go on with a file. */
    void giveUp(Incoming incoming, Failure failure) {
        if (!bury(incoming)) {
            return;
        }
        if (incoming.part != null) {
            incoming.part.close();
        }
        summary.fail(incoming.target + ": " + failure.shown());
        counts.settled(0);
        session.post(Message.failed(incoming.entry.id, failure));
    }

    private void onAborted(Message message) throws WireException {
        Incoming incoming = find(message.file());
        boolean again = message.again();
        if (incoming == null) {
            return;
        }
        if (!bury(incoming)) {
            return;
        }
        if (incoming.part != null) {
            incoming.part.close();
        }
        if (!again) {
            summary.fail(incoming.target + ": " + message.failureInside().shown());
        }
        counts.settled(0);
    }

    /** A block that begins to arrive; null when it is to be read past. */
    synchronized Incoming claim(long file, long offset, int length) throws WireException {
        Incoming incoming = files.get(file);
        if (incoming == null && dead.contains(file)) {
            return null;
        }
        if (incoming == null || incoming.part == null) {
            throw new WireException("a block of a file that was not asked for");
        }
        Layout layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
        long block = offset / layout.blockBytes;
        boolean aligned = offset % layout.blockBytes == 0 && block < layout.count();
        if (!aligned || layout.length(block) != length) {
            throw new WireException("what is no block of its file");
        }
        if (incoming.part.has(block) || !incoming.arriving.add(block)) {
            throw new WireException("a block comes twice");
        }
        return incoming;
    }

    /** A block has arrived whole, or damaged where there is no hash. */
    void arrived(Incoming incoming, long block, byte[] hash) {
        try {
            synchronized (this) {
                incoming.arriving.remove(block);
                if (incoming.dead) {
                    return;
                }
            }
            if (hash == null) {
                session.post(Message.nack(incoming.entry.id, block));
                return;
            }
            incoming.part.verified(block, hash);
            int length = (int) Math.min(incoming.entry.blockBytes,
                incoming.entry.size - block * incoming.entry.blockBytes);
            counts.arrived(length);
            synchronized (summary) {
                summary.bytes += length;
            }
            Runs run = new Runs(incoming.entry.id, List.of(new Run(block, 1)));
            session.post(Message.acks(List.of(run)));
        } catch (IOException e) {
            giveUp(incoming, Meta.failure("cannot write", e));
        }
    }

    /** A block arrived in part before its connection broke. */
    synchronized void letGo(Incoming incoming, long block) {
        incoming.arriving.remove(block);
    }

    /** A packed file has arrived, whole if its hash is right. */
    void packed(long file, byte[] hash, ByteBuffer content, boolean sound) throws WireException {
        Incoming incoming = find(file);
        if (incoming == null && isDead(file)) {
            return;
        }
        if (incoming == null || incoming.part != null
            || content.remaining() != incoming.entry.size) {
            throw new WireException("a pack holds a file that was not asked for");
        }
        if (!sound || !Arrays.equals(hash, Blake3.hasher().update(content.duplicate()).finish())) {
            session.post(Message.nack(file, 0));
            return;
        }
        try {
            int length = content.remaining();
            Part.put(incoming.target, content, incoming.entry, durable);
            settle(file);
            counts.arrived(length);
            synchronized (summary) {
                summary.bytes += length;
            }
            done(incoming);
        } catch (IOException e) {
            giveUp(incoming, Meta.failure("cannot write", e));
        }
    }

    /** All is here: directories get their modes and times, deepest first. */
    private void finish() throws IOException {
        directories.each(directory -> {
            Path path = directories.path(directory);
            try {
                Meta.apply(path, directory.mode, directory.mtimeSecs, directory.mtimeNanos);
            } catch (IOException e) {
                Failure failure = Meta.failure("cannot set the metadata of " + path, e);
                summary.fail(failure.shown());
                session.post(Message.problem(Meta.bytes(path), failure));
            }
        });
        session.post(Message.report(Message.DONE, new long[5], summary.failed));
        session.awaitClosed();
    }
}
