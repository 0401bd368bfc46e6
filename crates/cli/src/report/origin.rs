//! Time, place and command of a report.

use crate::output::{printable, utc};
use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

/// Flag whose value may be a secret: the path of a URL.
const SECRET_FLAG: &str = "--notify";

/// Replaces values that may be secrets.
fn hide_secrets(arguments: &mut [OsString]) {
    let mut is_value = false;
    for argument in arguments {
        let text = argument.to_string_lossy();
        let is_joined = text.strip_prefix(SECRET_FLAG).is_some_and(|rest| rest.starts_with('='));
        let is_flag = text == SECRET_FLAG;
        if is_value {
            *argument = "...".into();
        } else if is_joined {
            *argument = format!("{SECRET_FLAG}=...").into();
        }
        is_value = is_flag && !is_value;
    }
}

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
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        hide_secrets(&mut arguments);
        let arguments: Vec<String> = arguments.into_iter().map(quoted).collect();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            date: utc(since_epoch.as_secs()),
            host: crate::address::host_name(),
            command: format!("bankfull {}", arguments.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_be_secrets_are_hidden() {
        let typed = "cp --notify https://a/secret --notify=curl --notify --notify x y";
        let mut arguments: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        hide_secrets(&mut arguments);
        let shown = arguments.join(" ".as_ref());
        assert_eq!(shown, "cp --notify ... --notify=... --notify ... x y");
    }
}
