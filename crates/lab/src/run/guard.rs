//! The guard on the receiver of a run.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::base::signals::Signals;
use crate::model::contender::GuardMode;
use crate::model::job::Job;
use crate::tools::shell::program_path;
use crate::topology::hosts::INTERFACE;
use crate::topology::network::Network;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time for the guard to start: it loads its programs and visits all sockets. (chosen: several
/// times what it takes)
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the guard to end: it visits all sockets again. (chosen: as above)
const END_TIMEOUT: Duration = Duration::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Text of the event that reports that the guard is attached.
const STARTED: &str = "\"event\":\"start\"";

/// Running guard; ended when dropped.
#[derive(Debug)]
pub(crate) struct RunningGuard(Child);

impl RunningGuard {
    /// Starts the guard of the contender, if any, and waits until it is attached.
    pub(crate) fn start(
        network: &Network,
        job: &Job<'_>,
        signals: &Signals,
    ) -> Result<Option<Self>> {
        let Some(mode) = job.contender.guard else { return Ok(None) };
        let program = program_path("bankfull")
            .ok_or(LabError::Missing("bankfull", "cargo build --release -p bankfull-cli"))?;
        let (out, error) = (job.dir.join("clientguard.out"), job.dir.join("clientguard.err"));
        let create = |path| {
            File::create(path).map_err(|e| LabError::io("cannot write the guard's output", e))
        };
        let mut command = Command::new(program);
        command.args(["guard", "--json", "--interface", INTERFACE, "--link-rate"]);
        command.arg(format!("{}bit", job.rate.bits_per_sec())).args(mode.flags());
        command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&error)?);
        let mut guard = Self(network.hosts().spawn(network.receiver(), &mut command)?);
        let deadline = Deadline::new(signals, START_TIMEOUT);
        while !fs::read_to_string(&out).unwrap_or_default().contains(STARTED) {
            let ended = guard.0.try_wait().ok().flatten();
            if ended.is_some() || deadline.expired().is_some() {
                let text = fs::read_to_string(&error).unwrap_or_default();
                return Err(LabError::Command("guard".to_owned(), text.trim().to_owned()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Some(guard))
    }
}

impl GuardMode {
    /// Returns the guard's flags.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Observe => &["--mode", "observe"],
            Self::Hold => &["--mode", "hold"],
            Self::HoldOneSegment => &["--mode", "hold", "--min-window-segments", "1"],
        }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let id = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            let _ = kill_process(id, Signal::TERM);
        }
        let end = Instant::now() + END_TIMEOUT;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
