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
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
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
 * Receiving side of a session: answers announcements, verifies blocks and completes files.
 *
 * <p>A completed file occupies no memory.
 */
final class Receiver {
    /** Limit of outstanding files (chosen: a few MB of memory, several packs ahead). */
    static final int MAX_OUTSTANDING_FILES = 4096;

    private final Session session;
    private final Destination destination;
    private final List<Source> sources;
    private final boolean checksum;
    private final boolean durable;
    private final Summary summary;
    private final ProgressCounter counter;
    private final Directories directories;
    private final ExecutorService checker = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "bankfull-check");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Long, IncomingFile> files = new HashMap<>();
    /** IDs of files that failed on either side; their further data is discarded. */
    private final RangeSet abandonedIds = new RangeSet();
    private long lastId;
    private boolean entriesEnded;

    Receiver(Session session, Destination destination, List<Source> sources, boolean checksum,
        boolean durable, Summary summary, ProgressCounter counter) {
        this.session = session;
        this.destination = destination;
        this.sources = sources;
        this.checksum = checksum;
        this.durable = durable;
        this.summary = summary;
        this.counter = counter;
        this.directories = new Directories(destination.base);
    }

    /** Handles messages until Finish. */
    void run(DataStreams streams) throws IOException {
        while (true) {
            session.awaitQueueSpace();
            Message message = session.receive();
            try {
                if (message.number == Message.FINISH) {
                    if (!entriesEnded) {
                        throw new WireException("Finish before EntriesEnd");
                    }
                    streams.awaitEnd();
                    finish();
                    return;
                }
                handle(message, streams);
            } catch (WireException e) {
                session.post(Message.error(new Failure(Failure.PROTOCOL, e.getMessage())));
                throw session.protocolError(e);
            }
        }
    }

    /** Closes the part files of incomplete files, for a later run to resume. */
    synchronized void close() {
        checker.shutdown();
        for (IncomingFile incoming : files.values()) {
            incoming.isAbandoned = true;
            if (incoming.part != null) {
                incoming.part.close();
            }
        }
    }

    private void handle(Message message, DataStreams streams)
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
                recordProblem(message.nestedFailure(), summary);
                break;
            case Message.HOLES:
                onHoles(message.runs());
                break;
            case Message.FILE_DIGEST:
                onFileDigest(message);
                break;
            case Message.ABORTED:
                onAborted(message);
                break;
            case Message.UNCHANGED:
                for (long file : message.files()) {
                    session.throwIfOver();
                    onUnchanged(file);
                }
                break;
            case Message.COMPLETED_DIRECTORIES:
                for (long directory : message.files()) {
                    session.throwIfOver();
                    directories.complete(directory, this::applyMetadata);
                }
                break;
            case Message.STREAM_LOST:
                streams.onStreamLost(message.stream());
                break;
            default:
                // Path measurement and feedback (section 16) is ignored.
                if (message.number < 25) {
                    throw new WireException("message " + message.number
                        + " must not be sent by a sender");
                }
        }
    }

    /** Checks a batch of entries as a whole: a refused one must leave nothing on the disk. */
    private void checkEntries(List<Entry> entries) throws WireException {
        Set<Long> announced = new HashSet<>();
        for (Entry entry : entries) {
            boolean hasParent =
                directories.find(entry.parent) != null || announced.contains(entry.parent);
            if (entry.id <= lastId || !hasParent) {
                throw new WireException("entry " + entry.id + " is out of order");
            }
            if (entry.parent == 0 && !RequestedSources.contains(sources, entry)) {
                throw new WireException("entry " + entry.id + " was not requested");
            }
            lastId = entry.id;
            if (entry.kind == Entry.DIRECTORY) {
                announced.add(entry.id);
            }
        }
        if (directories.size() + announced.size() > Limits.MAX_OPEN_DIRECTORIES + 1) {
            throw new WireException("too many directories are not completed");
        }
    }

    private void onEntries(List<Entry> entries) throws IOException, WireException {
        checkEntries(entries);
        List<Want> wants = new ArrayList<>();
        List<Long> created = new ArrayList<>();
        List<IncomingFile> resumed = new ArrayList<>();
        for (Entry entry : entries) {
            session.throwIfOver();
            Directory parent = directories.find(entry.parent);
            if (entry.kind == Entry.DIRECTORY) {
                onDirectory(entry, parent);
            } else if (entry.kind == Entry.SYMLINK) {
                onSymlink(entry, parent, wants, created);
            } else if (entry.isOther()) {
                summary.addWarning("skipped " + displayPath(entry, parent)
                    + ": this client creates files, directories and symlinks only");
                wants.add(new Want(entry.id, Want.SKIP));
            } else {
                wants.add(onFile(entry, parent, resumed));
            }
        }
        // The last entry may have been left for the end of the session.
        session.throwIfOver();
        if (!wants.isEmpty()) {
            session.post(Message.wants(wants));
        }
        // After the wants, which report the blocks.
        resumed.forEach(incoming -> checker.execute(() -> checkBlocks(incoming)));
        if (!created.isEmpty()) {
            session.post(Message.files(Message.FINISHED, created));
        }
    }

    /** Returns the target path of a file or symlink. */
    private Path targetPath(Entry entry, Directory parent) throws RefusedException {
        String name = name(entry, parent);
        if (destination.rename != null && entry.parent == 0) {
            name = destination.rename;
        }
        return directories.path(parent).resolve(name);
    }

    /** Returns the name of an entry, if this locale can represent it. */
    private String name(Entry entry, Directory parent) throws RefusedException {
        if (parent.isFailed) {
            throw new RefusedException(
                new Failure(Failure.IO, "its directory could not be created"));
        }
        String name = decodeUtf8(entry.name, "name");
        try {
            Paths.get(name);
        } catch (InvalidPathException e) {
            throw new RefusedException(new Failure(Failure.USAGE,
                "its name cannot be written under this locale: run with LC_ALL=C.UTF-8"));
        }
        FoldedNames.Earlier earlier = directories.recordName(parent, name);
        if (earlier != null) {
            throw new RefusedException(new Failure(Failure.USAGE, earlier.isCertain
                ? "it is " + earlier.name
                    + " on this file system, which ignores case: rename one of them"
                : "it may be " + earlier.name + " on this file system, where the test for that"
                    + " failed: copy again, or rename one of them"));
        }
        return name;
    }

    private static String decodeUtf8(byte[] bytes, String kind) throws RefusedException {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            throw new RefusedException(new Failure(Failure.USAGE,
                "its " + kind
                + " is not valid UTF-8, which Java cannot write: rename it at the source"));
        }
    }

    /** Refusal of an entry. */
    private static final class RefusedException extends Exception {
        private static final long serialVersionUID = 1;
        final transient Failure failure;

        RefusedException(Failure failure) {
            this.failure = failure;
        }
    }

    private void onDirectory(Entry entry, Directory parent) {
        try {
            directories.create(entry, parent, name(entry, parent));
            summary.directories++;
        } catch (RefusedException refused) {
            reportProblem(entry, parent, refused.failure);
            directories.addFailed(entry, parent);
        } catch (IOException e) {
            reportProblem(entry, parent, Metadata.failure("cannot create the directory", e));
            directories.addFailed(entry, parent);
        }
    }

    private void reportProblem(Entry entry, Directory parent, Failure failure) {
        String path = displayPath(entry, parent);
        summary.addFailure(path + ": " + failure.printable());
        session.post(Message.problem(path.getBytes(StandardCharsets.UTF_8), failure));
    }

    private String displayPath(Entry entry, Directory parent) {
        String name = destination.rename != null && entry.parent == 0
            ? destination.rename
            : new String(entry.name, StandardCharsets.UTF_8);
        String directory = directories.path(parent).toString();
        return new Failure(0, directory.isEmpty() ? name : directory + "/" + name).printable();
    }

    private void onSymlink(Entry entry, Directory parent, List<Want> wants, List<Long> created) {
        try {
            Path path = targetPath(entry, parent);
            Path target = Paths.get(decodeUtf8(entry.target, "target"));
            if (Files.isSymbolicLink(path) && Files.readSymbolicLink(path).equals(target)) {
                wants.add(new Want(entry.id, Want.SKIP));
                return;
            }
            checkReplaceable(path);
            Path temporary = PartFile.partPath(path);
            PartFile.discard(path);
            Files.createSymbolicLink(temporary, target);
            PartFile.rename(temporary, path);
            summary.symlinks++;
            created.add(entry.id);
        } catch (RefusedException refused) {
            wants.add(refuse(entry, parent, refused.failure));
        } catch (IOException | InvalidPathException | UnsupportedOperationException e) {
            IOException io = e instanceof IOException ? (IOException) e : new IOException(e);
            wants.add(refuse(entry, parent, Metadata.failure("cannot create the symlink", io)));
        }
    }

    private static void checkReplaceable(Path path) throws IOException, RefusedException {
        BasicFileAttributes found = Metadata.attributesIfExists(path);
        if (found != null && (found.isDirectory() || found.isOther())) {
            String kind = found.isDirectory() ? "a directory" : Metadata.describeKind(found);
            throw new RefusedException(new Failure(
                found.isDirectory() ? Failure.IS_A_DIRECTORY : Failure.USAGE,
                kind + " is in the way: remove or rename it"));
        }
    }

    private Want refuse(Entry entry, Directory parent, Failure failure) {
        summary.addFailure(displayPath(entry, parent) + ": " + failure.printable());
        counter.completeFile(0);
        Want want = new Want(entry.id, Want.REFUSED);
        want.failure = failure;
        return want;
    }

    private Want onFile(Entry entry, Directory parent, List<IncomingFile> resumed) {
        counter.addFile(entry.size);
        try {
            Path target = targetPath(entry, parent);
            checkReplaceable(target);
            IncomingFile incoming = new IncomingFile(entry, target);
            BasicFileAttributes existing =
                parent.isNew ? null : Metadata.attributesIfExists(target);
            boolean sameSize =
                existing != null && existing.isRegularFile() && existing.size() == entry.size;
            if (sameSize && !checksum && Metadata.matchesTime(entry, existing.lastModifiedTime())) {
                return skip(entry, target);
            }
            Want want = new Want(entry.id, Want.SEND);
            if (entry.blockBytes != 0) {
                openPart(incoming, want);
                resumed.add(incoming);
            }
            synchronized (this) {
                files.put(entry.id, incoming);
            }
            return sameSize && checksum ? compare(want, incoming) : want;
        } catch (RefusedException refused) {
            return refuse(entry, parent, refused.failure);
        } catch (IOException e) {
            return refuse(entry, parent, Metadata.failure("cannot write", e));
        }
    }

    private Want skip(Entry entry, Path target) throws IOException {
        if (entry.blockBytes != 0) {
            PartFile.discard(target);
        }
        Metadata.apply(target, entry);
        countUnchanged(entry);
        return new Want(entry.id, Want.SKIP);
    }

    private void countUnchanged(Entry entry) {
        synchronized (summary) {
            summary.skipped++;
        }
        counter.completeFile(entry.size);
    }

    /** Opens the part file and reports the blocks that an earlier run left. */
    private void openPart(IncomingFile incoming, Want want) throws IOException {
        incoming.part = PartFile.open(incoming.target, incoming.entry, session);
        BitSet left = new BitSet();
        for (long block : incoming.part.leftBlocks()) {
            left.set((int) block);
        }
        List<Run> have = new ArrayList<>();
        for (int at = left.nextSetBit(0); at >= 0;) {
            int end = left.nextClearBit(at);
            have.add(new Run(at, end - at));
            at = left.nextSetBit(end);
        }
        int maxRuns = Limits.MAX_RUNS / 16;
        for (int at = 0; have.size() > maxRuns && at < have.size(); at += maxRuns) {
            List<Run> batch = have.subList(at, Math.min(have.size(), at + maxRuns));
            session.post(Message.have(new Runs(incoming.entry.id, batch)));
        }
        want.have = have.size() > maxRuns ? List.of() : have;
    }

    /** Hashes the blocks that an earlier run left, and requests those that are damaged. */
    private void checkBlocks(IncomingFile incoming) {
        long file = incoming.entry.id;
        try {
            for (long block : incoming.part.leftBlocks()) {
                session.throwIfOver();
                synchronized (this) {
                    if (incoming.isAbandoned || incoming.isUnchanged) {
                        return;
                    }
                }
                Boolean isIntact = incoming.part.check(block);
                if (isIntact == null) {
                    continue;
                }
                if (!isIntact) {
                    session.post(Message.nack(file, block));
                    continue;
                }
                long length = Math.min(incoming.entry.blockBytes,
                    incoming.entry.size - block * incoming.entry.blockBytes);
                counter.addVerified(length);
                synchronized (summary) {
                    summary.bytesResumed += length;
                }
                session.post(Message.acks(List.of(new Runs(file, List.of(new Run(block, 1))))));
            }
        } catch (IOException e) {
            if (!incoming.isUnchanged && !session.isOver()) {
                failFile(incoming, Metadata.failure("cannot read what an earlier run left", e));
            }
        }
    }

    /** Requests a comparison with the existing file. */
    private Want compare(Want want, IncomingFile incoming) {
        byte[] hash;
        try {
            hash = Metadata.hashFile(incoming.target, session);
        } catch (IOException e) {
            // Missing or unreadable: it will be replaced.
            return want;
        }
        incoming.isCompared = true;
        Want compare = new Want(want.file, Want.IF_DIFFERS);
        compare.have = want.have;
        compare.hash = hash;
        return compare;
    }

    private void onUnchanged(long file) throws WireException {
        IncomingFile incoming = removeFile(file);
        if (incoming == null && isAbandoned(file)) {
            return;
        }
        if (incoming == null || !incoming.isCompared) {
            throw new WireException(
                "file " + file + " is reported unchanged, but was not compared");
        }
        incoming.isUnchanged = true;
        if (incoming.part != null) {
            incoming.part.close();
        }
        try {
            PartFile.discard(incoming.target);
            Metadata.apply(incoming.target, incoming.entry);
            countUnchanged(incoming.entry);
        } catch (IOException e) {
            summary.addFailure(
                incoming.target + ": "
                    + Metadata.failure("cannot set its metadata", e).printable());
            counter.completeFile(0);
        }
    }

    /** Records a Problem of the peer: a failure or a warning. */
    static void recordProblem(Failure failure, Summary summary) {
        if (failure.code == Failure.WARNING) {
            summary.addWarning(failure.printable());
        } else {
            summary.addFailure(failure.printable());
        }
    }

    private void onHoles(Runs holes) throws IOException, WireException {
        IncomingFile incoming = find(holes.file);
        if (incoming == null && isAbandoned(holes.file)) {
            return;
        }
        if (incoming == null || incoming.part == null) {
            throw new WireException("holes of a file that was not requested");
        }
        Layout layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
        for (Run run : holes.runs) {
            if (run.count > layout.blockCount() - run.first) {
                throw new WireException("holes beyond the end of a file");
            }
            try {
                if (!incoming.isAbandoned) {
                    incoming.part.recordHoles(run.first, run.count);
                }
            } catch (IOException e) {
                session.throwIfOver();
                failFile(incoming, Metadata.failure("cannot write", e));
            }
        }
    }

    private synchronized IncomingFile find(long file) {
        return files.get(file);
    }

    private synchronized IncomingFile removeFile(long file) {
        return files.remove(file);
    }

    private synchronized boolean isAbandoned(long file) {
        return abandonedIds.contains(file);
    }

    /** Removes a failed file except for its ID; returns false if it was removed before. */
    private synchronized boolean abandon(IncomingFile incoming) {
        boolean first = !incoming.isAbandoned;
        incoming.isAbandoned = true;
        files.remove(incoming.entry.id);
        abandonedIds.add(incoming.entry.id);
        return first;
    }

    private void onFileDigest(Message message) throws WireException {
        long file = message.file();
        IncomingFile incoming = removeFile(file);
        if (incoming == null && isAbandoned(file)) {
            return;
        }
        if (incoming == null || incoming.part == null || !incoming.part.isComplete()) {
            throw new WireException("file " + file + " has a digest but missing blocks");
        }
        byte[] sourceHash = message.fileDigestHash();
        byte[] receivedHash = incoming.part.fileHash();
        if (sourceHash != null && receivedHash != null
            && !Arrays.equals(sourceHash, receivedHash)) {
            incoming.part.close();
            failFile(incoming,
                new Failure(Failure.VERIFICATION, "its content differs from the source"));
            return;
        }
        try {
            incoming.part.moveIntoPlace(durable);
            complete(incoming);
        } catch (IOException e) {
            failFile(incoming, Metadata.failure("cannot move it into place", e));
        }
    }

    private void complete(IncomingFile incoming) {
        synchronized (summary) {
            summary.copied++;
        }
        counter.completeFile(0);
        session.post(Message.files(Message.FINISHED, List.of(incoming.entry.id)));
    }

    /** Fails a file on this side and reports it. */
    void failFile(IncomingFile incoming, Failure failure) {
        if (!abandon(incoming)) {
            return;
        }
        if (incoming.part != null) {
            incoming.part.close();
        }
        summary.addFailure(incoming.target + ": " + failure.printable());
        counter.completeFile(0);
        session.post(Message.failed(incoming.entry.id, failure));
    }

    private void onAborted(Message message) throws WireException {
        IncomingFile incoming = find(message.file());
        boolean willRetry = message.willRetry();
        if (incoming == null) {
            return;
        }
        if (!abandon(incoming)) {
            return;
        }
        if (incoming.part != null) {
            incoming.part.close();
        }
        if (!willRetry) {
            summary.addFailure(incoming.target + ": " + message.nestedFailure().printable());
        }
        counter.completeFile(0);
    }

    /** Claims an arriving block; returns null if its data is to be discarded. */
    synchronized IncomingFile claim(long file, long offset, int length) throws WireException {
        IncomingFile incoming = files.get(file);
        if (incoming == null && abandonedIds.contains(file)) {
            return null;
        }
        if (incoming == null || incoming.part == null) {
            throw new WireException("a block of a file that was not requested");
        }
        Layout layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
        long block = offset / layout.blockBytes;
        boolean aligned = offset % layout.blockBytes == 0 && block < layout.blockCount();
        if (!aligned || layout.length(block) != length) {
            throw new WireException("offset or length do not match a block");
        }
        if (incoming.part.hasBlock(block) || !incoming.claimed.add(block)) {
            throw new WireException("a block was received twice");
        }
        return incoming;
    }

    /** Handles a received block; {@code hash} is null if it is damaged. */
    void onBlock(IncomingFile incoming, long block, byte[] hash) {
        try {
            synchronized (this) {
                incoming.claimed.remove(block);
                if (incoming.isAbandoned) {
                    return;
                }
            }
            if (hash == null) {
                session.post(Message.nack(incoming.entry.id, block));
                return;
            }
            incoming.part.recordVerified(block, hash);
            int length = (int) Math.min(incoming.entry.blockBytes,
                incoming.entry.size - block * incoming.entry.blockBytes);
            counter.addVerified(length);
            synchronized (summary) {
                summary.bytes += length;
            }
            Runs run = new Runs(incoming.entry.id, List.of(new Run(block, 1)));
            session.post(Message.acks(List.of(run)));
        } catch (IOException e) {
            failFile(incoming, Metadata.failure("cannot write", e));
        }
    }

    /** Releases the claim of a block whose data stream was lost. */
    synchronized void releaseClaim(IncomingFile incoming, long block) {
        incoming.claimed.remove(block);
    }

    /** Handles a received packed file. */
    void onPackedFile(long file, byte[] hash, ByteBuffer content, boolean isValid)
        throws WireException {
        IncomingFile incoming = find(file);
        if (incoming == null && isAbandoned(file)) {
            return;
        }
        if (incoming == null || incoming.part != null
            || content.remaining() != incoming.entry.size) {
            throw new WireException("a packed file that was not requested");
        }
        if (!isValid
            || !Arrays.equals(hash, Blake3.hasher().update(content.duplicate()).finish())) {
            session.post(Message.nack(file, 0));
            return;
        }
        try {
            int length = content.remaining();
            PartFile.writeSmallFile(incoming.target, content, incoming.entry, durable);
            removeFile(file);
            counter.addVerified(length);
            synchronized (summary) {
                summary.bytes += length;
            }
            complete(incoming);
        } catch (IOException e) {
            failFile(incoming, Metadata.failure("cannot write", e));
        }
    }

    /** Sets the metadata of directories, deepest first, and sends Done. */
    private void finish() throws IOException {
        directories.forEachDeepestFirst(this::applyMetadata);
        session.finish(Message.sideSummary(Message.DONE, new long[5], summary.failed));
    }

    private void applyMetadata(Directory directory) {
        Path path = directories.path(directory);
        try {
            Metadata.apply(path, directory.mode, directory.mtimeSecs, directory.mtimeNanos);
        } catch (IOException e) {
            Failure failure = Metadata.failure("cannot set the metadata of " + path, e);
            summary.addFailure(failure.printable());
            session.post(Message.problem(Metadata.nameBytes(path), failure));
        }
    }
}
