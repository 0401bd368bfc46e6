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

/** Finds what is in the sources and announces it, directories before their contents. */
final class Walk {
    private final Sender sender;
    private final Message.Totals totals = new Message.Totals();

    /** An operand: what was typed, and what the receiver must know of it. */
    static final class Operand {
        final Path path;
        final Source source;

        private Operand(Path path, Source source) {
            this.path = path;
            this.source = source;
        }

        static Operand of(String typed) throws IOException {
            Path path = Meta.path(typed);
            Path name = path.toAbsolutePath().normalize().getFileName();
            String last = path.getFileName() == null ? "" : path.getFileName().toString();
            boolean contents = typed.endsWith("/") || last.isEmpty() || last.equals(".")
                || last.equals("..");
            boolean directory;
            BasicFileAttributes found;
            try {
                found = Meta.look(path);
                directory = contents ? Files.isDirectory(path) : found.isDirectory();
            } catch (IOException e) {
                throw new BankfullException(Meta.failure("cannot read " + typed, e));
            }
            if (contents && !directory) {
                throw new BankfullException(Failure.NOT_A_DIRECTORY,
                    "cannot read " + typed + ": it is no directory, and ends in a slash");
            }
            if (found.isOther()) {
                throw new BankfullException(Failure.OTHER, typed + " is "
                    + Meta.kind(found) + ": only files, directories and symlinks are copied");
            }
            return new Operand(path,
                new Source(contents ? new byte[0] : Meta.bytes(name), directory, contents));
        }
    }

    private static final class Pending {
        final Path path;
        final long id;
        final int depth;

        Pending(Path path, long id, int depth) {
            this.path = path;
            this.id = id;
            this.depth = depth;
        }
    }

    Walk(Sender sender) {
        this.sender = sender;
    }

    void run(List<Operand> operands) throws IOException, WireException {
        for (Operand operand : operands) {
            Deque<Pending> stack = new ArrayDeque<>();
            if (!announce(operand.path, operand.source.name, 0, 0, stack)) {
                return;
            }
            while (!stack.isEmpty()) {
                if (!directory(stack.pop(), stack)) {
                    return;
                }
            }
        }
        sender.endOfEntries(totals.write());
    }

    /** Announces what is in a directory; false when the transfer is over. */
    private boolean directory(Pending pending, Deque<Pending> stack)
        throws IOException, WireException {
        if (pending.depth >= Limits.DEPTH) {
            sender.problem(pending.path,
                new Failure(Failure.USAGE, pending.path + " is nested too deep"));
            return true;
        }
        List<Path> names = new ArrayList<>();
        try (DirectoryStream<Path> listing = Files.newDirectoryStream(pending.path)) {
            listing.forEach(names::add);
        } catch (IOException | DirectoryIteratorException e) {
            IOException io = e instanceof IOException
                ? (IOException) e
                : ((DirectoryIteratorException) e).getCause();
            sender.problem(pending.path, Meta.failure("cannot read " + pending.path, io));
            return true;
        }
        Collections.sort(names);
        Deque<Pending> children = new ArrayDeque<>();
        for (Path path : names) {
            String name = path.getFileName().toString();
            if (!Meta.isWhole(path.getFileName())) {
                sender.problem(path, new Failure(Failure.USAGE,
                    path + ": Java cannot read its name: rename it if it is no UTF-8, else run with"
                        + " LC_ALL=C.UTF-8"));
            } else if (Entry.isOurs(name)) {
                sender.problem(path, new Failure(Failure.REMARK,
                    "left out " + path + ": part of a copy that was interrupted"));
            } else if (!announce(path, Meta.bytes(path.getFileName()), pending.id,
                pending.depth + 1, children)) {
                return false;
            }
        }
        // The first child is walked first.
        while (!children.isEmpty()) {
            stack.push(children.pop());
        }
        return true;
    }

    private boolean announce(Path path, byte[] name, long parent, int depth, Deque<Pending> stack)
        throws IOException, WireException {
        Entry entry;
        try {
            entry = Meta.entry(path, name, parent);
            if (entry != null && name.length == 0
                && !Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) {
                // A symlink to a directory, written with a slash.
                entry = Meta.entry(path.toRealPath(), name, parent);
            }
        } catch (NoSuchFileException e) {
            // Gone between listing and looking: it was never part of what is copied.
            return true;
        } catch (IOException e) {
            sender.problem(path, Meta.failure("cannot read " + path, e));
            return true;
        }
        if (entry == null) {
            totals.specials++;
            sender.problem(path,
                new Failure(Failure.REMARK, "left out " + path + ": neither file nor link"));
            return true;
        }
        if (!sender.announce(entry, path)) {
            return false;
        }
        if (entry.kind == Entry.DIRECTORY) {
            totals.directories++;
            stack.push(new Pending(path, entry.id, depth));
        } else if (entry.kind == Entry.SYMLINK) {
            totals.symlinks++;
        } else {
            totals.files++;
            totals.bytes += entry.size;
        }
        return true;
    }
}
