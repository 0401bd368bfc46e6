//! Exit codes: one table, the source of the help text, the manual and the error kinds in JSON. A
//! code that rsync also has keeps its number.

use bankfull::{ErrorKind, GatherSummary, Summary};
use std::fmt::Write;
use std::process::ExitCode;

/// Result of the command; the number is the exit code.
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
    AgentStart = 14,
    Interrupted = 20,
    FailedFiles = 23,
    Vanished = 24,
    DeleteLimit = 25,
    Timeout = 30,
}

/// Row of the table.
pub(crate) struct Row {
    /// Exit code.
    pub(crate) exit: Exit,
    /// Stable name: the `kind` of an error in JSON.
    pub(crate) name: &'static str,
    /// Meaning, in a clause.
    pub(crate) meaning: &'static str,
}

const fn row(exit: Exit, name: &'static str, meaning: &'static str) -> Row {
    Row { exit, name, meaning }
}

/// All exit codes. A test compares the rows with `docs/exit-codes.md`.
pub(crate) const TABLE: [Row; 14] = [
    row(Exit::Done, "done", "success, or nothing to do"),
    row(Exit::Usage, "usage", "invalid command line"),
    row(Exit::Version, "version", "no common protocol version"),
    row(Exit::Source, "source", "a source is missing or cannot be examined"),
    row(Exit::Refused, "refused", "the peer refused the request, or is not trusted"),
    row(Exit::Network, "network", "cannot connect, connection lost, or port unavailable"),
    row(Exit::Local, "local", "a local file or directory cannot be used"),
    row(Exit::Protocol, "protocol", "the peer does not speak bankfull, or violated the protocol"),
    row(Exit::AgentStart, "agent-start", "bankfull could not be started over ssh"),
    row(Exit::Interrupted, "interrupted", "interrupted by a signal"),
    row(Exit::FailedFiles, "failed-files", "some files failed; the others are copied"),
    row(Exit::Vanished, "vanished", "some sources vanished; the others are copied"),
    row(Exit::DeleteLimit, "delete-limit", "more would be deleted than --max-delete allows"),
    row(Exit::Timeout, "timeout", "no response from the peer within the timeout"),
];

impl Exit {
    /// Returns the exit code of a transfer that ran to its end.
    pub(crate) fn of_summary(summary: &Summary) -> Self {
        // The limit is reported as a failure, too.
        match summary.failed_files.saturating_sub(u64::from(summary.is_delete_limited)) {
            0 if summary.is_delete_limited => Self::DeleteLimit,
            0 => Self::Done,
            failed if failed == summary.vanished_files => Self::Vanished,
            _ => Self::FailedFiles,
        }
    }

    /// Returns the exit code of a gathering that ran to its end. If all sources failed, it is the
    /// code of the first one.
    pub(crate) fn of_gathering(summary: &GatherSummary) -> Self {
        let mut failed = summary.failed();
        match failed.next() {
            None => Self::of_summary(&summary.total),
            Some((_, first)) if failed.count() + 1 == summary.sources.len() => first.kind().into(),
            Some(_) => Self::FailedFiles,
        }
    }

    /// Returns the number that a shell sees.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Returns the stable name.
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
            ErrorKind::AgentStart => Self::AgentStart,
            ErrorKind::Interrupted => Self::Interrupted,
            ErrorKind::Timeout => Self::Timeout,
            // Kinds that a later library adds have no code of their own: treat them as local.
            _ => Self::Local,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Formats the table for the help text, one line per code.
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
    fn summary_code_distinguishes_failed_from_vanished() {
        assert_eq!(Exit::of_summary(&summary(0, 0)), Exit::Done);
        assert_eq!(Exit::of_summary(&summary(2, 2)), Exit::Vanished);
        assert_eq!(Exit::of_summary(&summary(2, 1)), Exit::FailedFiles);
        assert_eq!(Exit::of_summary(&summary(1, 0)), Exit::FailedFiles);
        let limited = |failed, vanished| {
            let mut summary = summary(failed, vanished);
            summary.is_delete_limited = true;
            Exit::of_summary(&summary)
        };
        assert_eq!(limited(1, 0), Exit::DeleteLimit);
        assert_eq!(limited(3, 2), Exit::Vanished);
        assert_eq!(limited(3, 1), Exit::FailedFiles);
    }

    #[test]
    fn gathering_code_is_first_error_only_if_all_failed() {
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
    fn error_kind_has_its_code() {
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
    fn table_is_sorted_and_names_are_unique() {
        assert!(TABLE.is_sorted_by(|a, b| a.exit.code() < b.exit.code()));
        let mut names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn table_equals_documentation() {
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
