//! Decisions that need no I/O: the action for an announced file, and the resolved destination of
//! the operands.

use crate::wire::control::{Cause, ComparisonRules, Entry, EntryKind, Failure, Source};

/// Existing entry at the destination path of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Existing {
    /// Kind of the entry; `None` for sockets, devices and FIFOs.
    pub kind: Option<EntryKind>,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, seconds since 1970.
    pub mtime_secs: i64,
    /// Modification time, nanoseconds of the second.
    pub mtime_nanos: u32,
}

/// Granularity of modification times that a file system keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeGranularity {
    nanos: i128,
}

/// Granularities in nanoseconds: exact; NTFS (100 ns); 1 µs and 1 ms (network file systems); ext4
/// with inodes of 128 bytes (1 s); FAT (2 s).
const GRANULARITIES: [i128; 6] = [1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000];

impl TimeGranularity {
    /// Coarsest granularity of a file system.
    pub const COARSEST: Self = Self { nanos: 2_000_000_000 };

    /// Returns the granularity of a file system that stored `set` as `kept`; `None` if none fits.
    ///
    /// Times are in seconds since 1970 and nanoseconds of the second.
    #[must_use]
    pub fn measured(set: (i64, u32), kept: (i64, u32)) -> Option<Self> {
        let fits = |nanos: &i128| Self { nanos: *nanos }.rounded(set) == nanos_of(kept);
        GRANULARITIES.into_iter().find(fits).map(|nanos| Self { nanos })
    }

    /// True if the times are equal at this granularity.
    #[must_use]
    pub fn is_same(self, time: (i64, u32), kept: (i64, u32)) -> bool {
        self.rounded(time) == self.rounded(kept)
    }

    fn rounded(self, time: (i64, u32)) -> i128 {
        let nanos = nanos_of(time);
        nanos - nanos.rem_euclid(self.nanos)
    }
}

fn nanos_of((secs, nanos): (i64, u32)) -> i128 {
    i128::from(secs) * 1_000_000_000 + i128::from(nanos)
}

/// Action for an announced file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Skip: size and modification time are unchanged.
    Skip,
    /// Receive the file.
    Receive,
    /// Compare the content; the size is equal.
    Compare,
    /// Refuse the file: a directory or special file is in its place.
    Refuse,
}

/// Returns the action for a file, by its metadata and that of what is there.
#[must_use]
pub fn plan_file(entry: &Entry, existing: Option<&Existing>, rules: &ComparisonRules) -> Plan {
    let Some(existing) = existing else { return Plan::Receive };
    match existing.kind {
        Some(EntryKind::File) => {}
        // Never replace a device: the user meant the device, not a file in its place.
        None | Some(EntryKind::Dir | EntryKind::HardLink | EntryKind::Special) => {
            return Plan::Refuse;
        }
        // Like cp and rsync: replace a symlink, never write through it.
        Some(EntryKind::Symlink) => return Plan::Receive,
    }
    let same_size = existing.size == entry.size;
    let same_time = rules.size_only || is_same_time(entry, existing, rules.modify_window);
    match (rules.by_content, same_size, same_time) {
        (true, true, _) => Plan::Compare,
        (false, true, true) => Plan::Skip,
        _ => Plan::Receive,
    }
}

/// True if times are equal, or differ by the window in seconds at most.
#[must_use]
pub fn is_same_time(entry: &Entry, existing: &Existing, window: Option<u32>) -> bool {
    match window {
        None => {
            (existing.mtime_secs, existing.mtime_nanos) == (entry.mtime_secs, entry.mtime_nanos)
        }
        Some(window) => existing.mtime_secs.abs_diff(entry.mtime_secs) <= u64::from(window),
    }
}

/// True if the rules leave an entry out: the existing one is neither compared nor changed.
///
/// Directories that both sides have are never left out.
#[must_use]
pub fn is_left_out(entry: &Entry, existing: Option<&Existing>, rules: &ComparisonRules) -> bool {
    let Some(existing) = existing else { return rules.existing_only };
    if (entry.kind, existing.kind) == (EntryKind::Dir, Some(EntryKind::Dir)) {
        return false;
    }
    let is_newer = || {
        // As in rsync, whole seconds count, and with a window files of equal time are newer.
        let lead = entry.mtime_secs.saturating_sub(existing.mtime_secs);
        lead < i64::from(rules.modify_window.unwrap_or_default())
    };
    let are_files = entry.kind == EntryKind::File && existing.kind == Some(EntryKind::File);
    rules.ignore_existing || rules.update && are_files && is_newer()
}

/// Kind of the existing destination path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationKind {
    /// The path does not exist.
    Missing,
    /// Directory, or a symlink to one.
    Dir,
    /// Any other kind.
    Other,
}

/// Resolved destination of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Inside the destination directory, which is created if missing, under their own names.
    Directory,
    /// The single file takes the name of the destination.
    File,
}

/// Resolves the destination by rsync's rule. This makes a repeated command resolve like the
/// interrupted one.
///
/// A directory goes inside the destination under its own name; with a trailing slash, only its
/// contents do. A file takes the name of the destination unless that is a directory, or is written
/// as one with a trailing slash (`as_dir`). An open-ended source has no name to go inside.
///
/// # Errors
/// A [`Failure`] of cause `Usage`, `NotADirectory` or `IsADirectory`.
pub fn resolve_destination(
    sources: &[Source],
    target: DestinationKind,
    as_dir: bool,
) -> Result<Destination, Failure> {
    check_operands(sources)?;
    let is_dir = target == DestinationKind::Dir || as_dir;
    if is_dir && sources.iter().any(Source::is_open_ended) {
        let text = "the source has no name of its own: name a file in this directory";
        return Err(Failure::new(Cause::IsADirectory, text));
    }
    let one_file = matches!(sources, [only] if !only.is_dir);
    match target {
        DestinationKind::Dir => Ok(Destination::Directory),
        DestinationKind::Other if one_file && !as_dir => Ok(Destination::File),
        DestinationKind::Other => Err(Failure::new(
            Cause::NotADirectory,
            "the destination is not a directory, but must be one: choose another destination",
        )),
        DestinationKind::Missing if one_file && !as_dir => Ok(Destination::File),
        DestinationKind::Missing => Ok(Destination::Directory),
    }
}

/// Refuses operands that cannot share a destination.
fn check_operands(sources: &[Source]) -> Result<(), Failure> {
    if sources.is_empty() {
        return Err(Failure::new(Cause::Usage, "no source given"));
    }
    if sources.len() > 1 && sources.iter().any(|s| s.contents) {
        return Err(Failure::new(
            Cause::Usage,
            "a source with a trailing slash must be the only source: its contents would mix with \
             other sources",
        ));
    }
    let mut names: Vec<&[u8]> = sources.iter().map(|s| &s.name[..]).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::new(
            Cause::Usage,
            format!(
                "two sources are named {:?} and would overwrite each other: copy them one by one",
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
            extra: None,
        }
    }

    fn existing(size: u64, mtime_secs: i64, mtime_nanos: u32) -> Existing {
        Existing { kind: Some(EntryKind::File), size, mtime_secs, mtime_nanos }
    }

    const NO_RULES: ComparisonRules = ComparisonRules {
        by_content: false,
        update: false,
        existing_only: false,
        ignore_existing: false,
        size_only: false,
        modify_window: None,
    };

    const BY_CONTENT: ComparisonRules = ComparisonRules { by_content: true, ..NO_RULES };

    #[test]
    fn plan_size_alone_or_a_window_decides_if_requested() {
        let size_only = ComparisonRules { size_only: true, ..NO_RULES };
        assert_eq!(plan_file(&entry(), Some(&existing(10, 1, 1)), &size_only), Plan::Skip);
        assert_eq!(plan_file(&entry(), Some(&existing(9, 100, 7)), &size_only), Plan::Receive);
        // The content is compared nevertheless.
        let both = ComparisonRules { by_content: true, ..size_only };
        assert_eq!(plan_file(&entry(), Some(&existing(10, 1, 1)), &both), Plan::Compare);
        let within = |window, secs, nanos| {
            let rules = ComparisonRules { modify_window: Some(window), ..NO_RULES };
            plan_file(&entry(), Some(&existing(10, secs, nanos)), &rules) == Plan::Skip
        };
        assert!(within(0, 100, 999) && !within(0, 101, 7));
        assert!(within(2, 98, 0) && within(2, 102, 9) && !within(2, 97, 9) && !within(2, 103, 0));
    }

    #[test]
    fn left_out_is_what_the_rules_of_rsync_leave_out() {
        let out = |rules: &ComparisonRules, found: Option<Existing>| {
            is_left_out(&entry(), found.as_ref(), rules)
        };
        let file = |secs| Some(existing(10, secs, 0));
        let kind = |kind| Some(Existing { kind, ..existing(10, 500, 0) });
        assert!(!out(&NO_RULES, file(500)) && !out(&NO_RULES, None));
        let update = ComparisonRules { update: true, ..NO_RULES };
        assert!(out(&update, file(101)) && !out(&update, file(100)) && !out(&update, file(99)));
        assert!(!out(&update, None) && !out(&update, kind(Some(EntryKind::Symlink))));
        let windowed = ComparisonRules { modify_window: Some(2), ..update };
        assert!(out(&windowed, file(100)) && out(&windowed, file(99)) && !out(&windowed, file(98)));
        let existing_only = ComparisonRules { existing_only: true, ..NO_RULES };
        assert!(out(&existing_only, None) && !out(&existing_only, file(1)));
        let ignore = ComparisonRules { ignore_existing: true, ..NO_RULES };
        assert!(out(&ignore, file(1)) && out(&ignore, kind(None)) && !out(&ignore, None));
        // A directory that both have is entered; any other entry of that name stays.
        let in_place =
            [Some(EntryKind::Dir), Some(EntryKind::File), Some(EntryKind::Symlink), None];
        let dir = Entry { kind: EntryKind::Dir, ..entry() };
        for found in in_place {
            assert!(out(&ignore, kind(found)) && !out(&existing_only, kind(found)), "{found:?}");
            let is_dir = found == Some(EntryKind::Dir);
            assert_eq!(is_left_out(&dir, kind(found).as_ref(), &ignore), !is_dir, "{found:?}");
            assert!(!is_left_out(&dir, kind(found).as_ref(), &existing_only), "{found:?}");
        }
        assert!(is_left_out(&dir, None, &existing_only));
    }

    #[test]
    fn plan_equal_size_and_mtime_is_skipped() {
        assert_eq!(plan_file(&entry(), Some(&existing(10, 100, 7)), &NO_RULES), Plan::Skip);
        assert_eq!(plan_file(&entry(), Some(&existing(10, 100, 8)), &NO_RULES), Plan::Receive);
        assert_eq!(plan_file(&entry(), Some(&existing(11, 100, 7)), &NO_RULES), Plan::Receive);
        assert_eq!(plan_file(&entry(), None, &NO_RULES), Plan::Receive);
    }

    #[test]
    fn plan_by_content_compares_files_of_equal_size() {
        assert_eq!(plan_file(&entry(), Some(&existing(10, 100, 7)), &BY_CONTENT), Plan::Compare);
        assert_eq!(plan_file(&entry(), Some(&existing(10, 1, 1)), &BY_CONTENT), Plan::Compare);
        assert_eq!(plan_file(&entry(), Some(&existing(9, 100, 7)), &BY_CONTENT), Plan::Receive);
    }

    #[test]
    fn plan_directory_or_device_is_refused_symlink_replaced() {
        for kind in [Some(EntryKind::Dir), None] {
            let existing = Existing { kind, ..existing(10, 100, 7) };
            for rules in [NO_RULES, BY_CONTENT] {
                let plan = plan_file(&entry(), Some(&existing), &rules);
                assert_eq!(plan, Plan::Refuse, "{kind:?}");
            }
        }
        let link = Existing { kind: Some(EntryKind::Symlink), ..existing(10, 100, 7) };
        assert_eq!(plan_file(&entry(), Some(&link), &NO_RULES), Plan::Receive);
    }

    fn source(name: &str, is_dir: bool, contents: bool) -> Source {
        Source { name: name.into(), is_dir, contents, open_ended: None }
    }

    #[test]
    fn destination_is_the_same_after_an_interrupted_run() {
        use Destination::{Directory, File};
        let dir = [source("tree", true, false)];
        let contents = [source("tree", true, true)];
        let file = [source("f", false, false)];
        let two = [source("f", false, false), source("tree", true, false)];
        for target in [DestinationKind::Missing, DestinationKind::Dir] {
            assert_eq!(resolve_destination(&dir, target, false), Ok(Directory));
            assert_eq!(resolve_destination(&contents, target, false), Ok(Directory));
            assert_eq!(resolve_destination(&two, target, false), Ok(Directory));
            assert_eq!(resolve_destination(&file, target, true), Ok(Directory));
        }
        assert_eq!(resolve_destination(&file, DestinationKind::Missing, false), Ok(File));
        assert_eq!(resolve_destination(&file, DestinationKind::Other, false), Ok(File));
        assert_eq!(resolve_destination(&file, DestinationKind::Dir, false), Ok(Directory));
    }

    #[test]
    fn destination_file_instead_of_directory_is_refused() {
        for sources in [&[source("tree", true, false)][..], &[source("t", true, true)]] {
            let failure = resolve_destination(sources, DestinationKind::Other, false).unwrap_err();
            assert_eq!(failure.cause(), Cause::NotADirectory);
        }
        let file = [source("f", false, false)];
        assert!(resolve_destination(&file, DestinationKind::Other, true).is_err());
    }

    #[test]
    fn destination_of_an_open_ended_source_is_a_file() {
        let input = [Source { open_ended: Some(true), ..source("-", false, false) }];
        for (target, as_dir) in [
            (DestinationKind::Dir, false),
            (DestinationKind::Dir, true),
            (DestinationKind::Missing, true),
        ] {
            let failure = resolve_destination(&input, target, as_dir).unwrap_err();
            assert_eq!(failure.cause(), Cause::IsADirectory);
        }
        for target in [DestinationKind::Missing, DestinationKind::Other] {
            assert_eq!(resolve_destination(&input, target, false), Ok(Destination::File));
        }
    }

    #[test]
    fn destination_clashing_sources_are_refused() {
        let same = [source("a", false, false), source("a", true, false)];
        assert_eq!(
            resolve_destination(&same, DestinationKind::Dir, false).unwrap_err().cause(),
            Cause::Usage
        );
        let mixed = [source("a", true, true), source("b", true, false)];
        assert_eq!(
            resolve_destination(&mixed, DestinationKind::Dir, false).unwrap_err().cause(),
            Cause::Usage
        );
        assert_eq!(
            resolve_destination(&[], DestinationKind::Dir, false).unwrap_err().cause(),
            Cause::Usage
        );
    }

    #[test]
    fn granularity_is_measured_from_what_was_kept() {
        let set = (1_000_000_001, 987_654_321);
        for (kept, nanos) in [
            (set, Some(1)),
            ((1_000_000_001, 987_654_300), Some(100)),
            ((1_000_000_001, 987_654_000), Some(1_000)),
            ((1_000_000_001, 987_000_000), Some(1_000_000)),
            ((1_000_000_001, 0), Some(1_000_000_000)),
            ((1_000_000_000, 0), Some(2_000_000_000)),
            ((1_700_000_000, 5), None),
        ] {
            let measured = TimeGranularity::measured(set, kept);
            assert_eq!(measured.map(|of| of.nanos), nanos, "{kept:?}");
        }
        let second = TimeGranularity::measured(set, (1_000_000_001, 0)).unwrap();
        assert!(second.is_same((-1, 999), (-1, 0)) && !second.is_same((5, 1), (6, 1)));
    }
}
