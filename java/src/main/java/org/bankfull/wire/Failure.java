package org.bankfull.wire;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Code and text of a failure (spec/wire.md, section 12). */
public final class Failure {
    public static final int OTHER = 0;
    public static final int NOT_FOUND = 1;
    public static final int PERMISSION = 2;
    public static final int NOT_A_DIRECTORY = 3;
    public static final int IS_A_DIRECTORY = 4;
    public static final int NO_SPACE = 5;
    public static final int SOURCE_CHANGED = 6;
    public static final int SOURCE_VANISHED = 7;
    public static final int IO = 8;
    public static final int BAD_TOKEN = 9;
    public static final int BUSY = 11;
    public static final int PROTOCOL = 12;
    public static final int UNENCRYPTED_REFUSED = 14;
    public static final int TIMED_OUT = 15;
    public static final int CANCELLED = 16;
    public static final int VERIFICATION = 17;
    public static final int USAGE = 19;
    public static final int WARNING = 20;

    public final int code;
    /** One line. May contain control characters: use {@link #printable()} for display. */
    public final String text;

    public Failure(int code, String text) {
        this.code = code;
        this.text = truncate(text);
    }

    /** Truncates a text to the limit of a message. */
    private static String truncate(String text) {
        int end = text.length();
        while (text.substring(0, end).getBytes(StandardCharsets.UTF_8).length
            > Limits.MAX_TEXT_BYTES) {
            end = end * 3 / 4;
        }
        return text.substring(0, end);
    }

    static Failure read(Object item) throws WireException {
        Fields fields = new Fields(item, "failure");
        int code = fields.boundedInt(0, 0xFFFF);
        return new Failure(code > WARNING ? OTHER : code, fields.text(1));
    }

    Object write() {
        return Map.of(0L, (long) code, 1L, text);
    }

    /** Returns the text with control characters escaped, safe for a terminal. */
    public String printable() {
        StringBuilder safe = new StringBuilder();
        text.codePoints().forEach(c -> {
            if (Character.isISOControl(c) || Character.getType(c) == Character.FORMAT) {
                safe.append(String.format("\\u%04x", c));
            } else {
                safe.appendCodePoint(c);
            }
        });
        return safe.toString();
    }

    /** Lowers the initial capital of a system message for use within a sentence. */
    public static String lowercaseInitial(String message) {
        boolean capital = message.length() > 1 && Character.isUpperCase(message.charAt(0))
            && Character.isLowerCase(message.charAt(1));
        return capital && message.indexOf(' ') > 0
            ? Character.toLowerCase(message.charAt(0)) + message.substring(1)
            : message;
    }

    @Override
    public String toString() {
        return code + ": " + printable();
    }
}
