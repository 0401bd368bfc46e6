package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Limits;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Loops over content: each looks at the end of its session on the way. */
class PartFileTest {
    private static final int BLOCK_BYTES = Limits.MAX_BLOCK_BYTES;
    private static final int LOOK_BYTES = 256 << 10;

    @TempDir
    Path temp;
    private Path target;
    private Entry entry;

    /** Session that ends after some looks. */
    private static final class Ending implements StopCheck {
        private final AtomicInteger looksLeft;

        Ending(int looks) {
            looksLeft = new AtomicInteger(looks);
        }

        @Override
        public void throwIfOver() throws IOException {
            if (looksLeft.decrementAndGet() < 0) {
                throw new IOException("the session has ended");
            }
        }

        int looksLeft() {
            return looksLeft.get();
        }
    }

    /** Leaves a part file of two verified blocks of ones. */
    @BeforeEach
    void leavePart() throws IOException {
        target = temp.resolve("file");
        entry = new Entry();
        entry.kind = Entry.FILE;
        entry.size = 2L * BLOCK_BYTES;
        entry.blockBytes = BLOCK_BYTES;
        byte[] ones = new byte[LOOK_BYTES];
        java.util.Arrays.fill(ones, (byte) 1);
        PartFile part = PartFile.open(target, entry, new Ending(0));
        for (long block = 0; block < 2; block++) {
            Blake3 hasher = Blake3.subtree(block * BLOCK_BYTES);
            for (int at = 0; at < BLOCK_BYTES; at += LOOK_BYTES) {
                part.write(ByteBuffer.wrap(ones), block * BLOCK_BYTES + at);
                hasher.update(ByteBuffer.wrap(ones));
            }
            part.recordVerified(block, hasher.finishSubtree());
        }
        part.close();
    }

    private void assertEnds(Ending session, IOException error) {
        assertEquals("the session has ended", error.getMessage());
        assertEquals(-1, session.looksLeft());
    }

    @Test
    void check_sessionEnds_stopsWithinBlock() throws IOException {
        Ending session = new Ending(1000);
        PartFile part = PartFile.open(target, entry, session);
        int before = session.looksLeft();
        assertTrue(part.check(0));
        assertEquals(BLOCK_BYTES / LOOK_BYTES, before - session.looksLeft());
        part.close();

        Ending ending = new Ending(1000 - before + 3);
        PartFile again = PartFile.open(target, entry, ending);
        assertEnds(ending, assertThrows(IOException.class, () -> again.check(0)));
        again.close();
    }

    @Test
    void recordHoles_sessionEnds_stopsWithinBlock() throws IOException {
        Ending session = new Ending(1000);
        PartFile part = PartFile.open(target, entry, session);
        int before = session.looksLeft();
        part.close();

        Ending ending = new Ending(1000 - before + 4);
        PartFile again = PartFile.open(target, entry, ending);
        assertEnds(ending, assertThrows(IOException.class, () -> again.recordHoles(0, 2)));
        again.close();
        byte[] content = Files.readAllBytes(PartFile.partPath(target));
        // One look for the block, then one before each chunk.
        assertEquals(0, content[3 * LOOK_BYTES - 1]);
        assertEquals(1, content[3 * LOOK_BYTES]);
    }

    @Test
    void open_sessionEnds_stopsWithinJournal() throws IOException {
        Ending ending = new Ending(1);
        assertEnds(ending,
            assertThrows(IOException.class, () -> PartFile.open(target, entry, ending)));
        assertEquals(2, PartFile.open(target, entry, new Ending(1000)).leftBlocks().size());
    }

    @Test
    void hashFile_sessionEnds_stopsWithinFile() throws IOException {
        Path part = PartFile.partPath(target);
        Ending session = new Ending(1000);
        Metadata.hashFile(part, session);
        assertEquals(2 * BLOCK_BYTES / LOOK_BYTES, 1000 - session.looksLeft());
        Ending ending = new Ending(2);
        assertEnds(ending,
            assertThrows(IOException.class, () -> Metadata.hashFile(part, ending)));
    }
}
