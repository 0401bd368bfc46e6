//! Resolution of operands on their own host: finds the sources, opens the destination.

use super::earlier::{self, Earlier};
use super::links::{self, Referent};
use super::root::{PathRoot, refuse_reserved_names};
use super::roots::{ItemNames, MetadataTarget, ReceiveTarget, RequestedRules, SourceItem};
use super::storage_quota::{MAX_DESTINATION_DEPTH, StorageQuota};
use crate::base::error::{Error, ErrorKind, failure, os_message};
use crate::base::owner_access::OWNER_ACCESS;
use crate::model::metadata::special_rule;
use bankfull_proto::names::{NameList, clean_name, shared_name};
use bankfull_proto::part::ResumePolicy;
use bankfull_proto::plan::{self, Destination};
use bankfull_proto::sources::{SplitPath, split_path};
use bankfull_proto::wire::control::{
    Cause, ComparisonRules, EarlierRules, Failure, MetadataRules, PathBytes, Source, WalkRules,
};
use bankfull_sys::{Dir, FileKind};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Ways out for an open file of a process as source and as destination.
const READ_OPEN_FILE: &str =
    "copy a pipe as the only source, and anything else by the name of its file";
const WRITE_OPEN_FILE: &str = "write - for standard output, or the name of a file";

/// Divisor of the limit of open files, for the directories of a request's sources. (chosen: half
/// of the limit is left to files, a quarter to other sessions)
const PARENTS_SHARE: u64 = 8;

/// Options for receiving a transfer.
#[derive(Debug, Clone)]
pub(crate) struct ReceiveOptions {
    pub(crate) fsync: crate::model::options::Fsync,
    /// Rules for what exists.
    pub(crate) comparison: ComparisonRules,
    pub(crate) dry_run: bool,
    /// True if a dry run assumes that the destination's parent exists.
    pub(crate) parent_is_planned: bool,
    /// Rule for blocks that an earlier run left.
    pub(crate) resume_policy: ResumePolicy,
    /// Rules for earlier versions.
    pub(crate) earlier: EarlierRules,
    /// Quota of the share.
    pub(crate) quota: Option<Arc<StorageQuota>>,
}

/// Directories of the sources of a request.
#[derive(Debug, Default)]
struct OpenedParents {
    /// The last one, with its path.
    last: Option<(Vec<u8>, Arc<Dir>)>,
    count: u64,
}

impl OpenedParents {
    /// Opens a directory, unless it is the last one.
    ///
    /// # Errors
    /// Too many directories; errors of the file system.
    fn open(&mut self, root: &PathRoot, path: &[u8]) -> io::Result<Arc<Dir>> {
        if let Some((_, dir)) = self.last.as_ref().filter(|(last, _)| last == path) {
            return Ok(Arc::clone(dir));
        }
        let max = bankfull_sys::max_open_files() / PARENTS_SHARE;
        if self.count >= max {
            let text = format!("the sources are in more than {max} directories: copy in parts");
            return Err(io::Error::other(text));
        }
        self.count += 1;
        let dir = Arc::new(root.open_dir(path)?);
        self.last = Some((path.to_vec(), Arc::clone(&dir)));
        Ok(dir)
    }
}

impl PathRoot {
    /// Returns the absolute path of a path in messages, without its first slash and `..`.
    ///
    /// Links are not resolved. Under a served directory, it is relative to that directory.
    fn absolute(&self, shown: &Path) -> PathBuf {
        let here = match self {
            Self::Host => std::env::current_dir().unwrap_or_default(),
            Self::Dir(_) => PathBuf::new(),
        };
        let shown = OsStr::from_bytes(self.path_to_open(shown));
        let mut root = PathBuf::new();
        for part in here.join(shown).components() {
            match part {
                Component::Normal(name) => root.push(name),
                Component::ParentDir => drop(root.pop()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        root
    }

    /// Returns the absolute path of the directory above a source in the copy.
    ///
    /// For a source whose contents alone are copied, it is the source itself.
    pub(crate) fn copy_root(&self, item: &SourceItem) -> Vec<u8> {
        let mut root = self.absolute(&item.operand);
        if !item.contents {
            root.pop();
        }
        root.into_os_string().into_vec()
    }

    /// Resolves the source operands; `list` has the names beneath the source, if they are known.
    pub(crate) fn resolve_sources(
        &self,
        paths: &[PathBytes],
        rules: &WalkRules,
        list: Option<&Arc<NameList>>,
    ) -> Result<Vec<SourceItem>, Error> {
        if rules.listed {
            let [path] = paths else {
                let text = "a list of files needs one source, the directory of its names";
                return Err(Error::new(ErrorKind::Usage, text));
            };
            let names =
                list.map_or(ItemNames::Requested, |list| ItemNames::Known(Arc::clone(list)));
            return Ok(vec![self.named_item(&path.0, names)?]);
        }
        paths.iter().try_for_each(|path| self.refuse_open_file(&path.0, READ_OPEN_FILE))?;
        if rules.relative {
            let bases = relative_names(paths)?.into_iter();
            let item = |(base, names): (Vec<u8>, NameList)| {
                self.named_item(&base, ItemNames::Known(Arc::new(names)))
            };
            return bases.map(item).collect();
        }
        // Operands of one directory share its descriptor.
        let mut opened = OpenedParents::default();
        paths.iter().map(|path| self.find_source(&path.0, rules, &mut opened)).collect()
    }

    /// Refuses a link to an open file of a process, such as `/dev/stdin`: its copy leads nowhere.
    fn refuse_open_file(&self, typed: &[u8], way_out: &str) -> Result<(), Error> {
        let path = self.validate(typed)?;
        let parts = split_path(&path);
        let (Self::Host, Some(name)) = (self, parts.name.map(OsStr::from_bytes)) else {
            return Ok(());
        };
        match self.open_dir(parts.dir) {
            Ok(dir) if links::is_open_file(&dir, name) => {
                let shown = String::from_utf8_lossy(typed);
                let text = format!("{shown} is an open file of a process: {way_out}");
                Err(Error::new(ErrorKind::Usage, text))
            }
            _ => Ok(()),
        }
    }

    /// Refuses special files among the operands that are not kept.
    ///
    /// # Errors
    /// Names the first one.
    pub(crate) fn refuse_special(items: &[SourceItem], kept: MetadataRules) -> Result<(), Error> {
        let is_refused = |item: &&SourceItem| {
            item.stat.special.is_some_and(|special| !kept.has(special_rule(special)))
        };
        match items.iter().find(is_refused) {
            None => Ok(()),
            Some(item) => {
                let text = format!(
                    "{} is neither a file, a directory nor a symlink: --specials keeps FIFOs and \
                     sockets, --devices devices",
                    item.operand.display()
                );
                Err(Error::new(ErrorKind::Source, text))
            }
        }
    }

    /// Returns the directory of names that are copied.
    fn named_item(&self, typed: &[u8], names: ItemNames) -> Result<SourceItem, Error> {
        let path = self.validate(typed)?;
        let shown = PathBuf::from(OsString::from_vec(typed.to_vec()));
        let item = self.contents_of(&path, &shown).map_err(|e| {
            let text = format!("cannot read {}: {}", shown.display(), os_message(&e));
            Error::new(ErrorKind::Source, text)
        })?;
        Ok(SourceItem { names: Some(names), ..item })
    }

    /// Finds a source, whose directory may be `opened`.
    fn find_source(
        &self,
        typed: &[u8],
        rules: &WalkRules,
        opened: &mut OpenedParents,
    ) -> Result<SourceItem, Error> {
        let path = self.validate(typed)?;
        let shown = PathBuf::from(OsString::from_vec(typed.to_vec()));
        let failed = |e: io::Error| {
            Error::new(
                ErrorKind::Source,
                format!("cannot read {}: {}", shown.display(), os_message(&e)),
            )
        };
        let parts = split_path(&path);
        let Some(name) = parts.name.map(OsStr::from_bytes) else {
            return self.contents_of(&path, &shown).map_err(failed);
        };
        let dir = opened.open(self, parts.dir).map_err(failed)?;
        let mut stat = dir.stat(name).map_err(failed)?;
        let mut referent = None;
        if !parts.must_be_dir && stat.kind == FileKind::Symlink && rules.follows_links() {
            let found = links::follow(self, parts.dir, &dir, name);
            let is_wanted = |found: &Referent| rules.copy_links || found.stat.kind == FileKind::Dir;
            referent = match found {
                Err(e) if rules.copy_links => return Err(failed(e)),
                found => found.ok().filter(is_wanted),
            };
            stat = referent.as_ref().map_or(stat, |found| found.stat);
        }
        match (parts.must_be_dir, stat.kind) {
            (true, FileKind::Dir | FileKind::Symlink) => {
                self.contents_of(&path, &shown).map_err(failed)
            }
            (true, _) => Err(failed(io::ErrorKind::NotADirectory.into())),
            (false, _) => {
                let name = name.to_owned();
                Ok(SourceItem {
                    dir,
                    name,
                    stat,
                    contents: false,
                    operand: shown,
                    referent,
                    names: None,
                    input: None,
                })
            }
        }
    }

    fn contents_of(&self, path: &[u8], shown: &Path) -> io::Result<SourceItem> {
        let dir = Arc::new(self.open_dir(path)?);
        let stat = dir.stat_self()?;
        let operand = shown.to_owned();
        let (name, referent, names, input) = (OsString::new(), None, None, None);
        Ok(SourceItem { dir, name, stat, contents: true, operand, referent, names, input })
    }

    /// Returns the kind of a destination, which was `opened` if it is a directory.
    fn destination_kind(
        &self,
        typed: &[u8],
        opened: &io::Result<Dir>,
        shown: &Path,
    ) -> Result<plan::DestinationKind, Error> {
        match opened {
            Ok(_) => Ok(plan::DestinationKind::Dir),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(plan::DestinationKind::Missing),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                self.refuse_open_file(typed, WRITE_OPEN_FILE)?;
                Ok(plan::DestinationKind::Other)
            }
            Err(e) => Err(cannot_use(shown, e)),
        }
    }

    /// Opens the destination, creating its last component if missing.
    ///
    /// Returns it with the destination path of each source.
    pub(crate) fn open_destination(
        &self,
        typed: &[u8],
        sources: &[Source],
        options: ReceiveOptions,
    ) -> Result<(ReceiveTarget, Vec<PathBytes>), Error> {
        let path = self.validate(typed)?;
        sources.iter().try_for_each(|source| refuse_reserved_names(&source.name))?;
        if options.quota.is_some() {
            refuse_beyond_walk(&path)?;
        }
        let parts = split_path(&path);
        let shown = PathBuf::from(OsString::from_vec(path.clone()));
        let opened = self.open_own_dir(&path, &parts, sources, options.dry_run);
        let target = self.destination_kind(typed, &opened, &shown)?;
        let destinations = plan::resolve_destination(sources, target, parts.must_be_dir)
            .map_err(|f| Failure::new(f.cause(), format!("{}: {}", shown.display(), f.text)))?;
        let is_new = destinations == Destination::Directory && opened.is_err();
        let (base, rename) = match (destinations, opened, parts.name.map(OsStr::from_bytes)) {
            (Destination::Directory, Ok(dir), _) => (Some(dir), None),
            (Destination::Directory, Err(_), Some(name)) => {
                (self.make_destination(&parts, name, &shown, &options)?, None)
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
        let destinations =
            sources.iter().map(|s| destination_of(s, &shown, rename.as_deref())).collect();
        let base = base.map(Arc::new);
        let served_root = self.served_root().map_err(|e| cannot_use(&shown, &e))?;
        // Beside a file that has a name of its own, not beneath it.
        let above = if rename.is_some() { parts.dir } else { &path };
        let backups = options.quota.and(earlier::backup_path(above, &options.earlier));
        backups.as_deref().map_or(Ok(()), refuse_beyond_walk)?;
        let rules = (&options.earlier, options.dry_run);
        let earlier = Earlier::open(self, above, base.as_deref(), rules)?;
        let ReceiveOptions { fsync, comparison, dry_run, resume_policy, .. } = options;
        let target = ReceiveTarget {
            base,
            is_new,
            filter_root: self.absolute(&shown).into_os_string().into_vec(),
            shown,
            rename,
            fsync,
            comparison,
            dry_run,
            resume_policy,
            served_root,
            sources: sources.to_vec(),
            requested: RequestedRules::default(),
            metadata: MetadataTarget::default(),
            earlier,
            merge_handle: None,
            output: None,
        };
        Ok((target, destinations))
    }

    /// Opens the destination; gives its owner access if an earlier run left it without.
    ///
    /// Only if the copy sets its mode at the end.
    fn open_own_dir(
        &self,
        path: &[u8],
        parts: &SplitPath<'_>,
        sources: &[Source],
        dry_run: bool,
    ) -> io::Result<Dir> {
        let opened = self.open_dir(path);
        let is_denied = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
        let sets_mode = !dry_run && sources.iter().any(|source| source.contents);
        let name = parts.name.map(OsStr::from_bytes).filter(|_| sets_mode);
        let (true, Some(name)) = (opened.as_ref().is_err_and(is_denied), name) else {
            return opened;
        };
        let parent = self.open_dir(parts.dir)?;
        let stat = parent.stat(name)?;
        if stat.kind == FileKind::Dir && self.served_root()? != Some((stat.dev, stat.ino)) {
            parent.add_mode(name, OWNER_ACCESS)?;
        }
        self.open_dir(path)
    }

    fn parent_of(&self, parts: &SplitPath<'_>, shown: &Path) -> Result<Dir, Error> {
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
        parts: &SplitPath<'_>,
        name: &OsStr,
        shown: &Path,
        options: &ReceiveOptions,
    ) -> Result<Option<Dir>, Error> {
        if options.dry_run && options.parent_is_planned {
            return Ok(None);
        }
        let parent = self.parent_of(parts, shown)?;
        if options.dry_run {
            return Ok(None);
        }
        if let Some(quota) = &options.quota {
            quota.add_directory()?;
        }
        // As mkdir(1): the umask decides; a source directory's own mode may follow.
        match parent.mkdir(name, 0o777) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(cannot_use(shown, &e));
            }
            _ => {}
        }
        parent.open_child_dir(name).map(Some).map_err(|e| cannot_use(shown, &e))
    }
}

/// Splits operands with their paths into directories and names beneath them.
///
/// The part before `/./` names the directory and is not sent.
///
/// # Errors
/// Kept paths with `..`, and names that two directories have.
pub(crate) fn relative_names(paths: &[PathBytes]) -> Result<Vec<(Vec<u8>, NameList)>, Error> {
    let mut bases: Vec<(Vec<u8>, Vec<Vec<u8>>)> = Vec::new();
    for PathBytes(path) in paths {
        let (base, name): (&[u8], &[u8]) = match path.windows(3).position(|part| part == b"/./") {
            Some(0) => (b"/", &path[3..]),
            Some(at) => (&path[..at], &path[at + 3..]),
            None if path.starts_with(b"/") => (b"/", path),
            None => (b"", path),
        };
        let has_parent = name.split(|&byte| byte == b'/').any(|part| part == b"..");
        let name = clean_name(name).filter(|_| !has_parent).ok_or_else(|| {
            let shown = String::from_utf8_lossy(path).into_owned();
            let text = format!(
                "the path {shown:?} cannot be kept with its '..': write /./ where the kept part \
                 begins"
            );
            Error::from(Failure::new(Cause::Usage, text))
        })?;
        match bases.iter_mut().find(|(known, _)| known == base) {
            Some((_, names)) => names.push(name),
            None => bases.push((base.to_vec(), vec![name])),
        }
    }
    let bases: Vec<_> =
        bases.into_iter().map(|(base, names)| (base, NameList::new(names, true))).collect();
    match shared_name(bases.iter().map(|(_, names)| names)) {
        None => Ok(bases),
        Some(name) => {
            let shown = String::from_utf8_lossy(name);
            let text = format!(
                "two sources have {shown:?} in the copy and would overwrite each other: copy them \
                 one by one"
            );
            Err(Failure::new(Cause::Usage, text).into())
        }
    }
}

/// Refuses a destination that is too deep for a walk of the quota.
fn refuse_beyond_walk(path: &[u8]) -> Result<(), Error> {
    let depth = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count();
    if depth < MAX_DESTINATION_DEPTH {
        return Ok(());
    }
    let text = format!(
        "a destination of {depth} directories is too deep for a share with a quota: choose one of \
         less than {MAX_DESTINATION_DEPTH}"
    );
    Err(Failure::new(Cause::Usage, text).into())
}

fn cannot_use(shown: &Path, error: &io::Error) -> Error {
    let what = format!("cannot write to {}", shown.display());
    if error.kind() == io::ErrorKind::NotFound {
        // As in /proc: the parent exists but accepts no new names. No source is missing.
        let text = format!("{what}: nothing can be created there: choose another destination");
        return Failure::new(Cause::Io, text).into();
    }
    Error::on_this_host(failure(what, error))
}

fn destination_of(source: &Source, base: &Path, rename: Option<&OsStr>) -> PathBytes {
    let name = rename.unwrap_or(OsStr::from_bytes(&source.name));
    let path = if source.contents { base.to_owned() } else { base.join(name) };
    PathBytes(path.into_os_string().into_vec())
}
