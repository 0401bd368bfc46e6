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
            if (!answers(paths.get(i), sources.get(i))) {
                throw new WireException("a source that was not requested");
            }
        }
    }

    /** True if a source is the file or directory of a path, or its contents. */
    private static boolean answers(byte[] path, Source source) {
        String text = new String(path, StandardCharsets.ISO_8859_1);
        String name = text.substring(text.lastIndexOf('/') + 1);
        if (name.isEmpty() || name.equals(".") || name.equals("..")) {
            return source.contents && source.directory && source.name.length == 0;
        }
        return !source.contents
            && name.equals(new String(source.name, StandardCharsets.ISO_8859_1));
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
