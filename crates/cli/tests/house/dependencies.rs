//! Dependencies: licences and bans as in `deny.toml`, and the table of audited crates.

use super::files::{Fallible, none, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A crate of the build.
struct Package {
    name: String,
    version: String,
    licence: String,
}

/// Returns the crates that are built and linked on this platform, tests included.
fn packages() -> Fallible<Vec<Package>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--workspace", "--locked", "--prefix", "none", "--no-dedupe"]);
    cargo.args(["--edges", "normal,build,dev", "--format", "{p}|{l}"]).current_dir(root());
    let output = cargo.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout)?;
    let lines: BTreeSet<&str> = lines.lines().filter(|line| !line.is_empty()).collect();
    let package = |line: &str| {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split_whitespace();
        let (name, version) = (words.next()?.to_owned(), words.next()?);
        let version = version.trim_start_matches('v').to_owned();
        Some(Package { name, version, licence: licence.to_owned() })
    };
    Ok(lines.into_iter().filter_map(package).collect())
}

/// Returns the quoted strings of a list in `deny.toml`; `key` precedes each if it is given.
fn listed(list: &str, key: Option<&str>) -> Fallible<BTreeSet<String>> {
    let text = read("deny.toml")?;
    let start = text.find(&format!("\n{list} = [")).ok_or(format!("deny.toml: no {list}"))?;
    let body = &text[start..];
    let body = &body[..body.find("\n]").ok_or("deny.toml: an open list")?];
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let start = key.map_or_else(|| "\"".to_owned(), |key| format!("{key} = \""));
    let strings = lines.filter_map(|line| line.split_once(start.as_str()));
    Ok(strings.filter_map(|(_, rest)| rest.split('"').next()).map(str::to_owned).collect())
}

/// Tokens of an SPDX expression, whose old form has `/` for OR.
fn tokens(expression: &str) -> Vec<String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// True if an SPDX expression leaves a choice among the permitted licences.
fn is_permitted(expression: &str, permitted: &BTreeSet<String>) -> bool {
    let tokens = tokens(expression);
    let mut at = 0;
    any_of(&tokens, &mut at, permitted) && at == tokens.len()
}

fn any_of(tokens: &[String], at: &mut usize, permitted: &BTreeSet<String>) -> bool {
    let mut is_one = all_of(tokens, at, permitted);
    while tokens.get(*at).is_some_and(|token| token == "OR") {
        *at += 1;
        is_one |= all_of(tokens, at, permitted);
    }
    is_one
}

fn all_of(tokens: &[String], at: &mut usize, permitted: &BTreeSet<String>) -> bool {
    let mut are_all = term(tokens, at, permitted);
    while tokens.get(*at).is_some_and(|token| token == "AND") {
        *at += 1;
        are_all &= term(tokens, at, permitted);
    }
    are_all
}

fn term(tokens: &[String], at: &mut usize, permitted: &BTreeSet<String>) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    *at += 1;
    if token == "(" {
        let is_met = any_of(tokens, at, permitted);
        *at += 1;
        return is_met;
    }
    match tokens.get(*at..*at + 2) {
        Some([with, exception]) if with == "WITH" => {
            *at += 2;
            permitted.contains(&format!("{token} WITH {exception}"))
        }
        _ => permitted.contains(token),
    }
}

#[test]
fn licence_expressions_are_understood() {
    let permitted: BTreeSet<String> =
        ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("ISC AND (GPL-3.0 OR MIT)", true),
        ("ISC AND (GPL-3.0 OR BSL-1.0)", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("", false),
        ("(MIT", false),
    ] {
        assert_eq!(is_permitted(expression, &permitted), expected, "{expression}");
    }
}

#[test]
fn licences_of_dependencies_are_permitted() -> Fallible<()> {
    let permitted = listed("allow", None)?;
    let packages = packages()?;
    assert!(packages.len() > 50 && permitted.len() > 5, "{}", packages.len());
    let refused = packages.iter().filter(|package| !is_permitted(&package.licence, &permitted));
    let refused = refused.map(|Package { name, version, licence }| {
        format!("{name} {version}: the licence {licence:?} is not permitted (deny.toml)")
    });
    none(&refused.collect::<Vec<_>>())
}

#[test]
fn banned_crates_are_not_built() -> Fallible<()> {
    let banned = listed("deny", Some("crate"))?;
    assert!(banned.contains("tokio") && banned.len() > 5, "{banned:?}");
    let found = packages()?.into_iter().filter(|package| banned.contains(&package.name));
    let found = found.map(|package| format!("{} is banned (deny.toml)", package.name));
    none(&found.collect::<Vec<_>>())
}

#[test]
fn direct_dependencies_are_in_the_audited_table() -> Fallible<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--workspace", "--locked", "--prefix", "none", "--no-dedupe"]);
    cargo.args(["--depth", "1"]);
    cargo.args(["--edges", "normal,build,dev", "--format", "{p}"]).current_dir(root());
    let direct = String::from_utf8(cargo.output()?.stdout)?;
    let direct: BTreeSet<(&str, &str)> = direct
        .lines()
        .filter(|line| !line.starts_with("bankfull"))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.trim_start_matches('v')))
        })
        .collect();
    let document = read("docs/dependencies.md")?;
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: BTreeMap<&str, &str> = rows
        .filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            Some((name, rest.split(" | ").next()?))
        })
        .collect();
    let missing = direct.iter().filter(|(name, version)| rows.get(name) != Some(version));
    let missing = missing.map(|(name, version)| {
        format!(
            "docs/dependencies.md: {name} {version} is not audited; its row: {:?}",
            rows.get(name)
        )
    });
    let is_gone = |name: &&&str| !direct.iter().any(|(direct, _)| direct == *name);
    let gone =
        rows.keys().filter(is_gone).map(|name| format!("docs/dependencies.md: {name} is gone"));
    none(&missing.chain(gone).collect::<Vec<_>>())
}
