package org.bankfull.wire;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Control message: number and body (spec/wire.md, section 6). */
public final class Message {
    public static final int HELLO = 0;
    public static final int WELCOME = 1;
    public static final int ERROR = 2;
    public static final int OPEN = 3;
    public static final int OPENED = 4;
    public static final int ENTRIES = 5;
    public static final int ENTRIES_END = 6;
    public static final int PROBLEM = 7;
    public static final int WANTS = 8;
    public static final int HAVE = 9;
    public static final int HOLES = 10;
    public static final int FILE_DIGEST = 11;
    public static final int ABORTED = 12;
    public static final int UNCHANGED = 13;
    public static final int ACKS = 14;
    public static final int NACK = 15;
    public static final int FINISHED = 16;
    public static final int FAILED = 17;
    public static final int STREAM_LOST = 18;
    public static final int STREAM_ENDED = 19;
    public static final int FINISH = 20;
    public static final int DONE = 21;
    public static final int PING = 22;
    public static final int DIFFERS = 24;
    public static final int COMPLETED_DIRECTORIES = 31;
    private static final int MAX_NUMBER = 39;
    /** First byte of each message: number and body, in CBOR. */
    private static final byte ARRAY_OF_TWO = (byte) 0x82;

    public final int number;
    private final Object body;

    private Message(int number, Object body) {
        this.number = number;
        this.body = body;
    }

    /** Encodes the body of a control frame. */
    public byte[] write() {
        return Cbor.write(Arrays.asList((long) number, body == null ? List.of() : List.of(body)));
    }

    /** Decodes the body of a control frame; unused messages are accepted, too. */
    public static Message read(byte[] bytes) throws WireException {
        List<?> parts = Fields.list(Cbor.read(bytes), "a message");
        if (parts.size() != 2 || !(parts.get(0) instanceof Long)) {
            throw new WireException("a message must be an array of number and body");
        }
        long number = (Long) parts.get(0);
        if (number < 0 || number > MAX_NUMBER) {
            throw new WireException("unknown message " + number);
        }
        List<?> body = Fields.list(parts.get(1), "a message's body");
        return new Message((int) number, body.isEmpty() ? null : body.get(0));
    }

    /** True if an encoded message has this number, which is below 24. */
    public static boolean hasNumber(byte[] bytes, int number) {
        return bytes.length > 1 && bytes[0] == ARRAY_OF_TWO && bytes[1] == number;
    }

    private Fields fields(int expected) throws WireException {
        if (number != expected) {
            throw new WireException("message " + number + " instead of " + expected);
        }
        return new Fields(body, "message " + number);
    }

    private String name() {
        return "message " + number;
    }

    /** Creates the client's first message. */
    public static Message hello(String software, byte[] token) {
        Map<Long, Object> map = new HashMap<>();
        map.put(0L, 1L);
        map.put(1L, 1L);
        map.put(2L, software);
        if (token != null) {
            map.put(3L, token);
        }
        return new Message(HELLO, map);
    }

    /** Body of Welcome, the answer to Hello. */
    public static final class Welcome {
        public final String software;
        public final byte[] session;
        public final byte[] key;
        public final int maxStreams;
        public final boolean unencryptedAllowed;
        /** Idle timeout of the server; 0: not sent. */
        public final long timeoutMillis;

        Welcome(Fields fields) throws WireException {
            int version = fields.boundedInt(0, 0xFFFF);
            if (version != 1) {
                throw new WireException("the server chose version " + version
                    + ", which was not offered");
            }
            software = fields.text(1);
            session = fields.fixedBytes(2, 16);
            key = fields.fixedBytes(3, 32);
            maxStreams = fields.boundedInt(4, Integer.MAX_VALUE);
            unencryptedAllowed = fields.bool(5);
            timeoutMillis = fields.has(9) ? fields.unsigned(9) : 0;
        }
    }

    public Welcome welcome() throws WireException {
        return new Welcome(fields(WELCOME));
    }

    /** Source operand as described to the receiver. */
    public static final class Source {
        public final byte[] name;
        public final boolean directory;
        public final boolean contents;

        public Source(byte[] name, boolean directory, boolean contents) {
            this.name = name;
            this.directory = directory;
            this.contents = contents;
        }

        private static Source read(Object item) throws WireException {
            Fields fields = new Fields(item, "source");
            Source source =
                new Source(fields.bytes(0, Limits.MAX_NAME_BYTES), fields.bool(1), fields.bool(2));
            if (source.contents != (source.name.length == 0)
                || source.contents && !source.directory) {
                throw new WireException("a source must have either a name or contents");
            }
            return source;
        }

        private Object write() {
            return Map.of(0L, name, 1L, directory, 2L, contents);
        }
    }

    /** Body of Open, the request of a session. */
    public static final class Open {
        public boolean pull;
        public List<byte[]> paths = new ArrayList<>();
        public List<Source> sources = new ArrayList<>();
        /** Flush to the disk: 0 never, 1 each file, 2 at the end. */
        public int fsync;
        public boolean checksum;
        public boolean dryRun;
        public boolean unencrypted;
        public int streams;
        public long timeoutMillis;
        public boolean autotuneOff;
        /** Pull: limit of announced files without a final outcome; 0: unlimited. */
        public int maxOutstandingFiles;

        public Message write() {
            Map<Long, Object> map = new HashMap<>();
            map.put(0L, pull ? 1L : 0L);
            map.put(1L, paths);
            map.put(2L, writeAll(sources, Source::write));
            map.put(3L, (long) fsync);
            map.put(4L, checksum);
            map.put(5L, dryRun);
            map.put(6L, unencrypted);
            map.put(7L, (long) streams);
            map.put(8L, timeoutMillis);
            if (autotuneOff) {
                map.put(9L, true);
            }
            if (maxOutstandingFiles > 0) {
                map.put(20L, (long) maxOutstandingFiles);
            }
            return new Message(OPEN, map);
        }
    }

    /** Returns the sources that the server will send, in a pull. */
    public List<Source> openedSources() throws WireException {
        return readAll(fields(OPENED).list(0), Source::read);
    }

    /** Returns the destination path of each source, in a push. */
    public List<byte[]> destinations() throws WireException {
        Fields fields = fields(OPENED);
        List<byte[]> paths = new ArrayList<>();
        for (Object path : fields.list(1)) {
            if (!(path instanceof byte[])) {
                throw new WireException("a destination is not a path");
            }
            paths.add((byte[]) path);
        }
        return paths;
    }

    /** Returns the receiver's limit of outstanding files, in a push. */
    public int maxOutstandingFiles() throws WireException {
        Fields fields = fields(OPENED);
        return fields.has(3)
            ? (int) Math.min(fields.unsigned(3), Integer.MAX_VALUE)
            : Integer.MAX_VALUE;
    }

    public static Message entries(List<Entry> entries) {
        return new Message(ENTRIES, writeAll(entries, Entry::write));
    }

    public List<Entry> entries() throws WireException {
        List<?> items = Fields.list(body, name());
        if (items.size() > Limits.MAX_ENTRIES_PER_BATCH) {
            throw new WireException("too many entries in a message");
        }
        return readAll(items, Entry::read);
    }

    /** Body of EntriesEnd: totals of the announcement. */
    public static final class Totals {
        public long files;
        public long directories;
        public long symlinks;
        public long bytes;
        public long specialFilesSkipped;

        public Message write() {
            Map<Long, Object> map =
                Map.of(0L, files, 1L, directories, 2L, symlinks, 3L, bytes, 4L,
                    specialFilesSkipped);
            return new Message(ENTRIES_END, map);
        }
    }

    public Totals totals() throws WireException {
        Fields fields = fields(ENTRIES_END);
        Totals totals = new Totals();
        totals.files = fields.unsigned(0);
        totals.directories = fields.unsigned(1);
        totals.symlinks = fields.unsigned(2);
        totals.bytes = fields.unsigned(3);
        totals.specialFilesSkipped = fields.unsigned(4);
        return totals;
    }

    /** Blocks {@code first} to {@code first + count - 1}. */
    public static final class Run {
        public final long first;
        public final long count;

        public Run(long first, long count) {
            this.first = first;
            this.count = count;
        }

        private static Run read(Object item) throws WireException {
            List<Long> pair = Fields.unsignedList(item, "run");
            if (pair.size() < 2 || pair.get(1) < 1 || pair.get(0) > Limits.MAX_FILE_BLOCKS
                || pair.get(1) > Limits.MAX_FILE_BLOCKS) {
                throw new WireException("a run of blocks is out of range");
            }
            return new Run(pair.get(0), pair.get(1));
        }

        private Object write() {
            return List.of(first, count);
        }
    }

    /** Blocks of a file. */
    public static final class Runs {
        public final long file;
        public final List<Run> runs;

        public Runs(long file, List<Run> runs) {
            this.file = file;
            this.runs = runs;
        }

        private static Runs read(Object item) throws WireException {
            Fields fields = new Fields(item, "blocks of a file");
            return new Runs(fields.unsigned(0), runs(fields.list(1)));
        }

        private Object write() {
            return Map.of(0L, file, 1L, writeAll(runs, Run::write));
        }
    }

    private static List<Run> runs(List<?> items) throws WireException {
        if (items.size() > Limits.MAX_RUNS) {
            throw new WireException("too many runs in a list");
        }
        return readAll(items, Run::read);
    }

    /** Receiver's answer to an announced file. */
    public static final class Want {
        public static final int SEND = 0;
        public static final int SKIP = 1;
        public static final int IF_DIFFERS = 2;
        public static final int REFUSED = 3;
        public static final int WOULD_SEND = 4;

        public final long file;
        public final int verdict;
        public List<Run> have = List.of();
        public byte[] hash;
        public Failure failure;

        public Want(long file, int verdict) {
            this.file = file;
            this.verdict = verdict;
        }

        private static Want read(Object item) throws WireException {
            Fields fields = new Fields(item, "want");
            Want want = new Want(fields.unsigned(0), fields.boundedInt(1, WOULD_SEND));
            want.have = runs(fields.list(2));
            want.hash = fields.has(3) ? fields.fixedBytes(3, Blake3.HASH_BYTES) : null;
            want.failure = fields.has(4) ? Failure.read(fields.item(4)) : null;
            if (want.verdict == IF_DIFFERS && want.hash == null) {
                throw new WireException("a want with the verdict compare has no hash");
            }
            return want;
        }

        private Object write() {
            Map<Long, Object> map = new HashMap<>();
            map.put(0L, file);
            map.put(1L, (long) verdict);
            map.put(2L, writeAll(have, Run::write));
            if (hash != null) {
                map.put(3L, hash);
            }
            if (failure != null) {
                map.put(4L, failure.write());
            }
            return map;
        }
    }

    public static Message wants(List<Want> wants) {
        return new Message(WANTS, writeAll(wants, Want::write));
    }

    public List<Want> wants() throws WireException {
        return readAll(Fields.list(body, name()), Want::read);
    }

    public static Message have(Runs runs) {
        return new Message(HAVE, runs.write());
    }

    public static Message holes(Runs runs) {
        return new Message(HOLES, runs.write());
    }

    /** Returns the body of {@link #HAVE} or {@link #HOLES}. */
    public Runs runs() throws WireException {
        return Runs.read(body);
    }

    public static Message acks(List<Runs> acks) {
        return new Message(ACKS, writeAll(acks, Runs::write));
    }

    public List<Runs> acks() throws WireException {
        return readAll(Fields.list(body, name()), Runs::read);
    }

    public static Message fileDigest(long file, byte[] hash) {
        return new Message(
            FILE_DIGEST, hash == null ? Map.of(0L, file) : Map.of(0L, file, 1L, hash));
    }

    /** Returns the hash of {@link #FILE_DIGEST}; null if the sender does not know it. */
    public byte[] fileDigestHash() throws WireException {
        Fields fields = fields(FILE_DIGEST);
        return fields.has(1) ? fields.fixedBytes(1, Blake3.HASH_BYTES) : null;
    }

    public static Message aborted(long file, Failure failure, boolean willRetry) {
        return new Message(ABORTED, Map.of(0L, file, 1L, failure.write(), 2L, willRetry));
    }

    public static Message failed(long file, Failure failure) {
        return new Message(FAILED, Map.of(0L, file, 1L, failure.write()));
    }

    public static Message nack(long file, long block) {
        return new Message(NACK, Map.of(0L, file, 1L, block));
    }

    /** Returns the block number of {@link #NACK}. */
    public long block() throws WireException {
        return fields(NACK).unsigned(1);
    }

    /**
     * Returns the file ID of {@link #FILE_DIGEST}, {@link #ABORTED}, {@link #FAILED} or
     * {@link #NACK}.
     */
    public long file() throws WireException {
        return new Fields(body, name()).unsigned(0);
    }

    /** True if the sender will announce the file of {@link #ABORTED} again. */
    public boolean willRetry() throws WireException {
        return fields(ABORTED).bool(2);
    }

    /** Returns the failure in {@link #ABORTED}, {@link #FAILED} or {@link #PROBLEM}. */
    public Failure nestedFailure() throws WireException {
        return Failure.read(new Fields(body, name()).item(1));
    }

    public static Message problem(byte[] path, Failure failure) {
        return new Message(PROBLEM, Map.of(0L, path, 1L, failure.write()));
    }

    /** Returns the path of {@link #PROBLEM}. */
    public byte[] path() throws WireException {
        return fields(PROBLEM).bytes(0, Limits.MAX_CONTROL_FRAME_BYTES);
    }

    public static Message error(Failure failure) {
        return new Message(ERROR, failure.write());
    }

    /** Returns the body of {@link #ERROR}. */
    public Failure failure() throws WireException {
        return Failure.read(body);
    }

    /**
     * Creates {@link #UNCHANGED}, {@link #DIFFERS} or {@link #FINISHED} with file IDs, or {@link
     * #COMPLETED_DIRECTORIES}.
     */
    public static Message files(int number, List<Long> files) {
        return new Message(number, files);
    }

    public List<Long> files() throws WireException {
        return Fields.unsignedList(body, name());
    }

    /** Creates {@link #STREAM_LOST} or {@link #STREAM_ENDED}. */
    public static Message stream(int number, int stream) {
        return new Message(number, (long) stream);
    }

    public int stream() throws WireException {
        if (!(body instanceof Long) || (Long) body < 0 || (Long) body > 0xFFFFFFFFL) {
            throw new WireException(name() + " has no stream number");
        }
        return (int) (long) (Long) body;
    }

    /**
     * Creates {@link #FINISH} or {@link #DONE} with the totals of this side.
     *
     * @param stageNanos time spent reading, computing, on the network, writing and idle
     * @param failed number of failed files
     */
    public static Message sideSummary(int number, long[] stageNanos, long failed) {
        List<Object> nanos = new ArrayList<>();
        for (long each : stageNanos) {
            nanos.add(each);
        }
        return new Message(number, Map.of(0L, nanos, 1L, 0L, 2L, failed));
    }

    /** Returns the number of files that failed on the peer. */
    public long peerFailedFiles() throws WireException {
        return new Fields(body, name()).unsigned(2);
    }

    public static Message ping() {
        return new Message(PING, null);
    }

    private interface ItemReader<T> {
        T read(Object item) throws WireException;
    }

    private static <T> List<T> readAll(List<?> items, ItemReader<T> reader) throws WireException {
        List<T> all = new ArrayList<>(items.size());
        for (Object item : items) {
            all.add(reader.read(item));
        }
        return all;
    }

    private static <T> List<Object> writeAll(List<T> items, Function<T, Object> write) {
        List<Object> all = new ArrayList<>(items.size());
        items.forEach(item -> all.add(write.apply(item)));
        return all;
    }
}
