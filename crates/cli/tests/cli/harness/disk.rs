//! A disk that can be stalled: ext4 on a loop device, frozen for some time.
//!
//! A process that writes to a frozen file system cannot be killed. Another program therefore
//! freezes it, and thaws it when the test ends in any way, or after one minute.

use super::{Scratch, is_root};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a command.
const LIMIT: Duration = Duration::from_secs(30);

/// Freezes the file system mounted there, until standard input ends.
const FREEZER: &str = "trap '' INT TERM HUP
mountpoint -q \"$1\" && fsfreeze -f \"$1\" || exit 1
echo frozen
timeout 60 cat > /dev/null
fsfreeze -u \"$1\"";

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Creates a file system of `mib` MiB, in memory or on disk, beneath `scratch`.
    /// `None`, with a message, if that is impossible.
    pub(crate) fn new(scratch: &Scratch, mib: u64) -> Option<Self> {
        Self::made_with(scratch, mib, &[])
    }

    /// Creates a file system with these options of mkfs.ext4(8).
    pub(crate) fn made_with(scratch: &Scratch, mib: u64, options: &[&str]) -> Option<Self> {
        if !is_root() {
            println!("skipped: only root mounts and freezes a file system");
            return None;
        }
        let (image, at) = (scratch.join("image"), scratch.dir("disk"));
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let made = attempt(Command::new("fsfreeze").arg("--version"))
            .and_then(|()| {
                attempt(Command::new("mkfs.ext4").args(["-q", "-F"]).args(options).arg(&image))
            })
            .and_then(|()| {
                attempt(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))
            });
        match made {
            Ok(()) => Some(Self(at)),
            Err(why) => {
                println!("skipped: no disk can be frozen here: {why}");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Freezes the file system.
    #[track_caller]
    pub(crate) fn freeze(&self) -> Frozen {
        let mut command = Command::new("sh");
        command.args(["-c", FREEZER, "sh"]).arg(&self.0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut freezer = command.spawn().expect("a shell");
        let out = freezer.stdout.take().expect("a pipe");
        let (sender, reported) = mpsc::channel();
        thread::spawn(move || {
            let _ = sender.send(BufReader::new(out).lines().next());
        });
        // From here on it is thawed in every case.
        let frozen = Frozen(freezer);
        let reported = reported.recv_timeout(LIMIT);
        assert!(
            matches!(&reported, Ok(Some(Ok(word))) if word == "frozen"),
            "not frozen: {reported:?}"
        );
        frozen
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Programs with open files may just be ending.
        let deadline = Instant::now() + Duration::from_secs(5);
        while attempt(Command::new("umount").arg(&self.0)).is_err() {
            if Instant::now() >= deadline {
                let _ = attempt(Command::new("umount").arg("--lazy").arg(&self.0));
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Keeps a disk frozen until dropped. Create it after all writers, so that it is dropped first.
#[derive(Debug)]
pub(crate) struct Frozen(Child);

impl Frozen {
    /// Thaws the file system.
    #[track_caller]
    pub(crate) fn thaw(mut self) {
        let ended = self.end();
        assert!(ended.is_ok(), "not thawed: {ended:?}");
    }

    fn end(&mut self) -> Result<(), String> {
        drop(self.0.stdin.take());
        wait(&mut self.0)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Runs a command that may fail.
fn attempt(command: &mut Command) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    wait(&mut child).map_err(|why| format!("{command:?} {why}"))
}

/// Waits for the end of a program. A program that waits for a disk cannot be killed, and is left
/// behind.
fn wait(child: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("failed: {status}")),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                return Err("hung".to_owned());
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}
