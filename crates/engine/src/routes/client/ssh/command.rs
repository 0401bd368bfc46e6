//! The ssh command line, and the shell script that it runs on the remote host.

use crate::base::cancel::{Cancel, run_abandonable};
use crate::base::error::{Error, printable};
use crate::model::options::SshOptions;
use bankfull_control::Bytes;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// User, host and options of a login.
pub(crate) struct Login<'l> {
    pub(crate) user: Option<&'l str>,
    pub(crate) host: &'l str,
    pub(crate) options: &'l SshOptions,
    /// Limit of received data that waits for the agent's disk.
    pub(crate) max_memory: Option<Bytes>,
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

    /// ssh with the user's options and the login name.
    fn with_user(&self) -> Command {
        let mut command = self.base();
        if let Some(user) = self.user {
            command.arg("-l").arg(user);
        }
        command
    }

    /// Command for the user to test the login: the same program and options.
    pub(crate) fn check_command(&self) -> String {
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

    /// Returns an ssh command that runs `script` in a remote POSIX shell. The command has no
    /// terminal and no forwarding.
    pub(crate) fn command(&self, script: &str) -> Command {
        let mut command = self.with_user();
        command.args(["-T", "-x", "-o", "ClearAllForwardings=yes", "--"]);
        command.arg(self.host).arg(format!("exec sh -c {}", quote(script)));
        command
    }

    /// Host name that ssh resolves the given one to.
    ///
    /// ssh may run the user's programs for that. If they exceed the timeout, the given name is
    /// returned.
    pub(crate) fn resolved_host(
        &self,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<String, Error> {
        let mut command = self.with_user();
        command.args(["-G", "--"]).arg(self.host);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return Ok(self.host.to_owned()) };
        let output = child.stdout.take();
        let deadline = Instant::now() + timeout;
        let is_abandoned = || cancel.is_cancelled() || Instant::now() >= deadline;
        let config = run_abandonable(is_abandoned, move || {
            let mut bytes = Vec::new();
            // An unreadable answer leaves the name as given.
            let _ = output.map(|mut output| output.read_to_end(&mut bytes));
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        // The output has ended, or the wait was abandoned.
        let _ = child.kill();
        let _ = child.wait();
        if cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        let config = config.unwrap_or_default();
        let named = config.lines().find_map(|line| line.strip_prefix("hostname "));
        Ok(named.unwrap_or(self.host).to_owned())
    }
}

/// Returns the path of this version's deployed binary on the remote host. The path is a shell
/// expression.
pub(crate) fn cache_path() -> String {
    format!("\"${{XDG_CACHE_HOME:-$HOME/.cache}}\"/bankfull/{}/bankfull", env!("CARGO_PKG_VERSION"))
}

/// Script that starts the agent: the program named by the user, or the one on the `PATH`, or one
/// deployed earlier.
pub(crate) fn agent_script(login: &Login<'_>) -> String {
    let memory = login.max_memory.map(|limit| format!(" --max-memory {}", limit.0));
    let ports = login.options.data_ports.as_ref();
    let ports = ports.map(|ports| format!(" --data-ports {}-{}", ports.start(), ports.end()));
    let flags = [memory, ports].map(Option::unwrap_or_default).concat();
    match &login.options.remote_program {
        Some(program) => {
            let program = quote(program);
            format!("command -v {program} >/dev/null 2>&1 || exit 127; exec {program} agent{flags}")
        }
        None => format!(
            "p=bankfull; command -v $p >/dev/null 2>&1 || p={}; \
             command -v \"$p\" >/dev/null 2>&1 || exit 127; exec \"$p\" agent{flags}",
            cache_path()
        ),
    }
}

/// Quotes a word for a POSIX shell.
pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Quotes a word only if needed, for messages.
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
    fn ssh_command_has_user_options_before_the_host() {
        let options = SshOptions {
            port: Some(2222),
            identities: vec!["key".into()],
            config: Some("cfg".into()),
            jump: Some("via".into()),
            options: vec!["BatchMode=yes".into()],
            ..SshOptions::default()
        };
        let login = Login { user: Some("me"), host: "host", options: &options, max_memory: None };
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
            "host",
            "exec sh -c 'true'",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn check_command_has_the_same_options() {
        let options = SshOptions {
            port: Some(2222),
            identities: vec!["my key".into()],
            config: Some("cfg".into()),
            jump: Some("a,b".into()),
            options: vec!["BatchMode=yes".into()],
            ..SshOptions::default()
        };
        let login = Login { user: Some("me"), host: "host", options: &options, max_memory: None };
        let line = "ssh -p 2222 -i 'my key' -F cfg -J a,b -o BatchMode=yes me@host true";
        assert_eq!(login.check_command(), line);
        let options =
            SshOptions { command: vec!["/opt/ssh".into(), "-4".into()], ..SshOptions::default() };
        let login = Login { user: None, host: "host", options: &options, max_memory: None };
        assert_eq!(login.check_command(), "/opt/ssh -4 host true");
    }

    #[test]
    fn quoted_word_survives_the_shell() {
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
    fn agent_script_without_program_exits_with_127() {
        let options = SshOptions {
            remote_program: Some("/no/such/bankfull".into()),
            ..SshOptions::default()
        };
        let login = Login { user: None, host: "host", options: &options, max_memory: None };
        let status = Command::new("sh").arg("-c").arg(agent_script(&login)).status();
        assert_eq!(status.unwrap().code(), Some(127));
    }
}
