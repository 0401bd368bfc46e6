//! Runs scenarios: contenders in turn, repetition by repetition, so that what changes on the
//! machine meanwhile changes for all of them.

use crate::data::Sources;
use crate::error::{LabError, Result};
use crate::flows::Flows;
use crate::network::{Network, Outcome};
use crate::observer::{Observer, Seen};
use crate::results::{
    ConditionResult, ContenderResult, NetworkFigures, Report, RunResult, SCHEMA, ScenarioResult,
    Series,
};
use crate::scenario::{Condition, Contender, Scenario, Settings};
use crate::signals::Signals;
use crate::tools::{self, Figures, Job, Measure, Program, Run, Tool, Way};
use crate::{machine, say};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A void run is repeated so often. (design: "repeated at most twice")
const VOID_REPEATS: u32 = 2;

/// How long a server may take until it listens. (ours)
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// How often a wait looks again. (ours: the error of a measured time)
const LOOK: Duration = Duration::from_millis(1);

/// TCP flows beside what is measured have this long to find their rates. (ours)
const CROSS_LEAD: Duration = Duration::from_secs(2);

/// First port of the flows beside. (ours)
const CROSS_PORT: u16 = 7900;

/// What a program said last is told up to this length. (ours)
const SAID_MAX: usize = 200;

/// Share of an IP packet of 1500 bytes that is TCP's payload, with timestamps.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// How scenarios are run.
#[derive(Debug)]
pub struct Runner<'a> {
    /// Requests to end: what is measured by then is kept.
    pub signals: &'a Signals,
    /// Repetitions, instead of what the scenarios say.
    pub repetitions: Option<u32>,
    /// Only contenders of these names; all when empty.
    pub only: Vec<String>,
    sources: Sources,
}

impl<'a> Runner<'a> {
    /// One that keeps its files beneath `work`, and removes them at its end.
    ///
    /// # Errors
    /// When nothing can be made there.
    pub fn new(signals: &'a Signals, work: &Path) -> Result<Self> {
        let sources = Sources::new(work)?;
        Ok(Self { signals, repetitions: None, only: Vec::new(), sources })
    }

    /// Runs all of them, or as many as there is time for until a signal comes.
    ///
    /// # Errors
    /// What keeps a network from being built; a contender that fails is a result.
    pub fn run(&mut self, scenarios: &[Scenario]) -> Result<Report> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut report = Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            began_unix: began.as_secs(),
            machine: machine::this(),
            tools: versions(scenarios),
            scenarios: Vec::new(),
        };
        for scenario in scenarios {
            let mut conditions = Vec::new();
            for condition in &scenario.conditions {
                if self.signals.count() > 0 {
                    break;
                }
                conditions.push(self.condition(scenario, condition)?);
            }
            report.scenarios.push(ScenarioResult {
                name: scenario.name.clone(),
                title: scenario.title.clone(),
                axes: ScenarioResult::axis_names(&scenario.axes),
                conditions,
            });
        }
        Ok(report)
    }

    fn condition(&mut self, scenario: &Scenario, condition: &Condition) -> Result<ConditionResult> {
        let settings = &condition.settings;
        let path = settings.path.config()?;
        let mut results: Vec<(usize, ContenderResult)> = Vec::new();
        for (at, contender) in settings.contenders.iter().enumerate() {
            if self.only.is_empty() || self.only.contains(&contender.name) {
                results.push((at, new_result(settings, contender)?));
            }
        }
        let repetitions = self.repetitions.unwrap_or(settings.run.repetitions);
        for repetition in 1..=repetitions {
            for (at, result) in &mut results {
                if result.skipped.is_some() || self.signals.count() > 0 {
                    continue;
                }
                let run = self.believed(settings, &settings.contenders[*at], repetition)?;
                if self.signals.count() > 0 {
                    // It was cut short.
                    break;
                }
                tell(scenario, condition, result, &run, repetitions);
                result.runs.push(run);
            }
        }
        let rate = path.forward.rate.unwrap_or_default();
        Ok(ConditionResult {
            values: condition.values.clone(),
            capacity_bps: rate.bits_per_sec() as f64 * PAYLOAD_SHARE,
            rtt_seconds: (path.rtt() + settings.senders.delay).as_secs_f64(),
            buffer_bytes: path.forward.buffer.0,
            contenders: results.into_iter().map(|(_, result)| result).collect(),
        })
    }

    /// A run that may be believed, or the last of those that may not.
    fn believed(
        &mut self,
        settings: &Settings,
        contender: &Contender,
        repetition: u32,
    ) -> Result<RunResult> {
        let seed = settings.run.seed + u64::from(repetition) - 1;
        let mut attempts = 0;
        loop {
            let attempt = self.attempt(settings, contender, seed);
            let run = RunResult { repetition, seed, ..attempt.or_else(failed_run)? };
            let Some(why) = &run.void else { return Ok(run) };
            attempts += 1;
            if attempts > VOID_REPEATS || self.signals.count() > 0 {
                return Ok(run);
            }
            say(&format!("void, repeated: {}: {why}", contender.name));
        }
    }

    fn attempt(
        &mut self,
        settings: &Settings,
        contender: &Contender,
        seed: u64,
    ) -> Result<RunResult> {
        let tool = tools::find(&contender.tool)?;
        let source = match &tool.way {
            Way::Program(Program { measure: Measure::Files, .. }) => {
                self.sources.of(&settings.data)?
            }
            _ => PathBuf::new(),
        };
        let run =
            Run { path: settings.path.config()?, seed, source, dir: self.sources.fresh("run")? };
        let job = |sender| Job::new(settings, contender, &run, sender);
        let jobs: Vec<Job<'_>> = (0..settings.senders.count).map(job).collect();
        if let Way::Model(model) = &tool.way {
            return model(&jobs[0]).map(|figures| RunResult { figures, ..RunResult::default() });
        }
        let network = Network::start(&settings.plan(contender, seed)?)?;
        let measured = measure(&network, settings, tool, &jobs, self.signals);
        let senders = 0..settings.senders.count;
        let retransmitted = senders.map(|host| network.hosts().retransmitted(host)).sum();
        let outcome = network.stop()?;
        let (figures, seen) = measured?;
        let (figures, failed) = match figures {
            Ok(figures) => (figures, None),
            Err(error) => (Figures::default(), Some(error.to_string())),
        };
        let result = run_result(settings, &outcome, retransmitted, seen)?;
        Ok(RunResult { figures, failed, ..result })
    }
}

/// A run that did not come about is a result, too; but not where no other would, either.
fn failed_run(error: LabError) -> Result<RunResult> {
    match error {
        LabError::NotRoot | LabError::Missing(..) | LabError::Usage(_) => Err(error),
        _ => Ok(RunResult { failed: Some(error.to_string()), ..RunResult::default() }),
    }
}

/// All but what the contender reached.
fn run_result(
    settings: &Settings,
    outcome: &Outcome,
    retransmitted: u64,
    seen: Seen,
) -> Result<RunResult> {
    let rate = settings.path.config()?.forward.rate.unwrap_or_default();
    let mut series = Series::of(&outcome.recording);
    series.sampled = seen.at;
    series.rtt_seconds = seen.rtt_seconds;
    series.window_bytes = seen.window_bytes;
    let network = NetworkFigures::of(outcome, rate, settings.senders.count, retransmitted);
    Ok(RunResult { void: outcome.void(), network: Some(network), series, ..RunResult::default() })
}

fn new_result(settings: &Settings, contender: &Contender) -> Result<ContenderResult> {
    let skipped = tools::find(&contender.tool)?.missing();
    if let Some(why) = &skipped {
        say(&format!("{} is skipped: {why}", contender.name));
    }
    Ok(ContenderResult {
        name: contender.name.clone(),
        tool: contender.tool.clone(),
        congestion: settings.congestion(contender).map(str::to_owned),
        skipped,
        runs: Vec::new(),
    })
}

fn versions(scenarios: &[Scenario]) -> Vec<(String, String)> {
    let conditions = scenarios.iter().flat_map(|scenario| &scenario.conditions);
    let contenders = conditions.flat_map(|condition| &condition.settings.contenders);
    let mut names: Vec<&str> = contenders.map(|contender| contender.tool.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let tools = names.into_iter().filter_map(|name| tools::find(name).ok());
    tools.filter_map(|tool| Some((tool.name.to_owned(), tool.version_line()?))).collect()
}

/// What a contender reached, or why not; and what was seen of its connections.
type Measured = (Result<Figures>, Seen);

fn measure(
    network: &Network,
    settings: &Settings,
    tool: &Tool,
    jobs: &[Job<'_>],
    signals: &Signals,
) -> Result<Measured> {
    let _beside = start_cross(network, settings)?;
    if let Way::Program(program) = &tool.way {
        for job in jobs {
            fs::create_dir_all(job.place())
                .map_err(|e| LabError::io("cannot make a directory", e))?;
            if let Err(error) = (program.prepare)(job) {
                return Ok((Err(error), Seen::default()));
            }
        }
        if let Err(error) = start_server(network, program, &jobs[0], signals) {
            return Ok((Err(error), Seen::default()));
        }
    }
    let observer = Observer::new(network, settings.path.cut);
    Ok(thread::scope(|scope| {
        let observing = scope.spawn(|| observer.observe());
        // Also when a source panics: the scope would wait for the observer forever.
        let stop = observer.stop_when_dropped();
        let figures = match &tool.way {
            Way::Source(source) => source(network, &jobs[0]),
            Way::Model(model) => model(&jobs[0]),
            Way::Program(program) => {
                run_clients(network, program, jobs, settings.run.limit, signals)
            }
        };
        drop(stop);
        (figures, observing.join().unwrap_or_default())
    }))
}

fn start_cross(network: &Network, settings: &Settings) -> Result<Vec<Flows>> {
    let from = settings.senders.count;
    let kinds = settings.cross_tcp.iter().zip(CROSS_PORT..);
    let flows: Vec<Flows> = kinds
        .map(|(kind, port)| Flows::start(network, from, port, kind.flows, kind.window))
        .collect::<Result<_>>()?;
    if !flows.is_empty() {
        thread::sleep(CROSS_LEAD);
    }
    Ok(flows)
}

fn start_server(
    network: &Network,
    program: &Program,
    job: &Job<'_>,
    signals: &Signals,
) -> Result<()> {
    let Some(line) = (program.server)(job) else { return Ok(()) };
    let receiver = network.receiver();
    let error = job.dir.join("server.err");
    let before = network.hosts().listeners(receiver);
    let mut child = network.hosts().spawn(receiver, &mut shell(&line, None, &error)?)?;
    let until = Instant::now() + LISTEN_WAIT;
    while network.hosts().listeners(receiver) <= before {
        let ended = child.try_wait().ok().flatten();
        if let Some(status) = ended {
            let said = format!("{status}: {}", last_words(&error));
            return Err(LabError::Command(format!("server of {}", job.contender.tool), said));
        }
        if Instant::now() > until || signals.count() > 0 {
            let said = "it does not listen".to_owned();
            return Err(LabError::Command(format!("server of {}", job.contender.tool), said));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// A line for a shell on a host, whose output goes to files.
fn shell(line: &str, out: Option<&Path>, error: &Path) -> Result<Command> {
    let create = |path: &Path| {
        File::create(path)
            .map_err(|e| LabError::io(format!("cannot write to {}", path.display()), e))
    };
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).stdin(Stdio::null()).stderr(create(error)?);
    match out {
        Some(out) => shell.stdout(create(out)?),
        None => shell.stdout(Stdio::null()),
    };
    Ok(shell)
}

/// Runs the client of each sender, all at the same time, and tells what they reached together.
fn run_clients(
    network: &Network,
    program: &Program,
    jobs: &[Job<'_>],
    limit: Duration,
    signals: &Signals,
) -> Result<Figures> {
    let file = |job: &Job<'_>, kind: &str| job.dir.join(format!("client{}.{kind}", job.sender));
    let began = Instant::now();
    let mut children = Vec::new();
    for job in jobs {
        let (out, error) = (file(job, "out"), file(job, "err"));
        let mut shell = shell(&(program.client)(job), Some(&out), &error)?;
        children.push(network.hosts().spawn(job.sender, &mut shell)?);
    }
    let ended = wait_for_all(&mut children, began + limit, signals);
    let took = began.elapsed();
    for (job, status) in jobs.iter().zip(ended) {
        let status = match status {
            Some(status) if status.success() => continue,
            Some(status) => format!("{status}: {}", words_of(&file(job, "err"), &file(job, "out"))),
            None if signals.count() > 0 => "interrupted".to_owned(),
            None => format!("given up after {limit:?}"),
        };
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
    let mut all = told(&jobs[0])?;
    for job in &jobs[1..] {
        let more = told(job)?.goodput_bps;
        all.goodput_bps = all.goodput_bps.zip(more).map(|(a, b)| a + b);
    }
    Ok(all)
}

/// How each has ended; those that have not by the deadline are ended by force.
fn wait_for_all(
    children: &mut [Child],
    deadline: Instant,
    signals: &Signals,
) -> Vec<Option<std::process::ExitStatus>> {
    let mut ended = vec![None; children.len()];
    while ended.iter().any(Option::is_none) {
        for (child, status) in children.iter_mut().zip(&mut ended) {
            if status.is_none() {
                *status = child.try_wait().ok().flatten();
            }
        }
        if Instant::now() > deadline || signals.count() > 0 {
            for child in children.iter_mut() {
                let _ = child.kill();
                let _ = child.wait();
            }
            break;
        }
        thread::sleep(LOOK);
    }
    ended
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

/// Its last error; some programs tell errors where they tell all else.
fn words_of(error: &Path, out: &Path) -> String {
    let has_words = fs::metadata(error).is_ok_and(|meta| meta.len() > 0);
    if has_words {
        return last_words(error);
    }
    let text = fs::read_to_string(out).unwrap_or_default();
    let told: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let told = told.and_then(|told| told["error"].as_str().map(str::to_owned));
    told.unwrap_or_else(|| last_words(out))
}

/// The last line that a program has said, cut short.
fn last_words(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no word");
    line.chars().filter(|c| !c.is_control()).take(SAID_MAX).collect()
}

/// One line for the user.
fn tell(
    scenario: &Scenario,
    condition: &Condition,
    result: &ContenderResult,
    run: &RunResult,
    repetitions: u32,
) {
    let under: String = condition.values.iter().map(|value| format!(" {value}")).collect();
    let what = match (&run.failed, &run.void) {
        (Some(why), _) => format!("failed: {why}"),
        (None, Some(why)) => format!("VOID: {why}"),
        (None, None) => crate::tables::words(&run.figures),
    };
    let (name, repetition) = (&scenario.name, run.repetition);
    say(&format!("{name}{under}: {} {repetition}/{repetitions}: {what}", result.name));
}
