package org.bankfull.wire;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** File, directory, symlink or other entry as announced by the sender. */
public final class Entry {
    public static final int FILE = 0;
    public static final int DIRECTORY = 1;
    public static final int SYMLINK = 2;
    /** Largest number of a kind; those after {@link #SYMLINK} are skipped. */
    private static final int MAX_KIND = 255;

    public long id;
    /** ID of the parent directory, announced before; 0: the destination. */
    public long parent;
    public byte[] name = new byte[0];
    public int kind;
    /** Permission bits. */
    public int mode;
    public long mtimeSecs;
    public int mtimeNanos;
    public long size;
    /** Change version: differs once the source has been modified. */
    public long version;
    public long uid;
    public long gid;
    /** Block size in bytes; 0: the file is packed. */
    public int blockBytes;
    public boolean sparse;
    /** Target of a symlink, else empty. */
    public byte[] target = new byte[0];

    Object write() {
        Map<Long, Object> map = new HashMap<>();
        map.put(0L, id);
        map.put(1L, parent);
        map.put(2L, name);
        map.put(3L, (long) kind);
        map.put(4L, (long) mode);
        map.put(5L, mtimeSecs);
        map.put(6L, (long) mtimeNanos);
        map.put(7L, size);
        map.put(8L, Cbor.unsigned(version));
        map.put(9L, uid);
        map.put(10L, gid);
        map.put(11L, (long) blockBytes);
        map.put(12L, sparse);
        map.put(13L, target);
        return map;
    }

    static Entry read(Object item) throws WireException {
        Fields fields = new Fields(item, "entry");
        Entry entry = new Entry();
        entry.id = fields.unsigned(0);
        entry.parent = fields.unsigned(1);
        entry.name = fields.bytes(2, Limits.MAX_NAME_BYTES);
        entry.kind = fields.boundedInt(3, MAX_KIND);
        entry.mode = fields.boundedInt(4, 07777);
        entry.mtimeSecs = fields.signed(5);
        entry.mtimeNanos = fields.boundedInt(6, 999_999_999);
        entry.size = fields.unsigned(7);
        entry.version = fields.unsigned64(8);
        entry.uid = fields.unsigned(9);
        entry.gid = fields.unsigned(10);
        entry.blockBytes = fields.boundedInt(11, Limits.MAX_BLOCK_BYTES);
        entry.sparse = fields.bool(12);
        entry.target = fields.bytes(13, Limits.MAX_PATH_BYTES);
        entry.check();
        return entry;
    }

    /** True for a kind that this client does not create. */
    public boolean isOther() {
        return kind > SYMLINK;
    }

    private void check() throws WireException {
        checkName();
        if (isOther()) {
            return;
        }
        if (kind != FILE && size != 0) {
            throw new WireException("entry " + id + " has a size but is not a file");
        }
        if (kind == SYMLINK) {
            if (target.length == 0 || indexOf(target, 0) >= 0) {
                throw new WireException("symlink " + id + " has an invalid target");
            }
        } else if (target.length != 0) {
            throw new WireException("entry " + id + " has a target but is not a symlink");
        }
        if (kind != FILE && blockBytes != 0) {
            throw new WireException("entry " + id + " has blocks but is not a file");
        }
        if (kind == FILE && blockBytes == 0 && size > Limits.MAX_PACKED_FILE_BYTES) {
            throw new WireException("file " + id + " is too large for a pack");
        }
        if (blockBytes != 0) {
            Layout.of(size, blockBytes);
        }
    }

    /** Checks for a single path component; only the destination itself has an empty name. */
    private void checkName() throws WireException {
        if (name.length == 0) {
            if (kind != DIRECTORY || parent != 0) {
                throw new WireException("entry " + id + " has no name");
            }
            return;
        }
        String text = new String(name, StandardCharsets.ISO_8859_1);
        if (text.equals(".") || text.equals("..") || indexOf(name, '/') >= 0
            || indexOf(name, 0) >= 0) {
            String printable = new Failure(0, text).printable();
            throw new WireException("entry " + id + " has the invalid name \"" + printable + "\"");
        }
        if (isReservedName(text)) {
            throw new WireException("entry " + id + " has the name of a part file");
        }
    }

    /** True if a name is reserved for part files and journals, in any case. */
    public static boolean isReservedName(String name) {
        String folded = name.toLowerCase(Locale.ROOT);
        return folded.matches("\\.bankfull-[0-9a-f]{16}\\.(part|journal|journal\\.new)");
    }

    private static int indexOf(byte[] bytes, int wanted) {
        for (int i = 0; i < bytes.length; i++) {
            if (bytes[i] == wanted) {
                return i;
            }
        }
        return -1;
    }
}
