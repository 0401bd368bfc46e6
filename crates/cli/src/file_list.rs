//! The list of names that `--files-from` reads.

use crate::flags::SelectionFlags;
use crate::output::printable;
use bankfull::{Error, ErrorKind, FileList};
use std::fs::File;
use std::io::{self, Read};

/// Maximum size of a list of names in bytes. (chosen: some ten million names)
const MAX_LIST_BYTES: u64 = 1 << 30;

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
