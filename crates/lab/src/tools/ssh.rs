//! An ssh server at the receiver, with keys made for the run, for the tools that need one.

use super::{Job, Need, quoted_path};
use crate::error::{LabError, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
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
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&file)
            .status()
            .map_err(failed)?;
        if !made.success() {
            return Err(LabError::Command("ssh-keygen".to_owned(), made.to_string()));
        }
    }
    let dir = job.dir.display();
    let server = format!(
        "Port {PORT}\nHostKey {dir}/host\nAuthorizedKeysFile {dir}/user.pub\nStrictModes no\n\
         PermitRootLogin yes\nUsePAM no\nPidFile none\nMaxStartups 200\nMaxSessions 200\n\
         Subsystem sftp internal-sftp\nSetEnv PATH={}\n",
        search_path()
    );
    fs::write(job.dir.join("sshd_config"), server).map_err(failed)?;
    let client = format!(
        "Host *\nPort {PORT}\nUser root\nIdentityFile {dir}/user\nIdentitiesOnly yes\n\
         StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nBatchMode yes\n"
    );
    fs::write(job.dir.join("ssh_config"), client).map_err(failed)?;
    let script = job.dir.join("ssh");
    let text = format!("#!/bin/sh\nexec ssh -F {} \"$@\"\n", client_config(job));
    fs::write(&script, text).map_err(failed)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(failed)
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
    Some(format!("exec {} -D -e -f {config}", super::program("sshd").trim_matches('\'')))
}

/// A program that is ssh with the client's configuration.
pub(super) fn client_program(job: &Job<'_>) -> String {
    quoted_path(&job.dir.join("ssh"))
}

/// The client's configuration, for `-F`.
pub(super) fn client_config(job: &Job<'_>) -> String {
    quoted_path(&job.dir.join("ssh_config"))
}
