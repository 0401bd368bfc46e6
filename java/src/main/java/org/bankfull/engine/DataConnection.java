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

/** A data connection that has joined its session: bytes in one direction, tags for them. */
final class DataConnection implements Closeable {
    /** Number in the session. */
    final int stream;

    private final SocketChannel plain;
    private final InputStream in;
    private final OutputStream out;
    private final Closeable socket;
    /** Null on an encrypted connection. */
    private final byte[] streamKey;
    private long tagged;

    DataConnection(int stream, SocketChannel plain, byte[] streamKey) {
        this(stream, plain, null, null, plain, streamKey);
    }

    /** Encrypted, over a socket that is closed below it: closing TLS would wait for whoever writes. */
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
        return streamKey == null ? payloadHash : Attach.tag(streamKey, tagged++, header, payloadHash);
    }

    /** Fills what remains of a buffer. */
    void readFully(ByteBuffer buffer) throws IOException {
        while (buffer.hasRemaining()) {
            int read;
            if (isPlain()) {
                read = plain.read(buffer);
            } else {
                read = in.read(buffer.array(), buffer.arrayOffset() + buffer.position(), buffer.remaining());
                if (read > 0) {
                    buffer.position(buffer.position() + read);
                }
            }
            if (read < 0) {
                throw new EOFException("a data connection ended");
            }
        }
    }

    /** Writes what remains of a buffer. */
    void write(ByteBuffer buffer) throws IOException {
        if (!isPlain()) {
            out.write(buffer.array(), buffer.arrayOffset() + buffer.position(), buffer.remaining());
            buffer.position(buffer.limit());
        }
        while (buffer.hasRemaining()) {
            plain.write(buffer);
        }
    }

    /**
     * Sends a range of a file without copying it through this process, {@code piece} bytes at a time.
     *
     * @return what was sent: less than asked for when the file ended
     */
    long transfer(FileChannel file, long offset, long length, int piece) throws IOException {
        long sent = 0;
        while (sent < length) {
            long moved = file.transferTo(offset + sent, Math.min(piece, length - sent), plain);
            if (moved <= 0) {
                break;
            }
            sent += moved;
        }
        return sent;
    }

    @Override
    public void close() {
        Session.quietly(socket);
    }
}
