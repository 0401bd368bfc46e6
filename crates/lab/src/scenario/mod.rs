//! Scenarios: contenders, and the conditions under which they are compared, as small TOML files.
//! `docs/lab.md` lists their fields.

mod check;
mod file;

pub use file::read;

use crate::model::settings::Settings;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Comparison of contenders under one or more conditions.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Name of the file, without its extension.
    pub name: String,
    /// Title, one line.
    pub title: String,
    /// Swept keys; empty for a single condition.
    pub axes: Vec<Axis>,
    /// Conditions in the order of the axes; the last axis varies fastest.
    pub conditions: Vec<Condition>,
}

/// Swept key with its values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Key as in the file: `path.buffer`.
    pub key: String,
    /// Values of the key.
    pub values: Vec<toml::Value>,
}

/// One condition of a scenario.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Value of each axis, as text.
    pub values: Vec<String>,
    /// Settings under this condition.
    pub settings: Settings,
    /// Fingerprint for each contender of all that defines its runs: path, data, `[run]` and the
    /// contender, without the number of repetitions.
    pub definitions: BTreeMap<String, String>,
}

/// Names of axes: the shortest suffix of each key that no other key has.
#[must_use]
pub fn axis_names(axes: &[Axis]) -> Vec<String> {
    let keys: Vec<Vec<&str>> = axes.iter().map(|axis| axis.key.split('.').collect()).collect();
    let short = |key: &Vec<&str>| {
        let ends = (0..key.len()).rev().map(|from| &key[from..]);
        let is_own = |end: &&[&str]| keys.iter().filter(|one| one.ends_with(end)).count() == 1;
        ends.into_iter().find(is_own).unwrap_or(key).join(".")
    };
    keys.iter().map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_names_are_shortest_unique_suffixes() {
        let names = |keys: &[&str]| {
            let axis = |key: &&str| Axis { key: (*key).to_owned(), values: Vec::new() };
            axis_names(&keys.iter().map(axis).collect::<Vec<_>>())
        };
        assert_eq!(names(&["path.buffer", "run.seed"]), ["buffer", "seed"]);
        assert_eq!(names(&["path.rate", "senders.rate"]), ["path.rate", "senders.rate"]);
        assert_eq!(names(&["path"]), ["path"]);
        assert_eq!(names(&["rate", "path.rate"]), ["rate", "path.rate"]);
    }
}
