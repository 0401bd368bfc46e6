//! Documents: links lead to files and headings, commands and flags exist, constants are listed.

use super::files::{Fallible, TextFile, documents, none, numbered, read, root, rust_files};
use std::path::Path;
use std::process::Command;

/// Files whose constants a document lists, and the document in `docs/algorithms`.
const HOMES: [(&str, &str); 12] = [
    ("crates/control/src/ictcp/", "ictcp"),
    ("crates/engine/src/tuning/incast/", "ictcp"),
    ("crates/control/src/delay/", "delay"),
    ("crates/control/src/path_control/", "path-control"),
    ("crates/control/src/sobas/", "sobas"),
    ("crates/control/src/congestion/", "quic"),
    ("crates/control/src/streams/", "streams"),
    ("crates/control/src/rrda/", "rrda"),
    ("crates/control/src/shares.rs", "path-control"),
    ("crates/control/src/bottleneck.rs", "path-control"),
    ("crates/control/src/pacing.rs", "path-control"),
    ("crates/engine/src/tuning/", "path-control"),
];

#[test]
fn links_of_documents_lead_somewhere() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in documents()? {
        let dir = Path::new(&file.name).parent().unwrap_or(Path::new(""));
        for (at, line) in numbered(&file.text) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target =
                    if path.is_empty() { file.name.clone().into() } else { dir.join(path) };
                let is_elsewhere = link.contains("://");
                if !is_elsewhere && !root().join(&target).exists() {
                    findings.push(format!("{}:{at}: {link} is not there", file.name));
                } else if !is_elsewhere && !anchor.is_empty() && !has_anchor(&target, anchor)? {
                    findings.push(format!("{}:{at}: {link} has no such heading", file.name));
                }
            }
        }
    }
    none(&findings)
}

/// True if a document has a heading with this anchor. Other files are not judged.
fn has_anchor(file: &Path, anchor: &str) -> Fallible<bool> {
    if file.extension().is_none_or(|extension| extension != "md") {
        return Ok(true);
    }
    let text = std::fs::read_to_string(root().join(file))?;
    Ok(headings(&text).any(|heading| slug(heading) == anchor))
}

/// Headings of a document, without the comments of its code blocks.
fn headings(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines).filter(|line| line.starts_with('#'));
    lines.filter_map(|line| line.trim_start_matches('#').strip_prefix(' '))
}

/// Anchor that GitHub gives to a heading: lower case, dashes for spaces, no punctuation.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[test]
fn headings_have_anchors_of_github() {
    let text = "# One\n```sh\n# no heading\n```\n### `two`: a_b, C-d (e)\n#no\n";
    assert_eq!(headings(text).map(slug).collect::<Vec<_>>(), ["one", "two-a_b-c-d-e"]);
}

#[test]
fn every_constant_of_the_controller_is_in_its_document() -> Fallible<()> {
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

/// Splits a group of letters, such as `-aH`, into flags; returns other words alone.
fn letters(word: &str) -> Vec<String> {
    let group = word.strip_prefix('-').filter(|group| !group.starts_with('-') && group.len() > 1);
    match group.filter(|group| group.bytes().all(|letter| letter.is_ascii_alphabetic())) {
        Some(group) => group.chars().map(|letter| format!("-{letter}")).collect(),
        None => vec![word.to_owned()],
    }
}

/// Returns the fault of the words after `bankfull SUB`: an unknown command or flag.
fn wrong_words(sub: &str, words: &[&str]) -> Fallible<Option<String>> {
    let output = Command::new(env!("CARGO_BIN_EXE_bankfull")).args([sub, "--help"]).output()?;
    if !output.status.success() {
        return Ok(Some(format!("there is no `bankfull {sub}`")));
    }
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let known = |flag: &&str| finds_flag(&help, flag.split('=').next().unwrap_or_default());
    let flags = words.iter().filter(|word| word.starts_with('-') && **word != "--");
    let unknown = flags.flat_map(|word| letters(word)).find(|flag| !known(&flag.as_str()));
    Ok(unknown.map(|flag| format!("`bankfull {sub}` has no flag {flag}")))
}

/// True if a help text names a flag itself, not only a longer one.
fn finds_flag(help: &str, flag: &str) -> bool {
    let ends = |at: usize| !help[at..].starts_with(|c: char| c.is_alphanumeric() || c == '-');
    help.match_indices(flag).any(|(at, _)| ends(at + flag.len()))
}

/// Commands of a document's shell blocks, up to the first pipe or redirection.
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

#[test]
fn flags_and_shell_lines_are_recognised() {
    assert!(finds_flag("  --json\n", "--json") && !finds_flag("  --json-lines", "--json"));
    let text = "```sh\nbankfull cp a b | head\n```\nbankfull cp x\n";
    assert_eq!(shell_lines(text), [(2, "bankfull cp a b ".to_owned())]);
}

#[test]
fn promises_of_the_threat_model_have_tests() -> Fallible<()> {
    let (text, sources) = (read("docs/security.md")?, rust_files()?);
    let words = text.split('`').skip(1).step_by(2);
    let mut findings = Vec::new();
    let mut count = 0;
    for test in words.filter(|word| word.contains("::")) {
        count += 1;
        let mut parts = test.rsplit("::");
        let (name, module) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let homes = [format!("/{module}.rs"), format!("/{module}/")];
        let is_home = |file: &&TextFile| homes.iter().any(|home| file.name.contains(home));
        let wanted = format!("fn {name}(");
        if !sources.iter().filter(is_home).any(|file| file.text.contains(&wanted)) {
            findings.push(format!("docs/security.md: there is no test {test}"));
        }
    }
    assert!(count > 30, "only {count} tests are named");
    none(&findings)
}

#[test]
fn paths_of_the_rules_exist() -> Fallible<()> {
    let missing = HOMES.iter().filter(|(home, _)| !root().join(home).exists());
    none(&missing.map(|(home, _)| format!("{home}: no such file")).collect::<Vec<_>>())
}
