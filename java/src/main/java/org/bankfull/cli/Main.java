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
import org.bankfull.ProgressListener;
import org.bankfull.Summary;
import org.bankfull.wire.Failure;

/** Command line: {@code get}, {@code put}, {@code list} and {@code measure}. */
public final class Main {
    private static final int SUCCESS = 0;
    private static final int USAGE = 1;
    private static final int STOPPED = 2;
    /** Exit code of an interrupted transfer, as in {@code bankfull cp}. */
    private static final int INTERRUPTED = 20;
    private static final int SOME_FAILED = 23;
    private static final String HELP = String.join(System.lineSeparator(),
        "bankfull for Java: fetch files from a bankfull daemon, send files to it, list its files",
        "",
        "  get  [flags] bankfull://HOST[:PORT]/PATH... DESTINATION",
        "  put  [flags] SOURCE... bankfull://HOST[:PORT]/PATH",
        "  list [flags] bankfull://HOST[:PORT]/PATH",
        "  measure send METHOD FILE HOST:PORT [--block BYTES] [--socket BYTES]",
        "  measure receive PORT [FILE] [--block BYTES] [--socket BYTES]",
        "",
        "  --fingerprint F   Accept the daemon with this certificate fingerprint; required:",
        "                    sha256: and 64 hexadecimal digits (or BANKFULL_FINGERPRINT)",
        "  --token-file F    Read the daemon's access token from a file (or BANKFULL_TOKEN)",
        "  --no-encryption   Send data unencrypted, if the daemon allows it; still verified",
        "  --checksum        Compare content instead of size and time",
        "  --fsync           Flush each file to the disk before it is renamed into place",
        "  --streams N       Use N data streams, 1 to 64, 12 MiB of heap each (2)",
        "  --timeout SECONDS Stop after this time without a response (60)",
        "  --quiet, -q       Show no progress and no summary",
        "  --help, -h        Show this text",
        "  --                End the flags; arguments after it may begin with -",
        "  --block BYTES     measure: set the block size (send 262144, receive 1048576)",
        "  --socket BYTES    measure: set the socket buffer (default of the kernel)",
        "",
        "A source that ends in a slash stands for its contents.",
        "An interrupted transfer continues when the same command is run again.",
        "Methods to measure: stream, nio, mapped, zerocopy, zerobuffer.",
        "Exit codes: 0 success, 1 usage error, 2 transfer stopped, 20 interrupted by a signal,",
        "23 some files failed.");

    /** Bytes read of a token file: the limit and enough more to detect an excess. */
    private static final int MAX_TOKEN_FILE_BYTES = 4096 + 3;

    private static final String RESUME_HINT =
        "; run the same command again to continue where it stopped";

    private static final List<String> FLAGS_WITHOUT_VALUE =
        List.of("--no-encryption", "--checksum", "--fsync", "--quiet", "-q");
    private static final List<String> FLAGS_WITH_VALUE =
        List.of("--fingerprint", "--token-file", "--streams", "--timeout", "--block", "--socket");

    private final List<String> operands = new ArrayList<>();
    private String fingerprint = System.getenv("BANKFULL_FINGERPRINT");
    private String token = System.getenv("BANKFULL_TOKEN");
    private String tokenSource =
        token == null ? "--token-file F, or BANKFULL_TOKEN" : "BANKFULL_TOKEN";
    private boolean unencrypted;
    private boolean checksum;
    private boolean fsync;
    private boolean quiet;
    private volatile boolean hasProgressLine;
    private int streams = Client.DEFAULT_STREAMS;
    private long timeoutMillis = 60_000;
    /** Block size of measure in bytes; 0: default of the method. */
    private int block;
    /** Socket buffer of measure in bytes; 0: default of the kernel. */
    private int socket;

    private Main() {}

    public static void main(String[] arguments) {
        System.exit(run(arguments, System.out, System.err));
    }

    static int run(String[] arguments, PrintStream out, PrintStream err) {
        List<String> all = Arrays.asList(arguments);
        int end = all.indexOf("--");
        List<String> flags = end < 0 ? all : all.subList(0, end);
        boolean wantsHelp = flags.contains("--help") || flags.contains("-h");
        if (wantsHelp || all.isEmpty() || all.get(0).equals("help")) {
            out.println(HELP);
            return all.isEmpty() ? USAGE : SUCCESS;
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
            err.println("bankfull: " + describe(e));
            return STOPPED;
        } catch (OutOfMemoryError e) {
            main.endProgress(err);
            err.println("bankfull: out of memory: give Java more (-Xmx)");
            return STOPPED;
        }
    }

    /** Names the flag of a setting. */
    private String flagOf(BankfullException.Setting setting) {
        if (setting == null) {
            return "";
        }
        switch (setting) {
            case FINGERPRINT: return " (--fingerprint F, or BANKFULL_FINGERPRINT)";
            case TOKEN: return " (" + tokenSource + ")";
            default: return " (leave out --no-encryption)";
        }
    }

    /** Describes an error; the message of file system exceptions is only the path. */
    private static String describe(IOException e) {
        return e instanceof FileSystemException
            ? "cannot use " + ((FileSystemException) e).getFile() + ": " + reason(e)
            : reason(e);
    }

    private static String reason(IOException e) {
        String reason = e instanceof NoSuchFileException ? "it does not exist"
            : e instanceof AccessDeniedException ? "permission denied"
            : e instanceof FileSystemException ? ((FileSystemException) e).getReason()
            : e.getMessage();
        return reason == null ? e.getClass().getSimpleName() : Failure.lowercaseInitial(reason);
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
            boolean hasNoValue = FLAGS_WITHOUT_VALUE.contains(flag);
            if (!hasNoValue && !FLAGS_WITH_VALUE.contains(flag)) {
                throw usage("unknown flag " + flag
                    + ": see --help, or write -- before a name that begins with -");
            }
            if (!hasNoValue && (i + 1 >= arguments.size() || arguments.get(i + 1).equals("--"))) {
                throw usage(flag + " needs a value");
            }
            set(flag, hasNoValue ? "" : arguments.get(++i));
        }
    }

    private void set(String flag, String value) throws IOException {
        switch (flag) {
            case "--no-encryption": unencrypted = true; break;
            case "--checksum": checksum = true; break;
            case "--fsync": fsync = true; break;
            case "--fingerprint": fingerprint = value; break;
            case "--token-file":
                token = readToken(value);
                tokenSource = "the token file " + value;
                break;
            case "--streams": streams = number(flag, value, 64); break;
            case "--timeout": timeoutMillis = 1000L * number(flag, value, 1_000_000); break;
            case "--block": block = number(flag, value, 1 << 30); break;
            case "--socket": socket = number(flag, value, 1 << 30); break;
            default: quiet = true;
        }
    }

    private static String readToken(String file) throws IOException {
        byte[] start = new byte[MAX_TOKEN_FILE_BYTES];
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
                Failure.USAGE, "cannot read the token file " + file + ": " + reason(e), e);
        }
        return new String(start, 0, length, StandardCharsets.UTF_8);
    }

    private static Path path(String operand) throws BankfullException {
        try {
            return Paths.get(operand);
        } catch (InvalidPathException e) {
            throw usage("Java cannot write the name \"" + new Failure(0, operand).printable()
                + "\" under this locale: run with LC_ALL=C.UTF-8");
        }
    }

    private static int number(String flag, String value, int max) throws BankfullException {
        try {
            int number = Integer.parseInt(value);
            if (number >= 1 && number <= max) {
                return number;
            }
        } catch (NumberFormatException e) {
            // Reported below.
        }
        throw usage(flag + " needs a number from 1 to " + max + ", not \"" + value + "\"");
    }

    private static BankfullException usage(String text) {
        return new BankfullException(Failure.USAGE, text);
    }

    private int command(String name, PrintStream out, PrintStream err) throws IOException {
        if (!name.equals("measure") && (block > 0 || socket > 0)) {
            throw usage("--block and --socket apply to measure only: leave them out");
        }
        switch (name) {
            case "get": return untilSignal(RESUME_HINT, err, () -> get(err));
            case "put": return untilSignal(RESUME_HINT, err, () -> put(err));
            case "list": return untilSignal("", err, () -> list(out, err));
            case "measure": return measure(out);
            default: throw usage("unknown command \"" + name
                + "\": choose get, put, list or measure");
        }
    }

    private interface Command {
        int run() throws IOException;
    }

    /**
     * Runs a command; a signal meanwhile prints a message and ends the process.
     *
     * <p>Verified blocks are in the journal already, and the peer sees the connections close.
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
            // The shutdown has already begun.
            return INTERRUPTED;
        }
        try {
            return command.run();
        } finally {
            // The command has ended: a later signal prints no message.
            ended.set(true);
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                // The shutdown has begun and ends the process.
            }
        }
    }

    /** Ends the progress line. */
    private void endProgress(PrintStream err) {
        if (hasProgressLine) {
            err.println();
            hasProgressLine = false;
        }
    }

    private Client client(Endpoint endpoint) throws BankfullException {
        Client client = Client.of("bankfull://" + endpoint.hostAndPort() + "/");
        client.fingerprint(fingerprint).unencrypted(unencrypted).checksum(checksum).durable(fsync);
        client.streams(streams).timeoutMillis(timeoutMillis);
        return token == null ? client : client.token(token);
    }

    private int get(PrintStream err) throws IOException {
        if (operands.size() < 2) {
            throw usage("get needs a source, bankfull://HOST/PATH, and a local destination");
        }
        List<String> paths = new ArrayList<>();
        Endpoint daemon = Endpoint.parse(operands.get(0));
        for (String source : operands.subList(0, operands.size() - 1)) {
            Endpoint endpoint = Endpoint.parse(source);
            if (!endpoint.host.equals(daemon.host) || endpoint.port != daemon.port) {
                throw usage("the sources are on different daemons: get from one at a time");
            }
            paths.add(endpoint.path);
        }
        Client client = client(daemon).progress(progress(err));
        return report(client.get(paths, operands.get(operands.size() - 1)), err);
    }

    private int put(PrintStream err) throws IOException {
        if (operands.size() < 2) {
            throw usage("put needs a local source and a destination, bankfull://HOST/PATH");
        }
        Endpoint daemon = Endpoint.parse(operands.get(operands.size() - 1));
        Client client = client(daemon).progress(progress(err));
        return report(client.put(operands.subList(0, operands.size() - 1), daemon.path), err);
    }

    private int list(PrintStream out, PrintStream err) throws IOException {
        if (operands.size() != 1) {
            throw usage("list needs one bankfull://HOST/PATH");
        }
        Endpoint daemon = Endpoint.parse(operands.get(0));
        Summary summary = client(daemon).list(daemon.path, entry -> {
            String kind = entry.directory ? "d" : entry.symlink ? "l" : "-";
            String name =
                new Failure(0,
                    entry.path + (entry.symlink ? " -> " + entry.target : "")).printable();
            out.printf(Locale.ROOT, "%s%04o %14d %s %s%n",
                kind, entry.mode, entry.size, time(entry.modifiedSeconds), name);
        });
        printMessages(summary, err);
        return summary.failed > 0 ? SOME_FAILED : SUCCESS;
    }

    private static String time(long seconds) {
        boolean shown =
            seconds >= Instant.MIN.getEpochSecond() && seconds <= Instant.MAX.getEpochSecond();
        return shown ? Instant.ofEpochSecond(seconds).toString() : seconds + " s";
    }

    /** Prints warnings and failures, with control characters escaped. */
    private static void printMessages(Summary summary, PrintStream err) {
        summary.warnings.forEach(
            warning -> err.println("bankfull: " + new Failure(0, warning).printable()));
        summary.failures.forEach(failure ->
            err.println("bankfull: " + new Failure(0, failure).printable()));
    }

    private ProgressListener progress(PrintStream err) {
        if (quiet || System.console() == null) {
            return (completedFiles, announcedFiles, verifiedBytes, announcedBytes) -> { };
        }
        return (completedFiles, announcedFiles, verifiedBytes, announcedBytes) -> {
            hasProgressLine = true;
            err.printf(Locale.ROOT, "\r%d of %d files, %s of %s   ", completedFiles,
                announcedFiles, size(verifiedBytes), size(announcedBytes));
        };
    }

    private int report(Summary summary, PrintStream err) {
        endProgress(err);
        printMessages(summary, err);
        if (!quiet) {
            err.printf(Locale.ROOT,
                "%d copied, %d unchanged, %d failed; %s in %.2f s, %.0f Mbit/s%s%n", summary.copied,
                summary.skipped, summary.failed, size(summary.bytes), summary.seconds,
                summary.bytes * 8e-6 / summary.seconds,
                summary.bytesResumed > 0
                    ? ", " + size(summary.bytesResumed) + " were present before" : "");
        }
        return summary.failed > 0 ? SOME_FAILED : SUCCESS;
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
            IoMethods.receive(port, into, block, socket, out);
            return SUCCESS;
        }
        if (operands.size() != 4 || !operands.get(0).equals("send")
            || operands.get(3).lastIndexOf(':') < 1) {
            throw usage("measure needs send METHOD FILE HOST:PORT, or receive PORT [FILE]");
        }
        String address = operands.get(3);
        int colon = address.lastIndexOf(':');
        int port = number("send", address.substring(colon + 1), 0xFFFF);
        String host = address.substring(0, colon);
        Path file = path(operands.get(2));
        IoMethods.send(operands.get(1), file, host, port, block, socket, out);
        return SUCCESS;
    }
}
