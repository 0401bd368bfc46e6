//! The ssh command line, and the small shell script that it runs on the far side.

use crate::cancel::Cancel;
use crate::error::{Error, printable};
use crate::options::SshOptions;
use bankfull_control::Bytes;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};

/// Who and where to log in.
pub(super) struct Login<'l> {
    pub(super) user: Option<&'l str>,
    pub(super) host: &'l str,
    pub(super) options: &'l SshOptions,
    /// What the agent may have in memory until it is written.
    pub(super) memory_max: Option<Bytes>,
}

impl Login<'_> {
    /// ssh with the user's options.
    fn base(&self) -> Command {
        let ssh = [OsString::from("ssh")];
        let words = if self.options.command.is_empty() { &ssh[..] } else { &self.options.command };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let o = self.options;
        if let Some(port) = o.port {
            command.arg("-p").arg(port.to_string());
        }
        for identity in &o.identities {
            command.arg("-i").arg(identity);
        }
        if let Some(config) = &o.config {
            command.arg("-F").arg(config);
        }
        if let Some(jump) = &o.jump {
            command.arg("-J").arg(jump);
        }
        for option in &o.options {
            command.arg("-o").arg(option);
        }
        command
    }

    /// The same with the name to log in as.
    fn with_user(&self) -> Command {
        let mut command = self.base();
        if let Some(user) = self.user {
            command.arg("-l").arg(user);
        }
        command
    }

    /// What a user may type to see whether ssh itself gets there: the same program and options.
    pub(super) fn check_line(&self) -> String {
        let mut command = self.base();
        match self.user {
            Some(user) => command.arg(format!("{user}@{}", self.host)),
            None => command.arg(self.host),
        };
        command.arg("true");
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> =
            words.map(|w| quote_if_needed(&printable(&w.to_string_lossy()))).collect();
        words.join(" ")
    }

    /// ssh that runs `script` in a POSIX shell on the far side, without terminal or forwarding.
    pub(super) fn command(&self, script: &str) -> Command {
        let mut command = self.with_user();
        command.args(["-T", "-x", "-o", "ClearAllForwardings=yes", "--"]);
        command.arg(self.host).arg(format!("exec sh -c {}", quote(script)));
        command
    }

    /// The host name that ssh makes of the one given (aliases of the user's configuration). That
    /// may run programs of the user's, and so take any time.
    pub(super) fn resolved_host(&self, cancel: &Cancel) -> Result<String, Error> {
        let mut command = self.with_user();
        command.args(["-G", "--"]).arg(self.host);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return Ok(self.host.to_owned()) };
        let output = child.stdout.take();
        let told = cancel.attend(move || {
            let mut bytes = Vec::new();
            // What cannot be read says nothing: the name as given is as good.
            let _ = output.map(|mut output| output.read_to_end(&mut bytes));
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        // All was said, or nobody listens any more.
        let _ = child.kill();
        let _ = child.wait();
        let told = told?;
        let named = told.lines().find_map(|line| line.strip_prefix("hostname "));
        Ok(named.unwrap_or(self.host).to_owned())
    }
}

/// Where a deployed binary of this version is kept on the far side, as a shell expression.
pub(super) fn cache_path() -> String {
    format!("\"${{XDG_CACHE_HOME:-$HOME/.cache}}\"/bankfull/{}/bankfull", env!("CARGO_PKG_VERSION"))
}

/// Starts the agent: the named program, or the one on the PATH, or one deployed earlier.
pub(super) fn agent_script(login: &Login<'_>) -> String {
    let limit = login.memory_max.map(|most| format!(" --max-memory {}", most.0));
    let limit = limit.unwrap_or_default();
    match &login.options.remote_program {
        Some(program) => {
            let program = quote(program);
            format!("command -v {program} >/dev/null 2>&1 || exit 127; exec {program} agent{limit}")
        }
        None => format!(
            "p=bankfull; command -v $p >/dev/null 2>&1 || p={}; \
             command -v \"$p\" >/dev/null 2>&1 || exit 127; exec \"$p\" agent{limit}",
            cache_path()
        ),
    }
}

/// Quotes a word for a POSIX shell.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The same where it is needed, so that what is shown reads as it would be typed.
fn quote_if_needed(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { quote(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|a| a.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_users_options_come_before_the_host_and_nothing_after_it_is_an_option() {
        let options = SshOptions {
            port: Some(2222),
            identities: vec!["key".into()],
            config: Some("cfg".into()),
            jump: Some("via".into()),
            options: vec!["BatchMode=yes".into()],
            ..SshOptions::default()
        };
        let login = Login { user: Some("me"), host: "far", options: &options, memory_max: None };
        let words = words(&login.command("true"));
        let expected = [
            "-p",
            "2222",
            "-i",
            "key",
            "-F",
            "cfg",
            "-J",
            "via",
            "-o",
            "BatchMode=yes",
            "-l",
            "me",
            "-T",
            "-x",
            "-o",
            "ClearAllForwardings=yes",
            "--",
            "far",
            "exec sh -c 'true'",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn the_line_to_check_a_login_with_is_the_one_that_was_run() {
        let options = SshOptions {
            port: Some(2222),
            identities: vec!["my key".into()],
            config: Some("cfg".into()),
            jump: Some("a,b".into()),
            options: vec!["BatchMode=yes".into()],
            ..SshOptions::default()
        };
        let login = Login { user: Some("me"), host: "far", options: &options, memory_max: None };
        let line = "ssh -p 2222 -i 'my key' -F cfg -J a,b -o BatchMode=yes me@far true";
        assert_eq!(login.check_line(), line);
        let options =
            SshOptions { command: vec!["/opt/ssh".into(), "-4".into()], ..SshOptions::default() };
        let login = Login { user: None, host: "far", options: &options, memory_max: None };
        assert_eq!(login.check_line(), "/opt/ssh -4 far true");
    }

    #[test]
    fn a_word_with_quotes_survives_the_shell() {
        for word in ["plain", "it's", "a b\"$x`y", ""] {
            let output = Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quote(word)))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn a_far_side_without_the_program_exits_as_a_shell_would() {
        let options = SshOptions {
            remote_program: Some("/no/such/bankfull".into()),
            ..SshOptions::default()
        };
        let login = Login { user: None, host: "far", options: &options, memory_max: None };
        let status = Command::new("sh").arg("-c").arg(agent_script(&login)).status();
        assert_eq!(status.unwrap().code(), Some(127));
    }
}
