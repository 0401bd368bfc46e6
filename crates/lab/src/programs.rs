//! Programs on the hosts of a run: servers at one end, and for each sender a client at the other.

use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::network::Network;
use crate::signals::Signals;
use crate::tools::{self, Begun, Clients, Figures, Job, Measure, Program};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take until it listens. (ours: some make keys first)
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// How often a wait looks again. (ours: the error of a measured time)
const LOOK: Duration = Duration::from_millis(1);

/// What a program said is told up to this length. (ours: two lines of a terminal)
const SAID_MAX: usize = 200;

/// A line with one of these says what went wrong; others are usage, or what came of it.
const ERRORS: [&str; 3] = ["error", "invalid", "unknown"];

/// Servers; they end with the value.
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
    /// Starts what a program's clients need, and waits until it listens.
    pub(crate) fn start(
        &mut self,
        network: &Network,
        program: &Program,
        jobs: &[Job<'_>],
        signals: &Signals,
    ) -> Result<()> {
        let count = if program.clients == Clients::One { jobs.len() } else { 1 };
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
        let host = match program.begun {
            Begun::AtSender => network.receiver(),
            Begun::AtReceiver => job.sender,
        };
        let error = job.dir.join(format!("server{}.err", job.sender));
        let deadline = Deadline::new(signals, LISTEN_WAIT);
        let before = network.hosts().listeners(host);
        let child =
            network.hosts().spawn(host, &mut shell(&line, job.is_unprivileged, None, &error)?)?;
        self.started.push(Server { child, tool: job.contender.tool.clone(), error });
        while network.hosts().listeners(host) <= before {
            if let Some(how) = self.ended() {
                return Err(LabError::Command(job.contender.tool.clone(), how));
            }
            if deadline.reached().is_some() {
                let what = format!("server of {}", job.contender.tool);
                return Err(LabError::Command(what, "it does not listen".to_owned()));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// How the first has ended that does not run any more.
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

/// A line for a shell on a host, whose output goes to files. Programs find the limit of open files
/// that they would find without a lab: some look at each number below it.
fn shell(line: &str, unprivileged: bool, out: Option<&Path>, error: &Path) -> Result<Command> {
    let create = |path: &Path| {
        File::create(path)
            .map_err(|e| LabError::io(format!("cannot write to {}", path.display()), e))
    };
    let limit = crate::machine::usual_open_files();
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

/// Runs the client of each sender, each from its moment on, and tells what they reached together.
pub(crate) fn run_clients(
    network: &Network,
    program: &Program,
    jobs: &[Job<'_>],
    servers: &mut Servers,
    deadline: &Deadline<'_>,
) -> Result<Figures> {
    let file = |job: &Job<'_>, kind: &str| job.dir.join(format!("client{}.{kind}", job.sender));
    let began = Instant::now();
    let mut children = Vec::new();
    for job in jobs {
        let (out, error) = (file(job, "out"), file(job, "err"));
        let mut shell = shell(&(program.client)(job), job.is_unprivileged, Some(&out), &error)?;
        deadline.sleep_until(began + job.begins, &job.contender.tool)?;
        let host = match program.begun {
            Begun::AtSender => job.sender,
            Begun::AtReceiver => network.receiver(),
        };
        children.push(network.hosts().spawn(host, &mut shell)?);
    }
    let (ended, why) = wait_for_all(&mut children, deadline);
    let took = began.elapsed();
    for (job, status) in jobs.iter().zip(ended) {
        let mut status = match status {
            Some(status) if status.success() => continue,
            Some(status) => format!("{status}: {}", words_of(&file(job, "err"), &file(job, "out"))),
            None => why.clone().unwrap_or_default(),
        };
        if let Some(how) = servers.ended() {
            status += &format!("; before that ended the {how}");
        }
        return Err(LabError::Command(job.contender.tool.clone(), status));
    }
    let Measure::Told(tells) = program.measure else { return moved(jobs, took) };
    let told = |job: &Job<'_>| {
        let out = fs::read_to_string(file(job, "out")).unwrap_or_default();
        tells(&out).ok_or_else(|| {
            let what = "its output is not understood".to_owned();
            LabError::Command(job.contender.tool.clone(), what)
        })
    };
    let told: Vec<Figures> = jobs.iter().map(told).collect::<Result<_>>()?;
    Ok(Figures::together(&told))
}

/// How each has ended; those that have not by the deadline are ended by force, and why.
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
        let why = deadline.reached();
        if why.is_some() {
            for child in children.iter_mut() {
                let _ = child.kill();
                let _ = child.wait();
            }
            return (ended, why);
        }
        thread::sleep(LOOK);
    }
}

/// What was moved, if it is all there.
fn moved(jobs: &[Job<'_>], took: Duration) -> Result<Figures> {
    for job in jobs {
        let (files, bytes) = crate::data::count(&job.place());
        if (files, bytes) != (job.data.files, job.data.bytes()) {
            let what = format!(
                "{files} files with {bytes} arrived, not {} with {}",
                job.data.files,
                job.data.bytes()
            );
            return Err(LabError::Command(job.contender.tool.clone(), what));
        }
    }
    let each = jobs.first().map(|job| job.data.bytes().0).unwrap_or_default();
    let mut figures = tools::goodput(bankfull_control::Bytes(each * jobs.len() as u64), took);
    let files = jobs.first().map(|job| job.data.files).unwrap_or_default();
    figures.files_per_second = (files > 1)
        .then(|| (files * jobs.len() as u64) as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE));
    Ok(figures)
}

/// Its error; some programs tell errors where they tell all else.
fn words_of(error: &Path, out: &Path) -> String {
    let has_words = fs::metadata(error).is_ok_and(|meta| meta.len() > 0);
    if has_words {
        return error_line(error);
    }
    let text = fs::read_to_string(out).unwrap_or_default();
    let told: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let told = told.and_then(|told| told["error"].as_str().map(str::to_owned));
    told.unwrap_or_else(|| error_line(out))
}

/// The first line of what a program has said that tells of an error, else the first that is no
/// warning, else the first; cut short.
fn error_line(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ERRORS.iter().any(|word| line.contains(word))
    };
    let is_no_warning = |line: &&str| !line.to_ascii_lowercase().contains("warning");
    let line = lines().find(is_error).or_else(|| lines().find(is_no_warning));
    let line = line.or_else(|| lines().next()).unwrap_or("no word");
    line.chars().filter(|c| !c.is_control()).take(SAID_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_program_said_the_line_with_the_error_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("said");
        for (said, wanted) in [
            ("iperf3: unrecognized option\nUsage: x\niperf3: parameter ERROR\n", "parameter ERROR"),
            ("Usage: iperf3 [options]\nTry `--help`\n", "Usage: iperf3"),
            ("Warning: added to known hosts\n\nno route to host\n", "no route to host"),
            ("warning: only\n", "warning: only"),
            ("", "no word"),
        ] {
            fs::write(&file, said).unwrap();
            assert!(error_line(&file).contains(wanted), "{}", error_line(&file));
        }
    }

    #[test]
    fn a_server_that_has_ended_is_told_with_its_error() {
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
