//! What earlier copies saw of paths: a starting point where nothing else tells, and no more. One
//! small file for each path and direction. It is replaced as a whole, so that many processes may
//! read and write at once; what is old, damaged or missing tells nothing.

use crate::location::Location;
use crate::net::identity::make_private_dir;
use crate::options::default_state_dir;
use crate::transfer::Transfer;
use bankfull_control::Rate;
use bankfull_control::sobas::Remembered;
use bankfull_proto::wire::control::Direction;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Older than this it tells nothing. (ours: lines are changed within weeks)
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// First line of a file.
const MAGIC: &str = "bankfull path 1";

/// Counts what this process writes.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// What is remembered of the path of a transfer.
pub(crate) struct PathMemory {
    file: PathBuf,
    name: String,
}

impl PathMemory {
    /// That of the path to or from the far side; `None` where there is no place to remember things.
    pub(crate) fn of(transfer: &Transfer, direction: Direction) -> Option<Self> {
        let far = match direction {
            Direction::Pull => transfer.sources.first().unwrap_or(&transfer.destination),
            Direction::Push => &transfer.destination,
        };
        let host = match far {
            Location::Local(_) => return None,
            Location::Ssh { host, .. } => host.clone(),
            Location::Daemon { host, port, .. } => format!("{host}:{port}"),
        };
        let dir = transfer.daemon.state_dir.clone().or_else(|| default_state_dir().ok())?;
        let way = if direction == Direction::Push { "to" } else { "from" };
        Some(Self::at(dir, &format!("{way} {host}")))
    }

    fn at(state_dir: PathBuf, name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes()).to_hex();
        Self { file: state_dir.join("paths").join(&hash.as_str()[..16]), name: name.to_owned() }
    }

    /// What is remembered.
    pub(crate) fn recall(&self) -> Option<Remembered> {
        self.recall_at(SystemTime::now())
    }

    fn recall_at(&self, now: SystemTime) -> Option<Remembered> {
        let text = fs::read_to_string(&self.file).ok()?;
        let mut lines = text.lines();
        if lines.next()? != MAGIC || lines.next()? != self.name {
            return None;
        }
        let figures: Vec<u64> = lines.map_while(|line| line.parse().ok()).collect();
        let [rate_bps, rtt_us, at] = figures.try_into().ok()?;
        let age = now.duration_since(UNIX_EPOCH + Duration::from_secs(at)).ok()?;
        let is_sensible = rate_bps > 0 && rtt_us > 0 && age <= KEPT;
        let rtt = Duration::from_micros(rtt_us);
        is_sensible.then(|| Remembered { rate: Rate::from_bits_per_sec(rate_bps as f64), rtt })
    }

    /// Remembers it. What cannot be written is not missed.
    pub(crate) fn note(&self, seen: &Remembered) {
        let _ = self.try_note(seen);
    }

    fn try_note(&self, seen: &Remembered) -> Option<()> {
        let dir = self.file.parent()?;
        make_private_dir(dir.parent()?).ok()?;
        make_private_dir(dir).ok()?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let (rate, rtt) = (seen.rate.bits_per_sec(), seen.rtt.as_micros());
        // A name of its own for each: nobody writes into what another one renames.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = self.file.with_extension(format!("{}-{number}", std::process::id()));
        let mut file = fs::File::create(&part).ok()?;
        let text = format!("{MAGIC}\n{}\n{rate}\n{rtt}\n{at}\n", self.name);
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&part, &self.file));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mbit: f64) -> Remembered {
        let rate = Rate::from_bits_per_sec(mbit * 1e6);
        Remembered { rate, rtt: Duration::from_millis(20) }
    }

    #[test]
    fn a_path_is_remembered_for_a_week_and_apart_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| PathMemory::at(dir.path().to_owned(), name);
        assert_eq!(path("to a:1").recall(), None);
        path("to a:1").note(&seen(900.0));
        path("from a:1").note(&seen(100.0));
        assert_eq!(path("to a:1").recall(), Some(seen(900.0)));
        assert_eq!(path("from a:1").recall(), Some(seen(100.0)));
        let later = SystemTime::now() + KEPT + Duration::from_secs(60);
        assert_eq!(path("to a:1").recall_at(later), None);
    }

    #[test]
    fn what_is_damaged_tells_nothing_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = PathMemory::at(dir.path().to_owned(), "to a:1");
        path.note(&seen(900.0));
        for text in ["", "rubbish", &format!("{MAGIC}\nto b:1\n1\n1\n1\n"), "\u{0}\u{1}"] {
            fs::write(&path.file, text).unwrap();
            assert_eq!(path.recall(), None, "{text:?}");
        }
        path.note(&seen(800.0));
        assert_eq!(path.recall(), Some(seen(800.0)));
        assert_eq!(fs::read_dir(path.file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn many_at_once_leave_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 1..=8u32 {
                let path = PathMemory::at(dir.path().to_owned(), "to a:1");
                scope.spawn(move || (0..50).for_each(|_| path.note(&seen(f64::from(n)))));
            }
        });
        let found = PathMemory::at(dir.path().to_owned(), "to a:1").recall();
        assert!(found.is_some_and(|found| found.rtt == seen(1.0).rtt), "{found:?}");
    }
}
