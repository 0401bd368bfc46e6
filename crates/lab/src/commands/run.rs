//! `bankfull-lab run`: scenarios, and what comes of them.

use crate::error::{LabError, Result};
use crate::results::{Report, RunResult};
use crate::runner::Runner;
use crate::scenario::{self, Scenario};
use crate::signals::Signals;
use crate::{machine, say, tables};
use clap::Args;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
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

    /// Writes each picture to a file of its own in this directory, as SVG
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Keeps what each sender's program said in this directory: bankfull its events, iperf3 its
    /// figures
    #[arg(long, value_name = "DIR")]
    said: Option<PathBuf>,

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
/// What is wrong with a scenario, or keeps a network from being built, or a file from being
/// written; the figures are told all the same.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let read = |file: &PathBuf| scenario::read(file);
    let scenarios: Vec<Scenario> = flags.files.iter().map(read).collect::<Result<_>>()?;
    check_names(&scenarios, &flags.only)?;
    // Before hours of measuring, and not after.
    let json = flags.json.as_deref().map(Out::open).transpose()?;
    let page = flags.report.as_deref().map(Out::open).transpose()?;
    for dir in flags.svg.iter().chain(&flags.said) {
        fs::create_dir_all(dir).map_err(|e| cannot_write(dir, e))?;
    }
    machine::raise_open_files()?;
    let signals = Signals::watch()?;
    let mut runner = Runner::new(&signals, &flags.work)?;
    runner.repetitions = flags.repeat;
    runner.only.clone_from(&flags.only);
    runner.said.clone_from(&flags.said);
    let (report, ended) = runner.run(&scenarios);
    if ended.is_err() && runs(&report).next().is_none() {
        // There is nothing to be kept.
        return ended.map(|()| ExitCode::SUCCESS);
    }
    print(&report);
    let verdict = verdict(&report, &signals);
    let written = write_all(&report, json, page);
    let drawn = flags.svg.as_deref().map_or(Ok(()), |dir| draw_all(&report, dir));
    both(ended, both(written, drawn)).map(|()| verdict)
}

/// Writes each picture to a file of its own.
fn draw_all(report: &Report, dir: &Path) -> Result<()> {
    crate::report::pictures(report).into_iter().try_for_each(|(name, svg)| {
        let path = dir.join(name);
        fs::write(&path, svg).map_err(|e| cannot_write(&path, e))
    })
}

/// Fails with the first error, and says a second.
fn both(first: Result<()>, second: Result<()>) -> Result<()> {
    if let (Err(_), Err(error)) = (&first, &second) {
        say(&error.to_string());
    }
    first.and(second)
}

/// Writes all that was asked for, whatever becomes of one: what took hours comes but once.
fn write_all(report: &Report, json: Option<Out<'_>>, page: Option<Out<'_>>) -> Result<()> {
    let text =
        || serde_json::to_string(report).map_err(|e| LabError::io("cannot write JSON", e.into()));
    let json = json.map_or(Ok(()), |out| out.write(&text()?));
    let page = page.map_or(Ok(()), |out| out.write(&crate::report::page(report)));
    both(json, page)
}

/// A file that results will be written to. It goes with the value when it was made for that, and
/// nothing came of it.
#[derive(Debug)]
struct Out<'p> {
    path: &'p Path,
    is_vain: bool,
}

impl<'p> Out<'p> {
    /// Makes it, or looks whether it can be written.
    fn open(path: &'p Path) -> Result<Self> {
        let failed = |e| cannot_write(path, e);
        let mut options = File::options();
        match options.append(true).create_new(true).open(path) {
            Ok(_) => Ok(Self { path, is_vain: true }),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                options.create_new(false).create(true).open(path).map_err(failed)?;
                Ok(Self { path, is_vain: false })
            }
            Err(e) => Err(failed(e)),
        }
    }

    fn write(mut self, text: &str) -> Result<()> {
        fs::write(self.path, text).map_err(|e| cannot_write(self.path, e))?;
        self.is_vain = false;
        Ok(())
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if self.is_vain {
            let _ = fs::remove_file(self.path);
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> LabError {
    LabError::io(format!("cannot write {}", path.display()), error)
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

fn print(report: &Report) {
    let mut out = io::stdout().lock();
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
    if void > 0 {
        say("void runs: mostly other work on the machine is why");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::SCHEMA;

    fn report() -> Report {
        Report {
            schema: SCHEMA,
            version: "0",
            began_unix: 0,
            machine: machine::this(),
            tools: Vec::new(),
            scenarios: Vec::new(),
        }
    }

    #[test]
    fn what_was_made_for_results_goes_when_none_came_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "old").unwrap();
        drop((Out::open(&new).unwrap(), Out::open(&old).unwrap()));
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        for path in [&new, &old] {
            Out::open(path).unwrap().write("results").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "results");
        }
        let nowhere = dir.path().join("no/where");
        let error = Out::open(&nowhere).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("no/where"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_written_keeps_no_other_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, fine) = (dir.path().join("gone"), dir.path().join("fine"));
        fs::create_dir(&gone).unwrap();
        let lost = || Some(Out { path: &gone, is_vain: false });
        let error = write_all(&report(), lost(), Some(Out::open(&fine).unwrap())).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert!(fs::read_to_string(&fine).unwrap().contains("<html"));
        let error = write_all(&report(), Some(Out::open(&fine).unwrap()), lost()).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert!(fs::read_to_string(&fine).unwrap().contains("\"schema\""));
        assert!(write_all(&report(), None, None).is_ok());
    }
}
