//! Shares of a daemon: `[share.NAME]` names a directory.

use super::names::at_home;
use crate::flags::rate;
use crate::nearest::nearest;
use bankfull::{Network, Share, is_plain_name};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Keys of a share.
const KEYS: [&str; 6] = ["path", "read-only", "allow", "max-rate", "quota", "quota-entries"];

/// A share, with the file that defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shared {
    pub(super) share: Share,
    pub(super) file: PathBuf,
}

/// Parses the tables of all shares.
pub(super) fn parse(
    tables: &DeTable<'_>,
    file: &Path,
    home: Option<&Path>,
) -> Result<BTreeMap<String, Shared>, String> {
    let mut shares = BTreeMap::new();
    for (name, table) in tables {
        let name = name.get_ref().as_ref();
        if !is_plain_name(name) {
            return Err(format!(
                "the name of a share has letters, digits, - _ and . only: rename {name:?}"
            ));
        }
        let share = match table.get_ref().as_table() {
            Some(table) => one(name, table, home)?,
            None => return Err(format!("share.{name} is no table: write [share.{name}]")),
        };
        shares.insert(name.to_owned(), Shared { share, file: file.to_owned() });
    }
    Ok(shares)
}

fn one(name: &str, table: &DeTable<'_>, home: Option<&Path>) -> Result<Share, String> {
    let mut share = Share::new(name, PathBuf::new());
    for (typed, value) in table {
        let typed = typed.get_ref().as_ref();
        let takes = |what: &str| format!("{typed} in [share.{name}] takes {what}");
        match (typed.replace('_', "-").as_str(), value.get_ref()) {
            ("path", DeValue::String(text)) => share.path = at_home(text, home).into(),
            ("path", _) => return Err(takes("a string")),
            ("read-only", DeValue::Boolean(value)) => share.read_only = *value,
            ("read-only", _) => return Err(takes("true or false")),
            ("allow", DeValue::Array(all)) => {
                let texts = all.iter().map(|one| one.get_ref().as_str());
                let texts: Option<Vec<&str>> = texts.collect();
                share.allow = networks(name, &texts.ok_or_else(|| takes("an array of strings"))?)?;
            }
            ("allow", DeValue::String(text)) => share.allow = networks(name, &[text.as_ref()])?,
            ("allow", _) => return Err(takes("an array of strings")),
            ("max-rate", DeValue::String(text)) => {
                let parsed = rate(text).map_err(|e| format!("max_rate in [share.{name}]: {e}"));
                share.max_rate = Some(parsed?);
            }
            ("max-rate", _) => return Err(takes("a rate, such as \"100mbit\"")),
            ("quota", DeValue::String(text)) => {
                let parsed = text.parse().map_err(|e| format!("quota in [share.{name}]: {e}"));
                share.quota.bytes = Some(parsed?);
            }
            ("quota", _) => return Err(takes("a size, such as \"500GiB\"")),
            ("quota-entries", DeValue::Integer(number)) => {
                let parsed = number.as_str().replace('_', "").parse();
                let parsed = parsed.map_err(|_| takes("a number of entries"));
                share.quota.entries = Some(parsed?);
            }
            ("quota-entries", _) => return Err(takes("a number of entries")),
            (key, _) => {
                let way_out = match nearest(key, KEYS.into_iter()) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("a share has {}", KEYS.join(", ")),
                };
                return Err(format!("unknown key {typed} in [share.{name}]: {way_out}"));
            }
        }
    }
    match share.path.is_absolute() {
        true => Ok(share),
        false if share.path.as_os_str().is_empty() => {
            Err(format!("[share.{name}] has no path: write path = \"/srv/{name}\""))
        }
        false => Err(format!("path in [share.{name}] is relative: write it from / on")),
    }
}

/// Parses networks; an empty list would shut everyone out, which is a mistake.
fn networks(name: &str, texts: &[&str]) -> Result<Vec<Network>, String> {
    if texts.is_empty() {
        return Err(format!("allow in [share.{name}] is empty: leave it out, or name networks"));
    }
    let parsed = texts.iter().map(|text| text.parse::<Network>());
    parsed.collect::<Result<_, _>>().map_err(|e| format!("allow in [share.{name}]: {e}"))
}
