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
 * Sending end of a data stream: one thread reads and hashes ahead, another sends.
 *
 * <p>On an unencrypted stream, blocks go from the file to the socket without a copy through user
 * space (ZeroBuffer: {@code transferTo}, slice by slice at an offset).
 */
final class DataWriter implements DataStreams.Task {
    private static final int CHUNK_BYTES = 256 << 10;
    /** Chunks per stream (chosen: 2 MiB bridge a stall of either thread). */
    private static final int CHUNKS = 8;

    private final Session session;
    private final Sender sender;

    DataWriter(Session session, Sender sender) {
        this.session = session;
        this.sender = sender;
    }

    /** Element to be sent, in order: bytes or a range of a file. */
    private static final class Item {
        ByteBuffer bytes;
        /** The buffer belongs to the free chunks and is reused. */
        boolean isPooled;
        FileChannel file;
        long offset;
        int length;
        OutgoingFile source;

        static Item of(byte[] bytes) {
            Item item = new Item();
            item.bytes = ByteBuffer.wrap(bytes);
            return item;
        }
    }

    private static final Item END_OF_STREAM = new Item();

    @Override
    public void run(DataStream stream) throws IOException {
        BlockingQueue<Item> queue = new ArrayBlockingQueue<>(CHUNKS + 4);
        BlockingQueue<ByteBuffer> freeChunks = new ArrayBlockingQueue<>(CHUNKS);
        for (int i = 0; i < CHUNKS; i++) {
            freeChunks.add(stream.buffer(CHUNK_BYTES));
        }
        Reader reader = new Reader(stream, queue, freeChunks);
        Thread thread = new Thread(reader, "bankfull-read-" + stream.number);
        thread.setDaemon(true);
        thread.start();
        try {
            for (Item item = queue.take(); item != END_OF_STREAM; item = queue.take()) {
                send(stream, item);
                if (item.isPooled) {
                    freeChunks.add(item.bytes);
                }
            }
            session.throwIfFailed();
            if (!sender.isAllSent()) {
                throw new IOException("the data stream was ended before all data was sent");
            }
            stream.write(ByteBuffer.wrap(DataHeader.end().write()));
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        } finally {
            reader.stop();
        }
    }

    @Override
    public Message lossMessage(int number) {
        return Message.stream(Message.STREAM_LOST, number);
    }

    /** Signals the reading thread that its stream is closed. */
    private static final class ReaderStopped extends Exception {
        private static final long serialVersionUID = 1;
    }

    private void send(DataStream stream, Item item) throws IOException {
        if (item.bytes != null) {
            stream.write(item.bytes);
            return;
        }
        long sent = stream.transfer(item.file, item.offset, item.length);
        if (sent < item.length) {
            // Fill up the frame; its tag will not match.
            ByteBuffer zeros = ByteBuffer.allocate(CHUNK_BYTES);
            for (long left = item.length - sent; left > 0; left -= zeros.limit()) {
                Buffers.limit(Buffers.clear(zeros), (int) Math.min(zeros.capacity(), left));
                stream.write(zeros.duplicate());
            }
            sender.onSourceChanged(item.source);
        }
    }

    /** Reads and hashes assigned work. */
    private final class Reader implements Runnable {
        private final DataStream stream;
        private final BlockingQueue<Item> queue;
        private final BlockingQueue<ByteBuffer> freeChunks;
        /** Channel of {@code lastFile}, kept open for its next block. */
        private FileChannel file;
        private OutgoingFile lastFile;
        private final List<FileChannel> opened = new ArrayList<>();
        private volatile boolean stopped;

        Reader(DataStream stream, BlockingQueue<Item> queue,
            BlockingQueue<ByteBuffer> freeChunks) {
            this.stream = stream;
            this.queue = queue;
            this.freeChunks = freeChunks;
        }

        void stop() {
            stopped = true;
        }

        @Override
        public void run() {
            try {
                for (Sender.Work work = sender.takeWork(stream.number); work != null && !stopped;
                    work = sender.takeWork(stream.number)) {
                    if (work.pack != null) {
                        queuePack(work.pack);
                    } else {
                        queueBlock(work.file, work.block);
                    }
                }
                enqueue(END_OF_STREAM);
            } catch (ReaderStopped e) {
                // Unsent work is reported with the loss of the stream.
                endStream();
            } catch (Throwable e) {
                // Includes OutOfMemoryError.
                if (!stopped) {
                    session.fail(e);
                }
                endStream();
            } finally {
                awaitStop();
                opened.forEach(Session::closeQuietly);
            }
        }

        /** Ends the sending thread, which must not wait forever. */
        private void endStream() {
            if (!stopped) {
                stream.close();
                stopped = true;
                queue.clear();
                queue.add(END_OF_STREAM);
            }
        }

        /** Keeps files open while the sending thread may still use them. */
        private void awaitStop() {
            while (!stopped && !session.isOver()) {
                try {
                    Thread.sleep(10);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }

        private void enqueue(Item item) throws ReaderStopped {
            try {
                while (!queue.offer(item, 100, TimeUnit.MILLISECONDS)) {
                    throwIfStopped();
                }
            } catch (InterruptedException e) {
                throw new ReaderStopped();
            }
        }

        private ByteBuffer takeFreeChunk() throws ReaderStopped {
            try {
                while (true) {
                    throwIfStopped();
                    ByteBuffer buffer = freeChunks.poll(100, TimeUnit.MILLISECONDS);
                    if (buffer != null) {
                        return buffer;
                    }
                }
            } catch (InterruptedException e) {
                throw new ReaderStopped();
            }
        }

        private void throwIfStopped() throws ReaderStopped {
            if (stopped || session.isOver()) {
                throw new ReaderStopped();
            }
        }

        private void openFile(OutgoingFile wanted) throws IOException {
            if (lastFile != wanted) {
                file = FileChannel.open(wanted.path);
                opened.add(file);
                lastFile = wanted;
                if (opened.size() > 2 * CHUNKS) {
                    // The oldest file has no more ranges in the queue.
                    Session.closeQuietly(opened.remove(0));
                }
            }
        }

        private void queueBlock(OutgoingFile work, long block) throws IOException, ReaderStopped {
            long offset = work.layout.offset(block);
            int length = work.layout.length(block);
            byte[] header = DataHeader.block(work.entry.id, offset, length).write();
            Blake3 hasher = work.layout.hasher(offset);
            boolean isComplete;
            try {
                openFile(work);
                if (!Metadata.isUnchanged(work.path, work.entry)) {
                    sender.onSourceChanged(work);
                    return;
                }
                isComplete = stream.isUnencrypted()
                    ? hashBlock(hasher, offset, length)
                    : queueContent(header, hasher, offset, length);
            } catch (IOException e) {
                sender.abort(work, Metadata.failure("cannot read " + work.path, e), false);
                return;
            }
            byte[] hash = work.layout.finish(hasher);
            if (isComplete) {
                sender.recordHash(work, block, hash);
            } else {
                sender.onSourceChanged(work);
                if (stream.isUnencrypted()) {
                    return;
                }
            }
            if (stream.isUnencrypted()) {
                enqueue(Item.of(header));
                Item range = new Item();
                range.file = file;
                range.offset = offset;
                range.length = length;
                range.source = work;
                enqueue(range);
            }
            enqueue(Item.of(stream.tag(header, hash)));
        }

        /** Hashes a block sent from the file; returns false if the file is too short. */
        private boolean hashBlock(Blake3 hasher, long offset, int length)
            throws IOException, ReaderStopped {
            ByteBuffer buffer = takeFreeChunk();
            try {
                for (int done = 0; done < length; done += buffer.limit()) {
                    throwIfStopped();
                    Buffers.limit(Buffers.clear(buffer),
                        Math.min(buffer.capacity(), length - done));
                    if (!readFully(buffer, offset + done)) {
                        return false;
                    }
                    hasher.update(Buffers.flip(buffer));
                }
                return true;
            } finally {
                freeChunks.add(buffer);
            }
        }

        private boolean readFully(ByteBuffer buffer, long offset) throws IOException {
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

        /** Reads, hashes and queues a block; returns false if the file is too short. */
        private boolean queueContent(byte[] header, Blake3 hasher, long offset, int length)
            throws IOException, ReaderStopped {
            enqueue(Item.of(header));
            boolean isComplete = true;
            for (int done = 0; done < length;) {
                ByteBuffer buffer = takeFreeChunk();
                Buffers.limit(Buffers.clear(buffer), Math.min(buffer.capacity(), length - done));
                isComplete = isComplete && tryReadFully(buffer, offset + done);
                // After a read error, stale bytes fill the frame and its tag does not match.
                Buffers.position(buffer, 0);
                if (isComplete) {
                    hasher.update(buffer.duplicate());
                }
                done += buffer.limit();
                Item item = new Item();
                item.bytes = buffer;
                item.isPooled = true;
                enqueue(item);
            }
            return isComplete;
        }

        private boolean tryReadFully(ByteBuffer buffer, long offset) {
            try {
                return readFully(buffer, offset);
            } catch (IOException e) {
                return false;
            }
        }

        private void queuePack(List<OutgoingFile> files) throws IOException, ReaderStopped {
            long bytes =
                files.stream().mapToLong(file -> file.entry.size + 12 + Blake3.HASH_BYTES).sum();
            ByteBuffer out = ByteBuffer.allocate((int) bytes);
            int count = 0;
            for (OutgoingFile file : files) {
                throwIfStopped();
                byte[] content = readSmallFile(file);
                if (content != null) {
                    out.putLong(file.entry.id).putInt(content.length).put(Blake3.hash(content))
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
            enqueue(Item.of(header));
            Item payload = new Item();
            payload.bytes = out;
            enqueue(payload);
            enqueue(Item.of(stream.tag(header, hash)));
        }

        /** Returns the content of a small file; null if it vanished or changed. */
        private byte[] readSmallFile(OutgoingFile file) {
            byte[] content = new byte[(int) file.entry.size];
            try (FileChannel in = FileChannel.open(file.path)) {
                ByteBuffer buffer = ByteBuffer.wrap(content);
                while (buffer.hasRemaining() && in.read(buffer) > 0) {
                    continue;
                }
                if (buffer.hasRemaining() || !Metadata.isUnchanged(file.path, file.entry)) {
                    sender.onSourceChanged(file);
                    return null;
                }
                return content;
            } catch (java.nio.file.NoSuchFileException e) {
                sender.abort(file, new Failure(Failure.SOURCE_VANISHED,
                    file.path + " vanished before it was read"), false);
            } catch (IOException e) {
                sender.abort(file, Metadata.failure("cannot read " + file.path, e), false);
            }
            return null;
        }
    }
}
