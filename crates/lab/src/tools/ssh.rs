//! An ssh server at the receiver, with keys made for the run, for the tools that need one.

use super::{Job, Need, program, program_path, quoted_path};
use crate::error::{LabError, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its port: not 22, so that no program relies on that.
pub(super) const PORT: u16 = 7722;

pub(super) const NEEDS: [Need; 2] = [
    Need { what: "sshd", remedy: "apt-get install openssh-server" },
    Need { what: "ssh", remedy: "apt-get install openssh-client" },
];

/// Makes keys for the host and the user, and the configurations of both sides.
pub(super) fn prepare(job: &Job<'_>) -> Result<()> {
    let failed = |e| LabError::io("cannot prepare ssh", e);
    // The server insists on it; packages leave making it to their service.
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
    fs::write(job.dir.join("ssh_config"), client_text(job.dir)).map_err(failed)?;
    let script = job.dir.join("ssh");
    let (ssh, config) = (program("ssh"), client_config(job));
    let text = format!("#!/bin/sh\nexec {ssh} -F {config} \"$@\"\n");
    fs::write(&script, text).map_err(failed)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(failed)
}

fn server_config(dir: &Path, path: &str) -> String {
    // Of these, only the file of keys has variables, which begin with a percent sign.
    let (host, user) = (word(&file(dir, "host")), word(&file(dir, "user.pub").replace('%', "%%")));
    let path = word(&format!("PATH={path}"));
    format!(
        "Port {PORT}\nHostKey {host}\nAuthorizedKeysFile {user}\nStrictModes no\n\
         PermitRootLogin yes\nUsePAM no\nPidFile none\nMaxStartups 200\nMaxSessions 200\n\
         Subsystem sftp internal-sftp\nSetEnv {path}\n"
    )
}

fn client_text(dir: &Path) -> String {
    let user = word(&file(dir, "user").replace('%', "%%"));
    format!(
        "Host *\nPort {PORT}\nUser root\nIdentityFile {user}\nIdentitiesOnly yes\n\
         StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n"
    )
}

fn file(dir: &Path, name: &str) -> String {
    dir.join(name).to_string_lossy().into_owned()
}

/// One word for a configuration of ssh, spaces in it or not (ssh_config(5)).
fn word(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Where programs at the receiver are looked for: where those of the sender are.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let home = std::env::var("HOME").unwrap_or_default();
    format!("{path}:{home}/.cargo/bin")
}

pub(super) fn server(job: &Job<'_>) -> Option<String> {
    let config = quoted_path(&job.dir.join("sshd_config"));
    // It wants to be called by its whole path.
    Some(format!("exec {} -D -e -f {config}", program("sshd")))
}

/// A program that is ssh with the client's configuration.
pub(super) fn client_program(job: &Job<'_>) -> String {
    quoted_path(&job.dir.join("ssh"))
}

/// The client's configuration, for `-F`.
pub(super) fn client_config(job: &Job<'_>) -> String {
    quoted_path(&job.dir.join("ssh_config"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_space_in_it_is_one_word_in_the_configurations() {
        let dir = Path::new("/tmp/a b/100%");
        let server = server_config(dir, "/bin:/my programs");
        for line in [
            "HostKey \"/tmp/a b/100%/host\"",
            "AuthorizedKeysFile \"/tmp/a b/100%%/user.pub\"",
            "SetEnv \"PATH=/bin:/my programs\"",
        ] {
            assert!(server.lines().any(|found| found == line), "{server}");
        }
        let client = client_text(dir);
        assert!(client.contains("\nIdentityFile \"/tmp/a b/100%%/user\"\n"), "{client}");
        assert_eq!(word(r#"a"b\c"#), r#""a\"b\\c""#);
    }
}
