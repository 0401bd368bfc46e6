//! HTML report (`--report`): records the events of a transfer and writes them as one page at its
//! end.
//!
//! `bankfull-chart` draws the page. The library decides which events there are.

mod page;

use crate::output::printable;
use bankfull::{
    BufferLimit, Error, ErrorKind, Event, EventSink, Progress, Route, Sample, Summary,
    TuningDecision,
};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of samples kept. At twice the number, every other one is dropped, so that the page stays
/// small for a copy of days. (chosen: half an hour at ten per second)
const MAX_SAMPLES: usize = 18_000;

/// Number of latest decisions and warnings kept. (chosen: one hour with a decision every 2 s)
const MAX_DECISIONS: usize = 2_000;

/// Generator mark of the page. Only files with this mark are overwritten.
const GENERATOR: &str = "bankfull cp --report";

/// Number of bytes read to find the mark. (chosen: it is within the first 200 bytes)
const HEAD_BYTES: u64 = 1024;

/// Time, place and command of a copy.
#[derive(Debug)]
struct Origin {
    /// Start in UTC.
    date: String,
    host: String,
    /// Command line as typed.
    command: String,
}

impl Origin {
    /// Describes this process.
    fn here() -> Self {
        let quoted = |argument: OsString| {
            let text = printable(argument.as_ref());
            let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@,+%[]~".contains(c);
            match !text.is_empty() && text.chars().all(is_plain) {
                true => text,
                false => format!("'{}'", text.replace('\'', r"'\''")),
            }
        };
        let arguments: Vec<String> = std::env::args_os().skip(1).map(quoted).collect();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            date: utc(since_epoch.as_secs()),
            host: crate::serve::host_name(),
            command: format!("bankfull {}", arguments.join(" ")),
        }
    }
}

/// Formats seconds since the epoch as a date and time in UTC.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to the civil date, with years that start in March (H. Hinnant, chrono-compatible
    // low-level date algorithms).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Recorded events of a transfer.
#[derive(Debug, Default)]
struct Record {
    route: Option<Route>,
    software: String,
    encrypted: bool,
    samples: Thinned<Sample>,
    progress: Thinned<Progress>,
    decisions: Latest<TuningDecision>,
    buffer_limits: Latest<BufferLimit>,
    warnings: Latest<String>,
    /// Failed files with their reasons.
    failed: Latest<(PathBuf, String)>,
}

/// The latest items of many.
#[derive(Debug)]
struct Latest<T> {
    kept: VecDeque<T>,
    /// Number of earlier items dropped.
    dropped: u64,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), dropped: 0 }
    }
}

impl<T> Latest<T> {
    fn push(&mut self, item: T) {
        if self.kept.len() >= MAX_DECISIONS {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(item);
    }
}

/// An item that can also represent earlier ones.
trait Absorb {
    fn absorb(&mut self, earlier: &Self);
}

impl Absorb for Sample {
    /// Merges the RTTs; the other figures are counters, of which the last value suffices.
    fn absorb(&mut self, earlier: &Self) {
        let both = || self.rtts.iter().chain(&earlier.rtts).copied();
        self.rtts = both().min().into_iter().chain(both().max()).collect();
    }
}

impl Absorb for Progress {
    fn absorb(&mut self, _earlier: &Self) {}
}

/// A list of bounded length with equal distances.
#[derive(Debug)]
struct Thinned<T> {
    kept: Vec<T>,
    /// Distance between kept items.
    every: usize,
    skipped: usize,
    /// Dropped item that the next kept one also represents.
    pending: Option<T>,
}

impl<T> Default for Thinned<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), every: 1, skipped: 0, pending: None }
    }
}

impl<T: Absorb> Thinned<T> {
    fn push(&mut self, mut item: T) {
        if let Some(earlier) = self.pending.take() {
            item.absorb(&earlier);
        }
        self.skipped += 1;
        if self.skipped < self.every {
            self.pending = Some(item);
            return;
        }
        self.skipped = 0;
        self.kept.push(item);
        if self.kept.len() >= 2 * MAX_SAMPLES {
            self.halve();
        }
    }

    /// Drops every other item.
    fn halve(&mut self) {
        let mut earlier = None;
        for mut item in std::mem::take(&mut self.kept) {
            match earlier.take() {
                None => earlier = Some(item),
                Some(before) => {
                    item.absorb(&before);
                    self.kept.push(item);
                }
            }
        }
        self.every *= 2;
    }
}

/// Sink that records the events of a transfer and passes them on.
pub(crate) struct Recorder<'a> {
    next: &'a dyn EventSink,
    path: PathBuf,
    origin: Origin,
    record: Mutex<Record>,
}

impl<'a> Recorder<'a> {
    /// Checks that the file is writable before anything is copied. An existing file stays until the
    /// end, and a new one is removed again, as it may be in a copied tree.
    pub(crate) fn start(path: &Path, next: &'a dyn EventSink) -> Result<Self, Error> {
        let open = || {
            // A symlink stays, whatever its target is.
            let was_there = path.symlink_metadata().is_ok();
            refuse_others(path)?;
            OpenOptions::new().append(true).create(true).open(path)?;
            if was_there { Ok(()) } else { fs::remove_file(path) }
        };
        open().map_err(|e| unwritten("cannot write the report", path, &e))?;
        let origin = Origin::here();
        Ok(Self { next, path: path.to_owned(), origin, record: Mutex::default() })
    }

    /// Writes the page with the result.
    pub(crate) fn finish(self, title: &str, result: &Result<Summary, Error>) -> Result<(), Error> {
        let record = self.record.into_inner().unwrap_or_else(PoisonError::into_inner);
        let html = page::page(title, &self.origin, &record, result).to_html();
        // The copy may have put another file there.
        refuse_others(&self.path).and_then(|()| replace(&self.path, &html)).map_err(|e| {
            unwritten("the copy has ended, but its report cannot be written", &self.path, &e)
        })
    }
}

/// Writes a temporary file and renames it, so that readers never see half a page. Other file types,
/// and files in directories that cannot be written, are written in place; a symlink stays.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let is_there = path.symlink_metadata().is_ok();
    let place = if is_there { path.canonicalize() } else { Ok(path.to_owned()) };
    // The symlink is dangling, or its target has been removed.
    let Ok(place) = place else { return fs::write(path, text) };
    let old = place.metadata().ok();
    let (Some(name), true) = (place.file_name(), old.as_ref().is_none_or(fs::Metadata::is_file))
    else {
        return fs::write(path, text);
    };
    let mut new = name.to_owned();
    new.push(format!(".new-{}", std::process::id()));
    let new = place.with_file_name(new);
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&new) else {
        return fs::write(path, text);
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| {
        old.map_or(Ok(()), |old| file.set_permissions(old.permissions()))?;
        fs::rename(&new, &place)
    });
    written.inspect_err(|_| {
        // The temporary file may be incomplete.
        let _ = fs::remove_file(&new);
    })
}

/// Refuses an existing file that is not a report, as its contents would be lost.
fn refuse_others(path: &Path) -> std::io::Result<()> {
    // A device or pipe has no contents to lose.
    if !path.metadata().is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    let mut head = Vec::new();
    fs::File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    let mark = bankfull_chart::generator_tag(GENERATOR);
    let is_report = head.windows(mark.len()).any(|bytes| bytes == mark.as_bytes());
    let is_other = !head.is_empty() && !is_report;
    let text = "the file exists and is not a report: choose another name";
    if is_other { Err(std::io::Error::other(text)) } else { Ok(()) }
}

fn unwritten(what: &str, path: &Path, error: &std::io::Error) -> Error {
    // Without the error number at the end of the system's message.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_lowercase();
    Error::new(ErrorKind::Local, format!("{what}: {}: {text}", path.display()))
}

impl EventSink for Recorder<'_> {
    fn event(&self, event: Event) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        match &event {
            Event::Connected { route, software, encrypted } => {
                record.route = Some(*route);
                record.software.clone_from(software);
                record.encrypted = *encrypted;
            }
            Event::Sample(sample) => record.samples.push(sample.clone()),
            Event::Progress(progress) => record.progress.push(*progress),
            Event::Tuning(decision) => record.decisions.push(decision.clone()),
            Event::BufferLimit(limit) => record.buffer_limits.push(limit.clone()),
            Event::Warning { message } => record.warnings.push(message.clone()),
            Event::FileFailed { path, message, .. } => {
                record.failed.push((path.clone(), message.clone()));
            }
            _ => {}
        }
        drop(record);
        self.next.event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::{Bytes, NoEvents};
    use std::time::Duration;

    #[test]
    fn thinned_list_is_bounded_and_keeps_peaks() {
        let mut list = Thinned::default();
        let (many, peak) = (10 * MAX_SAMPLES as u64, Duration::from_secs(1));
        for n in 1..=many {
            let mut sample = Sample::default();
            sample.carried = Bytes(n);
            sample.rtts = vec![if n == 4321 { peak } else { Duration::from_millis(20) }];
            list.push(sample);
        }
        assert!((MAX_SAMPLES..2 * MAX_SAMPLES).contains(&list.kept.len()), "{}", list.kept.len());
        let steps: Vec<u64> =
            list.kept.windows(2).map(|pair| pair[1].carried.0 - pair[0].carried.0).collect();
        assert!(steps.iter().all(|step| *step == steps[0]));
        let peaks = list.kept.iter().filter(|sample| sample.rtts.contains(&peak));
        assert_eq!(peaks.count(), 1);
    }

    #[test]
    fn utc_formats_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(utc(1_764_075_540), "2025-11-25 12:59 UTC");
    }

    #[test]
    fn latest_decisions_are_kept() {
        let mut latest = Latest::default();
        (0..MAX_DECISIONS + 10).for_each(|n| latest.push(n));
        assert_eq!((latest.kept.len(), latest.kept[0], latest.dropped), (MAX_DECISIONS, 10, 10));
    }

    #[test]
    fn report_is_replaced_atomically_and_links_stay() {
        let dir = tempfile::tempdir().unwrap();
        let [report, link] = ["report.html", "link"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("report.html", &link).unwrap();
        replace(&report, "first").unwrap();
        let reader = fs::File::open(&report).unwrap();
        replace(&link, "second").unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), "second");
        assert!(link.is_symlink());
        // An open reader still has the whole earlier page.
        assert_eq!(std::io::read_to_string(reader).unwrap(), "first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        replace(Path::new("/dev/null"), "gone").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        fs::remove_file(&report).unwrap();
        replace(&link, "third").unwrap();
        assert!(link.is_symlink() && fs::read_to_string(&report).unwrap() == "third");
        // A directory with the temporary name prevents a temporary file.
        fs::create_dir(dir.path().join(format!("report.html.new-{}", std::process::id()))).unwrap();
        replace(&report, "fourth").unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), "fourth");
    }

    #[test]
    fn unwritable_report_is_refused_at_start() {
        let error = Recorder::start(Path::new("/no/such/dir/r.html"), &NoEvents).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert!(error.to_string().contains("/no/such/dir/r.html"), "{error}");
    }
}
