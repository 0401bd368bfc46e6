//! The plan: given what the source announces and what is at the destination, what should happen to
//! a file, and where the operands of a command land. Looks at nothing itself.

use crate::wire::control::{Cause, Entry, EntryKind, Failure, Source};

/// What stands at an entry's place in the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Existing {
    /// What it is; `None` for sockets, devices and FIFOs.
    pub kind: Option<EntryKind>,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, seconds since 1970.
    pub mtime_secs: i64,
    /// Modification time, nanoseconds of the second.
    pub mtime_nanos: u32,
}

/// What to do with an announced file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// It is there, unchanged by size and modification time.
    Skip,
    /// Receive it.
    Receive,
    /// Its size is the same: compare content.
    Compare,
    /// It cannot be received.
    Refuse(Failure),
}

/// Decides about a file. With `by_content`, equal size and time are not proof enough, and equal
/// content is not sent whatever the times say.
#[must_use]
pub fn for_file(entry: &Entry, existing: Option<&Existing>, by_content: bool) -> Plan {
    let Some(existing) = existing else { return Plan::Receive };
    match existing.kind {
        Some(EntryKind::File) => {}
        Some(EntryKind::Dir) => {
            return Plan::Refuse(in_the_way(entry, "a directory", Cause::IsADirectory));
        }
        // Nobody who names a disk means the file that would stand in its place.
        None => {
            let what = "a device, FIFO or socket";
            return Plan::Refuse(in_the_way(entry, what, Cause::Usage));
        }
        // Like cp and rsync: a symlink there is replaced, never written through.
        Some(EntryKind::Symlink) => return Plan::Receive,
    }
    let same_size = existing.size == entry.size;
    let same_time =
        (existing.mtime_secs, existing.mtime_nanos) == (entry.mtime_secs, entry.mtime_nanos);
    match (by_content, same_size, same_time) {
        (true, true, _) => Plan::Compare,
        (false, true, true) => Plan::Skip,
        _ => Plan::Receive,
    }
}

fn in_the_way(entry: &Entry, what: &str, cause: Cause) -> Failure {
    let name = String::from_utf8_lossy(&entry.name);
    let text = format!("{what} is in the way of the file {name:?}: remove or rename it");
    Failure::new(cause, text)
}

/// What the user's destination path is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Nothing is there.
    Missing,
    /// A directory (or a symlink to one).
    Dir,
    /// Anything else.
    Other,
}

/// Where the operands land.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// Under the destination, which is a directory (and is made if missing), by their own names.
    Inside,
    /// The one file gets the destination's own name.
    Renamed,
}

/// Applies the rule for operands, which is rsync's, because repeating a command then lands where
/// the interrupted one did: a directory lands inside the destination by its own name; a directory
/// written with a trailing slash leaves its contents there; a file takes the destination's name,
/// unless that is a directory or is written as one (`as_dir`: trailing slash).
///
/// # Errors
/// A [`Failure`] of cause `Usage`, `NotADirectory` or `IsADirectory`.
pub fn landing(sources: &[Source], target: Target, as_dir: bool) -> Result<Landing, Failure> {
    refuse_clashes(sources)?;
    let one_file = matches!(sources, [only] if !only.is_dir);
    match target {
        Target::Dir => Ok(Landing::Inside),
        Target::Other if one_file && !as_dir => Ok(Landing::Renamed),
        Target::Other => Err(Failure::new(
            Cause::NotADirectory,
            "the destination is no directory, and one is needed there: name another destination",
        )),
        Target::Missing if one_file && !as_dir => Ok(Landing::Renamed),
        Target::Missing => Ok(Landing::Inside),
    }
}

fn refuse_clashes(sources: &[Source]) -> Result<(), Failure> {
    if sources.is_empty() {
        return Err(Failure::new(Cause::Usage, "no source given"));
    }
    if sources.len() > 1 && sources.iter().any(|s| s.contents) {
        return Err(Failure::new(
            Cause::Usage,
            "a source with a trailing slash must be the only source: its contents would mix with \
             the others",
        ));
    }
    let mut names: Vec<&[u8]> = sources.iter().map(|s| &s.name[..]).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::new(
            Cause::Usage,
            format!(
                "two sources are named {:?} and would land on each other: copy them one by one",
                String::from_utf8_lossy(pair[0])
            ),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            id: 1,
            parent: 0,
            name: b"f".to_vec(),
            kind: EntryKind::File,
            mode: 0o644,
            mtime_secs: 100,
            mtime_nanos: 7,
            size: 10,
            version: 1,
            uid: 0,
            gid: 0,
            block_bytes: 0,
            sparse: false,
            target: Vec::new(),
        }
    }

    fn there(size: u64, mtime_secs: i64, mtime_nanos: u32) -> Existing {
        Existing { kind: Some(EntryKind::File), size, mtime_secs, mtime_nanos }
    }

    #[test]
    fn equal_size_and_time_to_the_nanosecond_is_unchanged() {
        assert_eq!(for_file(&entry(), Some(&there(10, 100, 7)), false), Plan::Skip);
        assert_eq!(for_file(&entry(), Some(&there(10, 100, 8)), false), Plan::Receive);
        assert_eq!(for_file(&entry(), Some(&there(11, 100, 7)), false), Plan::Receive);
        assert_eq!(for_file(&entry(), None, false), Plan::Receive);
    }

    #[test]
    fn by_content_only_the_size_is_believed() {
        assert_eq!(for_file(&entry(), Some(&there(10, 100, 7)), true), Plan::Compare);
        assert_eq!(for_file(&entry(), Some(&there(10, 1, 1)), true), Plan::Compare);
        assert_eq!(for_file(&entry(), Some(&there(9, 100, 7)), true), Plan::Receive);
    }

    #[test]
    fn a_directory_or_device_in_the_way_is_kept_and_a_symlink_replaced() {
        for kind in [Some(EntryKind::Dir), None] {
            let there = Existing { kind, ..there(10, 100, 7) };
            for by_content in [false, true] {
                let plan = for_file(&entry(), Some(&there), by_content);
                assert!(matches!(plan, Plan::Refuse(_)), "{kind:?}");
            }
        }
        let link = Existing { kind: Some(EntryKind::Symlink), ..there(10, 100, 7) };
        assert_eq!(for_file(&entry(), Some(&link), false), Plan::Receive);
    }

    fn source(name: &str, is_dir: bool, contents: bool) -> Source {
        Source { name: name.into(), is_dir, contents }
    }

    #[test]
    fn landing_does_not_depend_on_what_an_interrupted_run_left() {
        use Landing::{Inside, Renamed};
        let dir = [source("tree", true, false)];
        let contents = [source("tree", true, true)];
        let file = [source("f", false, false)];
        let two = [source("f", false, false), source("tree", true, false)];
        for target in [Target::Missing, Target::Dir] {
            assert_eq!(landing(&dir, target, false), Ok(Inside));
            assert_eq!(landing(&contents, target, false), Ok(Inside));
            assert_eq!(landing(&two, target, false), Ok(Inside));
            assert_eq!(landing(&file, target, true), Ok(Inside));
        }
        assert_eq!(landing(&file, Target::Missing, false), Ok(Renamed));
        assert_eq!(landing(&file, Target::Other, false), Ok(Renamed));
        assert_eq!(landing(&file, Target::Dir, false), Ok(Inside));
    }

    #[test]
    fn a_file_where_a_directory_is_needed_is_an_error() {
        for sources in [&[source("tree", true, false)][..], &[source("t", true, true)]] {
            let failure = landing(sources, Target::Other, false).unwrap_err();
            assert_eq!(failure.cause(), Cause::NotADirectory);
        }
        let file = [source("f", false, false)];
        assert!(landing(&file, Target::Other, true).is_err());
    }

    #[test]
    fn sources_that_would_land_on_each_other_are_refused() {
        let same = [source("a", false, false), source("a", true, false)];
        assert_eq!(landing(&same, Target::Dir, false).unwrap_err().cause(), Cause::Usage);
        let mixed = [source("a", true, true), source("b", true, false)];
        assert_eq!(landing(&mixed, Target::Dir, false).unwrap_err().cause(), Cause::Usage);
        assert_eq!(landing(&[], Target::Dir, false).unwrap_err().cause(), Cause::Usage);
    }
}
