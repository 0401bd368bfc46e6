package org.bankfull.engine;

import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import org.bankfull.BankfullException;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Limits;
import org.bankfull.wire.Message;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.WireException;

/** Walks the sources and announces their entries, directories before their contents. */
final class Walk {
    private final Sender sender;
    private final Message.Totals totals = new Message.Totals();

    /** Source operand with its description for the receiver. */
    static final class Operand {
        final Path path;
        final Source source;

        private Operand(Path path, Source source) {
            this.path = path;
            this.source = source;
        }

        static Operand of(String operand) throws IOException {
            Path path = Metadata.parsePath(operand);
            Path name = path.toAbsolutePath().normalize().getFileName();
            String last = path.getFileName() == null ? "" : path.getFileName().toString();
            boolean contents = operand.endsWith("/") || last.isEmpty() || last.equals(".")
                || last.equals("..");
            boolean directory;
            BasicFileAttributes attributes;
            try {
                attributes = Metadata.attributes(path);
                directory = contents ? Files.isDirectory(path) : attributes.isDirectory();
            } catch (IOException e) {
                throw new BankfullException(Metadata.failure("cannot read " + operand, e));
            }
            if (contents && !directory) {
                throw new BankfullException(Failure.NOT_A_DIRECTORY,
                    "cannot read " + operand + ": it ends in a slash but is not a directory");
            }
            if (attributes.isOther()) {
                throw new BankfullException(Failure.OTHER, operand + " is "
                    + Metadata.describeKind(attributes)
                    + ": only files, directories and symlinks are copied");
            }
            return new Operand(path,
                new Source(contents ? new byte[0] : Metadata.nameBytes(name), directory, contents));
        }
    }

    /** Directory to walk, or to leave once its subdirectories are walked. */
    private static final class Pending {
        final Path path;
        final Entry entry;
        final int depth;
        final boolean isWalked;

        Pending(Path path, Entry entry, int depth, boolean isWalked) {
            this.path = path;
            this.entry = entry;
            this.depth = depth;
            this.isWalked = isWalked;
        }
    }

    Walk(Sender sender) {
        this.sender = sender;
    }

    void run(List<Operand> operands) throws IOException, WireException {
        for (Operand operand : operands) {
            Deque<Pending> stack = new ArrayDeque<>();
            if (!visit(operand.path, operand.source.name, 0, 0, stack)) {
                return;
            }
            while (!stack.isEmpty()) {
                Pending next = stack.pop();
                if (next.isWalked) {
                    sender.leaveDirectory(next.entry.id);
                } else if (!walkDirectory(next, stack)) {
                    return;
                }
            }
        }
        sender.endEntries(totals.write());
    }

    /** Announces a directory and its contents; returns false if the transfer is over. */
    private boolean walkDirectory(Pending pending, Deque<Pending> stack)
        throws IOException, WireException {
        if (!sender.announce(pending.entry, pending.path)) {
            return false;
        }
        totals.directories++;
        stack.push(new Pending(pending.path, pending.entry, pending.depth, true));
        if (pending.depth >= Limits.MAX_DIRECTORY_DEPTH) {
            sender.reportProblem(pending.path,
                new Failure(Failure.USAGE,
                    pending.path + " is nested too deeply: move it up in the tree"));
            return true;
        }
        List<Path> names = new ArrayList<>();
        try (DirectoryStream<Path> listing = Files.newDirectoryStream(pending.path)) {
            for (Path path : listing) {
                sender.throwIfOver();
                names.add(path);
            }
        } catch (IOException | DirectoryIteratorException e) {
            sender.throwIfOver();
            IOException error = e instanceof IOException
                ? (IOException) e
                : ((DirectoryIteratorException) e).getCause();
            sender.reportProblem(
                pending.path, Metadata.failure("cannot read " + pending.path, error));
            return true;
        }
        Collections.sort(names);
        Deque<Pending> children = new ArrayDeque<>();
        for (Path path : names) {
            // Also before names that are not announced.
            sender.throwIfOver();
            String name = path.getFileName().toString();
            if (!Metadata.isValidUtf8(path.getFileName())) {
                sender.reportProblem(path, new Failure(Failure.USAGE,
                    path + ": Java cannot read its name: rename it if it is not valid UTF-8,"
                        + " else run with LC_ALL=C.UTF-8"));
            } else if (Entry.isReservedName(name)) {
                sender.reportProblem(path, new Failure(Failure.WARNING,
                    "skipped " + path + ": temporary file of an interrupted copy"));
            } else if (!visit(path, Metadata.nameBytes(path.getFileName()), pending.entry.id,
                pending.depth + 1, children)) {
                return false;
            }
        }
        // The first child is visited first.
        while (!children.isEmpty()) {
            stack.push(children.pop());
        }
        return true;
    }

    /** Announces a file or symlink, or adds a directory; returns false if the transfer is over. */
    private boolean visit(Path path, byte[] name, long parent, int depth, Deque<Pending> stack)
        throws IOException, WireException {
        Entry entry;
        try {
            entry = Metadata.readEntry(path, name, parent);
            if (entry != null && name.length == 0
                && !Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) {
                // Symlink to a directory, given with a trailing slash.
                entry = Metadata.readEntry(path.toRealPath(), name, parent);
            }
        } catch (NoSuchFileException e) {
            // Removed since the listing: not part of the copy.
            return true;
        } catch (IOException e) {
            sender.reportProblem(path, Metadata.failure("cannot read " + path, e));
            return true;
        }
        if (entry == null) {
            totals.specialFilesSkipped++;
            sender.reportProblem(path,
                new Failure(Failure.WARNING, "skipped " + path
                    + ": neither a file, a directory nor a symlink"));
            return true;
        }
        if (entry.kind == Entry.DIRECTORY) {
            stack.push(new Pending(path, entry, depth, false));
            return true;
        }
        if (!sender.announce(entry, path)) {
            return false;
        }
        if (entry.kind == Entry.SYMLINK) {
            totals.symlinks++;
        } else {
            totals.files++;
            totals.bytes += entry.size;
        }
        return true;
    }
}
