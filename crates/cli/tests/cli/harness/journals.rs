//! Part files and journals of an interrupted transfer, read with the rules of the protocol.

use bankfull_proto::blocks::Layout;
use bankfull_proto::journal::{self, HEADER_BYTES, Header};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A journal with its part file.
#[derive(Debug)]
pub(crate) struct JournalFile {
    pub(crate) path: PathBuf,
    pub(crate) part: PathBuf,
    pub(crate) header: Header,
    /// Numbers of the blocks that are written, and verified unless the kernel copied them.
    pub(crate) blocks: BTreeSet<u64>,
}

impl JournalFile {
    fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let header = Header::decode(bytes.first_chunk::<HEADER_BYTES>()?).ok()?;
        let replay = journal::replay(&bytes, &header.boot).ok()?;
        let blocks = replay.recorded.blocks.iter().map(|block| block.index).collect();
        let part = path.with_extension("part");
        part.exists().then(|| Self { path: path.to_owned(), part, header, blocks })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.header.layout
    }

    /// Returns the bytes in verified blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.iter().map(|&index| self.layout().block_len(index)).sum()
    }

    /// Changes the boot identity, as after a restart of the host.
    pub(crate) fn age(&self) {
        let header = Header { boot: [0xb0; 16], ..self.header };
        let file = File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(&header.encode(), 0).unwrap();
    }

    /// Cuts off the record of an orderly end, as after a kill.
    pub(crate) fn cut_end(&self) {
        let bytes = fs::read(&self.path).unwrap();
        let replay = journal::replay(&bytes, &self.header.boot).unwrap();
        assert!(replay.closed.is_some(), "the session ended orderly");
        let file = File::options().write(true).open(&self.path).unwrap();
        file.set_len(replay.valid_bytes).unwrap();
    }

    /// Overwrites a byte in the middle of a block of the part.
    pub(crate) fn damage(&self, index: u64) {
        let range = self.layout().range(index).unwrap();
        let middle = u64::midpoint(range.start, range.end);
        let file = File::options().read(true).write(true).open(&self.part).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).unwrap();
        file.write_all_at(&[!byte[0]], middle).unwrap();
    }
}

/// Returns all journals beneath a directory that have a part file.
pub(crate) fn journals(dir: &Path) -> Vec<JournalFile> {
    let is_journal = |path: &&PathBuf| path.extension().is_some_and(|e| e == "journal");
    litter(dir).iter().filter(is_journal).filter_map(|path| JournalFile::read(path)).collect()
}

/// Returns the part files and journals beneath a directory.
pub(crate) fn litter(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.append(&mut litter(&entry.path()));
        } else if entry.file_name().as_bytes().starts_with(b".bankfull-") {
            found.push(entry.path());
        }
    }
    found
}
