use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use super::*;
use crate::Dir;
use crate::testing::{kind, name};

type Resolve = fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd, Errno>;

const BOTH: [(&str, Resolve); 2] = [("kernel", resolve_by_kernel), ("walk", resolve_by_walk)];

/// Creates a directory `root` with `root/sub/file`, beside a directory `outside` with
/// `outside/file`.
fn tree() -> (TempDir, Dir) {
    let base = tempfile::tempdir().unwrap();
    for (place, content) in [("root/sub", "inside"), ("outside", "outside")] {
        let place = base.path().join(place);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("file"), content).unwrap();
    }
    let root = Dir::open(&base.path().join("root")).unwrap();
    (base, root)
}

fn read(resolve: Resolve, dir: &Dir, rel: &[u8]) -> Result<String, Errno> {
    let mut text = String::new();
    File::from(resolve(dir.as_fd(), rel, OFlags::RDONLY)?).read_to_string(&mut text).unwrap();
    Ok(text)
}

fn refusal(resolve: Resolve, dir: &Dir, rel: &[u8]) -> Errno {
    resolve(dir.as_fd(), rel, OFlags::RDONLY).expect_err("led out")
}

#[test]
fn ordinary_path_opens_its_file() {
    let (_base, root) = tree();
    for (how, resolve) in BOTH {
        for rel in [b"sub/file".as_slice(), b"./sub//./file"] {
            assert_eq!(read(resolve, &root, rel).unwrap(), "inside", "{how} {rel:?}");
        }
        assert_eq!(refusal(resolve, &root, b"sub/none"), Errno::NOENT, "{how}");
        assert_eq!(refusal(resolve, &root, b"none/file"), Errno::NOENT, "{how}");
        assert_eq!(refusal(resolve, &root, b"sub/file/x"), Errno::NOTDIR, "{how}");
    }
}

#[test]
fn empty_path_and_dot_are_the_directory() {
    let (_base, root) = tree();
    let ino = root.stat_self().unwrap().ino;
    for (how, resolve) in BOTH {
        for rel in [b"".as_slice(), b".", b"./", b"././/."] {
            let opened = resolve(root.as_fd(), rel, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
            assert_eq!(crate::stat_file(&opened).unwrap().ino, ino, "{how} {rel:?}");
        }
    }
}

#[test]
fn trailing_slash_requires_a_directory() {
    let (_base, root) = tree();
    for (how, resolve) in BOTH {
        assert!(resolve(root.as_fd(), b"sub/", OFlags::RDONLY).is_ok(), "{how}");
        assert_eq!(refusal(resolve, &root, b"sub/file/"), Errno::NOTDIR, "{how}");
    }
}

#[test]
fn absolute_path_is_rejected() {
    let (base, root) = tree();
    let absolute = base.path().join("root/sub/file");
    for (how, resolve) in BOTH {
        let rel = absolute.as_os_str().as_encoded_bytes();
        assert_eq!(refusal(resolve, &root, rel), Errno::XDEV, "{how}");
        assert_eq!(refusal(resolve, &root, b"/"), Errno::XDEV, "{how}");
    }
}

#[test]
fn dot_dot_out_of_directory_is_rejected() {
    let (_base, root) = tree();
    for (how, resolve) in BOTH {
        for rel in [b"..".as_slice(), b"../outside/file", b"sub/../../outside/file", b"../root"] {
            assert_eq!(refusal(resolve, &root, rel), Errno::XDEV, "{how} {rel:?}");
        }
    }
}

#[test]
fn dot_dot_inside_is_allowed_by_kernel_only() {
    let (_base, root) = tree();
    let rel = b"sub/../sub/file";
    assert_eq!(read(resolve_by_kernel, &root, rel).unwrap(), "inside");
    assert_eq!(refusal(resolve_by_walk, &root, rel), Errno::XDEV);
}

#[test]
fn symlink_out_of_directory_is_rejected() {
    let (base, root) = tree();
    let at = |link: &str| base.path().join("root").join(link);
    symlink("../outside", at("up")).unwrap();
    symlink(base.path().join("outside"), at("absolute")).unwrap();
    symlink("../outside/file", at("file")).unwrap();
    symlink("up", at("chain")).unwrap();
    for (how, resolve) in BOTH {
        for rel in [b"up/file".as_slice(), b"absolute/file", b"file", b"chain/file", b"up", b"up/"]
        {
            let refused = refusal(resolve, &root, rel);
            let expected: &[Errno] = match how {
                "kernel" => &[Errno::XDEV],
                // A link in place of a directory, or at the end.
                _ => &[Errno::NOTDIR, Errno::LOOP],
            };
            assert!(expected.contains(&refused), "{how} {rel:?}: {refused}");
        }
    }
}

#[test]
fn symlink_inside_is_followed_by_kernel_only() {
    let (base, root) = tree();
    symlink("sub", base.path().join("root/alias")).unwrap();
    symlink("sub/file", base.path().join("root/shortcut")).unwrap();
    assert_eq!(read(resolve_by_kernel, &root, b"alias/file").unwrap(), "inside");
    assert_eq!(read(resolve_by_kernel, &root, b"shortcut").unwrap(), "inside");
    assert_eq!(refusal(resolve_by_walk, &root, b"alias/file"), Errno::NOTDIR);
    assert_eq!(refusal(resolve_by_walk, &root, b"shortcut"), Errno::LOOP);
}

#[test]
fn magic_link_is_rejected() {
    let proc = Dir::open(Path::new("/proc/self")).unwrap();
    for rel in [b"cwd".as_slice(), b"cwd/.", b"root/etc", b"exe"] {
        assert_eq!(refusal(resolve_by_kernel, &proc, rel), Errno::LOOP, "{rel:?}");
        let refused = refusal(resolve_by_walk, &proc, rel);
        assert!(matches!(refused, Errno::LOOP | Errno::NOTDIR), "{rel:?}: {refused}");
    }
}

#[test]
fn last_symlink_opens_without_following() {
    let (base, root) = tree();
    symlink("../outside", base.path().join("root/up")).unwrap();
    for (how, resolve) in BOTH {
        let link = resolve(root.as_fd(), b"up", OFlags::PATH | OFlags::NOFOLLOW).unwrap();
        assert_eq!(crate::stat_file(link).unwrap().kind, crate::FileKind::Symlink, "{how}");
    }
}

#[test]
fn nul_in_path_is_rejected() {
    let (_base, root) = tree();
    for (how, resolve) in BOTH {
        assert_eq!(refusal(resolve, &root, b"sub/file\0x"), Errno::INVAL, "{how}");
    }
}

/// Swaps two entries until `stop` is set.
fn keep_swapping(a: &Path, b: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
    }
}

#[test]
fn directory_swapped_for_symlink_never_leads_out() {
    let (base, root) = tree();
    let (sub, link) = (base.path().join("root/sub"), base.path().join("root/link"));
    symlink("../outside", &link).unwrap();
    for (how, resolve) in BOTH {
        let stop = AtomicBool::new(false);
        let (mut inside, mut refused) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| keep_swapping(&sub, &link, &stop));
            let deadline = Instant::now() + Duration::from_secs(20);
            while (inside < 200 || refused < 200) && Instant::now() < deadline {
                match read(resolve, &root, b"sub/file").as_deref().map_err(|err| *err) {
                    Ok("inside") => inside += 1,
                    Err(Errno::XDEV | Errno::NOTDIR | Errno::LOOP) => refused += 1,
                    // No assertion here: the swapping must stop before the test can end.
                    _ => break,
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(inside >= 200 && refused >= 200, "{how}: {inside} inside, {refused} refused");
    }
}

#[test]
fn concurrent_renames_do_not_fail_dot_dot_path() {
    let (base, root) = tree();
    let (a, b) = (base.path().join("a"), base.path().join("b"));
    fs::create_dir(&a).unwrap();
    fs::create_dir(&b).unwrap();
    let stop = AtomicBool::new(false);
    let mut outcomes = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| keep_swapping(&a, &b, &stop));
        outcomes.extend((0..2000).map(|_| read(resolve_by_kernel, &root, b"sub/../sub/file")));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(outcomes.iter().all(|outcome| outcome.as_deref() == Ok("inside")));
}

#[test]
fn entry_name_accepts_single_components_only() {
    for bad in [b"".as_slice(), b".", b"..", b"a/b", b"/", b"a/", b"a\0"] {
        assert_eq!(kind(entry_name(name(bad))), io::ErrorKind::InvalidInput, "{bad:?}");
    }
    for good in [b"a".as_slice(), b"...", b".a", b"a b\n", b"\xff\xfe", b"-"] {
        assert_eq!(entry_name(name(good)).unwrap(), name(good));
    }
}
