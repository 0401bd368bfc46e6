package org.bankfull.engine;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.bankfull.wire.Entry;

/**
 * The directories of a tree that is being received. None is settled before the end, when they get
 * their modes and times: so little is kept of each, and no path.
 */
final class Directories {
    private static final int OWNER_ALL = 0700;

    private final Path base;
    private final Map<Long, Directory> byNumber = new HashMap<>();
    /** In the order announced, so that backwards the deepest come first. */
    private final List<Directory> announced = new ArrayList<>();

    /** One of them. */
    static final class Directory {
        /** Null for the destination itself. */
        private final Directory parent;
        private final String name;
        final int mode;
        final long mtimeSecs;
        final int mtimeNanos;
        /** It could not be made: neither can what is in it. */
        final boolean failed;
        /** It was made just now, so nothing is in it. */
        final boolean fresh;

        private Directory(Directory parent, String name, Entry entry, boolean failed,
            boolean fresh) {
            this.parent = parent;
            this.name = name;
            this.mode = entry.mode;
            this.mtimeSecs = entry.mtimeSecs;
            this.mtimeNanos = entry.mtimeNanos;
            this.failed = failed;
            this.fresh = fresh;
        }
    }

    Directories(Path base) {
        this.base = base;
        byNumber.put(0L, new Directory(null, "", new Entry(), false, false));
    }

    /** Null where none was announced under this number. */
    Directory find(long number) {
        return byNumber.get(number);
    }

    Path path(Directory directory) {
        List<String> names = new ArrayList<>();
        for (Directory at = directory; at.parent != null; at = at.parent) {
            names.add(at.name);
        }
        Path path = base;
        for (int i = names.size() - 1; i >= 0; i--) {
            // The destination itself has no name.
            path = names.get(i).isEmpty() ? path : path.resolve(names.get(i));
        }
        return path;
    }

    /** Makes one with this name, and enters it. */
    void make(Entry entry, Directory parent, String name) throws IOException {
        boolean fresh = !name.isEmpty() && make(path(parent).resolve(name));
        Directory made = new Directory(parent, name, entry, false, fresh);
        byNumber.put(entry.id, made);
        announced.add(made);
    }

    /** Enters one that could not be made. */
    void failed(Entry entry, Directory parent) {
        byNumber.put(entry.id, new Directory(parent, "", entry, true, false));
    }

    /** True when it was made just now. */
    private static boolean make(Path path) throws IOException {
        try {
            Files.createDirectory(path);
            return true;
        } catch (FileAlreadyExistsException e) {
            if (!Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) {
                throw new IOException(
                    Meta.kind(Meta.look(path)) + " is in the way: remove or rename it", e);
            }
            if (!Files.isWritable(path)) {
                // As an earlier run left it; it gets its mode again at the end.
                Meta.setMode(path, OWNER_ALL);
            }
            return false;
        }
    }

    /** Those that were made, the deepest first. */
    void each(java.util.function.Consumer<Directory> act) {
        for (int i = announced.size() - 1; i >= 0; i--) {
            act.accept(announced.get(i));
        }
    }
}
