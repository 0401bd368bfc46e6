package org.bankfull;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/** Passes connections on to a daemon until some bytes have passed, and then cuts one of them, or all. */
final class CuttingProxy implements Closeable {
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final int to;
    private final boolean all;
    private final List<Socket> sockets = new ArrayList<>();
    private long left;
    private boolean cut;

    CuttingProxy(int to, long after, boolean all) throws IOException {
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
