//! Defaults of a file as arguments: those that the command line, its operands and the variables
//! leave in force.

use super::file::{Content, Entry};
use super::idle::{self, Places};
use super::keys::flags;
use super::remote::Remotes;
use crate::environment::Environment;
use crate::flags::{PLACES, negated};
use crate::output::printable;
use crate::standard_streams::{is_stream_destination, is_stream_source};
use crate::usage;
use bankfull::Location;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use std::ffi::OsString;

/// Keys of filters: the first match wins, so they follow those of the command line.
const FILTERS: [&str; 5] = ["exclude", "include", "exclude-from", "include-from", "filter"];

/// Command line, with the inputs that select its defaults.
pub(super) struct Merge<'m> {
    pub(super) root: &'m Command,
    pub(super) name: &'m str,
    pub(super) typed: &'m ArgMatches,
    pub(super) environment: &'m Environment,
}

impl Merge<'_> {
    /// Returns the arguments with the defaults, and the remotes.
    ///
    /// # Errors
    /// One line that names the file of a bad value.
    pub(super) fn arguments(
        &self,
        content: Content,
        arguments: Vec<OsString>,
    ) -> Result<(Vec<OsString>, Remotes), String> {
        let all = content.defaults.get(self.name).cloned().unwrap_or_default();
        let remotes = Remotes {
            named: content.remotes,
            has_token: self.environment.token.is_some() || self.is_typed("token-file"),
            has_fingerprint: self.is_typed("fingerprint"),
            has_defaults: !all.is_empty(),
        };
        all.iter().try_for_each(|entry| check(self.root, self.name, entry))?;
        let is_listed = all.iter().any(|entry| entry.key == "from-file");
        let places = self.places(&remotes, is_listed);
        let mut in_force = all;
        in_force.retain(|entry| {
            !self.is_overridden(&entry.key) && places.is_none_or(|places| places.use_of(&entry.key))
        });
        idle::remove(&mut in_force, |key| self.typed(key));
        let (filters, others): (Vec<Entry>, Vec<Entry>) =
            in_force.into_iter().partition(|entry| FILTERS.contains(&entry.key.as_str()));
        let files: Vec<String> =
            filters.iter().chain(&others).map(|e| printable(&e.file)).collect();
        let [filters, others] =
            [filters, others].map(|all| all.iter().flat_map(Entry::arguments).collect::<Vec<_>>());
        let merged = inserted(arguments, filters, others);
        match self.root.clone().try_get_matches_from(&merged) {
            Err(error) if !files.is_empty() => {
                let problem = usage::problem(&error);
                Err(format!("[{}] of {}: {problem}", self.name, files[0]))
            }
            _ => Ok((merged, remotes)),
        }
    }

    /// True if the flag is on the command line.
    fn is_typed(&self, key: &str) -> bool {
        self.flag(key).is_some_and(|flag| self.is_given(flag.get_id().as_str()))
    }

    fn is_given(&self, id: &str) -> bool {
        let is_known = self.typed.try_contains_id(id).is_ok();
        is_known && self.typed.value_source(id) == Some(ValueSource::CommandLine)
    }

    /// Returns the last value of a flag on the command line, empty for a switch.
    fn typed(&self, key: &str) -> Option<String> {
        let flag = self.flag(key).filter(|_| self.is_typed(key))?;
        let values = self.typed.get_raw(flag.get_id().as_str()).filter(|_| {
            // A switch has the values that clap stores for it.
            flag.get_action().takes_values()
        });
        let last = values.into_iter().flatten().last();
        Some(last.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default())
    }

    fn flag(&self, key: &str) -> Option<&clap::Arg> {
        let command = self.root.find_subcommand(self.name)?;
        flags(command).find(|(long, _)| *long == key).map(|(_, flag)| flag)
    }

    /// True if the command line or a variable decides on a key.
    fn is_overridden(&self, key: &str) -> bool {
        let adds = FILTERS.contains(&key) || key == "link-dest";
        let is_decided = self.environment.variable_of(key).is_some()
            || self.flag(key).is_some_and(|flag| self.is_given(&negated(flag.get_id().as_str())))
            || key == "report" && self.is_typed("dry-run");
        let conflicts = || {
            let command = self.root.find_subcommand(self.name)?;
            let own = self.flag(key)?;
            let mut typed = flags(command).filter(|(long, _)| self.is_typed(long));
            typed.find(|(_, other)| {
                command.get_arg_conflicts_with(own).contains(other)
                    || command.get_arg_conflicts_with(other).contains(&own)
            })
        };
        is_decided || (!adds && self.is_typed(key)) || conflicts().is_some()
    }

    /// Returns the kinds of the operands; `None` if a list has more, or the command has none.
    fn places(&self, remotes: &Remotes, is_listed: bool) -> Option<Places> {
        let raw = |id: &str| -> Vec<OsString> {
            let values = self.typed.try_get_raw(id).ok().flatten();
            values.into_iter().flatten().map(|value| remotes.expanded(value)).collect()
        };
        let mut operands = match self.name {
            "cp" => raw(PLACES),
            "ls" => raw("place"),
            "gather" if !is_listed && !self.is_typed("from-file") => raw(PLACES),
            "probe" => raw("host").iter().map(|host| remotes.expanded_host(host)).collect(),
            _ => return None,
        };
        if self.name == "probe" {
            operands.iter_mut().for_each(|host| host.push(":"));
        }
        let is_copy = self.name == "cp";
        let parsed: Vec<Location> =
            operands.iter().filter_map(|typed| Location::parse(typed).ok()).collect();
        let is_daemon = |place: &Location| matches!(place, Location::Daemon { .. });
        Some(Places {
            has_daemon: parsed.iter().any(is_daemon)
                || operands.iter().any(|typed| typed.as_encoded_bytes().starts_with(b"bankfull:/")),
            has_ssh: parsed.iter().any(|place| matches!(place, Location::Ssh { .. })),
            is_upload: is_copy && parsed.last().is_some_and(is_daemon),
            is_input: is_copy && operands.first().is_some_and(|source| is_stream_source(source)),
            is_output: is_copy && operands.last().is_some_and(|last| is_stream_destination(last)),
        })
    }
}

/// Checks the value of an entry.
///
/// # Errors
/// One line that names the file and the key.
pub(super) fn check(root: &Command, name: &str, entry: &Entry) -> Result<(), String> {
    let operands = if ["cp", "gather"].contains(&name) { &["a", "b"][..] } else { &["a"] };
    let own = entry.arguments();
    let line = ["bankfull", name].into_iter().chain(own.iter().map(String::as_str));
    match root.clone().try_get_matches_from(line.chain(operands.iter().copied())) {
        Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
            let (file, key) = (printable(&entry.file), &entry.key);
            Err(format!("{file}: {key} in [{name}]: {}", usage::problem(&error)))
        }
        _ => Ok(()),
    }
}

/// Inserts `others` after the subcommand, and `filters` after the flags of the user.
fn inserted(arguments: Vec<OsString>, filters: Vec<String>, others: Vec<String>) -> Vec<OsString> {
    let takes_next = |argument: &OsString| {
        let text = argument.to_str().and_then(|text| text.strip_prefix("--"));
        text.is_some_and(|name| FILTERS.contains(&name)) || argument == "-f"
    };
    let is_separator = |at: &usize| {
        arguments.get(*at).is_some_and(|argument| argument == "--")
            && !arguments.get(at.wrapping_sub(1)).is_some_and(takes_next)
    };
    let end = (2..arguments.len()).find(is_separator).unwrap_or(arguments.len());
    let mut merged = arguments;
    let rest = merged.split_off(end);
    let typed = merged.split_off(merged.len().min(2));
    merged.extend(others.into_iter().map(OsString::from));
    merged.extend(typed);
    merged.extend(filters.into_iter().map(OsString::from));
    merged.extend(rest);
    merged
}
