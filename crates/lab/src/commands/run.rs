//! `bankfull-lab run`: runs scenarios, and reports their results.

use crate::base::error::{LabError, Result};
use crate::base::notify;
use crate::base::signals::Signals;
use crate::model::results::{LabResults, RunResult};
use crate::report::{html, tables};
use crate::run::runner::Runner;
use crate::scenario;
use crate::scenario::Scenario;
use crate::topology::machine;
use clap::Args;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `bankfull-lab run`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Scenario files, such as those in experiments/
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write all results, time series included, to a JSON file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,

    /// Write an HTML report, a single file that needs no network
    #[arg(long, value_name = "OUT.html")]
    report: Option<PathBuf>,

    /// Write each chart as an SVG file to this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Keep the output of each sender's program in this directory: events of bankfull, results of
    /// iperf3
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,

    /// Runs of each contender, overriding the scenario
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// Run only contenders of this name; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Directory of the test data; in memory by default, so that no disk is measured
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    work: PathBuf,
}

/// Runs scenarios, prints tables, and writes the requested files.
///
/// # Errors
/// If a scenario is invalid, a network cannot be built, or a file cannot be written; results are
/// printed all the same.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let read = |file: &PathBuf| scenario::read(file);
    let scenarios: Vec<Scenario> = flags.files.iter().map(read).collect::<Result<_>>()?;
    check_names(&scenarios, &flags.only)?;
    // Before hours of measuring, not after.
    let json = flags.json.as_deref().map(OutputFile::open).transpose()?;
    let page = flags.report.as_deref().map(OutputFile::open).transpose()?;
    for dir in flags.svg.iter().chain(&flags.logs) {
        fs::create_dir_all(dir).map_err(|e| cannot_write(dir, e))?;
    }
    machine::raise_open_file_limit()?;
    let signals = Signals::watch()?;
    let mut runner = Runner::new(&signals, &flags.work)?;
    runner.repetitions = flags.repeat;
    runner.only.clone_from(&flags.only);
    runner.output_dir.clone_from(&flags.logs);
    let (report, ended) = runner.run(&scenarios);
    if ended.is_err() && runs(&report).next().is_none() {
        // There are no results to keep.
        return ended.map(|()| ExitCode::SUCCESS);
    }
    print(&report);
    let code = exit_code(&report, &signals);
    let written = write_all(&report, json, page);
    let drawn = flags.svg.as_deref().map_or(Ok(()), |dir| write_charts(&report, dir));
    first_error(ended, first_error(written, drawn)).map(|()| code)
}

/// Writes each chart to its own file.
fn write_charts(report: &LabResults, dir: &Path) -> Result<()> {
    html::charts(report).into_iter().try_for_each(|(name, svg)| {
        let path = dir.join(name);
        fs::write(&path, svg).map_err(|e| cannot_write(&path, e))
    })
}

/// Returns the first error, and prints a second one.
fn first_error(first: Result<()>, second: Result<()>) -> Result<()> {
    if let (Err(_), Err(error)) = (&first, &second) {
        notify(&error.to_string());
    }
    first.and(second)
}

/// Writes all requested files, even after an error: the results took hours.
fn write_all(
    report: &LabResults,
    json: Option<OutputFile<'_>>,
    page: Option<OutputFile<'_>>,
) -> Result<()> {
    let text =
        || serde_json::to_string(report).map_err(|e| LabError::io("cannot write JSON", e.into()));
    let json = json.map_or(Ok(()), |out| out.write(&text()?));
    let page = page.map_or(Ok(()), |out| out.write(&html::render(report)));
    first_error(json, page)
}

/// Output file. Removed when dropped, if it was created for results and has none.
#[derive(Debug)]
struct OutputFile<'p> {
    path: &'p Path,
    is_unused: bool,
}

impl<'p> OutputFile<'p> {
    /// Creates the file, or checks that it is writable.
    fn open(path: &'p Path) -> Result<Self> {
        let failed = |e| cannot_write(path, e);
        let mut options = File::options();
        match options.append(true).create_new(true).open(path) {
            Ok(_) => Ok(Self { path, is_unused: true }),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                options.create_new(false).create(true).open(path).map_err(failed)?;
                Ok(Self { path, is_unused: false })
            }
            Err(e) => Err(failed(e)),
        }
    }

    fn write(mut self, text: &str) -> Result<()> {
        fs::write(self.path, text).map_err(|e| cannot_write(self.path, e))?;
        self.is_unused = false;
        Ok(())
    }
}

impl Drop for OutputFile<'_> {
    fn drop(&mut self) {
        if self.is_unused {
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
            Err(LabError::Usage(format!("no contender has the name {name:?}: choose from {known}")))
        }
    }
}

fn print(report: &LabResults) {
    let mut out = io::stdout().lock();
    for result in &report.scenarios {
        let (head, rows) = tables::scenario_table(result);
        let table = tables::markdown(&head, &rows);
        // A closed standard output is not a failure.
        let _ = writeln!(out, "\n## {}: {}\n\n{table}", result.name, result.title);
    }
}

/// All runs.
fn runs(report: &LabResults) -> impl Iterator<Item = &RunResult> {
    let conditions = report.scenarios.iter().flat_map(|scenario| &scenario.conditions);
    conditions.flat_map(|c| &c.contenders).flat_map(|one| &one.runs)
}

/// Exit code: failure if nothing was measured, or a run failed or stayed void; 128 plus the
/// signal's number after a signal.
fn exit_code(report: &LabResults, signals: &Signals) -> ExitCode {
    let failed = runs(report).filter(|run| run.failed.is_some()).count();
    let void = runs(report).filter(|run| run.void.is_some() && run.failed.is_none()).count();
    if failed + void > 0 {
        notify(&format!("{failed} runs failed, {void} were void; they are in no result"));
    }
    if void > 0 {
        notify("void runs: usually caused by other load on the machine");
    }
    if signals.count() > 0 {
        notify("interrupted: earlier results are kept");
        return ExitCode::from(signals.exit_code());
    }
    if runs(report).next().is_none() {
        notify("nothing was measured");
        return ExitCode::FAILURE;
    }
    if failed + void > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::results::SCHEMA;

    fn report() -> LabResults {
        LabResults {
            schema: SCHEMA,
            version: "0",
            began_unix: 0,
            machine: machine::describe(),
            tools: Vec::new(),
            scenarios: Vec::new(),
        }
    }

    #[test]
    fn unused_output_file_is_removed_unless_it_existed() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "old").unwrap();
        drop((OutputFile::open(&new).unwrap(), OutputFile::open(&old).unwrap()));
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        for path in [&new, &old] {
            OutputFile::open(path).unwrap().write("results").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "results");
        }
        let nowhere = dir.path().join("no/where");
        let error = OutputFile::open(&nowhere).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains("no/where"), "{error}");
    }

    #[test]
    fn unwritable_file_does_not_block_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (unwritable, fine) = (dir.path().join("gone"), dir.path().join("fine"));
        fs::create_dir(&unwritable).unwrap();
        let lost = || Some(OutputFile { path: &unwritable, is_unused: false });
        let error =
            write_all(&report(), lost(), Some(OutputFile::open(&fine).unwrap())).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert!(fs::read_to_string(&fine).unwrap().contains("<html"));
        let error =
            write_all(&report(), Some(OutputFile::open(&fine).unwrap()), lost()).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert!(fs::read_to_string(&fine).unwrap().contains("\"schema\""));
        assert!(write_all(&report(), None, None).is_ok());
    }
}
