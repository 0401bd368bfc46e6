package org.bankfull.wire;

/** Protocol violation by the peer. */
public final class WireException extends Exception {
    private static final long serialVersionUID = 1;

    public WireException(String message) {
        super(message);
    }
}
