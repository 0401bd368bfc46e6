//! Files to move, made once and kept as long as scenarios run, and a place for each run.

use crate::error::{LabError, Result};
use crate::scenario::Data;
use bankfull_control::Bytes;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Files of a tree that share a directory. (ours: as many as a large photo folder)
const FILES_PER_DIRECTORY: u64 = 1000;

/// Begins the names of the directories, and the file in each that is locked while it is used.
const PREFIX: &str = "bankfull-lab-";
const LOCK: &str = "lock";

/// Bytes that are made and written at once. (ours: calls are few, and memory is little)
const CHUNK_BYTES: u64 = 1 << 20;

/// A directory with all that scenarios need; removed with the value.
#[derive(Debug)]
pub(crate) struct Sources {
    dir: TempDir,
    /// Locked as long as it is open: what a killed lab has left is not.
    _lock: File,
    made: HashMap<Data, PathBuf>,
}

impl Sources {
    pub(crate) fn new(work: &Path) -> Result<Self> {
        remove_stale(work);
        let failed = |e| LabError::io(format!("cannot make a directory in {}", work.display()), e);
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(work).map_err(failed)?;
        // It gets its name when it is locked: until then it would be taken for a dead one's.
        let draft = dir.path().join("lock.new");
        let lock = File::create(&draft).map_err(failed)?;
        lock.lock().map_err(failed)?;
        fs::rename(draft, dir.path().join(LOCK)).map_err(failed)?;
        Ok(Self { dir, _lock: lock, made: HashMap::new() })
    }

    /// The file or the tree, made when it is asked for the first time.
    pub(crate) fn of(&mut self, data: &Data) -> Result<PathBuf> {
        if let Some(path) = self.made.get(data) {
            return Ok(path.clone());
        }
        let path = self.dir.path().join(format!("data{}", self.made.len()));
        make(&path, data).map_err(|e| LabError::io("cannot make the data to be moved", e))?;
        self.made.insert(data.clone(), path.clone());
        Ok(path)
    }

    /// The directory of this name as it is.
    pub(crate) fn last(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An empty directory of this name.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.last(name);
        let _ = fs::remove_dir_all(&path);
        let failed = |e| LabError::io(format!("cannot make {}", path.display()), e);
        fs::create_dir_all(&path).map_err(failed)?;
        Ok(path)
    }
}

/// Removes what labs have left that were killed.
fn remove_stale(work: &Path) {
    for entry in fs::read_dir(work).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn make(path: &Path, data: &Data) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(data.files ^ data.size.0);
    if data.files == 1 {
        return write(path, data.bytes(), &mut random);
    }
    for number in 0..data.files {
        let dir = path.join(format!("{:04}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&dir)?;
        }
        write(&dir.join(format!("{number:08}")), data.size_of(number), &mut random)?;
    }
    Ok(())
}

fn write(path: &Path, size: Bytes, random: &mut fastrand::Rng) -> io::Result<()> {
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

/// Files beneath a directory, and their bytes.
pub(crate) fn count(dir: &Path) -> (u64, Bytes) {
    let mut found = (0, Bytes(0));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            let (files, bytes) = count(&entry.path());
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
    fn what_a_killed_lab_has_left_is_removed_and_what_is_in_use_is_not() {
        let work = tempfile::tempdir().unwrap();
        let living = Sources::new(work.path()).unwrap();
        let left = work.path().join("bankfull-lab-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        fs::write(work.path().join("bankfull-lab-file"), "").unwrap();
        let second = Sources::new(work.path()).unwrap();
        assert!(!left.exists() && living.dir.path().exists() && second.dir.path().exists());
    }

    #[test]
    fn data_is_made_once_as_asked_for_and_cannot_be_compressed() {
        let mut sources = Sources::new(&std::env::temp_dir()).unwrap();
        let tree = Data { files: 2500, size: Bytes(10), mixed: false };
        let path = sources.of(&tree).unwrap();
        assert_eq!(count(&path), (2500, Bytes(25_000)));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
        assert_eq!(sources.of(&tree).unwrap(), path);
        // Two times eight, of 12 800 bytes in the mean, and one of the smallest.
        let mixed = Data { files: 17, size: Bytes(12_800), mixed: true };
        let path = sources.of(&mixed).unwrap();
        assert_eq!(count(&path), (17, Bytes(16 * 12_800 + 200)));
        assert_eq!(mixed.bytes(), Bytes(16 * 12_800 + 200));
        let sizes: Vec<u64> = (0..8).map(|number| mixed.size_of(number).0).collect();
        assert_eq!(sizes, [200, 400, 800, 1600, 3200, 6400, 12_800, 77_000]);
        let file = sources.of(&Data { size: Bytes((1 << 20) + 5), ..Data::default() }).unwrap();
        let content = fs::read(file).unwrap();
        assert_eq!(content.len(), (1 << 20) + 5);
        let zeros = content.iter().filter(|byte| **byte == 0).count();
        assert!((3500..4700).contains(&zeros), "{zeros} of a million");
        let fresh = sources.fresh("run").unwrap();
        fs::write(fresh.join("x"), "x").unwrap();
        assert_eq!(count(&sources.fresh("run").unwrap()), (0, Bytes(0)));
    }
}
