//! An ssh server of the user who runs the tests, with its own keys.

use super::remote::{listen_remote, remote_address, remote_host};
use super::run::{Running, cp, ls, probe, run, wait_until};
use super::{Scratch, is_root};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

const SSHD: &str = "/usr/sbin/sshd";

/// An ssh server on a port of the peer.
#[derive(Debug)]
pub(crate) struct SshServer {
    running: Running,
    pub(crate) port: u16,
    keys: Scratch,
}

impl SshServer {
    /// Starts a server. `None`, with a message, if sshd is missing or refuses this user.
    pub(crate) fn start() -> Option<Self> {
        Self::with("")
    }

    /// Starts a server with additional configuration lines.
    pub(crate) fn with(more: &str) -> Option<Self> {
        if !Path::new(SSHD).exists() {
            println!("skipped: no sshd");
            return None;
        }
        if is_root() {
            // sshd requires it; packages leave its creation to the service.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let keys = Scratch::new();
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(keys.join(name))
                .status();
            assert!(made.is_ok_and(|status| status.success()), "ssh-keygen failed");
        }
        // Another program may take the free port before sshd does.
        let server = Self::on_some_port(keys, more);
        // Accounts of build services may have no shell or be locked; only root avoids that.
        if !is_root() && !server.lets_in() {
            println!("skipped: sshd does not let this user log in: {}", server.running.err());
            return None;
        }
        Some(server)
    }

    fn lets_in(&self) -> bool {
        let line = format!("{} {} true", self.ssh_line(), remote_host());
        run(Command::new("sh").args(["-c", &line])).code == Some(0)
    }

    fn on_some_port(keys: Scratch, more: &str) -> Self {
        for _ in 0..5 {
            let (free, port) = listen_remote();
            drop(free);
            let config = keys.join("config");
            fs::write(&config, server_config(keys.path(), port, more)).unwrap();
            let mut running =
                Running::start_there(Command::new(SSHD).args(["-D", "-e", "-f"]).arg(&config));
            let mut greeted = false;
            wait_until("sshd listens", || {
                greeted = greets(port);
                greeted || running.is_over()
            });
            if greeted {
                return Self { running, port, keys };
            }
            println!("sshd did not start: {}", running.err());
        }
        panic!("no ssh server");
    }

    /// Returns a location on the host of the server.
    pub(crate) fn place(path: &Path) -> String {
        format!("{}:{}", remote_host(), path.display())
    }

    /// Returns `bankfull cp --json` that logs in and finds the program there.
    pub(crate) fn cp(&self) -> Command {
        let mut command = self.cp_without_program();
        command.args(["--remote-bankfull", env!("CARGO_BIN_EXE_bankfull")]);
        command
    }

    /// Returns `bankfull probe --json` that logs in and finds the program there.
    pub(crate) fn probe(&self) -> Command {
        let mut command = self.logging_in(probe());
        command.args(["--remote-bankfull", env!("CARGO_BIN_EXE_bankfull")]);
        command
    }

    /// Returns `bankfull ls` that logs in and finds the program there.
    pub(crate) fn ls(&self) -> Command {
        let mut command = self.logging_in(ls());
        command.args(["--remote-bankfull", env!("CARGO_BIN_EXE_bankfull")]);
        command
    }

    /// Returns `bankfull cp --json` that logs in.
    pub(crate) fn cp_without_program(&self) -> Command {
        self.logging_in(cp())
    }

    fn logging_in(&self, mut command: Command) -> Command {
        command.arg("-P").arg(self.port.to_string()).arg("-i").arg(self.keys.join("user"));
        for option in OPTIONS {
            command.args(["-o", option]);
        }
        // Without the user's own configuration.
        command.args(["-F", "none"]);
        command
    }

    /// Returns an ssh command that is a pipe to the server, around a firewall.
    pub(crate) fn pipe_command(&self) -> String {
        format!("{} -W {} {}", self.ssh_line(), remote_address(self.port), remote_host())
    }

    /// Returns ssh with its options, for a shell.
    fn ssh_line(&self) -> String {
        let mut line =
            format!("ssh -F none -p {} -i {}", self.port, self.keys.join("user").display());
        for option in OPTIONS {
            write!(line, " -o {option}").unwrap();
        }
        line
    }

    /// Returns an ssh command that reaches the server by whatever name.
    pub(crate) fn by_any_name(&self) -> String {
        let config = self.keys.join("names");
        let (host, port, key) = (remote_host(), self.port, self.keys.join("user"));
        let mut text =
            format!("Host *\nHostName {host}\nPort {port}\nIdentityFile {}\n", key.display());
        for option in OPTIONS {
            writeln!(text, "{}", option.replace('=', " ")).unwrap();
        }
        fs::write(&config, text).unwrap();
        format!("ssh -F {}", config.display())
    }

    /// Returns the process numbers of the running agents.
    pub(crate) fn agents(&self) -> Vec<u32> {
        let parents = parents();
        let is_ours = |mut id: u32| {
            while let Some((_, parent, _)) = parents.iter().find(|(child, ..)| *child == id) {
                if *parent == self.running.id() {
                    return true;
                }
                id = *parent;
            }
            false
        };
        let agents = parents.iter().filter(|(_, _, name)| name == "bankfull");
        agents.map(|(id, ..)| *id).filter(|&id| is_ours(id)).collect()
    }

    /// Kills the running agents.
    pub(crate) fn kill_agents(&self) {
        for id in self.agents().iter().filter_map(|&id| Pid::from_raw(id as i32)) {
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

const OPTIONS: [&str; 4] = [
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "LogLevel=ERROR",
    "IdentitiesOnly=yes",
];

fn server_config(keys: &Path, port: u16, more: &str) -> String {
    let keys = keys.display();
    // Without PAM, sshd checks that the account has a password, which accounts of build hosts often
    // lack; root needs no PAM, and containers may lack its files.
    let pam = if is_root() { "no" } else { "yes" };
    format!(
        "Port {port}\nListenAddress {}\nHostKey {keys}/host\nPidFile {keys}/pid\n\
         AuthorizedKeysFile {keys}/user.pub\nUsePAM {pam}\nStrictModes no\nMaxStartups 100\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\n{more}\n",
        remote_host()
    )
}

fn greets(port: u16) -> bool {
    let mut greeting = [0; 4];
    let read =
        TcpStream::connect(remote_address(port)).and_then(|mut s| s.read_exact(&mut greeting));
    read.is_ok() && &greeting == b"SSH-"
}

/// Returns number, parent and name of every process.
fn parents() -> Vec<(u32, u32, String)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| {
            let id = process.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            // The name is in brackets and may contain any character.
            let (head, rest) = stat.rsplit_once(')')?;
            let name = head.split_once('(')?.1.to_owned();
            Some((id, rest.split_whitespace().nth(1)?.parse().ok()?, name))
        })
        .collect()
}
