//! The sources of a transfer: what was requested, and which entries may stand at the destination's
//! top.

use crate::globs::{Glob, has_pattern, is_pattern};
use crate::wire::WireError;
use crate::wire::control::{Entry, EntryKind, PathBytes, Source};
use std::collections::HashSet;

/// A path split into directory and last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitPath<'p> {
    /// Everything before the last component; the whole path if there is no name.
    pub dir: &'p [u8],
    /// Last component; `None` for an empty path, `.`, `..` and `/`.
    pub name: Option<&'p [u8]>,
    /// True if the path names a directory: with a trailing slash, or without a name.
    pub must_be_dir: bool,
}

/// Splits a path before its last component.
#[must_use]
pub fn split_path(path: &[u8]) -> SplitPath<'_> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let must_be_dir = end < path.len();
    let bare = &path[..end];
    let at = bare.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    match bare.split_at(at) {
        (_, b"" | b"." | b"..") => SplitPath { dir: path, name: None, must_be_dir: true },
        (dir, name) => SplitPath { dir, name: Some(name), must_be_dir },
    }
}

/// Checks that the peer answers each requested path with a source of that name.
///
/// A path with a pattern is answered with one source or several, whose names match.
///
/// # Errors
/// [`WireError::Unrequested`] names the source, or the number of sources.
pub fn check_sources(paths: &[PathBytes], sources: &[Source]) -> Result<(), WireError> {
    if sources.iter().any(Source::is_open_ended) {
        return Err(WireError::Unrequested("a source of unknown size".to_owned()));
    }
    if paths.iter().any(|path| has_pattern(&path.0)) {
        return check_matches(paths, sources);
    }
    if paths.len() != sources.len() {
        let text = format!("{} sources in answer to {} paths", sources.len(), paths.len());
        return Err(WireError::Unrequested(text));
    }
    for (path, source) in paths.iter().zip(sources) {
        if !is_source_of(&path.0, source) {
            let (source, path) = (printable(&source.name), printable(&path.0));
            let text = format!("the source {source:?} in answer to {path:?}");
            return Err(WireError::Unrequested(text));
        }
    }
    Ok(())
}

/// True if a path requests a source of this name.
fn is_source_of(path: &[u8], source: &Source) -> bool {
    match split_path(path) {
        SplitPath { name: Some(name), must_be_dir: false, .. } => {
            let is_match = || is_pattern(name) && Glob::new(name).matches(&source.name);
            !source.contents && (source.name == name || is_match())
        }
        _ => source.contents && source.is_dir && source.name.is_empty(),
    }
}

/// Checks the answer to paths of which some are patterns.
fn check_matches(paths: &[PathBytes], sources: &[Source]) -> Result<(), WireError> {
    let is_requested = |source: &&Source| paths.iter().any(|path| is_source_of(&path.0, source));
    if let Some(other) = sources.iter().find(|source| !is_requested(source)) {
        let text = format!("the source {:?}, which matches no path", printable(&other.name));
        return Err(WireError::Unrequested(text));
    }
    let is_answered = |path: &&PathBytes| sources.iter().any(|s| is_source_of(&path.0, s));
    match paths.iter().find(|path| !is_answered(path)) {
        Some(path) => {
            let text = format!("no source in answer to {:?}", printable(&path.0));
            Err(WireError::Unrequested(text))
        }
        None => Ok(()),
    }
}

/// Checks that the answer to a list of names is one source's contents.
///
/// # Errors
/// [`WireError::Unrequested`] states the number of sources.
pub fn check_contents(sources: &[Source]) -> Result<(), WireError> {
    match sources {
        [Source { name, is_dir: true, contents: true, open_ended: None }] if name.is_empty() => {
            Ok(())
        }
        _ => {
            let text = format!("{} sources in answer to names beneath one", sources.len());
            Err(WireError::Unrequested(text))
        }
    }
}

/// Names of the sources, the only ones at the top of a destination.
#[derive(Debug, Default)]
pub struct RootNames {
    dirs: HashSet<Vec<u8>>,
    others: HashSet<Vec<u8>>,
    /// True if the source itself is not at the top, but its contents.
    pub is_contents: bool,
    may_be_open: bool,
}

impl RootNames {
    /// Returns the names of the sources.
    #[must_use]
    pub fn of(sources: &[Source]) -> Self {
        let named = |is_dir| {
            let of_kind = sources.iter().filter(move |source| source.is_dir == is_dir);
            of_kind.map(|source| source.name.clone()).collect()
        };
        Self {
            dirs: named(true),
            others: named(false),
            is_contents: sources.iter().any(|source| source.contents),
            may_be_open: sources.iter().any(Source::is_open_ended),
        }
    }

    /// Checks that an entry at the top of the destination is a source's.
    ///
    /// A source that changes while it is read is announced again. An open-ended entry requires an
    /// open-ended source.
    ///
    /// # Errors
    /// [`WireError::Unrequested`] names the entry.
    pub fn check(&self, entry: &Entry) -> Result<(), WireError> {
        let names = if entry.kind == EntryKind::Dir { &self.dirs } else { &self.others };
        let is_known = entry.parent != 0 || names.contains(&entry.name);
        match !is_known || (entry.is_open_ended() && !self.may_be_open) {
            true => Err(WireError::Unrequested(format!("the entry {:?}", printable(&entry.name)))),
            false => Ok(()),
        }
    }
}

fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::tests::entry;
    use proptest::prelude::*;

    fn split(path: &str) -> (&str, Option<&str>, bool) {
        let parts = split_path(path.as_bytes());
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        (text(parts.dir), parts.name.map(text), parts.must_be_dir)
    }

    #[test]
    fn path_is_split_before_its_last_component() {
        assert_eq!(split("a/b"), ("a/", Some("b"), false));
        assert_eq!(split("a/b//"), ("a/", Some("b"), true));
        assert_eq!(split("/b"), ("/", Some("b"), false));
        for bare in ["", "/", ".", "a/..", "a/./"] {
            assert_eq!(split(bare), (bare, None, true));
        }
    }

    fn named(name: &str, is_dir: bool) -> Source {
        Source { name: name.into(), is_dir, contents: false, open_ended: None }
    }

    fn contents() -> Source {
        Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }
    }

    fn check(paths: &[&str], sources: &[Source]) -> Result<(), WireError> {
        let paths: Vec<_> = paths.iter().map(|path| PathBytes(path.as_bytes().to_vec())).collect();
        check_sources(&paths, sources)
    }

    #[test]
    fn sources_must_be_those_requested() {
        assert_eq!(check(&["x", "d/y"], &[named("x", false), named("y", true)]), Ok(()));
        for path in ["d/", "", "..", "/"] {
            assert_eq!(check(&[path], &[contents()]), Ok(()), "{path}");
        }
        for (paths, sources) in [
            (&["report.pdf"][..], &[named(".bashrc", false)][..]),
            (&["report.pdf"], &[named("report.pdf", false), named(".bashrc", false)]),
            (&["report.pdf", "b"], &[named("report.pdf", false)]),
            (&["report.pdf"], &[]),
            (&["report.pdf"], &[contents()]),
            (&["report.pdf"], &[Source { contents: true, ..named("report.pdf", true) }]),
            (&["d/"], &[named("d", true)]),
            (&["d/"], &[Source { is_dir: false, ..contents() }]),
            (&["d/"], &[Source { contents: true, ..named("d", true) }]),
            (&["a", "b"], &[named("b", false), named("a", false)]),
        ] {
            let found = check(paths, sources);
            assert!(matches!(found, Err(WireError::Unrequested(_))), "{paths:?} {sources:?}");
        }
    }

    #[test]
    fn names_beneath_sources_are_contents_of_one() {
        assert_eq!(check_contents(&[contents()]), Ok(()));
        for sources in [&[][..], &[named("a", true)], &[contents(), contents()]] {
            assert!(check_contents(sources).is_err(), "{sources:?}");
        }
    }

    fn source() -> impl Strategy<Value = Source> {
        prop_oneof![
            ("[abc]", any::<bool>()).prop_map(|(name, is_dir)| named(&name, is_dir)),
            Just(contents()),
            ("[abc]?", any::<bool>(), any::<bool>()).prop_map(|(name, is_dir, contents)| Source {
                name: name.into(),
                is_dir,
                contents,
                open_ended: None,
            }),
        ]
    }

    fn root_entry() -> impl Strategy<Value = Entry> {
        let kind =
            prop_oneof![Just(EntryKind::File), Just(EntryKind::Dir), Just(EntryKind::Symlink)];
        ("[abc]?", kind).prop_map(|(name, kind)| Entry {
            name: name.into(),
            kind,
            parent: 0,
            ..entry()
        })
    }

    /// Returns the right answer to a path, of either kind.
    fn answer(path: &str, is_dir: bool) -> Source {
        match split_path(path.as_bytes()) {
            SplitPath { name: Some(name), must_be_dir: false, .. } => {
                Source { name: name.to_vec(), is_dir, contents: false, open_ended: None }
            }
            _ => contents(),
        }
    }

    /// A path with an answer to it, which is mostly right.
    fn answered() -> impl Strategy<Value = (String, Source)> {
        let path = "[abc]/?|[abc]/[abc]|";
        let right =
            (path, any::<bool>()).prop_map(|(path, is_dir)| (path.clone(), answer(&path, is_dir)));
        prop_oneof![4 => right, 1 => (path, source())]
    }

    proptest! {
        /// Whatever a peer answers and announces, only requested names appear.
        #[test]
        fn admitted_root_entries_are_requested(
            answered in proptest::collection::vec(answered(), 1..4),
            entries in proptest::collection::vec(root_entry(), 0..8),
        ) {
            let (paths, sources): (Vec<_>, Vec<_>) = answered
                .into_iter()
                .map(|(path, source)| (PathBytes(path.into_bytes()), source))
                .unzip();
            let is_accepted = check_sources(&paths, &sources).is_ok();
            let admitted =
                |entry: &&Entry| is_accepted && RootNames::of(&sources).check(entry).is_ok();
            for entry in entries.iter().filter(admitted) {
                let is_requested = |path: &PathBytes| match split_path(&path.0) {
                    SplitPath { name: Some(name), must_be_dir: false, .. } => name == entry.name,
                    _ => entry.name.is_empty() && entry.kind == EntryKind::Dir,
                };
                prop_assert!(paths.iter().any(is_requested), "{entry:?} of {paths:?}");
            }
        }
    }
}
