package org.bankfull.engine;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.WireException;

/** Checks that a daemon sends the requested sources only. */
final class RequestedSources {
    private RequestedSources() {}

    /** Checks the daemon's sources against the requested paths. */
    static void check(List<byte[]> paths, List<Source> sources) throws WireException {
        if (paths.size() != sources.size()) {
            throw new WireException(
                sources.size() + " sources in answer to " + paths.size() + " paths");
        }
        for (int i = 0; i < sources.size(); i++) {
            Source source = sources.get(i);
            String path = new String(paths.get(i), StandardCharsets.ISO_8859_1);
            String name = new String(source.name, StandardCharsets.ISO_8859_1);
            if (!source.contents && !name.equals(path.substring(path.lastIndexOf('/') + 1))) {
                throw new WireException("a source that was not requested");
            }
        }
    }

    /** True if an entry at the top of the destination is one of the sources. */
    static boolean contains(List<Source> sources, Entry entry) {
        for (Source source : sources) {
            boolean isSameKind = source.directory == (entry.kind == Entry.DIRECTORY);
            if (isSameKind && Arrays.equals(source.name, entry.name)) {
                return true;
            }
        }
        return false;
    }
}
