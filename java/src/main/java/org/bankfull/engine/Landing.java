package org.bankfull.engine;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
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
            Path parent = path.toAbsolutePath().getParent();
            if (!Files.isDirectory(parent)) {
                throw new BankfullException(Failure.NOT_A_DIRECTORY,
                    "cannot create " + typed + ": the directory " + parent
                        + " does not exist: create it first");
            }
            return new Landing(parent, path.getFileName().toString());
        }
        if (Files.exists(path)) {
            throw new BankfullException(Failure.NOT_A_DIRECTORY,
                typed + " is a file, but a directory is needed there: name another destination");
        }
        try {
            Files.createDirectory(path);
        } catch (NoSuchFileException e) {
            throw new BankfullException(Failure.NOT_A_DIRECTORY,
                "cannot make the directory " + typed
                    + ": the one above it does not exist: create it first", e);
        } catch (IOException e) {
            throw new BankfullException(Meta.failure("cannot make the directory " + typed, e));
        }
        return new Landing(path, null);
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
