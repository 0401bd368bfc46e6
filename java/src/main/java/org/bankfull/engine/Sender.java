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

/** The sending side: the books of what was announced, wanted, sent and settled. */
final class Sender {
    /** The walk waits while so much of what it found is not settled: that is what memory holds. */
    private static final int UNSETTLED_MAX = 4096;
    /**
     * Entries in a message: enough to make messages few, few enough to have the first leave soon.
     */
    private static final int BATCH = 64;
    /** Of a record in a pack, before the content. */
    private static final int RECORD_HEAD_BYTES = 8 + 4 + Blake3.HASH_BYTES;

    private final Session session;
    private final Summary summary;
    private final Counts counts;
    private final ExecutorService comparing = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "bankfull-compare");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Long, Outgoing> files = new HashMap<>();
    private final Map<Long, String> symlinks = new HashMap<>();
    /** Files of blocks with blocks to send, the first announced first. */
    private final Map<Long, Outgoing> ready = new LinkedHashMap<>();
    private final Deque<Outgoing> small = new ArrayDeque<>();
    private final Deque<Integer> endedStreams = new ArrayDeque<>();
    private final List<Entry> pending = new ArrayList<>();
    /** Files that were given up and are not announced again yet. */
    private int retrying;
    private long lastId;
    private boolean entriesEnded;
    private boolean over;
    private boolean finished;

    Sender(Session session, Summary summary, Counts counts) {
        this.session = session;
        this.summary = summary;
        this.counts = counts;
    }

    /** Something to send: a block of a file, or some small files. */
    static final class Work {
        final Outgoing file;
        final long block;
        final List<Outgoing> pack;

        private Work(Outgoing file, long block, List<Outgoing> pack) {
            this.file = file;
            this.block = block;
            this.pack = pack;
        }
    }

    /**
     * Announces an entry, soon, and gives it its number. Waits while too much is unsettled; false
     * when the transfer is over.
     */
    boolean announce(Entry entry, Path path) throws IOException, WireException {
        synchronized (this) {
            while (!over && files.size() + symlinks.size() > UNSETTLED_MAX) {
                flush();
                await();
            }
            if (over || session.isOver()) {
                return false;
            }
            enter(entry, path, false);
            if (pending.size() >= BATCH) {
                flush();
            }
            return true;
        }
    }

    /** Numbers go out in ascending order: whoever takes one posts what waits before. */
    private void flush() {
        if (!pending.isEmpty()) {
            session.post(Message.entries(new ArrayList<>(pending)));
            pending.clear();
        }
    }

    private void enter(Entry entry, Path path, boolean again) throws WireException {
        entry.id = ++lastId;
        pending.add(entry);
        if (entry.kind == Entry.FILE) {
            files.put(entry.id, new Outgoing(entry, path, again));
            counts.announced(entry.size);
        } else if (entry.kind == Entry.SYMLINK) {
            symlinks.put(entry.id, path.toString());
        }
    }

    synchronized void endOfEntries(Message totals) {
        flush();
        session.post(totals);
        entriesEnded = true;
        notifyAll();
    }

    /** A source that cannot be read, or is left out. */
    void problem(Path path, Failure failure) {
        if (failure.code == Failure.REMARK) {
            summary.remark(failure.shown());
        } else {
            summary.fail(failure.shown());
        }
        session.post(Message.problem(Meta.bytes(path), failure));
    }

    private void await() throws IOException {
        try {
            wait(100);
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        }
        session.check();
    }

    /** The next thing to send on a connection; null when all is settled. */
    Work take(int stream) throws IOException {
        synchronized (this) {
            while (true) {
                session.check();
                if (isSettled() || over || endedStreams.contains(stream)) {
                    return null;
                }
                if (!small.isEmpty()) {
                    return new Work(null, 0, takePack(stream));
                }
                for (Outgoing file : ready.values()) {
                    long block = file.take(stream);
                    if (!file.hasWork()) {
                        ready.remove(file.entry.id);
                    }
                    if (block >= 0) {
                        return new Work(file, block, null);
                    }
                }
                await();
            }
        }
    }

    private List<Outgoing> takePack(int stream) {
        List<Outgoing> pack = new ArrayList<>();
        long bytes = 0;
        while (!small.isEmpty() && bytes < Limits.PACK_BYTES_AIMED
            && pack.size() < Limits.PACK_FILES) {
            Outgoing file = small.poll();
            file.sent.put(0L, stream);
            bytes += RECORD_HEAD_BYTES + file.entry.size;
            pack.add(file);
        }
        return pack;
    }

    private boolean isSettled() {
        return entriesEnded && files.isEmpty() && symlinks.isEmpty() && retrying == 0;
    }

    /** Whether nothing is left to be sent. */
    synchronized boolean isDone() {
        return over || isSettled();
    }

    /** The transfer is over, whether all is settled or not: nobody waits any longer. */
    synchronized void end() {
        comparing.shutdownNow();
        over = true;
        notifyAll();
    }

    /** A block was read: its hash. */
    synchronized void hashed(Outgoing file, long block, byte[] hash) {
        file.keep(block, hash);
    }

    /** Handles the receiver's messages until it is done. */
    void run(DataConnections connections) throws IOException {
        boolean done = false;
        while (!done) {
            Message message = session.receive();
            try {
                done = message.number == Message.DONE;
                if (done) {
                    onDone(message);
                } else {
                    handle(message, connections);
                }
            } catch (WireException e) {
                session.post(Message.error(new Failure(Failure.PROTOCOL, e.getMessage())));
                throw session.broken(e);
            }
        }
    }

    private synchronized void onDone(Message message) throws WireException {
        if (!isSettled()) {
            throw new WireException("the receiver is done before all is settled");
        }
        message.failedThere();
        over = true;
        notifyAll();
    }

    private void handle(Message message, DataConnections connections)
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
                onFailed(message.file(), message.failureInside());
                break;
            case Message.PROBLEM:
                Receiver.problem(message.failureInside(), summary);
                break;
            case Message.STREAM_ENDED:
                onStreamEnded(message.stream(), connections);
                break;
            default:
                // How the path does (section 16), which nothing depends on.
                if (message.number < 25) {
                    throw new WireException("message " + message.number + " from a receiver");
                }
        }
    }

    private synchronized Outgoing find(long file) throws WireException {
        Outgoing found = files.get(file);
        if (found == null && (file <= 0 || file > lastId)) {
            throw new WireException("file " + file + ", which nobody announced");
        }
        return found;
    }

    private synchronized void onHave(Runs have) throws WireException {
        Outgoing file = find(have.file);
        for (Run run : have.runs) {
            if (file != null) {
                onHave(file, run);
            }
        }
    }

    private void onHave(Outgoing file, Run run) throws WireException {
        if (file.wanted) {
            throw new WireException("the receiver has blocks after it asked for them");
        }
        file.have(run);
        for (long block = run.first; block < run.first + run.count; block++) {
            counts.arrived(file.layout.length(block));
            summary.bytesResumed += file.layout.length(block);
        }
    }

    private void onWant(Want want) throws WireException, IOException {
        synchronized (this) {
            String symlink = symlinks.remove(want.file);
            if (symlink != null) {
                if (want.verdict == Want.REFUSED) {
                    summary.fail(symlink + ": "
                        + (want.failure == null ? "refused" : want.failure.shown()));
                }
                notifyAll();
                return;
            }
        }
        Outgoing file = find(want.file);
        if (file == null || file.wanted) {
            throw new WireException("a second want of file " + want.file);
        }
        synchronized (this) {
            for (Run run : want.have) {
                onHave(file, run);
            }
            file.wanted = true;
        }
        if (want.verdict == Want.IF_DIFFERS) {
            // On a thread of its own: this one has to read on.
            comparing.execute(() -> compare(file, want.hash));
        } else if (want.verdict == Want.SKIP) {
            settle(file);
            skipped(file);
        } else if (want.verdict == Want.REFUSED) {
            settle(file);
            summary.fail(file.path + ": "
                + (want.failure == null ? "refused" : want.failure.shown()));
            counts.settled(0);
        } else if (want.verdict == Want.WOULD_SEND) {
            settle(file);
            counts.settled(0);
        } else {
            makeReady(file);
        }
    }

    private void compare(Outgoing file, byte[] hash) {
        if (!isSame(file, hash)) {
            makeReady(file);
            return;
        }
        synchronized (this) {
            // Before it is settled, for then the end may come.
            session.post(Message.files(Message.UNCHANGED, List.of(file.entry.id)));
            settle(file);
            skipped(file);
        }
    }

    private void skipped(Outgoing file) {
        // Whoever compares counts on a thread of its own.
        synchronized (summary) {
            summary.skipped++;
        }
        counts.settled(file.entry.size);
    }

    private void makeReady(Outgoing file) {
        synchronized (this) {
            if (file.layout == null) {
                small.add(file);
            } else if (file.hasWork()) {
                ready.put(file.entry.id, file);
            }
            notifyAll();
        }
        sealIfWhole(file);
    }

    /** Whether a file's content is what is at the destination. */
    private boolean isSame(Outgoing file, byte[] hash) {
        try {
            return Arrays.equals(Meta.hash(file.path), hash)
                && Meta.isUnchanged(file.path, file.entry);
        } catch (IOException e) {
            // Told when it is sent.
            return false;
        }
    }

    private void onAcks(Runs acks) throws WireException, IOException {
        Outgoing file = find(acks.file);
        if (file == null) {
            return;
        }
        if (file.layout == null) {
            throw new WireException("the receiver acknowledges blocks of a packed file");
        }
        synchronized (this) {
            for (Run run : acks.runs) {
                for (long block = run.first; block < run.first + run.count; block++) {
                    file.acknowledged(block);
                    counts.arrived(file.layout.length(block));
                    summary.bytes += file.layout.length(block);
                }
            }
        }
        sealIfWhole(file);
    }

    private void sealIfWhole(Outgoing file) {
        byte[] hash;
        synchronized (this) {
            if (!file.isWhole()) {
                return;
            }
            hash = file.wholeHash();
        }
        try {
            if (Meta.isUnchanged(file.path, file.entry)) {
                file.sealed = true;
                session.post(Message.sealed(file.entry.id, hash));
                return;
            }
        } catch (IOException e) {
            // It is gone: that is a change, too.
        }
        changed(file);
    }

    private void onNack(long id, long block) throws WireException {
        Outgoing file = find(id);
        if (file == null) {
            return;
        }
        boolean again;
        synchronized (this) {
            again = file.mayRepeat(block);
            if (again && file.layout == null) {
                small.add(file);
            } else if (again) {
                ready.put(id, file);
            }
            notifyAll();
        }
        if (!again) {
            giveUp(file, new Failure(Failure.VERIFICATION,
                file.path + " arrived damaged three times"), false);
        }
    }

    private void onFinished(long id) throws WireException {
        synchronized (this) {
            if (symlinks.remove(id) != null) {
                summary.symlinks++;
                notifyAll();
                return;
            }
        }
        Outgoing file = find(id);
        if (file == null) {
            return;
        }
        if (!file.wanted || file.layout != null && !file.sealed) {
            throw new WireException("file " + id + " is in place before all of it was sent");
        }
        settle(file);
        summary.copied++;
        if (file.layout == null) {
            counts.settled(file.entry.size);
            summary.bytes += file.entry.size;
        } else {
            counts.settled(0);
        }
    }

    private void onFailed(long id, Failure failure) throws WireException {
        Outgoing file = find(id);
        if (file != null) {
            settle(file);
            summary.fail(file.path + ": " + failure.shown());
            counts.settled(0);
        }
    }

    private void onStreamEnded(int stream, DataConnections connections) {
        synchronized (this) {
            endedStreams.add(stream);
            for (Outgoing file : files.values()) {
                if (file.lost(stream)) {
                    if (file.layout == null) {
                        small.add(file);
                    } else {
                        ready.put(file.entry.id, file);
                    }
                }
            }
            notifyAll();
        }
        connections.endedThere(stream);
    }

    private synchronized void settle(Outgoing file) {
        files.remove(file.entry.id);
        ready.remove(file.entry.id);
        notifyAll();
    }

    synchronized boolean isGone(Outgoing file) {
        return !files.containsKey(file.entry.id);
    }

    /** A file is not what was announced any more: once more, or never. */
    void changed(Outgoing file) {
        Failure failure =
            new Failure(Failure.CHANGED, file.path + " changed while it was read: copy it again");
        Entry entry = null;
        try {
            entry = file.again ? null : Meta.entry(file.path, file.entry.name, file.entry.parent);
        } catch (IOException e) {
            failure = new Failure(Failure.VANISHED, file.path + " vanished while it was read");
        }
        boolean isFile = entry != null && entry.kind == Entry.FILE;
        if (isGone(file) || !giveUp(file, failure, isFile) || !isFile) {
            return;
        }
        synchronized (this) {
            retrying--;
            try {
                enter(entry, file.path, true);
            } catch (WireException e) {
                summary.fail(file.path + ": " + e.getMessage());
            }
            flush();
        }
    }

    /** Aborts a file; false when it was settled before. */
    boolean giveUp(Outgoing file, Failure failure, boolean again) {
        synchronized (this) {
            if (files.get(file.entry.id) != file) {
                return false;
            }
            retrying += again ? 1 : 0;
            // Before it is settled, for then the end may come.
            session.post(Message.aborted(file.entry.id, failure, again));
            settle(file);
        }
        counts.settled(0);
        if (!again) {
            summary.fail(failure.shown());
        }
        return true;
    }

    /** Waits until all is settled. */
    void awaitSettled() throws IOException {
        synchronized (this) {
            while (!isSettled() && !over) {
                await();
            }
        }
    }

    synchronized void finish() {
        session.post(Message.report(Message.FINISH, new long[5], summary.failed));
        finished = true;
        notifyAll();
    }

    /** Waits until this side has said that it is finished, too. */
    synchronized void awaitFinished() throws IOException {
        while (!finished) {
            await();
        }
    }
}
