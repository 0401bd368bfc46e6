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
                try (Socket socket = Connector.connectAny(addresses, port, withChannel, 5000)) {
                    assertEquals(loopback(1), socket.getInetAddress());
                    assertEquals(withChannel, socket.getChannel() != null);
                }
            }
            assertThrows(ConnectException.class,
                () -> Connector.connectAny(
                    new InetAddress[] {loopback(2), loopback(3)}, port, false, 5000));
        }
    }

    @Test
    void connect_noAddressAnswers_timeoutIsShared() throws IOException {
        List<Socket> backlog = new ArrayList<>();
        try (ServerSocket server = new ServerSocket(0, 1, loopback(1))) {
            int port = server.getLocalPort();
            // Without accept, the backlog fills up and further connections get no response.
            for (int i = 0; i < 8; i++) {
                Socket socket = new Socket();
                backlog.add(socket);
                try {
                    socket.connect(server.getLocalSocketAddress(), 100);
                } catch (SocketTimeoutException e) {
                    break;
                }
            }
            InetAddress[] addresses = {loopback(1), loopback(1), loopback(1)};
            long start = System.nanoTime();
            assertThrows(SocketTimeoutException.class, () ->
                Connector.connectAny(addresses, port, false, 600));
            long millis = (System.nanoTime() - start) / 1_000_000;
            assertTrue(millis >= 550 && millis < 3000, millis + " ms");
        } finally {
            backlog.forEach(Session::closeQuietly);
        }
    }
}
