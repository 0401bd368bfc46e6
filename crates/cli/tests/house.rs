//! The rules of the house, as tests: who may use whom, where `unsafe` may be, how long files and
//! lines are, what must not be left behind, and that documents speak of what is there. The rules
//! and their reasons stand in `CONTRIBUTING.md`. Each failure names a file and a line.

use serde_json::Value;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Which crates of ours a crate may use. (ARCHITECTURE.md, "Crates, one direction")
const MAY_USE: [(&str, &[&str]); 8] = [
    ("bankfull-control", &[]),
    ("bankfull-proto", &["bankfull-control"]),
    ("bankfull-sys", &[]),
    ("bankfull", &["bankfull-control", "bankfull-proto", "bankfull-sys"]),
    ("bankfull-cli", &["bankfull", "bankfull-chart"]),
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

const LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;

/// What is built, fuzzed or kept by git: none of it is written by us.
const NOT_OURS: [&str; 4] = ["target", ".git", "corpus", "artifacts"];

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
fn only_sys_has_unsafe_code_and_all_others_have_the_workspace_lints() -> Fallible<()> {
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

#[test]
fn files_and_lines_stay_short() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in rust_files()? {
        let before_tests = file.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
        let lines = before_tests.count();
        if lines > LINES_MAX {
            findings.push(format!("{}:{lines}: {lines} lines, {LINES_MAX} allowed", file.name));
        }
        // rustfmt wraps code and this finds comments; a literal cannot be wrapped by either.
        let too_wide = |line: &str| is_too_wide(line) && !line.contains('"');
        findings.extend(file.lines_where(too_wide, "goes beyond column 100"));
    }
    // In Java nothing wraps by itself, and a literal is cut with a plus.
    for file in files(|path| path.extension().is_some_and(|e| e == "java"))? {
        findings.extend(file.lines_where(is_too_wide, "goes beyond column 100"));
    }
    none(&findings)
}

#[test]
fn nothing_is_left_undone_in_the_code() -> Fallible<()> {
    // Cut in two, so that this file does not find itself.
    let left_behind = [concat!("to", "do!"), concat!("unim", "plemented!"), concat!("db", "g!")];
    let mut findings = Vec::new();
    for file in rust_files()? {
        for needle in left_behind {
            let has_it = |line: &str| finds_word(line, needle);
            findings.extend(file.lines_where(has_it, needle));
        }
    }
    none(&findings)
}

#[test]
fn no_text_names_a_path_of_some_machine() -> Fallible<()> {
    let places = [concat!("/wo", "rk/"), concat!("/fa", "rm/")];
    let mut findings = Vec::new();
    for file in files(|_| true)? {
        for place in places {
            let has_it = |line: &str| finds_word(line, place);
            findings.extend(file.lines_where(has_it, place));
        }
    }
    none(&findings)
}

#[test]
fn links_of_documents_lead_somewhere() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in documents()? {
        let dir = Path::new(&file.name).parent().unwrap_or(Path::new(""));
        for (at, line) in numbered(&file.text) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = link.split('#').next().unwrap_or_default();
                let is_elsewhere = link.contains("://") || path.is_empty();
                if !is_elsewhere && !root().join(dir).join(path).exists() {
                    findings.push(format!("{}:{at}: {link} is not there", file.name));
                }
            }
        }
    }
    none(&findings)
}

#[test]
fn every_constant_of_the_controller_is_in_its_document() -> Fallible<()> {
    const HOMES: [(&str, &str); 7] = [
        ("crates/control/src/ictcp/", "ictcp"),
        ("crates/engine/src/tune/incast/", "ictcp"),
        ("crates/control/src/sobas/", "sobas"),
        ("crates/control/src/shares.rs", "sobas"),
        ("crates/control/src/holder.rs", "sobas"),
        ("crates/control/src/pacing.rs", "sobas"),
        ("crates/engine/src/tune/", "sobas"),
    ];
    let mut findings = Vec::new();
    for TextFile { name, text } in rust_files()? {
        let home = HOMES.iter().find(|(home, _)| name.starts_with(home));
        let Some((_, document)) = home.filter(|_| !name.ends_with("tests.rs")) else { continue };
        let document = read(&format!("docs/algorithms/{document}.md"))?;
        let own = text.split("mod tests {").next().unwrap_or_default();
        for (number, line) in own.lines().enumerate().filter(|(_, line)| line.contains("const ")) {
            let named = line.split_once("const ").and_then(|(_, rest)| rest.split_once(':'));
            let Some((constant, _)) = named.filter(|_| !line.contains("fn ")) else { continue };
            if constant == "_" {
                continue;
            }
            if !document.contains(&format!("`{constant}`")) {
                findings.push(format!("{name}:{}: {constant} is not there", number + 1));
            }
        }
    }
    none(&findings)
}

#[test]
fn commands_in_documents_exist_with_their_flags() -> Fallible<()> {
    let makefile = read("Makefile")?;
    let mut findings = Vec::new();
    for file in documents()? {
        for (at, command) in shell_lines(&file.text) {
            let wrong = match command.split_whitespace().collect::<Vec<_>>()[..] {
                ["bankfull", sub, ref words @ ..] => wrong_words(sub, words)?,
                ["make", target, ..] if !makefile.contains(&format!("\n{target}:")) => {
                    Some(format!("the Makefile has no {target}"))
                }
                _ => None,
            };
            findings.extend(wrong.map(|wrong| format!("{}:{at}: {wrong}", file.name)));
        }
    }
    none(&findings)
}

fn is_too_wide(line: &str) -> bool {
    line.chars().count() > COLUMNS_MAX
}

/// What is wrong with the words after `bankfull SUB`: a flag that its help does not know.
fn wrong_words(sub: &str, words: &[&str]) -> Fallible<Option<String>> {
    let output = Command::new(env!("CARGO_BIN_EXE_bankfull")).args([sub, "--help"]).output()?;
    if !output.status.success() {
        return Ok(Some(format!("there is no `bankfull {sub}`")));
    }
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let known = |flag: &&str| finds_flag(&help, flag.split('=').next().unwrap_or_default());
    let flags = words.iter().filter(|word| word.starts_with('-') && **word != "--");
    let unknown = flags.copied().find(|flag| !known(flag));
    Ok(unknown.map(|flag| format!("`bankfull {sub}` has no flag {flag}")))
}

/// Whether a help text names a flag, and not only a longer one that starts with it.
fn finds_flag(help: &str, flag: &str) -> bool {
    let ends = |at: usize| !help[at..].starts_with(|c: char| c.is_alphanumeric() || c == '-');
    help.match_indices(flag).any(|(at, _)| ends(at + flag.len()))
}

/// The commands of the shell blocks of a document, up to the first pipe or redirection.
fn shell_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut inside = false;
    for (at, line) in numbered(text) {
        match line.trim() {
            "```sh" => inside = true,
            "```" => inside = false,
            command if inside => {
                let end = command.find(['|', '>', ';', '&']).unwrap_or(command.len());
                lines.push((at, command[..end].to_owned()));
            }
            _ => {}
        }
    }
    lines
}

/// Whether a line has `unsafe` as code: before a block, an item, or in an attribute.
fn is_unsafe(line: &str) -> bool {
    let starts = ["{", "fn ", "impl", "trait ", "extern ", "("];
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let after = code[at + word.len()..].trim_start();
        !joins(code, at) && starts.iter().any(|start| after.starts_with(start))
    })
}

/// Whether a line has `needle` where no word or path goes on into it.
fn finds_word(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| !joins(line, at))
}

/// Whether what is before `at` belongs to the same word or path.
fn joins(line: &str, at: usize) -> bool {
    line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~}*".contains(c))
}

/// A file of the repository that is text.
struct TextFile {
    /// Relative to the root.
    name: String,
    text: String,
}

impl TextFile {
    /// The places of lines with a fault.
    fn lines_where(&self, fault: impl Fn(&str) -> bool, what: &str) -> Vec<String> {
        let found = numbered(&self.text).filter(|(_, line)| fault(line));
        found.map(|(at, _)| format!("{}:{at}: {what}", self.name)).collect()
    }
}

fn rust_files() -> Fallible<Vec<TextFile>> {
    files(|path| path.extension().is_some_and(|e| e == "rs"))
}

fn documents() -> Fallible<Vec<TextFile>> {
    files(|path| path.extension().is_some_and(|e| e == "md"))
}

/// All text files that are ours and wanted, by name.
fn files(wanted: impl Fn(&Path) -> bool) -> Fallible<Vec<TextFile>> {
    let mut found = Vec::new();
    let mut dirs = vec![root()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            // In a work tree of git's, `.git` is a file.
            let is_ours = !NOT_OURS.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && is_ours {
                dirs.push(path);
            } else if kind.is_file()
                && is_ours
                && wanted(&path)
                && let Ok(text) = String::from_utf8(fs::read(&path)?)
            {
                found.push(TextFile { name: relative(&path), text });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
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
        _ => Err("cargo metadata told of no package".into()),
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

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn read(name: &str) -> Fallible<String> {
    fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}").into())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn relative(path: &Path) -> String {
    let root = root().canonicalize().unwrap_or_default();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.strip_prefix(root).unwrap_or(&path).display().to_string()
}

fn none(findings: &[String]) -> Fallible<()> {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
    Ok(())
}

#[test]
fn the_rules_find_what_they_are_for() {
    let code = |parts: [&str; 2]| is_unsafe(&parts.concat());
    assert!(code(["let x = un", "safe { f() };"]));
    assert!(code(["un", "safe impl Send for X {}"]));
    assert!(code(["#[un", "safe(no_mangle)]"]));
    assert!(!code(["// un", "safe { f() }"]));
    assert!(!code(["let un", "safe_text = 1;"]));
    assert!(finds_word("see /place/x", "/place/") && !finds_word("some/place/x", "/place/"));
    assert!(finds_flag("  --json\n", "--json") && !finds_flag("  --json-lines", "--json"));
    let text = "```sh\nbankfull cp a b | head\n```\nbankfull cp x\n";
    assert_eq!(shell_lines(text), [(2, "bankfull cp a b ".to_owned())]);
}
