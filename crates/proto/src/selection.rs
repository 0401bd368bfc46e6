//! Rules of the walk that need no I/O: files by size and time, symlinks by their target, depth.

use crate::wire::control::{Entry, EntryKind, WalkRules};

/// True if the rules select a file of this size and modification time.
///
/// The time is in seconds since 1970 and nanoseconds of the second.
#[must_use]
pub fn selects_file(rules: &WalkRules, size: u64, mtime: (i64, u32)) -> bool {
    let is_large_enough = rules.min_size.is_none_or(|min| size >= min);
    let is_small_enough = rules.max_size.is_none_or(|max| size <= max);
    let is_new_enough = rules.newer_than.is_none_or(|secs| mtime > (secs, 0));
    is_large_enough && is_small_enough && is_new_enough
}

/// True if a symlink leads out of the copy, by the rule of rsync's `--safe-links`.
///
/// `dirs_above` directories of the copy are above the link. Absolute and empty targets lead out,
/// and so do targets with `..` after a name, which may be a symlink, or with `/..` at the end.
#[must_use]
pub fn is_unsafe_link(target: &[u8], dirs_above: usize) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.ends_with(b"/..") {
        return true;
    }
    let parts = || target.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    let climbs = parts().take_while(|part| *part == b"..").count();
    climbs > dirs_above || parts().skip(climbs).any(|part| part == b"..")
}

/// True if the rules allow an announced entry.
///
/// Its depth is that beneath its source, which is at 0.
#[must_use]
pub fn allows_entry(rules: &WalkRules, entry: &Entry, depth: usize, dirs_above: usize) -> bool {
    let is_deep = rules.max_depth.is_some_and(|max| depth > max as usize);
    let is_selected = match entry.kind {
        EntryKind::Dir | EntryKind::HardLink | EntryKind::Special => true,
        EntryKind::File if entry.is_open_ended() => true,
        EntryKind::File => selects_file(rules, entry.size, (entry.mtime_secs, entry.mtime_nanos)),
        EntryKind::Symlink => {
            let is_unsafe = rules.safe_links && is_unsafe_link(&entry.target, dirs_above);
            !rules.copy_links && !is_unsafe
        }
    };
    is_selected && !is_deep
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::tests::entry;

    #[test]
    fn link_that_may_leave_the_copy_is_unsafe() {
        for (target, dirs_above, is_unsafe) in [
            ("", 5, true),
            ("/etc", 5, true),
            ("a", 0, false),
            ("a/b/", 0, false),
            ("..", 0, true),
            ("..", 1, false),
            ("../a", 0, true),
            ("..//../a", 2, false),
            ("../../a", 1, true),
            ("a/../b", 3, true),
            ("a/..", 3, true),
            ("./a", 0, false),
            ("...", 0, false),
            ("../..x", 1, false),
            ("../..", 2, true),
            ("../../", 2, false),
            (".././a", 1, false),
            (".././../a", 2, true),
        ] {
            assert_eq!(is_unsafe_link(target.as_bytes(), dirs_above), is_unsafe, "{target}");
        }
    }

    #[test]
    fn file_is_selected_by_size_and_time() {
        let rules = WalkRules { min_size: Some(5), max_size: Some(9), ..WalkRules::default() };
        let sizes = [4, 5, 9, 10].map(|size| selects_file(&rules, size, (0, 0)));
        assert_eq!(sizes, [false, true, true, false]);
        let rules = WalkRules { newer_than: Some(100), ..WalkRules::default() };
        let times = [(99, 9), (100, 0), (100, 1), (101, 0)];
        assert_eq!(times.map(|at| selects_file(&rules, 1, at)), [false, false, true, true]);
    }

    #[test]
    fn announced_entry_must_be_allowed() {
        let none = WalkRules::default();
        let link = Entry { kind: EntryKind::Symlink, target: b"../x".to_vec(), ..entry() };
        let dir = Entry { kind: EntryKind::Dir, ..entry() };
        assert!(allows_entry(&none, &link, 9, 0) && allows_entry(&none, &entry(), 9, 0));
        let links = WalkRules { copy_links: true, ..WalkRules::default() };
        assert!(!allows_entry(&links, &link, 1, 5) && allows_entry(&links, &dir, 1, 5));
        let safe = WalkRules { safe_links: true, ..WalkRules::default() };
        assert!(!allows_entry(&safe, &link, 1, 0) && allows_entry(&safe, &link, 1, 1));
        let shallow = WalkRules { max_depth: Some(1), ..WalkRules::default() };
        assert!(allows_entry(&shallow, &dir, 1, 1) && !allows_entry(&shallow, &dir, 2, 2));
        let small = WalkRules { max_size: Some(1), ..WalkRules::default() };
        assert!(!allows_entry(&small, &entry(), 1, 1) && allows_entry(&small, &dir, 1, 1));
    }
}
