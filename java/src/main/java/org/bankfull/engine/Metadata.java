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

/** Metadata of files: attributes, paths, modes and times. */
final class Metadata {
    private static final int DEFAULT_FILE_MODE = 0644;
    private static final int DEFAULT_DIRECTORY_MODE = 0755;
    /** Mode bits that Java supports. */
    private static final int PERMISSION_MASK = 0777;
    /** Permissions in the order of the mode bits, from 0400 down. */
    private static final PosixFilePermission[] PERMISSION_BITS = {
        PosixFilePermission.OWNER_READ, PosixFilePermission.OWNER_WRITE,
        PosixFilePermission.OWNER_EXECUTE, PosixFilePermission.GROUP_READ,
        PosixFilePermission.GROUP_WRITE, PosixFilePermission.GROUP_EXECUTE,
        PosixFilePermission.OTHERS_READ, PosixFilePermission.OTHERS_WRITE,
        PosixFilePermission.OTHERS_EXECUTE,
    };

    private Metadata() {}

    /** Parses a path operand. */
    static Path parsePath(String operand) throws BankfullException {
        try {
            return Paths.get(operand);
        } catch (InvalidPathException e) {
            throw new BankfullException(Failure.USAGE, "Java cannot write the name \""
                + new Failure(0, operand).printable()
                + "\" under this locale: run with LC_ALL=C.UTF-8", e);
        }
    }

    /** Encodes a name for the wire. */
    static byte[] nameBytes(Path name) {
        return name.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** True if Java could decode a name; invalid UTF-8 yields U+FFFD. */
    static boolean isValidUtf8(Path name) {
        return name.toString().indexOf('\uFFFD') < 0;
    }

    static BasicFileAttributes attributes(Path path) throws IOException {
        return Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    }

    /** Returns the attributes; null if the path does not exist. */
    static BasicFileAttributes attributesIfExists(Path path) throws IOException {
        try {
            return attributes(path);
        } catch (NoSuchFileException e) {
            return null;
        }
    }

    /** Describes the kind of an existing file other than a directory. */
    static String describeKind(BasicFileAttributes attributes) {
        return attributes.isOther() ? "a device, FIFO or socket"
            : attributes.isSymbolicLink() ? "a symlink" : "a file";
    }

    /**
     * Reads the metadata of a path into an entry without an ID.
     *
     * @return null if it is neither a file, a directory nor a symlink
     */
    static Entry readEntry(Path path, byte[] name, long parent) throws IOException {
        BasicFileAttributes attributes = attributes(path);
        if (attributes.isOther()) {
            return null;
        }
        Entry entry = new Entry();
        entry.parent = parent;
        entry.name = name;
        entry.kind = attributes.isDirectory()
            ? Entry.DIRECTORY
            : attributes.isSymbolicLink() ? Entry.SYMLINK : Entry.FILE;
        entry.mode = mode(path, attributes.isDirectory());
        setTime(entry, attributes.lastModifiedTime());
        entry.version = changeVersion(path, attributes);
        if (entry.kind == Entry.FILE) {
            entry.size = attributes.size();
            entry.blockBytes = entry.size > Limits.MAX_PACKED_FILE_BYTES
                ? Layout.blockBytesFor(entry.size)
                : 0;
        } else if (entry.kind == Entry.SYMLINK) {
            Path target = Files.readSymbolicLink(path);
            if (!isValidUtf8(target)) {
                throw new IOException(
                    "its target is not valid UTF-8, which Java cannot read: rename the target");
            }
            entry.target = nameBytes(target);
        }
        return entry;
    }

    /** Computes the BLAKE3 of a file, for a session that has not ended. */
    static byte[] hashFile(Path path, StopCheck session) throws IOException {
        Blake3 hasher = Blake3.hasher();
        ByteBuffer buffer = ByteBuffer.allocate(256 << 10);
        try (FileChannel file = FileChannel.open(path)) {
            while (file.read(Buffers.clear(buffer)) > 0) {
                session.throwIfOver();
                hasher.update(Buffers.flip(buffer));
            }
        }
        return hasher.finish();
    }

    /** True if a file still matches its announced entry. */
    static boolean isUnchanged(Path path, Entry entry) throws IOException {
        BasicFileAttributes now = attributes(path);
        return now.isRegularFile() && now.size() == entry.size
            && isSameTime(entry, now.lastModifiedTime())
            && changeVersion(path, now) == entry.version;
    }

    private static void setTime(Entry entry, FileTime time) {
        Instant at = time.toInstant();
        entry.mtimeSecs = at.getEpochSecond();
        entry.mtimeNanos = at.getNano();
    }

    private static boolean isSameTime(Entry entry, FileTime time) {
        Instant at = time.toInstant();
        return at.getEpochSecond() == entry.mtimeSecs && at.getNano() == entry.mtimeNanos;
    }

    /** True if a time equals that of an entry, to the precision of this Java. */
    static boolean matchesTime(Entry entry, FileTime time) {
        return matchesTime(entry.mtimeSecs, entry.mtimeNanos, time);
    }

    private static boolean matchesTime(long secs, int nanos, FileTime time) {
        if (time(secs, nanos).equals(time)) {
            return true;
        }
        Instant at = time.toInstant();
        int micros = nanos / 1000 * 1000;
        return at.getEpochSecond() == secs && (at.getNano() == nanos || at.getNano() == micros);
    }

    /** Computes a value that changes when the file is written or replaced. */
    private static long changeVersion(Path path, BasicFileAttributes attributes) {
        StringBuilder text = new StringBuilder(String.valueOf(attributes.fileKey()));
        try {
            // ctime cannot be set back; available on Linux and Android.
            text.append(Files.getAttribute(path, "unix:ctime", LinkOption.NOFOLLOW_LINKS));
        } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
            text.append(attributes.lastModifiedTime());
        }
        byte[] hash = Blake3.hash(text.toString().getBytes(StandardCharsets.UTF_8));
        return ByteBuffer.wrap(hash).getLong();
    }

    private static int mode(Path path, boolean directory) {
        int mode = readMode(path);
        return mode >= 0 ? mode : directory ? DEFAULT_DIRECTORY_MODE : DEFAULT_FILE_MODE;
    }

    /** Reads the nine permission bits; returns -1 if unsupported. */
    private static int readMode(Path path) {
        try {
            Set<PosixFilePermission> set =
                Files.getPosixFilePermissions(path, LinkOption.NOFOLLOW_LINKS);
            int mode = 0;
            for (PosixFilePermission bit : PERMISSION_BITS) {
                mode = mode << 1 | (set.contains(bit) ? 1 : 0);
            }
            return mode;
        } catch (IOException | UnsupportedOperationException e) {
            return -1;
        }
    }

    /** Sets the time and the permissions, without the set-ID and sticky bits. */
    static void apply(Path path, Entry entry) throws IOException {
        apply(path, entry.mode, entry.mtimeSecs, entry.mtimeNanos);
    }

    /**
     * Sets time and permissions that differ; symlinks are refused.
     *
     * <p>Setting the time opens the file, which fails without read permission.
     */
    static void apply(Path path, int mode, long mtimeSecs, int mtimeNanos) throws IOException {
        BasicFileAttributes attributes = attributes(path);
        if (attributes.isSymbolicLink()) {
            throw new IOException("it was replaced by a symlink");
        }
        // Time first: the new mode may forbid to open the file.
        if (!matchesTime(mtimeSecs, mtimeNanos, attributes.lastModifiedTime())) {
            Files.setLastModifiedTime(path, time(mtimeSecs, mtimeNanos));
        }
        // An unreadable mode counts as different.
        if (readMode(path) != (mode & PERMISSION_MASK)) {
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

    /** Creates a file that only its owner may access. */
    static FileChannel createFile(Path path) throws IOException {
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
        for (int i = 0; i < PERMISSION_BITS.length; i++) {
            if ((mode >> (PERMISSION_BITS.length - 1 - i) & 1) == 1) {
                set.add(PERMISSION_BITS[i]);
            }
        }
        try {
            view.setPermissions(set);
        } catch (FileSystemException e) {
            // FAT, as on memory cards, has no permissions.
        }
    }

    /** Converts a file system error to a failure with its remedy. */
    static Failure failure(String action, IOException e) {
        String reason = reason(e);
        int code = Failure.IO;
        String hint = "";
        if (e instanceof NoSuchFileException) {
            reason = "it does not exist";
            code = Failure.NOT_FOUND;
        } else if (e instanceof AccessDeniedException) {
            reason = "permission denied";
            code = Failure.PERMISSION;
            hint = " (check the permissions of the user that this runs as)";
        } else if (reason.contains("Read-only file system")) {
            code = Failure.PERMISSION;
            hint = " (mount it writable, or choose another destination)";
        } else if (reason.contains("No space left") || reason.contains("Disk quota exceeded")) {
            code = Failure.NO_SPACE;
            hint = " (verified data is kept: free some space and start the same transfer again)";
        }
        return new Failure(code, action + ": " + Failure.lowercaseInitial(reason) + hint);
    }

    /** Returns the reason of an error; file system exceptions have a path as message. */
    private static String reason(IOException e) {
        String reason = e instanceof FileSystemException
            ? ((FileSystemException) e).getReason()
            : e.getMessage();
        return reason == null ? e.getClass().getSimpleName() : reason;
    }

    /** Returns the boot ID; zeros if unavailable. */
    static byte[] bootId() {
        byte[] id = new byte[16];
        try {
            byte[] read = Files.readAllBytes(Paths.get("/proc/sys/kernel/random/boot_id"));
            String text = new String(read, StandardCharsets.US_ASCII).trim().replace("-", "");
            for (int i = 0; i < id.length; i++) {
                id[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
            }
        } catch (IOException | RuntimeException e) {
            return new byte[16];
        }
        return id;
    }
}
