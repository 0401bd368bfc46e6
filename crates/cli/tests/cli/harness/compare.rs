//! Whether two trees are the same: kinds, content, modes, times, symlink targets, holes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most differences worth reading.
const SHOWN_MAX: usize = 20;

/// How many bytes more than its source a copy with holes may occupy: a file system's own ideas.
const HOLE_SLACK: u64 = 1 << 20;

/// A piece that is read and compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Panics with the first differences unless two trees, or files, are the same.
#[track_caller]
pub(crate) fn assert_same(source: &Path, copy: &Path) {
    let found = differences(source, copy);
    assert!(found.is_empty(), "{} differs:\n{}", copy.display(), found.join("\n"));
}

/// What is different, in words; cut short when there is much.
pub(crate) fn differences(source: &Path, copy: &Path) -> Vec<String> {
    let (left, right) = (walk(source), walk(copy));
    let mut found = Vec::new();
    for (path, a) in &left {
        match right.get(path) {
            None => found.push(format!("{} is missing", path.display())),
            Some(b) => entry(&at(source, path), a, &at(copy, path), b, &mut found),
        }
    }
    for path in right.keys().filter(|path| !left.contains_key(*path)) {
        found.push(format!("{} is there too", path.display()));
    }
    found.truncate(SHOWN_MAX);
    found
}

/// Everything about a tree that a careless command could change, content by its size and times.
pub(crate) fn snapshot(dir: &Path) -> Vec<(PathBuf, u32, u64, i64, i64, i64, i64)> {
    let facts = |(path, m): (PathBuf, Metadata)| {
        (path, m.mode(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
    };
    walk(dir).into_iter().map(facts).collect()
}

/// What stands at a path and beneath it, by its path from there. Deep trees need no recursion.
fn walk(root: &Path) -> BTreeMap<PathBuf, Metadata> {
    let mut found = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(relative) = todo.pop() {
        let path = at(root, &relative);
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            let names = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name());
            todo.extend(names.map(|name: OsString| relative.join(name)));
        }
        found.insert(relative, metadata);
    }
    found
}

/// Joins without the slash that an empty path would leave at the end.
fn at(root: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(relative) }
}

fn entry(from: &Path, a: &Metadata, to: &Path, b: &Metadata, found: &mut Vec<String>) {
    let mut tell = |what: String| found.push(format!("{}: {what}", to.display()));
    if a.file_type() != b.file_type() {
        return tell(format!("is a {:?}, not a {:?}", b.file_type(), a.file_type()));
    }
    if a.mode() & 0o7777 != b.mode() & 0o7777 && !a.is_symlink() {
        tell(format!("mode {:o}, not {:o}", b.mode() & 0o7777, a.mode() & 0o7777));
    }
    if (a.mtime(), a.mtime_nsec()) != (b.mtime(), b.mtime_nsec()) {
        let (is, not) = ((b.mtime(), b.mtime_nsec()), (a.mtime(), a.mtime_nsec()));
        tell(format!("time {is:?}, not {not:?}"));
    }
    if a.is_symlink() && fs::read_link(from).unwrap() != fs::read_link(to).unwrap() {
        tell("another target".to_owned());
    }
    if !a.is_file() {
        return;
    }
    if let Some(at) = first_difference(from, to) {
        tell(format!("content differs from byte {at} on, {} bytes, not {}", b.size(), a.size()));
    }
    let (held, holds) = (a.blocks() * 512, b.blocks() * 512);
    if held < a.size() && holds > held + held / 10 + HOLE_SLACK {
        tell(format!("occupies {holds} bytes, the source with its holes {held}"));
    }
}

fn first_difference(from: &Path, to: &Path) -> Option<u64> {
    let (mut a, mut b) = (File::open(from).unwrap(), File::open(to).unwrap());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        for (file, piece) in [(&mut a, &mut left), (&mut b, &mut right)] {
            piece.clear();
            file.take(PIECE_BYTES as u64).read_to_end(piece).unwrap();
        }
        if left != right {
            let same = left.iter().zip(&right).take_while(|(x, y)| x == y).count();
            return Some(at + same as u64);
        }
        if left.is_empty() {
            return None;
        }
        at += left.len() as u64;
    }
}
