package org.bankfull.wire;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** A control message: its number and its body (spec/wire.md, section 6). */
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
    public static final int SEALED = 11;
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
    private static final int LAST = 30;

    public final int number;
    private final Object body;

    private Message(int number, Object body) {
        this.number = number;
        this.body = body;
    }

    /** The bytes of a control frame's body. */
    public byte[] write() {
        return Cbor.write(Arrays.asList((long) number, body == null ? List.of() : List.of(body)));
    }

    /** What a control frame holds. A message that does nothing here is read too. */
    public static Message read(byte[] bytes) throws WireException {
        List<?> outer = Fields.list(Cbor.read(bytes), "a message");
        if (outer.size() != 2 || !(outer.get(0) instanceof Long)) {
            throw new WireException("a message is not its number and its body");
        }
        long number = (Long) outer.get(0);
        if (number < 0 || number > LAST) {
            throw new WireException("message " + number + ", which nobody knows");
        }
        List<?> body = Fields.list(outer.get(1), "a message's body");
        return new Message((int) number, body.isEmpty() ? null : body.get(0));
    }

    private Fields fields(int expected) throws WireException {
        if (number != expected) {
            throw new WireException("message " + number + " where " + expected + " is due");
        }
        return new Fields(body, "message " + number);
    }

    private String what() {
        return "message " + number;
    }

    /** The client's first word. */
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

    /** What a server says of itself. */
    public static final class Welcome {
        public final String software;
        public final byte[] session;
        public final byte[] key;
        public final int streamsMax;
        public final boolean plainAllowed;
        /** 0: not said. */
        public final long timeoutMillis;

        Welcome(Fields fields) throws WireException {
            int version = fields.small(0, 0xFFFF);
            if (version != 1) {
                throw new WireException("the server chose version " + version
                    + ", which was not offered");
            }
            software = fields.text(1);
            session = fields.exactly(2, 16);
            key = fields.exactly(3, 32);
            streamsMax = fields.small(4, Integer.MAX_VALUE);
            plainAllowed = fields.bool(5);
            timeoutMillis = fields.has(9) ? fields.count(9) : 0;
        }
    }

    public Welcome welcome() throws WireException {
        return new Welcome(fields(WELCOME));
    }

    /** An operand, as the side that receives it must know it. */
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
                new Source(fields.bytes(0, Limits.NAME_BYTES), fields.bool(1), fields.bool(2));
            if (source.contents != (source.name.length == 0)
                || source.contents && !source.directory) {
                throw new WireException("a source that is neither a name nor contents");
            }
            return source;
        }

        private Object write() {
            return Map.of(0L, name, 1L, directory, 2L, contents);
        }
    }

    /** What a client asks for. */
    public static final class Open {
        public boolean pull;
        public List<byte[]> paths = new ArrayList<>();
        public List<Source> sources = new ArrayList<>();
        /** 0 none, 1 each file, 2 at the end. */
        public int fsync;
        public boolean checksum;
        public boolean dryRun;
        public boolean plain;
        public int streams;
        public long timeoutMillis;
        public boolean untuned;
        /** Pull: how many files may be announced and not settled; 0: any number. */
        public int unsettledMost;

        public Message write() {
            Map<Long, Object> map = new HashMap<>();
            map.put(0L, pull ? 1L : 0L);
            map.put(1L, paths);
            map.put(2L, each(sources, Source::write));
            map.put(3L, (long) fsync);
            map.put(4L, checksum);
            map.put(5L, dryRun);
            map.put(6L, plain);
            map.put(7L, (long) streams);
            map.put(8L, timeoutMillis);
            if (untuned) {
                map.put(9L, true);
            }
            if (unsettledMost > 0) {
                map.put(20L, (long) unsettledMost);
            }
            return new Message(OPEN, map);
        }
    }

    /** The sources that will come, in a pull. */
    public List<Source> openedSources() throws WireException {
        return read(fields(OPENED).list(0), Source::read);
    }

    /** The path that each source gets, in a push. */
    public List<byte[]> landing() throws WireException {
        Fields fields = fields(OPENED);
        List<byte[]> paths = new ArrayList<>();
        for (Object path : fields.list(1)) {
            if (!(path instanceof byte[])) {
                throw new WireException("a landing is no path");
            }
            paths.add((byte[]) path);
        }
        return paths;
    }

    public static Message entries(List<Entry> entries) {
        return new Message(ENTRIES, each(entries, Entry::write));
    }

    public List<Entry> entries() throws WireException {
        List<?> items = Fields.list(body, what());
        if (items.size() > Limits.ENTRIES_IN_MESSAGE) {
            throw new WireException("too many entries in a message");
        }
        return read(items, Entry::read);
    }

    /** How much was announced. */
    public static final class Totals {
        public long files;
        public long directories;
        public long symlinks;
        public long bytes;
        public long specials;

        public Message write() {
            Map<Long, Object> map =
                Map.of(0L, files, 1L, directories, 2L, symlinks, 3L, bytes, 4L, specials);
            return new Message(ENTRIES_END, map);
        }
    }

    public Totals totals() throws WireException {
        Fields fields = fields(ENTRIES_END);
        Totals totals = new Totals();
        totals.files = fields.count(0);
        totals.directories = fields.count(1);
        totals.symlinks = fields.count(2);
        totals.bytes = fields.count(3);
        totals.specials = fields.count(4);
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
            List<Long> pair = Fields.counts(item, "run");
            if (pair.size() < 2 || pair.get(1) < 1 || pair.get(0) > Limits.FILE_BLOCKS
                || pair.get(1) > Limits.FILE_BLOCKS) {
                throw new WireException("a run of blocks is out of bounds");
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
            return new Runs(fields.count(0), runs(fields.list(1)));
        }

        private Object write() {
            return Map.of(0L, file, 1L, each(runs, Run::write));
        }
    }

    private static List<Run> runs(List<?> items) throws WireException {
        if (items.size() > Limits.RUNS_IN_LIST) {
            throw new WireException("too many runs in a list");
        }
        return read(items, Run::read);
    }

    /** What a receiver says of an announced file. */
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
            Want want = new Want(fields.count(0), fields.small(1, WOULD_SEND));
            want.have = runs(fields.list(2));
            want.hash = fields.has(3) ? fields.exactly(3, Blake3.HASH_BYTES) : null;
            want.failure = fields.has(4) ? Failure.read(fields.item(4)) : null;
            if (want.verdict == IF_DIFFERS && want.hash == null) {
                throw new WireException("a want to compare has no hash");
            }
            return want;
        }

        private Object write() {
            Map<Long, Object> map = new HashMap<>();
            map.put(0L, file);
            map.put(1L, (long) verdict);
            map.put(2L, each(have, Run::write));
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
        return new Message(WANTS, each(wants, Want::write));
    }

    public List<Want> wants() throws WireException {
        return read(Fields.list(body, what()), Want::read);
    }

    public static Message have(Runs runs) {
        return new Message(HAVE, runs.write());
    }

    public static Message holes(Runs runs) {
        return new Message(HOLES, runs.write());
    }

    /** Of {@link #HAVE} and {@link #HOLES}. */
    public Runs runs() throws WireException {
        return Runs.read(body);
    }

    public static Message acks(List<Runs> acks) {
        return new Message(ACKS, each(acks, Runs::write));
    }

    public List<Runs> acks() throws WireException {
        return read(Fields.list(body, what()), Runs::read);
    }

    public static Message sealed(long file, byte[] hash) {
        return new Message(SEALED, hash == null ? Map.of(0L, file) : Map.of(0L, file, 1L, hash));
    }

    /** Of {@link #SEALED}; null where the sender does not know it. */
    public byte[] sealedHash() throws WireException {
        Fields fields = fields(SEALED);
        return fields.has(1) ? fields.exactly(1, Blake3.HASH_BYTES) : null;
    }

    public static Message aborted(long file, Failure failure, boolean again) {
        return new Message(ABORTED, Map.of(0L, file, 1L, failure.write(), 2L, again));
    }

    public static Message failed(long file, Failure failure) {
        return new Message(FAILED, Map.of(0L, file, 1L, failure.write()));
    }

    public static Message nack(long file, long block) {
        return new Message(NACK, Map.of(0L, file, 1L, block));
    }

    /** Of {@link #NACK}. */
    public long block() throws WireException {
        return fields(NACK).count(1);
    }

    /** Of {@link #SEALED}, {@link #ABORTED}, {@link #FAILED} and {@link #NACK}. */
    public long file() throws WireException {
        return new Fields(body, what()).count(0);
    }

    /** Of {@link #ABORTED}: whether the file will be announced anew. */
    public boolean again() throws WireException {
        return fields(ABORTED).bool(2);
    }

    /** Of {@link #ABORTED}, {@link #FAILED} and {@link #PROBLEM}. */
    public Failure failureInside() throws WireException {
        return Failure.read(new Fields(body, what()).item(1));
    }

    public static Message problem(byte[] path, Failure failure) {
        return new Message(PROBLEM, Map.of(0L, path, 1L, failure.write()));
    }

    /** Of {@link #PROBLEM}. */
    public byte[] path() throws WireException {
        return fields(PROBLEM).bytes(0, Limits.CONTROL_FRAME_BYTES);
    }

    public static Message error(Failure failure) {
        return new Message(ERROR, failure.write());
    }

    /** Of {@link #ERROR}. */
    public Failure failure() throws WireException {
        return Failure.read(body);
    }

    /** A list of files: {@link #UNCHANGED}, {@link #DIFFERS} or {@link #FINISHED}. */
    public static Message files(int number, List<Long> files) {
        return new Message(number, files);
    }

    public List<Long> files() throws WireException {
        return Fields.counts(body, what());
    }

    /** {@link #STREAM_LOST} or {@link #STREAM_ENDED}. */
    public static Message stream(int number, int stream) {
        return new Message(number, (long) stream);
    }

    public int stream() throws WireException {
        if (!(body instanceof Long) || (Long) body < 0 || (Long) body > 0xFFFFFFFFL) {
            throw new WireException(what() + " names no stream");
        }
        return (int) (long) (Long) body;
    }

    /**
     * {@link #FINISH} or {@link #DONE}.
     *
     * @param stageNanos spent reading, computing, on the network, writing and idle
     */
    public static Message report(int number, long[] stageNanos, long failed) {
        List<Object> nanos = new ArrayList<>();
        for (long each : stageNanos) {
            nanos.add(each);
        }
        return new Message(number, Map.of(0L, nanos, 1L, 0L, 2L, failed));
    }

    /** Files that failed on the other side. */
    public long failedThere() throws WireException {
        return new Fields(body, what()).count(2);
    }

    public static Message ping() {
        return new Message(PING, null);
    }

    private interface Read<T> {
        T read(Object item) throws WireException;
    }

    private static <T> List<T> read(List<?> items, Read<T> read) throws WireException {
        List<T> all = new ArrayList<>(items.size());
        for (Object item : items) {
            all.add(read.read(item));
        }
        return all;
    }

    private static <T> List<Object> each(List<T> items, Function<T, Object> write) {
        List<Object> all = new ArrayList<>(items.size());
        items.forEach(item -> all.add(write.apply(item)));
        return all;
    }
}
