//! Builds that are older than their sources.
//!
//! The sources are those of cargo's dep-info file beside the binary. Without one, as for an
//! installed binary, no build is refused. New crates and compiler flags are not in it.

use crate::base::error::{LabError, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Refuses a binary if one of its sources has changed since it was built.
///
/// # Errors
/// [`LabError::Usage`] names the file, and the command that builds.
pub fn check(binary: &Path) -> Result<()> {
    let Some(source) = newer_source(binary) else { return Ok(()) };
    Err(LabError::Usage(format!(
        "{} is older than {}: cargo build --release -p bankfull-cli -p bankfull-lab",
        binary.display(),
        source.display()
    )))
}

/// First source that is newer than a binary; sources that no longer exist do not count.
fn newer_source(binary: &Path) -> Option<PathBuf> {
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let built = modified(binary)?;
    let text = fs::read_to_string(binary.with_extension("d")).ok()?;
    let is_newer = |path: &PathBuf| modified(path).is_some_and(|at| at > built);
    sources(&text).into_iter().find(is_newer)
}

/// Sources in a dep-info file: `BINARY: FILE FILE…`, with spaces of names escaped.
fn sources(text: &str) -> Vec<PathBuf> {
    let listed = text.lines().filter_map(|line| Some(line.split_once(": ")?.1));
    let escaped = listed.map(|files| files.replace("\\ ", "\0")).collect::<Vec<_>>().join(" ");
    escaped.split_whitespace().map(|name| PathBuf::from(name.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::Duration;

    #[test]
    fn build_older_than_a_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let built = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let write = |name: &str, text: &str, at: SystemTime| {
            fs::write(path(name), text).unwrap();
            File::options().append(true).open(path(name)).unwrap().set_modified(at).unwrap();
        };
        let binary = path("bankfull");
        write("bankfull", "", built);
        assert!(check(&binary).is_ok(), "nothing is known");
        let name = |name: &str| path(name).display().to_string().replace(' ', "\\ ");
        let listed = format!("{}: {} {}\n", name("bankfull"), name("gone.rs"), name("a b.rs"));
        write("bankfull.d", &listed, built);
        write("a b.rs", "", built);
        assert!(check(&binary).is_ok());
        write("a b.rs", "", built + Duration::from_secs(1));
        let error = check(&binary).unwrap_err().to_string();
        assert!(error.contains("bankfull is older than") && error.contains("a b.rs:"), "{error}");
        assert!(check(&path("absent")).is_ok());
    }
}
