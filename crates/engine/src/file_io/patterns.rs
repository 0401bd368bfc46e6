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

/// Entries that the patterns of a request may match. (chosen: each source holds a descriptor)
const MAX_MATCHES: usize = 1000;

/// Entries that are read from a directory at a time. (chosen: as the walk lists)
const LISTED_ENTRIES: usize = 16 << 10;

/// Expansion of the paths of a request, which are resolved against a root.
#[derive(Clone, Copy)]
pub(crate) struct Expansion<'r> {
    pub(crate) root: &'r PathRoot,
    /// True once the result is of no use.
    pub(crate) has_left: &'r dyn Fn() -> bool,
}

impl Expansion<'_> {
    /// Replaces patterns by the paths that they match, sorted, and `~user` by a home directory.
    ///
    /// A path that exists is not a pattern. Under a served directory, `~user` is an ordinary name.
    ///
    /// # Errors
    /// No match, too many, no such user, or a client that has left.
    pub(crate) fn paths(self, paths: &[PathBytes]) -> Result<Vec<PathBytes>, Error> {
        let (mut all, mut matched) = (Vec::new(), 0);
        for path in paths {
            let path = self.home(path)?;
            if !has_pattern(&path.0) {
                all.push(path);
                continue;
            }
            let matches = self.matches(&path.0)?;
            matched += matches.len();
            if matched > MAX_MATCHES {
                let shown = String::from_utf8_lossy(&path.0);
                return Err(too_many(&format!("{shown}, with the patterns before it,")));
            }
            all.extend(matches.into_iter().map(PathBytes));
        }
        Ok(all)
    }

    /// Replaces `~user` at the beginning of each path.
    ///
    /// # Errors
    /// No such user, or a client that has left.
    pub(crate) fn homes(self, paths: &[PathBytes]) -> Result<Vec<PathBytes>, Error> {
        paths.iter().map(|path| self.home(path)).collect()
    }

    /// Fails once the client has left.
    fn check_wanted(self) -> io::Result<()> {
        if (self.has_left)() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Replaces `~user` at the beginning of a path on a host.
    ///
    /// # Errors
    /// No such user, or a client that has left.
    pub(crate) fn home(self, path: &PathBytes) -> Result<PathBytes, Error> {
        self.check_wanted().map_err(|e| Error::network("the client has left", &e))?;
        let (PathRoot::Host, [b'~', rest @ ..]) = (self.root, path.0.as_slice()) else {
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
        let path = self.root.validate(typed)?;
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
                    Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {
                        return Err(Error::network("the client has left", &e));
                    }
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

    /// Returns the kind of a path; a link to a directory counts as a directory.
    fn kind_of(self, path: &[u8]) -> io::Result<FileKind> {
        let at = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (above, name) = path.split_at(at);
        if name.is_empty() || name == b"." || name == b".." {
            return self.root.open_dir(path).map(|_| FileKind::Dir);
        }
        let kind = self.root.open_dir(above)?.stat(OsStr::from_bytes(name))?.kind;
        match kind {
            FileKind::Symlink if self.root.open_dir(path).is_ok() => Ok(FileKind::Dir),
            kind => Ok(kind),
        }
    }

    /// Returns the names in a directory that match; `None` if they are more than `max`.
    fn names_in(self, dir: &[u8], glob: &Glob, max: usize) -> io::Result<Option<Vec<Vec<u8>>>> {
        let mut entries = self.root.open_dir(dir)?.read_entries()?;
        let mut names = Vec::new();
        loop {
            self.check_wanted()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_sys::Dir;
    use std::cell::Cell;
    use std::fs;
    use std::sync::Arc;

    fn paths_of(
        dir: &std::path::Path,
        paths: &[&str],
        has_left: &dyn Fn() -> bool,
    ) -> Result<Vec<PathBytes>, Error> {
        let root = PathRoot::Dir(Arc::new(Dir::open(dir).unwrap()));
        let paths: Vec<_> = paths.iter().map(|path| PathBytes(path.as_bytes().to_vec())).collect();
        Expansion { root: &root, has_left }.paths(&paths)
    }

    #[test]
    fn matches_of_all_patterns_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..600 {
            fs::write(dir.path().join(format!("f{number}")), b"").unwrap();
        }
        let found = |paths: &[&str]| paths_of(dir.path(), paths, &|| false);
        assert_eq!(found(&["f*", "f1", "f??"]).unwrap().len(), 691);
        let error = found(&["f*", "*"]).unwrap_err().to_string();
        assert!(error.contains("with the patterns before it, matches more than 1000"), "{error}");
        assert_eq!(found(&vec!["f1"; 5000]).unwrap().len(), 5000, "no patterns");
    }

    #[test]
    fn search_ends_when_the_client_has_left() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..10 {
            fs::create_dir(dir.path().join(number.to_string())).unwrap();
        }
        let left = Cell::new(5);
        let has_left = || left.replace(left.get() - 1) == 0;
        let error = paths_of(dir.path(), &["*/x*"], &has_left).unwrap_err();
        assert!(error.to_string().contains("the client has left"), "{error}");
        assert_eq!(left.get(), -1, "nothing is read afterwards");
    }
}
