//! Programs on the hosts of a run: servers at one end, and a client for each sender.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::base::signals::Signals;
use crate::model::job::Job;
use crate::model::metrics::Metrics;
use crate::run::work_dir::count_files;
use crate::tools::tool::{Initiator, MetricsSource, Program, ServerScope};
use crate::topology::machine;
use crate::topology::network::Network;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time for a server to start listening. (chosen: some create keys first)
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Poll interval; bounds the error of measured times. (chosen: a thousandth of a short run)
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Largest length of quoted program output, in characters. (chosen: two lines of a terminal)
const MAX_MESSAGE_CHARS: usize = 200;

/// Words that mark an error line; other lines are usage or results.
const ERROR_WORDS: [&str; 3] = ["error", "invalid", "unknown"];

/// Running servers; killed when dropped.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    started: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    child: Child,
    tool: String,
    error: PathBuf,
}

impl Servers {
    /// Starts the servers for a program's clients, and waits until they listen.
    pub(crate) fn start(
        &mut self,
        network: &Network,
        program: &Program,
        jobs: &[Job<'_>],
        signals: &Signals,
    ) -> Result<()> {
        let count = if program.server_scope == ServerScope::PerSender { jobs.len() } else { 1 };
        jobs.iter().take(count).try_for_each(|job| self.start_one(network, program, job, signals))
    }

    fn start_one(
        &mut self,
        network: &Network,
        program: &Program,
        job: &Job<'_>,
        signals: &Signals,
    ) -> Result<()> {
        let Some(line) = (program.server)(job) else { return Ok(()) };
        let host = match program.initiator {
            Initiator::Sender => network.receiver(),
            Initiator::Receiver => job.sender,
        };
        let error = job.dir.join(format!("server{}.err", job.sender));
        let deadline = Deadline::new(signals, LISTEN_TIMEOUT);
        let before = network.hosts().listening_sockets(host);
        let child =
            network.hosts().spawn(host, &mut shell(&line, job.is_unprivileged, None, &error)?)?;
        self.started.push(Server { child, tool: job.contender.tool.clone(), error });
        while network.hosts().listening_sockets(host) <= before {
            if let Some(how) = self.ended() {
                return Err(LabError::Command(job.contender.tool.clone(), how));
            }
            if deadline.expired().is_some() {
                let what = format!("server of {}", job.contender.tool);
                return Err(LabError::Command(what, "it is not listening".to_owned()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Describes the exit of the first server that has ended.
    fn ended(&mut self) -> Option<String> {
        self.started.iter_mut().find_map(|server| {
            let status = server.child.try_wait().ok().flatten()?;
            Some(format!("server of {}: {status}: {}", server.tool, error_line(&server.error)))
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.started {
            let _ = server.child.kill();
            let _ = server.child.wait();
        }
    }
}

/// Shell command with its output in files. Restores the original limit of open files: some programs
/// iterate over all numbers below it.
fn shell(line: &str, unprivileged: bool, out: Option<&Path>, error: &Path) -> Result<Command> {
    let create = |path: &Path| {
        File::create(path)
            .map_err(|e| LabError::io(format!("cannot write to {}", path.display()), e))
    };
    let limit = machine::original_open_file_limit();
    let line = limit.map_or(line.to_owned(), |files| format!("ulimit -S -n {files}; {line}"));
    let mut shell = Command::new(if unprivileged { "setpriv" } else { "sh" });
    if unprivileged {
        shell.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", "--", "sh"]);
    }
    shell.arg("-c").arg(line).stdin(Stdio::null()).stderr(create(error)?);
    match out {
        Some(out) => shell.stdout(create(out)?),
        None => shell.stdout(Stdio::null()),
    };
    Ok(shell)
}

/// Runs one client per sender, each after its start delay, and returns their combined metrics.
pub(crate) fn run_clients(
    network: &Network,
    program: &Program,
    jobs: &[Job<'_>],
    servers: &mut Servers,
    deadline: &Deadline<'_>,
) -> Result<Metrics> {
    let file = |job: &Job<'_>, kind: &str| job.dir.join(format!("client{}.{kind}", job.sender));
    let began = Instant::now();
    let mut children = Vec::new();
    for job in jobs {
        let (out, error) = (file(job, "out"), file(job, "err"));
        let mut shell = shell(&(program.client)(job), job.is_unprivileged, Some(&out), &error)?;
        deadline.sleep_until(began + job.start_delay, &job.contender.tool)?;
        let host = match program.initiator {
            Initiator::Sender => job.sender,
            Initiator::Receiver => network.receiver(),
        };
        children.push(network.hosts().spawn(host, &mut shell)?);
    }
    let (ended, why) = wait_for_all(&mut children, deadline);
    let elapsed = began.elapsed();
    for (job, status) in jobs.iter().zip(ended) {
        let mut status = match status {
            Some(status) if status.success() => continue,
            Some(status) => {
                format!("{status}: {}", client_error(&file(job, "err"), &file(job, "out")))
            }
            None => why.clone().unwrap_or_default(),
        };
        if let Some(how) = servers.ended() {
            status += &format!("; earlier: {how}");
        }
        return Err(LabError::Command(job.contender.tool.clone(), status));
    }
    let parse = match program.metrics {
        MetricsSource::Files => return moved_metrics(jobs, elapsed),
        MetricsSource::Output(parse) | MetricsSource::OutputOfFiles(parse) => parse,
    };
    let metrics = |job: &Job<'_>| {
        let out = fs::read_to_string(file(job, "out")).unwrap_or_default();
        parse(&out).ok_or_else(|| {
            let what = "its output cannot be parsed".to_owned();
            LabError::Command(job.contender.tool.clone(), what)
        })
    };
    let metrics: Vec<Metrics> = jobs.iter().map(metrics).collect::<Result<_>>()?;
    Ok(Metrics::combine(&metrics))
}

/// Waits for all clients; at the deadline, kills the rest and returns the reason.
fn wait_for_all(
    children: &mut [Child],
    deadline: &Deadline<'_>,
) -> (Vec<Option<ExitStatus>>, Option<String>) {
    let mut ended = vec![None; children.len()];
    loop {
        for (child, status) in children.iter_mut().zip(&mut ended) {
            if status.is_none() {
                *status = child.try_wait().ok().flatten();
            }
        }
        if ended.iter().all(Option::is_some) {
            return (ended, None);
        }
        let why = deadline.expired();
        if why.is_some() {
            for child in children.iter_mut() {
                let _ = child.kill();
                let _ = child.wait();
            }
            return (ended, why);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Checks that everything was moved, and computes the metrics.
fn moved_metrics(jobs: &[Job<'_>], elapsed: Duration) -> Result<Metrics> {
    for job in jobs {
        let (files, bytes) = count_files(&job.sender_target());
        if (files, bytes) != (job.data.files, job.data.bytes()) {
            let what = format!(
                "{files} files with {bytes} arrived instead of {} with {}",
                job.data.files,
                job.data.bytes()
            );
            return Err(LabError::Command(job.contender.tool.clone(), what));
        }
    }
    let each = jobs.first().map(|job| job.data.bytes().0).unwrap_or_default();
    let mut metrics =
        Metrics::of_transfer(bankfull_control::Bytes(each * jobs.len() as u64), elapsed);
    let files = jobs.first().map(|job| job.data.files).unwrap_or_default();
    metrics.files_per_second = (files > 1)
        .then(|| (files * jobs.len() as u64) as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE));
    Ok(metrics)
}

/// Error output of a client; some report errors in their JSON output.
fn client_error(error: &Path, out: &Path) -> String {
    let has_words = fs::metadata(error).is_ok_and(|meta| meta.len() > 0);
    if has_words {
        return error_line(error);
    }
    let text = fs::read_to_string(out).unwrap_or_default();
    let metrics: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let metrics = metrics.and_then(|metrics| metrics["error"].as_str().map(str::to_owned));
    metrics.unwrap_or_else(|| error_line(out))
}

/// Returns the first line with an error word, else the first non-warning, else the first. The line
/// is truncated.
fn error_line(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ERROR_WORDS.iter().any(|word| line.contains(word))
    };
    let is_no_warning = |line: &&str| !line.to_ascii_lowercase().contains("warning");
    let line = lines().find(is_error).or_else(|| lines().find(is_no_warning));
    let line = line.or_else(|| lines().next()).unwrap_or("no output");
    line.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_line_is_found_in_output() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("output");
        for (output, wanted) in [
            ("iperf3: unrecognized option\nUsage: x\niperf3: parameter ERROR\n", "parameter ERROR"),
            ("Usage: iperf3 [options]\nTry `--help`\n", "Usage: iperf3"),
            ("Warning: added to known hosts\n\nno route to host\n", "no route to host"),
            ("warning: only\n", "warning: only"),
            ("", "no output"),
        ] {
            fs::write(&file, output).unwrap();
            assert!(error_line(&file).contains(wanted), "{}", error_line(&file));
        }
    }

    #[test]
    fn ended_server_is_reported_with_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = dir.path().join("server.err");
        let start = |line: &str| {
            let child = shell(line, false, None, &error).unwrap().spawn().unwrap();
            Servers { started: vec![Server { child, tool: "it".to_owned(), error: error.clone() }] }
        };
        let mut servers = start("exec sleep 600");
        assert_eq!(servers.ended(), None);
        let id = servers.started[0].child.id();
        drop(servers);
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "it has ended, and was waited for");
        let mut servers = start("echo begun >&2; echo error: the port is taken >&2; exit 3");
        let _ = servers.started[0].child.wait();
        let how = servers.ended().unwrap();
        assert_eq!(how, "server of it: exit status: 3: error: the port is taken");
    }
}
