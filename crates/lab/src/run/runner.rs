//! Runs scenarios. Contenders run in turn, repetition by repetition, so that changes of the machine
//! affect all of them.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::base::notify;
use crate::base::signals::Signals;
use crate::model::background::BackgroundMetrics;
use crate::model::contender::Contender;
use crate::model::job::{Job, RunContext};
use crate::model::metrics::Metrics;
use crate::model::plan::{CROSS_LEAD, FlowSpec};
use crate::model::results::{
    ConditionResult, ContenderResult, HostCounters, LabResults, NetworkMetrics, RunResult, SCHEMA,
    ScenarioResult, SendingMetrics, Series,
};
use crate::model::settings::Settings;
use crate::run::analysis::{DataFlows, rate_changes};
use crate::run::guard::RunningGuard;
use crate::run::observer::{ConnectionSamples, Observer};
use crate::run::programs;
use crate::run::programs::Servers;
use crate::run::work_dir::WorkDir;
use crate::scenario::{Condition, Scenario, axis_names};
use crate::tools;
use crate::tools::tool::{MetricsSource, Program, Tool, ToolKind};
use crate::topology::flows::Flows;
use crate::topology::hosts::Hosts;
use crate::topology::machine;
use crate::topology::network::{Network, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Repeats of a void run. (chosen: three void attempts in a row are no chance)
const MAX_VOID_REPEATS: u32 = 2;

/// Timeout for connecting cross traffic. (chosen: several timeouts of the SYN)
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// First port of cross traffic. (chosen: above the ports counted up with the senders, below the
/// ephemeral ports from 32 768)
const CROSS_BASE_PORT: u16 = 31_000;

/// TCP payload per byte of a full IP packet: 1500 bytes less 20, 20 and 12 of headers and
/// timestamps. (RFC 791, RFC 9293, RFC 7323)
pub const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// Runner of scenarios.
#[derive(Debug)]
pub struct Runner<'a> {
    /// Termination signals; results up to a signal are kept.
    pub signals: &'a Signals,
    /// Repetitions that replace those of the scenarios.
    pub repetitions: Option<u32>,
    /// Names of the contenders to run; all if empty.
    pub only: Vec<String>,
    /// Directory for the output of programs, if kept.
    pub output_dir: Option<PathBuf>,
    sources: WorkDir,
}

impl<'a> Runner<'a> {
    /// Runner with its files below `work`, removed when dropped.
    ///
    /// # Errors
    /// [`LabError::Io`] if the directory cannot be created.
    pub fn new(signals: &'a Signals, work: &Path) -> Result<Self> {
        let sources = WorkDir::new(work)?;
        Ok(Self { signals, repetitions: None, only: Vec::new(), output_dir: None, sources })
    }

    /// Runs all scenarios until a signal arrives or a network cannot be built.
    ///
    /// Returns the results so far, and the error that ended it. A failed contender is a result, not
    /// an error.
    pub fn run(&mut self, scenarios: &[Scenario]) -> (LabResults, Result<()>) {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut report = LabResults {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            began_unix: began.as_secs(),
            machine: machine::describe(),
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
                axes: axis_names(&scenario.axes),
                conditions,
            });
        }
        (report, ended)
    }

    /// Runs one condition, adding its results to `results`.
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
                let run = self.valid_run(settings, contender, repetition)?;
                // Without a network, no program ran.
                if let Some(output_dir) = self.output_dir.as_ref().filter(|_| run.network.is_some())
                {
                    let under: String = condition.values.iter().map(|v| format!("-{v}")).collect();
                    let name = format!("{}{under}-{}-{repetition}", scenario.name, contender.name);
                    keep_output(&self.sources.subdir("run"), output_dir, &name)?;
                }
                if self.signals.count() > 0 {
                    // This run was cut short.
                    break;
                }
                print_run(scenario, condition, result, &run, repetitions);
                result.runs.push(run);
            }
        }
        Ok(())
    }

    /// Returns a valid run, or the last of the void attempts.
    ///
    /// # Errors
    /// If no network can be built, or the tool is unknown.
    pub fn valid_run(
        &mut self,
        settings: &Settings,
        contender: &Contender,
        repetition: u32,
    ) -> Result<RunResult> {
        let seed = settings.run.seed + u64::from(repetition) - 1;
        let signals = self.signals;
        let run = repeat_while_void(signals, &contender.name, || {
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
        let source = match &tool.kind {
            ToolKind::Program(Program { metrics: MetricsSource::Output(_), .. })
            | ToolKind::Generator(_)
            | ToolKind::Simulation(_) => PathBuf::new(),
            ToolKind::Program(_) => self.sources.data_path(&settings.data)?,
        };
        let run = RunContext {
            path: settings.path_config()?,
            seed,
            source,
            dir: self.sources.recreate("run")?,
            keeps_output: self.output_dir.is_some(),
        };
        let receiver = Hosts::address(settings.receiver());
        let job = |sender| Job::new(settings, contender, &run, sender, receiver);
        let jobs: Vec<Job<'_>> = (0..settings.senders.count).map(job).collect();
        if let ToolKind::Simulation(model) = &tool.kind {
            return model(&jobs[0], &Deadline::new(self.signals, settings.run.timeout));
        }
        let network = Network::start(&settings.plan(contender, seed)?)
            .map_err(|error| name_contender(error, contender))?;
        let measured = measure(&network, settings, tool, &jobs, self.signals);
        let senders = 0..settings.senders.count;
        let counters = HostCounters {
            retransmits: senders.map(|host| network.hosts().retransmits(host)).sum(),
            socket_drops: network.hosts().socket_drops(network.receiver()),
        };
        let outcome = network.stop()?;
        let (metrics, samples) = measured?;
        let (metrics, failed) = match metrics {
            Ok(metrics) => (metrics, None),
            Err(error) => (Metrics::default(), Some(error.to_string())),
        };
        let senders = settings.senders.count;
        let data_flows =
            DataFlows { senders, flows: tools::data_flow_count(tool, contender, senders) };
        let result = run_result(settings, data_flows, &outcome, counters, samples)?;
        Ok(RunResult { metrics, failed, ..result })
    }
}

/// Copies the output of a run's clients to files named after the run.
fn keep_output(run: &Path, output_dir: &Path, name: &str) -> Result<()> {
    let failed =
        |e| LabError::io(format!("cannot keep program output in {}", output_dir.display()), e);
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    for entry in fs::read_dir(run).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if let Some(rest) = file.strip_prefix("client").filter(|rest| rest.contains('.')) {
            fs::copy(run.join(&file), output_dir.join(format!("{name}-{rest}"))).map_err(failed)?;
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

/// Repeats void attempts, up to a limit and until a signal.
fn repeat_while_void(
    signals: &Signals,
    name: &str,
    mut attempt: impl FnMut() -> Result<RunResult>,
) -> Result<RunResult> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let run = RunResult { attempts, ..attempt()? };
        let Some(why) = &run.void else { return Ok(run) };
        if attempts > MAX_VOID_REPEATS || signals.count() > 0 {
            return Ok(run);
        }
        notify(&format!("void, repeating: {name}: {why}"));
    }
}

/// Turns an error into a failed run, unless it would affect every contender.
fn failed_run(error: LabError) -> Result<RunResult> {
    match error {
        LabError::NotRoot | LabError::Missing(..) | LabError::Usage(_) => Err(error),
        _ => Ok(RunResult { failed: Some(error.to_string()), ..RunResult::default() }),
    }
}

/// Adds the contender's name, and the key that leaves the congestion control open.
fn name_contender(error: LabError, contender: &Contender) -> LabError {
    match error {
        LabError::Congestion(why) => LabError::Congestion(format!(
            "contender {:?}: {why}, or leave it to the host with congestion = \"any\"",
            contender.name
        )),
        other => other,
    }
}

/// Result of a run, without the contender's metrics.
fn run_result(
    settings: &Settings,
    data_flows: DataFlows,
    outcome: &Outcome,
    counters: HostCounters,
    samples: ConnectionSamples,
) -> Result<RunResult> {
    let line = settings.path_config()?.forward;
    let rate = line.rate.unwrap_or_default();
    let mut series = Series::of(&outcome.recording, data_flows);
    series.rate_changes = rate_changes(&line.variation);
    series.sampled = samples.time;
    series.rtt_seconds = samples.rtt_seconds;
    series.cwnd_bytes = samples.cwnd_bytes;
    let mut network = NetworkMetrics::of(outcome, rate, data_flows, counters);
    let recording = &outcome.recording;
    network.sending = SendingMetrics::of(recording, data_flows, settings.run.duration);
    let fared = settings.path.beside.iter().zip(&recording.background);
    let time = recording.background_time;
    let background = fared.map(|(word, one)| BackgroundMetrics::of(&word.word, one, time));
    let background = background.collect();
    let (void, network) = (outcome.void(), Some(network));
    Ok(RunResult { void, network, background, series, ..RunResult::default() })
}

fn new_result(settings: &Settings, contender: &Contender) -> Result<ContenderResult> {
    let skipped = tools::find(&contender.tool)?.missing();
    if let Some(why) = &skipped {
        notify(&format!("skipping {}: {why}", contender.name));
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

/// Metrics of a contender or its error, and samples of its connections.
type Measured = (Result<Metrics>, ConnectionSamples);

fn measure(
    network: &Network,
    settings: &Settings,
    tool: &Tool,
    jobs: &[Job<'_>],
    signals: &Signals,
) -> Result<Measured> {
    let cross_flows = start_cross(network, settings, signals)?;
    let cross_received = || cross_flows.iter().map(|flows| flows.received().0).sum::<u64>();
    let _guard = match RunningGuard::start(network, &jobs[0], signals) {
        Ok(guard) => guard,
        Err(error) => return Ok((Err(error), ConnectionSamples::default())),
    };
    let mut servers = Servers::default();
    if let ToolKind::Program(program) = &tool.kind {
        for job in jobs {
            fs::create_dir_all(job.sender_target())
                .map_err(|e| LabError::io("cannot create a directory", e))?;
            if let Err(error) = (program.prepare)(job) {
                return Ok((Err(error), ConnectionSamples::default()));
            }
        }
        if let Err(error) = servers.start(network, program, jobs, signals) {
            return Ok((Err(error), ConnectionSamples::default()));
        }
    }
    let observer = Observer::new(network, settings.path.cut);
    Ok(thread::scope(|scope| {
        let observing = scope.spawn(|| observer.observe());
        // Also if a generator panics: otherwise the scope would wait for the observer forever.
        let stop = observer.stop_when_dropped();
        let deadline = Deadline::new(signals, settings.run.timeout);
        let (began, before) = (Instant::now(), cross_received());
        let metrics = match &tool.kind {
            ToolKind::Generator(source) => source(network, &jobs[0], &deadline),
            ToolKind::Simulation(model) => model(&jobs[0], &deadline).map(|run| run.metrics),
            ToolKind::Program(program) => {
                programs::run_clients(network, program, jobs, &mut servers, &deadline)
            }
        };
        let per_second = (cross_received() - before) as f64 * 8.0 / began.elapsed().as_secs_f64();
        let cross_bps = (!cross_flows.is_empty()).then_some(per_second);
        let metrics = metrics.map(|metrics| Metrics { cross_bps, ..metrics });
        drop(stop);
        (metrics, observing.join().unwrap_or_default())
    }))
}

fn start_cross(network: &Network, settings: &Settings, signals: &Signals) -> Result<Vec<Flows>> {
    let (from, deadline) = (settings.senders.count, Deadline::new(signals, CONNECT_TIMEOUT));
    let kinds = settings.cross_flows().zip(CROSS_BASE_PORT..);
    let connect = |(kind, port): (FlowSpec<'_>, u16)| {
        Flows::connect(network, from, port, &kind, &deadline).map_err(|error| match error {
            LabError::Congestion(why) => LabError::Congestion(format!("cross-tcp: {why}")),
            other => other,
        })
    };
    let mut flows: Vec<Flows> = kinds.map(connect).collect::<Result<_>>()?;
    flows.iter_mut().try_for_each(Flows::start)?;
    if !flows.is_empty() {
        let lead = Deadline::new(signals, CROSS_LEAD * 2);
        lead.sleep_until(Instant::now() + CROSS_LEAD, "cross-tcp")?;
    }
    Ok(flows)
}

/// Prints a line about a run.
fn print_run(
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
        (None, None) => run.metrics.summary(),
    };
    let (name, repetition) = (&scenario.name, run.repetition);
    notify(&format!("{name}{under}: {} {repetition}/{repetitions}: {what}", result.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// True if the run stays void, and the number of attempts. `voids` lists which attempts are
    /// void, in this order.
    fn attempted(voids: &[bool], signals: &Signals) -> (bool, usize) {
        let mut count = 0;
        let run = repeat_while_void(signals, "it", || {
            count += 1;
            let void = voids[count - 1].then(|| "late".to_owned());
            Ok(RunResult { void, ..RunResult::default() })
        });
        let run = run.unwrap();
        assert_eq!(run.attempts as usize, count);
        (run.void.is_some(), count)
    }

    #[test]
    fn void_run_is_repeated_at_most_twice() {
        let signals = Signals::unwatched();
        assert_eq!(attempted(&[false], &signals), (false, 1));
        assert_eq!(attempted(&[true, false], &signals), (false, 2));
        assert_eq!(attempted(&[true, true, false], &signals), (false, 3));
        assert_eq!(attempted(&[true, true, true], &signals), (true, 3));
        signals.interrupt();
        assert_eq!(attempted(&[true], &signals), (true, 1));
    }

    #[test]
    fn failed_run_is_result_unless_all_would_fail() {
        let failed = failed_run(LabError::Command("it".to_owned(), "no".to_owned())).unwrap();
        assert_eq!(failed.failed.as_deref(), Some("`it` failed: no"));
        let failed = failed_run(LabError::Congestion("none".to_owned())).unwrap();
        assert_eq!(failed.failed.as_deref(), Some("none"), "another contender has another one");
        assert!(failed_run(LabError::NotRoot).is_err());
    }

    #[test]
    fn runs_in_virtual_time_report_their_network() {
        let path = "rate = '50mbit', rtt = '20ms', link = ['codel', 'ecn'], tcp-ecn = 1, \
                    beside = ['cubic']";
        let text = format!(
            "title = 'x'\npath = {{ {path} }}\nrun.duration = '4s'\n\
             contender = [{{ tool = 'model', streams = 2 }}, {{ tool = 'tuned-model' }}]"
        );
        let settings: Settings = toml::from_str(&text).unwrap();
        let signals = Signals::unwatched();
        let mut runner = Runner::new(&signals, &std::env::temp_dir()).unwrap();
        for contender in &settings.contenders {
            let run = runner.valid_run(&settings, contender, 1).unwrap();
            let network = run.network.unwrap();
            let sending = network.sending.unwrap();
            let all = (sending.arrival_bps / PAYLOAD_SHARE + sending.beside_bps) * 1e-6;
            assert!((40.0..51.0).contains(&all), "{}: {sending:?}", contender.tool);
            assert!(network.marked > 0 && network.dropped > 0, "{network:?}: the other drops");
            assert!(sending.standing_queue_seconds < 0.02, "{sending:?}");
            assert_eq!(run.background[0].word, "cubic");
            let streams = run.metrics.streams;
            assert_eq!(streams.is_some(), contender.tool == "tuned-model", "{streams:?}");
        }
    }

    #[test]
    fn results_survive_network_failure() {
        let condition = |rest: &str| {
            let path = "title = 'x'\npath = { rate = '50mbit', rtt = '2ms' }";
            let settings = toml::from_str(&format!("{path}\nrun.repetitions = 1\n{rest}")).unwrap();
            Condition { values: Vec::new(), settings, definitions: BTreeMap::new() }
        };
        let in_virtual_time = condition("run.duration = '100ms'\ncontender = [{ tool = 'model' }]");
        // More hosts than addresses.
        let too_many = condition("senders.count = 70000\ncontender = [{ tool = 'tcp' }]");
        let (name, title) = ("x".to_owned(), "x".to_owned());
        let conditions = vec![in_virtual_time.clone(), too_many, in_virtual_time];
        let scenario = Scenario { name, title, axes: Vec::new(), conditions };
        let signals = Signals::unwatched();
        let mut runner = Runner::new(&signals, &std::env::temp_dir()).unwrap();
        let (report, ended) = runner.run(&[scenario.clone(), scenario]);
        assert!(ended.is_err());
        let runs = |at: usize| -> Vec<usize> {
            let conditions = report.scenarios[at].conditions.iter();
            conditions.map(|condition| condition.contenders[0].runs.len()).collect()
        };
        assert_eq!((runs(0), runs(1)), (vec![1, 0], vec![]));
        assert!(report.scenarios[0].conditions[0].contenders[0].valid_runs().next().is_some());
    }
}
