//! `bankfull-lab list`: lists scenarios.

use crate::base::error::{LabError, Result};
use crate::base::notify;
use crate::model::contender::Contender;
use crate::scenario::Scenario;
use crate::{scenario, tools};
use clap::Args;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Directory of the project's scenarios, relative to a checkout.
const DEFAULT_DIR: &str = "experiments";

/// Flags of `bankfull-lab list`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Directory with scenarios [default: experiments]
    ///
    /// By default `experiments` in the current directory, as in a checkout of bankfull.
    dir: Option<PathBuf>,
}

/// Prints name, contenders and title of each scenario.
///
/// # Errors
/// [`LabError::Usage`] if the given directory does not exist, or, after all others were listed, if
/// a scenario is invalid.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let dir = flags.dir.as_deref().unwrap_or(Path::new(DEFAULT_DIR));
    if !dir.is_dir() {
        let Some(dir) = &flags.dir else {
            notify(&not_found());
            return Ok(ExitCode::SUCCESS);
        };
        return Err(LabError::Usage(format!("{} is not a directory", dir.display())));
    }
    let mut files = Vec::new();
    find(dir, &mut files).map_err(|e| LabError::io(format!("cannot read {}", dir.display()), e))?;
    files.sort();
    let mut out = std::io::stdout().lock();
    let mut wrong = 0;
    for file in files {
        match scenario::read(&file) {
            // A closed standard output is not a failure.
            Ok(scenario) => drop(writeln!(out, "{}", line(&file, &scenario))),
            Err(error) => {
                wrong += 1;
                notify(&error.to_string());
            }
        }
    }
    match wrong {
        0 => Ok(ExitCode::SUCCESS),
        _ => Err(LabError::Usage(format!("{wrong} of the files are not valid scenarios"))),
    }
}

/// Message for a missing default directory: the path searched, and the remedy.
fn not_found() -> String {
    let here = std::env::current_dir().unwrap_or_default().join(DEFAULT_DIR);
    format!(
        "no scenarios: {} does not exist; run this in a checkout of bankfull, or name a directory: \
         bankfull-lab list DIR",
        here.display()
    )
}

/// Collects scenario files, without bases, whose names begin with an underscore.
fn find(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            find(&path, files)?;
        } else if name.ends_with(".toml") && !name.starts_with('_') {
            files.push(path);
        }
    }
    Ok(())
}

fn line(file: &Path, scenario: &Scenario) -> String {
    let contenders = scenario.conditions.first().map(|first| &first.settings.contenders);
    let name = |one: &Contender| {
        let is_missing = tools::find(&one.tool).is_ok_and(|tool| tool.missing().is_some());
        if is_missing { format!("{} (missing)", one.name) } else { one.name.clone() }
    };
    let names: Vec<String> = contenders.into_iter().flatten().map(name).collect();
    let conditions = match scenario.conditions.len() {
        1 => String::new(),
        count => format!("{count} conditions of "),
    };
    format!("{}\n    {}\n    {conditions}{}", file.display(), scenario.title, names.join("; "))
}
