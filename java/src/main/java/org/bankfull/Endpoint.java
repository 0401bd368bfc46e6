package org.bankfull;

import org.bankfull.wire.Failure;

/** Address of a daemon and a path on it: {@code bankfull://host[:port]/path}. */
public final class Endpoint {
    /** Default port of a daemon. */
    public static final int DEFAULT_PORT = 7440;

    private static final String SCHEME = "bankfull://";

    public final String host;
    public final int port;
    /** Path relative to the daemon's root; empty: the root itself. */
    public final String path;

    private Endpoint(String host, int port, String path) {
        this.host = host;
        this.port = port;
        this.path = path;
    }

    private static boolean hasScheme(String text) {
        return text.startsWith(SCHEME);
    }

    public static Endpoint parse(String text) throws BankfullException {
        if (!hasScheme(text)) {
            throw invalid(text, "not the address of a daemon");
        }
        String rest = text.substring(SCHEME.length());
        int slash = rest.indexOf('/');
        String authority = slash < 0 ? rest : rest.substring(0, slash);
        String path = slash < 0 ? "" : rest.substring(slash + 1);
        int colon = authority.lastIndexOf(':');
        boolean bracketed = authority.startsWith("[");
        if (bracketed && colon < authority.indexOf(']')
            || !bracketed && authority.indexOf(':') != colon) {
            colon = -1;
        }
        String host = colon < 0 ? authority : authority.substring(0, colon);
        if (bracketed) {
            if (!host.endsWith("]")) {
                throw invalid(text, "'[' without ']' in the host");
            }
            host = host.substring(1, host.length() - 1);
        }
        if (host.isEmpty()) {
            throw invalid(text, "the host is missing");
        }
        int port = colon < 0 ? DEFAULT_PORT : port(authority.substring(colon + 1), text);
        return new Endpoint(host, port, path);
    }

    private static int port(String digits, String text) throws BankfullException {
        try {
            int port = Integer.parseInt(digits);
            if (port > 0 && port < 1 << 16) {
                return port;
            }
        } catch (NumberFormatException e) {
            // Reported below.
        }
        throw invalid(text, "\"" + digits + "\" is not a port (1 to 65535)");
    }

    private static BankfullException invalid(String text, String why) {
        return new BankfullException(Failure.USAGE,
            "\"" + text + "\": " + why + ": write bankfull://HOST[:PORT]/PATH");
    }

    /** Returns host and port in the form of a URL. */
    public String hostAndPort() {
        return (host.indexOf(':') < 0 ? host : "[" + host + "]") + ":" + port;
    }
}
