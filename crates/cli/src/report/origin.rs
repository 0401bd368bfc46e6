//! Time, place and command of a report.

use crate::output::{printable, utc};
use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

/// Time, place and command of a report.
#[derive(Debug)]
pub(super) struct Origin {
    /// Start in UTC.
    pub(super) date: String,
    pub(super) host: String,
    /// Command line as typed.
    pub(super) command: String,
}

impl Origin {
    /// Describes this process.
    pub(super) fn here() -> Self {
        let quoted = |argument: OsString| {
            let text = printable(argument.as_ref());
            let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@,+%[]~".contains(c);
            match !text.is_empty() && text.chars().all(is_plain) {
                true => text,
                false => format!("'{}'", text.replace('\'', r"'\''")),
            }
        };
        let arguments: Vec<String> = std::env::args_os().skip(1).map(quoted).collect();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            date: utc(since_epoch.as_secs()),
            host: crate::address::host_name(),
            command: format!("bankfull {}", arguments.join(" ")),
        }
    }
}
