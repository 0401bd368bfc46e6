package org.bankfull.engine;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.nio.charset.StandardCharsets;
import org.bankfull.BankfullException;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Message.Source;

/** Resolved destination of a fetch (spec/wire.md, section 5). */
final class Destination {
    /** Directory that the sources are copied into. */
    final Path base;
    /** New name of a single file; null: it keeps its own. */
    final String rename;

    private Destination(Path base, String rename) {
        this.base = base;
        this.rename = rename;
    }

    /** Resolves the destination operand and creates its directory if it is missing. */
    static Destination resolve(String operand, List<Source> sources) throws IOException {
        checkNames(sources);
        Path path = Metadata.parsePath(operand.isEmpty() ? "." : operand);
        boolean asDirectory =
            operand.isEmpty() || operand.endsWith("/") || path.getFileName() == null;
        boolean oneFile = sources.size() == 1 && !sources.get(0).directory;
        if (Files.isDirectory(path)) {
            return new Destination(path, null);
        }
        if (oneFile && !asDirectory) {
            Path parent = parent(path);
            if (!Files.isDirectory(parent)) {
                throw new BankfullException(Failure.NOT_A_DIRECTORY,
                    "cannot create " + operand + ": " + describeNonDirectory(parent));
            }
            return new Destination(parent, path.getFileName().toString());
        }
        if (Files.exists(path)) {
            throw new BankfullException(Failure.NOT_A_DIRECTORY, operand + " is "
                + Metadata.describeKind(Files.readAttributes(path, BasicFileAttributes.class))
                + ", but must be a directory: choose another destination");
        }
        try {
            Files.createDirectory(path);
        } catch (IOException e) {
            String action = "cannot create the directory " + operand;
            if (Files.isDirectory(parent(path))) {
                throw new BankfullException(Metadata.failure(action, e));
            }
            throw new BankfullException(
                Failure.NOT_A_DIRECTORY, action + ": " + describeNonDirectory(parent(path)), e);
        }
        return new Destination(path, null);
    }

    /** Returns the parent as it was typed, for messages. */
    private static Path parent(Path path) {
        Path parent = path.getParent();
        return parent == null ? Paths.get("") : parent;
    }

    private static String describeNonDirectory(Path path) {
        try {
            BasicFileAttributes attributes = Files.readAttributes(path, BasicFileAttributes.class);
            return path + " is " + Metadata.describeKind(attributes)
                + ", not a directory: choose another destination";
        } catch (IOException e) {
            return "the directory " + path + " does not exist: create it first";
        }
    }

    private static void checkNames(List<Source> sources) throws BankfullException {
        Set<String> names = new HashSet<>();
        for (Source source : sources) {
            if (source.contents && sources.size() > 1) {
                throw new BankfullException(Failure.USAGE,
                    "a source with a trailing slash must be the only"
                    + " source: its contents would mix with other sources");
            }
            if (!names.add(new String(source.name, StandardCharsets.ISO_8859_1))) {
                throw new BankfullException(Failure.USAGE,
                    "two sources have the same name and would overwrite each"
                    + " other: copy them one by one");
            }
        }
    }
}
