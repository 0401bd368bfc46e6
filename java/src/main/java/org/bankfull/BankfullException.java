package org.bankfull;

import java.io.IOException;
import org.bankfull.wire.Failure;

/** Failure of a transfer. The message states the event, the object and the remedy. */
public final class BankfullException extends IOException {
    private static final long serialVersionUID = 1;

    /** Setting of a {@link Client} that caused a failure. */
    public enum Setting { FINGERPRINT, TOKEN, UNENCRYPTED }

    private final int code;
    private final Setting setting;

    public BankfullException(int code, String message) {
        this(code, message, null, null);
    }

    public BankfullException(int code, String message, Throwable cause) {
        this(code, message, null, cause);
    }

    /** Creates an exception caused by a setting. */
    public BankfullException(int code, String message, Setting setting, Throwable cause) {
        super(message, cause);
        this.code = code;
        this.setting = setting;
    }

    public BankfullException(Failure failure) {
        this(failure.code, failure.printable());
    }

    /** Returns the code of spec/wire.md, section 12; 0 if none applies. */
    public int code() {
        return code;
    }

    /** Returns the setting to be changed; null if the cause is another one. */
    public Setting setting() {
        return setting;
    }
}
