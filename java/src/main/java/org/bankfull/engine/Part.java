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
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.JournalFormat;
import org.bankfull.wire.Layout;

/**
 * A file of blocks while it arrives: the part beside its target, and the journal that says which of
 * its blocks are verified (spec/wire.md, appendix A), so that a later run, of this client or another,
 * goes on where this one stopped.
 */
final class Part {
    /** Hashes are kept, to compare that of the whole file, of files with so many blocks at most. */
    private static final long HASHED_BLOCKS_MAX = 1 << 19;
    private static final int PIECE_BYTES = 256 << 10;

    private final Path directory;
    private final Path target;
    private final Entry entry;
    private final Layout layout;
    private final FileChannel file;
    private final FileChannel journal;
    /** Blocks that are verified, or holes. */
    final BitSet here = new BitSet();
    /** Of the blocks, one behind the other; null where there are too many. */
    private final byte[] hashes;
    /** Blocks whose hash is known. */
    private final BitSet hashed = new BitSet();
    private boolean touched;

    private Part(Path directory, Path target, Entry entry, Layout layout, FileChannel file, FileChannel journal) {
        this.directory = directory;
        this.target = target;
        this.entry = entry;
        this.layout = layout;
        this.file = file;
        this.journal = journal;
        boolean few = layout.count() <= HASHED_BLOCKS_MAX;
        this.hashes = few ? new byte[(int) layout.count() * Blake3.HASH_BYTES] : null;
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

    /** Removes what an earlier run left of a file that is not wanted any more. */
    static void drop(Path target) throws IOException {
        dropJournal(target);
        Files.deleteIfExists(partOf(target));
    }

    private static void dropJournal(Path target) throws IOException {
        Files.deleteIfExists(journalOf(target));
        Files.deleteIfExists(draftOf(target));
    }

    /** Goes on with what an earlier run left, or begins anew. */
    static Part open(Path directory, Path target, Entry entry) throws IOException {
        Layout layout;
        try {
            layout = Layout.of(entry.size, entry.blockBytes);
        } catch (org.bankfull.wire.WireException e) {
            throw new BankfullException(Failure.PROTOCOL, e.getMessage(), e);
        }
        Part resumed = resume(directory, target, entry, layout);
        return resumed != null ? resumed : create(directory, target, entry, layout);
    }

    private static Part create(Path directory, Path target, Entry entry, Layout layout) throws IOException {
        // None may vouch for another part than its own.
        dropJournal(target);
        Files.deleteIfExists(partOf(target));
        FileChannel file = FileChannel.open(partOf(target), StandardOpenOption.CREATE_NEW,
            StandardOpenOption.READ, StandardOpenOption.WRITE);
        try {
            hold(file, target);
            extend(file, entry.size);
            FileChannel journal = begin(journalOf(target), entry);
            return new Part(directory, target, entry, layout, file, journal);
        } catch (IOException e) {
            Session.quietly(file);
            throw e;
        }
    }

    /** Gives a file its full size; what is not written reads as zeros. */
    private static void extend(FileChannel file, long size) throws IOException {
        file.write(ByteBuffer.allocate(1), size - 1);
    }

    private static FileChannel begin(Path path, Entry entry) throws IOException {
        FileChannel journal = FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
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
        throw new BankfullException(Failure.BUSY, "another bankfull is receiving " + target.getFileName()
            + ": wait until it is done, or end it");
    }

    private static Part resume(Path directory, Path target, Entry entry, Layout layout) throws IOException {
        Path partPath = partOf(target);
        Path journalPath = journalOf(target);
        if (!Files.isRegularFile(partPath, LinkOption.NOFOLLOW_LINKS)
            || !Files.isRegularFile(journalPath, LinkOption.NOFOLLOW_LINKS)) {
            return null;
        }
        byte[] journal = Files.readAllBytes(journalPath);
        byte[] header = JournalFormat.header(entry, Meta.boot());
        if (journal.length < header.length || Files.size(partPath) != entry.size || !isFor(journal, entry)) {
            return null;
        }
        FileChannel file = FileChannel.open(partPath, StandardOpenOption.READ, StandardOpenOption.WRITE);
        try {
            hold(file, target);
            boolean sameBoot = Arrays.equals(header, 0, header.length, journal, 0, header.length)
                && !Arrays.equals(Meta.boot(), new byte[JournalFormat.BOOT_BYTES]);
            FileChannel rest = FileChannel.open(journalPath, StandardOpenOption.WRITE);
            Part part = new Part(directory, target, entry, layout, file, rest);
            part.touched = true;
            int end = part.replay(journal, sameBoot);
            if (!sameBoot) {
                Session.quietly(rest);
                return part.rewritten();
            }
            rest.truncate(end);
            rest.position(end);
            return part;
        } catch (IOException e) {
            Session.quietly(file);
            throw e;
        }
    }

    /** Whether a journal is of this version of the file, under whatever boot. */
    private static boolean isFor(byte[] journal, Entry entry) {
        int bootAt = JournalFormat.HEADER_BYTES - 8 - JournalFormat.BOOT_BYTES;
        byte[] boot = Arrays.copyOfRange(journal, bootAt, bootAt + JournalFormat.BOOT_BYTES);
        byte[] header = JournalFormat.header(entry, boot);
        return Arrays.equals(header, 0, header.length, journal, 0, header.length);
    }

    /** Believes records up to the first that is not whole; where that is. */
    private int replay(byte[] journal, boolean sameBoot) throws IOException {
        int end = JournalFormat.HEADER_BYTES;
        while (end + JournalFormat.RECORD_BYTES <= journal.length && JournalFormat.isWhole(journal, end)) {
            end += JournalFormat.RECORD_BYTES;
        }
        long covered = covered(journal, end);
        for (int at = JournalFormat.HEADER_BYTES, n = 0; at < end; at += JournalFormat.RECORD_BYTES, n++) {
            believe(ByteBuffer.wrap(journal, at, JournalFormat.RECORD_BYTES), sameBoot || n < covered);
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

    private void believe(ByteBuffer record, boolean surely) throws IOException {
        long number = record.getLong();
        int kind = record.get();
        record.position(record.position() + 3);
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
        } else if (surely || Arrays.equals(hash, hashOf(number))) {
            here.set((int) number);
            keep(number, hash);
        }
    }

    /** Reads a block of the part and hashes it. */
    private byte[] hashOf(long block) throws IOException {
        Blake3 hasher = layout.hasher(layout.offset(block));
        ByteBuffer buffer = ByteBuffer.allocate(PIECE_BYTES);
        long at = layout.offset(block);
        long end = at + layout.length(block);
        while (at < end) {
            buffer.clear().limit((int) Math.min(buffer.capacity(), end - at));
            int read = file.read(buffer, at);
            if (read <= 0) {
                return new byte[0];
            }
            at += read;
            hasher.update(buffer.flip());
        }
        return layout.finish(hasher);
    }

    /** Under another boot: the journal anew, with what is believed. */
    private Part rewritten() throws IOException {
        Files.deleteIfExists(draftOf(target));
        FileChannel fresh = begin(draftOf(target), entry);
        for (int block = here.nextSetBit(0); block >= 0; block = here.nextSetBit(block + 1)) {
            byte[] hash = hashed.get(block) ? keptHash(block) : null;
            byte[] record = hash != null
                ? JournalFormat.record(JournalFormat.BLOCK, block, hash)
                : JournalFormat.record(JournalFormat.COPIED, block, null);
            writeFully(fresh, ByteBuffer.wrap(record));
        }
        Files.move(draftOf(target), journalOf(target), StandardCopyOption.ATOMIC_MOVE);
        Part part = new Part(directory, target, entry, layout, file, fresh);
        part.touched = true;
        part.here.or(here);
        part.hashed.or(hashed);
        if (hashes != null) {
            System.arraycopy(hashes, 0, part.hashes, 0, hashes.length);
        }
        return part;
    }

    private void keep(long block, byte[] hash) {
        if (hashes != null) {
            System.arraycopy(hash, 0, hashes, (int) block * Blake3.HASH_BYTES, Blake3.HASH_BYTES);
            hashed.set((int) block);
        }
    }

    private byte[] keptHash(long block) {
        int at = (int) block * Blake3.HASH_BYTES;
        return Arrays.copyOfRange(hashes, at, at + Blake3.HASH_BYTES);
    }

    /** Writes a piece of a block. */
    void write(ByteBuffer piece, long offset) throws IOException {
        long at = offset;
        while (piece.hasRemaining()) {
            at += file.write(piece, at);
        }
    }

    /** A block is verified and written. */
    synchronized void verified(long block, byte[] hash) throws IOException {
        writeFully(journal, ByteBuffer.wrap(JournalFormat.record(JournalFormat.BLOCK, block, hash)));
        here.set((int) block);
        keep(block, hash);
    }

    /** Blocks of the source are holes: they read as zeros here too. */
    synchronized void holes(long first, long count) throws IOException {
        long end = Math.min(layout.size, layout.offset(first + count));
        for (long at = layout.offset(first); touched && at < end;) {
            ByteBuffer zeros = ByteBuffer.allocate((int) Math.min(PIECE_BYTES, end - at));
            at += file.write(zeros, at);
        }
        writeFully(journal, ByteBuffer.wrap(JournalFormat.holes(first, count)));
        here.set((int) first, (int) (first + count));
    }

    synchronized boolean isWhole() {
        return here.cardinality() == layout.count();
    }

    /** BLAKE3 of the whole file, as far as the hashes of all its blocks are known. */
    synchronized byte[] wholeHash() {
        if (hashes == null || hashed.cardinality() != layout.count()) {
            return null;
        }
        byte[][] each = new byte[(int) layout.count()][];
        for (int i = 0; i < each.length; i++) {
            each[i] = keptHash(i);
        }
        return Layout.merge(Arrays.asList(each));
    }

    /** Gives the file its metadata and its name. */
    void place(boolean durable) throws IOException {
        if (durable) {
            file.force(true);
        }
        Path part = partOf(target);
        Meta.apply(part, entry);
        rename(part, target);
        close();
        dropJournal(target);
        if (durable) {
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

    void close() {
        Session.quietly(file);
        Session.quietly(journal);
    }

    private static void writeFully(FileChannel channel, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }
}
