package org.bankfull.engine;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Message.Source;
import org.bankfull.wire.WireException;

/** What a daemon may announce directly in the destination: what was asked for, no more. */
final class Sources {
    private Sources() {}

    /** Whether a daemon will send what the paths of the request name. */
    static void check(List<byte[]> paths, List<Source> sources) throws WireException {
        if (paths.size() != sources.size()) {
            throw new WireException("it answers " + paths.size() + " paths with " + sources.size()
                + " sources");
        }
        for (int i = 0; i < sources.size(); i++) {
            Source source = sources.get(i);
            String path = new String(paths.get(i), StandardCharsets.ISO_8859_1);
            String name = new String(source.name, StandardCharsets.ISO_8859_1);
            if (!source.contents && !name.equals(path.substring(path.lastIndexOf('/') + 1))) {
                throw new WireException("it sends something else than what was asked for");
            }
        }
    }

    /** Whether an entry in the destination itself is one of the sources. */
    static boolean hold(List<Source> sources, Entry entry) {
        for (Source source : sources) {
            boolean kind = source.directory == (entry.kind == Entry.DIRECTORY);
            if (kind && Arrays.equals(source.name, entry.name)) {
                return true;
            }
        }
        return false;
    }
}
