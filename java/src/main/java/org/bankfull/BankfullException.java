package org.bankfull;

import java.io.IOException;
import org.bankfull.wire.Failure;

/** A transfer ended before it was done. The message names what failed, and what to do. */
public final class BankfullException extends IOException {
    private static final long serialVersionUID = 1;

    /** What of a {@link Client} would have to be set otherwise. */
    public enum Setting { FINGERPRINT, TOKEN, PLAIN }

    private final int code;
    private final Setting setting;

    public BankfullException(int code, String message) {
        this(code, message, null, null);
    }

    public BankfullException(int code, String message, Throwable cause) {
        this(code, message, null, cause);
    }

    /** Because of a setting. */
    public BankfullException(int code, String message, Setting setting, Throwable cause) {
        super(message, cause);
        this.code = code;
        this.setting = setting;
    }

    public BankfullException(Failure failure) {
        this(failure.code, failure.shown());
    }

    /** As in section 12 of spec/wire.md; 0 where none of those fits. */
    public int code() {
        return code;
    }

    /** Which setting stands in the way; null where none does. */
    public Setting setting() {
        return setting;
    }
}
