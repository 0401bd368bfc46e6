//! ssh server at the receiver, with keys generated for the run, for tools over ssh.

use crate::base::error::{LabError, Result};
use crate::model::job::Job;
use crate::tools::shell::{program, program_path, quoted_path};
use crate::tools::tool::Requirement;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Port; not 22, so that no program relies on the default.
pub(crate) const PORT: u16 = 7722;

pub(crate) const NEEDS: [Requirement; 2] = [
    Requirement { name: "sshd", remedy: "apt-get install openssh-server" },
    Requirement { name: "ssh", remedy: "apt-get install openssh-client" },
];

/// Generates host and user keys, and both configurations.
pub(crate) fn prepare(job: &Job<'_>) -> Result<()> {
    let failed = |e| LabError::io("cannot prepare ssh", e);
    // Required by sshd; packages create it in their service unit.
    fs::create_dir_all("/run/sshd").map_err(failed)?;
    for name in ["host", "user"] {
        let file = job.dir.join(name);
        if file.exists() {
            continue;
        }
        let keygen = program_path("ssh-keygen").unwrap_or_else(|| PathBuf::from("ssh-keygen"));
        let made = Command::new(keygen)
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&file)
            .status()
            .map_err(failed)?;
        if !made.success() {
            return Err(LabError::Command("ssh-keygen".to_owned(), made.to_string()));
        }
    }
    let server = server_config(job.dir, &search_path());
    fs::write(job.dir.join("sshd_config"), server).map_err(failed)?;
    fs::write(job.dir.join("ssh_config"), client_config_text(job.dir)).map_err(failed)?;
    let script = job.dir.join("ssh");
    let (ssh, config) = (program("ssh"), client_config(job));
    let text = format!("#!/bin/sh\nexec {ssh} -F {config} \"$@\"\n");
    fs::write(&script, text).map_err(failed)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(failed)
}

fn server_config(dir: &Path, path: &str) -> String {
    // Of these, only AuthorizedKeysFile expands percent tokens.
    let (host, user) =
        (quote_config(&file(dir, "host")), quote_config(&file(dir, "user.pub").replace('%', "%%")));
    let path = quote_config(&format!("PATH={path}"));
    format!(
        "Port {PORT}\nHostKey {host}\nAuthorizedKeysFile {user}\nStrictModes no\n\
         PermitRootLogin yes\nUsePAM no\nPidFile none\nMaxStartups 200\nMaxSessions 200\n\
         Subsystem sftp internal-sftp\nSetEnv {path}\n"
    )
}

fn client_config_text(dir: &Path) -> String {
    let user = quote_config(&file(dir, "user").replace('%', "%%"));
    format!(
        "Host *\nPort {PORT}\nUser root\nIdentityFile {user}\nIdentitiesOnly yes\n\
         StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n"
    )
}

fn file(dir: &Path, name: &str) -> String {
    dir.join(name).to_string_lossy().into_owned()
}

/// Quotes a word for ssh configuration files. (ssh_config(5))
fn quote_config(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Search path of programs at the receiver: that of the sender.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let home = std::env::var("HOME").unwrap_or_default();
    format!("{path}:{home}/.cargo/bin")
}

pub(crate) fn server(job: &Job<'_>) -> Option<String> {
    let config = quoted_path(&job.dir.join("sshd_config"));
    // sshd must be called by its absolute path.
    Some(format!("exec {} -D -e -f {config}", program("sshd")))
}

/// Script that calls ssh with the client's configuration.
pub(crate) fn client_program(job: &Job<'_>) -> String {
    quoted_path(&job.dir.join("ssh"))
}

/// Client configuration, for `-F`.
pub(crate) fn client_config(job: &Job<'_>) -> String {
    quoted_path(&job.dir.join("ssh_config"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_config_quotes_spaces_and_percent_signs() {
        let dir = Path::new("/tmp/a b/100%");
        let server = server_config(dir, "/bin:/my programs");
        for line in [
            "HostKey \"/tmp/a b/100%/host\"",
            "AuthorizedKeysFile \"/tmp/a b/100%%/user.pub\"",
            "SetEnv \"PATH=/bin:/my programs\"",
        ] {
            assert!(server.lines().any(|found| found == line), "{server}");
        }
        let client = client_config_text(dir);
        assert!(client.contains("\nIdentityFile \"/tmp/a b/100%%/user\"\n"), "{client}");
        assert_eq!(quote_config(r#"a"b\c"#), r#""a\"b\\c""#);
    }
}
