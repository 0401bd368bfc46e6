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

/** Where sources land at a destination (spec/wire.md, section 5). */
final class Landing {
    /** The directory that they land in. */
    final Path base;
    /** The name that the one file gets there; null: its own. */
    final String rename;

    private Landing(Path base, String rename) {
        this.base = base;
        this.rename = rename;
    }

    static Landing of(String typed, List<Source> sources) throws IOException {
        refuseClashes(sources);
        Path path = Meta.path(typed.isEmpty() ? "." : typed);
        boolean asDirectory = typed.isEmpty() || typed.endsWith("/") || path.getFileName() == null;
        boolean oneFile = sources.size() == 1 && !sources.get(0).directory;
        if (Files.isDirectory(path)) {
            return new Landing(path, null);
        }
        if (oneFile && !asDirectory) {
            Path above = above(path);
            if (!Files.isDirectory(above)) {
                throw new BankfullException(Failure.NOT_A_DIRECTORY,
                    "cannot create " + typed + ": " + noDirectory(above));
            }
            return new Landing(above, path.getFileName().toString());
        }
        if (Files.exists(path)) {
            throw new BankfullException(Failure.NOT_A_DIRECTORY, typed + " is "
                + Meta.kind(Files.readAttributes(path, BasicFileAttributes.class))
                + ", but a directory is needed there: name another destination");
        }
        try {
            Files.createDirectory(path);
        } catch (IOException e) {
            String what = "cannot make the directory " + typed;
            if (Files.isDirectory(above(path))) {
                throw new BankfullException(Meta.failure(what, e));
            }
            throw new BankfullException(
                Failure.NOT_A_DIRECTORY, what + ": " + noDirectory(above(path)), e);
        }
        return new Landing(path, null);
    }

    /** As it was typed, so that messages name what the user knows. */
    private static Path above(Path path) {
        Path parent = path.getParent();
        return parent == null ? Paths.get("") : parent;
    }

    private static String noDirectory(Path path) {
        try {
            BasicFileAttributes found = Files.readAttributes(path, BasicFileAttributes.class);
            return path + " is " + Meta.kind(found) + ", no directory: name another destination";
        } catch (IOException e) {
            return "the directory " + path + " does not exist: create it first";
        }
    }

    private static void refuseClashes(List<Source> sources) throws BankfullException {
        Set<String> names = new HashSet<>();
        for (Source source : sources) {
            if (source.contents && sources.size() > 1) {
                throw new BankfullException(Failure.USAGE,
                    "a source with a trailing slash must be the only"
                    + " source: its contents would mix with the others");
            }
            if (!names.add(new String(source.name, StandardCharsets.ISO_8859_1))) {
                throw new BankfullException(Failure.USAGE,
                    "two sources have one name and would land on each"
                    + " other: copy them one by one");
            }
        }
    }
}
