//! Folding of failed files: a limited number is shown individually, and the others are counted by
//! reason.

use super::error::printable;
use std::path::Path;

/// Failed files shown individually. (chosen: one screen)
const MAX_SHOWN: u64 = 20;

/// Failed files shown individually per reason. (chosen: enough to locate them)
const MAX_ALIKE_SHOWN: u64 = 5;

/// Selection of the failed files to show, and the number of the others by reason.
#[derive(Debug, Default)]
pub struct FailureFold {
    shown: u64,
    /// Counts by reason, for the reasons shown.
    alike: Vec<Alike>,
    /// Files not shown, with other reasons.
    hidden: u64,
}

/// Files that failed for the same reason.
#[derive(Debug)]
struct Alike {
    reason: String,
    shown: u64,
    hidden: u64,
}

/// Failed files that were not shown individually.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoldedFailures {
    /// Number of files.
    pub files: u64,
    /// Their common reason; `None` for various other reasons.
    pub reason: Option<String>,
}

impl FailureFold {
    /// True if the next failed file is to be shown individually.
    pub fn show_next(&mut self, path: &Path, message: &str) -> bool {
        self.shows_next(reason(path, message))
    }

    fn shows_next(&mut self, reason: String) -> bool {
        let has_room = self.shown < MAX_SHOWN;
        let known = self.alike.iter_mut().find(|alike| alike.reason == reason);
        let show = match known {
            Some(alike) => {
                let show = has_room && alike.shown < MAX_ALIKE_SHOWN;
                *(if show { &mut alike.shown } else { &mut alike.hidden }) += 1;
                show
            }
            None if has_room => {
                self.alike.push(Alike { reason, shown: 1, hidden: 0 });
                true
            }
            None => {
                self.hidden += 1;
                false
            }
        };
        self.shown += u64::from(show);
        show
    }

    /// Returns the files not shown, and starts anew.
    pub fn take_folded(&mut self) -> Vec<FoldedFailures> {
        let Self { alike, hidden, .. } = std::mem::take(self);
        let same = alike.into_iter().map(|alike| (alike.hidden, Some(alike.reason)));
        let all = same.chain([(hidden, None)]).filter(|&(files, _)| files > 0);
        all.map(|(files, reason)| FoldedFailures { files, reason }).collect()
    }
}

/// Returns the reason in the message of a failed file: the part after its name, or the whole
/// message.
fn reason(path: &Path, message: &str) -> String {
    let message = printable(message);
    let shown = |name: &std::ffi::OsStr| printable(&name.to_string_lossy());
    let name = path.file_name().map(shown).unwrap_or_default();
    let behind = |(at, _): (usize, &str)| {
        let (before, after) = (&message[..at], &message[at + name.len()..]);
        // A word of the sentence may equal the name.
        let is_prefix = before.ends_with(' ') && after.starts_with(':');
        let matches = before.is_empty() || before.ends_with(['/', '"']) || is_prefix;
        let reason = after.trim_start_matches(['"', ':', ' ']);
        (matches && reason.len() < after.len() && !reason.is_empty()).then(|| reason.to_owned())
    };
    // From the end: a directory with the same name may precede the file.
    let found = message.rmatch_indices(&name).filter(|_| !name.is_empty()).find_map(behind);
    found.unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_follows_the_name() {
        let of = |message| reason(Path::new("d/b"), message);
        for named in [
            "cannot write far/d/b: no space left",
            "cannot create a file for \"b\": no space left",
            "b: no space left",
            "no space left",
        ] {
            assert_eq!(of(named), "no space left");
        }
        assert_eq!(of("d/b vanished before it was read"), "vanished before it was read");
        assert_eq!(reason(Path::new("/"), "cannot read /: gone"), "cannot read /: gone");
    }

    #[test]
    fn failed_files_with_the_same_reason_are_limited() {
        let mut fold = FailureFold::default();
        let shown =
            (0..1030).filter(|_| fold.show_next(Path::new("a"), "the disk is full")).count();
        assert_eq!(shown, 5);
        assert!(fold.show_next(Path::new("b"), "b: permission denied"));
        let reason = Some("the disk is full".to_owned());
        assert_eq!(fold.take_folded(), [FoldedFailures { files: 1025, reason }]);
        assert!(fold.take_folded().is_empty());
    }

    #[test]
    fn failed_files_beyond_the_limit_are_counted() {
        let mut fold = FailureFold::default();
        let shown =
            (0..1030).filter(|n| fold.show_next(Path::new("a"), &format!("error {n}"))).count();
        assert_eq!(shown, 20);
        assert!(!fold.show_next(Path::new("a"), "error 7"));
        let reason = Some("error 7".to_owned());
        assert_eq!(
            fold.take_folded(),
            [FoldedFailures { files: 1, reason }, FoldedFailures { files: 1010, reason: None }]
        );
    }
}
