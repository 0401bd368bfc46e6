package org.bankfull.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ConnectorTest {
    private static InetAddress loopback(int last) throws IOException {
        return InetAddress.getByAddress(new byte[] {127, 0, 0, (byte) last});
    }

    @Test
    void connect_firstAddressRefuses_triesNext() throws IOException {
        try (ServerSocket server = new ServerSocket(0, 5, loopback(1))) {
            int port = server.getLocalPort();
            for (boolean withChannel : new boolean[] {false, true}) {
                InetAddress[] addresses = {loopback(2), loopback(1)};
                try (SetupDeadline deadline = new SetupDeadline(5000);
                    Socket socket =
                        Connector.connectAny(addresses, port, withChannel, deadline)) {
                    assertEquals(loopback(1), socket.getInetAddress());
                    assertEquals(withChannel, socket.getChannel() != null);
                }
            }
            try (SetupDeadline deadline = new SetupDeadline(5000)) {
                assertThrows(ConnectException.class,
                    () -> Connector.connectAny(
                        new InetAddress[] {loopback(2), loopback(3)}, port, false, deadline));
            }
        }
    }

    /** Opens a server that answers no connection any more, as its backlog is full. */
    private static ServerSocket silentServer(List<Socket> backlog) throws IOException {
        ServerSocket server = new ServerSocket(0, 1, loopback(1));
        for (int i = 0; i < 8; i++) {
            Socket socket = new Socket();
            backlog.add(socket);
            try {
                socket.connect(server.getLocalSocketAddress(), 100);
            } catch (SocketTimeoutException e) {
                break;
            }
        }
        return server;
    }

    @Test
    void connect_noAddressAnswers_timeoutIsShared() throws IOException {
        List<Socket> backlog = new ArrayList<>();
        try (ServerSocket server = silentServer(backlog);
            SetupDeadline deadline = new SetupDeadline(600)) {
            int port = server.getLocalPort();
            InetAddress[] addresses = {loopback(1), loopback(1), loopback(1)};
            long start = System.nanoTime();
            IOException error = assertThrows(IOException.class, () ->
                Connector.connectAny(addresses, port, false, deadline));
            assertTrue(deadline.orTimeout(error) instanceof SocketTimeoutException);
            long millis = (System.nanoTime() - start) / 1_000_000;
            assertTrue(millis >= 550 && millis < 3000, millis + " ms");
        } finally {
            backlog.forEach(Session::closeQuietly);
        }
    }

    @Test
    void connect_deadlineIsCancelled_endsSoon() throws Exception {
        List<Socket> backlog = new ArrayList<>();
        try (ServerSocket server = silentServer(backlog)) {
            for (boolean withChannel : new boolean[] {false, true}) {
                SetupDeadline deadline = new SetupDeadline(60_000);
                Thread cancel = new Thread(() -> {
                    try {
                        Thread.sleep(300);
                    } catch (InterruptedException e) {
                        return;
                    }
                    deadline.cancel();
                });
                cancel.start();
                long start = System.nanoTime();
                InetAddress[] addresses = {loopback(1), loopback(1)};
                assertThrows(IOException.class, () -> Connector.connectAny(
                    addresses, server.getLocalPort(), withChannel, deadline));
                long millis = (System.nanoTime() - start) / 1_000_000;
                assertTrue(millis < 3000, millis + " ms");
                cancel.join();
                deadline.close();
            }
        } finally {
            backlog.forEach(Session::closeQuietly);
        }
    }
}
