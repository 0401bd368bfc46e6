package org.bankfull.cli;

import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicBoolean;
import org.bankfull.BankfullException;
import org.bankfull.Client;
import org.bankfull.Endpoint;
import org.bankfull.Summary;
import org.bankfull.wire.Failure;

/** The command: {@code get}, {@code put}, {@code list}, and {@code measure}. */
public final class Main {
    private static final int DONE = 0;
    private static final int USAGE = 1;
    private static final int STOPPED = 2;
    /** As bankfull's own. */
    private static final int INTERRUPTED = 20;
    private static final int SOME_FAILED = 23;
    private static final String HELP = String.join(System.lineSeparator(),
        "bankfull for Java: fetches from a bankfull daemon, sends to it, and lists what it has",
        "",
        "  get  [flags] bankfull://HOST[:PORT]/PATH... DESTINATION",
        "  put  [flags] SOURCE... bankfull://HOST[:PORT]/PATH",
        "  list [flags] bankfull://HOST[:PORT]/PATH",
        "  measure send METHOD FILE HOST:PORT [--block BYTES] [--socket BYTES]",
        "  measure receive PORT [FILE] [--block BYTES] [--socket BYTES]",
        "",
        "  --fingerprint F   sha256: and 64 digits, as the daemon shows it when it starts; needed",
        "                    (or BANKFULL_FINGERPRINT)",
        "  --token-file F    the daemon's access token (or BANKFULL_TOKEN)",
        "  --no-encryption   data unencrypted, where the daemon allows it; still verified",
        "  --checksum        compare content, not size and time",
        "  --fsync           flush each file to the disk before it gets its name",
        "  --streams N       connections with data, 1 to 64 (2); one for each 12 MiB of heap",
        "  --timeout SECONDS give up after so long without a sign of life or an answer (60)",
        "  --quiet, -q       no progress",
        "  --help, -h        this text",
        "  --                what follows is no flag, even where it begins with -",
        "  --block BYTES     measure: read or sent at a time (send 262144, receive 1048576)",
        "  --socket BYTES    measure: the buffer of the socket (as the kernel likes)",
        "",
        "A source that ends in a slash leaves its contents at the destination.",
        "What was interrupted goes on when the same command is run again.",
        "Methods to measure: stream, nio, mapped, zerocopy, zerobuffer.",
        "Exit codes: 0 done, 1 the command makes no sense, 2 it stopped, 23 some files failed,",
        "20 interrupted by a signal.");

    /** Of a token, at most, and what shows that there is more. */
    private static final int TOKEN_FILE_BYTES = 4096 + 3;

    private static final String CONTINUES =
        "; run the same command again to continue where it stopped";

    private static final List<String> ALONE =
        List.of("--no-encryption", "--checksum", "--fsync", "--quiet", "-q");
    private static final List<String> WITH_VALUE =
        List.of("--fingerprint", "--token-file", "--streams", "--timeout", "--block", "--socket");

    private final List<String> operands = new ArrayList<>();
    private String fingerprint = System.getenv("BANKFULL_FINGERPRINT");
    private String token = System.getenv("BANKFULL_TOKEN");
    private String tokenFrom =
        token == null ? "--token-file F, or BANKFULL_TOKEN" : "BANKFULL_TOKEN";
    private boolean plain;
    private boolean checksum;
    private boolean fsync;
    private boolean quiet;
    private volatile boolean progressShown;
    private int streams = Client.DEFAULT_STREAMS;
    private long timeoutMillis = 60_000;
    /** 0: as the method likes. */
    private int block;
    /** 0: as the kernel likes. */
    private int socket;

    private Main() {}

    public static void main(String[] arguments) {
        System.exit(run(arguments, System.out, System.err));
    }

    static int run(String[] arguments, PrintStream out, PrintStream err) {
        List<String> all = Arrays.asList(arguments);
        int end = all.indexOf("--");
        List<String> flags = end < 0 ? all : all.subList(0, end);
        boolean asked = flags.contains("--help") || flags.contains("-h");
        if (asked || all.isEmpty() || all.get(0).equals("help")) {
            out.println(HELP);
            return all.isEmpty() ? USAGE : DONE;
        }
        Main main = new Main();
        try {
            main.parse(all);
            return main.command(all.get(0), out, err);
        } catch (BankfullException e) {
            main.endProgress(err);
            err.println("bankfull: " + e.getMessage() + main.flagOf(e.setting()));
            return e.code() == Failure.USAGE ? USAGE : STOPPED;
        } catch (IOException e) {
            main.endProgress(err);
            err.println("bankfull: " + shown(e));
            return STOPPED;
        } catch (OutOfMemoryError e) {
            main.endProgress(err);
            err.println("bankfull: no memory is left: give Java more (-Xmx)");
            return STOPPED;
        }
    }

    /** How a setting is given here. */
    private String flagOf(BankfullException.Setting setting) {
        if (setting == null) {
            return "";
        }
        switch (setting) {
            case FINGERPRINT: return " (--fingerprint F, or BANKFULL_FINGERPRINT)";
            case TOKEN: return " (" + tokenFrom + ")";
            default: return " (leave out --no-encryption)";
        }
    }

    /** What happened, and to what: the message of some of Java's exceptions is a name alone. */
    private static String shown(IOException e) {
        return e instanceof FileSystemException
            ? "cannot use " + ((FileSystemException) e).getFile() + ": " + why(e)
            : why(e);
    }

    private static String why(IOException e) {
        String why = e instanceof NoSuchFileException ? "it does not exist"
            : e instanceof AccessDeniedException ? "permission denied"
            : e instanceof FileSystemException ? ((FileSystemException) e).getReason()
            : e.getMessage();
        return why == null ? e.getClass().getSimpleName() : Failure.lowered(why);
    }

    private void parse(List<String> arguments) throws IOException {
        for (int i = 1; i < arguments.size(); i++) {
            String flag = arguments.get(i);
            if (flag.equals("--")) {
                operands.addAll(arguments.subList(i + 1, arguments.size()));
                return;
            }
            if (!flag.startsWith("-")) {
                operands.add(flag);
                continue;
            }
            boolean alone = ALONE.contains(flag);
            if (!alone && !WITH_VALUE.contains(flag)) {
                throw usage("there is no flag " + flag
                    + ": see --help, or write -- before a name that begins with -");
            }
            if (!alone && (i + 1 >= arguments.size() || arguments.get(i + 1).equals("--"))) {
                throw usage(flag + " wants a value");
            }
            set(flag, alone ? "" : arguments.get(++i));
        }
    }

    private void set(String flag, String value) throws IOException {
        switch (flag) {
            case "--no-encryption": plain = true; break;
            case "--checksum": checksum = true; break;
            case "--fsync": fsync = true; break;
            case "--fingerprint": fingerprint = value; break;
            case "--token-file":
                token = read(value);
                tokenFrom = "the token file " + value;
                break;
            case "--streams": streams = number(flag, value, 64); break;
            case "--timeout": timeoutMillis = 1000L * number(flag, value, 1_000_000); break;
            case "--block": block = number(flag, value, 1 << 30); break;
            case "--socket": socket = number(flag, value, 1 << 30); break;
            default: quiet = true;
        }
    }

    private static String read(String file) throws IOException {
        byte[] start = new byte[TOKEN_FILE_BYTES];
        int length = 0;
        try (InputStream in = Files.newInputStream(path(file))) {
            for (int read = in.read(start); read > 0;) {
                length += read;
                read = in.read(start, length, start.length - length);
            }
        } catch (BankfullException e) {
            throw e;
        } catch (IOException e) {
            throw new BankfullException(
                Failure.USAGE, "cannot read the token file " + file + ": " + why(e), e);
        }
        return new String(start, 0, length, StandardCharsets.UTF_8);
    }

    private static Path path(String typed) throws BankfullException {
        try {
            return Paths.get(typed);
        } catch (InvalidPathException e) {
            throw usage("Java cannot write the name \"" + new Failure(0, typed).shown()
                + "\" under this locale: run with LC_ALL=C.UTF-8");
        }
    }

    private static int number(String flag, String value, int most) throws BankfullException {
        try {
            int number = Integer.parseInt(value);
            if (number >= 1 && number <= most) {
                return number;
            }
        } catch (NumberFormatException e) {
            // Told below.
        }
        throw usage(flag + " wants a number from 1 to " + most + ", not \"" + value + "\"");
    }

    private static BankfullException usage(String text) {
        return new BankfullException(Failure.USAGE, text);
    }

    private int command(String name, PrintStream out, PrintStream err) throws IOException {
        if (!name.equals("measure") && (block > 0 || socket > 0)) {
            throw usage("--block and --socket are for measure alone");
        }
        switch (name) {
            case "get": return untilSignal(CONTINUES, err, () -> get(err));
            case "put": return untilSignal(CONTINUES, err, () -> put(err));
            case "list": return untilSignal("", err, () -> list(out, err));
            case "measure": return measure(out);
            default: throw usage("there is no command \"" + name + "\": get, put, list or measure");
        }
    }

    private interface Command {
        int run() throws IOException;
    }

    /**
     * Runs a command. A signal meanwhile ends this process with a line: what is verified stands in
     * its journal already, and the other side sees the connections end.
     */
    private int untilSignal(String hint, PrintStream err, Command command) throws IOException {
        AtomicBoolean ended = new AtomicBoolean();
        Thread hook = new Thread(() -> {
            if (ended.get()) {
                return;
            }
            endProgress(err);
            err.println("bankfull: interrupted" + hint);
            Runtime.getRuntime().halt(INTERRUPTED);
        }, "bankfull-signal");
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (IllegalStateException e) {
            // One has come already.
            return INTERRUPTED;
        }
        try {
            return command.run();
        } finally {
            // From here on it is too late to interrupt it.
            ended.set(true);
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                // It has come, and ends the process.
            }
        }
    }

    /** What follows stands on a line of its own. */
    private void endProgress(PrintStream err) {
        if (progressShown) {
            err.println();
            progressShown = false;
        }
    }

    private Client client(Endpoint endpoint) throws BankfullException {
        Client client = Client.of("bankfull://" + endpoint.place() + "/");
        client.fingerprint(fingerprint).plain(plain).checksum(checksum).durable(fsync);
        client.streams(streams).timeoutMillis(timeoutMillis);
        return token == null ? client : client.token(token);
    }

    private int get(PrintStream err) throws IOException {
        if (operands.size() < 2) {
            throw usage("get wants a source, bankfull://HOST/PATH, and a destination here");
        }
        List<String> paths = new ArrayList<>();
        Endpoint daemon = Endpoint.parse(operands.get(0));
        for (String source : operands.subList(0, operands.size() - 1)) {
            Endpoint one = Endpoint.parse(source);
            if (!one.host.equals(daemon.host) || one.port != daemon.port) {
                throw usage("all sources of a get are at one daemon");
            }
            paths.add(one.path);
        }
        Client client = client(daemon).progress(progress(err));
        return told(client.get(paths, operands.get(operands.size() - 1)), err);
    }

    private int put(PrintStream err) throws IOException {
        if (operands.size() < 2) {
            throw usage("put wants a source here and a destination, bankfull://HOST/PATH");
        }
        Endpoint daemon = Endpoint.parse(operands.get(operands.size() - 1));
        Client client = client(daemon).progress(progress(err));
        return told(client.put(operands.subList(0, operands.size() - 1), daemon.path), err);
    }

    private int list(PrintStream out, PrintStream err) throws IOException {
        if (operands.size() != 1) {
            throw usage("list wants one bankfull://HOST/PATH");
        }
        Endpoint daemon = Endpoint.parse(operands.get(0));
        Summary done = client(daemon).list(daemon.path, one -> {
            String kind = one.directory ? "d" : one.symlink ? "l" : "-";
            String name =
                new Failure(0, one.path + (one.symlink ? " -> " + one.target : "")).shown();
            out.printf(Locale.ROOT, "%s%04o %14d %s %s%n",
                kind, one.mode, one.size, time(one.modifiedSeconds), name);
        });
        tellProblems(done, err);
        return done.failed > 0 ? SOME_FAILED : DONE;
    }

    private static String time(long seconds) {
        boolean shown =
            seconds >= Instant.MIN.getEpochSecond() && seconds <= Instant.MAX.getEpochSecond();
        return shown ? Instant.ofEpochSecond(seconds).toString() : seconds + " s";
    }

    /** What a daemon or a file name says is made safe for a terminal. */
    private static void tellProblems(Summary done, PrintStream err) {
        done.remarks.forEach(remark -> err.println("bankfull: " + new Failure(0, remark).shown()));
        done.failures.forEach(failure ->
            err.println("bankfull: " + new Failure(0, failure).shown()));
    }

    private org.bankfull.Progress progress(PrintStream err) {
        if (quiet || System.console() == null) {
            return (files, filesKnown, bytes, bytesKnown) -> { };
        }
        return (files, filesKnown, bytes, bytesKnown) -> {
            progressShown = true;
            err.printf(Locale.ROOT, "\r%d of %d files, %s of %s   ", files, filesKnown,
                size(bytes), size(bytesKnown));
        };
    }

    private int told(Summary done, PrintStream err) {
        endProgress(err);
        tellProblems(done, err);
        if (!quiet) {
            err.printf(Locale.ROOT,
                "%d copied, %d unchanged, %d failed; %s in %.2f s, %.0f Mbit/s%s%n", done.copied,
                done.skipped, done.failed, size(done.bytes), done.seconds,
                done.bytes * 8e-6 / done.seconds,
                done.bytesResumed > 0 ? ", " + size(done.bytesResumed) + " were here before" : "");
        }
        return done.failed > 0 ? SOME_FAILED : DONE;
    }

    private static String size(long bytes) {
        if (bytes < 1024) {
            return bytes + " B";
        }
        int unit = (63 - Long.numberOfLeadingZeros(bytes)) / 10;
        char letter = " KMGTPE".charAt(unit);
        return String.format(Locale.ROOT, "%.1f %ciB", bytes / Math.pow(1024, unit), letter);
    }

    private int measure(PrintStream out) throws IOException {
        if (operands.size() >= 2 && operands.get(0).equals("receive")) {
            int port = number("receive", operands.get(1), 0xFFFF);
            Path into = operands.size() > 2 ? path(operands.get(2)) : null;
            Methods.receive(port, into, block, socket, out);
            return DONE;
        }
        if (operands.size() != 4 || !operands.get(0).equals("send")
            || operands.get(3).lastIndexOf(':') < 1) {
            throw usage("measure wants send METHOD FILE HOST:PORT, or receive PORT [FILE]");
        }
        String place = operands.get(3);
        int colon = place.lastIndexOf(':');
        int port = number("send", place.substring(colon + 1), 0xFFFF);
        String host = place.substring(0, colon);
        Path file = path(operands.get(2));
        Methods.send(operands.get(1), file, host, port, block, socket, out);
        return DONE;
    }
}
