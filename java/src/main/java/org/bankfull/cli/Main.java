package org.bankfull.cli;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
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
    private static final int SOME_FAILED = 23;
    private static final String HELP = String.join(System.lineSeparator(),
        "bankfull for Java: fetches from a bankfull daemon, sends to it, and lists what it has",
        "",
        "  get  [flags] bankfull://HOST[:PORT]/PATH... DESTINATION",
        "  put  [flags] SOURCE... bankfull://HOST[:PORT]/PATH",
        "  list [flags] bankfull://HOST[:PORT]/PATH",
        "  measure send METHOD FILE HOST:PORT [--block BYTES] [--socket BYTES]",
        "  measure receive PORT [FILE]",
        "",
        "  --fingerprint F   sha256: and 64 digits, as the daemon shows it (needed; or BANKFULL_FINGERPRINT)",
        "  --token-file F    the daemon's access token (or BANKFULL_TOKEN)",
        "  --no-encryption   data unencrypted, where the daemon allows it; it is verified all the same",
        "  --checksum        compare content, not size and time",
        "  --fsync           flush each file to the disk before it gets its name",
        "  --streams N       connections with data, 1 to 64 (2)",
        "  --timeout SECONDS give up after so long without a sign of life (60)",
        "  --quiet           no progress",
        "",
        "A source that ends in a slash leaves its contents at the destination. What was interrupted goes on",
        "when the same command is run again. Methods to measure: stream, nio, mapped, zerocopy, zerobuffer.");

    private final List<String> operands = new ArrayList<>();
    private String fingerprint = System.getenv("BANKFULL_FINGERPRINT");
    private String token = System.getenv("BANKFULL_TOKEN");
    private boolean plain;
    private boolean checksum;
    private boolean fsync;
    private boolean quiet;
    private int streams = Client.DEFAULT_STREAMS;
    private long timeoutMillis = 60_000;
    private int block = 256 << 10;
    private int socket;

    private Main() {}

    public static void main(String[] arguments) {
        System.exit(run(arguments, System.out, System.err));
    }

    static int run(String[] arguments, PrintStream out, PrintStream err) {
        if (arguments.length == 0 || arguments[0].equals("--help") || arguments[0].equals("help")) {
            out.println(HELP);
            return arguments.length == 0 ? USAGE : DONE;
        }
        try {
            Main main = new Main();
            main.parse(arguments);
            return main.command(arguments[0], out, err);
        } catch (BankfullException e) {
            err.println("bankfull: " + e.getMessage());
            return e.code() == Failure.USAGE ? USAGE : STOPPED;
        } catch (IOException e) {
            err.println("bankfull: " + (e.getMessage() == null ? e.toString() : e.getMessage()));
            return STOPPED;
        }
    }

    private void parse(String[] arguments) throws IOException {
        for (int i = 1; i < arguments.length; i++) {
            String flag = arguments[i];
            if (!flag.startsWith("--") || flag.equals("--")) {
                operands.add(flag);
                continue;
            }
            boolean alone = List.of("--no-encryption", "--checksum", "--fsync", "--quiet").contains(flag);
            if (!alone && i + 1 >= arguments.length) {
                throw usage(flag + " wants a value");
            }
            set(flag, alone ? "" : arguments[++i]);
        }
    }

    private void set(String flag, String value) throws IOException {
        switch (flag) {
            case "--no-encryption": plain = true; break;
            case "--checksum": checksum = true; break;
            case "--fsync": fsync = true; break;
            case "--quiet": quiet = true; break;
            case "--fingerprint": fingerprint = value; break;
            case "--token-file": token = new String(Files.readAllBytes(Paths.get(value)), java.nio.charset.StandardCharsets.UTF_8); break;
            case "--streams": streams = number(flag, value, 64); break;
            case "--timeout": timeoutMillis = 1000L * number(flag, value, 1_000_000); break;
            case "--block": block = number(flag, value, 1 << 30); break;
            case "--socket": socket = number(flag, value, 1 << 30); break;
            default: throw usage("there is no flag " + flag + ": see bankfull --help");
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
        switch (name) {
            case "get": return get(err);
            case "put": return put(err);
            case "list": return list(out, err);
            case "measure": return measure(out);
            default: throw usage("there is no command \"" + name + "\": get, put, list or measure");
        }
    }

    private Client client(Endpoint endpoint) throws BankfullException {
        String host = endpoint.host.indexOf(':') < 0 ? endpoint.host : "[" + endpoint.host + "]";
        Client client = Client.of("bankfull://" + host + ":" + endpoint.port + "/");
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
            String name = new Failure(0, one.path + (one.symlink ? " -> " + one.target : "")).shown();
            out.printf(Locale.ROOT, "%s%04o %14d %s %s%n",
                kind, one.mode, one.size, time(one.modifiedSeconds), name);
        });
        tellProblems(done, err);
        return done.failed > 0 ? SOME_FAILED : DONE;
    }

    private static String time(long seconds) {
        boolean shown = seconds >= Instant.MIN.getEpochSecond() && seconds <= Instant.MAX.getEpochSecond();
        return shown ? Instant.ofEpochSecond(seconds).toString() : seconds + " s";
    }

    /** What a daemon or a file name says is made safe for a terminal. */
    private static void tellProblems(Summary done, PrintStream err) {
        done.remarks.forEach(remark -> err.println("bankfull: " + new Failure(0, remark).shown()));
        done.failures.forEach(failure -> err.println("bankfull: " + new Failure(0, failure).shown()));
    }

    private org.bankfull.Progress progress(PrintStream err) {
        if (quiet || System.console() == null) {
            return (files, filesKnown, bytes, bytesKnown) -> { };
        }
        return (files, filesKnown, bytes, bytesKnown) -> err.printf(Locale.ROOT,
            "\r%d of %d files, %s of %s   ", files, filesKnown, size(bytes), size(bytesKnown));
    }

    private int told(Summary done, PrintStream err) {
        if (!quiet && System.console() != null) {
            err.println();
        }
        tellProblems(done, err);
        if (!quiet) {
            err.printf(Locale.ROOT, "%d copied, %d unchanged, %d failed; %s in %.2f s, %.0f Mbit/s%s%n", done.copied,
                done.skipped, done.failed, size(done.bytes), done.seconds, done.bytes * 8e-6 / done.seconds,
                done.bytesResumed > 0 ? ", " + size(done.bytesResumed) + " were here before" : "");
        }
        return done.failed > 0 ? SOME_FAILED : DONE;
    }

    private static String size(long bytes) {
        if (bytes < 1024) {
            return bytes + " B";
        }
        int unit = (63 - Long.numberOfLeadingZeros(bytes)) / 10;
        return String.format(Locale.ROOT, "%.1f %ciB", bytes / Math.pow(1024, unit), " KMGTPE".charAt(unit));
    }

    private int measure(PrintStream out) throws IOException {
        if (operands.size() >= 2 && operands.get(0).equals("receive")) {
            int port = number("receive", operands.get(1), 0xFFFF);
            Methods.receive(port, operands.size() > 2 ? Paths.get(operands.get(2)) : null, out);
            return DONE;
        }
        if (operands.size() != 4 || !operands.get(0).equals("send") || operands.get(3).lastIndexOf(':') < 1) {
            throw usage("measure send METHOD FILE HOST:PORT, or measure receive PORT [FILE]");
        }
        String place = operands.get(3);
        int colon = place.lastIndexOf(':');
        int port = number("send", place.substring(colon + 1), 0xFFFF);
        Methods.send(operands.get(1), Paths.get(operands.get(2)), place.substring(0, colon), port, block, socket, out);
        return DONE;
    }
}
