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
import java.util.TreeMap;
import java.util.function.Consumer;
import org.bankfull.wire.Entry;
import org.bankfull.wire.WireException;

/**
 * Directories of a tree that is being received, until they are completed.
 *
 * <p>Each keeps its name only, not its path.
 */
final class Directories {
    private static final int OWNER_ALL = 0700;

    private final Path base;
    private final FoldedNames foldedNames = new FoldedNames();
    private final Map<Long, Directory> byId = new HashMap<>();
    /** Created directories by ID, parents before children. */
    private final TreeMap<Long, Directory> created = new TreeMap<>();

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
        private final FoldedNames.Names names;

        private Directory(Directory parent, String name, Entry entry, boolean isFailed,
            boolean isNew) {
            this.parent = parent;
            this.name = name;
            this.mode = entry.mode;
            this.mtimeSecs = entry.mtimeSecs;
            this.mtimeNanos = entry.mtimeNanos;
            this.isFailed = isFailed;
            this.isNew = isNew;
            this.names = new FoldedNames.Names(isNew ? parent.names : null);
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

    /** Records a name; returns an earlier one that may be the same, or null. */
    FoldedNames.Earlier recordName(Directory directory, String name) {
        return foldedNames.record(directory.names, name, () -> path(directory));
    }

    /** Creates and registers a directory. */
    void create(Entry entry, Directory parent, String name) throws IOException {
        boolean isNew = !name.isEmpty() && create(path(parent).resolve(name));
        Directory directory = new Directory(parent, name, entry, false, isNew);
        byId.put(entry.id, directory);
        created.put(entry.id, directory);
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

    /** Removes a completed directory and calls an action for it if it was created. */
    void complete(long id, Consumer<Directory> action) throws WireException {
        Directory completed = id == 0 ? null : byId.remove(id);
        if (completed == null) {
            throw new WireException("directory " + id + " is completed, but not announced");
        }
        foldedNames.forget(completed.names);
        Directory directory = created.remove(id);
        if (directory != null) {
            action.accept(directory);
        }
    }

    /** Returns the number of directories that are not completed. */
    int size() {
        return byId.size();
    }

    /** Calls an action for each created directory, children before parents. */
    void forEachDeepestFirst(Consumer<Directory> action) {
        created.descendingMap().values().forEach(action);
    }
}
