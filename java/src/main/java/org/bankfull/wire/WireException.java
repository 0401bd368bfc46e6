package org.bankfull.wire;

/** The peer broke the protocol. */
public final class WireException extends Exception {
    private static final long serialVersionUID = 1;

    public WireException(String message) {
        super(message);
    }
}
