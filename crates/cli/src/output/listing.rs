//! Text of a listing: one line for each entry on standard output, failures on standard error.

use super::quiet::{failed_line, rest_of_failed};
use super::text::{printable, utc};
use super::{Beginning, Ending, Output, Render};
use crate::exit::Exit;
use crate::flags::LsFlags;
use bankfull::{Event, FailureFold, ListedEntry, ListedKind, Progress};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Bits of set-user-ID, set-group-ID and sticky, with their letters. (as in ls)
const SPECIAL_BITS: [(u32, usize, u8); 3] =
    [(0o4000, 3, b's'), (0o2000, 6, b's'), (0o1000, 9, b't')];

/// Output of `bankfull ls`.
pub(super) struct Listing {
    output: Output,
    is_long: bool,
    /// Entries that are shown at the end, by name; `None`: each is shown at once.
    sorted: Option<BTreeMap<PathBuf, Vec<u8>>>,
    /// True on a terminal, which must not interpret control characters in names.
    escapes: bool,
    failed: FailureFold,
}

impl Listing {
    /// Creates the output; the entries of a single directory are sorted.
    pub(super) fn new(output: Output, flags: &LsFlags, escapes: bool) -> Self {
        let sorted = (!flags.recursive).then(BTreeMap::new);
        Self { output, is_long: flags.long, sorted, escapes, failed: FailureFold::default() }
    }

    fn entry_line(&self, entry: &ListedEntry) -> Vec<u8> {
        let name = |path: &Path| match self.escapes {
            true => printable(path).into_bytes(),
            false => path.as_os_str().as_bytes().to_vec(),
        };
        let mut line = Vec::new();
        if self.is_long {
            let account = |name: &OsStr| printable(Path::new(name));
            let since = entry.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let time = since.map_or_else(|| "-".to_owned(), |since| utc(since.as_secs()));
            let (mode, bytes) = (mode_text(entry.kind, entry.mode), entry.bytes);
            let (owner, group) = (account(&entry.owner), account(&entry.group));
            line = format!("{mode} {owner:<8} {group:<8} {bytes:>14} {time:>20} ").into_bytes();
        }
        line.extend(name(&entry.path));
        match &entry.target {
            Some(target) if self.is_long => {
                line.extend(b" -> ");
                line.extend(name(target));
            }
            None if entry.kind == ListedKind::Dir => line.push(b'/'),
            _ => {}
        }
        line.push(b'\n');
        line
    }
}

impl Render for Listing {
    fn begin(&mut self, _beginning: &Beginning) {}

    fn event(&mut self, event: &Event) {
        if self.output.is_closed() {
            // As for other programs in a pipe, whose reader has seen enough.
            bankfull::exit_now(Exit::Done as u8);
        }
        match event {
            Event::Listed(entry) => {
                let line = self.entry_line(entry);
                match &mut self.sorted {
                    Some(sorted) => drop(sorted.insert(entry.path.clone(), line)),
                    None => self.output.data(&line),
                }
            }
            Event::FileFailed { path, message, .. } if self.failed.show_next(path, message) => {
                self.output.message(&failed_line(path, message));
            }
            _ => {}
        }
    }

    fn tick(&mut self, _progress: &Progress, _now: Duration) {}

    fn stopping(&mut self) {}

    fn end(&mut self, ending: &Ending<'_>) {
        let sorted = self.sorted.take().unwrap_or_default();
        sorted.values().for_each(|line| self.output.data(line));
        for rest in rest_of_failed(&mut self.failed) {
            self.output.message(&format!("bankfull: {rest}"));
        }
        if let Ending::Failed(error) = ending {
            self.output.error(&error.to_string());
        }
    }

    fn wants_completed(&self) -> bool {
        false
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

/// Returns the name of a kind in JSON lines.
pub(super) fn kind_name(kind: ListedKind) -> &'static str {
    match kind {
        ListedKind::Dir => "directory",
        ListedKind::Symlink => "symlink",
        ListedKind::Fifo => "fifo",
        ListedKind::Socket => "socket",
        ListedKind::CharDevice => "char-device",
        ListedKind::BlockDevice => "block-device",
        _ => "file",
    }
}

/// Formats kind and mode as ls does: `-rw-r--r--`.
fn mode_text(kind: ListedKind, mode: u32) -> String {
    let letter = match kind {
        ListedKind::Dir => b'd',
        ListedKind::Symlink => b'l',
        ListedKind::Fifo => b'p',
        ListedKind::Socket => b's',
        ListedKind::CharDevice => b'c',
        ListedKind::BlockDevice => b'b',
        _ => b'-',
    };
    let mut text = vec![letter];
    for bit in (0..9).rev() {
        text.push(if mode >> bit & 1 == 1 { b"xwr"[bit % 3] } else { b'-' });
    }
    for (bit, at, letter) in SPECIAL_BITS {
        if mode & bit != 0 {
            text[at] = if text[at] == b'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_shown_as_by_ls() {
        let cases = [
            (ListedKind::File, 0o644, "-rw-r--r--"),
            (ListedKind::Dir, 0o1777, "drwxrwxrwt"),
            (ListedKind::File, 0o4755, "-rwsr-xr-x"),
            (ListedKind::File, 0o6600, "-rwS--S---"),
            (ListedKind::Fifo, 0, "p---------"),
        ];
        for (kind, mode, text) in cases {
            assert_eq!(mode_text(kind, mode), text);
        }
    }
}
