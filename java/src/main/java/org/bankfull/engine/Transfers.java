package org.bankfull.engine;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.bankfull.BankfullException;
import org.bankfull.Client;
import org.bankfull.Summary;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Limits;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.Message.Want;
import org.bankfull.wire.WireException;

/** Operations of a client, each a complete session. */
public final class Transfers {
    private static final long PROGRESS_INTERVAL_MILLIS = 200;
    /** Heap needed by a data stream: its chunks and some packs. */
    private static final long HEAP_PER_STREAM_BYTES = 12 << 20;
    /** Token limit, as in {@code bankfull cp} (chosen: generous, and fits Hello). */
    private static final int MAX_TOKEN_BYTES = 4096;
    private static final int FSYNC_EACH = 1;
    /** Flush of the file system at the end, as in {@code bankfull cp}. */
    private static final int FSYNC_END = 2;

    private Transfers() {}

    private interface SessionTask {
        void run(Session session, ProgressCounter counter, Summary summary)
            throws IOException, WireException;
    }

    /** Fetches files and trees. */
    public static Summary get(Client.Settings settings, List<byte[]> paths, String destination)
        throws IOException {
        return runSession(settings, (session, counter, summary) -> {
            Message.Open open = newOpen(session, settings);
            open.streams = streamCount(session, settings, summary);
            open.pull = true;
            open.paths = paths;
            open.maxOutstandingFiles = Receiver.MAX_OUTSTANDING_FILES;
            List<Source> sources = session.open(open.write()).openedSources();
            RequestedSources.check(paths, sources);
            Destination target = Destination.resolve(destination, sources);
            Receiver receiver = new Receiver(
                session, target, sources, settings.checksum, settings.durable, summary, counter);
            DataStreams streams =
                new DataStreams(session, settings.unencrypted, new DataReader(session, receiver));
            streams.start(open.streams);
            try {
                receiver.run(streams);
            } finally {
                streams.closeAll();
                receiver.close();
            }
        });
    }

    /** Sends files and trees. */
    public static Summary put(Client.Settings settings, List<String> sources, byte[] destination)
        throws IOException {
        List<Walk.Operand> operands = new ArrayList<>();
        for (String source : sources) {
            operands.add(Walk.Operand.of(source));
        }
        return runSession(settings, (session, counter, summary) -> {
            Message.Open open = newOpen(session, settings);
            open.streams = streamCount(session, settings, summary);
            open.paths = List.of(destination);
            operands.forEach(operand -> open.sources.add(operand.source));
            Message opened = session.open(open.write());
            opened.destinations();
            Sender sender =
                new Sender(session, summary, counter, opened.maxOutstandingFiles());
            DataStreams streams =
                new DataStreams(session, settings.unencrypted, new DataWriter(session, sender));
            streams.start(open.streams);
            startThread(session, "bankfull-walk", () -> new Walk(sender).run(operands));
            startThread(session, "bankfull-finish", () -> {
                sender.awaitCompletion();
                streams.awaitEnd();
                sender.finish();
            });
            try {
                sender.run(streams);
                sender.awaitFinished();
            } finally {
                sender.stop();
                streams.closeAll();
            }
        });
    }

    /** Lists a tree by a dry run of a fetch. */
    public static Summary list(
        Client.Settings settings, byte[] path, Consumer<Client.ListedEntry> action)
        throws IOException {
        return runSession(settings, (session, counter, summary) -> {
            Message.Open open = newOpen(session, settings);
            open.pull = true;
            open.dryRun = true;
            open.paths = List.of(path);
            session.open(open.write()).openedSources();
            Map<Long, String> names = new HashMap<>();
            names.put(0L, "");
            while (true) {
                Message message = session.receive();
                if (message.number == Message.FINISH) {
                    break;
                }
                if (message.number == Message.ENTRIES) {
                    list(session, message.entries(), names, action);
                } else if (message.number == Message.COMPLETED_DIRECTORIES) {
                    names.keySet().removeAll(message.files());
                } else if (message.number == Message.PROBLEM) {
                    Receiver.recordProblem(message.nestedFailure(), summary);
                }
            }
            session.post(Message.sideSummary(Message.DONE, new long[5], 0));
        });
    }

    private static void list(Session session, List<Entry> entries, Map<Long, String> names,
        Consumer<Client.ListedEntry> action) throws WireException {
        List<Want> wants = new ArrayList<>();
        for (Entry entry : entries) {
            String parent = names.get(entry.parent);
            if (parent == null) {
                throw new WireException("entry " + entry.id + " has an unknown parent");
            }
            String name = new String(entry.name, StandardCharsets.UTF_8);
            String path = parent.isEmpty() ? name : parent + "/" + name;
            if (entry.kind == Entry.DIRECTORY) {
                names.put(entry.id, path);
            } else {
                wants.add(new Want(entry.id, Want.WOULD_SEND));
            }
            if (!path.isEmpty()) {
                action.accept(new Client.ListedEntry(path, entry));
            }
        }
        if (!wants.isEmpty()) {
            session.post(Message.wants(wants));
        }
    }

    private static Message.Open newOpen(Session session, Client.Settings settings)
        throws BankfullException {
        if (settings.unencrypted && !session.welcome().unencryptedAllowed) {
            throw new BankfullException(Failure.UNENCRYPTED_REFUSED, settings.endpoint.hostAndPort()
                + " does not allow data without encryption: start it with bankfull serve"
                + " --allow-no-encryption, or encrypt the data",
                BankfullException.Setting.UNENCRYPTED, null);
        }
        Message.Open open = new Message.Open();
        open.timeoutMillis = settings.timeoutMillis;
        open.unencrypted = settings.unencrypted;
        open.checksum = settings.checksum;
        open.fsync = settings.durable ? FSYNC_EACH : FSYNC_END;
        // Java can neither pace a connection nor read tcp_info.
        open.autotuneOff = true;
        return open;
    }

    /** Returns the number of streams, limited by the settings, the heap and the daemon. */
    private static int streamCount(Session session, Client.Settings settings, Summary summary) {
        long heap = Runtime.getRuntime().maxMemory();
        int heapLimit =
            (int) Math.max(1, Math.min(heap / HEAP_PER_STREAM_BYTES, Limits.MAX_STREAMS));
        int daemonLimit = session.welcome().maxStreams;
        int streams = Math.min(settings.streams, Math.min(heapLimit, daemonLimit));
        if (streams < settings.streams) {
            String reason = heapLimit <= daemonLimit
                ? "the heap of " + (heap >> 20) + " MiB allows no more, "
                    + (HEAP_PER_STREAM_BYTES >> 20) + " MiB each: give Java more (-Xmx)"
                : "the daemon allows no more";
            summary.addWarning(
                streams + " of " + settings.streams + " data streams are used: " + reason);
        }
        return streams;
    }

    private interface ThreadTask {
        void run() throws IOException, WireException;
    }

    private static void startThread(Session session, String name, ThreadTask task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Throwable e) {
                // Includes OutOfMemoryError: other threads must not wait forever.
                session.fail(e);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void checkToken(byte[] token) throws BankfullException {
        if (token != null
            && new String(token, StandardCharsets.ISO_8859_1).strip().startsWith("-----BEGIN ")) {
            throw new BankfullException(Failure.USAGE,
                "the token is a private key, which this client does not use: give it a token",
                BankfullException.Setting.TOKEN, null);
        }
        if (token == null || token.length > 0 && token.length <= MAX_TOKEN_BYTES) {
            return;
        }
        throw new BankfullException(Failure.USAGE, token.length == 0
            ? "the token is empty: use the access token of the daemon"
            : "the token is longer than " + MAX_TOKEN_BYTES + " bytes: is it the right one?",
            BankfullException.Setting.TOKEN, null);
    }

    private static Summary runSession(Client.Settings settings, SessionTask task)
        throws IOException {
        checkToken(settings.token);
        Tls tls = new Tls(settings.endpoint.hostAndPort(), settings.fingerprint);
        ProgressCounter counter = new ProgressCounter();
        Summary summary = new Summary();
        long start = System.nanoTime();
        try (Session session =
            Session.connect(settings.endpoint, tls, settings.token, settings.timeoutMillis)) {
            Thread progressThread = startProgressThread(session, settings, counter);
            try {
                task.run(session, counter, summary);
            } catch (WireException e) {
                session.post(Message.error(new Failure(Failure.PROTOCOL, e.getMessage())));
                throw session.protocolError(e);
            } catch (OutOfMemoryError e) {
                // The memory of the transfer has been released.
                throw session.toIoException(e);
            } finally {
                progressThread.interrupt();
            }
        }
        counter.report(settings.progress);
        summary.seconds = (System.nanoTime() - start) / 1e9;
        return summary;
    }

    private static Thread startProgressThread(
        Session session, Client.Settings settings, ProgressCounter counter) {
        Thread progressThread = new Thread(() -> {
            try {
                while (!session.isOver()) {
                    Thread.sleep(PROGRESS_INTERVAL_MILLIS);
                    counter.report(settings.progress);
                }
            } catch (InterruptedException e) {
                // The transfer is over.
            }
        }, "bankfull-progress");
        progressThread.setDaemon(true);
        progressThread.start();
        return progressThread;
    }
}
