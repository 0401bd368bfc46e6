use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use super::*;
use crate::testing::{errno, kind, make_fifo, name, scratch, with_timeout};
use crate::umask;

/// Name that is not UTF-8, with control characters.
const ODD: &[u8] = b"bad \xff\xc3\n\t name";

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn open_follows_symlink_in_user_path() {
    let (root, dir) = scratch();
    fs::create_dir(root.path().join("real")).unwrap();
    symlink("real", root.path().join("link")).unwrap();
    let through = Dir::open(&root.path().join("link")).unwrap();
    assert_eq!(through.stat_self().unwrap().ino, dir.stat(name(b"real")).unwrap().ino);
}

#[test]
fn open_of_file_as_directory_fails() {
    let (root, dir) = scratch();
    fs::write(root.path().join("f"), "").unwrap();
    assert_eq!(kind(Dir::open(&root.path().join("f"))), io::ErrorKind::NotADirectory);
    assert_eq!(kind(dir.open_beneath(b"f")), io::ErrorKind::NotADirectory);
    assert_eq!(kind(dir.open_child_dir(name(b"f"))), io::ErrorKind::NotADirectory);
}

#[test]
fn path_out_of_directory_is_rejected_everywhere() {
    let (root, _) = scratch();
    fs::create_dir(root.path().join("in")).unwrap();
    fs::write(root.path().join("secret"), "").unwrap();
    symlink("../secret", root.path().join("in/link")).unwrap();
    symlink("..", root.path().join("in/up")).unwrap();
    let dir = Dir::open(&root.path().join("in")).unwrap();
    for rel in [b"../secret".as_slice(), b"up/secret", b"/etc/passwd"] {
        assert_eq!(kind(dir.open_file_beneath(rel)), io::ErrorKind::CrossesDevices);
        assert_eq!(kind(dir.stat_beneath(rel)), io::ErrorKind::CrossesDevices);
    }
    assert_eq!(kind(dir.open_file_beneath(b"link")), io::ErrorKind::CrossesDevices);
    for rel in [b"..".as_slice(), b"up", b"/"] {
        assert_eq!(kind(dir.open_beneath(rel)), io::ErrorKind::CrossesDevices);
    }
}

#[test]
fn path_as_entry_name_is_rejected_everywhere() {
    let (root, dir) = scratch();
    fs::create_dir_all(root.path().join("a/b")).unwrap();
    fs::write(root.path().join("a/f"), "").unwrap();
    let (good, now) = (name(b"good"), Timestamp::default());
    for bad in [b"a/f".as_slice(), b"a/b", b"..", b".", b""] {
        let bad = name(bad);
        let refusals = [
            dir.open_child_dir(bad).map(drop),
            dir.open_file(bad).map(drop),
            dir.create_new(bad, 0o600).map(drop),
            dir.open_rw(bad).map(drop),
            dir.stat(bad).map(drop),
            dir.mkdir(bad, 0o700),
            dir.rename(bad, good),
            dir.rename(name(b"a"), bad),
            dir.unlink(bad),
            dir.rmdir(bad),
            dir.symlink(good, bad),
            dir.read_link(bad).map(drop),
            dir.set_mtime(bad, now),
        ];
        for (nth, refused) in refusals.into_iter().enumerate() {
            assert_eq!(kind(refused), io::ErrorKind::InvalidInput, "{bad:?} {nth}");
        }
    }
    assert!(root.path().join("a/f").exists() && root.path().join("a/b").exists());
}

#[test]
fn symlink_named_as_entry_is_not_followed() {
    let (root, dir) = scratch();
    fs::create_dir(root.path().join("real")).unwrap();
    fs::write(root.path().join("file"), "x").unwrap();
    symlink("real", root.path().join("to-dir")).unwrap();
    symlink("file", root.path().join("to-file")).unwrap();
    symlink("none", root.path().join("dangling")).unwrap();

    assert_eq!(kind(dir.open_child_dir(name(b"to-dir"))), io::ErrorKind::NotADirectory);
    assert_eq!(errno(dir.open_file(name(b"to-file"))), libc::ELOOP);
    assert_eq!(errno(dir.open_rw(name(b"to-file"))), libc::ELOOP);
    assert_eq!(kind(dir.create_new(name(b"dangling"), 0o600)), io::ErrorKind::AlreadyExists);
    assert_eq!(dir.stat(name(b"to-file")).unwrap().kind, FileKind::Symlink);
    assert_eq!(dir.stat_beneath(b"to-file").unwrap().kind, FileKind::Symlink);
    assert!(!root.path().join("none").exists());
}

#[test]
fn entry_swapped_for_symlink_is_rejected() {
    let (root, _) = scratch();
    fs::create_dir_all(root.path().join("in/sub")).unwrap();
    fs::create_dir(root.path().join("out")).unwrap();
    let dir = Dir::open(&root.path().join("in")).unwrap();
    let sub = dir.open_child_dir(name(b"sub")).unwrap();
    assert_eq!(dir.stat(name(b"sub")).unwrap().kind, FileKind::Dir);

    dir.rename(name(b"sub"), name(b"moved")).unwrap();
    dir.symlink(name(b"../out"), name(b"sub")).unwrap();

    assert_eq!(kind(dir.open_child_dir(name(b"sub"))), io::ErrorKind::NotADirectory);
    sub.create_new(name(b"f"), 0o600).unwrap();
    assert!(root.path().join("in/moved/f").exists());
    assert!(!root.path().join("out/f").exists());
}

#[test]
fn fifo_without_writer_is_rejected_at_once() {
    let (root, dir) = scratch();
    make_fifo(&dir, "fifo");
    let kinds = with_timeout(move || {
        [
            kind(dir.open_file(name(b"fifo"))),
            kind(dir.open_file_beneath(b"fifo")),
            kind(dir.open_rw(name(b"fifo"))),
        ]
    });
    assert_eq!(kinds, [io::ErrorKind::InvalidInput; 3]);
    drop(root);
}

#[test]
fn other_file_types_are_rejected() {
    let (root, dir) = scratch();
    let _listener = UnixListener::bind(root.path().join("socket")).unwrap();
    dir.mkdir(name(b"sub"), 0o700).unwrap();
    for not_file in [b"socket", b"sub".as_slice()] {
        assert_eq!(kind(dir.open_file(name(not_file))), io::ErrorKind::InvalidInput);
        assert_eq!(kind(dir.open_file_beneath(not_file)), io::ErrorKind::InvalidInput);
    }
    assert_eq!(kind(dir.open_rw(name(b"socket"))), io::ErrorKind::InvalidInput);
    assert_eq!(kind(dir.open_rw(name(b"sub"))), io::ErrorKind::IsADirectory);
    let dev = Dir::open(Path::new("/dev")).unwrap();
    assert_eq!(kind(dev.open_file(name(b"null"))), io::ErrorKind::InvalidInput);
}

#[test]
fn opened_file_is_blocking_and_close_on_exec() {
    let (_root, dir) = scratch();
    let made = dir.create_new(name(b"f"), 0o600).unwrap();
    let opened = [
        made,
        dir.open_file(name(b"f")).unwrap(),
        dir.open_file_beneath(b"f").unwrap(),
        dir.open_rw(name(b"f")).unwrap(),
    ];
    for file in &opened {
        let status = rustix::fs::fcntl_getfl(file).unwrap();
        assert!(!status.contains(OFlags::NONBLOCK), "{status:?}");
        let flags = rustix::io::fcntl_getfd(file).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    for dir in [dir.open_beneath(b"").unwrap(), dir.try_clone().unwrap(), dir] {
        let flags = rustix::io::fcntl_getfd(&dir).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn created_file_has_mode_less_umask() {
    let (root, dir) = scratch();
    let mut file = dir.create_new(name(ODD), 0o765).unwrap();
    file.write_all(b"hello").unwrap();

    assert_eq!(fs::read(root.path().join(name(ODD))).unwrap(), b"hello");
    assert_eq!(dir.stat(name(ODD)).unwrap().mode, 0o765 & !umask());
    assert_eq!(kind(dir.create_new(name(ODD), 0o600)), io::ErrorKind::AlreadyExists);
}

#[test]
fn open_rw_keeps_content() {
    let (root, dir) = scratch();
    fs::write(root.path().join("f"), "old").unwrap();
    dir.open_rw(name(b"f")).unwrap().write_all(b"n").unwrap();
    assert_eq!(text(dir.open_rw(name(b"f")).unwrap()), "nld");
    assert_eq!(kind(dir.open_rw(name(b"none"))), io::ErrorKind::NotFound);
    assert!(dir.open_file(name(b"f")).unwrap().write_all(b"x").is_err());
}

#[test]
fn stat_by_name_path_and_descriptor_agree() {
    let (root, dir) = scratch();
    fs::create_dir_all(root.path().join("a/b")).unwrap();
    fs::write(root.path().join("a/b/f"), "123").unwrap();
    let b = dir.open_beneath(b"a/b").unwrap();

    let by_path = dir.stat_beneath(b"a/b/f").unwrap();

    assert_eq!((by_path.kind, by_path.size), (FileKind::File, 3));
    assert_eq!(b.stat(name(b"f")).unwrap(), by_path);
    assert_eq!(stat_file(b.open_file(name(b"f")).unwrap()).unwrap(), by_path);
    assert_eq!(dir.stat_beneath(b"a/b").unwrap(), b.stat_self().unwrap());
    assert_eq!(dir.stat_beneath(b"").unwrap(), dir.stat_self().unwrap());
    assert_eq!(dir.stat_beneath(b".").unwrap(), dir.stat_self().unwrap());
    assert_eq!(text(dir.open_file_beneath(b"a/b/f").unwrap()), "123");
}

#[test]
fn rmdir_removes_empty_directory_only() {
    let (_root, dir) = scratch();
    dir.mkdir(name(ODD), 0o751).unwrap();
    assert_eq!(dir.stat(name(ODD)).unwrap().mode, 0o751 & !umask());
    assert_eq!(kind(dir.mkdir(name(ODD), 0o700)), io::ErrorKind::AlreadyExists);

    let child = dir.open_child_dir(name(ODD)).unwrap();
    child.create_new(name(b"f"), 0o600).unwrap();
    assert_eq!(kind(dir.rmdir(name(ODD))), io::ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(dir.unlink(name(ODD))), io::ErrorKind::IsADirectory);

    assert_eq!(kind(child.rmdir(name(b"f"))), io::ErrorKind::NotADirectory);
    child.unlink(name(b"f")).unwrap();
    dir.rmdir(name(ODD)).unwrap();
    assert_eq!(kind(dir.stat(name(ODD))), io::ErrorKind::NotFound);
}

#[test]
fn rename_replaces_existing_entry() {
    let (root, dir) = scratch();
    fs::write(root.path().join("new"), "new").unwrap();
    fs::write(root.path().join(name(ODD)), "old").unwrap();
    dir.rename(name(b"new"), name(ODD)).unwrap();
    assert_eq!(fs::read(root.path().join(name(ODD))).unwrap(), b"new");
    assert_eq!(kind(dir.rename(name(b"new"), name(ODD))), io::ErrorKind::NotFound);
}

#[test]
fn symlink_target_is_kept_exactly() {
    let (_root, dir) = scratch();
    let long = [ODD, b"/", &[b'x'; 3000]].concat();
    for (link, target) in [(name(b"a"), ODD), (name(b"b"), b"/../.."), (name(ODD), &long)] {
        dir.symlink(name(target), link).unwrap();
        assert_eq!(dir.read_link(link).unwrap(), name(target));
        assert_eq!(dir.stat(link).unwrap().size, target.len() as u64);
    }
    dir.create_new(name(b"f"), 0o600).unwrap();
    assert_eq!(kind(dir.read_link(name(b"f"))), io::ErrorKind::InvalidInput);
}

#[test]
fn set_mtime_of_symlink_changes_link_only() {
    let (root, dir) = scratch();
    fs::write(root.path().join("f"), "").unwrap();
    dir.symlink(name(b"f"), name(b"l")).unwrap();
    let before = fs::symlink_metadata(root.path().join("l")).unwrap();
    let target = dir.stat(name(b"f")).unwrap();
    let then = Timestamp { secs: -86_400, nanos: 987_654_321 };

    dir.set_mtime(name(b"l"), then).unwrap();

    assert_eq!(dir.stat(name(b"l")).unwrap().mtime, then);
    assert_eq!(dir.stat(name(b"f")).unwrap().mtime, target.mtime);
    let after = fs::symlink_metadata(root.path().join("l")).unwrap();
    assert_eq!((after.atime(), after.atime_nsec()), (before.atime(), before.atime_nsec()));
    let bad = Timestamp { secs: 0, nanos: (1 << 30) - 1 };
    assert_eq!(kind(dir.set_mtime(name(b"l"), bad)), io::ErrorKind::InvalidInput);
    assert_eq!(dir.stat(name(b"l")).unwrap().mtime, then);
}

#[test]
fn own_mode_and_mtime_are_set() {
    let (_root, dir) = scratch();
    let then = Timestamp { secs: 1_000_000_000, nanos: 5 };
    dir.set_own_mode(0o1777).unwrap();
    dir.set_own_mtime(then).unwrap();
    let stat = dir.stat_self().unwrap();
    assert_eq!((stat.kind, stat.mode, stat.mtime), (FileKind::Dir, 0o1777, then));
}

#[test]
fn entries_have_names_and_kinds() {
    let (root, dir) = scratch();
    let _listener = UnixListener::bind(root.path().join("socket")).unwrap();
    dir.create_new(name(ODD), 0o600).unwrap();
    dir.create_new(name(b"..."), 0o600).unwrap();
    dir.mkdir(name(b".hidden"), 0o700).unwrap();
    dir.symlink(name(b"nowhere"), name(b"link")).unwrap();

    let mut entries = dir.entries().unwrap();

    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let expected = [
        (b"...".as_slice(), FileKind::File),
        (b".hidden", FileKind::Dir),
        (ODD, FileKind::File),
        (b"link", FileKind::Symlink),
        (b"socket", FileKind::Other),
    ];
    let expected: Vec<Entry> = expected
        .map(|(bytes, kind)| Entry { name: name(bytes).to_owned(), kind: Some(kind) })
        .into();
    assert_eq!(entries, expected);
}

#[test]
fn entries_are_complete_through_any_handle() {
    let (_root, dir) = scratch();
    let count = 1500;
    for nth in 0..count {
        dir.create_new(format!("a rather long name to fill the buffer {nth}").as_ref(), 0o600)
            .unwrap();
    }
    let clone = dir.try_clone().unwrap();
    for handle in [&dir, &dir, &clone] {
        let mut names: Vec<_> = handle.entries().unwrap().into_iter().map(|e| e.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

#[test]
fn removed_directory_is_empty_and_not_writable() {
    let (_root, dir) = scratch();
    dir.mkdir(name(b"d"), 0o700).unwrap();
    let gone = dir.open_child_dir(name(b"d")).unwrap();
    dir.rmdir(name(b"d")).unwrap();
    assert_eq!(kind(gone.create_new(name(b"f"), 0o600)), io::ErrorKind::NotFound);
    assert_eq!(gone.entries().unwrap(), []);
}

#[test]
fn directory_and_filesystem_sync() {
    let (_root, dir) = scratch();
    dir.create_new(name(b"f"), 0o600).unwrap();
    dir.sync().unwrap();
    dir.sync_filesystem().unwrap();
}

#[test]
fn free_bytes_are_below_filesystem_size() {
    let (_root, dir) = scratch();
    let info = rustix::fs::fstatvfs(&dir).unwrap();
    let free = dir.free_bytes().unwrap();
    assert!(free <= info.f_blocks * info.f_frsize);
    // Concurrent writes to the same disk change it, but hardly by half.
    let expected = info.f_bavail * info.f_frsize;
    assert!(free >= expected / 2, "{free} of {expected}");
}

#[test]
fn mode_is_added_to_own_entries_and_through_no_link() {
    let (root, dir) = scratch();
    let path = root.path();
    fs::create_dir(path.join("d")).unwrap();
    fs::write(path.join("f"), b"").unwrap();
    symlink("f", path.join("link")).unwrap();
    let set = |name: &str, mode| {
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("d", 0o1005);
    set("f", 0);
    let mode = |name: &str| dir.stat(OsStr::new(name)).unwrap().mode;
    assert!(dir.add_mode(OsStr::new("d"), 0o700).unwrap());
    assert!(!dir.add_mode(OsStr::new("link"), 0o700).unwrap());
    assert_eq!((mode("d"), mode("f")), (0o1705, 0));
    assert!(dir.add_mode(OsStr::new("f"), 0o600).unwrap());
    assert_eq!(mode("f"), 0o600);
    let missing = dir.add_mode(OsStr::new("none"), 0o600).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}
