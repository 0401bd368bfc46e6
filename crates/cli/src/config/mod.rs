//! The configuration file: defaults of flags by command, named remotes, and shares of a daemon.
//!
//! Defaults become arguments around those of the user, so that clap parses and checks them. Flags
//! override variables, these override the user's file, and that overrides the system's file.

mod defaults;
mod file;
mod idle;
mod keys;
mod names;
mod remote;
mod share;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use remote::Remotes;
pub(crate) use show::run;

use crate::environment::Environment;
use crate::flags::{self, Command, CpFlags, LsFlags, Operands, ProbeFlags, ShowFlags};
use crate::output::{Output, printable};
use bankfull::{Fingerprint, Share};
use file::Content;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Path of the system's file.
const SYSTEM_FILE: &str = "/etc/bankfull/config.toml";

/// Path of the file of the host's daemon. Not read if the command line names a directory.
const DAEMON_FILE: &str = "/etc/bankfull/serve.toml";

/// Path of the user's file beneath the directory of configurations.
const USER_FILE: &str = "bankfull/config.toml";

/// Tables of the files that are not defaults of flags.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Named remotes.
    pub(crate) remotes: Remotes,
    /// Shares of a daemon, if its command line names no directory.
    pub(crate) shares: Vec<Share>,
}

/// Readers of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A command of a user.
    Command,
    /// The host's daemon, and the commands that manage it.
    Daemon,
}

/// Returns the files that are read, the system's first.
fn paths(environment: &Environment, reader: Reader) -> Vec<PathBuf> {
    if let Some(only) = &environment.config {
        return Some(only)
            .filter(|path| !path.as_os_str().is_empty())
            .cloned()
            .into_iter()
            .collect();
    }
    let daemon = (reader == Reader::Daemon).then(|| PathBuf::from(DAEMON_FILE));
    [PathBuf::from(SYSTEM_FILE)].into_iter().chain(daemon).chain(user_file(environment)).collect()
}

/// Returns the file of the user's settings, if there may be one.
pub(crate) fn user_file(environment: &Environment) -> Option<PathBuf> {
    if let Some(only) = &environment.config {
        return Some(only.clone()).filter(|path| !path.as_os_str().is_empty());
    }
    let home = || environment.home.as_ref().map(|home| home.join(".config"));
    let base = environment.config_home.clone().filter(|base| base.is_absolute()).or_else(home);
    base.map(|base| base.join(USER_FILE))
}

/// Reads the files.
///
/// # Errors
/// One line that names the file.
fn load(
    environment: &Environment,
    root: &clap::Command,
    reader: Reader,
) -> Result<Content, String> {
    let mut content = Content::default();
    for path in paths(environment, reader) {
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
) -> Result<(Vec<OsString>, Tables), String> {
    let root = flags::command();
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if !file::COMMANDS.contains(&name.as_str()) {
        return Ok((arguments, Tables::default()));
    }
    let Ok(typed) = root.clone().try_get_matches_from(&arguments) else {
        return Ok((arguments, Tables::default()));
    };
    let Some((_, typed)) = typed.subcommand() else {
        return Ok((arguments, Tables::default()));
    };
    let names_directory = name != "serve" || typed.contains_id("root");
    let reader = if names_directory { Reader::Command } else { Reader::Daemon };
    let content = load(environment, &root, reader)?;
    let shares = if names_directory { Vec::new() } else { shares_of(&content) };
    let merge = defaults::Merge { root: &root, name: &name, typed, environment };
    let (arguments, remotes) = merge.arguments(content, arguments)?;
    Ok((arguments, Tables { remotes, shares }))
}

fn shares_of(content: &Content) -> Vec<Share> {
    content.shares.values().map(|shared| shared.share.clone()).collect()
}

/// Reads the shares of a daemon again.
///
/// # Errors
/// One line that names the file.
pub(crate) fn shares(environment: &Environment) -> Result<Vec<Share>, String> {
    load(environment, &flags::command(), Reader::Daemon).map(|content| shares_of(&content))
}

/// Returns the settings of `serve` in the files, by their keys.
///
/// A command line that names a directory leaves out the file of the host's daemon.
///
/// # Errors
/// One line that names the file.
pub(crate) fn serve_settings(
    environment: &Environment,
    names_directory: bool,
) -> Result<BTreeMap<String, String>, String> {
    let reader = if names_directory { Reader::Command } else { Reader::Daemon };
    let content = load(environment, &flags::command(), reader)?;
    let entries = content.defaults.get("serve").into_iter().flatten();
    Ok(entries.map(|entry| (entry.key.clone(), entry.text())).collect())
}

/// Settings of the host's daemon that others need.
#[derive(Debug, Default)]
pub(crate) struct DaemonSettings {
    /// State directory.
    pub(crate) state_dir: Option<PathBuf>,
    /// File of the tokens.
    pub(crate) tokens: Option<PathBuf>,
    /// Certificate of the administrator.
    pub(crate) certificate: Option<PathBuf>,
    /// Listening port.
    pub(crate) port: Option<u16>,
    /// True if the file of the host's daemon exists, but defines no shares yet.
    pub(crate) has_no_share: bool,
}

/// Reads the settings of the host's daemon.
///
/// # Errors
/// One line that names the file.
pub(crate) fn daemon_settings(environment: &Environment) -> Result<DaemonSettings, String> {
    let root = flags::command();
    let content = load(environment, &root, Reader::Daemon)?;
    let mut settings = DaemonSettings::default();
    if content.shares.is_empty() {
        // Without shares, no daemon uses the file: one that serves ROOT does not read it.
        settings.has_no_share = paths(environment, Reader::Daemon)
            .iter()
            .any(|path| path.ends_with(DAEMON_FILE) && path.exists());
        return Ok(settings);
    }
    for entry in content.defaults.get("serve").into_iter().flatten() {
        defaults::check(&root, "serve", entry)?;
        match entry.key.as_str() {
            "state-dir" => settings.state_dir = Some(entry.text().into()),
            "tokens" => settings.tokens = Some(entry.text().into()),
            "certificate" => settings.certificate = Some(entry.text().into()),
            "listen" => settings.port = flags::listen(&entry.text()).ok().map(|at| at.port),
            _ => {}
        }
    }
    Ok(settings)
}

/// Checks the text of a configuration file.
///
/// # Errors
/// One line that names the file.
pub(crate) fn check(text: &str, path: &Path, environment: &Environment) -> Result<(), String> {
    file::parse(text, path, &flags::command(), environment.home.as_deref()).map(drop)
}

/// A named remote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownRemote {
    pub(crate) url: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// Returns a named remote, if there is one.
///
/// # Errors
/// One line that names the file.
pub(crate) fn remote(name: &str, environment: &Environment) -> Result<Option<KnownRemote>, String> {
    // A configuration file that does not exist yet defines no remotes.
    let is_missing = environment.config.as_ref().is_some_and(|path| !path.exists());
    if is_missing {
        return Ok(None);
    }
    let content = load(environment, &flags::command(), Reader::Command)?;
    Ok(content.remotes.get(name).map(|remote| KnownRemote {
        url: remote.url.clone(),
        token_file: remote.token_file.clone(),
        fingerprint: remote.fingerprint,
    }))
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
