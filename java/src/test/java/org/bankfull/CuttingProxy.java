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
 * Passes connections on to a daemon until some bytes have passed, and then cuts one of them, or
 * all, or has one stand still.
 */
final class CuttingProxy implements Closeable {
    private final ServerSocket server = new ServerSocket();
    private final int to;
    private final boolean all;
    private final boolean stalls;
    private final List<Socket> sockets = new ArrayList<>();
    private long left;
    private boolean cut;

    CuttingProxy(int to, long after, boolean all) throws IOException {
        this(to, after, all, false);
    }

    /** One connection stays open, and nothing is read from it any more. */
    static CuttingProxy stalling(int to, long after) throws IOException {
        return new CuttingProxy(to, after, false, true);
    }

    private CuttingProxy(int to, long after, boolean all, boolean stalls) throws IOException {
        this.stalls = stalls;
        if (stalls) {
            // Little is on its way to a connection that stands still.
            server.setReceiveBufferSize(64 << 10);
        }
        server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 50);
        this.to = to;
        this.left = after;
        this.all = all;
        run(this::accept);
    }

    int port() {
        return server.getLocalPort();
    }

    synchronized boolean hasCut() {
        return cut;
    }

    private interface Task {
        void run() throws IOException;
    }

    private static void run(Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (IOException e) {
                // A connection ended.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = server.accept();
            Socket daemon = new Socket(InetAddress.getLoopbackAddress(), to);
            synchronized (this) {
                sockets.add(client);
                sockets.add(daemon);
                if (cut && all) {
                    closeAll();
                }
            }
            run(() -> pass(client, daemon));
            run(() -> pass(daemon, client));
        }
    }

    private void pass(Socket from, Socket into) throws IOException {
        try (from; into) {
            InputStream in = from.getInputStream();
            OutputStream out = into.getOutputStream();
            byte[] buffer = new byte[64 << 10];
            for (int length = in.read(buffer); length >= 0; length = in.read(buffer)) {
                if (isCutNow(length)) {
                    standStill();
                    return;
                }
                out.write(buffer, 0, length);
            }
        }
    }

    private synchronized boolean isCutNow(int length) {
        left -= length;
        if (cut || left > 0) {
            return false;
        }
        cut = true;
        if (all) {
            closeAll();
        }
        return true;
    }

    private synchronized void standStill() {
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
                // It is closed.
            }
        }
    }

    @Override
    public synchronized void close() throws IOException {
        server.close();
        closeAll();
    }
}
