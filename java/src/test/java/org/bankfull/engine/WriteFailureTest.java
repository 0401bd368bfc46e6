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

/** Failed writes: error messages and remaining files. */
class WriteFailureTest {
    @TempDir
    Path temp;

    @Test
    void failure_diskFull_namesRemedy() {
        String hint = " (verified data is kept: free some space and start the same transfer again)";
        for (String reason : new String[] {"No space left on device", "Disk quota exceeded"}) {
            String lowered = reason.substring(0, 1).toLowerCase() + reason.substring(1);
            for (IOException e : new IOException[] {
                new IOException(reason), new FileSystemException("f", null, reason)}) {
                Failure failure = Metadata.failure("cannot write", e);
                assertEquals("cannot write: " + lowered + hint, failure.text);
                assertEquals(Failure.NO_SPACE, failure.code);
            }
        }
        Failure other = Metadata.failure("cannot write", new IOException("Input/output error"));
        assertEquals("cannot write: input/output error", other.text);
        assertEquals(Failure.IO, other.code);
    }

    @Test
    void writeSmallFile_targetIsDirectory_leavesNoTemporaryFile() throws IOException {
        Path target = Files.createDirectory(temp.resolve("f"));
        Files.writeString(target.resolve("inside"), "prevents the replacement");
        assertThrows(IOException.class,
            () -> PartFile.writeSmallFile(
                target, ByteBuffer.wrap(new byte[100]), new Entry(), false));
        try (Stream<Path> remaining = Files.list(temp)) {
            assertEquals(1, remaining.count());
        }
    }
}
