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

/** Connecting, and how often a side shows signs of life. */
class DialTest {
    private static InetAddress local(int last) throws IOException {
        return InetAddress.getByAddress(new byte[] {127, 0, 0, (byte) last});
    }

    @Test
    void anAddressThatRefusesDoesNotKeepFromTheNext() throws IOException {
        try (ServerSocket server = new ServerSocket(0, 5, local(1))) {
            int port = server.getLocalPort();
            for (boolean channeled : new boolean[] {false, true}) {
                InetAddress[] addresses = {local(2), local(1)};
                try (Socket socket = Dial.any(addresses, port, channeled, 5000)) {
                    assertEquals(local(1), socket.getInetAddress());
                    assertEquals(channeled, socket.getChannel() != null);
                }
            }
            assertThrows(ConnectException.class,
                () -> Dial.any(new InetAddress[] {local(2), local(3)}, port, false, 5000));
        }
    }

    @Test
    void addressesThatDoNotAnswerTakeTheTimeOutTogether() throws IOException {
        List<Socket> filling = new ArrayList<>();
        try (ServerSocket server = new ServerSocket(0, 1, local(1))) {
            int port = server.getLocalPort();
            // Nobody accepts: from some number on, nobody answers either.
            for (int i = 0; i < 8; i++) {
                Socket socket = new Socket();
                filling.add(socket);
                try {
                    socket.connect(server.getLocalSocketAddress(), 100);
                } catch (SocketTimeoutException e) {
                    break;
                }
            }
            InetAddress[] addresses = {local(1), local(1), local(1)};
            long began = System.nanoTime();
            assertThrows(SocketTimeoutException.class, () -> Dial.any(addresses, port, false, 600));
            long millis = (System.nanoTime() - began) / 1_000_000;
            assertTrue(millis >= 550 && millis < 3000, millis + " ms");
        } finally {
            filling.forEach(Session::quietly);
        }
    }

    @Test
    void signsOfLifeComeAQuarterOfTheShorterTimeOutApartWithinBounds() {
        assertEquals(10_000, Session.pingMillis(60_000, 60_000));
        assertEquals(2000, Session.pingMillis(8000, 60_000));
        assertEquals(500, Session.pingMillis(0, 2000));
        assertEquals(100, Session.pingMillis(3, 60_000));
        assertEquals(100, Session.pingMillis(60_000, 1));
    }
}
