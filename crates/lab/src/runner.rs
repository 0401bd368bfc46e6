//! Runs scenarios: contenders in turn, repetition by repetition, so that what changes on the
//! machine meanwhile changes for all of them.

use crate::data::Sources;
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::flows::{Flows, Kind};
use crate::network::{Network, Outcome};
use crate::observer::{Observer, Seen};
use crate::programs::{self, Servers};
use crate::results::{
    Carriers, ConditionResult, ContenderResult, HostFigures, NetworkFigures, Report, RunResult,
    SCHEMA, ScenarioResult, Series,
};
use crate::scenario::{Condition, Contender, Scenario, Settings};
use crate::signals::Signals;
use crate::tools::{self, Figures, Job, Measure, Program, Run, Tool, Way};
use crate::{machine, say};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A void run is repeated so often. (design: "repeated at most twice")
const VOID_REPEATS: u32 = 2;

/// How long the flows beside may take to connect. (ours: several time-outs of the first packets)
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// TCP flows beside what is measured have this long to find their rates. (ours: slow start and some
/// reductions)
pub(crate) const CROSS_LEAD: Duration = Duration::from_secs(2);

/// First port of the flows beside. (ours: above those that are counted up with the senders, below
/// those that the kernel gives away, from 32 768 on)
const CROSS_PORT: u16 = 31_000;

/// Share of an IP packet of 1500 bytes that is TCP's payload: the headers take 20 and 20 bytes, and
/// timestamps 12. (RFC 791, RFC 9293, RFC 7323)
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
    /// Where what programs said is kept, if it is.
    pub said: Option<PathBuf>,
    sources: Sources,
}

impl<'a> Runner<'a> {
    /// One that keeps its files beneath `work`, and removes them at its end.
    ///
    /// # Errors
    /// When nothing can be made there.
    pub fn new(signals: &'a Signals, work: &Path) -> Result<Self> {
        let sources = Sources::new(work)?;
        Ok(Self { signals, repetitions: None, only: Vec::new(), said: None, sources })
    }

    /// Runs all of them, or as many as there is time for until a signal comes or a network cannot
    /// be built, which is the second value: what was measured by then is in the report, whatever
    /// came. A contender that fails is a result.
    pub fn run(&mut self, scenarios: &[Scenario]) -> (Report, Result<()>) {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut report = Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            began_unix: began.as_secs(),
            machine: machine::this(),
            tools: versions(scenarios),
            scenarios: Vec::new(),
        };
        let mut ended = Ok(());
        for scenario in scenarios {
            let mut conditions = Vec::new();
            for condition in &scenario.conditions {
                if self.signals.count() > 0 || ended.is_err() {
                    break;
                }
                let mut contenders = Vec::new();
                ended = self.condition(scenario, condition, &mut contenders);
                match condition_result(condition, contenders) {
                    Ok(result) => conditions.push(result),
                    Err(error) => ended = ended.and(Err(error)),
                }
            }
            report.scenarios.push(ScenarioResult {
                name: scenario.name.clone(),
                title: scenario.title.clone(),
                axes: ScenarioResult::axis_names(&scenario.axes),
                conditions,
            });
        }
        (report, ended)
    }

    /// Adds to `results` what the contenders reach.
    fn condition(
        &mut self,
        scenario: &Scenario,
        condition: &Condition,
        results: &mut Vec<ContenderResult>,
    ) -> Result<()> {
        let settings = &condition.settings;
        let mut contenders = Vec::new();
        for contender in &settings.contenders {
            if self.only.is_empty() || self.only.contains(&contender.name) {
                results.push(new_result(settings, contender)?);
                contenders.push(contender);
            }
        }
        let repetitions = self.repetitions.unwrap_or(settings.run.repetitions);
        for repetition in 1..=repetitions {
            for (contender, result) in contenders.iter().zip(results.iter_mut()) {
                if result.skipped.is_some() || self.signals.count() > 0 {
                    continue;
                }
                let run = self.believed(settings, contender, repetition)?;
                // One that came to no network has said nothing.
                if let Some(said) = self.said.as_ref().filter(|_| run.network.is_some()) {
                    let under: String = condition.values.iter().map(|v| format!("-{v}")).collect();
                    let name = format!("{}{under}-{}-{repetition}", scenario.name, contender.name);
                    keep_said(&self.sources.last("run"), said, &name)?;
                }
                if self.signals.count() > 0 {
                    // It was cut short.
                    break;
                }
                tell(scenario, condition, result, &run, repetitions);
                result.runs.push(run);
            }
        }
        Ok(())
    }

    /// A run that may be believed, or the last of those that may not.
    fn believed(
        &mut self,
        settings: &Settings,
        contender: &Contender,
        repetition: u32,
    ) -> Result<RunResult> {
        let seed = settings.run.seed + u64::from(repetition) - 1;
        let signals = self.signals;
        let run = until_believed(signals, &contender.name, || {
            self.attempt(settings, contender, seed).or_else(failed_run)
        })?;
        Ok(RunResult { repetition, seed, ..run })
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
        let run = Run {
            path: settings.path_config()?,
            seed,
            source,
            dir: self.sources.fresh("run")?,
            is_heard: self.said.is_some(),
        };
        let job = |sender| Job::new(settings, contender, &run, sender);
        let jobs: Vec<Job<'_>> = (0..settings.senders.count).map(job).collect();
        if let Way::Model(model) = &tool.way {
            let figures = model(&jobs[0], &Deadline::new(self.signals, settings.run.limit))?;
            return Ok(RunResult { figures, ..RunResult::default() });
        }
        let network = Network::start(&settings.plan(contender, seed)?)
            .map_err(|error| of_contender(error, contender))?;
        let measured = measure(&network, settings, tool, &jobs, self.signals);
        let senders = 0..settings.senders.count;
        let told = HostFigures {
            retransmitted: senders.map(|host| network.hosts().retransmitted(host)).sum(),
            socket_drops: network.hosts().socket_drops(network.receiver()),
        };
        let outcome = network.stop()?;
        let (figures, seen) = measured?;
        let (figures, failed) = match figures {
            Ok(figures) => (figures, None),
            Err(error) => (Figures::default(), Some(error.to_string())),
        };
        let senders = settings.senders.count;
        let carriers = Carriers { senders, flows: tool.carriers(contender, senders) };
        let result = run_result(settings, carriers, &outcome, told, seen)?;
        Ok(RunResult { figures, failed, ..result })
    }
}

/// Copies what the clients of a run said, each to a file whose name begins with that of the run.
fn keep_said(run: &Path, said: &Path, name: &str) -> Result<()> {
    let failed = |e| LabError::io(format!("cannot keep what was said in {}", said.display()), e);
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    for entry in fs::read_dir(run).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if let Some(rest) = file.strip_prefix("client").filter(|rest| rest.contains('.')) {
            fs::copy(run.join(&file), said.join(format!("{name}-{rest}"))).map_err(failed)?;
        }
    }
    Ok(())
}

fn condition_result(
    condition: &Condition,
    contenders: Vec<ContenderResult>,
) -> Result<ConditionResult> {
    let settings = &condition.settings;
    let path = settings.path_config()?;
    Ok(ConditionResult {
        values: condition.values.clone(),
        capacity_bps: settings.rate()?.bits_per_sec() as f64 * PAYLOAD_SHARE,
        rtt_seconds: (path.rtt() + settings.senders.longest_delay()).as_secs_f64(),
        buffer_bytes: path.forward.buffer.0,
        contenders,
    })
}

/// Repeats what is void, but not forever, and not once somebody asks to end.
fn until_believed(
    signals: &Signals,
    name: &str,
    mut attempt: impl FnMut() -> Result<RunResult>,
) -> Result<RunResult> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let run = RunResult { attempts, ..attempt()? };
        let Some(why) = &run.void else { return Ok(run) };
        if attempts > VOID_REPEATS || signals.count() > 0 {
            return Ok(run);
        }
        say(&format!("void, repeated: {name}: {why}"));
    }
}

/// A run that did not come about is a result, too; but not where no contender's would, either.
fn failed_run(error: LabError) -> Result<RunResult> {
    match error {
        LabError::NotRoot | LabError::Missing(..) | LabError::Usage(_) => Err(error),
        _ => Ok(RunResult { failed: Some(error.to_string()), ..RunResult::default() }),
    }
}

/// Names the contender whose congestion control is missing, and what a scenario can say instead.
fn of_contender(error: LabError, contender: &Contender) -> LabError {
    match error {
        LabError::Congestion(why) => LabError::Congestion(format!(
            "contender {:?}: {why}, or leave it to the host with congestion = \"any\"",
            contender.name
        )),
        other => other,
    }
}

/// All but what the contender reached.
fn run_result(
    settings: &Settings,
    carriers: Carriers,
    outcome: &Outcome,
    told: HostFigures,
    seen: Seen,
) -> Result<RunResult> {
    let rate = settings.path_config()?.forward.rate.unwrap_or_default();
    let mut series = Series::of(&outcome.recording, carriers);
    series.sampled = seen.at;
    series.rtt_seconds = seen.rtt_seconds;
    series.window_bytes = seen.window_bytes;
    let network = NetworkFigures::of(outcome, rate, carriers, told);
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
    let beside = start_cross(network, settings, signals)?;
    let came_beside = || beside.iter().map(|flows| flows.received().0).sum::<u64>();
    let mut servers = Servers::default();
    if let Way::Program(program) = &tool.way {
        for job in jobs {
            fs::create_dir_all(job.place())
                .map_err(|e| LabError::io("cannot make a directory", e))?;
            if let Err(error) = (program.prepare)(job) {
                return Ok((Err(error), Seen::default()));
            }
        }
        if let Err(error) = servers.start(network, program, jobs, signals) {
            return Ok((Err(error), Seen::default()));
        }
    }
    let observer = Observer::new(network, settings.path.cut);
    Ok(thread::scope(|scope| {
        let observing = scope.spawn(|| observer.observe());
        // Also when a source panics: the scope would wait for the observer forever.
        let stop = observer.stop_when_dropped();
        let deadline = Deadline::new(signals, settings.run.limit);
        let (began, before) = (Instant::now(), came_beside());
        let figures = match &tool.way {
            Way::Source(source) => source(network, &jobs[0], &deadline),
            Way::Model(model) => model(&jobs[0], &deadline),
            Way::Program(program) => {
                programs::run_clients(network, program, jobs, &mut servers, &deadline)
            }
        };
        let per_second = (came_beside() - before) as f64 * 8.0 / began.elapsed().as_secs_f64();
        let beside_bps = (!beside.is_empty()).then_some(per_second);
        let figures = figures.map(|figures| Figures { beside_bps, ..figures });
        drop(stop);
        (figures, observing.join().unwrap_or_default())
    }))
}

fn start_cross(network: &Network, settings: &Settings, signals: &Signals) -> Result<Vec<Flows>> {
    let (from, deadline) = (settings.senders.count, Deadline::new(signals, CONNECT_WAIT));
    let kinds = settings.cross_kinds().zip(CROSS_PORT..);
    let connect = |(kind, port): (Kind<'_>, u16)| {
        Flows::connect(network, from, port, &kind, &deadline).map_err(|error| match error {
            LabError::Congestion(why) => LabError::Congestion(format!("cross-tcp: {why}")),
            other => other,
        })
    };
    let mut flows: Vec<Flows> = kinds.map(connect).collect::<Result<_>>()?;
    flows.iter_mut().try_for_each(Flows::begin)?;
    if !flows.is_empty() {
        let lead = Deadline::new(signals, CROSS_LEAD * 2);
        lead.sleep_until(Instant::now() + CROSS_LEAD, "cross-tcp")?;
    }
    Ok(flows)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a run whose attempts are void or not, in this order; and how many are made.
    fn attempted(voids: &[bool], signals: &Signals) -> (bool, usize) {
        let mut count = 0;
        let run = until_believed(signals, "it", || {
            count += 1;
            let void = voids[count - 1].then(|| "late".to_owned());
            Ok(RunResult { void, ..RunResult::default() })
        });
        let run = run.unwrap();
        assert_eq!(run.attempts as usize, count);
        (run.void.is_some(), count)
    }

    #[test]
    fn what_is_void_is_repeated_at_most_twice() {
        let signals = Signals::none();
        assert_eq!(attempted(&[false], &signals), (false, 1));
        assert_eq!(attempted(&[true, false], &signals), (false, 2));
        assert_eq!(attempted(&[true, true, false], &signals), (false, 3));
        assert_eq!(attempted(&[true, true, true], &signals), (true, 3));
        signals.ask();
        assert_eq!(attempted(&[true], &signals), (true, 1));
    }

    #[test]
    fn a_run_that_fails_is_a_result_unless_every_other_would_fail_as_well() {
        let failed = failed_run(LabError::Command("it".to_owned(), "no".to_owned())).unwrap();
        assert_eq!(failed.failed.as_deref(), Some("`it` failed: no"));
        let failed = failed_run(LabError::Congestion("none".to_owned())).unwrap();
        assert_eq!(failed.failed.as_deref(), Some("none"), "another contender has another one");
        assert!(failed_run(LabError::NotRoot).is_err());
    }

    #[test]
    fn what_was_measured_is_kept_though_no_network_can_be_built_any_more() {
        let condition = |rest: &str| {
            let path = "title = 'x'\npath = { rate = '50mbit', rtt = '2ms' }";
            let settings = toml::from_str(&format!("{path}\nrun.repetitions = 1\n{rest}")).unwrap();
            Condition { values: Vec::new(), settings }
        };
        let in_virtual_time = condition("run.time = '100ms'\ncontender = [{ tool = 'model' }]");
        // More hosts than there are addresses.
        let too_many = condition("senders.count = 70000\ncontender = [{ tool = 'tcp' }]");
        let (name, title) = ("x".to_owned(), "x".to_owned());
        let conditions = vec![in_virtual_time.clone(), too_many, in_virtual_time];
        let scenario = Scenario { name, title, axes: Vec::new(), conditions };
        let signals = Signals::none();
        let mut runner = Runner::new(&signals, &std::env::temp_dir()).unwrap();
        let (report, ended) = runner.run(&[scenario.clone(), scenario]);
        assert!(ended.is_err());
        let runs = |at: usize| -> Vec<usize> {
            let conditions = report.scenarios[at].conditions.iter();
            conditions.map(|condition| condition.contenders[0].runs.len()).collect()
        };
        assert_eq!((runs(0), runs(1)), (vec![1, 0], vec![]));
        assert!(report.scenarios[0].conditions[0].contenders[0].believed().next().is_some());
    }
}
