//! Filter rules in the directory that is walked.

use super::ignores::DirIgnores;
use crate::base::error::{Error, ErrorKind, os_message};
use crate::file_io::links::LOOP;
use bankfull_proto::filter::{FilterScope, Side};
use bankfull_proto::limits::MAX_FILTER_RULES_BYTES;
use bankfull_proto::wire::control::WalkRules;
use bankfull_sys::Dir;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

/// Maximum size of a file of rules in the tree: that of all rules in force.
const MAX_RULES_BYTES: u64 = MAX_FILTER_RULES_BYTES as u64;

/// Rules that are in force in a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct DirFilters {
    scope: FilterScope,
    ignores: DirIgnores,
    /// Path of the directory in the transfer; empty if there are no rules.
    path: Vec<u8>,
}

impl DirFilters {
    /// Returns the rules above all sources.
    pub(crate) fn new(scope: FilterScope, walk: &WalkRules) -> Self {
        Self { scope, ignores: DirIgnores::new(walk), path: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.scope.is_empty() && self.ignores.is_empty()
    }

    /// True if the rules hide an entry of the directory.
    pub(crate) fn hides(&self, name: &OsStr, is_dir: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let path = self.join(name);
        self.scope.excludes(&path, is_dir, Side::Sender) || self.ignores.ignores(&path, is_dir)
    }

    /// True if an ignore file leaves out an entry of the directory.
    pub(crate) fn ignores(&self, name: &OsStr, is_dir: bool) -> bool {
        !self.ignores.is_empty() && self.ignores.ignores(&self.join(name), is_dir)
    }

    /// True if the rules protect an entry of the directory from deletion.
    pub(crate) fn protects(&self, name: &OsStr, is_dir: bool, in_deleted: bool) -> bool {
        !self.scope.is_empty() && self.scope.protects(&self.join(name), is_dir, in_deleted)
    }

    /// Returns the rules in a subdirectory, or in the directory itself if `name` is empty.
    ///
    /// # Errors
    /// A file of rules that cannot be read or parsed.
    pub(crate) fn enter(&self, name: &OsStr, dir: &Dir) -> Result<Self, Error> {
        if self.is_empty() {
            return Ok(Self::default());
        }
        let path = if name.is_empty() { self.path.clone() } else { self.join(name) };
        let entered = self.scope.enter(&path, &mut |file| read_rules(dir, file));
        let scope = entered.map_err(|e| Error::new(ErrorKind::Source, e.to_string()))?;
        let entered = self.ignores.enter(&path, &mut |file| read_rules(dir, file));
        let ignores = entered.map_err(|text| Error::new(ErrorKind::Source, text))?;
        Ok(Self { scope, ignores, path })
    }

    fn join(&self, name: &OsStr) -> Vec<u8> {
        match self.path.as_slice() {
            b"" => name.as_bytes().to_vec(),
            path => [path, b"/", name.as_bytes()].concat(),
        }
    }
}

/// Reads a file of rules of a directory; `None` if there is none.
fn read_rules(dir: &Dir, name: &[u8]) -> Result<Option<Vec<u8>>, String> {
    // In rsync, a leading slash also searches the directories above the sources; these are not
    // read.
    let name = OsStr::from_bytes(name.strip_prefix(b"/").unwrap_or(name));
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        return Err(format!("the file of rules {shown} must be a name without directories"));
    }
    let failed =
        |e: &io::Error| format!("cannot read the file of rules {shown}: {}", os_message(e));
    let file = match dir.open_file(name) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(LOOP) => {
            return Err(format!(
                "the file of rules {shown} is a symlink, which is not followed: put a file in its \
                 place"
            ));
        }
        Err(e) => return Err(failed(&e)),
    };
    let mut content = Vec::new();
    let read = file.take(MAX_RULES_BYTES + 1).read_to_end(&mut content);
    read.map_err(|e| failed(&e))?;
    match content.len() as u64 > MAX_RULES_BYTES {
        true => Err(format!("the file of rules {shown} exceeds {} KiB", MAX_RULES_BYTES >> 10)),
        false => Ok(Some(content)),
    }
}
