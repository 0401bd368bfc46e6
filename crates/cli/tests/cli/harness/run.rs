//! Runs the program with a time limit, and keeps its output for failures.

use super::remote::{patience, spawn_remote};
use super::{Scratch, is_root};
use crate::{VARIABLES, command};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{self, Read};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time limit of a program.
const LIMIT: Duration = Duration::from_secs(120);

/// Time that output may stay open after the end of the program: ssh outlives a killed client
/// shortly.
const OUTPUT_LIMIT: Duration = Duration::from_secs(10);

/// Returns `bankfull cp --json`.
pub(crate) fn cp() -> Command {
    let mut command = command();
    command.args(["cp", "--json", "--retry-for", "0"]);
    command
}

/// Returns `bankfull gather --json`.
pub(crate) fn gather() -> Command {
    let mut command = command();
    command.args(["gather", "--json", "--retry-for", "0"]);
    command
}

/// Returns `bankfull probe --json`.
pub(crate) fn probe() -> Command {
    let mut command = command();
    command.args(["probe", "--json"]);
    command
}

/// Returns `bankfull ls`.
pub(crate) fn ls() -> Command {
    let mut command = command();
    command.arg("ls");
    command
}

/// Returns a shell's script with a command as `"$@"`.
pub(crate) fn script(text: &str, command: &Command) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-o", "pipefail", "-c", text, "bash"]).arg(command.get_program());
    shell.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Done {
    Running::start(command).wait()
}

/// Runs a command on the host of the peer to its end.
#[track_caller]
pub(crate) fn run_there(command: &mut Command) -> Done {
    Running::start_there(command).wait()
}

/// Runs a command to its end, within `limit`.
#[track_caller]
pub(crate) fn run_for(command: &mut Command, limit: Duration) -> Done {
    Running::start(command).wait_for(limit)
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience(Duration::from_secs(20));
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// User without any files, by convention.
const UNPRIVILEGED_ID: u32 = 65_534;

/// Returns the program for an unprivileged user. If the tests run as root, it runs as an
/// unprivileged user, with a copy of the program in `scratch` and the directory `own`.
pub(crate) fn unprivileged(scratch: &Scratch, own: &Path) -> Command {
    if !is_root() {
        return command();
    }
    scratch.open_to_all();
    let program = scratch.join("bankfull");
    if !program.exists() {
        // A separate program copies the file: a test that forks at this moment would inherit the
        // open descriptor, and a file open for writing cannot be executed.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_bankfull")).arg(&program).status();
        assert!(copied.unwrap().success());
    }
    chown(own, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).unwrap();
    let mut command = Command::new(program);
    as_unprivileged(&mut command);
    command
}

/// Returns the same, with a limit of threads for the user.
pub(crate) fn unprivileged_within(scratch: &Scratch, own: &Path, threads: u32) -> Command {
    let program = unprivileged(scratch, own);
    let mut command = Command::new("prlimit");
    command.arg(format!("--nproc={threads}")).arg(program.get_program());
    if is_root() {
        as_unprivileged(&mut command);
    }
    command
}

fn as_unprivileged(command: &mut Command) {
    command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID).env("HOME", "/nonexistent");
    command.env("BANKFULL_CONFIG", "");
    for name in VARIABLES {
        command.env_remove(name);
    }
}

/// Output of a program so far.
#[derive(Debug, Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn collect(&self, mut from: impl Read + Send + 'static) -> JoinHandle<()> {
        let text = self.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                text.0.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        })
    }

    fn get(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// A running program. Killed on drop.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    what: String,
    out: Text,
    err: Text,
    collectors: Vec<JoinHandle<()>>,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::with(command, Command::spawn)
    }

    /// Starts a program on the host of the peer.
    #[track_caller]
    pub(crate) fn start_there(command: &mut Command) -> Self {
        Self::with(command, spawn_remote)
    }

    #[track_caller]
    fn with(command: &mut Command, spawn: fn(&mut Command) -> io::Result<Child>) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command).expect("the program starts");
        let (out, err) = (Text::default(), Text::default());
        let collectors = vec![
            out.collect(child.stdout.take().expect("a pipe")),
            err.collect(child.stderr.take().expect("a pipe")),
        ];
        Self { child, what: format!("{command:?}"), out, err, collectors }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn out(&self) -> String {
        self.out.get()
    }

    pub(crate) fn err(&self) -> String {
        self.err.get()
    }

    /// True if the program has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Returns the exit code after the end; `None` if a signal ended the program.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.child.try_wait().expect("a child can be waited for").and_then(|status| status.code())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        let _ = kill_process(id, signal);
    }

    /// Kills the program with SIGKILL and waits.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    #[track_caller]
    pub(crate) fn wait(self) -> Done {
        self.wait_for(patience(LIMIT))
    }

    #[track_caller]
    pub(crate) fn wait_for(mut self, limit: Duration) -> Done {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if Instant::now() >= deadline {
                self.kill();
                panic!(
                    "{} hung for {limit:?}\nstdout: {}\nstderr: {}",
                    self.what,
                    tail(&self.out()),
                    tail(&self.err())
                );
            }
            thread::sleep(Duration::from_millis(2));
        };
        self.done(status)
    }

    /// Waits until all output is read, which may be in the pipe after the end.
    pub(crate) fn read_to_end(&mut self) {
        let deadline = Instant::now() + patience(OUTPUT_LIMIT);
        for collector in std::mem::take(&mut self.collectors) {
            while !collector.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn done(mut self, status: ExitStatus) -> Done {
        self.read_to_end();
        let what = std::mem::take(&mut self.what);
        Done { code: status.code(), out: self.out(), err: self.err(), what }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Exit code; `None` if a signal ended the program.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    what: String,
}

impl Done {
    /// Panics with all output unless the program ended with `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert!(
            self.code == Some(code),
            "{} ended with {:?}, not {code}\nstdout: {}\nstderr: {}",
            self.what,
            self.code,
            tail(&self.out),
            tail(&self.err)
        );
        self
    }

    /// Checks that the error is one line with all of `parts`.
    #[track_caller]
    pub(crate) fn says(&self, parts: &[&str]) {
        let lines: Vec<&str> = self.err.lines().filter(|l| l.starts_with("bankfull: ")).collect();
        let fits = |line: &&&str| parts.iter().all(|part| line.contains(part));
        assert!(lines.iter().any(|line| fits(&line)), "no line has {parts:?} in:\n{}", self.err);
    }

    /// Checks that a file failed with a message that has all of `parts`.
    #[track_caller]
    pub(crate) fn fails(&self, parts: &[&str]) {
        let failed = self.failed();
        let fits =
            |(_, message): &(String, String)| parts.iter().all(|part| message.contains(part));
        assert!(failed.iter().any(fits), "no failure has {parts:?} in {failed:?}");
    }

    /// Returns paths and messages of the failed files.
    #[track_caller]
    pub(crate) fn failed(&self) -> Vec<(String, String)> {
        let events = self.events();
        let failed = events.iter().filter(|event| event["event"] == "file_failed");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        failed.map(|event| (text(&event["path"]), text(&event["message"]))).collect()
    }

    /// Returns the lines of `--json`.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        let parse = |line: &str| match serde_json::from_str(line) {
            Ok(value) => value,
            Err(error) => panic!("{line:?} is not JSON: {error}"),
        };
        self.out.lines().map(parse).collect()
    }

    /// Returns the warnings of `--json`, except that about UDP: proxies carry TCP alone.
    #[track_caller]
    pub(crate) fn warnings(&self) -> Vec<String> {
        let events = self.events();
        let reported = events.iter().filter(|event| event["event"] == "warning");
        let reported = reported.filter_map(|event| event["message"].as_str().map(str::to_owned));
        reported.filter(|text| !text.starts_with("no response over UDP")).collect()
    }

    /// Returns a figure of the summary, which must be the last line.
    #[track_caller]
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let last = self.events().pop().unwrap_or_default();
        assert_eq!(last["event"], "summary", "{}\n{}", tail(&self.out), tail(&self.err));
        last[name].as_u64().unwrap_or_else(|| panic!("no number {name:?} in {last}"))
    }

    /// Returns several figures of the summary.
    #[track_caller]
    pub(crate) fn figures<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.figure(name))
    }
}

/// Returns the end of a text, which has the errors.
fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(2000);
    (start..text.len()).find_map(|at| text.get(at..)).unwrap_or_default()
}
