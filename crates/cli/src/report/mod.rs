//! `--report`: notes what a transfer tells while it runs, and writes it as one page at its end.
//!
//! What it does not do: draw (`bankfull-chart` does), or decide what is noted: every event of the
//! path comes from the library.

mod page;

use bankfull::{
    BufferLimit, Error, ErrorKind, Event, EventSink, Progress, Route, Sample, Summary,
    TuningDecision,
};
use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Samples that are kept; at twice as many every other one is left out, so that the page of a copy
/// of days has no more than that of an hour. (ours: half an hour of ten a second)
const KEPT: usize = 18_000;

/// Decisions and notices that are kept, the latest. (ours: a path that is shared brings a decision
/// every two seconds; an hour of them)
const NEWS_KEPT: usize = 2_000;

/// Who made the page, as it says itself: no other file is ever overwritten.
const GENERATOR: &str = "bankfull cp --report";

/// So much of a file is read to see that. (ours: it stands within the first 200 bytes)
const HEAD_BYTES: u64 = 1024;

/// What is noted of a transfer.
#[derive(Debug, Default)]
struct Record {
    route: Option<Route>,
    software: String,
    encrypted: bool,
    samples: Thinned<Sample>,
    progress: Thinned<Progress>,
    decisions: Latest<TuningDecision>,
    staging: Latest<BufferLimit>,
    notices: Latest<String>,
    /// Files that failed, and why.
    failed: Latest<(PathBuf, String)>,
}

/// The latest of many.
#[derive(Debug)]
struct Latest<T> {
    kept: VecDeque<T>,
    /// How many earlier ones are left out.
    dropped: u64,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), dropped: 0 }
    }
}

impl<T> Latest<T> {
    fn push(&mut self, item: T) {
        if self.kept.len() >= NEWS_KEPT {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(item);
    }
}

/// An item that can stand for those before it, too.
trait Absorb {
    fn absorb(&mut self, earlier: &Self);
}

impl Absorb for Sample {
    /// All but round trips are counts, of which the last tells all.
    fn absorb(&mut self, earlier: &Self) {
        let both = || self.rtts.iter().chain(&earlier.rtts).copied();
        self.rtts = both().min().into_iter().chain(both().max()).collect();
    }
}

impl Absorb for Progress {
    fn absorb(&mut self, _earlier: &Self) {}
}

/// A list of bounded length, at equal distances.
#[derive(Debug)]
struct Thinned<T> {
    kept: Vec<T>,
    /// One in so many is kept.
    every: usize,
    skipped: usize,
    /// What the next one that is kept stands for, too.
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
        if self.kept.len() >= 2 * KEPT {
            self.halve();
        }
    }

    /// Leaves out every other one.
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

/// Takes the events of a transfer, for another one and for the report.
pub(crate) struct Recorder<'a> {
    next: &'a dyn EventSink,
    path: PathBuf,
    record: Mutex<Record>,
}

impl<'a> Recorder<'a> {
    /// Looks whether the file can be written, so that this is known before anything is copied. What
    /// is there stays until the end, and what is not there is not left behind: it may lie in a tree
    /// that is copied.
    pub(crate) fn start(path: &Path, next: &'a dyn EventSink) -> Result<Self, Error> {
        let open = || {
            // A symlink stays, wherever it leads.
            let was_there = path.symlink_metadata().is_ok();
            refuse_others(path)?;
            OpenOptions::new().append(true).create(true).open(path)?;
            if was_there { Ok(()) } else { fs::remove_file(path) }
        };
        open().map_err(|e| unwritten("cannot write the report", path, &e))?;
        Ok(Self { next, path: path.to_owned(), record: Mutex::default() })
    }

    /// Writes the page: what was copied, or why it ended.
    pub(crate) fn finish(self, title: &str, result: &Result<Summary, Error>) -> Result<(), Error> {
        let record = self.record.into_inner().unwrap_or_else(PoisonError::into_inner);
        let html = page::page(title, &record, result).to_html();
        // It may have been copied there meanwhile.
        refuse_others(&self.path)
            .and_then(|()| replace(&self.path, &html))
            .map_err(|e| unwritten("the copy has ended, but its report is lost", &self.path, &e))
    }
}

/// Writes a file beside its place and gives it its name then, so that nobody ever reads half of it.
/// What is no file is written to, as is a file where none can be made beside it; a symlink stays.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let is_there = path.symlink_metadata().is_ok();
    let place = if is_there { path.canonicalize() } else { Ok(path.to_owned()) };
    // Without one a symlink leads to nothing, or to a file that has no name any more.
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
        // There may be a part of it.
        let _ = fs::remove_file(&new);
    })
}

/// Refuses a file that is there and is no report: what it holds would be lost.
fn refuse_others(path: &Path) -> std::io::Result<()> {
    // A device or pipe has nothing to lose.
    if !path.metadata().is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    let mut head = Vec::new();
    fs::File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    let mark = bankfull_chart::generator_tag(GENERATOR);
    let is_report = head.windows(mark.len()).any(|bytes| bytes == mark.as_bytes());
    let is_other = !head.is_empty() && !is_report;
    let text = "it is there already and is no report: give another name";
    if is_other { Err(std::io::Error::other(text)) } else { Ok(()) }
}

fn unwritten(what: &str, path: &Path, error: &std::io::Error) -> Error {
    // The number that the system's words end with says nothing to anybody.
    let words = error.to_string();
    let words = words.split(" (os error").next().unwrap_or_default().to_lowercase();
    Error::new(ErrorKind::Local, format!("{what}: {}: {words}", path.display()))
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
            Event::Tuning(tuned) => record.decisions.push(tuned.clone()),
            Event::BufferLimit(staging) => record.staging.push(staging.clone()),
            Event::Warning { message } => record.notices.push(message.clone()),
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
    fn a_long_transfer_keeps_a_bounded_number_at_equal_distances_and_every_peak() {
        let mut list = Thinned::default();
        let (many, peak) = (10 * KEPT as u64, Duration::from_secs(1));
        for n in 1..=many {
            let mut sample = Sample::default();
            sample.carried = Bytes(n);
            sample.rtts = vec![if n == 4321 { peak } else { Duration::from_millis(20) }];
            list.push(sample);
        }
        assert!((KEPT..2 * KEPT).contains(&list.kept.len()), "{}", list.kept.len());
        let steps: Vec<u64> =
            list.kept.windows(2).map(|pair| pair[1].carried.0 - pair[0].carried.0).collect();
        assert!(steps.iter().all(|step| *step == steps[0]));
        let peaks = list.kept.iter().filter(|sample| sample.rtts.contains(&peak));
        assert_eq!(peaks.count(), 1);
    }

    #[test]
    fn of_decisions_the_latest_are_kept() {
        let mut latest = Latest::default();
        (0..NEWS_KEPT + 10).for_each(|n| latest.push(n));
        assert_eq!((latest.kept.len(), latest.kept[0], latest.dropped), (NEWS_KEPT, 10, 10));
    }

    #[test]
    fn a_report_takes_the_place_of_the_last_one_whole_and_symlinks_and_devices_stay() {
        let dir = tempfile::tempdir().unwrap();
        let [report, link] = ["report.html", "link"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("report.html", &link).unwrap();
        replace(&report, "first").unwrap();
        let reader = fs::File::open(&report).unwrap();
        replace(&link, "second").unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), "second");
        assert!(link.is_symlink());
        // Whoever reads the one before has all of it.
        assert_eq!(std::io::read_to_string(reader).unwrap(), "first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        replace(Path::new("/dev/null"), "gone").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        fs::remove_file(&report).unwrap();
        replace(&link, "third").unwrap();
        assert!(link.is_symlink() && fs::read_to_string(&report).unwrap() == "third");
        // Nothing can be made beside what has the name that it would have.
        fs::create_dir(dir.path().join(format!("report.html.new-{}", std::process::id()))).unwrap();
        replace(&report, "fourth").unwrap();
        assert_eq!(fs::read_to_string(&report).unwrap(), "fourth");
    }

    #[test]
    fn a_report_that_cannot_be_written_is_told_before_anything_is_copied() {
        let error = Recorder::start(Path::new("/no/such/dir/r.html"), &NoEvents).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert!(error.to_string().contains("/no/such/dir/r.html"), "{error}");
    }
}
