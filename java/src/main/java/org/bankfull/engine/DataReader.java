package org.bankfull.engine;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Buffers;
import org.bankfull.wire.DataHeader;
import org.bankfull.wire.Layout;
import org.bankfull.wire.Limits;
import org.bankfull.wire.Message;
import org.bankfull.wire.WireException;

/**
 * Receiving end of a data stream: one thread reads the socket, another hashes and writes.
 *
 * <p>A fixed set of reused buffers connects the two.
 */
final class DataReader implements DataStreams.Task {
    /** Chunk size (chosen: fits the L2 cache, long enough for parallel hashing). */
    private static final int CHUNK_BYTES = 256 << 10;
    /** Chunks per stream (chosen: 2 MiB bridge a stall of either thread). */
    private static final int CHUNKS = 8;

    private final Session session;
    private final Receiver receiver;

    DataReader(Session session, Receiver receiver) {
        this.session = session;
        this.receiver = receiver;
    }

    /** Received element, in order: header, chunk of payload, or tag. */
    private static final class Item {
        final DataHeader header;
        final byte[] headerBytes;
        final ByteBuffer chunk;
        final byte[] tag;

        private Item(DataHeader header, byte[] headerBytes, ByteBuffer chunk, byte[] tag) {
            this.header = header;
            this.headerBytes = headerBytes;
            this.chunk = chunk;
            this.tag = tag;
        }
    }

    private static final Item END_OF_STREAM = new Item(null, null, null, null);

    @Override
    public void run(DataStream stream) throws IOException {
        BlockingQueue<Item> queue = new ArrayBlockingQueue<>(CHUNKS + 2);
        BlockingQueue<ByteBuffer> freeChunks = new ArrayBlockingQueue<>(CHUNKS);
        for (int i = 0; i < CHUNKS; i++) {
            freeChunks.add(stream.buffer(CHUNK_BYTES));
        }
        Writer writer = new Writer(stream, queue, freeChunks);
        Thread thread = new Thread(writer, "bankfull-write-" + stream.number);
        thread.setDaemon(true);
        thread.start();
        try {
            read(stream, queue, freeChunks);
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        } catch (WireException e) {
            throw session.protocolError(e);
        } finally {
            finish(thread, queue);
        }
    }

    @Override
    public Message lossMessage(int number) {
        return Message.stream(Message.STREAM_ENDED, number);
    }

    /** Processes all received data before the end of the stream is reported. */
    private void finish(Thread writer, BlockingQueue<Item> queue) throws IOException {
        try {
            queue.put(END_OF_STREAM);
            writer.join();
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        }
        session.throwIfFailed();
    }

    private void read(DataStream stream, BlockingQueue<Item> queue,
        BlockingQueue<ByteBuffer> freeChunks)
        throws IOException, WireException, InterruptedException {
        ByteBuffer headerBuffer = stream.buffer(DataHeader.BYTES);
        while (true) {
            byte[] bytes = readHeaderOrTag(stream, headerBuffer);
            DataHeader header = DataHeader.read(bytes);
            if (header.kind == DataHeader.END) {
                return;
            }
            queue.put(new Item(header, bytes, null, null));
            for (int left = header.length; left > 0;) {
                ByteBuffer chunk = freeChunks.take();
                Buffers.limit(Buffers.clear(chunk), Math.min(chunk.capacity(), left));
                left -= chunk.remaining();
                stream.readFully(chunk);
                queue.put(new Item(null, null, Buffers.flip(chunk), null));
            }
            queue.put(new Item(null, null, null, readHeaderOrTag(stream, headerBuffer)));
        }
    }

    private static byte[] readHeaderOrTag(DataStream stream, ByteBuffer buffer)
        throws IOException {
        stream.readFully(Buffers.clear(buffer));
        byte[] bytes = new byte[DataHeader.BYTES];
        Buffers.flip(buffer).get(bytes);
        return bytes;
    }

    /** Hashes and writes; continues to empty the queue after a failure. */
    private final class Writer implements Runnable {
        private final DataStream stream;
        private final BlockingQueue<Item> queue;
        private final BlockingQueue<ByteBuffer> freeChunks;
        private final AtomicReference<Throwable> failure = new AtomicReference<>();
        private IncomingFile incoming;
        private DataHeader header;
        private byte[] headerBytes;
        private Blake3 hasher;
        private Layout layout;
        private long offset;
        private ByteBuffer pack;

        Writer(DataStream stream, BlockingQueue<Item> queue,
            BlockingQueue<ByteBuffer> freeChunks) {
            this.stream = stream;
            this.queue = queue;
            this.freeChunks = freeChunks;
        }

        @Override
        public void run() {
            try {
                for (Item item = queue.take(); item != END_OF_STREAM; item = queue.take()) {
                    try {
                        if (failure.get() == null) {
                            handle(item);
                        }
                    } catch (Throwable e) {
                        // Includes OutOfMemoryError: the reading thread must not wait forever.
                        failure.set(e);
                        session.fail(e);
                        stream.close();
                    }
                    if (item.chunk != null) {
                        freeChunks.add(item.chunk);
                    }
                }
                if (incoming != null && header != null) {
                    receiver.releaseClaim(incoming, header.offset / incoming.entry.blockBytes);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        private void handle(Item item) throws IOException, WireException {
            if (item.header != null) {
                // The frame will cause control messages.
                session.awaitQueueSpace();
                beginFrame(item);
            } else if (item.chunk != null) {
                onChunk(item.chunk);
            } else {
                endFrame(item.tag);
            }
        }

        private void beginFrame(Item item) throws WireException {
            header = item.header;
            headerBytes = item.headerBytes;
            incoming = null;
            hasher = Blake3.hasher();
            if (header.kind == DataHeader.BLOCK) {
                incoming = receiver.claim(header.file, header.offset, header.length);
                offset = header.offset;
                if (incoming != null) {
                    layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
                    hasher = layout.hasher(header.offset);
                }
            } else if (pack == null) {
                pack = ByteBuffer.allocate(Limits.MAX_PACK_BYTES);
            }
            if (header.kind == DataHeader.PACK) {
                Buffers.clear(pack);
            }
        }

        private void onChunk(ByteBuffer chunk) {
            hasher.update(chunk.duplicate());
            if (header.kind == DataHeader.PACK) {
                pack.put(chunk);
            } else if (incoming != null && !incoming.isAbandoned) {
                try {
                    int length = chunk.remaining();
                    incoming.part.write(chunk, offset);
                    offset += length;
                } catch (IOException e) {
                    receiver.failFile(incoming, Metadata.failure("cannot write", e));
                }
            }
        }

        private void endFrame(byte[] tag) throws IOException, WireException {
            boolean isRoot = header.kind == DataHeader.PACK || incoming == null
                || layout.blockCount() == 1;
            byte[] hash = isRoot ? hasher.finish() : hasher.finishSubtree();
            boolean isValid =
                java.security.MessageDigest.isEqual(stream.tag(headerBytes, hash), tag);
            if (header.kind == DataHeader.PACK) {
                unpack(isValid);
            } else if (incoming != null) {
                IncomingFile file = incoming;
                long block = header.offset / file.entry.blockBytes;
                receiver.onBlock(file, block, isValid ? hash : null);
            }
            incoming = null;
            header = null;
        }

        private void unpack(boolean isValid) throws IOException, WireException {
            Buffers.flip(pack);
            for (int i = 0; i < header.count; i++) {
                session.throwIfOver();
                if (pack.remaining() < 12 + Blake3.HASH_BYTES) {
                    throw new WireException("truncated pack");
                }
                long file = pack.getLong();
                int length = pack.getInt();
                byte[] hash = new byte[Blake3.HASH_BYTES];
                pack.get(hash);
                if (length < 0 || length > Limits.MAX_PACKED_FILE_BYTES
                    || length > pack.remaining()) {
                    throw new WireException("a packed file exceeds its limit");
                }
                ByteBuffer content = pack.duplicate();
                Buffers.limit(content, pack.position() + length);
                receiver.onPackedFile(file, hash, content.slice(), isValid);
                Buffers.position(pack, pack.position() + length);
            }
            if (pack.hasRemaining()) {
                throw new WireException("trailing bytes in a pack");
            }
        }
    }
}
