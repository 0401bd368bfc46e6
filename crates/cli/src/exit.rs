//! Exit codes: one table, from which the help text, the manual and the kinds in JSON are made.
//! Where rsync has a code of the same meaning, ours is the same.

use bankfull::{ErrorKind, GatherSummary, Summary};
use std::fmt::Write;
use std::process::ExitCode;

/// How the command ended; the number is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Usage = 1,
    Version = 2,
    Source = 3,
    Refused = 5,
    Network = 10,
    Local = 11,
    Protocol = 12,
    FarSide = 14,
    Interrupted = 20,
    FailedFiles = 23,
    Vanished = 24,
    Timeout = 30,
}

/// A row of the table.
pub(crate) struct Row {
    /// The exit code.
    pub(crate) exit: Exit,
    /// Its stable name, the `kind` of an error in JSON.
    pub(crate) name: &'static str,
    /// What it says, as the end of a sentence.
    pub(crate) meaning: &'static str,
}

const fn row(exit: Exit, name: &'static str, meaning: &'static str) -> Row {
    Row { exit, name, meaning }
}

/// Every exit code there is. `docs/exit-codes.md` shows the same rows; a test compares.
pub(crate) const TABLE: [Row; 13] = [
    row(Exit::Done, "done", "all is done, or there was nothing to do"),
    row(Exit::Usage, "usage", "the command line makes no sense"),
    row(Exit::Version, "version", "the two sides share no protocol version"),
    row(Exit::Source, "source", "a source is missing or cannot be looked at"),
    row(Exit::Refused, "refused", "the far side refused, or is not trusted"),
    row(
        Exit::Network,
        "network",
        "no connection, the connection was lost, or the port is not to be had",
    ),
    row(Exit::Local, "local", "a local file or directory could not be used"),
    row(Exit::Protocol, "protocol", "the far side is no bankfull, or broke the protocol"),
    row(Exit::FarSide, "far-side", "the far side could not be started over ssh"),
    row(Exit::Interrupted, "interrupted", "interrupted by a signal"),
    row(Exit::FailedFiles, "failed-files", "some files failed, the others are copied"),
    row(Exit::Vanished, "vanished", "some sources vanished, all others are copied"),
    row(Exit::Timeout, "timeout", "nothing was heard from the far side for too long"),
];

impl Exit {
    /// The exit code of a transfer that came to its end.
    pub(crate) fn of_summary(summary: &Summary) -> Self {
        match summary.failed_files {
            0 => Self::Done,
            failed if failed == summary.vanished_files => Self::Vanished,
            _ => Self::FailedFiles,
        }
    }

    /// The exit code of a gathering that came to its end: where all sources have failed, that of
    /// the first of them.
    pub(crate) fn of_gathering(summary: &GatherSummary) -> Self {
        let mut failed = summary.failed();
        match failed.next() {
            None => Self::of_summary(&summary.total),
            Some((_, first)) if failed.count() + 1 == summary.sources.len() => first.kind().into(),
            Some(_) => Self::FailedFiles,
        }
    }

    /// The number a shell sees.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// The stable name.
    pub(crate) fn name(self) -> &'static str {
        TABLE.iter().find(|row| row.exit == self).map_or("", |row| row.name)
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Version => Self::Version,
            ErrorKind::Source => Self::Source,
            ErrorKind::Refused => Self::Refused,
            ErrorKind::Network => Self::Network,
            ErrorKind::Protocol => Self::Protocol,
            ErrorKind::AgentStart => Self::FarSide,
            ErrorKind::Interrupted => Self::Interrupted,
            ErrorKind::Timeout => Self::Timeout,
            // The library may learn new kinds; what has no code of its own happened on this side.
            _ => Self::Local,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The table as the help text shows it: a line for each code.
pub(crate) fn help_table() -> String {
    TABLE.iter().fold(String::new(), |mut text, row| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:>2}  {}", row.exit.code(), row.meaning);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(failed: u64, vanished: u64) -> Summary {
        let mut summary = Summary::default();
        summary.failed_files = failed;
        summary.vanished_files = vanished;
        summary
    }

    #[test]
    fn failed_files_and_vanished_sources_are_told_apart() {
        assert_eq!(Exit::of_summary(&summary(0, 0)), Exit::Done);
        assert_eq!(Exit::of_summary(&summary(2, 2)), Exit::Vanished);
        assert_eq!(Exit::of_summary(&summary(2, 1)), Exit::FailedFiles);
        assert_eq!(Exit::of_summary(&summary(1, 0)), Exit::FailedFiles);
    }

    #[test]
    fn a_gathering_fails_as_its_first_source_only_where_all_have_failed() {
        let gathering = |kinds: &[Option<ErrorKind>], failed_files| {
            let mut done = GatherSummary::default();
            done.total = summary(failed_files, 0);
            for kind in kinds {
                let place = bankfull::Location::parse("h:x".as_ref()).unwrap();
                let failed = kind.map(|kind| bankfull::Error::new(kind, "gone"));
                done.sources.push((place, failed.map_or(Ok(Summary::default()), Err)));
            }
            Exit::of_gathering(&done)
        };
        let (refused, timeout) = (Some(ErrorKind::Refused), Some(ErrorKind::Timeout));
        assert_eq!(gathering(&[None, None], 0), Exit::Done);
        assert_eq!(gathering(&[None, None], 1), Exit::FailedFiles);
        assert_eq!(gathering(&[None, refused], 0), Exit::FailedFiles);
        assert_eq!(gathering(&[timeout, refused], 0), Exit::Timeout);
    }

    #[test]
    fn every_kind_of_error_has_its_code() {
        let codes = [
            (ErrorKind::Usage, 1),
            (ErrorKind::Version, 2),
            (ErrorKind::Source, 3),
            (ErrorKind::Refused, 5),
            (ErrorKind::Network, 10),
            (ErrorKind::Local, 11),
            (ErrorKind::Protocol, 12),
            (ErrorKind::AgentStart, 14),
            (ErrorKind::Interrupted, 20),
            (ErrorKind::Timeout, 30),
        ];
        for (kind, code) in codes {
            assert_eq!(Exit::from(kind).code(), code, "{kind:?}");
            assert_ne!(Exit::from(kind).name(), "", "{kind:?} is missing in the table");
        }
    }

    #[test]
    fn the_table_is_in_order_and_names_are_unique() {
        assert!(TABLE.is_sorted_by(|a, b| a.exit.code() < b.exit.code()));
        let mut names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn the_documented_table_has_exactly_these_rows() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        let text = std::fs::read_to_string(path).unwrap();
        let documented: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("| ") && !line.starts_with("| Code"))
            .collect();
        let defined: Vec<String> = TABLE
            .iter()
            .map(|row| format!("| {} | `{}` | {} |", row.exit.code(), row.name, row.meaning))
            .collect();
        assert_eq!(documented, defined);
    }
}
