//! A daemon for a test: separate state, a free port, stopped on drop.

use super::Scratch;
use super::remote::{remote_address, remote_url};
use super::run::{Running, cp, ls, probe, wait_until};
use crate::command;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    running: Running,
    pub(crate) port: u16,
    pub(crate) fingerprint: String,
    root: PathBuf,
    flags: Vec<String>,
    state: Scratch,
}

impl Daemon {
    /// Serves `root` on a free port of the peer's host.
    #[track_caller]
    pub(crate) fn start(root: &Path, flags: &[&str]) -> Self {
        let state = Scratch::new();
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let daemon = Self::from_command(&mut serve(root, &flags, state.path(), 0));
        // The state directory lives as long as the daemon.
        daemon.with(root, flags, state)
    }

    fn with(mut self, root: &Path, flags: Vec<String>, state: Scratch) -> Self {
        self.root = root.to_owned();
        self.flags = flags;
        self.state = state;
        self
    }

    /// Starts a daemon with another command.
    #[track_caller]
    pub(crate) fn from_command(command: &mut Command) -> Self {
        let mut daemon = Self {
            running: Running::start_there(command),
            port: 0,
            fingerprint: String::new(),
            root: PathBuf::new(),
            flags: Vec::new(),
            state: Scratch::new(),
        };
        daemon.meet();
        daemon
    }

    /// Restarts the daemon on the same port after its end.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        let mut command = serve(&self.root, &self.flags, self.state.path(), self.port);
        self.running = Running::start_there(&mut command);
        self.meet();
    }

    /// Reads the first line.
    #[track_caller]
    fn meet(&mut self) {
        wait_until("the daemon listens", || {
            assert!(!self.running.is_over(), "the daemon ended: {}", self.running.err());
            self.running.out().contains('\n')
        });
        let first = self.events().remove(0);
        assert_eq!(first["event"], "listening");
        self.port = first["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap();
        self.fingerprint = first["fingerprint"].as_str().unwrap().to_owned();
    }

    /// Returns a location beneath the root.
    pub(crate) fn url(&self, path: &str) -> String {
        remote_url(self.port, path)
    }

    /// Returns `bankfull cp --json` that trusts the daemon.
    pub(crate) fn cp(&self) -> Command {
        self.trusted(cp())
    }

    /// Returns `bankfull probe --json` that trusts the daemon.
    pub(crate) fn probe(&self) -> Command {
        self.trusted(probe())
    }

    /// Returns `bankfull ls` that trusts the daemon.
    pub(crate) fn ls(&self) -> Command {
        self.trusted(ls())
    }

    fn trusted(&self, mut command: Command) -> Command {
        command.args(["--fingerprint", &self.fingerprint]);
        command
    }

    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.running.is_over()
    }

    pub(crate) fn kill(&mut self) {
        self.running.kill();
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    pub(crate) fn err(&self) -> String {
        self.running.err()
    }

    /// Returns the JSON lines so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        let out = self.running.out();
        // The last line may be incomplete.
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Returns the number of ended sessions and refused connections.
    pub(crate) fn clients_done(&self) -> usize {
        self.events().iter().filter(|event| event["event"] == "client_done").count()
    }

    /// Waits for the end and returns the exit code.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> Option<i32> {
        wait_until("the daemon ends", || self.running.is_over());
        self.running.read_to_end();
        self.running.code()
    }
}

fn serve(root: &Path, flags: &[String], state: &Path, port: u16) -> Command {
    let mut command = command();
    command.arg("serve").arg(root).args(["--json", "--listen"]).arg(remote_address(port));
    command.arg("--state-dir").arg(state).args(flags);
    command
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let err = self.running.err();
        if std::thread::panicking() {
            println!("output of the daemon:\n{}\n{err}", self.running.out());
        } else {
            assert!(!err.contains("panicked"), "the daemon panicked:\n{err}");
        }
    }
}
