//! Trees to copy: one with every oddity that a file system allows, and one of large and small files
//! for interruptions. Both are always the same, byte for byte.

use super::{Rng, Scratch};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A tree in its own directory.
#[derive(Debug)]
pub(crate) struct Tree {
    _scratch: Scratch,
    /// Directory to copy.
    pub(crate) path: PathBuf,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes of files with holes; how many are sent depends on block boundaries.
    pub(crate) sparse_bytes: u64,
}

impl Tree {
    /// Returns the tree with every oddity, created once and shared.
    pub(crate) fn rich() -> Arc<Self> {
        static SHARED: Mutex<Weak<Tree>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = shared.upgrade() {
            return tree;
        }
        let scratch = Scratch::new();
        let path = scratch.dir("rich");
        build_rich(&path);
        let tree = Arc::new(Self::counted(scratch, path));
        *shared = Arc::downgrade(&tree);
        tree
    }

    /// Creates a tree with files of `big` bytes and `small` files of a few KiB.
    pub(crate) fn bulk(big: &[u64], small: u64) -> Self {
        let scratch = Scratch::bulk();
        let path = scratch.dir("bulk");
        let mut rng = Rng::new(7);
        for (n, &bytes) in big.iter().enumerate() {
            fill(&path.join(format!("big-{n}")), bytes, &mut rng);
        }
        for n in 0..small {
            let dir = path.join(format!("small-{}", n % 10));
            fs::create_dir_all(&dir).unwrap();
            fill(&dir.join(format!("{n}")), rng.below(40 * KIB), &mut rng);
        }
        Self::counted(scratch, path)
    }

    fn counted(scratch: Scratch, path: PathBuf) -> Self {
        let mut tree = Self { _scratch: scratch, path, files: 0, bytes: 0, sparse_bytes: 0 };
        let mut todo = vec![tree.path.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let metadata = entry.metadata().unwrap();
                if metadata.is_dir() {
                    todo.push(entry.path());
                } else if metadata.is_file() {
                    tree.files += 1;
                    tree.bytes += metadata.len();
                    if entry.path().to_string_lossy().contains("/holes/") {
                        tree.sparse_bytes += metadata.len();
                    }
                }
            }
        }
        tree
    }
}

/// Writes a file with random content.
pub(crate) fn fill(path: &Path, bytes: u64, rng: &mut Rng) {
    let mut file = File::create(path).unwrap();
    let mut left = bytes;
    while left > 0 {
        let piece = rng.bytes(left.min(MIB) as usize);
        file.write_all(&piece).unwrap();
        left -= piece.len() as u64;
    }
}

/// Writes a file and creates its directories.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Sets the modification time of an entry; of a symlink itself.
pub(crate) fn set_mtime(path: &Path, secs: i64, nanos: i64) {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn build_rich(root: &Path) {
    let mut rng = Rng::new(1);
    many_small(&root.join("small"), &mut rng);
    some_large(&root.join("large"), &mut rng);
    with_holes(&root.join("holes"), &mut rng);
    odd_names(&root.join("names"), &mut rng);
    links(&root.join("links"));
    deep(root);
    for empty in ["empty dir", "empty dir/in/another"] {
        fs::create_dir_all(root.join(empty)).unwrap();
    }
    // Last: these directories become read-only, and their times change with writes.
    modes_and_times(&root.join("modes"));
    set_mtime(&root.join("empty dir"), 1_234_567_890, 5);
    set_mtime(root, 1_500_000_000, 123_456_789);
}

fn many_small(dir: &Path, rng: &mut Rng) {
    for n in 0..600 {
        let dir = dir.join(format!("{}/{}", n % 5, n % 30));
        fs::create_dir_all(&dir).unwrap();
        // Mostly small: the cube of a number below one.
        let bytes = (rng.fraction().powi(3) * (300 * KIB) as f64) as u64;
        fill(&dir.join(format!("file {n}")), bytes, rng);
    }
}

fn some_large(dir: &Path, rng: &mut Rng) {
    fs::create_dir_all(dir).unwrap();
    // At and next to each limit of the protocol.
    let borders =
        [256 * KIB, 256 * KIB + 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 777, 7 * MIB, 32 * MIB];
    for bytes in borders {
        fill(&dir.join(bytes.to_string()), bytes, rng);
    }
}

fn with_holes(dir: &Path, rng: &mut Rng) {
    fs::create_dir_all(dir).unwrap();
    let make = |name: &str, bytes: u64| {
        let file = File::create(dir.join(name)).unwrap();
        file.set_len(bytes).unwrap();
        file
    };
    let islands = make("islands, hole at the end", 144 * MIB);
    let places = [
        (MIB + 5000, 10_000),
        (17 * MIB, 2 * MIB),
        (100 * MIB + 1, 4096),
        (128 * MIB - 6000, 12_000),
    ];
    for (at, bytes) in places {
        islands.write_all_at(&rng.bytes(bytes as usize), at).unwrap();
    }
    make("nothing but a hole", 16 * MIB + 3);
    make("hole at the start", 5 * MIB + 9).write_all_at(b"the end", 5 * MIB + 2).unwrap();
    make("too small for blocks", 200 * KIB).write_all_at(b"in the middle", 100 * KIB).unwrap();
}

fn odd_names(dir: &Path, rng: &mut Rng) {
    fs::create_dir_all(dir).unwrap();
    let long = [b'n'; 255];
    let names: [&[u8]; 13] = [
        b"two\nlines",
        b"not \xff\xfe utf-8",
        b"-rf",
        b"--",
        b" leading and trailing ",
        &long,
        b".bankfull-like.part",
        b".bankfull-like.journal",
        b".bankfull-",
        b"quote'\"$(x)`y`",
        b"back\\slash",
        b"\x1b[31mred\x07",
        "\u{65e5}\u{672c}".as_bytes(),
    ];
    for name in names {
        fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    // The names of block files are extended, and must still fit.
    let mut long = long;
    long[254] = b'b';
    fill(&dir.join(OsStr::from_bytes(&long)), 700 * KIB, rng);
    fill(&dir.join(OsStr::from_bytes(b"big \xff\n")), 2 * MIB, rng);
    let odd = dir.join(OsStr::from_bytes(b"-dir \xc3\n"));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("inside"), b"x").unwrap();
    fs::write(dir.join("empty"), b"").unwrap();
}

fn links(dir: &Path) {
    fs::create_dir_all(dir.join("real dir")).unwrap();
    fs::write(dir.join("real dir/real file"), b"real").unwrap();
    let long = "t/".repeat(1000);
    let made: [(&[u8], &str); 7] = [
        (b"relative", "real dir/real file"),
        (b"absolute", "/etc/hostname"),
        (b"dangling", "nowhere"),
        (b"to a directory", "real dir"),
        (b"upwards", "../../../etc"),
        (b"loop", "loop"),
        (b"long", &long),
    ];
    for (n, (name, target)) in made.into_iter().enumerate() {
        let link = dir.join(OsStr::from_bytes(name));
        symlink(target, &link).unwrap();
        set_mtime(&link, 1_000_000_000 + n as i64, 999_999_999);
    }
    symlink(OsStr::from_bytes(b"target \xff\n"), dir.join("odd target")).unwrap();
}

fn deep(root: &Path) {
    let mut path = root.join("deep");
    for level in 0..60 {
        path.push(format!("level {level}"));
    }
    write_file(&path.join("bottom"), b"sixty levels down");
}

fn modes_and_times(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    for mode in [0o400, 0o755, 0o444, 0o600, 0o666, 0o1644] {
        let path = dir.join(format!("file {mode:o}"));
        fs::write(&path, b"mode").unwrap();
        set_mode(&path, mode);
    }
    for mode in [0o1777, 0o750, 0o700, 0o555, 0o500] {
        let path = dir.join(format!("dir {mode:o}"));
        write_file(&path.join("inside"), b"mode");
        write_file(&path.join("below/inside"), b"mode");
        set_mode(&path, mode);
        set_mtime(&path, 1_111_111_111, i64::from(mode));
    }
    let times = [(0, 0), (-1, 999_999_999), (-1_000_000_000, 1), (1, 1), (4_000_000_000, 5)];
    for (secs, nanos) in times {
        let path = dir.join(format!("time {secs} {nanos}"));
        fs::write(&path, b"time").unwrap();
        set_mtime(&path, secs, nanos);
    }
}
