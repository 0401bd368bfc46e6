//! Paths of a peer's request as a shell would expand them: patterns, and `~user`.

use super::root::PathRoot;
use crate::base::accounts::home_of;
use crate::base::error::{Error, ErrorKind, os_message};
use crate::base::part_names::is_part_name;
use bankfull_proto::globs::{Glob, has_pattern, is_pattern};
use bankfull_proto::wire::control::PathBytes;
use bankfull_sys::FileKind;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Entries that a pattern may match. (chosen: each source holds a descriptor)
const MAX_MATCHES: usize = 1000;

/// Entries that are read from a directory at a time. (chosen: as the walk lists)
const LISTED_ENTRIES: usize = 16 << 10;

/// Expansion of paths that are resolved against a root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expansion<'r>(pub(crate) &'r PathRoot);

impl Expansion<'_> {
    /// Replaces patterns by the paths that they match, sorted, and `~user` by a home directory.
    ///
    /// A path that exists is no pattern. Beneath a directory, `~user` is a name.
    ///
    /// # Errors
    /// No match, too many, or no such user.
    pub(crate) fn paths(self, paths: &[PathBytes]) -> Result<Vec<PathBytes>, Error> {
        let mut all = Vec::new();
        for path in paths {
            let path = self.home(path)?;
            match has_pattern(&path.0) {
                true => all.extend(self.matches(&path.0)?.into_iter().map(PathBytes)),
                false => all.push(path),
            }
        }
        Ok(all)
    }

    /// Replaces `~user` at the beginning of a path on a host.
    ///
    /// # Errors
    /// No such user.
    pub(crate) fn home(self, path: &PathBytes) -> Result<PathBytes, Error> {
        let (PathRoot::Host, [b'~', rest @ ..]) = (self.0, path.0.as_slice()) else {
            return Ok(path.clone());
        };
        let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (user, below) = rest.split_at(end);
        match home_of(user) {
            Some(home) => Ok(PathBytes([&home, below].concat())),
            None => {
                let [user, path] = [user, &path.0[..]].map(String::from_utf8_lossy);
                let text = format!(
                    "cannot use {path}: there is no user {user:?} on this host: for a name that \
                     begins with a tilde, write ./{path}"
                );
                Err(Error::new(ErrorKind::Source, text))
            }
        }
    }

    fn matches(self, typed: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let path = self.0.validate(typed)?;
        if self.kind_of(&path).is_ok() {
            return Ok(vec![path]);
        }
        let shown = String::from_utf8_lossy(typed).into_owned();
        let start = if path.starts_with(b"/") { &b"/"[..] } else { b"" };
        let must_be_dir = path.ends_with(b"/");
        let mut found = vec![start.to_vec()];
        let mut denied = None;
        let mut components = path.split(|&b| b == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(component) = components.next() {
            let is_dir = components.peek().is_some() || must_be_dir;
            if !is_pattern(component) {
                found.iter_mut().for_each(|above| push(above, component));
                continue;
            }
            let glob = Glob::new(component);
            let mut below = Vec::new();
            for above in &found {
                match self.names_in(above, &glob, MAX_MATCHES - below.len()) {
                    Ok(Some(names)) => below.extend(names.into_iter().map(|name| {
                        let mut path = above.clone();
                        push(&mut path, &name);
                        path
                    })),
                    Ok(None) => return Err(too_many(&shown)),
                    Err(e) => {
                        denied = Some(e).filter(|e| e.kind() == io::ErrorKind::PermissionDenied)
                    }
                }
            }
            found = below;
            if is_dir {
                found.retain(|path| matches!(self.kind_of(path), Ok(FileKind::Dir)));
            }
        }
        found.retain(|path| self.kind_of(path).is_ok());
        found.sort();
        if must_be_dir {
            found.iter_mut().for_each(|path| path.push(b'/'));
        }
        match (found.is_empty(), denied) {
            (false, _) => Ok(found),
            (true, Some(e)) => {
                let text = format!("cannot match {shown}: {}", os_message(&e));
                Err(Error::new(ErrorKind::Source, text))
            }
            (true, None) => {
                let text = format!("cannot read {shown}: no name matches this pattern");
                Err(Error::new(ErrorKind::Source, text))
            }
        }
    }

    /// Returns the kind of a path; of a link to a directory, that.
    fn kind_of(self, path: &[u8]) -> io::Result<FileKind> {
        let at = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (above, name) = path.split_at(at);
        if name.is_empty() || name == b"." || name == b".." {
            return self.0.open_dir(path).map(|_| FileKind::Dir);
        }
        let kind = self.0.open_dir(above)?.stat(OsStr::from_bytes(name))?.kind;
        match kind {
            FileKind::Symlink if self.0.open_dir(path).is_ok() => Ok(FileKind::Dir),
            kind => Ok(kind),
        }
    }

    /// Returns the names in a directory that match; `None` if they are more than `max`.
    fn names_in(self, dir: &[u8], glob: &Glob, max: usize) -> io::Result<Option<Vec<Vec<u8>>>> {
        let mut entries = self.0.open_dir(dir)?.read_entries()?;
        let mut names = Vec::new();
        loop {
            let chunk = entries.next_chunk(LISTED_ENTRIES)?;
            let is_last = chunk.len() < LISTED_ENTRIES;
            let matching = chunk.iter().map(|entry| entry.name.as_bytes());
            let matching = matching.filter(|name| glob.matches(name) && !is_part_name(name));
            names.extend(matching.map(<[u8]>::to_vec));
            if names.len() > max {
                return Ok(None);
            }
            if is_last {
                return Ok(Some(names));
            }
        }
    }
}

/// Appends a component to a path.
fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn too_many(shown: &str) -> Error {
    let text = format!(
        "{shown} matches more than {MAX_MATCHES} names: copy the directory with \
         --include PATTERN --exclude '*'"
    );
    Error::new(ErrorKind::Source, text)
}
