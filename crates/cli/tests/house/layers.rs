//! Layering of the crates: which crate may use which, and where `unsafe` may be.

use super::files::{Fallible, none, numbered, read, relative, root, rust_files};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::str;

/// Workspace crates that a crate may use. (ARCHITECTURE.md, "Crates, one direction")
const MAY_USE: [(&str, &[&str]); 9] = [
    ("bankfull-control", &[]),
    ("bankfull-proto", &["bankfull-control"]),
    ("bankfull-sys", &[]),
    ("bankfull", &["bankfull-control", "bankfull-proto", "bankfull-sys"]),
    ("bankfull-cli", &["bankfull", "bankfull-chart", "bankfull-guard"]),
    ("bankfull-guard", &["bankfull-control", "bankfull-sys"]),
    ("bankfull-sim", &["bankfull-control", "bankfull-proto"]),
    (
        "bankfull-lab",
        &["bankfull", "bankfull-chart", "bankfull-control", "bankfull-sim", "bankfull-sys"],
    ),
    ("bankfull-chart", &[]),
];

/// Depends on nothing, not even for its tests: it decides, and anyone can read all of it.
const PURE: &str = "bankfull-control";

/// The one crate with `unsafe` in it, and without the workspace's lints, which forbid that.
const HOME_OF_UNSAFE: &str = "crates/sys";

/// The data plane is blocking threads.
const ASYNC_RUNTIMES: [&str; 4] = ["async-std", "async-executor", "smol", "tokio"];

#[test]
fn layering_holds_and_control_stays_pure() -> Fallible<()> {
    let mut findings = Vec::new();
    for package in packages()? {
        let name = text(&package, "name");
        let manifest = relative(Path::new(text(&package, "manifest_path")));
        let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            findings.push(format!("{manifest}:1: {name} has no row in MAY_USE"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = text(dependency, "name");
            let for_tests = dependency["kind"] == "dev";
            let is_ours = MAY_USE.iter().any(|(known, _)| *known == used);
            let at = format!("{manifest}:{}", line_of(&manifest, used)?);
            if is_ours && !for_tests && !allowed.contains(&used) {
                findings.push(format!("{at}: {name} must not use {used}"));
            }
            if name == PURE {
                findings.push(format!("{at}: {name} must depend on nothing, but uses {used}"));
            }
        }
    }
    none(&findings)
}

#[test]
fn there_is_no_async_runtime() -> Fallible<()> {
    let lock = read("Cargo.lock")?;
    let is_one = |line: &str| ASYNC_RUNTIMES.iter().any(|r| line == format!("name = \"{r}\""));
    let found = numbered(&lock).filter(|(_, line)| is_one(line));
    none(&found.map(|(at, line)| format!("Cargo.lock:{at}: {line}")).collect::<Vec<_>>())
}

#[test]
fn unsafe_code_is_only_in_sys_and_lints_are_inherited() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in rust_files()?.iter().filter(|f| !f.name.starts_with(HOME_OF_UNSAFE)) {
        findings.extend(file.lines_where(is_unsafe, "unsafe outside crates/sys"));
    }
    for package in packages()? {
        let manifest = relative(Path::new(text(&package, "manifest_path")));
        let inherits = read(&manifest)?.contains("[lints]\nworkspace = true");
        if !inherits && !manifest.starts_with(HOME_OF_UNSAFE) {
            findings.push(format!("{manifest}:1: `[lints] workspace = true` is missing"));
        }
    }
    let root = read("Cargo.toml")?;
    if !root.lines().any(|line| line == "unsafe_code = \"forbid\"") {
        findings.push("Cargo.toml:1: the workspace lints must forbid unsafe_code".to_owned());
    }
    none(&findings)
}

/// True if a line has `unsafe` as code: before a block, an item, or in an attribute.
fn is_unsafe(line: &str) -> bool {
    let starts = ["{", "fn ", "impl", "trait ", "extern ", "("];
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let after = code[at + word.len()..].trim_start();
        !super::text::joins(code, at) && starts.iter().any(|start| after.starts_with(start))
    })
}

/// The crates of the workspace, as cargo sees them.
fn packages() -> Fallible<Vec<Value>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()?;
    let mut metadata: Value = serde_json::from_str(str::from_utf8(&output.stdout)?)?;
    match metadata["packages"].take() {
        Value::Array(packages) if !packages.is_empty() => Ok(packages),
        _ => Err("cargo metadata lists no package".into()),
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// The line of a manifest that names a dependency.
fn line_of(manifest: &str, dependency: &str) -> Fallible<usize> {
    let text = read(manifest)?;
    let names_it = |line: &str| {
        let rest = line.strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    Ok(numbered(&text).find(|(_, line)| names_it(line)).map_or(1, |(at, _)| at))
}

#[test]
fn unsafe_code_is_recognised() {
    let code = |parts: [&str; 2]| is_unsafe(&parts.concat());
    assert!(code(["let x = un", "safe { f() };"]));
    assert!(code(["un", "safe impl Send for X {}"]));
    assert!(code(["#[un", "safe(no_mangle)]"]));
    assert!(!code(["// un", "safe { f() }"]));
    assert!(!code(["let un", "safe_text = 1;"]));
}
