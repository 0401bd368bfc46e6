//! The configuration file: defaults of flags by command, and named remotes.
//!
//! Defaults become arguments around those of the user, so that clap parses and checks them. Flags
//! override variables, these override the user's file, and that overrides the system's file.

mod defaults;
mod file;
mod idle;
mod keys;
mod names;
mod remote;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use remote::Remotes;
pub(crate) use show::run;

use crate::environment::Environment;
use crate::flags::{self, Command, CpFlags, LsFlags, Operands, ProbeFlags, ShowFlags};
use crate::output::{Output, printable};
use file::Content;
use std::ffi::OsString;
use std::path::PathBuf;

/// Path of the system's file.
const SYSTEM_FILE: &str = "/etc/bankfull/config.toml";

/// Path of the user's file beneath the directory of configurations.
const USER_FILE: &str = "bankfull/config.toml";

/// Returns the files that are read, the system's first.
fn paths(environment: &Environment) -> Vec<PathBuf> {
    if let Some(only) = &environment.config {
        return Some(only)
            .filter(|path| !path.as_os_str().is_empty())
            .cloned()
            .into_iter()
            .collect();
    }
    let home = || environment.home.as_ref().map(|home| home.join(".config"));
    let base = environment.config_home.clone().filter(|base| base.is_absolute()).or_else(home);
    let user = base.map(|base| base.join(USER_FILE));
    std::iter::once(PathBuf::from(SYSTEM_FILE)).chain(user).collect()
}

/// Reads the files.
///
/// # Errors
/// One line that names the file.
fn load(environment: &Environment, root: &clap::Command) -> Result<Content, String> {
    let mut content = Content::default();
    for path in paths(environment) {
        match file::read(&path)? {
            Some(text) => {
                let parsed = file::parse(&text, &path, root, environment.home.as_deref())?;
                content.override_with(parsed);
            }
            None if environment.config.is_some() => {
                return Err(format!(
                    "BANKFULL_CONFIG names {}, which does not exist: create it, or unset the \
                     variable",
                    printable(&path)
                ));
            }
            None => {}
        }
    }
    Ok(content)
}

/// Returns the arguments with the defaults of the files, and the remotes.
///
/// Arguments that clap refuses, or answers with help, are returned as they are.
///
/// # Errors
/// One line that names the file.
pub(crate) fn applied(
    arguments: Vec<OsString>,
    environment: &Environment,
) -> Result<(Vec<OsString>, Remotes), String> {
    let root = flags::command();
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if !file::COMMANDS.contains(&name.as_str()) {
        return Ok((arguments, Remotes::default()));
    }
    let Ok(typed) = root.clone().try_get_matches_from(&arguments) else {
        return Ok((arguments, Remotes::default()));
    };
    let content = load(environment, &root)?;
    match typed.subcommand() {
        Some((_, typed)) => defaults::Merge { root: &root, name: &name, typed, environment }
            .arguments(content, arguments),
        None => Ok((arguments, Remotes::default())),
    }
}

/// Replaces names of remotes in a command; `gather` does it with its list.
///
/// # Errors
/// One line, if the operands name daemons with different credentials.
pub(crate) fn resolve(command: &mut Command, remotes: &Remotes) -> Result<(), String> {
    match command {
        Command::Cp(flags) => {
            let CpFlags { operands, daemon, show, .. } = &mut **flags;
            let Operands { sources, destination } = operands;
            let notes = remotes.resolve(sources.iter_mut().chain([destination]), daemon)?;
            show_notes(&notes, show);
        }
        Command::Ls(flags) => {
            let LsFlags { place, daemon, show, .. } = &mut **flags;
            show_notes(&remotes.resolve(std::iter::once(place), daemon)?, show);
        }
        Command::Probe(flags) => {
            let ProbeFlags { host, daemon, show, .. } = &mut **flags;
            let expanded = remotes.expanded_host(host);
            if expanded != *host {
                if !host.as_encoded_bytes().contains(&b':') {
                    host.push(":");
                }
                show_notes(&remotes.resolve(std::iter::once(&mut *host), daemon)?, show);
                *host = expanded;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Shows with -v which operands are remotes.
pub(crate) fn show_notes(notes: &[String], flags: &ShowFlags) {
    if flags.verbose > 0 && !flags.json {
        let mut output = Output::standard();
        notes.iter().for_each(|note| output.message(note));
    }
}
