//! The list of names that `--files-from` reads.

use crate::flags::SelectionFlags;
use crate::output::printable;
use bankfull::{Error, ErrorKind, FileList, FilterRule, Location};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum size of a list of names in bytes. (chosen: some ten million names)
const MAX_LIST_BYTES: u64 = 1 << 30;

/// Refuses lists that would be read in another way than the flags say.
pub(crate) fn refuse_conflicts(
    rules: &[FilterRule],
    selection: &SelectionFlags,
    sources: &[OsString],
) -> Result<(), Error> {
    let usage = |text: &str| Err(Error::new(ErrorKind::Usage, text));
    let files = rules.iter().filter_map(|rule| match rule {
        FilterRule::ExcludeFrom(name) | FilterRule::IncludeFrom(name) => Some(name.as_os_str()),
        FilterRule::Rule(text) => merged_file(text),
        _ => None,
    });
    if selection.from0 && files.clone().next().is_some() {
        return usage(
            "--from0 is for --files-from alone: --exclude-from, --include-from and merged files have \
             one pattern on each line",
        );
    }
    let lists = selection.files_from.iter().map(|list| list.as_os_str());
    let sources = sources.iter().map(OsString::as_os_str);
    if files.chain(lists).chain(sources).filter(|name| *name == "-").count() > 1 {
        return usage("standard input can be read once: write the lists to files");
    }
    Ok(())
}

/// Returns the name of the file that a filter rule merges, if any.
fn merged_file(rule: &OsStr) -> Option<&OsStr> {
    let bytes = rule.as_bytes();
    let is_merge = bytes.starts_with(b".") || bytes.starts_with(b"merge");
    let end = bytes.iter().position(|byte| matches!(byte, b' ' | b'_' | b'\t'))?;
    is_merge.then(|| OsStr::from_bytes(&bytes[end + 1..]))
}

/// Describes a list that cannot be read, as it may be on another host.
fn unreadable(path: &Path, error: &io::Error) -> String {
    let shown = printable(path);
    let is_remote = || {
        let is_elsewhere = !matches!(Location::parse(path.as_os_str()), Ok(Location::Local(_)));
        // rsync reads `:path` on the host of the source.
        is_elsewhere && path.as_os_str().as_encoded_bytes().contains(&b':')
    };
    match error.kind() {
        io::ErrorKind::NotFound if is_remote() => format!(
            "cannot read the list {shown}: lists are read on this host: copy it here first, and \
             name the copy"
        ),
        _ => Error::local(format!("cannot read the list {shown}"), error).to_string(),
    }
}

/// Reads the list of names, if there is one that is no standard input.
///
/// # Errors
/// [`ErrorKind::Usage`] for a list that cannot be read, or has bad names.
pub(crate) fn read_file(flags: &SelectionFlags) -> Result<Option<FileList>, Error> {
    match flags.files_from.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        true => Ok(None),
        false => read(flags),
    }
}

/// Reads the list of names, if there is one.
pub(crate) fn read(flags: &SelectionFlags) -> Result<Option<FileList>, Error> {
    let Some(path) = &flags.files_from else { return Ok(None) };
    let shown = printable(path);
    let mut content = Vec::new();
    let mut read =
        |input: &mut dyn Read| input.take(MAX_LIST_BYTES + 1).read_to_end(&mut content).map(drop);
    let done = match path.as_os_str() == "-" {
        true => read(&mut io::stdin().lock()),
        false => File::open(path).and_then(|mut file| read(&mut file)),
    };
    let usage = |text| Error::new(ErrorKind::Usage, text);
    done.map_err(|e| usage(unreadable(path, &e)))?;
    if content.len() as u64 > MAX_LIST_BYTES {
        return Err(usage(format!("the list {shown} exceeds 1 GiB: split it")));
    }
    FileList::parse(&content, &shown, (flags.from0, flags.recursive)).map(Some)
}
