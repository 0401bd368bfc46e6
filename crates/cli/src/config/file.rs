//! Files of settings: reads them, refuses those that other users may change, and parses TOML.

use super::keys::{self, flags};
use super::names::at_home;
use super::remote::{self, Remote};
use super::share::{self, Shared};
use crate::nearest::nearest;
use crate::output::printable;
use clap::{ArgAction, Command};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Commands with a table of defaults.
pub(super) const COMMANDS: [&str; 5] = ["cp", "gather", "ls", "probe", "serve"];

/// Table of the named remotes.
const REMOTE: &str = "remote";

/// Table of the shares of a daemon.
const SHARE: &str = "share";

/// Maximum size of a file, in bytes. (chosen: some ten thousand lines)
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Permission bits that let group and others change a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Maximum count of a repeated flag. (chosen: above all levels of -v)
const MAX_COUNT: i64 = 9;

/// Value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// `true` or `false`.
    Switch(bool),
    /// A number.
    Number(i64),
    /// Times that a flag is repeated.
    Count(i64),
    /// A text, or a number with a fraction.
    Text(String),
    /// Values of a flag that may be repeated.
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => write!(f, "{value}"),
            Self::Number(value) | Self::Count(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::List(values) => write!(f, "{values:?}"),
        }
    }
}

/// Default of a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Long name of the flag, without dashes.
    pub(super) key: String,
    /// Value.
    pub(super) value: Value,
    /// File that sets it.
    pub(super) file: PathBuf,
}

impl Entry {
    /// Returns the arguments that set the flag.
    pub(super) fn arguments(&self) -> Vec<String> {
        let key = &self.key;
        match &self.value {
            Value::Switch(false) => Vec::new(),
            Value::Switch(true) => vec![format!("--{key}")],
            Value::Count(times) => (0..*times).map(|_| format!("--{key}")).collect(),
            Value::Number(value) => vec![format!("--{key}={value}")],
            Value::Text(value) => vec![format!("--{key}={value}")],
            Value::List(values) => values.iter().map(|v| format!("--{key}={v}")).collect(),
        }
    }
}

impl Entry {
    /// Returns the value as typed on a command line.
    pub(super) fn text(&self) -> String {
        match &self.value {
            Value::Text(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Content of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Defaults by command, in the order of the files.
    pub(super) defaults: BTreeMap<String, Vec<Entry>>,
    /// Remotes by name.
    pub(super) remotes: BTreeMap<String, Remote>,
    /// Shares of a daemon by name.
    pub(super) shares: BTreeMap<String, Shared>,
}

impl Content {
    /// Adds a file whose values replace those of the same key.
    pub(super) fn override_with(&mut self, other: Self) {
        for (command, entries) in other.defaults {
            let all = self.defaults.entry(command).or_default();
            all.retain(|old| entries.iter().all(|new| new.key != old.key));
            all.extend(entries);
        }
        self.remotes.extend(other.remotes);
        self.shares.extend(other.shares);
    }
}

/// Reads a file; `None` if it does not exist.
///
/// # Errors
/// One line that names the file, if it cannot be read or other users may change it.
pub(super) fn read(path: &Path) -> Result<Option<String>, String> {
    let shown = printable(path);
    let cannot = |e: std::io::Error| {
        format!("cannot read the configuration file {shown}: {}", e.to_string().to_lowercase())
    };
    // A FIFO must not block the command.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(cannot(e)),
    };
    refuse_foreign(&file, &shown).map_err(|e| e.unwrap_or_else(cannot))?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(format!("the configuration file {shown} is larger than 1 MiB: shorten it")),
        false => Ok(Some(text)),
    }
}

/// Refuses a file that users other than root and this one may change.
fn refuse_foreign(file: &File, shown: &str) -> Result<(), ReadError> {
    let found = file.metadata().map_err(ReadError::Io)?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_file() {
        let text = format!("the configuration file {shown} is not a regular file: replace it");
        return Err(ReadError::Refused(text));
    }
    if owner != 0 && owner != geteuid().as_raw() {
        let text = format!(
            "the configuration file {shown} belongs to another user ({owner}): run chown root \
             {shown} and chmod go-w {shown}"
        );
        return Err(ReadError::Refused(text));
    }
    match mode & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(ReadError::Refused(format!(
            "other users may change the configuration file {shown} (mode {mode:04o}): run chmod \
             go-w {shown}"
        ))),
    }
}

/// Reason to refuse a file.
enum ReadError {
    Io(std::io::Error),
    Refused(String),
}

impl ReadError {
    fn unwrap_or_else(self, describe: impl Fn(std::io::Error) -> String) -> String {
        match self {
            Self::Io(e) => describe(e),
            Self::Refused(text) => text,
        }
    }
}

/// Parses the text of a file.
///
/// # Errors
/// One line that names the file, and the key or the line.
pub(super) fn parse(
    text: &str,
    file: &Path,
    root: &Command,
    home: Option<&Path>,
) -> Result<Content, String> {
    let shown = printable(file);
    let table = DeTable::parse(text).map_err(|e| {
        let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("{shown}, line {line}: {}", e.message().replace('\n', ", "))
    })?;
    let mut content = Content::default();
    for (name, value) in table.get_ref() {
        let name = name.get_ref().as_ref();
        let Some(inside) = value.get_ref().as_table() else {
            return Err(format!("{shown}: {name} is outside a table: write it below [cp]"));
        };
        let parsed = match root.find_subcommand(name).filter(|_| COMMANDS.contains(&name)) {
            Some(command) => entries(inside, command, file, home).map(|entries| {
                content.defaults.insert(name.to_owned(), entries);
            }),
            None if name == REMOTE => remote::parse(inside, file, home).map(|remotes| {
                content.remotes = remotes;
            }),
            None if name == SHARE => share::parse(inside, file, home).map(|shares| {
                content.shares = shares;
            }),
            None => Err(match nearest(name, COMMANDS.into_iter().chain([REMOTE, SHARE])) {
                Some(near) => format!("unknown table [{name}]: did you mean [{near}]?"),
                None => format!(
                    "unknown table [{name}]: write [{}], [{REMOTE}.NAME] or [{SHARE}.NAME]",
                    COMMANDS.join("], [")
                ),
            }),
        };
        parsed.map_err(|problem| format!("{shown}: {problem}"))?;
    }
    Ok(content)
}

/// Parses the table of a command.
fn entries(
    table: &DeTable<'_>,
    command: &Command,
    file: &Path,
    home: Option<&Path>,
) -> Result<Vec<Entry>, String> {
    let name = command.get_name();
    let mut ordered: Vec<_> = table.iter().collect();
    ordered.sort_by_key(|(key, _)| key.span().start);
    let mut entries: Vec<Entry> = Vec::new();
    for (typed, value) in ordered {
        let typed = typed.get_ref().as_ref();
        let key = typed.replace('_', "-");
        let Some((_, flag)) = flags(command).find(|(long, _)| *long == key) else {
            return Err(format!("unknown key {typed} in [{name}]{}", keys::way_out(command, &key)));
        };
        let value = value_of(flag, value.get_ref())
            .map_err(|needed| format!("{typed} in [{name}] takes {needed}"))?;
        let is_path = flag
            .get_value_names()
            .and_then(<[_]>::first)
            .is_some_and(|name| ["FILE", "DIR", "FILE.html"].contains(&name.as_str()));
        let value = match value {
            Value::Text(text) if is_path => Value::Text(at_home(&text, home)),
            other => other,
        };
        entries.retain(|old| old.key != key);
        entries.push(Entry { key, value, file: file.to_owned() });
    }
    Ok(entries)
}

/// Returns the value for a flag; the error names what is needed.
fn value_of(flag: &clap::Arg, value: &DeValue<'_>) -> Result<Value, &'static str> {
    let scalar = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(Value::Text(text.clone().into_owned())),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::Number)
        }
        DeValue::Float(number) => Some(Value::Text(number.as_str().to_owned())),
        _ => None,
    };
    let text = |value: &DeValue<'_>| match scalar(value)? {
        Value::Number(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        _ => None,
    };
    match (flag.get_action(), value) {
        (ArgAction::Append, DeValue::Array(all)) => {
            let all: Option<Vec<String>> = all.iter().map(|one| text(one.get_ref())).collect();
            all.map(Value::List).ok_or("an array of strings")
        }
        (ArgAction::Append, one) => {
            text(one).map(|one| Value::List(vec![one])).ok_or("an array of strings")
        }
        (ArgAction::Set, value) => scalar(value).ok_or("a string or a number"),
        (_, DeValue::Boolean(value)) => Ok(Value::Switch(*value)),
        (ArgAction::Count, value) => match scalar(value) {
            Some(Value::Number(count @ 0..=MAX_COUNT)) => Ok(Value::Count(count)),
            _ => Err("true, false or a small number"),
        },
        _ => Err("true or false"),
    }
}
