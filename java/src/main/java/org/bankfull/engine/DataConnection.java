package org.bankfull.engine;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import org.bankfull.wire.Attach;
import org.bankfull.wire.Buffers;

/** A data connection that has joined its session: bytes in one direction, tags for them. */
final class DataConnection implements Closeable {
    /** A TLS record. */
    private static final int SLICE_BYTES_LEAST = 16 << 10;
    private static final int SLICE_BYTES_MOST = 256 << 10;
    /** A slice that took longer is followed by one that is half as long. */
    private static final long SLICE_NANOS_AIMED = 50_000_000;

    /** Number in the session. */
    final int stream;

    private final SocketChannel plain;
    private final InputStream in;
    private final OutputStream out;
    private final Closeable socket;
    /** Null on an encrypted connection. */
    private final byte[] streamKey;
    private long tagged;
    /** When the bytes that are being written were handed over, by nanoTime; 0: none are. */
    private volatile long writing;
    /**
     * How much is handed over at a time: little where that takes long, so that all of it is seen.
     */
    private int slice = SLICE_BYTES_LEAST;

    DataConnection(int stream, SocketChannel plain, byte[] streamKey) {
        this(stream, plain, null, null, plain, streamKey);
    }

    /**
     * Encrypted, over a socket that is closed below it: closing TLS would wait for whoever writes.
     */
    DataConnection(int stream, Socket raw, Socket secure) throws IOException {
        this(stream, null, secure.getInputStream(), secure.getOutputStream(), raw, null);
    }

    private DataConnection(int stream, SocketChannel plain, InputStream in, OutputStream out,
        Closeable socket, byte[] streamKey) {
        this.stream = stream;
        this.plain = plain;
        this.in = in;
        this.out = out;
        this.socket = socket;
        this.streamKey = streamKey;
    }

    boolean isPlain() {
        return plain != null;
    }

    /** A buffer that this kind of connection takes without a further copy. */
    ByteBuffer buffer(int bytes) {
        return isPlain() ? ByteBuffer.allocateDirect(bytes) : ByteBuffer.allocate(bytes);
    }

    /** The tag of the next frame, given its header and the hash of its payload. */
    byte[] tag(byte[] header, byte[] payloadHash) {
        return streamKey == null
            ? payloadHash
            : Attach.tag(streamKey, tagged++, header, payloadHash);
    }

    /** Fills what remains of a buffer. */
    void readFully(ByteBuffer buffer) throws IOException {
        while (buffer.hasRemaining()) {
            int read;
            if (isPlain()) {
                read = plain.read(buffer);
            } else {
                read = in.read(buffer.array(), buffer.arrayOffset() + buffer.position(),
                    buffer.remaining());
                if (read > 0) {
                    Buffers.position(buffer, buffer.position() + read);
                }
            }
            if (read < 0) {
                throw new EOFException("a data connection ended");
            }
        }
    }

    /** Writes what remains of a buffer. */
    void write(ByteBuffer buffer) throws IOException {
        int end = buffer.limit();
        while (buffer.position() < end) {
            long began = begin();
            Buffers.limit(buffer, Math.min(end, buffer.position() + slice));
            if (isPlain()) {
                plain.write(buffer);
            } else {
                int at = buffer.arrayOffset() + buffer.position();
                out.write(buffer.array(), at, buffer.remaining());
                Buffers.position(buffer, buffer.limit());
            }
            ended(began);
            Buffers.limit(buffer, end);
        }
    }

    /**
     * Sends a range of a file without copying it through this process, slice by slice.
     *
     * @return what was sent: less than asked for when the file ended
     */
    long transfer(FileChannel file, long offset, long length) throws IOException {
        long sent = 0;
        while (sent < length) {
            long began = begin();
            long moved = file.transferTo(offset + sent, Math.min(slice, length - sent), plain);
            ended(began);
            if (moved <= 0) {
                break;
            }
            sent += moved;
        }
        return sent;
    }

    private long begin() {
        long now = System.nanoTime();
        writing = now == 0 ? 1 : now;
        return now;
    }

    private void ended(long began) {
        writing = 0;
        boolean quick = System.nanoTime() - began < SLICE_NANOS_AIMED;
        slice = quick
            ? Math.min(slice * 2, SLICE_BYTES_MOST)
            : Math.max(slice / 2, SLICE_BYTES_LEAST);
    }

    /** Whether the other side has taken nothing for so long of what is being written to it. */
    boolean isStuck(long millis) {
        long since = writing;
        return since != 0 && (System.nanoTime() - since) / 1_000_000 > millis;
    }

    @Override
    public void close() {
        if (isPlain()) {
            // Closing alone would not wake a thread that sends from a file.
            Session.quietly(plain::shutdownInput);
            Session.quietly(plain::shutdownOutput);
        }
        Session.quietly(socket);
    }
}
