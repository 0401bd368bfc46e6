//! Operands resolved on the host that they are on: sources found, the destination opened.

use crate::error::{Error, ErrorKind, failure, plain};
use crate::receiver::Target;
use crate::sender::walk::SourceItem;
use bankfull_proto::plan::{self, Destination};
use bankfull_proto::wire::control::{Cause, Failure, PathBytes, Source};
use bankfull_sys::{Dir, Kind};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What paths are relative to.
#[derive(Debug, Clone)]
pub(crate) enum Anchor {
    /// The whole host, from the working directory: the user's own rights are the limit.
    Host,
    /// Beneath this directory only.
    Root(Arc<Dir>),
}

/// How a transfer is to be received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveOptions {
    pub(crate) fsync: crate::options::Fsync,
    pub(crate) checksum: bool,
    pub(crate) dry_run: bool,
    /// Whether a dry run takes the destination's parent for granted.
    pub(crate) parent_is_planned: bool,
    /// Whether the far side is trusted with set-id bits.
    pub(crate) set_id: bool,
}

/// A path cut up: the directory part, the last name (none for `/`, `.` and `..`), and whether it
/// was written as a directory.
pub(crate) struct Cut<'p> {
    dir: &'p [u8],
    pub(crate) name: Option<&'p OsStr>,
    pub(crate) as_dir: bool,
}

/// Cuts a path up.
pub(crate) fn cut(path: &[u8]) -> Cut<'_> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let as_dir = end < path.len();
    let bare = &path[..end];
    let at = bare.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let (dir, name) = bare.split_at(at);
    match name {
        b"" | b"." | b".." => Cut { dir: path, name: None, as_dir: true },
        name => Cut { dir, name: Some(OsStr::from_bytes(name)), as_dir },
    }
}

impl Anchor {
    /// The path as it is used here: beneath a root it must be relative and go nowhere up.
    fn checked(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        match self {
            Self::Host if path.is_empty() => Ok(b".".to_vec()),
            Self::Host => Ok(path.to_vec()),
            Self::Root(_) => {
                let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
                let relative = &path[start..];
                if relative.split(|&b| b == b'/').any(|part| part == b"..") || path.contains(&0) {
                    let shown = String::from_utf8_lossy(path).into_owned();
                    let text = format!(
                        "the path {shown:?} is not allowed: name it from the directory that is \
                         served, without '..'"
                    );
                    return Err(Failure::new(Cause::OutsideRoot, text).into());
                }
                Ok(relative.to_vec())
            }
        }
    }

    fn open_dir(&self, path: &[u8]) -> io::Result<Dir> {
        match self {
            Self::Host if path.is_empty() => Dir::open(Path::new(".")),
            Self::Host => Dir::open(Path::new(OsStr::from_bytes(path))),
            Self::Root(root) => {
                let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
                root.open_beneath(&path[..end])
            }
        }
    }

    /// Finds the sources.
    pub(crate) fn find_sources(&self, paths: &[PathBytes]) -> Result<Vec<SourceItem>, Error> {
        paths.iter().map(|path| self.find_source(&path.0)).collect()
    }

    fn find_source(&self, typed: &[u8]) -> Result<SourceItem, Error> {
        let path = self.checked(typed)?;
        let shown = PathBuf::from(OsString::from_vec(typed.to_vec()));
        let failed = |e: io::Error| {
            Error::new(ErrorKind::Source, format!("cannot read {}: {}", shown.display(), plain(&e)))
        };
        let parts = cut(&path);
        let Some(name) = parts.name else { return self.contents_of(&path, &shown).map_err(failed) };
        let dir = self.open_dir(parts.dir).map_err(failed)?;
        let stat = dir.stat(name).map_err(failed)?;
        match (parts.as_dir, stat.kind) {
            (true, Kind::Dir | Kind::Symlink) => self.contents_of(&path, &shown).map_err(failed),
            (true, _) => Err(failed(io::ErrorKind::NotADirectory.into())),
            (false, Kind::Other) => Err(Error::new(
                ErrorKind::Source,
                format!("{} is neither a file, a directory nor a symlink", shown.display()),
            )),
            (false, _) => {
                let name = name.to_owned();
                Ok(SourceItem { dir: Arc::new(dir), name, stat, contents: false, typed: shown })
            }
        }
    }

    fn contents_of(&self, path: &[u8], shown: &Path) -> io::Result<SourceItem> {
        let dir = Arc::new(self.open_dir(path)?);
        let stat = dir.stat_self()?;
        let typed = shown.to_owned();
        Ok(SourceItem { dir, name: OsString::new(), stat, contents: true, typed })
    }

    /// Opens the destination for these sources, making its last component where that is missing.
    /// Returns it with the path that each source gets.
    pub(crate) fn open_destination(
        &self,
        typed: &[u8],
        sources: &[Source],
        options: ReceiveOptions,
    ) -> Result<(Target, Vec<PathBytes>), Error> {
        let path = self.checked(typed)?;
        let parts = cut(&path);
        let shown = PathBuf::from(OsString::from_vec(path.clone()));
        let opened = self.open_dir(&path);
        let target = match &opened {
            Ok(_) => plan::DestinationKind::Dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => plan::DestinationKind::Missing,
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => plan::DestinationKind::Other,
            Err(e) => return Err(cannot_use(&shown, e)),
        };
        let landing = plan::resolve_destination(sources, target, parts.as_dir)
            .map_err(|f| Failure::new(f.cause(), format!("{}: {}", shown.display(), f.text)))?;
        let (base, rename) = match (landing, opened, parts.name) {
            (Destination::Directory, Ok(dir), _) => (Some(dir), None),
            (Destination::Directory, Err(_), Some(name)) => {
                (self.make_destination(&parts, name, &shown, options)?, None)
            }
            (Destination::File, _, Some(name)) => {
                (Some(self.parent_of(&parts, &shown)?), Some(name.to_owned()))
            }
            (_, opened, None) => {
                return Err(cannot_use(
                    &shown,
                    &opened.err().unwrap_or_else(|| io::ErrorKind::InvalidInput.into()),
                ));
            }
        };
        let shown = if rename.is_some() {
            PathBuf::from(OsString::from_vec(parts.dir.to_vec()))
        } else {
            shown
        };
        let landing = sources.iter().map(|s| landing_of(s, &shown, rename.as_deref())).collect();
        let base = base.map(Arc::new);
        let ReceiveOptions { fsync, checksum, dry_run, set_id, .. } = options;
        let target =
            Target { base, shown, rename, fsync, checksum, dry_run, set_id, claimant: None };
        Ok((target, landing))
    }

    fn parent_of(&self, parts: &Cut<'_>, shown: &Path) -> Result<Dir, Error> {
        self.open_dir(parts.dir).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                let dir = String::from_utf8_lossy(parts.dir).into_owned();
                let text = format!(
                    "cannot create {}: the directory {dir} does not exist: create it first",
                    shown.display()
                );
                Failure::new(Cause::NotADirectory, text).into()
            }
            _ => cannot_use(shown, &e),
        })
    }

    fn make_destination(
        &self,
        parts: &Cut<'_>,
        name: &OsStr,
        shown: &Path,
        options: ReceiveOptions,
    ) -> Result<Option<Dir>, Error> {
        if options.dry_run && options.parent_is_planned {
            return Ok(None);
        }
        let parent = self.parent_of(parts, shown)?;
        if options.dry_run {
            return Ok(None);
        }
        // As mkdir(1) makes it: the umask decides, and a source's own mode may follow.
        match parent.mkdir(name, 0o777) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot_use(shown, &e));
            }
            _ => {}
        }
        parent.open_child_dir(name).map(Some).map_err(|e| cannot_use(shown, &e))
    }
}

fn cannot_use(shown: &Path, error: &io::Error) -> Error {
    let what = format!("cannot write to {}", shown.display());
    if error.kind() == io::ErrorKind::NotFound {
        // As of /proc: what holds it is there, and takes no new names. No source is missing.
        let text = format!("{what}: nothing can be made there: choose another destination");
        return Failure::new(Cause::Io, text).into();
    }
    Error::here(failure(what, error))
}

fn landing_of(source: &Source, base: &Path, rename: Option<&OsStr>) -> PathBytes {
    let name = rename.unwrap_or(OsStr::from_bytes(&source.name));
    let path = if source.contents { base.to_owned() } else { base.join(name) };
    PathBytes(path.into_os_string().into_vec())
}
