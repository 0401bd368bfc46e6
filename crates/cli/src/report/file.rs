//! File of a report.

use bankfull::{Error, ErrorKind};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Generator mark of the page. Only files with this mark are overwritten.
pub(super) const GENERATOR: &str = "bankfull --report";

/// Number of bytes read to find the mark. (chosen: it is within the first 200 bytes)
const HEAD_BYTES: u64 = 1024;

/// File that will hold a report.
#[derive(Debug)]
pub(super) struct ReportFile {
    path: PathBuf,
}

impl ReportFile {
    /// Checks that the file is writable before anything is done. An existing file stays until the
    /// end, and a new one is removed again, as it may be in a copied tree.
    pub(super) fn check(path: &Path) -> Result<Self, Error> {
        let open = || {
            // A symlink stays, whatever its target is.
            let was_there = path.symlink_metadata().is_ok();
            refuse_others(path)?;
            OpenOptions::new().append(true).create(true).open(path)?;
            if was_there { Ok(()) } else { fs::remove_file(path) }
        };
        open().map_err(|e| unwritten("cannot write the report", path, &e))?;
        Ok(Self { path: path.to_owned() })
    }

    /// Writes the page.
    pub(super) fn write(&self, html: &str) -> Result<(), Error> {
        // The copy may have put another file there.
        refuse_others(&self.path).and_then(|()| replace(&self.path, html)).map_err(|e| {
            unwritten("the command has ended, but its report cannot be written", &self.path, &e)
        })
    }
}

/// Writes a temporary file and renames it, so that readers never see half a page. Other file types,
/// and files in directories that cannot be written, are written in place; a symlink stays.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let is_there = path.symlink_metadata().is_ok();
    let place = if is_there { path.canonicalize() } else { Ok(path.to_owned()) };
    // The symlink is dangling, or its target has been removed.
    let Ok(place) = place else { return fs::write(path, text) };
    let old = place.metadata().ok();
    let (Some(name), true) = (place.file_name(), old.as_ref().is_none_or(fs::Metadata::is_file))
    else {
        return fs::write(path, text);
    };
    let mut new = name.to_owned();
    new.push(format!(".new-{}", std::process::id()));
    let new = place.with_file_name(new);
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&new) else {
        return fs::write(path, text);
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| {
        old.map_or(Ok(()), |old| file.set_permissions(old.permissions()))?;
        fs::rename(&new, &place)
    });
    written.inspect_err(|_| {
        // The temporary file may be incomplete.
        let _ = fs::remove_file(&new);
    })
}

/// Refuses an existing file that is not a report, as its contents would be lost.
fn refuse_others(path: &Path) -> std::io::Result<()> {
    // A device or pipe has no contents to lose.
    if !path.metadata().is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    let mut head = Vec::new();
    fs::File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    let mark = bankfull_chart::generator_tag(GENERATOR);
    let is_report = head.windows(mark.len()).any(|bytes| bytes == mark.as_bytes());
    let is_other = !head.is_empty() && !is_report;
    let text = "the file exists and is not a report: choose another name";
    if is_other { Err(std::io::Error::other(text)) } else { Ok(()) }
}

fn unwritten(what: &str, path: &Path, error: &std::io::Error) -> Error {
    // Without the error number at the end of the system's message.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_lowercase();
    let is_missing = path.parent().is_some_and(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let hint = if is_missing { ": create its directory first" } else { "" };
    let text = format!("{text}{hint}");
    Error::new(ErrorKind::Local, format!("{what}: {}: {text}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_replaced_atomically_and_links_stay() {
        let dir = tempfile::tempdir().unwrap();
        let [report, link] = ["report.html", "link"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("report.html", &link).unwrap();
        replace(&report, "first").unwrap();
        let reader = fs::File::open(&report).unwrap();
        replace(&link, "second").unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), "second");
        assert!(link.is_symlink());
        // An open reader still has the whole earlier page.
        assert_eq!(std::io::read_to_string(reader).unwrap(), "first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        replace(Path::new("/dev/null"), "gone").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        fs::remove_file(&report).unwrap();
        replace(&link, "third").unwrap();
        assert!(link.is_symlink() && fs::read_to_string(&report).unwrap() == "third");
        // A directory with the temporary name prevents a temporary file.
        fs::create_dir(dir.path().join(format!("report.html.new-{}", std::process::id()))).unwrap();
        replace(&report, "fourth").unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), "fourth");
    }

    #[test]
    fn unwritable_report_is_refused_at_start() {
        let error = ReportFile::check(Path::new("/no/such/dir/r.html")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert_eq!(
            error.to_string(),
            "cannot write the report: /no/such/dir/r.html: no such file or directory: create its \
             directory first"
        );
    }
}
