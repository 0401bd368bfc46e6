//! Named remotes: `store:y` stands for a path beneath the url of `[remote.store]`.

use super::names::at_home;
use crate::flags::DaemonFlags;
use crate::nearest::nearest;
use crate::output::printable;
use bankfull::{Fingerprint, Location};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// Keys of a remote.
const KEYS: [&str; 3] = ["url", "token-file", "fingerprint"];

/// A place with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// `bankfull://host[:port]/path` or `[user@]host:path`.
    pub(super) url: String,
    /// Token file of the daemon.
    pub(super) token_file: Option<PathBuf>,
    /// Fingerprint of the daemon.
    pub(super) fingerprint: Option<Fingerprint>,
    /// File that defines it.
    pub(super) file: PathBuf,
}

/// Credentials of one daemon.
type Credentials = (Option<PathBuf>, Option<Fingerprint>);

/// Parses the tables of all remotes.
pub(super) fn parse(
    tables: &DeTable<'_>,
    file: &Path,
    home: Option<&Path>,
) -> Result<BTreeMap<String, Remote>, String> {
    let mut remotes = BTreeMap::new();
    for (name, table) in tables {
        let name = name.get_ref().as_ref();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(format!(
                "the name of a remote has letters, digits, - _ and . only: rename {name:?}"
            ));
        }
        let remote = match table.get_ref().as_table() {
            Some(table) => one(name, table, file, home)?,
            None => return Err(format!("remote.{name} is no table: write [remote.{name}]")),
        };
        remotes.insert(name.to_owned(), remote);
    }
    Ok(remotes)
}

fn one(
    name: &str,
    table: &DeTable<'_>,
    file: &Path,
    home: Option<&Path>,
) -> Result<Remote, String> {
    let (mut url, mut token_file, mut fingerprint) = (None, None, None);
    for (typed, value) in table {
        let typed = typed.get_ref().as_ref();
        let text = || {
            let text = value.get_ref().as_str();
            text.ok_or_else(|| format!("{typed} in [remote.{name}] takes a string"))
        };
        match typed.replace('_', "-").as_str() {
            "url" => url = Some(text()?.to_owned()),
            "token-file" => token_file = Some(PathBuf::from(at_home(text()?, home))),
            "fingerprint" => {
                let parsed = text()?.parse::<Fingerprint>();
                fingerprint =
                    Some(parsed.map_err(|e| format!("fingerprint in [remote.{name}]: {e}"))?);
            }
            key => {
                let way_out = match nearest(key, KEYS.into_iter()) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("a remote has {}", KEYS.join(", ")),
                };
                return Err(format!("unknown key {typed} in [remote.{name}]: {way_out}"));
            }
        }
    }
    let Some(url) = url else {
        return Err(format!(
            "[remote.{name}] has no url: write url = \"bankfull://HOST/PATH\" or \"HOST:PATH\""
        ));
    };
    let url = if url.contains(':') { url } else { format!("{url}:") };
    let needs_daemon = token_file.is_some() || fingerprint.is_some();
    match Location::parse(url.as_ref()) {
        Ok(Location::Daemon { .. }) => {}
        Ok(Location::Ssh { .. }) if !needs_daemon => {}
        Ok(Location::Ssh { .. }) => {
            return Err(format!(
                "[remote.{name}] has a token-file or a fingerprint, which ssh does not use: leave \
                 it out, or write a bankfull:// url"
            ));
        }
        Ok(Location::Local(_)) => {
            return Err(format!(
                "url in [remote.{name}] is a local path: write bankfull://HOST/PATH or HOST:PATH"
            ));
        }
        Err(e) => return Err(format!("url in [remote.{name}]: {e}")),
    }
    Ok(Remote { url, token_file, fingerprint, file: file.to_owned() })
}

/// Remotes in force, and what the command line has decided already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remotes {
    /// Remotes by name.
    pub(super) named: BTreeMap<String, Remote>,
    /// True if a flag or a variable sets the token.
    pub(super) has_token: bool,
    /// True if a flag sets the fingerprint.
    pub(super) has_fingerprint: bool,
    /// True if the file has defaults for this command.
    pub(super) has_defaults: bool,
}

impl Remotes {
    /// True if the file has defaults for this command.
    pub(crate) fn has_defaults(&self) -> bool {
        self.has_defaults
    }

    /// Returns the remote of an operand with its name, and the path beneath it.
    fn find<'a>(&'a self, operand: &'a OsStr) -> Option<(&'a str, &'a Remote, &'a [u8])> {
        let bytes = operand.as_bytes();
        let colon = bytes.iter().position(|&byte| byte == b':')?;
        let (name, rest) = bytes.split_at(colon);
        // Neither a scheme nor the module of an rsync daemon names a remote.
        if rest.starts_with(b"://") || rest.starts_with(b"::") {
            return None;
        }
        let (name, remote) = self.named.get_key_value(std::str::from_utf8(name).ok()?)?;
        Some((name, remote, rest.strip_prefix(b":").unwrap_or(rest)))
    }

    /// Returns the operand with the url of its remote.
    pub(super) fn expanded(&self, operand: &OsStr) -> OsString {
        match self.find(operand) {
            Some((_, remote, path)) => joined(&remote.url, path),
            None => operand.to_owned(),
        }
    }

    /// Returns the host to probe, whose colon may be left out.
    pub(super) fn expanded_host(&self, host: &OsStr) -> OsString {
        let with_colon = {
            let mut name = host.to_owned();
            name.push(":");
            name
        };
        let typed = if self.find(host).is_some() { host } else { &with_colon };
        match self.find(typed) {
            None => host.to_owned(),
            Some((_, remote, _)) => match Location::parse(remote.url.as_ref()) {
                Ok(Location::Ssh { path, .. }) => {
                    let shown = path.display().to_string();
                    let bare = remote.url.strip_suffix(&shown).unwrap_or(&remote.url);
                    bare.into()
                }
                _ => remote.url.clone().into(),
            },
        }
    }

    /// Replaces names of remotes in the operands, and sets their credentials in the flags.
    ///
    /// Returns a line about each remote.
    ///
    /// # Errors
    /// One line, if the operands name daemons with different credentials.
    pub(crate) fn resolve<'o>(
        &self,
        operands: impl Iterator<Item = &'o mut OsString>,
        daemon: &mut DaemonFlags,
    ) -> Result<Vec<String>, String> {
        let mut notes = Vec::new();
        let mut found: Vec<(OsString, Credentials)> = Vec::new();
        for operand in operands {
            let remote = self.find(operand);
            let (note, token_file, fingerprint) = match remote {
                None => (None, None, None),
                Some((name, remote, _)) => {
                    let (file, url) = (printable(&remote.file), &remote.url);
                    let note = format!("{name} is the remote of {file}: {url}");
                    (Some(note), remote.token_file.clone(), remote.fingerprint)
                }
            };
            notes.extend(note.filter(|note| !notes.contains(note)));
            let expanded = self.expanded(operand);
            if matches!(Location::parse(&expanded), Ok(Location::Daemon { .. })) {
                let token_file = token_file.filter(|_| !self.has_token);
                let fingerprint = fingerprint.filter(|_| !self.has_fingerprint);
                found.push((operand.clone(), (token_file, fingerprint)));
            }
            *operand = expanded;
        }
        let Some((first, own)) = found.first() else { return Ok(notes) };
        if let Some((other, _)) = found.iter().find(|(_, credentials)| credentials != own) {
            return Err(format!(
                "{} and {} differ in token-file or fingerprint: copy them with separate commands, \
                 or give both flags",
                printable(first.as_ref()),
                printable(other.as_ref())
            ));
        }
        let (token_file, fingerprint) = own.clone();
        daemon.token_file = token_file.or_else(|| daemon.token_file.take());
        daemon.fingerprint = fingerprint.or(daemon.fingerprint);
        Ok(notes)
    }
}

/// Returns a path beneath a URL; absolute paths are relative to it, too.
fn joined(url: &str, path: &[u8]) -> OsString {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let path = path.get(start..).unwrap_or_default();
    let mut whole = url.as_bytes().to_vec();
    let is_daemon = url.starts_with("bankfull://");
    let is_bare = whole.ends_with(b"/") || (!is_daemon && whole.ends_with(b":"));
    if !path.is_empty() && !is_bare {
        whole.push(b'/');
    }
    whole.extend_from_slice(path);
    OsString::from_vec(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remotes() -> Remotes {
        let remote = |url: &str, token: Option<&str>| Remote {
            url: url.to_owned(),
            token_file: token.map(PathBuf::from),
            fingerprint: None,
            file: "/etc/c".into(),
        };
        let named = [
            ("store", remote("bankfull://s.example:99/base", Some("t"))),
            ("other", remote("bankfull://o.example", None)),
            ("box", remote("me@box:", None)),
            ("deep", remote("box:a/b", None)),
        ];
        let named = named.into_iter().map(|(name, remote)| (name.to_owned(), remote)).collect();
        Remotes { named, ..Remotes::default() }
    }

    #[test]
    fn operand_is_joined_with_the_url() {
        for (typed, whole) in [
            ("store:y", "bankfull://s.example:99/base/y"),
            ("store:/y", "bankfull://s.example:99/base/y"),
            ("store:", "bankfull://s.example:99/base"),
            ("other:y", "bankfull://o.example/y"),
            ("box:y", "me@box:y"),
            ("box:/y", "me@box:y"),
            ("deep:y/", "box:a/b/y/"),
            ("me@store:y", "me@store:y"),
            ("./store:y", "./store:y"),
            ("store://y", "store://y"),
            ("store::y", "store::y"),
            ("store", "store"),
        ] {
            assert_eq!(remotes().expanded(typed.as_ref()), OsStr::new(whole), "{typed}");
        }
    }

    #[test]
    fn probe_takes_the_name_alone() {
        for (typed, whole) in [
            ("store", "bankfull://s.example:99/base"),
            ("store:", "bankfull://s.example:99/base"),
            ("deep", "box:"),
            ("box", "me@box:"),
            ("unknown", "unknown"),
        ] {
            assert_eq!(remotes().expanded_host(typed.as_ref()), OsStr::new(whole), "{typed}");
        }
    }

    #[test]
    fn token_of_a_remote_is_not_sent_to_another_daemon() {
        let resolve = |remotes: &Remotes, typed: &[&str]| {
            let mut flags = DaemonFlags::default();
            let mut operands: Vec<OsString> = typed.iter().map(OsString::from).collect();
            remotes.resolve(operands.iter_mut(), &mut flags).map(|_| flags.token_file)
        };
        let mut remotes = remotes();
        assert_eq!(resolve(&remotes, &["a", "store:y"]), Ok(Some("t".into())));
        assert_eq!(resolve(&remotes, &["other:y", "b"]), Ok(None));
        let error = resolve(&remotes, &["store:a", "bankfull://h/b", "in"]).unwrap_err();
        assert!(error.starts_with("store:a and bankfull://h/b differ"), "{error}");
        remotes.has_token = true;
        assert_eq!(resolve(&remotes, &["store:a", "other:b", "in"]), Ok(None));
    }
}
