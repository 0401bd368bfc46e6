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
 * Five I/O methods from a file to a socket, measured without a protocol.
 *
 * <p>They are those of Veluppillai, Ortiz and Hiromoto (2013): byte by byte, blocks through a
 * buffer, mapped file, the whole file without a copy, and blocks without a copy.
 */
final class IoMethods {
    /** Default block sizes of the two ends. */
    private static final int DEFAULT_SEND_BLOCK_BYTES = 256 << 10;
    private static final int DEFAULT_RECEIVE_BLOCK_BYTES = 1 << 20;
    /** Largest mapping; a longer file is mapped in parts. */
    private static final long MAX_MAPPING_BYTES = 1L << 30;

    private IoMethods() {}

    private interface IoMethod {
        void send(FileChannel file, long size, SocketChannel socket, int block) throws IOException;
    }

    private static IoMethod byName(String name, Path path) throws BankfullException {
        switch (name) {
            case "stream": return (file, size, socket, block) -> sendBytes(path, socket);
            case "nio": return IoMethods::sendBuffered;
            case "mapped": return IoMethods::sendMapped;
            case "zerocopy":
                return (file, size, socket, block) ->
                    sendZeroCopy(file, size, socket, Long.MAX_VALUE);
            case "zerobuffer": return IoMethods::sendZeroCopy;
            default: throw new BankfullException(Failure.USAGE,
                "unknown I/O method \"" + name
                    + "\": choose stream, nio, mapped, zerocopy or zerobuffer");
        }
    }

    /** Sends a file until the receiver has read all of it, and prints the time. */
    static void send(
        String name, Path path, String host, int port, int requestedBlock, int socketBytes,
        PrintStream out) throws IOException {
        int block = requestedBlock > 0 ? requestedBlock : DEFAULT_SEND_BLOCK_BYTES;
        IoMethod method = byName(name, path);
        InetSocketAddress address = new InetSocketAddress(host, port);
        if (address.isUnresolved()) {
            throw new BankfullException(
                Failure.NOT_FOUND, "the host " + host + " has no IP address: check the name");
        }
        try (FileChannel file = FileChannel.open(path);
            SocketChannel socket = SocketChannel.open()) {
            if (socketBytes > 0) {
                socket.setOption(StandardSocketOptions.SO_SNDBUF, socketBytes);
            }
            connect(socket, address);
            long size = file.size();
            long start = System.nanoTime();
            method.send(file, size, socket, block);
            socket.shutdownOutput();
            if (socket.read(ByteBuffer.allocate(1)) >= 0) {
                throw new IOException("the peer sent data: start \"measure receive\" there");
            }
            double seconds = (System.nanoTime() - start) / 1e9;
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
                "cannot connect to " + address.getHostString()
                + ":" + address.getPort() + ": start \"measure receive\" there", e);
        }
    }

    /** Receives one file after another, into a file or discarding it, until the process ends. */
    static void receive(int port, Path into, int requestedBlock, int socketBytes, PrintStream out)
        throws IOException {
        try (ServerSocketChannel server = ServerSocketChannel.open()) {
            if (socketBytes > 0) {
                // Before listen: the handshake fixes the window scale.
                server.setOption(StandardSocketOptions.SO_RCVBUF, socketBytes);
            }
            server.bind(new InetSocketAddress(port));
            int bufferBytes = server.getOption(StandardSocketOptions.SO_RCVBUF);
            int block = requestedBlock > 0 ? requestedBlock : DEFAULT_RECEIVE_BLOCK_BYTES;
            out.println("listening at " + server.socket().getLocalPort()
                + ", with a buffer of " + bufferBytes + " bytes, in blocks of " + block);
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

    /** Sends byte by byte, as the paper's Java IO, from a buffered file. */
    private static void sendBytes(Path path, SocketChannel socket) throws IOException {
        OutputStream out = socket.socket().getOutputStream();
        try (InputStream in = new BufferedInputStream(Files.newInputStream(path))) {
            for (int octet = in.read(); octet >= 0; octet = in.read()) {
                out.write(octet);
            }
        }
    }

    private static void sendBuffered(FileChannel file, long size, SocketChannel socket, int block)
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

    private static void sendMapped(FileChannel file, long size, SocketChannel socket, int block)
        throws IOException {
        for (long at = 0; at < size; at += MAX_MAPPING_BYTES) {
            MappedByteBuffer mapping =
                file.map(FileChannel.MapMode.READ_ONLY, at, Math.min(MAX_MAPPING_BYTES, size - at));
            while (mapping.position() < mapping.capacity()) {
                Buffers.limit(mapping, Math.min(mapping.capacity(), mapping.position() + block));
                socket.write(mapping);
            }
        }
    }

    private static void sendZeroCopy(FileChannel file, long size, SocketChannel socket, long block)
        throws IOException {
        for (long at = 0; at < size;) {
            long transferred = file.transferTo(at, Math.min(block, size - at), socket);
            if (transferred <= 0) {
                throw new IOException("the file has become shorter: measure again");
            }
            at += transferred;
        }
    }
}
