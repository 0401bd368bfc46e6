//! Programs and words for shell commands.

use crate::base::error::{LabError, Result};
use crate::model::job::Job;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of a program: beside this one, on the `PATH`, or in directories of servers.
#[must_use]
pub fn program_path(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    // A test executable is one directory below.
    let own_dirs = own.iter().flat_map(|own| own.ancestors().skip(1).take(2).map(Path::to_owned));
    let path = std::env::var("PATH").unwrap_or_default();
    let listed = path.split(':').chain(["/usr/sbin", "/usr/local/bin"]).map(PathBuf::from);
    let listed = listed.chain(std::env::var_os("HOME").map(|h| Path::new(&h).join(".cargo/bin")));
    own_dirs.chain(listed).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Program name for a shell, as a quoted path if known.
pub(crate) fn program(name: &str) -> String {
    program_path(name).map_or_else(|| name.to_owned(), |path| quoted(&path.to_string_lossy()))
}

/// Compiles a C++ program; `flags` follow the source. The result is complete or absent.
pub(crate) fn compile_program(
    program: &Path,
    name: &str,
    source: &str,
    flags: &[&str],
) -> Result<()> {
    let failed = |action: &str| {
        let what = format!("cannot {action} {name}");
        move |e| LabError::io(what, e)
    };
    let (file, part) = (program.with_file_name(name), program.with_extension("part"));
    fs::write(&file, source).map_err(failed("write"))?;
    let done = Command::new(program_path("g++").unwrap_or_else(|| "g++".into()))
        .args(["-O2", "-o"])
        .args([&part, &file])
        .args(flags)
        .output()
        .map_err(failed("compile"))?;
    if !done.status.success() {
        return Err(LabError::Command(format!("g++ {name}"), first_line(&done.stderr)));
    }
    fs::rename(&part, program).map_err(failed("place"))
}

pub(crate) fn first_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().next().unwrap_or_default().to_owned()
}

/// Quotes a word for a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

pub(crate) fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Further flags of the contender, each quoted and preceded by a space.
pub(crate) fn quoted_flags(job: &Job<'_>) -> String {
    job.contender.flags.iter().map(|flag| format!(" {}", quoted(flag))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_survives_shell() {
        let text = "it's $HOME; `x` \"y\" \\";
        let line = format!("printf %s {}", quoted(text));
        let done = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), text);
    }
}
