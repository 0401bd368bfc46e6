//! Modification times as file systems keep them: some round them, and some keep none.

use super::metadata::mtime_of;
use super::part_file::create_file_replacing;
use crate::base::error::printable;
use crate::base::part_names::PartNames;
use crate::base::sync::lock;
use bankfull_proto::plan::TimeGranularity;
use bankfull_proto::wire::control::Entry;
use bankfull_sys::{Dir, Stat, Timestamp};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Time that every coarser granularity changes: an odd second, nine digits of nanoseconds.
const PROBE: Timestamp = Timestamp { secs: 1_000_000_001, nanos: 987_654_321 };

/// Files of a session whose times are read back after they were set. (chosen: a file system treats
/// all files alike, except for dates that it cannot represent)
const LOOKED_AT_FILES: u32 = 16;

/// Seconds since 1970 that every file system can hold. (32 bits, signed)
const USUAL_SECS: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

/// Granularities of the file systems of a destination.
#[derive(Debug, Default)]
pub(crate) struct KeptTimes {
    /// By device; `None` if it keeps no times.
    granularities: Mutex<HashMap<u64, Option<TimeGranularity>>>,
    looked_at: AtomicU32,
    /// Times are kept only if the access time is set with them.
    needs_both: AtomicBool,
    /// Warning that is not shown yet; one for each session.
    loss: Mutex<Option<String>>,
    is_reported: AtomicBool,
}

impl KeptTimes {
    /// True if an existing file has the announced time, but for rounding.
    pub(crate) fn is_same(&self, dir: &Dir, name: &OsStr, entry: &Entry, existing: &Stat) -> bool {
        let pair = |time: Timestamp| (time.secs, time.nanos);
        let (wanted, kept) = (pair(mtime_of(entry)), pair(existing.mtime));
        if wanted == kept || !TimeGranularity::COARSEST.is_same(wanted, kept) {
            return wanted == kept;
        }
        let mut known = lock(&self.granularities);
        // Without a measurement, times are exact: the file is sent.
        let measured =
            *known.entry(existing.dev).or_insert_with(|| measure(dir, name).unwrap_or(None));
        measured.is_some_and(|granularity| granularity.is_same(wanted, kept))
    }

    /// Looks at a file's time after it was set; sets it in another way if that helps.
    pub(crate) fn look(&self, file: &File, name: &OsStr, wanted: Timestamp) -> io::Result<()> {
        if self.needs_both.load(Ordering::Relaxed) {
            return bankfull_sys::set_mtime_with_atime(file, wanted);
        }
        let is_usual = USUAL_SECS.contains(&wanted.secs);
        if is_usual && self.looked_at.fetch_add(1, Ordering::Relaxed) >= LOOKED_AT_FILES {
            return Ok(());
        }
        let mut kept = bankfull_sys::stat_file(file)?.mtime;
        if kept != wanted && !is_rounded(wanted, kept) {
            bankfull_sys::set_mtime_with_atime(file, wanted)?;
            kept = bankfull_sys::stat_file(file)?.mtime;
            let helps = kept == wanted || is_rounded(wanted, kept);
            self.needs_both.store(helps, Ordering::Relaxed);
        }
        if kept != wanted && !self.is_reported.swap(true, Ordering::Relaxed) {
            let name = printable(&name.to_string_lossy());
            let how = match is_rounded(wanted, kept) {
                true => "rounds modification times, such as that of",
                false => "does not keep the modification time of",
            };
            *lock(&self.loss) = Some(format!("the file system of the destination {how} {name}"));
        }
        Ok(())
    }

    /// Returns the warning about a time that was not kept, once.
    pub(crate) fn take_loss(&self) -> Option<String> {
        if !self.is_reported.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.loss).take()
    }
}

/// True if a time is kept but for rounding.
fn is_rounded(wanted: Timestamp, kept: Timestamp) -> bool {
    TimeGranularity::COARSEST.is_same((wanted.secs, wanted.nanos), (kept.secs, kept.nanos))
}

/// Measures the granularity in a directory, by a file with a part file's temporary name.
fn measure(dir: &Dir, name: &OsStr) -> io::Result<Option<TimeGranularity>> {
    let probe = PartNames::of(name).journal_temp;
    let file = create_file_replacing(dir, &probe)?;
    // Some file systems keep a time only if the access time is set with it.
    let measured = [bankfull_sys::set_mtime, bankfull_sys::set_mtime_with_atime].map(|set| {
        set(&file, PROBE)?;
        let kept = bankfull_sys::stat_file(&file)?.mtime;
        Ok(TimeGranularity::measured((PROBE.secs, PROBE.nanos), (kept.secs, kept.nanos)))
    });
    dir.unlink(&probe)?;
    let [first, second] = measured;
    first.and_then(|first| if first.is_some() { Ok(first) } else { second })
}
