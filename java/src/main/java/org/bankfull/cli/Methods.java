package org.bankfull.cli;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Locale;
import org.bankfull.BankfullException;
import org.bankfull.wire.Buffers;
import org.bankfull.wire.Failure;

/**
 * The five ways from a file to a socket that Java has, measured alone, without a protocol around
 * them (Veluppillai, Ortiz, Hiromoto 2013): byte by byte, blocks through a buffer, a mapped file,
 * the whole file at once without a copy, and block by block without a copy.
 */
final class Methods {
    /** What either end takes at a time unless told otherwise. */
    private static final int SEND_BYTES = 256 << 10;
    private static final int RECEIVE_BYTES = 1 << 20;
    /** The most that one mapping covers: the rest of a long file is mapped after it. */
    private static final long MAPPED_MOST = 1L << 30;

    private Methods() {}

    private interface Method {
        void send(FileChannel file, long size, SocketChannel socket, int block) throws IOException;
    }

    private static Method named(String name, Path path) throws BankfullException {
        switch (name) {
            case "stream": return (file, size, socket, block) -> stream(path, socket);
            case "nio": return Methods::nio;
            case "mapped": return Methods::mapped;
            case "zerocopy":
                return (file, size, socket, block) ->
                    zeroBuffer(file, size, socket, Long.MAX_VALUE);
            case "zerobuffer": return Methods::zeroBuffer;
            default: throw new BankfullException(Failure.USAGE,
                "there is no method \"" + name + "\": stream, nio, mapped, zerocopy or zerobuffer");
        }
    }

    /**
     * Sends a file, waits until the other end has taken all of it, and tells how long that took.
     */
    static void send(String name, Path path, String host, int port, int blockAsked, int socketBytes,
        PrintStream out) throws IOException {
        int block = blockAsked > 0 ? blockAsked : SEND_BYTES;
        Method method = named(name, path);
        InetSocketAddress address = new InetSocketAddress(host, port);
        if (address.isUnresolved()) {
            throw new BankfullException(
                Failure.NOT_FOUND, "the host " + host + " has no address: check its name");
        }
        try (FileChannel file = FileChannel.open(path);
            SocketChannel socket = SocketChannel.open()) {
            if (socketBytes > 0) {
                socket.setOption(StandardSocketOptions.SO_SNDBUF, socketBytes);
            }
            connect(socket, address);
            long size = file.size();
            long began = System.nanoTime();
            method.send(file, size, socket, block);
            socket.shutdownOutput();
            if (socket.read(ByteBuffer.allocate(1)) >= 0) {
                throw new IOException("the other end speaks: it is not \"measure receive\"");
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            out.printf(Locale.ROOT,
                "{\"method\":\"%s\",\"block\":%d,\"bytes\":%d,\"seconds\":%.6f,\"socket\":%d}%n",
                name, block, size, seconds, socket.getOption(StandardSocketOptions.SO_SNDBUF));
        }
    }

    private static void connect(SocketChannel socket, InetSocketAddress address)
        throws IOException {
        try {
            socket.connect(address);
        } catch (ConnectException e) {
            throw new BankfullException(Failure.OTHER,
                "nothing answers at " + address.getHostString()
                + ":" + address.getPort() + ": start \"measure receive\" there", e);
        }
    }

    /** Takes one file after the other, into a file or nowhere, until it is ended. */
    static void receive(int port, Path into, int blockAsked, int socketBytes, PrintStream out)
        throws IOException {
        try (ServerSocketChannel server = ServerSocketChannel.open()) {
            if (socketBytes > 0) {
                // Before it listens: the window's scale is settled when a connection begins.
                server.setOption(StandardSocketOptions.SO_RCVBUF, socketBytes);
            }
            server.bind(new InetSocketAddress(port));
            int room = server.getOption(StandardSocketOptions.SO_RCVBUF);
            int block = blockAsked > 0 ? blockAsked : RECEIVE_BYTES;
            out.println("listening at " + server.socket().getLocalPort()
                + ", with a buffer of " + room + " bytes, in blocks of " + block);
            while (true) {
                try (SocketChannel socket = server.accept()) {
                    drain(socket, into, block);
                }
            }
        }
    }

    private static void drain(SocketChannel socket, Path into, int block) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocateDirect(block);
        FileChannel file = into == null ? null : FileChannel.open(into, StandardOpenOption.CREATE,
            StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING);
        try {
            while (socket.read(buffer) >= 0) {
                Buffers.flip(buffer);
                while (file != null && buffer.hasRemaining()) {
                    file.write(buffer);
                }
                Buffers.clear(buffer);
            }
        } finally {
            if (file != null) {
                file.close();
            }
        }
    }

    /** Byte by byte, as the paper's Java IO: the file is buffered, the socket is not. */
    private static void stream(Path path, SocketChannel socket) throws IOException {
        OutputStream out = socket.socket().getOutputStream();
        try (InputStream in = new BufferedInputStream(Files.newInputStream(path))) {
            for (int octet = in.read(); octet >= 0; octet = in.read()) {
                out.write(octet);
            }
        }
    }

    private static void nio(FileChannel file, long size, SocketChannel socket, int block)
        throws IOException {
        ByteBuffer buffer = ByteBuffer.allocateDirect(block);
        while (file.read(buffer) >= 0) {
            Buffers.flip(buffer);
            while (buffer.hasRemaining()) {
                socket.write(buffer);
            }
            Buffers.clear(buffer);
        }
    }

    private static void mapped(FileChannel file, long size, SocketChannel socket, int block)
        throws IOException {
        for (long at = 0; at < size; at += MAPPED_MOST) {
            MappedByteBuffer all =
                file.map(FileChannel.MapMode.READ_ONLY, at, Math.min(MAPPED_MOST, size - at));
            while (all.position() < all.capacity()) {
                Buffers.limit(all, Math.min(all.capacity(), all.position() + block));
                socket.write(all);
            }
        }
    }

    private static void zeroBuffer(FileChannel file, long size, SocketChannel socket, long block)
        throws IOException {
        for (long at = 0; at < size;) {
            long moved = file.transferTo(at, Math.min(block, size - at), socket);
            if (moved <= 0) {
                throw new IOException("the file has become shorter");
            }
            at += moved;
        }
    }
}
