package org.bankfull;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.bankfull.engine.Transfers;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Limits;

/**
 * Client of a {@code bankfull serve} daemon: fetches, sends and lists files.
 *
 * <pre>{@code
 * Client client = Client.of("bankfull://store.example/").fingerprint("sha256:…").token(token);
 * Summary done = client.get(List.of("photos"), "/sdcard/photos");
 * }</pre>
 *
 * <p>An interrupted transfer continues when the same call is repeated. Several threads may use a
 * client at once; each call runs a separate session.
 */
public final class Client {
    /** Default number of data streams (chosen: saturates two small CPUs). */
    public static final int DEFAULT_STREAMS = 2;

    private static final long DEFAULT_TIMEOUT_MILLIS = 60_000;
    /** Four times the shortest ping interval, 100 ms. */
    private static final long MIN_TIMEOUT_MILLIS = 400;

    final Settings settings = new Settings();

    /** Settings of a client. */
    public static final class Settings {
        public Endpoint endpoint;
        public String fingerprint;
        public byte[] token;
        public boolean unencrypted;
        public boolean checksum;
        public boolean durable;
        public int streams = DEFAULT_STREAMS;
        public long timeoutMillis = DEFAULT_TIMEOUT_MILLIS;
        public ProgressListener progress =
            (completedFiles, announcedFiles, verifiedBytes, announcedBytes) -> { };
    }

    private Client() {}

    /** Creates a client of {@code bankfull://host[:port]/path}; all paths are relative to it. */
    public static Client of(String url) throws BankfullException {
        Client client = new Client();
        client.settings.endpoint = Endpoint.parse(url);
        return client;
    }

    /**
     * Sets the certificate fingerprint that the daemon prints at its start.
     *
     * <p>The format is {@code sha256:} followed by 64 hexadecimal digits. Without a fingerprint
     * every call fails; the message contains the daemon's fingerprint for comparison.
     */
    public Client fingerprint(String fingerprint) {
        settings.fingerprint = fingerprint;
        return this;
    }

    /** Sets the daemon's access token. */
    public Client token(String token) {
        settings.token = token.trim().getBytes(StandardCharsets.UTF_8);
        return this;
    }

    /** Disables encryption of the data, if the daemon allows it; it is still verified. */
    public Client unencrypted(boolean unencrypted) {
        settings.unencrypted = unencrypted;
        return this;
    }

    /** Compares content instead of size and modification time. */
    public Client checksum(boolean checksum) {
        settings.checksum = checksum;
        return this;
    }

    /** Flushes each received file to the disk before it is renamed into place. */
    public Client durable(boolean durable) {
        settings.durable = durable;
        return this;
    }

    /**
     * Sets the number of data streams, 1 to 64.
     *
     * <p>If the heap or the daemon allows fewer, fewer are used and the summary has a warning.
     */
    public Client streams(int streams) {
        if (streams < 1 || streams > Limits.MAX_STREAMS) {
            throw new IllegalArgumentException(
                streams + " streams is out of range: choose 1 to 64");
        }
        settings.streams = streams;
        return this;
    }

    /**
     * Sets the timeout in milliseconds, at least 400 (default 60 000).
     *
     * <p>A transfer fails after this time without any message from the daemon. Connection setup,
     * with all its retries, has this time in total, and so has each data stream's.
     */
    public Client timeoutMillis(long millis) {
        if (millis < MIN_TIMEOUT_MILLIS) {
            throw new IllegalArgumentException(
                "the timeout is at least " + MIN_TIMEOUT_MILLIS + " ms, not " + millis);
        }
        settings.timeoutMillis = millis;
        return this;
    }

    /** Sets the listener that receives the progress five times a second. */
    public Client progress(ProgressListener progress) {
        settings.progress = progress;
        return this;
    }

    /**
     * Fetches files and trees.
     *
     * <p>Destinations resolve as with {@code bankfull cp}: if the destination is a directory, the
     * sources are copied into it; a source that ends in a slash stands for its contents.
     *
     * @throws BankfullException if the transfer stopped early; failures of single files are in
     *     the summary
     */
    public Summary get(List<String> sources, String destination) throws IOException {
        return Transfers.get(settings, remote(sources), destination);
    }

    /** Sends files and trees to a path of the daemon, by the same rules. */
    public Summary put(List<String> sources, String destination) throws IOException {
        return Transfers.put(settings, sources, remote(destination));
    }

    /** File, directory or symlink of the daemon. */
    public static final class ListedEntry {
        /** Path relative to the listed path. */
        public final String path;
        public final boolean directory;
        public final boolean symlink;
        public final long size;
        public final int mode;
        public final long modifiedSeconds;
        /** Target of a symlink, else empty. */
        public final String target;

        /** Creates it from an announced entry. */
        public ListedEntry(String path, Entry entry) {
            this.path = path;
            this.directory = entry.kind == Entry.DIRECTORY;
            this.symlink = entry.kind == Entry.SYMLINK;
            this.size = entry.size;
            this.mode = entry.mode;
            this.modifiedSeconds = entry.mtimeSecs;
            this.target = new String(entry.target, StandardCharsets.UTF_8);
        }
    }

    /** Lists a tree, directories before their contents; the summary has the unreadable paths. */
    public Summary list(String path, Consumer<ListedEntry> action) throws IOException {
        return Transfers.list(settings, remote(path), action);
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
