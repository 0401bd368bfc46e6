//! Network namespaces of processes: a BPF iterator over TCP sockets covers only its creator's.

use crate::error::Error;
use aya::programs::iter::IterLink;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

/// Returns the network namespaces of the threads of these processes, each once, by inode.
pub(crate) fn of_processes(processes: &[u32]) -> BTreeMap<u64, File> {
    let mut found = BTreeMap::new();
    for process in processes {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        for thread in threads.flatten() {
            let path: PathBuf = thread.path().join("ns/net");
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if found.contains_key(&metadata.ino()) {
                continue;
            }
            if let Ok(file) = File::open(&path) {
                found.insert(metadata.ino(), file);
            }
        }
    }
    found
}

/// Runs an iterator to its end in a network namespace; `None`: the one of this thread.
///
/// # Errors
///
/// The namespace cannot be entered, or the kernel ends the iteration early.
pub(crate) fn run_iterator(link: IterLink, namespace: Option<&File>) -> Result<(), Error> {
    let Some(namespace) = namespace else { return read_out(link) };
    // The namespace belongs to a thread, so that this one ends with its work.
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("netns".into()).spawn_scoped(scope, move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|error| Error::of("enter a network namespace", error))?;
            read_out(link)
        });
        worker
            .map_err(|error| Error::of("start a thread", error))?
            .join()
            .map_err(|_| Error::new("the thread in a network namespace has ended early"))?
    })
}

fn read_out(link: IterLink) -> Result<(), Error> {
    let mut file = link.into_file().map_err(|error| Error::of("iterate over sockets", error))?;
    let mut output = [0; 64];
    loop {
        match file.read(&mut output) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::of("iterate over sockets", error)),
        }
    }
}
