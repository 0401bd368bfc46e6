package org.bankfull;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/**
 * Proxy before a daemon that injects a fault after a number of bytes.
 *
 * <p>The fault closes one connection, closes all, or stalls one.
 */
final class FaultyProxy implements Closeable {
    private final ServerSocket server = new ServerSocket();
    private final int daemonPort;
    private final boolean closesAll;
    private final boolean stalls;
    private final List<Socket> sockets = new ArrayList<>();
    private long bytesLeft;
    private boolean faultInjected;

    FaultyProxy(int daemonPort, long faultAfterBytes, boolean closesAll) throws IOException {
        this(daemonPort, faultAfterBytes, closesAll, false);
    }

    /** Creates a proxy that stalls one connection: it stays open, but reading stops. */
    static FaultyProxy stalling(int daemonPort, long faultAfterBytes) throws IOException {
        return new FaultyProxy(daemonPort, faultAfterBytes, false, true);
    }

    private FaultyProxy(int daemonPort, long faultAfterBytes, boolean closesAll, boolean stalls)
        throws IOException {
        this.stalls = stalls;
        if (stalls) {
            // A small buffer limits the data in flight to a stalled connection.
            server.setReceiveBufferSize(64 << 10);
        }
        server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 50);
        this.daemonPort = daemonPort;
        this.bytesLeft = faultAfterBytes;
        this.closesAll = closesAll;
        run(this::accept);
    }

    int port() {
        return server.getLocalPort();
    }

    synchronized boolean hasInjectedFault() {
        return faultInjected;
    }

    private interface Task {
        void run() throws IOException;
    }

    private static void run(Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (IOException e) {
                // The connection has ended.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = server.accept();
            Socket daemon = new Socket(InetAddress.getLoopbackAddress(), daemonPort);
            synchronized (this) {
                sockets.add(client);
                sockets.add(daemon);
                if (faultInjected && closesAll) {
                    closeAll();
                }
            }
            run(() -> forward(client, daemon));
            run(() -> forward(daemon, client));
        }
    }

    private void forward(Socket from, Socket into) throws IOException {
        try (from; into) {
            InputStream in = from.getInputStream();
            OutputStream out = into.getOutputStream();
            byte[] buffer = new byte[64 << 10];
            for (int length = in.read(buffer); length >= 0; length = in.read(buffer)) {
                if (injectFaultIfDue(length)) {
                    awaitCloseIfStalling();
                    return;
                }
                out.write(buffer, 0, length);
            }
        }
    }

    private synchronized boolean injectFaultIfDue(int length) {
        bytesLeft -= length;
        if (faultInjected || bytesLeft > 0) {
            return false;
        }
        faultInjected = true;
        if (closesAll) {
            closeAll();
        }
        return true;
    }

    private synchronized void awaitCloseIfStalling() {
        try {
            while (stalls && !server.isClosed()) {
                wait(100);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void closeAll() {
        for (Socket socket : sockets) {
            try {
                socket.close();
            } catch (IOException e) {
                // Already closed.
            }
        }
    }

    @Override
    public synchronized void close() throws IOException {
        server.close();
        closeAll();
    }
}
