//! Comparison of two trees: types, content, modes, times, symlink targets, holes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of differences shown.
const MAX_SHOWN: usize = 20;

/// Bytes by which a copy with holes may exceed its source, as file systems differ.
const HOLE_SLACK: u64 = 1 << 20;

/// Size of a compared chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// Panics with the first differences unless two trees, or files, are equal.
#[track_caller]
pub(crate) fn assert_same(source: &Path, copy: &Path) {
    let found = differences(source, copy);
    assert!(found.is_empty(), "{} differs:\n{}", copy.display(), found.join("\n"));
}

/// Returns the differences as text, limited in number.
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
        found.push(format!("{} is extra", path.display()));
    }
    found.truncate(MAX_SHOWN);
    found
}

/// Returns the metadata of a tree that a faulty command could change.
pub(crate) fn snapshot(dir: &Path) -> Vec<(PathBuf, u32, u64, i64, i64, i64, i64)> {
    let facts = |(path, m): (PathBuf, Metadata)| {
        (path, m.mode(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
    };
    walk(dir).into_iter().map(facts).collect()
}

/// Returns all entries at and beneath a path, by relative path, without recursion.
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

/// Joins paths without the trailing slash of an empty one.
fn at(root: &Path, relative: &Path) -> PathBuf {
    if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(relative) }
}

fn entry(from: &Path, a: &Metadata, to: &Path, b: &Metadata, found: &mut Vec<String>) {
    let mut report = |text: String| found.push(format!("{}: {text}", to.display()));
    if a.file_type() != b.file_type() {
        return report(format!("is a {:?}, not a {:?}", b.file_type(), a.file_type()));
    }
    if a.mode() & 0o7777 != b.mode() & 0o7777 && !a.is_symlink() {
        report(format!("mode {:o}, not {:o}", b.mode() & 0o7777, a.mode() & 0o7777));
    }
    if (a.mtime(), a.mtime_nsec()) != (b.mtime(), b.mtime_nsec()) {
        let (is, not) = ((b.mtime(), b.mtime_nsec()), (a.mtime(), a.mtime_nsec()));
        report(format!("time {is:?}, not {not:?}"));
    }
    if a.is_symlink() && fs::read_link(from).unwrap() != fs::read_link(to).unwrap() {
        report("another target".to_owned());
    }
    if !a.is_file() {
        return;
    }
    if let Some(at) = first_difference(from, to) {
        report(format!("content differs from byte {at} on, {} bytes, not {}", b.size(), a.size()));
    }
    let (held, holds) = (a.blocks() * 512, b.blocks() * 512);
    if held < a.size() && holds > held + held / 10 + HOLE_SLACK {
        report(format!("occupies {holds} bytes, the source {held}"));
    }
}

fn first_difference(from: &Path, to: &Path) -> Option<u64> {
    let (mut a, mut b) = (File::open(from).unwrap(), File::open(to).unwrap());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        for (file, piece) in [(&mut a, &mut left), (&mut b, &mut right)] {
            piece.clear();
            file.take(CHUNK_BYTES as u64).read_to_end(piece).unwrap();
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
