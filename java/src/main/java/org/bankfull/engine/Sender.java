package org.bankfull.engine;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.bankfull.Summary;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Limits;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Run;
import org.bankfull.wire.Message.Runs;
import org.bankfull.wire.Message.Want;
import org.bankfull.wire.WireException;

/** Sending side of a session: ledger of announced, wanted, sent and completed files. */
final class Sender {
    /** Limit of outstanding entries, at which the walk waits, to bound memory. */
    private static final int MAX_OUTSTANDING_ENTRIES = 4096;
    /** Least limit of outstanding directories that the walk has left. */
    private static final int MIN_OUTSTANDING_DIRECTORIES = 128;
    /** Entries per message (chosen: few messages, yet a prompt first one). */
    private static final int ENTRIES_PER_BATCH = 64;
    /** Completed directories per message, or more (chosen: far fewer than may be outstanding). */
    private static final int COMPLETED_PER_BATCH = 256;
    /** Size of the header of a packed file. */
    private static final int PACKED_FILE_HEADER_BYTES = 8 + 4 + Blake3.HASH_BYTES;

    private final Session session;
    private final Summary summary;
    private final ProgressCounter counter;
    private final ExecutorService comparer = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "bankfull-compare");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Long, OutgoingFile> files = new HashMap<>();
    private final Map<Long, OutgoingLink> symlinks = new HashMap<>();
    private final OpenDirectories directories = new OpenDirectories();
    /** Files with blocks to send, in order of announcement. */
    private final Map<Long, OutgoingFile> ready = new LinkedHashMap<>();
    private final Deque<OutgoingFile> packable = new ArrayDeque<>();
    private final Deque<Integer> endedStreams = new ArrayDeque<>();
    private final List<Entry> pending = new ArrayList<>();
    /** Number of aborted files that will be announced again. */
    private int retrying;
    private final int maxOutstanding;
    private long lastId;
    private boolean entriesEnded;
    private boolean isOver;
    private boolean finished;

    Sender(Session session, Summary summary, ProgressCounter counter, int receiverLimit) {
        this.session = session;
        this.maxOutstanding = Math.max(1, Math.min(receiverLimit, MAX_OUTSTANDING_ENTRIES));
        this.summary = summary;
        this.counter = counter;
    }

    /** Symlink that the receiver has not completed. */
    private static final class OutgoingLink {
        final String path;
        final long parent;

        OutgoingLink(String path, long parent) {
            this.path = path;
            this.parent = parent;
        }
    }

    /** Unit of work of a data stream: a block or a pack. */
    static final class Work {
        final OutgoingFile file;
        final long block;
        final List<OutgoingFile> pack;

        private Work(OutgoingFile file, long block, List<OutgoingFile> pack) {
            this.file = file;
            this.block = block;
            this.pack = pack;
        }
    }

    /**
     * Queues an entry for announcement and assigns its ID.
     *
     * <p>Waits while too many entries are outstanding.
     *
     * @return false if the transfer is over
     */
    boolean announce(Entry entry, Path path) throws IOException, WireException {
        synchronized (this) {
            while (!isOver
                && (files.size() + symlinks.size() >= maxOutstanding
                    || directories.left()
                        >= Math.max(maxOutstanding, MIN_OUTSTANDING_DIRECTORIES))) {
                flush();
                awaitChange();
            }
            if (isOver || session.isOver()) {
                return false;
            }
            register(entry, path, false);
            if (pending.size() >= ENTRIES_PER_BATCH) {
                flush();
            }
            return true;
        }
    }

    /** Throws if the session has ended. */
    void throwIfOver() throws IOException {
        session.throwIfOver();
    }

    /** Records that nothing more is announced in a directory. */
    synchronized void leaveDirectory(long id) {
        directories.leave(id);
        postCompletedDirectories();
    }

    /** Announces completed directories, if they are many. */
    private void postCompletedDirectories() {
        // Finish may follow the last file, and covers the directories that are left.
        if (directories.completed() < COMPLETED_PER_BATCH || isAllCompleted()) {
            return;
        }
        flush();
        List<Long> completed = directories.takeCompleted();
        for (int at = 0; at < completed.size(); at += Limits.MAX_ENTRIES_PER_BATCH) {
            int end = Math.min(at + Limits.MAX_ENTRIES_PER_BATCH, completed.size());
            session.post(
                Message.files(Message.COMPLETED_DIRECTORIES, completed.subList(at, end)));
        }
    }

    /** Posts pending entries; IDs are announced in ascending order. */
    private void flush() {
        if (!pending.isEmpty()) {
            session.post(Message.entries(new ArrayList<>(pending)));
            pending.clear();
        }
    }

    private void register(Entry entry, Path path, boolean isRetry) throws WireException {
        entry.id = ++lastId;
        pending.add(entry);
        if (entry.kind == Entry.DIRECTORY) {
            directories.enter(entry.id, entry.parent);
        } else if (!isRetry) {
            // A retried file has not been completed.
            directories.addEntry(entry.parent);
        }
        if (entry.kind == Entry.FILE) {
            files.put(entry.id, new OutgoingFile(entry, path, isRetry));
            counter.addFile(entry.size);
        } else if (entry.kind == Entry.SYMLINK) {
            symlinks.put(entry.id, new OutgoingLink(path.toString(), entry.parent));
        }
    }

    synchronized void endEntries(Message totals) {
        flush();
        session.post(totals);
        entriesEnded = true;
        notifyAll();
    }

    /** Records and reports an unreadable or skipped source. */
    void reportProblem(Path path, Failure failure) {
        if (failure.code == Failure.WARNING) {
            summary.addWarning(failure.printable());
        } else {
            summary.addFailure(failure.printable());
        }
        session.post(Message.problem(Metadata.nameBytes(path), failure));
    }

    private void awaitChange() throws IOException {
        try {
            wait(100);
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        }
        session.throwIfFailed();
    }

    /** Waits for work of a data stream; returns null if nothing is left to send. */
    Work takeWork(int stream) throws IOException {
        synchronized (this) {
            while (true) {
                session.throwIfFailed();
                if (isAllCompleted() || isOver || endedStreams.contains(stream)) {
                    return null;
                }
                if (!packable.isEmpty()) {
                    return new Work(null, 0, takePack(stream));
                }
                for (OutgoingFile file : ready.values()) {
                    long block = file.nextBlock(stream);
                    if (!file.hasWork()) {
                        ready.remove(file.entry.id);
                    }
                    if (block >= 0) {
                        return new Work(file, block, null);
                    }
                }
                awaitChange();
            }
        }
    }

    private List<OutgoingFile> takePack(int stream) {
        List<OutgoingFile> pack = new ArrayList<>();
        long bytes = 0;
        while (!packable.isEmpty() && bytes < Limits.PACK_TARGET_BYTES
            && pack.size() < Limits.MAX_PACK_FILES) {
            OutgoingFile file = packable.poll();
            file.inFlight.put(0L, stream);
            bytes += PACKED_FILE_HEADER_BYTES + file.entry.size;
            pack.add(file);
        }
        return pack;
    }

    private boolean isAllCompleted() {
        return entriesEnded && files.isEmpty() && symlinks.isEmpty() && retrying == 0;
    }

    /** True if nothing is left to send. */
    synchronized boolean isAllSent() {
        return isOver || isAllCompleted();
    }

    /** Ends the transfer and wakes all waiting threads. */
    synchronized void stop() {
        comparer.shutdownNow();
        isOver = true;
        notifyAll();
    }

    /** Records the hash of a block that was read. */
    synchronized void recordHash(OutgoingFile file, long block, byte[] hash) {
        file.keepHash(block, hash);
    }

    /** Handles messages until Done. */
    void run(DataStreams streams) throws IOException {
        boolean done = false;
        while (!done) {
            Message message = session.receive();
            try {
                done = message.number == Message.DONE;
                if (done) {
                    onDone(message);
                } else {
                    handle(message, streams);
                }
            } catch (WireException e) {
                session.post(Message.error(new Failure(Failure.PROTOCOL, e.getMessage())));
                throw session.protocolError(e);
            }
        }
    }

    private synchronized void onDone(Message message) throws WireException {
        if (!isAllCompleted()) {
            throw new WireException("Done before all files are completed");
        }
        message.peerFailedFiles();
        isOver = true;
        notifyAll();
    }

    private void handle(Message message, DataStreams streams)
        throws WireException, IOException {
        switch (message.number) {
            case Message.WANTS:
                for (Want want : message.wants()) {
                    onWant(want);
                }
                break;
            case Message.HAVE:
                onHave(message.runs());
                break;
            case Message.ACKS:
                for (Runs runs : message.acks()) {
                    onAcks(runs);
                }
                break;
            case Message.NACK:
                onNack(message.file(), message.block());
                break;
            case Message.FINISHED:
                for (long file : message.files()) {
                    onFinished(file);
                }
                break;
            case Message.FAILED:
                onFailed(message.file(), message.nestedFailure());
                break;
            case Message.PROBLEM:
                Receiver.recordProblem(message.nestedFailure(), summary);
                break;
            case Message.STREAM_ENDED:
                onStreamEnded(message.stream(), streams);
                break;
            default:
                // Path measurement and feedback (section 16) is ignored.
                if (message.number < 25) {
                    throw new WireException("message " + message.number
                        + " must not be sent by a receiver");
                }
        }
    }

    private synchronized OutgoingFile find(long file) throws WireException {
        OutgoingFile found = files.get(file);
        if (found == null && (file <= 0 || file > lastId)) {
            throw new WireException("file " + file + " was not announced");
        }
        return found;
    }

    private synchronized void onHave(Runs have) throws WireException {
        OutgoingFile file = find(have.file);
        for (Run run : have.runs) {
            if (file != null) {
                onHave(file, run);
            }
        }
    }

    private void onHave(OutgoingFile file, Run run) throws WireException {
        if (file.isWanted) {
            throw new WireException("blocks reported after the want of their file");
        }
        file.onHave(run);
    }

    private void onWant(Want want) throws WireException, IOException {
        synchronized (this) {
            OutgoingLink symlink = completeSymlink(want.file);
            if (symlink != null) {
                if (want.verdict == Want.REFUSED) {
                    summary.addFailure(symlink.path + ": "
                        + (want.failure == null ? "refused" : want.failure.printable()));
                }
                return;
            }
        }
        OutgoingFile file = find(want.file);
        if (file == null || file.isWanted) {
            throw new WireException("a second want of file " + want.file);
        }
        synchronized (this) {
            for (Run run : want.have) {
                onHave(file, run);
            }
            file.isWanted = true;
        }
        if (want.verdict == Want.IF_DIFFERS) {
            // On a separate thread: this one must continue to read.
            comparer.execute(() -> compare(file, want.hash));
        } else if (want.verdict == Want.SKIP) {
            complete(file);
            countUnchanged(file);
        } else if (want.verdict == Want.REFUSED) {
            complete(file);
            summary.addFailure(file.path + ": "
                + (want.failure == null ? "refused" : want.failure.printable()));
            counter.completeFile(0);
        } else if (want.verdict == Want.WOULD_SEND) {
            complete(file);
            counter.completeFile(0);
        } else {
            schedule(file);
        }
    }

    private void compare(OutgoingFile file, byte[] hash) {
        boolean isSame = isSame(file, hash);
        if (session.isOver()) {
            return;
        }
        if (!isSame) {
            schedule(file);
            return;
        }
        synchronized (this) {
            // Before it is completed: completion may end the session.
            session.post(Message.files(Message.UNCHANGED, List.of(file.entry.id)));
            complete(file);
            countUnchanged(file);
        }
    }

    private void countUnchanged(OutgoingFile file) {
        // Also called by the comparing thread.
        synchronized (summary) {
            summary.skipped++;
        }
        counter.completeFile(file.entry.size);
    }

    private void schedule(OutgoingFile file) {
        synchronized (this) {
            file.isScheduled = true;
            if (file.layout == null) {
                packable.add(file);
            } else if (file.hasWork()) {
                ready.put(file.entry.id, file);
            }
            notifyAll();
        }
        sendDigestIfComplete(file);
    }

    /** True if a file has the content of the destination. */
    private boolean isSame(OutgoingFile file, byte[] hash) {
        try {
            return Arrays.equals(Metadata.hashFile(file.path, session), hash)
                && Metadata.isUnchanged(file.path, file.entry);
        } catch (IOException e) {
            // Reported when it is sent.
            return false;
        }
    }

    private void onAcks(Runs acks) throws WireException, IOException {
        OutgoingFile file = find(acks.file);
        if (file == null) {
            return;
        }
        if (file.layout == null) {
            throw new WireException("an Ack of blocks of a packed file");
        }
        synchronized (this) {
            for (Run run : acks.runs) {
                for (long block = run.first; block < run.first + run.count; block++) {
                    boolean wasLeft = file.onAck(block);
                    long length = file.layout.length(block);
                    counter.addVerified(length);
                    summary.bytes += wasLeft ? 0 : length;
                    summary.bytesResumed += wasLeft ? length : 0;
                }
            }
        }
        sendDigestIfComplete(file);
    }

    private void sendDigestIfComplete(OutgoingFile file) {
        byte[] hash;
        synchronized (this) {
            if (!file.isScheduled || file.isDigestSent || !file.isComplete()) {
                return;
            }
            hash = file.fileHash();
        }
        try {
            if (Metadata.isUnchanged(file.path, file.entry)) {
                file.isDigestSent = true;
                session.post(Message.fileDigest(file.entry.id, hash));
                return;
            }
        } catch (IOException e) {
            // A vanished file counts as changed.
        }
        onSourceChanged(file);
    }

    private void onNack(long id, long block) throws WireException {
        OutgoingFile file = find(id);
        if (file == null) {
            return;
        }
        boolean willRetry;
        synchronized (this) {
            willRetry = file.onNack(block);
            if (willRetry && file.layout == null) {
                packable.add(file);
            } else if (willRetry && file.isScheduled) {
                ready.put(id, file);
            }
            notifyAll();
        }
        if (!willRetry) {
            abort(file, new Failure(Failure.VERIFICATION,
                file.path + " arrived damaged three times: check the memory of both hosts"), false);
        }
    }

    private void onFinished(long id) throws WireException {
        synchronized (this) {
            if (completeSymlink(id) != null) {
                summary.symlinks++;
                return;
            }
        }
        OutgoingFile file = find(id);
        if (file == null) {
            return;
        }
        if (!file.isWanted || file.layout != null && !file.isDigestSent) {
            throw new WireException("file " + id + " is finished before all of it was sent");
        }
        complete(file);
        summary.copied++;
        if (file.layout == null) {
            counter.completeFile(file.entry.size);
            summary.bytes += file.entry.size;
        } else {
            counter.completeFile(0);
        }
    }

    private void onFailed(long id, Failure failure) throws WireException {
        OutgoingFile file = find(id);
        if (file != null) {
            complete(file);
            summary.addFailure(file.path + ": " + failure.printable());
            counter.completeFile(0);
        }
    }

    private void onStreamEnded(int stream, DataStreams streams) {
        synchronized (this) {
            endedStreams.add(stream);
            for (OutgoingFile file : files.values()) {
                if (file.requeueLost(stream)) {
                    if (file.layout == null) {
                        packable.add(file);
                    } else {
                        ready.put(file.entry.id, file);
                    }
                }
            }
            notifyAll();
        }
        streams.onStreamEnded(stream);
    }

    private synchronized void complete(OutgoingFile file) {
        if (remove(file)) {
            completeEntryOf(file.entry.parent);
        }
    }

    private boolean remove(OutgoingFile file) {
        boolean wasOutstanding = files.remove(file.entry.id) != null;
        ready.remove(file.entry.id);
        notifyAll();
        return wasOutstanding;
    }

    /** Removes a completed symlink; returns null if the ID is not that of one. */
    private OutgoingLink completeSymlink(long id) {
        OutgoingLink symlink = symlinks.remove(id);
        if (symlink != null) {
            completeEntryOf(symlink.parent);
            notifyAll();
        }
        return symlink;
    }

    private void completeEntryOf(long directory) {
        directories.removeEntry(directory);
        postCompletedDirectories();
    }

    synchronized boolean isFileCompleted(OutgoingFile file) {
        return !files.containsKey(file.entry.id);
    }

    /** Handles a changed source: announces it again once, then fails it. */
    void onSourceChanged(OutgoingFile file) {
        Failure failure =
            new Failure(Failure.SOURCE_CHANGED, file.path
                + " changed while it was read: copy it again once no program writes to it");
        Entry entry = null;
        try {
            entry = file.isRetry ? null
                : Metadata.readEntry(file.path, file.entry.name, file.entry.parent);
        } catch (IOException e) {
            failure = new Failure(
                Failure.SOURCE_VANISHED, file.path + " vanished while it was read");
        }
        boolean isFile = entry != null && entry.kind == Entry.FILE;
        if (isFileCompleted(file) || !abort(file, failure, isFile) || !isFile) {
            return;
        }
        synchronized (this) {
            retrying--;
            try {
                register(entry, file.path, true);
            } catch (WireException e) {
                summary.addFailure(file.path + ": " + e.getMessage());
            }
            flush();
        }
    }

    /** Aborts a file; returns false if it is already completed. */
    boolean abort(OutgoingFile file, Failure failure, boolean willRetry) {
        synchronized (this) {
            if (files.get(file.entry.id) != file) {
                return false;
            }
            retrying += willRetry ? 1 : 0;
            // Before it is completed: completion may end the session.
            session.post(Message.aborted(file.entry.id, failure, willRetry));
            if (willRetry) {
                remove(file);
            } else {
                complete(file);
            }
        }
        counter.completeFile(0);
        if (!willRetry) {
            summary.addFailure(failure.printable());
        }
        return true;
    }

    /** Waits until all files are completed. */
    void awaitCompletion() throws IOException {
        synchronized (this) {
            while (!isAllCompleted() && !isOver) {
                awaitChange();
            }
        }
    }

    synchronized void finish() {
        session.post(Message.sideSummary(Message.FINISH, new long[5], summary.failed));
        finished = true;
        notifyAll();
    }

    /** Waits until this side has sent Finish. */
    synchronized void awaitFinished() throws IOException {
        while (!finished) {
            awaitChange();
        }
    }
}
