//! Lists of names beneath a source: their form, their order, and what they admit.

use crate::limits::{MAX_LIST_PART_BYTES, MAX_LIST_PART_NAMES};
use crate::wire::control::{PathBytes, WHOLE_SOURCE};
use std::cmp::Ordering;

/// Names beneath a source, each once, in the order of a walk.
///
/// A trailing slash includes the contents of the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList {
    names: Vec<Box<[u8]>>,
    is_recursive: bool,
}

/// Returns a typed name in the form of a list; `None` if it leaves the source.
///
/// As in rsync, leading slashes and `.` do not count, and `..` removes the name before it.
#[must_use]
pub fn clean_name(typed: &[u8]) -> Option<Vec<u8>> {
    let mut names: Vec<&[u8]> = Vec::new();
    let mut last: &[u8] = b"";
    for part in typed.split(|&byte| byte == b'/') {
        last = part;
        match part {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    if names.is_empty() {
        return Some(WHOLE_SOURCE.to_vec());
    }
    let mut name = names.join(&b'/');
    if matches!(last, b"" | b"." | b"..") {
        name.push(b'/');
    }
    Some(name)
}

/// Returns the components of a name; none of the source itself.
pub fn components(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_part = |part: &&[u8]| !part.is_empty() && *part != b".";
    name.split(|&byte| byte == b'/').filter(is_part)
}

/// Returns a name without the slash at its end.
fn bare(name: &[u8]) -> &[u8] {
    name.strip_suffix(b"/").unwrap_or(name)
}

/// True if a name includes the contents of its directory.
#[must_use]
pub fn has_contents(name: &[u8]) -> bool {
    name.ends_with(b"/")
}

/// True if an earlier name of a list, a directory, includes another one.
#[must_use]
pub fn covers(covering: &[u8], name: &[u8], is_recursive: bool) -> bool {
    let mut rest = components(name);
    let is_beneath = components(covering).all(|part| rest.next() == Some(part));
    let depth = rest.count();
    let is_meant = is_recursive || has_contents(covering) && depth == 1 && !has_contents(name);
    is_beneath && depth > 0 && is_meant
}

/// Compares paths in the order of a walk: a directory is before what is in it.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    components(a).cmp(components(b))
}

/// True if a name is that of a directory, or beneath it.
fn is_within(name: &[u8], dir: &[u8]) -> bool {
    let mut parts = components(name);
    components(dir).all(|part| parts.next() == Some(part))
}

/// Returns a name that two lists have, with all that is beneath it.
#[must_use]
pub fn shared_name<'l>(lists: impl Iterator<Item = &'l NameList>) -> Option<&'l [u8]> {
    let numbered = lists.enumerate();
    let mut names: Vec<_> =
        numbered.flat_map(|(list, names)| names.iter().map(move |name| (name, list))).collect();
    names.sort_by(|(a, _), (b, _)| compare(a, b));
    // Names that the next one may be beneath, all of one list.
    let mut above: Vec<(&[u8], usize)> = Vec::new();
    for (name, list) in names {
        while above.last().is_some_and(|(dir, _)| !is_within(name, dir)) {
            above.pop();
        }
        if above.last().is_some_and(|(_, other)| *other != list) {
            return Some(name);
        }
        above.push((name, list));
    }
    None
}

impl NameList {
    /// Returns a list of clean names; `is_recursive` means directories with all that they contain.
    #[must_use]
    pub fn new(names: Vec<Vec<u8>>, is_recursive: bool) -> Self {
        let mut names: Vec<Box<[u8]>> = names.into_iter().map(Vec::into_boxed_slice).collect();
        // Of equal names, one that means the contents is first.
        let by_contents = |a: &[u8], b: &[u8]| has_contents(b).cmp(&has_contents(a));
        names.sort_unstable_by(|a, b| compare(a, b).then_with(|| by_contents(a, b)));
        names.dedup_by(|later, earlier| compare(later, earlier).is_eq());
        Self { names, is_recursive }
    }

    /// Names in the order of a walk.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|name| &**name)
    }

    /// True if directories are meant with all that they contain.
    #[must_use]
    pub fn is_recursive(&self) -> bool {
        self.is_recursive
    }

    /// Returns the next names from a position, as many as fit a message; none at the end.
    #[must_use]
    pub fn part(&self, from: usize) -> Vec<PathBytes> {
        let mut bytes = 0;
        let names = self.iter().skip(from).take(MAX_LIST_PART_NAMES).take_while(|name| {
            bytes += name.len();
            bytes <= MAX_LIST_PART_BYTES
        });
        names.map(|name| PathBytes(name.to_vec())).collect()
    }

    fn find(&self, path: &[u8]) -> Option<&[u8]> {
        let at = self.names.binary_search_by(|name| compare(name, path)).ok()?;
        Some(&self.names[at])
    }

    /// True if a path is beneath a name that means its contents.
    fn admits_beneath(&self, path: &[u8]) -> bool {
        let path = bare(path);
        let slashes = || (0..path.len()).rev().filter(|&at| path[at] == b'/');
        let mut above = slashes().map(|at| &path[..at]).chain([&b"."[..]]);
        match self.is_recursive {
            true => above.any(|above| self.find(above).is_some()),
            false => above.next().is_some_and(|above| self.find(above).is_some_and(has_contents)),
        }
    }

    /// True if the list admits an entry with a path: a name, what it contains, what is above it.
    #[must_use]
    pub fn admits(&self, path: &[u8], is_dir: bool) -> bool {
        let is_named = self.find(path).is_some() || self.admits_beneath(path);
        is_named || is_dir && self.is_above(path)
    }

    /// True if a path is that of a directory above a name.
    #[must_use]
    pub fn is_above(&self, path: &[u8]) -> bool {
        let at = self.names.partition_point(|name| !compare(name, path).is_gt());
        let rest = self.names.get(at).and_then(|name| name.strip_prefix(path));
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::check_listed;

    fn clean(typed: &str) -> Option<String> {
        clean_name(typed.as_bytes()).map(|name| String::from_utf8(name).unwrap())
    }

    fn list(names: &[&str], is_recursive: bool) -> NameList {
        let names = names.iter().map(|name| clean_name(name.as_bytes()).unwrap()).collect();
        NameList::new(names, is_recursive)
    }

    fn texts(list: &NameList) -> Vec<&str> {
        list.iter().map(|name| std::str::from_utf8(name).unwrap()).collect()
    }

    #[test]
    fn name_is_relative_to_the_source_and_stays_in_it() {
        for (typed, name) in [
            ("a", "a"),
            ("/a//b", "a/b"),
            ("./a/./b/", "a/b/"),
            ("a/..", "./"),
            ("a/../b", "b"),
            ("a/b/..", "a/"),
            ("a/.", "a/"),
            (".", "./"),
            ("/", "./"),
            ("...", "..."),
        ] {
            assert_eq!(clean(typed).as_deref(), Some(name), "{typed}");
            assert_eq!(check_listed(name.as_bytes()), Ok(()), "{name}");
        }
        for typed in ["..", "../a", "a/../../b", "/.."] {
            assert_eq!(clean(typed), None, "{typed}");
        }
        for name in ["", "/", "/a", "a//b", "a/./b", "../a", "a/..", "a//", "a\0", "."] {
            assert!(check_listed(name.as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn list_has_each_name_once_in_the_order_of_a_walk() {
        let names = ["b", "a.x", "a/c", "a", "a/b/c", "a/", "b"];
        assert_eq!(texts(&list(&names, false)), ["a/", "a/b/c", "a/c", "a.x", "b"]);
        assert_eq!(texts(&list(&["a/b", "."], true)), ["./", "a/b"]);
    }

    #[test]
    fn name_covers_what_follows_from_it() {
        for (covering, name, is_recursive, expected) in [
            ("a", "a/b/c", true, true),
            ("a/", "a/b/", true, true),
            ("a", "a.x", true, false),
            ("./", "a/b", true, true),
            ("a", "a/b", false, false),
            ("a/", "a/b", false, true),
            ("a/", "a/b/", false, false),
            ("a/", "a/b/c", false, false),
            ("./", "a", false, true),
            ("./", "a/b", false, false),
        ] {
            let found = covers(covering.as_bytes(), name.as_bytes(), is_recursive);
            assert_eq!(found, expected, "{covering} {name}");
        }
    }

    #[test]
    fn list_admits_names_and_directories_above_them() {
        let admits = |list: &NameList, path: &str, is_dir| list.admits(path.as_bytes(), is_dir);
        let flat = list(&["a/b", "c/", "d"], false);
        for (path, is_dir, expected) in [
            ("a", true, true),
            ("a", false, false),
            ("a/b", false, true),
            ("a/b/c", false, false),
            ("a/c", false, false),
            ("c", true, true),
            ("c/x", false, true),
            ("c/x/y", false, false),
            ("d", false, true),
            ("d/x", false, false),
            ("dx", false, false),
            ("e", true, false),
        ] {
            assert_eq!(admits(&flat, path, is_dir), expected, "{path}");
        }
        let deep = list(&["a/b"], true);
        assert!(admits(&deep, "a/b/c/d", false) && !admits(&deep, "a/c", false));
        assert!(admits(&list(&["."], true), "x/y", false));
        let whole = list(&["."], false);
        assert!(admits(&whole, "x", false) && !admits(&whole, "x/y", false));
        // A slash sorts before all other bytes.
        let odd = list(&["a!", "a/x", "a-/y"], false);
        assert!(admits(&odd, "a", true) && admits(&odd, "a-", true) && !admits(&odd, "a+", true));
    }

    #[test]
    fn names_that_two_lists_have_are_found() {
        let lists =
            |names: &[&[&str]]| -> Vec<_> { names.iter().map(|names| list(names, true)).collect() };
        for (names, expected) in [
            (&[&["a/f"][..], &["a/f"]][..], Some("a/f")),
            (&[&["d"], &["d/e/f"]], Some("d/e/f")),
            (&[&["d/e/f"], &["x"], &["d/"]], Some("d/e/f")),
            (&[&["x"], &["."]], Some("x")),
            (&[&["."], &["."]], Some("./")),
            (&[&["d/x", "d/y"], &["d/z", "e"]], None),
            (&[&["d", "d/e"], &["d.x", "de"]], None),
            (&[&["d", "d/e"]], None),
        ] {
            let lists = lists(names);
            let found = shared_name(lists.iter());
            assert_eq!(found, expected.map(str::as_bytes), "{names:?}");
        }
    }

    #[test]
    fn parts_are_bounded_and_complete() {
        let names: Vec<_> = (0..10_000).map(|at| format!("{at:05}").into_bytes()).collect();
        let list = NameList::new(names.clone(), false);
        let (mut found, mut from) = (Vec::new(), 0);
        loop {
            let part = list.part(from);
            assert!(part.len() <= MAX_LIST_PART_NAMES);
            if part.is_empty() {
                break;
            }
            from += part.len();
            found.extend(part.into_iter().map(|name| name.0));
        }
        assert_eq!(found, names);
        let long = NameList::new(vec![vec![b'x'; 200]; 1], false);
        assert_eq!(long.part(0).len(), 1);
    }
}
