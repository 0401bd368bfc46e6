//! Earlier versions at the destination: kept as backups when they are replaced or deleted, and
//! found in directories of earlier copies.

use super::root::{PathRoot, refuse_reserved_names};
use crate::base::error::{Error, ErrorKind, os_message};
use crate::base::owner_access::OWNER_ACCESS;
use crate::base::part_names::is_part_name;
use bankfull_proto::sources::split_path;
use bankfull_proto::wire::control::{BackupRules, Cause, EarlierRules, Failure};
use bankfull_sys::{Dir, FileKind, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

/// Suffix of backups beside their originals. (rsync(1), cp(1))
const BACKUP_SUFFIX: &str = "~";

/// Attempts to place a backup while another process takes its name. (chosen: more than chance
/// needs)
const MAX_TRIES: u32 = 10;

/// Earlier versions at the destination.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    pub(crate) backup: Option<Backup>,
    /// Directories of earlier copies, whose unchanged files become hard links.
    pub(crate) link_dest: Vec<Arc<Dir>>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
}

/// Place of backups.
#[derive(Debug)]
pub(crate) struct Backup {
    /// Directory with the paths of the destination; `None`: beside the originals.
    dir: Option<Arc<Dir>>,
    /// The destination.
    base: Arc<Dir>,
    suffix: OsString,
}

impl Earlier {
    /// Opens the directories of earlier versions, relative to the destination.
    ///
    /// # Errors
    /// A directory that cannot be used, or is on another file system.
    pub(crate) fn open(
        root: &PathRoot,
        destination: &[u8],
        base: Option<&Dir>,
        (rules, dry_run): (&EarlierRules, bool),
    ) -> Result<Self, Error> {
        let mut earlier = Self::default();
        // In a dry run the destination may not exist yet, nor the directory that it will be in.
        let planned = match base {
            Some(_) => None,
            None => root.open_dir(split_path(destination).dir).ok(),
        };
        let device = base.or(planned.as_ref()).and_then(device_of);
        for dir in rules.link_dest.iter().flatten() {
            refuse_reserved_names(&dir.0)?;
            let shown = OsStr::from_bytes(&dir.0).to_string_lossy().into_owned();
            let path = match base {
                Some(_) => beneath(destination, &dir.0),
                None => beneath_planned(destination, &dir.0),
            };
            match root.open_dir(&path) {
                Ok(dir) if device.is_some() && device_of(&dir) != device => {
                    let text = format!(
                        "--link-dest {shown} is on another file system than the destination: \
                         choose a directory beside it"
                    );
                    return Err(Failure::new(Cause::Usage, text).into());
                }
                Ok(dir) => earlier.link_dest.push(Arc::new(dir)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let text = format!("--link-dest {shown} does not exist: everything is copied");
                    earlier.warnings.push(text);
                }
                Err(e) => return Err(unusable("--link-dest", &shown, &e)),
            }
        }
        if let (Some(backup), Some(base)) = (&rules.backup, base) {
            earlier.backup = Backup::open(root, destination, base, (backup, dry_run))?;
        }
        Ok(earlier)
    }
}

/// Returns the path of the directory for backups, if they have one.
pub(super) fn backup_path(destination: &[u8], rules: &EarlierRules) -> Option<Vec<u8>> {
    let dir = rules.backup.as_ref()?.dir.as_ref()?;
    Some(beneath(destination, &dir.0))
}

fn device_of(dir: &Dir) -> Option<u64> {
    dir.stat_self().ok().map(|stat| stat.dev)
}

/// Returns the path of a directory that is relative to the destination.
fn beneath(destination: &[u8], dir: &[u8]) -> Vec<u8> {
    match (destination, dir) {
        (_, [b'/', ..]) | (b"", _) => dir.to_vec(),
        _ => [destination, b"/", dir].concat(),
    }
}

/// Returns the same for a destination that does not exist, from which `..` leads nowhere.
fn beneath_planned(destination: &[u8], dir: &[u8]) -> Vec<u8> {
    match dir.strip_prefix(b"../") {
        Some(beside) => beneath(split_path(destination).dir, beside),
        None => beneath(destination, dir),
    }
}

fn unusable(flag: &str, shown: &str, error: &io::Error) -> Error {
    let text = format!("cannot use {flag} {shown}: {}", os_message(error));
    let kind = match error.kind() {
        io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => ErrorKind::Usage,
        _ => ErrorKind::Local,
    };
    Error::new(kind, text)
}

/// Opens a directory, and creates what is missing of its path.
///
/// # Errors
/// `CrossesDevices` if that would be on another file system than `device`.
fn make_path(root: &PathRoot, path: &[u8], device: u64) -> io::Result<Dir> {
    match root.open_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let parts = split_path(path);
    let name = parts.name.map(OsStr::from_bytes).ok_or(io::ErrorKind::NotFound)?;
    let parent = make_path(root, parts.dir, device)?;
    if parent.stat_self()?.dev != device {
        return Err(io::ErrorKind::CrossesDevices.into());
    }
    match parent.mkdir(name, 0o777) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => parent.open_child_dir(name),
    }
}

/// Opens a directory of backups; a new one gets the mode of the original, and access for its owner.
fn make_like(above: &Dir, name: &OsStr, original: Option<&Dir>) -> io::Result<Dir> {
    match above.mkdir(name, 0o700) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return above.open_child_dir(name),
        made => made?,
    }
    let made = above.open_child_dir(name)?;
    if let Some(mode) = original.and_then(|dir| dir.stat_self().ok()).map(|stat| stat.mode) {
        made.set_own_mode(mode & 0o777 | OWNER_ACCESS)?;
    }
    Ok(made)
}

impl Backup {
    /// Opens the place of backups; `None` if a dry run would create it.
    fn open(
        root: &PathRoot,
        destination: &[u8],
        base: &Dir,
        (rules, dry_run): (&BackupRules, bool),
    ) -> Result<Option<Self>, Error> {
        let usage = |text: String| Err(Failure::new(Cause::Usage, text).into());
        let identity = |dir: &Dir| dir.stat_self().map(|stat| (stat.dev, stat.ino));
        let own = identity(base).map_err(|e| unusable("--backup", "", &e))?;
        let base = Arc::new(base.try_clone().map_err(|e| unusable("--backup", "", &e))?);
        let given = rules.suffix.as_ref().map(|suffix| OsStr::from_bytes(&suffix.0).to_owned());
        let Some(dir) = &rules.dir else {
            let suffix = given.unwrap_or_else(|| BACKUP_SUFFIX.into());
            if suffix.is_empty() {
                return usage("a backup beside its original needs a suffix".to_owned());
            }
            return Ok(Some(Self { dir: None, base, suffix }));
        };
        refuse_reserved_names(&dir.0)?;
        let shown = OsStr::from_bytes(&dir.0).to_string_lossy().into_owned();
        let path = beneath(destination, &dir.0);
        let failed = |e| unusable("--backup-dir", &shown, &e);
        let opened = match root.open_dir(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && dry_run => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => make_path(root, &path, own.0),
            opened => opened,
        };
        let elsewhere = || {
            usage(format!(
                "--backup-dir {shown} is on another file system than the destination: choose a \
                 directory beside it"
            ))
        };
        let opened = match opened {
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => return elsewhere(),
            opened => opened.map_err(failed)?,
        };
        let found = identity(&opened).map_err(failed)?;
        if found.0 != own.0 {
            return elsewhere();
        }
        let suffix = given.unwrap_or_default();
        match found == own {
            true if suffix.is_empty() => usage(format!(
                "--backup-dir {shown} is the destination itself: choose another directory, or add \
                 --suffix"
            )),
            // As without a directory.
            true => Ok(Some(Self { dir: None, base, suffix })),
            false => Ok(Some(Self { dir: Some(Arc::new(opened)), base, suffix })),
        }
    }

    /// True if backups have a directory of their own.
    pub(crate) fn is_apart(&self) -> bool {
        self.dir.is_some()
    }

    /// True if the entry `name` of a directory holds backups, which are not deleted.
    pub(crate) fn holds(&self, dir: &Dir, name: &OsStr) -> bool {
        let identity = |stat: Stat| (stat.dev, stat.ino);
        match &self.dir {
            None => name.as_bytes().ends_with(self.suffix.as_bytes()),
            Some(backups) => match (dir.stat(name), backups.stat_self()) {
                (Ok(found), Ok(own)) => identity(found) == identity(own),
                _ => false,
            },
        }
    }

    /// Keeps an entry as a backup under a second name, replacing an earlier backup.
    ///
    /// An entry that cannot have a second name is renamed. Directories are not backed up.
    ///
    /// `above` is the path of the entry's directory beneath the destination.
    ///
    /// # Errors
    /// The backup cannot be made; the entry then stays.
    pub(crate) fn keep(&self, dir: &Dir, name: &OsStr, above: &Path) -> io::Result<()> {
        match dir.stat(name) {
            Ok(stat) if stat.kind == FileKind::Dir => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        }
        let kept_name = [name.as_bytes(), self.suffix.as_bytes()].concat();
        // The backup would replace the part file of a file that another session is receiving.
        if is_part_name(&kept_name) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "its backup has a reserved name",
            ));
        }
        let kept_name = OsStr::from_bytes(&kept_name);
        let kept = match &self.dir {
            None => return replace_by_link(dir, kept_name, dir, name),
            Some(root) => root,
        };
        let mut at = Arc::clone(kept);
        let mut original = self.base.try_clone().ok();
        for part in above.components() {
            if let Component::Normal(part) = part {
                original = original.and_then(|dir| dir.open_child_dir(part).ok());
                at = Arc::new(make_like(&at, part, original.as_ref())?);
            }
        }
        replace_by_link(&at, kept_name, dir, name)
    }
}

/// Makes a hard link in the place of any other file.
///
/// A file that cannot have one is renamed.
///
/// # Errors
/// Errors of the file system; `InvalidInput` if both names are of the same file.
fn replace_by_link(to: &Dir, to_name: &OsStr, from: &Dir, name: &OsStr) -> io::Result<()> {
    for _ in 0..MAX_TRIES {
        match to.link(to_name, from, name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) if may_have_no_link(&e) => return to.rename_from(from, name, to_name),
            linked => return linked,
        }
        let identity = |dir: &Dir, name| dir.stat(name).map(|stat| (stat.dev, stat.ino));
        match identity(to, to_name) {
            Ok(found) if found == identity(from, name)? => {
                // An interrupted run has made the backup already.
                if to_name != name {
                    return Ok(());
                }
                let text = "its backup would be the file itself";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            _ => {}
        }
        match to.unlink(to_name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    to.link(to_name, from, name)
}

/// True if a file may not have another name: it belongs to another user, or has too many.
///
/// Also on a file system without hard links. (link(2), proc(5): protected_hardlinks)
fn may_have_no_link(error: &io::Error) -> bool {
    let kinds =
        [io::ErrorKind::PermissionDenied, io::ErrorKind::TooManyLinks, io::ErrorKind::Unsupported];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backup_takes_the_place_of_an_earlier_one() {
        let here = tempfile::tempdir().unwrap();
        let dir = Dir::open(here.path()).unwrap();
        let write = |name: &str, text: &str| std::fs::write(here.path().join(name), text).unwrap();
        write("f", "new");
        write("f~", "old");
        let base = Arc::new(dir.try_clone().unwrap());
        let beside = Backup { dir: None, base: Arc::clone(&base), suffix: "~".into() };
        beside.keep(&dir, OsStr::new("f"), Path::new("")).unwrap();
        beside.keep(&dir, OsStr::new("none"), Path::new("")).unwrap();
        let read = |name: &str| std::fs::read_to_string(here.path().join(name)).unwrap();
        assert_eq!(read("f~"), "new");
        assert!(beside.holds(&dir, OsStr::new("f~")) && !beside.holds(&dir, OsStr::new("f")));
        std::fs::create_dir(here.path().join("old")).unwrap();
        let old = Arc::new(dir.open_child_dir(OsStr::new("old")).unwrap());
        let apart = Backup {
            dir: Some(Arc::clone(&old)),
            base: Arc::clone(&base),
            suffix: OsString::new(),
        };
        std::fs::create_dir_all(here.path().join("a/b")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o750);
        std::fs::set_permissions(here.path().join("a"), mode).unwrap();
        apart.keep(&dir, OsStr::new("f"), Path::new("a/b")).unwrap();
        assert_eq!(read("old/a/b/f"), "new");
        assert_eq!(old.stat(OsStr::new("a")).unwrap().mode, 0o750);
        // Neither is a backup if both names are of one file.
        let itself = Backup { suffix: OsString::new(), ..beside };
        assert!(itself.keep(&dir, OsStr::new("f"), Path::new("")).is_err());
        assert_eq!(read("f"), "new");
        write(".bankfull-0123456789abcdef", "x");
        let reserved = Backup { dir: None, base, suffix: ".part".into() };
        let name = OsStr::new(".bankfull-0123456789abcdef");
        assert!(reserved.keep(&dir, name, Path::new("")).is_err());
        assert!(apart.holds(&dir, OsStr::new("old")) && !apart.holds(&dir, OsStr::new("f")));
    }
}
