//! Many daemons as sources of a gathering.

use super::run::gather;
use super::{Daemon, Rng, Scratch, fill, write_file};
use std::path::PathBuf;
use std::process::Command;

/// Daemons with a tree `data` each, a destination, and the state of the client.
pub(crate) struct Many {
    pub(crate) daemons: Vec<Daemon>,
    roots: Vec<Scratch>,
    pub(crate) here: Scratch,
}

impl Many {
    /// Starts daemons, whose trees have one large file and some small ones each.
    #[track_caller]
    pub(crate) fn start(count: usize, bytes: u64) -> Self {
        let roots: Vec<Scratch> = (0..count).map(|_| Scratch::new()).collect();
        for (number, root) in roots.iter().enumerate() {
            for name in ["a", "b", "sub/c"] {
                write_file(&root.join("data").join(name), format!("{name} of {number}"));
            }
            fill(&root.join("data/large"), bytes, &mut Rng::new(number as u64 + 1));
        }
        let daemons = roots.iter().map(|root| Daemon::start(root.path(), &[])).collect();
        Self { daemons, roots, here: Scratch::new() }
    }

    /// Returns the tree of a daemon.
    pub(crate) fn tree(&self, number: usize) -> PathBuf {
        self.roots[number].join("data")
    }

    /// Returns the destination of that tree.
    pub(crate) fn copied_to(&self, number: usize) -> PathBuf {
        self.destination_from(self.daemons[number].port)
    }

    /// Returns the destination of a tree that is fetched from another port.
    pub(crate) fn destination_from(&self, port: u16) -> PathBuf {
        self.here.join(format!("in/{}_{port}/data", super::remote_host()))
    }

    /// Returns the source of each daemon.
    pub(crate) fn sources(&self) -> Vec<String> {
        self.daemons.iter().map(|daemon| daemon.url("data")).collect()
    }

    /// Returns `bankfull gather --json` of these sources, trusting every daemon.
    pub(crate) fn gather(&self, flags: &[&str], sources: &[String]) -> Command {
        let mut command = gather();
        command.args(flags).arg("--accept-new").arg("--state-dir").arg(self.here.join("state"));
        command.args(sources).arg(self.here.join("in"));
        command
    }
}
