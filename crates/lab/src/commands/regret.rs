//! `bankfull-lab regret`: compares contenders with the best of fixed choices on each path.
//!
//! Results are lines of JSON, appended run by run, so that an interrupted comparison goes on where
//! it ended. They belong to one state of the sources, and each to the scenario's definition of its
//! run: after an edit of a path its results do not count, and it is measured again.

use crate::base::error::{LabError, Result};
use crate::base::notify;
use crate::base::signals::Signals;
use crate::base::stale;
use crate::model::background::BackgroundMetrics;
use crate::model::contender::Contender;
use crate::model::results::{RunResult, SendingMetrics};
use crate::model::settings::Settings;
use crate::report::figures::PathTraits;
use crate::report::regret::{self, Record};
use crate::report::regret_table;
use crate::run::runner::{PAYLOAD_SHARE, Runner};
use crate::scenario::{self, Condition, Scenario};
use crate::tools::shell::program_path;
use crate::topology::machine;
use bankfull_sim::Background;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Flags of `bankfull-lab regret`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Scenario with a sweep of paths, and contenders of which some are `fixed`
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Results of this comparison; an existing file is continued
    #[arg(long, value_name = "FILE.jsonl", required_unless_present = "choose")]
    results: Option<PathBuf>,

    /// Results of the fixed choices, from which the best of each path is taken
    #[arg(long, value_name = "FILE.jsonl")]
    choices: PathBuf,

    /// Measure the fixed choices into the file of --choices, instead of comparing
    #[arg(long, conflicts_with = "results")]
    choose: bool,

    /// Measure only so many paths, evenly spaced in the scenario
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    subset: Option<u32>,

    /// Measure only the path of this name; repeatable
    #[arg(long, value_name = "NAME")]
    path: Vec<String>,

    /// Runs of each contender, overriding the scenario
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// Print the table of the results without measuring
    #[arg(long)]
    table: bool,

    /// Directory of the test data
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    work: PathBuf,
}

/// Sources that determine what a build of bankfull and of the lab does.
const SOURCES: [&str; 3] = ["crates", "Cargo.lock", "Cargo.toml"];

/// First line of a file of results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Name of the scenario.
    scenario: String,
    /// Git's hashes of the [`SOURCES`].
    sources: String,
    /// Commit of the first run.
    commit: String,
    /// Machine: kernel and CPUs.
    machine: String,
}

/// Measures what is missing, and prints the table.
///
/// # Errors
/// If a file is invalid, of another scenario or of other sources, a build is older than its
/// sources, or a network cannot be built.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let scenario = scenario::read(&flags.file)?;
    let conditions = selected(&scenario.conditions, flags)?;
    if !flags.table {
        check_builds()?;
    }
    // Without results, the choices are measured.
    let file = flags.results.as_ref().unwrap_or(&flags.choices);
    let mut results = match flags.table {
        true => ResultFile { path: file.clone(), records: read(file, &scenario)?.records },
        false => ResultFile::open(file, &scenario, header(&scenario.name)?, flags.choose)?,
    };
    let best = match flags.choose {
        true => BTreeMap::new(),
        false => best_choices(flags, &scenario, &conditions)?,
    };
    let signals = Signals::watch()?;
    if !flags.table {
        machine::raise_open_file_limit()?;
        let mut runner = Runner::new(&signals, &flags.work)?;
        measure(&mut runner, flags, &conditions, &best, &mut results)?;
    }
    print(flags, &conditions, &best, &results.records)?;
    Ok(match signals.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(signals.exit_code()),
    })
}

/// Refuses builds older than their sources: their results would count for the present commit.
fn check_builds() -> Result<()> {
    let used = [std::env::current_exe().ok(), program_path("bankfull")];
    used.iter().flatten().try_for_each(|binary| stale::check(binary))
}

/// Conditions that the flags select.
fn selected<'c>(all: &'c [Condition], flags: &Flags) -> Result<Vec<&'c Condition>> {
    let names: Vec<String> = all.iter().map(name_of).collect();
    if let Some(unknown) = flags.path.iter().find(|name| !names.contains(name)) {
        let text = format!("no path has the name {unknown:?}: choose from {}", names.join(", "));
        return Err(LabError::Usage(text));
    }
    if !flags.path.is_empty() {
        return Ok(all.iter().filter(|one| flags.path.contains(&name_of(one))).collect());
    }
    let count = flags.subset.map_or(all.len(), |count| (count as usize).min(all.len()));
    Ok((0..count).map(|at| &all[at * all.len() / count]).collect())
}

fn name_of(condition: &Condition) -> String {
    condition.values.join(" ")
}

/// Best choice of each path.
fn best_choices(
    flags: &Flags,
    scenario: &Scenario,
    conditions: &[&Condition],
) -> Result<BTreeMap<String, String>> {
    let choices = read(&flags.choices, scenario)?.records;
    let best = |condition: &&Condition| {
        let path = name_of(condition);
        let Some(best) = regret::best_choice(&choices, &path) else {
            return Err(LabError::Usage(format!(
                "{} has no choice for the path {path} of this definition: \
                 measure it with --choose",
                flags.choices.display()
            )));
        };
        Ok((path, best.to_owned()))
    };
    conditions.iter().map(best).collect()
}

/// Runs contenders in turn, repetition by repetition, those that have no result yet.
fn measure(
    runner: &mut Runner<'_>,
    flags: &Flags,
    conditions: &[&Condition],
    best: &BTreeMap<String, String>,
    results: &mut ResultFile,
) -> Result<()> {
    let repetitions = |settings: &Settings| flags.repeat.unwrap_or(settings.run.repetitions);
    let most = conditions.iter().map(|one| repetitions(&one.settings)).max().unwrap_or(0);
    for repetition in 1..=most {
        for condition in conditions {
            let (path, settings) = (name_of(condition), &condition.settings);
            let takes_part = |one: &&Contender| match flags.choose {
                true => one.fixed,
                false => !one.fixed || best.get(&path) == Some(&one.name),
            };
            for contender in settings.contenders.iter().filter(takes_part) {
                if repetition > repetitions(settings) || results.has(&path, contender, repetition) {
                    continue;
                }
                let run = runner.valid_run(settings, contender, repetition)?;
                if runner.signals.count() > 0 {
                    return Ok(());
                }
                let definition = condition.definitions.get(&contender.name).cloned();
                let definition = definition.unwrap_or_default();
                let record = Record { definition, ..record(&path, settings, contender, &run)? };
                let what = record.void.clone().unwrap_or_else(|| format!("{:.3}", record.share));
                notify(&format!("{path}: {} {repetition}/{most}: {what}", contender.name));
                results.add(record)?;
            }
        }
    }
    Ok(())
}

/// Record of a run, without its definition.
///
/// # Errors
/// If the settings describe no path.
pub fn record(
    path: &str,
    settings: &Settings,
    contender: &Contender,
    run: &RunResult,
) -> Result<Record> {
    let capacity = settings.rate()?.bits_per_sec() as f64 * PAYLOAD_SHARE;
    let network = run.network.clone().unwrap_or_default();
    let sending = network.sending.unwrap_or_default();
    let completions = run.background.iter().filter_map(|one| one.completion_seconds);
    Ok(Record {
        path: path.to_owned(),
        contender: contender.name.clone(),
        repetition: run.repetition,
        definition: String::new(),
        share: sending.arrival_bps / capacity,
        queue_ms: sending.standing_queue_seconds * 1e3,
        retransmits: run.metrics.retransmits.or(network.retransmits),
        dropped: network.dropped,
        marked: network.marked,
        sharing: sharing(settings, &sending, &run.background),
        completion_p95: completions.map(|(_, p95)| p95).reduce(f64::max),
        decisions: run.metrics.decisions.clone(),
        void: run.failed.clone().or_else(|| run.void.clone()),
    })
}

/// Fairness towards simulated cross traffic: Jain's index of the session as a whole and each
/// endless flow, or the served share of a limited demand; the lower of both.
fn sharing(
    settings: &Settings,
    sending: &SendingMetrics,
    background: &[BackgroundMetrics],
) -> Option<f64> {
    let (mut flows, mut demand) = (0u32, 0.0);
    let (mut endless_bps, mut all_bps) = (0.0, 0.0);
    for (at, word) in settings.path.beside.iter().enumerate() {
        let goodput_bps = background.get(at).map_or(0.0, |one| one.goodput_bps);
        all_bps += goodput_bps;
        match word.kind {
            Background::Bulk { flows: count, .. } => {
                flows += count;
                endless_bps += goodput_bps;
            }
            Background::Web { rate } | Background::Video { rate } => {
                demand += rate.bits_per_sec() as f64;
            }
        }
    }
    // Rates by word cover the whole run; for the sending time, only their sum is known.
    let endless_share = match (flows, demand > 0.0) {
        (0, _) => 0.0,
        (_, false) => 1.0,
        (_, true) => endless_bps / f64::max(all_bps, 1e-9),
    };
    let endless_bps = sending.beside_bps * endless_share;
    let served = (demand > 0.0).then(|| ((sending.beside_bps - endless_bps) / demand).min(1.0));
    let index = (flows > 0).then(|| jain(sending.arrival_bps, endless_bps * PAYLOAD_SHARE, flows));
    served.into_iter().chain(index).reduce(f64::min)
}

/// Jain's index of a session and of flows that have a rate together.
fn jain(own_bps: f64, flows_bps: f64, flows: u32) -> f64 {
    let each = flows_bps / f64::from(flows);
    let squares = own_bps * own_bps + each * each * f64::from(flows);
    let sum = own_bps + flows_bps;
    sum * sum / (f64::from(flows + 1) * squares.max(1e-9))
}

fn print(
    flags: &Flags,
    conditions: &[&Condition],
    best: &BTreeMap<String, String>,
    records: &[Record],
) -> Result<()> {
    let mut out = io::stdout().lock();
    // A closed standard output is not a failure.
    if flags.choose {
        for condition in conditions {
            let path = name_of(condition);
            let found = regret::best_choice(records, &path).unwrap_or("–");
            let _ = writeln!(out, "{path}: {found}");
        }
        return Ok(());
    }
    let traits = |one: &&Condition| Ok((name_of(one), PathTraits::of(&one.settings)?));
    let traits: BTreeMap<String, PathTraits> =
        conditions.iter().map(traits).collect::<Result<_>>()?;
    let _ = write!(out, "{}", regret_table::table(&regret::regrets(records, best), &traits));
    Ok(())
}

/// Results in a file, appended run by run.
#[derive(Debug)]
struct ResultFile {
    path: PathBuf,
    records: Vec<Record>,
}

impl ResultFile {
    /// Opens a file, or creates it with a header, and removes an incomplete last line. Refuses one
    /// of other sources, except for fixed choices, which do not run bankfull.
    fn open(path: &Path, scenario: &Scenario, header: Header, is_of_choices: bool) -> Result<Self> {
        if fs::metadata(path).map_or(0, |found| found.len()) == 0 {
            let file = Self { path: path.to_owned(), records: Vec::new() };
            file.append(&header)?;
            return Ok(file);
        }
        let found = read(path, scenario)?;
        if found.header.sources != header.sources && !is_of_choices {
            return Err(LabError::Usage(format!(
                "{} has results of commit {}, whose sources differ: \
                 choose another file, or check out that commit",
                path.display(),
                found.header.commit
            )));
        }
        if found.is_torn {
            let opened = File::options().write(true).open(path);
            opened.and_then(|file| file.set_len(found.whole_bytes)).map_err(|e| {
                let what = format!("cannot remove the last line of {}", path.display());
                LabError::io(what, e)
            })?;
        }
        Ok(Self { path: path.to_owned(), records: found.records })
    }

    /// True if there is a valid result; void and failed runs are measured again.
    fn has(&self, path: &str, contender: &Contender, repetition: u32) -> bool {
        self.records.iter().any(|one| {
            one.path == path
                && one.contender == contender.name
                && one.repetition == repetition
                && one.void.is_none()
        })
    }

    fn add(&mut self, record: Record) -> Result<()> {
        self.append(&record)?;
        self.records.push(record);
        Ok(())
    }

    fn append(&self, line: &impl Serialize) -> Result<()> {
        let failed =
            |e: io::Error| LabError::io(format!("cannot write {}", self.path.display()), e);
        let text = serde_json::to_string(line).map_err(|e| failed(e.into()))? + "\n";
        let mut file =
            File::options().append(true).create(true).open(&self.path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)
    }
}

/// Content of a file of results.
struct Found {
    header: Header,
    /// Results of the scenario's present definitions.
    records: Vec<Record>,
    /// Length of the complete lines.
    whole_bytes: u64,
    /// True if an incomplete line follows them: the program was killed while it wrote.
    is_torn: bool,
}

/// Reads a file of results, and reports those that do not count.
fn read(path: &Path, scenario: &Scenario) -> Result<Found> {
    let file = path.display();
    let bytes = fs::read(path).map_err(|e| LabError::io(format!("cannot read {file}"), e))?;
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let whole = String::from_utf8_lossy(&bytes[..end]);
    let wrong =
        |at: usize, e: &serde_json::Error| LabError::Usage(format!("{file}, line {}: {e}", at + 1));
    let mut lines = whole.lines().enumerate();
    let Some((_, header)) = lines.next() else {
        let text = format!("{file} has no complete header: remove it, or choose another file");
        return Err(LabError::Usage(text));
    };
    let header: Header = serde_json::from_str(header).map_err(|e| wrong(0, &e))?;
    if header.scenario != scenario.name {
        let (found, wanted) = (&header.scenario, &scenario.name);
        let text = format!(
            "{file} has results of the scenario {found}, not {wanted}: choose another file"
        );
        return Err(LabError::Usage(text));
    }
    let parse = |(at, line)| serde_json::from_str(line).map_err(|e| wrong(at, &e));
    let mut records: Vec<Record> = lines.map(parse).collect::<Result<_>>()?;
    let all = records.len();
    let conditions: BTreeMap<String, &Condition> =
        scenario.conditions.iter().map(|one| (name_of(one), one)).collect();
    records.retain(|one| {
        let present = conditions.get(&one.path).and_then(|at| at.definitions.get(&one.contender));
        present == Some(&one.definition)
    });
    if records.len() < all {
        let count = all - records.len();
        let text = "results that do not count, as the scenario defines their runs differently";
        notify(&format!("{file}: {text}: {count}"));
    }
    let is_torn = end < bytes.len();
    if is_torn {
        notify(&format!("{file}: the last line is incomplete, and its run does not count"));
    }
    Ok(Found { header, records, whole_bytes: end as u64, is_torn })
}

/// Header for the present sources, which must be committed.
fn header(scenario: &str) -> Result<Header> {
    let git = |arguments: &[&str], files: &[String]| {
        let done = Command::new("git").args(arguments).args(files).output();
        let done = done.map_err(|e| LabError::io("cannot run git", e))?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).trim().replace('\n', " ")),
            false => {
                Err(LabError::Usage("run it within the repository, for the commit".to_owned()))
            }
        }
    };
    let of = |start: &str| SOURCES.map(|name| format!("{start}{name}"));
    if !git(&["status", "--porcelain", "--"], &of(":/"))?.is_empty() {
        let text =
            "the sources differ from the commit: commit them, so that results can be compared";
        return Err(LabError::Usage(text.to_owned()));
    }
    let machine = machine::describe();
    Ok(Header {
        scenario: scenario.to_owned(),
        sources: git(&["rev-parse"], &of("HEAD:"))?,
        commit: git(&["rev-parse", "--short", "HEAD"], &[])?,
        machine: format!("{} CPUs, Linux {}", machine.cpus, machine.kernel),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(sources: &str) -> Header {
        let text = |text: &str| text.to_owned();
        let (scenario, commit, machine) = (text("kinds"), text("abc"), text("2 CPUs"));
        Header { scenario, sources: text(sources), commit, machine }
    }

    /// Scenario with the path `p`, and a contender of two repetitions.
    fn scenario_of(rate: &str) -> Scenario {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kinds.toml");
        let text = format!(
            "title = 'x'\n[[contender]]\ntool = 'tcp'\nname = 'one'\n[[sweep]]\nkey = 'path'\n\
             values = [{{ name = 'p', rate = '{rate}', rtt = '20ms' }}]"
        );
        fs::write(&file, text).unwrap();
        scenario::read(&file).unwrap()
    }

    fn record_of(scenario: &Scenario, repetition: u32, void: Option<&str>) -> Record {
        Record {
            path: "p".to_owned(),
            contender: "one".to_owned(),
            repetition,
            definition: scenario.conditions[0].definitions["one"].clone(),
            void: void.map(str::to_owned),
            ..Record::default()
        }
    }

    #[test]
    fn results_continue_and_refuse_other_sources() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        let scenario = scenario_of("1mbit");
        let open = |sources: &str, is_of_choices| {
            ResultFile::open(&path, &scenario, header_of(sources), is_of_choices)
        };
        let record = |repetition, void| record_of(&scenario, repetition, void);
        let contender = &scenario.conditions[0].settings.contenders[0];
        let mut file = open("s1", false).unwrap();
        file.add(record(1, None)).unwrap();
        file.add(record(2, Some("late"))).unwrap();
        let file = open("s1", false).unwrap();
        assert_eq!(file.records, [record(1, None), record(2, Some("late"))]);
        assert!(file.has("p", contender, 1) && !file.has("p", contender, 2), "void");
        let error = open("s2", false).unwrap_err().to_string();
        assert!(error.contains("of commit abc, whose sources differ"), "{error}");
        assert!(open("s2", true).is_ok(), "choices run no bankfull");
        let other = Scenario { name: "halves".to_owned(), ..scenario.clone() };
        let error = ResultFile::open(&path, &other, header_of("s1"), true).unwrap_err();
        assert!(error.to_string().contains("of the scenario kinds, not halves"), "{error}");
        fs::write(&path, "{}\n").unwrap();
        let error = open("s1", false).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn results_of_an_edited_path_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("choices.jsonl");
        let (before, after) = (scenario_of("1mbit"), scenario_of("2mbit"));
        let open =
            |scenario: &Scenario| ResultFile::open(&path, scenario, header_of("s1"), true).unwrap();
        open(&before).add(record_of(&before, 1, None)).unwrap();
        assert_eq!(open(&before).records.len(), 1);
        assert_eq!(open(&after).records, []);
        let flags = Flags { choices: path.clone(), ..flags(None, &[]) };
        let best = |scenario: &Scenario| {
            best_choices(&flags, scenario, &scenario.conditions.iter().collect::<Vec<_>>())
        };
        assert_eq!(best(&before).unwrap()["p"], "one");
        let error = best(&after).unwrap_err().to_string();
        assert!(error.contains("no choice for the path p of this definition"), "{error}");
        open(&after).add(record_of(&after, 1, None)).unwrap();
        assert_eq!((best(&before).is_ok(), best(&after).is_ok()), (true, true));
    }

    #[test]
    fn torn_last_line_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        let scenario = scenario_of("1mbit");
        let open = || ResultFile::open(&path, &scenario, header_of("s1"), false);
        let record = |repetition| record_of(&scenario, repetition, Some("cut within –"));
        fs::write(&path, "").unwrap();
        let mut file = open().unwrap();
        file.add(record(1)).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        file.add(record(2)).unwrap();
        let text = fs::read(&path).unwrap();
        for end in whole.len() + 1..text.len() {
            fs::write(&path, &text[..end]).unwrap();
            assert_eq!(read(&path, &scenario).unwrap().records, [record(1)], "{end}");
            assert_eq!(fs::read(&path).unwrap().len(), end, "reading changes nothing");
            let mut file = open().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), whole, "{end}");
            file.add(record(2)).unwrap();
            assert_eq!(open().unwrap().records, [record(1), record(2)], "{end}");
        }
        fs::write(&path, &text[..9]).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains("no complete header: remove it"), "{error}");
    }

    /// A change of a path must be committed together with new choices for it.
    #[test]
    fn committed_choices_are_of_present_definitions() {
        let kinds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/kinds");
        let scenario = scenario::read(&kinds.join("kinds.toml")).unwrap();
        let choices = read(&kinds.join("choices.jsonl"), &scenario).unwrap().records;
        for condition in &scenario.conditions {
            let path = name_of(condition);
            let fixed = condition.settings.contenders.iter().filter(|one| one.fixed);
            for name in fixed.map(|one| &one.name) {
                let is_one = |one: &Record| one.path == path && one.contender == *name;
                assert!(choices.iter().any(is_one), "{path}: no result of {name}");
            }
        }
    }

    fn flags(subset: Option<u32>, path: &[&str]) -> Flags {
        Flags {
            file: PathBuf::new(),
            results: Some(PathBuf::new()),
            choices: PathBuf::new(),
            choose: false,
            subset,
            path: path.iter().map(|&name| name.to_owned()).collect(),
            repeat: None,
            table: false,
            work: PathBuf::new(),
        }
    }

    #[test]
    fn sharing_is_jains_index_or_served_demand() {
        // `goodputs` are those of the words beside it.
        let of = |beside: &str, own: f64, others: f64, goodputs: &[f64]| {
            let text = format!(
                "title = 'x'\npath = {{ rate = '100mbit', rtt = '20ms', beside = [{beside}] }}\n\
                 contender = [{{ tool = 'tcp' }}]"
            );
            let sending = SendingMetrics {
                arrival_bps: own,
                beside_bps: others,
                standing_queue_seconds: 0.0,
            };
            let metrics = |&goodput_bps: &f64| BackgroundMetrics {
                word: String::new(),
                goodput_bps,
                completion_seconds: None,
                stalled_seconds: 0.0,
            };
            let background: Vec<BackgroundMetrics> = goodputs.iter().map(metrics).collect();
            sharing(&toml::from_str::<Settings>(&text).unwrap(), &sending, &background)
        };
        assert_eq!(of("", 1e8, 0.0, &[]), None);
        let wire = |payload: f64| payload / PAYLOAD_SHARE;
        assert!((of("'cubic'", 5e7, wire(5e7), &[]).unwrap() - 1.0).abs() < 1e-9);
        assert!((of("'cubic'", 9e7, wire(1e7), &[]).unwrap() - 0.61).abs() < 0.01);
        assert!((of("'cubic*3'", 7e7, wire(3e7), &[]).unwrap() - 0.481).abs() < 0.01);
        assert!((of("'web:20mbit'", 9e7, 1e7, &[]).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(of("'web:20mbit', 'video:10mbit'", 9e7, 5e7, &[]), Some(1.0));
        let mixed = |own, others, goodputs| {
            of("'web:20mbit', 'cubic'", own, wire(others), goodputs).unwrap()
        };
        assert!((mixed(7e7, 3e7, &[2e7, 1e7]) - 0.64).abs() < 0.01, "CUBIC lacks its share");
        assert!((mixed(45e6, 55e6, &[1e7, 45e6]) - 0.518).abs() < 0.01, "the web is not served");
    }

    #[test]
    fn subset_is_spread_over_all_paths() {
        let condition = |n: usize| {
            let path = "title = 'x'\npath = { rate = '1mbit', rtt = '20ms' }\ncontender = []";
            let settings = toml::from_str(path).unwrap();
            Condition { values: vec![n.to_string()], settings, definitions: BTreeMap::new() }
        };
        let all: Vec<Condition> = (0..40).map(condition).collect();
        let names = |flags: Flags| {
            selected(&all, &flags).unwrap().into_iter().map(name_of).collect::<Vec<_>>()
        };
        assert_eq!(names(flags(Some(10), &[]))[..3], ["0", "4", "8"]);
        assert_eq!(names(flags(Some(99), &[])).len(), 40);
        assert_eq!(names(flags(Some(10), &["7"])), ["7"]);
        assert!(selected(&all, &flags(None, &["x"])).is_err());
    }
}
