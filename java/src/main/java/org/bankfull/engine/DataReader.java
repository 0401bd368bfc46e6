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
 * The receiving end of a data connection: this thread takes bytes off the socket, another hashes
 * and writes the ones before. The buffers between the two are few, and reused.
 */
final class DataReader implements DataConnections.Work {
    /** Fits a processor's second cache, and is long enough to hash many chunks side by side. */
    private static final int PIECE_BYTES = 256 << 10;
    /** Enough to bridge a stall of either thread: 2 MiB for a connection. */
    private static final int PIECES = 8;

    private final Session session;
    private final Receiver receiver;

    DataReader(Session session, Receiver receiver) {
        this.session = session;
        this.receiver = receiver;
    }

    /** What comes off a connection, in order. */
    private static final class Item {
        final DataHeader header;
        final byte[] headerBytes;
        final ByteBuffer piece;
        final byte[] tag;

        private Item(DataHeader header, byte[] headerBytes, ByteBuffer piece, byte[] tag) {
            this.header = header;
            this.headerBytes = headerBytes;
            this.piece = piece;
            this.tag = tag;
        }
    }

    private static final Item LAST = new Item(null, null, null, null);

    @Override
    public void on(DataConnection connection) throws IOException {
        BlockingQueue<Item> taken = new ArrayBlockingQueue<>(PIECES + 2);
        BlockingQueue<ByteBuffer> spare = new ArrayBlockingQueue<>(PIECES);
        for (int i = 0; i < PIECES; i++) {
            spare.add(connection.buffer(PIECE_BYTES));
        }
        Writer writer = new Writer(connection, taken, spare);
        Thread thread = new Thread(writer, "bankfull-write-" + connection.stream);
        thread.setDaemon(true);
        thread.start();
        try {
            read(connection, taken, spare);
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        } catch (WireException e) {
            throw session.broken(e);
        } finally {
            finish(thread, taken);
        }
    }

    @Override
    public Message lost(int stream) {
        return Message.stream(Message.STREAM_ENDED, stream);
    }

    /** All that arrived is dealt with before anybody is told that the connection ended. */
    private void finish(Thread writer, BlockingQueue<Item> taken) throws IOException {
        try {
            taken.put(LAST);
            writer.join();
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        }
        session.check();
    }

    private void read(DataConnection connection, BlockingQueue<Item> taken,
        BlockingQueue<ByteBuffer> spare)
        throws IOException, WireException, InterruptedException {
        ByteBuffer small = connection.buffer(DataHeader.BYTES);
        while (true) {
            byte[] bytes = take(connection, small);
            DataHeader header = DataHeader.read(bytes);
            if (header.kind == DataHeader.END) {
                return;
            }
            taken.put(new Item(header, bytes, null, null));
            for (int left = header.length; left > 0;) {
                ByteBuffer piece = spare.take();
                Buffers.limit(Buffers.clear(piece), Math.min(piece.capacity(), left));
                left -= piece.remaining();
                connection.readFully(piece);
                taken.put(new Item(null, null, Buffers.flip(piece), null));
            }
            taken.put(new Item(null, null, null, take(connection, small)));
        }
    }

    private static byte[] take(DataConnection connection, ByteBuffer small) throws IOException {
        connection.readFully(Buffers.clear(small));
        byte[] bytes = new byte[DataHeader.BYTES];
        Buffers.flip(small).get(bytes);
        return bytes;
    }

    /**
     * Hashes and writes. After a failure it goes on taking, so that the other thread never waits.
     */
    private final class Writer implements Runnable {
        private final DataConnection connection;
        private final BlockingQueue<Item> taken;
        private final BlockingQueue<ByteBuffer> spare;
        private final AtomicReference<Throwable> failed = new AtomicReference<>();
        private Incoming incoming;
        private DataHeader header;
        private byte[] headerBytes;
        private Blake3 hasher;
        private Layout layout;
        private long at;
        private ByteBuffer pack;

        Writer(DataConnection connection, BlockingQueue<Item> taken,
            BlockingQueue<ByteBuffer> spare) {
            this.connection = connection;
            this.taken = taken;
            this.spare = spare;
        }

        @Override
        public void run() {
            try {
                for (Item item = taken.take(); item != LAST; item = taken.take()) {
                    try {
                        if (failed.get() == null) {
                            handle(item);
                        }
                    } catch (Throwable e) {
                        // Out of memory, too: the other thread must not wait in vain.
                        failed.set(e);
                        session.fail(e);
                        connection.close();
                    }
                    if (item.piece != null) {
                        spare.add(item.piece);
                    }
                }
                if (incoming != null && header != null) {
                    receiver.letGo(incoming, header.offset / incoming.entry.blockBytes);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        private void handle(Item item) throws IOException, WireException {
            if (item.header != null) {
                // What is in it will have to be answered.
                session.awaitRoom();
                begin(item);
            } else if (item.piece != null) {
                piece(item.piece);
            } else {
                end(item.tag);
            }
        }

        private void begin(Item item) throws WireException {
            header = item.header;
            headerBytes = item.headerBytes;
            incoming = null;
            hasher = Blake3.hasher();
            if (header.kind == DataHeader.BLOCK) {
                incoming = receiver.claim(header.file, header.offset, header.length);
                at = header.offset;
                if (incoming != null) {
                    layout = Layout.of(incoming.entry.size, incoming.entry.blockBytes);
                    hasher = layout.hasher(header.offset);
                }
            } else if (pack == null) {
                pack = ByteBuffer.allocate(Limits.PACK_BYTES);
            }
            if (header.kind == DataHeader.PACK) {
                Buffers.clear(pack);
            }
        }

        private void piece(ByteBuffer piece) {
            hasher.update(piece.duplicate());
            if (header.kind == DataHeader.PACK) {
                pack.put(piece);
            } else if (incoming != null && !incoming.dead) {
                try {
                    int length = piece.remaining();
                    incoming.part.write(piece, at);
                    at += length;
                } catch (IOException e) {
                    receiver.giveUp(incoming, Meta.failure("cannot write", e));
                }
            }
        }

        private void end(byte[] tag) throws WireException {
            boolean whole = header.kind == DataHeader.PACK || incoming == null
                || layout.count() == 1;
            byte[] hash = whole ? hasher.finish() : hasher.finishSubtree();
            boolean sound =
                java.security.MessageDigest.isEqual(connection.tag(headerBytes, hash), tag);
            if (header.kind == DataHeader.PACK) {
                unpack(sound);
            } else if (incoming != null) {
                Incoming done = incoming;
                long block = header.offset / done.entry.blockBytes;
                receiver.arrived(done, block, sound ? hash : null);
            }
            incoming = null;
            header = null;
        }

        private void unpack(boolean sound) throws WireException {
            Buffers.flip(pack);
            for (int i = 0; i < header.count; i++) {
                if (pack.remaining() < 12 + Blake3.HASH_BYTES) {
                    throw new WireException("a pack ends too early");
                }
                long file = pack.getLong();
                int length = pack.getInt();
                byte[] hash = new byte[Blake3.HASH_BYTES];
                pack.get(hash);
                if (length < 0 || length > Limits.PACKED_FILE_BYTES || length > pack.remaining()) {
                    throw new WireException("a file in a pack is too long");
                }
                ByteBuffer content = pack.duplicate();
                Buffers.limit(content, pack.position() + length);
                receiver.packed(file, hash, content.slice(), sound);
                Buffers.position(pack, pack.position() + length);
            }
            if (pack.hasRemaining()) {
                throw new WireException("a pack holds more than its files");
            }
        }
    }
}
