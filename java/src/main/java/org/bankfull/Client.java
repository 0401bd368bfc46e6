package org.bankfull;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.bankfull.engine.Transfers;
import org.bankfull.wire.Entry;

/**
 * Fetches from a {@code bankfull serve}, sends to it, and lists what it has.
 *
 * <pre>{@code
 * Client client = Client.of("bankfull://store.example/").fingerprint("sha256:…").token(token);
 * Summary done = client.get(List.of("photos"), "/sdcard/photos");
 * }</pre>
 *
 * <p>What was interrupted continues when the same call is made again. A client may be used by
 * several threads; each call is a session of its own.
 */
public final class Client {
    /** Connections unless told otherwise: what a machine of two small processors fills. */
    public static final int DEFAULT_STREAMS = 2;

    private static final long DEFAULT_TIMEOUT_MILLIS = 60_000;
    /** Signs of life come a tenth of a second apart at least, and four of them in this time. */
    private static final long LEAST_TIMEOUT_MILLIS = 400;

    final Settings settings = new Settings();

    /** What is set of a client. */
    public static final class Settings {
        public Endpoint endpoint;
        public String fingerprint;
        public byte[] token;
        public boolean plain;
        public boolean checksum;
        public boolean durable;
        public int streams = DEFAULT_STREAMS;
        public long timeoutMillis = DEFAULT_TIMEOUT_MILLIS;
        public Progress progress = (files, filesKnown, bytes, bytesKnown) -> { };
    }

    private Client() {}

    /** For the daemon at {@code bankfull://host[:port]/path}; paths are beneath that path. */
    public static Client of(String url) throws BankfullException {
        Client client = new Client();
        client.settings.endpoint = Endpoint.parse(url);
        return client;
    }

    /**
     * The fingerprint that the daemon shows when it starts: {@code sha256:} and 64 digits. Without
     * it every call fails, and tells the one that the daemon shows, to be compared.
     */
    public Client fingerprint(String fingerprint) {
        settings.fingerprint = fingerprint;
        return this;
    }

    /** The daemon's access token. */
    public Client token(String token) {
        settings.token = token.trim().getBytes(StandardCharsets.UTF_8);
        return this;
    }

    /** Sends the data unencrypted, where the daemon allows it; it is verified all the same. */
    public Client plain(boolean plain) {
        settings.plain = plain;
        return this;
    }

    /** Compares content, where size and time would do. */
    public Client checksum(boolean checksum) {
        settings.checksum = checksum;
        return this;
    }

    /** Flushes each file to the disk before it gets its name. */
    public Client durable(boolean durable) {
        settings.durable = durable;
        return this;
    }

    /**
     * How many connections carry data, 1 to 64. Where the heap or the daemon allows fewer, there
     * are fewer, and the summary says so.
     */
    public Client streams(int streams) {
        if (streams < 1 || streams > org.bankfull.wire.Limits.STREAMS) {
            throw new IllegalArgumentException("1 to 64 streams, not " + streams);
        }
        settings.streams = streams;
        return this;
    }

    /**
     * After so long without a sign of life from the daemon a transfer ends; connecting takes no
     * longer. 400 at least.
     */
    public Client timeoutMillis(long millis) {
        if (millis < LEAST_TIMEOUT_MILLIS) {
            throw new IllegalArgumentException(
                "a time-out of " + LEAST_TIMEOUT_MILLIS + " ms at least, not " + millis);
        }
        settings.timeoutMillis = millis;
        return this;
    }

    /** Is told how far a transfer is, five times a second. */
    public Client progress(Progress progress) {
        settings.progress = progress;
        return this;
    }

    /**
     * Fetches files and trees. They land as with {@code bankfull cp}: inside the destination if
     * that is a directory; a source that ends in a slash leaves its contents there.
     *
     * @throws BankfullException when it ended early; files that failed by themselves are in the
     * summary
     */
    public Summary get(List<String> sources, String destination) throws IOException {
        return Transfers.get(settings, remote(sources), destination);
    }

    /** Sends files and trees to a path at the daemon, by the same rules. */
    public Summary put(List<String> sources, String destination) throws IOException {
        return Transfers.put(settings, sources, remote(destination));
    }

    /** Something that the daemon has. */
    public static final class Listed {
        /** From the path that was asked for. */
        public final String path;
        public final boolean directory;
        public final boolean symlink;
        public final long size;
        public final int mode;
        public final long modifiedSeconds;
        /** Of a symlink. */
        public final String target;

        /** From what a daemon announces. */
        public Listed(String path, Entry entry) {
            this.path = path;
            this.directory = entry.kind == Entry.DIRECTORY;
            this.symlink = entry.kind == Entry.SYMLINK;
            this.size = entry.size;
            this.mode = entry.mode;
            this.modifiedSeconds = entry.mtimeSecs;
            this.target = new String(entry.target, StandardCharsets.UTF_8);
        }
    }

    /**
     * Lists a tree, directories before their contents. What could not be read is in the summary.
     */
    public Summary list(String path, Consumer<Listed> each) throws IOException {
        return Transfers.list(settings, remote(path), each);
    }

    private List<byte[]> remote(List<String> paths) {
        List<byte[]> all = new ArrayList<>();
        paths.forEach(path -> all.add(remote(path)));
        return all;
    }

    private byte[] remote(String path) {
        String base = settings.endpoint.path;
        String joined = base.isEmpty() || path.isEmpty() ? base + path
            : base.endsWith("/") ? base + path : base + "/" + path;
        return joined.getBytes(StandardCharsets.UTF_8);
    }
}
