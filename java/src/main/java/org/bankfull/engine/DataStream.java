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

/** Attached data stream: transfers bytes in one direction and computes frame tags. */
final class DataStream implements Closeable {
    /** Smallest slice: one TLS record. */
    private static final int MIN_SLICE_BYTES = 16 << 10;
    private static final int MAX_SLICE_BYTES = 256 << 10;
    /** Write time of a slice above which the next slice is halved. */
    private static final long TARGET_SLICE_NANOS = 50_000_000;

    /** Number of the stream in the session. */
    final int number;

    /** Channel of an unencrypted stream, else null. */
    private final SocketChannel channel;
    private final InputStream in;
    private final OutputStream out;
    private final Closeable socket;
    /** Tag key; null on an encrypted stream. */
    private final byte[] streamKey;
    private long nextFrame;
    /** Start of the current write, by nanoTime; 0: none. */
    private volatile long writeStartNanos;
    /** Bytes per write, adapted to the speed of the stream so that stalls are noticed. */
    private int sliceBytes = MIN_SLICE_BYTES;

    DataStream(int number, SocketChannel channel, byte[] streamKey) {
        this(number, channel, null, null, channel, streamKey);
    }

    /** Creates an encrypted stream; closes the raw socket, since TLS would block on a writer. */
    DataStream(int number, Socket raw, Socket secure) throws IOException {
        this(number, null, secure.getInputStream(), secure.getOutputStream(), raw, null);
    }

    private DataStream(int number, SocketChannel channel, InputStream in, OutputStream out,
        Closeable socket, byte[] streamKey) {
        this.number = number;
        this.channel = channel;
        this.in = in;
        this.out = out;
        this.socket = socket;
        this.streamKey = streamKey;
    }

    boolean isUnencrypted() {
        return channel != null;
    }

    /** Allocates a buffer that needs no further copy on this kind of stream. */
    ByteBuffer buffer(int bytes) {
        return isUnencrypted() ? ByteBuffer.allocateDirect(bytes) : ByteBuffer.allocate(bytes);
    }

    /** Computes the tag of the next frame from header and payload hash. */
    byte[] tag(byte[] header, byte[] payloadHash) {
        return streamKey == null
            ? payloadHash
            : Attach.tag(streamKey, nextFrame++, header, payloadHash);
    }

    /** Fills the remaining space of a buffer. */
    void readFully(ByteBuffer buffer) throws IOException {
        while (buffer.hasRemaining()) {
            int read;
            if (isUnencrypted()) {
                read = channel.read(buffer);
            } else {
                read = in.read(buffer.array(), buffer.arrayOffset() + buffer.position(),
                    buffer.remaining());
                if (read > 0) {
                    Buffers.position(buffer, buffer.position() + read);
                }
            }
            if (read < 0) {
                throw new EOFException("a data stream ended");
            }
        }
    }

    /** Writes the remaining bytes of a buffer. */
    void write(ByteBuffer buffer) throws IOException {
        int end = buffer.limit();
        while (buffer.position() < end) {
            long start = beginWrite();
            Buffers.limit(buffer, Math.min(end, buffer.position() + sliceBytes));
            if (isUnencrypted()) {
                channel.write(buffer);
            } else {
                int at = buffer.arrayOffset() + buffer.position();
                out.write(buffer.array(), at, buffer.remaining());
                Buffers.position(buffer, buffer.limit());
            }
            endWrite(start);
            Buffers.limit(buffer, end);
        }
    }

    /**
     * Sends a range of a file slice by slice, without copying it through user space.
     *
     * @return bytes sent; less than {@code length} if the file has become shorter
     */
    long transfer(FileChannel file, long offset, long length) throws IOException {
        long sent = 0;
        while (sent < length) {
            long start = beginWrite();
            long transferred =
                file.transferTo(offset + sent, Math.min(sliceBytes, length - sent), channel);
            endWrite(start);
            if (transferred <= 0) {
                break;
            }
            sent += transferred;
        }
        return sent;
    }

    private long beginWrite() {
        long now = System.nanoTime();
        writeStartNanos = now == 0 ? 1 : now;
        return now;
    }

    private void endWrite(long start) {
        writeStartNanos = 0;
        boolean isFast = System.nanoTime() - start < TARGET_SLICE_NANOS;
        sliceBytes = isFast
            ? Math.min(sliceBytes * 2, MAX_SLICE_BYTES)
            : Math.max(sliceBytes / 2, MIN_SLICE_BYTES);
    }

    /** True if the current write has lasted longer than {@code millis}. */
    boolean isStalled(long millis) {
        long since = writeStartNanos;
        return since != 0 && (System.nanoTime() - since) / 1_000_000 > millis;
    }

    @Override
    public void close() {
        if (isUnencrypted()) {
            // Closing alone does not wake a thread in transferTo.
            Session.closeQuietly(channel::shutdownInput);
            Session.closeQuietly(channel::shutdownOutput);
        }
        Session.closeQuietly(socket);
    }
}
