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

/** Makes TCP connections: a host's addresses are tried one after the other. */
final class Dial {
    private Dial() {}

    /**
     * Connects to a daemon, by whichever of its host's addresses answers first in their order.
     *
     * @param channeled whether the socket is to have a channel
     * @param timeoutMillis for all of the addresses together
     */
    static Socket to(Endpoint endpoint, boolean channeled, long timeoutMillis) throws IOException {
        InetAddress[] addresses;
        try {
            addresses = InetAddress.getAllByName(endpoint.host);
        } catch (UnknownHostException e) {
            throw new BankfullException(Failure.NOT_FOUND,
                "the host " + endpoint.host + " has no address: check its name", e);
        }
        return any(addresses, endpoint.port, channeled, timeoutMillis);
    }

    /** Each address has an equal share of the time left; what the last one says is thrown. */
    static Socket any(InetAddress[] addresses, int port, boolean channeled, long timeoutMillis)
        throws IOException {
        long until = System.nanoTime() + timeoutMillis * 1_000_000;
        for (int i = 0;; i++) {
            long left = (until - System.nanoTime()) / 1_000_000;
            long share = Math.max(1, left / (addresses.length - i));
            Socket socket = channeled ? SocketChannel.open().socket() : new Socket();
            try {
                InetSocketAddress address = new InetSocketAddress(addresses[i], port);
                socket.connect(address, (int) Math.min(share, Integer.MAX_VALUE));
                socket.setTcpNoDelay(true);
                return socket;
            } catch (IOException e) {
                Session.quietly(socket);
                if (i + 1 == addresses.length) {
                    throw e;
                }
            }
        }
    }
}
