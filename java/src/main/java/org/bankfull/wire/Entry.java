package org.bankfull.wire;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Something in a tree, as its sender announces it. */
public final class Entry {
    public static final int FILE = 0;
    public static final int DIRECTORY = 1;
    public static final int SYMLINK = 2;

    public long id;
    /** The directory that it is in, announced before; 0: the destination. */
    public long parent;
    public byte[] name = new byte[0];
    public int kind;
    /** Permission bits. */
    public int mode;
    public long mtimeSecs;
    public int mtimeNanos;
    public long size;
    /** Differs when the source was written since. */
    public long version;
    public long uid;
    public long gid;
    /** 0: travels in a pack. */
    public int blockBytes;
    public boolean sparse;
    /** Of a symlink. */
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
        entry.id = fields.count(0);
        entry.parent = fields.count(1);
        entry.name = fields.bytes(2, Limits.NAME_BYTES);
        entry.kind = fields.small(3, SYMLINK);
        entry.mode = fields.small(4, 07777);
        entry.mtimeSecs = fields.signed(5);
        entry.mtimeNanos = fields.small(6, 999_999_999);
        entry.size = fields.count(7);
        entry.version = fields.bits(8);
        entry.uid = fields.count(9);
        entry.gid = fields.count(10);
        entry.blockBytes = fields.small(11, Limits.BLOCK_BYTES_MOST);
        entry.sparse = fields.bool(12);
        entry.target = fields.bytes(13, Limits.PATH_BYTES);
        entry.check();
        return entry;
    }

    private void check() throws WireException {
        checkName();
        if (kind != FILE && size != 0) {
            throw new WireException("entry " + id + " has a size and is no file");
        }
        if (kind == SYMLINK) {
            if (target.length == 0 || indexOf(target, 0) >= 0) {
                throw new WireException("symlink " + id + " leads nowhere");
            }
        } else if (target.length != 0) {
            throw new WireException("entry " + id + " has a target and is no symlink");
        }
        if (kind != FILE && blockBytes != 0) {
            throw new WireException("entry " + id + " has blocks and is no file");
        }
        if (kind == FILE && blockBytes == 0 && size > Limits.PACKED_FILE_BYTES) {
            throw new WireException("file " + id + " is too large for a pack");
        }
        if (blockBytes != 0) {
            Layout.of(size, blockBytes);
        }
    }

    /** A single component, and not one of our own: only the destination itself has no name. */
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
            String shown = new Failure(0, text).shown();
            throw new WireException("entry " + id + " is named \"" + shown + "\"");
        }
        if (isOurs(text)) {
            throw new WireException("entry " + id + " has the name of a part");
        }
    }

    /** Whether a receiver gives such names to parts and journals. */
    public static boolean isOurs(String name) {
        return name.matches("\\.bankfull-[0-9a-f]{16}\\.(part|journal|journal\\.new)");
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
