//! Destinations of the sources of a gather, from their names alone.

use crate::api::transfer::remote_path;
use crate::base::error::{Error, ErrorKind, printable};
use crate::base::location::{DEFAULT_PORT, Location};
use crate::model::merge_conflicts::Merge;
use bankfull_proto::sources::split_path;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Layout of several sources at the destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// A directory for each host, named after it, into which its sources are copied. A daemon on
    /// another port than [`DEFAULT_PORT`] is `host_port`; a host reached over ssh as several users
    /// is `user@host` for each. Sources with the same destination are refused.
    #[default]
    ByHost,
    /// One tree for all sources, each copied as if alone. Nothing is copied before every source is
    /// listed or has failed; up to 256 sources.
    Merged(Merge),
}

/// Destination directory of each source, written with a trailing slash.
pub(crate) fn directories(
    sources: &[Location],
    destination: &Path,
    layout: Layout,
) -> Result<Vec<PathBuf>, Error> {
    match layout {
        Layout::ByHost => by_host(sources, destination),
        Layout::Merged(_) => Ok(vec![as_directory(destination); sources.len()]),
    }
}

fn by_host(sources: &[Location], destination: &Path) -> Result<Vec<PathBuf>, Error> {
    let names = host_names(sources);
    refuse_clashes(sources, &names, destination)?;
    Ok(names.into_iter().map(|name| as_directory(&destination.join(name))).collect())
}

/// A path written as a directory.
fn as_directory(path: &Path) -> PathBuf {
    let mut typed = path.as_os_str().to_owned();
    typed.push("/");
    typed.into()
}

/// Directory name for the host of each source.
fn host_names(sources: &[Location]) -> Vec<String> {
    let mut users: HashMap<&str, HashSet<Option<&str>>> = HashMap::new();
    for source in sources {
        if let Location::Ssh { user, host, .. } = source {
            users.entry(host).or_default().insert(user.as_deref());
        }
    }
    let name = |source: &Location| match source {
        Location::Local(_) => String::new(),
        Location::Daemon { host, port: DEFAULT_PORT, .. } => component(host),
        Location::Daemon { host, port, .. } => component(&format!("{host}_{port}")),
        Location::Ssh { user: Some(user), host, .. } if users[host.as_str()].len() > 1 => {
            component(&format!("{user}@{host}"))
        }
        Location::Ssh { host, .. } => component(host),
    };
    sources.iter().map(name).collect()
}

/// Any text as a single path component.
fn component(name: &str) -> String {
    match name {
        "." | ".." => name.replace('.', "_"),
        _ => name.replace(|c: char| c == '/' || c.is_control(), "_"),
    }
}

/// Name of a source at the destination; `None` if only its contents are copied.
fn own_name(source: &Location) -> Option<OsString> {
    let path = remote_path(source);
    let parts = split_path(&path.0);
    parts.name.filter(|_| !parts.must_be_dir).map(|name| OsStr::from_bytes(name).to_owned())
}

/// Refuses sources with the same destination.
fn refuse_clashes(
    sources: &[Location],
    directories: &[String],
    destination: &Path,
) -> Result<(), Error> {
    let mut first_in: HashMap<&str, (&Location, bool)> = HashMap::new();
    let mut taken: HashMap<(&str, OsString), &Location> = HashMap::new();
    for (source, directory) in sources.iter().zip(directories) {
        let name = own_name(source);
        let is_whole = name.is_none();
        let (first, first_is_whole) = *first_in.entry(directory).or_insert((source, is_whole));
        let is_second = !std::ptr::eq(first, source);
        if is_second && (is_whole || first_is_whole) {
            let target = destination.join(directory);
            let (whole, other) = if is_whole { (source, first) } else { (first, source) };
            return Err(clash(&format!(
                "the contents of {whole} would mix with {other} in {}: name a directory without \
                 its trailing slash, or gather them in two commands",
                target.display()
            )));
        }
        let Some(name) = name else { continue };
        let target = destination.join(directory).join(&name);
        if let Some(other) = taken.insert((directory, name), source) {
            return Err(clash(&format!(
                "{other} and {source} have the same destination {}: gather them in two commands, \
                 into two directories",
                target.display()
            )));
        }
    }
    Ok(())
}

fn clash(text: &str) -> Error {
    Error::new(ErrorKind::Usage, printable(text))
}
