package org.bankfull.engine;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnknownHostException;
import java.nio.channels.SocketChannel;
import org.bankfull.BankfullException;
import org.bankfull.Endpoint;
import org.bankfull.wire.Failure;

/** Opens TCP connections, trying the addresses of a host one after another. */
final class Connector {
    private Connector() {}

    /**
     * Connects to the first address of the daemon's host that accepts.
     *
     * @param withChannel whether the socket must have a channel
     * @param timeoutMillis timeout for all addresses together
     */
    static Socket connect(Endpoint endpoint, boolean withChannel, long timeoutMillis)
        throws IOException {
        InetAddress[] addresses;
        try {
            addresses = InetAddress.getAllByName(endpoint.host);
        } catch (UnknownHostException e) {
            throw new BankfullException(Failure.NOT_FOUND,
                "the host " + endpoint.host + " has no IP address: check the name", e);
        }
        return connectAny(addresses, endpoint.port, withChannel, timeoutMillis);
    }

    /** Gives each address an equal share of the remaining time; throws the last error. */
    static Socket connectAny(
        InetAddress[] addresses, int port, boolean withChannel, long timeoutMillis)
        throws IOException {
        long deadline = System.nanoTime() + timeoutMillis * 1_000_000;
        for (int i = 0;; i++) {
            long left = (deadline - System.nanoTime()) / 1_000_000;
            long share = Math.max(1, left / (addresses.length - i));
            Socket socket = withChannel ? SocketChannel.open().socket() : new Socket();
            try {
                InetSocketAddress address = new InetSocketAddress(addresses[i], port);
                socket.connect(address, (int) Math.min(share, Integer.MAX_VALUE));
                socket.setTcpNoDelay(true);
                return socket;
            } catch (IOException e) {
                Session.closeQuietly(socket);
                if (i + 1 == addresses.length) {
                    throw e;
                }
            }
        }
    }
}
