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
     * @param deadline deadline for all addresses together; watches the socket
     */
    static Socket connect(Endpoint endpoint, boolean withChannel, SetupDeadline deadline)
        throws IOException {
        InetAddress[] addresses;
        try {
            addresses = InetAddress.getAllByName(endpoint.host);
        } catch (UnknownHostException e) {
            throw new BankfullException(Failure.NOT_FOUND,
                "the host " + endpoint.host + " has no IP address: check the name", e);
        }
        return connectAny(addresses, endpoint.port, withChannel, deadline);
    }

    /** Gives each address an equal share of the remaining time; throws the last error. */
    static Socket connectAny(
        InetAddress[] addresses, int port, boolean withChannel, SetupDeadline deadline)
        throws IOException {
        for (int i = 0;; i++) {
            long share = Math.max(1, deadline.leftMillis() / (addresses.length - i));
            Socket socket = withChannel ? SocketChannel.open().socket() : new Socket();
            deadline.watch(socket);
            try {
                InetSocketAddress address = new InetSocketAddress(addresses[i], port);
                socket.connect(address, (int) Math.min(share, Integer.MAX_VALUE));
                socket.setTcpNoDelay(true);
                return socket;
            } catch (IOException e) {
                Session.closeQuietly(socket);
                if (i + 1 == addresses.length || deadline.hasPassed()) {
                    throw e;
                }
            }
        }
    }
}
