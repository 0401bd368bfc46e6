package org.bankfull.wire;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.bankfull.wire.Message.Source;

/** Messages that only a daemon sends, encoded for tests. */
public final class DaemonMessages {
    private DaemonMessages() {}

    /** Returns Welcome with a session ID and a key of zeros. */
    public static byte[] welcome() {
        Map<Long, Object> map = new HashMap<>();
        map.put(0L, 1L);
        map.put(1L, "fake");
        map.put(2L, new byte[16]);
        map.put(3L, new byte[32]);
        map.put(4L, 8L);
        map.put(5L, false);
        return encode(Message.WELCOME, map);
    }

    /** Returns the answer to the Open of a pull. */
    public static byte[] opened(Source... sources) {
        List<Object> all = new ArrayList<>();
        for (Source source : sources) {
            all.add(Map.of(0L, source.name, 1L, source.directory, 2L, source.contents));
        }
        return encode(Message.OPENED, Map.of(0L, all, 1L, List.of()));
    }

    private static byte[] encode(int number, Object body) {
        return Cbor.write(List.of((long) number, List.of(body)));
    }
}
