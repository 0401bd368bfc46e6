package org.bankfull.engine;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.BitSet;
import org.bankfull.BankfullException;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Buffers;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.JournalFormat;
import org.bankfull.wire.Layout;

/**
 * A file of blocks while it arrives: the part beside its target, and the journal that says which of
 * its blocks are verified (spec/wire.md, appendix A), so that a later run, of this client or
 * another, goes on where this one stopped.
 */
final class Part {
    /** Hashes are kept, to compare that of the whole file, of files with so many blocks at most. */
    private static final long HASHED_BLOCKS_MAX = 1 << 16;
    /** A longer journal is not looked at: memory is small. */
    private static final long JOURNAL_BYTES_MAX = 8 << 20;
    private static final int PIECE_BYTES = 256 << 10;

    private final Path target;
    private final Entry entry;
    private final Layout layout;
    /** Open from the first block on. */
    private FileChannel file;
    private FileChannel journal;
    /** What tells this part from another one under its name. */
    private Object key;
    /** Where an earlier run's journal ends, which goes on there; 0: there is none. */
    private long journalEnd;
    /** Blocks that are verified, or holes. */
    private final BitSet here = new BitSet();
    /** Of the blocks, one behind the other; null where there are too many, or none yet. */
    private byte[] hashes;
    /** Blocks whose hash is known. */
    private final BitSet hashed = new BitSet();

    private Part(Path target, Entry entry) throws IOException {
        this.target = target;
        this.entry = entry;
        try {
            this.layout = Layout.of(entry.size, entry.blockBytes);
        } catch (org.bankfull.wire.WireException e) {
            throw new BankfullException(Failure.PROTOCOL, e.getMessage(), e);
        }
    }

    /** With what an earlier run left. Nothing stays open, and nothing is made yet. */
    static Part of(Path target, Entry entry) throws IOException {
        Part part = new Part(target, entry);
        part.resume();
        return part;
    }

    private static Path beside(Path target, String end) {
        byte[] hash = Blake3.hash(Meta.bytes(target.getFileName()));
        StringBuilder name = new StringBuilder(".bankfull-");
        for (int i = 0; i < 8; i++) {
            name.append(String.format("%02x", hash[i]));
        }
        return target.resolveSibling(name.append(end).toString());
    }

    static Path partOf(Path target) {
        return beside(target, ".part");
    }

    private static Path journalOf(Path target) {
        return beside(target, ".journal");
    }

    private static Path draftOf(Path target) {
        return beside(target, ".journal.new");
    }

    /** Puts a file in place whose content is here. */
    static void put(Path target, ByteBuffer content, Entry entry, boolean durable)
        throws IOException {
        Path draft = partOf(target);
        drop(target);
        FileChannel made = Meta.create(draft);
        try {
            try (FileChannel out = made) {
                writeFully(out, content);
                if (durable) {
                    out.force(true);
                }
            }
            Meta.apply(draft, entry);
            rename(draft, target);
        } catch (IOException e) {
            // Nothing of it counts, and where the disk is full it would be in the way of others.
            Files.deleteIfExists(draft);
            throw e;
        }
    }

    /** Removes what an earlier run left of a file not wanted any more, unless it is in use. */
    static void drop(Path target) throws IOException {
        Path path = partOf(target);
        if (Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
            try (FileChannel old = FileChannel.open(path, StandardOpenOption.WRITE)) {
                hold(old, target);
                dropJournal(target);
                Files.deleteIfExists(path);
            }
        } else {
            dropJournal(target);
            Files.deleteIfExists(path);
        }
    }

    private static void dropJournal(Path target) throws IOException {
        Files.deleteIfExists(journalOf(target));
        Files.deleteIfExists(draftOf(target));
    }

    /** Opens it, as the first block comes. */
    private void begin() throws IOException {
        if (file != null) {
            return;
        }
        if (journalEnd == 0) {
            create();
            return;
        }
        FileChannel part =
            FileChannel.open(partOf(target), StandardOpenOption.READ, StandardOpenOption.WRITE);
        try {
            hold(part, target);
            if (!keyOf(partOf(target)).equals(key)) {
                throw replaced();
            }
            journal = FileChannel.open(journalOf(target), StandardOpenOption.WRITE);
            journal.truncate(journalEnd);
            journal.position(journalEnd);
            file = part;
        } catch (IOException e) {
            Session.quietly(part);
            throw e;
        }
    }

    private void create() throws IOException {
        // None may vouch for another part than its own.
        drop(target);
        FileChannel part = Meta.create(partOf(target));
        try {
            hold(part, target);
            key = keyOf(partOf(target));
            if (entry.size > 0) {
                // What is not written reads as zeros.
                part.write(ByteBuffer.allocate(1), entry.size - 1);
            }
            journal = startJournal(journalOf(target), entry);
            file = part;
        } catch (IOException e) {
            Session.quietly(part);
            throw e;
        }
    }

    private static Object keyOf(Path path) throws IOException {
        Object key = Meta.look(path).fileKey();
        // Where the file system tells none, nothing can be compared.
        return key == null ? "" : key;
    }

    private BankfullException replaced() {
        return new BankfullException(
            Failure.BUSY,
            "another transfer has taken the place of the part of " + target.getFileName());
    }

    private static FileChannel startJournal(Path path, Entry entry) throws IOException {
        FileChannel journal = Meta.create(path);
        writeFully(journal, ByteBuffer.wrap(JournalFormat.header(entry, Meta.boot())));
        return journal;
    }

    private static void hold(FileChannel file, Path target) throws IOException {
        try {
            if (file.tryLock() != null) {
                return;
            }
        } catch (OverlappingFileLockException e) {
            // Another transfer of this process.
        } catch (IOException e) {
            // No locks on this file system: two transfers at once are the user's care.
            return;
        }
        throw new BankfullException(Failure.BUSY,
            "another bankfull is receiving " + target.getFileName()
            + ": wait until it is done, or end it");
    }

    private void resume() throws IOException {
        Path partPath = partOf(target);
        Path journalPath = journalOf(target);
        if (!Files.isRegularFile(partPath, LinkOption.NOFOLLOW_LINKS)
            || !Files.isRegularFile(journalPath, LinkOption.NOFOLLOW_LINKS)
            || Files.size(partPath) != entry.size || Files.size(journalPath) > JOURNAL_BYTES_MAX) {
            return;
        }
        try (FileChannel part =
            FileChannel.open(partPath, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            hold(part, target);
            byte[] read = Files.readAllBytes(journalPath);
            if (read.length < JournalFormat.HEADER_BYTES || !isFor(read, entry)) {
                return;
            }
            key = keyOf(partPath);
            byte[] boot = Meta.boot();
            byte[] header = JournalFormat.header(entry, boot);
            boolean sameBoot = Arrays.equals(header, Arrays.copyOf(read, header.length))
                && !Arrays.equals(boot, new byte[JournalFormat.BOOT_BYTES]);
            journalEnd = replay(read, sameBoot, part);
            if (!sameBoot) {
                journalEnd = rewrite();
            }
        }
    }

    /** Whether a journal is of this version of the file, under whatever boot. */
    private static boolean isFor(byte[] journal, Entry entry) {
        int bootAt = JournalFormat.HEADER_BYTES - 8 - JournalFormat.BOOT_BYTES;
        byte[] boot = Arrays.copyOfRange(journal, bootAt, bootAt + JournalFormat.BOOT_BYTES);
        byte[] header = JournalFormat.header(entry, boot);
        return Arrays.equals(header, Arrays.copyOf(journal, header.length));
    }

    /** Believes records up to the first that is not whole; where that is. */
    private int replay(byte[] journal, boolean sameBoot, FileChannel part) throws IOException {
        int end = JournalFormat.HEADER_BYTES;
        while (end + JournalFormat.RECORD_BYTES <= journal.length
            && JournalFormat.isWhole(journal, end)) {
            end += JournalFormat.RECORD_BYTES;
        }
        long covered = covered(journal, end);
        int n = 0;
        for (int at = JournalFormat.HEADER_BYTES; at < end; at += JournalFormat.RECORD_BYTES) {
            ByteBuffer record = ByteBuffer.wrap(journal, at, JournalFormat.RECORD_BYTES);
            believe(record, sameBoot || n < covered, part);
            n++;
        }
        return end;
    }

    /** How many records the last barrier covers. */
    private static long covered(byte[] journal, int end) {
        long covered = 0;
        for (int at = JournalFormat.HEADER_BYTES; at < end; at += JournalFormat.RECORD_BYTES) {
            if (journal[at + 8] == JournalFormat.BARRIER) {
                covered = Math.max(covered, ByteBuffer.wrap(journal, at, 8).getLong());
            }
        }
        return covered;
    }

    private void believe(ByteBuffer record, boolean surely, FileChannel part) throws IOException {
        long number = record.getLong();
        int kind = record.get();
        Buffers.position(record, record.position() + 3);
        byte[] hash = new byte[Blake3.HASH_BYTES];
        record.get(hash);
        if (kind == JournalFormat.BARRIER || number < 0 || number >= layout.count()) {
            return;
        }
        if (kind == JournalFormat.HOLES) {
            long count = ByteBuffer.wrap(hash).getLong();
            if (count > 0 && count <= layout.count() - number) {
                here.set((int) number, (int) (number + count));
            }
        } else if (kind == JournalFormat.COPIED) {
            here.set((int) number, (int) number + (surely ? 1 : 0));
        } else if (surely || Arrays.equals(hash, hashOf(number, part))) {
            here.set((int) number);
            keep(number, hash);
        }
    }

    /** Reads a block of the part and hashes it. */
    private byte[] hashOf(long block, FileChannel part) throws IOException {
        Blake3 hasher = layout.hasher(layout.offset(block));
        ByteBuffer buffer = ByteBuffer.allocate(PIECE_BYTES);
        long at = layout.offset(block);
        long end = at + layout.length(block);
        while (at < end) {
            Buffers.limit(Buffers.clear(buffer), (int) Math.min(buffer.capacity(), end - at));
            int read = part.read(buffer, at);
            if (read <= 0) {
                return new byte[0];
            }
            at += read;
            hasher.update(Buffers.flip(buffer));
        }
        return layout.finish(hasher);
    }

    /** Under another boot: the journal anew, with what is believed; how long it is. */
    private long rewrite() throws IOException {
        Files.deleteIfExists(draftOf(target));
        try (FileChannel fresh = startJournal(draftOf(target), entry)) {
            for (int block = here.nextSetBit(0); block >= 0; block = here.nextSetBit(block + 1)) {
                byte[] hash = hashed.get(block) ? keptHash(block) : null;
                byte[] record = hash != null
                    ? JournalFormat.record(JournalFormat.BLOCK, block, hash)
                    : JournalFormat.record(JournalFormat.COPIED, block, null);
                writeFully(fresh, ByteBuffer.wrap(record));
            }
            Files.move(draftOf(target), journalOf(target), StandardCopyOption.ATOMIC_MOVE);
            return fresh.position();
        }
    }

    private void keep(long block, byte[] hash) {
        if (layout.count() > HASHED_BLOCKS_MAX) {
            return;
        }
        if (hashes == null) {
            hashes = new byte[(int) layout.count() * Blake3.HASH_BYTES];
        }
        System.arraycopy(hash, 0, hashes, (int) block * Blake3.HASH_BYTES, Blake3.HASH_BYTES);
        hashed.set((int) block);
    }

    private byte[] keptHash(long block) {
        int at = (int) block * Blake3.HASH_BYTES;
        return Arrays.copyOfRange(hashes, at, at + Blake3.HASH_BYTES);
    }

    /** Whether a block is here. */
    synchronized boolean has(long block) {
        return here.get((int) block);
    }

    /** The blocks that are here. */
    synchronized BitSet here() {
        return (BitSet) here.clone();
    }

    /** Writes a piece of a block. */
    void write(ByteBuffer piece, long offset) throws IOException {
        FileChannel into;
        synchronized (this) {
            begin();
            into = file;
        }
        long at = offset;
        while (piece.hasRemaining()) {
            at += into.write(piece, at);
        }
    }

    /** A block is verified and written. */
    synchronized void verified(long block, byte[] hash) throws IOException {
        writeFully(journal,
            ByteBuffer.wrap(JournalFormat.record(JournalFormat.BLOCK, block, hash)));
        here.set((int) block);
        keep(block, hash);
    }

    /** Blocks of the source are holes: they read as zeros here too. */
    synchronized void holes(long first, long count) throws IOException {
        begin();
        for (long block = first; block < first + count; block++) {
            // A block that is here already is a hole of an earlier run, or was read as zeros.
            if (!here.get((int) block) && journalEnd > 0) {
                zero(block);
            }
        }
        writeFully(journal, ByteBuffer.wrap(JournalFormat.holes(first, count)));
        here.set((int) first, (int) (first + count));
    }

    /** What an earlier run began to write of it is overwritten. */
    private void zero(long block) throws IOException {
        long end = layout.offset(block) + layout.length(block);
        for (long at = layout.offset(block); at < end;) {
            at += file.write(ByteBuffer.allocate((int) Math.min(PIECE_BYTES, end - at)), at);
        }
    }

    synchronized boolean isWhole() {
        return here.cardinality() == layout.count();
    }

    /** BLAKE3 of the whole file, as far as the hashes of all its blocks are known. */
    synchronized byte[] wholeHash() {
        if (layout.count() > HASHED_BLOCKS_MAX || hashed.cardinality() != layout.count()) {
            return null;
        }
        byte[][] each = new byte[(int) layout.count()][];
        for (int i = 0; i < each.length; i++) {
            each[i] = keptHash(i);
        }
        return Layout.merge(Arrays.asList(each));
    }

    /** Gives the file its metadata and its name. */
    synchronized void place(boolean durable) throws IOException {
        begin();
        Path part = partOf(target);
        if (!keyOf(part).equals(key)) {
            throw replaced();
        }
        if (durable) {
            file.force(true);
        }
        Meta.apply(part, entry);
        rename(part, target);
        close();
        dropJournal(target);
        if (durable) {
            Path directory = target.toAbsolutePath().getParent();
            try (FileChannel listing = FileChannel.open(directory, StandardOpenOption.READ)) {
                listing.force(true);
            }
        }
    }

    static void rename(Path from, Path to) throws IOException {
        try {
            Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
        } catch (AtomicMoveNotSupportedException e) {
            Files.move(from, to, StandardCopyOption.REPLACE_EXISTING);
        }
    }

    synchronized void close() {
        if (file != null) {
            Session.quietly(file);
        }
        if (journal != null) {
            Session.quietly(journal);
        }
    }

    private static void writeFully(FileChannel channel, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }
}
