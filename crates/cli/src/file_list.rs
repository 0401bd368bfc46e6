//! The list of names that `--files-from` reads.

use crate::flags::SelectionFlags;
use crate::output::printable;
use bankfull::{Error, ErrorKind, FileList, FilterRule};
use std::fs::File;
use std::io::{self, Read};

/// Maximum size of a list of names in bytes. (chosen: some ten million names)
const MAX_LIST_BYTES: u64 = 1 << 30;

/// Refuses lists that would be read in another way than the flags say.
pub(crate) fn refuse_conflicts(
    rules: &[FilterRule],
    selection: &SelectionFlags,
) -> Result<(), Error> {
    let usage = |text: &str| Err(Error::new(ErrorKind::Usage, text));
    let files = rules.iter().filter_map(|rule| match rule {
        FilterRule::ExcludeFrom(name) | FilterRule::IncludeFrom(name) => Some(name.as_os_str()),
        _ => None,
    });
    if selection.from0 && files.clone().next().is_some() {
        return usage(
            "--from0 is for --files-from alone: --exclude-from and --include-from have one pattern \
             on each line",
        );
    }
    let lists = selection.files_from.iter().map(|list| list.as_os_str());
    if files.chain(lists).filter(|name| *name == "-").count() > 1 {
        return usage("standard input can be read once: write all but one of the lists to files");
    }
    Ok(())
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
    done.map_err(|e| usage(format!("cannot read the list {shown}: {e}")))?;
    if content.len() as u64 > MAX_LIST_BYTES {
        return Err(usage(format!("the list {shown} exceeds 1 GiB: split it")));
    }
    FileList::parse(&content, &shown, (flags.from0, flags.recursive)).map(Some)
}
