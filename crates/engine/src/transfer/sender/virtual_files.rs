//! Files of virtual file systems, such as `/proc`: their content alone tells their size.

use crate::base::sync::lock;
use bankfull_proto::wire::control::{Entry, EntryKind};
use bankfull_sys::{Dir, Stat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Largest content of a virtual file, which is kept in memory. (measured: the largest usual one,
/// `/proc/kallsyms`, has 10 to 20 MB; chosen: some of this size fit beside a transfer)
const MAX_BYTES: u64 = 64 << 20;

/// Bytes of all virtual files that are kept, above which no further one is read. (chosen: two of
/// the largest)
const MAX_HELD_BYTES: u64 = 2 * MAX_BYTES;

/// Content of a virtual file; `None` for any other entry.
pub(super) type VirtualContent = Option<Arc<HeldContent>>;

/// Content of a virtual file, in memory.
#[derive(Debug)]
pub(crate) struct HeldContent {
    pub(super) bytes: Vec<u8>,
    /// Sum over all files.
    held: Arc<AtomicU64>,
}

impl Drop for HeldContent {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

/// Reader of virtual files.
#[derive(Debug, Default)]
pub(crate) struct VirtualFiles {
    /// Devices of file systems; true for virtual ones.
    devices: Mutex<HashMap<u64, bool>>,
    /// Bytes that are kept until they are sent.
    held: Arc<AtomicU64>,
}

impl VirtualFiles {
    /// Reads the content of an entry on a virtual file system.
    ///
    /// # Errors
    /// A file that cannot be read, or has too much content.
    pub(super) fn content(
        &self,
        (dir, name): (&Dir, &OsStr),
        entry: &Entry,
        stat: &Stat,
    ) -> io::Result<VirtualContent> {
        if entry.kind != EntryKind::File || !self.is_virtual(dir, stat) {
            return Ok(None);
        }
        let content = read_present(dir.open_virtual_file(name)?)?;
        if content.len() as u64 > MAX_BYTES {
            let text = format!(
                "its size is unknown, and it has more than {} MiB: leave it out",
                MAX_BYTES >> 20
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        self.held.fetch_add(content.len() as u64, Ordering::Relaxed);
        Ok(Some(Arc::new(HeldContent { bytes: content, held: Arc::clone(&self.held) })))
    }

    /// True if much content is kept until it is sent.
    pub(super) fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) > MAX_HELD_BYTES
    }

    /// True if a file of a directory is on a virtual file system.
    fn is_virtual(&self, dir: &Dir, stat: &Stat) -> bool {
        let mut devices = lock(&self.devices);
        if let Some(is_virtual) = devices.get(&stat.dev) {
            return *is_virtual;
        }
        // A file may be a mount of another file system than its directory's.
        let is_own = dir.stat_self().is_ok_and(|own| own.dev == stat.dev);
        let is_virtual = is_own && dir.is_virtual();
        if is_own {
            devices.insert(stat.dev, is_virtual);
        }
        is_virtual
    }
}

/// Reads the content available at present: some files, such as `/proc/kmsg`, would wait for more.
fn read_present(file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    match file.take(MAX_BYTES + 1).read_to_end(&mut content) {
        Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
        _ => Ok(content),
    }
}
