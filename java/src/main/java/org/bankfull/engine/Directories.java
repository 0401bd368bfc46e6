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
 * Directories of a tree that is being received.
 *
 * <p>All stay in memory until the end, when their modes and times are set; therefore each keeps its
 * name only, not its path.
 */
final class Directories {
    private static final int OWNER_ALL = 0700;

    private final Path base;
    private final Map<Long, Directory> byId = new HashMap<>();
    /** Directories in the order of announcement, parents before children. */
    private final List<Directory> created = new ArrayList<>();

    /** Received directory. */
    static final class Directory {
        /** Parent; null for the destination itself. */
        private final Directory parent;
        private final String name;
        final int mode;
        final long mtimeSecs;
        final int mtimeNanos;
        /** Creation failed; its contents fail, too. */
        final boolean isFailed;
        /** Created by this session, hence empty before. */
        final boolean isNew;

        private Directory(Directory parent, String name, Entry entry, boolean isFailed,
            boolean isNew) {
            this.parent = parent;
            this.name = name;
            this.mode = entry.mode;
            this.mtimeSecs = entry.mtimeSecs;
            this.mtimeNanos = entry.mtimeNanos;
            this.isFailed = isFailed;
            this.isNew = isNew;
        }
    }

    Directories(Path base) {
        this.base = base;
        byId.put(0L, new Directory(null, "", new Entry(), false, false));
    }

    /** Returns the directory with an ID; null if unknown. */
    Directory find(long id) {
        return byId.get(id);
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

    /** Creates and registers a directory. */
    void create(Entry entry, Directory parent, String name) throws IOException {
        boolean isNew = !name.isEmpty() && create(path(parent).resolve(name));
        Directory directory = new Directory(parent, name, entry, false, isNew);
        byId.put(entry.id, directory);
        created.add(directory);
    }

    /** Registers a directory that could not be created. */
    void addFailed(Entry entry, Directory parent) {
        byId.put(entry.id, new Directory(parent, "", entry, true, false));
    }

    /** Creates a directory; returns false if it exists. */
    private static boolean create(Path path) throws IOException {
        try {
            Files.createDirectory(path);
            return true;
        } catch (FileAlreadyExistsException e) {
            if (!Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) {
                throw new IOException(
                    Metadata.describeKind(Metadata.attributes(path))
                        + " is in the way: remove or rename it", e);
            }
            if (!Files.isWritable(path)) {
                // Left by an earlier run; its mode is set again at the end.
                Metadata.setMode(path, OWNER_ALL);
            }
            return false;
        }
    }

    /** Calls an action for each created directory, children before parents. */
    void forEachDeepestFirst(java.util.function.Consumer<Directory> action) {
        for (int i = created.size() - 1; i >= 0; i--) {
            action.accept(created.get(i));
        }
    }
}
