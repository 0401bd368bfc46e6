package org.bankfull.engine;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.DateTimeException;
import java.time.Instant;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.bankfull.BankfullException;
import org.bankfull.wire.Blake3;
import org.bankfull.wire.Buffers;
import org.bankfull.wire.Entry;
import org.bankfull.wire.Failure;
import org.bankfull.wire.Layout;
import org.bankfull.wire.Limits;

/** What is known of a file without reading it, and what is set of it. */
final class Meta {
    private static final int DEFAULT_FILE_MODE = 0644;
    private static final int DEFAULT_DIRECTORY_MODE = 0755;
    /** Of a mode, what Java knows. */
    private static final int PERMISSIONS = 0777;
    /** In the order of the bits, from 0400 down. */
    private static final PosixFilePermission[] BITS = {
        PosixFilePermission.OWNER_READ, PosixFilePermission.OWNER_WRITE,
        PosixFilePermission.OWNER_EXECUTE, PosixFilePermission.GROUP_READ,
        PosixFilePermission.GROUP_WRITE, PosixFilePermission.GROUP_EXECUTE,
        PosixFilePermission.OTHERS_READ, PosixFilePermission.OTHERS_WRITE,
        PosixFilePermission.OTHERS_EXECUTE,
    };

    private Meta() {}

    /** What was typed, as a path. */
    static Path path(String typed) throws BankfullException {
        try {
            return Paths.get(typed);
        } catch (InvalidPathException e) {
            throw new BankfullException(Failure.USAGE, "Java cannot write the name \""
                + new Failure(0, typed).shown() + "\" under this locale: run with LC_ALL=C.UTF-8",
                e);
        }
    }

    /** A name for the wire. */
    static byte[] bytes(Path name) {
        return name.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** Whether a name is one that Java can tell from all others: UTF-8, and nothing else. */
    static boolean isWhole(Path name) {
        return name.toString().indexOf('\uFFFD') < 0;
    }

    static BasicFileAttributes look(Path path) throws IOException {
        return Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    }

    /** Null where nothing is. */
    static BasicFileAttributes lookIfThere(Path path) throws IOException {
        try {
            return look(path);
        } catch (NoSuchFileException e) {
            return null;
        }
    }

    /** What stands at a path, for people: of what is no directory. */
    static String kind(BasicFileAttributes found) {
        return found.isOther() ? "a device, FIFO or socket"
            : found.isSymbolicLink() ? "a symlink" : "a file";
    }

    /**
     * An entry for what stands at a path, without its number; null for what is neither file,
     * directory nor symlink.
     */
    static Entry entry(Path path, byte[] name, long parent) throws IOException {
        BasicFileAttributes found = look(path);
        if (found.isOther()) {
            return null;
        }
        Entry entry = new Entry();
        entry.parent = parent;
        entry.name = name;
        entry.kind = found.isDirectory()
            ? Entry.DIRECTORY
            : found.isSymbolicLink() ? Entry.SYMLINK : Entry.FILE;
        entry.mode = mode(path, found.isDirectory());
        setTime(entry, found.lastModifiedTime());
        entry.version = version(path, found);
        if (entry.kind == Entry.FILE) {
            entry.size = found.size();
            entry.blockBytes = entry.size > Limits.PACKED_FILE_BYTES
                ? Layout.blockBytesFor(entry.size)
                : 0;
        } else if (entry.kind == Entry.SYMLINK) {
            Path target = Files.readSymbolicLink(path);
            if (!isWhole(target)) {
                throw new IOException("its target is no UTF-8, which Java cannot read");
            }
            entry.target = bytes(target);
        }
        return entry;
    }

    /** BLAKE3 of a file's content. */
    static byte[] hash(Path path) throws IOException {
        Blake3 hasher = Blake3.hasher();
        ByteBuffer buffer = ByteBuffer.allocate(256 << 10);
        try (FileChannel file = FileChannel.open(path)) {
            while (file.read(Buffers.clear(buffer)) > 0) {
                hasher.update(Buffers.flip(buffer));
            }
        }
        return hasher.finish();
    }

    /** Whether a path still holds what was announced. */
    static boolean isUnchanged(Path path, Entry entry) throws IOException {
        BasicFileAttributes now = look(path);
        return now.isRegularFile() && now.size() == entry.size
            && isTime(entry, now.lastModifiedTime())
            && version(path, now) == entry.version;
    }

    private static void setTime(Entry entry, FileTime time) {
        Instant at = time.toInstant();
        entry.mtimeSecs = at.getEpochSecond();
        entry.mtimeNanos = at.getNano();
    }

    private static boolean isTime(Entry entry, FileTime time) {
        Instant at = time.toInstant();
        return at.getEpochSecond() == entry.mtimeSecs && at.getNano() == entry.mtimeNanos;
    }

    /** Whether a file here has the time of an entry, as exactly as this Java could set it. */
    static boolean hasTime(Entry entry, FileTime time) {
        return hasTime(entry.mtimeSecs, entry.mtimeNanos, time);
    }

    private static boolean hasTime(long secs, int nanos, FileTime time) {
        if (time(secs, nanos).equals(time)) {
            return true;
        }
        Instant at = time.toInstant();
        int micros = nanos / 1000 * 1000;
        return at.getEpochSecond() == secs && (at.getNano() == nanos || at.getNano() == micros);
    }

    /** Differs when the file was written or replaced, as far as the file system tells. */
    private static long version(Path path, BasicFileAttributes found) {
        StringBuilder text = new StringBuilder(String.valueOf(found.fileKey()));
        try {
            // The change time cannot be set back; Android and Linux tell it, others may not.
            text.append(Files.getAttribute(path, "unix:ctime", LinkOption.NOFOLLOW_LINKS));
        } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
            text.append(found.lastModifiedTime());
        }
        byte[] hash = Blake3.hash(text.toString().getBytes(StandardCharsets.UTF_8));
        return ByteBuffer.wrap(hash).getLong();
    }

    private static int mode(Path path, boolean directory) {
        int mode = readMode(path);
        return mode >= 0 ? mode : directory ? DEFAULT_DIRECTORY_MODE : DEFAULT_FILE_MODE;
    }

    /** The nine bits; -1 where there are none. */
    private static int readMode(Path path) {
        try {
            Set<PosixFilePermission> set =
                Files.getPosixFilePermissions(path, LinkOption.NOFOLLOW_LINKS);
            int mode = 0;
            for (PosixFilePermission bit : BITS) {
                mode = mode << 1 | (set.contains(bit) ? 1 : 0);
            }
            return mode;
        } catch (IOException | UnsupportedOperationException e) {
            return -1;
        }
    }

    /** Sets the time, and permissions without the bits for set-id and sticky. */
    static void apply(Path path, Entry entry) throws IOException {
        apply(path, entry.mode, entry.mtimeSecs, entry.mtimeNanos);
    }

    /**
     * Sets what does not hold already: a file that its owner may not read cannot be given its time.
     * A symlink is no target.
     */
    static void apply(Path path, int mode, long mtimeSecs, int mtimeNanos) throws IOException {
        BasicFileAttributes found = look(path);
        if (found.isSymbolicLink()) {
            throw new IOException("a symlink stands in its place");
        }
        // The time first: for that the file is opened, which its own mode may forbid.
        if (!hasTime(mtimeSecs, mtimeNanos, found.lastModifiedTime())) {
            Files.setLastModifiedTime(path, time(mtimeSecs, mtimeNanos));
        }
        // A mode that cannot be told does not hold.
        if (readMode(path) != (mode & PERMISSIONS)) {
            setMode(path, mode);
        }
    }

    private static FileTime time(long secs, int nanos) {
        try {
            return FileTime.from(Instant.ofEpochSecond(secs, nanos));
        } catch (DateTimeException e) {
            return FileTime.from(secs, TimeUnit.SECONDS);
        }
    }

    /** Opens a new file that nobody else may read before it is whole. */
    static FileChannel create(Path path) throws IOException {
        Set<OpenOption> options = new HashSet<>();
        options.add(StandardOpenOption.CREATE_NEW);
        options.add(StandardOpenOption.READ);
        options.add(StandardOpenOption.WRITE);
        try {
            return FileChannel.open(path, options, PosixFilePermissions.asFileAttribute(
                PosixFilePermissions.fromString("rw-------")));
        } catch (UnsupportedOperationException e) {
            return FileChannel.open(path, options);
        }
    }

    static void setMode(Path path, int mode) throws IOException {
        PosixFileAttributeView view =
            Files.getFileAttributeView(path, PosixFileAttributeView.class);
        if (view == null) {
            return;
        }
        Set<PosixFilePermission> set = EnumSet.noneOf(PosixFilePermission.class);
        for (int i = 0; i < BITS.length; i++) {
            if ((mode >> (BITS.length - 1 - i) & 1) == 1) {
                set.add(BITS[i]);
            }
        }
        try {
            view.setPermissions(set);
        } catch (FileSystemException e) {
            // FAT, as on memory cards: it has none.
        }
    }

    /** What an error of the file system means to the other side, and what helps. */
    static Failure failure(String what, IOException e) {
        String said = said(e);
        int code = Failure.IO;
        String hint = "";
        if (e instanceof NoSuchFileException) {
            said = "it does not exist";
            code = Failure.NOT_FOUND;
        } else if (e instanceof AccessDeniedException) {
            said = "permission denied";
            code = Failure.PERMISSION;
            hint = " (check the permissions of the user that this runs as)";
        } else if (said.contains("Read-only file system")) {
            code = Failure.PERMISSION;
            hint = " (mount it writable, or choose another destination)";
        } else if (said.contains("No space left") || said.contains("Disk quota exceeded")) {
            code = Failure.NO_SPACE;
            hint = " (what arrived is kept: free some space and start the same transfer again)";
        }
        return new Failure(code, what + ": " + Failure.lowered(said) + hint);
    }

    /** The words of an error: some of Java's have only a name as their message. */
    private static String said(IOException e) {
        String said = e instanceof FileSystemException
            ? ((FileSystemException) e).getReason()
            : e.getMessage();
        return said == null ? e.getClass().getSimpleName() : said;
    }

    /** The identity of the boot, zeros where nobody tells it. */
    static byte[] boot() {
        byte[] boot = new byte[16];
        try {
            byte[] read = Files.readAllBytes(Paths.get("/proc/sys/kernel/random/boot_id"));
            String text = new String(read, StandardCharsets.US_ASCII).trim().replace("-", "");
            for (int i = 0; i < boot.length; i++) {
                boot[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
            }
        } catch (IOException | RuntimeException e) {
            return new byte[16];
        }
        return boot;
    }
}
