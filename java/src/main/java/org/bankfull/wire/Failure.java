package org.bankfull.wire;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Why something failed, for the other side and for people (spec/wire.md, section 12). */
public final class Failure {
    public static final int OTHER = 0;
    public static final int NOT_FOUND = 1;
    public static final int PERMISSION = 2;
    public static final int NOT_A_DIRECTORY = 3;
    public static final int IS_A_DIRECTORY = 4;
    public static final int NO_SPACE = 5;
    public static final int CHANGED = 6;
    public static final int VANISHED = 7;
    public static final int IO = 8;
    public static final int TOKEN = 9;
    public static final int BUSY = 11;
    public static final int PROTOCOL = 12;
    public static final int PLAIN_REFUSED = 14;
    public static final int TIMED_OUT = 15;
    public static final int CANCELLED = 16;
    public static final int VERIFICATION = 17;
    public static final int USAGE = 19;
    public static final int REMARK = 20;

    public final int code;
    /** One line. It may hold anything: see {@link #shown()}. */
    public final String text;

    public Failure(int code, String text) {
        this.code = code;
        this.text = cut(text);
    }

    /** As much of a text as a message takes. */
    private static String cut(String text) {
        int end = text.length();
        while (text.substring(0, end).getBytes(StandardCharsets.UTF_8).length
            > Limits.TEXT_BYTES) {
            end = end * 3 / 4;
        }
        return text.substring(0, end);
    }

    static Failure read(Object item) throws WireException {
        Fields fields = new Fields(item, "failure");
        int code = fields.small(0, 0xFFFF);
        return new Failure(code > REMARK ? OTHER : code, fields.text(1));
    }

    Object write() {
        return Map.of(0L, (long) code, 1L, text);
    }

    /** The text without what could steer a terminal. */
    public String shown() {
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

    /** The system's words, which begin a sentence, within one. */
    public static String lowered(String said) {
        boolean capital = said.length() > 1 && Character.isUpperCase(said.charAt(0))
            && Character.isLowerCase(said.charAt(1));
        return capital && said.indexOf(' ') > 0
            ? Character.toLowerCase(said.charAt(0)) + said.substring(1)
            : said;
    }

    @Override
    public String toString() {
        return code + ": " + shown();
    }
}
