package org.bankfull;

import java.io.IOException;
import org.bankfull.wire.Failure;

/** A transfer ended before it was done. The message names what failed, and what to do. */
public final class BankfullException extends IOException {
    private static final long serialVersionUID = 1;

    private final int code;

    public BankfullException(int code, String message) {
        super(message);
        this.code = code;
    }

    public BankfullException(int code, String message, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    public BankfullException(Failure failure) {
        this(failure.code, failure.shown());
    }

    /** As in section 12 of spec/wire.md; 0 where none of those fits. */
    public int code() {
        return code;
    }
}
