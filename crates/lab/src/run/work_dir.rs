//! Working directory of a lab process: test data, created once, and a directory for each run.

use crate::base::error::{LabError, Result};
use crate::model::settings::Data;
use bankfull_control::Bytes;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Files per directory of a tree. (chosen: as many as a large photo folder)
const FILES_PER_DIRECTORY: u64 = 1000;

/// Prefix of the directories' names.
const DIR_PREFIX: &str = "bankfull-lab-";
const LOCK_FILE: &str = "lock";

/// Chunk size of generated data. (chosen: few calls, little memory)
const CHUNK_BYTES: u64 = 1 << 20;

/// Working directory; removed when dropped.
#[derive(Debug)]
pub(crate) struct WorkDir {
    dir: TempDir,
    /// Held while the directory is in use; a killed process releases it.
    _lock: File,
    data: HashMap<Data, PathBuf>,
}

impl WorkDir {
    pub(crate) fn new(work: &Path) -> Result<Self> {
        remove_stale(work);
        let failed =
            |e| LabError::io(format!("cannot create a directory in {}", work.display()), e);
        let dir = tempfile::Builder::new().prefix(DIR_PREFIX).tempdir_in(work).map_err(failed)?;
        // Renamed only once locked: an unlocked `lock` file marks a stale directory.
        let draft = dir.path().join("lock.new");
        let lock = File::create(&draft).map_err(failed)?;
        lock.lock().map_err(failed)?;
        fs::rename(draft, dir.path().join(LOCK_FILE)).map_err(failed)?;
        Ok(Self { dir, _lock: lock, data: HashMap::new() })
    }

    /// Returns the path of the file or tree, creating it at the first call.
    pub(crate) fn data_path(&mut self, data: &Data) -> Result<PathBuf> {
        if let Some(path) = self.data.get(data) {
            return Ok(path.clone());
        }
        let path = self.dir.path().join(format!("data{}", self.data.len()));
        create_data(&path, data).map_err(|e| LabError::io("cannot create the test data", e))?;
        self.data.insert(data.clone(), path.clone());
        Ok(path)
    }

    /// Path of a subdirectory.
    pub(crate) fn subdir(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates an empty subdirectory, removing an older one of the same name.
    pub(crate) fn recreate(&self, name: &str) -> Result<PathBuf> {
        let path = self.subdir(name);
        let _ = fs::remove_dir_all(&path);
        let failed = |e| LabError::io(format!("cannot create {}", path.display()), e);
        fs::create_dir_all(&path).map_err(failed)?;
        Ok(path)
    }
}

/// Removes the directories of killed processes.
fn remove_stale(work: &Path) {
    for entry in fs::read_dir(work).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(DIR_PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn create_data(path: &Path, data: &Data) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(data.files ^ data.size.0);
    if data.files == 1 {
        return write_random(path, data.bytes(), &mut random);
    }
    for number in 0..data.files {
        let dir = path.join(format!("{:04}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&dir)?;
        }
        write_random(&dir.join(format!("{number:08}")), data.size_of(number), &mut random)?;
    }
    Ok(())
}

fn write_random(path: &Path, size: Bytes, random: &mut fastrand::Rng) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut chunk = vec![0; size.0.min(CHUNK_BYTES) as usize];
    let mut left = size.0;
    while left > 0 {
        let n = left.min(CHUNK_BYTES);
        let part = &mut chunk[..n as usize];
        random.fill(part);
        file.write_all(part)?;
        left -= n;
    }
    Ok(())
}

/// Counts the files below a directory, and their bytes.
pub(crate) fn count_files(dir: &Path) -> (u64, Bytes) {
    let mut found = (0, Bytes(0));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            let (files, bytes) = count_files(&entry.path());
            found = (found.0 + files, found.1 + bytes);
        } else {
            found = (found.0 + 1, found.1 + Bytes(meta.len()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_directories_are_removed_and_used_ones_kept() {
        let work = tempfile::tempdir().unwrap();
        let living = WorkDir::new(work.path()).unwrap();
        let left = work.path().join("bankfull-lab-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK_FILE), "").unwrap();
        fs::write(work.path().join("bankfull-lab-file"), "").unwrap();
        let second = WorkDir::new(work.path()).unwrap();
        assert!(!left.exists() && living.dir.path().exists() && second.dir.path().exists());
    }

    #[test]
    fn data_is_created_once_and_incompressible() {
        let mut sources = WorkDir::new(&std::env::temp_dir()).unwrap();
        let tree = Data { files: 2500, size: Bytes(10), mixed: false };
        let path = sources.data_path(&tree).unwrap();
        assert_eq!(count_files(&path), (2500, Bytes(25_000)));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
        assert_eq!(sources.data_path(&tree).unwrap(), path);
        // Two groups of eight with a mean of 12 800 bytes, and one file of the smallest size.
        let mixed = Data { files: 17, size: Bytes(12_800), mixed: true };
        let path = sources.data_path(&mixed).unwrap();
        assert_eq!(count_files(&path), (17, Bytes(16 * 12_800 + 200)));
        assert_eq!(mixed.bytes(), Bytes(16 * 12_800 + 200));
        let sizes: Vec<u64> = (0..8).map(|number| mixed.size_of(number).0).collect();
        assert_eq!(sizes, [200, 400, 800, 1600, 3200, 6400, 12_800, 77_000]);
        let file =
            sources.data_path(&Data { size: Bytes((1 << 20) + 5), ..Data::default() }).unwrap();
        let content = fs::read(file).unwrap();
        assert_eq!(content.len(), (1 << 20) + 5);
        let zeros = content.iter().filter(|byte| **byte == 0).count();
        assert!((3500..4700).contains(&zeros), "{zeros} of a million");
        let fresh = sources.recreate("run").unwrap();
        fs::write(fresh.join("x"), "x").unwrap();
        assert_eq!(count_files(&sources.recreate("run").unwrap()), (0, Bytes(0)));
    }
}
