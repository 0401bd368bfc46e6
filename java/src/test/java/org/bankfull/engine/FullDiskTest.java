package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is said, and left, where the file system takes no more. */
class FullDiskTest {
    @TempDir
    Path temp;

    @Test
    void aFullDiskIsSaidWithWhatToDo() {
        String hint = " (what arrived is kept: free some space and start the same transfer again)";
        for (String said : new String[] {"No space left on device", "Disk quota exceeded"}) {
            String lowered = said.substring(0, 1).toLowerCase() + said.substring(1);
            for (IOException e : new IOException[] {
                new IOException(said), new FileSystemException("f", null, said)}) {
                Failure failure = Meta.failure("cannot write", e);
                assertEquals("cannot write: " + lowered + hint, failure.text);
                assertEquals(Failure.NO_SPACE, failure.code);
            }
        }
        Failure other = Meta.failure("cannot write", new IOException("Input/output error"));
        assertEquals("cannot write: input/output error", other.text);
        assertEquals(Failure.IO, other.code);
    }

    @Test
    void aSmallFileThatCannotBePutInPlaceLeavesNothing() throws IOException {
        Path target = Files.createDirectory(temp.resolve("f"));
        Files.writeString(target.resolve("inside"), "so that it cannot be replaced");
        assertThrows(IOException.class,
            () -> Part.put(target, ByteBuffer.wrap(new byte[100]), new Entry(), false));
        try (Stream<Path> left = Files.list(temp)) {
            assertEquals(1, left.count());
        }
    }
}
