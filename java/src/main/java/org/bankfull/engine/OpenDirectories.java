package org.bankfull.engine;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Announced directories that are not completed: the walk has not left them, or something beneath
 * them is outstanding. Guarded by the sender's lock.
 */
final class OpenDirectories {
    private final Map<Long, OpenDirectory> byId = new HashMap<>();
    private List<Long> completed = new ArrayList<>();
    /** Number of directories that the walk has left. */
    private int left;

    private static final class OpenDirectory {
        final long parent;
        /** Outstanding files and symlinks in it, and open subdirectories. */
        long outstanding;
        boolean isWalked = true;

        OpenDirectory(long parent) {
            this.parent = parent;
        }
    }

    /** Records a directory that the walk enters. */
    void enter(long id, long parent) {
        addEntry(parent);
        byId.put(id, new OpenDirectory(parent));
    }

    /** Records that the walk has left a directory. */
    void leave(long id) {
        byId.get(id).isWalked = false;
        left++;
        completeFrom(id);
    }

    /** Records an outstanding entry of a directory. */
    void addEntry(long parent) {
        OpenDirectory directory = byId.get(parent);
        if (directory != null) {
            directory.outstanding++;
        }
    }

    /** Records that an entry of a directory is completed. */
    void removeEntry(long parent) {
        OpenDirectory directory = byId.get(parent);
        if (directory != null) {
            directory.outstanding--;
            completeFrom(parent);
        }
    }

    private void completeFrom(long id) {
        OpenDirectory directory = byId.get(id);
        while (directory != null && !directory.isWalked && directory.outstanding == 0) {
            byId.remove(id);
            left--;
            completed.add(id);
            id = directory.parent;
            directory = byId.get(id);
            if (directory != null) {
                directory.outstanding--;
            }
        }
    }

    /** Returns the number of directories that the walk has left and that are not completed. */
    int left() {
        return left;
    }

    int completed() {
        return completed.size();
    }

    /** Returns the completed directories, each once and after its subdirectories. */
    List<Long> takeCompleted() {
        List<Long> taken = completed;
        completed = new ArrayList<>();
        return taken;
    }
}
