package org.bankfull.engine;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.bankfull.Summary;
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

/** The receiving side: answers announcements, puts files in place, keeps the books of what arrives. */
final class Receiver {
    private static final int OWNER_ALL = 0700;

    private final Session session;
    private final Landing landing;
    private final List<Source> sources;
    private final boolean checksum;
    private final boolean durable;
    private final Summary summary;
    private final Counts counts;
    private final Map<Long, Directory> directories = new HashMap<>();
    /** In the order announced, so that backwards the deepest come first. */
    private final Deque<Directory> announced = new ArrayDeque<>();
    private final Map<Long, Incoming> files = new HashMap<>();
    private long lastId;
    private boolean entriesEnded;

    /** A directory of the tree. */
    private static final class Directory {
        final Path path;
        final Entry entry;
        /** It could not be made: neither can what is in it. */
        final boolean failed;
        /** It was made just now, so nothing is in it. */
        final boolean fresh;

        Directory(Path path, Entry entry, boolean failed, boolean fresh) {
            this.path = path;
            this.entry = entry;
            this.failed = failed;
            this.fresh = fresh;
        }
    }

    Receiver(Session session, Landing landing, List<Source> sources, boolean checksum, boolean durable,
        Summary summary, Counts counts) {
        this.session = session;
        this.landing = landing;
        this.sources = sources;
        this.checksum = checksum;
        this.durable = durable;
        this.summary = summary;
        this.counts = counts;
        directories.put(0L, new Directory(landing.base, null, false, false));
    }

    /** Handles messages until the sender has finished. */
    void run(DataConnections connections) throws IOException {
        while (true) {
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

    private void handle(Message message, DataConnections connections) throws IOException, WireException {
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
            Directory parent = directories.get(entry.parent);
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

    /** The path that an entry gets. Its name is a single component. */
    private Path place(Entry entry, Directory parent) throws Refused {
        if (entry.name.length == 0) {
            return parent.path;
        }
        if (parent.failed) {
            throw new Refused(new Failure(Failure.IO, "its directory could not be made"));
        }
        if (landing.rename != null && entry.parent == 0 && entry.kind != Entry.DIRECTORY) {
            return parent.path.resolve(landing.rename);
        }
        try {
            return parent.path.resolve(decode(entry.name, "name"));
        } catch (InvalidPathException e) {
            throw new Refused(new Failure(Failure.USAGE,
                "its name cannot be written under this locale: run with LC_ALL=C.UTF-8"));
        }
    }

    private static String decode(byte[] bytes, String what) throws Refused {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            throw new Refused(new Failure(Failure.USAGE, "its " + what + " is no UTF-8, which Java cannot write"));
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
        Directory made;
        try {
            Path path = place(entry, parent);
            boolean fresh = entry.name.length > 0 && makeDirectory(path);
            made = new Directory(path, entry, false, fresh);
            announced.push(made);
            summary.directories++;
        } catch (Refused refused) {
            problem(entry, parent, refused.failure);
            made = new Directory(parent.path, entry, true, false);
        } catch (IOException e) {
            problem(entry, parent, Meta.failure("cannot make the directory", e));
            made = new Directory(parent.path, entry, true, false);
        }
        directories.put(entry.id, made);
    }

    /** True when it was made just now. */
    private static boolean makeDirectory(Path path) throws IOException {
        try {
            Files.createDirectory(path);
            return true;
        } catch (FileAlreadyExistsException e) {
            if (!Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) {
                throw new IOException("something else is in the way: remove or rename it", e);
            }
            if (!Files.isWritable(path)) {
                // As an earlier run left it; it gets its mode again at the end.
                Meta.setMode(path, OWNER_ALL);
            }
            return false;
        }
    }

    private void problem(Entry entry, Directory parent, Failure failure) {
        String shown = shown(entry, parent);
        summary.fail(shown + ": " + failure.shown());
        session.post(Message.problem(shown.getBytes(StandardCharsets.UTF_8), failure));
    }

    private static String shown(Entry entry, Directory parent) {
        return parent.path.resolve("") + "/" + new Failure(0, new String(entry.name, StandardCharsets.UTF_8)).shown();
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
        try {
            BasicFileAttributes found = Meta.look(path);
            if (found.isDirectory() || found.isOther()) {
                String what = found.isDirectory() ? "a directory" : "a device, FIFO or socket";
                throw new Refused(new Failure(
                    found.isDirectory() ? Failure.IS_A_DIRECTORY : Failure.USAGE,
                    what + " is in the way: remove or rename it"));
            }
        } catch (NoSuchFileException e) {
            // Nothing is.
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
            Incoming incoming = new Incoming(entry, parent.path, target);
            BasicFileAttributes existing = parent.fresh ? null : existing(target);
            boolean sameSize = existing != null && existing.isRegularFile() && existing.size() == entry.size;
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

    private static BasicFileAttributes existing(Path target) throws IOException {
        try {
            return Meta.look(target);
        } catch (NoSuchFileException e) {
            return null;
        }
    }

    private Want skip(Entry entry, Path target) throws IOException {
        if (entry.blockBytes != 0) {
            Part.drop(target);
        }
        Meta.apply(target, entry);
        summary.skipped++;
        counts.settled(entry.size);
        return new Want(entry.id, Want.SKIP);
    }

    /** Opens the part of a file of blocks, and says what of it is here. */
    private void open(Incoming incoming, Want want) throws IOException {
        incoming.part = Part.of(incoming.directory, incoming.target, incoming.entry);
        BitSet here = incoming.part.here();
        List<Run> have = new ArrayList<>();
        for (int at = here.nextSetBit(0); at >= 0;) {
            int end = here.nextClearBit(at);
            have.add(new Run(at, end - at));
            long bytes = Math.min(incoming.entry.size, (long) end * incoming.entry.blockBytes)
                - (long) at * incoming.entry.blockBytes;
            summary.bytesResumed += bytes;
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
        Blake3 hasher = Blake3.hasher();
        ByteBuffer buffer = ByteBuffer.allocate(256 << 10);
        try (java.nio.channels.FileChannel file = java.nio.channels.FileChannel.open(incoming.target)) {
            while (file.read(buffer.clear()) > 0) {
                hasher.update(buffer.flip());
            }
        } catch (IOException e) {
            // It is gone or cannot be read: then it is replaced.
            return want;
        }
        incoming.compared = true;
        Want compare = new Want(want.file, Want.IF_DIFFERS);
        compare.have = want.have;
        compare.hash = hasher.finish();
        return compare;
    }

    private void onUnchanged(long file) throws WireException {
        Incoming incoming = settle(file);
        if (incoming == null || !incoming.compared) {
            throw new WireException("file " + file + " is unchanged, which nobody asked");
        }
        if (incoming.part != null) {
            incoming.part.close();
        }
        try {
            Part.drop(incoming.target);
            Meta.apply(incoming.target, incoming.entry);
            summary.skipped++;
            counts.settled(incoming.entry.size);
        } catch (IOException e) {
            summary.fail(incoming.target + ": " + Meta.failure("cannot set its metadata", e).text);
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
        if (incoming == null || incoming.part == null) {
            throw new WireException("holes of a file that was not asked for");
        }
        for (Run run : holes.runs) {
            Layout layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
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

    private void onSealed(Message message) throws WireException {
        Incoming incoming = settle(message.file());
        if (incoming == null || incoming.part == null || !incoming.dead && !incoming.part.isWhole()) {
            throw new WireException("file " + message.file() + " was sealed before all of it was here");
        }
        if (incoming.dead) {
            return;
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
        synchronized (this) {
            if (incoming.dead) {
                return;
            }
            incoming.dead = true;
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
        boolean first;
        synchronized (this) {
            first = !incoming.dead;
            incoming.dead = true;
        }
        if (incoming.part != null) {
            incoming.part.close();
        }
        if (first) {
            if (!again) {
                summary.fail(incoming.target + ": " + message.failureInside().shown());
            }
            counts.settled(0);
        }
    }

    /** A block that begins to arrive; null when it is to be read past. */
    synchronized Incoming claim(long file, long offset, int length) throws WireException {
        Incoming incoming = files.get(file);
        if (incoming == null || incoming.part == null) {
            throw new WireException("a block of a file that was not asked for");
        }
        Layout layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
        long block = offset / layout.blockBytes;
        if (offset % layout.blockBytes != 0 || block >= layout.count() || layout.length(block) != length) {
            throw new WireException("what is no block of its file");
        }
        if (incoming.dead) {
            return null;
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
        if (incoming == null || incoming.part != null || content.remaining() != incoming.entry.size) {
            throw new WireException("a pack holds a file that was not asked for");
        }
        if (incoming.dead) {
            return;
        }
        if (!sound || !Arrays.equals(hash, Blake3.hasher().update(content.duplicate()).finish())) {
            session.post(Message.nack(file, 0));
            return;
        }
        try {
            int length = content.remaining();
            write(incoming, content);
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

    private void write(Incoming incoming, ByteBuffer content) throws IOException {
        Path draft = Part.partOf(incoming.target);
        Part.drop(incoming.target);
        try (java.nio.channels.FileChannel out = Meta.create(draft)) {
            while (content.hasRemaining()) {
                out.write(content);
            }
            if (durable) {
                out.force(true);
            }
        }
        Meta.apply(draft, incoming.entry);
        Part.rename(draft, incoming.target);
    }

    /** All is here: directories get their modes and times, deepest first. */
    private void finish() throws IOException {
        for (Directory directory : announced) {
            try {
                Meta.apply(directory.path, directory.entry);
            } catch (IOException e) {
                Failure failure = Meta.failure("cannot set the metadata of " + directory.path, e);
                summary.fail(failure.shown());
                session.post(Message.problem(Meta.bytes(directory.path), failure));
            }
        }
        session.post(Message.report(Message.DONE, new long[5], summary.failed));
        session.awaitClosed();
    }
}
