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
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import org.bankfull.BankfullException;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Buffers;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.JournalFormat;
import org.bankfull.wire.Layout;

/**
 * Part file of a file with blocks, and the journal of its verified blocks.
 *
 * <p>Both lie beside the target (spec/wire.md, appendix A); a later run of any client resumes from
 * them.
 */
final class PartFile {
    /** Limit of blocks whose hashes are kept to verify the file digest. */
    private static final long MAX_HASHED_BLOCKS = 1 << 16;
    /** Size above which a journal is ignored, to limit memory. */
    private static final long MAX_JOURNAL_BYTES = 8 << 20;
    private static final int CHUNK_BYTES = 256 << 10;

    private final Path target;
    private final Entry entry;
    private final Layout layout;
    private final StopCheck session;
    /** Open since the first block. */
    private FileChannel file;
    private FileChannel journal;
    /** Identity of the part file (inode), to detect its replacement. */
    private Object fileKey;
    /** Length of the valid journal of an earlier run; 0: none. */
    private long journalEnd;
    /** Verified blocks and holes. */
    private final BitSet completed = new BitSet();
    /** Blocks of an earlier run that are not checked yet, with their hashes. */
    private final SortedMap<Long, byte[]> left = new TreeMap<>();
    /** Blocks among them that the journal of this boot does not record. */
    private final Set<Long> unrecorded = new HashSet<>();
    /** Concatenated block hashes; null if there are too many or none yet. */
    private byte[] hashes;
    /** Blocks whose hash is known. */
    private final BitSet hashed = new BitSet();

    private PartFile(Path target, Entry entry, StopCheck session) throws IOException {
        this.target = target;
        this.entry = entry;
        this.session = session;
        try {
            this.layout = Layout.of(entry.size, entry.blockBytes);
        } catch (org.bankfull.wire.WireException e) {
            throw new BankfullException(Failure.PROTOCOL, e.getMessage(), e);
        }
    }

    /** Loads the state of an earlier run; opens and creates no file yet. */
    static PartFile open(Path target, Entry entry, StopCheck session) throws IOException {
        PartFile part = new PartFile(target, entry, session);
        part.resume();
        return part;
    }

    private static Path siblingPath(Path target, String end) {
        byte[] hash = Blake3.hash(Metadata.nameBytes(target.getFileName()));
        StringBuilder name = new StringBuilder(".bankfull-");
        for (int i = 0; i < 8; i++) {
            name.append(String.format("%02x", hash[i]));
        }
        return target.resolveSibling(name.append(end).toString());
    }

    static Path partPath(Path target) {
        return siblingPath(target, ".part");
    }

    private static Path journalPath(Path target) {
        return siblingPath(target, ".journal");
    }

    private static Path journalDraftPath(Path target) {
        return siblingPath(target, ".journal.new");
    }

    /** Writes a packed file under a temporary name and moves it into place. */
    static void writeSmallFile(Path target, ByteBuffer content, Entry entry, boolean durable)
        throws IOException {
        Path temporary = partPath(target);
        discard(target);
        FileChannel created = Metadata.createFile(temporary);
        try {
            try (FileChannel out = created) {
                writeFully(out, content);
                if (durable) {
                    out.force(true);
                }
            }
            Metadata.apply(temporary, entry);
            rename(temporary, target);
        } catch (IOException e) {
            // Useless, and on a full disk its space is needed.
            Files.deleteIfExists(temporary);
            throw e;
        }
    }

    /** Deletes part file and journal of an earlier run, unless they are locked. */
    static void discard(Path target) throws IOException {
        Path path = partPath(target);
        if (Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
            try (FileChannel old = FileChannel.open(path, StandardOpenOption.WRITE)) {
                lock(old, target);
                discardJournal(target);
                Files.deleteIfExists(path);
            }
        } else {
            discardJournal(target);
            Files.deleteIfExists(path);
        }
    }

    private static void discardJournal(Path target) throws IOException {
        Files.deleteIfExists(journalPath(target));
        Files.deleteIfExists(journalDraftPath(target));
    }

    /** Opens or creates part file and journal, for the first block. */
    private void openOrCreate() throws IOException {
        if (file != null) {
            return;
        }
        if (journalEnd == 0) {
            create();
            return;
        }
        FileChannel part =
            FileChannel.open(partPath(target), StandardOpenOption.READ, StandardOpenOption.WRITE);
        try {
            lock(part, target);
            if (!readFileKey(partPath(target)).equals(fileKey)) {
                throw replacedError();
            }
            journal = FileChannel.open(journalPath(target), StandardOpenOption.WRITE);
            journal.truncate(journalEnd);
            journal.position(journalEnd);
            file = part;
        } catch (IOException e) {
            Session.closeQuietly(part);
            throw e;
        }
    }

    private void create() throws IOException {
        // A stale journal must not apply to the new part file.
        discard(target);
        FileChannel part = Metadata.createFile(partPath(target));
        try {
            lock(part, target);
            fileKey = readFileKey(partPath(target));
            if (entry.size > 0) {
                // Unwritten ranges read as zeros.
                part.write(ByteBuffer.allocate(1), entry.size - 1);
            }
            journal = createJournal(journalPath(target), entry);
            file = part;
        } catch (IOException e) {
            Session.closeQuietly(part);
            throw e;
        }
    }

    private static Object readFileKey(Path path) throws IOException {
        Object fileKey = Metadata.attributes(path).fileKey();
        // Without file keys, replacement cannot be detected.
        return fileKey == null ? "" : fileKey;
    }

    private BankfullException replacedError() {
        return new BankfullException(
            Failure.BUSY,
            "another transfer has replaced the part file of " + target.getFileName()
            + ": run one transfer at a time");
    }

    private static FileChannel createJournal(Path path, Entry entry) throws IOException {
        FileChannel journal = Metadata.createFile(path);
        writeFully(journal, ByteBuffer.wrap(JournalFormat.header(entry, Metadata.bootId())));
        return journal;
    }

    private static void lock(FileChannel file, Path target) throws IOException {
        try {
            if (file.tryLock() != null) {
                return;
            }
        } catch (OverlappingFileLockException e) {
            // Locked by another transfer of this process.
        } catch (IOException e) {
            // No locks on this file system: concurrent transfers are not detected.
            return;
        }
        throw new BankfullException(Failure.BUSY,
            "another bankfull is receiving " + target.getFileName()
            + ": wait until it is done, or stop it");
    }

    private void resume() throws IOException {
        Path partPath = partPath(target);
        Path journalPath = journalPath(target);
        if (!Files.isRegularFile(partPath, LinkOption.NOFOLLOW_LINKS)
            || !Files.isRegularFile(journalPath, LinkOption.NOFOLLOW_LINKS)
            || Files.size(partPath) != entry.size || Files.size(journalPath) > MAX_JOURNAL_BYTES) {
            return;
        }
        try (FileChannel part =
            FileChannel.open(partPath, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            lock(part, target);
            byte[] read = Files.readAllBytes(journalPath);
            if (read.length < JournalFormat.HEADER_BYTES || !matches(read, entry)) {
                return;
            }
            fileKey = readFileKey(partPath);
            byte[] bootId = Metadata.bootId();
            byte[] header = JournalFormat.header(entry, bootId);
            boolean isSameBoot = Arrays.equals(header, Arrays.copyOf(read, header.length))
                && !Arrays.equals(bootId, new byte[JournalFormat.BOOT_ID_BYTES]);
            journalEnd = replay(read, isSameBoot);
            if (!isSameBoot) {
                journalEnd = rewriteJournal();
            }
        }
    }

    /** True if a journal belongs to this version of the file, under any boot ID. */
    private static boolean matches(byte[] journal, Entry entry) {
        int bootAt = JournalFormat.HEADER_BYTES - 8 - JournalFormat.BOOT_ID_BYTES;
        byte[] bootId = Arrays.copyOfRange(journal, bootAt, bootAt + JournalFormat.BOOT_ID_BYTES);
        byte[] header = JournalFormat.header(entry, bootId);
        return Arrays.equals(header, Arrays.copyOf(journal, header.length));
    }

    /** Applies valid records; returns the offset of the first invalid one. */
    private int replay(byte[] journal, boolean isSameBoot) throws IOException {
        int end = JournalFormat.HEADER_BYTES;
        while (end + JournalFormat.RECORD_BYTES <= journal.length
            && JournalFormat.isValidRecord(journal, end)) {
            session.throwIfOver();
            end += JournalFormat.RECORD_BYTES;
        }
        long covered = coveredRecords(journal, end);
        int index = 0;
        for (int at = JournalFormat.HEADER_BYTES; at < end; at += JournalFormat.RECORD_BYTES) {
            ByteBuffer record = ByteBuffer.wrap(journal, at, JournalFormat.RECORD_BYTES);
            applyRecord(record, isSameBoot || index < covered);
            index++;
        }
        return end;
    }

    /** Returns the number of records covered by the last barrier. */
    private static long coveredRecords(byte[] journal, int end) {
        long covered = 0;
        for (int at = JournalFormat.HEADER_BYTES; at < end; at += JournalFormat.RECORD_BYTES) {
            if (journal[at + 8] == JournalFormat.BARRIER) {
                covered = Math.max(covered, ByteBuffer.wrap(journal, at, 8).getLong());
            }
        }
        return covered;
    }

    /** Applies a record. Holes are announced again, and copies have no hash to check. */
    private void applyRecord(ByteBuffer record, boolean isDurable) {
        long number = record.getLong();
        int kind = record.get();
        Buffers.position(record, record.position() + 3);
        byte[] hash = new byte[Blake3.HASH_BYTES];
        record.get(hash);
        if (number < 0 || number >= layout.blockCount()) {
            return;
        }
        if (kind == JournalFormat.BLOCK) {
            left.put(number, hash);
            if (isDurable) {
                unrecorded.remove(number);
            } else {
                unrecorded.add(number);
            }
        } else if (kind == JournalFormat.DAMAGED) {
            left.remove(number);
        }
    }

    /** Hashes a block of the part file. */
    private byte[] hashBlock(long block, FileChannel part) throws IOException {
        Blake3 hasher = layout.hasher(layout.offset(block));
        ByteBuffer buffer = ByteBuffer.allocate(CHUNK_BYTES);
        long at = layout.offset(block);
        long end = at + layout.length(block);
        while (at < end) {
            session.throwIfOver();
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

    /** Rewrites the journal under the current boot ID; returns its length. */
    private long rewriteJournal() throws IOException {
        Files.deleteIfExists(journalDraftPath(target));
        try (FileChannel draft = createJournal(journalDraftPath(target), entry)) {
            for (Map.Entry<Long, byte[]> block : left.entrySet()) {
                session.throwIfOver();
                // Others may be lost with the power: they are recorded once they are checked.
                if (!unrecorded.contains(block.getKey())) {
                    writeFully(draft, ByteBuffer.wrap(JournalFormat.record(
                        JournalFormat.BLOCK, block.getKey(), block.getValue())));
                }
            }
            Files.move(journalDraftPath(target), journalPath(target),
                StandardCopyOption.ATOMIC_MOVE);
            return draft.position();
        }
    }

    private void keepHash(long block, byte[] hash) {
        if (layout.blockCount() > MAX_HASHED_BLOCKS) {
            return;
        }
        if (hashes == null) {
            hashes = new byte[(int) layout.blockCount() * Blake3.HASH_BYTES];
        }
        System.arraycopy(hash, 0, hashes, (int) block * Blake3.HASH_BYTES, Blake3.HASH_BYTES);
        hashed.set((int) block);
    }

    private byte[] keptHash(long block) {
        int at = (int) block * Blake3.HASH_BYTES;
        return Arrays.copyOfRange(hashes, at, at + Blake3.HASH_BYTES);
    }

    /** True if a block is verified, a hole, or one of {@link #leftBlocks}. */
    synchronized boolean hasBlock(long block) {
        return completed.get((int) block) || left.containsKey(block);
    }

    /** Returns the blocks of an earlier run that are not checked yet. */
    synchronized List<Long> leftBlocks() {
        return new ArrayList<>(left.keySet());
    }

    /** Checks a block of an earlier run; null if it is not pending any more. */
    Boolean check(long block) throws IOException {
        FileChannel channel;
        synchronized (this) {
            openOrCreate();
            channel = file;
        }
        byte[] hash = hashBlock(block, channel);
        synchronized (this) {
            byte[] expected = left.remove(block);
            if (expected == null) {
                return null;
            }
            boolean isIntact = Arrays.equals(hash, expected);
            if (!isIntact) {
                writeFully(journal,
                    ByteBuffer.wrap(JournalFormat.record(JournalFormat.DAMAGED, block, null)));
            } else if (unrecorded.contains(block)) {
                recordVerified(block, hash);
            } else {
                completed.set((int) block);
                keepHash(block, hash);
            }
            return isIntact;
        }
    }

    /** Writes a chunk of a block. */
    void write(ByteBuffer chunk, long offset) throws IOException {
        FileChannel channel;
        synchronized (this) {
            openOrCreate();
            channel = file;
        }
        long at = offset;
        while (chunk.hasRemaining()) {
            at += channel.write(chunk, at);
        }
    }

    /** Records a written and verified block in the journal. */
    synchronized void recordVerified(long block, byte[] hash) throws IOException {
        writeFully(journal,
            ByteBuffer.wrap(JournalFormat.record(JournalFormat.BLOCK, block, hash)));
        completed.set((int) block);
        keepHash(block, hash);
    }

    /** Records blocks that are holes; they read as zeros. */
    synchronized void recordHoles(long first, long count) throws IOException {
        openOrCreate();
        for (long block = first; block < first + count; block++) {
            session.throwIfOver();
            left.remove(block);
            // A completed block is a hole of an earlier run or was received as zeros.
            if (!completed.get((int) block) && journalEnd > 0) {
                zeroBlock(block);
            }
        }
        writeFully(journal, ByteBuffer.wrap(JournalFormat.holes(first, count)));
        completed.set((int) first, (int) (first + count));
    }

    /** Overwrites data of an earlier run with zeros. */
    private void zeroBlock(long block) throws IOException {
        long end = layout.offset(block) + layout.length(block);
        for (long at = layout.offset(block); at < end;) {
            session.throwIfOver();
            at += file.write(ByteBuffer.allocate((int) Math.min(CHUNK_BYTES, end - at)), at);
        }
    }

    synchronized boolean isComplete() {
        return completed.cardinality() == layout.blockCount();
    }

    /** Returns the BLAKE3 of the file; null unless all block hashes are known. */
    synchronized byte[] fileHash() {
        if (layout.blockCount() > MAX_HASHED_BLOCKS
            || hashed.cardinality() != layout.blockCount()) {
            return null;
        }
        byte[][] blockHashes = new byte[(int) layout.blockCount()][];
        for (int i = 0; i < blockHashes.length; i++) {
            blockHashes[i] = keptHash(i);
        }
        return Layout.fileHash(Arrays.asList(blockHashes));
    }

    /** Sets the metadata and moves the part file to its target. */
    synchronized void moveIntoPlace(boolean durable) throws IOException {
        openOrCreate();
        Path part = partPath(target);
        if (!readFileKey(part).equals(fileKey)) {
            throw replacedError();
        }
        if (durable) {
            file.force(true);
        }
        Metadata.apply(part, entry);
        rename(part, target);
        close();
        discardJournal(target);
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
            Session.closeQuietly(file);
        }
        if (journal != null) {
            Session.closeQuietly(journal);
        }
    }

    private static void writeFully(FileChannel channel, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }
}
