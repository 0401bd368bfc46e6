//! Files of virtual file systems, such as `/proc`: their content alone tells their size.

use crate::base::sync::lock;
use bankfull_proto::wire::control::{Entry, EntryKind};
use bankfull_sys::{Dir, Stat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

/// Largest content of a virtual file, which is kept in memory. (measured: the largest usual one,
/// `/proc/kallsyms`, has 10 to 20 MB; chosen: some of this size fit beside a transfer)
const MAX_BYTES: u64 = 64 << 20;

/// Content of a virtual file; `None` for any other entry.
pub(super) type VirtualContent = Option<Arc<[u8]>>;

/// Reader of virtual files.
#[derive(Debug, Default)]
pub(crate) struct VirtualFiles {
    /// Devices of file systems; true for virtual ones.
    devices: Mutex<HashMap<u64, bool>>,
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
        let mut content = Vec::new();
        dir.open_file(name)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_BYTES {
            let text = format!(
                "its size is unknown, and it has more than {} MiB: leave it out",
                MAX_BYTES >> 20
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        Ok(Some(content.into()))
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
