package org.bankfull.engine;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Buffers;
import org.bankfull.wire.DataHeader;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Message;

/**
 * The sending end of a data connection: another thread reads and hashes ahead, this one sends. On a
 * plain connection blocks go from the file to the socket without passing through this process
 * (ZeroBuffer: {@code transferTo}, slice by slice at an offset).
 */
final class DataWriter implements DataConnections.Work {
    private static final int PIECE_BYTES = 256 << 10;
    /** Enough to bridge a stall of either thread: 2 MiB for a connection. */
    private static final int PIECES = 8;

    private final Session session;
    private final Sender sender;

    DataWriter(Session session, Sender sender) {
        this.session = session;
        this.sender = sender;
    }

    /** What is to be sent, in order: bytes, or a range of a file. */
    private static final class Item {
        ByteBuffer bytes;
        /** Whether the buffer is one of those that are reused. */
        boolean pooled;
        FileChannel file;
        long offset;
        int length;
        Outgoing of;

        static Item of(byte[] bytes) {
            Item item = new Item();
            item.bytes = ByteBuffer.wrap(bytes);
            return item;
        }
    }

    private static final Item LAST = new Item();

    @Override
    public void on(DataConnection connection) throws IOException {
        BlockingQueue<Item> queue = new ArrayBlockingQueue<>(PIECES + 4);
        BlockingQueue<ByteBuffer> spare = new ArrayBlockingQueue<>(PIECES);
        for (int i = 0; i < PIECES; i++) {
            spare.add(connection.buffer(PIECE_BYTES));
        }
        Reader reader = new Reader(connection, queue, spare);
        Thread thread = new Thread(reader, "bankfull-read-" + connection.stream);
        thread.setDaemon(true);
        thread.start();
        try {
            for (Item item = queue.take(); item != LAST; item = queue.take()) {
                send(connection, item);
                if (item.pooled) {
                    spare.add(item.bytes);
                }
            }
            session.check();
            if (!sender.isDone()) {
                throw new IOException("the connection was ended before all was sent");
            }
            connection.write(ByteBuffer.wrap(DataHeader.end().write()));
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        } finally {
            reader.stop();
        }
    }

    @Override
    public Message lost(int stream) {
        return Message.stream(Message.STREAM_LOST, stream);
    }

    /** The connection is not used any more: whoever reads ahead for it ends. */
    private static final class Stopped extends Exception {
        private static final long serialVersionUID = 1;
    }

    private void send(DataConnection connection, Item item) throws IOException {
        if (item.bytes != null) {
            connection.write(item.bytes);
            return;
        }
        long sent = connection.transfer(item.file, item.offset, item.length);
        if (sent < item.length) {
            // The frame is to be filled; its tag will not fit.
            ByteBuffer zeros = ByteBuffer.allocate(PIECE_BYTES);
            for (long left = item.length - sent; left > 0; left -= zeros.limit()) {
                Buffers.limit(Buffers.clear(zeros), (int) Math.min(zeros.capacity(), left));
                connection.write(zeros.duplicate());
            }
            sender.changed(item.of);
        }
    }

    /** Takes work, reads it, and hashes it. */
    private final class Reader implements Runnable {
        private final DataConnection connection;
        private final BlockingQueue<Item> queue;
        private final BlockingQueue<ByteBuffer> spare;
        /** The file that was read last stays open: its next block comes soon. */
        private FileChannel file;
        private Outgoing fileOf;
        private final List<FileChannel> opened = new ArrayList<>();
        private volatile boolean stopped;

        Reader(DataConnection connection, BlockingQueue<Item> queue,
            BlockingQueue<ByteBuffer> spare) {
            this.connection = connection;
            this.queue = queue;
            this.spare = spare;
        }

        void stop() {
            stopped = true;
        }

        @Override
        public void run() {
            try {
                for (Sender.Work work = sender.take(connection.stream); work != null && !stopped;
                    work = sender.take(connection.stream)) {
                    if (work.pack != null) {
                        pack(work.pack);
                    } else {
                        block(work.file, work.block);
                    }
                }
                put(LAST);
            } catch (Stopped e) {
                // What was not sent is said to be lost with its connection.
            } catch (Throwable e) {
                // Out of memory, too: the other thread must not wait in vain.
                if (!stopped) {
                    session.fail(e);
                    connection.close();
                    stopped = true;
                    queue.clear();
                    queue.add(LAST);
                }
            } finally {
                awaitStop();
                opened.forEach(Session::quietly);
            }
        }

        /** Files are open as long as the other thread may send from them. */
        private void awaitStop() {
            while (!stopped && !session.isOver()) {
                try {
                    Thread.sleep(10);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }

        private void put(Item item) throws Stopped {
            try {
                while (!queue.offer(item, 100, TimeUnit.MILLISECONDS)) {
                    checkStopped();
                }
            } catch (InterruptedException e) {
                throw new Stopped();
            }
        }

        private ByteBuffer spare() throws Stopped {
            try {
                for (ByteBuffer buffer = null;;) {
                    buffer = spare.poll(100, TimeUnit.MILLISECONDS);
                    if (buffer != null) {
                        return buffer;
                    }
                    checkStopped();
                }
            } catch (InterruptedException e) {
                throw new Stopped();
            }
        }

        private void checkStopped() throws Stopped {
            if (stopped || session.isOver()) {
                throw new Stopped();
            }
        }

        private void open(Outgoing wanted) throws IOException {
            if (fileOf != wanted) {
                file = FileChannel.open(wanted.path);
                opened.add(file);
                fileOf = wanted;
                if (opened.size() > 2 * PIECES) {
                    // What was opened so long ago has been sent: no more waits in the queue.
                    Session.quietly(opened.remove(0));
                }
            }
        }

        private void block(Outgoing work, long block) throws IOException, Stopped {
            long offset = work.layout.offset(block);
            int length = work.layout.length(block);
            byte[] header = DataHeader.block(work.entry.id, offset, length).write();
            Blake3 hasher = work.layout.hasher(offset);
            boolean read;
            try {
                open(work);
                if (!Meta.isUnchanged(work.path, work.entry)) {
                    sender.changed(work);
                    return;
                }
                read = connection.isPlain()
                    ? hashAhead(hasher, offset, length)
                    : copy(header, hasher, offset, length);
            } catch (IOException e) {
                sender.giveUp(work, Meta.failure("cannot read " + work.path, e), false);
                return;
            }
            byte[] hash = work.layout.finish(hasher);
            if (read) {
                sender.hashed(work, block, hash);
            } else {
                sender.changed(work);
                if (connection.isPlain()) {
                    return;
                }
            }
            if (connection.isPlain()) {
                put(Item.of(header));
                Item range = new Item();
                range.file = file;
                range.offset = offset;
                range.length = length;
                range.of = work;
                put(range);
            }
            put(Item.of(connection.tag(header, hash)));
        }

        /**
         * Hashes a block that will be sent from the file; false when the file ends before it does.
         */
        private boolean hashAhead(Blake3 hasher, long offset, int length)
            throws IOException, Stopped {
            ByteBuffer buffer = spare();
            try {
                for (int done = 0; done < length; done += buffer.limit()) {
                    Buffers.limit(Buffers.clear(buffer),
                        Math.min(buffer.capacity(), length - done));
                    if (!fill(buffer, offset + done)) {
                        return false;
                    }
                    hasher.update(Buffers.flip(buffer));
                }
                return true;
            } finally {
                spare.add(buffer);
            }
        }

        private boolean fill(ByteBuffer buffer, long offset) throws IOException {
            long at = offset;
            while (buffer.hasRemaining()) {
                int read = file.read(buffer, at);
                if (read <= 0) {
                    return false;
                }
                at += read;
            }
            return true;
        }

        /** Reads a block, hashes it, and hands it on; false when the file ends before it does. */
        private boolean copy(byte[] header, Blake3 hasher, long offset, int length)
            throws IOException, Stopped {
            put(Item.of(header));
            boolean whole = true;
            for (int done = 0; done < length;) {
                ByteBuffer buffer = spare();
                Buffers.limit(Buffers.clear(buffer), Math.min(buffer.capacity(), length - done));
                whole = whole && readOrNot(buffer, offset + done);
                // Where it cannot be read, whatever is in the buffer fills the frame, and the tag
                // tells.
                Buffers.position(buffer, 0);
                if (whole) {
                    hasher.update(buffer.duplicate());
                }
                done += buffer.limit();
                Item item = new Item();
                item.bytes = buffer;
                item.pooled = true;
                put(item);
            }
            return whole;
        }

        private boolean readOrNot(ByteBuffer buffer, long offset) {
            try {
                return fill(buffer, offset);
            } catch (IOException e) {
                return false;
            }
        }

        private void pack(List<Outgoing> files) throws IOException, Stopped {
            long bytes =
                files.stream().mapToLong(one -> one.entry.size + 12 + Blake3.HASH_BYTES).sum();
            ByteBuffer out = ByteBuffer.allocate((int) bytes);
            int count = 0;
            for (Outgoing one : files) {
                byte[] content = readWhole(one);
                if (content != null) {
                    out.putLong(one.entry.id).putInt(content.length).put(Blake3.hash(content))
                        .put(content);
                    count++;
                }
            }
            if (count == 0) {
                return;
            }
            Buffers.flip(out);
            byte[] header = DataHeader.pack(count, out.limit()).write();
            byte[] hash = Blake3.hasher().update(out.duplicate()).finish();
            put(Item.of(header));
            Item payload = new Item();
            payload.bytes = out;
            put(payload);
            put(Item.of(connection.tag(header, hash)));
        }

        /** The content of a small file; null when it is gone, or not what was announced. */
        private byte[] readWhole(Outgoing one) {
            byte[] content = new byte[(int) one.entry.size];
            try (FileChannel in = FileChannel.open(one.path)) {
                ByteBuffer buffer = ByteBuffer.wrap(content);
                while (buffer.hasRemaining() && in.read(buffer) > 0) {
                    continue;
                }
                if (buffer.hasRemaining() || !Meta.isUnchanged(one.path, one.entry)) {
                    sender.changed(one);
                    return null;
                }
                return content;
            } catch (java.nio.file.NoSuchFileException e) {
                sender.giveUp(one, new Failure(Failure.VANISHED,
                    one.path + " vanished before it was read"), false);
            } catch (IOException e) {
                sender.giveUp(one, Meta.failure("cannot read " + one.path, e), false);
            }
            return null;
        }
    }
}
