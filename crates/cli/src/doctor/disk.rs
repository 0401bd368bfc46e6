//! Check of a directory: how fast it is written.

use super::Finding;
use crate::output::byte_rate;
use bankfull::{Error, Rate, RememberedPath};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are written. (chosen: more than the cache of a disk, and some seconds of a slow one)
const TEST_BYTES: usize = 256 << 20;

/// Bytes of a write. (chosen: as copies write)
const CHUNK_BYTES: usize = 1 << 20;

/// Measures how fast a directory is written, and compares it with paths to this host.
///
/// # Errors
/// It cannot be written.
pub(super) fn check(dir: &Path, paths: &[RememberedPath]) -> Result<Finding, String> {
    let took = write(dir).map_err(|e| {
        let what = format!("cannot write a file of {} MiB in {}", TEST_BYTES >> 20, dir.display());
        Error::local(what, &e).to_string()
    })?;
    let rate = Rate::from_bytes_per_sec((TEST_BYTES as f64 / took.as_secs_f64()) as u64);
    let text = format!("{} is written at {}", dir.display(), byte_rate(rate));
    let incoming = paths.iter().filter(|path| !path.is_outgoing);
    let faster = incoming.max_by_key(|path| path.rate).filter(|path| path.rate > rate);
    Ok(match faster {
        None => Finding::good("disk", text),
        Some(path) => {
            let text = format!("{text}: less than {} sends, {}", path.host, path.rate);
            Finding::problem("disk", text, "choose another disk, or compress what is sent")
        }
    })
}

/// Writes and flushes a file; returns the time.
fn write(dir: &Path) -> io::Result<Duration> {
    let path = dir.join(format!(".bankfull-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    // The open file needs no name: nothing is left behind, however the program ends.
    fs::remove_file(&path)?;
    // Zeros might be compressed.
    let chunk: Vec<u8> = (0..CHUNK_BYTES as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    let started = Instant::now();
    for _ in 0..TEST_BYTES / CHUNK_BYTES {
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_measured_and_left_empty() {
        let dir = tempfile::tempdir().unwrap();
        let finding = check(dir.path(), &[]).unwrap();
        assert!(finding.text.contains("is written at"), "{}", finding.text);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let error = check(Path::new("/nonexistent"), &[]).unwrap_err();
        assert!(error.starts_with("cannot write a file of 256 MiB in /nonexistent: "), "{error}");
    }
}
