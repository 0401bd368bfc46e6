//! `bankfull-lab run`: scenarios, and what comes of them.

use crate::error::{LabError, Result};
use crate::results::{Report, RunResult};
use crate::runner::Runner;
use crate::scenario::{self, Scenario};
use crate::signals::Signals;
use crate::{say, tables};
use clap::Args;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `bankfull-lab run`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Scenarios: files of `experiments/`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Writes all figures, with their course over time, to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,

    /// Writes tables and pictures to one file for a browser, which needs no network
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,

    /// Runs of each contender, instead of what the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// Only contenders of this name; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Where files to be moved, and moved files, are kept while it runs; in memory unless said
    /// otherwise, so that no disk is measured
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    work: PathBuf,
}

/// Runs them, tells the figures on standard output, and writes what was asked for.
///
/// # Errors
/// What is wrong with a scenario, or keeps a network from being built.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let read = |file: &PathBuf| scenario::read(file);
    let scenarios: Vec<Scenario> = flags.files.iter().map(read).collect::<Result<_>>()?;
    check_names(&scenarios, &flags.only)?;
    // Before hours of measuring, and not after.
    for out in [&flags.json, &flags.report].into_iter().flatten() {
        let opened = fs::File::options().append(true).create(true).open(out);
        opened.map_err(|e| LabError::io(format!("cannot write {}", out.display()), e))?;
    }
    let signals = Signals::watch()?;
    let mut runner = Runner::new(&signals, &flags.work)?;
    runner.repetitions = flags.repeat;
    runner.only.clone_from(&flags.only);
    let (report, ended) = runner.run(&scenarios);
    if ended.is_err() && runs(&report).next().is_none() {
        // There is nothing to be kept.
        return ended.map(|()| ExitCode::SUCCESS);
    }
    if let Some(out) = &flags.json {
        let text = serde_json::to_string(&report)
            .map_err(|e| LabError::io("cannot write JSON", e.into()))?;
        write(out, &text)?;
    }
    if let Some(out) = &flags.report {
        write(out, &crate::report::page(&report))?;
    }
    print(&report);
    let verdict = verdict(&report, &signals);
    ended.map(|()| verdict)
}

fn check_names(scenarios: &[Scenario], only: &[String]) -> Result<()> {
    let conditions = || scenarios.iter().flat_map(|scenario| &scenario.conditions);
    let contenders = || conditions().flat_map(|condition| &condition.settings.contenders);
    match only.iter().find(|name| contenders().all(|contender| contender.name != **name)) {
        None => Ok(()),
        Some(name) => {
            let mut known: Vec<&str> = contenders().map(|one| one.name.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            let known = known.join("; ");
            Err(LabError::Usage(format!("no contender is called {name:?}: there are {known}")))
        }
    }
}

fn write(out: &Path, text: &str) -> Result<()> {
    fs::write(out, text).map_err(|e| LabError::io(format!("cannot write {}", out.display()), e))
}

fn print(report: &Report) {
    let mut out = std::io::stdout().lock();
    for result in &report.scenarios {
        let (head, rows) = tables::scenario(result);
        let table = tables::markdown(&head, &rows);
        // Whoever closed standard output does not want to see it.
        let _ = writeln!(out, "\n## {}: {}\n\n{table}", result.name, result.title);
    }
}

/// All runs that were measured.
fn runs(report: &Report) -> impl Iterator<Item = &RunResult> {
    let conditions = report.scenarios.iter().flat_map(|scenario| &scenario.conditions);
    conditions.flat_map(|c| &c.contenders).flat_map(|one| &one.runs)
}

/// Fails when nothing was measured, something did not do what it should or was void to the end, or
/// when somebody asked to end.
fn verdict(report: &Report, signals: &Signals) -> ExitCode {
    let failed = runs(report).filter(|run| run.failed.is_some()).count();
    let void = runs(report).filter(|run| run.void.is_some() && run.failed.is_none()).count();
    if failed + void > 0 {
        say(&format!("{failed} runs failed, {void} were void; they count in no figure"));
    }
    if signals.count() > 0 {
        say("interrupted: what was measured by then is kept");
        return ExitCode::from(signals.exit_code());
    }
    if runs(report).next().is_none() {
        say("nothing was measured");
        return ExitCode::FAILURE;
    }
    if failed + void > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
