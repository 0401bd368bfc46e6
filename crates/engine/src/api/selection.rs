//! [`Selection`], [`FileList`] and [`Comparison`]: rules about what is copied.

use crate::base::error::{Error, ErrorKind};
use bankfull_control::Bytes;
use bankfull_proto::limits::MAX_PATH_BYTES;
use bankfull_proto::names::{NameList, clean_name, components};
use bankfull_proto::wire::control::{ComparisonRules, PathBytes, WalkRules, check_listed};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Rules for what is copied of the sources. The default is none: everything is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Copies the referents of symlinks instead of the links.
    pub copy_links: bool,
    /// Copies the referents of symlinks to directories instead of the links.
    pub copy_dirlinks: bool,
    /// Leaves out symlinks that lead out of the copy.
    pub safe_links: bool,
    /// Leaves out smaller files.
    pub min_size: Option<Bytes>,
    /// Leaves out larger files.
    pub max_size: Option<Bytes>,
    /// Leaves out files that were not modified after this time; whole seconds count.
    pub newer_than: Option<SystemTime>,
    /// Leaves out what is in directories of other file systems.
    pub one_file_system: bool,
    /// Leaves out what is in cache directories, but for their tags (CACHEDIR.TAG).
    pub exclude_caches: bool,
    /// Leaves out what is deeper beneath a source, which is at 0.
    pub max_depth: Option<u32>,
    /// Names of ignore files, whose patterns leave out entries as in `.gitignore`.
    ///
    /// Ignore files are read in each directory; of several names, the last one takes precedence.
    pub ignore_files: Vec<OsString>,
    /// Copies a file that grows as far as it was when it was announced.
    pub follow_growth: bool,
    /// Keeps the paths of the sources, or what is behind `/./` in them.
    pub relative: bool,
}

impl Selection {
    /// Returns the rules of the walk.
    pub(crate) fn rules(&self) -> WalkRules {
        let secs = |time: SystemTime| match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            Err(before) => {
                let before = before.duration();
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                -whole - i64::from(before.subsec_nanos() > 0)
            }
        };
        let names = self.ignore_files.iter().map(|name| PathBytes(name.as_bytes().to_vec()));
        WalkRules {
            copy_links: self.copy_links,
            copy_dirlinks: self.copy_dirlinks,
            safe_links: self.safe_links,
            min_size: self.min_size.map(|size| size.0),
            max_size: self.max_size.map(|size| size.0),
            newer_than: self.newer_than.map(secs),
            one_file_system: self.one_file_system,
            exclude_caches: self.exclude_caches,
            max_depth: self.max_depth,
            ignore_files: (!self.ignore_files.is_empty()).then(|| names.collect()),
            relative: self.relative,
            listed: false,
            recursive: false,
            follow_growth: self.follow_growth,
        }
    }
}

/// Names beneath the one source of a copy, which keep their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileList(pub(crate) Arc<NameList>);

impl FileList {
    /// Parses the content of a list.
    ///
    /// There is a name on each line, or before each NUL if `is_nul`. Empty names and lines that
    /// begin with `#` or `;` do not count. A directory is copied without its contents, unless its
    /// name ends with a slash or `is_recursive`. `shown` names the list in messages.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] names the line of a name that leaves the source or is too long.
    pub fn parse(
        content: &[u8],
        shown: &str,
        (is_nul, is_recursive): (bool, bool),
    ) -> Result<Self, Error> {
        let separators: &[u8] = if is_nul { b"\0" } else { b"\n\r\0" };
        let mut names = Vec::new();
        for (number, line) in content.split(|byte| *byte == separators[0]).enumerate() {
            for typed in line.split(|byte| separators.contains(byte)) {
                if typed.is_empty() || typed.starts_with(b"#") || typed.starts_with(b";") {
                    continue;
                }
                names.push(listed_name(typed).map_err(|why| {
                    let typed = String::from_utf8_lossy(&typed[..typed.len().min(300)]);
                    let text = format!("{shown}:{}: the name {typed:?} {why}", number + 1);
                    Error::new(ErrorKind::Usage, text)
                })?);
            }
        }
        Ok(Self(Arc::new(NameList::new(names, is_recursive))))
    }
}

/// Returns a name in the form of a list, or why it is refused.
fn listed_name(typed: &[u8]) -> Result<Vec<u8>, &'static str> {
    // In rsync, the path before it is not kept.
    let marker = typed.windows(3).rposition(|part| part == b"/./");
    if marker.is_some_and(|at| components(&typed[..at]).next().is_some()) {
        return Err("has /./ in it: name the directory before it as the source");
    }
    let name = clean_name(typed).ok_or("leaves the source: write names beneath it")?;
    let is_long = name.len() > MAX_PATH_BYTES || check_listed(&name).is_err();
    if is_long { Err("is too long, or has a NUL: leave it out") } else { Ok(name) }
}

/// Rules for what exists at the destination. The default is none: files that differ are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Leaves a file as it is if its modification time is later, in whole seconds.
    pub update: bool,
    /// Creates nothing: files that are missing are left out, and missing directories with all that
    /// is in them.
    pub existing_only: bool,
    /// Leaves files that exist as they are.
    pub ignore_existing: bool,
    /// Skips files of equal size, whatever their times.
    pub size_only: bool,
    /// Difference in seconds up to which modification times are equal. `None`: times must be equal
    /// to the nanosecond, but for what the file system of the destination rounds.
    pub modify_window: Option<u32>,
}

impl Comparison {
    /// Returns the rules of a receiver that does, or does not, compare by content.
    pub(crate) fn rules(self, by_content: bool) -> ComparisonRules {
        let Self { update, existing_only, ignore_existing, size_only, modify_window } = self;
        ComparisonRules {
            by_content,
            update,
            existing_only,
            ignore_existing,
            size_only,
            modify_window,
        }
    }
}
