//! `--report`: notes what a transfer tells while it runs, and writes it as one page at its end.
//!
//! What it does not do: draw (`bankfull-chart` does), or decide what is noted: every event of the
//! path comes from the library.

mod page;

use bankfull::{Error, ErrorKind, Event, EventSink, Progress, Route, Sample, Summary, Tuned};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Samples that are kept; at twice as many every other one is left out, so that the page of a copy
/// of days has no more than that of an hour. (ours: half an hour of ten a second)
const KEPT: usize = 18_000;

/// What is noted of a transfer.
#[derive(Debug, Default)]
struct Record {
    route: Option<Route>,
    software: String,
    encrypted: bool,
    samples: Thinned<Sample>,
    progress: Thinned<Progress>,
    decisions: Vec<Tuned>,
    notices: Vec<String>,
}

/// A list of bounded length, at equal distances.
#[derive(Debug)]
struct Thinned<T> {
    kept: Vec<T>,
    /// One in so many is kept.
    every: usize,
    skipped: usize,
}

impl<T> Default for Thinned<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), every: 1, skipped: 0 }
    }
}

impl<T> Thinned<T> {
    fn push(&mut self, item: T) {
        self.skipped += 1;
        if self.skipped < self.every {
            return;
        }
        self.skipped = 0;
        self.kept.push(item);
        if self.kept.len() >= 2 * KEPT {
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.every *= 2;
        }
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
        // A symlink stays, wherever it leads.
        let was_there = path.symlink_metadata().is_ok();
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|_| if was_there { Ok(()) } else { fs::remove_file(path) })
            .map_err(|e| unwritten("cannot write the report", path, &e))?;
        Ok(Self { next, path: path.to_owned(), record: Mutex::default() })
    }

    /// Writes the page: what was copied, or why it ended.
    pub(crate) fn finish(self, title: &str, result: &Result<Summary, Error>) -> Result<(), Error> {
        let record = self.record.into_inner().unwrap_or_else(PoisonError::into_inner);
        let html = page::page(title, &record, result).to_html();
        fs::write(&self.path, html)
            .map_err(|e| unwritten("the copy has ended, but its report is lost", &self.path, &e))
    }
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
            Event::Tuned(tuned) => record.decisions.push(tuned.clone()),
            Event::Notice { message } => record.notices.push(message.clone()),
            _ => {}
        }
        drop(record);
        self.next.event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::NoEvents;

    #[test]
    fn a_long_transfer_keeps_a_bounded_number_at_equal_distances() {
        let mut list = Thinned::default();
        (1..=10 * KEPT).for_each(|n| list.push(n));
        assert!((KEPT..2 * KEPT).contains(&list.kept.len()), "{}", list.kept.len());
        let steps: Vec<usize> = list.kept.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| *step == steps[0]));
    }

    #[test]
    fn a_report_that_cannot_be_written_is_told_before_anything_is_copied() {
        let error = Recorder::start(Path::new("/no/such/dir/r.html"), &NoEvents).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Local);
        assert!(error.to_string().contains("/no/such/dir/r.html"), "{error}");
    }
}
