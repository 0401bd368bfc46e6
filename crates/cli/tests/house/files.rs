//! Text files of the repository, and the report of findings.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) type Fallible<T> = Result<T, Box<dyn Error>>;

/// Directories that are built, fuzzed or kept by git.
const SKIPPED_DIRS: [&str; 5] = ["target", "dist", ".git", "corpus", "artifacts"];

/// A text file of the repository.
pub(crate) struct TextFile {
    /// Path relative to the repository root.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl TextFile {
    /// Places of the lines with a fault.
    pub(crate) fn lines_where(&self, fault: impl Fn(&str) -> bool, what: &str) -> Vec<String> {
        let found = numbered(&self.text).filter(|(_, line)| fault(line));
        found.map(|(at, _)| format!("{}:{at}: {what}", self.name)).collect()
    }
}

pub(crate) fn rust_files() -> Fallible<Vec<TextFile>> {
    files(|path| path.extension().is_some_and(|e| e == "rs"))
}

pub(crate) fn documents() -> Fallible<Vec<TextFile>> {
    files(|path| path.extension().is_some_and(|e| e == "md"))
}

/// Text files of the repository that `wanted` selects, sorted by name.
pub(crate) fn files(wanted: impl Fn(&Path) -> bool) -> Fallible<Vec<TextFile>> {
    let mut found = Vec::new();
    let mut dirs = vec![root()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            // In a git worktree, `.git` is a file.
            let is_source = !SKIPPED_DIRS.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && is_source {
                dirs.push(path);
            } else if kind.is_file()
                && is_source
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

pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

pub(crate) fn read(name: &str) -> Fallible<String> {
    fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}").into())
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn relative(path: &Path) -> String {
    let root = root().canonicalize().unwrap_or_default();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.strip_prefix(root).unwrap_or(&path).display().to_string()
}

pub(crate) fn none(findings: &[String]) -> Fallible<()> {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
    Ok(())
}
