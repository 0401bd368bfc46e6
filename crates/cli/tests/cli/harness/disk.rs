//! A disk that can be made to stand still: ext4 on a loop device, which is frozen for a while.
//!
//! Whoever writes to a frozen file system cannot even be killed, so none is left behind: another
//! program freezes it, and thaws it when the test lets go of it, however the test ends, and after a
//! minute in any case. Nothing here waits for ever.

use super::{Scratch, is_root};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// Freezes what is mounted there, and nothing else, until its standard input ends.
const FREEZER: &str = "trap '' INT TERM HUP
mountpoint -q \"$1\" && fsfreeze -f \"$1\" || exit 1
echo frozen
timeout 60 cat > /dev/null
fsfreeze -u \"$1\"";

/// A file system that is mounted.
#[derive(Debug)]
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// One of so much in memory or on the usual disk, beneath `scratch`. `None`, with a word, where
    /// it cannot be had.
    pub(crate) fn new(scratch: &Scratch, mib: u64) -> Option<Self> {
        if !is_root() {
            println!("skipped: only root mounts and freezes a file system");
            return None;
        }
        let (image, at) = (scratch.join("image"), scratch.dir("disk"));
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let made = attempt(Command::new("fsfreeze").arg("--version"))
            .and_then(|()| attempt(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)))
            .and_then(|()| {
                attempt(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))
            });
        match made {
            Ok(()) => Some(Self(at)),
            Err(why) => {
                println!("skipped: no disk that can be frozen is to be had here: {why}");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Has it stand still.
    #[track_caller]
    pub(crate) fn freeze(&self) -> Frozen {
        let mut command = Command::new("sh");
        command.args(["-c", FREEZER, "sh"]).arg(&self.0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut freezer = command.spawn().expect("a shell");
        let out = freezer.stdout.take().expect("a pipe");
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            let _ = sender.send(BufReader::new(out).lines().next());
        });
        // From here on it thaws, whatever comes.
        let frozen = Frozen(freezer);
        let said = said.recv_timeout(LIMIT);
        assert!(matches!(&said, Ok(Some(Ok(word))) if word == "frozen"), "not frozen: {said:?}");
        frozen
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Who had a file open there may just be ending.
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

/// A disk stands still as long as this is kept. To be made after whatever writes there, so that it
/// goes first.
#[derive(Debug)]
pub(crate) struct Frozen(Child);

impl Frozen {
    /// Has it go on.
    #[track_caller]
    pub(crate) fn thaw(mut self) {
        let ended = self.end();
        assert!(ended.is_ok(), "it is not thawed: {ended:?}");
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

/// Waits for the end of a program, which is left behind where it does not end: what waits for a
/// disk does not die.
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
