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

/** What a client does, from connecting to the end. */
public final class Transfers {
    private static final long PROGRESS_MILLIS = 200;
    /** What a connection may take of the heap: its pieces, and some packs. */
    private static final long STREAM_BYTES = 12 << 20;
    /** As bankfull cp: far more than anyone needs, and fits a hello. [ours] */
    private static final int TOKEN_BYTES_MOST = 4096;
    private static final int FSYNC_EACH = 1;
    /** The file system once, before the end: as bankfull cp does. */
    private static final int FSYNC_END = 2;

    private Transfers() {}

    private interface Running {
        void run(Session session, Counts counts, Summary summary) throws IOException, WireException;
    }

    /** Fetches. */
    public static Summary get(Client.Settings settings, List<byte[]> paths, String destination)
        throws IOException {
        return during(settings, (session, counts, summary) -> {
            Message.Open open = request(session, settings);
            open.streams = streams(session, settings, summary);
            open.pull = true;
            open.paths = paths;
            open.unsettledMost = Receiver.UNSETTLED_MOST;
            List<Source> sources = session.open(open.write()).openedSources();
            Sources.check(paths, sources);
            Landing landing = Landing.of(destination, sources);
            Receiver receiver = new Receiver(
                session, landing, sources, settings.checksum, settings.durable, summary, counts);
            DataConnections connections =
                new DataConnections(session, settings.plain, new DataReader(session, receiver));
            connections.start(open.streams);
            try {
                receiver.run(connections);
            } finally {
                connections.closeAll();
                receiver.close();
            }
        });
    }

    /** Sends. */
    public static Summary put(Client.Settings settings, List<String> sources, byte[] destination)
        throws IOException {
        List<Walk.Operand> operands = new ArrayList<>();
        for (String source : sources) {
            operands.add(Walk.Operand.of(source));
        }
        return during(settings, (session, counts, summary) -> {
            Message.Open open = request(session, settings);
            open.streams = streams(session, settings, summary);
            open.paths = List.of(destination);
            operands.forEach(operand -> open.sources.add(operand.source));
            session.open(open.write()).landing();
            Sender sender = new Sender(session, summary, counts);
            DataConnections connections =
                new DataConnections(session, settings.plain, new DataWriter(session, sender));
            connections.start(open.streams);
            background(session, "bankfull-walk", () -> new Walk(sender).run(operands));
            background(session, "bankfull-finish", () -> {
                sender.awaitSettled();
                connections.awaitEnds();
                sender.finish();
            });
            try {
                sender.run(connections);
                sender.awaitFinished();
            } finally {
                sender.end();
                connections.closeAll();
            }
        });
    }

    /** Lists, by a dry run of a fetch. */
    public static Summary list(Client.Settings settings, byte[] path, Consumer<Client.Listed> each)
        throws IOException {
        return during(settings, (session, counts, summary) -> {
            Message.Open open = request(session, settings);
            open.pull = true;
            open.dryRun = true;
            open.paths = List.of(path);
            session.open(open.write()).openedSources();
            Map<Long, String> names = new HashMap<>();
            names.put(0L, "");
            while (true) {
                Message next = session.receive();
                if (next.number == Message.FINISH) {
                    break;
                }
                if (next.number == Message.ENTRIES) {
                    list(session, next.entries(), names, each);
                } else if (next.number == Message.PROBLEM) {
                    Receiver.problem(next.failureInside(), summary);
                }
            }
            session.post(Message.report(Message.DONE, new long[5], 0));
        });
    }

    private static void list(Session session, List<Entry> entries, Map<Long, String> names,
        Consumer<Client.Listed> each) throws WireException {
        List<Want> wants = new ArrayList<>();
        for (Entry entry : entries) {
            String above = names.get(entry.parent);
            if (above == null) {
                throw new WireException("entry " + entry.id + " is in no directory");
            }
            String name = new String(entry.name, StandardCharsets.UTF_8);
            String path = above.isEmpty() ? name : above + "/" + name;
            if (entry.kind == Entry.DIRECTORY) {
                names.put(entry.id, path);
            } else {
                wants.add(new Want(entry.id, Want.WOULD_SEND));
            }
            if (!path.isEmpty()) {
                each.accept(new Client.Listed(path, entry));
            }
        }
        if (!wants.isEmpty()) {
            session.post(Message.wants(wants));
        }
    }

    private static Message.Open request(Session session, Client.Settings settings)
        throws BankfullException {
        if (settings.plain && !session.welcome().plainAllowed) {
            throw new BankfullException(Failure.PLAIN_REFUSED, settings.endpoint.place()
                + " does not allow data without encryption: have it started with bankfull serve"
                + " --allow-no-encryption, or encrypt the data",
                BankfullException.Setting.PLAIN, null);
        }
        Message.Open open = new Message.Open();
        open.timeoutMillis = settings.timeoutMillis;
        open.plain = settings.plain;
        open.checksum = settings.checksum;
        open.fsync = settings.durable ? FSYNC_EACH : FSYNC_END;
        // Java can neither pace a connection nor look at one.
        open.untuned = true;
        return open;
    }

    /** As many connections as are wanted, where memory and the daemon allow so many. */
    private static int streams(Session session, Client.Settings settings, Summary summary) {
        long heap = Runtime.getRuntime().maxMemory();
        int fit = (int) Math.max(1, Math.min(heap / STREAM_BYTES, Limits.STREAMS));
        int allowed = session.welcome().streamsMax;
        int streams = Math.min(settings.streams, Math.min(fit, allowed));
        if (streams < settings.streams) {
            String why = fit <= allowed
                ? "the heap of " + (heap >> 20) + " MiB has room for no more, "
                    + (STREAM_BYTES >> 20) + " MiB each: give Java more (-Xmx)"
                : "the daemon allows no more";
            summary.remark(streams + " of " + settings.streams + " connections carry data: " + why);
        }
        return streams;
    }

    private interface Task {
        void run() throws IOException, WireException;
    }

    private static void background(Session session, String name, Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Throwable e) {
                // Out of memory, too: nobody may wait for this thread in vain.
                session.fail(e);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static void check(byte[] token) throws BankfullException {
        if (token == null || token.length > 0 && token.length <= TOKEN_BYTES_MOST) {
            return;
        }
        throw new BankfullException(Failure.USAGE, token.length == 0
            ? "the token is empty: give the one that the daemon asks for"
            : "the token is longer than " + TOKEN_BYTES_MOST + " bytes: is it the right one?",
            BankfullException.Setting.TOKEN, null);
    }

    private static Summary during(Client.Settings settings, Running running) throws IOException {
        check(settings.token);
        Tls tls = new Tls(settings.endpoint.place(), settings.fingerprint);
        Counts counts = new Counts();
        Summary summary = new Summary();
        long began = System.nanoTime();
        try (Session session =
            Session.connect(settings.endpoint, tls, settings.token, settings.timeoutMillis)) {
            Thread ticker = ticker(session, settings, counts);
            try {
                running.run(session, counts, summary);
            } catch (WireException e) {
                session.post(Message.error(new Failure(Failure.PROTOCOL, e.getMessage())));
                throw session.broken(e);
            } catch (OutOfMemoryError e) {
                // What was in the way is let go of by now.
                throw session.asIo(e);
            } finally {
                ticker.interrupt();
            }
        }
        counts.tell(settings.progress);
        summary.seconds = (System.nanoTime() - began) / 1e9;
        return summary;
    }

    private static Thread ticker(Session session, Client.Settings settings, Counts counts) {
        Thread ticker = new Thread(() -> {
            try {
                while (!session.isOver()) {
                    Thread.sleep(PROGRESS_MILLIS);
                    counts.tell(settings.progress);
                }
            } catch (InterruptedException e) {
                // The transfer is over.
            }
        }, "bankfull-progress");
        ticker.setDaemon(true);
        ticker.start();
        return ticker;
    }
}
