//! `bankfull-lab list`: the scenarios that there are.

use crate::error::{LabError, Result};
use crate::scenario::{self, Scenario};
use crate::{say, tools};
use clap::Args;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `bankfull-lab list`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Where they are
    #[arg(default_value = "experiments")]
    dir: PathBuf,
}

/// Tells name, contenders and title of each.
///
/// # Errors
/// When the directory cannot be read, or a scenario is wrong: after all others were told.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    if !flags.dir.is_dir() {
        let text = "no directory: list takes one with scenarios in it (default: experiments)";
        return Err(LabError::Usage(format!("{} is {text}", flags.dir.display())));
    }
    let mut files = Vec::new();
    find(&flags.dir, &mut files)
        .map_err(|e| LabError::io(format!("cannot read {}", flags.dir.display()), e))?;
    files.sort();
    let mut out = std::io::stdout().lock();
    let mut wrong = 0;
    for file in files {
        match scenario::read(&file) {
            // Whoever closed standard output does not want to see it.
            Ok(scenario) => drop(writeln!(out, "{}", line(&file, &scenario))),
            Err(error) => {
                wrong += 1;
                say(&error.to_string());
            }
        }
    }
    match wrong {
        0 => Ok(ExitCode::SUCCESS),
        _ => Err(LabError::Usage(format!("{wrong} of the files cannot be read as scenarios"))),
    }
}

/// Files of scenarios; bases, whose names begin with an underscore, are none.
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
    let name = |one: &scenario::Contender| {
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
