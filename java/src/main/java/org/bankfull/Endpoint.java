package org.bankfull;

import org.bankfull.wire.Failure;

/** Where a daemon listens, and a path there: {@code bankfull://host[:port]/path}. */
public final class Endpoint {
    /** Where daemons listen unless told otherwise. */
    public static final int DEFAULT_PORT = 7440;

    private static final String SCHEME = "bankfull://";

    public final String host;
    public final int port;
    /** Beneath the daemon's root; empty: the root itself. */
    public final String path;

    private Endpoint(String host, int port, String path) {
        this.host = host;
        this.port = port;
        this.path = path;
    }

    public static boolean isOne(String text) {
        return text.startsWith(SCHEME);
    }

    public static Endpoint parse(String text) throws BankfullException {
        if (!isOne(text)) {
            throw wrong(text, "no address of a daemon");
        }
        String rest = text.substring(SCHEME.length());
        int slash = rest.indexOf('/');
        String place = slash < 0 ? rest : rest.substring(0, slash);
        String path = slash < 0 ? "" : rest.substring(slash + 1);
        int colon = place.lastIndexOf(':');
        boolean bracketed = place.startsWith("[");
        if (bracketed && colon < place.indexOf(']') || !bracketed && place.indexOf(':') != colon) {
            colon = -1;
        }
        String host = colon < 0 ? place : place.substring(0, colon);
        if (bracketed) {
            if (!host.endsWith("]")) {
                throw wrong(text, "a '[' without ']'");
            }
            host = host.substring(1, host.length() - 1);
        }
        if (host.isEmpty()) {
            throw wrong(text, "no host");
        }
        int port = colon < 0 ? DEFAULT_PORT : port(place.substring(colon + 1), text);
        return new Endpoint(host, port, path);
    }

    private static int port(String digits, String text) throws BankfullException {
        try {
            int port = Integer.parseInt(digits);
            if (port > 0 && port < 1 << 16) {
                return port;
            }
        } catch (NumberFormatException e) {
            // Told below.
        }
        throw wrong(text, "\"" + digits + "\" is not a port (1 to 65535)");
    }

    private static BankfullException wrong(String text, String why) {
        return new BankfullException(Failure.USAGE,
            "\"" + text + "\": " + why + ": write bankfull://HOST[:PORT]/PATH");
    }

    /** Host and port, as they are typed. */
    public String place() {
        return (host.indexOf(':') < 0 ? host : "[" + host + "]") + ":" + port;
    }
}
