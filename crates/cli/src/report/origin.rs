//! Time, place and command of a report.

use crate::output::{printable, utc};
use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

/// Flags whose values may have secrets: the path of a URL, and commands with passwords.
const SECRET_FLAGS: [&str; 3] = ["--notify", "--ssh-command", "-o"];

/// Replaces values that may be secrets.
fn hide_secrets(arguments: &mut [OsString]) {
    let mut is_value = false;
    for argument in arguments {
        let text = argument.to_string_lossy().into_owned();
        let joined = SECRET_FLAGS.into_iter().find(|flag| {
            let rest = text.strip_prefix(flag);
            // The value of a short flag may follow at once.
            rest.is_some_and(|rest| rest.starts_with('=') || flag.len() == 2 && !rest.is_empty())
        });
        match joined {
            _ if is_value => *argument = "...".into(),
            Some(flag) if flag.len() == 2 => *argument = format!("{flag}...").into(),
            Some(flag) => *argument = format!("{flag}=...").into(),
            None => {}
        }
        is_value = !is_value && SECRET_FLAGS.contains(&&*text);
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
        let typed = "cp --ssh-command=sshpass -o ProxyCommand=x -oPassword=y --ssh-command z -v a";
        let mut arguments: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        hide_secrets(&mut arguments);
        let shown = arguments.join(" ".as_ref());
        assert_eq!(shown, "cp --ssh-command=... -o ... -o... --ssh-command ... -v a");
    }
}
